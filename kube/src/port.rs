//! The port of a real cluster.

use std::sync::Arc;

use async_trait::async_trait;
use muster_model::{
    k8s::Pod,
    observe::{ActError, Acted, ClusterPort, ClusterView, NodeAction, NotSynced, Note, Waiting},
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    act::Actor,
    client::Client,
    events::{EventLimits, Events},
    guard::Guard,
    watch::{self, Health, Shared, SourceHealth, SourceState},
};

/// Notes that may wait to be written: the burst of several plans.
const MOST_NOTES: usize = 500;

/// What can be chosen for one cluster.
#[derive(Debug, Clone)]
pub struct Options {
    pub guard: Guard,
    pub events: EventLimits,
    /// Who writes events, unique among replicas: usually the name of our pod or host.
    pub instance: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { guard: Guard::default(), events: EventLimits::default(), instance: "muster".to_owned() }
    }
}

/// A cluster that is being watched. The watches end when this is dropped.
#[derive(Debug)]
pub struct KubeCluster {
    client: Client,
    shared: Arc<Shared>,
    guard: Guard,
    events: Arc<Events>,
    notes: mpsc::Sender<Note>,
    tasks: JoinSet<()>,
}

impl KubeCluster {
    /// Begins to watch. Returns at once; [`ClusterPort::view`] tells when everything is there.
    pub fn start(client: Client, options: Options) -> Self {
        let shared = Shared::new(Arc::clone(client.clock()));
        let mut tasks = watch::spawn(&client, &shared);
        let events = Arc::new(Events::new(client.clone(), options.events, options.instance));
        let (notes, mut queue) = mpsc::channel::<Note>(MOST_NOTES);
        let writer = Arc::clone(&events);
        tasks.spawn(async move {
            while let Some(note) = queue.recv().await {
                writer.tell(&note).await;
            }
        });
        Self { client, shared, guard: options.guard, events, notes, tasks }
    }

    /// The API server's address.
    pub fn server(&self) -> &str {
        self.client.server()
    }

    /// How the watches are doing.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// How many tasks still run; fewer than at the start is a bug of ours.
    pub fn running(&self) -> usize {
        self.tasks.len()
    }
}

#[async_trait]
impl ClusterPort for KubeCluster {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let mut view = self.shared.view()?;
        view.guarded = Arc::new(self.guard.guarded(&self.shared.lock().state));
        Ok(view)
    }

    fn troubles(&self) -> Vec<Waiting> {
        let sources = self.shared.health().sources;
        let well = |source: &SourceHealth| {
            source.synced
                && matches!(
                    source.state,
                    SourceState::Watching | SourceState::NotServed | SourceState::Listing
                )
        };
        sources
            .into_iter()
            .filter(|source| !well(source))
            .map(|source| Waiting { kind: source.kind, why: source.why, since: source.since })
            .collect()
    }

    fn number(&self) -> u64 {
        self.shared.lock().state.number
    }

    async fn changed(&self, seen: u64) {
        self.shared.changed(seen).await;
    }

    async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError> {
        let actor = Actor { client: &self.client, shared: &self.shared, guard: &self.guard };
        let began = self.client.clock().monotonic();
        let acted = actor.act(node, action).await;
        self.shared.took(self.client.clock().monotonic().saturating_sub(began));
        match &acted {
            Ok(Acted::Done) => tracing::info!(node, action = action.verb(), "acted on a node"),
            Ok(_) => {}
            Err(error) => tracing::debug!(node, action = action.verb(), %error, "could not act on a node"),
        }
        acted
    }

    async fn pods_on(&self, node: &str) -> Result<Option<Vec<Pod>>, ActError> {
        let actor = Actor { client: &self.client, shared: &self.shared, guard: &self.guard };
        actor.pods_on(node).await.map(Some)
    }

    async fn tell(&self, note: &Note) {
        self.events.tell(note).await;
    }

    fn hears(&self) -> bool {
        true
    }

    fn announce(&self, notes: Vec<Note>) {
        for note in notes {
            if self.notes.try_send(note).is_err() {
                tracing::debug!("a note is dropped: as many as may wait are waiting");
                return;
            }
        }
    }
}
