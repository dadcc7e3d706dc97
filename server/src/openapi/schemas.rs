//! Parameters and schemas of the description. Enumerations come from the nouns themselves.

use muster_control::journal::OutcomeState;
use muster_model::{
    condition::ConditionStatus,
    field::Choice,
    platform::PlatformKind,
    pool::{MAX_NODES, Mode, TaintEffect},
    report::ErrorType,
    status::{Health, Phase},
};
use serde_json::{Map, Value, json};

fn words<T: Choice>() -> Value {
    let words: Vec<&str> = T::ALL.iter().map(|(word, _)| *word).collect();
    json!({ "type": "string", "enum": words })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

pub(super) fn parameters() -> Value {
    let query = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "query", "schema": schema, "description": description });
    let head = |name: &str, description: &str| json!({ "name": name, "in": "header", "schema": { "type": "string" }, "description": description });
    let flag = json!({ "type": "boolean", "default": false });
    let text = json!({ "type": "string" });
    let id = json!({ "type": "string", "format": "uuid" });
    json!({
        "limit": query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 100, "default": 50 }), "Objects on a page"),
        "offset": query("offset", json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX, "default": 0 }), "Objects to skip"),
        "cursor": query("cursor", text.clone(), "next_cursor of the page before"),
        "status": query("status", words::<Phase>(), "Only objects in this phase"),
        "health": query("health", words::<Health>(), "Only objects of this health"),
        "name": query("name", text.clone(), "Only objects of this name"),
        "labelSelector": query("labelSelector", text.clone(), "Conditions on labels, as kubectl takes them"),
        "fieldSelector": query("fieldSelector", text.clone(), "Conditions on fields: name=web,status.phase!=Ready"),
        "include_deleted": query("include_deleted", flag.clone(), "Also objects that are being torn down"),
        "watch": query("watch", flag.clone(), "Stream changes, one JSON document per line"),
        "pool": query("pool", text.clone(), "Only decisions that change this pool, by name"),
        "host": query("host", text.clone(), "Only decisions about this host"),
        "node": query("node", text.clone(), "Only decisions about this node"),
        "outcome": query("outcome", json!({ "type": "string", "enum": OutcomeState::ALL.map(OutcomeState::as_str) }), "Only decisions with this outcome"),
        "since": query("since", json!({ "type": "string", "format": "date-time" }), "Not before this time"),
        "until": query("until", json!({ "type": "string", "format": "date-time" }), "Before this time"),
        "actions_only": query("actions_only", flag.clone(), "Only decisions that change something, or would"),
        "with": query("with", text.clone(), "The decision to compare with"),
        "at": query("at", text.clone(), "Ask the snapshot of this decision instead of the present"),
        "resource_version": query("resource_version", text, "Watch what came after this revision"),
        "timeout_seconds": query("timeout_seconds", json!({ "type": "integer", "minimum": 1, "maximum": 86400 }), "End the watch after this time"),
        "clusterId": query("clusterId", id.clone(), "Only pools of this cluster"),
        "cluster_id": query("cluster_id", id.clone(), "The same as clusterId"),
        "nodepool_id": query("nodepool_id", id, "Only operations on this pool"),
        "dryRun": query("dryRun", flag.clone(), "Check everything, change nothing"),
        "force": query("force", flag.clone(), "Do not wait for controllers"),
        "cascade": query("cascade", flag, "Delete the cluster's pools first"),
        "project": head("X-Muster-Project", "Which of the caller's projects the request is about"),
        "idempotency-key": head("Idempotency-Key", "The same key and body make one object, for 24 hours"),
        "if-match": head("If-Match", "The ETag that the object must have"),
        "if-none-match": head("If-None-Match", "The ETag that the object must not have, or * to create"),
    })
}

pub(super) fn schemas() -> Value {
    let mut all = Map::new();
    for part in [common(), specs(), objects(), status(), decisions()] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

fn common() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "Any": { "type": "object" },
        "Health": { "type": "object", "required": ["status", "timestamp"], "properties": {
            "status": text, "service": text, "version": text, "timestamp": text } },
        "Probe": { "type": "object", "required": ["status"], "properties": { "status": text } },
        "Message": { "type": "object", "required": ["message"], "properties": { "message": text } },
        "MergePatch": { "type": "object" },
        "Identity": { "type": "object", "required": ["name", "mode", "projects"], "properties": {
            "name": text, "mode": text, "proof": text, "project": { "type": ["string", "null"] },
            "projects": { "type": "object", "additionalProperties": { "type": "array", "items": text } },
            "everywhere": { "type": "array", "items": text } } },
        "Error": { "type": "object", "required": ["error"], "properties": { "error": {
            "type": "object", "required": ["code", "message", "details", "request_id"], "properties": {
                "code": { "type": "string", "enum": crate::error::Code::ALL.map(crate::error::Code::as_str) },
                "message": text, "details": text, "request_id": text,
                "fields": { "type": "array", "items": { "type": "object", "required": ["path", "problem"],
                    "properties": { "path": text, "problem": text, "found": text, "allowed": text, "hint": text } } } } } } },
        "Condition": { "type": "object", "required": ["type", "status", "lastTransitionTime"], "properties": {
            "type": text, "status": words::<ConditionStatus>(), "reason": text, "message": text,
            "lastTransitionTime": { "type": "string", "format": "date-time" },
            "observedGeneration": { "type": "integer" }, "severity": text } },
    })
}

