//! `spec.drain` of a cluster on the real API: pods that lose something when they are evicted keep their nodes, and go when the
//! cluster says so. All of these run in `make e2e`.

use serde_json::{Value, json};

use crate::lab::{Machines, Story, condition};

/// What keeps a node, how the cluster lets it go, and the word for it. The last one says so itself, and stays.
const KEEPERS: [(&str, &str, &str); 5] = [
    ("few", r#"{"minReplicas":null}"#, "fewer than 2"),
    ("alone", r#"{"barePods":"evict"}"#, "has no controller that would make it again"),
    ("disk", r#"{"localStorage":"evict"}"#, "keeps volume scratch on the node"),
    ("system", r#"{"systemPods":"evict"}"#, "is a system pod without a budget"),
    ("says", "", "safe-to-evict is false"),
];

/// Makes a pod that is alone on its node beside one of the large ones: two of them do not fit there. All of them together are below the
/// low mark of a node.
fn keep(story: &Story, name: &str) {
    let labels = json!({ "keeps": name });
    let mut pod = json!({
        "nodeSelector": { "nodepool": story.name }, "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "c", "image": "none", "resources": { "requests": { "cpu": "250m" } } }],
    });
    let mut annotations = json!({});
    match name {
        "disk" => pod["volumes"] = json!([{ "name": "scratch", "emptyDir": {} }]),
        "says" => annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false".into(),
        _ => {}
    }
    let meta = json!({ "labels": labels, "annotations": annotations });
    let object = if name == "alone" {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels }, "spec": pod })
    } else {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": {
            "selector": { "matchLabels": labels }, "template": { "metadata": meta, "spec": pod } } })
    };
    story.cluster.kubectl(&["-n", namespace(story, name), "apply", "-f", "-"], &object.to_string());
}

fn namespace<'s>(story: &'s Story, name: &str) -> &'s str {
    if name == "system" { "kube-system" } else { story.name }
}

/// The node that a keeper runs on; nothing while it does not.
fn place(story: &Story, name: &str) -> Option<usize> {
    let label = format!("keeps={name}");
    let pods = story.cluster.kubectl(
        &[
            "-n",
            namespace(story, name),
            "get",
            "pods",
            "-l",
            &label,
            "--field-selector=status.phase=Running",
            "-o",
            "json",
        ],
        "",
    );
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let mut pods = pods["items"].as_array().unwrap().iter();
    let pod = pods.find(|pod| pod["metadata"]["deletionTimestamp"].is_null())?;
    pod["spec"]["nodeName"].as_str()?.rsplit('-').next()?.parse().ok()
}

/// Five nodes, each with a pod of another kind and nothing else: none of them goes until its kind may.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn pods_keep_their_nodes_until_the_cluster_lets_their_kind_go() {
    let machines = Machines { count: 5, every_rule: true, ..Machines::default() };
    let story = Story::begin("keeping", machines).await;
    story.muster(&["patch", "cluster", "keeping", "--patch", r#"{"spec":{"drain":{"minReplicas":2}}}"#]);
    story.deploy(5, &json!({"cpu": "3600m"}), &json!({}));
    story.until_running(5).await;
    let mut places = Vec::new();
    for (name, _, _) in KEEPERS {
        keep(&story, name);
        places.push(story.until(&format!("{name} runs"), async || place(&story, name)).await);
    }
    let mut all = places.clone();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5], "one for each node");
    story.scale(0);

    for (at, (name, patch, _)) in KEEPERS.iter().enumerate() {
        // From here on those that are left say what keeps them, and nothing happens to them however often they are looked at.
        for ((left, _, reason), number) in KEEPERS.iter().zip(&places).skip(at) {
            // What has fewer than two replicas is kept for that as well, as long as that is a reason.
            let also = if at == 0 && *left != "alone" && *left != "says" { "fewer than 2" } else { reason };
            story
                .until(&format!("it is said that {left} keeps its node"), async || {
                    let said = story.muster(&["explain", "node", &format!("keeping-{number}")]);
                    (said.contains(reason) || said.contains(also)).then_some(())
                })
                .await;
        }
        story.until_looked().await;
        for number in &places[at..] {
            assert_eq!(story.resets(*number), ["On"], "before {name} may go");
            assert!(story.node(*number)["spec"]["unschedulable"].is_null(), "before {name} may go");
        }
        if patch.is_empty() {
            break;
        }
        story.muster(&[
            "patch",
            "cluster",
            "keeping",
            "--patch",
            &format!(r#"{{"spec":{{"drain":{patch}}}}}"#),
        ]);
        let number = places[at];
        story
            .until(&format!("the node of {name} goes"), async || {
                (story.phase(number).await == "idle").then_some(())
            })
            .await;
        assert_eq!(story.resets(number), ["On", "GracefulShutdown"]);
        if *name == "alone" {
            let left = ["-n", "keeping", "get", "pod", "alone", "--ignore-not-found", "-o", "name"];
            assert_eq!(story.cluster.kubectl(&left, ""), "", "nobody makes it again");
        } else {
            let to = story.until(&format!("{name} runs elsewhere"), async || place(&story, name)).await;
            assert_ne!(to, number);
        }
    }
    story.cluster.kubectl(&["-n", "kube-system", "delete", "deployment", "system"], "");
}

/// A pod without a controller that somebody binds to a node while the planner drains it: the drain ends, and it runs on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn a_pod_that_nobody_makes_again_ends_the_drain_of_a_planner() {
    let story = Story::begin("bound", Machines::default()).await;
    let slow = json!({ "terminationGracePeriodSeconds": 120, "annotations": { "emulate.muster.dev/stop-after": "30" } });
    story.deploy(5, &json!({"cpu": "1"}), &slow);
    story.until_running(5).await;
    story.scale(2);
    let drained = story.either_in("evicting").await;
    story.apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "late" }, "spec": {
        "nodeName": format!("bound-{drained}"), "tolerations": [{ "operator": "Exists" }],
        "containers": [{ "name": "c", "image": "none" }] } }));
    story
        .until("the drain is given up for it", async || {
            let node = story.node(drained);
            let said = condition(&story.host(drained).await, "DrainBlocked");
            (said["status"] == "True" && node["spec"]["unschedulable"].is_null()).then_some(())
        })
        .await;
    story.until_looked().await;
    assert_eq!(story.resets(drained), ["On"]);
    let late = story.kube(&["get", "pod", "late"]);
    assert!(
        late["metadata"]["deletionTimestamp"].is_null() && late["status"]["phase"] == "Running",
        "{late}"
    );
}
