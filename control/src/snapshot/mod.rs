//! One [`Snapshot`] per cluster: everything that a decision may look at, from everything that is known.
//!
//! [`build`] is a pure function over [`Inputs`]; [`read`] gathers them from the registry and the store, and
//! [`memory`] is what has to survive a restart: since when nodes are unneeded, since when pools are above
//! their marks, when they last changed, and what was asked of those who provision for us.
//!
//! What could not be observed becomes a [`Gap`], which stops removals and nothing else; what a person or a
//! policy forbids becomes a [`Hold`]. Deliberately absent: decisions.

mod hosts;
mod inputs;
mod members;
pub mod memory;
mod pools;
pub mod read;
mod revisions;
mod templates;
#[cfg(test)]
mod tests;
pub(crate) mod wakes;

use std::{collections::BTreeSet, sync::Arc};

use muster_engine::{
    Snapshot,
    down::{above_mark, unsettled},
    groups::groups,
    snapshot::{DrainPolicy, Gap, Hold, Limits, PowerLimits, Scope, Stops},
};
use muster_model::{
    Duration, Timestamp,
    cluster::{Drain, Keep},
    host::{FreezeMode, PoolHostConfig},
};

pub use inputs::{HostInput, Inputs, Observed, PoolInput, TriggerInput};
pub use memory::{Asked, Memory};
pub use pools::effective_mode;
pub use revisions::Revisions;
pub use wakes::{Wake, Wakes};

/// Knowledge of the cluster that is older than this no longer removes anything. Watches confirm themselves
/// at least once a minute, so that two in a row were missed.
pub const STALE_AFTER: Duration = Duration::from_mins(2);
/// The gap of a cluster that nobody gave us a connection to.
pub(crate) const NOT_CONNECTED: &str = "no connection to the cluster, so that 0 pods are seen";
/// That an API server is quick again is no news of any object: it is looked at so often meanwhile.
const SLOW_LOOK: Duration = Duration::from_mins(1);

/// A snapshot, and what had to be left out of it.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Built {
    pub snapshot: Arc<Snapshot>,
    /// Pools that cannot be planned because nobody knows what their nodes are: name and why.
    pub incomplete: Vec<(String, String)>,
    /// Records that could not be read: key or object and why.
    pub set_aside: Vec<(String, String)>,
    /// When the snapshot changes although nothing happens: schedules, holds, delays.
    pub next: Option<Timestamp>,
    /// When what the cluster shows is too old to be trusted, if no later sign of life comes.
    pub stale_at: Option<Timestamp>,
}

/// Builds the snapshot of one cluster.
pub fn build(inputs: &Inputs) -> Built {
    let mut draft = Draft {
        snapshot: Snapshot {
            now: inputs.now,
            drain: drain_policy(inputs.cluster.spec.drain),
            ..Snapshot::default()
        },
        incomplete: Vec::new(),
        set_aside: inputs.set_aside.clone(),
        next: None,
        stale_at: None,
    };
    observed(inputs, &mut draft);
    pools::add(inputs, &mut draft);
    hosts::add(inputs, &mut draft);
    members::add(inputs, &mut draft);
    wakes::add(inputs, &mut draft);
    freeze(inputs, &mut draft);
    limits(inputs, &mut draft);
    unreadable(inputs, &mut draft);
    marks(inputs, &mut draft);
    spread(inputs, &mut draft);
    let Draft { snapshot, incomplete, set_aside, next, stale_at } = draft;
    Built { snapshot: Arc::new(snapshot), incomplete, set_aside, next, stale_at }
}

/// Which pods keep their nodes, as the cluster says.
pub fn drain_policy(said: Option<Drain>) -> DrainPolicy {
    let (said, usual) = (said.unwrap_or_default(), DrainPolicy::default());
    let keeps = |word: Option<Keep>, usual: bool| word.map_or(usual, |word| word == Keep::Keep);
    DrainPolicy {
        keep_unreplicated: keeps(said.bare_pods, usual.keep_unreplicated),
        keep_local_storage: keeps(said.local_storage, usual.keep_local_storage),
        keep_system: keeps(said.system_pods, usual.keep_system),
        min_replicas: said.min_replicas.unwrap_or(usual.min_replicas),
    }
}

