//! One Muster and two clusters. Runs in `make e2e`.

use muster_emulate::{
    Power,
    cluster::{Nodes, TestCluster},
};
use serde_json::json;

use crate::lab::{AFTER_SLOWNESS, Machines, Story, condition};

/// Each is planned for itself, on servers of its own; one whose API server is away does not hold up the other, and loses nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn two_clusters_are_served_apart_and_one_that_is_away_holds_nobody_up() {
    let machines = Machines { count: 1, ..Machines::default() };
    let near = Story::begin("near", Machines { count: 1, ..Machines::default() }).await;
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    let mut far = near.beside(cluster, "far", &machines).await;
    far.create(&cluster.kubeconfig(), &machines).await;
    far.muster(&["enable", "cluster", "far"]);
    near.until_idle().await;
    far.until_idle().await;

    near.deploy(1, &json!({"cpu": "1"}), &json!({}));
    near.until_running(1).await;
    far.until_looked().await;
    assert!(far.resets(1).is_empty(), "the pods of one wake no servers of the other");
    far.deploy(1, &json!({"cpu": "1"}), &json!({}));
    far.until_running(1).await;
    assert_eq!((near.resets(1), far.resets(1)), (vec!["On".to_owned()], vec!["On".to_owned()]));
    let clusters = near.muster(&["get", "clusters"]);
    assert!(clusters.contains("near") && clusters.contains("far"), "{clusters}");

    cluster.signal("kube-apiserver", "STOP");
    let path = format!("/api/v1/nodepools/{}", far.pool);
    near.until("the far one is missed", async || {
        (condition(&near.get(&path).await, "ClusterConnected")["status"] == "Unknown").then_some(())
    })
    .await;
    near.scale(0);
    near.until("the near one goes on", async || (near.phase(1).await == "idle").then_some(())).await;
    assert_eq!(near.resets(1), ["On", "GracefulShutdown"]);
    near.scale(1);
    near.until_running(1).await;
    assert_eq!((far.power(1), far.resets(1)), (Power::On, vec!["On".to_owned()]));

    cluster.restart("kube-apiserver");
    far.until("the far one is seen again", async || {
        (condition(&far.get(&path).await, "ClusterConnected")["status"] == "True").then_some(())
    })
    .await;
    far.scale(0);
    let gone = async || (far.phase(1).await == "idle").then_some(());
    far.until_within(AFTER_SLOWNESS, "its server goes", gone).await;
    assert_eq!(far.resets(1), ["On", "GracefulShutdown"]);
    assert_eq!(near.running().len(), 1);
}
