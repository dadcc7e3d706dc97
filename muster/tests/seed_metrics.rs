//! The eight names of metrics that triggers are written against, each asked of a real Prometheus that scrapes Muster.
//!
//! Sensors come from an emulated BMC through a `muster serve` of its own. What only a cluster knows comes from a
//! planner and a host loop in this process that look at a cluster which shows what the test says; their pages are the
//! same that the service serves.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "shared with the tests of the API, which use all of it")]
#[path = "api/harness.rs"]
mod harness;
#[allow(dead_code, reason = "shared with stories that stop it")]
#[path = "api/prometheus.rs"]
mod prometheus;

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration as Wait,
};

use async_trait::async_trait;
use muster_control::{
    hosts::{Drivers, HostLoop, NoWitness, Nothing, Setup, failpoint::Failpoints},
    lead::Lead,
    planner::{Connections, Parts},
    registry::{Cluster, Registry, RegistryOptions, WriteContext},
};
use muster_emulate::{
    RealClock, Timing,
    redfish::{Fleet, Layout},
};
use muster_model::{
    Clock, ClusterId, Duration, Known, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, PowerInterface,
        keys::{self, HostRecord},
    },
    k8s::Objects,
    observe::{ActError, Acted, ClusterPort, ClusterView, NodeAction, NotSynced},
    pool::Trigger,
    store::{Store, Txn},
    trigger::Triggers as _,
};
use muster_prom::{Prometheus, Settings};
use muster_server::{collect_hosts::EachHostCollector, collect_seed, metrics::Metrics};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use harness::{Server, World};

/// Shows what it was told to.
#[derive(Debug)]
struct Shows(Mutex<Arc<Objects>>, Arc<RealClock>);

#[async_trait]
impl ClusterPort for Shows {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let objects = Arc::clone(&self.0.lock().unwrap());
        Ok(ClusterView { number: 1, fresh_at: self.1.now(), objects, ..ClusterView::default() })
    }

    fn number(&self) -> u64 {
        1
    }

    async fn changed(&self, _: u64) {
        std::future::pending::<()>().await;
    }

    async fn act(&self, _: &str, _: &NodeAction) -> Result<Acted, ActError> {
        panic!("nothing acts here");
    }
}

#[derive(Debug)]
struct Connected(Arc<Shows>);

impl Connections for Connected {
    fn port(&self, _: &Cluster) -> Option<Arc<dyn ClusterPort>> {
        Some(Arc::clone(&self.0) as _)
    }
}

/// Three pods wait, two of them in vain, thirty came in the last minutes; one job ended while we looked.
fn objects(now: Timestamp, jobs_done: i32) -> Objects {
    let pod = |number: u32| {
        let refused = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
        let bound = if number < 3 { Value::Null } else { json!("n1") };
        json!({ "metadata": { "name": format!("p{number}"), "namespace": "default", "uid": format!("u{number}"),
                "creationTimestamp": now },
            "spec": { "nodeName": bound },
            "status": { "phase": "Pending", "conditions": if number < 2 { refused } else { json!([]) } } })
    };
    let pods: Vec<Value> = (0..30).map(pod).collect();
    let job = json!({ "metadata": { "name": "j", "uid": "j" }, "spec": { "completions": 1 },
        "status": { "succeeded": jobs_done } });
    serde_json::from_value(json!({ "pods": pods, "jobs": [job] })).unwrap()
}

async fn put(store: &dyn Store, key: String, value: &impl serde::Serialize) {
    let _ = store.commit(Txn::new().put(key, serde_json::to_vec(value).unwrap())).await.unwrap();
}

