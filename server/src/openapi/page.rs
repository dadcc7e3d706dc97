//! Operations, parameters and schemas of what pages are made of.

use muster_model::host::{FreezeMode, State};
use serde_json::{Value, json};

use super::{Operation, schemas::words};

pub(super) const OPERATIONS: &[Operation] = &[
    operation!("get" "/api/v1/overview" "readOverview" 200 None => Some("Overview"), &["cluster_id", "project"], "The whole at a glance, the worst first"),
    operation!("get" "/api/v1/pending" "listPending" 200 None => Some("PendingPods"), &["cluster_id", "project"], "Pods that wait, by why they wait, with what would help"),
    operation!("get" "/api/v1/energy" "readEnergy" 200 None => Some("Energy"), &["project"], "What is drawn, used and saved, by pool and by rack, and how it is counted"),
    operation!("get" "/api/v1/history" "readHistory" 200 None => Some("FigureHistory"), &["series", "window", "cluster_id", "project"], "Figures of the last day over time"),
    operation!("get" "/api/v1/search" "search" 200 None => Some("SearchResults"), &["q", "search_limit", "project"], "Whatever has that name, MAC, serial number or address"),
    operation!("get" "/api/v1/stream" "stream" 200 None => None, &["after", "timeout_seconds", "project"], "What changes, as server-sent events with sequence numbers"),
    operation!("post" "/api/v1/what-if" "askWhatIf" 200 Some("WhatIfQuestion") => Some("WhatIfAnswer"), &["project"], "What would happen; nothing is changed"),
    operation!("get" "/api/v1/me" "readMe" 200 None => Some("Me"), &["project"], "Who the caller is, its roles, and what it may do"),
    operation!("get" "/api/v1/sign-in" "readSignIn" 200 None => Some("SignIn"), &[], "How callers prove who they are here"),
    operation!("get" "/api/v1/settings" "readSettings" 200 None => Some("Settings"), &["project"], "Settings in force and where they come from, without secrets"),
    operation!("get" "/api/v1/hosts/{name}/durations" "readHostDurations" 200 None => Some("PhaseDurations"), &["project"], "How long each phase takes on the servers of its pool"),
    operation!("get" "/api/v1/hosts/{name}/energy" "readHostEnergy" 200 None => Some("HostEnergy"), &["project"], "What a server draws, used and saved, and what that costs"),
    operation!("get" "/api/v1/hosts/{name}/transcript" "readHostTranscript" 200 None => Some("Transcript"), &["project"], "What was said to a server's BMC lately, without secrets"),
];

