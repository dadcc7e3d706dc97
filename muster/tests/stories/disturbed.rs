//! The world does not hold still. All of these run in `make e2e`.

use std::{sync::atomic::Ordering, time::Duration};

use muster_emulate::{
    Power,
    cluster::{Nodes, TestCluster},
};
use serde_json::json;

use crate::{
    lab::{AFTER_SLOWNESS, Machines, Story, account, condition, has_taint},
    wire::Wire,
};

/// Demand comes back while a node drains: it is used again, and keeps its power.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn pods_that_appear_during_a_drain_end_it() {
    let story = Story::begin("returning", Machines::default()).await;
    let slow = json!({ "terminationGracePeriodSeconds": 60, "annotations": { "emulate.muster.dev/stop-after": "25" } });
    story.deploy(5, &json!({"cpu": "1"}), &slow);
    story.until_running(5).await;
    story.scale(2);
    let drained = story.either_in("evicting").await;
    story.scale(8);
    story.until_running(8).await;
    assert_eq!((story.resets(1), story.resets(2)), (vec!["On".to_owned()], vec!["On".to_owned()]));
    let node = story.node(drained);
    assert!(node["spec"]["unschedulable"].is_null() && !has_taint(&node, "muster.dev/off"), "{node}");
}

/// A minute without an API server: unknown is not idle. Then everything goes on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn an_api_server_that_is_away_for_a_minute_is_waited_for() {
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    let machines = Machines::default();
    let mut story = Story::set_on(cluster, "away", &machines, &[]).await;
    story.create(&cluster.kubeconfig(), &machines).await;
    story.muster(&["enable", "cluster", "away"]);
    story.deploy(1, &json!({"cpu": "1"}), &json!({}));
    story.until_running(1).await;
    let before = (story.resets(1), story.resets(2));
    cluster.signal("kube-apiserver", "STOP");
    let down = std::time::Instant::now();
    let path = format!("/api/v1/nodepools/{}", story.pool);
    story
        .until("the pool says that it does not know", async || {
            let pool = story.get(&path).await;
            let connected = condition(&pool, "ClusterConnected");
            (connected["status"] == "Unknown" && connected["reason"] == "Silent").then_some(())
        })
        .await;
    let said = story.muster(&["describe", "cluster", "away"]);
    assert!(said.contains("Unreachable"), "{said}");
    while down.elapsed() < Duration::from_mins(1) {
        assert_eq!((story.resets(1), story.resets(2)), before, "nothing is switched on what is not known");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    cluster.restart("kube-apiserver");
    story
        .until("it is seen again", async || {
            let pool = story.get(&path).await;
            (condition(&pool, "ClusterConnected")["status"] == "True").then_some(())
        })
        .await;
    // The lease of a kubelet that could not renew is no proof of anything: the machine was never off.
    story.scale(5);
    story.until_running(5).await;
    assert_eq!(story.resets(1).iter().chain(&story.resets(2)).filter(|reset| *reset != "On").count(), 0);
    story.scale(0);
    // OPS-R14: answers took too long, so that for a while nothing is taken away, and it says so.
    story
        .until("it says why its nodes stay", async || {
            let why = story.muster(&["explain", "node", "away-1"]);
            why.contains("nothing is taken away until it has been quick for 5m").then_some(())
        })
        .await;
    story.until_looked().await;
    assert_eq!((story.power(1), story.power(2)), (Power::On, Power::On), "a slow view takes nothing away");
    story
        .until_within(AFTER_SLOWNESS, "both are off", async || {
            (story.power(1) == Power::Off && story.power(2) == Power::Off).then_some(())
        })
        .await;
}

/// Watches that are cut every few seconds change nothing about the story.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn watches_that_are_cut_every_few_seconds() {
    let machines = Machines::default();
    let mut story = Story::set("cut", &machines, &[]).await;
    let wire = Wire::start(&story.cluster.kubeconfig(), Duration::from_secs(3)).await;
    let kubeconfig = wire.kubeconfig(&story.cluster.kubeconfig(), story.directory.path());
    story.create(&kubeconfig, &machines).await;
    story.muster(&["enable", "cluster", "cut"]);
    story.deploy(5, &json!({"cpu": "1"}), &json!({}));
    story.until_running(5).await;
    story.scale(2);
    let gone = story
        .until("a server is off", async || {
            [1, 2].into_iter().find(|number| story.power(*number) == Power::Off)
        })
        .await;
    story.until("it rests", async || (story.phase(gone).await == "idle").then_some(())).await;
    assert_eq!(story.until_running(2).await, vec![format!("cut-{}", 3 - gone); 2]);
    assert!(wire.cuts.load(Ordering::Relaxed) > 18, "every watch was cut");
    assert_eq!(story.resets(gone), ["On", "GracefulShutdown"]);
}

/// Rights that are missing are said, not crashed over; granting them is enough.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn rights_that_are_missing_give_a_condition_and_granting_them_is_enough() {
    let machines = Machines { count: 1, ..Machines::default() };
    let mut story = Story::set("denied", &machines, &[]).await;
    let (cluster, name) = (story.cluster, "denied");
    cluster.kubectl(&["-n", name, "create", "serviceaccount", "muster"], "");
    let kubeconfig = account(cluster, name, "muster", story.directory.path());
    story.create(&kubeconfig, &machines).await;
    story.muster(&["enable", "cluster", name]);
    let path = format!("/api/v1/nodepools/{}", story.pool);
    let said = story
        .until("the refusal is shown on the pool", async || {
            let connected = condition(&story.get(&path).await, "ClusterConnected");
            let text = connected["message"].as_str()?.to_owned();
            (connected["reason"] == "NotInSync" && text.contains("forbidden")).then_some(text)
        })
        .await;
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let token = text.split('"').find(|word| word.len() > 200).expect("a token");
    assert!(!said.contains(token), "no secret in it: {said}");
    let described = story.muster(&["describe", "cluster", name]);
    assert!(described.contains("Denied") && described.contains("cannot watch resource"), "{described}");
    for object in muster_kube::rights::manifest(name, "muster", &[muster_kube::rights::Part::Core]) {
        cluster.kubectl(&["apply", "-f", "-"], &object.to_string());
    }
    story
        .until("it is seen", async || {
            (condition(&story.get(&path).await, "ClusterConnected")["status"] == "True").then_some(())
        })
        .await;
    // With these rights alone, up and down.
    story.deploy(1, &json!({"cpu": "1"}), &json!({}));
    story.until_running(1).await;
    story.scale(0);
    story.until("it is off", async || (story.phase(1).await == "idle").then_some(())).await;
    assert_eq!(story.resets(1), ["On", "GracefulShutdown"]);
}

