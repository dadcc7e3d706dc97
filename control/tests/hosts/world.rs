//! Machines, a cluster and time in memory. Time passes only when everybody waits.

mod cluster;
mod driver;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use muster_control::{
    audit::{AuditError, Event, Outcome},
    hosts::{Drivers, HostLoop, Setup, Witness, failpoint::Failpoints},
    lead::Lead,
};
use muster_engine::lifecycle::Goodbye;
use muster_model::{
    Clock, Duration, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, EventRing, HostOp, Intent, Phase, PowerInterface, Switch,
        keys::{self, HostRecord},
    },
    observe::{ClusterPort, STARTUP_TAINT},
    power::{DriverKind, LogEntry, Mac, Order, Pin, Power, PowerAction, Warning},
    rack::Rack,
    store::{Committed, Fence, List, Revision, Store, Txn},
};
use muster_store::memory::Memory;
use tokio_util::sync::CancellationToken;

use cluster::{BareCluster, TestAround, TestCluster};
use driver::TestDriver;

const START: i64 = 1_700_000_000_000;

/// Tokio's paused time.
#[derive(Debug)]
pub(crate) struct TestClock {
    begin: tokio::time::Instant,
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(START).saturating_add(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        self.begin.elapsed().into()
    }

    #[allow(clippy::disallowed_methods, reason = "tokio's time is paused and belongs to the test")]
    async fn sleep(&self, length: Duration) {
        tokio::time::sleep(length.as_std()).await;
    }
}

/// How a machine behaves.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) on: bool,
    pub(crate) turned_at: Timestamp,
    pub(crate) boots: u32,
    pub(crate) serial: Option<String>,
    pub(crate) uuid: Option<String>,
    /// Power-on requests that are accepted and ignored, by driver.
    pub(crate) ignores_on: BTreeSet<&'static str>,
    pub(crate) ignores_acpi: bool,
    pub(crate) ignores_force: bool,
    /// From power to a kubelet; `None` hangs.
    pub(crate) boot: Option<Duration>,
    pub(crate) shutdown: Duration,
    shutdown_at: Option<Timestamp>,
    /// Drivers that say off whatever is so.
    pub(crate) lies_off: BTreeSet<&'static str>,
    /// Drivers that do not answer.
    pub(crate) silent: BTreeSet<&'static str>,
    pub(crate) denies: bool,
    /// Its BMC reads, and has no time for a power call.
    pub(crate) busy: bool,
    /// It does what it is asked and never answers.
    pub(crate) swallows: bool,
    /// What a driver is not able to do on it.
    pub(crate) unable: BTreeSet<(&'static str, &'static str)>,
    /// A boot device that is set stays for every boot.
    pub(crate) keeps_boot: bool,
    /// The key that its BMC shows, where keys are compared at all.
    pub(crate) key: Option<Pin>,
    /// How it is talked to without checking who it is.
    pub(crate) unverified: Option<Warning>,
    /// How long an answer takes.
    pub(crate) latency: Duration,
    pub(crate) no_agent: bool,
    /// The BMC says `turning-on` until it is restarted.
    pub(crate) stuck: bool,
    /// What its BMC says while it boots.
    pub(crate) stage: Option<&'static str>,
    /// What it draws while it is on, for drivers that ask; `None` measures nothing.
    pub(crate) watts: Option<i64>,
    /// Its event log, newest first; `None` never answers.
    pub(crate) log: Option<Vec<LogEntry>>,
}

impl Machine {
    fn new(now: Timestamp, serial: &str) -> Self {
        Self {
            on: false,
            turned_at: now,
            boots: 0,
            serial: Some(serial.into()),
            uuid: None,
            ignores_on: BTreeSet::new(),
            ignores_acpi: false,
            ignores_force: false,
            boot: Some(Duration::from_secs(90)),
            shutdown: Duration::from_secs(15),
            shutdown_at: None,
            lies_off: BTreeSet::new(),
            silent: BTreeSet::new(),
            denies: false,
            busy: false,
            swallows: false,
            unable: BTreeSet::new(),
            keeps_boot: false,
            key: None,
            unverified: None,
            latency: Duration::from_millis(20),
            no_agent: false,
            stuck: false,
            stage: None,
            watts: None,
            log: Some(Vec::new()),
        }
    }

