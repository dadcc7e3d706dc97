//! The inventory in memory: every host with its records, who claims what, and the records of pools.
//!
//! One task feeds it from the store's watch on `/baremetal/`; `revision` says how far it has come. Events of
//! hosts are not kept here, they are read when somebody asks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use muster_model::{
    host::{
        BareMetalNodeSpec, GlobalConfig, GlobalStats, PoolMembers,
        keys::{HostRecord, Key, PoolRecord, parse},
        unique::{Identifier, identifiers, yielding},
    },
    store::{Change, Entry, Revision},
};

use super::{events::HostChange, host::Host};

/// A stored value with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) value: Bytes,
    pub(super) version: Revision,
}

/// `/baremetal/global/config` as it is in force.
#[derive(Debug, Clone, Default)]
pub struct Global {
    /// The last record that could be used, or the defaults.
    pub config: Arc<GlobalConfig>,
    pub version: Revision,
    /// Why the stored record is not used, if so.
    pub problem: Option<String>,
}

/// Hosts by what only one of them can have; the oldest record has it.
type Claims = BTreeMap<(Identifier, String), BTreeSet<(Revision, Arc<str>)>>;

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) revision: Revision,
    pub(super) hosts: BTreeMap<Arc<str>, Arc<Host>>,
    claims: Claims,
    pub(super) members: BTreeMap<String, Stored>,
    pub(super) configs: BTreeMap<String, Stored>,
    pub(super) global: Global,
    pub(super) stats: Option<GlobalStats>,
    /// Specs that changed since somebody asked last, for the ones who look after foreign writes.
    pub(super) touched: BTreeSet<Arc<str>>,
}

impl Index {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Host>> {
        self.hosts.get(name)
    }

    /// Hosts whose specs are in use.
    pub(super) fn accepted(&self) -> impl Iterator<Item = (&Arc<Host>, &Arc<BareMetalNodeSpec>)> {
        self.hosts.values().filter_map(|host| Some((host, host.accepted()?)))
    }

    /// Who members should be, by pool.
    pub(super) fn derived_members(&self) -> BTreeMap<&str, PoolMembers> {
        let mut members: BTreeMap<&str, PoolMembers> = BTreeMap::new();
        for (host, spec) in self.accepted() {
            members.entry(spec.pool.as_str()).or_default().0.push(host.name.to_string());
        }
        members
    }

    /// Members of one pool, with `without` left out.
    pub(super) fn members_of(&self, pool: &str, without: &BTreeSet<&str>) -> BTreeSet<String> {
        let here = self.accepted().filter(|(host, spec)| spec.pool == pool && !without.contains(&*host.name));
        here.map(|(host, _)| host.name.to_string()).collect()
    }

    /// The owner of something that only one host can have, if that is another host than these.
    pub(super) fn owner(&self, claim: &(Identifier, String), besides: &BTreeSet<&str>) -> Option<&str> {
        let owners = self.claims.get(claim)?;
        owners.iter().map(|(_, owner)| &**owner).find(|owner| !besides.contains(owner))
    }

    /// Takes in one commit, and tells what happened to which host.
    pub(super) fn apply(&mut self, changes: &[Change]) -> Vec<HostChange> {
        let mut before: BTreeMap<Arc<str>, Option<Arc<Host>>> = BTreeMap::new();
        for change in changes {
            self.revision = self.revision.max(change.revision);
            match parse(&change.key) {
                Some(Key::Host { host, record }) => {
                    let name: Arc<str> = host.into();
                    let known = self.hosts.get(&name).cloned();
                    if record == HostRecord::Events {
                        continue;
                    }
                    before.entry(Arc::clone(&name)).or_insert_with(|| known.clone());
                    self.take(&name, record, change.entry.as_ref(), change.revision);
                }
                Some(Key::Pool { pool, record }) => self.take_pool(pool, record, change.entry.as_ref()),
                Some(Key::GlobalConfig) => self.take_global(change.entry.as_ref()),
                Some(Key::GlobalStats) => {
                    let entry = change.entry.as_ref();
                    self.stats = entry.and_then(|entry| serde_json::from_slice(&entry.value).ok());
                }
                None => {}
            }
        }
        let revision = self.revision;
        self.settle_clashes(&mut before);
        let told = before.into_iter().filter_map(|(name, before)| {
            let after = self.hosts.get(&name).cloned();
            (before.is_some() || after.is_some()).then_some(HostChange { revision, name, before, after })
        });
        told.collect()
    }

