//! The description of the API, in `OpenAPI` 3.1.
//!
//! [`OPERATIONS`] lists every operation once; a test compares it with the routes, and the committed
//! `docs/reference/openapi.json` with what this module makes.

mod inventory;
mod page;
mod schemas;

use std::sync::OnceLock;

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

/// One operation: method, path, id, what it does, success code, body schema, answer schema.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    success: u16,
    body: Option<&'static str>,
    answer: Option<&'static str>,
    parameters: &'static [&'static str],
}

const LIST: &[&str] = &[
    "limit",
    "offset",
    "cursor",
    "status",
    "health",
    "name",
    "labelSelector",
    "fieldSelector",
    "include_deleted",
    "watch",
    "resource_version",
    "timeout_seconds",
    "project",
];
const POOL_LIST: &[&str] = &[
    "limit",
    "offset",
    "cursor",
    "status",
    "health",
    "name",
    "labelSelector",
    "fieldSelector",
    "include_deleted",
    "watch",
    "resource_version",
    "timeout_seconds",
    "clusterId",
    "cluster_id",
    "project",
];
const DECISIONS: &[&str] = &[
    "limit",
    "cursor",
    "cluster_id",
    "pool",
    "host",
    "node",
    "decision_outcome",
    "since",
    "until",
    "actions_only",
    "watch",
    "resource_version",
    "timeout_seconds",
    "project",
];
const OPERATION_LIST: &[&str] = &[
    "limit",
    "offset",
    "cursor",
    "nodepool_id",
    "state",
    "watch",
    "resource_version",
    "timeout_seconds",
    "project",
];
const EXPLAIN: &[&str] = &["cluster_id", "at", "project"];
const AUDIT_LIST: &[&str] =
    &["limit", "line", "actor", "object", "of_project", "verb", "outcome", "since", "until", "project"];
const CREATE: &[&str] = &["dryRun", "idempotency-key", "project"];
const READ: &[&str] = &["include_deleted", "if-none-match", "project"];
const REPLACE: &[&str] = &["dryRun", "if-match", "if-none-match", "project"];
const UPDATE: &[&str] = &["dryRun", "if-match", "project"];
const DELETE: &[&str] = &["dryRun", "force", "if-match", "project"];
const DELETE_CLUSTER: &[&str] = &["dryRun", "force", "cascade", "if-match", "project"];

const RECORD_LIST: &[&str] = &[
    "limit",
    "offset",
    "cursor",
    "name",
    "watch",
    "resource_version",
    "timeout_seconds",
    "include_deleted",
    "project",
];

macro_rules! operation {
    ($method:literal $path:literal $id:literal $success:literal $body:expr => $answer:expr, $parameters:expr, $summary:literal) => {
        Operation {
            method: $method,
            path: $path,
            id: $id,
            summary: $summary,
            success: $success,
            body: $body,
            answer: $answer,
            parameters: $parameters,
        }
    };
}

