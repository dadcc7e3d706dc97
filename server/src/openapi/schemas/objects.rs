//! Objects as they are sent and as they come back, and lists of them.

use muster_control::registry::OperationState;
use serde_json::{Value, json};

use super::{id, integer, reference, text, time, words};

/// The pattern of names.
pub(in crate::openapi) const NAME: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";

pub(super) fn schemas() -> Value {
    let name = json!({ "type": "string", "pattern": NAME });
    let text = text();
    let change = json!({ "type": "object", "required": ["path"], "properties": {
        "path": text, "old": {}, "new": {},
        "effect": { "type": "string", "enum": ["in-place", "rolls"] } } });
    let object = |spec: &str, status: &str, extra: Value| {
        let mut properties = json!({
            "id": id(), "name": name, "project": text, "generation": { "type": "integer", "minimum": 1 },
            "resource_version": text, "spec": reference(spec), "status": reference(status),
            "created_at": time(), "updated_at": time(), "created_by": text, "deleted_at": time(),
            "changes": { "type": "array", "items": change, "description":
                "Only in the answer to a dry run: what would change, and what it does to nodes" },
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
    // A body may carry back what the server wrote, as long as it is unchanged.
    let update = |spec: &str, extra: Value| {
        let mut properties = json!({ "name": name, "spec": reference(spec), "resource_version": { "type": ["string", "null"] } });
        if let (Value::Object(properties), Value::Object(extra)) = (&mut properties, extra) {
            properties.extend(extra);
        }
        json!({ "type": "object", "required": ["spec"], "properties": properties })
    };
    json!({
        "Cluster": object("ClusterSpec", "ClusterStatus", json!({ "target_project_id": text })),
        "NodePool": object("NodePoolSpec", "NodePoolStatus", json!({ "cluster_id": id() })),
        "ClusterDraft": { "type": "object", "required": ["name", "spec"], "additionalProperties": false, "properties": {
            "name": name, "target_project_id": { "type": ["string", "null"], "minLength": 1, "maxLength": 253 },
            "spec": reference("ClusterSpec") },
            "example": { "name": "lab", "spec": { "platform": { "type": "gcp", "gcp": { "region": "us-central1" } } } } },
        "ClusterUpdate": update("ClusterSpec", json!({
            "target_project_id": { "type": ["string", "null"], "minLength": 1, "maxLength": 253 } })),
        "NodePoolDraft": { "type": "object", "required": ["name", "spec"], "additionalProperties": false, "properties": {
            "name": name, "cluster_id": { "type": ["string", "null"], "format": "uuid" },
            "spec": reference("NodePoolSpec") },
            "example": pool_example() },
        "NodePoolUpdate": update("NodePoolSpec", json!({ "cluster_id": { "type": ["string", "null"], "format": "uuid" } })),
        "ClusterList": list("clusters", "Cluster"),
        "NodePoolList": list("nodepools", "NodePool"),
        "OperationList": list("operations", "Operation"),
        "Operation": { "type": "object", "required": ["id", "kind", "state", "done"],
            "properties": { "id": id(), "kind": text, "project": text, "nodepool_id": id(), "cluster_id": id(),
                "nodepool_name": text, "target_nodes": { "type": "integer" }, "generation": { "type": "integer" },
                "host": text, "reason": text, "power": { "type": "object" }, "operation": text, "phase": text,
                "state": words::<OperationState>(),
                "done": { "type": "boolean" }, "message": text, "created_at": time(), "created_by": text,
                "finished_at": time() } },
        "AuditLine": audit_line(),
        "AuditPage": { "type": "object", "required": ["lines", "limit"], "properties": {
            "lines": { "type": "array", "items": reference("AuditLine") }, "limit": { "type": "integer" }, "next_cursor": text } },
        "AuditVerdict": { "type": "object", "required": ["lines", "head_seq", "head_hash", "findings"], "properties": {
            "lines": { "type": "integer" }, "head_seq": { "type": "integer" }, "head_hash": text,
            "findings": { "type": "array", "items": { "type": "object", "required": ["file", "line", "problem"],
                "properties": { "file": text, "line": { "type": "integer" }, "problem": text } } } } },
        "FreezeRequest": { "type": "object", "required": ["mode"], "additionalProperties": false, "properties": {
            "mode": words::<muster_model::host::FreezeMode>(),
            "reason": { "type": ["string", "null"], "minLength": 1, "maxLength": 500 } },
            "example": { "mode": "frozen", "reason": "maintenance of the cooling" } },
        "Freeze": { "type": "object", "required": ["mode", "reason", "may_act"], "properties": {
            "mode": words::<muster_model::host::FreezeMode>(), "reason": text, "by": text, "since": time(),
            "may_act": { "type": "boolean" },
            "restored": { "type": "object", "properties": { "revision": { "type": "integer" }, "exported": time(),
                "imported": time(), "sha256": text, "behind": { "type": "integer" } } },
            "waiting": { "type": "object", "properties": { "count": { "type": "integer" },
                "first": { "type": "array", "items": text } } } } },
    })
}

fn audit_line() -> Value {
    let text = json!({ "type": "string" });
    let power = json!({ "type": "object", "required": ["driver", "cause", "epoch"], "properties": {
        "driver": text, "operation": text, "decision": text, "cause": text, "epoch": { "type": "integer" }, "message": text } });
    json!({ "type": "object",
        "required": ["seq", "prev", "at", "actor", "mode", "source", "request_id", "verb", "object", "outcome", "status", "hash"],
        "properties": { "seq": integer(1, u64::from(u32::MAX)), "prev": text, "at": time(), "actor": text, "mode": text,
            "source": text, "request_id": text, "verb": text, "object": text, "name": text, "project": text,
            "outcome": words::<muster_control::audit::Outcome>(), "status": { "type": "integer" },
            "revision": { "type": "integer" }, "before": text, "after": text,
            "changed": { "type": "array", "items": text }, "power": power, "hash": text } })
}

fn pool_example() -> Value {
    json!({
        "name": "worker-pool-1", "cluster_id": crate::example::CLUSTER.to_string(),
        "spec": {
            "platform": { "type": "gcp", "gcp": {
                "machineType": "n1-standard-4", "diskSize": 100, "diskType": "pd-ssd",
                "zones": ["us-central1-a", "us-central1-b"], "preemptible": false } },
            "autoscaling": { "enabled": true, "minNodes": 1, "maxNodes": 10 },
            "nodeCount": 3
        }
    })
}
