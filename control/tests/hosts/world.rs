//! Machines, a cluster and time in memory. Time passes only when everybody waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use muster_control::{
    audit::{AuditError, Event, Outcome},
    hosts::{Around, Drivers, Home, HostLoop, Setup, Witness, failpoint::Failpoints},
    lead::Lead,
};
use muster_engine::lifecycle::{AgentView, Goodbye, Hello};
use muster_model::{
    Clock, Duration, Known, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, BootProfile, EventRing, HostOp, Intent, Phase,
        PowerInterface, Presence, Switch,
        keys::{self, HostRecord},
    },
    k8s::{Effect, Node, Objects, Pod, Taint},
    observe::{ActError, Acted, CORDON_MARK, ClusterPort, ClusterView, NodeAction, NotSynced, STARTUP_TAINT},
    power::{
        Abilities, Accepted, Bmc, BootOverride, BootProgress, DriverKind, Endpoint, Fault, Health, Identity,
        Leave, LogEntry, Mac, Order, Pin, Power, PowerAction, PowerError, PowerState, Reading, Sensors,
        Trust, Warning,
    },
    rack::Rack,
    store::{Committed, Fence, List, Revision, Store, Txn},
};
use muster_store::memory::Memory;
use serde_json::json;
use tokio_util::sync::CancellationToken;

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
    pub(crate) racks: BTreeMap<String, Rack>,
    pub(crate) credential_version: u64,
    /// The audit log, and whether nothing can be written to it.
    pub(crate) audit: Vec<Event>,
    pub(crate) audit_is_full: bool,
    pub(crate) pool_max: Option<u32>,
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

    pub(crate) fn taints(&self, host: &str) -> Vec<String> {
        self.nodes.get(host).map(|node| node.taints.iter().cloned().collect()).unwrap_or_default()
    }
}

/// A driver of one kind for all machines.
#[derive(Debug)]
struct TestDriver {
    kind: DriverKind,
    outside: Arc<Outside>,
}

impl TestDriver {
    fn name(&self) -> &'static str {
        match self.kind {
            DriverKind::Redfish => "redfish",
            DriverKind::Ipmi => "ipmi",
            DriverKind::Wol => "wol",
            _ => "agent",
        }
    }

    fn unable(&self, bmc: &Bmc, what: &str) -> PowerError {
        PowerError::new(bmc, Fault::Unsupported { what: what.into(), driver: self.kind })
    }

    /// The way to the machine and back, and what may happen on it.
    async fn travel(&self, bmc: &Bmc) -> Result<(), PowerError> {
        let (latency, silent, denies, key) = {
            let now = self.outside.clock.now();
            let mut state = self.outside.state();
            state.travels.push((now, bmc.host.clone()));
            let flights = state.in_flight.entry(bmc.host.clone()).or_default();
            *flights += 1;
            let flights = *flights;
            state.most_in_flight = state.most_in_flight.max(flights);
            let machine = &state.machines[&bmc.host];
            (machine.latency, machine.silent.contains(self.name()), machine.denies, machine.key)
        };
        self.outside.clock.sleep(latency).await;
        if let Some(flights) = self.outside.state().in_flight.get_mut(&bmc.host) {
            *flights -= 1;
        }
        if silent {
            return Err(PowerError::new(bmc, Fault::Unreachable { why: "no route".into() }));
        }
        if let (Endpoint::Redfish { trust: Trust::Pin { pin }, .. }, Some(found)) = (&bmc.endpoint, key)
            && *pin != Some(found)
        {
            let why = "the approved key is another".to_owned();
            let fault =
                if pin.is_some() { Fault::Untrusted { why, found } } else { Fault::Unapproved { found } };
            return Err(PowerError::new(bmc, fault));
        }
        if denies && self.outside.state().credential_version < 2 {
            return Err(PowerError::new(bmc, Fault::Denied { credential: "rack-a".into() }));
        }
        Ok(())
    }
}

#[async_trait]
impl Power for TestDriver {
    fn driver(&self) -> DriverKind {
        self.kind
    }

