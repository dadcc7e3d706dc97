//! Hosts, their store, the loop that runs them and the cluster that their nodes are in.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context;
use async_trait::async_trait;
use muster_control::{
    hosts::{Around, Drivers, Home, HostLoop, NoWitness, Setup, failpoint::Failpoints},
    lead::{self, Lead},
};
use muster_model::{
    Clock, Duration, Secret, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, GlobalConfig, Intent, Phase, PublicPower, Switch,
        keys::{self, HostRecord},
    },
    k8s::{Node, Objects, Pod},
    observe::{ActError, Acted, ClusterPort, ClusterView, NodeAction, NotSynced},
    power::{Credential, CredentialError, Credentials},
    store::{Store, Txn},
};
use muster_power::{
    Limits,
    address::AddressRules,
    redfish::{Ledger, MemoryLedger, Redfish, Setup as RedfishSetup},
};
use muster_store::{OpenOptions, Target};
use serde_json::json;
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{emulator::Emulator, watched::Watched};
use crate::{bench::time, clock::SystemClock};

pub(super) const POOL: &str = "metal";
/// How often nodes are seen to renew their leases: kubelets do it every ten seconds.
const RENEWED: Duration = Duration::from_secs(5);
/// Records in one transaction while the store is filled.
const BATCH: usize = 100;

pub(super) fn name(index: u32) -> String {
    format!("emulated-{index:05}")
}

/// The one account of all BMCs.
#[derive(Debug)]
struct Account;

#[async_trait]
impl Credentials for Account {
    async fn credential(&self, _: &str) -> Result<Credential, CredentialError> {
        Ok(Credential { user: "admin".into(), password: Secret::new("emulated"), version: "1".into() })
    }
}

/// A cluster in memory: a node for every host that serves, and the pods that a case adds.
#[derive(Debug)]
pub(super) struct Nodes {
    clock: Arc<dyn Clock>,
    shown: Mutex<ClusterView>,
    number: AtomicU64,
    changed: Notify,
}

impl Nodes {
    pub(super) fn new(clock: Arc<dyn Clock>, serving: std::ops::Range<u32>) -> Arc<Self> {
        let objects =
            Objects { nodes: serving.map(|index| node(&name(index))).collect(), ..Objects::default() };
        let shown = ClusterView { number: 1, objects: Arc::new(objects), ..ClusterView::default() };
        Arc::new(Self { clock, shown: Mutex::new(shown), number: AtomicU64::new(1), changed: Notify::new() })
    }

    /// The pods that wait from now on.
    pub(super) fn pending(&self, pods: Vec<Pod>) {
        {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            let mut objects = (*shown.objects).clone();
            objects.pods = pods;
            shown.objects = Arc::new(objects);
            shown.number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        }
        self.changed.notify_waiters();
    }
}

fn node(name: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": { "nodepool": POOL } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }],
            "allocatable": { "cpu": "64", "memory": "256Gi", "pods": "110" },
            "nodeInfo": { "bootID": "boot-1" } },
    }))
    .expect("a node in its simplest form")
}

#[async_trait]
impl ClusterPort for Nodes {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let now = self.clock.now();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(shown.fresh_at) >= RENEWED {
            let all = shown.objects.nodes.iter().map(|node| (Arc::clone(&node.metadata.name), now));
            let renewed: BTreeMap<Arc<str>, Timestamp> = all.collect();
            shown.renewed = Arc::new(renewed);
            shown.fresh_at = now;
        }
        Ok(shown.clone())
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    async fn changed(&self, seen: u64) {
        loop {
            let told = self.changed.notified();
            if self.number.load(Ordering::SeqCst) > seen {
                return;
            }
            told.await;
        }
    }

    async fn act(&self, _: &str, _: &NodeAction) -> Result<Acted, ActError> {
        Ok(Acted::Done)
    }
}

#[derive(Debug)]
struct InCluster(Arc<Nodes>);

impl Around for InCluster {
    fn home(&self, _: &str) -> Home {
        Home::Cluster { name: "bench".into(), port: Arc::clone(&self.0) as _ }
    }

    fn credential_version(&self, _: &str) -> u64 {
        1
    }
}

/// See the module.
pub(super) struct Yard {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Arc<dyn Store>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) driver: Watched,
    pub(super) lead: Arc<Lead>,
    host_loop: Arc<HostLoop>,
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

