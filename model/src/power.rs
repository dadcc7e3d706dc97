//! The port to whatever switches a machine on and off, and what that port speaks about.
//!
//! One [`Power`] is one driver (Redfish, IPMI, Wake-on-LAN, …) for all machines that it reaches; a [`Bmc`]
//! says which machine and how. What holds for every driver, and what one conformance suite checks:
//!
//! * A power reading has five values. Missing, odd or contradictory answers are
//!   [`PowerState::Unknown`] with the reason: never off, never on.
//! * `Ok` from [`Power::request`] means accepted. Only [`Power::read`] tells whether it happened.
//! * Before anything is sent, the driver reads: a machine that is already there is left alone, and a machine
//!   that is not the expected one ([`Bmc::expect`]) is never switched.
//! * Each request or packet that changes something is preceded by a look at the caller's [`Leave`]: once that has
//!   ended nothing more is sent, however long the call has been under way.
//! * One call is in flight per BMC, and at most one session is open on it.
//! * A refused account stops all calls until the credential has a new version.
//! * No error, log line or `Debug` text contains a secret.
//!
//! Absent on purpose: retries over time, deadlines and escalation. They belong to the host loop, which keeps
//! them in the store.

mod bmc;
mod error;
mod leave;
mod secret;
mod uuid;

use std::{collections::BTreeSet, fmt};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Known, Timestamp, host::OnReset};

pub use crate::Secret;
pub use bmc::{
    Bmc, CipherSuite, Endpoint, Expected, Mac, MacError, Pin, PinError, Privilege, RedfishAuth, Trust,
};
pub use error::{Advice, Fault, PowerError, shown};
pub use leave::{Leave, Waiting};
pub use secret::{Credential, CredentialError, Credentials};
pub use uuid::{given_uuid, same_uuid};

/// The drivers by the names that users write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    Redfish,
    Ipmi,
    Wol,
    Agent,
    Webhook,
    DryRun,
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redfish => "redfish",
            Self::Ipmi => "ipmi",
            Self::Wol => "wol",
            Self::Agent => "agent",
            Self::Webhook => "webhook",
            Self::DryRun => "dry-run",
        })
    }
}

/// What can be asked of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerAction {
    On,
    /// Asks the operating system to shut down. It may ignore it.
    GracefulOff,
    /// Takes the power away.
    ForceOff,
    /// Takes the power away and gives it back.
    Cycle,
    /// Restarts without a loss of power.
    Reset,
}

impl PowerAction {
    /// Whether sending it twice leads to the same state as sending it once. What is not repeatable runs at
    /// most once per operation.
    pub const fn is_repeatable(self) -> bool {
        matches!(self, Self::On | Self::GracefulOff | Self::ForceOff)
    }

    /// Whether the machine may lose what it is doing. Identity is checked before each of these.
    pub const fn interrupts(self) -> bool {
        !matches!(self, Self::On)
    }

    /// Whether a machine in `state` is already where the action leads.
    pub const fn is_met_by(self, state: &PowerState) -> bool {
        match self {
            Self::On => matches!(state, PowerState::On | PowerState::PoweringOn),
            Self::GracefulOff => matches!(state, PowerState::Off | PowerState::PoweringOff),
            // A machine that is still going down may hang there: force is for exactly that.
            Self::ForceOff => matches!(state, PowerState::Off),
            Self::Cycle | Self::Reset => false,
        }
    }
}

impl fmt::Display for PowerAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::GracefulOff => "graceful-off",
            Self::ForceOff => "force-off",
            Self::Cycle => "cycle",
            Self::Reset => "reset",
        })
    }
}

/// What a driver can do for the machines it reaches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Abilities {
    pub actions: BTreeSet<PowerAction>,
    /// It can tell on from off. Without this, evidence has to come from elsewhere.
    pub read: bool,
    pub boot: bool,
    pub sensors: bool,
    pub identify: bool,
    /// It can read what the machine wrote down about itself.
    pub log: bool,
}

impl Abilities {
    pub fn actions(actions: impl IntoIterator<Item = PowerAction>) -> Self {
        Self { actions: actions.into_iter().collect(), ..Self::default() }
    }

    pub fn can(&self, action: PowerAction) -> bool {
        self.actions.contains(&action)
    }
}

/// What a machine's power was when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerState {
    On,
    Off,
    PoweringOn,
    PoweringOff,
    /// The answer cannot be used. It never causes an action.
    Unknown {
        why: String,
    },
}

impl PowerState {
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }

    pub const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("on"),
            Self::Off => f.write_str("off"),
            Self::PoweringOn => f.write_str("powering-on"),
            Self::PoweringOff => f.write_str("powering-off"),
            Self::Unknown { why } => write!(f, "unknown ({why})"),
        }
    }
}

/// How far a machine has come since it was switched on, as far as it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "stage", content = "detail")]
pub enum BootProgress {
    NotReported,
    /// The firmware is at work; the text is its own name for the step.
    Firmware(String),
    OsStarting,
    OsRunning,
}

/// How healthy the hardware says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    NotReported,
    Ok,
    Warning,
    Critical,
}

/// Something that a person should know although the call went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warning {
    /// The BMC's certificate is not checked, by the host's own choice.
    InsecureTls,
    /// Credentials travel without encryption, by the host's own choice.
    PlainHttp,
}

