//! Custom resources and the store, kept in step.
//!
//! The leader, and nobody else, watches both sides. What happens on either makes a turn due; a turn reads the record,
//! looks at its object and brings them together ([`decide`] says how). The store wins. No turn remembers anything that a
//! later one needs: everything is in the store or on the object, so a process may die at any point.
//!
//! Why it ends: a turn writes only what differs from what it would write, and an edit is told from our own writes by the
//! digest that we leave on the object. What stands on both sides is the same after at most two turns.

mod decide;
mod figures;
mod held;
mod mirror;
mod queue;
mod reason;
mod status;
mod turn;

use std::{collections::HashSet, fmt, str::FromStr, sync::Arc};

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{FuturesUnordered, SelectAll, select_all},
};
use muster_model::{
    Clock, Duration,
    identity::Secrets,
    resource::{Resource, ResourceEvent, ResourceKind, ResourcePort},
    store::{Committed, Expect, Store, StoreError, Txn},
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    audit::AuditLog,
    inventory::{HostFilter, HostWatch, Inventory},
    lead::Leading,
    registry::{Filter, Kind, Registry, Watch, WatchItem},
};
pub use figures::{Figures, KindFigures, Place};
use held::Side;
use queue::{Queue, Work};
pub use reason::{Reason, reference};
use turn::{Outcome, Turns};

/// Turns at one time: an API server takes these from a single client without noticing.
const AT_ONCE: usize = 16;
/// How often the home cluster is looked for, and whether it is still the same.
const LOOK: Duration = Duration::from_secs(5);
/// How long a cluster's object waits for more of its pools to change: its status counts them.
const GATHER: Duration = Duration::from_secs(1);
/// Pause after a session that ended with an error.
const PAUSE: Duration = Duration::from_secs(5);
/// A turn that fails this often in a row is told of: what others do to an object is over by then.
const TELL_AFTER: u32 = 5;
/// Where a store's own name is kept, by which objects know the store that made them.
const STORE_NAME: &str = "/muster/resources/store";

/// What happens to a project that has no namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Namespaces {
    /// It is made.
    #[default]
    Create,
    /// The project has no objects until somebody makes it.
    Existing,
}

impl FromStr for Namespaces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "create" => Ok(Self::Create),
            "existing" => Ok(Self::Existing),
            _ => Err("is neither create nor existing".to_owned()),
        }
    }
}

/// Which cluster keeps the objects.
#[async_trait]
pub trait Home: Send + Sync + fmt::Debug {
    /// Changes when another connection should be used; `None` while there is no home.
    async fn mark(&self) -> Option<String>;
    async fn connect(&self) -> Result<Arc<dyn ResourcePort>, String>;
}

/// What the loop works with.
#[derive(Debug, Clone)]
pub struct Setup {
    pub registry: Arc<Registry>,
    pub inventory: Arc<Inventory>,
    pub audit: Option<Arc<AuditLog>>,
    pub clock: Arc<dyn Clock>,
    pub home: Arc<dyn Home>,
    pub namespaces: Namespaces,
    /// What the store is called from now on, should it have no name yet. Nobody else may be called so.
    pub fresh_name: String,
    pub figures: Arc<Figures>,
}

