//! OPS-R5: an API server, or something before it, that does not show everything. Missing knowledge takes nothing away.

use muster_kube::rights::{Part, manifest};
use serde_json::json;

use crate::{
    lab::{Machines, Story, account},
    liar::{Liar, Shows},
};

/// A story whose Muster sees its cluster by way of a liar, with five pods on two servers.
async fn behind_a_liar(name: &'static str) -> (Story, Liar) {
    let machines = Machines::default();
    let mut story = Story::set(name, &machines, &[]).await;
    story.cluster.kubectl(&["-n", name, "create", "serviceaccount", "muster"], "");
    for object in manifest(name, "muster", &[Part::Core]) {
        story.cluster.kubectl(&["apply", "-f", "-"], &object.to_string());
    }
    let liar = Liar::start(story.cluster).await;
    let account = account(story.cluster, name, "muster", story.directory.path());
    let kubeconfig = liar.kubeconfig(&account, story.directory.path());
    story.create(&kubeconfig, &machines).await;
    story.muster(&["enable", "cluster", name]);
    story.deploy(5, &json!({"cpu": "1"}), &json!({}));
    let nodes = story.until_running(5).await;
    assert!([1, 2].iter().all(|number| nodes.contains(&format!("{name}-{number}"))), "{nodes:?}");
    (story, liar)
}

/// What `muster explain` says about the two nodes.
fn explained(story: &Story) -> String {
    [1, 2].map(|number| story.muster(&["explain", "node", &format!("{}-{number}", story.name)])).join("\n")
}

/// Waits until the reason is said on every node and the planner has looked often enough; nothing has happened then.
async fn until_nothing_happened(story: &Story, reason: &str) {
    story
        .until("the reason is said", async || {
            let said = explained(story);
            (said.matches(reason).count() >= 2).then_some(())
        })
        .await;
    story.until_looked().await;
    for number in [1, 2] {
        assert_eq!(story.resets(number), ["On"], "{reason}");
        assert!(story.node(number)["spec"]["unschedulable"].is_null(), "{reason}");
    }
    let pods = story.kube(&["get", "pods"]);
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 5, "{reason}");
    assert!(pods.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null()), "{reason}");
}

/// Without a reason against it, one of the two goes.
async fn until_it_shrinks(story: &Story) {
    story.scale(2);
    let gone = story.either_in("idle").await;
    assert_eq!(story.resets(gone), ["On", "GracefulShutdown"]);
    assert_eq!(story.until_running(2).await.len(), 2);
}

/// No pods at all, and none of half of them: nodes that look empty are not taken for it, and all is normal afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn ops_r5_pods_that_are_not_shown_keep_their_servers() {
    let (story, liar) = behind_a_liar("blind").await;
    for hidden in [Shows::NoPods, Shows::Without("blind-1".to_owned())] {
        liar.shows(hidden);
        until_nothing_happened(&story, "pods that their controllers report as ready are not seen").await;
        liar.shows(Shows::Everything);
        story
            .until("it is seen again", async || (!explained(&story).contains("not seen")).then_some(()))
            .await;
    }
    until_it_shrinks(&story).await;
}

/// A replica that stands still, for a process that knows better and for one that has just started.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r5_an_old_copy_of_the_cluster_takes_nothing_away() {
    let (mut story, liar) = behind_a_liar("stale").await;
    // What will be shown: one of two servers is idle, and nothing contradicts it.
    story.muster(&["disable", "cluster", "stale"]);
    story.scale(1);
    story.until_running(1).await;
    story
        .until("the others are gone, and their controller says so", async || {
            let pods = story.kube(&["get", "pods"])["items"].as_array()?.len();
            let ready =
                story.kube(&["get", "replicasets"])["items"][0]["status"]["readyReplicas"].as_u64()?;
            (pods == 1 && ready == 1).then_some(())
        })
        .await;
    liar.remember(story.cluster);
    story.scale(5);
    story.until_running(5).await;
    story.muster(&["enable", "cluster", "stale"]);
    let seen = liar.remembered();
    story
        .until("what was seen is kept", async || {
            let export = story.text("/api/v1/store/export").await;
            let record = export.lines().find(|line| line.contains("/muster/planner/"))?.to_owned();
            (noted(&record)? > seen).then_some(())
        })
        .await;
    liar.shows(Shows::Old);
    until_nothing_happened(&story, "was seen before: an old copy").await;
    story.restart();
    until_nothing_happened(&story, "was seen before: an old copy").await;
    liar.shows(Shows::Everything);
    story.until("it is seen again", async || (!explained(&story).contains("old copy")).then_some(())).await;
    until_it_shrinks(&story).await;
}

/// The revision of the pods in a planner's record, as an export shows it.
fn noted(line: &str) -> Option<u64> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["json"]["revisions"]["seen"]["pods"].as_u64()
}
