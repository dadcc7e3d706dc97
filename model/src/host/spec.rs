//! `/baremetal/nodes/{host}/spec`: what people and inventories say about one machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{field::choice, pool::Taint};

use super::{
    Acknowledgement, Admin, Deletion, DriverKind, DriverSpec, Hold, LimitOverrides, MacAddress, MgmtAddress,
    PowerInterface, Registered, ResourceCapacity, Switch, TlsVerify,
};

choice! {
    /// How the Node object of a host is recognised.
    #[derive(Default)]
    pub enum MatchBy("a way to find the node of a host") {
        /// `spec.providerID` of the node, derived from the inventory id.
        #[default]
        ProviderId = "providerID",
        Mac = "mac",
        Name = "name",
        Label = "label",
    }
}

/// Which node belongs to a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeMatch {
    pub by: MatchBy,
    /// The id, name or `key=value` to look for; derived from the host unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// The seed's spec with the fields that a real machine needs beside them.
///
/// Written by people, a DCIM and importers, never by Muster's loops. Read it with
/// [`BareMetalNodeSpec::read`], which finds every fault at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalNodeSpec {
    /// Where its BMC answers. A host that is only woken by magic packets has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mgmt_address: Option<MgmtAddress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
    pub power_interface: PowerInterface,
    /// Name of the credential, never its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_credentials: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    pub pool: String,
    #[serde(default)]
    pub resources: ResourceCapacity,
    /// A request by hand; with a hold it lasts as long as the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<Switch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory_id: Option<String>,

    /// Drivers in the order of preference; the power interface alone when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<DriverSpec>,
    /// Which system behind a BMC that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default)]
    pub tls_verify: TlsVerify,
    /// Lowest rack unit that it takes, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Rack units that it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Power at rest and at most, where the BMC cannot say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_watts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_watts: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_match: NodeMatch,
    #[serde(default, skip_serializing_if = "is_default")]
    pub admin: Admin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledgement: Option<Acknowledgement>,
    #[serde(default, skip_serializing_if = "LimitOverrides::is_empty")]
    pub deadlines: LimitOverrides,
    /// The project that the host belongs to; the inventory's own one unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Set by the API; a record that a tool wrote may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Registered>,
    /// The record is to go away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// `false` for a machine whose power nothing may cut.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub can_force_off: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_yes(value: &bool) -> bool {
    *value
}

impl BareMetalNodeSpec {
    pub fn new(pool: impl Into<String>, power_interface: PowerInterface) -> Self {
        Self {
            mgmt_address: None,
            mac_address: None,
            power_interface,
            bmc_credentials: None,
            boot_profile: None,
            rack: None,
            pool: pool.into(),
            resources: ResourceCapacity::default(),
            power_state: None,
            inventory_id: None,
            drivers: Vec::new(),
            system_id: None,
            serial: None,
            tls_verify: TlsVerify::default(),
            slot: None,
            height: None,
            zone: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            idle_watts: None,
            max_watts: None,
            node_match: NodeMatch::default(),
            admin: Admin::Normal,
            hold: None,
            acknowledgement: None,
            deadlines: LimitOverrides::default(),
            project: None,
            registered: None,
            deletion: None,
            can_force_off: true,
        }
    }

    /// The drivers to use, in order. A host with magic packets alone gets the agent for the way off.
    pub fn effective_drivers(&self) -> Vec<DriverSpec> {
        if !self.drivers.is_empty() {
            return self.drivers.clone();
        }
        let first = DriverSpec::new(self.power_interface.into());
        match self.power_interface {
            PowerInterface::Redfish | PowerInterface::Ipmi => vec![first],
            PowerInterface::Wol => vec![first, DriverSpec::new(DriverKind::Agent)],
        }
    }

    /// Whether it is only read: every driver of it says what it would do, and does nothing.
    pub fn is_dry_run(&self) -> bool {
        !self.drivers.is_empty() && self.drivers.iter().all(|driver| driver.kind == DriverKind::DryRun)
    }

    /// The credential that a driver of this host uses, as [`crate::power::Credentials`] wants it: with the
    /// host's project, so that nobody borrows the account of another project by its name.
    pub fn credential(&self, driver: Option<&DriverSpec>) -> Option<String> {
        let own = driver.and_then(|driver| driver.credentials.as_deref());
        let name = own.or(self.bmc_credentials.as_deref())?;
        Some(self.project.as_ref().map_or_else(|| name.to_owned(), |project| format!("{project}/{name}")))
    }
}
