//! The inventory in memory: what the store holds about hosts, kept in step by a watch.
//!
//! A record that cannot be read is set aside with its fault and is never fatal. What this process wrote
//! itself is entered at once, so that the watch's echo changes nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use muster_engine::{is_pool_in_trouble, lifecycle::HostState};
use muster_model::{
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, ConditionType, Draw, FreezeMode, GlobalConfig, HostMetrics,
        HostOp, Intent, OpKind, Phase, PoolHostConfig, State, is_true,
        keys::{self, HostRecord, Key, PoolRecord},
    },
    store::{Change, Entry, Expect, Revision},
};

/// What is stored about one host.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub spec: Option<Arc<BareMetalNodeSpec>>,
    pub intent: Option<Arc<Intent>>,
    pub op: Option<Arc<HostOp>>,
    pub status: Option<Arc<BareMetalNodeStatus>>,
    pub metrics: Option<Arc<HostMetrics>>,
    /// Why its spec cannot be used; the last good one stays in force.
    pub fault: Option<Arc<str>>,
    /// The commit that last wrote or deleted each record, in the order of [`HostRecord::ALL`].
    seen: [Revision; 6],
    present: [bool; 6],
    load: Load,
}

const fn place(record: HostRecord) -> usize {
    match record {
        HostRecord::Spec => 0,
        HostRecord::Intent => 1,
        HostRecord::Op => 2,
        HostRecord::Status => 3,
        HostRecord::Metrics => 4,
        HostRecord::Events => 5,
    }
}

impl Record {
    /// What a transaction must find at a record's key to build on what is known here.
    pub fn expect(&self, record: HostRecord) -> Expect {
        let place = place(record);
        if self.present[place] { Expect::Modified(self.seen[place]) } else { Expect::Absent }
    }

    /// The spec's revision, which is the host's resource version and counts its generations.
    pub fn generation(&self) -> u64 {
        self.seen[0].0
    }

    /// The state to step from, once the host is enrolled.
    pub fn state(&self, name: &str) -> Option<HostState> {
        let status = self.status.as_deref()?.clone();
        Some(HostState { name: name.to_owned(), status, op: self.op.as_deref().cloned() })
    }

    fn is_gone(&self) -> bool {
        self.present.iter().all(|present| !present)
    }
}

/// What a host takes of what is limited across hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Load {
    pool: Option<Arc<str>>,
    rack: Option<Arc<str>>,
    zone: Option<Arc<str>>,
    /// A power operation is under way.
    switching: bool,
    /// On its way up.
    rising: bool,
    /// Draws power, or is about to.
    drawing: bool,
    ready: bool,
    max_watts: Option<u32>,
}

/// Where a host stands, by its own record: what its rack says of a zone is not here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Spot {
    pub rack: Option<Arc<str>>,
    pub zone: Option<Arc<str>>,
}

/// Sums over the hosts of one rack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RackLoad {
    pub switching: u32,
    pub rising: u32,
    pub watts: u64,
    /// Hosts that draw power and do not say how much.
    pub unmetered: u32,
}

/// What a change in the store was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// Something that another writer says about this host.
    Host(Arc<str>),
    /// A setting that may hold for every host of the pool, or for all.
    Pool(String),
    All,
    Nothing,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Book {
    pub hosts: BTreeMap<Arc<str>, Record>,
    /// What stands in the inventory for each pool, as far as it could be used. What is in force is [`Around::pool_says`]'s.
    ///
    /// [`Around::pool_says`]: super::Around::pool_says
    pub pools: BTreeMap<String, PoolHostConfig>,
    pub global: GlobalConfig,
    pub revision: Revision,
    switching: u32,
    racks: HashMap<Arc<str>, RackLoad>,
    pool_up: HashMap<Arc<str>, u32>,
    /// Ready hosts by pool and by where they stand.
    spread: HashMap<Arc<str>, HashMap<Spot, u32>>,
}

