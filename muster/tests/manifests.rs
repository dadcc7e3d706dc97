//! What `muster manifests` prints, judged by a real API server.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]
#![allow(clippy::disallowed_methods, reason = "tests wait in real time")]

use std::{process::Command, time::Duration};

use muster_emulate::cluster::TestCluster;
use serde_json::{Value, json};

fn printed(flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_muster")).arg("manifests").args(flags).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "muster manifests {flags:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn read(cluster: &TestCluster, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["-o", "json"]].concat();
    serde_json::from_str(&cluster.kubectl(&arguments, "")).unwrap()
}

const IMAGE: &str = "registry.example/muster:1";

/// Every shape is taken without a warning, applied, and the same again changes nothing.
#[test]
fn ops_u20_an_api_server_takes_what_is_printed() {
    let cluster = TestCluster::shared();
    let shapes: [(&str, &[&str]); 4] = [
        ("embedded", &["--image", IMAGE, "--bmc-allow", "10.20.0.0/16", "--delete-nodes"]),
        (
            "shared",
            &[
                "--image",
                IMAGE,
                "--store",
                "etcd://10.0.0.1:2379,10.0.0.2:2379",
                "--etcd-secret",
                "etcd",
                "--replicas",
                "3",
                "--priority-class",
                "system-cluster-critical",
                "--controller-token-secret",
                "token",
                "--api-server",
                "10.0.0.9/32",
            ],
        ),
        (
            "signed",
            &["--image", IMAGE, "--auth-mode", "mtls", "--storage-class", "fast", "--volume-size", "5Gi"],
        ),
        ("rights", &["--rights-only"]),
    ];
    for (namespace, flags) in shapes {
        let text = printed(&[flags, &["--namespace", namespace]].concat());
        cluster.kubectl(&["create", "namespace", namespace], "");
        let tried = cluster.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], &text);
        assert!(tried.contains("server dry run"), "{tried}");
        cluster.kubectl(&["apply", "--validate=strict", "-f", "-"], &text);
        // What the server would make of it now is what it has. Controllers have something to add to new objects, perhaps
        // between the two looks of a comparison.
        let began = std::time::Instant::now();
        loop {
            let (same, said) = cluster.try_kubectl(&["diff", "-f", "-"], &text);
            if same && said.is_empty() {
                break;
            }
            assert!(began.elapsed() < Duration::from_mins(2), "{namespace}: {said}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    // Pods are made: the strictest standard for pods, which the namespace demands, has nothing against them.
    for (namespace, replicas) in [("embedded", 1), ("shared", 3), ("signed", 1)] {
        let began = std::time::Instant::now();
        let pods = loop {
            let pods = read(cluster, &["-n", namespace, "get", "pods"]);
            if pods["items"].as_array().unwrap().len() == replicas {
                break pods;
            }
            let events = cluster.kubectl(&["-n", namespace, "get", "events"], "");
            assert!(
                began.elapsed() < Duration::from_mins(2),
                "{namespace}: {replicas} pods are not made\n{events}"
            );
            std::thread::sleep(Duration::from_millis(200));
        };
        let pod = &pods["items"][0]["spec"];
        assert_eq!(pod["serviceAccountName"], "muster");
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    }
    let budget = read(cluster, &["-n", "shared", "get", "poddisruptionbudget", "muster"]);
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    for (namespace, verb, resource, expected) in [
        ("rights", "list", "pods", true),
        ("rights", "patch", "nodes", true),
        ("rights", "delete", "nodes", false),
        ("embedded", "delete", "nodes", true),
        ("rights", "create", "tokenreviews.authentication.k8s.io", false),
        ("shared", "create", "tokenreviews.authentication.k8s.io", true),
        ("rights", "get", "secrets", false),
        ("embedded", "get", "secrets", false),
    ] {
        let account = format!("system:serviceaccount:{namespace}:muster");
        if expected {
            cluster.until_allowed(&account, verb, resource, None);
        } else {
            assert!(!may(cluster, &account, verb, resource), "{verb} {resource} by {account}");
        }
    }
}

/// Whether the service account of an installation may do this everywhere.
fn may(cluster: &TestCluster, account: &str, verb: &str, resource: &str) -> bool {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": account,
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource}},
    });
    let answer = cluster.kubectl(&["create", "-f", "-", "-o", "json"], &review.to_string());
    serde_json::from_str::<Value>(&answer).unwrap()["status"]["allowed"] == true
}
