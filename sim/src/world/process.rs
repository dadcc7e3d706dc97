//! One Muster process on a world: the election, the host loop, the planner and what they need, unmodified.

use std::{
    ops::ControlFlow,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::StreamExt as _;
use muster_control::{
    hosts::{Drivers, Facts, HostLoop, NoWitness, Setup, failpoint::Failpoints},
    inventory::{Inventory, Vault, VaultKey},
    lead::{self, Lead, Leading},
    planner::{Board, Did, Heard, Parts, Planner, matters},
    registry::{Registry, RegistryOptions},
    snapshot::STALE_AFTER,
};
use muster_model::{
    Clock, ClusterId, Duration, Timestamp,
    host::keys as host_keys,
    lease::LeaseConfig,
    observe::{ClusterPort, shows_more},
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
const LOOK: Duration = Duration::from_mins(10);
/// Between rounds of upkeep when only news count.
const UPKEEP: Duration = Duration::from_mins(5);
/// Between looks at what stands around hosts: a new pool's cluster, racks, credentials.
const SURVEY: Duration = Duration::from_mins(2);
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

/// What a process is started with.
#[derive(Debug)]
pub struct Start<'a> {
    pub world: &'a Arc<World>,
    pub store: &'a Arc<dyn Store>,
    pub name: &'a str,
    pub clusters: &'a [ClusterId],
    pub manner: &'a Manner,
    /// By how many milliseconds the wall clock of its machine is wrong.
    pub clock_off_by: i64,
}

impl Start<'_> {
    fn link(&self, cut: &Arc<AtomicBool>) -> Arc<dyn Store> {
        Arc::new(Link {
            store: Arc::clone(self.store),
            world: Arc::clone(self.world),
            process: self.name.into(),
            cut: Arc::clone(cut),
        })
    }

    /// The clock of what only looks whether something is due.
    fn patient(&self, clock: &Arc<ProcessClock>, least: Duration) -> Arc<dyn Clock> {
        match self.manner.attention {
            Attention::Full => Arc::clone(clock) as _,
            Attention::News => Arc::new(PatientClock { clock: Arc::clone(clock) as _, least }),
        }
    }

    fn lease(&self) -> LeaseConfig {
        let times =
            |length: Duration| Duration::from_millis(length.millis() * self.manner.lease_factor.max(1));
        let mut config = lead::config(self.name);
        (config.duration, config.renew_deadline, config.retry) =
            (times(config.duration), times(config.renew_deadline), times(config.retry));
        config
    }

    fn host_loop(
        &self,
        link: &Arc<dyn Store>,
        clock: &Arc<ProcessClock>,
        lead: &Arc<Lead>,
        facts: &Arc<Facts>,
    ) -> Arc<HostLoop> {
        let config = self.lease();
        Arc::new(HostLoop::new(Setup {
            store: Arc::clone(link),
            clock: Arc::clone(clock) as _,
            lead: Arc::clone(lead),
            drivers: Drivers::new(self.world.drivers(self.name, clock)),
            around: Arc::clone(facts) as _,
            witness: Arc::new(NoWitness),
            time_factor: 1,
            renew_deadline: config.renew_deadline,
            renew_every: config.retry,
            failpoints: self.manner.failpoints.clone(),
        }))
    }

    /// The planner of one cluster, and what rings for it.
    fn planning(
        &self,
        parts: &Parts,
        process: &Process,
        link: &Arc<dyn Store>,
        cluster: ClusterId,
    ) -> [Task; 2] {
        let bell = Arc::new(Notify::new());
        let planning = Planning {
            parts: parts.clone(),
            cluster,
            world: Arc::clone(self.world),
            port: self.world.port(self.name, &process.clock),
            clock: Arc::clone(&process.clock),
            bell: Arc::clone(&bell),
            attention: self.manner.attention,
            debounce: self.manner.debounce,
        };
        let (link, clock) = (Arc::clone(link), Arc::clone(&process.clock));
        let ring = async move {
            loop {
                let _ = listen(&link, &bell).await;
                bell.notify_one();
                clock.sleep(RETRY).await;
            }
        };
        [Box::pin(planning.run(process.lead.subscribe())), Box::pin(ring)]
    }
}