    fn abilities(&self) -> Abilities {
        use PowerAction::{Cycle, ForceOff, GracefulOff, On};
        match self.kind {
            DriverKind::Wol => Abilities::actions([On]),
            DriverKind::Agent => Abilities::actions([GracefulOff]),
            _ => Abilities {
                read: true,
                boot: true,
                sensors: true,
                identify: true,
                log: true,
                ..Abilities::actions([On, GracefulOff, ForceOff, Cycle])
            },
        }
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        {
            let mut state = self.outside.state();
            state.reads += 1;
            *state.reads_by.entry(self.name()).or_default() += 1;
        }
        self.travel(bmc).await?;
        let now = self.outside.clock.now();
        let state = self.outside.state();
        let machine = &state.machines[&bmc.host];
        let on = machine.on && !machine.lies_off.contains(self.name());
        Ok(Reading {
            state: match (machine.stuck, on) {
                (true, _) => PowerState::PoweringOn,
                (false, true) => PowerState::On,
                (false, false) => PowerState::Off,
            },
            at: now,
            driver: self.kind,
            progress: match machine.stage {
                _ if machine.is_up(now) => BootProgress::OsRunning,
                Some(stage) => BootProgress::Firmware(stage.into()),
                None => BootProgress::NotReported,
            },
            health: Health::Ok,
            warnings: machine.unverified.into_iter().collect(),
        })
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        self.travel(bmc).await?;
        leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
        if self.outside.state().machines[&bmc.host].busy {
            return Err(PowerError::new(bmc, Fault::Busy { why: "503".into() }));
        }
        let (now, name) = (self.outside.clock.now(), self.name());
        let mut state = self.outside.state();
        if let (Some(expected), Some(found)) = (&bmc.expect.uuid, &state.machines[&bmc.host].uuid)
            && order.action.interrupts()
            && expected != found
        {
            let (expected, found) = (expected.clone(), found.clone());
            return Err(PowerError::new(bmc, Fault::WrongHost { what: "UUID", expected, found }));
        }
        state.calls.push((now, bmc.host.clone(), self.kind, order));
        if let Endpoint::Wol { mac, .. } = &bmc.endpoint {
            state.packets.push(*mac);
        }
        let machine = state.machines.get_mut(&bmc.host).unwrap();
        let action = order.action.to_string();
        if machine.unable.contains(&(name, action.as_str())) {
            state.calls.pop();
            return Err(self.unable(bmc, &action));
        }
        match order.action {
            PowerAction::On if !machine.ignores_on.contains(name) => machine.switch(true, now),
            PowerAction::GracefulOff if !machine.ignores_acpi && machine.is_up(now) => {
                machine.shutdown_at = Some(now.saturating_add(machine.shutdown));
                if self.kind == DriverKind::Agent {
                    let op = String::new();
                    state.goodbyes.insert(bmc.host.clone(), Goodbye { op, at: now });
                }
            }
            PowerAction::ForceOff if !machine.ignores_force => machine.switch(false, now),
            PowerAction::Cycle => {
                machine.switch(false, now);
                machine.switch(true, now);
            }
            _ => {}
        }
        Ok(Accepted::Sent { how: order.action.to_string() })
    }

    async fn sensors(&self, bmc: &Bmc) -> Result<Sensors, PowerError> {
        let watts = self.outside.state().machines[&bmc.host].watts;
        let Some(watts) = watts else {
            return Err(PowerError::new(bmc, Fault::unsupported("sensors", self.kind)));
        };
        self.outside.state().sensed.push((bmc.host.clone(), self.kind));
        self.travel(bmc).await?;
        let at = self.outside.clock.now();
        let milliwatts = Known::Value { value: watts * 1000, at };
        Ok(Sensors { milliwatts, temperatures: Vec::new(), health: Health::Ok })
    }

    async fn set_boot(
        &self,
        bmc: &Bmc,
        boot: BootOverride,
        leave: &Leave,
    ) -> Result<BootOverride, PowerError> {
        self.travel(bmc).await?;
        leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
        let mut state = self.outside.state();
        if state.machines[&bmc.host].unable.contains(&(self.name(), "boot")) {
            return Err(self.unable(bmc, "boot"));
        }
        state.boots.push(self.kind);
        let once = boot.once && !state.machines[&bmc.host].keeps_boot;
        Ok(BootOverride { once, ..boot })
    }

    async fn log_tail(&self, bmc: &Bmc, most: usize) -> Result<Vec<LogEntry>, PowerError> {
        self.travel(bmc).await?;
        let log = self.outside.state().machines[&bmc.host].log.clone();
        match log {
            Some(entries) => Ok(entries.into_iter().take(most).collect()),
            None => std::future::pending().await,
        }
    }