    fn take(&mut self, name: &Arc<str>, record: HostRecord, entry: Option<&Entry>, revision: Revision) {
        let mut host = self.hosts.get(name).map_or_else(|| Host::new(name), |host| Host::clone(host));
        if record == HostRecord::Spec {
            self.claim(&host, false);
            self.touched.insert(Arc::clone(name));
        }
        host.take(record, entry, revision);
        if record == HostRecord::Spec {
            self.claim(&host, true);
        }
        if host.is_empty() {
            self.hosts.remove(name);
        } else {
            self.hosts.insert(Arc::clone(name), Arc::new(host));
        }
    }

    /// Notes or forgets what a host claims.
    fn claim(&mut self, host: &Host, holds: bool) {
        let (Some(stored), Some(spec)) = (&host.spec, host.claimant()) else { return };
        for claim in identifiers(spec) {
            let place = (stored.created, Arc::clone(&host.name));
            if holds {
                self.claims.entry(claim).or_default().insert(place);
            } else if let Some(owners) = self.claims.get_mut(&claim) {
                owners.remove(&place);
                if owners.is_empty() {
                    self.claims.remove(&claim);
                }
            }
        }
    }

    /// Brings verdicts about clashes up to date: of the hosts that this commit touched, and of all that stand in one another's
    /// way with them.
    fn settle_clashes(&mut self, before: &mut BTreeMap<Arc<str>, Option<Arc<Host>>>) {
        let mut affected: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut open: Vec<Arc<Host>> = Vec::new();
        for (name, old) in before.iter() {
            let specs = [old.as_ref(), self.hosts.get(name)];
            // Only specs claim anything: whoever has the same one is in nobody's way who was not there before.
            if let [Some(old), Some(new)] = specs
                && old.version() == new.version()
            {
                continue;
            }
            affected.insert(Arc::clone(name));
            open.extend(specs.into_iter().flatten().cloned());
        }
        while let Some(host) = open.pop() {
            for claim in host.claimant().map(|spec| identifiers(spec)).into_iter().flatten() {
                for (_, owner) in self.claims.get(&claim).into_iter().flatten() {
                    if affected.insert(Arc::clone(owner)) {
                        open.extend(self.hosts.get(owner).cloned());
                    }
                }
            }
        }
        let claimants = affected.iter().filter_map(|name| {
            let host = self.hosts.get(name)?;
            Some((host.spec.as_ref()?.created, name, host.claimant()?.as_ref()))
        });
        let clashes: BTreeMap<Arc<str>, String> = yielding(claimants)
            .into_iter()
            .map(|(name, (claim, first))| (Arc::clone(name), taken(&claim, first)))
            .collect();
        for name in affected {
            let Some(host) = self.hosts.get(&name) else { continue };
            let clash = clashes.get(&name).cloned();
            if clash == host.clash {
                continue;
            }
            before.entry(Arc::clone(&name)).or_insert_with(|| Some(Arc::clone(host)));
            let mut host = Host::clone(host);
            host.set_clash(clash);
            self.hosts.insert(name, Arc::new(host));
        }
    }

    fn take_pool(&mut self, pool: &str, record: PoolRecord, entry: Option<&Entry>) {
        let table = match record {
            PoolRecord::Members => &mut self.members,
            PoolRecord::Config => &mut self.configs,
        };
        match entry {
            Some(entry) => {
                let stored = Stored { value: entry.value.clone(), version: entry.modified };
                table.insert(pool.to_owned(), stored);
            }
            None => drop(table.remove(pool)),
        }
    }

    fn take_global(&mut self, entry: Option<&Entry>) {
        let Some(entry) = entry else {
            self.global = Global::default();
            return;
        };
        self.global.version = entry.modified;
        match read_global(&entry.value) {
            Ok(config) => {
                self.global.config = Arc::new(config);
                self.global.problem = None;
            }
            Err(why) => self.global.problem = Some(why),
        }
    }
}

/// Reads the global settings, or says everything that is wrong with them.
pub(super) fn read_global(value: &[u8]) -> Result<GlobalConfig, String> {
    GlobalConfig::parse(value).map_err(|faults| faults.to_string())
}