/// A snapshot under construction.
#[derive(Debug)]
struct Draft {
    snapshot: Snapshot,
    incomplete: Vec<(String, String)>,
    set_aside: Vec<(String, String)>,
    next: Option<Timestamp>,
    stale_at: Option<Timestamp>,
}

impl Draft {
    fn gap(&mut self, scope: Scope, why: impl Into<Box<str>>) {
        self.snapshot.gaps.push(Gap { scope, why: why.into() });
    }

    fn hold(&mut self, scope: Scope, stops: Stops, why: impl Into<Box<str>>, until: Option<Timestamp>) {
        if until.is_some_and(|until| until <= self.snapshot.now) {
            return;
        }
        self.wake_at(until);
        self.snapshot.holds.push(Hold { scope, stops, why: why.into(), until });
    }

    /// Something changes by itself then.
    fn wake_at(&mut self, at: Option<Timestamp>) {
        let later = at.filter(|at| *at > self.snapshot.now);
        self.next = [self.next, later].into_iter().flatten().min();
    }
}

/// What the cluster shows, and how far it can be trusted.
fn observed(inputs: &Inputs, draft: &mut Draft) {
    match &inputs.observed {
        Observed::NotConnected => {
            draft.gap(Scope::Everything, NOT_CONNECTED);
        }
        Observed::View(view) => {
            draft.snapshot.cluster = (*view.objects).clone();
            draft.snapshot.groups = groups(&draft.snapshot.cluster);
            let age = inputs.now.since(view.fresh_at);
            if age > STALE_AFTER && !muster_model::planted::is("F3") {
                draft.gap(
                    Scope::Everything,
                    format!("the view of the cluster is {age} old, at most {STALE_AFTER} is trusted"),
                );
            } else {
                draft.stale_at = Some(view.fresh_at.saturating_add(STALE_AFTER));
            }
            let old = || inputs.memory.revisions.as_ref().and_then(|seen| seen.older(view));
            if let Some(why) = view.doubt().or_else(old).filter(|_| !muster_model::planted::is("F2")) {
                draft.gap(Scope::Everything, why);
            }
            if view.slow.is_some() {
                draft.wake_at(Some(inputs.now.saturating_add(SLOW_LOOK)));
            }
            for (node, why) in view.guards() {
                draft.hold(Scope::Node(Arc::clone(node)), Stops::Removal, &**why, None);
            }
            // A pod whose node is known casts doubt on that node alone.
            let (bound, loose): (Vec<_>, Vec<_>) = view.set_aside.iter().partition(|one| one.node.is_some());
            for one in &bound {
                let scope = Scope::Node(one.node.as_deref().unwrap_or_default().into());
                draft.gap(scope, format!("1 {} there cannot be read: {}", one.kind, one.name));
            }
            if let Some(first) = loose.first() {
                let many = loose.len();
                draft.gap(
                    Scope::Everything,
                    format!("{many} objects cannot be read, the first is {} {}", first.kind, first.name),
                );
            }
            if !view.set_aside.is_empty() {
                draft.set_aside.extend(view.set_aside.iter().map(|one| {
                    let place = if one.namespace.is_empty() { "" } else { "/" };
                    (format!("{} {}{place}{}", one.kind, one.namespace, one.name), one.why.clone())
                }));
            }
        }
    }
}

/// People stop everything, or a store that was restored from something older than the world. While everything is
/// to be on, hosts are woken by their own loop; nothing else is decided meanwhile.
fn freeze(inputs: &Inputs, draft: &mut Draft) {
    let freeze = &inputs.freeze;
    let why = match freeze.mode {
        FreezeMode::None => return,
        FreezeMode::Frozen => format!("frozen: {}", freeze.reason),
        FreezeMode::AllOn => format!("everything is to be on: {}", freeze.reason),
    };
    draft.hold(Scope::Everything, Stops::Both, why, None);
}

