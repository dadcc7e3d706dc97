//! What has to be remembered between two looks, and across a restart. One record per cluster, at
//! `/muster/planner/{cluster id}`, written by the planner of the leader alone.

use std::collections::BTreeMap;

use muster_engine::{
    Snapshot,
    down::{Blocker, Outcome, Report},
    lifecycle::UNATTENDED,
    snapshot::MemberState,
};
use muster_model::{ClusterId, Duration, Timestamp};
use serde::{Deserialize, Serialize};

pub use super::templates::Learned;
use super::{
    Inputs, Observed, Revisions,
    hosts::DRAIN_GIVEN_UP,
    pools::GREW,
    templates,
    wakes::{self, Wakes},
};

/// How long those who provision for us have to show a node: what other autoscalers wait, too.
pub const PROVISION_DEADLINE: Duration = Duration::from_mins(15);
/// How long a pool whose provisioner stayed silent is not asked again.
pub const SILENCE_REST: Duration = Duration::from_mins(10);
/// Nodes whose clock runs: at about 100 bytes each the record stays well under the store's limit of 1 MiB.
const MOST_UNNEEDED: usize = 5_000;

pub const PLANNERS: &str = "/muster/planner/";

pub fn key(cluster: ClusterId) -> String {
    format!("{PLANNERS}{cluster}")
}

/// Times and wishes of one cluster's planner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Since when nothing but time keeps a node, by its name.
    pub unneeded_since: BTreeMap<String, Timestamp>,
    /// Since when a pool is above its high mark, by its name.
    pub high_since: BTreeMap<String, Timestamp>,
    /// When a pool last grew by our decision.
    pub grown_at: BTreeMap<String, Timestamp>,
    /// When a pool last shrank by our decision.
    pub shrunk_at: BTreeMap<String, Timestamp>,
    /// What was asked of those who provision, by pool.
    pub asked: BTreeMap<String, Asked>,
    /// What nodes looked like, for pools and hosts that do not say it themselves.
    pub learned: BTreeMap<String, Learned>,
    pub learned_hosts: BTreeMap<String, Learned>,
    /// Hosts that were woken for pods and took none yet, by pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wakes: Wakes,
    /// How far the cluster had come, so that a later process knows an old copy when it is shown one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revisions: Option<Revisions>,
}

/// A wish to somebody who provisions nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    pub nodes: u32,
    pub at: Timestamp,
    /// When silence becomes visible.
    pub deadline: Timestamp,
    pub decision: String,
    /// Nodes that are to go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
}

impl Asked {
    /// Until when nothing more is asked, because the last wish was not heard.
    pub(super) fn unavailable_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.deadline.saturating_add(SILENCE_REST);
        (now >= self.deadline && now < until).then_some(until)
    }
}

impl Memory {
    /// Nothing that happened lies in the future. It seems to when a process starts with a clock that was set back: waits
    /// begin again then, where otherwise they would last until the clock has come there.
    #[must_use]
    pub(super) fn not_after(mut self, now: Timestamp) -> Self {
        let happened =
            [&mut self.unneeded_since, &mut self.high_since, &mut self.grown_at, &mut self.shrunk_at];
        for time in happened.into_iter().flat_map(BTreeMap::values_mut) {
            *time = (*time).min(now);
        }
        for asked in self.asked.values_mut() {
            asked.at = asked.at.min(now);
            asked.deadline = asked.deadline.min(now.saturating_add(PROVISION_DEADLINE));
        }
        for wake in self.wakes.values_mut().flatten() {
            wake.at = wake.at.min(now);
        }
        if let Some(revisions) = &mut self.revisions {
            revisions.at = revisions.at.min(now);
            revisions.behind_since = revisions.behind_since.map(|since| since.min(now));
        }
        self
    }

    /// Without the time in which nobody led: it counts toward no wait for a removal. A process that starts with a clock
    /// that was set ahead takes the difference for such a time, so that it ends no wait either.
    #[must_use]
    pub fn without(mut self, unattended: Duration) -> Self {
        if unattended >= UNATTENDED {
            let waits = [&mut self.unneeded_since, &mut self.grown_at];
            for time in waits.into_iter().flat_map(BTreeMap::values_mut) {
                *time = time.saturating_add(unattended);
            }
        }
        self
    }

