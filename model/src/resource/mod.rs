//! Custom resources: pools, hosts and clusters as objects of the home cluster.
//!
//! The store is the only truth. An object is made from it, carries the revision it was made from, and an edit of the
//! object is a wish that the store grants or refuses. This module holds what both sides of that must agree on: the
//! names of kinds and marks, the object itself, the port to the API server, and the one mapping between the shapes of
//! the API and those of objects ([`shape`]).
//!
//! Deliberately absent: when to write what. That is decided in `control::resources`.

pub mod defaults;
pub mod shape;

use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{API_GROUP, API_VERSION, observe::Note};

/// Holds an object until what it stands for is gone from the store.
pub const FINALIZER: &str = "muster.dev/store";
/// Annotation: the store's revision that the object was last made from, or that took its last edit.
pub const REVISION: &str = "muster.dev/revision";
/// Annotation: digest of the spec at that time. Another spec was written by somebody else.
pub const SPEC_DIGEST: &str = "muster.dev/spec-digest";
/// Annotation: which record of the store an object was made for. It only counts until `status.id` is there.
pub const MADE_FOR: &str = "muster.dev/made-for";
/// Under which name our writes appear in `managedFields`.
pub const FIELD_MANAGER: &str = "muster";

/// What can be an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    Cluster,
    NodePool,
    BareMetalNode,
}

impl ResourceKind {
    /// Clusters first: pools name them.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::NodePool, Self::BareMetalNode];

    pub const fn kind(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::NodePool => "NodePool",
            Self::BareMetalNode => "BareMetalNode",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::NodePool => "nodepools",
            Self::BareMetalNode => "baremetalnodes",
        }
    }

    pub const fn singular(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::NodePool => "nodepool",
            Self::BareMetalNode => "baremetalnode",
        }
    }

    /// What people type: other projects own the plain words.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Cluster => "mcl",
            Self::NodePool => "mnp",
            Self::BareMetalNode => "bmn",
        }
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// `muster.dev/v1alpha1`.
pub fn api_version() -> String {
    format!("{API_GROUP}/{API_VERSION}")
}

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: ResourceKind,
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind.plural(), self.namespace, self.name)
    }
}

/// One object, without the bookkeeping of who owns which field.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    pub kind: ResourceKind,
    pub metadata: Map<String, Value>,
    pub spec: Value,
    pub status: Value,
    /// Changes whenever somebody other than us writes anything but the status, even what was there already.
    pub others: String,
}

impl Resource {
    /// An object that does not exist yet.
    pub fn new(kind: ResourceKind, namespace: &str, name: &str, spec: Value) -> Self {
        let metadata = json!({ "namespace": namespace, "name": name });
        let Value::Object(metadata) = metadata else { unreachable!("it was written as an object") };
        Self { kind, metadata, spec, status: json!({}), others: String::new() }
    }

    /// Reads an object of an API server; `None` when it is none.
    pub fn read(kind: ResourceKind, mut object: Value) -> Option<Self> {
        let Value::Object(mut metadata) = object.get_mut("metadata")?.take() else { return None };
        let others = foreign_marks(&metadata);
        metadata.remove("managedFields");
        let mut part = |name: &str| match object.get_mut(name).map(Value::take) {
            Some(value @ Value::Object(_)) => value,
            _ => json!({}),
        };
        let (spec, status) = (part("spec"), part("status"));
        let read = Self { kind, metadata, spec, status, others };
        (!read.name().is_empty()).then_some(read)
    }

    /// As it is sent to an API server.
    pub fn to_object(&self) -> Value {
        json!({
            "apiVersion": api_version(), "kind": self.kind.kind(),
            "metadata": self.metadata, "spec": self.spec, "status": self.status,
        })
    }

    fn text(&self, name: &str) -> &str {
        self.metadata.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.text("name")
    }

    pub fn namespace(&self) -> &str {
        self.text("namespace")
    }

    pub fn uid(&self) -> &str {
        self.text("uid")
    }

    /// The API server's version of it. Numbers, in all servers that there are; 0 when it is none.
    pub fn version(&self) -> u64 {
        self.text("resourceVersion").parse().unwrap_or_default()
    }

    /// Rises with every change of the spec.
    pub fn generation(&self) -> u64 {
        self.metadata.get("generation").and_then(Value::as_u64).unwrap_or_default()
    }

    /// Whether somebody has asked for its deletion.
    pub fn is_deleting(&self) -> bool {
        self.metadata.contains_key("deletionTimestamp")
    }

    pub fn key(&self) -> ObjectKey {
        ObjectKey { kind: self.kind, namespace: self.namespace().to_owned(), name: self.name().to_owned() }
    }

    /// The record of the store that it stands for, once that was settled.
    pub fn id(&self) -> Option<&str> {
        self.status.get("id").and_then(Value::as_str)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.get("annotations")?.get(name)?.as_str()
    }

    pub fn set_annotation(&mut self, name: &str, value: &str) {
        let all = self.metadata.entry("annotations").or_insert_with(|| json!({}));
        if !all.is_object() {
            *all = json!({});
        }
        all[name] = value.into();
    }

    pub fn has_finalizer(&self) -> bool {
        let all = self.metadata.get("finalizers").and_then(Value::as_array);
        all.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
    }

    pub fn set_finalizer(&mut self, wanted: bool) {
        if wanted == self.has_finalizer() {
            return;
        }
        let all = self.metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            if wanted {
                all.push(FINALIZER.into());
            } else {
                all.retain(|one| one != FINALIZER);
            }
        }
    }
}

