//! Two records must not mean one machine.

use std::{collections::BTreeMap, fmt};

use super::{BareMetalNodeSpec, DriverKind, MgmtAddress};

/// Ports of BMCs that nothing else is said of.
pub(super) const REDFISH_PORT: u16 = 443;
const IPMI_PORT: u16 = 623;

/// What must be unique in the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identifier {
    Mac,
    /// Where a BMC answers, together with the system behind it.
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

/// Where the BMCs of a host answer, in the order of its drivers and in one spelling: without the port that the driver would
/// take anyway, so that one BMC is one whether it is spoken to by Redfish or by IPMI.
pub fn bmcs(spec: &BareMetalNodeSpec) -> Vec<String> {
    let own = DriverKind::from(spec.power_interface);
    let mut all = Vec::new();
    let mut is_mgmt_taken = false;
    for driver in spec.effective_drivers() {
        let kind = if driver.kind == DriverKind::DryRun { own } else { driver.kind };
        let usual = match (kind, driver.settings.get("scheme").map(String::as_str)) {
            (DriverKind::Redfish, Some("http")) => 80,
            (DriverKind::Redfish, _) => REDFISH_PORT,
            (DriverKind::Ipmi, _) => IPMI_PORT,
            (DriverKind::Wol | DriverKind::Agent | DriverKind::Webhook | DriverKind::DryRun, _) => continue,
        };
        is_mgmt_taken |= driver.address.is_none();
        let address =
            driver.address.as_deref().map_or_else(|| spec.mgmt_address.clone(), |text| text.parse().ok());
        let port = driver.settings.get("port").and_then(|port| port.parse().ok());
        all.extend(address.map(|address| place(&address, port, usual)));
    }
    // Nobody calls it, and yet it says which machine this is.
    if let Some(address) = spec.mgmt_address.as_ref().filter(|_| !is_mgmt_taken) {
        let usual = if own == DriverKind::Ipmi { IPMI_PORT } else { REDFISH_PORT };
        all.push(place(address, None, usual));
    }
    all
}

/// An address in one spelling: without the port that is meant anyway.
pub fn place(address: &MgmtAddress, port: Option<u16>, usual: u16) -> String {
    let host = address.host();
    match address.port().or(port).filter(|port| *port != usual) {
        None => host.to_owned(),
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
    }
}

/// What identifies a host, in one spelling.
pub fn identifiers(spec: &BareMetalNodeSpec) -> Vec<(Identifier, String)> {
    let mut all = Vec::new();
    if let Some(mac) = spec.mac_address {
        all.push((Identifier::Mac, mac.to_string()));
    }
    let system = spec.system_id.as_deref().map(|id| format!("#{id}")).unwrap_or_default();
    let mut bmcs = bmcs(spec);
    bmcs.sort_unstable();
    bmcs.dedup();
    all.extend(bmcs.into_iter().map(|bmc| (Identifier::Bmc, format!("{bmc}{system}"))));
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

/// What a host claims and another has.
pub type Lost<N> = ((Identifier, String), N);

/// The hosts that are not used because an older one that is used has what they claim; `hosts` come with the order in which they
/// were registered. One that yields is in nobody's way itself.
pub fn yielding<'h, O: Ord, N: Ord + Copy>(
    hosts: impl IntoIterator<Item = (O, N, &'h BareMetalNodeSpec)>,
) -> BTreeMap<N, Lost<N>> {
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    let mut owners: BTreeMap<(Identifier, String), N> = BTreeMap::new();
    let mut yielding = BTreeMap::new();
    for (_, name, spec) in hosts {
        let claims = identifiers(spec);
        let lost = claims.iter().find_map(|claim| Some((claim.clone(), *owners.get(claim)?)));
        match lost {
            Some(lost) => drop(yielding.insert(name, lost)),
            None => owners.extend(claims.into_iter().map(|claim| (claim, name))),
        }
    }
    yielding
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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

    #[test]
    fn a_bmc_is_one_by_whatever_driver_and_spelling_it_is_reached() {
        #[track_caller]
        fn check(spec: Value, expected: &[&str]) {
            let mut all = json!({"powerInterface": "redfish", "pool": "p"});
            crate::patch::merge_patch(&mut all, &spec);
            let spec = BareMetalNodeSpec::read(&all, "spec").unwrap().value;
            let claims: Vec<_> = identifiers(&spec).into_iter().map(|(_, value)| value).collect();
            assert_eq!(claims, expected, "{all}");
        }
        let driver = |kind: &str, address: Option<&str>, settings: Value| {
            let mut driver = json!({"kind": kind, "settings": settings});
            if let Some(address) = address {
                driver["address"] = address.into();
            }
            driver
        };
        for address in ["10.0.0.5", "10.0.0.5:443", "[::ffff:10.0.0.5]:443"] {
            check(json!({"mgmtAddress": address}), &["10.0.0.5"]);
        }
        check(json!({"mgmtAddress": "10.0.0.5:623", "powerInterface": "ipmi"}), &["10.0.0.5"]);
        check(json!({"mgmtAddress": "10.0.0.5:8443", "systemId": "2"}), &["10.0.0.5:8443#2"]);
        check(json!({"mgmtAddress": "[2001:db8::1]:443"}), &["2001:db8::1"]);
        check(json!({"mgmtAddress": "[2001:db8::1]:1443"}), &["[2001:db8::1]:1443"]);
        // Two drivers at one BMC, with the port said and not said; and one at another.
        let both =
            json!([driver("redfish", None, json!({})), driver("ipmi", Some("10.0.0.5:623"), json!({}))]);
        check(json!({"mgmtAddress": "10.0.0.5", "drivers": both}), &["10.0.0.5"]);
        let other = json!([driver("redfish", Some("10.0.0.6"), json!({"port": "8443"}))]);
        check(json!({"mgmtAddress": "10.0.0.5", "drivers": other}), &["10.0.0.5", "10.0.0.6:8443"]);
        // Many behind one address, each at a port of its own.
        let port = json!([driver("ipmi", None, json!({"port": "6230"}))]);
        check(json!({"mgmtAddress": "10.0.0.5", "drivers": port}), &["10.0.0.5:6230"]);
        let plain = json!([driver("redfish", None, json!({"scheme": "http"}))]);
        check(json!({"mgmtAddress": "10.0.0.5:80", "drivers": plain}), &["10.0.0.5"]);
        let dry = json!([driver("dry-run", Some("10.0.0.5:443"), json!({}))]);
        check(json!({"drivers": dry}), &["10.0.0.5"]);
        // A webhook may serve many.
        let plug = json!([driver("webhook", Some("plugs.example"), json!({}))]);
        check(json!({"drivers": plug}), &[]);
    }
}
