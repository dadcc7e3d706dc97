//! Keeping the inventory equal to a DCIM's export, by inventory id.
//!
//! The export owns the facts about the machine. What people and Muster lay over it (hold, maintenance,
//! acknowledgement, a power request, deadlines, drivers) is kept. A host that vanished is held, never
//! deleted and never switched off. Applying a difference and comparing again finds nothing to do.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    Timestamp,
    field::{FieldError, FieldErrors},
};

use super::{BareMetalNodeSpec, Hold, NamedHost};

/// The holder's name on hosts that the export no longer lists.
pub const SYNC: &str = "dcim-sync";

/// Fields that an export does not own.
const KEPT: [&str; 10] = [
    "hold",
    "admin",
    "acknowledgement",
    "powerState",
    "deadlines",
    "drivers",
    "nodeMatch",
    "project",
    "registered",
    "deletion",
];

/// One field of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    pub field: String,
    pub from: Option<Value>,
    pub to: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostChange {
    pub name: String,
    pub fields: Vec<FieldChange>,
    /// What to store.
    pub spec: BareMetalNodeSpec,
}

/// What a sync would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a difference changes nothing until it is applied"]
pub struct Difference {
    pub create: Vec<NamedHost>,
    pub change: Vec<HostChange>,
    /// Hosts that came with an earlier export and are no longer listed; with the spec to store.
    pub hold: Vec<HostChange>,
    pub unchanged: Vec<String>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.change.is_empty() && self.hold.is_empty()
    }
}

/// Compares the inventory with an export. Hosts of the inventory without an inventory id are not the
/// export's and are left alone.
pub fn compare(
    inventory: &BTreeMap<String, BareMetalNodeSpec>,
    export: &[NamedHost],
    now: Timestamp,
) -> Result<Difference, FieldErrors> {
    let listed = by_id(export)?;
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, spec) in inventory {
        if let Some(id) = &spec.inventory_id {
            known.insert(id, name);
        }
    }
    let mut difference = Difference::default();
    for (id, host) in &listed {
        if let Some(name) = known.get(id) {
            let change = merge(name, &inventory[*name], &host.spec);
            if change.fields.is_empty() {
                difference.unchanged.push((*name).to_owned());
            } else {
                difference.change.push(change);
            }
        } else if inventory.contains_key(&host.name) {
            let text = format!("host {} exists under another inventory id", host.name);
            return Err(FieldErrors::one(
                FieldError::new("inventoryId", text).found_text(id).hint("rename one of them"),
            ));
        } else {
            difference.create.push((*host).clone());
        }
    }
    for (id, name) in known.iter().filter(|(id, _)| !listed.contains_key(*id)) {
        let mut spec = inventory[*name].clone();
        // A hold that has lapsed holds nothing.
        if spec.hold.as_ref().is_some_and(|hold| hold.is_active(now)) {
            difference.unchanged.push((*name).to_owned());
            continue;
        }
        spec.hold = Some(Hold {
            by: SYNC.into(),
            reason: format!("inventory id {id} is no longer in the export of {now}"),
            until: None,
        });
        difference.hold.push(HostChange {
            name: (*name).to_owned(),
            fields: fields(&inventory[*name], &spec),
            spec,
        });
    }
    difference.unchanged.sort_unstable();
    Ok(difference)
}

fn by_id(export: &[NamedHost]) -> Result<BTreeMap<&str, &NamedHost>, FieldErrors> {
    let mut listed = BTreeMap::new();
    for host in export {
        let fault = |problem: String| {
            Err(FieldErrors::one(FieldError::new(format!("{}.inventoryId", host.name), problem)))
        };
        let Some(id) = host.spec.inventory_id.as_deref() else {
            return fault("is required in an export: hosts are recognised by it".into());
        };
        if let Some(other) = listed.insert(id, host) {
            return fault(format!("{id} is listed twice, also by {}", other.name));
        }
    }
    Ok(listed)
}

/// The stored spec with the facts of the export, keeping what people laid over it.
fn merge(name: &str, stored: &BareMetalNodeSpec, listed: &BareMetalNodeSpec) -> HostChange {
    let mut spec = BareMetalNodeSpec {
        hold: stored.hold.clone(),
        admin: stored.admin,
        acknowledgement: stored.acknowledgement.clone(),
        power_state: stored.power_state,
        deadlines: stored.deadlines.clone(),
        drivers: stored.drivers.clone(),
        node_match: stored.node_match.clone(),
        project: stored.project.clone(),
        registered: stored.registered.clone(),
        deletion: stored.deletion.clone(),
        ..listed.clone()
    };
    // A key belongs to an address: what was approved for another one says nothing about this one.
    if spec.pin.is_none() && spec.mgmt_address == stored.mgmt_address && spec.tls_verify == stored.tls_verify
    {
        spec.pin = stored.pin;
    }
    // It is back: the hold that we set ourselves ends.
    if spec.hold.as_ref().is_some_and(|hold| hold.by == SYNC) {
        spec.hold = None;
    }
    HostChange { name: name.to_owned(), fields: fields(stored, &spec), spec }
}

