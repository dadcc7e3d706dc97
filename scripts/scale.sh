#!/usr/bin/env bash
# Muster beside a large cluster: NODES (1000) kwok nodes and PODS (3000) pods on a real control plane. Prints memory, how late
# a change is seen, and how long after the last of a burst of BURST (500) pending pods there is a plan for all of them.
# MUSTER is the binary (target/release/muster, which is built when it is missing). Ends with 1 when a bar is missed.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
nodes=${NODES:-1000} pods=${PODS:-3000} burst=${BURST:-500} probes=${PROBES:-100}
muster=${MUSTER:-$root/target/release/muster}
bar_memory=200 bar_lag=1000 bar_plan=1000 # MB, ms, ms
apt_ready; need jq jq; need curl curl; need openssl openssl; need python3 python3
bin=$(scripts/peers/build.sh etcd kubectl kube-apiserver kube-controller-manager kube-scheduler kwok) || exit 1
[ -x "$muster" ] || cargo build --release --locked -p muster || exit 1

# Everything that is started here ends with this script, however it ends: each part holds an end of a pipe.
dir=$(mktemp -d)
coproc CLUSTER { exec env KWOK=yes scripts/cluster/cluster.sh run "$dir/cluster" 2>"$dir/cluster.log"; }
cluster_pid=$CLUSTER_PID cluster_in=${CLUSTER[1]} server_in= watcher=
finish() {
  trap '' INT TERM HUP
  [ -n "$watcher" ] && kill "$watcher" 2>/dev/null
  [ -n "$server_in" ] && exec {server_in}>&-
  exec {cluster_in}>&-
  wait "$cluster_pid" 2>/dev/null
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
read -r said <&"${CLUSTER[0]}"; [ "$said" = ready ] || { cat "$dir/cluster.log"; exit 1; }
k() { "$bin/kubectl" --kubeconfig "$dir/cluster/admin.kubeconfig" "$@"; }
now() { date +%s%3N; }
until_true() { local end=$(($(date +%s) + $1)); shift; until "$@"; do [ "$(date +%s)" -lt "$end" ] || return 1; sleep 0.2; done; }
missed=0
# bar NAME FOUND BAR UNIT
bar() { if [ "$2" -le "$3" ]; then echo "  bar: $1 <= $3 $4, kept"; else echo "  bar: $1 <= $3 $4, MISSED"; missed=1; fi; }

echo "$nodes nodes and $pods pods"
for ((i = 0; i < nodes; i++)); do
  printf -- '---\napiVersion: v1\nkind: Node\nmetadata: {name: n%04d, annotations: {kwok.x-k8s.io/node: fake}, labels: {type: kwok}}\nstatus: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}, capacity: {cpu: "8", memory: 32Gi, pods: "110"}}\n' "$i"
done | k create -f - >/dev/null || exit 1
workload() { # NAME REPLICAS CPU SELECTOR
  printf 'apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: %s}\nspec:\n  replicas: %d\n  selector: {matchLabels: {app: %s}}\n  template:\n    metadata: {labels: {app: %s}}\n    spec:\n      nodeSelector: {%s}\n      containers: [{name: c, image: none, resources: {requests: {cpu: %s, memory: 64Mi}}}]\n' "$1" "$2" "$1" "$1" "$4" "$3"
}
for ((i = 0; i < 10; i++)); do workload "load$i" $((pods / 10)) 100m 'type: kwok' | k create -f - >/dev/null; done
# What counts is that they have nodes: on a busy machine kwok's nodes fall silent now and then, and their pods are called unready.
bound() {
  [ "$(k get replicasets -o json | jq '[.items[].status.replicas // 0] | add // 0')" -ge "$pods" ] &&
    [ "$(k get --raw '/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1' | jq '.items | length')" = 0 ]
}
until_true 900 bound || { echo "the pods find no nodes"; exit 1; }

exec {server_in}> >(exec "$muster" serve --until-input-ends --listen 127.0.0.1:0 --data-dir "$dir/data" --set log.format=text >"$dir/out" 2>"$dir/server.log")
server_pid=$!
until_true 60 grep -q 'muster serves on' "$dir/out" || { cat "$dir/server.log"; exit 1; }
url=$(sed -n 's/^muster serves on //p' "$dir/out")
export MUSTER_SERVER=$url HOME=$dir
m() { "$muster" "$@"; }
api() { curl -sf -H 'x-user-email: user@example.com' "$url$1"; }
began=$(now)
m create cluster scale --platform gcp --kubeconfig "$dir/cluster/admin.kubeconfig" >/dev/null 2>&1 || exit 1
id=$(api '/api/v1/clusters?name=scale' | jq -r '.clusters[0].id')
connected() { [ "$(api "/api/v1/clusters/$id/connection" | jq -r .status.state)" = Connected ]; }
until_true 120 connected || { echo "not connected"; exit 1; }
echo "in sync after                  $(($(now) - began)) ms, $(api "/api/v1/clusters/$id/connection" | jq .status.objects) objects"
m create pool burst --cluster scale --platform gcp --machine-type n1-standard-16 --min 0 --max 200 >/dev/null || exit 1
# The burst is planned at once, not after the pool's usual delay.
m patch pool scale/burst --patch '{"spec":{"autoscaling":{"scaleUpDelay":"0s"}}}' >/dev/null || exit 1
sleep 5

# How late a pod is seen: from its creation to the first answer about it, with the planner's look in between.
for ((i = 0; i < probes; i++)); do
  printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: probe%d}\nspec: {nodeSelector: {wanted: nowhere}, containers: [{name: c, image: none}]}\n' "$i" | k create -f - >/dev/null
  at=$(now)
  until api "/api/v1/explain/pod/default/probe$i" | jq -e '.answer.cause.code // "Unknown" | . != "Unknown"' >/dev/null; do :; done
  echo $(($(now) - at))
