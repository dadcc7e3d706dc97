//! Budgets that forbid, and a Muster that dies.

use muster_emulate::Power;
use serde_json::json;

use crate::lab::{Machines, Story};

/// A budget of 0 keeps a node that is hardly used; a drain by hand meets it, gives up, and leaves the node in use.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_zero_blocks_and_the_node_serves_on() {
    let story = Story::begin("budget", Machines { count: 2, ..Machines::default() }).await;
    story.deploy(5, &json!({"cpu": "1"}), &json!({}));
    story.until_running(5).await;
    story.apply(
        &json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "all" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "app" } } } }),
    );
    story.scale(2);
    // One pod on each of two nodes that are both below the mark: without the budget one would go.
    let reason = story
        .until("the budget is given as the reason", async || {
            let said = story.get("/api/v1/explain/node/budget-1").await;
            let other = story.get("/api/v1/explain/node/budget-2").await;
            let text = format!("{said} {other}");
            text.contains("budget/all").then_some(text)
        })
        .await;
    assert!(reason.contains('0'), "{reason}");
    assert_eq!((story.power(1), story.power(2)), (Power::On, Power::On));

    let on = story.running()[0].clone();
    let number: usize = on.rsplit('-').next().unwrap().parse().unwrap();
    story.muster(&[
        "patch",
        "host",
        &on,
        "--patch",
        r#"{"spec":{"deadlines":{"drainDeadline":"60s","drainRetryDelay":"1h"}}}"#,
    ]);
    story.muster(&["power", "off", &on, "--reason", "a new disk"]);
    story
        .until("the eviction is refused", async || {
            let host = story.host(number).await;
            let events = story.get(&format!("/api/v1/hosts/{on}/events")).await;
            (host["status"]["phase"] == "evicting"
                || events.to_string().contains("DrainTimedOut")
                || events.to_string().contains("held by"))
            .then_some(())
        })
        .await;
    story
        .until("the drain is given up", async || {
            let host = story.host(number).await;
            let conditions = host["status"]["conditions"].as_array()?.clone();
            let blocked = conditions.iter().find(|one| one["type"] == "DrainBlocked")?;
            (blocked["status"] == "True" && blocked["message"].as_str()?.contains("budget/all")).then_some(())
        })
        .await;
    story
        .until("the node takes pods again", async || {
            let node = story.node(number);
            node["spec"]["unschedulable"].is_null().then_some(())
        })
        .await;
    assert_eq!(story.running().len(), 2, "no pod was lost");
    assert_eq!(story.resets(number), ["On"], "and no power");
}

/// Killed after the power-on and again in the middle of the drain; each time the next process finishes the work.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_the_next_process_finishes() {
    let boot = std::time::Duration::from_secs(6);
    let mut story = Story::begin("killed", Machines { count: 1, boot, ..Machines::default() }).await;
    // A pod that takes its time to stop leaves room to die in.
    let slow = json!({ "terminationGracePeriodSeconds": 30 });
    story.deploy(1, &json!({"cpu": "1"}), &slow);
    story.until("the server is asked to start", async || (!story.resets(1).is_empty()).then_some(())).await;
    story.restart();
    story.until_running(1).await;
    assert_eq!(story.resets(1), ["On"], "one power-on, whoever sent it");

    story.scale(0);
    story
        .until("the drain or the power-off is under way", async || {
            let phase = story.phase(1).await;
            ["cordoned", "evicting", "drained", "stopping", "confirming-off"]
                .contains(&phase.as_str())
                .then_some(())
        })
        .await;
    story.restart();
    story.until("it rests", async || (story.phase(1).await == "idle").then_some(())).await;
    assert_eq!(story.power(1), Power::Off);
    assert_eq!(story.resets(1), ["On", "GracefulShutdown"], "one of each");
    story
        .until("every decision that was begun is settled", async || {
            let journal = story.get("/api/v1/decisions?limit=50").await;
            let all = journal["decisions"].as_array()?;
            let open = all.iter().any(|one| one["outcome"]["state"] == "planned");
            (!all.is_empty() && !open).then_some(())
        })
        .await;
}

/// OPS-R9: evicted is not gone. A pod that lingers after its eviction was granted keeps the power on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r9_a_pod_that_lingers_after_its_eviction_keeps_the_power_on() {
    let story = Story::begin("lingering", Machines::default()).await;
    story.deploy(2, &json!({"cpu": "1"}), &json!({}));
    let on = story.until_running(2).await[0].clone();
    let drained: usize = on.rsplit('-').next().unwrap().parse().unwrap();
    let pods = story.kube(&["get", "pods"]);
    let names: Vec<&str> =
        pods["items"].as_array().unwrap().iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    let hold = |value: &serde_json::Value| {
        let patch = json!({ "metadata": { "finalizers": value } }).to_string();
        for name in &names {
            // One that is gone meanwhile needs no patch.
            let there = ["-n", "lingering", "get", "pod", name, "--ignore-not-found", "-o", "name"];
            if !story.cluster.kubectl(&there, "").is_empty() {
                story
                    .cluster
                    .kubectl(&["-n", "lingering", "patch", "pod", name, "--type=merge", "-p", &patch], "");
            }
        }
    };
    hold(&json!(["example.com/last-words"]));
    story.muster(&["patch", "host", &on, "--patch", r#"{"spec":{"deadlines":{"drainDeadline":"1h"}}}"#]);
    story.muster(&["power", "off", &on, "--reason", "a new disk"]);
    // Their replacements run, and still the machine waits for them to be gone.
    story
        .until("two others run elsewhere", async || {
            let nodes = story.running();
            (nodes.len() == 2 && !nodes.contains(&on)).then_some(())
        })
        .await;
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_secs(20) {
        assert_eq!((story.power(drained), story.resets(drained)), (Power::On, vec!["On".to_owned()]));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    hold(&serde_json::Value::Null);
    story.until("it rests", async || (story.phase(drained).await == "idle").then_some(())).await;
    assert_eq!(story.resets(drained), ["On", "GracefulShutdown"]);
}
