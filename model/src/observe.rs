//! The port to one Kubernetes cluster: what is there, that something changed, and what we do to its nodes.
//!
//! What holds for every implementation:
//!
//! * [`ClusterPort::view`] is one moment: objects of different kinds are each complete, and nothing is
//!   handed out before all of them are. Old knowledge carries its age; the reader decides what it is
//!   still good for.
//! * [`ClusterPort::changed`] carries no data. Many changes may be one wake-up, none is lost.
//! * An action is idempotent and says what it met. `Ok` from [`ClusterPort::act`] means that the API server
//!   took it; that it had its effect is seen in a later view.
//! * Nothing is retried inside a call: pace and deadlines belong to the host loop, which stores them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    PoolId, Timestamp,
    k8s::{Labels, Objects, Pod, PodKey, Taint},
    resource::ObjectKey,
    slowness,
};

/// Set on a node that we cordoned: the id of the operation. A cordon without it is somebody else's.
pub const CORDON_MARK: &str = "muster.dev/cordoned-by";
/// On the kept node of a machine that is off.
pub const OFF_TAINT: &str = "muster.dev/off";
/// On a node that joins, until it is complete.
pub const STARTUP_TAINT: &str = "muster.dev/startup";
/// Kubernetes' own word that a machine is gone for good and its volumes may be used elsewhere.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// One moment of one cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterView {
    /// Grows with every change that was seen; equal numbers mean equal objects. A kubelet that goes on renewing
    /// its lease as it did changes only [`ClusterView::renewed`]; one that begins again counts.
    pub number: u64,
    /// When the slowest source was last known to be current, by our clock.
    pub fresh_at: Timestamp,
    pub objects: Arc<Objects>,
    /// When we last *saw* a kubelet renew its lease, by our clock: the lease's own time is the node's.
    pub renewed: Arc<BTreeMap<Arc<str>, Timestamp>>,
    /// Since when renewals could be seen. Whose kubelet is not above has not renewed since then, and nobody knows of before:
    /// the first list of leases shows what was written, not when.
    pub leases_since: Timestamp,
    /// Objects that could not be read and are missing above.
    pub set_aside: Arc<[SetAside]>,
    /// Nodes from which [`ClusterPort::act`] takes nothing away, and why: `Muster itself runs there`.
    pub guarded: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    /// How far each kind has come, in the API server's own counting; a kind that does not say is missing.
    pub revisions: BTreeMap<&'static str, u64>,
    /// That a kind is shown as it was before what has been seen already. A change of it is a change of `number`.
    pub behind: Option<Arc<str>>,
    /// That the API server answers so slowly that nothing may be taken away on its word.
    pub slow: Option<Arc<str>>,
}

impl ClusterView {
    /// Why nothing may be taken away because of what this view does not show, if there is a reason.
    pub fn doubt(&self) -> Option<String> {
        if let Some(behind) = &self.behind {
            return Some(behind.to_string());
        }
        if let Some(slow) = &self.slow {
            return Some(format!(
                "{slow}; nothing is taken away until it has been quick for {}",
                slowness::WELL
            ));
        }
        let known = self.set_aside.iter().filter(|one| one.kind == "Pod").count() as u64;
        self.objects.unseen_pods(known, self.fresh_at).map(|unseen| unseen.to_string())
    }
}

/// How it is said that a kind is shown as it was before.
pub fn is_behind(kind: &str, shown: u64, seen: u64) -> String {
    format!("the API server shows {kind} of revision {shown}, and {seen} was seen before: an old copy")
}

impl ClusterView {
    /// Nodes from which nothing may be taken, and why. The planner and the host loop both ask here.
    pub fn guards(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.guarded.iter().filter(|_| !crate::planted::is("F22"))
    }

    /// Why nothing may be taken from this node, if that is so.
    pub fn guard_of(&self, node: &str) -> Option<&Arc<str>> {
        self.guarded.get(node).filter(|_| !crate::planted::is("F22"))
    }
}

/// An object that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetAside {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// The node that a pod is bound to, if at least that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub why: String,
    pub since: Timestamp,
}

/// Why there is no view (yet).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} of {total} kinds are not in sync: {}", waiting.len(), waiting.iter().map(|one| format!("{} ({})", one.kind, one.why)).collect::<Vec<_>>().join(", "))]
pub struct NotSynced {
    pub total: u32,
    pub waiting: Vec<Waiting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Plural and lower case: `pods`.
    pub kind: String,
    /// For example that the first list is under way, or the API server's refusal.
    pub why: String,
    pub since: Timestamp,
}