/// Why a host is set aside that claims what another one has.
pub(crate) fn taken((by, value): &(Identifier, String), first: &str) -> String {
    format!(
        "{} {value} belongs to host {first}, which was registered before; correct one of them",
        by.field()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn change(revision: u64, key: &str, value: Option<Value>) -> Change {
        let revision = Revision(revision);
        let entry = value.map(|value| Entry {
            key: key.to_owned(),
            value: value.to_string().into(),
            created: revision,
            modified: revision,
        });
        Change { revision, key: key.to_owned(), entry }
    }

    fn spec(pool: &str, mac: &str) -> Value {
        json!({"powerInterface": "wol", "pool": pool, "macAddress": mac})
    }

    #[test]
    fn members_follow_the_specs_that_are_in_use() {
        let mut index = Index::default();
        index.apply(&[change(1, "/baremetal/nodes/b/spec", Some(spec("gpu", "02:00:00:00:00:01")))]);
        index.apply(&[change(2, "/baremetal/nodes/a/spec", Some(spec("gpu", "02:00:00:00:00:02")))]);
        index.apply(&[change(3, "/baremetal/nodes/bad/spec", Some(json!({"pool": "gpu"})))]);
        index.apply(&[change(4, "/baremetal/nodes/UP/spec", Some(spec("gpu", "02:00:00:00:00:03")))]);
        assert_eq!(index.derived_members()["gpu"].0, ["a", "b"]);
        let why = |name: &str| index.get(name).and_then(|host| host.set_aside()).map(|aside| aside.reason);
        assert!(why("bad").is_some_and(|why| why.contains("powerInterface: is required")));
        assert!(why("UP").is_some_and(|why| why.contains("name")));
        assert_eq!(why("a"), None);
    }

    #[test]
    fn of_two_records_of_one_machine_the_older_is_used() {
        let mut index = Index::default();
        index.apply(&[change(1, "/baremetal/nodes/z/spec", Some(spec("gpu", "02:00:00:00:00:01")))]);
        let told =
            index.apply(&[change(2, "/baremetal/nodes/a/spec", Some(spec("gpu", "02-00-00-00-00-01")))]);
        assert_eq!(told.len(), 1);
        assert_eq!(index.derived_members()["gpu"].0, ["z"]);
        let aside = index.get("a").unwrap().set_aside().unwrap();
        assert!(aside.reason.contains("belongs to host z"), "{}", aside.reason);
        // When the older goes, the other takes its place, and watches are told about both.
        let told = index.apply(&[change(3, "/baremetal/nodes/z/spec", None)]);
        let names: Vec<_> = told.iter().map(|change| &*change.name).collect();
        assert_eq!(names, ["a", "z"]);
        assert_eq!(index.derived_members()["gpu"].0, ["a"]);
    }

    #[test]
    fn a_record_that_is_set_aside_stands_in_nobodys_way() {
        let mut index = Index::default();
        let aside = |index: &Index| {
            let aside = index.hosts.values().filter(|host| host.set_aside().is_some());
            aside.map(|host| host.name.to_string()).collect::<Vec<_>>()
        };
        // A name that cannot be used, then the same machine under one that can.
        index.apply(&[change(1, "/baremetal/nodes/GPU-01/spec", Some(spec("gpu", "02:00:00:00:00:01")))]);
        index.apply(&[change(2, "/baremetal/nodes/gpu-01/spec", Some(spec("gpu", "02:00:00:00:00:01")))]);
        assert_eq!(aside(&index), ["GPU-01"]);
        // b yields to a; what it shares with c is c's then, until a goes.
        let with = |mac: &str, serial: &str| {
            let mut spec = spec("gpu", mac);
            spec["serial"] = serial.into();
            spec
        };
        index.apply(&[change(3, "/baremetal/nodes/a/spec", Some(with("02:00:00:00:00:02", "A")))]);
        index.apply(&[change(4, "/baremetal/nodes/b/spec", Some(with("02:00:00:00:00:02", "B")))]);
        index.apply(&[change(5, "/baremetal/nodes/c/spec", Some(with("02:00:00:00:00:03", "B")))]);
        assert_eq!(aside(&index), ["GPU-01", "b"]);
        index.apply(&[change(6, "/baremetal/nodes/a/spec", None)]);
        assert_eq!(aside(&index), ["GPU-01", "c"]);
        index.apply(&[change(7, "/baremetal/nodes/b/spec", None)]);
        assert_eq!(aside(&index), ["GPU-01"]);
    }

    #[test]
    fn bad_global_settings_leave_the_last_good_ones_in_force() {
        let mut index = Index::default();
        index.apply(&[change(1, "/baremetal/global/config", Some(json!({"highMarkPercent": 90})))]);
        index.apply(&[change(2, "/baremetal/global/config", Some(json!({"highMarkPercent": 900})))]);
        assert_eq!(index.global.config.high_mark_percent, Some(90));
        assert!(index.global.problem.as_deref().is_some_and(|why| why.contains("20 to 100")));
        let never = json!({"deadlines": {"callTimeout": "0s"}, "maxStartsPerSecond": "x"});
        index.apply(&[change(3, "/baremetal/global/config", Some(never))]);
        assert_eq!(index.global.config.deadlines.call, None);
        let why = index.global.problem.clone().unwrap_or_default();
        assert!(why.contains("deadlines.callTimeout") && why.contains("maxStartsPerSecond"), "{why}");
        index.apply(&[change(4, "/baremetal/global/config", None)]);
        assert_eq!((index.global.config.high_mark_percent, &index.global.problem), (None, &None));
    }
}
