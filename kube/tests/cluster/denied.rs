//! Rights that are missing are told, and granting them is all that has to be done.

use muster_emulate::cluster::TestCluster;
use muster_kube::{Client, KubeCluster, Options, SourceState};
use muster_model::{
    k8s::{Effect, Taint},
    observe::{ActError, ClusterPort, NodeAction},
};

use crate::support::{account, clock, namespace, node, until, view_with};

#[tokio::test(flavor = "multi_thread")]
async fn rbac_denials_name_the_kind_and_the_right_and_end_when_it_is_granted() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "denied");
    node(cluster, "denied-node");
    // `view` can read most of what lives in a namespace, but no nodes.
    let client = Client::connect(&account(cluster, "denied", "muster"), clock()).await.unwrap();
    let bind = |name: &str, role: &str| {
        let (role, account) = (format!("--clusterrole={role}"), "--serviceaccount=denied:muster");
        cluster.kubectl(&["create", "clusterrolebinding", name, &role, account], "");
    };
    bind("denied-view", "view");
    let kube = KubeCluster::start(client, Options::default());
    let error = until("nodes are refused", || async {
        let error = kube.view().unwrap_err();
        error.waiting.iter().any(|one| one.kind == "nodes" && one.why.contains("forbidden")).then_some(error)
    })
    .await;
    let text = error.to_string();
    assert!(
        text.contains("nodes (watch nodes: nodes is forbidden: User \"system:serviceaccount:denied:muster\""),
        "{text}"
    );
    let nodes = kube.health().sources.into_iter().find(|source| source.kind == "nodes").unwrap();
    assert_eq!(nodes.state, SourceState::Denied);

    let taint = Taint { key: "t".into(), value: "".into(), effect: Effect::NoSchedule };
    let refused = kube.act("denied-node", &NodeAction::AddTaint(taint)).await.unwrap_err();
    assert!(matches!(&refused, ActError::Denied { .. }), "{refused}");
    assert!(refused.to_string().contains("cannot get resource \"nodes\""), "{refused}");

    cluster.kubectl(
        &[
            "create",
            "clusterrole",
            "denied-rest",
            "--verb=get,list,watch",
            "--resource=nodes,leases,persistentvolumes,\
           namespaces,storageclasses.storage.k8s.io,csinodes.storage.k8s.io,csidrivers.storage.k8s.io,\
           csistoragecapacities.storage.k8s.io,volumeattachments.storage.k8s.io,\
           priorityclasses.scheduling.k8s.io,runtimeclasses.node.k8s.io",
        ],
        "",
    );
    bind("denied-rest", "denied-rest");
    view_with(&kube, "everything is in sync", |_| Some(())).await;
}
