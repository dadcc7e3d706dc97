//! Where a host stands: five public states, and the phases inside them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What every reader of `status.state` may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Off,
    PoweringOn,
    Ready,
    Draining,
    Error,
}

impl State {
    pub const ALL: [Self; 5] = [Self::Off, Self::PoweringOn, Self::Ready, Self::Draining, Self::Error];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::PoweringOn => "powering-on",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The finer place inside a [`State`]; the lifecycle's transition table is written in phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Enrolling,
    Idle,
    Reserved,
    PreparingBoot,
    PowerRequested,
    Powered,
    Booting,
    Joining,
    Serving,
    Degraded,
    Lost,
    Cordoned,
    Evicting,
    Drained,
    Stopping,
    ForcingOff,
    ConfirmingOff,
    Backoff,
    Quarantined,
}

impl Phase {
    pub const ALL: [Self; 19] = [
        Self::Enrolling,
        Self::Idle,
        Self::Reserved,
        Self::PreparingBoot,
        Self::PowerRequested,
        Self::Powered,
        Self::Booting,
        Self::Joining,
        Self::Serving,
        Self::Degraded,
        Self::Lost,
        Self::Cordoned,
        Self::Evicting,
        Self::Drained,
        Self::Stopping,
        Self::ForcingOff,
        Self::ConfirmingOff,
        Self::Backoff,
        Self::Quarantined,
    ];

    pub const fn state(self) -> State {
        match self {
            Self::Enrolling | Self::Idle | Self::Reserved => State::Off,
            Self::PreparingBoot | Self::PowerRequested | Self::Powered | Self::Booting | Self::Joining => {
                State::PoweringOn
            }
            Self::Serving | Self::Degraded | Self::Lost => State::Ready,
            Self::Cordoned
            | Self::Evicting
            | Self::Drained
            | Self::Stopping
            | Self::ForcingOff
            | Self::ConfirmingOff => State::Draining,
            Self::Backoff | Self::Quarantined => State::Error,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enrolling => "enrolling",
            Self::Idle => "idle",
            Self::Reserved => "reserved",
            Self::PreparingBoot => "preparing-boot",
            Self::PowerRequested => "power-requested",
            Self::Powered => "powered",
            Self::Booting => "booting",
            Self::Joining => "joining",
            Self::Serving => "serving",
            Self::Degraded => "degraded",
            Self::Lost => "lost",
            Self::Cordoned => "cordoned",
            Self::Evicting => "evicting",
            Self::Drained => "drained",
            Self::Stopping => "stopping",
            Self::ForcingOff => "forcing-off",
            Self::ConfirmingOff => "confirming-off",
            Self::Backoff => "backoff",
            Self::Quarantined => "quarantined",
        }
    }
}

impl fmt::Display for Phase {
    /// With its state, as people read it: `ready/serving`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.state(), self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_ones_that_are_stored() {
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_string(&phase).unwrap(), format!("\"{}\"", phase.as_str()));
        }
        for state in State::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.as_str()));
        }
        assert_eq!(Phase::PreparingBoot.to_string(), "powering-on/preparing-boot");
    }
}
