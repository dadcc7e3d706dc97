//! OPS-R9 on the real API: power goes after the last pod, a pod that comes late keeps it, and no mark is left behind.
//! All of these run in `make e2e`.

use muster_emulate::Power;
use muster_model::observe::CORDON_MARK;
use serde_json::{Value, json};

use crate::lab::{Machines, Story};

/// Pods of the story that are bound to a node, whatever state they are in.
fn bound(story: &Story, node: &str) -> Vec<Value> {
    let pods = story.kube(&["get", "pods"]);
    let pods = pods["items"].as_array().unwrap().iter();
    pods.filter(|pod| pod["spec"]["nodeName"] == node).cloned().collect()
}

/// A node that takes pods, and carries nothing of ours.
fn is_unmarked(node: &Value) -> bool {
    node["spec"]["unschedulable"].is_null() && node["metadata"]["annotations"][CORDON_MARK].is_null()
}

fn number_of(node: &str) -> usize {
    node.rsplit('-').next().unwrap().parse().unwrap()
}

/// Two minutes of grace, most of which is used: the shutdown is asked for when the last of them is gone, and not before.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r9_pods_with_two_minutes_of_grace_are_waited_for() {
    let story = Story::begin("patient", Machines::default()).await;
    let slow = json!({ "terminationGracePeriodSeconds": 120, "annotations": { "emulate.muster.dev/stop-after": "100" } });
    story.deploy(2, &json!({"cpu": "1"}), &slow);
    let on = story.until_running(2).await[0].clone();
    let number = number_of(&on);
    story.muster(&["patch", "host", &on, "--patch", r#"{"spec":{"deadlines":{"drainDeadline":"1h"}}}"#]);
    story.muster(&["power", "off", &on, "--reason", "a new disk"]);
    let going = story
        .until("its pods are asked to go", async || {
            let pods = bound(&story, &on);
            let going = pods.iter().all(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
            (going && !pods.is_empty()).then_some(pods.len())
        })
        .await;
    assert!(going >= 1);
    story
        .until("its pods are gone", async || {
            let left = bound(&story, &on).len();
            // In this order: what is still there after no shutdown was asked for was there before one could be.
            assert!(left == 0 || story.resets(number) == ["On"], "{left} pods lose their power");
            (left == 0).then_some(())
        })
        .await;
    story.until("it rests", async || (story.phase(number).await == "idle").then_some(())).await;
    assert_eq!(
        (story.power(number), story.resets(number)),
        (Power::Off, vec!["On".into(), "GracefulShutdown".into()])
    );
    assert!(
        bound(&story, &on).is_empty(),
        "its kubelet went with its power: a pod that was there would still be"
    );
    story.until_running(2).await;
}

/// A pod that somebody binds to a node while it drains, past the scheduler and the cordon: it is asked to go like the others, and
/// has the power until it is gone, or it runs on, on a node that is used again. The race with the shutdown itself is played in
/// `sim`; here, what the API shows of it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r9_a_pod_that_is_bound_during_a_drain_is_not_cut_off() {
    let story = Story::begin("raced", Machines::default()).await;
    let slow = json!({ "terminationGracePeriodSeconds": 120, "annotations": { "emulate.muster.dev/stop-after": "15" } });
    story.deploy(2, &json!({"cpu": "1"}), &slow);
    let node = story.until_running(2).await[0].clone();
    let number = number_of(&node);
    story.muster(&["patch", "host", &node, "--patch", r#"{"spec":{"deadlines":{"drainDeadline":"1h"}}}"#]);
    story.muster(&["power", "off", &node, "--reason", "a new disk"]);
    story
        .until("its pods are asked to go", async || {
            let pods = bound(&story, &node);
            pods.iter().any(|pod| !pod["metadata"]["deletionTimestamp"].is_null()).then_some(())
        })
        .await;
    story.apply(&json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "late", "annotations": { "emulate.muster.dev/stop-after": "20" } },
        "spec": { "nodeName": node, "terminationGracePeriodSeconds": 120, "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "c", "image": "none" }] } }));
    let ended = story
        .until("the late one is gone, or the node is used again", async || {
            let there = bound(&story, &node);
            // In this order: what is there after no shutdown was asked for was there before one could be.
            assert!(
                there.is_empty() || story.resets(number) == ["On"],
                "{} pods lose their power",
                there.len()
            );
            let runs = there.iter().any(|pod| {
                pod["metadata"]["name"] == "late"
                    && pod["status"]["phase"] == "Running"
                    && pod["metadata"]["deletionTimestamp"].is_null()
            });
            let used = runs && is_unmarked(&story.node(number));
            (there.is_empty() || used).then_some(used)
        })
        .await;
    if !ended {
        story.until("it rests", async || (story.phase(number).await == "idle").then_some(())).await;
        assert_eq!(story.resets(number), ["On", "GracefulShutdown"]);
        assert!(
            bound(&story, &node).is_empty(),
            "its kubelet went with its power: a pod that was there would still be"
        );
    }
}

/// A drain that can never end, and a Muster that is killed in the middle of it ten times: nothing stays behind.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r9_ten_crashes_in_the_middle_of_a_drain_leave_no_marks() {
    let mut story = Story::begin("crashing", Machines { count: 1, ..Machines::default() }).await;
    story.deploy(2, &json!({"cpu": "1"}), &json!({}));
    story.until_running(2).await;
    story.apply(
        &json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "all" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "app" } } } }),
    );
    let limits = r#"{"spec":{"deadlines":{"drainDeadline":"60s","drainRetryDelay":"1s"}}}"#;
    story.muster(&["patch", "host", "crashing-1", "--patch", limits]);
    story.muster(&["power", "off", "crashing-1", "--reason", "a new disk"]);
    for _ in 0..10 {
        story
            .until("it drains", async || {
                ["cordoned", "evicting"].contains(&story.phase(1).await.as_str()).then_some(())
            })
            .await;
        story.restart();
    }
    story
        .until("the drain is given up", async || {
            let blocked = crate::lab::condition(&story.host(1).await, "DrainBlocked");
            (blocked["status"] == "True" && is_unmarked(&story.node(1))).then_some(())
        })
        .await;
    story.muster(&["power", "on", "crashing-1", "--reason", "the disk has to wait"]);
    story
        .until("it serves without marks", async || {
            (story.phase(1).await == "serving" && is_unmarked(&story.node(1))).then_some(())
        })
        .await;
    assert_eq!((story.running().len(), story.resets(1)), (2, vec!["On".to_owned()]));
}

/// Nobody plans any more, and pods come that have no other place: the drain sees them by itself when its node is empty, and the
/// node is used again instead of losing its power.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_f10_pods_without_a_place_end_a_drain_that_nobody_plans_for() {
    let story = Story::begin("stranded", Machines::default()).await;
    let slow = json!({ "terminationGracePeriodSeconds": 120, "annotations": { "emulate.muster.dev/stop-after": "30" } });
    story.deploy(5, &json!({"cpu": "1"}), &slow);
    story.until_running(5).await;
    story.scale(2);
    let drained = story.either_in("evicting").await;
    story.muster(&["disable", "cluster", "stranded"]);
    // More than the other node holds, and made after the drain began.
    story.scale(8);
    story
        .until("the drain is given up for them", async || {
            let blocked = crate::lab::condition(&story.host(drained).await, "DrainBlocked");
            let why = blocked["message"].as_str().unwrap_or_default();
            (blocked["reason"] == "DemandCameBack" && why.contains("would have no place without it"))
                .then_some(())
        })
        .await;
    story.until_running(8).await;
    assert!(is_unmarked(&story.node(drained)));
    assert_eq!((story.resets(1), story.resets(2)), (vec!["On".to_owned()], vec!["On".to_owned()]));
}