/// A node that somebody deletes while its server is on: said at once, and its machine is not touched.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn a_node_that_somebody_deletes_is_said_to_be_lost() {
    let story = Story::begin("deleted", Machines { count: 1, ..Machines::default() }).await;
    story.deploy(1, &json!({"cpu": "1"}), &json!({}));
    story.until_running(1).await;
    story.cluster.kubectl(&["delete", "node", "deleted-1", "--wait=false"], "");
    story
        .until("it is said", async || {
            let lost = condition(&story.host(1).await, "NodeLost");
            (lost["status"] == "True" && lost["reason"] == "NodeDeleted").then_some(())
        })
        .await;
    assert_eq!((story.power(1), story.resets(1)), (Power::On, vec!["On".to_owned()]));
}

/// The same where the pool wants such machines shut down: once no pod is bound to it, and it comes back when it is needed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn a_server_whose_node_was_deleted_stands_down_where_its_pool_says_so() {
    let policy = json!({ "onNodeDeleted": "stand-down" });
    let story = Story::begin("standing", Machines { count: 1, policy, ..Machines::default() }).await;
    story.deploy(1, &json!({"cpu": "1"}), &json!({}));
    story.until_running(1).await;
    story.cluster.kubectl(&["delete", "node", "standing-1", "--wait=false"], "");
    story
        .until("it is shut down, not cut off", async || {
            (story.resets(1).get(1).map(String::as_str) == Some("GracefulShutdown")).then_some(())
        })
        .await;
    // The pod that ran there is made anew, and waits: the server starts for it and registers again.
    story.until_running(1).await;
    assert_eq!(story.resets(1), ["On", "GracefulShutdown", "On"]);
    assert!(!story.node(1).is_null() && condition(&story.host(1).await, "NodeLost")["status"] != "True");
}

/// An API server that has forgotten where every watch was: everything is listed anew, and the story goes on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn watches_that_are_too_old_list_anew() {
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    let machines = Machines::default();
    let mut story = Story::set_on(cluster, "gone", &machines, &[]).await;
    story.create(&cluster.kubeconfig(), &machines).await;
    story.muster(&["enable", "cluster", "gone"]);
    story.deploy(1, &json!({"cpu": "1"}), &json!({}));
    story.until_running(1).await;
    cluster.signal("kube-apiserver", "KILL");
    cluster.forget();
    cluster.restart("kube-apiserver");
    story
        .until("the server is told that its watches are too old", async || {
            story.server().said("the watch is too old; listing again").then_some(())
        })
        .await;
    story.scale(5);
    story.until_running(5).await;
    story.scale(0);
    story
        .until("both rest", async || {
            (story.phase(1).await == "idle" && story.phase(2).await == "idle").then_some(())
        })
        .await;
    for number in [1, 2] {
        assert_eq!(story.resets(number), ["On", "GracefulShutdown"]);
    }
}

/// The node that Muster runs on and the one of its store stay, whatever is asked; a third one goes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_f22_the_nodes_of_muster_and_of_its_store_stay() {
    let machines = Machines { count: 3, ..Machines::default() };
    let own = ["--set", "own.node=guarded-1", "--set", "own.store-nodes=[\"guarded-2\"]"];
    let mut story = Story::set("guarded", &machines, &own).await;
    story.create(&story.cluster.kubeconfig(), &machines).await;
    story.muster(&["enable", "cluster", "guarded"]);
    story.deploy(9, &json!({"cpu": "1"}), &json!({}));
    let nodes = story.until_running(9).await;
    assert!([1, 2, 3].iter().all(|number| nodes.contains(&format!("guarded-{number}"))), "{nodes:?}");
    story.scale(0);
    story.until("the third rests", async || (story.phase(3).await == "idle").then_some(())).await;
    for (number, why) in [(1, "Muster itself runs there"), (2, "a member of Muster's store runs there")] {
        let said = story.muster(&["explain", "node", &format!("guarded-{number}")]);
        assert!(said.contains(why), "{said}");
    }
    // A person who asks for it is told the same: nothing is cordoned.
    let limits = r#"{"spec":{"deadlines":{"drainDeadline":"60s","drainRetryDelay":"1h"}}}"#;
    story.muster(&["patch", "host", "guarded-1", "--patch", limits]);
    story.muster(&["power", "off", "guarded-1", "--reason", "a new disk"]);
    story
        .until("the drain is given up", async || {
            let blocked = condition(&story.host(1).await, "DrainBlocked");
            let text = blocked["message"].as_str().unwrap_or_default();
            (blocked["status"] == "True" && text.contains("Muster itself runs there")).then_some(())
        })
        .await;
    for number in [1, 2] {
        assert_eq!((story.power(number), story.resets(number)), (Power::On, vec!["On".to_owned()]));
        assert!(story.node(number)["spec"]["unschedulable"].is_null());
    }
}