fn limits(inputs: &Inputs, draft: &mut Draft) {
    let global = &inputs.global;
    let mut limits = Limits {
        power: PowerLimits { waking: Some(global.max_power_operations), ..PowerLimits::default() },
        max_removals: Some(global.max_power_operations),
        caution: match &inputs.observed {
            Observed::View(view) => view.slow.as_deref().map(Into::into),
            Observed::NotConnected => None,
        },
        ..Limits::default()
    };
    let mut racks: std::collections::BTreeSet<&str> =
        inputs.hosts.iter().filter_map(|host| host.spec.as_ref().ok()?.rack.as_deref()).collect();
    racks.extend(inputs.racks.iter().map(|rack| rack.name.as_str()));
    for name in racks {
        let rack = inputs.racks.iter().find(|rack| rack.name == name);
        let most = global.max_power_operations_per_rack;
        let power = PowerLimits {
            milliwatts: rack.and_then(|rack| rack.watt_cap).map(|watts| i64::from(watts) * 1000),
            inrush_milliwatts: None,
            waking: Some(rack.map_or(most, |rack| rack.start_limit.min(most))),
            leaving: Some(most),
        };
        limits.racks.insert(name.into(), power);
    }
    draft.snapshot.limits = limits;
}

/// Records that could not be read stop removals where they might matter.
fn unreadable(inputs: &Inputs, draft: &mut Draft) {
    if let Some(fault) = &inputs.global_fault {
        draft.gap(Scope::Everything, format!("/baremetal/global/config cannot be used: {fault}"));
        draft.set_aside.push(("/baremetal/global/config".to_owned(), fault.clone()));
    }
    for (pool, fault) in &inputs.unreadable_pools {
        draft.gap(Scope::Everything, format!("pool {pool} cannot be read: {fault}"));
        draft.set_aside.push((format!("pool {pool}"), fault.clone()));
    }
}

/// Since when pools have been above their high marks: remembered, or from now on. And until when triggers wait.
fn marks(inputs: &Inputs, draft: &mut Draft) {
    let mut high = Vec::new();
    for (at, pool) in draft.snapshot.pools.iter().enumerate() {
        if pool.fixed.is_none() && above_mark(&draft.snapshot, pool).is_some() {
            let since = inputs.memory.high_since.get(&*pool.name).copied().unwrap_or(inputs.now);
            high.push((at, since.min(inputs.now)));
        }
    }
    let unsettled = draft.snapshot.pools.iter().filter_map(|pool| unsettled(&draft.snapshot, pool));
    let next = unsettled.map(|wait| wait.until).min();
    draft.wake_at(next);
    for (at, since) in high {
        let demand = &mut draft.snapshot.pools[at].demand;
        demand.high_since = Some(since);
        let until = since.saturating_add(demand.scale_up_delay);
        draft.wake_at(Some(until));
    }
}

/// A pool that spreads over racks or zones keeps a node in every one of them that has one.
fn spread(inputs: &Inputs, draft: &mut Draft) {
    let snapshot = &mut draft.snapshot;
    for input in &inputs.pools {
        let PoolHostConfig { rack_spread, zone_spread, .. } = input.host_config;
        let serving = snapshot.members.values().filter(|member| *member.pool == *input.name());
        let names: BTreeSet<&str> = serving.filter_map(|member| member.host.as_deref()).collect();
        let hosts = || snapshot.hosts.iter().filter(|host| names.contains(&*host.name));
        let racks: BTreeSet<&str> =
            hosts().filter(|_| rack_spread).filter_map(|host| host.rack.as_deref()).collect();
        let zones: BTreeSet<&str> =
            hosts().filter(|_| zone_spread).filter_map(|host| host.zone.as_deref()).collect();
        let number = |places: BTreeSet<&str>| u32::try_from(places.len()).unwrap_or(u32::MAX);
        let (racks, zones) = (number(racks), number(zones));
        if let Some(pool) = snapshot.pools.iter_mut().find(|pool| *pool.name == *input.name()) {
            (pool.keep_racks, pool.keep_zones) = (racks, zones);
        }
    }
}
