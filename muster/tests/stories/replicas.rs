//! More than one Muster, and one that dies at every step. All of these run in `make e2e`.

use std::sync::Arc;

use muster_emulate::Power;
use serde_json::json;

use crate::{
    harness::Etcd,
    lab::{Machines, Muster, Story},
};

/// The leader freezes in the middle of a boot; the other finishes it. The first wakes up later, and does nothing twice.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn the_other_replica_takes_over_from_a_frozen_leader() {
    let etcd = Etcd::start();
    let keys = tempfile::tempdir().unwrap();
    let key = format!("credentials.key-file={}", keys.path().join("key").display());
    let store = etcd.store();
    let arguments = ["--store", store.as_str(), "--set", key.as_str()];
    let boot = std::time::Duration::from_secs(8);
    let machines = Machines { count: 1, boot, ..Machines::default() };
    let mut story = Story::set("frozen", &machines, &arguments).await;
    story.create(&story.cluster.kubeconfig(), &machines).await;
    story.muster(&["enable", "cluster", "frozen"]);
    let second = Muster::start(story.directory.path(), "second", &arguments);
    story.deploy(1, &json!({"cpu": "1"}), &json!({}));
    story.until("the server is asked to start", async || (!story.resets(1).is_empty()).then_some(())).await;
    let first = story.muster.replace(Arc::new(second)).expect("it runs");
    first.signal("STOP");
    story.until_running(1).await;
    assert_eq!(story.resets(1), ["On"], "the other one sends none");
    first.signal("CONT");
    story.scale(0);
    story.until("it rests", async || (story.phase(1).await == "idle").then_some(())).await;
    assert_eq!(
        (story.power(1), story.resets(1)),
        (Power::Off, vec!["On".to_owned(), "GracefulShutdown".to_owned()])
    );
    drop(first);
}

/// The phases of one way up and down, in order.
const STEPS: [&str; 9] = [
    "reserved",
    "power-requested",
    "powered",
    "joining",
    "serving",
    "cordoned",
    "evicting",
    "stopping",
    "confirming-off",
];

/// Killed with -9 at every step in turn: each time the next process finishes, with one power call of each kind.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn killed_at_every_step_the_next_process_finishes() {
    let boot = std::time::Duration::from_secs(2);
    let mut story = Story::begin("steps", Machines { count: 1, boot, ..Machines::default() }).await;
    story.until_idle().await;
    let slow = json!({ "terminationGracePeriodSeconds": 60, "annotations": { "emulate.muster.dev/stop-after": "3" } });
    story.deploy(0, &json!({"cpu": "1"}), &slow);
    for (round, step) in STEPS.iter().enumerate() {
        let reached = async |story: &Story, from: usize| {
            let phase = story.phase(1).await;
            STEPS.iter().position(|known| *known == phase).is_some_and(|place| place >= from)
        };
        story.scale(1);
        let up = round <= 4;
        if up {
            story.until(step, async || reached(&story, round).await.then_some(())).await;
            story.restart();
        }
        story.until_running(1).await;
        story.scale(0);
        if !up {
            story
                .until(step, async || {
                    (reached(&story, round).await || story.phase(1).await == "idle").then_some(())
                })
                .await;
            story.restart();
        }
        story.until("it rests", async || (story.phase(1).await == "idle").then_some(())).await;
        let resets = story.resets(1);
        let expected: Vec<&str> = (0..=round).flat_map(|_| ["On", "GracefulShutdown"]).collect();
        assert_eq!(resets, expected, "killed at {step}");
    }
}
