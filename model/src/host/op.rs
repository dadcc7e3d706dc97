//! `/baremetal/nodes/{host}/intent` and `/op`: what is wanted of a host, and what is being done about it.

use serde::{Deserialize, Serialize};

use crate::{Duration, Timestamp, field::choice};

choice! {
    /// On or off, as somebody wants it.
    pub enum Switch("a power state to ask for") {
        On = "on",
        Off = "off",
    }
}

choice! {
    /// What a person does to a host's power.
    pub enum ManualPower("a power action") {
        On = "on",
        Off = "off",
        /// Off, and on again.
        Cycle = "cycle",
    }
}

/// What the actuator wants of a host. Written by it alone, with the leader's epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Intent {
    /// Names this wish; a wish that failed is not tried again under the same name.
    pub id: String,
    pub want: Switch,
    /// The pool that claims the host.
    pub pool: String,
    /// The journaled decision that this follows from.
    pub decision: String,
    pub reason: String,
    pub epoch: u64,
    pub at: Timestamp,
    /// Whoever wants it off has weighed that its rack and zone may lose it, by the pool's bounds of that moment: nobody
    /// weighs it again by others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread_weighed: bool,
}

impl Intent {
    /// How long an intent may wait for the host loop. Its own deadline for the first step is a minute; after five the
    /// planner no longer counts the host as coming or going and plans anew. From then on the host loop begins no drain
    /// for it: nobody takes an intent back whose node is needed again meanwhile.
    pub const TAKEN_UP_WITHIN: Duration = Duration::from_mins(5);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpKind {
    On,
    Off,
    Cycle,
    /// On and off again, to see whether a host that was set aside works.
    SelfTest,
}

impl OpKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Cycle => "cycle",
            Self::SelfTest => "self-test",
        }
    }
}

/// Who or what an operation goes back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Cause {
    /// The autoscaler's decision.
    #[serde(rename_all = "camelCase")]
    Intent {
        intent: String,
        decision: String,
    },
    /// A request by hand, in the host's spec.
    #[serde(rename_all = "camelCase")]
    Manual {
        by: String,
    },
    /// A policy for a machine that was switched by somebody else.
    Drift,
    /// The host's record is being deleted.
    Deletion,
    /// The end of a failed attempt.
    Recovery,
    Probation,
    /// Everything is to be on.
    AllOn,
}

impl Cause {
    /// Whether wear limits apply: they bind the autoscaler, not a person.
    pub const fn is_automatic(&self) -> bool {
        match self {
            Self::Intent { .. } | Self::Drift | Self::Probation => true,
            Self::Manual { .. } | Self::Deletion | Self::Recovery | Self::AllOn => false,
        }
    }

    /// Whether a person asked for it: what is done in a pool that only gives advice.
    pub const fn is_by_hand(&self) -> bool {
        match self {
            Self::Manual { .. } | Self::Deletion | Self::AllOn => true,
            Self::Intent { .. } | Self::Drift | Self::Recovery | Self::Probation => false,
        }
    }
}

/// The operation under way on one host.
///
/// It is stored before its first effect, so that whoever leads next goes on where this one stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostOp {
    pub id: String,
    pub kind: OpKind,
    pub cause: Cause,
    pub reason: String,
    /// The epoch of the leader that last worked on it.
    pub epoch: u64,
    pub started: Timestamp,
    /// Absolute; the boot is not extended by progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_deadline: Option<Timestamp>,
    /// Absolute; from the first cordon to the last pod gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_deadline: Option<Timestamp>,
    /// Power-on requests sent.
    #[serde(default)]
    pub attempts: u32,
    /// Forced power-offs sent.
    #[serde(default)]
    pub force_offs: u32,
    /// Drivers that refused or were not able to set the boot device.
    #[serde(default)]
    pub boots_refused: u32,
    /// Drivers that refused or were not able to ask the machine to shut down.
    #[serde(default)]
    pub asks_refused: u32,
    /// How often nothing left when it was to be asked: its BMC was busy or out of reach.
    #[serde(default)]
    pub asks_unsent: u32,
    /// Ways to switch it on that its drivers turned out not to have. Nothing was sent, and they are not asked for again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_offered: Vec<PowerCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_requested_at: Option<Timestamp>,
    /// The proof of off that stood before its first power-on request. It stands again only if that request was not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_proved_before: Option<Timestamp>,
    /// The last burst of magic packets or forced power-off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_off_at: Option<Timestamp>,
    /// The boot override was set and read back, or none is needed.
    #[serde(default)]
    pub boot_set: bool,
    /// An operating system was seen in this operation, so asking it to shut down makes sense.
    #[serde(default)]
    pub os_seen: bool,
    /// The machine was on already, and nothing was sent.
    #[serde(default)]
    pub adopted: bool,
    /// The demand went away while it was booting.
    #[serde(default)]
    pub cancelling: bool,
    /// The claim on the pool was given back.
    #[serde(default)]
    pub released: bool,
    /// The one power cycle that a lost node may get was sent.
    #[serde(default)]
    pub cycled: bool,
    /// The attempt failed and was counted; what follows only brings the machine to rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<TestStage>,
    /// When the stage of a self-test is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_deadline: Option<Timestamp>,
    /// Number of power effects so far.
    #[serde(default)]
    pub effects: u32,
    /// The power effect that was stored and whose outcome is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingEffect>,
}

