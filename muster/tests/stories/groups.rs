//! Kubernetes' own groups of pods, on a scheduler that keeps to them. They are alpha in this version: the control plane is one of
//! its own, with them switched on. Runs in `make e2e`.

use muster_emulate::cluster::{Nodes, TestCluster};
use serde_json::{Value, json};

use crate::lab::{Machines, Story};

/// What switches groups on, for the API server and for the scheduler.
pub(crate) const SERVED: [&str; 2] =
    ["--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"];
const KEPT: &str = "--feature-gates=GenericWorkload=true,GangScheduling=true";

/// A group of pods that need a server each. `policy` is the group's.
fn group(story: &Story, name: &str, policy: &Value, pods: u32) {
    story.apply(
        &json!({ "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": { "name": name },
        "spec": { "schedulingPolicy": policy } }),
    );
    for number in 1..=pods {
        story.apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("{name}-{number}") }, "spec": {
            "schedulingGroup": { "podGroupName": name }, "nodeSelector": { "nodepool": story.name },
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "c", "image": "none", "resources": { "requests": { "cpu": "3" } } }] } }));
    }
}

/// Three at once on two servers: nothing starts for them. Two at once: both do. Those that need not be together: one each.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn a_group_gets_all_of_its_servers_or_none() {
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    cluster.restart_with("kube-apiserver", &SERVED);
    cluster.restart_with("kube-scheduler", &[KEPT]);
    let machines = Machines::default();
    let mut story = Story::set_on(cluster, "gang", &machines, &[]).await;
    story.create(&cluster.kubeconfig(), &machines).await;
    story.muster(&["enable", "cluster", "gang"]);
    story.until_idle().await;

    group(&story, "large", &json!({ "gang": { "minCount": 3 } }), 3);
    let why = "group gang/large needs 3 pods at once, and not all of them find a place";
    story
        .until("the group is the reason", async || {
            let said =
                [1, 2, 3].map(|number| story.muster(&["explain", "pod", &format!("gang/large-{number}")]));
            said.iter().all(|text| text.contains(why)).then_some(())
        })
        .await;
    story.until_looked().await;
    assert!(story.resets(1).is_empty() && story.resets(2).is_empty(), "nothing starts for a part of it");

    group(&story, "small", &json!({ "gang": { "minCount": 2 } }), 2);
    let nodes = story.until_running(2).await;
    assert_eq!(nodes, ["gang-1", "gang-2"]);
    let names = |pods: &Value| -> Vec<String> {
        let all = pods["items"].as_array().unwrap().iter();
        let bound = all.filter(|pod| pod["spec"]["nodeName"].is_string());
        bound.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(&story.kube(&["get", "pods"])), ["small-1", "small-2"], "the scheduler keeps to it");
    assert_eq!((story.resets(1), story.resets(2)), (vec!["On".to_owned()], vec!["On".to_owned()]));

    // Pods of a group that is none: as many as there is room for.
    story.cluster.kubectl(&["-n", "gang", "delete", "pods", "--all", "--grace-period=0", "--force"], "");
    story.until_idle().await;
    group(&story, "loose", &json!({ "basic": {} }), 3);
    story.until_running(2).await;
}
