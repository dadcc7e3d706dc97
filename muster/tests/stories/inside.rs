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
    lab::{Machines, Pod, Story, condition, define},
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

/// What is made from what was registered.
const OBJECTS: [(&str, &str); 4] =
    [("mcl", "audited"), ("mnp", "audited.audited"), ("bmn", "audited-1"), ("bmn", "audited-2")];

/// The namespace in which the objects are.
struct Space {
    cluster: &'static TestCluster,
    name: String,
}

impl Space {
    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments);
        self.cluster.kubectl(&all, "")
    }

    /// An object, or null.
    fn object(&self, kind: &str, name: &str) -> Value {
        let text = self.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"]);
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    fn is_synced(&self, kind: &str, name: &str) -> bool {
        let object = self.object(kind, name);
        let found = condition(&object, "Synced");
        found["status"] == "True" && found["observedGeneration"] == object["metadata"]["generation"]
    }

    fn patch(&self, kind: &str, name: &str, patch: &str) {
        self.kubectl(&["patch", kind, name, "--type=merge", "-p", patch]);
    }
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
    define(cluster).await;
    let files = tempfile::tempdir().unwrap();
    let pod = Pod::new(cluster, "audited", "muster", files.path());
    let machines = Machines::default();
    let mut story = Story::set_in(cluster, "audited", &machines, &[], Some(pod)).await;
    story.register(&["--in-cluster"], &machines).await;
    story.muster(&["enable", "cluster", "audited"]);
    let name = "user@example.com".parse::<Email>().unwrap().project().to_string();
    let space = Space { cluster, name };
    // Made from what was registered, in a namespace that was made for it.
    for (kind, name) in OBJECTS {
        story
            .until(&format!("{kind}/{name} is there"), async || space.is_synced(kind, name).then_some(()))
            .await;
    }
    growth_is_told(&story, &space).await;
    edits_are_taken_or_refused(&story, &space).await;
    everything_goes(&story, &space).await;

    let mine: BTreeSet<Right> = granted(&objects, "muster-audited-muster-resources");
    assert!(!mine.is_empty());
    let began = Instant::now();
    let unused = loop {
        let unused: Vec<Right> = mine.difference(&asked(&cluster.audited()).0).cloned().collect();
        if unused.is_empty() || began.elapsed() > Duration::from_mins(2) {
            break unused;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(unused, Vec::new(), "every right is used");
    assert_eq!(asked(&cluster.audited()).1, BTreeSet::new(), "nothing was forbidden");
}

/// Pods come: the pool's own users see why it grows, on the object that they look at.
async fn growth_is_told(story: &Story, space: &Space) {
    story.deploy(5, &json!({"cpu": "1"}), &json!({}));
    story.until_running(5).await;
    let told = story
        .until("the pool's object has an event", async || {
            let told = space.kubectl(&["describe", "mnp", "audited.audited"]);
            let (_, events) = told.split_once("Events:")?;
            events.contains("TriggeredScaleUp").then(|| events.to_owned())
        })
        .await;
    assert!(told.contains("muster"), "it says who: {told}");
    let listed = space.kubectl(&["get", "events", "--field-selector=involvedObject.kind=NodePool"]);
    assert!(listed.contains("nodepool/audited.audited"), "{listed}");
    space.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", "mnp/audited.audited"]);
}

/// Edits of every kind are taken, and marked as taken; one that is refused says so, and is counted.
async fn edits_are_taken_or_refused(story: &Story, space: &Space) {
    for (kind, name, patch) in [
        ("mnp", "audited.audited", r#"{"spec":{"labels":{"team":"red"}}}"#),
        ("bmn", "audited-1", r#"{"spec":{"labels":{"row":"3"}}}"#),
        ("mcl", "audited", r#"{"spec":{"mode":"advise"}}"#),
    ] {
        space.patch(kind, name, patch);
        story
            .until(&format!("the edit of {kind}/{name} is taken"), async || {
                space.is_synced(kind, name).then_some(())
            })
            .await;
    }
    space.patch("mcl", "audited", r#"{"spec":{"mode":"active"}}"#);
    story
        .until("the figures say that all is in step", async || {
            let metrics = story.text("/metrics").await;
            ["muster_resources_in_step 1", "muster_resources_unsynced{kind=\"nodepools\"} 0"]
                .iter()
                .all(|line| metrics.contains(line))
                .then_some(())
        })
        .await;
    space.patch("mnp", "audited.audited", r#"{"spec":{"nodeCount":500}}"#);
    story
        .until("the refusal is said and counted", async || {
            let pool = space.object("mnp", "audited.audited");
            let refused = condition(&pool, "Synced")["reason"] == "Invalid";
            let counted =
                story.text("/metrics").await.contains("muster_resources_unsynced{kind=\"nodepools\"} 1");
            (refused && counted).then_some(())
        })
        .await;
    // Who tries it again and again does not get more events, but one that counts.
    story
        .until("the refusal is an event that counts", async || {
            space.patch("mnp", "audited.audited", r#"{"spec":{"nodeCount":500}}"#);
            let events = space.kubectl(&["get", "events.v1.events.k8s.io", "-o", "json"]);
            let events: Value = serde_json::from_str(&events).unwrap();
            let mut about = events["items"].as_array()?.iter().filter(|event| event["reason"] == "Invalid");
            let (first, second) = (about.next()?, about.next());
            assert!(second.is_none(), "one event: {events}");
            (first["series"]["count"].as_u64()? > 1).then_some(())
        })
        .await;
}

/// Everything goes by the API, and its objects with it.
async fn everything_goes(story: &Story, space: &Space) {
    story.scale(0);
    for number in [1, 2] {
        story.until("the server rests", async || (story.phase(number).await == "idle").then_some(())).await;
        assert_eq!((story.power(number), story.resets(number).len()), (Power::Off, 2));
    }
    story.muster(&["delete", "pool", "audited/audited", "--yes"]);
    for host in ["audited-1", "audited-2"] {
        story.muster(&["delete", "host", host, "--yes"]);
    }
    let is_gone = async |kind: &str, name: &str| {
        story
            .until(&format!("{kind}/{name} is gone"), async || {
                space.object(kind, name).is_null().then_some(())
            })
            .await;
    };
    is_gone("mnp", "audited.audited").await;
    story.muster(&["delete", "cluster", "audited", "--yes"]);
    for (kind, name) in OBJECTS {
        is_gone(kind, name).await;
    }
}
