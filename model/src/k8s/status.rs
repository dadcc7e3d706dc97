//! What a pod's status says that decisions read.

use serde::{Deserialize, Serialize};

use super::{
    List, ResourceList, Resources,
    read::{non_empty, nullable},
};
use crate::Timestamp;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    #[serde(deserialize_with = "nullable")]
    pub phase: PodPhase,
    pub conditions: List<PodCondition>,
    pub container_statuses: List<ContainerStatus>,
    pub init_container_statuses: List<ContainerStatus>,
    /// What the node granted and runs at pod level, once it reports it.
    pub resources: Option<Resources>,
    pub allocated_resources: ResourceList,
    #[serde(deserialize_with = "non_empty")]
    pub nominated_node_name: Option<Box<str>>,
    pub start_time: Option<Timestamp>,
}

impl PodStatus {
    pub fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.conditions.iter().find(|condition| &*condition.kind == kind)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    /// Absent or not known here; the pod counts.
    #[default]
    #[serde(other)]
    Unknown,
}

impl PodPhase {
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub status: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub reason: Box<str>,
    pub last_transition_time: Option<Timestamp>,
}

/// What a container was granted and what it runs with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    pub resources: Option<Resources>,
    pub allocated_resources: ResourceList,
}
