//! What people lay over a host's lifecycle: maintenance, holds and acknowledgements.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, field::choice};

use super::Switch;

choice! {
    /// Under anything but `normal` controllers observe and never act.
    #[derive(Default)]
    pub enum Admin("an administrative state") {
        #[default]
        Normal = "normal",
        Maintenance = "maintenance",
        /// Not even probed.
        Disabled = "disabled",
    }
}

/// A person keeps the autoscaler away from a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hold {
    pub by: String,
    pub reason: String,
    /// Until released, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Hold {
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// What a person wants of a host's power now. A wish lasts as long as the hold that it came with.
pub fn by_hand(wish: Option<Switch>, hold: Option<&Hold>, now: Timestamp) -> Option<Switch> {
    wish.filter(|_| hold.is_none_or(|hold| hold.is_active(now)))
}

/// A person has seen to a host: lifts a quarantine, a hold after an unexpected off, a doubt about power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Acknowledgement {
    pub by: String,
    pub reason: String,
    pub at: Timestamp,
}

/// Who brought a host into the inventory, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registered {
    pub by: String,
    pub at: Timestamp,
}
