//! Keeping the inventory equal to a DCIM's export, by inventory id.
//!
//! The export owns the facts about the machine that it speaks of: the columns of a table, the members of a
//! spec. An empty cell or a null says that there is nothing; what it does not speak of stays as it is stored.
//! What people and Muster lay over it (hold, maintenance, acknowledgement, a power request, deadlines,
//! drivers) is kept. A host that vanished is held, never deleted and never switched off. Applying a difference and comparing again finds nothing to do.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    Timestamp,
    field::{FieldError, FieldErrors},
    patch::{make_patch, merge_patch},
};

use super::{
    BareMetalNodeSpec, Hold, NamedHost,
    unique::{Identifier, identifiers},
};

/// The holder's name on hosts that the export no longer lists.
pub const SYNC: &str = "dcim-sync";

/// So many hosts may always vanish: in a small inventory one rack is most of it.
const FEW_VANISH: usize = 5;

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

/// A host of an export, and which members of its spec the export speaks of; null where it says that there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub host: NamedHost,
    pub said: Map<String, Value>,
}

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
    /// Hosts of the export that cannot be brought in step, and why. The others can.
    pub refused: Vec<(String, String)>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        let quiet = self.create.is_empty() && self.change.is_empty() && self.hold.is_empty();
        quiet && self.refused.is_empty()
    }

    /// How many hosts may vanish from an export of an inventory with `listed` of them before somebody has to say that it is
    /// meant: an export that broke off looks like one that lacks the rest.
    pub fn most_vanished(listed: usize) -> usize {
        FEW_VANISH.max(listed / 2)
    }
}

/// Compares the inventory with an export. A host without an inventory id that the export knows by name gets that id; the other
/// hosts without one are not the export's and are left alone.
pub fn compare(
    inventory: &BTreeMap<String, BareMetalNodeSpec>,
    export: &[Listed],
    now: Timestamp,
) -> Result<Difference, FieldErrors> {
    let listed = by_id(export)?;
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, spec) in inventory {
        if let Some(id) = &spec.inventory_id {
            known.insert(id, name);
        }
    }
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for listed in listed.values() {
        *named.entry(&listed.host.name).or_default() += 1;
    }
    let mut difference = Difference::default();
    for (id, Listed { host, said }) in &listed {
        if let Some(name) = known.get(id) {
            let change = merge(name, &inventory[*name], said, now)?;
            if change.fields.is_empty() {
                difference.unchanged.push((*name).to_owned());
            } else {
                difference.change.push(change);
            }
            continue;
        }
        let double = named[host.name.as_str()] > 1;
        match inventory.get(&host.name) {
            Some(spec) if spec.inventory_id.is_none() && !double => {
                let mut said = said.clone();
                said.insert("inventoryId".into(), (*id).into());
                difference.change.push(merge(&host.name, spec, &said, now)?);
            }
            Some(spec) => difference.refused.push((host.name.clone(), namesake(spec, id))),
            None if double => {
                let why = "the export gives this name to several inventory ids: correct it there";
                difference.refused.push((host.name.clone(), why.to_owned()));
            }
            None => difference.create.push(host.clone()),
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
        spec.forget_wish_of(&inventory[*name], now);
        difference.hold.push(HostChange {
            name: (*name).to_owned(),
            fields: fields(&inventory[*name], &spec),
            spec,
        });
    }
    difference.unchanged.sort_unstable();
    Ok(difference)
}

/// Why a host of the export cannot have the name that it is listed with.
fn namesake(stored: &BareMetalNodeSpec, id: &str) -> String {
    let known = match &stored.inventory_id {
        Some(other) => format!("the host of this name has inventory id {other}, and the export says {id}"),
        None => format!("the export gives this name to several inventory ids, {id} is one of them"),
    };
    format!(
        "{known}: if it is the same machine, set spec.inventoryId of the host to {id}; if it is another, give it another name in \
         the export, or delete the host first"
    )
}

