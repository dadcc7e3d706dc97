//! Replicas that a Kubernetes `Lease` elects a leader among. Runs in `make e2e`.

use std::sync::Arc;

use std::time::{Duration, Instant};

use muster_emulate::{
    Power,
    cluster::{Nodes, TestCluster},
};
use serde_json::{Value, json};

use crate::{
    harness::Etcd,
    lab::{Machines, Muster, Story},
    wire::Wire,
};

/// Who may raise the epoch by the `Lease`, and who raised it last by the store.
fn leaders(cluster: &TestCluster, etcd: &Etcd) -> (String, String) {
    let lease = cluster
        .kubectl(&["-n", "elected", "get", "lease", "muster-leader", "--ignore-not-found", "-o", "json"], "");
    let lease: Value = serde_json::from_str(&lease).unwrap_or(Value::Null);
    let elected = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    (elected, etcd.value("/muster/leases/leader/epoch"))
}

/// The leader is frozen, thawed, left without an API server, and cut off from it: one leads, and one alone.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn a_lease_elects_who_may_raise_the_epoch() {
    let etcd = Etcd::start();
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    let keys = tempfile::tempdir().unwrap();
    let set = |path: &str, value: &str| ["--set".to_owned(), format!("{path}={value}")];
    let arguments = |kubeconfig: &std::path::Path| -> Vec<String> {
        let mut all = vec!["--store".to_owned(), etcd.store()];
        all.extend(set("credentials.key-file", keys.path().join("key").to_str().unwrap()));
        all.extend(set("leader.by", "kubernetes"));
        all.extend(set("leader.namespace", "elected"));
        all.extend(set("leader.kubeconfig", kubeconfig.to_str().unwrap()));
        all
    };
    let boot = Duration::from_secs(8);
    let machines = Machines { count: 2, boot, ..Machines::default() };
    let direct = arguments(&cluster.kubeconfig());
    let direct: Vec<&str> = direct.iter().map(String::as_str).collect();
    let mut story = Story::set_on(cluster, "elected", &machines, &direct).await;
    let first = story.server().holder();
    story
        .until("the first is elected and leads", async || {
            let (elected, leads) = leaders(cluster, &etcd);
            (elected.starts_with(&first) && leads == elected).then_some(())
        })
        .await;
    story.create(&cluster.kubeconfig(), &machines).await;
    story.muster(&["enable", "cluster", "elected"]);

    // The second one reaches its Lease by a wire that can be cut.
    let wire = Wire::start(&cluster.kubeconfig(), Duration::from_secs(5)).await;
    let through = arguments(&wire.kubeconfig(&cluster.kubeconfig(), keys.path()));
    let through: Vec<&str> = through.iter().map(String::as_str).collect();
    let second = Muster::start(story.directory.path(), "second", &through);
    let name = second.holder();

    // Frozen in the middle of a boot: the other is elected, raises the epoch and finishes.
    story.deploy(1, &json!({"cpu": "1"}), &json!({}));
    story.until("a server is asked to start", async || started(&story)).await;
    let frozen = story.muster.replace(Arc::new(second)).expect("it runs");
    frozen.signal("STOP");
    story
        .until("the second is elected and leads", async || {
            let (elected, leads) = leaders(cluster, &etcd);
            (elected.starts_with(&name) && leads == elected).then_some(())
        })
        .await;
    story.until_running(1).await;
    let up = started(&story).expect("it was asked");
    assert_eq!(story.resets(up), ["On"], "nothing is sent twice");

    // Thawed: it finds that it was replaced, and has no effect.
    frozen.signal("CONT");
    let raised = leaders(cluster, &etcd).1;
    story.scale(0);
    story.until("the server rests", async || (story.phase(up).await == "idle").then_some(())).await;
    assert_eq!(
        (story.power(up), story.resets(up)),
        (Power::Off, vec!["On".to_owned(), "GracefulShutdown".to_owned()])
    );
    assert_eq!(leaders(cluster, &etcd), (raised.clone(), raised.clone()));

    // No API server: silence elects nobody, and people can still switch servers.
    cluster.signal("kube-apiserver", "STOP");
    let down = Instant::now();
    while down.elapsed() < Duration::from_secs(40) {
        assert_eq!(etcd.value("/muster/leases/leader/epoch"), raised, "nobody raises the epoch");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let other = 3 - up;
    story.muster(&["power", "on", &format!("elected-{other}"), "--reason", "the API server runs there"]);
    story.until("it is on", async || (story.power(other) == Power::On).then_some(())).await;
    assert_eq!(etcd.value("/muster/leases/leader/epoch"), raised);
    cluster.signal("kube-apiserver", "CONT");
    cluster.restart("kube-apiserver");
    story
        .until("the Lease is renewed again", async || {
            let (elected, leads) = leaders(cluster, &etcd);
            (elected == raised && leads == raised).then_some(())
        })
        .await;

    // Cut off from the API server alone: the other is elected, claims the lease, and gets it.
    wire.sever();
    story
        .until("the first leads again", async || {
            let (elected, leads) = leaders(cluster, &etcd);
            (elected.starts_with(&first) && leads == elected).then_some(())
        })
        .await;
    let cut = story.muster.replace(frozen).expect("it runs");
    story.until("the one that was cut off says so", async || cut.said("no longer leads").then_some(())).await;
    story.scale(1);
    story.until_running(1).await;
    drop(cut);
}

/// The number of the server that was asked to start, if one was.
fn started(story: &Story) -> Option<usize> {
    [1, 2].into_iter().find(|number| !story.resets(*number).is_empty())
}