const OPERATIONS: &[Operation] = &[
    operation!("get" "/health" "health" 200 None => Some("Health"), &[], "Whether the process answers, in the seed's form"),
    operation!("get" "/livez" "livez" 200 None => Some("Probe"), &[], "Whether the process answers"),
    operation!("get" "/readyz" "readyz" 200 None => Some("Probe"), &[], "Whether requests can be served"),
    operation!("get" "/metrics" "metrics" 200 None => None, &[], "Metrics for Prometheus"),
    operation!("get" "/metrics/hosts" "hostMetrics" 200 None => None, &[], "Series for every host, where metrics.hosts is set"),
    operation!("get" "/openapi.json" "openapi" 200 None => Some("Any"), &[], "This document"),
    operation!("get" "/api/v1/whoami" "whoAmI" 200 None => Some("Identity"), &["project"], "Who the caller is, and its roles"),
    operation!("get" "/api/v1/clusters" "listClusters" 200 None => Some("ClusterList"), LIST, "List or watch clusters"),
    operation!("post" "/api/v1/clusters" "createCluster" 201 Some("ClusterDraft") => Some("Cluster"), CREATE, "Create a cluster"),
    operation!("get" "/api/v1/clusters/{cluster_id}" "readCluster" 200 None => Some("Cluster"), READ, "Read a cluster"),
    operation!("put" "/api/v1/clusters/{cluster_id}" "replaceCluster" 200 Some("ClusterUpdate") => Some("Cluster"), REPLACE, "Replace a cluster, or create it under this id with If-None-Match: *"),
    operation!("patch" "/api/v1/clusters/{cluster_id}" "patchCluster" 200 Some("MergePatch") => Some("Cluster"), UPDATE, "Change a cluster by JSON merge patch"),
    operation!("delete" "/api/v1/clusters/{cluster_id}" "deleteCluster" 202 None => Some("Message"), DELETE_CLUSTER, "Delete a cluster"),
    operation!("get" "/api/v1/clusters/{cluster_id}/status" "readClusterStatus" 200 None => Some("ClusterStatusAnswer"), &["project"], "Status and reports of a cluster"),
    operation!("put" "/api/v1/clusters/{cluster_id}/status" "reportClusterStatus" 200 Some("Report") => Some("Message"), &["dryRun", "project"], "Report on a cluster (controllers)"),
    operation!("get" "/api/v1/clusters/{cluster_id}/nodepools" "listNodePoolsOfCluster" 200 None => Some("NodePoolList"), POOL_LIST, "List or watch the pools of a cluster"),
    operation!("post" "/api/v1/clusters/{cluster_id}/nodepools" "createNodePoolInCluster" 201 Some("NodePoolDraft") => Some("NodePool"), CREATE, "Create a pool in a cluster"),
    operation!("get" "/api/v1/nodepools" "listNodePools" 200 None => Some("NodePoolList"), POOL_LIST, "List or watch pools"),
    operation!("post" "/api/v1/nodepools" "createNodePool" 201 Some("NodePoolDraft") => Some("NodePool"), CREATE, "Create a pool"),
    operation!("get" "/api/v1/nodepools/{id}" "readNodePool" 200 None => Some("NodePool"), READ, "Read a pool"),
    operation!("put" "/api/v1/nodepools/{id}" "replaceNodePool" 200 Some("NodePoolUpdate") => Some("NodePool"), REPLACE, "Replace a pool, or create it under this id with If-None-Match: *"),
    operation!("patch" "/api/v1/nodepools/{id}" "patchNodePool" 200 Some("MergePatch") => Some("NodePool"), UPDATE, "Change a pool by JSON merge patch"),
    operation!("delete" "/api/v1/nodepools/{id}" "deleteNodePool" 204 None => None, DELETE, "Delete a pool"),
    operation!("get" "/api/v1/nodepools/{id}/status" "readNodePoolStatus" 200 None => Some("NodePoolStatusAnswer"), &["project"], "Status and reports of a pool"),
    operation!("put" "/api/v1/nodepools/{id}/status" "reportNodePoolStatus" 200 Some("Report") => Some("Message"), &["dryRun", "project"], "Report on a pool (controllers)"),
    operation!("post" "/api/v1/nodepools/{id}/scale" "scaleNodePool" 202 Some("Scale") => Some("Operation"), UPDATE, "Set the size of a pool"),
    operation!("get" "/api/v1/operations" "listOperations" 200 None => Some("OperationList"), OPERATION_LIST, "List or watch operations"),
    operation!("get" "/api/v1/operations/{id}" "readOperation" 200 None => Some("Operation"), &["project"], "Read an operation"),
    operation!("post" "/api/v1/operations/{id}/cancel" "cancelOperation" 202 None => Some("Operation"), &["project"], "Withdraw the wish behind an operation on a host"),
    operation!("get" "/api/v1/decisions" "listDecisions" 200 None => Some("DecisionList"), DECISIONS, "List or watch decisions, newest first"),
    operation!("get" "/api/v1/decisions/{id}" "readDecision" 200 None => Some("Decision"), &["project"], "Read a decision: what it did and why, and what became of it"),
    operation!("get" "/api/v1/decisions/{id}/replay" "replayDecision" 200 None => Some("Replay"), &["project"], "Decide again from the stored snapshot"),
    operation!("get" "/api/v1/decisions/{id}/compare" "compareDecisions" 200 None => Some("Comparison"), &["with", "project"], "What changed from this decision to another"),
    operation!("get" "/api/v1/explain/pod/{namespace}/{name}" "explainPod" 200 None => Some("Explanation"), EXPLAIN, "Why a pod has the place it has, or none"),
    operation!("get" "/api/v1/explain/node/{name}" "explainNode" 200 None => Some("Explanation"), EXPLAIN, "Why a node stays, goes, or is gone"),
    operation!("get" "/api/v1/explain/host/{name}" "explainHost" 200 None => Some("Explanation"), EXPLAIN, "What a host could do, and why it does not"),
    operation!("get" "/api/v1/explain/pool/{id}" "explainPool" 200 None => Some("Explanation"), EXPLAIN, "Why a pool has the size it has"),
    operation!("get" "/api/v1/explain/decision/{id}" "explainDecision" 200 None => Some("DecisionExplanation"), &["project"], "A decision in words, and whether it would be made again"),
    operation!("delete" "/api/v1/nodepools/{id}/status/{controller_name}" "forgetNodePoolReport" 204 None => None, &["dryRun", "project"], "Forget a controller that is gone for good"),
    operation!("delete" "/api/v1/clusters/{cluster_id}/status/{controller_name}" "forgetClusterReport" 204 None => None, &["dryRun", "project"], "Forget a controller that is gone for good"),
    operation!("get" "/api/v1/freeze" "readFreeze" 200 None => Some("Freeze"), &["project"], "Whether anything may act"),
    operation!("put" "/api/v1/freeze" "setFreeze" 200 Some("FreezeRequest") => Some("Freeze"), &["project"], "Stop every action, wake everything, or let Muster act again"),
    operation!("get" "/api/v1/audit" "listAudit" 200 None => Some("AuditPage"), AUDIT_LIST, "Read the audit log, newest first (auditors)"),
    operation!("get" "/api/v1/audit/verify" "verifyAudit" 200 None => Some("AuditVerdict"), &["project"], "Walk the whole chain of the audit log (auditors)"),
    operation!("get" "/api/v1/store/export" "exportStore" 200 None => None, &["project"], "Everything in the store at one revision (admins)"),
];