    /// What is to be remembered after a look: clocks that run on, begin or stop, and what was learned.
    #[must_use]
    pub fn after(&self, inputs: &Inputs, snapshot: &Snapshot, verdicts: &Report) -> Self {
        let mut next = self.clone();
        next.unneeded_since = verdicts
            .verdicts
            .iter()
            .filter(|verdict| verdict.unneeded || goes(&verdict.outcome) || only_rests(&verdict.blockers))
            .take(MOST_UNNEEDED)
            .map(|verdict| {
                let before = self.unneeded_since.get(&*verdict.node).copied();
                (verdict.node.to_string(), before.unwrap_or(inputs.now).min(inputs.now))
            })
            .collect();
        next.high_since = snapshot
            .pools
            .iter()
            .filter_map(|pool| Some((pool.name.to_string(), pool.demand.high_since?)))
            .collect();
        next.learn(inputs, snapshot);
        wakes::forget(&mut next.wakes, inputs, snapshot);
        next.forget(inputs, snapshot);
        next
    }

    /// Takes note of how far the cluster has come: together with whatever else changed since `before`, and every few
    /// minutes in any case.
    pub fn note_revisions(&mut self, before: &Self, observed: &Observed, now: Timestamp) {
        let Observed::View(view) = observed else { return };
        let changed = self != before;
        self.revisions = Revisions::after(self.revisions.take(), view, changed, now);
    }

    fn learn(&mut self, inputs: &Inputs, snapshot: &Snapshot) {
        for node in &snapshot.cluster.nodes {
            let Some(member) = snapshot.members.get(node.name()) else { continue };
            if member.state != MemberState::Ready || !node.status.allocatable.contains("cpu") {
                continue;
            }
            let (map, name) = match &member.host {
                Some(host) => (&mut self.learned_hosts, host),
                None => (&mut self.learned, &member.pool),
            };
            let declared = inputs.hosts.iter().any(|host| {
                Some(host.name.as_str()) == member.host.as_deref()
                    && host.spec.as_ref().is_ok_and(|spec| !spec.resources.cpu.is_zero())
            });
            if declared || map.get(&**name).is_some_and(|known| known.from == node.name()) {
                continue;
            }
            let there =
                |known: &Learned| snapshot.cluster.nodes.iter().any(|other| *other.name() == *known.from);
            if map.get(&**name).is_none_or(|known| !there(known)) {
                map.insert(name.to_string(), templates::learn(node, inputs.now));
            }
        }
    }

    /// Drops what belongs to nothing any more, and wishes that are fulfilled.
    fn forget(&mut self, inputs: &Inputs, snapshot: &Snapshot) {
        if !inputs.unreadable_pools.is_empty() {
            return; // a pool that cannot be read now may be readable again
        }
        let pool = |name: &String| inputs.pool_named(name).is_some();
        self.grown_at.retain(|name, _| pool(name));
        self.shrunk_at.retain(|name, _| pool(name));
        self.learned.retain(|name, _| pool(name));
        self.learned_hosts.retain(|name, _| inputs.hosts.iter().any(|host| host.name == *name));
        self.asked.retain(|name, _| pool(name));
        for asked in self.asked.values_mut() {
            let there = |node: &String| snapshot.cluster.nodes.iter().any(|other| *other.name() == **node);
            asked.leaving.retain(there);
        }
    }
}

/// Nothing but time, the rest of its pool and the pause after a drain keeps the node: its clock runs on.
fn only_rests(blockers: &[Blocker]) -> bool {
    let rests = |blocker: &Blocker| match blocker {
        Blocker::Held { why, .. } => why.starts_with(GREW) || why == DRAIN_GIVEN_UP,
        other => other.is_time(),
    };
    !blockers.is_empty() && blockers.iter().all(rests)
}

fn goes(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Empty | Outcome::Drained | Outcome::Replaced)
}
