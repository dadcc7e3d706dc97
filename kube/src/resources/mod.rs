//! The definitions of Muster's custom resources, and the port to the API server that keeps them.
//!
//! Schemas are written by hand beside the model and checked against it: a field of the model that no schema has fails a
//! test. They are never stricter than the model about what can be stored, because what the store holds must be
//! representable. Rules that only the store can judge are left to it; then the object says why.

mod cluster;
mod host;
mod objects;
mod parts;
mod pool;
mod reference;
mod schema;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use muster_model::{
    API_GROUP, API_VERSION,
    resource::{ResourceKind, short_digest},
};
use serde_json::{Value, json};

pub use objects::Objects;
pub use reference::markdown;

/// Annotation of a definition: digest of what this version of Muster says.
pub const DEFINITION: &str = "muster.dev/definition";
/// The category: `kubectl get muster` shows all kinds.
const CATEGORY: &str = "muster";

/// The three `CustomResourceDefinition`s, ready to be applied.
pub fn definitions() -> Vec<Value> {
    ResourceKind::ALL.into_iter().map(|kind| definition(kind).clone()).collect()
}

/// The `CustomResourceDefinition` of a kind.
pub fn definition(kind: ResourceKind) -> &'static Value {
    static ALL: OnceLock<[Value; 3]> = OnceLock::new();
    let all = ALL.get_or_init(|| ResourceKind::ALL.map(build));
    ResourceKind::ALL
        .iter()
        .zip(all)
        .find(|(one, _)| **one == kind)
        .map(|(_, found)| found)
        .expect("ALL has every kind")
}

/// What Muster asks of the home cluster for its objects, as rules of a `ClusterRole`. The last one is needed only where
/// Muster makes the namespaces of projects.
pub fn rules() -> Vec<Value> {
    let plurals = ResourceKind::ALL.map(ResourceKind::plural);
    let statuses = plurals.map(|plural| format!("{plural}/status"));
    vec![
        json!({ "apiGroups": [API_GROUP], "resources": plurals, "verbs": ["list", "watch", "create", "update", "delete"] }),
        json!({ "apiGroups": [API_GROUP], "resources": statuses, "verbs": ["update"] }),
        json!({
            "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"],
            "resourceNames": ResourceKind::ALL.map(definition_name),
        }),
        json!({ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] }),
        json!({ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"] }),
    ]
}

/// The name of a kind's definition.
pub fn definition_name(kind: ResourceKind) -> String {
    format!("{}.{API_GROUP}", kind.plural())
}

/// The schema of a kind's `spec`.
pub fn spec_schema(kind: ResourceKind) -> &'static Value {
    &definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

fn build(kind: ResourceKind) -> Value {
    let (spec, status, columns) = match kind {
        ResourceKind::Cluster => (cluster::spec(), cluster::cluster_status(), cluster::columns()),
        ResourceKind::NodePool => (pool::spec(), pool::pool_status(), pool::columns()),
        ResourceKind::BareMetalNode => (host::spec(), host::host_status(), host::columns()),
    };
    let (about, mut subresources) = match kind {
        ResourceKind::Cluster => ("A Kubernetes cluster whose pods need nodes.", json!({ "status": {} })),
        ResourceKind::NodePool => (
            "A named set of like nodes in one cluster.",
            json!({ "status": {}, "scale": {
                "specReplicasPath": ".spec.nodeCount", "statusReplicasPath": ".status.currentNodes",
                "labelSelectorPath": ".status.selector",
            } }),
        ),
        ResourceKind::BareMetalNode => ("A server of the inventory.", json!({ "status": {} })),
    };
    let mut root = Value::from(schema::object(
        about,
        [
            ("apiVersion", schema::text("The version of this schema.")),
            ("kind", schema::text("The kind of this object.")),
            ("metadata", schema::Field::from_value(json!({ "type": "object" }))),
            ("spec", spec),
            ("status", status),
        ],
    ));
    root["required"] = json!(["spec"]);
    if kind == ResourceKind::BareMetalNode {
        let (rule, message) = host::ROOT_RULE;
        root["x-kubernetes-validations"] = json!([{ "rule": rule, "message": message }]);
    }
    let spec = json!({
        "group": API_GROUP,
        "scope": "Namespaced",
        "names": {
            "kind": kind.kind(), "listKind": format!("{}List", kind.kind()), "plural": kind.plural(),
            "singular": kind.singular(), "shortNames": [kind.short()], "categories": [CATEGORY],
        },
        "versions": [{
            "name": API_VERSION, "served": true, "storage": true,
            "schema": { "openAPIV3Schema": root },
            "subresources": subresources.take(),
            "additionalPrinterColumns": columns,
        }],
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": definition_name(kind),
            "annotations": { DEFINITION: short_digest(&spec) },
            "labels": { "app.kubernetes.io/name": "muster", "app.kubernetes.io/part-of": "muster" },
        },
        "spec": spec,
    })
}
