//! Figures over time, for charts: what was asked for, what was on, what it drew. Kept in the store, bounded.
//!
//! Two rings of samples. The fine one reaches two hours back, the coarse one a day; a slot is overwritten when its
//! time comes round again, so that the rings never grow:
//!
//! ```text
//! /muster/history/fine/{slot}     every 20 s, 360 slots
//! /muster/history/coarse/{slot}   every 5 min, 288 slots
//! ```
//!
//! A sample has one row for each cluster and one for each inventory pool in a project, so that whoever asks is
//! shown the sum of what they may see. Only the leader writes. What nobody knew stays unknown: it is `null`, not 0.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::{
    Snapshot,
    fit::{Amounts, requests},
};
use muster_model::{
    Clock, ClusterId, Duration, Timestamp,
    host::PublicPower,
    observe::OFF_TAINT,
    store::{Committed, Entry, List, Store, StoreError, Txn},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{inventory::Inventory, lead::Leading, planner::Board};

pub const ROOT: &str = "/muster/history/";
/// Rows of one kind that a sample holds at most: with 200 bytes each it stays far below what a value may have.
const MOST_ROWS: usize = 1_000;
/// How often it is looked whether a sample is due.
const TICK: Duration = Duration::from_secs(5);

/// One ring.
#[derive(Debug, Clone, Copy)]
struct Ring {
    name: &'static str,
    every: Duration,
    slots: u64,
}

const RINGS: [Ring; 2] = [
    Ring { name: "fine", every: Duration::from_secs(20), slots: 360 },
    Ring { name: "coarse", every: Duration::from_mins(5), slots: 288 },
];
/// What the coarse ring reaches back.
pub const LONGEST: Duration = Duration::from_hours(24);

impl Ring {
    fn number(self, at: Timestamp) -> u64 {
        u64::try_from(at.millis()).unwrap_or(0) / self.every.millis()
    }

    fn key(self, at: Timestamp) -> String {
        format!("{ROOT}{}/{:03}", self.name, self.number(at) % self.slots)
    }
}

/// The figures of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolRow>,
    /// Rows that did not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// One cluster. `None` while nobody sees its pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRow {
    pub id: ClusterId,
    pub project: String,
    /// What all pods request that run or wait, in thousandths of a core.
    pub demand_milli: Option<i64>,
    /// Ready nodes that are not hosts of the inventory.
    pub other_milli: i64,
    pub pending: Option<u64>,
    /// Of those, pods that no plan helps.
    pub unplaced: Option<u64>,
}

/// The hosts of one inventory pool that belong to one project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolRow {
    /// `None` for hosts that name no project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    pub pool: String,
    pub hosts: u64,
    pub on: u64,
    /// Declared cores of the hosts that are on, and of all.
    pub on_milli: i64,
    pub total_milli: i64,
    pub milliwatts: i64,
    /// What all of them would draw at rest, as far as it is declared.
    pub all_on_milliwatts: i64,
    pub used_milliwatt_hours: u64,
    pub saved_milliwatt_hours: u64,
}

/// Reads and writes the history.
#[derive(Debug, Clone)]
pub struct History {
    store: Arc<dyn Store>,
    inventory: Arc<Inventory>,
    board: Arc<Board>,
}

impl History {
    pub fn new(store: Arc<dyn Store>, inventory: Arc<Inventory>, board: Arc<Board>) -> Self {
        Self { store, inventory, board }
    }

    /// The samples of the last `window`, oldest first: coarse ones as far as the fine ring does not reach.
    pub async fn read(&self, now: Timestamp, window: Duration) -> Result<Vec<Sample>, StoreError> {
        let from = now.saturating_sub(window);
        let mut rings = Vec::new();
        for ring in RINGS {
            let prefix = format!("{ROOT}{}/", ring.name);
            let mut samples: Vec<Sample> = Vec::new();
            let take = |entry: Entry| {
                let read = serde_json::from_slice(&entry.value).ok();
                samples.extend(read.filter(|sample: &Sample| sample.at >= from && sample.at <= now));
            };
            List::prefix(prefix).each(&*self.store, take).await?;
            samples.sort_by_key(|sample| sample.at);
            rings.push(samples);
        }
        let [fine, mut coarse]: [Vec<Sample>; 2] = rings.try_into().unwrap_or_default();
        if let Some(first) = fine.first() {
            coarse.retain(|sample| sample.at < first.at);
        }
        coarse.extend(fine);
        Ok(coarse)
    }