/// A planner that has looked twice, and a host loop that knows one host; their metrics.
async fn in_sight(clock: &Arc<RealClock>, stop: &CancellationToken) -> Arc<Metrics> {
    let store: Arc<dyn Store> = Arc::new(muster_store::memory::Memory::default());
    let options = RegistryOptions { exclusive: true, default_lease: Duration::from_mins(10) };
    let registry = Registry::open(Arc::clone(&store), clock.clone(), options).await.unwrap();
    let id: ClusterId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
    let body = json!({ "name": "lab", "spec": { "platform": { "type": "baremetal" } } });
    let cluster = Cluster::parse_create(&body).unwrap().value.into_cluster(
        id,
        "lab".parse().unwrap(),
        "test".into(),
        clock.now(),
    );
    let context = WriteContext { actor: "test".into(), now: clock.now(), dry_run: false, idempotency: None };
    registry.create(&context, cluster, None, Vec::new()).await.unwrap();
    tokio::spawn({
        let (registry, stop) = (Arc::clone(&registry), stop.clone());
        async move { registry.run(stop).await }
    });
    let now = clock.now();
    let shows = Arc::new(Shows(Mutex::new(Arc::new(objects(now, 0))), clock.clone()));
    let mut parts = Parts::new(registry);
    parts.connections = Arc::new(Connected(Arc::clone(&shows)));
    let mut planner = parts.planner(id);
    // Two looks, two minutes apart by the time that they are told.
    let _ = planner.turn(now.saturating_sub(Duration::from_mins(2)), None).await;
    *shows.0.lock().unwrap() = Arc::new(objects(now, 1));
    let _ = planner.turn(now, None).await;

    let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
    spec.mgmt_address = Some("10.0.0.5".parse().unwrap());
    spec.bmc_credentials = Some("rack-a".into());
    put(&*store, keys::host("h1", HostRecord::Spec), &spec).await;
    put(&*store, keys::host("h1", HostRecord::Status), &BareMetalNodeStatus::enrolling(now)).await;
    let known = |value: i64| json!(Known::<i64>::Value { value, at: now });
    let unknown = json!(Known::<i64>::Unknown { why: "no sensor".into(), since: now });
    let used = json!({ "at": now, "milliwatts": unknown, "millicelsius": unknown, "health": unknown,
        "cpuPermille": known(910), "memoryPermille": known(120) });
    put(&*store, keys::host("h1", HostRecord::Metrics), &used).await;
    let host_loop = Arc::new(HostLoop::new(Setup {
        store,
        clock: clock.clone(),
        lead: Lead::new(clock.clone()),
        drivers: Drivers::default(),
        around: Arc::new(Nothing),
        witness: Arc::new(NoWitness),
        time_factor: 1,
        renew_deadline: Duration::from_secs(17),
        renew_every: Duration::from_secs(1),
        failpoints: Failpoints::default(),
    }));
    tokio::spawn({
        let (host_loop, stop) = (Arc::clone(&host_loop), stop.clone());
        async move { host_loop.run(stop).await }
    });
    for _ in 0..2_400 {
        if host_loop.host_figures().iter().any(|host| host.cpu_permille == Some(910)) {
            break;
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(host_loop.host_figures().len(), 1, "the loop knows the host: {:?}", host_loop.figures());
    let metrics = Metrics::new();
    let later = now.saturating_add(Duration::from_mins(5));
    assert_eq!(collect_seed::text(&parts.board, later), "", "what is old is not exported as current");
    metrics.register_text(Box::new(move || collect_seed::text(&parts.board, now)));
    metrics.register_hosts(Box::new(EachHostCollector::new(host_loop)));
    metrics
}

/// Serves both pages as the service does.
async fn pages(metrics: Arc<Metrics>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let hosts = request[..read].starts_with(b"GET /metrics/hosts");
            let page =
                if hosts { metrics.render_hosts().unwrap().unwrap() } else { metrics.render().unwrap() };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                page.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(page.as_bytes()).await;
        }
    });
    address
}

/// A real server that polls an emulated machine which is on.
async fn sensed(directory: &std::path::Path, fleet: &Fleet) -> Server {
    let arguments =
        ["--bmc-allow", "127.0.0.0/8", "--set", "hosts.time-factor=20", "--set", "metrics.hosts=true"];
    let server = Server::start(directory, &arguments);
    let user = World::new(&server.base, "embedded").named("ann@example.com");
    let account = json!({ "kind": "bmc", "user": "admin", "password": "emulated" });
    user.post("/api/v1/credentials", &json!({ "name": "rack-a", "spec": account })).await.expect(201);
    let spec = json!({ "powerInterface": "redfish", "mgmtAddress": fleet.first().address.to_string(),
        "pool": "metal", "bmcCredentials": "rack-a", "tlsVerify": "insecure",
        "deadlines": { "bootDeadline": "5h", "enrolDeadline": "5h", "powerConfirmDeadline": "1h" } });
    user.post("/api/v1/hosts", &json!({ "name": "sensed", "spec": spec })).await.expect(201);
    let on = json!({ "action": "on", "reason": "a test" });
    user.until("/api/v1/hosts/sensed", |host| host["status"]["phase"] == "idle").await;
    user.post("/api/v1/hosts/sensed/power", &on).await.expect(202);
    server
}

