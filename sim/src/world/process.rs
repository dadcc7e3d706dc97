//! One Muster process on a world: the election, the host loop, the planner and what they need, unmodified.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::StreamExt as _;
use muster_control::{
    hosts::{Drivers, Facts, HostLoop, Setup, failpoint::Failpoints},
    inventory::{Inventory, Vault, VaultKey},
    lead::{self, Lead, Leading},
    planner::{Board, Did, Parts, matters},
    registry::{Registry, RegistryOptions},
};
use muster_model::{
    Clock, ClusterId, Duration,
    host::keys as host_keys,
    observe::ClusterPort,
    store::{Store, StoreError, WatchEvent},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{ProcessClock, World, store::Link, timeline::PatientClock};

/// Work of a process that goes on until it stops.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How closely a process looks when nothing happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// As in production: twice a second here, every ten seconds there.
    Full,
    /// Only when something happened or a time that was set has come, so that a quiet day passes in an instant.
    News,
}

/// How a process runs.
#[derive(Debug, Clone)]
pub struct Manner {
    pub attention: Attention,
    pub failpoints: Failpoints,
    /// Multiplies the times of the leader's lease: a lease that is renewed every ten seconds costs a tenth.
    pub lease_factor: u64,
    /// How long a planner waits after the first news for more of it.
    pub debounce: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            attention: Attention::Full,
            failpoints: Failpoints::default(),
            lease_factor: 1,
            debounce: DEBOUNCE,
        }
    }
}

/// As in production.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Even a process that only follows news looks this often.
const LOOK: Duration = Duration::from_mins(5);
/// Between rounds of upkeep when only news count.
const UPKEEP: Duration = Duration::from_secs(60);
/// After the store did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Process {
    pub name: Arc<str>,
    pub clock: Arc<ProcessClock>,
    pub lead: Arc<Lead>,
    pub registry: Arc<Registry>,
    pub inventory: Arc<Inventory>,
    pub vault: Arc<Vault>,
    pub host_loop: Arc<HostLoop>,
    pub board: Arc<Board>,
    cut: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Process {
    /// Starts one on a store: what it is made of, and its tasks for whoever runs them.
    pub async fn start(
        world: &Arc<World>,
        store: &Arc<dyn Store>,
        name: &str,
        clusters: &[ClusterId],
        manner: &Manner,
    ) -> Result<(Self, Vec<Task>), StoreError> {
        let clock = world.clock();
        let cut = Arc::new(AtomicBool::new(false));
        let link: Arc<dyn Store> = Arc::new(Link {
            store: Arc::clone(store),
            world: Arc::clone(world),
            process: name.into(),
            cut: Arc::clone(&cut),
        });
        let patient: Arc<dyn Clock> = match manner.attention {
            Attention::Full => clock.clone(),
            Attention::News => Arc::new(PatientClock { clock: clock.clone(), least: UPKEEP }),
        };
        let options = RegistryOptions { exclusive: false, default_lease: Duration::from_mins(10) };
        let registry = Registry::open(Arc::clone(&link), Arc::clone(&patient), options).await?;
        let inventory = Inventory::open(Arc::clone(&link), Arc::clone(&patient)).await?;
        let key = VaultKey::in_memory().map_err(|error| StoreError::Invalid { why: error.to_string() })?;
        let vault = Arc::new(Vault::new(Arc::clone(&inventory), key));
        let connections = world.connections(name, &clock);
        let facts = Facts::new(
            Arc::clone(&registry),
            Arc::clone(&inventory),
            Arc::clone(&vault),
            Arc::clone(&connections),
            world.agents(&clock),
            patient,
        );
        let times = |length: Duration| Duration::from_millis(length.millis() * manner.lease_factor.max(1));
        let mut config = lead::config(name);
        (config.duration, config.renew_deadline, config.retry) =
            (times(config.duration), times(config.renew_deadline), times(config.retry));
        let lead = Lead::new(clock.clone());
        let host_loop = Arc::new(HostLoop::new(Setup {
            store: Arc::clone(&link),
            clock: clock.clone(),
            lead: Arc::clone(&lead),
            drivers: Drivers::new(world.drivers(name, &clock)),
            around: Arc::clone(&facts) as _,
            time_factor: 1,
            renew_deadline: config.renew_deadline,
            renew_every: config.retry,
            failpoints: manner.failpoints.clone(),
        }));
        let mut parts = Parts::new(Arc::clone(&registry));
        parts.connections = connections;
        parts.triggers = Some(world.triggers(&clock));
        let stop = CancellationToken::new();
        let process = Self {
            name: name.into(),
            clock: Arc::clone(&clock),
            lead: Arc::clone(&lead),
            registry: Arc::clone(&registry),
            inventory: Arc::clone(&inventory),
            vault,
            host_loop: Arc::clone(&host_loop),
            board: Arc::clone(&parts.board),
            cut,
            stop: stop.clone(),
        };
        let port = world.port(name, &clock);
        let mut tasks: Vec<Task> = Vec::new();
        tasks.push(Box::pin({
            let (registry, stop) = (Arc::clone(&registry), stop.clone());
            async move { registry.run(stop).await }
        }));
        tasks.push(Box::pin({
            let (registry, stop) = (Arc::clone(&registry), stop.clone());
            async move { inventory.run(registry, stop).await }
        }));
        tasks.push(Box::pin({
            let stop = stop.clone();
            async move { facts.run(stop).await }
        }));
        tasks.push(Box::pin({
            let (lead, link, stop) = (Arc::clone(&lead), Arc::clone(&link), stop.clone());
            async move {
                let _ = lead::run(link, config, lead, stop).await;
            }
        }));
        tasks.push(Box::pin({
            let stop = stop.clone();
            async move { host_loop.run(stop).await }
        }));
        for cluster in clusters {
            let bell = Arc::new(Notify::new());
            let leading = lead.subscribe();
            let planning = Planning {
                parts: parts.clone(),
                cluster: *cluster,
                world: Arc::clone(world),
                port: Arc::clone(&port),
                clock: Arc::clone(&clock),
                bell: Arc::clone(&bell),
                attention: manner.attention,
                debounce: manner.debounce,
            };
            tasks.push(Box::pin(planning.run(leading)));
            let (link, clock) = (Arc::clone(&link), Arc::clone(&clock));
            tasks.push(Box::pin(async move {
                loop {
                    let _ = listen(&link, &bell).await;
                    bell.notify_one();
                    clock.sleep(RETRY).await;
                }
            }));
        }
        Ok((process, tasks))
    }

    /// Lets it end as after SIGTERM: its tasks finish what is under way and return.
    pub fn end(&self) {
        self.stop.cancel();
    }

    /// Whether it leads now.
    pub fn leads(&self) -> bool {
        self.lead.now().is_some()
    }

    /// Cuts the way to the store, or restores it.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }
}

