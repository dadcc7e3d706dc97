//! Two records must not mean one machine.

use std::{collections::BTreeMap, fmt};

use super::BareMetalNodeSpec;

/// What must be unique in the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identifier {
    Mac,
    /// BMC address together with the system behind it.
    Bmc,
    Serial,
    InventoryId,
    /// Rack and rack unit.
    Place,
}

impl Identifier {
    /// The field to correct.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Mac => "macAddress",
            Self::Bmc => "mgmtAddress",
            Self::Serial => "serial",
            Self::InventoryId => "inventoryId",
            Self::Place => "slot",
        }
    }
}

/// Hosts that share something that only one of them can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    pub by: Identifier,
    pub value: String,
    /// At least two, in order.
    pub hosts: Vec<String>,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is shared by hosts {}", self.by.field(), self.value, self.hosts.join(", "))
    }
}

/// What identifies a host, in one spelling.
pub fn identifiers(spec: &BareMetalNodeSpec) -> Vec<(Identifier, String)> {
    let mut all = Vec::new();
    if let Some(mac) = spec.mac_address {
        all.push((Identifier::Mac, mac.to_string()));
    }
    if let Some(address) = &spec.mgmt_address {
        let system = spec.system_id.as_deref().map(|id| format!("#{id}")).unwrap_or_default();
        all.push((Identifier::Bmc, format!("{address}{system}")));
    }
    if let Some(serial) = &spec.serial {
        all.push((Identifier::Serial, serial.to_lowercase()));
    }
    if let Some(id) = &spec.inventory_id {
        all.push((Identifier::InventoryId, id.clone()));
    }
    if let (Some(rack), Some(slot)) = (&spec.rack, spec.slot) {
        let top = slot.saturating_add(spec.height.unwrap_or(1).clamp(1, 60));
        all.extend((slot..top).map(|unit| (Identifier::Place, format!("{rack} unit {unit}"))));
    }
    all
}

/// Every clash in a set of hosts, in a fixed order.
pub fn clashes<'h>(hosts: impl IntoIterator<Item = (&'h str, &'h BareMetalNodeSpec)>) -> Vec<Clash> {
    let mut owners: BTreeMap<(Identifier, String), Vec<String>> = BTreeMap::new();
    for (name, spec) in hosts {
        for identifier in identifiers(spec) {
            owners.entry(identifier).or_default().push(name.to_owned());
        }
    }
    let shared = owners.into_iter().filter(|(_, hosts)| hosts.len() > 1);
    shared
        .map(|((by, value), mut hosts)| {
            hosts.sort_unstable();
            Clash { by, value, hosts }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::PowerInterface;

    #[test]
    fn shared_addresses_serials_and_places_are_found() {
        let spec = |mac: &str, bmc: &str, system: Option<&str>, serial: &str, slot, height| {
            let mut spec = BareMetalNodeSpec::new("p", PowerInterface::Redfish);
            spec.mac_address = Some(mac.parse().unwrap());
            spec.mgmt_address = Some(bmc.parse().unwrap());
            spec.system_id = system.map(str::to_owned);
            spec.serial = Some(serial.into());
            (spec.rack, spec.slot, spec.height) = (Some("a1".into()), Some(slot), Some(height));
            spec
        };
        let a = spec("AA:BB:CC:00:11:22", "10.0.0.1", None, "S1", 1, 2);
        let b = spec("aa-bb-cc-00-11-22", "10.0.0.2", Some("1"), "S2", 2, 1);
        let c = spec("aa-bb-cc-00-11-23", "10.0.0.2", Some("2"), "s1", 9, 1);
        let found: Vec<_> =
            clashes([("c", &c), ("b", &b), ("a", &a)]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "macAddress aa:bb:cc:00:11:22 is shared by hosts a, b",
                "serial s1 is shared by hosts a, c",
                "slot a1 unit 2 is shared by hosts a, b",
            ]
        );
    }
}
