//! A node pool: a named set of like nodes in one cluster.

mod autoscaling;
mod change;
mod cron;
mod effective;
mod labels;
mod management;
pub mod promql;
mod schedule;
mod spec;
mod stored;
mod template;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use autoscaling::{
    Autoscaling, Bounds, Comparator, DEFAULT_SCALE_DOWN_DELAY, DEFAULT_SCALE_DOWN_UTILIZATION,
    DEFAULT_SCALE_UP_DELAY, DEFAULT_TARGET_CPU, DEFAULT_TARGET_MEMORY, Headroom, MARK_DISTANCE, MAX_DELAY,
    MAX_NODES, Marks, OnNoData, ScaleDirection, SeriesAggregate, Trigger,
};
pub use change::{Effect, SpecChange, changes};
pub use cron::{Cron, CronError};
pub use effective::{CAPACITY_TYPE_LABEL, NodeShape, ShapeSource, TemplateIncomplete};
pub use labels::{
    LabelUse, Labels, MAX_LABELS, MAX_TAINTS, Merge, Taint, TaintEffect, read_labels, read_taints,
};
pub use management::{IntOrPercent, MAX_DRAIN, Management, RolloutStrategy, UpgradeType};
pub use schedule::Schedule;
pub use spec::{Mode, PoolSpec, REDACTED, Release};
pub use stored::StoredPool;
pub(crate) use template::read_resources;
pub use template::{Amount, Arch, Resources, Template};

use crate::{
    ClusterId, Name, PoolId, Project, Timestamp,
    cluster::ClusterSpec,
    field::{FieldError, FieldErrors, Findings, Object, Parsed},
    identity::Secrets,
    names,
    patch::merge_patch,
    platform::Place,
    status::PoolStatus,
    store::Revision,
};

/// A pool as it is stored. Its revision is the store's and is not part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodePool {
    pub id: PoolId,
    pub name: Name,
    pub project: Project,
    pub cluster_id: ClusterId,
    /// Rises by one with every change of `spec`.
    pub generation: u64,
    pub spec: PoolSpec,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    /// Since when it is being torn down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deleted_at: Option<Timestamp>,
}

/// What a pool is checked against.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolContext<'a> {
    /// The cluster that the path names; a body that names another one is refused.
    pub cluster_id: Option<ClusterId>,
    /// That cluster's spec, where the caller has it: zones must lie in its region.
    pub cluster: Option<&'a ClusterSpec>,
}

impl PoolContext<'_> {
    fn place(&self) -> Place<'_> {
        Place { region: self.cluster.and_then(ClusterSpec::region) }
    }
}

/// What a create request says.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolDraft {
    pub name: Name,
    pub cluster_id: ClusterId,
    pub spec: PoolSpec,
}

/// What a replace or patch request says.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolUpdate {
    /// The new name, or the old one.
    pub name: Name,
    pub spec: PoolSpec,
    /// The revision that the caller saw, if the body says so: another one is a conflict.
    pub resource_version: Option<String>,
}

/// Fields of the envelope that only the server writes.
const SERVER_OWNED: [&str; 8] =
    ["id", "project", "generation", "status", "created_at", "updated_at", "created_by", "deleted_at"];

impl PoolDraft {
    /// The pool that this draft asks for.
    pub fn into_pool(self, id: PoolId, project: Project, created_by: String, now: Timestamp) -> NodePool {
        NodePool {
            id,
            name: self.name,
            project,
            cluster_id: self.cluster_id,
            generation: 1,
            spec: self.spec,
            created_at: now,
            updated_at: now,
            created_by,
            deleted_at: None,
        }
    }
}

/// The name of a pool or cluster, or the faults that it has.
pub(crate) fn read_name(object: &mut Object<'_>, what: &str, findings: &mut Findings) -> Option<Name> {
    let missing = || FieldError::sentence("name", format!("{what} name is required"));
    if object.get("name").is_none() {
        findings.push(missing());
        return None;
    }
    let name = object.string("name", findings)?;
    if name.is_empty() {
        findings.push(missing());
        return None;
    }
    match name.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            let error: names::NameError = error;
            findings.push(FieldError::new("name", error.problem).found_text(name).allowed(names::DNS_LABEL));
            None
        }
    }
}

fn read_cluster_id(object: &mut Object<'_>, findings: &mut Findings) -> Option<ClusterId> {
    let text = object.string("cluster_id", findings)?;
    text.parse()
        .map_err(|_| {
            findings.push(
                FieldError::new("cluster_id", "is not a UUID")
                    .found_text(text)
                    .allowed("a UUID like 550e8400-e29b-41d4-a716-446655440000"),
            );
        })
        .ok()
}