/// Who beside us wrote what: labels, annotations that are not ours, and the API server's notes on writers.
fn foreign_marks(metadata: &Map<String, Value>) -> String {
    let ours = [REVISION, SPEC_DIGEST, MADE_FOR];
    let annotations: Vec<(&String, &Value)> = metadata
        .get("annotations")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| !ours.contains(&name.as_str()))
        .collect();
    let writers: Vec<&Value> = metadata
        .get("managedFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|entry| entry.get("manager").and_then(Value::as_str) != Some(FIELD_MANAGER))
        .collect();
    short_digest(&json!([annotations, metadata.get("labels"), writers]))
}

/// A digest that is short enough to be looked at: 16 of 64 digits tell edits of one object apart.
pub fn short_digest(value: &Value) -> String {
    let whole = Sha256::digest(shape::canonical(value.clone()).to_string().as_bytes());
    whole.iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        use fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq)]
pub enum ResourceEvent {
    /// Everything there is; what is not in it is gone.
    All(Vec<Resource>),
    Changed(Resource),
    Gone(ObjectKey),
    /// Nothing is heard at the moment, and why. The watch goes on by itself.
    Broken(String),
}

/// The port to the API server that keeps the objects.
///
/// Every write of an existing object is a compare-and-set on its version. Nothing is retried inside a call.
#[async_trait]
pub trait ResourcePort: Send + Sync + fmt::Debug {
    /// The schema of a kind's `spec`, as it is installed.
    fn schema(&self, kind: ResourceKind) -> &Value;
    /// Whether the definitions in the cluster are ours, to the letter: with others a write would come back changed.
    async fn check(&self) -> Result<(), ResourceError>;
    /// Everything, then every change, without an end.
    fn watch(&self, kind: ResourceKind) -> BoxStream<'static, ResourceEvent>;
    async fn create(&self, object: &Resource) -> Result<Resource, ResourceError>;
    /// Writes metadata and spec.
    async fn replace(&self, object: &Resource) -> Result<Resource, ResourceError>;
    async fn replace_status(&self, object: &Resource) -> Result<Resource, ResourceError>;
    /// Asks for its deletion, if it is still the same object.
    async fn delete(&self, object: &Resource) -> Result<(), ResourceError>;
    /// Makes a namespace, if there is none of the name.
    async fn make_namespace(&self, name: &str) -> Result<(), ResourceError>;
    /// Tells whoever looks at an object something about it. Best effort, deduplicated and limited by the implementation.
    async fn tell(&self, note: &Note);
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResourceError {
    /// Somebody else wrote it since we read it.
    #[error("{what}: it was changed meanwhile")]
    Conflict { what: String },
    #[error("{what}: an object of that name exists")]
    Exists { what: String },
    #[error("{what}: it is gone")]
    Missing { what: String },
    #[error("{what}: there is no namespace {namespace}")]
    NoNamespace { what: String, namespace: String },
    #[error("{what}: {why}")]
    Refused { what: String, why: String },
    #[error("{what}: Muster may not do this: {why}")]
    Denied { what: String, why: String },
    /// The kinds are not defined, or not as this version of Muster needs them.
    #[error("{why}; install them with: muster reference definitions | kubectl apply --server-side -f -")]
    Definitions { why: String },
    #[error("{what}: {why}")]
    Unreachable { what: String, why: String },
}

impl ResourceError {
    /// A stable word for logs and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::Exists { .. } => "exists",
            Self::Missing { .. } => "missing",
            Self::NoNamespace { .. } => "no_namespace",
            Self::Refused { .. } => "refused",
            Self::Denied { .. } => "denied",
            Self::Definitions { .. } => "definitions",
            Self::Unreachable { .. } => "unreachable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(labels: &Value, writers: &Value) -> Resource {
        let object = json!({
            "metadata": { "name": "lab.web", "namespace": "team", "uid": "u", "resourceVersion": "41",
                "generation": 3, "labels": labels, "managedFields": writers, "finalizers": ["other/one"] },
            "spec": { "name": "web" }, "status": { "id": "x" },
        });
        Resource::read(ResourceKind::NodePool, object).unwrap()
    }

    #[test]
    fn an_object_is_read_without_the_notes_on_its_writers() {
        let read = object(&json!({}), &json!([{ "manager": "kubectl" }]));
        assert_eq!(
            (read.name(), read.namespace(), read.version(), read.generation()),
            ("lab.web", "team", 41, 3)
        );
        assert_eq!((read.id(), read.is_deleting()), (Some("x"), false));
        assert_eq!(read.to_object()["metadata"].get("managedFields"), None);
        assert_eq!(Resource::read(ResourceKind::NodePool, json!({ "metadata": {} })), None);
        assert_eq!(Resource::read(ResourceKind::NodePool, json!([])), None);
    }

    #[test]
    fn others_are_seen_and_we_are_not() {
        let kubectl = json!({ "manager": "kubectl", "time": "1" });
        let one = object(&json!({}), &json!([kubectl, { "manager": "muster", "time": "1" }]));
        let ours = object(&json!({}), &json!([kubectl, { "manager": "muster", "time": "2" }]));
        let theirs = object(
            &json!({}),
            &json!([{ "manager": "kubectl", "time": "2" }, { "manager": "muster", "time": "1" }]),
        );
        let labelled = object(&json!({ "a": "b" }), &json!([kubectl]));
        assert_eq!(one.others, ours.others);
        assert_ne!(one.others, theirs.others);
        assert_ne!(one.others, labelled.others);
    }

    #[test]
    fn finalizers_of_others_stay() {
        let mut read = object(&json!({}), &json!([]));
        read.set_finalizer(true);
        read.set_finalizer(true);
        assert_eq!(read.metadata["finalizers"], json!(["other/one", FINALIZER]));
        read.set_finalizer(false);
        assert_eq!(read.metadata["finalizers"], json!(["other/one"]));
    }
}
