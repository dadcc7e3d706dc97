//! A pool that follows a figure: a real Prometheus scrapes a queue, Muster asks it, etcd keeps what Muster knows, and
//! servers are switched over Redfish. BM-7.21 as a person meets it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    harness::Etcd,
    lab::{Machines, Story},
    prometheus::Prometheus,
};

/// Serves `work_queue_depth` until the test ends; its address.
async fn exporter(depth: Arc<AtomicU64>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let page =
                format!("# TYPE work_queue_depth gauge\nwork_queue_depth {}\n", depth.load(Ordering::SeqCst));
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{page}",
                page.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// The pool's word about its metrics: status and reason.
async fn metrics(story: &Story) -> Option<(String, String)> {
    let pool = story.get(&format!("/api/v1/nodepools/{}", story.pool)).await;
    let conditions = pool["status"]["conditions"].as_array()?.clone();
    let one = conditions.into_iter().find(|one| one["type"] == "MetricsAvailable")?;
    let text = |field: &str| one[field].as_str().map(str::to_owned);
    Some((text("status")?, text("reason")?))
}

async fn until_metrics_are(story: &Story, expected: &str) {
    story
        .until(&format!("the pool says {expected}"), async || {
            metrics(story).await.filter(|(_, reason)| reason == expected).map(|_| ())
        })
        .await;
}

/// A queue fills and the pool grows to its maximum. Prometheus dies and the queue empties: nothing is removed, and the
/// pool says why. Prometheus is back: the pool says so, and shrinks.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_21_a_pool_follows_a_real_prometheus_and_keeps_its_servers_while_that_is_silent() {
    let depth = Arc::new(AtomicU64::new(7));
    let page = exporter(Arc::clone(&depth)).await;
    let mut prometheus = Prometheus::start(&[(&page, "/metrics")]).await;
    let etcd = Etcd::start();
    let (store, source) = (etcd.store(), format!("prometheus.url={}", prometheus.url));
    let machines = Machines::default();
    let mut story = Story::set("measured", &machines, &["--store", &store, "--set", &source]).await;
    let kubeconfig = story.cluster.kubeconfig();
    story.create(&kubeconfig, &machines).await;
    let trigger = |threshold: u32, direction: &str| {
        json!({ "metricQuery": "work_queue_depth", "threshold": threshold, "duration": "0s",
            "scaleDirection": direction })
    };
    let patch = json!({ "spec": { "autoscaling": { "triggers": [trigger(10, "up"), trigger(5, "down")] } } });
    story.muster(&["patch", "pool", "measured/measured", "--patch", &patch.to_string()]);
    story.muster(&["enable", "cluster", "measured"]);
    until_metrics_are(&story, "AllKnown").await;
    story.until_idle().await;

    depth.store(50, Ordering::SeqCst);
    for number in [1, 2] {
        story
            .until(&format!("server {number} serves"), async || {
                (story.phase(number).await == "serving").then_some(())
            })
            .await;
        assert_eq!(story.resets(number), ["On"]);
    }
    let told = story.muster(&["describe", "host", "measured-1"]);
    let why =
        "trigger work_queue_depth of pool measured asks for growth: the value is above 10; it is 50 now";
    assert!(told.contains(why), "{told}");

    prometheus.stop();
    depth.store(0, Ordering::SeqCst);
    until_metrics_are(&story, "MetricsUnavailable").await;
    story.until_looked().await;
    let kept: Value = story.kube(&["get", "nodes", "-l", "nodepool=measured"]);
    assert_eq!(kept["items"].as_array().map(Vec::len), Some(2));
    for number in [1, 2] {
        assert_eq!(story.resets(number), ["On"], "a silent Prometheus removes nothing");
    }
    let why = story.muster(&["explain", "node", "measured-1"]);
    assert!(why.contains("trigger"), "{why}");

    prometheus.resume().await;
    until_metrics_are(&story, "AllKnown").await;
    let gone = story.either_in("idle").await;
    assert_eq!(story.resets(gone), ["On", "GracefulShutdown"]);
}
