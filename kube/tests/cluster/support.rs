//! What the tests share.

use std::{future::Future, sync::Arc, time::Duration};

use muster_emulate::{RealClock, cluster::TestCluster};
use muster_kube::{Client, Credentials, KubeCluster, Options};
use muster_model::{
    Clock,
    observe::{ClusterPort, ClusterView},
};

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(RealClock::default())
}

pub(crate) async fn connect(cluster: &TestCluster) -> Client {
    let credentials = Credentials::File { path: cluster.kubeconfig(), context: None };
    Client::connect(&credentials, clock()).await.expect("the kubeconfig of the test cluster is good")
}

pub(crate) async fn watch(cluster: &TestCluster) -> KubeCluster {
    KubeCluster::start(connect(cluster).await, Options::default())
}

/// The kubeconfig of a service account, which is made.
pub(crate) fn account(cluster: &TestCluster, namespace: &str, name: &str) -> Credentials {
    cluster.kubectl(&["-n", namespace, "create", "serviceaccount", name], "");
    let token = cluster.kubectl(&["-n", namespace, "create", "token", name], "");
    let admin = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let lines: Vec<&str> = admin.lines().filter(|line| !line.starts_with("users:")).collect();
    let kubeconfig =
        format!("{}\nusers: [{{name: admin, user: {{token: \"{}\"}}}}]\n", lines.join("\n"), token.trim());
    Credentials::Text { kubeconfig, context: None }
}

/// Waits until something is so.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let wait = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("waited too long until {what}"))
}

/// Waits for a view that is as wanted.
pub(crate) async fn view_with<T>(
    kube: &KubeCluster,
    what: &str,
    wanted: impl Fn(&ClusterView) -> Option<T>,
) -> (ClusterView, T) {
    let look = async {
        loop {
            let number = match kube.view() {
                Ok(view) => match wanted(&view) {
                    Some(found) => return (view, found),
                    None => view.number,
                },
                Err(_) => 0,
            };
            // Also without news, as some things are not news.
            let _ = tokio::time::timeout(Duration::from_millis(500), kube.changed(number)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, look)
        .await
        .unwrap_or_else(|_| panic!("waited too long until {what}; {:?}", kube.health()))
}

/// A pod that names its node itself, so that no scheduler is needed.
pub(crate) fn pod(namespace: &str, name: &str, node: &str, labels: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}","labels":{labels}}},
        "spec":{{"nodeName":"{node}","terminationGracePeriodSeconds":1,"tolerations":[{{"operator":"Exists"}}],
        "containers":[{{"name":"c","image":"none","resources":{{"requests":{{"cpu":"123m"}}}}}}]}}}}"#
    )
}

/// A namespace of its own for a test.
pub(crate) fn namespace(cluster: &TestCluster, name: &str) {
    cluster.kubectl(&["create", "namespace", name], "");
    // Pods can be made once its service account is there.
    let made = std::time::Instant::now();
    while cluster
        .kubectl(&["-n", name, "get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"], "")
        .is_empty()
    {
        assert!(made.elapsed() < LIMIT, "no service account in {name}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A node that nobody plays.
pub(crate) fn node(cluster: &TestCluster, name: &str) {
    let text = format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}"}}}}"#);
    cluster.kubectl(&["create", "-f", "-"], &text);
}
