//! Notes to the cluster's users.

use muster_emulate::cluster::TestCluster;
use muster_kube::{EventLimits, KubeCluster, Options};
use muster_model::{
    Duration,
    observe::{About, ClusterPort, Note},
};
use serde_json::Value;

use crate::support::{connect, namespace, node, pod};

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
    let about = About::Pool { project: "notes".into(), cluster: "lab".into(), pool: "noted".into() };
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
