//! An API server that stops, and one that has forgotten.

use std::time::Duration;

use muster_emulate::cluster::TestCluster;
use muster_kube::SourceState;
use muster_model::observe::{ActError, ClusterPort, NodeAction};

use crate::support::{clock, namespace, node, pod, until, view_with, watch};

#[tokio::test(flavor = "multi_thread")]
async fn ops_f3_a_frozen_api_server_shows_as_age_and_calls_end() {
    let cluster = TestCluster::shared();
    let _alone = cluster.alone().await;
    node(cluster, "frozen-node");
    let kube = watch(cluster).await;
    let (before, ()) = view_with(&kube, "everything is in sync", |_| Some(())).await;
    until("the view is kept fresh without events", || async {
        (kube.view().unwrap().fresh_at > before.fresh_at).then_some(())
    })
    .await;
    cluster.signal("kube-apiserver", "STOP");
    tokio::time::sleep(Duration::from_secs(12)).await;
    let view = kube.view().expect("old knowledge stays, with its age");
    let age = clock().now().since(view.fresh_at);
    let acted = kube.act("frozen-node", &NodeAction::Cordon { op: "op".into() }).await;
    cluster.signal("kube-apiserver", "CONT");
    assert!(age.millis() >= 6_000, "an API server that says nothing is not fresh: {age}");
    assert!(matches!(acted, Err(ActError::Unreachable { .. })), "{acted:?}");
    until("it is fresh again", || async {
        let view = kube.view().unwrap();
        (clock().now().since(view.fresh_at).millis() < 6_000).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_api_server_that_has_forgotten_gets_a_new_list() {
    let cluster = TestCluster::shared();
    let _alone = cluster.alone().await;
    namespace(cluster, "forgotten");
    node(cluster, "forgotten-node");
    cluster.kubectl(&["create", "-f", "-"], &pod("forgotten", "stays", "forgotten-node", "{}"));
    cluster.kubectl(&["create", "-f", "-"], &pod("forgotten", "goes", "forgotten-node", "{}"));
    let kube = watch(cluster).await;
    let there = |view: &muster_model::observe::ClusterView, name: &str| {
        view.objects
            .pods
            .iter()
            .any(|pod| &*pod.metadata.namespace == "forgotten" && &*pod.metadata.name == name)
    };
    view_with(&kube, "both pods are there", |view| {
        (there(view, "stays") && there(view, "goes")).then_some(())
    })
    .await;
    // What happens while nobody listens, and is in no event that the new server still has.
    let (pause, running) = (kube.health(), kube.running());
    cluster.kubectl(&["-n", "forgotten", "delete", "pod", "goes", "--grace-period=0", "--force"], "");
    cluster.restart("kube-apiserver");
    view_with(&kube, "the deleted pod is gone", |view| {
        (there(view, "stays") && !there(view, "goes")).then_some(())
    })
    .await;
    cluster.kubectl(&["create", "-f", "-"], &pod("forgotten", "new", "forgotten-node", "{}"));
    view_with(&kube, "events arrive again", |view| there(view, "new").then_some(())).await;
    until("every watch is open again", || async {
        let health = kube.health();
        let relisted = health.sources.iter().zip(&pause.sources).any(|(now, then)| now.lists > then.lists);
        let open = health
            .sources
            .iter()
            .all(|source| source.why.is_empty() || source.state == SourceState::NotServed);
        (relisted && open).then_some(())
    })
    .await;
    assert_eq!(kube.running(), running, "no watch has ended");
}
