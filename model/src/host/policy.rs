//! What is done about a host by itself, as its pool allows it.

use serde::{Deserialize, Serialize};

/// A host that should be on was switched off by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnexpectedOff {
    /// Leave it off: a person may be inside the chassis.
    #[default]
    Hold,
    /// Switch it on again.
    Restart,
    /// Take it as off, free to be used again.
    Adopt,
}

/// A host that should be off was switched on by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnexpectedOn {
    /// Leave it on, and use it when it joins.
    #[default]
    Adopt,
    /// Switch it off after a while.
    EnforceOff,
}

/// What becomes of the Node object when its host is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeAtOff {
    /// It stays, tainted `muster.dev/off:NoSchedule`.
    #[default]
    KeepTainted,
    Delete,
    Leave,
}

/// Somebody deleted the Node object of a host that is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnNodeDeleted {
    /// Wait for its kubelet to register again; one that does not in time is lost.
    #[default]
    Wait,
    /// Shut the machine down once no pod is bound to it; the next start registers anew.
    StandDown,
}

/// Something that happens only where somebody allowed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    Allowed,
    Refused,
}

impl Permission {
    pub const fn is_allowed(self) -> bool {
        match self {
            Self::Allowed => true,
            Self::Refused => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HostPolicy {
    pub on_unexpected_off: OnUnexpectedOff,
    pub on_unexpected_on: OnUnexpectedOn,
    pub node_at_off: NodeAtOff,
    pub on_node_deleted: OnNodeDeleted,
    /// Cut the power of a machine that does not shut down when asked.
    pub force_off: Permission,
    /// One power cycle for a node that is lost and has no pods left to lose.
    pub cycle_lost: Permission,
    /// Tell Kubernetes that a machine is proved off, so that its pods and volumes are freed.
    pub out_of_service: Permission,
    /// Restart a BMC that is stuck.
    pub reset_bmc: Permission,
    /// Failures within the window that set a host aside.
    pub quarantine_after: u32,
    /// Power-ons of one host within 24 hours that the autoscaler may ask for.
    pub max_cycles_per_day: u32,
}

impl Default for HostPolicy {
    fn default() -> Self {
        Self {
            on_unexpected_off: OnUnexpectedOff::default(),
            on_unexpected_on: OnUnexpectedOn::default(),
            node_at_off: NodeAtOff::default(),
            on_node_deleted: OnNodeDeleted::default(),
            force_off: Permission::Allowed,
            cycle_lost: Permission::Refused,
            out_of_service: Permission::Allowed,
            reset_bmc: Permission::Refused,
            quarantine_after: 3,
            max_cycles_per_day: 24,
        }
    }
}
