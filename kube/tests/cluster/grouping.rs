//! Groups of pods that are objects: an API that is not there is no fault, and one that comes later is found.

use muster_emulate::cluster::TestCluster;
use muster_kube::SourceState;
use muster_model::k8s::{PodGroup, PodGroupApi};
use serde_json::json;

use crate::support::{namespace, until, view_with, watch};

/// The kind of another project, as far as anybody reads it here.
fn definition(group: &str, version: &str) -> String {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("podgroups.{group}"),
            // Groups that end in k8s.io are guarded.
            "annotations": { "api-approved.kubernetes.io": "unapproved, a test" } },
        "spec": { "group": group, "scope": "Namespaced",
            "names": { "kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup" },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": open } }] } })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_seen_once_their_api_is_there() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "groups");
    let kube = watch(cluster).await;
    let (view, ()) = view_with(&kube, "everything is in sync without them", |_| Some(())).await;
    assert!(view.objects.pod_groups.is_empty());
    for kind in ["podgroups", "podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh"] {
        let source = kube.health().sources.into_iter().find(|source| source.kind == kind).unwrap();
        assert_eq!(source.state, SourceState::NotServed, "{kind}");
    }
    let both = [("scheduling.x-k8s.io", "v1alpha1", 3), ("scheduling.volcano.sh", "v1beta1", 5)];
    for (group, version, min) in both {
        cluster.kubectl(&["create", "-f", "-"], &definition(group, version));
        let object = json!({ "apiVersion": format!("{group}/{version}"), "kind": "PodGroup",
            "metadata": { "name": "train", "namespace": "groups" }, "spec": { "minMember": min } });
        until(&format!("a group of {group} can be made"), || async {
            cluster.try_kubectl(&["create", "-f", "-"], &object.to_string()).0.then_some(())
        })
        .await;
    }
    let (_, found) = view_with(&kube, "both are seen", |view| {
        let found: Vec<_> = view.objects.pod_groups.iter().map(|group| (group.api(), group.min())).collect();
        (found.len() == 2).then_some(found)
    })
    .await;
    assert!(found.contains(&(Some(PodGroupApi::Coscheduling), Some(3))), "{found:?}");
    assert!(found.contains(&(Some(PodGroupApi::Volcano), Some(5))), "{found:?}");
    // The two have the same name, and only one of them goes.
    cluster.kubectl(&["-n", "groups", "delete", "podgroups.scheduling.volcano.sh", "train"], "");
    let (_, left) = view_with(&kube, "one is gone", |view| {
        let left: Vec<_> = view.objects.pod_groups.iter().map(PodGroup::api).collect();
        (left.len() == 1).then_some(left)
    })
    .await;
    assert_eq!(left, [Some(PodGroupApi::Coscheduling)]);
    cluster
        .kubectl(&["delete", "crd", "podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh"], "");
}
