//! From a pod that waits to the power-on that was sent: planner, journal, intent, host loop, driver, BMC.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use muster_control::{
    planner::{Connections, Parts, Planning, Thinking},
    registry::{Cluster, NodePool, Registry, RegistryOptions, WriteContext},
};
use muster_model::{
    Clock, ClusterId, Duration, host::Phase, k8s::Pod, observe::ClusterPort, pool::PoolContext,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    emulator::Emulator,
    yard::{self, Nodes, POOL, Yard},
};
use crate::{
    bench::{Bar, Measure, note, time},
    clock::SystemClock,
};

const BAR: f64 = 1.0;
const CLUSTER: &str = "550e8400-e29b-41d4-a716-446655440000";

#[derive(Debug)]
struct Connected(Arc<Nodes>);

impl Connections for Connected {
    fn port(&self, _: &Cluster) -> Option<Arc<dyn ClusterPort>> {
        Some(Arc::clone(&self.0) as _)
    }
}

pub(super) async fn run(data: &Path, repeat: u32) -> anyhow::Result<Vec<Measure>> {
    let hosts = repeat + 1;
    let emulator = Emulator::start(hosts)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    {
        let store = yard::open(data, &clock).await?;
        yard::fill(&*store, Some(&emulator), 0..hosts, Phase::Idle, clock.now()).await?;
        yard::unlimited(&*store, 50).await?;
        store.close().await?;
    }
    let yard = Yard::start(data, |clock| Nodes::new(Arc::clone(clock), 0..0)).await?;
    yard.until(60.0, "a leader", |yard| yard.lead.now().is_some()).await?;
    let stop = CancellationToken::new();
    let registry = registry(&yard, hosts).await?;
    let mut parts = Parts::new(Arc::clone(&registry));
    (parts.connections, parts.thinking) = (Arc::new(Connected(Arc::clone(&yard.nodes))), Thinking::Aside);
    let board = Arc::clone(&parts.board);
    let tasks = [
        tokio::spawn({
            let (registry, stop) = (Arc::clone(&registry), stop.clone());
            async move { registry.run(stop).await }
        }),
        tokio::spawn({
            let (leading, stop) = (yard.lead.subscribe(), stop.clone());
            let planning = Planning::new(parts, Arc::clone(&yard.clock));
            async move { planning.run(leading, stop).await }
        }),
    ];
    let id: ClusterId = CLUSTER.parse().context("the benchmark's cluster has an id")?;
    yard.until(60.0, "a planner", |_| board.get(id).is_some_and(|live| live.leading && live.turns > 0))
        .await?;
    let all = usize::try_from(hosts)?;
    yard.until(90.0, "the first round", |yard| yard.driver.look(|times| times.reads.len()) >= all).await?;
    time::pause(2_000).await;
    let mut runs = Vec::new();
    for turn in 1..=repeat {
        let before = yard.driver.look(|times| times.ons.len());
        let started = time::now();
        yard.nodes.pending((0..turn).map(pod).collect::<anyhow::Result<_>>()?);
        yard.until(60.0, "a power-on", |yard| yard.driver.look(|times| times.ons.len()) > before).await?;
        let last = yard.driver.look(|times| times.ons.values().max().copied());
        let took = last.map_or(0.0, |last| (last - started).as_secs_f64());
        note(&format!("pending, run {turn}: {took:.3} s"));
        runs.push(took);
        time::pause(3_000).await;
    }
    stop.cancel();
    for task in tasks {
        let _ = task.await;
    }
    drop(registry);
    yard.stop().await?;
    let measure =
        Measure::new("pending", "from a pod that waits to the power-on that was answered", "s", runs)
            .bar(Bar::AtMost(BAR))
            .note("planner, journal, intent, host loop, Redfish over TLS");
    Ok(vec![measure])
}

/// A pod that fills a server: each needs one of its own.
fn pod(number: u32) -> anyhow::Result<Pod> {
    let value = json!({
        "metadata": { "name": format!("train-{number}"), "namespace": "default", "uid": format!("train-{number}"),
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "uid": "t",
                "controller": true }] },
        "spec": { "containers": [{ "name": "a", "resources": { "requests": { "cpu": "60", "memory": "1Gi" } } }] },
        "status": { "phase": "Pending" },
    });
    serde_json::from_value(value).context("a pod in its simplest form")
}

async fn registry(yard: &Yard, hosts: u32) -> anyhow::Result<Arc<Registry>> {
    let options = RegistryOptions { exclusive: true, default_lease: Duration::from_mins(10) };
    let registry = Registry::open(Arc::clone(&yard.store), Arc::clone(&yard.clock), options).await?;
    let now = yard.clock.now();
    let context = WriteContext { actor: "bench".into(), now, dry_run: false, idempotency: None };
    let project = || "bench".parse().map_err(|_| anyhow::anyhow!("bench is a project's name"));
    let told = |faults: muster_model::FieldErrors| anyhow::anyhow!("{}", faults.details());
    let body = json!({ "name": "lab", "spec": { "platform": { "type": "baremetal" }, "mode": "active" } });
    let id = CLUSTER.parse().context("the benchmark's cluster has an id")?;
    let draft = Cluster::parse_create(&body).map_err(told)?.value;
    registry
        .create(&context, draft.into_cluster(id, project()?, "bench".into(), now), None, Vec::new())
        .await?;
    let body = json!({ "name": POOL, "cluster_id": CLUSTER, "spec": { "platform": { "type": "baremetal" },
        "autoscaling": { "enabled": true, "minNodes": 0, "maxNodes": hosts } } });
    let draft = NodePool::parse_create(&body, &PoolContext::default()).map_err(told)?.value;
    let pool = draft.into_pool(uuid::Uuid::now_v7().into(), project()?, "bench".into(), now);
    registry.create(&context, pool, None, Vec::new()).await?;
    Ok(registry)
}
