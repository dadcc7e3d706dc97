//! A store in memory, a cluster that shows what the test says, and time that the test moves.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;
use muster_control::{
    journal::{Decision, DecisionFilter, Journal},
    planner::{Connections, Did, Parts, Planner, Turn},
    registry::{Cluster, NodePool, Registry, RegistryOptions, WriteContext},
};
use muster_model::{
    Clock, ClusterId, Duration, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, GlobalConfig, Intent, Phase,
        keys::{self, HostRecord},
    },
    k8s::{Node, Objects, Pod},
    lease::{Candidate, LeaseConfig, Standing},
    observe::{ActError, Acted, ClusterPort, ClusterView, NodeAction, NotSynced, Waiting},
    pool::PoolContext,
    status::PoolStatus,
    store::{Fence, Store, Txn},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) const START: &str = "2026-11-16T02:00:00Z";

/// Time that stands still until the test moves it. Tasks of the registry sleep for real.
#[derive(Debug)]
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    fn new() -> Self {
        Self(AtomicI64::new(START.parse::<Timestamp>().unwrap().millis()))
    }
}

#[async_trait]
impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }

    #[allow(clippy::disallowed_methods, reason = "the registry's tasks run beside the test")]
    async fn sleep(&self, length: Duration) {
        tokio::time::sleep(length.as_std()).await;
    }
}

/// A cluster that shows what the test put there.
#[derive(Debug, Default)]
pub(crate) struct FakeCluster {
    state: Mutex<Shown>,
    told: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct Shown {
    number: u64,
    objects: Objects,
    fresh_at: Timestamp,
    unsynced: bool,
    /// Objects from the next look but one on: the world moves while a planner thinks.
    afterwards: Option<Objects>,
    looks: u32,
}

#[async_trait]
impl ClusterPort for FakeCluster {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let mut shown = self.state.lock().unwrap();
        shown.looks += 1;
        if shown.unsynced {
            let waiting = Waiting {
                kind: "pods".into(),
                why: "the first list is under way".into(),
                since: shown.fresh_at,
            };
            return Err(NotSynced { total: 17, waiting: vec![waiting] });
        }
        let view = ClusterView {
            number: shown.number,
            fresh_at: shown.fresh_at,
            objects: Arc::new(shown.objects.clone()),
            ..ClusterView::default()
        };
        if let Some(after) = shown.afterwards.take() {
            shown.objects = after;
            shown.number += 1;
        }
        Ok(view)
    }

    fn number(&self) -> u64 {
        self.state.lock().unwrap().number
    }

    async fn changed(&self, seen: u64) {
        loop {
            let told = self.told.notified();
            if self.number() > seen {
                return;
            }
            told.await;
        }
    }

    async fn act(&self, _: &str, _: &NodeAction) -> Result<Acted, ActError> {
        panic!("a planner never acts on nodes itself");
    }
}

#[derive(Debug)]
struct Connected(Arc<FakeCluster>);

impl Connections for Connected {
    fn port(&self, _: &Cluster) -> Option<Arc<dyn ClusterPort>> {
        let port: Arc<dyn ClusterPort> = self.0.clone();
        Some(port)
    }
}

/// Everything around one planner.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) parts: Parts,
    pub(crate) cluster: Arc<FakeCluster>,
    pub(crate) id: ClusterId,
    pub(crate) fence: Fence,
    pub(crate) planner: Planner,
    clock: Arc<HandClock>,
    leader: Candidate,
    _stop: tokio_util::sync::DropGuard,
}