fn by_id(export: &[Listed]) -> Result<BTreeMap<&str, &Listed>, FieldErrors> {
    let mut listed = BTreeMap::new();
    for one in export {
        let host = &one.host;
        let fault = |problem: String| {
            Err(FieldErrors::one(FieldError::new(format!("{}.inventoryId", host.name), problem)))
        };
        let Some(id) = host.spec.inventory_id.as_deref() else {
            return fault("is required in an export: hosts are recognised by it".into());
        };
        if let Some(other) = listed.insert(id, one) {
            return fault(format!("{id} is listed twice, also by {}", other.host.name));
        }
    }
    Ok(listed)
}

/// The stored spec with what the export says of it. Together they may make no sense, which is a fault of the export.
fn merge(
    name: &str,
    stored: &BareMetalNodeSpec,
    said: &Map<String, Value>,
    now: Timestamp,
) -> Result<HostChange, FieldErrors> {
    let mut merged = members(stored);
    for (field, value) in said.iter().filter(|(field, _)| !is_kept(field)) {
        match value {
            // Each resource is a fact of its own, as each is a column of its own.
            Value::Object(parts) if field == "resources" => {
                let all = merged.entry(field.clone()).or_insert_with(|| Value::Object(Map::new()));
                merge_patch(all, &Value::Object(parts.clone()));
            }
            Value::Null => drop(merged.remove(field)),
            other => drop(merged.insert(field.clone(), other.clone())),
        }
    }
    let pinned = said.get("pin").is_some_and(|pin| !pin.is_null());
    if !pinned {
        merged.remove("pin");
    }
    let mut spec = BareMetalNodeSpec::read(&Value::Object(merged), name)?.value;
    // A key belongs to an address: what was approved for another one says nothing about this one.
    if !pinned && spec.mgmt_address == stored.mgmt_address && spec.tls_verify == stored.tls_verify {
        spec.pin = stored.pin;
    }
    // It is back: the hold that we set ourselves ends.
    if spec.hold.as_ref().is_some_and(|hold| hold.by == SYNC) {
        spec.hold = None;
        spec.forget_wish_of(stored, now);
    }
    Ok(HostChange { name: name.to_owned(), fields: fields(stored, &spec), spec })
}

