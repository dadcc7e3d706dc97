//! `/baremetal/nodes/{host}/spec`: what people and inventories say about one machine.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Timestamp, field::choice, pool::Taint, power::Pin};

use super::{
    Acknowledgement, Admin, Deletion, DriverKind, DriverSpec, Hold, LimitOverrides, MacAddress, MgmtAddress,
    PowerInterface, Registered, ResourceCapacity, Switch, TlsVerify, by_hand, unique,
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
    /// The approved key of the BMC at `mgmtAddress`, for `tlsVerify: pin`. A driver with an address or a pin of its own
    /// does not use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
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
            pin: None,
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

    /// What a person wants of its power now.
    pub fn manual(&self, now: Timestamp) -> Option<Switch> {
        by_hand(self.power_state, self.hold.as_ref(), now)
    }

    /// Drops a wish for power whose hold had lapsed `before` when that hold goes or another takes its place: nobody asked
    /// for it again. Returns what to tell whoever changed the hold.
    pub fn forget_wish_of(&mut self, before: &Self, now: Timestamp) -> Option<String> {
        let wish = self.power_state.filter(|wish| before.power_state == Some(*wish))?;
        if before.manual(now).is_some() || self.hold == before.hold {
            return None;
        }
        self.power_state = None;
        Some(format!(
            "spec.powerState {wish} was dropped: it was asked for under a hold that has lapsed; ask again if it is still \
             wanted"
        ))
    }

    /// The credential that a driver of this host uses, as [`crate::power::Credentials`] wants it: with the
    /// host's project, so that nobody borrows the account of another project by its name.
    pub fn credential(&self, driver: Option<&DriverSpec>) -> Option<String> {
        let own = driver.and_then(|driver| driver.credentials.as_deref());
        let name = own.or(self.bmc_credentials.as_deref())?;
        Some(self.project.as_ref().map_or_else(|| name.to_owned(), |project| format!("{project}/{name}")))
    }

    /// The approved key for one of this host's drivers, as it was written.
    pub fn pin_of(&self, driver: &DriverSpec) -> Option<String> {
        let own = driver.settings.get("pin").cloned();
        own.or_else(|| self.pin.filter(|_| driver.is_at_bmc()).map(|pin| pin.to_string()))
    }

    /// The place in the driver list whose key is approved when nobody has seen one yet.
    pub fn pinned_driver(&self) -> Option<usize> {
        let drivers = self.effective_drivers();
        let bmc = drivers.iter().position(DriverSpec::is_at_bmc);
        bmc.or_else(|| drivers.iter().position(|driver| driver.kind.speaks_tls()))
    }

    /// Where the approved key of the BMC is looked for: the places of the drivers that have no own one.
    fn key_places(&self) -> BTreeSet<String> {
        let drivers = self.effective_drivers();
        let all: BTreeSet<_> =
            drivers.iter().filter(|one| one.is_at_bmc()).filter_map(|one| self.tls_place(one)).collect();
        if !all.is_empty() {
            return all;
        }
        self.mgmt_address.iter().map(|address| unique::place(address, None, unique::REDFISH_PORT)).collect()
    }

    /// Where a driver meets a key.
    fn tls_place(&self, driver: &DriverSpec) -> Option<String> {
        let own = driver.address.as_deref().and_then(|text| text.parse().ok());
        let address: MgmtAddress = own.or_else(|| self.mgmt_address.clone())?;
        let port = driver.settings.get("port").and_then(|port| port.parse().ok());
        driver.kind.speaks_tls().then(|| unique::place(&address, port, unique::REDFISH_PORT))
    }

    /// Drops the approved keys of what is said to be somewhere else than `before`: a key belongs to the place where somebody
    /// compared it. Returns what to tell whoever moved it.
    pub fn forget_key_of(&mut self, before: &Self) -> Option<String> {
        let (mut dropped, mut left) = (Vec::new(), BTreeSet::new());
        let old = before.key_places();
        if self.pin.is_some()
            && self.pin == before.pin
            && !old.is_empty()
            && !self.key_places().is_subset(&old)
        {
            self.pin = None;
            dropped.push("spec.pin".to_owned());
            left.extend(old);
        }
        let mut known = BTreeMap::<&str, BTreeSet<String>>::new();
        for driver in &before.drivers {
            if let (Some(pin), Some(place)) = (driver.settings.get("pin"), before.tls_place(driver)) {
                known.entry(pin).or_default().insert(place);
            }
        }
        for place in 0..self.drivers.len() {
            let driver = &self.drivers[place];
            let places = driver.settings.get("pin").and_then(|pin| known.get(pin.as_str()));
            let moved =
                places.filter(|places| self.tls_place(driver).is_some_and(|now| !places.contains(&now)));
            if let Some(places) = moved {
                left.extend(places.iter().cloned());
                self.drivers[place].settings.remove("pin");
                dropped.push(format!("spec.drivers[{place}].settings.pin"));
            }
        }
        (!dropped.is_empty()).then(|| {
            format!(
                "{} was dropped: that key was approved for the BMC at {}; compare the key of the new one, then \
                 `muster approve host`, or send pin together with the new address in a PATCH",
                dropped.join(" and "),
                left.into_iter().collect::<Vec<_>>().join(" and ")
            )
        })
    }

    /// Writes an approved key down for the driver at `place` of the list. `false` when no such driver checks keys.
    #[must_use]
    pub fn approve(&mut self, place: usize, pin: Pin) -> bool {
        let Some(driver) = self.effective_drivers().get(place).cloned() else { return false };
        if !driver.kind.speaks_tls() || self.tls_verify != TlsVerify::Pin {
            return false;
        }
        match self.drivers.get_mut(place) {
            Some(own) if !own.is_at_bmc() || own.settings.contains_key("pin") => {
                own.settings.insert("pin".to_owned(), pin.to_string());
            }
            Some(_) | None => self.pin = Some(pin),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_where_it_was_approved() {
        let pin: Pin = format!("sha256:{}", "ab".repeat(32)).parse().unwrap();
        let mut before = BareMetalNodeSpec::new("metal", PowerInterface::Redfish);
        before.mgmt_address = Some("10.0.0.1".parse().unwrap());
        before.pin = Some(pin);
        let mut same = before.clone();
        same.rack = Some("r1".into());
        assert_eq!((same.forget_key_of(&before), same.pin), (None, Some(pin)));
        let mut moved = before.clone();
        moved.mgmt_address = Some("10.0.0.2".parse().unwrap());
        let told = moved.forget_key_of(&before).unwrap();
        assert!(told.contains("10.0.0.1") && moved.pin.is_none(), "{told}");
        let mut other = before.clone();
        other.mgmt_address = Some("10.0.0.2".parse().unwrap());
        other.pin = Some(format!("sha256:{}", "cd".repeat(32)).parse().unwrap());
        assert_eq!(other.forget_key_of(&before), None, "another key is a new approval");
        // So it is with the keys of drivers at that BMC; one at a place of its own stays.
        let driver = |address: Option<&str>| {
            let mut driver = DriverSpec::new(DriverKind::Redfish);
            driver.address = address.map(str::to_owned);
            driver.settings.insert("pin".into(), pin.to_string());
            driver
        };
        (before.pin, before.drivers) = (None, vec![driver(None), driver(Some("10.0.0.7"))]);
        let mut moved = before.clone();
        moved.mgmt_address = Some("10.0.0.2".parse().unwrap());
        let told = moved.forget_key_of(&before).unwrap();
        assert!(told.contains("spec.drivers[0].settings.pin was dropped"), "{told}");
        let pins = moved.drivers.iter().map(|driver| moved.pin_of(driver)).collect::<Vec<_>>();
        assert_eq!(pins, [None, Some(pin.to_string())]);
        // A driver's own address and its port are a place as well.
        let mut moved = before.clone();
        moved.drivers[1].address = Some("10.0.0.8".into());
        let told = moved.forget_key_of(&before).unwrap();
        assert!(
            told.contains("spec.drivers[1].settings.pin was dropped") && told.contains("10.0.0.7"),
            "{told}"
        );
        let mut moved = before.clone();
        moved.drivers[0].settings.insert("port".into(), "8443".into());
        assert!(moved.forget_key_of(&before).is_some() && moved.pin_of(&moved.drivers[0]).is_none());
        (before.pin, before.drivers) = (Some(pin), Vec::new());
        let mut moved = before.clone();
        let mut other = DriverSpec::new(DriverKind::Redfish);
        moved.drivers = vec![other.clone()];
        assert_eq!((moved.forget_key_of(&before), moved.pin), (None, Some(pin)), "the same place, spelt out");
        other.settings.insert("port".into(), "8443".into());
        moved.drivers = vec![other];
        assert!(moved.forget_key_of(&before).is_some() && moved.pin.is_none());
    }

    #[test]
    fn a_wish_ends_with_its_hold_and_no_other_hold_brings_it_back() {
        let at = Timestamp::from_millis;
        let hold = |reason: &str, until: Option<i64>| {
            Some(Hold { by: "kim".into(), reason: reason.into(), until: until.map(at) })
        };
        let mut before = BareMetalNodeSpec::new("metal", PowerInterface::Redfish);
        (before.power_state, before.hold) = (Some(Switch::Off), hold("new disks", Some(100)));
        assert_eq!([99, 100].map(|now| before.manual(at(now))), [Some(Switch::Off), None]);
        let check = |hold: Option<Hold>, wish: Option<Switch>, now: i64, left: Option<Switch>| {
            let mut after = BareMetalNodeSpec { hold, power_state: wish, ..before.clone() };
            let told = after.forget_wish_of(&before, at(now));
            assert_eq!((after.power_state, told.is_some()), (left, left != wish));
        };
        let (on, off) = (Some(Switch::On), Some(Switch::Off));
        check(hold("cables", None), off, 99, off);
        check(hold("cables", None), off, 100, None);
        check(None, off, 100, None);
        check(hold("cables", None), on, 100, on);
        check(before.hold.clone(), off, 100, off);
    }

    #[test]
    fn an_approved_key_is_written_where_its_driver_looks_for_it() {
        let (first, second) = (Pin([1; 32]), Pin([2; 32]));
        let mut plain = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        assert!(plain.approve(0, first));
        assert_eq!((plain.pin, plain.drivers.len()), (Some(first), 0));
        assert_eq!(plain.pin_of(&plain.effective_drivers()[0]), Some(first.to_string()));

        let mut both = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        let webhook = DriverSpec { address: Some("plug".into()), ..DriverSpec::new(DriverKind::Webhook) };
        both.drivers = vec![DriverSpec::new(DriverKind::Redfish), webhook];
        assert!(both.approve(0, first) && both.approve(1, second));
        let pins: Vec<_> = both.drivers.iter().map(|driver| both.pin_of(driver)).collect();
        assert_eq!(pins, [Some(first.to_string()), Some(second.to_string())]);
        assert!(both.approve(1, first), "an own key is replaced");
        assert_eq!(both.pin_of(&both.drivers[1]), Some(first.to_string()));

        let mut ipmi = BareMetalNodeSpec::new("gpu", PowerInterface::Ipmi);
        assert!(!ipmi.approve(0, first) && ipmi.pinned_driver().is_none());
        plain.tls_verify = TlsVerify::Ca;
        assert!(!plain.approve(0, second), "another rule decides");
    }
}