pub(super) async fn open(data: &Path, clock: &Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Store>> {
    let options = OpenOptions::new("muster bench", Arc::clone(clock));
    muster_store::open(&Target::Directory(data.join("store")), options)
        .await
        .context("the store cannot be opened")
}

impl Yard {
    /// Opens the store and starts the loop on it; returns at once.
    pub(super) async fn start(
        data: &Path,
        nodes: impl FnOnce(&Arc<dyn Clock>) -> Arc<Nodes>,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = open(data, &clock).await?;
        let nodes = nodes(&clock);
        let rules = AddressRules {
            allow: vec!["127.0.0.0/8".parse().map_err(|why| anyhow::anyhow!("{why}"))?],
            ..AddressRules::default()
        };
        let driver = Watched::new(Redfish::new(RedfishSetup {
            rules: Arc::new(rules),
            credentials: Arc::new(Account),
            clock: Arc::clone(&clock),
            limits: Limits::default(),
            ledger: Arc::new(MemoryLedger::default()) as Arc<dyn Ledger>,
        }));
        let lead = Lead::new(Arc::clone(&clock));
        let config = lead::config("bench");
        let host_loop = Arc::new(HostLoop::new(Setup {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            lead: Arc::clone(&lead),
            drivers: Drivers::new([Arc::new(driver.clone()) as _]),
            around: Arc::new(InCluster(Arc::clone(&nodes))),
            witness: Arc::new(NoWitness),
            time_factor: 1,
            renew_deadline: config.renew_deadline,
            renew_every: config.retry,
            failpoints: Failpoints::default(),
        }));
        let stop = CancellationToken::new();
        let election = tokio::spawn({
            let (store, lead, stop) = (Arc::clone(&store), Arc::clone(&lead), stop.clone());
            async move {
                let _ = lead::run(store, config, lead, stop).await;
            }
        });
        let turns = tokio::spawn({
            let (host_loop, stop) = (Arc::clone(&host_loop), stop.clone());
            async move { host_loop.run(stop).await }
        });
        Ok(Self { clock, store, nodes, driver, lead, host_loop, tasks: vec![turns, election], stop })
    }

    pub(super) fn phases(&self) -> BTreeMap<Phase, u64> {
        self.host_loop.figures().phases
    }

    /// Ends the loop as a server that is stopped does, and closes the store.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
        drop(self.host_loop);
        self.store.close().await.context("the store could not be closed")
    }

    /// Wants hosts on, all at once.
    pub(super) async fn want(&self, range: std::ops::Range<u32>, id: &str) -> anyhow::Result<()> {
        let intents = range.map(|index| {
            let intent = Intent {
                id: format!("{id}-{index}"),
                want: Switch::On,
                pool: POOL.into(),
                decision: "bench".into(),
                reason: "a benchmark wants it".into(),
                epoch: 0,
                at: self.clock.now(),
                spread_weighed: false,
            };
            (keys::host(&name(index), HostRecord::Intent), json!(intent))
        });
        put_all(&*self.store, intents).await
    }

    /// Waits until something holds, at most so many seconds.
    pub(super) async fn until(
        &self,
        seconds: f64,
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let started = time::now();
        while !holds(self) {
            anyhow::ensure!(
                time::seconds(started) < seconds,
                "{what} did not come within {seconds} s; phases are {:?}",
                self.phases()
            );
            time::pause(20).await;
        }
        Ok(())
    }
}

/// Writes records many at a time.
pub(super) async fn put_all(
    store: &dyn Store,
    records: impl IntoIterator<Item = (String, serde_json::Value)>,
) -> anyhow::Result<()> {
    let mut records = records.into_iter().peekable();
    while records.peek().is_some() {
        let batch = records.by_ref().take(BATCH);
        let txn = batch.fold(Txn::new(), |txn, (key, value)| txn.put(key, value.to_string()));
        let _ = store.commit(txn).await.context("the store could not be filled")?;
    }
    Ok(())
}

/// The records of hosts that serve or rest, as their loop would have left them.
pub(super) async fn fill(
    store: &dyn Store,
    emulator: Option<&Emulator>,
    range: std::ops::Range<u32>,
    phase: Phase,
    now: Timestamp,
) -> anyhow::Result<()> {
    let since = now.saturating_sub(Duration::from_hours(3));
    let mut records = Vec::new();
    for index in range {
        let name = name(index);
        let address = emulator.map_or_else(
            || format!("10.{}.{}.{}", index >> 16, (index >> 8) & 255, index & 255),
            |one| one.address(index).to_string(),
        );
        let spec = json!({ "powerInterface": "redfish", "mgmtAddress": address, "tlsVerify": "insecure",
            "bmcCredentials": "bench", "pool": POOL, "rack": format!("rack-{}", index / 20), "idleWatts": 120,
            "maxWatts": 400, "nodeMatch": { "by": "name" }, "resources": { "cpu": "64", "memory": "256Gi" } });
        let spec = BareMetalNodeSpec::read(&spec, "spec")
            .map_err(|faults| anyhow::anyhow!("a spec of the benchmark is wrong: {}", faults.details()))?
            .value;
        let mut status = BareMetalNodeStatus::enrolling(since);
        (status.phase, status.state) = (phase, phase.state());
        status.bmc_reachable = true;
        if phase == Phase::Serving {
            status.power_state = PublicPower::On;
            status.kubernetes_node = Some(name.clone());
            status.node_ready = true;
            status.serving_since = Some(since);
        } else {
            status.power_state = PublicPower::Off;
            status.off_since = Some(since);
            status.off_proved_at = Some(since);
        }
        records.push((keys::host(&name, HostRecord::Spec), json!(spec)));
        records.push((keys::host(&name, HostRecord::Status), json!(status)));
    }
    put_all(store, records).await
}

/// Limits that let a benchmark show the loop and not its brakes.
pub(super) async fn unlimited(store: &dyn Store, starts_per_second: u32) -> anyhow::Result<()> {
    let config = GlobalConfig {
        max_power_operations: 10_000,
        max_power_operations_per_rack: 10_000,
        max_starts_per_second: starts_per_second,
        ..GlobalConfig::default()
    };
    put_all(store, [(keys::GLOBAL_CONFIG.to_owned(), json!(config))]).await
}