fn specs() -> Value {
    let nodes = |minimum: u32| json!({ "type": "integer", "minimum": minimum, "maximum": MAX_NODES });
    let percent = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
    let labels = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    json!({
        "Platform": { "type": "object", "required": ["type"], "properties": { "type": words::<PlatformKind>() },
            "description": "A type, and the block of that name" },
        "Taint": { "type": "object", "required": ["key", "effect"], "properties": {
            "key": { "type": "string" }, "value": { "type": "string" }, "effect": words::<TaintEffect>() } },
        "Autoscaling": { "type": "object", "properties": {
            "enabled": { "type": "boolean" }, "minNodes": nodes(0), "maxNodes": nodes(1),
            "targetCPUUtilization": percent, "targetMemoryUtilization": percent, "scaleDownUtilization": percent,
            "scaleUpDelay": { "type": "string" }, "scaleDownDelay": { "type": "string" },
            "triggers": { "type": "array" }, "headroom": { "type": "object" }, "schedules": { "type": "array" } } },
        "NodePoolSpec": { "type": "object", "required": ["platform"], "properties": {
            "platform": reference("Platform"), "autoscaling": reference("Autoscaling"), "nodeCount": nodes(0),
            "labels": labels, "taints": { "type": "array", "items": reference("Taint"), "maxItems": 50 },
            "template": { "type": "object" }, "management": { "type": "object" },
            "mode": words::<Mode>(), "release": { "type": "object" } } },
        "ClusterSpec": { "type": "object", "required": ["platform"], "properties": {
            "platform": reference("Platform"), "infraID": { "type": "string" }, "mode": words::<Mode>(),
            "release": { "type": "object" }, "networking": { "type": "object" }, "dns": { "type": "object" },
            "issuerURL": { "type": "string" } } },
        "Scale": { "type": "object", "properties": { "nodeCount": nodes(0), "replicas": nodes(0) } },
    })
}

/// The pattern of cluster and pool names.
const NAME: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";

fn objects() -> Value {
    let name = json!({ "type": "string", "pattern": NAME });
    let id = json!({ "type": "string", "format": "uuid" });
    let time = json!({ "type": "string", "format": "date-time" });
    let text = json!({ "type": "string" });
    let object = |spec: &str, status: &str, extra: Value| {
        let mut properties = json!({
            "id": id, "name": name, "project": text, "generation": { "type": "integer", "minimum": 1 },
            "resource_version": text, "spec": reference(spec), "status": reference(status),
            "created_at": time, "updated_at": time, "created_by": text, "deleted_at": time,
        });
        if let (Value::Object(properties), Value::Object(extra)) = (&mut properties, extra) {
            properties.extend(extra);
        }
        json!({ "type": "object", "properties": properties, "required": [
            "id", "name", "generation", "resource_version", "spec", "status", "created_at", "updated_at", "created_by"] })
    };
    let list = |name: &str, item: &str| {
        json!({ "type": "object", "required": [name, "total", "limit", "offset", "revision"], "properties": {
            name: { "type": "array", "items": reference(item) }, "total": { "type": "integer" },
            "limit": { "type": "integer" }, "offset": { "type": "integer" }, "revision": text, "next_cursor": text } })
    };
    json!({
        "Cluster": object("ClusterSpec", "ClusterStatus", json!({ "target_project_id": text })),
        "NodePool": object("NodePoolSpec", "NodePoolStatus", json!({ "cluster_id": id })),
        "ClusterDraft": { "type": "object", "required": ["name", "spec"], "properties": {
            "name": name, "target_project_id": text, "spec": reference("ClusterSpec") } },
        "ClusterUpdate": { "type": "object", "required": ["spec"], "properties": {
            "name": name, "resource_version": text, "spec": reference("ClusterSpec") } },
        "NodePoolDraft": { "type": "object", "required": ["name", "spec"], "properties": {
            "name": name, "cluster_id": id, "spec": reference("NodePoolSpec") } },
        "NodePoolUpdate": { "type": "object", "required": ["spec"], "properties": {
            "name": name, "cluster_id": id, "resource_version": text, "spec": reference("NodePoolSpec") } },
        "ClusterList": list("clusters", "Cluster"),
        "NodePoolList": list("nodepools", "NodePool"),
        "OperationList": list("operations", "Operation"),
        "Operation": { "type": "object", "required": ["id", "kind", "state", "done", "nodepool_id", "target_nodes"],
            "properties": { "id": id, "kind": text, "project": text, "nodepool_id": id, "cluster_id": id,
                "nodepool_name": text, "target_nodes": { "type": "integer" }, "generation": { "type": "integer" },
                "state": { "type": "string", "enum": ["Running", "Succeeded", "Superseded", "Failed"] },
                "done": { "type": "boolean" }, "message": text, "created_at": time, "created_by": text,
                "finished_at": time } },
    })
}