/// Each name fires above a threshold below its value, and not above one beyond it.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
async fn the_eight_names_answer_triggers_of_a_real_prometheus() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let clock = Arc::new(RealClock::default());
    let timing = Timing { boot: Duration::from_hours(1), ..Timing::default() };
    let layout = Layout { tls: true, timing, ..Layout::default() };
    let fleet = Fleet::start(&layout, clock.clone()).await.expect("an emulated BMC");
    let data = tempfile::tempdir().unwrap();
    let server = sensed(data.path(), &fleet).await;
    let stop = CancellationToken::new();
    let inside = pages(Box::pin(in_sight(&clock, &stop)).await).await.to_string();
    let served = server.base.trim_start_matches("http://").to_owned();
    let prometheus = prometheus::Prometheus::start(&[
        (&inside, "/metrics"),
        (&inside, "/metrics/hosts"),
        (&served, "/metrics"),
        (&served, "/metrics/hosts"),
    ])
    .await;
    let triggers = Prometheus::new(Settings::new(prometheus.url.clone())).unwrap();
    // query, a threshold below its value, and one above
    let rows: [(&str, f64, f64); 8] = [
        (r#"node_cpu_utilization{node="h1"}"#, 0.9, 0.92),
        (r#"node_memory_utilization{node="h1"}"#, 0.1, 0.13),
        (r#"pending_pods_total{cluster="lab"}"#, 2.5, 3.5),
        (r#"unschedulable_pods_total{cluster="lab"}"#, 1.5, 2.5),
        (r#"node_temperature{node="sensed"}"#, 1.0, 150.0),
        (r#"node_power_consumption{node="sensed"}"#, 1.0, 5_000.0),
        (r#"pod_creation_rate{cluster="lab"}"#, 0.09, 0.11),
        (r#"job_completion_rate{cluster="lab"}"#, 0.008, 0.009),
    ];
    for (query, below, above) in rows {
        for (threshold, expected) in [(below, true), (above, false)] {
            let trigger: Trigger =
                serde_json::from_value(json!({ "metricQuery": query, "threshold": threshold,
                "duration": "0s", "scaleDirection": "up" }))
                .unwrap();
            let mut last = None;
            for _ in 0..600 {
                match triggers.evaluate(&trigger, clock.now()).await {
                    Known::Value { value, .. } if value.fires == expected => {
                        last = None;
                        break;
                    }
                    other => last = Some(other),
                }
                tokio::time::sleep(Wait::from_millis(200)).await;
            }
            assert!(last.is_none(), "{query} {threshold}: {last:?}");
        }
    }
    // Every target is taken as it is written. One that took longer than a second for its page is asked again.
    let up: Trigger = serde_json::from_value(json!({ "metricQuery": "min(up)", "threshold": 0.5,
        "duration": "0s", "scaleDirection": "up" }))
    .unwrap();
    let mut taken = false;
    for _ in 0..600 {
        let found = triggers.evaluate(&up, clock.now()).await;
        taken = matches!(found, Known::Value { value, .. } if value.fires);
        if taken {
            break;
        }
        tokio::time::sleep(Wait::from_millis(200)).await;
    }
    assert!(taken, "a page was refused");
    stop.cancel();
}

/// Prometheus' own linter has nothing to say against the names, though two of them keep to no convention.
#[tokio::test(flavor = "multi_thread")]
async fn promtool_takes_the_eight_names() {
    let clock = Arc::new(RealClock::default());
    let stop = CancellationToken::new();
    let metrics = Box::pin(in_sight(&clock, &stop)).await;
    let cluster = metrics.render().unwrap();
    let hosts = metrics.render_hosts().unwrap().unwrap();
    stop.cancel();
    for name in ["pending_pods_total", "unschedulable_pods_total", "pod_creation_rate", "job_completion_rate"]
    {
        assert!(cluster.contains(&format!("\n{name}{{")), "{name}: {cluster}");
    }
    assert!(cluster.ends_with("# EOF\n"), "{cluster}");
    for page in [cluster, hosts] {
        let mut child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool starts; scripts/test.sh installs it");
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        // OpenMetrics puts a counter's help on the name without `_total`, where this linter does not look for it.
        let new: Vec<_> =
            said.lines().filter(|line| !line.starts_with("muster_") && !line.is_empty()).collect();
        assert!(new.is_empty(), "{new:#?}");
    }
}
