//! OPS-R20, least privilege: the rights that we ask for are enough, and none of them is unused.

use std::collections::BTreeSet;

use muster_emulate::cluster::TestCluster;
use muster_kube::{
    Client, Credentials, EventLimits, KubeCluster, Options,
    elect::{Elected, Election, ElectionConfig},
    review::Reviewer,
    rights::{self, Part, RIGHTS},
};
use muster_model::{
    Duration, PoolId,
    k8s::{Effect, Pod, Taint},
    observe::{About, Acted, ClusterPort, NodeAction, Note, OFF_TAINT},
};
use serde_json::{Value, json};

use crate::{
    proxy::{Faults, Proxy},
    support::{account, clock, namespace, node, pod, until, view_with},
};

/// Group, resource (with its subresource) and verb of every allowed request in the audit log.
fn used(log: &str) -> BTreeSet<(String, String, String)> {
    // The last line may be half written.
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| event["annotations"]["authorization.k8s.io/decision"] == "allow")
        .map(|event| {
            let about = &event["objectRef"];
            let text = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
            let resource = match text("subresource").as_str() {
                "" => text("resource"),
                part => format!("{}/{part}", text("resource")),
            };
            (text("apiGroup"), resource, event["verb"].as_str().unwrap_or_default().to_owned())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r20_the_rights_are_enough_and_none_is_unused() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "audited");
    node(cluster, "rights-node");
    cluster.kubectl(&["create", "-f", "-"], &pod("audited", "evicted", "rights-node", "{}"));
    let credentials = account(cluster, "audited", "muster");
    let parts = [Part::Core, Part::DeleteNodes, Part::Identity, Part::Election];
    let list =
        json!({"apiVersion": "v1", "kind": "List", "items": rights::manifest("audited", "muster", &parts)});
    cluster.kubectl(&["create", "-f", "-"], &list.to_string());
    // One of every object that grants something.
    for (verb, resource, namespace) in [
        ("list", "pods", None),
        ("delete", "nodes", None),
        ("create", "tokenreviews.authentication.k8s.io", None),
        ("watch", "leases.coordination.k8s.io", Some("kube-node-lease")),
        ("update", "leases.coordination.k8s.io", Some("audited")),
    ] {
        cluster.until_allowed("system:serviceaccount:audited:muster", verb, resource, namespace);
    }

    let client = Client::connect(&credentials, clock()).await.unwrap();
    let limits = EventLimits { quiet: Duration::ZERO, ..EventLimits::default() };
    let kube = KubeCluster::start(client.clone(), Options { events: limits, ..Options::default() });
    let (_, evicted) = view_with(&kube, "everything is in sync", |view| {
        let mut pods = view.objects.pods.iter();
        pods.find(|pod| &*pod.metadata.name == "evicted").cloned()
    })
    .await;
    every_action(&kube, &evicted).await;
    let mut election = Election::new(client.clone(), ElectionConfig::new("audited", "leader", "a"));
    assert_eq!(election.step().await.unwrap(), Elected::Us);
    assert_eq!(election.step().await.unwrap(), Elected::Us, "it renews");
    let reviewer = Reviewer::new(client, Vec::new());
    let token = cluster.kubectl(&["-n", "audited", "create", "token", "muster"], "");
    assert!(reviewer.review(token.trim(), None).await.unwrap().is_some());

    // Where lists cannot be streamed they are paged, which is another verb.
    let Credentials::Text { kubeconfig, .. } = &credentials else { unreachable!("made as text") };
    let proxy = Proxy::start_as(kubeconfig, Faults { no_streaming: true, ..Faults::default() }).await;
    let paged = KubeCluster::start(proxy.connect().await, Options::default());
    view_with(&paged, "everything is in sync", |_| Some(())).await;

    let unused = until("the audit log is written", || async {
        let used = used(&cluster.audited());
        let all = RIGHTS.iter().flat_map(|right| {
            right.resources.iter().flat_map(move |resource| {
                let one =
                    move |verb: &&str| (right.group.to_owned(), (*resource).to_owned(), (*verb).to_owned());
                right.verbs.iter().map(one)
            })
        });
        let unused: Vec<_> = all.filter(|right| !used.contains(right)).collect();
        unused.is_empty().then_some(unused)
    });
    assert_eq!(unused.await, Vec::new());
    let log = cluster.audited();
    let refused: Vec<&str> = log.lines().filter(|line| line.contains("decision\":\"forbid\"")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

async fn every_action(kube: &KubeCluster, evicted: &Pod) {
    let taint = || Taint { key: OFF_TAINT.into(), value: "".into(), effect: Effect::NoSchedule };
    let labels = [("nodepool", "p")].into_iter().map(|(key, value)| (key, Box::from(value))).collect();
    let uid = {
        let view = kube.view().unwrap();
        let node = view.objects.nodes.iter().find(|node| node.name() == "rights-node").unwrap();
        node.metadata.uid.to_string()
    };
    let actions = [
        NodeAction::Cordon { op: "op".into() },
        NodeAction::Uncordon,
        NodeAction::Label { labels, taints: vec![taint()] },
        NodeAction::RemoveTaint { key: OFF_TAINT.into() },
        NodeAction::AddTaint(taint()),
        NodeAction::Evict {
            pod: evicted.key(),
            uid: evicted.metadata.uid.to_string(),
            grace_seconds: Some(0),
        },
    ];
    for action in &actions {
        assert_eq!(kube.act("rights-node", action).await, Ok(Acted::Done), "{action:?}");
    }
    for _ in 0..2 {
        let about = About::Node { name: "rights-node".into(), uid: uid.clone() };
        kube.tell(&Note { about, warning: false, reason: "ScaleDown".into(), message: "unneeded".into() })
            .await;
    }
    let id: PoolId = "00000000-0000-4000-8000-000000000001".parse().unwrap();
    let about = About::Pool { project: "audited".into(), cluster: "lab".into(), pool: "gpu".into(), id };
    kube.tell(&Note { about, warning: false, reason: "ScaleDown".into(), message: "pool gpu".into() }).await;
    assert_eq!(kube.act("rights-node", &NodeAction::DeleteNode { uid }).await, Ok(Acted::Done));
}
