//! Pods and their containers.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Affinity, Labels, List, ObjectMeta, PodStatus, ResourceList, SpreadConstraint, Toleration, Volume,
    read::{non_empty, nullable},
};

/// A pod. The spec is shared: pods of one workload usually have equal specs, and whoever keeps many pods
/// may let them point to one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: Arc<PodSpec>,
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

impl Pod {
    /// By which a pod is known in plans and reports. Costs no copy of the names.
    pub fn key(&self) -> PodKey {
        PodKey { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone() }
    }

    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Waits for a node: not bound, not gated, not going away.
    pub fn is_pending(&self) -> bool {
        self.spec.node_name.is_none()
            && self.spec.scheduling_gates.is_empty()
            && !self.is_finished()
            && !self.is_terminating()
    }

    /// Succeeded or failed: it holds nothing any more.
    pub fn is_finished(&self) -> bool {
        self.status.phase.is_finished()
    }
}

/// Namespace and name of a pod, written `namespace/name`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<PodKey> for String {
    fn from(key: PodKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for PodKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.split_once('/') {
            Some((namespace, name)) => Ok(Self { namespace: namespace.into(), name: name.into() }),
            None => Err(format!("{text:?} is not a pod; write it like namespace/name")),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub containers: List<Container>,
    pub init_containers: List<Container>,
    #[serde(deserialize_with = "non_empty")]
    pub node_name: Option<Box<str>>,
    pub node_selector: Labels,
    pub affinity: Option<Affinity>,
    pub topology_spread_constraints: List<SpreadConstraint>,
    pub tolerations: List<Toleration>,
    pub volumes: List<Volume>,
    /// Pod-level requests and limits.
    pub resources: Option<Resources>,
    pub overhead: ResourceList,
    #[serde(deserialize_with = "nullable")]
    pub host_network: bool,
    pub host_users: Option<bool>,
    pub priority: Option<i32>,
    #[serde(deserialize_with = "non_empty")]
    pub priority_class_name: Option<Box<str>>,
    #[serde(deserialize_with = "non_empty")]
    pub preemption_policy: Option<Box<str>>,
    #[serde(deserialize_with = "non_empty")]
    pub runtime_class_name: Option<Box<str>>,
    #[serde(deserialize_with = "non_empty")]
    pub scheduler_name: Option<Box<str>>,
    /// A pod with a gate is not pending yet.
    pub scheduling_gates: List<SchedulingGate>,
    pub scheduling_group: Option<SchedulingGroup>,
    /// Devices that are claimed rather than counted.
    pub resource_claims: List<PodResourceClaim>,
    #[serde(deserialize_with = "non_empty")]
    pub restart_policy: Option<Box<str>>,
    pub termination_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
    pub ports: List<ContainerPort>,
    pub restart_policy: Option<ContainerRestartPolicy>,
    pub restart_policy_rules: List<RestartRule>,
}

impl Container {
    /// An init container that keeps running beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == Some(ContainerRestartPolicy::Always)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    pub requests: ResourceList,
    pub limits: ResourceList,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContainerRestartPolicy {
    Always,
    /// Anything else; only `Always` makes a sidecar.
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartRule {
    #[serde(deserialize_with = "nullable")]
    pub action: Box<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    #[serde(deserialize_with = "nullable")]
    pub container_port: i32,
    /// Zero: no port of the node is used.
    #[serde(deserialize_with = "nullable")]
    pub host_port: i32,
    /// Absent is the wildcard `0.0.0.0`.
    #[serde(rename = "hostIP", deserialize_with = "non_empty")]
    pub host_ip: Option<Box<str>>,
    /// Absent is TCP.
    pub protocol: Option<Protocol>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Box<str>", into = "Box<str>")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
    Other(Box<str>),
}

impl From<Box<str>> for Protocol {
    fn from(text: Box<str>) -> Self {
        match &*text {
            "TCP" | "" => Self::Tcp,
            "UDP" => Self::Udp,
            "SCTP" => Self::Sctp,
            _ => Self::Other(text),
        }
    }
}

impl From<Protocol> for Box<str> {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => "TCP".into(),
            Protocol::Udp => "UDP".into(),
            Protocol::Sctp => "SCTP".into(),
            Protocol::Other(text) => text,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGate {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
}

/// The group with which the pod is scheduled, all or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    #[serde(deserialize_with = "non_empty")]
    pub pod_group_name: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "non_empty")]
    pub resource_claim_name: Option<Box<str>>,
    #[serde(deserialize_with = "non_empty")]
    pub resource_claim_template_name: Option<Box<str>>,
}
