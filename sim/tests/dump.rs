//! A dump of a real cluster (kube-apiserver and kube-scheduler 1.36), exactly as `kubectl` printed it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{fs, path::PathBuf};

use muster_engine::fit::{World, judge};
use muster_sim::simulate::{Loaded, Question, Source, load, simulate};
use serde_json::Value;

fn text() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/cluster-dump.yaml");
    fs::read_to_string(path).expect("the dump is a fixture of this crate")
}

fn loaded() -> Loaded {
    load(&[Source { name: "cluster-dump.yaml".to_owned(), text: text() }], None)
}

#[test]
fn every_object_of_the_dump_is_read() {
    let loaded = loaded();
    let value: Value =
        serde_saphyr::from_str_with_options(&text(), serde_saphyr::options! { budget: None }).unwrap();
    let items = value["items"].as_array().unwrap().len();
    assert_eq!(loaded.kinds.values().sum::<usize>(), items);
    assert!(loaded.set_aside.is_empty(), "{:#?}", loaded.set_aside);
    let cluster = &loaded.snapshot.cluster;
    assert_eq!(
        (cluster.nodes.len(), cluster.pods.len(), cluster.daemon_sets.len(), cluster.budgets.len()),
        (20, 60, 1, 1)
    );
}

/// For every pod that waits, our verdict is word for word what the scheduler wrote into its status.
#[test]
fn verdicts_on_waiting_pods_equal_the_schedulers_messages() {
    let value: Value =
        serde_saphyr::from_str_with_options(&text(), serde_saphyr::options! { budget: None }).unwrap();
    let loaded = loaded();
    let cluster = &loaded.snapshot.cluster;
    let mut world = World::new(&cluster.nodes, &cluster.namespaces, muster_engine::fit::Storage::default());
    world.bind_running(&cluster.pods);
    let mut compared = 0;
    for item in value["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "Pod") {
        let conditions = item["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let message = conditions
            .iter()
            .find(|condition| condition["reason"] == "Unschedulable")
            .and_then(|c| c["message"].as_str());
        let Some(message) = message else { continue };
        // What follows the first sentence is about preemption and device claims.
        let said = message.split(". ").next().unwrap();
        let name = item["metadata"]["name"].as_str().unwrap();
        let pod = cluster.pods.iter().find(|pod| *pod.metadata.name == *name).unwrap();
        let ours = judge(&world, pod).message.unwrap_or_default();
        assert_eq!(ours.trim_end_matches('.'), said, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 6);
}

#[test]
fn questions_about_the_dump_are_answered() {
    let now = simulate(loaded(), &Question::default(), &[]).unwrap();
    assert_eq!((now.before.pending_pods, now.after.pending_pods), (6, 6));
    // Pods of one workload are one row, although each has a volume with a name of its own.
    assert_eq!(now.unplaced.iter().map(|row| row.pods).collect::<Vec<_>>(), [2, 2, 1, 1]);
    let fewer = simulate(loaded(), &Question { consolidate: true, ..Question::default() }, &[]).unwrap();
    assert!(fewer.audit.is_empty(), "{:?}", fewer.audit);
    assert!(!fewer.removals.is_empty(), "{}", fewer.summary);
    let failed =
        simulate(loaded(), &Question { fail: vec!["node-1".into()], ..Question::default() }, &[]).unwrap();
    assert!(failed.audit.is_empty(), "{:?}", failed.audit);
}
