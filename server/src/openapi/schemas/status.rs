//! Status, and the reports that it follows from.

use muster_model::{
    report::ErrorType,
    status::{Health, Phase},
};
use serde_json::{Value, json};

use super::{closed, id, integer, list, reference, short, text, time, words};

pub(super) fn schemas() -> Value {
    let text = text();
    let count = json!({ "type": ["integer", "null"], "minimum": 0, "description": "null: nobody has said" });
    let shared = json!({
        "phase": words::<Phase>(), "health": words::<Health>(), "reason": text, "message": text,
        "observed_generation": { "type": "integer" },
        "conditions": { "type": "array", "items": reference("Condition") },
        "ready_generation": { "type": "integer" }, "updated_at": time(),
    });
    let mut pool = shared.clone();
    pool["desired_nodes"] = json!({ "type": "integer", "minimum": 0 });
    pool["nodes_to_remove"] = json!({ "type": "array", "items": { "type": "string" },
        "description": "Nodes to give up when the size goes down" });
    pool["current_nodes"] = count.clone();
    pool["ready_nodes"] = count.clone();
    pool["baremetal"] = json!({ "type": "object" });
    let mut cluster = shared;
    cluster["pools"] = reference("PoolRollup");
    let long = json!({ "type": "string", "maxLength": 32768 });
    let last_error = closed(
        &["errorType"],
        [
            ("errorType", words::<ErrorType>()),
            ("controllerName", short(253)),
            ("errorCode", long.clone()),
            ("message", long.clone()),
            ("userActionable", json!({ "type": "boolean" })),
            ("suggestions", list(text.clone(), 32)),
            ("details", json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            ("retryAfter", integer(0, i64::MAX as u64)),
            ("timestamp", time()),
        ],
    );
    let fields = || {
        [
            ("controller_name", short(253)),
            ("observed_generation", integer(0, i64::MAX as u64)),
            ("conditions", list(reference("Condition"), 64)),
            ("metadata", json!({ "type": "object" })),
            ("last_error", reference("LastError")),
            ("lease", json!({ "type": "string", "minLength": 1, "examples": ["5m"] })),
        ]
    };
    let mut report = closed(&["controller_name", "observed_generation", "conditions"], fields());
    report["example"] = report_example();
    let mut shown = super::open(&["controller_name", "observed_generation", "conditions"], fields());
    shown["properties"]["updated_at"] = time();
    shown["properties"]["last_updated"] = time();
    let counts = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    json!({
        "PoolRollup": { "type": "object", "description": "The pools of a cluster at the moment of reading",
            "required": ["total", "by_phase", "by_health", "desired_nodes"], "properties": {
                "total": { "type": "integer" }, "by_phase": counts, "by_health": counts,
                "desired_nodes": { "type": "integer" }, "current_nodes": count, "ready_nodes": count } },
        "ClusterStatus": { "type": "object", "required": ["phase", "health", "conditions"], "properties": cluster },
        "NodePoolStatus": { "type": "object", "required": ["phase", "health", "conditions", "desired_nodes"], "properties": pool },
        "LastError": last_error,
        "Report": report,
        "ShownReport": shown,
        "NodePoolStatusAnswer": answer("NodePoolStatus", &["nodepool_id", "cluster_id"]),
        "ClusterStatusAnswer": answer("ClusterStatus", &["cluster_id"]),
    })
}

fn answer(status: &str, ids: &[&str]) -> Value {
    let mut properties = json!({ "status": reference(status),
        "controller_status": { "type": "array", "items": reference("ShownReport") } });
    for name in ids {
        properties[*name] = id();
    }
    let required: Vec<&str> = ids.iter().copied().chain(["status", "controller_status"]).collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

fn report_example() -> Value {
    json!({
        "controller_name": "gcp-nodepool-controller", "observed_generation": 1,
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2025-10-17T10:30:00Z",
            "reason": "NodesReady", "message": "All nodes are ready and healthy" }],
        "metadata": { "platform": "gcp", "region": "us-central1", "active_nodes": 5, "desired_nodes": 5 }
    })
}
