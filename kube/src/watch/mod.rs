//! Watches: one task per kind keeps the cache as the cluster is.
//!
//! A task streams the first list over the watch itself (or pages through it where the server cannot), then
//! follows events and bookmarks. A lost connection is taken up where it ended; a server that has forgotten
//! that point (410) gets a new list, which also finds what was deleted meanwhile. The cache is never emptied in
//! between: old knowledge stays, with its age.

mod backoff;
mod health;
mod source;
pub(crate) mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::{
    Clock, Duration, Timestamp,
    k8s::{
        CsiDriver, CsiNode, CsiStorageCapacity, DaemonSet, Job, Namespace, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, PriorityClass, ReplicaSet, RuntimeClass,
        StatefulSet, StorageClass, VolumeAttachment,
    },
    observe::{ClusterView, NotSynced},
    slowness::Slowness,
};
use tokio::{sync::watch, task::JoinSet};

pub use health::{Health, SourceHealth, SourceState};

use crate::{
    cache::{CoschedulingPodGroup, KubernetesPodGroup, Lease, NodeRecord, State, VolcanoPodGroup},
    client::{Call, Client},
};
use health::Sources;

/// How often the API server is asked whether it is there: a quiet watch looks like a dead one.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long it may take to say so.
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(5);

/// What the watches share with whoever asks.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    number: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) state: State,
    pub(crate) sources: Sources,
    slowness: Slowness,
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), number: watch::Sender::new(0), clock })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Changes the cache; `change` says whether that is news.
    fn change(&self, change: impl FnOnce(&mut Inner) -> bool) {
        let mut inner = self.lock();
        if change(&mut inner) {
            inner.state.number += 1;
            let number = inner.state.number;
            drop(inner);
            self.number.send_replace(number);
        }
    }

    pub(crate) fn view(&self) -> Result<ClusterView, NotSynced> {
        let mut inner = self.lock();
        inner.sources.all_synced()?;
        let fresh_at = inner.sources.fresh_at();
        let (revisions, behind) = (inner.sources.revisions(), inner.sources.behind().map(Arc::from));
        let slow = inner.slowness.doubt(self.clock.now()).map(Arc::from);
        let state = &mut inner.state;
        Ok(ClusterView {
            number: state.number,
            fresh_at,
            objects: state.objects(),
            renewed: Arc::clone(&state.renewed),
            leases_since: state.leases_since,
            set_aside: state.set_aside_list(),
            revisions,
            behind,
            slow,
            ..ClusterView::default()
        })
    }

    /// The API server took so long for an answer, or was given up after it.
    pub(crate) fn took(&self, length: Duration) {
        let now = self.clock.now();
        let mut inner = self.lock();
        let before = inner.slowness.doubt(now).is_some();
        inner.slowness.note(length, now);
        if before != inner.slowness.doubt(now).is_some() {
            let seconds = length.millis() / 1000;
            tracing::warn!(seconds, "the API server answers slowly; nothing is taken away for a while");
        }
    }

    pub(crate) async fn changed(&self, seen: u64) {
        let mut number = self.number.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = number.wait_for(|number| *number > seen).await;
    }

    pub(crate) fn health(&self) -> Health {
        self.lock().sources.health()
    }
}

/// Starts a task per kind, and the heartbeat. They end when the set is dropped.
pub(crate) fn spawn(client: &Client, shared: &Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    macro_rules! watch {
        ($($record:ty),+ $(,)?) => {
            $(tasks.spawn(source::Source::<$record>::new(client.clone(), Arc::clone(shared)).run());)+
        };
    }
    watch! {
        Pod, NodeRecord, Lease, Namespace, PersistentVolume, PersistentVolumeClaim, StorageClass, CsiNode,
        CsiDriver, CsiStorageCapacity, VolumeAttachment, PodDisruptionBudget, DaemonSet, ReplicaSet,
        StatefulSet, Job, PriorityClass, RuntimeClass, KubernetesPodGroup, CoschedulingPodGroup,
        VolcanoPodGroup,
    }
    tasks.spawn(heartbeat(client.clone(), Arc::clone(shared)));
    tasks
}

async fn heartbeat(client: Client, shared: Arc<Shared>) {
    // A server that was away may come back as another version.
    let mut asked_version = false;
    loop {
        let asked = shared.now();
        let began = client.clock().monotonic();
        match client
            .text_within("ask the API server for a sign of life", Call::get("/livez"), HEARTBEAT_LIMIT)
            .await
        {
            Ok(_) => shared.lock().sources.alive(asked),
            Err(error) => {
                asked_version = false;
                tracing::debug!(%error, "no sign of life from the API server");
            }
        }
        shared.took(client.clock().monotonic().saturating_sub(began));
        if !asked_version
            && let Ok(text) = client
                .text_within("ask the API server for its version", Call::get("/version"), HEARTBEAT_LIMIT)
                .await
        {
            asked_version = true;
            let version = serde_json::from_str::<serde_json::Value>(&text).ok();
            let version = version.and_then(|value| value["gitVersion"].as_str().map(str::to_owned));
            shared.lock().sources.version = version;
        }
        client.clock().sleep(HEARTBEAT).await;
    }
}