impl Process {
    /// Starts one on a store: what it is made of, and its tasks for whoever runs them.
    pub async fn start(start: &Start<'_>) -> Result<(Self, Vec<Task>), StoreError> {
        let clock = start.world.clock_off_by(start.clock_off_by);
        let cut = Arc::new(AtomicBool::new(false));
        let (link, patient) = (start.link(&cut), start.patient(&clock, UPKEEP));
        let options = RegistryOptions { exclusive: false, default_lease: Duration::from_mins(10) };
        let registry = Registry::open(Arc::clone(&link), Arc::clone(&patient), options).await?;
        let inventory = Inventory::open(Arc::clone(&link), Arc::clone(&patient)).await?;
        let key = VaultKey::in_memory().map_err(|error| StoreError::Invalid { why: error.to_string() })?;
        let vault = Arc::new(Vault::new(Arc::clone(&inventory), key));
        let mut parts = Parts::new(Arc::clone(&registry));
        parts.connections = start.world.connections(start.name, &clock);
        parts.triggers = Some(start.world.triggers(&clock));
        parts.clock = Arc::clone(&clock) as _;
        let facts = Facts::new(
            Arc::clone(&registry),
            Arc::clone(&inventory),
            Arc::clone(&vault),
            Arc::clone(&parts.connections),
            start.world.agents(&clock),
            start.patient(&clock, SURVEY),
        );
        let lead = Lead::new(clock.clone());
        parts.lead = Some(Arc::clone(&lead));
        let host_loop = start.host_loop(&link, &clock, &lead, &facts);
        let process = Self {
            name: start.name.into(),
            clock,
            lead,
            registry,
            inventory,
            vault,
            host_loop,
            board: Arc::clone(&parts.board),
            cut,
            stop: CancellationToken::new(),
        };
        let mut tasks = process.loops(facts, Arc::clone(&link), start.lease());
        for cluster in start.clusters {
            tasks.extend(start.planning(&parts, &process, &link, *cluster));
        }
        Ok((process, tasks))
    }

    /// Everything that goes on in it beside its planners.
    fn loops(&self, facts: Arc<Facts>, link: Arc<dyn Store>, config: LeaseConfig) -> Vec<Task> {
        let stop = || self.stop.clone();
        let (registry, inventory, beside) =
            (Arc::clone(&self.registry), Arc::clone(&self.inventory), Arc::clone(&self.registry));
        let (lead, host_loop) = (Arc::clone(&self.lead), Arc::clone(&self.host_loop));
        let (one, two, three, four, five) = (stop(), stop(), stop(), stop(), stop());
        vec![
            Box::pin(async move { registry.run(one).await }),
            Box::pin(async move { inventory.run(beside, two).await }),
            Box::pin(async move { facts.run(three).await }),
            Box::pin(async move {
                let _ = lead::run(link, config, lead, four).await;
            }),
            Box::pin(async move { host_loop.run(five).await }),
        ]
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
            let seen = self.port.number();
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
            if self.wait(&mut planner, next, turn.stale_at, seen, &mut leading).await.is_break() {
                return;
            }
            self.clock.sleep(self.debounce).await;
        }
    }

    /// Until when what the cluster shows now can be trusted.
    fn fresh_until(&self) -> Option<Timestamp> {
        Some(self.port.view().ok()?.fresh_at.saturating_add(STALE_AFTER))
    }

    /// Until there is a reason to look again. Triggers are asked meanwhile: only another answer is a reason.
    async fn wait(
        &self,
        planner: &mut Planner,
        next: Timestamp,
        mut stale_at: Option<Timestamp>,
        seen: u64,
        leading: &mut Leading,
    ) -> ControlFlow<()> {
        loop {
            let ask = planner.ask_in().map(|length| self.clock.now().saturating_add(length));
            let ask = ask.filter(|at| self.attention == Attention::News && *at < next);
            let stale = stale_at.filter(|at| *at < ask.unwrap_or(next));
            let until = stale.or(ask).unwrap_or(next);
            tokio::select! {
                biased;
                () = self.bell.notified() => return ControlFlow::Continue(()),
                () = shows_more(&*self.port, seen) => return ControlFlow::Continue(()),
                () = self.clock.sleep(until.since(self.clock.now())) => {
                    // A cluster that is still there is no reason to look.
                    if stale.is_some() && self.fresh_until().is_some_and(|at| at > until) {
                        stale_at = self.fresh_until();
                        continue;
                    }
                    if stale.is_some() || ask.is_none() {
                        planner.nudge("timer");
                        return ControlFlow::Continue(());
                    }
                    planner.ask_triggers(self.clock.now());
                }
                heard = planner.heard() => {
                    if heard == Heard::Otherwise {
                        planner.nudge("triggers");
                        return ControlFlow::Continue(());
                    }
                }
                result = leading.changed() => {
                    planner.nudge("leader");
                    return if result.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                }
            }
        }
    }
}