impl Book {
    /// Takes a change over.
    pub fn apply(&mut self, change: &Change) -> Touched {
        self.revision = self.revision.max(change.revision);
        match keys::parse(&change.key) {
            Some(Key::Host { host, record }) => self.apply_host(host, record, change),
            Some(Key::Pool { pool, record: PoolRecord::Config }) => {
                match change.entry.as_ref().map(|entry| PoolHostConfig::parse(&entry.value)) {
                    None => drop(self.pools.remove(pool)),
                    Some(Ok(config)) => drop(self.pools.insert(pool.to_owned(), config)),
                    Some(Err(error)) => {
                        tracing::warn!(pool, %error, "a pool's settings cannot be read; the last ones stay");
                    }
                }
                Touched::Pool(pool.to_owned())
            }
            Some(Key::GlobalConfig) => {
                self.apply_global(change.entry.as_ref());
                Touched::All
            }
            Some(Key::Pool { record: PoolRecord::Members, .. } | Key::GlobalStats) | None => Touched::Nothing,
        }
    }

    fn apply_global(&mut self, entry: Option<&Entry>) {
        let Some(entry) = entry else {
            self.global = GlobalConfig::default();
            return;
        };
        match GlobalConfig::parse(&entry.value) {
            Ok(config) => self.global = config,
            Err(faults) => {
                tracing::warn!(%faults, "the global settings cannot be used; the last ones stay");
                let told = GlobalConfig::freeze_of(&entry.value).freeze;
                // Stopping everything must work whatever else is wrong. That it is over, only a record says that is JSON of the
                // right form, though some rule may be broken.
                if told != FreezeMode::None || serde_json::from_slice::<GlobalConfig>(&entry.value).is_ok() {
                    self.global.freeze = told;
                }
            }
        }
    }