/// Keeps both sides in step while this process leads, until `stop`.
pub async fn run(setup: Setup, mut leading: Leading, stop: CancellationToken) {
    let mut told = String::new();
    loop {
        let session = async {
            if leading.borrow().is_none() {
                setup.figures.set_place(Place::Nowhere);
            }
            if leading.wait_for(Option::is_some).await.is_err() {
                std::future::pending::<()>().await;
            }
            let Some(mark) = setup.home.mark().await else {
                setup.figures.set_place(Place::Nowhere);
                setup.clock.sleep(LOOK).await;
                return;
            };
            let ended = tokio::select! {
                ended = Session::run(&setup, &mark) => ended,
                _ = leading.wait_for(Option::is_none) => Ok(()),
            };
            match ended {
                Ok(()) => told.clear(),
                Err(why) => {
                    setup.figures.set_place(Place::Trouble);
                    if why != told {
                        tracing::warn!(why, "custom resources are not kept in step; trying again");
                        told = why;
                    }
                    setup.clock.sleep(PAUSE).await;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = session => {}
        }
    }
}

/// One connection to the home cluster.
struct Session<'s> {
    setup: &'s Setup,
    turns: Turns,
    queue: Queue,
    /// Kinds of which everything is known.
    complete: Vec<ResourceKind>,
}

/// As much of a watched object as says whose turn it is.
#[derive(Deserialize)]
struct Named {
    id: String,
    #[serde(default)]
    cluster_id: Option<Uuid>,
}

impl<'s> Session<'s> {
    async fn run(setup: &'s Setup, mark: &str) -> Result<(), String> {
        let port = setup.home.connect().await?;
        port.check().await.map_err(|error| error.to_string())?;
        let store = store_name(setup.registry.store().as_ref(), &setup.fresh_name)
            .await
            .map_err(|error| format!("the store's name cannot be read: {error}"))?;
        let side = Side {
            registry: Arc::clone(&setup.registry),
            inventory: Arc::clone(&setup.inventory),
            audit: setup.audit.clone(),
            clock: Arc::clone(&setup.clock),
        };
        let turns = Turns::new(side, Arc::clone(&port), setup.namespaces, store);
        let mut session = Session { setup, turns, queue: Queue::default(), complete: Vec::new() };
        let mut objects = select_all(
            ResourceKind::ALL.map(|kind| port.watch(kind).map(move |event| (kind, event)).boxed()),
        );
        session.first(&mut objects).await;
        tracing::info!("custom resources are kept in step with the store");
        setup.figures.set_place(Place::InStep);
        session.follow(objects, mark).await
    }

    /// Waits until all objects are known: before that, one that is merely not known yet would be made a second time.
    async fn first(&mut self, objects: &mut SelectAll<ObjectStream>) {
        while self.complete.len() < ResourceKind::ALL.len() {
            let Some((kind, event)) = objects.next().await else { return };
            self.heard(kind, event);
        }
    }

    async fn follow(&mut self, mut objects: SelectAll<ObjectStream>, mark: &str) -> Result<(), String> {
        let mut pools = self.watch(Kind::Pool).await?;
        let mut clusters = self.watch(Kind::Cluster).await?;
        let mut hosts: HostWatch = self
            .setup
            .inventory
            .watch(HostFilter::default(), None)
            .await
            .map_err(|error| format!("the inventory cannot be watched: {error}"))?;
        let clock = Arc::clone(&self.setup.clock);
        let mut look = clock.monotonic().saturating_add(LOOK);
        let mut running = FuturesUnordered::new();
        loop {
            let now = clock.monotonic();
            while running.len() < AT_ONCE {
                let Some(work) = self.queue.pop(now) else { break };
                let turns = &self.turns;
                running.push(Self::turn(turns, work));
            }
            let due = self.queue.next_due().unwrap_or(look).min(look).saturating_sub(now);
            tokio::select! {
                Some((work, outcome)) = running.next(), if !running.is_empty() => {
                    self.setup.figures.count(&outcome);
                    Self::over(&mut self.queue, &work, outcome, clock.monotonic());
                }
                Some((kind, event)) = objects.next() => {
                    heard(&self.turns, &mut self.queue, &mut self.complete, kind, event);
                }
                item = pools.next() => {
                    let item = item.map_err(|error| error.to_string())?;
                    pool_changed(&mut self.queue, &item, clock.monotonic());
                }
                item = clusters.next() => {
                    let item = item.map_err(|error| error.to_string())?;
                    cluster_changed(&self.setup.registry, &mut self.queue, &item);
                    // Somebody may have waited for this one.
                    for key in self.turns.mirror().strays(ResourceKind::NodePool) {
                        self.queue.push(Work::Stray(key));
                    }
                }
                item = hosts.next() => {
                    let item = item.map_err(|error| error.to_string())?;
                    if let Some(named) = named(&item) {
                        self.queue.push(Work::Record(ResourceKind::BareMetalNode, named.id));
                    }
                }
                () = clock.sleep(due) => {
                    if clock.monotonic() >= look {
                        self.setup.figures.look(&self.turns.mirror(), self.queue.len());
                        look = clock.monotonic().saturating_add(LOOK);
                        if self.setup.home.mark().await.as_deref() != Some(mark) {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    async fn turn(turns: &Turns, work: Work) -> (Work, Outcome) {
        let outcome = turns.take(&work).await;
        (work, outcome)
    }

    fn over(queue: &mut Queue, work: &Work, outcome: Outcome, now: Duration) {
        match outcome {
            Outcome::Done => queue.done(work),
            Outcome::Then(next) => {
                queue.done(work);
                queue.push(next);
            }
            Outcome::Refused => {
                queue.done(work);
                queue.push_at(work.clone(), now.saturating_add(queue::LONGEST));
            }
            Outcome::Again(why) => {
                let failures = queue.failed(work, now);
                if failures == TELL_AFTER {
                    tracing::warn!(
                        ?work,
                        why,
                        "a record and its object cannot be brought together; trying again"
                    );
                } else {
                    tracing::debug!(?work, why, failures, "not settled yet");
                }
            }
        }
    }

    fn heard(&mut self, kind: ResourceKind, event: ResourceEvent) {
        heard(&self.turns, &mut self.queue, &mut self.complete, kind, event);
    }

    async fn watch(&self, kind: Kind) -> Result<Watch, String> {
        let watch =
            self.setup.registry.watch(kind, Filter::everything(), None, Box::new(|_| Secrets::Hidden));
        watch.await.map_err(|error| format!("the store cannot be watched: {error}"))
    }
}

type ObjectStream = futures::stream::BoxStream<'static, (ResourceKind, ResourceEvent)>;

/// Takes in what a watch of objects tells.
fn heard(
    turns: &Turns,
    queue: &mut Queue,
    complete: &mut Vec<ResourceKind>,
    kind: ResourceKind,
    event: ResourceEvent,
) {
    match event {
        ResourceEvent::Changed(object) => changed(turns, queue, object),
        ResourceEvent::Gone(key) => gone(turns, queue, &key),
        ResourceEvent::All(all) => {
            let present: HashSet<_> = all.iter().map(Resource::key).collect();
            let known = turns.mirror().keys(kind);
            for key in known.iter().filter(|key| !present.contains(*key)) {
                gone(turns, queue, key);
            }
            for object in all {
                changed(turns, queue, object);
            }
            if !complete.contains(&kind) {
                complete.push(kind);
            }
        }
        ResourceEvent::Broken(why) => {
            tracing::warn!(kind = kind.plural(), why, "objects are not heard of; trying again");
        }
    }
}

fn changed(turns: &Turns, queue: &mut Queue, object: Resource) {
    let news = turns.mirror().put(object.clone());
    if news {
        queue.push(turns.work_of(&object));
    }
}

/// An object that went without our letting it go is made again, if its record is still there.
fn gone(turns: &Turns, queue: &mut Queue, key: &muster_model::resource::ObjectKey) {
    let known = turns.mirror().remove(key);
    if let Some(id) = known.as_deref().and_then(mirror::record_of) {
        queue.push(Work::Record(key.kind, id.to_owned()));
    }
}

fn named(item: &WatchItem) -> Option<Named> {
    match item {
        WatchItem::Object { text, .. } => serde_json::from_slice(text).ok(),
        WatchItem::Bookmark { .. } => None,
    }
}

fn pool_changed(queue: &mut Queue, item: &WatchItem, now: Duration) {
    let Some(pool) = named(item) else { return };
    queue.push(Work::Record(ResourceKind::NodePool, pool.id));
    if let Some(cluster) = pool.cluster_id {
        queue.push_at(Work::Record(ResourceKind::Cluster, cluster.to_string()), now.saturating_add(GATHER));
    }
}

/// Pools show the mode of their cluster.
fn cluster_changed(registry: &Registry, queue: &mut Queue, item: &WatchItem) {
    let Some(cluster) = named(item) else { return };
    if let Ok(id) = cluster.id.parse::<Uuid>() {
        registry.each(Kind::Pool, |pool| {
            if pool.cluster == id {
                queue.push(Work::Record(ResourceKind::NodePool, pool.id.to_string()));
            }
        });
    }
    queue.push(Work::Record(ResourceKind::Cluster, cluster.id));
}

/// What the store is called, which it is from now on if it had no name.
async fn store_name(store: &dyn Store, fresh: &str) -> Result<String, StoreError> {
    loop {
        if let Some(entry) = store.get(STORE_NAME).await? {
            let read = serde_json::from_slice::<String>(&entry.value);
            return Ok(read.unwrap_or_else(|_| String::from_utf8_lossy(&entry.value).into_owned()));
        }
        let txn = Txn::new().expect(STORE_NAME, Expect::Absent).put(STORE_NAME, format!("\"{fresh}\""));
        if let Committed::Done { .. } = store.commit(txn).await? {
            return Ok(fresh.to_owned());
        }
    }
}
