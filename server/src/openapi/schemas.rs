//! Parameters and schemas of the description. Enumerations come from the nouns themselves.

mod objects;
mod platforms;
mod specs;
mod status;

pub(super) use objects::NAME;

use muster_control::{
    audit::Outcome,
    journal::{Blame, OutcomeState, Subject},
    registry::OperationState,
};
use muster_model::{
    condition::ConditionStatus,
    field::Choice,
    status::{Health, Phase},
};
use serde_json::{Map, Value, json};

pub(super) fn words<T: Choice>() -> Value {
    let words: Vec<&str> = T::ALL.iter().map(|(word, _)| *word).collect();
    json!({ "type": "string", "enum": words })
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn text() -> Value {
    json!({ "type": "string" })
}

/// Text that is not empty and has at most this many characters.
fn short(most: u32) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": most })
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn id() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

fn integer(least: u64, most: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

fn list(items: Value, most: u32) -> Value {
    json!({ "type": "array", "items": items, "maxItems": most })
}

fn labels() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string", "maxLength": 63 } })
}

/// A field that may be left out. `null` means the same.
fn optional(schema: Value) -> Value {
    match schema {
        Value::Object(mut members) if members.contains_key("type") && !members.contains_key("enum") => {
            let kinds = match members["type"].take() {
                Value::Array(mut kinds) => {
                    kinds.push("null".into());
                    kinds
                }
                kind => vec![kind, "null".into()],
            };
            members.insert("type".into(), Value::Array(kinds));
            Value::Object(members)
        }
        other => json!({ "anyOf": [other, { "type": "null" }] }),
    }
}

/// An object of ours: what is not listed is refused. Fields that are not required may be `null`.
fn closed<const N: usize>(required: &[&str], fields: [(&str, Value); N]) -> Value {
    let mut object = open(required, fields);
    object["additionalProperties"] = false.into();
    object
}

/// An object that keeps what it does not know.
fn open<const N: usize>(required: &[&str], fields: [(&str, Value); N]) -> Value {
    let properties: Map<String, Value> = fields
        .into_iter()
        .map(|(name, schema)| {
            let schema = if required.contains(&name) { schema } else { optional(schema) };
            (name.to_owned(), schema)
        })
        .collect();
    let mut object = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// The pattern of entity tags, one or more, or a star.
const TAGS: &str = r#"^(\*|(W/)?"[!#-+\--~]*"( *, *(W/)?"[!#-+\--~]*")*)$"#;
/// The pattern of ids of decisions.
pub(super) const DECISION: &str = "^[0-9a-fA-F]{8}-[0-9]{1,19}$";

pub(super) fn parameters() -> Value {
    let query = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "query", "schema": schema, "description": description });
    let head = |name: &str, pattern: &str, description: &str| json!({ "name": name, "in": "header", "schema": { "type": "string", "pattern": pattern }, "description": description });
    let decision = json!({ "type": "string", "pattern": DECISION, "examples": ["550e8400-42"] });
    let revision = json!({ "type": "string", "pattern": "^[0-9]{1,19}$" });
    let flag = json!({ "type": "boolean", "default": false });
    let (text, id) = (text(), id());
    let mut all = json!({
        "limit": query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 100, "default": 50 }), "Objects on a page"),
        "offset": query("offset", json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX, "default": 0 }), "Objects to skip"),
        "cursor": query("cursor", json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{32}$" }), "next_cursor of the page before"),
        "decision_cursor": query("cursor", text.clone(), "next_cursor of the page before"),
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
        "actions_only": query("actions_only", flag.clone(), "Only decisions that change something, or would"),
        "reason": query("reason", json!({ "type": "string", "maxLength": 253 }), "Why; it is told in the host's history"),
        "with": query("with", decision.clone(), "The decision to compare with; without it, the one before is compared with this one"),
        "at": query("at", decision, "Ask the snapshot of this decision instead of the present"),
        "resource_version": query("resource_version", revision, "Watch what came after this revision"),
        "timeout_seconds": query("timeout_seconds", json!({ "type": "integer", "minimum": 1, "maximum": 86400 }), "End the watch after this time"),
        "clusterId": query("clusterId", id.clone(), "Only pools of this cluster"),
        "cluster_id": query("cluster_id", id.clone(), "The same as clusterId"),
        "nodepool_id": query("nodepool_id", id, "Only operations on this pool"),
        "state": query("state", words::<OperationState>(), "Only operations in this state"),
        "actor": query("actor", text.clone(), "Only what this identity did"),
        "object": query("object", text.clone(), "Only objects whose path or name contains this"),
        "of_project": query("project", text.clone(), "Only objects of this project"),
        "verb": query("verb", text.clone(), "Only this verb"),
        "outcome": query("outcome", words::<Outcome>(), "Only what came to this"),
        "decision_outcome": query("outcome", json!({ "type": "string", "enum": OutcomeState::ALL.map(OutcomeState::as_str) }), "Only decisions with this outcome"),
        "since": query("since", time(), "Only lines at or after this time"),
        "until": query("until", time(), "Only lines at or before this time"),
        "line": query("cursor", json!({ "type": "integer", "minimum": 1 }), "next_cursor of the page before"),
        "dryRun": query("dryRun", flag.clone(), "Check everything, change nothing"),
        "force": query("force", flag.clone(), "Do not wait for controllers"),
        "cascade": query("cascade", flag, "Delete the cluster's pools first"),
        "project": head("X-Muster-Project", NAME, "Which of the caller's projects the request is about"),
        "idempotency-key": head("Idempotency-Key", "^[!-~]([ -~]{0,253}[!-~])?$", "The same key and body make one object, for 24 hours"),
        "if-match": head("If-Match", TAGS, "The ETag that the object must have"),
        "if-none-match": head("If-None-Match", TAGS, "The ETag that the object must not have, or * to create"),
    });
    all["with"]["required"] = true.into();
    for more in [super::inventory::parameters(&query), super::page::parameters(&query)] {
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
    }
    all["q"]["required"] = true.into();
    all
}