    fn apply_host(&mut self, host: &str, record: HostRecord, change: &Change) -> Touched {
        let name = match self.hosts.get_key_value(host) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(host),
        };
        let mut one = self.hosts.get(&name).cloned().unwrap_or_default();
        let place = place(record);
        let modified = change.entry.as_ref().map_or(change.revision, |entry| entry.modified);
        if modified <= one.seen[place] {
            return Touched::Nothing; // our own write, or one that was listed already
        }
        one.seen[place] = modified;
        one.present[place] = change.entry.is_some();
        let value = change.entry.as_ref().map(|entry| &entry.value[..]);
        let told = read_record(&mut one, &name, record, value);
        self.set(&name, one);
        if told { Touched::Host(name) } else { Touched::Nothing }
    }

    /// Enters what this process has just stored at `revision`.
    pub fn stored(&mut self, name: &Arc<str>, revision: Revision, written: &[(HostRecord, Written)]) {
        let Some(mut one) = self.hosts.get(name).cloned() else { return };
        for (record, value) in written {
            let place = place(*record);
            if revision <= one.seen[place] {
                continue;
            }
            one.seen[place] = revision;
            one.present[place] = !matches!(value, Written::Deleted);
            match value {
                Written::Status(status) => one.status = Some(Arc::clone(status)),
                Written::Op(op) => one.op = Some(Arc::clone(op)),
                Written::Metrics(metrics) => one.metrics = Some(Arc::clone(metrics)),
                Written::Other => {}
                Written::Deleted => match record {
                    HostRecord::Spec => one.spec = None,
                    HostRecord::Intent => one.intent = None,
                    HostRecord::Op => one.op = None,
                    HostRecord::Status => one.status = None,
                    HostRecord::Metrics => one.metrics = None,
                    HostRecord::Events => {}
                },
            }
        }
        self.revision = self.revision.max(revision);
        self.set(name, one);
    }

    /// Shows a host's metrics before they are stored.
    pub fn note_metrics(&mut self, name: &str, metrics: &Arc<HostMetrics>) {
        if let Some(one) = self.hosts.get_mut(name) {
            one.metrics = Some(Arc::clone(metrics));
        }
    }

    /// Replaces a record and keeps the sums right.
    fn set(&mut self, name: &Arc<str>, mut one: Record) {
        let before = self.hosts.get(name).map(|old| old.load.clone()).unwrap_or_default();
        one.load = load(&one);
        if before != one.load {
            self.count(&before, false);
            self.count(&one.load.clone(), true);
        }
        if one.is_gone() {
            self.hosts.remove(name);
        } else {
            self.hosts.insert(Arc::clone(name), one);
        }
    }

    fn count(&mut self, load: &Load, add: bool) {
        let change = |sum: &mut u32, counts: bool| {
            if counts {
                *sum = if add { sum.saturating_add(1) } else { sum.saturating_sub(1) };
            }
        };
        change(&mut self.switching, load.switching);
        if let Some(rack) = &load.rack {
            let sums = self.racks.entry(Arc::clone(rack)).or_default();
            change(&mut sums.switching, load.switching);
            change(&mut sums.rising, load.rising);
            change(&mut sums.unmetered, load.drawing && load.max_watts.is_none());
            let watts = u64::from(load.max_watts.filter(|_| load.drawing).unwrap_or(0));
            sums.watts = if add { sums.watts + watts } else { sums.watts.saturating_sub(watts) };
        }
        if let Some(pool) = &load.pool {
            change(self.pool_up.entry(Arc::clone(pool)).or_default(), load.ready || load.rising);
            let spot = Spot { rack: load.rack.clone(), zone: load.zone.clone() };
            let ready = self.spread.entry(Arc::clone(pool)).or_default();
            change(ready.entry(spot).or_default(), load.ready);
        }
    }

    /// Power operations under way, in all.
    pub const fn switching(&self) -> u32 {
        self.switching
    }

    pub fn rack_load(&self, rack: &str) -> RackLoad {
        self.racks.get(rack).copied().unwrap_or_default()
    }

    /// What a host itself takes of its rack's watts already.
    pub fn taken_by(&self, host: &str) -> u64 {
        let load = self.hosts.get(host).map(|record| &record.load).filter(|load| load.drawing);
        load.and_then(|load| load.max_watts).map_or(0, u64::from)
    }

    /// Hosts of a pool that serve or are about to.
    pub fn pool_up(&self, pool: &str) -> u32 {
        self.pool_up.get(pool).copied().unwrap_or_default()
    }

    /// Why a host whose node is lost is neither cycled nor switched off: so much of its pool is lost that it is not this host
    /// that needs repair.
    pub fn repairs_stopped(&self, host: &str, pool: &str) -> Option<String> {
        if !self.hosts.get(host).is_some_and(is_lost) {
            return None;
        }
        let (mut lost, mut total) = (0_u32, 0_u32);
        for record in
            self.hosts.values().filter(|record| record.spec.as_ref().is_some_and(|s| s.pool == pool))
        {
            let phase = record.status.as_ref().map(|status| status.phase);
            if is_lost(record) {
                (lost, total) = (lost + 1, total + 1);
            } else if matches!(phase, Some(Phase::Serving | Phase::Degraded)) {
                total += 1;
            }
        }
        is_pool_in_trouble(lost, total).then(|| format!("{lost} of {total} hosts of pool {pool} are lost"))
    }

    /// Hosts of a pool that serve and stand where `there` says.
    pub fn ready_where(&self, pool: &str, there: impl Fn(&Spot) -> bool) -> u32 {
        let spots = self.spread.get(pool).into_iter().flatten();
        spots.filter(|(spot, _)| there(spot)).map(|(_, ready)| *ready).sum()
    }
}

/// Whether its node is lost, be it that it was given up for that and nobody knows yet what became of it. One that is set aside
/// has failed by itself and says nothing of the others.
fn is_lost(record: &Record) -> bool {
    let Some(status) = &record.status else { return false };
    match status.phase {
        Phase::Lost => true,
        Phase::Serving | Phase::Degraded | Phase::Backoff | Phase::Stopping | Phase::ForcingOff => {
            is_true(&status.conditions, ConditionType::NodeLost)
        }
        Phase::Enrolling
        | Phase::Idle
        | Phase::Reserved
        | Phase::PreparingBoot
        | Phase::PowerRequested
        | Phase::Powered
        | Phase::Booting
        | Phase::Joining
        | Phase::Cordoned
        | Phase::Evicting
        | Phase::Drained
        | Phase::ConfirmingOff
        | Phase::Quarantined => false,
    }
}

