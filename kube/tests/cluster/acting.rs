//! What is done to nodes and pods, as the API server takes it.

use muster_emulate::cluster::TestCluster;
use muster_kube::{Guard, KubeCluster, NodeIs, Options, ProtectedNode};
use muster_model::{
    k8s::{Effect, Node, Pod, PodKey, Taint},
    observe::{ActError, Acted, CORDON_MARK, ClusterPort, NodeAction, OFF_TAINT, OUT_OF_SERVICE_TAINT},
};
use serde_json::Value;

use crate::support::{connect, namespace, node, pod, until, view_with, watch};

fn get(cluster: &TestCluster, what: &[&str]) -> Value {
    let arguments: Vec<&str> = what.iter().copied().chain(["-o", "json"]).collect();
    serde_json::from_str(&cluster.kubectl(&arguments, "")).unwrap()
}

fn taint(key: &str, value: &str, effect: Effect) -> Taint {
    Taint { key: key.into(), value: value.into(), effect }
}

async fn seen_pod(kube: &KubeCluster, namespace: &str, name: &str) -> Pod {
    let found = view_with(kube, "the pod is seen", |view| {
        let mut pods = view.objects.pods.iter();
        pods.find(|pod| &*pod.metadata.namespace == namespace && &*pod.metadata.name == name).cloned()
    });
    found.await.1
}