pub(super) fn schemas() -> Value {
    let mut all = Map::new();
    for part in [
        common(),
        platforms::schemas(),
        specs::schemas(),
        objects::schemas(),
        status::schemas(),
        decisions(),
        super::inventory::schemas(),
        super::inventory::connection_schemas(),
        super::page::schemas(),
    ] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}

fn common() -> Value {
    let text = text();
    let fields = open(
        &["path", "problem"],
        [
            ("path", text.clone()),
            ("problem", text.clone()),
            ("found", text.clone()),
            ("allowed", text.clone()),
            ("hint", text.clone()),
        ],
    );
    let code = json!({ "type": "string", "enum": crate::error::Code::ALL.map(crate::error::Code::as_str) });
    json!({
        "Any": { "type": "object" },
        "Health": { "type": "object", "required": ["status", "timestamp"], "properties": {
            "status": text, "service": text, "version": text, "timestamp": time() } },
        "Probe": { "type": "object", "required": ["status"], "properties": {
            "status": text, "writes": { "type": "string", "enum": ["accepted", "refused"] },
            "freeze": words::<muster_model::host::FreezeMode>(), "restored": { "type": "boolean" } } },
        "Message": { "type": "object", "required": ["message"], "properties": {
            "message": text, "cluster_id": id(), "nodepool_id": id(), "controller_name": text,
            "observed_generation": { "type": "integer" } } },
        "MergePatch": { "type": "object", "description": "RFC 7396: members replace, null removes",
            "example": { "spec": { "nodeCount": 6 } } },
        "ClusterPatch": { "type": "object", "description": "RFC 7396: members replace, null removes",
            "example": { "spec": { "mode": "active" } } },
        "RecordPatch": { "type": "object", "description": "RFC 7396: members replace, null removes",
            "example": { "spec": { "zone": "hall-2" } } },
        "Identity": { "type": "object", "required": ["name", "mode", "projects"], "properties": {
            "name": text, "mode": text, "proof": text, "project": { "type": ["string", "null"] },
            "projects": { "type": "object", "additionalProperties": { "type": "array", "items": text } },
            "everywhere": { "type": "array", "items": text } } },
        "Error": { "type": "object", "required": ["error"], "properties": { "error": {
            "type": "object", "required": ["code", "message", "details", "request_id"], "properties": {
                "code": code, "message": text, "details": text, "request_id": text,
                "fields": { "type": "array", "items": fields } } } },
            "example": { "error": { "code": "VALIDATION_ERROR", "message": "Validation failed",
                "details": "nodepool name is required", "request_id": "0199f0a8-0000-7000-8000-000000000000",
                "fields": [{ "path": "name", "problem": "nodepool name is required" }] } } },
        "Condition": closed(&["type", "status"], [
            ("type", short(316)), ("status", words::<ConditionStatus>()), ("reason", json!({ "type": "string", "maxLength": 1024 })),
            ("message", json!({ "type": "string", "maxLength": 32768 })), ("lastTransitionTime", time()),
            ("observedGeneration", integer(0, i64::MAX as u64)), ("severity", words::<muster_model::condition::Severity>()),
        ]),
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
            "also": { "type": "object", "description": "What the lists of actions and their pods leave out.", "properties": {
                "hosts": list(text.clone()), "nodes": list(text.clone()),
                "pods": { "type": "object", "additionalProperties": list(text.clone()),
                    "description": "By namespace/ and the name up to its last dash, the rests of the names." },
                "unnamed": number } },
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
            "what": text, "name": text, "change": { "type": "string", "enum": ["added", "removed"] } } },
        "Replay": { "type": "object", "required": ["id", "same", "headline"], "properties": {
            "id": text, "same": { "type": "boolean" }, "headline": text, "then": { "type": "object" },
            "now": { "type": "object" }, "differences": list(reference("Difference")), "findings": list(text.clone()) } },
        "Comparison": { "type": "object", "required": ["from", "to", "same", "summary", "inputs", "outcome", "text"], "properties": {
            "from": reference("DecisionHeading"), "to": reference("DecisionHeading"), "same": { "type": "boolean" },
            "summary": { "type": "string", "description": "One sentence: what they did differently, and what made them" },
            "because": { "type": "string", "enum": Blame::ALL.map(Blame::as_str), "description": "Where the difference of what they did comes from" },
            "inputs": list(reference("DecisionChange")), "outcome": list(reference("DecisionChange")), "notes": list(text.clone()),
            "text": text } },
        "DecisionHeading": { "type": "object", "required": ["id", "number", "at", "headline", "outcome"], "properties": {
            "id": text, "number": number, "at": time, "headline": text,
            "outcome": { "type": "string", "enum": OutcomeState::ALL.map(OutcomeState::as_str) } } },
        "DecisionChange": { "type": "object", "required": ["subject", "name", "from", "to", "rule"], "properties": {
            "subject": { "type": "string", "enum": Subject::ALL.map(Subject::as_str) }, "pool": text, "name": text, "from": text, "to": text,
            "details": list(text.clone()), "from_because": text, "to_because": text,
            "rule": { "type": "boolean", "description": "Set by people: bounds, policies, holds" } } },
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