/// What was written, for [`Book::stored`].
#[derive(Debug, Clone)]
pub enum Written {
    Status(Arc<BareMetalNodeStatus>),
    Op(Arc<HostOp>),
    Metrics(Arc<HostMetrics>),
    Other,
    Deleted,
}

/// Reads a record's new value; says whether a turn should look at it.
fn read_record(one: &mut Record, name: &str, record: HostRecord, value: Option<&[u8]>) -> bool {
    fn json<T: serde::de::DeserializeOwned>(name: &str, record: HostRecord, value: &[u8]) -> Option<Arc<T>> {
        match serde_json::from_slice(value) {
            Ok(read) => Some(Arc::new(read)),
            Err(error) => {
                let record = record.as_str();
                tracing::warn!(host = name, record, %error, "a record cannot be read and counts as absent");
                None
            }
        }
    }
    match record {
        HostRecord::Spec => {
            match value.map(BareMetalNodeSpec::parse) {
                None => (one.spec, one.fault) = (None, None),
                Some(Ok(parsed)) => (one.spec, one.fault) = (Some(Arc::new(parsed.value)), None),
                Some(Err(faults)) => {
                    tracing::warn!(host = name, %faults, "a host's spec is set aside");
                    one.fault = Some(faults.to_string().into());
                }
            }
            true
        }
        HostRecord::Intent => {
            one.intent = value.and_then(|value| json(name, record, value));
            true
        }
        HostRecord::Op => {
            one.op = value.and_then(|value| json(name, record, value));
            true
        }
        HostRecord::Status => {
            one.status = value.and_then(|value| json(name, record, value));
            true
        }
        HostRecord::Metrics => {
            one.metrics = value.and_then(|value| json(name, record, value));
            false
        }
        HostRecord::Events => false,
    }
}

fn load(one: &Record) -> Load {
    let Some(spec) = &one.spec else { return Load::default() };
    // A machine of which nobody knows that it is off may draw what it can.
    let draws = Draw::of(spec.admin, one.status.as_deref()).counts();
    let (pool, rack) = (Some(Arc::from(spec.pool.as_str())), spec.rack.as_deref().map(Arc::from));
    let Some(status) = &one.status else {
        return Load { pool, rack, drawing: draws, max_watts: spec.max_watts, ..Load::default() };
    };
    let kind = one.op.as_ref().map(|op| op.kind);
    let switching = match status.phase {
        Phase::Reserved
        | Phase::PreparingBoot
        | Phase::PowerRequested
        | Phase::Stopping
        | Phase::ForcingOff => true,
        Phase::Quarantined => kind == Some(OpKind::SelfTest),
        Phase::Lost => kind == Some(OpKind::Cycle),
        Phase::Enrolling
        | Phase::Idle
        | Phase::Powered
        | Phase::Booting
        | Phase::Joining
        | Phase::Serving
        | Phase::Degraded
        | Phase::Cordoned
        | Phase::Evicting
        | Phase::Drained
        | Phase::ConfirmingOff
        | Phase::Backoff => false,
    };
    let rising = status.state == State::PoweringOn
        || status.phase == Phase::Reserved
        || (status.phase == Phase::Quarantined && kind == Some(OpKind::SelfTest));
    Load {
        pool,
        rack,
        zone: spec.zone.as_deref().map(Arc::from),
        switching,
        rising,
        drawing: rising || draws,
        // One that is on without a place in its pool is no part of the pool.
        ready: matches!(status.phase, Phase::Serving | Phase::Degraded)
            && !is_true(&status.conditions, ConditionType::Surplus),
        max_watts: spec.max_watts,
    }
}

#[cfg(test)]
mod tests {
    use muster_model::{Timestamp, host::PowerInterface};

    use super::*;

