//! What is seen, and what when something stands in the way.

use std::{collections::BTreeSet, time::Duration};

use muster_emulate::cluster::TestCluster;
use muster_kube::{KubeCluster, Options, SourceState};
use muster_model::observe::ClusterPort;

use crate::{
    proxy::{Faults, Proxy},
    support::{namespace, node, pod, until, view_with, watch},
};

/// The pods of one namespace in a view.
fn pods_in(view: &muster_model::observe::ClusterView, namespace: &str) -> BTreeSet<String> {
    let pods = view.objects.pods.iter();
    pods.filter(|pod| *pod.metadata.namespace == *namespace)
        .map(|pod| pod.metadata.name.to_string())
        .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_seen_and_every_change_is_news() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "kinds");
    node(cluster, "kinds-node");
    cluster.kubectl(&["create", "-f", "-"], &pod("kinds", "first", "kinds-node", r#"{"app":"a"}"#));
    cluster.kubectl(&["create", "-f", "-"], KINDS);
    let kube = watch(cluster).await;
    let (view, ()) = view_with(&kube, "all kinds are there", |view| {
        let objects = &view.objects;
        let in_namespace = |namespace: &str| namespace == "kinds";
        let all = objects.nodes.iter().any(|node| node.name() == "kinds-node")
            && objects.pods.iter().any(|pod| &*pod.metadata.name == "first")
            && objects.namespaces.iter().any(|one| &*one.metadata.name == "kinds")
            && objects.budgets.iter().any(|one| in_namespace(&one.metadata.namespace))
            && objects.claims.iter().any(|one| in_namespace(&one.metadata.namespace))
            && objects.volumes.iter().any(|one| &*one.metadata.name == "kinds-volume")
            && objects.storage_classes.iter().any(|one| &*one.metadata.name == "kinds-class")
            && objects.csi_nodes.iter().any(|one| &*one.metadata.name == "kinds-node")
            && objects.csi_drivers.iter().any(|one| &*one.metadata.name == "kinds.example.com")
            && objects.storage_capacities.iter().any(|one| in_namespace(&one.metadata.namespace))
            && objects.volume_attachments.iter().any(|one| &*one.metadata.name == "kinds-attachment")
            && objects.daemon_sets.iter().any(|one| in_namespace(&one.metadata.namespace))
            && objects.replica_sets.iter().any(|one| in_namespace(&one.metadata.namespace))
            && objects.stateful_sets.iter().any(|one| in_namespace(&one.metadata.namespace))
            && objects.jobs.iter().any(|one| in_namespace(&one.metadata.namespace))
            && objects.priority_classes.iter().any(|one| &*one.metadata.name == "kinds-priority")
            && objects.runtime_classes.iter().any(|one| &*one.metadata.name == "kinds-runtime");
        all.then_some(())
    })
    .await;
    let health = kube.health();
    let (groups, others): (Vec<_>, Vec<_>) =
        health.sources.iter().partition(|source| source.kind.starts_with("podgroups"));
    assert_eq!((groups.len(), others.len()), (3, 18));
    assert!(others.iter().all(|source| source.state == SourceState::Watching), "{others:?}");
    // Kinds of other projects are not in this cluster, and the next release's only if it is asked to serve them.
    let known = [SourceState::Watching, SourceState::NotServed];
    assert!(groups.iter().all(|source| known.contains(&source.state)), "{groups:?}");
    assert!(view.set_aside.is_empty(), "{:?}", view.set_aside);

    cluster.kubectl(&["create", "-f", "-"], &pod("kinds", "second", "kinds-node", r#"{"app":"a"}"#));
    let before = view.number;
    kube.changed(before).await;
    let (after, ()) = view_with(&kube, "the second pod is there", |view| {
        (pods_in(view, "kinds").is_superset(&names(&["first", "second"]))).then_some(())
    })
    .await;
    assert!(after.number > before);
    assert!(!pods_in(&view, "kinds").contains("second"), "a view that was handed out does not change");
    let specs: Vec<_> = after.objects.pods.iter().filter(|pod| &*pod.metadata.namespace == "kinds").collect();
    let shared = specs.iter().filter(|pod| ["first", "second"].contains(&&*pod.metadata.name));
    let pointers: BTreeSet<_> = shared.map(|pod| std::sync::Arc::as_ptr(&pod.spec).addr()).collect();
    assert!(pointers.len() <= 2, "equal specs are kept once or differ in their token volume");

    cluster.kubectl(&["-n", "kinds", "delete", "pod", "first", "--grace-period=0", "--force"], "");
    view_with(&kube, "the first pod is gone", |view| {
        (!pods_in(view, "kinds").contains("first")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_f4_a_watch_that_is_cut_every_second_misses_nothing() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "cut");
    node(cluster, "cut-node"); // pods of a node that is not there are swept away by the controller manager
    let proxy =
        Proxy::start(cluster, Faults { cut_after: Some(Duration::from_secs(1)), ..Faults::default() }).await;
    let kube = KubeCluster::start(proxy.connect().await, Options::default());
    view_with(&kube, "everything is in sync", |_| Some(())).await;
    for round in 0..6 {
        let name = format!("pod-{round}");
        cluster.kubectl(&["create", "-f", "-"], &pod("cut", &name, "cut-node", "{}"));
        if round >= 2 {
            let old = format!("pod-{}", round - 2);
            cluster.kubectl(&["-n", "cut", "delete", "pod", &old, "--grace-period=0", "--force"], "");
        }
        tokio::time::sleep(Duration::from_millis(400)).await; // so that cuts fall between the changes
    }
    view_with(&kube, "the view is as the cluster", |view| {
        (pods_in(view, "cut") == names(&["pod-4", "pod-5"])).then_some(())
    })
    .await;
    let pods = until("it was cut", || async {
        let pods = kube.health().sources.into_iter().find(|source| source.kind == "pods").unwrap();
        (pods.reconnects >= 2).then_some(pods)
    })
    .await;
    assert_eq!(pods.lists, 1, "a cut connection is taken up where it ended: {pods:?}");
    assert!(proxy.seen.lock().unwrap().watches > 18);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_is_set_aside_and_comes_back() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "unreadable");
    node(cluster, "unreadable-1");
    node(cluster, "unreadable-2");
    cluster.kubectl(&["create", "-f", "-"], &pod("unreadable", "good", "unreadable-1", "{}"));
    let bad = pod("unreadable", "bad", "unreadable-2", "{}").replace("123m", "987m");
    cluster.kubectl(&["create", "-f", "-"], &bad);
    let broken = Faults { replace: Some(("\"987m\"".into(), "\"98 lots\"".into())), ..Faults::default() };
    let proxy = Proxy::start(cluster, broken).await;
    let kube = KubeCluster::start(proxy.connect().await, Options::default());
    let (view, aside) = view_with(&kube, "the bad pod is set aside", |view| {
        view.set_aside.iter().find(|one| one.namespace == "unreadable").cloned()
    })
    .await;
    assert_eq!(
        (aside.kind.as_str(), aside.name.as_str(), aside.node.as_deref()),
        ("Pod", "bad", Some("unreadable-2"))
    );
    assert!(aside.why.contains("spec.containers[0].resources.requests.cpu"), "{}", aside.why);
    assert_eq!(pods_in(&view, "unreadable"), names(&["good"]), "the others go on");
    let health = kube.health();
    let pods = health.sources.iter().find(|source| source.kind == "pods").unwrap();
    assert!(pods.unreadable >= 1, "{pods:?}");

    proxy.set(Faults::default());
    cluster.kubectl(&["-n", "unreadable", "label", "pod", "bad", "now=good"], "");
    // The open watch is still damaged; the next one is not.
    proxy.set(Faults::default());
    let kube = KubeCluster::start(proxy.connect().await, Options::default());
    let (view, ()) = view_with(&kube, "both pods are there", |view| {
        (pods_in(view, "unreadable") == names(&["bad", "good"])).then_some(())
    })
    .await;
    assert!(view.set_aside.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_stream_lists_is_paged_through_and_a_kind_may_be_missing() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "paged");
    node(cluster, "paged-node");
    cluster.kubectl(&["create", "-f", "-"], &pod("paged", "one", "paged-node", "{}"));
    let faults = Faults {
        no_streaming: true,
        missing: Some("/apis/node.k8s.io/v1/runtimeclasses"),
        ..Faults::default()
    };
    let proxy = Proxy::start(cluster, faults).await;
    let kube = KubeCluster::start(proxy.connect().await, Options::default());
    view_with(&kube, "the pod is there", |view| pods_in(view, "paged").contains("one").then_some(())).await;
    cluster.kubectl(&["create", "-f", "-"], &pod("paged", "two", "paged-node", "{}"));
    view_with(&kube, "a watch follows the list", |view| pods_in(view, "paged").contains("two").then_some(()))
        .await;
    assert!(proxy.seen.lock().unwrap().paged >= 17);
    let health = kube.health();
    let runtime = health.sources.iter().find(|source| source.kind == "runtimeclasses").unwrap();
    assert_eq!(runtime.state, SourceState::NotServed);
    assert!(health.fresh_at.millis() > 0, "what is not served does not make the rest look old");
}

const KINDS: &str = r"
apiVersion: v1
kind: List
items:
- {apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b, namespace: kinds},
   spec: {maxUnavailable: 0, selector: {matchLabels: {app: nobody}}}}
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: kinds},
   spec: {accessModes: [ReadWriteOnce], storageClassName: kinds-class, resources: {requests: {storage: 1Gi}}}}
- {apiVersion: v1, kind: PersistentVolume, metadata: {name: kinds-volume},
   spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, storageClassName: other, hostPath: {path: /x}}}
- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: kinds-class}, provisioner: kinds.example.com,
   volumeBindingMode: WaitForFirstConsumer}
- {apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: kinds-node}, spec: {drivers: []}}
- {apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: kinds.example.com}, spec: {attachRequired: false}}
- {apiVersion: storage.k8s.io/v1, kind: CSIStorageCapacity, metadata: {name: k, namespace: kinds},
   storageClassName: kinds-class, capacity: 5Gi}
- {apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {name: kinds-attachment},
   spec: {attacher: kinds.example.com, nodeName: kinds-node, source: {persistentVolumeName: kinds-volume}}}
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: kinds}, spec: {selector: {matchLabels: {a: d}},
   template: {metadata: {labels: {a: d}}, spec: {nodeSelector: {no: where}, containers: [{name: c, image: none}]}}}}
- {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: r, namespace: kinds}, spec: {replicas: 0,
   selector: {matchLabels: {a: r}}, template: {metadata: {labels: {a: r}}, spec: {containers: [{name: c, image: none}]}}}}
- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s, namespace: kinds}, spec: {replicas: 0, serviceName: s,
   selector: {matchLabels: {a: s}}, template: {metadata: {labels: {a: s}}, spec: {containers: [{name: c, image: none}]}}}}
- {apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: kinds}, spec: {parallelism: 0,
   template: {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: kinds-priority}, value: 7}
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kinds-runtime}, handler: kinds}
";
