//! What people set: bounds, policies and holds. How they differ, and one moment under the rules of another.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::{
    Snapshot,
    explain::{price, watts},
    snapshot::{Hold, Pool, PowerLimits, Scope, Stops},
};
use muster_model::k8s::ResourceList;

use super::{Change, Subject};

/// A field of something, in words: its name, and what it says.
type Field<T> = (&'static str, fn(&T) -> String);

const POOL: [Field<Pool>; 19] = [
    ("minimum", |pool| pool.min.to_string()),
    ("maximum", |pool| pool.max.to_string()),
    ("fixed size", |pool| maybe(pool.fixed)),
    ("mode", |pool| format!("{:?}", pool.mode).to_lowercase()),
    ("priority", |pool| pool.priority.to_string()),
    ("preference", |pool| format!("{:?}", pool.preference).to_lowercase()),
    ("bound on resources", |pool| resources(&pool.limits)),
    ("most new nodes at once", |pool| maybe(pool.max_new)),
    ("headroom", |pool| resources(&pool.headroom)),
    ("spare nodes", |pool| pool.spare.nodes.to_string()),
    ("spare pods", |pool| pool.spare.pods.to_string()),
    ("shape of spare pods", |pool| resources(&pool.spare.shape)),
    ("racks it stays in", |pool| pool.keep_racks.to_string()),
    ("zones it stays in", |pool| pool.keep_zones.to_string()),
    ("high mark of cpu", |pool| percent(pool.demand.target_cpu_percent)),
    ("high mark of memory", |pool| percent(pool.demand.target_memory_percent)),
    ("low mark", |pool| percent(pool.demand.scale_down_percent)),
    ("delay before it shrinks", |pool| pool.demand.scale_down_delay.to_string()),
    ("delay before it grows", |pool| pool.demand.scale_up_delay.to_string()),
];

const LIMITS: [Field<Snapshot>; 9] = [
    ("most nodes of the cluster", |snapshot| maybe(snapshot.limits.max_nodes)),
    ("most new nodes in one plan", |snapshot| maybe(snapshot.limits.max_new)),
    ("most nodes going at one time", |snapshot| maybe(snapshot.limits.max_removals)),
    ("bound on the price", |snapshot| {
        snapshot.limits.price.map_or_else(none, |micros| format!("{} an hour", price(micros)))
    }),
    ("bound on resources of the cluster", |snapshot| resources(&snapshot.limits.resources)),
    ("pods without a controller stay", |snapshot| yes(snapshot.drain.keep_unreplicated)),
    ("pods with scratch space stay", |snapshot| yes(snapshot.drain.keep_local_storage)),
    ("system pods without a budget stay", |snapshot| yes(snapshot.drain.keep_system)),
    ("replicas below which pods stay", |snapshot| snapshot.drain.min_replicas.to_string()),
];

const POWER: [Field<PowerLimits>; 4] = [
    ("power", |limits| limits.milliwatts.map_or_else(none, watts)),
    ("inrush", |limits| limits.inrush_milliwatts.map_or_else(none, watts)),
    ("starts at one time", |limits| maybe(limits.waking)),
    ("hosts going at one time", |limits| maybe(limits.leaving)),
];

pub(super) fn none() -> String {
    "none".to_owned()
}

fn maybe(number: Option<u32>) -> String {
    number.map_or_else(none, |number| number.to_string())
}

fn percent(number: Option<u32>) -> String {
    number.map_or_else(none, |number| format!("{number} %"))
}

pub(super) fn yes(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

/// `4 cpu, 16Gi memory`.
pub(super) fn resources(list: &ResourceList) -> String {
    if list.is_empty() {
        return none();
    }
    list.iter().map(|(name, amount)| format!("{amount} {name}")).collect::<Vec<_>>().join(", ")
}

/// Everything that people set, and that is not the same.
pub(super) fn differences(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let mut all = pools(from, to);
    for (name, say) in LIMITS {
        let (was, is) = (say(from), say(to));
        if was != is {
            all.push(Change::new(Subject::Limits, name, was, is).rule());
        }
    }
    power("of all hosts", &from.limits.power, &to.limits.power, &mut all);
    let racks: BTreeSet<_> = from.limits.racks.keys().chain(to.limits.racks.keys()).collect();
    let nothing = PowerLimits::default();
    for rack in racks {
        let of = |snapshot: &'_ Snapshot| snapshot.limits.racks.get(rack).unwrap_or(&nothing).clone();
        power(&format!("of rack {rack}"), &of(from), &of(to), &mut all);
    }
    all.extend(holds(from, to));
    all
}

fn power(whose: &str, from: &PowerLimits, to: &PowerLimits, all: &mut Vec<Change>) {
    for (name, say) in POWER {
        let (was, is) = (say(from), say(to));
        if was != is {
            all.push(Change::new(Subject::Limits, format!("bound on {name} {whose}"), was, is).rule());
        }
    }
}

fn pools(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let mut all = Vec::new();
    for pool in &to.pools {
        let Some(was) = from.pool(&pool.name) else {
            all.push(Change::new(Subject::Pools, "pool", "none", "there").of(&pool.name).rule());
            continue;
        };
        for (name, say) in POOL {
            if say(was) != say(pool) {
                let change = Change::new(Subject::Pools, name, say(was), say(pool));
                all.push(change.of(&pool.name).rule());
            }
        }
    }
    for gone in from.pools.iter().filter(|pool| to.pool(&pool.name).is_none()) {
        all.push(Change::new(Subject::Pools, "pool", "there", "none").of(&gone.name).rule());
    }
    all
}

/// What a hold or a gap is about: `everything`, `pool web`, `host web-3`.
pub(super) fn scope(scope: &Scope) -> String {
    match scope {
        Scope::Everything => "everything".to_owned(),
        Scope::Pool(name) => format!("pool {name}"),
        Scope::Node(name) => format!("node {name}"),
        Scope::Host(name) => format!("host {name}"),
    }
}

fn holds(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let words = |hold: &Hold| {
        let stops = match hold.stops {
            Stops::Growth => "no growth",
            Stops::Removal => "no removal",
            Stops::Both => "no change",
        };
        format!("{stops}: {}", hold.why)
    };
    let by_scope = |snapshot: &Snapshot| {
        let mut all: BTreeMap<Scope, Vec<String>> = BTreeMap::new();
        for hold in snapshot.holds.iter().filter(|hold| hold.is_active(snapshot.now)) {
            all.entry(hold.scope.clone()).or_default().push(words(hold));
        }
        all
    };
    let (old, new) = (by_scope(from), by_scope(to));
    let scopes: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let say = |all: &BTreeMap<Scope, Vec<String>>, which: &Scope| {
        all.get(which).map_or_else(none, |words| words.join("; "))
    };
    let rows = scopes.into_iter().filter_map(|which| {
        let (was, is) = (say(&old, which), say(&new, which));
        (was != is).then(|| {
            let change = Change::new(Subject::Holds, format!("hold on {}", scope(which)), was, is).rule();
            match which {
                Scope::Pool(pool) => change.of(pool),
                _ => change,
            }
        })
    });
    rows.take(super::MOST_ALIKE).collect()
}

/// The world of one snapshot under the rules of another. `None` where their pools are not the same ones: a pool that
/// did not exist has no rules.
pub(super) fn under(world: &Snapshot, rules: &Snapshot) -> Option<Snapshot> {
    let names =
        |snapshot: &Snapshot| snapshot.pools.iter().map(|pool| pool.name.clone()).collect::<BTreeSet<_>>();
    if names(world) != names(rules) {
        return None;
    }
    let mut mixed = world.clone();
    for pool in &mut mixed.pools {
        let rule = rules.pool(&pool.name)?.clone();
        let demand = muster_engine::snapshot::Demand {
            trigger: pool.demand.trigger,
            trigger_settles: pool.demand.trigger_settles,
            high_since: pool.demand.high_since,
            ..rule.demand.clone()
        };
        let templates = std::mem::take(&mut pool.templates);
        *pool = Pool { templates, demand, ..rule };
    }
    mixed.limits = rules.limits.clone();
    mixed.drain = rules.drain;
    mixed.holds.clone_from(&rules.holds);
    Some(mixed)
}