impl NodePool {
    /// Reads the body of a create request.
    pub fn parse_create(body: &Value, context: &PoolContext<'_>) -> Result<Parsed<PoolDraft>, FieldErrors> {
        let mut findings = Findings::new();
        let draft = Self::read_create(body, context, &mut findings);
        findings.result_of(draft)
    }

    fn read_create(body: &Value, context: &PoolContext<'_>, findings: &mut Findings) -> Option<PoolDraft> {
        let mut object = Object::read(body, "", findings)?;
        let name = read_name(&mut object, "nodepool", findings);
        let sent = read_cluster_id(&mut object, findings);
        match (object.get("cluster_id"), sent, context.cluster_id) {
            (None, _, None) => findings.push(FieldError::new("cluster_id", "is required")),
            (_, Some(sent), Some(path)) if sent != path => findings.push(
                FieldError::new("cluster_id", format!("names another cluster than the path, {path}"))
                    .found_text(&sent.to_string())
                    .hint("leave it out"),
            ),
            _ => {}
        }
        for name in SERVER_OWNED {
            object.server_owned(name, findings);
        }
        object.server_owned("resource_version", findings);
        let mut spec = object
            .required("spec", "", findings)
            .and_then(|value| PoolSpec::read(value, &context.place(), findings));
        if let Some(spec) = &mut spec {
            spec.restore_secrets(None, findings);
        }
        object.finish(findings);
        Some(PoolDraft { name: name?, cluster_id: sent.or(context.cluster_id)?, spec: spec? })
    }

    /// Reads the body of a replace request. Envelope fields may be sent back if they are unchanged.
    pub fn parse_replace(
        &self,
        body: &Value,
        context: &PoolContext<'_>,
    ) -> Result<Parsed<PoolUpdate>, FieldErrors> {
        let mut findings = Findings::new();
        let update = self.read_update(body, context, &mut findings);
        findings.result_of(update)
    }

    /// Applies a JSON merge patch (RFC 7396) and reads the result like a replace request.
    pub fn merge_patch(
        &self,
        patch: &Value,
        context: &PoolContext<'_>,
    ) -> Result<Parsed<PoolUpdate>, FieldErrors> {
        if !patch.is_object() {
            return Err(FieldErrors::one(FieldError::new("", "must be an object").found(patch)));
        }
        let mut body = serde_json::json!({ "name": self.name, "spec": self.spec });
        let mut patch = patch.clone();
        if let Some(spec) = patch.get_mut("spec") {
            rename_in_patch(spec, self);
        }
        merge_patch(&mut body, &patch);
        self.parse_replace(&body, context)
    }

    fn read_update(
        &self,
        body: &Value,
        context: &PoolContext<'_>,
        findings: &mut Findings,
    ) -> Option<PoolUpdate> {
        let mut object = Object::read(body, "", findings)?;
        let name = if object.get("name").is_some() {
            read_name(&mut object, "nodepool", findings)
        } else {
            Some(self.name.clone())
        };
        if let Some(sent) = read_cluster_id(&mut object, findings)
            && sent != self.cluster_id
        {
            findings.push(
                FieldError::new("cluster_id", format!("cannot be changed, it is {}", self.cluster_id))
                    .found_text(&sent.to_string()),
            );
        }
        let resource_version = object.string("resource_version", findings).map(str::to_owned);
        check_unchanged(&mut object, &self.envelope(), findings);
        let mut spec = object
            .required("spec", "a replacement sends the whole spec", findings)
            .and_then(|value| PoolSpec::read(value, &context.place(), findings));
        if let Some(spec) = &mut spec {
            spec.check_replaces(&self.spec, findings);
            spec.restore_secrets(Some(&self.spec), findings);
        }
        object.finish(findings);
        Some(PoolUpdate { name: name?, spec: spec?, resource_version })
    }