fn fields(from: &BareMetalNodeSpec, to: &BareMetalNodeSpec) -> Vec<FieldChange> {
    let members = |spec: &BareMetalNodeSpec| match serde_json::to_value(spec) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (old, new) = (members(from), members(to));
    let mut names: Vec<_> = old.keys().chain(new.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter(|name| old.get(name) != new.get(name))
        .map(|name| FieldChange { from: old.get(&name).cloned(), to: new.get(&name).cloned(), field: name })
        .collect()
}

/// Whether a field is left to people by a sync.
pub fn is_kept(field: &str) -> bool {
    KEPT.contains(&field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        host::{Admin, PowerInterface, Switch},
        power::Pin,
    };

    fn host(name: &str, id: &str, pool: &str) -> NamedHost {
        let mut spec = BareMetalNodeSpec::new(pool, PowerInterface::Redfish);
        spec.inventory_id = Some(id.into());
        NamedHost { name: name.into(), spec }
    }

    fn apply(inventory: &mut BTreeMap<String, BareMetalNodeSpec>, difference: Difference) {
        for host in difference.create {
            inventory.insert(host.name, host.spec);
        }
        for change in difference.change.into_iter().chain(difference.hold) {
            inventory.insert(change.name, change.spec);
        }
    }

    #[test]
    fn a_sync_creates_changes_holds_and_then_finds_nothing() {
        let now = Timestamp::from_millis(0);
        let mut inventory = BTreeMap::new();
        let mut moved = host("a", "1", "old");
        (moved.spec.admin, moved.spec.power_state) = (Admin::Maintenance, Some(Switch::Off));
        inventory.insert("a".to_owned(), moved.spec);
        inventory.insert("gone".to_owned(), host("gone", "2", "p").spec);
        inventory.insert("own".to_owned(), BareMetalNodeSpec::new("p", PowerInterface::Wol));
        let export = [host("a-renamed", "1", "new"), host("c", "3", "p")];
        let difference = compare(&inventory, &export, now).unwrap();
        assert_eq!(difference.create, [export[1].clone()]);
        assert_eq!(difference.change.len(), 1);
        let change = &difference.change[0];
        assert_eq!(change.name, "a", "names are immutable");
        let fields: Vec<_> = change.fields.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(fields, ["pool"]);
        assert_eq!((change.spec.admin, change.spec.power_state), (Admin::Maintenance, Some(Switch::Off)));
        assert_eq!(difference.hold[0].name, "gone");
        assert_eq!(difference.hold[0].spec.power_state, None, "held, never switched off");
        apply(&mut inventory, difference);
        assert!(compare(&inventory, &export, Timestamp::from_millis(9)).unwrap().is_empty());
        // What comes back is released.
        let back = [export[0].clone(), export[1].clone(), host("gone", "2", "p")];
        let difference = compare(&inventory, &back, now).unwrap();
        assert_eq!(difference.change[0].spec.hold, None);
        apply(&mut inventory, difference);
        assert!(compare(&inventory, &back, now).unwrap().is_empty());
    }

    #[test]
    fn an_approved_key_stays_with_its_address() {
        let listed = |address: &str, pin: Option<Pin>| {
            let mut one = host("a", "1", "p");
            (one.spec.mgmt_address, one.spec.pin) = (Some(address.parse().unwrap()), pin);
            one
        };
        let (approved, other) = (Some(Pin([1; 32])), Some(Pin([2; 32])));
        let inventory = BTreeMap::from([("a".to_owned(), listed("10.0.0.1", approved).spec)]);
        let now = Timestamp::from_millis(0);
        assert!(compare(&inventory, &[listed("10.0.0.1", None)], now).unwrap().is_empty());
        let pin = |export: NamedHost| compare(&inventory, &[export], now).unwrap().change[0].spec.pin;
        assert_eq!(pin(listed("10.0.0.2", None)), None, "nobody has approved the key behind the new address");
        assert_eq!(pin(listed("10.0.0.1", other)), other, "a file approves, too");
    }

    #[test]
    fn a_lapsed_hold_does_not_stand_for_the_hold_of_a_host_that_vanished() {
        let (until, mut gone) = (Timestamp::from_millis(100), host("gone", "2", "p"));
        gone.spec.hold = Some(Hold { by: "kim".into(), reason: "new disks".into(), until: Some(until) });
        let inventory = BTreeMap::from([("gone".to_owned(), gone.spec)]);
        let during = compare(&inventory, &[], Timestamp::from_millis(99)).unwrap();
        assert_eq!((during.hold.len(), during.unchanged), (0, vec!["gone".to_owned()]), "somebody holds it");
        let after = compare(&inventory, &[], until).unwrap();
        let hold = after.hold[0].spec.hold.as_ref().unwrap();
        assert_eq!((hold.by.as_str(), hold.until), (SYNC, None));
    }

    #[test]
    fn an_export_without_or_with_double_ids_is_refused() {
        let now = Timestamp::from_millis(0);
        let mut plain = host("a", "1", "p");
        plain.spec.inventory_id = None;
        assert!(compare(&BTreeMap::new(), &[plain], now).is_err());
        assert!(compare(&BTreeMap::new(), &[host("a", "1", "p"), host("b", "1", "p")], now).is_err());
        let inventory = BTreeMap::from([("a".to_owned(), host("a", "1", "p").spec)]);
        assert!(compare(&inventory, &[host("a", "9", "p")], now).is_err());
        assert!(is_kept("hold") && !is_kept("pool"));
    }
}