    fn change(revision: u64, key: &str, value: Option<Vec<u8>>) -> Change {
        let revision = Revision(revision);
        let entry = value.map(|value| Entry {
            key: key.into(),
            value: value.into(),
            created: revision,
            modified: revision,
        });
        Change { revision, key: key.into(), entry }
    }

    fn spec_of(rack: &str) -> Vec<u8> {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.mgmt_address = Some("10.0.0.5".parse().unwrap());
        spec.bmc_credentials = Some("a".into());
        spec.rack = Some(rack.into());
        spec.max_watts = Some(400);
        serde_json::to_vec(&spec).unwrap()
    }

    fn status_of(phase: Phase) -> Vec<u8> {
        let mut status = BareMetalNodeStatus::enrolling(Timestamp::EPOCH);
        (status.phase, status.state) = (phase, phase.state());
        status.off_proved_at = (phase == Phase::Idle).then_some(Timestamp::EPOCH);
        serde_json::to_vec(&status).unwrap()
    }

    #[test]
    fn sums_follow_every_change_and_come_back_to_zero() {
        let mut book = Book::default();
        let spec = keys::host("h1", HostRecord::Spec);
        let status = keys::host("h1", HostRecord::Status);
        assert_eq!(book.apply(&change(1, &spec, Some(spec_of("r1")))), Touched::Host("h1".into()));
        let _ = book.apply(&change(2, &status, Some(status_of(Phase::PowerRequested))));
        let load = RackLoad { switching: 1, rising: 1, watts: 400, unmetered: 0 };
        assert_eq!((book.switching(), book.rack_load("r1")), (1, load));
        assert_eq!(book.pool_up("gpu"), 1);
        let _ = book.apply(&change(3, &status, Some(status_of(Phase::Serving))));
        let load = RackLoad { switching: 0, rising: 0, watts: 400, unmetered: 0 };
        assert_eq!((book.switching(), book.rack_load("r1")), (0, load));
        let in_rack =
            |book: &Book, rack: &str| book.ready_where("gpu", |spot| spot.rack.as_deref() == Some(rack));
        assert_eq!((in_rack(&book, "r1"), in_rack(&book, "r2")), (1, 0));
        let _ = book.apply(&change(4, &spec, Some(spec_of("r2"))));
        assert_eq!((book.rack_load("r1"), book.rack_load("r2").watts), (RackLoad::default(), 400));
        let _ = book.apply(&change(5, &spec, None));
        let _ = book.apply(&change(6, &status, None));
        assert!(book.hosts.is_empty() && book.rack_load("r2") == RackLoad::default());
        assert_eq!(book.pool_up("gpu"), 0);
    }

    /// OPS-R14: where a quarter of a pool is lost, it is not the hosts that need repair.
    #[test]
    fn ops_r14_repairs_stop_when_a_quarter_of_the_pool_is_lost() {
        fn pool(parts: &[(u32, Phase, bool)]) -> Book {
            let mut book = Book::default();
            let hosts = parts.iter().flat_map(|part| (0..part.0).map(move |_| part));
            for (number, (_, phase, node_lost)) in hosts.enumerate() {
                let name = format!("h{number}");
                let mut status: serde_json::Value = serde_json::from_slice(&status_of(*phase)).unwrap();
                if *node_lost {
                    status["conditions"] = serde_json::json!([{"type": "NodeLost", "status": "True",
                        "reason": "NotReady", "message": "", "lastTransitionTime": Timestamp::EPOCH,
                        "observedGeneration": 1}]);
                }
                let status = serde_json::to_vec(&status).unwrap();
                let _ = book.apply(&change(1, &keys::host(&name, HostRecord::Spec), Some(spec_of("r1"))));
                let _ = book.apply(&change(1, &keys::host(&name, HostRecord::Status), Some(status)));
            }
            book
        }
        #[track_caller]
        fn check(lost: u32, serving: u32, idle: u32, stopped: bool) {
            let book = pool(&[
                (lost, Phase::Lost, true),
                (serving, Phase::Serving, false),
                (idle, Phase::Idle, false),
            ]);
            assert_eq!(book.repairs_stopped("h0", "gpu").is_some(), stopped, "{lost} of {}", lost + serving);
        }
        // Those that were given up count on until somebody knows what became of them.
        for phase in [Phase::Serving, Phase::Backoff, Phase::Stopping, Phase::ForcingOff] {
            let book = pool(&[(2, phase, true), (6, Phase::Serving, false)]);
            assert!(book.repairs_stopped("h0", "gpu").is_some(), "{phase}");
            assert_eq!(book.repairs_stopped("h2", "gpu"), None, "it is not lost");
            let book = pool(&[(2, phase, false), (6, Phase::Serving, false)]);
            assert_eq!(book.repairs_stopped("h0", "gpu"), None, "{phase} for another reason");
        }
        let mixed = pool(&[(1, Phase::Lost, true), (1, Phase::Backoff, true), (6, Phase::Serving, false)]);
        assert!(mixed.repairs_stopped("h0", "gpu").is_some() && mixed.repairs_stopped("h1", "gpu").is_some());
        check(1, 0, 0, false); // one host is a host
        check(1, 3, 0, false);
        check(2, 6, 0, true); // a quarter
        check(2, 7, 0, false);
        check(2, 6, 50, true); // those that are off say nothing
        check(0, 8, 0, false);
    }

