//! Identity mode `k8s` in the running server, with a real cluster as the judge.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use muster_emulate::cluster::TestCluster;
use reqwest::StatusCode;
use serde_json::{Value, json};

/// `muster serve`, killed when dropped.
struct Server {
    child: Child,
    base: String,
    _data: tempfile::TempDir,
}

impl Server {
    fn start(cluster: &TestCluster) -> Self {
        let data = tempfile::tempdir().unwrap();
        let kubeconfig = format!("auth.k8s.kubeconfig={}", cluster.kubeconfig().display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--auth-mode",
                "k8s",
                "--set",
                &kubeconfig,
                "--data-dir",
            ])
            .arg(data.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let base = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(base.starts_with("http://127.0.0.1:"), "the server said {line:?}");
        Self { child, base, _data: data }
    }

    async fn whoami(&self, token: &str, project: Option<&str>) -> (StatusCode, Value) {
        let mut request =
            reqwest::Client::new().get(format!("{}/api/v1/whoami", self.base)).bearer_auth(token);
        if let Some(project) = project {
            request = request.header("X-Muster-Project", project);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_r18_a_cluster_judges_tokens_and_its_rbac_gives_roles() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = TestCluster::shared();
    let server = Server::start(cluster);
    cluster.kubectl(&["create", "namespace", "team-a"], "");
    cluster.kubectl(&["-n", "team-a", "create", "serviceaccount", "operator"], "");
    cluster.kubectl(&["create", "-f", "-"], ROLE);
    let operator = "system:serviceaccount:team-a:operator";
    cluster.until_allowed(operator, "operator", "projects.muster.dev", Some("team-a"));
    let token = |audience: &str| {
        let audience = format!("--audience={audience}");
        cluster.kubectl(&["-n", "team-a", "create", "token", "operator", &audience], "").trim().to_owned()
    };
    let good = token("muster");
    let (status, who) = server.whoami(&good, None).await;
    assert_eq!(status, StatusCode::OK, "{who}");
    assert_eq!(who["name"], operator);
    assert_eq!((&who["mode"], &who["projects"]), (&json!("k8s"), &json!({"team-a": ["operator"]})));
    let (status, who) = server.whoami(&good, Some("team-b")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{who}");

    assert_eq!(server.whoami("made.up.token", None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(
        server.whoami(&token("https://kubernetes.default.svc"), None).await.0,
        StatusCode::UNAUTHORIZED
    );

    // A token that was good a moment ago is not good while nobody can be asked.
    cluster.signal("kube-apiserver", "STOP");
    let (status, answer) = server.whoami(&token_like(&good), None).await;
    cluster.signal("kube-apiserver", "CONT");
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
}

/// Another token, about which nothing is remembered.
fn token_like(token: &str) -> String {
    format!("{token}x")
}

const ROLE: &str = r"
apiVersion: v1
kind: List
items:
- {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: muster-operator, namespace: team-a},
   rules: [{apiGroups: [muster.dev], resources: [projects], verbs: [operator]}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: operator, namespace: team-a},
   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: muster-operator},
   subjects: [{kind: ServiceAccount, name: operator, namespace: team-a}]}
";
