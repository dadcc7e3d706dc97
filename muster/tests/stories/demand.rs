//! Pods come and go, and servers with them.

use muster_emulate::Power;
use serde_json::json;

use crate::lab::{Machines, Story, has_taint};

/// The whole story, up and down, beginning in advise mode.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_grows_and_shrinks_and_servers_follow() {
    let machines = Machines::default();
    let mut story = Story::set("growing", &machines, &[]).await;
    story.create(&story.cluster.kubeconfig(), &machines).await;
    story
        .until("the cluster is connected", async || {
            let said = story.muster(&["describe", "cluster", "growing"]);
            (said.contains("Connected") && said.contains("v1.36") && said.contains("21 of 21 kinds"))
                .then_some(())
        })
        .await;
    story.until_idle().await;
    story.deploy(5, &json!({"cpu": "1"}), &json!({}));

    // Advice first: it is written down, and nothing is switched.
    let advised = story
        .until("advice is given", async || {
            let list = story.get("/api/v1/decisions?actions_only=true").await;
            let first = list["decisions"].as_array()?.first()?.clone();
            (first["new_nodes"] == 2).then_some(first)
        })
        .await;
    assert_eq!(advised["outcome"]["state"], "advised", "{advised}");
    assert!(story.resets(1).is_empty() && story.resets(2).is_empty(), "advice switches nothing");

    story.muster(&["enable", "cluster", "growing"]);
    let nodes = story.until_running(5).await;
    assert!(nodes.contains(&"growing-1".to_owned()) && nodes.contains(&"growing-2".to_owned()), "{nodes:?}");
    assert_eq!((story.resets(1), story.resets(2)), (vec!["On".to_owned()], vec!["On".to_owned()]));
    for number in [1, 2] {
        let node = story.node(number);
        let labels = &node["metadata"]["labels"];
        assert_eq!(
            (&labels["nodepool"], &labels["muster.dev/host"]),
            (&json!("growing"), &node["metadata"]["name"])
        );
        assert!(!has_taint(&node, "muster.dev/startup") && !has_taint(&node, "muster.dev/off"), "{node}");
    }
    let pool = story.get(&format!("/api/v1/nodepools/{}", story.pool)).await;
    let connected = pool["status"]["conditions"].as_array().unwrap();
    let connected = connected.iter().find(|one| one["type"] == "ClusterConnected").unwrap();
    assert_eq!(
        (&connected["status"], &connected["reason"]),
        (&json!("True"), &json!("InSync")),
        "{connected}"
    );

    // Its users are told, in the words of `explain`.
    story
        .until("events tell of it", async || {
            let said = story.cluster.kubectl(&["-n", "growing", "get", "events"], "");
            let nodes = story.cluster.kubectl(&["get", "events", "-n", "default"], "");
            (said.contains("TriggeredScaleUp") && nodes.contains("Joined")).then_some(())
        })
        .await;

    // Down: one of two half-empty nodes goes, its pod moves.
    story.scale(2);
    let gone = story
        .until("a server is off again", async || {
            [1, 2].into_iter().find(|number| story.power(*number) == Power::Off)
        })
        .await;
    let stays = 3 - gone;
    story.until("it is proved off", async || (story.phase(gone).await == "idle").then_some(())).await;
    let nodes = story.until_running(2).await;
    assert_eq!(nodes, vec![format!("growing-{stays}"); 2]);
    assert_eq!(story.resets(gone), ["On", "GracefulShutdown"], "it was asked, not cut off");
    assert_eq!(story.resets(stays), ["On"]);
    let node = story.until("the node is kept and tainted", async || {
        let node = story.node(gone);
        has_taint(&node, "muster.dev/off").then_some(node)
    });
    let node = node.await;
    assert_eq!(node["spec"]["unschedulable"], true, "{node}");
    let journal = story.get("/api/v1/decisions?actions_only=true&limit=50").await;
    let removed = journal["decisions"].as_array().unwrap().iter().any(|one| one["removals"] == 1);
    assert!(removed, "{journal}");

    // What is kept is taken up again, with a new boot.
    story.scale(5);
    story.until_running(5).await;
    assert_eq!(story.resets(gone), ["On", "GracefulShutdown", "On"]);
    let node = story.node(gone);
    assert!(!has_taint(&node, "muster.dev/off") && node["spec"]["unschedulable"].is_null(), "{node}");
}