pub(crate) const CLUSTER: &str = "550e8400-e29b-41d4-a716-446655440000";

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Arc::new(muster_store::memory::Memory::default()), true, "active").await
    }

    pub(crate) async fn with(store: Arc<dyn Store>, connected: bool, mode: &str) -> Self {
        let clock = Arc::new(HandClock::new());
        let options = RegistryOptions { exclusive: true, default_lease: Duration::from_mins(10) };
        let registry = Registry::open(Arc::clone(&store), clock.clone(), options).await.unwrap();
        let stop = CancellationToken::new();
        tokio::spawn({
            let (registry, stop) = (Arc::clone(&registry), stop.clone());
            async move { registry.run(stop).await }
        });
        let id: ClusterId = CLUSTER.parse().unwrap();
        let body = json!({"name": "lab", "spec": {"platform": {"type": "baremetal"}, "mode": mode}});
        let cluster = Cluster::parse_create(&body).unwrap().value.into_cluster(
            id,
            "lab".parse().unwrap(),
            "test".into(),
            clock.now(),
        );
        registry.create(&context(clock.now()), cluster, None, Vec::new()).await.unwrap();
        let fake = Arc::new(FakeCluster::default());
        let mut parts = Parts::new(Arc::clone(&registry));
        if connected {
            parts.connections = Arc::new(Connected(Arc::clone(&fake)));
        }
        let mut leader =
            Candidate::new(Arc::clone(&store), clock.clone(), LeaseConfig::new("leader", "first")).unwrap();
        let Standing::Leading(fence) = leader.step().await.unwrap() else { panic!("a free lease is taken") };
        let planner = parts.planner(id);
        let world = Self {
            store,
            registry,
            parts,
            cluster: fake,
            id,
            fence,
            planner,
            clock,
            leader,
            _stop: stop.drop_guard(),
        };
        world.show(|_| {});
        world
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    pub(crate) fn pass(&self, length: Duration) {
        self.clock.0.fetch_add(i64::try_from(length.millis()).unwrap(), Ordering::SeqCst);
    }

    /// Changes what the cluster shows; it is fresh again.
    pub(crate) fn show(&self, change: impl FnOnce(&mut Objects)) {
        let mut shown = self.cluster.state.lock().unwrap();
        change(&mut shown.objects);
        shown.number += 1;
        shown.fresh_at = self.clock.now();
        self.cluster.told.notify_waiters();
    }

    /// The cluster falls out of sync, or comes back.
    pub(crate) fn unsync(&self, unsynced: bool) {
        let mut shown = self.cluster.state.lock().unwrap();
        shown.unsynced = unsynced;
        shown.number += 1;
        self.cluster.told.notify_waiters();
    }

    /// What the cluster shows from the look after next on.
    pub(crate) fn show_afterwards(&self, change: impl FnOnce(&mut Objects)) {
        let mut shown = self.cluster.state.lock().unwrap();
        let mut after = shown.objects.clone();
        change(&mut after);
        shown.afterwards = Some(after);
    }

    pub(crate) async fn turn(&mut self) -> Turn {
        let (now, fence) = (self.now(), self.fence.clone());
        self.planner.turn(now, Some(&fence)).await
    }

    /// A turn that must come to a decision.
    #[track_caller]
    pub(crate) fn decided(turn: &Turn) -> Decision {
        match &turn.did {
            Did::Decided(decision) => (**decision).clone(),
            other => panic!("no decision was made: {other:?}"),
        }
    }

    /// The process ends and another one takes over: nothing survives but the store.
    pub(crate) async fn fail_over(&mut self) {
        self.pass(Duration::from_secs(60));
        let mut next = Candidate::new(
            Arc::clone(&self.store),
            self.clock.clone(),
            LeaseConfig::new("leader", format!("next-{}", self.now())),
        )
        .unwrap();
        let Standing::Following { .. } = next.step().await.unwrap() else {
            panic!("the first look only looks")
        };
        self.pass(Duration::from_secs(60));
        let Standing::Leading(fence) = next.step().await.unwrap() else { panic!("the lease ran out") };
        (self.leader, self.fence) = (next, fence);
        self.planner = self.parts.planner(self.id);
        self.show(|_| {});
    }

    pub(crate) async fn pool(&self, name: &str, spec: Value) -> NodePool {
        let body = json!({"name": name, "cluster_id": CLUSTER, "spec": spec});
        let draft = NodePool::parse_create(&body, &PoolContext::default()).unwrap().value;
        let id = uuid::Uuid::now_v7().into();
        let pool = draft.into_pool(id, "lab".parse().unwrap(), "test".into(), self.now());
        self.registry.create(&context(self.now()), pool, None, Vec::new()).await.unwrap().stored.object
    }

    /// A bare-metal pool that scales from `min` to `max`.
    pub(crate) async fn metal(&self, name: &str, min: u32, max: u32) -> NodePool {
        self.pool(
            name,
            json!({"platform": {"type": "baremetal"}, "autoscaling": {
                "enabled": true, "minNodes": min, "maxNodes": max, "scaleDownDelay": "10m"}}),
        )
        .await
    }

    /// A host of 8 cores and 32 GiB that is off and known to be.
    pub(crate) async fn host(&self, name: &str, pool: &str) {
        self.host_with(name, json!({"pool": pool}), |_| {}).await;
    }

    pub(crate) async fn host_with(
        &self,
        name: &str,
        spec: Value,
        change: impl FnOnce(&mut BareMetalNodeStatus),
    ) {
        let mut body = json!({"powerInterface": "redfish", "mgmtAddress": "10.0.0.7", "systemId": name,
            "bmcCredentials": "rack-1", "resources": {"cpu": "8", "memory": "32Gi"}});
        muster_model::patch::merge_patch(&mut body, &spec);
        let spec = BareMetalNodeSpec::read(&body, "spec").unwrap().value;
        self.put(&keys::host(name, HostRecord::Spec), &spec).await;
        let mut status = BareMetalNodeStatus::enrolling(self.now());
        (status.phase, status.state) = (Phase::Idle, Phase::Idle.state());
        status.bmc_reachable = true;
        status.off_proved_at = Some(self.now());
        change(&mut status);
        self.put(&keys::host(name, HostRecord::Status), &status).await;
    }

    /// Changes a host's spec as a person would.
    pub(crate) async fn respec(&self, name: &str, change: Value) {
        let key = keys::host(name, HostRecord::Spec);
        let entry = self.store.get(&key).await.unwrap().unwrap();
        let mut body: Value = serde_json::from_slice(&entry.value).unwrap();
        muster_model::patch::merge_patch(&mut body, &change);
        let spec = BareMetalNodeSpec::read(&body, "spec").unwrap().value;
        self.put(&key, &spec).await;
    }

    /// Changes a host's status as its loop would.
    pub(crate) async fn status(&self, name: &str, change: impl FnOnce(&mut BareMetalNodeStatus)) {
        let key = keys::host(name, HostRecord::Status);
        let entry = self.store.get(&key).await.unwrap().unwrap();
        let mut status: BareMetalNodeStatus = serde_json::from_slice(&entry.value).unwrap();
        change(&mut status);
        self.put(&key, &status).await;
    }

    /// The host serves a node of its own name since long ago.
    pub(crate) async fn serve(&self, name: &str, pool: &str) {
        let since = self.now().saturating_sub(Duration::from_hours(3));
        self.status(name, |status| {
            (status.phase, status.state) = (Phase::Serving, Phase::Serving.state());
            status.kubernetes_node = Some(name.to_owned());
            status.node_ready = true;
            status.serving_since = Some(since);
        })
        .await;
        let node = node(name, pool, since);
        self.show(|objects| objects.nodes.push(node));
    }

    pub(crate) async fn global(&self, change: impl FnOnce(&mut GlobalConfig)) {
        let mut config = GlobalConfig::default();
        change(&mut config);
        self.put(keys::GLOBAL_CONFIG, &config).await;
    }

    pub(crate) async fn put(&self, key: &str, value: &impl serde::Serialize) {
        let txn = Txn::new().put(key, serde_json::to_vec(value).unwrap());
        let _ = self.store.commit(txn).await.unwrap();
    }

    pub(crate) async fn intent(&self, host: &str) -> Option<Intent> {
        let entry = self.store.get(&keys::host(host, HostRecord::Intent)).await.unwrap()?;
        Some(serde_json::from_slice(&entry.value).unwrap())
    }

    pub(crate) async fn pool_status(&self, pool: &NodePool) -> PoolStatus {
        self.registry.read::<NodePool>(pool.id.uuid()).await.unwrap().unwrap().status()
    }

    #[track_caller]
    pub(crate) fn journal(&self) -> Journal {
        self.parts.journal.clone()
    }

    pub(crate) async fn decisions(&self) -> Vec<Decision> {
        self.journal().list(self.id, &DecisionFilter::default(), None, 1000).await.unwrap().decisions
    }
}

pub(crate) fn context(now: Timestamp) -> WriteContext {
    WriteContext { actor: "test".into(), now, dry_run: false, idempotency: None }
}

/// A node of 8 cores and 32 GiB that is ready.
pub(crate) fn node(name: &str, pool: &str, since: Timestamp) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"nodepool": pool, "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}, "creationTimestamp": since},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}
    }))
    .unwrap()
}

/// A pod that waits for `cpu` cores.
pub(crate) fn pod(name: &str, cpu: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": name,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": true}]},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
        "status": {"phase": "Pending"}
    }))
    .unwrap()
}

/// A pod that runs on `node`.
pub(crate) fn running(name: &str, cpu: &str, node: &str) -> Pod {
    let mut pod = pod(name, cpu);
    Arc::make_mut(&mut pod.spec).node_name = Some(node.into());
    pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
    pod
}
