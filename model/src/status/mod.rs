//! What we say about a cluster or pool, derived from what controllers report.

mod aggregate;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use aggregate::{
    AggregateConfig, Aggregated, ConditionKind, Reason, Subject, Target, aggregate_cluster, aggregate_pool,
    fresh_pool_status, nodes_are,
};

use crate::{Timestamp, condition::Condition, field::choice};

choice! {
    pub enum Phase("a phase") {
        /// No controller has reported yet.
        Pending = "Pending",
        /// Controllers are at work.
        Progressing = "Progressing",
        /// Every controller is ready at this generation.
        Ready = "Ready",
        /// It was ready, and for some time has not been.
        Degraded = "Degraded",
        /// Waiting does not help.
        Failed = "Failed",
        /// It is being torn down.
        Deleting = "Deleting",
    }
}

choice! {
    pub enum Health("a health") {
        /// Ready at this generation.
        Healthy = "Healthy",
        /// Fewer ready than desired, a lagging generation, or a transient error.
        Degraded = "Degraded",
        /// Failed.
        Unhealthy = "Unhealthy",
        /// No report, or a report past its lease.
        Unknown = "Unknown",
    }
}

/// The part that clusters and pools have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    pub phase: Phase,
    pub health: Health,
    /// One word, from [`Reason`].
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// The oldest generation that a known controller has observed; 0 before the first report.
    pub observed_generation: u64,
    pub conditions: Vec<Condition>,
    /// The last generation at which it was Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_generation: Option<u64>,
    /// When anything else in here last changed.
    pub updated_at: Timestamp,
    /// The cluster's pools at the moment of reading. Not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<PoolRollup>,
}

/// The pools of a cluster, counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolRollup {
    pub total: u64,
    /// Pools by phase; phases without pools are left out.
    pub by_phase: BTreeMap<String, u64>,
    pub by_health: BTreeMap<String, u64>,
    /// Sizes that are wanted, added up.
    pub desired_nodes: u64,
    /// Nodes that exist; `null` as soon as one pool does not say.
    pub current_nodes: Option<u64>,
    /// Nodes that are ready; `null` as soon as one pool does not say.
    pub ready_nodes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    pub phase: Phase,
    pub health: Health,
    pub reason: String,
    pub message: String,
    pub observed_generation: u64,
    /// The size that is wanted now.
    pub desired_nodes: u32,
    /// Nodes that exist; `null` when nobody has said.
    pub current_nodes: Option<u32>,
    /// Nodes that are ready; `null` when nobody has said.
    pub ready_nodes: Option<u32>,
    /// Names of the nodes to give up when the size goes down, for controllers that provision the pool. Whoever removes
    /// others instead takes nodes that are in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_to_remove: Vec<String>,
    /// Ours, and those that other parts of Muster add under names of their own.
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_generation: Option<u64>,
    pub updated_at: Timestamp,
    /// The bare-metal view, where the pool has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baremetal: Option<Value>,
}

impl PoolStatus {
    /// Whether a list filter names this status.
    pub fn matches(&self, phase: Option<Phase>, health: Option<Health>) -> bool {
        phase.is_none_or(|phase| phase == self.phase) && health.is_none_or(|health| health == self.health)
    }
}