    /// The fields that a replacement may repeat but not change.
    fn envelope(&self) -> [(&'static str, Value); 8] {
        let text = |at: Timestamp| Value::String(at.to_string());
        [
            ("id", Value::String(self.id.to_string())),
            ("project", Value::String(self.project.to_string())),
            ("generation", self.generation.into()),
            ("created_at", text(self.created_at)),
            ("updated_at", text(self.updated_at)),
            ("created_by", Value::String(self.created_by.clone())),
            ("deleted_at", self.deleted_at.map_or(Value::Null, text)),
            ("status", Value::Null),
        ]
    }

    /// Carries out an update: generation rises only when the spec changed. Returns whether anything did.
    pub fn apply(&mut self, update: PoolUpdate, now: Timestamp) -> bool {
        let changed = spec_changed(&self.spec, &update.spec);
        let renamed = self.name != update.name;
        if changed {
            self.generation += 1;
            self.spec = update.spec;
        }
        if renamed {
            self.name = update.name;
        }
        if changed || renamed {
            self.updated_at = now;
        }
        changed || renamed
    }

    /// The object as the API gives it, as bytes. One pass over borrowed data.
    pub fn to_api_bytes(&self, revision: Revision, status: Option<&PoolStatus>, secrets: Secrets) -> Vec<u8> {
        let hidden = self.spec_for(secrets);
        let api = ApiPool::of(self, hidden.as_ref().unwrap_or(&self.spec), revision, status);
        serde_json::to_vec(&api).expect("a pool has string keys and finite numbers only")
    }

    /// The object as the API gives it.
    pub fn to_api(&self, revision: Revision, status: Option<&PoolStatus>, secrets: Secrets) -> Value {
        let hidden = self.spec_for(secrets);
        let api = ApiPool::of(self, hidden.as_ref().unwrap_or(&self.spec), revision, status);
        serde_json::to_value(api).expect("a pool has string keys and finite numbers only")
    }

    /// A spec without secrets, where it has any that must be hidden.
    fn spec_for(&self, secrets: Secrets) -> Option<PoolSpec> {
        let hide = secrets == Secrets::Hidden && self.spec.has_secrets();
        hide.then(|| {
            let mut spec = self.spec.clone();
            spec.redact();
            spec
        })
    }

    /// Whether decisions about this pool are carried out: its own mode, else its cluster's.
    pub fn mode(&self, cluster: &ClusterSpec) -> Mode {
        self.spec.mode.unwrap_or_else(|| cluster.mode())
    }
}

/// Whether the generation has to rise.
pub fn spec_changed(old: &PoolSpec, new: &PoolSpec) -> bool {
    old != new
}

/// Refuses server-owned fields that differ from what the object has. `status` is never compared: it is
/// not the caller's to set, and a body that was read a moment ago may carry it back.
pub(crate) fn check_unchanged(
    object: &mut Object<'_>,
    envelope: &[(&'static str, Value)],
    findings: &mut Findings,
) {
    for (name, ours) in envelope {
        if let Some(sent) = object.get(name)
            && *name != "status"
            && !ours.is_null()
            && sent != ours
        {
            findings.push(
                FieldError::new(*name, "is set by the server and cannot be changed")
                    .found(sent)
                    .hint("leave it out"),
            );
        }
    }
}

/// A patch may use the other names of fields; without this, both names would meet in the merged spec.
fn rename_in_patch(spec: &mut Value, pool: &NodePool) {
    let Value::Object(spec) = spec else { return };
    if let Some(nodes) = spec.remove("replicas") {
        spec.entry("nodeCount").or_insert(nodes);
    }
    if let Some(limit) = spec.remove("nodeDrainTimeout") {
        let block = spec.entry("management").or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Value::Object(block) = block {
            block.entry("nodeDrainTimeout").or_insert(limit);
        }
    }
    let kind = pool.spec.platform.kind;
    let block = spec.get_mut("platform").and_then(|platform| platform.get_mut(kind.as_str()));
    if let Some(Value::Object(block)) = block {
        for (from, to) in crate::platform::platform(kind).aliases() {
            if let Some(value) = block.remove(*from) {
                block.entry(*to).or_insert(value);
            }
        }
    }
}

/// The envelope, in the order in which people read it.
#[derive(Serialize)]
struct ApiPool<'a, Spec> {
    id: PoolId,
    name: &'a str,
    cluster_id: ClusterId,
    project: &'a str,
    generation: u64,
    #[serde(serialize_with = "as_text")]
    resource_version: Revision,
    spec: Spec,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a PoolStatus>,
    created_at: Timestamp,
    updated_at: Timestamp,
    created_by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Timestamp>,
}

impl<'a> ApiPool<'a, &'a PoolSpec> {
    fn of(
        pool: &'a NodePool,
        spec: &'a PoolSpec,
        revision: Revision,
        status: Option<&'a PoolStatus>,
    ) -> Self {
        Self {
            id: pool.id,
            name: pool.name.as_str(),
            cluster_id: pool.cluster_id,
            project: pool.project.as_str(),
            generation: pool.generation,
            resource_version: revision,
            spec,
            status,
            created_at: pool.created_at,
            updated_at: pool.updated_at,
            created_by: &pool.created_by,
            deleted_at: pool.deleted_at,
        }
    }
}

/// A revision is opaque to clients, so it travels as text.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
pub(crate) fn as_text<S: serde::Serializer>(revision: &Revision, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(revision)
}