done | sort -n >"$dir/lags"
read -r p50 p99 < <(awk '{ a[NR] = $1 } END { print a[int(NR * 0.5 + 0.5)], a[int(NR * 0.99 + 0.5)] }' "$dir/lags")
echo "a pod is explained after       p50 $p50 ms, p99 $p99 ms of $probes"
bar "p99 of that" "$p99" $bar_lag ms

# A burst of pods that only the pool can hold. Another watcher says when the last of them was there.
k get pods -l app=burst -o name --watch-only 2>/dev/null > >(exec python3 -u -c '
import sys, time
seen = set()
for line in sys.stdin:
    if line not in seen:
        seen.add(line)
        print(int(time.time() * 1000), flush=True)' >"$dir/seen") & watcher=$!
sleep 2
placed() { api '/api/v1/decisions?limit=1' | jq '.decisions[0].placed // 0'; }
workload burst "$burst" 1 'nodepool: burst' | k create -f - >/dev/null
end=$(($(date +%s) + 300))
until [ "$(placed)" -ge "$burst" ]; do [ "$(date +%s)" -lt "$end" ] || { echo "no plan for the burst"; tail -n 20 "$dir/server.log"; exit 1; }; done
planned=$(now)
until_true 60 eval '[ "$(wc -l <"$dir/seen")" -ge "$burst" ]' || { echo "the burst was not made"; exit 1; }
first=$(head -n 1 "$dir/seen") last=$(sed -n "${burst}p" "$dir/seen")
echo "a burst of $burst pods           made within $((last - first)) ms; the plan for all of them is there $((planned - last)) ms after the last"
bar "the plan after the last pod" $((planned - last)) $bar_plan ms
read -r rss high < <(awk '/VmHWM/ { high = $2 / 1024 } /VmRSS/ { now = $2 / 1024 } END { printf "%d %d\n", now, high }' "/proc/$server_pid/status")
echo "memory                         $rss MB now, $high MB at most"
bar "memory at most" "$high" $bar_memory MB
exit $missed
