//! Namespaces, disruption budgets, priority and runtime classes.

use serde::{Deserialize, Serialize};

use super::{LabelSelector, Labels, List, ObjectMeta, ResourceList, Table, Toleration, read::nullable};
use crate::Timestamp;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: PdbSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: PdbStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbSpec {
    pub min_available: Option<IntOrPercent>,
    pub max_unavailable: Option<IntOrPercent>,
    /// `None` covers no pod, `{}` every pod of the namespace.
    pub selector: Option<LabelSelector>,
    /// `AlwaysAllow` lets pods that are not ready go without a budget.
    #[serde(deserialize_with = "nullable")]
    pub unhealthy_pod_eviction_policy: Box<str>,
}

/// A number, or a text that should be a percentage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    Int(i64),
    Percent(Box<str>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbStatus {
    /// Absent means that the budget was not computed yet, which allows nothing.
    pub disruptions_allowed: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub current_healthy: i32,
    #[serde(deserialize_with = "nullable")]
    pub desired_healthy: i32,
    #[serde(deserialize_with = "nullable")]
    pub expected_pods: i32,
    #[serde(deserialize_with = "nullable")]
    pub observed_generation: i64,
    /// Pods whose eviction was granted and that are not gone yet.
    pub disrupted_pods: Table<Option<Timestamp>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub value: i32,
    #[serde(deserialize_with = "nullable")]
    pub global_default: bool,
    #[serde(deserialize_with = "nullable")]
    pub preemption_policy: Box<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeClass {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    pub overhead: Option<RuntimeOverhead>,
    pub scheduling: Option<RuntimeScheduling>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeOverhead {
    pub pod_fixed: ResourceList,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeScheduling {
    pub node_selector: Labels,
    pub tolerations: List<Toleration>,
}
