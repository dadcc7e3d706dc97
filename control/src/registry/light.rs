//! Stored objects read only as far as the index needs them: most of a pool's 2 KB is skipped, not kept.

use std::{borrow::Cow, collections::BTreeMap};

use muster_model::{
    Timestamp,
    field::Choice,
    platform::PlatformKind,
    status::{Health, Phase},
    store::Revision,
};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    index::{Counts, Index, Summary},
    keys::Kind,
    labels::Labels,
    operations::OperationState,
};

#[derive(Debug, Deserialize)]
struct LightObject<'a> {
    id: Uuid,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    project: Cow<'a, str>,
    cluster_id: Option<Uuid>,
    generation: u64,
    created_at: Timestamp,
    #[serde(borrow)]
    created_by: Cow<'a, str>,
    deleted_at: Option<Timestamp>,
    #[serde(borrow)]
    spec: LightSpec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LightSpec<'a> {
    #[serde(borrow)]
    platform: LightPlatform<'a>,
    #[serde(borrow)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    node_count: Option<u32>,
    autoscaling: LightAutoscaling,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LightPlatform<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    gcp: LightBlock<'a>,
    #[serde(borrow)]
    aws: LightBlock<'a>,
    #[serde(borrow)]
    azure: LightBlock<'a>,
}

/// The labels that a platform's own block puts on nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LightBlock<'a> {
    #[serde(borrow)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

/// A stored operation, as far as lists and the timer need it.
#[derive(Debug, Deserialize)]
struct LightOperation<'a> {
    id: Uuid,
    #[serde(default)]
    nodepool_id: Option<Uuid>,
    #[serde(borrow, default)]
    nodepool_name: Cow<'a, str>,
    #[serde(borrow, default)]
    host: Cow<'a, str>,
    #[serde(borrow)]
    project: Cow<'a, str>,
    state: OperationState,
    #[serde(default)]
    generation: u64,
    created_at: Timestamp,
    #[serde(borrow)]
    created_by: Cow<'a, str>,
}

/// Reads a stored object of any kind.
pub(super) fn summary(
    kind: Kind,
    value: &[u8],
    version: Revision,
    index: &mut Index,
) -> Result<Summary, serde_json::Error> {
    if kind == Kind::Operation {
        let operation: LightOperation<'_> = serde_json::from_slice(value)?;
        return Ok(operation.summary(version, index));
    }
    let object: LightObject<'_> = serde_json::from_slice(value)?;
    Ok(object.summary(kind, version, index))
}

impl LightOperation<'_> {
    fn summary(&self, version: Revision, index: &mut Index) -> Summary {
        Summary {
            kind: Kind::Operation,
            id: self.id,
            project: index.intern(&self.project),
            cluster: self.nodepool_id.unwrap_or_default(),
            name: if self.nodepool_id.is_some() { &self.nodepool_name } else { &self.host }.as_ref().into(),
            created_by: index.intern(&self.created_by),
            created_at: self.created_at,
            generation: self.generation,
            platform: "",
            labels: Labels::default(),
            deleting: false,
            version,
            status_version: Revision::ZERO,
            phase: self.state.as_str(),
            health: "",
            counts: Counts::default(),
            recheck_at: None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LightAutoscaling {
    enabled: Option<bool>,
    min_nodes: Option<u32>,
    max_nodes: Option<u32>,
}

/// The parts of a stored status that lists filter by and metrics show.
#[derive(Debug, Deserialize)]
pub(super) struct LightStatus {
    phase: Phase,
    health: Health,
    #[serde(default)]
    desired_nodes: Option<u32>,
    #[serde(default)]
    current_nodes: Option<u32>,
    #[serde(default)]
    ready_nodes: Option<u32>,
    #[serde(default)]
    recheck_at: Option<Timestamp>,
}

impl LightObject<'_> {
    /// A summary of an object that nobody has reported on.
    fn summary(&self, kind: Kind, version: Revision, index: &mut Index) -> Summary {
        let autoscaled = self.spec.autoscaling.enabled == Some(true);
        let bounds = |bound: Option<u32>| if autoscaled { bound } else { self.spec.node_count };
        let desired = match kind {
            Kind::Pool if autoscaled => self.spec.node_count.or(self.spec.autoscaling.min_nodes),
            Kind::Pool => Some(self.spec.node_count.unwrap_or(0)),
            Kind::Cluster | Kind::Operation => None,
        };
        Summary {
            kind,
            id: self.id,
            project: index.intern(&self.project),
            cluster: self.cluster_id.unwrap_or(self.id),
            name: self.name.as_ref().into(),
            created_by: index.intern(&self.created_by),
            created_at: self.created_at,
            generation: self.generation,
            platform: PlatformKind::from_word(&self.spec.platform.kind).map_or("", PlatformKind::as_str),
            labels: self.labels(index),
            deleting: self.deleted_at.is_some(),
            version,
            status_version: Revision::ZERO,
            phase: if self.deleted_at.is_some() { Phase::Deleting } else { Phase::Pending }.as_str(),
            health: Health::Unknown.as_str(),
            counts: Counts {
                desired,
                current: None,
                ready: None,
                min: bounds(self.spec.autoscaling.min_nodes),
                max: bounds(self.spec.autoscaling.max_nodes),
            },
            recheck_at: None,
        }
    }

    /// All labels that nodes of the pool carry, wherever they are written. A contradiction is refused at the door.
    fn labels(&self, index: &mut Index) -> Labels {
        let platform = &self.spec.platform;
        let blocks = [&platform.gcp, &platform.aws, &platform.azure];
        let mut all: BTreeMap<&str, &str> = BTreeMap::new();
        for labels in blocks.into_iter().map(|block| &block.labels).chain([&self.spec.labels]) {
            all.extend(labels.iter().map(|(key, value)| (key.as_ref(), value.as_ref())));
        }
        index.labels.labels(&all)
    }
}

impl LightStatus {
    pub(super) fn merge(&self, into: &mut Summary, version: Revision) {
        into.status_version = version;
        into.phase = self.phase.as_str();
        into.health = self.health.as_str();
        into.counts.desired = self.desired_nodes.or(into.counts.desired);
        into.counts.current = self.current_nodes;
        into.counts.ready = self.ready_nodes;
        into.recheck_at = self.recheck_at;
    }
}
