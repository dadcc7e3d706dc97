#!/usr/bin/env python3
"""A controller for Muster in one file, with nothing but Python's standard library.

It watches node pools, acts, and reports what it sees. The machines are pretended: where a real controller
would call a cloud or a rack, `Machines` counts. Everything else is what a real one does:

* one thread follows `GET /api/v1/nodepools?watch=true` and keeps the newest copy of every pool;
* the main thread compares what is wanted with what is there, takes one step, and reports it with
  `PUT /api/v1/nodepools/{id}/status`;
* a report is repeated before its lease runs out, so that silence means trouble;
* a revision that is too old (410) is answered by listing again;
* a pool that is being deleted is torn down first and confirmed with the condition Deleted.

Run it with the token that `muster serve` keeps in its data directory:

    python3 examples/controller.py --token-file .data/controller-token
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

# The server says every 10 seconds that a quiet watch is alive; three times that is a dead connection.
WATCH_SILENCE = 30.0
REQUEST_TIMEOUT = 15.0


class Gone(Exception):
    """The revision to watch from is no longer known: list again."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status, error, retry_after=None):
        super().__init__(f"{error.get('code', status)}: {error.get('message', '')} {error.get('details', '')}".strip())
        self.status = status
        self.retry_after = retry_after


class Api:
    """The few requests that a controller makes."""

    def __init__(self, server, token):
        self.server = server.rstrip("/")
        self.token = token

    def open(self, method, path, query=None, body=None, timeout=REQUEST_TIMEOUT):
        url = self.server + path + ("?" + urllib.parse.urlencode(query) if query else "")
        request = urllib.request.Request(url, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            return urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as failure:
            text = failure.read().decode("utf-8", "replace")
            try:
                error = json.loads(text)["error"]
            except (ValueError, KeyError, TypeError):
                error = {"message": text}
            if failure.code == 410:
                raise Gone from failure
            raise Refused(failure.code, error, failure.headers.get("Retry-After")) from failure

    def list(self, query):
        """All pools, page by page, and the revision of the first page to watch from."""
        pools, revision, cursor = [], None, None
        while True:
            page = dict(query, limit=100, **({"cursor": cursor} if cursor else {}))
            with self.open("GET", "/api/v1/nodepools", page) as answer:
                found = json.load(answer)
            pools += found["nodepools"]
            revision = revision or found["revision"]
            cursor = found.get("next_cursor")
            if not cursor:
                return pools, revision

    def watch(self, query, revision):
        """Every change after `revision`, one JSON document per line."""
        query = dict(query, watch="true", resource_version=revision)
        with self.open("GET", "/api/v1/nodepools", query, timeout=WATCH_SILENCE) as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    error = event["object"]["error"]
                    if error["code"] == "GONE":
                        raise Gone
                    raise Refused(0, error)
                yield event

    def report(self, pool_id, body):
        with self.open("PUT", f"/api/v1/nodepools/{pool_id}/status", body=body) as answer:
            answer.read()


class Pools:
    """The newest copy of every pool. One thread fills it, another reads it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.changed = threading.Event()
        self.by_id = {}
        self.listings = 0

    def replace(self, pools):
        with self.lock:
            self.by_id = {pool["id"]: pool for pool in pools}
            self.listings += 1
        self.changed.set()

    def put(self, pool):
        with self.lock:
            self.by_id[pool["id"]] = pool
        self.changed.set()

    def remove(self, pool_id):
        with self.lock:
            self.by_id.pop(pool_id, None)
        self.changed.set()

    def copy(self):
        """All pools, and how often they were listed from the beginning."""
        with self.lock:
            return dict(self.by_id), self.listings


def follow(api, query, pools, stop):
    """Keeps `pools` up to date: list once, then watch; list again only when the revision is too old."""
    revision = None
    while not stop.is_set():
        try:
            if revision is None:
                listed, revision = api.list(query)
                pools.replace(listed)
                say(f"listed {len(listed)} pools at revision {revision}")
            for event in api.watch(query, revision):
                if event["type"] == "DELETED":
                    pools.remove(event["object"]["id"])
                elif event["type"] in ("ADDED", "MODIFIED"):
                    pools.put(event["object"])
                # A BOOKMARK carries no object; it only moves the place to resume from.
                revision = event["revision"]
        except Gone:
            say(f"revision {revision} is too old; listing again")
            revision = None
        except (Refused, OSError, ValueError) as error:
            # OSError covers a refused connection, a reset and a watch that fell silent.
            say(f"the watch ended: {error}; resuming")
            stop.wait(1)


class Machines:
    """The pretended platform: the nodes of one pool, and when each becomes ready."""

    def __init__(self, existing, boot_seconds):
        self.boot_seconds = boot_seconds
        self.born = [time.monotonic() - boot_seconds] * existing

    def step_towards(self, wanted):
        """One node more or less. A real controller would call its platform here."""
        if len(self.born) < wanted:
            self.born.append(time.monotonic())
        elif len(self.born) > wanted:
            self.born.pop()

    def ready(self):
        return sum(1 for born in self.born if time.monotonic() - born >= self.boot_seconds)

    def ages(self):
        return ",".join(f"{int((time.monotonic() - born) // 60)}m" for born in self.born)


class Controller:
    def __init__(self, api, name, lease, boot_seconds):
        self.api = api
        self.name = name
        self.lease = lease
        self.boot_seconds = boot_seconds
        self.machines = {}
        self.said = {}  # pool id -> (what was reported, when)
        self.not_before = {}  # pool id -> when it may be tried again
        self.listings = 0

    def step(self, pools, listings):
        if listings != self.listings:
            # The server may be another one now, or an older one: say everything again.
            self.listings = listings
            self.said.clear()
        for pool_id in list(self.machines):
            if pool_id not in pools:
                say(f"{pool_id} is gone")
                self.forget(pool_id)
        for pool in pools.values():
            self.step_pool(pool)

    def step_pool(self, pool):
        pool_id, status = pool["id"], pool.get("status") or {}
        if pool_id not in self.machines:
            # After a restart: take over what exists. A real controller asks its platform for it.
            self.machines[pool_id] = Machines(status.get("current_nodes") or 0, self.boot_seconds)
        machines = self.machines[pool_id]
        deleting = pool.get("deleted_at") is not None
        wanted = 0 if deleting else status.get("desired_nodes", pool["spec"].get("nodeCount", 0))
        machines.step_towards(wanted)
        body = self.describe(pool, machines, wanted, deleting)
        # `node_ages` changes all the time and is no reason to report.
        gist = json.dumps([body["observed_generation"], body["conditions"], machines.ready(), len(machines.born)])
        last, at = self.said.get(pool_id, (None, 0.0))
        now = time.monotonic()
        if (gist == last and now - at < self.lease / 3) or now < self.not_before.get(pool_id, 0.0):
            return
        try:
            self.api.report(pool_id, body)
            self.said[pool_id] = (gist, now)
            if gist != last:
                say(f"{pool['name']}: {body['conditions'][0]['message']}")
        except Refused as refusal:
            if refusal.status == 404:  # deleted meanwhile; the watch will say so too
                self.forget(pool_id)
                return
            wait = float(refusal.retry_after or 5)
            self.not_before[pool_id] = now + wait
            say(f"{pool['name']}: {refusal}; again in {wait:.0f}s")
        except OSError as error:
            self.not_before[pool_id] = now + 2
            say(f"{pool['name']}: the report did not arrive: {error}")

    def describe(self, pool, machines, wanted, deleting):
        there, ready = len(machines.born), machines.ready()
        if deleting:
            gone = there == 0
            conditions = [condition("Deleted", gone, "Deleted" if gone else "Deleting", f"nodes left: {there}")]
        else:
            reached = there == wanted and ready == wanted
            reason = "NodesReady" if reached else "MakingNodes"
            conditions = [condition("Ready", reached, reason, f"{ready} of {wanted} nodes are ready")]
        return {
            "controller_name": self.name,
            # The generation that was acted on: never one that was not looked at.
            "observed_generation": pool["generation"],
            "conditions": conditions,
            "metadata": {
                "platform": pool["spec"]["platform"]["type"],
                "current_nodes": there,
                "active_nodes": ready,
                "desired_nodes": wanted,
                "node_ages": machines.ages(),
            },
            "lease": f"{self.lease:.0f}s",
        }

    def forget(self, pool_id):
        for kept in (self.machines, self.said, self.not_before):
            kept.pop(pool_id, None)


def condition(kind, holds, reason, message):
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def say(text):
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description="An example controller for Muster; its machines are pretended.")
    parser.add_argument("--server", default=os.environ.get("MUSTER_SERVER", "http://127.0.0.1:8080"))
    parser.add_argument("--token-file", help="file with the controller token; else MUSTER_CONTROLLER_TOKEN is used")
    parser.add_argument("--name", default="example-controller", help="controller_name of its reports")
    parser.add_argument("--platform", help="only pools of this platform, like gcp")
    parser.add_argument("--lease", type=float, default=60, help="seconds for which a report speaks")
    parser.add_argument("--boot-seconds", type=float, default=2, help="how long a pretended node boots")
    args = parser.parse_args()
    if args.token_file:
        with open(args.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    else:
        token = os.environ.get("MUSTER_CONTROLLER_TOKEN", "")
    if not token:
        sys.exit("no controller token: give --token-file or set MUSTER_CONTROLLER_TOKEN")

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    api, pools = Api(args.server, token), Pools()
    query = {"fieldSelector": f"spec.platform.type={args.platform}"} if args.platform else {}
    threading.Thread(target=follow, args=(api, query, pools, stop), daemon=True).start()
    controller = Controller(api, args.name, args.lease, args.boot_seconds)
    pools.changed.wait(REQUEST_TIMEOUT)
    while not stop.is_set():
        pools.changed.clear()
        controller.step(*pools.copy())
        # Soon after a change, else twice a second: machines boot and leases run without anyone saying so.
        stop.wait(0.1)
        pools.changed.wait(0.4)


if __name__ == "__main__":
    main()
