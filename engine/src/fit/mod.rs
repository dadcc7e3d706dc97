//! Whether a pod fits a node, as the default profile of kube-scheduler 1.36 decides it.
//!
//! This is the slow, obvious implementation: one file per filter, no shared shortcuts. The audit is built
//! on it, conformance is measured on it, and a fast planner may precompute with its small functions but
//! is judged by the whole.
//!
//! Deliberately absent: scoring, preemption, nominated pods, scheduling gates (a gated pod is not pending
//! in the first place), device claims, and the migration of old in-tree volumes to CSI.

pub mod cycle;
pub mod declared_features;
pub mod node_affinity;
pub mod pod_affinity;
pub mod ports;
pub mod requests;
mod resources;
pub mod selector;
pub mod spread;
pub mod storage;
pub mod taints;
mod verdict;
mod volume_binding;
pub mod volume_limits;
pub mod volume_restrictions;
mod volume_zone;
pub mod world;

use std::fmt;

pub use cycle::{Cycle, Refusal};
pub use requests::Amounts;
pub use storage::Storage;
pub use verdict::{Failure, Verdict, judge};
pub use world::{NodeState, World};

/// The filters, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plugin {
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    NodeDeclaredFeatures,
}

impl Plugin {
    pub const ORDER: [Self; 14] = [
        Self::NodeUnschedulable,
        Self::NodeName,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::VolumeRestrictions,
        Self::NodeVolumeLimits,
        Self::VolumeBinding,
        Self::VolumeZone,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
        Self::DynamicResources,
        Self::NodeDeclaredFeatures,
    ];

    /// The scheduler's name of the plugin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeUnschedulable => "NodeUnschedulable",
            Self::NodeName => "NodeName",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::NodePorts => "NodePorts",
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::VolumeRestrictions => "VolumeRestrictions",
            Self::NodeVolumeLimits => "NodeVolumeLimits",
            Self::VolumeBinding => "VolumeBinding",
            Self::VolumeZone => "VolumeZone",
            Self::PodTopologySpread => "PodTopologySpread",
            Self::InterPodAffinity => "InterPodAffinity",
            Self::DynamicResources => "DynamicResources",
            Self::NodeDeclaredFeatures => "NodeDeclaredFeatures",
        }
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether evicting pods could make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// Unschedulable: other pods are in the way.
    Resolvable,
    /// Unschedulable, and no eviction can change it.
    Unresolvable,
    /// The objects contradict themselves, so that the scheduler gives up on the pod with an error.
    Error,
}

impl Code {
    /// `U`, `UU` or `E`.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Resolvable => "U",
            Self::Unresolvable => "UU",
            Self::Error => "E",
        }
    }
}

/// When a node was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Before any filter ran, from the pod alone.
    Before,
    Filter,
}

/// Why a plugin refuses a node, in the scheduler's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rejection {
    pub code: Code,
    /// Sorted.
    pub reasons: Vec<String>,
}

impl Rejection {
    pub(crate) fn unresolvable(reason: impl Into<String>) -> Self {
        Self { code: Code::Unresolvable, reasons: vec![reason.into()] }
    }

    pub(crate) fn resolvable(reason: impl Into<String>) -> Self {
        Self { code: Code::Resolvable, reasons: vec![reason.into()] }
    }

    pub(crate) fn error(reason: impl Into<String>) -> Self {
        Self { code: Code::Error, reasons: vec![reason.into()] }
    }

    pub(crate) fn unresolvable_for(mut reasons: Vec<String>) -> Self {
        reasons.sort();
        Self { code: Code::Unresolvable, reasons }
    }

    pub(crate) fn resolvable_for(mut reasons: Vec<String>) -> Self {
        reasons.sort();
        Self { code: Code::Resolvable, reasons }
    }
}