    fn switch(&mut self, on: bool, now: Timestamp) {
        if self.on != on {
            (self.on, self.turned_at, self.shutdown_at) = (on, now, None);
            self.boots += u32::from(on);
        }
    }

    fn live(&mut self, now: Timestamp) {
        if let Some(at) = self.shutdown_at.filter(|at| now >= *at) {
            self.switch(false, at);
        }
    }

    fn is_up(&self, now: Timestamp) -> bool {
        self.on && self.boot.is_some_and(|boot| now.since(self.turned_at) >= boot)
    }
}

/// Where the pool of all hosts is now; their nodes stay in the cluster that they joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PoolIs {
    #[default]
    Here,
    Gone,
    /// Of a cluster that has no nodes.
    Elsewhere,
    /// Of a cluster that has nodes of the same names from when they served there, and none of them lives.
    WhereItWasBefore,
}

#[derive(Debug, Clone, Default)]
struct NodeMarks {
    cordon: Option<String>,
    unschedulable: bool,
    taints: BTreeSet<String>,
    labels: BTreeMap<String, String>,
    renewed: Option<Timestamp>,
    boot: u32,
    ready: bool,
    deleted: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct TestPod {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) grace: Duration,
    pub(crate) deleted_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) machines: BTreeMap<String, Machine>,
    nodes: BTreeMap<String, NodeMarks>,
    pub(crate) pods: Vec<TestPod>,
    /// The budget that refuses evictions.
    pub(crate) budget: Option<String>,
    pub(crate) evictions: u32,
    /// Leadership ends with the next eviction.
    pub(crate) deposed_by_eviction: Option<Arc<Lead>>,
    /// Everything that reached a machine: when, host, driver and action.
    pub(crate) calls: Vec<(Timestamp, String, DriverKind, Order)>,
    /// Drivers that set the boot device.
    pub(crate) boots: Vec<DriverKind>,
    pub(crate) reads: u32,
    reads_by: BTreeMap<&'static str, u32>,
    /// Calls of all kinds to BMCs: when they began, and for which host.
    pub(crate) travels: Vec<(Timestamp, String)>,
    /// Who was asked for sensors, by which driver.
    pub(crate) sensed: Vec<(String, DriverKind)>,
    /// Where magic packets went.
    pub(crate) packets: Vec<Mac>,
    /// Restarts of BMCs.
    pub(crate) restarts: u32,
    /// Calls to each BMC that are under way, and the most that ever were.
    in_flight: BTreeMap<String, u32>,
    pub(crate) most_in_flight: u32,
    pub(crate) api_down: bool,
    /// Nodes from which nothing may be taken, and why.
    pub(crate) guarded: BTreeMap<Arc<str>, Arc<str>>,
    pub(crate) racks: BTreeMap<String, Rack>,
    pub(crate) credential_version: u64,
    /// The audit log, and whether nothing can be written to it.
    pub(crate) audit: Vec<Event>,
    pub(crate) audit_is_full: bool,
    pub(crate) pool_max: Option<u32>,
    /// The pool only gives advice, and how often that was another.
    pub(crate) advises: (bool, u64),
    /// Everything that was done to a node, or asked of its pods.
    pub(crate) node_acts: Vec<String>,
    pub(crate) pool_is: PoolIs,
    /// Nobody is connected to the cluster that all hosts join.
    pub(crate) disconnected: bool,
    /// The connection to it was made anew: the first one says nothing any more.
    pub(crate) renewed: bool,
    goodbyes: BTreeMap<String, Goodbye>,
}

