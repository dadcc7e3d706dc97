//! The port of a real cluster.

use std::sync::Arc;

use async_trait::async_trait;
use muster_model::observe::{ActError, Acted, ClusterPort, ClusterView, NodeAction, NotSynced, Note};
use tokio::task::JoinSet;

use crate::{
    act::Actor,
    client::Client,
    events::{EventLimits, Events},
    guard::Guard,
    watch::{self, Health, Shared},
};

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
    events: Events,
    tasks: JoinSet<()>,
}

impl KubeCluster {
    /// Begins to watch. Returns at once; [`ClusterPort::view`] tells when everything is there.
    pub fn start(client: Client, options: Options) -> Self {
        let shared = Shared::new(Arc::clone(client.clock()));
        let tasks = watch::spawn(&client, &shared);
        let events = Events::new(client.clone(), options.events, options.instance);
        Self { client, shared, guard: options.guard, events, tasks }
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
        self.shared.view()
    }

    async fn changed(&self, seen: u64) {
        self.shared.changed(seen).await;
    }

    async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError> {
        let actor = Actor { client: &self.client, shared: &self.shared, guard: &self.guard };
        let acted = actor.act(node, action).await;
        match &acted {
            Ok(Acted::Done) => tracing::info!(node, action = action.verb(), "acted on a node"),
            Ok(_) => {}
            Err(error) => tracing::debug!(node, action = action.verb(), %error, "could not act on a node"),
        }
        acted
    }

    async fn tell(&self, note: &Note) {
        self.events.tell(note).await;
    }
}
