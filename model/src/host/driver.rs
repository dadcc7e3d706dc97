//! Ways to switch one machine: which there are, what each can do, and how a host configures them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::field::choice;

choice! {
    /// The seed's `powerInterface`: the main way to reach a host's power.
    pub enum PowerInterface("a power interface") {
        Redfish = "redfish",
        Ipmi = "ipmi",
        Wol = "wol",
    }
}

choice! {
    /// All drivers, the seed's three among them.
    pub enum DriverKind("a power driver") {
        Redfish = "redfish",
        Ipmi = "ipmi",
        Wol = "wol",
        /// `muster agent` on the host: says hello, powers off on a signed one-time token.
        Agent = "agent",
        /// A signed call to something else: a smart plug, a PDU, a home automation.
        Webhook = "webhook",
        /// Records what it would have done.
        DryRun = "dry-run",
    }
}

impl DriverKind {
    /// What a driver of this kind can do. A machine may be able to do less (a BMC without graceful shutdown): it then
    /// refuses, and the next driver of the host has its turn.
    pub const fn abilities(self) -> Abilities {
        const NONE: Abilities = Abilities {
            on: false,
            graceful_off: false,
            force_off: false,
            cycle: false,
            read_power: false,
            boot_once: false,
            sensors: false,
        };
        match self {
            Self::Redfish | Self::Ipmi | Self::DryRun => Abilities {
                on: true,
                graceful_off: true,
                force_off: true,
                cycle: true,
                read_power: true,
                boot_once: true,
                sensors: true,
            },
            Self::Wol => Abilities { on: true, ..NONE },
            Self::Agent => Abilities { graceful_off: true, ..NONE },
            Self::Webhook => Abilities { on: true, force_off: true, read_power: true, ..NONE },
        }
    }
}

impl DriverKind {
    /// Whether the far end shows a certificate, so that `tlsVerify` says something about it.
    pub const fn speaks_tls(self) -> bool {
        match self {
            Self::Redfish | Self::Webhook | Self::DryRun => true,
            Self::Ipmi | Self::Wol | Self::Agent => false,
        }
    }
}

impl From<PowerInterface> for DriverKind {
    fn from(interface: PowerInterface) -> Self {
        match interface {
            PowerInterface::Redfish => Self::Redfish,
            PowerInterface::Ipmi => Self::Ipmi,
            PowerInterface::Wol => Self::Wol,
        }
    }
}

/// What one driver can do on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Abilities {
    pub on: bool,
    pub graceful_off: bool,
    pub force_off: bool,
    pub cycle: bool,
    pub read_power: bool,
    pub boot_once: bool,
    pub sensors: bool,
}

/// A way to ask for power on. The last one toggles, so it is sent at most once for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OnReset {
    On,
    ForceOn,
    PushPowerButton,
}

impl OnReset {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOn => "ForceOn",
            Self::PushPowerButton => "PushPowerButton",
        }
    }

    /// Whether sending it twice leads to the same state as sending it once.
    pub const fn is_repeatable(self) -> bool {
        match self {
            Self::On | Self::ForceOn => true,
            Self::PushPowerButton => false,
        }
    }
}

choice! {
    /// How the identity of a BMC is checked before anything secret is sent to it.
    #[derive(Default)]
    pub enum TlsVerify("a way to verify a BMC") {
        /// A key seen at first contact and approved by a person.
        #[default]
        Pin = "pin",
        /// Certificates signed by the configured authority.
        Ca = "ca",
        /// Certificates that public authorities sign.
        Webpki = "webpki",
        /// Anything is accepted. Raises a condition.
        Insecure = "insecure",
    }
}

/// One entry of a host's ordered driver list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriverSpec {
    pub kind: DriverKind,
    /// Where this driver reaches its counterpart; the host's `mgmtAddress` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Name of the credential; the host's `bmcCredentials` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// Settings of this kind of driver, by name: `cipherSuite`, `privilege`, `broadcast`, `secureOn`,
    /// `port`, `auth`, `serverName`, `caBundle`, `pin`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl DriverSpec {
    pub const fn new(kind: DriverKind) -> Self {
        Self { kind, address: None, credentials: None, settings: BTreeMap::new() }
    }

    /// Whether it speaks TLS to the BMC at the host's `mgmtAddress`.
    pub const fn is_at_bmc(&self) -> bool {
        matches!(self.kind, DriverKind::Redfish | DriverKind::DryRun) && self.address.is_none()
    }
}

/// Setting names that each kind of driver knows.
pub const fn driver_settings(kind: DriverKind) -> &'static [&'static str] {
    match kind {
        DriverKind::Redfish => &["port", "auth", "serverName", "caBundle", "pin", "scheme"],
        DriverKind::Ipmi => &["port", "cipherSuite", "privilege"],
        DriverKind::Wol => &["broadcast", "port", "secureOn", "interface"],
        DriverKind::Agent => &[],
        DriverKind::Webhook => &["port", "serverName", "caBundle", "pin", "scheme"],
        // Those of whatever it reads through.
        DriverKind::DryRun => {
            &["port", "auth", "serverName", "caBundle", "pin", "scheme", "cipherSuite", "privilege"]
        }
    }
}
