//! Muster in a pod of the cluster that it serves: the service account's files, the printed rights, and its custom resources
//! there without a word of configuration. Runs in `make e2e`.

use std::{
    collections::BTreeSet,
    process::Command,
    time::{Duration, Instant},
};

use muster_emulate::{
    Power,
    cluster::{Nodes, TestCluster},
};
use muster_model::identity::Email;
use serde_json::{Value, json};

use crate::{
    lab::{Machines, Pod, Story, condition},
    privilege::{Right, asked, granted},
};

/// What is printed for an installation in this namespace, without what would be pods.
fn printed() -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["manifests", "--image", "none", "--namespace", "audited", "--without-namespace"])
        .output()
        .unwrap();
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let kinds = [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "CustomResourceDefinition",
    ];
    objects.into_iter().filter(|object| kinds.iter().any(|kind| object["kind"] == *kind)).collect()
}

/// OPS-R20 for custom resources: nothing that the loop asks for is forbidden, and nothing that it may do is unused.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r20_in_its_own_cluster_objects_take_the_printed_rights_and_no_others() {
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    cluster.kubectl(&["create", "namespace", "audited"], "");
    let objects = printed();
    for object in &objects {
        cluster.kubectl(&["apply", "--server-side", "-f", "-"], &object.to_string());
    }
    let ours = "app.kubernetes.io/part-of=muster";
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "-l", ours], "");
    let files = tempfile::tempdir().unwrap();
    let pod = Pod::new(cluster, "audited", "muster", files.path());
    let machines = Machines::default();
    let mut story = Story::set_in(cluster, "audited", &machines, &[], Some(pod)).await;
    story.register(&["--in-cluster"], &machines).await;
    story.muster(&["enable", "cluster", "audited"]);
    let space = "user@example.com".parse::<Email>().unwrap().project().to_string();
    let kubectl = |arguments: &[&str]| {
        let mut all = vec!["-n", &space];
        all.extend(arguments);
        cluster.kubectl(&all, "")
    };
    let object = |kind: &str, name: &str| -> Value {
        let text = kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"]);
        serde_json::from_str(&text).unwrap_or(Value::Null)
    };
    let synced = |object: &Value| {
        let found = condition(object, "Synced");
        found["status"] == "True" && found["observedGeneration"] == object["metadata"]["generation"]
    };
    // Made from what was registered, in a namespace that was made for it.
    let all = [("mcl", "audited"), ("mnp", "audited.audited"), ("bmn", "audited-1"), ("bmn", "audited-2")];
    for (kind, name) in all {
        story
            .until(&format!("{kind}/{name} is there"), async || synced(&object(kind, name)).then_some(()))
            .await;
    }

    // Pods come: the pool's own users see why it grows, on the object that they look at.
    story.deploy(5, &json!({"cpu": "1"}), &json!({}));
    story.until_running(5).await;
    let told = story
        .until("the pool's object has an event", async || {
            let told = kubectl(&["describe", "mnp", "audited.audited"]);
            let (_, events) = told.split_once("Events:")?;
            events.contains("TriggeredScaleUp").then(|| events.to_owned())
        })
        .await;
    assert!(told.contains("muster"), "it says who: {told}");
    let listed = kubectl(&["get", "events", "--field-selector=involvedObject.kind=NodePool"]);
    assert!(listed.contains("nodepool/audited.audited"), "{listed}");
    kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "mnp/audited.audited"]);

    // Edits of every kind are taken, and marked as taken.
    for (kind, name, patch) in [
        ("mnp", "audited.audited", json!({"spec": {"labels": {"team": "red"}}})),
        ("bmn", "audited-1", json!({"spec": {"labels": {"row": "3"}}})),
        ("mcl", "audited", json!({"spec": {"mode": "advise"}})),
    ] {
        kubectl(&["patch", kind, name, "--type=merge", "-p", &patch.to_string()]);
        story
            .until(&format!("the edit of {kind}/{name} is taken"), async || {
                synced(&object(kind, name)).then_some(())
            })
            .await;
    }
    kubectl(&["patch", "mcl", "audited", "--type=merge", "-p", r#"{"spec":{"mode":"active"}}"#]);
    let metrics = story.text("/metrics").await;
    for line in ["muster_resources_in_step 1", "muster_resources_unsynced{kind=\"nodepools\"} 0"] {
        assert!(metrics.contains(line), "{line} is missing in:\n{metrics}");
    }

    // One that is refused says so, and is counted.
    kubectl(&["patch", "mnp", "audited.audited", "--type=merge", "-p", r#"{"spec":{"nodeCount":500}}"#]);
    story
        .until("the refusal is said and counted", async || {
            let refused = condition(&object("mnp", "audited.audited"), "Synced")["reason"] == "Invalid";
            let counted =
                story.text("/metrics").await.contains("muster_resources_unsynced{kind=\"nodepools\"} 1");
            (refused && counted).then_some(())
        })
        .await;

    // Everything goes by the API, and its objects with it.
    story.scale(0);
    for number in [1, 2] {
        story.until("the server rests", async || (story.phase(number).await == "idle").then_some(())).await;
        assert_eq!((story.power(number), story.resets(number).len()), (Power::Off, 2));
    }
    story.muster(&["delete", "pool", "audited/audited", "--yes"]);
    for host in ["audited-1", "audited-2"] {
        story.muster(&["delete", "host", host, "--yes"]);
    }
    story.until("the pool is gone", async || object("mnp", "audited.audited").is_null().then_some(())).await;
    story.muster(&["delete", "cluster", "audited", "--yes"]);
    for (kind, name) in all {
        story
            .until(&format!("{kind}/{name} is gone"), async || object(kind, name).is_null().then_some(()))
            .await;
    }

    let mine: BTreeSet<Right> = granted(&objects, "muster-audited-muster-resources");
    assert!(!mine.is_empty());
    let began = Instant::now();
    let unused = loop {
        let unused: Vec<Right> = mine.difference(&asked(&cluster.audited()).0).cloned().collect();
        if unused.is_empty() || began.elapsed() > Duration::from_secs(30) {
            break unused;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(unused, Vec::new(), "every right is used");
    assert_eq!(asked(&cluster.audited()).1, BTreeSet::new(), "nothing was forbidden");
}