/// Rings for whatever changes in the store and matters to a plan.
async fn listen(store: &Arc<dyn Store>, bell: &Notify) -> Result<(), StoreError> {
    let from = store.revision().await?;
    let mut hosts = store.watch(host_keys::ROOT, from).await?;
    let mut rest = store.watch("/muster/", from).await?;
    loop {
        let event = tokio::select! {
            biased;
            event = hosts.next() => event,
            event = rest.next() => event,
        };
        let Some(event) = event else { return Ok(()) };
        if let WatchEvent::Changes(changes) = event?
            && changes.iter().any(|change| matters(&change.key).is_some())
        {
            bell.notify_one();
        }
    }
}

/// One cluster's planner, called as production calls it: by news and by time.
struct Planning {
    parts: Parts,
    cluster: ClusterId,
    world: Arc<World>,
    port: Arc<dyn ClusterPort>,
    clock: Arc<ProcessClock>,
    bell: Arc<Notify>,
    attention: Attention,
    debounce: Duration,
}

impl Planning {
    async fn run(self, mut leading: Leading) {
        let mut planner = self.parts.planner(self.cluster);
        loop {
            let fence = leading.borrow_and_update().clone();
            if fence.is_none() && self.attention == Attention::News {
                // A process that only watches need not look: nobody asks it anything.
                if leading.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let now = self.clock.now();
            let seen = self.port.view().map_or(0, |view| view.number);
            let turn = planner.turn(now, fence.as_ref()).await;
            match &turn.did {
                Did::Gone => {
                    self.clock.sleep(RETRY).await;
                    continue;
                }
                Did::Decided(decision) => {
                    let state = decision.outcome.state.as_str();
                    let told =
                        decision.told.first().map(|one| format!(" ({})", one.headline)).unwrap_or_default();
                    self.world
                        .say(&format!("decision {} {state}: {}{told}", decision.number, decision.headline));
                }
                Did::Waited(_) | Did::Looked => {}
            }
            let next = match self.attention {
                Attention::Full => turn.next,
                Attention::News => {
                    let latest = now.saturating_add(LOOK);
                    turn.quiet_until.map_or(latest, |at| at.min(latest)).max(turn.next.min(latest))
                }
            };
            tokio::select! {
                biased;
                () = self.bell.notified() => {}
                () = self.port.changed(seen) => {}
                () = self.clock.sleep(next.since(self.clock.now())) => planner.nudge("timer"),
                result = leading.changed() => {
                    if result.is_err() {
                        return;
                    }
                    planner.nudge("leader");
                }
            }
            self.clock.sleep(self.debounce).await;
        }
    }
}
