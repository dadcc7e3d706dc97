//! What is known about a host's power.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

use super::DriverKind;

/// What a BMC says when it says something. The fifth value, "unknown", is [`crate::Known::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    On,
    Off,
    TurningOn,
    TurningOff,
}

impl Power {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::TurningOn => "turning-on",
            Self::TurningOff => "turning-off",
        }
    }

    /// On, or on its way there.
    pub const fn is_up(self) -> bool {
        match self {
            Self::On | Self::TurningOn => true,
            Self::Off | Self::TurningOff => false,
        }
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One reading, and since when consecutive readings have said the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PowerReading {
    pub power: Power,
    pub driver: DriverKind,
    /// The first of the consecutive readings that said so.
    pub since: Timestamp,
}

/// The seed's `status.powerState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublicPower {
    On,
    Off,
    #[default]
    Unknown,
}

impl PublicPower {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Unknown => "unknown",
        }
    }

    /// A machine on its way is neither on nor off to a reader that knows three values.
    pub const fn of(power: Option<Power>) -> Self {
        match power {
            Some(Power::On) => Self::On,
            Some(Power::Off) => Self::Off,
            Some(Power::TurningOn | Power::TurningOff) | None => Self::Unknown,
        }
    }
}
