//! `/baremetal/nodes/{host}/status`: what the host loop knows and remembers about one machine.

use serde::{Deserialize, Serialize};

use crate::{Known, Timestamp, power::Pin};

use super::{DriverKind, HostCondition, Phase, Power, PowerReading, PublicPower, State};

/// The seed's status, and beside it everything that the lifecycle has to remember.
///
/// Written only by the host loop. Times that a reader compares (`phaseSince`, `deadline`) come from one
/// clock, the leader's; a field changes only when something happened, so that a quiet host is not
/// rewritten at every poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalNodeStatus {
    pub state: State,
    pub state_since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default)]
    pub power_state: PublicPower,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_power_action: Option<PowerAction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_action_time: Option<Timestamp>,
    /// The driver that it was asked of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_action_driver: Option<DriverKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_node: Option<String>,
    /// The cluster in which that node was last seen, by its id, until the machine is proved off. What happens to its pool does
    /// not take the machine out of there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_cluster: Option<String>,
    #[serde(default)]
    pub node_ready: bool,
    #[serde(default, rename = "bmcReachable")]
    pub bmc_reachable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_time: Option<Timestamp>,
    /// How far the last boot came, as its BMC told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_progress: Option<BmcProgress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_time: Option<Timestamp>,

    pub phase: Phase,
    pub phase_since: Timestamp,
    /// When the phase is given up, as an absolute time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Since when the phase has lasted longer than it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_since: Option<Timestamp>,
    /// Since when nothing may be done (freeze or maintenance); deadlines move by as much afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// Why it stands where it stands, in one sentence.
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub conditions: Vec<HostCondition>,
    pub power: Known<PowerReading>,
    /// A driver says off while the kubelet is alive, until that driver reads up again or the kubelet stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_disagreement: Option<PowerDisagreement>,
    /// For hosts whose power cannot be read: whether the machine answers on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<PresenceReading>,
    /// The driver in use when it is not the first of the list, and until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_fallback: Option<DriverFallback>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_blocked: Option<BmcBlocked>,
    /// The last boot that was proved, and by what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_proof: Option<BootProof>,
    /// The boot that was last shut down: a node that still shows it has not come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id_at_off: Option<String>,
    /// When off was last proved; forgotten at the first sign that the machine is on, and when it is asked to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_proved_at: Option<Timestamp>,
    /// Since when the node serves, for the minimum uptime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_since: Option<Timestamp>,
    /// Since when the node of a ready host is not Ready or gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready_since: Option<Timestamp>,
    /// Power-on requests and power cycles of the last 24 hours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Timestamp>,
    /// Failed attempts of the last 24 hours, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// How often in a row the backoff was entered or prolonged.
    #[serde(default)]
    pub backoff_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// Until when it is not switched on, because a person switched it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// What a person or a freeze wanted already when somebody else switched it off: whoever did that knew better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unexpected_off_despite: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unexpected_on_since: Option<Timestamp>,
    /// What a person wanted already when it was found on: whoever switched it on knew better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unexpected_on_despite: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_retry_at: Option<Timestamp>,
    /// The cordon on the node is ours: the operation that set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_by: Option<String>,
    /// The intent that failed or was given up; it starts nothing a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_intent: Option<String>,
    /// The intent that it would follow if limits let it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_intent: Option<String>,
    /// The last acknowledgement by a person that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Timestamp>,
    /// When this host last came up on our request after a proved off: Wake-on-LAN cannot show it
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_proved_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_reset_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<HostIdentity>,
    /// Number of operations so far; names the next one.
    #[serde(default)]
    pub operations: u64,
    #[serde(default)]
    pub observed_generation: u64,
}

