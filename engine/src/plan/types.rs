//! What to do now. Plain data, independent of how it was found.

use std::sync::Arc;

use muster_model::k8s::PodKey;
use serde::{Deserialize, Serialize};

/// New nodes, placements and removals, in an order in which each step is legal.
///
/// The order of events is: all `new_nodes` appear, then `placements` one by one, then `removals` one by
/// one, each with the moves of its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    pub new_nodes: Vec<NewNode>,
    /// Pending pods that find a place.
    pub placements: Vec<Placement>,
    pub removals: Vec<Removal>,
    /// Pending pods that find none. Every pending pod is either here or in `placements`.
    pub unplaced: Vec<PodKey>,
}

/// A node to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NewNode {
    /// Unique among all nodes, old and new; also its hostname.
    pub name: Arc<str>,
    pub pool: Arc<str>,
    pub template: Arc<str>,
    pub source: Source,
    /// Millionths of the currency per hour.
    pub price: i64,
}

/// Where a new node comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Source {
    /// One of the template's offerings.
    Bought { zone: Option<Arc<str>>, capacity_type: Option<Arc<str>> },
    /// A host of the pool.
    Host { host: Arc<str> },
}

impl Default for Source {
    fn default() -> Self {
        Self::Bought { zone: None, capacity_type: None }
    }
}

/// A pod and the node it goes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    pub pod: PodKey,
    pub on: Target,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// A node of the snapshot, by name.
    Node(Arc<str>),
    /// An index into the plan's new nodes.
    New(u32),
}

/// A node to be emptied and given up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Removal {
    pub node: Arc<str>,
    /// Where each of its pods goes, in order. Daemon pods, mirror pods and pods that are already going
    /// away go with the node and are not listed.
    pub moves: Vec<Placement>,
}
