//! One question to a BMC and its answer, as the drivers that hold conversations pass them around.

use muster_model::power::{
    Abilities, Accepted, BootOverride, Identity, Leave, LogEntry, Order, PowerAction, Reading, Sensors,
};

/// One question to a BMC.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    Read,
    Request(Order, Leave),
    SetBoot(BootOverride, Leave),
    Sensors,
    Identify,
    /// At most so many entries.
    LogTail(usize),
    RestartBmc(Leave),
}

impl Job {
    /// What the caller may do; a question that changes nothing needs no leave.
    pub(crate) const fn leave(&self) -> Option<&Leave> {
        match self {
            Self::Request(_, leave) | Self::SetBoot(_, leave) | Self::RestartBmc(leave) => Some(leave),
            Self::Read | Self::Sensors | Self::Identify | Self::LogTail(_) => None,
        }
    }
}

/// Its answer: the variant belongs to the question.
#[derive(Debug)]
pub(crate) enum Done {
    Reading(Reading),
    Accepted(Accepted),
    Boot(BootOverride),
    Sensors(Box<Sensors>),
    Identity(Box<Identity>),
    Log(Vec<LogEntry>),
}

impl Done {
    pub(crate) fn reading(self) -> Reading {
        match self {
            Self::Reading(reading) => reading,
            other => unreachable!("a read answered {other:?}"),
        }
    }

    pub(crate) fn accepted(self) -> Accepted {
        match self {
            Self::Accepted(accepted) => accepted,
            other => unreachable!("a request answered {other:?}"),
        }
    }

    pub(crate) fn boot(self) -> BootOverride {
        match self {
            Self::Boot(boot) => boot,
            other => unreachable!("a boot setting answered {other:?}"),
        }
    }

    pub(crate) fn sensors(self) -> Sensors {
        match self {
            Self::Sensors(sensors) => *sensors,
            other => unreachable!("sensors answered {other:?}"),
        }
    }

    pub(crate) fn identity(self) -> Identity {
        match self {
            Self::Identity(identity) => *identity,
            other => unreachable!("identity answered {other:?}"),
        }
    }

    pub(crate) fn log(self) -> Vec<LogEntry> {
        match self {
            Self::Log(entries) => entries,
            other => unreachable!("a log answered {other:?}"),
        }
    }
}

/// What a BMC can do that is spoken to in full.
pub(crate) fn full_abilities() -> Abilities {
    use PowerAction::{Cycle, ForceOff, GracefulOff, On, Reset};
    Abilities {
        read: true,
        boot: true,
        sensors: true,
        identify: true,
        log: true,
        ..Abilities::actions([On, GracefulOff, ForceOff, Cycle, Reset])
    }
}