fn evict(pod: &Pod) -> NodeAction {
    NodeAction::Evict { pod: pod.key(), uid: pod.metadata.uid.to_string(), grace_seconds: Some(1) }
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_f11_a_cordon_carries_our_mark_and_a_foreign_one_is_left_alone() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    node(cluster, "cordon-ours");
    node(cluster, "cordon-theirs");
    cluster.kubectl(&["cordon", "cordon-theirs"], "");
    let kube = watch(cluster).await;
    let cordon = |op: &str| NodeAction::Cordon { op: op.into() };

    assert_eq!(kube.act("cordon-ours", &cordon("op-1")).await, Ok(Acted::Done));
    assert_eq!(kube.act("cordon-ours", &cordon("op-1")).await, Ok(Acted::AlreadySo));
    let ours = get(cluster, &["get", "node", "cordon-ours"]);
    assert_eq!(ours["spec"]["unschedulable"], true);
    assert_eq!(ours["metadata"]["annotations"][CORDON_MARK], "op-1");
    view_with(&kube, "the mark is seen", |view| {
        let mut nodes = view.objects.nodes.iter();
        let node: &Node = nodes.find(|node| node.name() == "cordon-ours")?;
        (node.spec.unschedulable && node.metadata.annotations.text(CORDON_MARK) == Some("op-1")).then_some(())
    })
    .await;
    assert_eq!(kube.act("cordon-ours", &NodeAction::Uncordon).await, Ok(Acted::Done));
    let ours = get(cluster, &["get", "node", "cordon-ours"]);
    assert_eq!(ours["spec"]["unschedulable"], Value::Null);
    assert_eq!(ours["metadata"]["annotations"][CORDON_MARK], Value::Null);

    assert_eq!(kube.act("cordon-theirs", &cordon("op-2")).await, Ok(Acted::AlreadySo));
    assert_eq!(kube.act("cordon-theirs", &NodeAction::Uncordon).await, Ok(Acted::AlreadySo));
    let theirs = get(cluster, &["get", "node", "cordon-theirs"]);
    assert_eq!(theirs["spec"]["unschedulable"], true);
    assert_eq!(kube.act("no-such-node", &cordon("op-3")).await, Ok(Acted::Gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r9_an_eviction_that_a_budget_of_zero_refuses_names_it_and_is_not_repeated() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "budget");
    node(cluster, "budget-node");
    cluster.kubectl(&["create", "-f", "-"], &pod("budget", "held", "budget-node", r#"{"app":"held"}"#));
    cluster.kubectl(
        &["-n", "budget", "create", "pdb", "none-may-go", "--selector=app=held", "--min-available=1"],
        "",
    );
    until("the budget is computed", || async {
        let budget = get(cluster, &["-n", "budget", "get", "pdb", "none-may-go"]);
        (budget["status"]["observedGeneration"] == 1).then_some(())
    })
    .await;
    // A pod that is not ready may go whatever the budget says, so it has to be.
    cluster.kubectl(
        &[
            "-n",
            "budget",
            "patch",
            "pod",
            "held",
            "--subresource=status",
            "--type=merge",
            "-p",
            r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#,
        ],
        "",
    );
    let kube = watch(cluster).await;
    let held = seen_pod(&kube, "budget", "held").await;
    let refused =
        until("the eviction is refused", || async { kube.act("budget-node", &evict(&held)).await.err() })
            .await;
    let ActError::Budget { pod, budget, .. } = &refused else { panic!("{refused}") };
    assert_eq!((pod.as_str(), budget.as_str()), ("budget/held", "PodDisruptionBudget budget/none-may-go"));
    assert_eq!(
        refused.to_string(),
        "PodDisruptionBudget budget/none-may-go allows 0 more disruptions of budget/held"
    );

    cluster.kubectl(
        &[
            "-n",
            "budget",
            "patch",
            "pdb",
            "none-may-go",
            "--type=merge",
            "-p",
            r#"{"spec":{"minAvailable":0}}"#,
        ],
        "",
    );
    until("the eviction is taken", || async {
        matches!(kube.act("budget-node", &evict(&held)).await, Ok(Acted::Done)).then_some(())
    })
    .await;
    // Nobody plays its kubelet, so it lingers: accepted is not gone.
    view_with(&kube, "it is seen to go", |view| {
        view.objects
            .pods
            .iter()
            .any(|pod| pod.metadata.uid == held.metadata.uid && pod.is_terminating())
            .then_some(())
    })
    .await;
    assert_eq!(kube.act("budget-node", &evict(&held)).await, Ok(Acted::AlreadySo));
    cluster.kubectl(&["-n", "budget", "delete", "pod", "held", "--grace-period=0", "--force"], "");
    view_with(&kube, "it is gone", |view| {
        (!view.objects.pods.iter().any(|pod| pod.metadata.uid == held.metadata.uid)).then_some(())
    })
    .await;
    assert_eq!(kube.act("budget-node", &evict(&held)).await, Ok(Acted::Gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_takes_the_pod_that_was_meant_and_no_daemon_or_static_pod() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "meant");
    node(cluster, "meant-node");
    cluster.kubectl(&["create", "-f", "-"], &pod("meant", "same-name", "meant-node", "{}"));
    let daemon = pod("meant", "daemon", "meant-node", "{}").replace(
        r#""namespace":"meant""#,
        r#""namespace":"meant","ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","uid":"u","controller":true}]"#,
    );
    let kube = watch(cluster).await;
    let first = seen_pod(&kube, "meant", "same-name").await;
    // The garbage collector would take a pod whose owner does not exist; seen once is enough.
    cluster.kubectl(&["create", "-f", "-"], &daemon);
    let daemon = seen_pod(&kube, "meant", "daemon").await;
    let refused = kube.act("meant-node", &evict(&daemon)).await;
    assert!(
        matches!(&refused, Err(ActError::Protected { why, .. }) if why.contains("DaemonSet"))
            || matches!(refused, Ok(Acted::Gone | Acted::AlreadySo)),
        "{refused:?}"
    );
    let elsewhere = kube.act("another-node", &evict(&first)).await;
    assert!(matches!(elsewhere, Err(ActError::Conflict { .. })), "{elsewhere:?}");
    cluster.kubectl(&["-n", "meant", "delete", "pod", "same-name", "--grace-period=0", "--force"], "");
    cluster.kubectl(&["create", "-f", "-"], &pod("meant", "same-name", "meant-node", "{}"));
    assert_eq!(kube.act("meant-node", &evict(&first)).await, Ok(Acted::Gone), "another has its name now");
    let there = get(cluster, &["-n", "meant", "get", "pod", "same-name"]);
    assert_eq!(there["metadata"]["deletionTimestamp"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_taints_of_the_pool_are_applied_and_those_of_others_stay() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    node(cluster, "labelled");
    cluster.kubectl(&["label", "node", "labelled", "theirs=yes"], "");
    cluster.kubectl(&["taint", "node", "labelled", "theirs=yes:NoSchedule"], "");
    let kube = watch(cluster).await;
    let label = |pairs: &[(&str, &str)], taints: Vec<Taint>| NodeAction::Label {
        labels: pairs.iter().map(|(key, value)| (*key, Box::from(*value))).collect(),
        taints,
    };
    let both = label(
        &[("nodepool", "gpu"), ("muster.dev/pool", "gpu")],
        vec![taint("gpu", "a", Effect::NoSchedule)],
    );
    assert_eq!(kube.act("labelled", &both).await, Ok(Acted::Done));
    assert_eq!(kube.act("labelled", &both).await, Ok(Acted::AlreadySo));
    // A label that is not the pool's any more goes; a person's stays.
    let one = label(&[("nodepool", "renamed")], Vec::new());
    assert_eq!(kube.act("labelled", &one).await, Ok(Acted::Done));
    let node = get(cluster, &["get", "node", "labelled"]);
    assert_eq!(node["metadata"]["labels"]["nodepool"], "renamed");
    assert_eq!(node["metadata"]["labels"]["theirs"], "yes");
    assert_eq!(node["metadata"]["labels"]["muster.dev/pool"], Value::Null);
    let keys = |node: &Value| -> Vec<String> {
        let taints = node["spec"]["taints"].as_array().unwrap();
        let named = taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned());
        // The controllers mark a node that nobody plays: it is not ready, and after a while it is not reached.
        named.filter(|key| !key.starts_with("node.kubernetes.io/")).collect()
    };
    assert_eq!(keys(&node), ["theirs", "gpu"]);

    let off = NodeAction::AddTaint(taint(OFF_TAINT, "", Effect::NoSchedule));
    assert_eq!(kube.act("labelled", &off).await, Ok(Acted::Done));
    assert_eq!(kube.act("labelled", &off).await, Ok(Acted::AlreadySo));
    let service = NodeAction::AddTaint(taint(OUT_OF_SERVICE_TAINT, "nodeshutdown", Effect::NoExecute));
    assert_eq!(kube.act("labelled", &service).await, Ok(Acted::Done));
    for key in [OUT_OF_SERVICE_TAINT, OFF_TAINT, "gpu"] {
        let remove = NodeAction::RemoveTaint { key: key.into() };
        assert_eq!(kube.act("labelled", &remove).await, Ok(Acted::Done), "{key}");
        assert_eq!(kube.act("labelled", &remove).await, Ok(Acted::AlreadySo), "{key}");
    }
    assert_eq!(keys(&get(cluster, &["get", "node", "labelled"])), ["theirs"]);
    assert_eq!(kube.act("absent", &both).await, Ok(Acted::Gone), "labelling makes no node");
    assert_eq!(cluster.kubectl(&["get", "node", "absent", "--ignore-not-found"], ""), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_node_that_was_meant_is_deleted() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    node(cluster, "to-delete");
    let kube = watch(cluster).await;
    let old = get(cluster, &["get", "node", "to-delete"])["metadata"]["uid"].as_str().unwrap().to_owned();
    cluster.kubectl(&["delete", "node", "to-delete"], "");
    node(cluster, "to-delete"); // it has joined again
    let refused = kube.act("to-delete", &NodeAction::DeleteNode { uid: old.clone() }).await;
    assert!(matches!(refused, Err(ActError::Conflict { .. })), "{refused:?}");
    let new = get(cluster, &["get", "node", "to-delete"])["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(kube.act("to-delete", &NodeAction::DeleteNode { uid: new.clone() }).await, Ok(Acted::Done));
    assert_eq!(kube.act("to-delete", &NodeAction::DeleteNode { uid: new }).await, Ok(Acted::Gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_f22_our_own_node_and_the_last_dns_replica_are_never_drained() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    node(cluster, "guard-self");
    node(cluster, "guard-dns");
    let dns = pod("kube-system", "guard-dns", "guard-dns", r#"{"k8s-app":"kube-dns"}"#);
    cluster.kubectl(&["create", "-f", "-"], &dns);
    let mut guard = Guard::default();
    let why = "Muster itself runs there".to_owned();
    guard.nodes.push(ProtectedNode { which: NodeIs::Named("guard-self".into()), why });
    let kube = KubeCluster::start(connect(cluster).await, Options { guard, ..Options::default() });
    let dns = seen_pod(&kube, "kube-system", "guard-dns").await;
    for action in [NodeAction::Cordon { op: "op".into() }, NodeAction::DeleteNode { uid: "u".into() }] {
        let refused = kube.act("guard-self", &action).await.unwrap_err();
        assert_eq!(refused.to_string(), "node guard-self is protected: Muster itself runs there");
    }
    for action in [NodeAction::Cordon { op: "op".into() }, evict(&dns)] {
        let refused = kube.act("guard-dns", &action).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "node guard-dns is protected: the last ready replica of cluster DNS runs there"
        );
    }
    // What only helps is not refused.
    assert_eq!(kube.act("guard-self", &NodeAction::Uncordon).await, Ok(Acted::AlreadySo));
    let gone = PodKey { namespace: "kube-system".into(), name: "guard-dns".into() };
    cluster.kubectl(&["-n", "kube-system", "delete", "pod", &gone.name, "--grace-period=0", "--force"], "");
    view_with(&kube, "the replica is gone", |view| {
        (!view.objects.pods.iter().any(|pod| pod.key() == gone)).then_some(())
    })
    .await;
    assert_eq!(kube.act("guard-dns", &NodeAction::Cordon { op: "op".into() }).await, Ok(Acted::Done));
}