    async fn restart_bmc(&self, bmc: &Bmc, leave: &Leave) -> Result<Accepted, PowerError> {
        self.travel(bmc).await?;
        leave.ask().map_err(|fault| PowerError::new(bmc, fault))?;
        let mut state = self.outside.state();
        state.restarts += 1;
        state.machines.get_mut(&bmc.host).unwrap().stuck = false;
        Ok(Accepted::Sent { how: "a restart of the BMC".into() })
    }

    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError> {
        self.travel(bmc).await?;
        let state = self.outside.state();
        let (machine, macs) = (&state.machines[&bmc.host], vec![Mac([2, 0, 0, 0, 0, 0xee])]); // not the one that wakes
        let (serial, uuid) = (machine.serial.clone(), machine.uuid.clone());
        Ok(Identity { serial, uuid, macs, ..Identity::default() })
    }
}

/// One connection to the cluster that all hosts join.
#[derive(Debug)]
pub(crate) struct TestCluster(pub(crate) Arc<Outside>, pub(crate) bool);

#[async_trait]
impl ClusterPort for TestCluster {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let now = self.0.clock.now();
        let state = self.0.state();
        if state.api_down {
            return Err(NotSynced { total: 1, waiting: Vec::new() });
        }
        let mut objects = Objects::default();
        let mut renewed = BTreeMap::new();
        for (name, node) in state.nodes.iter().filter(|(_, node)| !node.deleted) {
            let taint = |key: &String| Taint {
                key: key.as_str().into(),
                value: "".into(),
                effect: Effect::NoSchedule,
            };
            let mut annotations = json!({});
            if let Some(mark) = &node.cordon {
                annotations = json!({ CORDON_MARK: mark });
            }
            let mut made: Node = serde_json::from_value(json!({
                "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": node.labels, "annotations": annotations},
                "spec": {"unschedulable": node.unschedulable},
                "status": {
                    "conditions": [{"type": "Ready", "status": if node.ready { "True" } else { "Unknown" }}],
                    "allocatable": {"cpu": "8", "memory": "16Gi"},
                    "nodeInfo": {"bootID": format!("boot-{}", node.boot)},
                }
            }))
            .unwrap();
            made.spec.taints = node.taints.iter().map(taint).collect();
            if let Some(at) = node.renewed {
                renewed.insert(Arc::from(name.as_str()), at);
            }
            objects.nodes.push(made);
        }
        for pod in &state.pods {
            let made: Pod = serde_json::from_value(json!({
                "metadata": {
                    "name": pod.name, "namespace": "default", "uid": format!("uid-{}", pod.name),
                    "deletionTimestamp": pod.deleted_at,
                    "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}],
                },
                "spec": {"nodeName": pod.node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": "Running"},
            }))
            .unwrap();
            objects.pods.push(made);
        }
        Ok(ClusterView {
            number: self.number(),
            fresh_at: now,
            objects: Arc::new(objects),
            renewed: Arc::new(renewed),
            set_aside: Arc::from([]),
            ..ClusterView::default()
        })
    }

    fn number(&self) -> u64 {
        self.0.clock.monotonic().millis() / 500 + 1
    }

    async fn changed(&self, seen: u64) {
        if self.0.state().renewed && !self.1 {
            std::future::pending::<()>().await;
        }
        while self.0.clock.monotonic().millis() / 500 < seen {
            self.0.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError> {
        let now = self.0.clock.now();
        let mut state = self.0.state();
        if state.api_down {
            return Err(ActError::Unreachable { what: node.into(), why: "down".into() });
        }
        if let NodeAction::Evict { pod, .. } = action {
            state.evictions += 1;
            if let Some(lead) = &state.deposed_by_eviction {
                lead.set(None);
            }
            if let Some(budget) = state.budget.clone() {
                return Err(ActError::Budget { pod: pod.to_string(), budget, retry_after_seconds: None });
            }
            let found = state.pods.iter_mut().find(|one| *one.name == *pod.name);
            let Some(found) = found else { return Ok(Acted::Gone) };
            found.deleted_at.get_or_insert(now);
            return Ok(Acted::Done);
        }
        let Some(marks) = state.nodes.get_mut(node) else { return Ok(Acted::Gone) };
        match action {
            NodeAction::Cordon { op } => {
                if !marks.unschedulable {
                    (marks.unschedulable, marks.cordon) = (true, Some(op.clone()));
                }
            }
            NodeAction::Uncordon => {
                if marks.cordon.take().is_some() {
                    marks.unschedulable = false;
                }
            }
            NodeAction::Label { labels, taints } => {
                marks.labels.extend(labels.iter().map(|(key, value)| (key.to_owned(), value.to_string())));
                marks.taints.extend(taints.iter().map(|taint| taint.key.to_string()));
            }
            NodeAction::AddTaint(taint) => drop(marks.taints.insert(taint.key.to_string())),
            NodeAction::RemoveTaint { key } => drop(marks.taints.remove(key)),
            NodeAction::DeleteNode { .. } => marks.deleted = true,
            NodeAction::Evict { .. } => unreachable!("handled above"),
        }
        Ok(Acted::Done)
    }
}

/// A cluster without nodes, or with those that are left of an earlier time.
#[derive(Debug)]
struct BareCluster(Arc<Outside>);

#[async_trait]
impl ClusterPort for BareCluster {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let (fresh_at, state) = (self.0.clock.now(), self.0.state());
        let mut objects = Objects::default();
        if state.pool_is == PoolIs::WhereItWasBefore {
            objects.nodes.extend(state.machines.keys().map(|name| -> Node {
                serde_json::from_value(json!({
                    "metadata": {"name": name, "uid": format!("old-{name}")},
                    "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
                }))
                .unwrap()
            }));
        }
        Ok(ClusterView { number: 1, fresh_at, objects: Arc::new(objects), ..ClusterView::default() })
    }

    fn number(&self) -> u64 {
        1
    }

    async fn changed(&self, _: u64) {
        std::future::pending::<()>().await;
    }

    async fn act(&self, _: &str, _: &NodeAction) -> Result<Acted, ActError> {
        Ok(Acted::Gone)
    }
}