/// A spec member by member, as it is stored.
fn members(spec: &BareMetalNodeSpec) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn fields(from: &BareMetalNodeSpec, to: &BareMetalNodeSpec) -> Vec<FieldChange> {
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

/// The changes in the order in which they can be made: what takes from one another, two hosts that changed places for one, has
/// to be changed at one moment, as no two hosts may have the same address or place even for a moment.
pub fn together(
    inventory: &BTreeMap<String, BareMetalNodeSpec>,
    changes: Vec<HostChange>,
) -> Vec<Vec<HostChange>> {
    let mut owners: BTreeMap<(Identifier, String), usize> = BTreeMap::new();
    for (place, change) in changes.iter().enumerate() {
        let stored = inventory.get(&change.name).map(identifiers).unwrap_or_default();
        owners.extend(stored.into_iter().map(|claim| (claim, place)));
    }
    let mut group: Vec<usize> = (0..changes.len()).collect();
    for (place, change) in changes.iter().enumerate() {
        for claim in identifiers(&change.spec) {
            let Some(owner) = owners.get(&claim).copied() else { continue };
            let (from, to) = (group[owner].max(group[place]), group[owner].min(group[place]));
            if from != to {
                group.iter_mut().filter(|one| **one == from).for_each(|one| *one = to);
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<HostChange>> = BTreeMap::new();
    for (place, change) in changes.into_iter().enumerate() {
        groups.entry(group[place]).or_default().push(change);
    }
    groups.into_values().collect()
}

/// The merge patch that makes the stored spec what a change says. A key that the export names is sent along when the address
/// moves: it is approved for the new place, and not repeated by accident.
pub fn patch(stored: &BareMetalNodeSpec, change: &HostChange) -> Value {
    let mut patch = make_patch(&Value::Object(members(stored)), &Value::Object(members(&change.spec)));
    if let Value::Object(members) = &mut patch
        && change.spec.mgmt_address != stored.mgmt_address
    {
        match change.spec.pin {
            Some(pin) => drop(members.insert("pin".into(), pin.to_string().into())),
            // The keys of the old place go together, those of drivers, too, when nothing is said of any.
            None if change.spec.tls_verify == stored.tls_verify => drop(members.remove("pin")),
            None => {}
        }
    }
    patch
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
        spec.mgmt_address = Some("10.0.0.9".parse().unwrap());
        NamedHost { name: name.into(), spec }
    }

    /// An export that says all of its hosts' specs.
    fn full<const N: usize>(hosts: [NamedHost; N]) -> [Listed; N] {
        hosts.map(|host| Listed { said: members(&host.spec), host })
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
        let export = full([host("a-renamed", "1", "new"), host("c", "3", "p")]);
        let difference = compare(&inventory, &export, now).unwrap();
        assert_eq!(difference.create, [export[1].host.clone()]);
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
        let [gone] = full([host("gone", "2", "p")]);
        let back = [export[0].clone(), export[1].clone(), gone];
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
            full([one])[0].clone()
        };
        let (approved, other) = (Some(Pin([1; 32])), Some(Pin([2; 32])));
        let inventory = BTreeMap::from([("a".to_owned(), listed("10.0.0.1", approved).host.spec)]);
        let now = Timestamp::from_millis(0);
        assert!(compare(&inventory, &[listed("10.0.0.1", None)], now).unwrap().is_empty());
        let pin = |export: Listed| compare(&inventory, &[export], now).unwrap().change[0].spec.pin;
        assert_eq!(pin(listed("10.0.0.2", None)), None, "nobody has approved the key behind the new address");
        assert_eq!(pin(listed("10.0.0.1", other)), other, "a file approves, too");
    }

    /// What a table makes of a stored host: the fields that are shown, and that they are what is stored.
    #[track_caller]
    fn shown(
        stored: &BareMetalNodeSpec,
        table: &str,
    ) -> (BTreeMap<String, Option<Value>>, BareMetalNodeSpec) {
        let lines = crate::host::csv::read_csv(table).unwrap();
        let export: Vec<Listed> =
            lines.into_iter().map(|line| Listed { host: line.host.unwrap(), said: line.said }).collect();
        let mut inventory = BTreeMap::from([("a".to_owned(), stored.clone())]);
        let difference = compare(&inventory, &export, Timestamp::EPOCH).unwrap();
        let change = difference.change.first().cloned();
        apply(&mut inventory, difference);
        let again = compare(&inventory, &export, Timestamp::EPOCH).unwrap();
        assert!(again.is_empty(), "a second time there is nothing to do: {again:?}");
        let (before, after) = (members(stored), members(&inventory["a"]));
        let mut told = before.clone();
        for one in change.iter().flat_map(|change| &change.fields) {
            assert_eq!(before.get(&one.field), one.from.as_ref(), "{}", one.field);
            match one.to.clone() {
                Some(value) => drop(told.insert(one.field.clone(), value)),
                None => drop(told.remove(&one.field)),
            }
        }
        assert_eq!(told, after, "what is shown is what is written");
        let fields = change.into_iter().flat_map(|change| change.fields);
        (fields.map(|one| (one.field, one.to)).collect(), inventory["a"].clone())
    }

    #[test]
    fn what_an_export_does_not_speak_of_stays() {
        let mut stored = host("a", "1", "p").spec;
        (stored.can_force_off, stored.max_watts, stored.idle_watts) = (false, Some(400), Some(180));
        stored.resources = serde_json::from_value(serde_json::json!({ "cpu": "64", "gpu": 8 })).unwrap();
        stored.labels = serde_json::from_value(serde_json::json!({ "team": "ml" })).unwrap();
        stored.taints =
            serde_json::from_value(serde_json::json!([{ "key": "gpu", "effect": "NoSchedule" }])).unwrap();
        stored.rack = Some("a1".into());
        let plain = "name,inventoryId,pool,powerInterface,mgmtAddress";
        let same = format!("{plain}\na,1,p,redfish,10.0.0.9\n");
        assert_eq!(shown(&stored, &same).0, BTreeMap::new());
        // Columns that it has count, and only they; an empty cell says that there is nothing.
        let table = format!("{plain},rack,cpu,memory,maxWatts\na,1,p,redfish,10.0.0.9,b2,32,,\n");
        let (fields, spec) = shown(&stored, &table);
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["maxWatts", "rack", "resources"]);
        assert_eq!((spec.max_watts, spec.idle_watts, spec.can_force_off), (None, Some(180), false));
        assert_eq!((spec.resources.cpu.to_string().as_str(), spec.resources.gpu), ("32", 8));
        assert_eq!((&spec.labels, &spec.taints), (&stored.labels, &stored.taints));
        let table = format!("{plain},labels,canForceOff\na,1,p,redfish,10.0.0.9,,\n");
        let (fields, spec) = shown(&stored, &table);
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["canForceOff", "labels"]);
        assert!(spec.can_force_off && spec.labels.is_empty());
    }

    #[test]
    fn members_of_a_spec_count_as_columns_do_and_never_what_people_laid_over_it() {
        let mut stored = host("a", "1", "p").spec;
        (stored.max_watts, stored.rack, stored.admin) = (Some(400), Some("a1".into()), Admin::Maintenance);
        let inventory = BTreeMap::from([("a".to_owned(), stored)]);
        let said = |said: Value| {
            let export = [Listed { host: host("a", "1", "p"), said: said.as_object().cloned().unwrap() }];
            compare(&inventory, &export, Timestamp::EPOCH)
        };
        let said_rack = said(serde_json::json!({ "rack": null, "zone": "z", "admin": "normal" })).unwrap();
        let spec = &said_rack.change[0].spec;
        assert_eq!(
            (spec.rack.as_deref(), spec.zone.as_deref(), spec.max_watts),
            (None, Some("z"), Some(400))
        );
        assert_eq!(spec.admin, Admin::Maintenance);
        let fault = said(serde_json::json!({ "idleWatts": 500 })).unwrap_err().to_string();
        assert!(fault.contains("a.idleWatts") && fault.contains("maxWatts"), "{fault}");
    }

    #[test]
    fn a_lapsed_hold_does_not_stand_for_the_hold_of_a_host_that_vanished() {
        let (until, mut gone) = (Timestamp::from_millis(100), host("gone", "2", "p"));
        gone.spec.hold = Some(Hold { by: "kim".into(), reason: "new disks".into(), until: Some(until) });
        gone.spec.power_state = Some(Switch::Off);
        let inventory = BTreeMap::from([("gone".to_owned(), gone.spec)]);
        let during = compare(&inventory, &[], Timestamp::from_millis(99)).unwrap();
        assert_eq!((during.hold.len(), during.unchanged), (0, vec!["gone".to_owned()]), "somebody holds it");
        let after = compare(&inventory, &[], until).unwrap();
        let hold = after.hold[0].spec.hold.as_ref().unwrap();
        assert_eq!((hold.by.as_str(), hold.until), (SYNC, None));
        assert_eq!(after.hold[0].spec.power_state, None, "the wish had lapsed with its hold");
    }

    #[test]
    fn an_export_without_or_with_double_ids_is_refused() {
        let now = Timestamp::from_millis(0);
        let mut plain = host("a", "1", "p");
        plain.spec.inventory_id = None;
        assert!(compare(&BTreeMap::new(), &full([plain]), now).is_err());
        let twice = full([host("a", "1", "p"), host("b", "1", "p")]);
        assert!(compare(&BTreeMap::new(), &twice, now).is_err());
        assert!(is_kept("hold") && !is_kept("pool"));
    }

    #[test]
    fn a_host_without_an_inventory_id_is_known_by_its_name_and_gets_one() {
        let now = Timestamp::EPOCH;
        let mut own = host("a", "1", "p").spec;
        own.inventory_id = None;
        let mut inventory = BTreeMap::from([("a".to_owned(), own)]);
        let export = full([host("a", "1", "p"), host("b", "2", "p")]);
        let difference = compare(&inventory, &export, now).unwrap();
        let change = &difference.change[0];
        assert_eq!((change.name.as_str(), change.fields[0].field.as_str()), ("a", "inventoryId"));
        assert_eq!(change.spec.inventory_id.as_deref(), Some("1"));
        apply(&mut inventory, difference);
        assert!(compare(&inventory, &export, now).unwrap().is_empty());
    }

    #[test]
    fn a_name_that_another_inventory_id_has_stops_its_own_line_alone() {
        let now = Timestamp::EPOCH;
        let inventory = BTreeMap::from([("a".to_owned(), host("a", "1", "p").spec)]);
        let export =
            full([host("a", "9", "p"), host("b", "1", "new"), host("c", "3", "p"), host("c", "4", "p")]);
        let difference = compare(&inventory, &export, now).unwrap();
        assert_eq!((difference.change.len(), difference.create.len(), difference.hold.len()), (1, 0, 0));
        let refused: Vec<_> = difference.refused.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(refused, ["c", "c", "a"]);
        let why = &difference.refused[2].1;
        assert!(why.contains("inventory id 1") && why.contains("set spec.inventoryId"), "{why}");
    }

    #[test]
    fn hosts_that_change_places_are_changed_together() {
        let at = |name: &str, id: &str, address: &str| {
            let mut host = host(name, id, "p");
            host.spec.mgmt_address = Some(address.parse().unwrap());
            host
        };
        let names = ["a", "b", "c", "d", "e"];
        let hosts = names.map(|name| at(name, name, &format!("{name}.example")));
        let inventory = hosts.into_iter().map(|host| (host.name, host.spec)).collect();
        let moved = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "z"), ("e", "y")];
        let export = full(moved.map(|(name, to)| at(name, name, &format!("{to}.example"))));
        let difference = compare(&inventory, &export, Timestamp::EPOCH).unwrap();
        let groups = together(&inventory, difference.change);
        let named: Vec<Vec<&str>> =
            groups.iter().map(|group| group.iter().map(|one| one.name.as_str()).collect()).collect();
        assert_eq!(named, [vec!["a", "b", "c"], vec!["d"], vec!["e"]]);
    }

    #[test]
    fn a_key_that_the_export_names_moves_with_the_address() {
        let pin = Pin([1; 32]);
        let mut stored = host("a", "1", "p").spec;
        stored.pin = Some(pin);
        let mut moved = host("a", "1", "p");
        moved.spec.mgmt_address = Some("10.0.0.7".parse().unwrap());
        let inventory = BTreeMap::from([("a".to_owned(), stored.clone())]);
        let without = compare(&inventory, &full([moved.clone()]), Timestamp::EPOCH).unwrap();
        assert_eq!(patch(&stored, &without.change[0]), serde_json::json!({ "mgmtAddress": "10.0.0.7" }));
        moved.spec.pin = Some(pin);
        let with = compare(&inventory, &full([moved]), Timestamp::EPOCH).unwrap();
        let expected = serde_json::json!({ "mgmtAddress": "10.0.0.7", "pin": pin.to_string() });
        assert_eq!(patch(&stored, &with.change[0]), expected);
    }

    #[test]
    fn more_than_half_of_the_hosts_do_not_vanish_by_themselves() {
        assert_eq!([0, 6, 10, 11, 400].map(Difference::most_vanished), [5, 5, 5, 5, 200]);
    }
}