/// Everything outside of the loop.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) state: Mutex<State>,
}

impl Outside {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.now();
        state.live(now);
        state
    }
}

impl State {
    fn live(&mut self, now: Timestamp) {
        for (name, machine) in &mut self.machines {
            machine.live(now);
            if machine.is_up(now) {
                let node = self.nodes.entry(name.clone()).or_insert_with(|| NodeMarks {
                    taints: BTreeSet::from([STARTUP_TAINT.to_owned()]),
                    ..NodeMarks::default()
                });
                (node.boot, node.ready, node.renewed, node.deleted) = (machine.boots, true, Some(now), false);
            } else if let Some(node) = self.nodes.get_mut(name)
                && node.renewed.is_none_or(|at| now.since(at) > Duration::from_secs(40))
            {
                node.ready = false;
            }
        }
        self.pods.retain(|pod| pod.deleted_at.is_none_or(|at| now.since(at) < pod.grace));
    }

    pub(crate) fn count(&self, host: &str, action: PowerAction) -> usize {
        self.calls.iter().filter(|(_, name, _, order)| name == host && order.action == action).count()
    }

    pub(crate) fn cordon(&self, host: &str) -> (bool, Option<String>) {
        self.nodes.get(host).map_or((false, None), |node| (node.unschedulable, node.cordon.clone()))
    }

    /// OPS-R12: every power call that reached a machine was in the audit log before it, with its host and its cause.
    pub(crate) fn audit_is_complete(&self) -> Result<(), String> {
        let mut begun: Vec<&Event> = self.audit.iter().filter(|one| one.outcome == Outcome::Begun).collect();
        for (at, host, driver, order) in &self.calls {
            let tells = |one: &&Event| {
                let deed = one.power.as_ref();
                let says_why = deed.is_some_and(|deed| {
                    deed.driver == driver.to_string() && !deed.cause.is_empty() && deed.epoch > 0
                });
                let verbs: &[&str] = match order.action {
                    PowerAction::On => &["power-on", "wol-burst"],
                    PowerAction::GracefulOff => &["graceful-off"],
                    PowerAction::ForceOff => &["force-off"],
                    PowerAction::Cycle | PowerAction::Reset => &["power-cycle"],
                };
                one.name == *host && verbs.contains(&one.verb.as_str()) && one.at <= *at && says_why
            };
            let Some(place) = begun.iter().position(tells) else {
                return Err(format!("{} of {host} at {at} is not in the audit log", order.action));
            };
            begun.remove(place);
        }
        let restarts = begun.iter().filter(|one| one.verb == "reset-bmc").count();
        if restarts < self.restarts as usize {
            return Err(format!("{} restarts of a BMC and {restarts} lines", self.restarts));
        }
        Ok(())
    }

    /// Readings that were asked of the drivers of this kind.
    pub(crate) fn reads_by(&self, driver: &str) -> u32 {
        self.reads_by.get(driver).copied().unwrap_or_default()
    }

    pub(crate) fn node_is_gone(&self, host: &str) -> bool {
        self.nodes.get(host).is_none_or(|node| node.deleted)
    }

    /// Its node takes pods already, as somebody else made it.
    pub(crate) fn serves_plainly(&mut self, host: &str) {
        self.nodes.get_mut(host).unwrap().taints.clear();
    }

    pub(crate) fn taints(&self, host: &str) -> Vec<String> {
        self.nodes.get(host).map(|node| node.taints.iter().cloned().collect()).unwrap_or_default()
    }
}

/// An audit log in memory.
#[derive(Debug)]
struct TestWitness(Arc<Outside>);

#[async_trait]
impl Witness for TestWitness {
    async fn record(&self, event: Event) -> Result<(), AuditError> {
        let mut state = self.0.state();
        if state.audit_is_full {
            return Err(AuditError::Write);
        }
        state.audit.push(event);
        Ok(())
    }
}

