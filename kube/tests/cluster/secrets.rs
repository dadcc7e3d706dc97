//! Secrets of BMCs on a real API server: read by name with the right to that one alone, new when they change.

use muster_emulate::cluster::TestCluster;
use muster_kube::{
    Client,
    secrets::{self, SecretError},
};

use crate::support::{account, clock, namespace, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_named_secret_is_read_by_its_right_alone_and_a_change_is_another_version() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "racks");
    let secret = |name: &str, password: &str, label: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"{name}","namespace":"racks",
            "labels":{{"muster.dev/credential":"{label}"}}}},
            "stringData":{{"username":"root","password":"{password}"}}}}"#
        )
    };
    for (name, label) in [("rack-a", "true"), ("rack-b", "true"), ("other", "false")] {
        cluster.kubectl(&["create", "-f", "-"], &secret(name, "canary-1", label));
    }
    let client = Client::connect(&account(cluster, "racks", "reader"), clock()).await.unwrap();
    let refused = secrets::read(&client, "racks", "rack-a").await.unwrap_err();
    assert!(matches!(&refused, SecretError::Unusable(why) if why.contains("forbidden")), "{refused}");

    // The right that `muster manifests --bmc-secret` prints: two names, to get.
    let names = ["--resource-name=rack-a", "--resource-name=other", "--resource-name=gone"];
    let mut words = vec!["-n", "racks", "create", "role", "readers", "--verb=get", "--resource=secrets"];
    words.extend(names);
    cluster.kubectl(&words, "");
    let words = ["create", "rolebinding", "readers", "--role=readers", "--serviceaccount=racks:reader"];
    cluster.kubectl(&[&["-n", "racks"], &words[..]].concat(), "");
    let first =
        until("the right holds", || async { secrets::read(&client, "racks", "rack-a").await.ok() }).await;
    assert_eq!((first.user.as_str(), first.password.expose()), ("root", &b"canary-1"[..]));
    assert!(!first.version.is_empty() && !format!("{first:?}").contains("canary"));

    for (name, told) in [("rack-b", "forbidden"), ("other", "muster.dev/credential"), ("gone", "not found")] {
        let error = secrets::read(&client, "racks", name).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, SecretError::Unusable(_)) && text.contains(told), "{name}: {text}");
        assert!(!text.contains("canary"), "{text}");
    }
    for bad in ["../configmaps/kube-root-ca.crt", "a/b", ""] {
        assert!(matches!(secrets::read(&client, "racks", bad).await, Err(SecretError::Unusable(_))), "{bad}");
    }

    cluster.kubectl(&["replace", "-f", "-"], &secret("rack-a", "canary-2", "true"));
    let second = secrets::read(&client, "racks", "rack-a").await.unwrap();
    assert_eq!(second.password.expose(), b"canary-2");
    assert_ne!(second.version, first.version);
}