fn operations() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(inventory::OPERATIONS).chain(page::OPERATIONS)
}

/// `GET /openapi.json`
pub async fn serve() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string()).clone();
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The document.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        paths.entry(operation.path).or_insert_with(|| json!({}))[operation.method] = operation.describe();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Muster",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Clusters and node pools, what controllers report on them, how they are sized, and the inventory of servers.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "security": [{ "bearer": [] }, { "email": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "email": { "type": "apiKey", "in": "header", "name": "X-User-Email",
                    "description": "Believed in dev mode, and from a trusted proxy" }
            },
            "parameters": schemas::parameters(),
            "schemas": schemas::schemas(),
        }
    })
}

impl Operation {
    fn describe(&self) -> Value {
        let open = !self.path.starts_with("/api/") || self.id == "readSignIn";
        let mut parameters: Vec<Value> = path_parameters(self.path);
        parameters.extend(
            self.parameters.iter().map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })),
        );
        let mut responses = Map::new();
        responses.insert(self.success.to_string(), self.answer());
        if self.id.starts_with("replace") {
            responses.insert("201".into(), self.answer());
        }
        if matches!(self.id, "readCluster" | "readNodePool") {
            responses.insert("304".into(), json!({ "description": "The caller has this version already" }));
        }
        responses.insert("default".into(), content("A refusal", "application/json", "Error"));
        let mut described = json!({
            "operationId": self.id, "summary": self.summary, "parameters": parameters, "responses": responses,
        });
        if let Some(body) = self.body {
            let kinds: &[&str] = match body {
                "MergePatch" => &["application/merge-patch+json"],
                "HostTable" => &["application/json", "application/yaml", "text/csv"],
                _ => &["application/json"],
            };
            let schema = json!({ "schema": { "$ref": format!("#/components/schemas/{body}") } });
            let content: Map<String, Value> =
                kinds.iter().map(|kind| ((*kind).to_owned(), schema.clone())).collect();
            described["requestBody"] = json!({ "required": true, "content": content });
        }
        if open {
            described["security"] = json!([]);
        }
        described
    }

    fn answer(&self) -> Value {
        match self.answer {
            Some(schema) if self.id == "exportHosts" => {
                let mut answer = content("Done", "application/json", schema);
                answer["content"]["text/csv"] = json!({ "schema": { "type": "string" } });
                answer
            }
            Some(schema) => content("Done", "application/json", schema),
            None if self.id == "metrics" => json!({ "description": "Metrics", "content": {
                "application/openmetrics-text": { "schema": { "type": "string" } } } }),
            None if self.id == "stream" => {
                json!({ "description": "Events: change, resync and beat", "content": {
                "text/event-stream": { "schema": { "type": "string" } } } })
            }
            None if self.id == "exportStore" => {
                json!({ "description": "Lines of JSON with checksums", "content": {
                "application/x-ndjson": { "schema": { "type": "string" } } } })
            }
            None => json!({ "description": "Done" }),
        }
    }
}

fn content(description: &str, kind: &str, schema: &str) -> Value {
    json!({ "description": description,
        "content": { kind: { "schema": { "$ref": format!("#/components/schemas/{schema}") } } } })
}

/// Parameters that stand in the path itself.
fn path_parameters(path: &str) -> Vec<Value> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            // Decisions and what explanations are about have names instead.
            let uuid = name.ends_with("id") && !path.contains("/decision");
            let schema = if name == "controller_name" {
                json!({ "type": "string", "minLength": 1 })
            } else if uuid {
                json!({ "type": "string", "format": "uuid" })
            } else {
                json!({ "type": "string" })
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described() {
        let described: BTreeSet<&str> = operations().map(|operation| operation.path).collect();
        let served: BTreeSet<&str> =
            crate::routes::PATHS.into_iter().filter(|path| *path != "/docs").collect();
        assert_eq!(described, served);
        let ids: BTreeSet<&str> = operations().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), operations().count(), "an operation id is used twice");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(document: &Value, value: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
                    }
                    members.values().for_each(|value| walk(document, value));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(document, value)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }

    /// Regenerate with `MUSTER_BLESS=1 cargo test -p muster-server openapi`.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test reads whether it should write the file anew")]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/openapi.json");
        let made = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var("MUSTER_BLESS").is_ok() {
            std::fs::write(path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == made, "docs/reference/openapi.json is out of date; run with MUSTER_BLESS=1");
    }
}