#[derive(Debug)]
struct TestAround {
    outside: Arc<Outside>,
    cluster: [Arc<dyn ClusterPort>; 2],
    other: Arc<dyn ClusterPort>,
}

impl TestAround {
    fn cluster(&self) -> Arc<dyn ClusterPort> {
        Arc::clone(&self.cluster[usize::from(self.outside.state().renewed)])
    }
}

impl Around for TestAround {
    fn home(&self, _pool: &str) -> Home {
        let (pool, disconnected) = {
            let state = self.outside.state();
            (state.pool_is, state.disconnected)
        };
        match pool {
            PoolIs::Gone => Home::Nowhere,
            PoolIs::Elsewhere | PoolIs::WhereItWasBefore => {
                Home::Cluster { name: "other".into(), port: Arc::clone(&self.other) }
            }
            PoolIs::Here if disconnected => Home::Unconnected { why: "cluster lab is not connected".into() },
            PoolIs::Here => Home::Cluster { name: "lab".into(), port: self.cluster() },
        }
    }

    fn clusters(&self) -> muster_control::hosts::Clusters {
        let disconnected = self.outside.state().disconnected;
        let lab = (!disconnected).then(|| ("lab".into(), self.cluster()));
        lab.into_iter().chain([("other".into(), Arc::clone(&self.other))]).collect()
    }

    fn pool_max(&self, _pool: &str) -> Option<u32> {
        self.outside.state().pool_max
    }

    fn rack(&self, name: &str) -> Option<Rack> {
        self.outside.state().racks.get(name).cloned()
    }

    fn boot_profile(&self, name: &str) -> Option<BootProfile> {
        serde_json::from_value(json!({ "name": name, "target": "pxe" })).ok()
    }

    fn credential_version(&self, _name: &str) -> u64 {
        self.outside.state().credential_version
    }

    fn credentials_changed(&self) -> u64 {
        self.outside.state().credential_version
    }

    fn agent(&self, host: &str) -> AgentView {
        let now = self.outside.clock.now();
        let state = self.outside.state();
        let machine = &state.machines[host];
        let hello = (machine.is_up(now) && !machine.no_agent)
            .then(|| Hello { boot_id: format!("boot-{}", machine.boots), at: now });
        AgentView { hello, goodbye: state.goodbyes.get(host).cloned() }
    }

    fn presence(&self, host: &str, now: Timestamp) -> Known<Presence> {
        let up = self.outside.state().machines[host].is_up(now);
        Known::Value { value: if up { Presence::Answers } else { Presence::Silent }, at: now }
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
        let state = Mutex::new(State { credential_version: 1, ..State::default() });
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