    /// The figures of this moment.
    pub fn sample(&self, now: Timestamp) -> Sample {
        let mut nodes_of_hosts = std::collections::BTreeSet::new();
        let mut pools: BTreeMap<(Option<String>, String), PoolRow> = BTreeMap::new();
        self.inventory.each(|host| {
            let Some(spec) = host.accepted() else { return };
            let key = (spec.project.clone(), spec.pool.clone());
            let row = pools.entry(key).or_insert_with(|| PoolRow {
                project: spec.project.clone(),
                pool: spec.pool.clone(),
                ..PoolRow::default()
            });
            let cores = spec.resources.cpu.milli();
            let idle = i64::from(spec.idle_watts.unwrap_or(0)) * 1000;
            let metrics = host.metrics();
            let drawn = metrics.and_then(|metrics| metrics.milliwatts.value().copied());
            row.hosts += 1;
            row.total_milli += cores;
            // A machine that draws more than it declares would draw that if all were on, too.
            row.all_on_milliwatts += idle.max(drawn.unwrap_or(0));
            row.milliwatts += drawn.unwrap_or(0);
            if let Some(metrics) = metrics {
                row.used_milliwatt_hours += metrics.used_milliwatt_hours;
                row.saved_milliwatt_hours += metrics.saved_milliwatt_hours;
            }
            if let Some(status) = &host.status {
                if status.power_state == PublicPower::On {
                    row.on += 1;
                    row.on_milli += cores;
                }
                nodes_of_hosts.extend(status.kubernetes_node.clone());
            }
        });
        let mut clusters: Vec<ClusterRow> = Vec::new();
        for live in self.board.all() {
            let Some(view) = &live.view else { continue };
            let seen = live.connected;
            let pending = || view.snapshot.cluster.pods.iter().filter(|pod| pod.is_pending()).count() as u64;
            clusters.push(ClusterRow {
                id: live.cluster_id,
                project: live.project.clone(),
                demand_milli: seen.then(|| demand(&view.snapshot)),
                other_milli: others(&view.snapshot, |node| nodes_of_hosts.contains(node)),
                pending: seen.then(pending),
                unplaced: seen.then_some(view.plan.unplaced.len() as u64),
            });
        }
        let mut pools: Vec<PoolRow> = pools.into_values().collect();
        let left_out = pools.len().saturating_sub(MOST_ROWS) + clusters.len().saturating_sub(MOST_ROWS);
        pools.truncate(MOST_ROWS);
        clusters.truncate(MOST_ROWS);
        Sample { at: now, clusters, pools, left_out }
    }

    /// Writes a sample into every ring whose time has come, as long as this process leads.
    pub async fn run(&self, mut leading: Leading, clock: Arc<dyn Clock>, stop: CancellationToken) {
        let mut last: [Option<u64>; RINGS.len()] = [None; RINGS.len()];
        loop {
            let fence = leading.borrow_and_update().clone();
            if let Some(fence) = fence {
                let now = clock.now();
                let due: Vec<usize> =
                    (0..RINGS.len()).filter(|ring| last[*ring] != Some(RINGS[*ring].number(now))).collect();
                if !due.is_empty() {
                    let value = serde_json::to_vec(&self.sample(now)).expect("figures are plain data");
                    let txn = due.iter().fold(Txn::new().fenced(&fence), |txn, ring| {
                        txn.put(RINGS[*ring].key(now), value.clone())
                    });
                    match self.store.commit(txn).await {
                        Ok(Committed::Done { .. }) => {
                            for ring in &due {
                                last[*ring] = Some(RINGS[*ring].number(now));
                            }
                        }
                        Ok(Committed::Refused { .. }) => {} // somebody else leads by now
                        Err(error) => {
                            tracing::warn!(code = error.code(), %error, "figures of this moment are not kept");
                        }
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep(TICK) => {}
                result = leading.changed() => {
                    if result.is_err() {
                        return; // nobody elects any more: the process stops
                    }
                }
            }
        }
    }
}

/// What the pods of a cluster request, in thousandths of a core.
fn demand(snapshot: &Snapshot) -> i64 {
    let live = snapshot.cluster.pods.iter().filter(|pod| !pod.is_finished());
    live.map(|pod| match pod.spec.node_name {
        Some(_) => requests::of_bound(pod).milli_cpu,
        None => requests::of_pending(pod).milli_cpu,
    })
    .fold(0, i64::saturating_add)
}

/// What ready nodes offer that are none of our hosts.
fn others(snapshot: &Snapshot, ours: impl Fn(&str) -> bool) -> i64 {
    let hosts = |node: &str| snapshot.members.get(node).is_some_and(|member| member.host.is_some());
    let ready = snapshot.cluster.nodes.iter().filter(|node| {
        node.status.condition("Ready").is_some_and(|condition| &*condition.status == "True")
            && !node.spec.taints.iter().any(|taint| &*taint.key == OFF_TAINT)
            && !hosts(node.name())
            && !ours(node.name())
    });
    ready.map(|node| Amounts::capacity(&node.status.allocatable).milli_cpu).fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_round_and_the_rings_meet() {
        for ring in RINGS {
            let start = Timestamp::from_millis(1_800_000_000_000);
            let round = Duration::from_millis(ring.every.millis() * ring.slots);
            assert_eq!(ring.key(start), ring.key(start.saturating_add(round)), "{}", ring.name);
            assert_ne!(ring.key(start), ring.key(start.saturating_add(ring.every)));
            assert!(round <= LONGEST);
        }
        assert_eq!(RINGS[1].every.millis() * RINGS[1].slots, LONGEST.millis());
    }
}
