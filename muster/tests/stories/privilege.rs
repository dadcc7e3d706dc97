//! OPS-R20, least privilege: the whole story with the rights that `muster manifests` prints, and none of them unused.
//! Runs in `make e2e`.

use std::{
    collections::BTreeSet,
    process::Command,
    time::{Duration, Instant},
};

use muster_emulate::{
    Power,
    cluster::{Nodes, TestCluster},
};
use serde_json::{Value, json};

use crate::{
    groups,
    harness::Etcd,
    lab::{Machines, Muster, Story, account},
};

/// Group, resource (with its subresource) and verb.
pub(crate) type Right = (String, String, String);

/// The service account and its rights, as they are printed for an installation that uses everything.
fn printed() -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args([
            "manifests",
            "--image",
            "none",
            "--namespace",
            "audited",
            "--without-namespace",
            "--delete-nodes",
        ])
        .args(["--store", "etcd://127.0.0.1:1"])
        .output()
        .unwrap();
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    objects.into_iter().filter(|object| kinds.iter().any(|kind| object["kind"] == *kind)).collect()
}

/// What the objects of this name grant.
pub(crate) fn granted(objects: &[Value], name: &str) -> BTreeSet<Right> {
    let words = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let ours = objects.iter().filter(|object| object["metadata"]["name"] == name);
    let rules = ours.filter_map(|object| object["rules"].as_array()).flatten();
    let mut rights = BTreeSet::new();
    for rule in rules {
        for (group, resource) in words(&rule["apiGroups"]).iter().flat_map(|group| {
            words(&rule["resources"]).into_iter().map(move |resource| (group.clone(), resource))
        }) {
            let verbs = words(&rule["verbs"]).into_iter();
            rights.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb)));
        }
    }
    rights
}

/// What was asked for, by the API server's own log: allowed, and forbidden.
pub(crate) fn asked(log: &str) -> (BTreeSet<Right>, BTreeSet<Right>) {
    let (mut used, mut forbidden) = (BTreeSet::new(), BTreeSet::new());
    for line in log.lines() {
        // The last line may be half written.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        if event["user"]["username"] != "system:serviceaccount:audited:muster" {
            continue;
        }
        let about = &event["objectRef"];
        let text = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
        let resource = match text("subresource").as_str() {
            "" => text("resource"),
            part => format!("{}/{part}", text("resource")),
        };
        let right = (text("apiGroup"), resource, event["verb"].as_str().unwrap_or_default().to_owned());
        match event["annotations"]["authorization.k8s.io/decision"].as_str() {
            Some("allow") => used.insert(right),
            _ => forbidden.insert(right),
        };
    }
    (used, forbidden)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in make e2e"]
async fn ops_r20_the_printed_rights_are_enough_for_the_whole_story_and_none_is_unused() {
    let etcd = Etcd::start();
    let cluster: &'static TestCluster =
        Box::leak(Box::new(TestCluster::start(Nodes::Own).expect("a control plane of its own")));
    cluster.kubectl(&["create", "namespace", "audited"], "");
    let objects = printed();
    for object in &objects {
        cluster.kubectl(&["create", "-f", "-"], &object.to_string());
    }
    // Groups of others are listed, too, where lists are not streamed.
    for (group, version) in [("scheduling.x-k8s.io", "v1alpha1"), ("scheduling.volcano.sh", "v1beta1")] {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let kind = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("podgroups.{group}"),
                "annotations": { "api-approved.kubernetes.io": "unapproved, a test" } },
            "spec": { "group": group, "scope": "Namespaced", "names": { "kind": "PodGroup", "plural": "podgroups" },
                "versions": [{ "name": version, "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": open } }] } });
        cluster.kubectl(&["create", "-f", "-"], &kind.to_string());
    }
    let keys = tempfile::tempdir().unwrap();
    let kubeconfig = account(cluster, "audited", "muster", keys.path());
    let path = kubeconfig.to_str().unwrap();
    let mut arguments = vec!["--store".to_owned(), etcd.store()];
    for setting in ["by=kubernetes", "namespace=audited", &format!("kubeconfig={path}")] {
        arguments.extend(["--set".to_owned(), format!("leader.{setting}")]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let machines = Machines { policy: json!({ "nodeAtOff": "delete" }), ..Machines::default() };
    let mut story = Story::set_on(cluster, "audited", &machines, &arguments).await;
    story.create(&kubeconfig, &machines).await;
    story.muster(&["enable", "cluster", "audited"]);

    // One that never gets a place is told so, again and again; the others come and go.
    story.apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "stranger" }, "spec": {
        "nodeSelector": { "wanted": "nowhere" }, "containers": [{ "name": "c", "image": "none" }] } }));
    story.deploy(5, &json!({"cpu": "1"}), &json!({}));
    story.until_running(5).await;
    story.scale(2);
    let gone = story
        .until("a server is off and its node deleted", async || {
            [1, 2]
                .into_iter()
                .find(|number| story.power(*number) == Power::Off && story.node(*number).is_null())
        })
        .await;
    story.until_running(2).await;
    assert_eq!(story.resets(gone), ["On", "GracefulShutdown"]);

    // Who somebody is, in identity mode k8s.
    let asks = format!("auth.k8s.kubeconfig={path}");
    let judge = ["--store", "memory", "--auth-mode", "k8s", "--set", asks.as_str()];
    let judge = Muster::start(story.directory.path(), "judge", &judge);
    let token = cluster.kubectl(&["-n", "audited", "create", "token", "default", "--audience=muster"], "");
    let who = reqwest::Client::new().get(format!("{}/api/v1/whoami", judge.url)).bearer_auth(token.trim());
    let who = who.send().await.unwrap().text().await.unwrap();
    assert!(who.contains("system:serviceaccount:audited:default"), "{who}");
    drop(judge);

    assert_eq!(asked(&cluster.audited()).1, BTreeSet::new(), "nothing was forbidden");

    // An API server that has forgotten everything and cannot stream lists: they are paged, which is another verb.
    // For a moment it knows no roles either, and forbids everything to everybody; that is waited out like an outage.
    cluster.signal("kube-apiserver", "KILL");
    cluster.forget();
    let flags = [&["--feature-gates=WatchList=false"], groups::SERVED.as_slice()].concat();
    cluster.restart_with("kube-apiserver", &flags);
    story.scale(5);
    story.until_running(5).await;

    let settled = cluster.audited().len();
    story.scale(2);
    story
        .until("a server is off again", async || {
            [1, 2].into_iter().find(|number| story.power(*number) == Power::Off).map(drop)
        })
        .await;

    // The roles for people are theirs, and custom resources have a story of their own.
    let granted = granted(&objects, "muster-audited-muster");
    let began = Instant::now();
    let unused = loop {
        let unused: Vec<Right> = granted.difference(&asked(&cluster.audited()).0).cloned().collect();
        // Events are said again only after a while.
        if unused.is_empty() || began.elapsed() > Duration::from_mins(3) {
            break unused;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(unused, Vec::new(), "every right is used");
    let log = cluster.audited();
    // A line that was half written at that moment is left out.
    let since = log[settled..].split_once('\n').map_or("", |(_, rest)| rest);
    assert_eq!(asked(since).1, BTreeSet::new(), "nothing was forbidden");
}