/// One look at a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    pub state: PowerState,
    pub at: Timestamp,
    pub driver: DriverKind,
    pub progress: BootProgress,
    pub health: Health,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// What is asked of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub action: PowerAction,
    /// How [`PowerAction::On`] is asked for. A driver that has several ways takes this one or refuses with
    /// [`Fault::Unsupported`]: what was announced decides whether it may be repeated.
    pub on: OnReset,
}

impl Order {
    pub const fn first(action: PowerAction) -> Self {
        Self { action, on: OnReset::On }
    }
}

/// What became of a request that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "accepted is not done: read the power state to confirm"]
pub enum Accepted {
    /// The machine was read and is already there (or on its way): nothing was sent.
    AlreadyThere,
    /// It was sent and not refused. `how` is the driver's own name for what was sent.
    Sent { how: String },
}

/// Where a machine boots from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootTarget {
    /// The machine's own order.
    Default,
    Pxe,
    UefiHttp,
    Disk,
    Cd,
    Setup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootMode {
    Uefi,
    Legacy,
}

/// A boot choice that overrides the machine's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootOverride {
    pub target: BootTarget,
    /// `None` leaves the mode as it is.
    pub mode: Option<BootMode>,
    /// For the next boot only.
    pub once: bool,
    /// Where the image is, for [`BootTarget::UefiHttp`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// One temperature, in thousandths of a degree Celsius.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Temperature {
    pub name: String,
    pub millicelsius: i64,
    pub warning_at: Option<i64>,
    pub critical_at: Option<i64>,
}

/// What the machine's sensors said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sensors {
    pub milliwatts: Known<i64>,
    pub temperatures: Vec<Temperature>,
    pub health: Health,
}

/// What a machine says about itself. `None` and empty mean that it does not say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub uuid: Option<String>,
    pub bmc_firmware: Option<String>,
    /// The system behind the BMC, for [`Endpoint::Redfish`]'s `system`.
    pub system: Option<String>,
    pub macs: Vec<Mac>,
    pub cpu_model: Option<String>,
    pub cpu_sockets: Option<u32>,
    pub cpu_cores: Option<u32>,
    pub cpu_threads: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub gpus: Vec<String>,
}

/// One line of a machine's event log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    /// By the BMC's clock. `None` when the entry has no time, or one that only counts from when the BMC started.
    pub at: Option<Timestamp>,
    pub severity: Health,
    pub message: String,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{at} ")?,
            None => f.write_str("(no time) ")?,
        }
        f.write_str(match self.severity {
            Health::NotReported | Health::Ok => "",
            Health::Warning => "warning: ",
            Health::Critical => "critical: ",
        })?;
        f.write_str(&self.message)
    }
}

/// A way to switch machines. Every call is safe to repeat, except what [`PowerAction::is_repeatable`] denies.
#[async_trait]
pub trait Power: Send + Sync + fmt::Debug {
    fn driver(&self) -> DriverKind;

    /// Wake-on-LAN, for one, can wake a machine but neither read its state nor stop it.
    fn abilities(&self) -> Abilities;

    /// [`PowerState::Unknown`] is an answer, not an error.
    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError>;

    /// `Ok` means accepted, not done: only [`Power::read`] confirms.
    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError>;

    /// Sets where the machine boots from and returns what it says afterwards. A machine that keeps something
    /// else is [`Fault::BootIgnored`]; one that keeps the target but not `once` says so in the answer.
    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        let _ = leave;
        Err(PowerError::new(bmc, Fault::unsupported(format!("boot from {:?}", boot.target), self.driver())))
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        Err(PowerError::new(bmc, Fault::unsupported("sensors", self.driver())))
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        Err(PowerError::new(bmc, Fault::unsupported("identity", self.driver())))
    }

    /// The last entries of the machine's event log, newest first, at most `most`.
    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        let _ = most;
        Err(PowerError::new(bmc, Fault::unsupported("a read of its event log", self.driver())))
    }

    /// Restarts the BMC itself; the machine behind it goes on. For a BMC that is stuck, and only where a person has
    /// allowed it.
    async fn restart_bmc(&self, bmc: &Bmc, leave: &Leave) -> Result<Accepted, PowerError> {
        let _ = leave;
        Err(PowerError::new(bmc, Fault::unsupported("a restart of the BMC", self.driver())))
    }

    /// Ends every session that the driver holds. Called once, before the process stops.
    async fn close(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_power_meets_no_request() {
        use PowerAction::{Cycle, ForceOff, GracefulOff, On, Reset};
        let unknown = PowerState::unknown("the field is missing");
        for action in [On, GracefulOff, ForceOff, Cycle, Reset] {
            assert!(!action.is_met_by(&unknown), "{action}");
        }
    }

    #[test]
    fn an_entry_of_a_log_reads_as_a_line() {
        let entry = |at, severity| LogEntry { at, severity, message: "fan 3 stopped".into() }.to_string();
        assert_eq!(
            entry(Some(Timestamp::EPOCH), Health::Critical),
            "1970-01-01T00:00:00Z critical: fan 3 stopped"
        );
        assert_eq!(entry(None, Health::NotReported), "(no time) fan 3 stopped");
    }

    #[test]
    fn a_machine_on_its_way_counts_except_for_force() {
        assert!(PowerAction::On.is_met_by(&PowerState::PoweringOn));
        assert!(PowerAction::GracefulOff.is_met_by(&PowerState::PoweringOff));
        assert!(!PowerAction::ForceOff.is_met_by(&PowerState::PoweringOff));
        assert!(!PowerAction::Cycle.is_met_by(&PowerState::On));
    }
}