fn status() -> Value {
    let text = json!({ "type": "string" });
    let count = json!({ "type": ["integer", "null"] });
    let shared = json!({
        "phase": words::<Phase>(), "health": words::<Health>(), "reason": text, "message": text,
        "observed_generation": { "type": "integer" },
        "conditions": { "type": "array", "items": reference("Condition") },
        "updated_at": { "type": "string", "format": "date-time" },
    });
    let mut pool = shared.clone();
    pool["desired_nodes"] = json!({ "type": "integer" });
    pool["current_nodes"] = count.clone();
    pool["ready_nodes"] = count;
    json!({
        "ClusterStatus": { "type": "object", "required": ["phase", "health", "conditions"], "properties": shared },
        "NodePoolStatus": { "type": "object", "required": ["phase", "health", "conditions", "desired_nodes"], "properties": pool },
        "LastError": { "type": "object", "required": ["errorType"], "properties": {
            "errorType": words::<ErrorType>(), "errorCode": text, "message": text } },
        "Report": { "type": "object", "required": ["controller_name", "observed_generation", "conditions"], "properties": {
            "controller_name": text, "observed_generation": { "type": "integer", "minimum": 0 },
            "conditions": { "type": "array", "items": reference("Condition") }, "metadata": { "type": "object" },
            "last_error": reference("LastError"), "lease": text } },
        "StatusAnswer": { "type": "object", "required": ["status", "controller_status"], "properties": {
            "nodepool_id": text, "cluster_id": text, "status": { "type": "object" },
            "controller_status": { "type": "array", "items": reference("Report") } } },
    })
}

fn decisions() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "minimum": 0 });
    let time = json!({ "type": "string", "format": "date-time" });
    let list = |schema: Value| json!({ "type": "array", "items": schema });
    json!({
        "Action": { "type": "object", "required": ["kind", "pool", "because"], "properties": {
            "kind": { "type": "string", "enum": ["wake", "ask", "remove"] }, "pool": text, "host": text, "node": text,
            "template": text, "advice": { "type": "boolean" }, "because": text, "pods": list(text.clone()),
            "pod_count": number, "evidence": { "type": "object" } } },
        "Decision": { "type": "object", "required": ["id", "cluster_id", "number", "at", "headline", "outcome"], "properties": {
            "id": text, "cluster_id": text, "cluster_name": text, "project": text, "number": number, "at": time,
            "epoch": number, "headline": text, "text": text,
            "cause": { "type": "object", "properties": { "nudges": list(text.clone()), "changes": list(text.clone()), "after": text } },
            "new_nodes": number, "removals": number, "placed": number, "unplaced": number, "pools": list(text.clone()),
            "actions": list(reference("Action")), "more_actions": number,
            "told": list(json!({ "type": "object", "properties": { "about": text, "count": number, "code": text, "headline": text } })),
            "findings": list(text.clone()),
            "outcome": { "type": "object", "required": ["state", "at", "text"], "properties": {
                "state": { "type": "string", "enum": OutcomeState::ALL.map(OutcomeState::as_str) }, "at": time, "text": text,
                "effects": list(json!({ "type": "object", "properties": { "what": text, "object": text, "text": text } })) } },
            "frame": { "type": "object" } } },
        "DecisionList": { "type": "object", "required": ["decisions", "limit", "revision"], "properties": {
            "decisions": list(reference("Decision")), "limit": number, "next_cursor": { "type": ["string", "null"] },
            "revision": text } },
        "Difference": { "type": "object", "required": ["what", "name", "change"], "properties": {
            "what": text, "name": text, "change": { "type": "string", "enum": ["added", "removed", "changed"] } } },
        "Replay": { "type": "object", "required": ["id", "same", "headline"], "properties": {
            "id": text, "same": { "type": "boolean" }, "headline": text, "then": { "type": "object" },
            "now": { "type": "object" }, "differences": list(reference("Difference")), "findings": list(text.clone()) } },
        "Comparison": { "type": "object", "required": ["from", "to", "headline"], "properties": {
            "from": text, "to": text, "headline": text, "world": list(reference("Difference")),
            "plan": list(reference("Difference")) } },
        "Explanation": { "type": "object", "required": ["kind", "name", "cluster_id", "headline", "text"], "properties": {
            "kind": { "type": "string", "enum": ["pod", "node", "host", "pool"] }, "name": text, "cluster_id": text,
            "cluster_name": text, "headline": { "type": "string", "maxLength": 120 }, "text": text,
            "answer": { "type": "object" }, "evaluated": time, "decision_id": text, "planner": { "type": "object" },
            "history": list(json!({ "type": "object", "properties": {
                "id": text, "at": time, "headline": text, "outcome": text, "because": text } })) } },
        "DecisionExplanation": { "type": "object", "required": ["headline", "text", "decision", "replay"], "properties": {
            "headline": text, "text": text, "decision": reference("Decision"), "replay": text } },
    })
}