/// Something to do to a node or its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAction {
    /// Marks the node with the operation and makes it unschedulable; a foreign cordon stays foreign.
    Cordon {
        op: String,
    },
    /// Takes back a cordon that carries our mark, whatever the operation; leaves any other.
    Uncordon,
    /// Asks for the eviction of one pod, through its disruption budgets.
    Evict {
        pod: PodKey,
        uid: String,
        grace_seconds: Option<i64>,
    },
    /// Makes labels and taints as given; others stay as they are.
    Label {
        labels: Labels,
        taints: Vec<Taint>,
    },
    AddTaint(Taint),
    /// By key; whatever its value and effect.
    RemoveTaint {
        key: String,
    },
    /// Only the node with this uid, so that one which has just joined again is safe.
    DeleteNode {
        uid: String,
    },
}

impl NodeAction {
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Cordon { .. } => "cordon",
            Self::Uncordon => "uncordon",
            Self::Evict { .. } => "evict",
            Self::Label { .. } => "label",
            Self::AddTaint(_) => "add a taint to",
            Self::RemoveTaint { .. } => "remove a taint from",
            Self::DeleteNode { .. } => "delete",
        }
    }
}

/// What the API server did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acted {
    Done,
    /// It was so already; nothing was written.
    AlreadySo,
    /// The node or the pod does not exist (any more).
    Gone,
}

/// Why an action was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ActError {
    /// 429 on an eviction: a budget has nothing left.
    #[error("{budget} allows 0 more disruptions of {pod}")]
    Budget { pod: String, budget: String, retry_after_seconds: Option<u64> },
    /// A foreign mark, a changed uid, a lost compare-and-set.
    #[error("{what} was changed by somebody else: {why}")]
    Conflict { what: String, why: String },
    /// RBAC said no.
    #[error("{what}: {why}; grant it and nothing else has to be done")]
    Denied { what: String, why: String },
    /// Our own rule said no: our own node, the store's host, a last replica.
    #[error("{what} is protected: {why}")]
    Protected { what: String, why: String },
    /// Nobody knows whether it happened. Reading settles it.
    #[error("{what}: {why}")]
    Unreachable { what: String, why: String },
    #[error("{what}: the API server refuses it: {why}")]
    Refused { what: String, why: String },
}

/// A Kubernetes cluster.
#[async_trait]
pub trait ClusterPort: Send + Sync + fmt::Debug {
    /// The present moment. Cheap: nothing is copied that did not change.
    fn view(&self) -> Result<ClusterView, NotSynced>;

    /// Sources that are not current, and why; empty when all of them are.
    fn troubles(&self) -> Vec<Waiting> {
        Vec::new()
    }

    /// How many changes were seen so far: the number of the view, and also counted while there is none.
    fn number(&self) -> u64;

    /// Returns when [`ClusterPort::number`] is larger than `seen`, at once if it already is.
    async fn changed(&self, seen: u64);

    async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError>;

    /// The pods that are bound to a node, as the API server itself has them now and past every cache. `None` where
    /// nobody can be asked that.
    async fn pods_on(&self, _node: &str) -> Result<Option<Vec<Pod>>, ActError> {
        Ok(None)
    }

    /// Tells the cluster's own users something about one of its objects. Best effort, deduplicated and
    /// limited by the implementation.
    async fn tell(&self, _note: &Note) {}

    /// The same later, without waiting for it: for loops that have other things to do. What is too much is dropped.
    fn announce(&self, _notes: Vec<Note>) {}

    /// Whether anybody hears what is announced. For whoever does not, nothing need be worded.
    fn hears(&self) -> bool {
        false
    }
}

/// Returns when the cluster shows more than at `seen`. While one of its kinds is not in sync it shows nothing: what comes in of the
/// others is no reason to look then, only that there is a view is.
pub async fn shows_more(port: &dyn ClusterPort, mut seen: u64) {
    loop {
        port.changed(seen).await;
        // In this order: what comes between the two is waited for no longer.
        let number = port.number();
        if port.view().is_ok() {
            return;
        }
        seen = number;
    }
}

/// A note on an object, in the manner of a Kubernetes event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub about: About,
    pub warning: bool,
    /// One word, for example `NotTriggerScaleUp`.
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    Pod {
        key: PodKey,
        uid: String,
    },
    Node {
        name: String,
        uid: String,
    },
    /// A pool of this cluster. Whether the cluster knows it as an object is for the implementation to find out.
    Pool {
        project: String,
        cluster: String,
        pool: String,
        id: PoolId,
    },
    /// A custom resource of ours.
    Object {
        key: ObjectKey,
        uid: String,
    },
}
