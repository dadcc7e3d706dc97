//! Everything that a step may look at beside the host's own state.
//!
//! All times are by the leader's clock. What was not read is [`Known::Unknown`]; what was read too long
//! ago counts as unknown.

use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Abilities, Acknowledgement, Admin, BlockCause, DriverKind, Hold, HostIdentity, HostPolicy, Intent,
        Limits, OnReset, OtherReading, Power, Presence, Switch,
    },
    power::Pin,
};

/// What holds for one host: its spec, its pool's configuration and the global one, put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// In the order of preference.
    pub drivers: Vec<DriverView>,
    pub limits: Limits,
    pub policy: HostPolicy,
    /// The boot profile to set before power-on, if the host has one.
    pub boot: BootNeed,
    pub admin: Admin,
    pub hold: Option<Hold>,
    /// `spec.powerState`: a request by hand.
    pub manual: Option<Switch>,
    pub acknowledgement: Option<Acknowledgement>,
    /// The most that it draws, where that is said.
    pub max_watts: Option<u32>,
    pub generation: u64,
    /// Which version of the BMC's credential is in force.
    pub credential_version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootNeed {
    AsItIs,
    /// The named profile is set and read back before power-on.
    Profile,
}

/// One driver of a host, with its abilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverView {
    pub kind: DriverKind,
    pub abilities: Abilities,
    /// Ways to ask for power on, in the order to try.
    pub on_resets: Vec<OnReset>,
}

impl DriverView {
    /// A driver that can do all that its kind can.
    pub fn full(kind: DriverKind) -> Self {
        let on_resets = match kind {
            DriverKind::Redfish => vec![OnReset::On, OnReset::ForceOn, OnReset::PushPowerButton],
            DriverKind::Ipmi | DriverKind::Wol | DriverKind::Webhook | DriverKind::DryRun => {
                vec![OnReset::On]
            }
            DriverKind::Agent => Vec::new(),
        };
        Self { kind, abilities: kind.abilities(), on_resets }
    }
}

/// Whether the caller may act at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// `lease_left` is what remains of the lease by the monotonic clock.
    Leader {
        epoch: u64,
        lease_left: Duration,
    },
    Follower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeze {
    None,
    /// No effect of any kind.
    Frozen,
    /// Everything is to be on.
    AllOn,
}

/// Whether the host's record is to go away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    None,
    /// A serving host is drained first; its power is left as it is.
    Requested,
    /// The same, and it is switched off.
    RequestedWithPowerOff,
    /// At once, and nothing is touched.
    Forced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerSeen {
    pub power: Power,
    pub driver: DriverKind,
}

/// A BMC that answered a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BmcView {
    pub identity: HostIdentity,
}

/// A BMC that did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BmcTrouble {
    pub class: TroubleClass,
    pub message: String,
    /// Attempts that failed in a row.
    pub attempts: u32,
    /// The version of the credential that was used; what an older one met is forgotten.
    pub credential_version: u64,
    /// Place in the host's driver list of the driver that met it.
    pub driver: Option<usize>,
    /// The key that the BMC showed, where that is the trouble.
    pub key: Option<Pin>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleClass {
    NotTried,
    /// No connection, no answer, or an answer that means nothing.
    Unreachable,
    /// Calling on could lock the account or tell a stranger its password.
    Blocked(BlockCause),
}

/// The agent on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentView {
    pub hello: Option<Hello>,
    pub goodbye: Option<Goodbye>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub boot_id: String,
    pub at: Timestamp,
}

/// The agent took a power-off token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goodbye {
    /// The operation that the token was for.
    pub op: String,
    pub at: Timestamp,
}

/// A sign that the machine gets on with booting: the BMC's progress, or a call of the PXE server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootProgress {
    pub stage: String,
    /// Whether an operating system runs.
    pub os: bool,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeView {
    Absent,
    Present(NodeSeen),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSeen {
    pub name: String,
    /// The cluster that shows it.
    pub cluster: Option<String>,
    pub boot_id: Option<String>,
    pub ready: bool,
    /// When we last saw the kubelet renew its lease, by our clock.
    pub lease_renewed: Option<Timestamp>,
    /// Since when we would have seen it.
    pub lease_watched: Timestamp,
    pub cordon: Cordon,
    pub startup_taint: bool,
    pub off_taint: bool,
    pub out_of_service: bool,
    pub labels_complete: bool,
    /// A resource that the host should have and the node does not show yet.
    pub missing: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cordon {
    None,
    /// Carries the mark of one of our operations.
    Ours {
        op: String,
    },
    Foreign,
}

/// Pods on the node, without mirror and `DaemonSet` pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodsView {
    /// To be evicted.
    pub evictable: u32,
    /// Deleted, but still there.
    pub terminating: u32,
    /// May not be evicted at all.
    pub protected: u32,
    /// What refuses an eviction now: a disruption budget by name.
    pub blocked_by: Option<String>,
    /// Why nothing at all may be taken from the node: `Muster itself runs there`.
    pub guarded: Option<String>,
}

impl PodsView {
    pub const fn total(&self) -> u32 {
        self.evictable.saturating_add(self.terminating).saturating_add(self.protected)
    }
}

/// What the pool says at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    pub below_max: bool,
    /// The rack or zone that would be left without a node although the pool asks for spread, as in `rack r1`. It binds
    /// whoever has not weighed that: the planner has, by the pool's schedule of now.
    pub last_there: Option<String>,
    /// How many pods would have no place if this host were gone.
    pub would_pend: Known<u32>,
    /// Why no host of the pool is cycled to bring its node back: so many are lost that something else is wrong.
    pub repairs_stopped: Option<String>,
    /// Set while nothing may be done to its hosts that no person asked for.
    pub advice: Option<Advice>,
}

/// The pool only gives advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// As in `its pool lab/gpu is in advise mode`.
    pub why: String,
    /// What a person does to let it act, as in `muster enable pool lab/gpu`.
    pub remedy: String,
}

/// What became of the power call that the state announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Performed {
    /// This process neither performs nor has performed it.
    Nothing,
    Running {
        op: String,
        seq: u32,
    },
    Ended {
        op: String,
        seq: u32,
        outcome: Outcome,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted; only a reading confirms it. A boot device was read back.
    Accepted,
    /// The answer was lost. Reading settles it.
    Unknown,
    /// Not sent, and it may be later: its BMC is busy or out of reach, or nobody could read the machine right before it.
    Unsent,
    /// Refused: this way does not exist or was not taken.
    Refused { reason: &'static str, message: String },
    /// Not sent: the last look at the node, right in front of a power-off, spoke against it.
    HeldBack { reason: &'static str, why: String },
}

/// What is known at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    pub settings: Settings,
    pub intent: Option<Intent>,
    pub leadership: Leadership,
    /// How long nobody led before this leader looked at the host for the first time; zero at every other look.
    pub unattended: Duration,
    pub freeze: Freeze,
    pub deletion: Deletion,
    pub power: Known<PowerSeen>,
    /// What a driver that was asked beside the readings said since the last look.
    pub second: Option<OtherReading>,
    pub bmc: Known<BmcView, BmcTrouble>,
    /// For machines whose power cannot be read: ARP or TCP.
    pub presence: Known<Presence>,
    pub agent: AgentView,
    pub boot_progress: Option<BootProgress>,
    pub node: Known<NodeView>,
    pub pods: Known<PodsView>,
    pub pool: PoolView,
    pub performed: Performed,
}