/// A test's whole world.
pub(crate) struct World {
    pub(crate) outside: Arc<Outside>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lead: Arc<Lead>,
    pub(crate) fence: Fence,
    pub(crate) host_loop: Arc<HostLoop>,
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Arc::new(Memory::default()), Failpoints::default()).await
    }

    pub(crate) async fn with(store: Arc<dyn Store>, failpoints: Failpoints) -> Self {
        let clock = Arc::new(TestClock { begin: tokio::time::Instant::now() });
        let state = Mutex::new(State { credential_version: 1, advises: (false, 1), ..State::default() });
        let outside = Arc::new(Outside { clock, state });
        Self::on(outside, store, failpoints).await
    }

    /// Starts the loop on what is there: as a new process does.
    pub(crate) async fn on(outside: Arc<Outside>, store: Arc<dyn Store>, failpoints: Failpoints) -> Self {
        let clock: Arc<dyn Clock> = outside.clock.clone();
        let key = "/muster/leases/hosts/epoch".to_owned();
        let Committed::Done { revision } = store.commit(Txn::new().put(&key, "me")).await.unwrap() else {
            panic!("refused")
        };
        let fence = Fence { key, epoch: revision };
        let lead = Lead::new(Arc::clone(&clock));
        lead.set(Some((fence.clone(), Duration::from_hours(10_000))));
        let driver =
            |kind| -> Arc<dyn Power> { Arc::new(TestDriver { kind, outside: Arc::clone(&outside) }) };
        let kinds =
            [DriverKind::Redfish, DriverKind::Ipmi, DriverKind::Wol, DriverKind::Agent, DriverKind::DryRun];
        let cluster =
            |renewed| -> Arc<dyn ClusterPort> { Arc::new(TestCluster(Arc::clone(&outside), renewed)) };
        let host_loop = Arc::new(HostLoop::new(Setup {
            store: Arc::clone(&store),
            clock,
            lead: Arc::clone(&lead),
            drivers: Drivers::new(kinds.map(driver)),
            around: Arc::new(TestAround {
                outside: Arc::clone(&outside),
                cluster: [cluster(false), cluster(true)],
                other: Arc::new(BareCluster(Arc::clone(&outside))),
            }),
            witness: Arc::new(TestWitness(Arc::clone(&outside))),
            time_factor: 1,
            renew_deadline: Duration::from_secs(40),
            renew_every: Duration::from_secs(2),
            failpoints,
        }));
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (host_loop, stop) = (Arc::clone(&host_loop), stop.clone());
            async move { host_loop.run(stop).await }
        });
        Self { outside, store, lead, fence, host_loop, stop, task: Some(task) }
    }

    /// The process dies where it stands.
    pub(crate) async fn kill(mut self) -> (Arc<Outside>, Arc<dyn Store>) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        self.outside.state().in_flight.clear();
        (Arc::clone(&self.outside), Arc::clone(&self.store))
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.await.unwrap();
        }
    }

    pub(crate) fn spec() -> BareMetalNodeSpec {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.bmc_credentials = Some("rack-a".into());
        spec.node_match.by = muster_model::host::MatchBy::Name;
        spec
    }

    pub(crate) async fn put(&self, key: String, value: impl serde::Serialize) -> Revision {
        let txn = Txn::new().put(key, serde_json::to_vec(&value).unwrap());
        match self.store.commit(txn).await.unwrap() {
            Committed::Done { revision } => revision,
            Committed::Refused { .. } => unreachable!("nothing is compared"),
        }
    }

    /// Registers a host with a machine that is off.
    pub(crate) async fn register(&self, name: &str, change: impl FnOnce(&mut BareMetalNodeSpec)) {
        let now = self.outside.clock.now();
        let serial = format!("serial-{name}");
        self.outside.state().machines.insert(name.into(), Machine::new(now, &serial));
        let mut spec = Self::spec();
        let number = name.replace(|c: char| !c.is_ascii_digit(), "").parse::<u32>().unwrap_or(0);
        spec.mgmt_address = Some(format!("10.0.{}.{}", number / 200, number % 200 + 1).parse().unwrap());
        change(&mut spec);
        self.put(keys::host(name, HostRecord::Spec), &spec).await;
    }

    pub(crate) async fn respec(&self, name: &str, change: impl FnOnce(&mut BareMetalNodeSpec)) {
        let key = keys::host(name, HostRecord::Spec);
        let entry = self.store.get(&key).await.unwrap().unwrap();
        let mut spec = BareMetalNodeSpec::parse(&entry.value).unwrap().value;
        change(&mut spec);
        self.put(key, &spec).await;
    }

    pub(crate) async fn want(&self, name: &str, want: Switch, id: &str) {
        let intent = Intent {
            id: id.into(),
            want,
            pool: "gpu".into(),
            decision: "d-1".into(),
            reason: "2 pods wait".into(),
            epoch: self.fence.epoch.0,
            at: self.outside.clock.now(),
            spread_weighed: false,
        };
        self.put(keys::host(name, HostRecord::Intent), &intent).await;
    }

    pub(crate) async fn read<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        let entry = self.store.get(key).await.unwrap()?;
        Some(serde_json::from_slice(&entry.value).unwrap())
    }

    pub(crate) async fn status(&self, name: &str) -> BareMetalNodeStatus {
        self.read(&keys::host(name, HostRecord::Status)).await.expect("a status")
    }

    pub(crate) async fn op(&self, name: &str) -> Option<HostOp> {
        self.read(&keys::host(name, HostRecord::Op)).await
    }

    pub(crate) async fn intent(&self, name: &str) -> Option<Intent> {
        self.read(&keys::host(name, HostRecord::Intent)).await
    }

    pub(crate) async fn events(&self, name: &str) -> EventRing {
        self.read(&keys::host(name, HostRecord::Events)).await.unwrap_or_default()
    }

    pub(crate) async fn phase(&self, name: &str) -> Option<Phase> {
        self.read::<BareMetalNodeStatus>(&keys::host(name, HostRecord::Status)).await.map(|one| one.phase)
    }

    pub(crate) async fn pass(&self, secs: u64) {
        self.outside.clock.sleep(Duration::from_secs(secs)).await;
    }

    /// Waits until the host stands in `phase`; fails when that takes longer than `secs` of the world's time.
    #[track_caller]
    pub(crate) fn until(&self, name: &str, phase: Phase, secs: u64) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            for _ in 0..secs * 4 {
                if self.phase(name).await == Some(phase) {
                    return;
                }
                self.outside.clock.sleep(Duration::from_millis(250)).await;
            }
            let status = self.read::<serde_json::Value>(&keys::host(name, HostRecord::Status)).await;
            let calls = format!("{:?}", self.outside.state().calls);
            panic!(
                "{caller}: {name} not {phase} in {secs}s: {status:#?}\n{:#?}\n{calls}",
                self.events(name).await.events.iter().map(|event| event.message.clone()).collect::<Vec<_>>()
            );
        }
    }

    /// A registered host at rest.
    pub(crate) async fn idle(&self, name: &str) {
        self.register(name, |_| {}).await;
        self.until(name, Phase::Idle, 120).await;
    }

    /// A host that has served for long enough to be stood down.
    pub(crate) async fn serving(&self, name: &str) {
        self.idle(name).await;
        self.pass(130).await;
        self.want(name, Switch::On, "i-on").await;
        self.until(name, Phase::Serving, 300).await;
        self.pass(700).await;
    }

    pub(crate) fn pod(&self, name: &str, node: &str, grace: u64) {
        let grace = Duration::from_secs(grace);
        let pod = TestPod { name: name.into(), node: node.into(), grace, deleted_at: None };
        self.outside.state().pods.push(pod);
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        let page = self.store.list(List::prefix("/baremetal/")).await.unwrap();
        page.entries.into_iter().map(|entry| entry.key).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
