//! Notes to the cluster's users.

use muster_emulate::cluster::TestCluster;
use muster_kube::{EventLimits, KubeCluster, Options};
use muster_model::{
    Duration, PoolId,
    observe::{About, ClusterPort, Note},
};
use serde_json::Value;

use crate::support::{connect, namespace, node, pod, until};

fn events(cluster: &TestCluster, namespace: &str, about: &str) -> Vec<Value> {
    let selector = format!("--field-selector=regarding.name={about}");
    let text =
        cluster.kubectl(&["-n", namespace, "get", "events.v1.events.k8s.io", &selector, "-o", "json"], "");
    let list: Value = serde_json::from_str(&text).unwrap();
    let ours = list["items"].as_array().unwrap().iter();
    ours.filter(|event| event["reportingController"] == "muster.dev/muster").cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_is_one_event_however_often_it_is_said() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "notes");
    node(cluster, "noted-node");
    cluster.kubectl(&["create", "-f", "-"], &pod("notes", "noted", "noted-node", "{}"));
    let uid = cluster.kubectl(&["-n", "notes", "get", "pod", "noted", "-o", "jsonpath={.metadata.uid}"], "");
    let limits = EventLimits { quiet: Duration::from_millis(1500), burst: 6, ..EventLimits::default() };
    let options = Options { events: limits, instance: "test-1".into(), ..Options::default() };
    let kube = KubeCluster::start(connect(cluster).await, options);
    let note = |message: &str| Note {
        about: About::Pod {
            key: muster_model::k8s::PodKey { namespace: "notes".into(), name: "noted".into() },
            uid: uid.clone(),
        },
        warning: true,
        reason: "NotTriggerScaleUp".into(),
        message: message.into(),
    };
    let text = "no pool can hold it: needs 12 GiB, the largest node of pool gpu gives 10.9 GiB";
    for _ in 0..3 {
        kube.tell(&note(text)).await;
    }
    let found = events(cluster, "notes", "noted");
    assert_eq!(found.len(), 1, "{found:#?}");
    let event = &found[0];
    assert_eq!(
        (&event["note"], &event["type"], &event["reason"]),
        (&Value::from(text), &Value::from("Warning"), &Value::from("NotTriggerScaleUp"))
    );
    assert_eq!(
        (&event["regarding"]["uid"], &event["reportingInstance"]),
        (&Value::from(uid.as_str()), &Value::from("test-1"))
    );
    assert!(
        cluster.kubectl(&["-n", "notes", "describe", "pod", "noted"], "").contains(text),
        "kubectl shows it"
    );

    tokio::time::sleep(std::time::Duration::from_secs(2)).await; // the quiet time passes
    kube.tell(&note(text)).await;
    let found = events(cluster, "notes", "noted");
    assert_eq!((found.len(), &found[0]["series"]["count"]), (1, &Value::from(4)), "{found:#?}");

    let about = About::Node { name: "noted-node".into(), uid: "u".into() };
    kube.tell(&Note {
        about,
        warning: false,
        reason: "ScaleDown".into(),
        message: "unneeded for 10m".into(),
    })
    .await;
    assert_eq!(events(cluster, "default", "noted-node").len(), 1);
    assert!(cluster.kubectl(&["describe", "node", "noted-node"], "").contains("unneeded for 10m"));

    // A pool that this cluster has no object of is named all the same.
    let id: PoolId = "00000000-0000-4000-8000-000000000007".parse().unwrap();
    let about = About::Pool { project: "notes".into(), cluster: "lab".into(), pool: "noted".into(), id };
    let grows = "pool noted has 0 nodes, 0 to 8; grows by 1 for 1 pod";
    for _ in 0..2 {
        let (about, message) = (about.clone(), grows.into());
        kube.tell(&Note { about, warning: false, reason: "TriggeredScaleUp".into(), message }).await;
    }
    let found = events(cluster, "default", "lab.noted");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (&found[0]["regarding"]["kind"], &found[0]["note"]),
        (&Value::from("NodePool"), &Value::from(grows))
    );
}

/// Whoever makes the object of a pool calls it what he likes; one with the usual name may be another pool's.
#[tokio::test(flavor = "multi_thread")]
async fn a_note_on_a_pool_finds_its_object_whatever_that_is_called() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "called");
    for definition in muster_kube::resources::definitions() {
        cluster.kubectl(&["apply", "--server-side", "-f", "-"], &definition.to_string());
    }
    let (ours, others) = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002");
    for (name, id) in [("anything", ours), ("lab.gpu", others)] {
        let object = serde_json::json!({ "apiVersion": "muster.dev/v1alpha1", "kind": "NodePool",
            "metadata": { "name": name, "namespace": "called" },
            "spec": { "cluster": "lab", "platform": { "type": "gcp" } } });
        until("its kind is served", || async {
            cluster.try_kubectl(&["create", "-f", "-"], &object.to_string()).0.then_some(())
        })
        .await;
        let status = serde_json::json!({ "status": { "id": id } }).to_string();
        let patch =
            ["-n", "called", "patch", "mnp", name, "--subresource=status", "--type=merge", "-p", &status];
        cluster.kubectl(&patch, "");
    }
    let kube = KubeCluster::start(connect(cluster).await, Options::default());
    for message in ["pool gpu grows by 1", "pool gpu grows by 2"] {
        let id = ours.parse().unwrap();
        let about = About::Pool { project: "called".into(), cluster: "lab".into(), pool: "gpu".into(), id };
        kube.tell(&Note {
            about,
            warning: false,
            reason: "TriggeredScaleUp".into(),
            message: message.into(),
        })
        .await;
    }
    assert_eq!(events(cluster, "called", "lab.gpu"), Vec::<Value>::new());
    assert_eq!(events(cluster, "called", "anything").len(), 2);
    let told = cluster.kubectl(&["-n", "called", "describe", "mnp", "anything"], "");
    assert!(told.contains("pool gpu grows by 2"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_notes_is_limited() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "flood");
    let limits = EventLimits { burst: 5, per_second: 0, ..EventLimits::default() };
    let options = Options { events: limits, ..Options::default() };
    let kube = KubeCluster::start(connect(cluster).await, options);
    for number in 0..20 {
        let key = muster_model::k8s::PodKey { namespace: "flood".into(), name: format!("p{number}").into() };
        kube.tell(&Note {
            about: About::Pod { key, uid: "u".into() },
            warning: false,
            reason: "TriggeredScaleUp".into(),
            message: "pool a 0 -> 1".into(),
        })
        .await;
    }
    let count = cluster.kubectl(&["-n", "flood", "get", "events", "-o", "name"], "").lines().count();
    assert_eq!(count, 5);
}