pub(super) fn parameters(query: &dyn Fn(&str, Value, &str) -> Value) -> Value {
    let text = json!({ "type": "string" });
    json!({
        "series": query("series", text.clone(), "Series, separated by commas: demand_cpu, on_cpu, total_cpu, pending, hosts_on, watts, all_on_watts, pool_watts; all when left out"),
        "window": query("window", text.clone(), "How far back, up to 24h"),
        "q": query("q", json!({ "type": "string", "minLength": 1, "maxLength": 253 }), "What to look for"),
        "search_limit": query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 50, "default": 12 }), "Results at most"),
        "after": query("after", json!({ "type": "integer", "minimum": 0 }), "The sequence of the last event; older than what is kept begins anew"),
    })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn list(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn maybe(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

pub(super) fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    let flag = json!({ "type": "boolean" });
    let number = json!({ "type": "integer" });
    let texts = list(&text);
    let states: serde_json::Map<String, Value> =
        State::ALL.iter().map(|state| (state.as_str().to_owned(), number.clone())).collect();
    let saved = object(
        &["milliwatt_hours", "method"],
        json!({ "milliwatt_hours": number, "since": maybe("string"), "method": text, "micros": maybe("integer"), "currency": maybe("string") }),
    );
    let attention = object(
        &["kind", "subject", "line", "link"],
        json!({ "kind": { "type": "string", "enum": ["host", "pool", "pods", "cluster"] }, "subject": text, "line": text,
            "since": maybe("string"), "link": text, "command": text, "pods": number, "hosts": number }),
    );
    let operation = object(
        &["id", "kind", "subject", "link", "state", "message", "started_at"],
        json!({ "id": text, "kind": text, "subject": text, "link": text, "state": text, "message": text, "started_at": time,
            "deadline": maybe("string"), "reason": text }),
    );
    let series = object(
        &["name", "points"],
        json!({ "name": text, "points": list(&json!({ "type": "array", "description": "Seconds since 1970, and the value; null is unknown",
            "items": { "type": ["integer", "null"] }, "minItems": 2, "maxItems": 2 })) }),
    );
    let hit = object(
        &["kind", "name", "detail", "link"],
        json!({ "kind": text, "name": text, "detail": text, "link": text }),
    );
    let line = object(
        &["at", "driver", "call", "target", "result", "ok", "millis", "count"],
        json!({ "at": time, "driver": text, "call": text, "target": text, "result": text, "ok": flag, "millis": number,
            "count": number, "last_at": time }),
    );
    let setting = object(
        &["name", "value", "origin"],
        json!({ "name": text, "value": text, "origin": text, "help": text }),
    );
    let mut all = json!({
        "Overview": object(&["at", "revision", "freeze", "pending", "hosts", "milliwatts", "saved_today", "attention", "operations"], json!({
            "at": time, "revision": text,
            "freeze": object(&["mode", "reason"], json!({ "mode": words::<FreezeMode>(), "reason": text })),
            "pending": object(&["pods", "hopeless", "unseen_clusters"], json!({ "pods": { "type": ["integer", "null"], "description": "null where nobody sees pods" },
                "hopeless": number, "unseen_clusters": number })),
            "hosts": object(&["total", "on", "held", "by_state"], json!({ "total": number, "on": number, "held": number,
                "by_state": { "type": "object", "properties": states } })),
            "milliwatts": number, "unmetered": number, "declared": number, "saved_today": saved,
            "attention_total": number, "attention": list(&attention), "operations_total": number, "operations": list(&operation) })),
        "FigureHistory": object(&["from", "to", "series", "marks"], json!({ "from": time, "to": time, "series": list(&series),
            "marks": list(&object(&["at", "id", "text"], json!({ "at": time, "id": text, "text": text }))) })),
        "SearchResults": object(&["results", "total"], json!({ "results": list(&hit), "total": number })),
        "Me": object(&["name", "mode", "proof", "projects", "everywhere", "roles", "rights", "version", "at"], json!({ "name": text, "mode": text, "proof": text,
            "project": maybe("string"), "projects": texts, "everywhere": flag, "roles": texts, "version": text, "at": time,
            "rights": { "type": "object", "description": "By verb and kind of object, as scale nodepools",
                "additionalProperties": object(&["allowed", "needs"], json!({ "allowed": flag, "needs": texts })) } })),
        "SignIn": object(&["mode", "send", "how"], json!({ "mode": text, "how": text,
            "send": { "type": "string", "enum": ["header", "bearer", "certificate", "proxy"] } })),
        "Settings": object(&["settings"], json!({ "settings": list(&setting), "problem": maybe("string") })),
        "Transcript": object(&["host", "since", "calls"], json!({ "host": text, "since": time, "calls": list(&line) })),
        "WhatIfQuestion": { "type": "object", "additionalProperties": false, "properties": {
            "cluster_id": { "type": ["string", "null"], "format": "uuid" },
            "add": { "anyOf": [{ "type": "null" }, { "type": "object", "required": ["count"], "additionalProperties": false, "properties": {
                "count": { "type": "integer", "minimum": 1, "maximum": 10_000 }, "cpu": maybe("string"), "memory": maybe("string"),
                "gpu": { "type": ["integer", "null"], "minimum": 0, "maximum": 1_000 }, "tolerate": texts, "selector": texts } }] },
            "remove": texts, "fail": texts, "set": texts, "consolidate": flag, "buy": maybe("string") } },
    });
    all["PendingPods"] = pending(&text, &time, &number, &texts);
    let share = energy_share(&text, &number);
    all["Energy"] = energy(&share, &text, &time, &number, &saved);
    all["HostEnergy"] = share;
    all["HostEnergy"]["required"]
        .as_array_mut()
        .into_iter()
        .for_each(|required| required.push(json!("method")));
    for (name, schema) in
        [("price_micros", maybe("integer")), ("currency", maybe("string")), ("method", text.clone())]
    {
        all["HostEnergy"]["properties"][name] = schema;
    }
    all["PhaseDurations"] = durations(&text, &number);
    all["WhatIfAnswer"] = answer(&text, &time, &number, &texts);
    all
}

fn pending(text: &Value, time: &Value, number: &Value, texts: &Value) -> Value {
    let flag = json!({ "type": "boolean" });
    let pod =
        object(&["namespace", "name", "since"], json!({ "namespace": text, "name": text, "since": time }));
    let gap = object(
        &["pool", "code", "text"],
        json!({ "pool": text, "code": text, "observed": text, "required": text, "margin": text, "text": text }),
    );
    let fix = object(
        &["object", "field", "text", "patch", "kind", "helps", "command"],
        json!({ "object": text, "field": text, "text": text, "patch": { "type": "object" }, "kind": text, "helps": number, "template_of": text,
            "command": text, "target": { "type": "string", "description": "Where the patch can be sent; absent for what others own" } }),
    );
    let group = object(
        &[
            "cluster_id",
            "cluster_name",
            "headline",
            "text",
            "code",
            "helped",
            "count",
            "example",
            "oldest",
            "pods",
            "requests",
            "pools",
            "next",
            "fixes",
        ],
        json!({ "cluster_id": text, "cluster_name": text, "headline": text, "text": text, "code": text, "object": text, "field": text,
            "helped": flag, "count": number, "example": text, "oldest": time, "pods": list(&pod),
            "requests": { "type": "object", "additionalProperties": text }, "pools": list(&gap), "next": texts, "fixes": list(&fix) }),
    );
    let unseen = object(&["cluster_id", "cluster_name"], json!({ "cluster_id": text, "cluster_name": text }));
    object(
        &["groups", "total", "unseen_clusters"],
        json!({ "groups": list(&group), "total": number, "unseen_clusters": list(&unseen) }),
    )
}

/// A row of what some servers draw, used and saved.
fn energy_share(text: &Value, number: &Value) -> Value {
    object(
        &[
            "name",
            "hosts",
            "milliwatts",
            "all_on_milliwatts",
            "used_milliwatt_hours",
            "saved_milliwatt_hours",
            "unmetered",
            "undeclared",
        ],
        json!({ "name": text, "hosts": number, "milliwatts": number, "all_on_milliwatts": number, "used_milliwatt_hours": number,
            "saved_milliwatt_hours": number, "used_micros": maybe("integer"), "saved_micros": maybe("integer"),
            "unmetered": number, "undeclared": number }),
    )
}

fn energy(pool: &Value, text: &Value, time: &Value, number: &Value, saved: &Value) -> Value {
    let mut rack = pool.clone();
    rack["properties"]["name"] =
        json!({ "type": ["string", "null"], "description": "null for servers in no rack" });
    let cycle = object(
        &["host", "pool", "count", "budget"],
        json!({ "host": text, "pool": text, "count": number,
            "budget": { "type": "integer", "description": "Power-ons within 24 hours that its pool allows" } }),
    );
    object(
        &[
            "at",
            "milliwatts",
            "all_on_milliwatts",
            "used_milliwatt_hours",
            "saved_milliwatt_hours",
            "method",
            "pools",
            "racks",
            "cycles",
            "cycle_budget",
        ],
        json!({ "at": time, "milliwatts": number, "all_on_milliwatts": number, "unmetered": number, "declared": number,
            "used_milliwatt_hours": number, "saved_milliwatt_hours": number, "used_micros": maybe("integer"),
            "saved_micros": maybe("integer"), "price_micros": maybe("integer"), "currency": maybe("string"), "saved_today": saved,
            "method": text, "pools": list(pool), "racks": list(&rack), "cycles_total": number, "cycles": list(&cycle),
            "cycle_budget": { "type": "integer", "description": "The same where a pool says nothing else" } }),
    )
}

fn durations(text: &Value, number: &Value) -> Value {
    let phase = object(
        &["phase", "count", "median_millis"],
        json!({ "phase": text, "count": number, "median_millis": number }),
    );
    object(
        &["pool", "hosts", "phases"],
        json!({ "pool": text, "phases": list(&phase),
            "hosts": { "type": "integer", "description": "Servers of its pool whose histories were read" } }),
    )
}

fn answer(text: &Value, time: &Value, number: &Value, texts: &Value) -> Value {
    let node = object(
        &["name", "pool", "change", "cpu_percent", "memory_percent", "pods"],
        json!({ "name": text, "pool": text, "change": { "type": "string", "enum": ["stays", "new", "goes"] },
            "cpu_percent": number, "memory_percent": number, "pods": number }),
    );
    let side = object(
        &["machines", "micros_per_hour", "milliwatts", "running_pods", "waiting_pods", "nodes", "more_nodes"],
        json!({ "machines": number, "micros_per_hour": number, "milliwatts": number, "running_pods": number, "waiting_pods": number,
            "cpu_percent": number, "memory_percent": number, "nodes": list(&node), "more_nodes": number }),
    );
    let new = object(
        &["pool", "template", "place", "count", "pods"],
        json!({ "pool": text, "template": text, "place": text, "count": number, "pods": number }),
    );
    let gone = object(&["node", "pool", "moves"], json!({ "node": text, "pool": text, "moves": number }));
    let unplaced = object(
        &["pods", "example", "code", "headline"],
        json!({ "pods": number, "example": text, "code": text, "headline": text, "fix": { "type": "object" } }),
    );
    object(
        &[
            "cluster_id",
            "nothing_changed",
            "question",
            "summary",
            "at",
            "before",
            "after",
            "new_nodes",
            "removals",
            "unplaced",
            "warnings",
            "findings",
            "millis",
            "currency",
        ],
        json!({ "cluster_id": text, "nothing_changed": { "const": true }, "question": text, "summary": text, "at": time, "before": side,
            "after": side, "new_nodes": list(&new), "removals": list(&gone), "unplaced": list(&unplaced), "warnings": texts,
            "notes": texts, "findings": texts, "millis": number, "currency": maybe("string") }),
    )
}
