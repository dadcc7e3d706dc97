//! The description of the API, in `OpenAPI` 3.1.
//!
//! Three tables list every operation once; a test compares them with the routes, and the committed
//! `docs/reference/openapi.json` with what this module makes.

/// Method, path, id, success code, body and answer schemas, parameters, what it does.
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

mod inventory;
mod operations;
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

fn operations() -> impl Iterator<Item = &'static Operation> {
    operations::OPERATIONS.iter().chain(inventory::OPERATIONS).chain(page::OPERATIONS)
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
        let open =
            !self.path.starts_with("/api/") || self.path.contains("/agent/") || self.id == "readSignIn";
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
                patch if patch.ends_with("Patch") => &["application/merge-patch+json"],
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
                "text/event-stream": { "schema": { "type": "object", "required": ["event", "data"], "properties": {
                    "id": { "type": "string" }, "event": { "type": "string" }, "data": { "type": "string" } } } } } })
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
            let uuid = name.ends_with("id");
            let decision = name == "id" && path.contains("/decision");
            let schema = if decision {
                json!({ "type": "string", "pattern": schemas::DECISION })
            } else if name == "controller_name" {
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