/// A taint, a GPU, and nothing that runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_grows_from_zero_for_a_pod_that_only_its_taint_and_gpu_admit() {
    let machines = Machines {
        count: 1,
        gpus: 2,
        labels: json!({"accelerator": "a100"}),
        taints: json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
        ..Machines::default()
    };
    let story = Story::begin("gpu", machines).await;
    // Both ask for the pool; one does not tolerate its taint.
    let pod = |name: &str, tolerations: serde_json::Value| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
            "nodeSelector": { "accelerator": "a100" }, "tolerations": tolerations, "containers": [{ "name": "c", "image": "none",
                "resources": { "limits": { "nvidia.com/gpu": "2", "cpu": "1" } } }] } })
    };
    story.apply(&pod("stranger", json!([])));
    story
        .until("the stranger is explained", async || {
            let said = story.get("/api/v1/explain/pod/gpu/stranger").await;
            said.to_string().contains("taint").then_some(())
        })
        .await;
    // Other stories' Musters see the pod too, and speak of their own pools; ours speaks as `explain` does.
    story
        .until("the stranger's owner is told, word for word", async || {
            let said = story.cluster.kubectl(&["-n", "gpu", "get", "events", "-o", "json"], "");
            let list: serde_json::Value = serde_json::from_str(&said).unwrap();
            let explained = story.muster(&["explain", "pod", "gpu/stranger"]);
            let ours = |event: &&serde_json::Value| {
                event["reason"] == "NotTriggerScaleUp"
                    && event["message"].as_str().is_some_and(|text| explained.starts_with(text))
            };
            list["items"].as_array()?.iter().find(ours).map(drop)
        })
        .await;
    assert!(story.resets(1).is_empty(), "nothing is woken for a pod that could not run there");
    story.apply(&pod("train", json!([{"key": "gpu", "operator": "Exists"}])));
    let nodes = story.until_running(1).await;
    assert_eq!(nodes, ["gpu-1"]);
    let node = story.node(1);
    assert!(has_taint(&node, "gpu"), "{node}");
    assert_eq!(node["metadata"]["labels"]["accelerator"], "a100", "{node}");
    assert_eq!(story.resets(1), ["On"]);
    // The pod ends, and the server with it.
    story.cluster.kubectl(&["-n", "gpu", "delete", "pod", "train", "--wait=false"], "");
    story.until("the server is off", async || (story.power(1) == Power::Off).then_some(())).await;
    assert_eq!(story.resets(1), ["On", "GracefulShutdown"]);
}

/// A node that is Ready without the devices that its host promises is not complete: it keeps its startup taint, and no pod comes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn a_node_whose_devices_come_late_takes_no_pods_before() {
    let machines = Machines { count: 1, gpus: 2, late_gpus: true, ..Machines::default() };
    let story = Story::begin("late", machines).await;
    // One asks for a device and one for nothing that is missing.
    story.deploy(1, &json!({"cpu": "1", "nvidia.com/gpu": "1"}), &json!({}));
    story.apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "modest" }, "spec": {
        "nodeSelector": { "nodepool": "late" }, "containers": [{ "name": "c", "image": "none" }] } }));
    story
        .until("its node is Ready, and the device is named as what is missing", async || {
            let node = story.node(1);
            let ready = crate::lab::condition(&node, "Ready")["status"] == "True";
            let said = story.muster(&["describe", "host", "late-1"]);
            (ready && story.phase(1).await == "joining" && said.contains("nvidia.com/gpu")).then_some(())
        })
        .await;
    story.until_looked().await;
    let node = story.node(1);
    assert!(has_taint(&node, "muster.dev/startup"), "{node}");
    assert!(story.running().is_empty(), "nothing runs on a node that is not complete");
    story
        .cluster
        .kubectl(&["annotate", "node", "late-1", &format!("{}=there", muster_emulate::kubelet::DEVICES)], "");
    story.until_running(2).await;
    let node = story.node(1);
    assert!(!has_taint(&node, "muster.dev/startup"), "{node}");
    assert_eq!(story.resets(1), ["On"]);
}