    #[test]
    fn an_echo_changes_nothing_and_a_bad_spec_is_set_aside() {
        let mut book = Book::default();
        let spec = keys::host("h1", HostRecord::Spec);
        let first = change(7, &spec, Some(spec_of("r1")));
        let _ = book.apply(&first);
        assert_eq!(book.apply(&first), Touched::Nothing);
        let _ = book.apply(&change(8, &spec, Some(b"{\"pol\":1}".to_vec())));
        let record = &book.hosts["h1"];
        assert!(record.fault.is_some() && record.spec.is_some(), "the last good spec stays");
        assert_eq!(record.expect(HostRecord::Spec), Expect::Modified(Revision(8)));
        assert_eq!(record.expect(HostRecord::Op), Expect::Absent);
    }

    #[test]
    fn settings_that_break_a_rule_leave_the_last_ones_but_a_freeze_holds() {
        let mut book = Book::default();
        let good = br#"{"maxPowerOperations": 3}"#.to_vec();
        assert_eq!(book.apply(&change(1, keys::GLOBAL_CONFIG, Some(good))), Touched::All);
        let bad = br#"{"maxPowerOperations": 0, "freeze": "frozen"}"#.to_vec();
        let _ = book.apply(&change(2, keys::GLOBAL_CONFIG, Some(bad)));
        assert_eq!(book.global.max_power_operations, 3);
        assert_eq!(book.global.freeze, FreezeMode::Frozen);
        let _ = book.apply(&change(3, keys::GLOBAL_CONFIG, Some(br#"{"freeze": "none"}"#.to_vec())));
        assert_eq!(book.global.freeze, FreezeMode::None);
        // A limit that no call could keep to would quarantine every host at once.
        let never = br#"{"maxPowerOperations": 3, "deadlines": {"callTimeout": "0s"}}"#.to_vec();
        let _ = book.apply(&change(4, keys::GLOBAL_CONFIG, Some(never)));
        assert_eq!(book.global.deadlines.call, None);
        let pool = keys::pool("gpu", PoolRecord::Config);
        let _ = book.apply(&change(5, &pool, Some(br#"{"rackSpread": true}"#.to_vec())));
        for bad in [&br#"{"deadlines": {"callTimeout": "0s"}}"#[..], br#"{"policy": {"quarantineAfter": 0}}"#]
        {
            let _ = book.apply(&change(6, &pool, Some(bad.to_vec())));
            assert!(book.pools["gpu"].rack_spread, "the last good ones stay");
        }
        let slip = br#"{"maxPowerOperatoins": 1, "freeze": "frozen"}"#.to_vec();
        let _ = book.apply(&change(7, keys::GLOBAL_CONFIG, Some(slip)));
        assert_eq!(book.global.freeze, FreezeMode::Frozen);
    }
}