impl HostOp {
    pub fn new(id: String, kind: OpKind, cause: Cause, reason: String, epoch: u64, now: Timestamp) -> Self {
        Self {
            id,
            kind,
            cause,
            reason,
            epoch,
            started: now,
            boot_deadline: None,
            drain_deadline: None,
            attempts: 0,
            force_offs: 0,
            boots_refused: 0,
            asks_refused: 0,
            asks_unsent: 0,
            not_offered: Vec::new(),
            power_requested_at: None,
            off_proved_before: None,
            last_sent_at: None,
            asked_off_at: None,
            boot_set: false,
            os_seen: false,
            adopted: false,
            cancelling: false,
            released: false,
            cycled: false,
            failed: None,
            stage: None,
            stage_deadline: None,
            effects: 0,
            pending: None,
        }
    }

    /// Whether this asks again for a shutdown that was asked for before.
    pub fn is_renewed(&self, call: &PendingEffect) -> bool {
        let again = self.asked_off_at.is_some_and(|asked| asked < call.at);
        again && matches!(call.call, PowerCall::GracefulOff { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestStage {
    /// Power on was asked for; a reading must confirm it.
    PowerOn,
    /// It is on; an operating system must show.
    Boot,
    /// It was asked to shut down; off must be proved.
    PowerOff,
    /// The same by force.
    ForceOff,
}

/// A power effect that was announced in the store before it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingEffect {
    /// Counts the power effects of its operation.
    pub seq: u32,
    pub call: PowerCall,
    pub at: Timestamp,
    /// What was last asked of the machine before; it is so again if this call is not sent after all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<LastAction>,
}

/// What was last asked of a machine, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAction {
    pub action: super::PowerAction,
    pub at: Timestamp,
}

/// A call to a power driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "call")]
pub enum PowerCall {
    SetBoot {
        driver: usize,
    },
    PowerOn {
        driver: usize,
        reset: super::OnReset,
    },
    /// Three magic packets.
    WolBurst {
        driver: usize,
    },
    GracefulOff {
        driver: usize,
    },
    ForceOff {
        driver: usize,
    },
    PowerCycle {
        driver: usize,
    },
    ResetBmc {
        driver: usize,
    },
}

impl PowerCall {
    /// Whether sending it again leads to the same state. What does not is sent at most once.
    pub const fn is_repeatable(self) -> bool {
        match self {
            Self::SetBoot { .. }
            | Self::WolBurst { .. }
            | Self::GracefulOff { .. }
            | Self::ForceOff { .. } => true,
            Self::PowerOn { reset, .. } => reset.is_repeatable(),
            Self::PowerCycle { .. } | Self::ResetBmc { .. } => false,
        }
    }

    /// Whether it may bring power.
    pub const fn is_on(self) -> bool {
        match self {
            Self::PowerOn { .. } | Self::WolBurst { .. } => true,
            Self::SetBoot { .. }
            | Self::GracefulOff { .. }
            | Self::ForceOff { .. }
            | Self::PowerCycle { .. }
            | Self::ResetBmc { .. } => false,
        }
    }

    /// Whether it takes power away.
    pub const fn is_off(self) -> bool {
        match self {
            Self::GracefulOff { .. } | Self::ForceOff { .. } | Self::PowerCycle { .. } => true,
            Self::SetBoot { .. } | Self::PowerOn { .. } | Self::WolBurst { .. } | Self::ResetBmc { .. } => {
                false
            }
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SetBoot { .. } => "set-boot",
            Self::PowerOn { .. } => "power-on",
            Self::WolBurst { .. } => "wol-burst",
            Self::GracefulOff { .. } => "graceful-off",
            Self::ForceOff { .. } => "force-off",
            Self::PowerCycle { .. } => "power-cycle",
            Self::ResetBmc { .. } => "reset-bmc",
        }
    }

    pub const fn driver(self) -> usize {
        match self {
            Self::SetBoot { driver }
            | Self::PowerOn { driver, .. }
            | Self::WolBurst { driver }
            | Self::GracefulOff { driver }
            | Self::ForceOff { driver }
            | Self::PowerCycle { driver }
            | Self::ResetBmc { driver } => driver,
        }
    }
}
