//! What is done about a host by itself, as its pool allows it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    field::{FieldError, Findings, Object},
    suggest,
};

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

macro_rules! policy {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $default:expr;)+) => {
        /// What is done about a host by itself.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        pub struct HostPolicy { $($(#[$doc])* pub $name: $kind),+ }

        impl Default for HostPolicy {
            fn default() -> Self {
                Self { $($name: $default),+ }
            }
        }

        /// What a pool says of it. What is absent comes from the settings of all hosts.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        pub struct PolicyOverrides {
            $($(#[$doc])*
            #[serde(skip_serializing_if = "Option::is_none")]
            pub $name: Option<$kind>),+
        }

        impl PolicyOverrides {
            pub fn is_empty(&self) -> bool {
                $(self.$name.is_none())&&+
            }
        }

        impl HostPolicy {
            /// This policy with `overrides` on top.
            #[must_use]
            pub fn with(&self, overrides: &PolicyOverrides) -> Self {
                Self { $($name: overrides.$name.unwrap_or(self.$name)),+ }
            }
        }
    };
}

impl PolicyOverrides {
    /// Reads a policy member by member, noting every fault.
    pub fn read(object: &Object<'_>, findings: &mut Findings) -> Self {
        let known = serde_json::to_value(HostPolicy::default()).unwrap_or_default();
        let names = || known.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let mut good = Map::new();
        for (name, value) in object.members() {
            let path = object.at(name);
            if !names().any(|known| known == name) {
                let error = FieldError::new(path, "is not a known field").found(value);
                findings.push(match suggest::nearest(name, names()) {
                    Some(near) => error.hint(format!("did you mean {near}?")),
                    None => error.allowed(names().collect::<Vec<_>>().join(", ")),
                });
                continue;
            }
            let one = Map::from_iter([(name.clone(), value.clone())]);
            match serde_json::from_value::<Self>(Value::Object(one)) {
                Ok(Self { quarantine_after: Some(0), .. }) => {
                    findings.push(FieldError::new(path, "must be at least 1").found(value));
                }
                Ok(_) => drop(good.insert(name.clone(), value.clone())),
                Err(error) => {
                    findings.push(FieldError::new(path, format!("cannot be used: {error}")).found(value));
                }
            }
        }
        serde_json::from_value(Value::Object(good)).unwrap_or_default()
    }
}

policy! {
    on_unexpected_off: OnUnexpectedOff = OnUnexpectedOff::default();
    on_unexpected_on: OnUnexpectedOn = OnUnexpectedOn::default();
    node_at_off: NodeAtOff = NodeAtOff::default();
    on_node_deleted: OnNodeDeleted = OnNodeDeleted::default();
    /// Cut the power of a machine that does not shut down when asked.
    force_off: Permission = Permission::Allowed;
    /// One power cycle for a node that is lost and has no pods left to lose.
    cycle_lost: Permission = Permission::Refused;
    /// Tell Kubernetes that a machine is proved off, so that its pods and volumes are freed.
    out_of_service: Permission = Permission::Allowed;
    /// Restart a BMC that is stuck.
    reset_bmc: Permission = Permission::Refused;
    /// Failures within the window that set a host aside.
    quarantine_after: u32 = 3;
    /// Power-ons of one host within 24 hours that the autoscaler may ask for.
    max_cycles_per_day: u32 = 24;
}
