//! Nodes.

use serde::{Deserialize, Serialize};

use super::{
    List, ObjectMeta, ResourceList, Taint,
    read::{non_empty, nullable},
};
use crate::Timestamp;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

impl Node {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    pub taints: List<Taint>,
    #[serde(deserialize_with = "nullable")]
    pub unschedulable: bool,
    #[serde(rename = "providerID", deserialize_with = "non_empty")]
    pub provider_id: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    pub allocatable: ResourceList,
    pub capacity: ResourceList,
    pub conditions: List<NodeCondition>,
    pub declared_features: List<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub node_info: NodeInfo,
}

impl NodeStatus {
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions.iter().find(|condition| &*condition.kind == kind)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: Box<str>,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub status: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub reason: Box<str>,
    pub last_heartbeat_time: Option<Timestamp>,
    pub last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    #[serde(rename = "bootID", deserialize_with = "nullable")]
    pub boot_id: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub kubelet_version: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub architecture: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub operating_system: Box<str>,
}