impl BareMetalNodeStatus {
    /// A host that was registered at `now` and that nobody has looked at.
    pub fn enrolling(now: Timestamp) -> Self {
        Self {
            state: State::Off,
            state_since: now,
            last_error: None,
            power_state: PublicPower::Unknown,
            last_power_action: None,
            power_action_time: None,
            power_action_driver: None,
            kubernetes_node: None,
            kubernetes_cluster: None,
            node_ready: false,
            bmc_reachable: false,
            boot_time: None,
            join_time: None,
            phase: Phase::Enrolling,
            phase_since: now,
            deadline: None,
            overdue_since: None,
            paused_since: None,
            reason: String::new(),
            conditions: Vec::new(),
            power: Known::Unknown { why: "not read yet".into(), since: now },
            power_disagreement: None,
            presence: None,
            boot_progress: None,
            driver_fallback: None,
            bmc_blocked: None,
            boot_proof: None,
            boot_id_at_off: None,
            off_proved_at: None,
            serving_since: None,
            off_since: None,
            not_ready_since: None,
            starts: Vec::new(),
            failures: Vec::new(),
            backoff_count: 0,
            retry_at: None,
            quarantine: None,
            held_until: None,
            unexpected_off_despite: None,
            unexpected_on_since: None,
            unexpected_on_despite: None,
            drain_retry_at: None,
            cordoned_by: None,
            spent_intent: None,
            waiting_intent: None,
            acknowledged: None,
            wake_proved_at: None,
            bmc_reset_at: None,
            identity: None,
            operations: 0,
            observed_generation: 0,
        }
    }
}

/// The seed's `lastPowerAction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerAction {
    On,
    GracefulOff,
    ForceOff,
    Cycle,
}

impl PowerAction {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::GracefulOff => "graceful-off",
            Self::ForceOff => "force-off",
            Self::Cycle => "cycle",
        }
    }
}

/// How far a boot has come, as a BMC tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcProgress {
    pub stage: String,
    /// The driver that read it.
    pub driver: DriverKind,
    /// When it was first read.
    pub at: Timestamp,
}

/// Whether a machine answers on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    Answers,
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PresenceReading {
    pub presence: Presence,
    /// The first of the consecutive probes that found it so.
    pub since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverFallback {
    /// Place in the host's driver list.
    pub index: usize,
    pub driver: DriverKind,
    pub reason: String,
    /// When the first driver is tried again.
    pub until: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PowerDisagreement {
    /// The driver that says off.
    pub driver: DriverKind,
    /// What another driver of the host said when it was asked, which is done once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<OtherReading>,
}

/// The answer of a driver that was asked beside the run of readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherReading {
    pub driver: DriverKind,
    /// `None` if it gave no usable answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Power>,
}

/// Why a BMC is not called any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcBlocked {
    pub cause: BlockCause,
    pub message: String,
    pub since: Timestamp,
    /// The way to the BMC that was refused: account, address, trust. Another one lifts the block.
    pub credential_version: u64,
    /// Place in the host's driver list of the driver that met it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<usize>,
    /// The key that the BMC showed, where its key is what is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_key: Option<Pin>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BlockCause {
    CredentialsRefused,
    PasswordChangeRequired,
    /// First contact: nobody has approved the key yet, and nothing secret was sent.
    KeyNotApproved,
    /// Another key than the approved one, or a certificate that the authority did not sign.
    CertificateMismatch,
    IdentityChanged,
}

impl BlockCause {
    pub const ALL: [Self; 5] = [
        Self::CredentialsRefused,
        Self::PasswordChangeRequired,
        Self::KeyNotApproved,
        Self::CertificateMismatch,
        Self::IdentityChanged,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CredentialsRefused => "CredentialsRefused",
            Self::PasswordChangeRequired => "PasswordChangeRequired",
            Self::KeyNotApproved => "KeyNotApproved",
            Self::CertificateMismatch => "CertificateMismatch",
            Self::IdentityChanged => "IdentityChanged",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootProof {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    pub at: Timestamp,
    pub by: BootProofBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootProofBy {
    BootId,
    Lease,
    AgentHello,
}

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub at: Timestamp,
    pub phase: Phase,
    /// One word in `CamelCase`.
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quarantine {
    pub since: Timestamp,
    pub reason: String,
    /// When the next self-test may start.
    pub probation_at: Timestamp,
    /// Self-tests that failed so far.
    pub failed_tests: u32,
}

/// What the machine says it is, for telling whether a BMC address still leads to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostIdentity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}
