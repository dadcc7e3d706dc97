//! What the planners know now, for everyone who asks: explanations, metrics, pages.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use muster_engine::{Plan, Snapshot};
use muster_model::{ClusterId, Timestamp};
use serde::Serialize;

use super::Load;
use crate::{
    journal::DecisionId,
    snapshot::{HostInput, PoolInput, STALE_AFTER},
};

/// How one cluster's planner fares.
#[derive(Debug, Clone, Serialize)]
pub struct Live {
    pub cluster_id: ClusterId,
    pub cluster_name: String,
    pub project: String,
    /// When it last looked, whether or not it came to a plan.
    pub turn_at: Timestamp,
    /// How often it has looked since it started.
    pub turns: u64,
    /// Whether this process acts, or only watches.
    pub leading: bool,
    pub connected: bool,
    /// Why there was no plan the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// The last error, which may be over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<(Timestamp, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionId>,
    /// When it looks again at the latest.
    pub next_at: Timestamp,
    pub set_aside: Vec<(String, String)>,
    /// What the cluster asks for; `None` while it is not in sight, or what is seen of it is old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// When everything that is seen of the cluster was last known to be current.
    #[serde(skip)]
    pub fresh_at: Option<Timestamp>,
    #[serde(skip)]
    pub view: Option<Arc<View>>,
}

impl Live {
    /// What the cluster asks for, if that is still so: a planner that hangs or whose store is away says nothing newer.
    pub fn load_at(&self, now: Timestamp) -> Option<&Load> {
        let fresh = self.fresh_at.is_some_and(|at| now.since(at) <= STALE_AFTER);
        self.load.as_ref().filter(|_| fresh)
    }
}

/// The last snapshot and the plan for it.
#[derive(Debug)]
pub struct View {
    pub snapshot: Arc<Snapshot>,
    pub plan: Plan,
    /// The whole inventory and the pools, to say why a host is not in the snapshot.
    pub inventory: Vec<Arc<HostInput>>,
    pub pools: Vec<PoolInput>,
}

/// Counters for metrics; every planner of the process adds to them.
#[derive(Debug, Default)]
pub struct Counters {
    pub turns: AtomicU64,
    pub decisions: AtomicU64,
    pub findings: AtomicU64,
    pub void: AtomicU64,
    pub errors: AtomicU64,
    /// Planners that were stuck or broke off, and were started again.
    pub restarts: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}

/// The planners of this process.
#[derive(Debug, Default)]
pub struct Board {
    live: RwLock<BTreeMap<ClusterId, Arc<Live>>>,
    pub counters: Counters,
}

impl Board {
    pub fn get(&self, cluster: ClusterId) -> Option<Arc<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).get(&cluster).cloned()
    }

    /// All planners, by the cluster's id.
    pub fn all(&self) -> Vec<Arc<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(super) fn set(&self, live: Live) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).insert(live.cluster_id, Arc::new(live));
    }

    pub(super) fn remove(&self, cluster: ClusterId) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).remove(&cluster);
    }
}
