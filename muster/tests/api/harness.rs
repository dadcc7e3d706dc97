//! One server for each store, shared by all rows; every row has users, and so projects, of its own.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// The controller credential of every server that a test starts.
pub(crate) const CONTROLLER_TOKEN: &str = "a-controller-token-for-tests";

/// A process that dies with us: its shell kills it when the pipe to us closes.
pub(crate) struct Process {
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs a command until the returned value is dropped or this process ends. Its standard output is ours, its log goes
/// to a file, if one is named.
pub(crate) fn run(
    command: &[&str],
    environment: &[(&str, &str)],
    log: Option<&Path>,
) -> (Process, impl Iterator<Item = String> + use<>) {
    let log = log.map_or_else(Stdio::null, |path| std::fs::File::create(path).expect("a log file").into());
    let script = "\"$@\" & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid 2>/dev/null; exit 0";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .args(command)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("sh can be started");
    let lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines();
    (Process { child }, lines.map_while(Result::ok))
}

/// A running server.
pub(crate) struct Server {
    pub(crate) base: String,
    _process: Process,
    _directory: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts `muster serve` on a free port, with these arguments besides.
    pub(crate) fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(data_dir).expect("the data directory can be made");
        let log = data_dir.join("stderr.log");
        let data_dir = data_dir.to_str().expect("temporary paths are UTF-8");
        let mut command =
            vec![env!("CARGO_BIN_EXE_muster"), "serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir];
        command.extend(arguments);
        let (process, mut lines) =
            run(&command, &[("MUSTER_CONTROLLER_TOKEN", CONTROLLER_TOKEN)], Some(&log));
        let first = lines.next().expect("the server says where it listens");
        let base = first.rsplit(' ').next().expect("an address ends the line").to_owned();
        assert!(base.starts_with("http"), "the server said {first:?}");
        Self { base, _process: process, _directory: None }
    }
}

/// A running etcd of one member.
pub(crate) struct Etcd {
    pub(crate) address: String,
    binaries: String,
    _process: Process,
    _directory: tempfile::TempDir,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let built = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/peers/build.sh"))
            .args(["etcd", "etcdctl"])
            .output()
            .expect("scripts/peers/build.sh can be run");
        assert!(
            built.status.success(),
            "etcd could not be built: {}",
            String::from_utf8_lossy(&built.stderr)
        );
        let binaries = String::from_utf8(built.stdout).expect("a path").trim().to_owned();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        let ports = muster_emulate::ports::take(2).expect("free ports");
        let [client, peer] = [0, 1].map(|at: usize| ports[at].local_addr().expect("it is bound").to_string());
        drop(ports);
        let (url, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let (process, _) = run(
            &[
                &format!("{binaries}/etcd"),
                "--name",
                "m1",
                "--data-dir",
                data.to_str().expect("UTF-8"),
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &format!("m1={peer}"),
                "--log-level",
                "error",
                // Nobody pulls the machine's plug here, and a disk that many share is slow.
                "--unsafe-no-fsync",
            ],
            &[],
            None,
        );
        wait_for_port(&client);
        Self { address: client, binaries, _process: process, _directory: directory }
    }

    /// Runs `etcdctl` with these arguments; its output.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let output = Command::new(format!("{}/etcdctl", self.binaries))
            .arg(format!("--endpoints=http://{}", self.address))
            .args(["--dial-timeout=60s", "--command-timeout=120s"])
            .args(arguments)
            .output()
            .expect("etcdctl runs");
        assert!(
            output.status.success(),
            "etcdctl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// The value of a key, as another tool sees it.
    pub(crate) fn value(&self, key: &str) -> String {
        self.ctl(&["get", key, "--print-value-only"]).trim().to_owned()
    }

    pub(crate) fn store(&self) -> String {
        format!("etcd://{}", self.address)
    }
}

#[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
fn wait_for_port(address: &str) {
    for _ in 0..600 {
        if std::net::TcpStream::connect(address).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("nothing listens on {address} after a minute");
}

static EMBEDDED: OnceLock<Server> = OnceLock::new();
static ETCD: OnceLock<(Etcd, Server)> = OnceLock::new();

/// The server on the embedded store.
pub(crate) fn embedded() -> World {
    let server = EMBEDDED.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let server = Server::start(directory.path(), &["--seed-example"]);
        Server { _directory: Some(directory), ..server }
    });
    World::new(&server.base, "embedded")
}

/// The server on etcd.
pub(crate) fn etcd() -> World {
    let (_, server) = ETCD.get_or_init(|| {
        let etcd = Etcd::start();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let server = Server::start(directory.path(), &["--seed-example", "--store", &etcd.store()]);
        (etcd, Server { _directory: Some(directory), ..server })
    });
    World::new(&server.base, "etcd")
}

/// Makes a test of each row on each store.
#[allow(unused_macros, reason = "programs that use the harness need not have rows")]
macro_rules! rows {
    ($($name:ident),+ $(,)?) => {
        mod embedded { $(#[tokio::test] async fn $name() { super::$name(crate::harness::embedded()).await; })+ }
        mod etcd { $(#[tokio::test] async fn $name() { super::$name(crate::harness::etcd()).await; })+ }
    };
}
#[allow(unused_imports, reason = "the same")]
pub(crate) use rows;

/// What a row works with.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) base: String,
    pub(crate) store: &'static str,
    client: reqwest::Client,
}

static USERS: AtomicU64 = AtomicU64::new(1);

impl World {
    pub(crate) fn new(base: &str, store: &'static str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(std::time::Duration::from_mins(2))
            .build()
            .expect("a client");
        Self { base: base.to_owned(), store, client }
    }

    /// Somebody who was never here before.
    pub(crate) fn user(&self) -> Caller {
        let number = USERS.fetch_add(1, Ordering::Relaxed);
        self.named(&format!("user{number}-{}@example.com", self.store))
    }

    pub(crate) fn named(&self, address: &str) -> Caller {
        self.with(&[("x-user-email", address)])
    }

    pub(crate) fn controller(&self) -> Caller {
        self.with(&[("authorization", &format!("Bearer {CONTROLLER_TOKEN}"))])
    }

    pub(crate) fn with(&self, headers: &[(&str, &str)]) -> Caller {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Caller { world: self.clone(), headers }
    }
}

/// Somebody who sends requests.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) world: World,
    pub(crate) headers: Vec<(String, String)>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Reply {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// Expects the error envelope with this code.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Self {
        let reply = self.expect(status);
        assert_eq!(reply.body["error"]["code"], code, "{}", reply.body);
        assert!(reply.body["error"]["request_id"].is_string(), "{}", reply.body);
        assert!(reply.body["error"]["details"].is_string(), "{}", reply.body);
        reply
    }

    pub(crate) fn id(&self) -> String {
        self.body["id"].as_str().expect("the answer has an id").to_owned()
    }

    pub(crate) fn details(&self) -> &str {
        self.body["error"]["details"].as_str().expect("an error has details")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("plain headers"))
    }
}

impl Caller {
    pub(crate) fn and(&self, name: &str, value: &str) -> Self {
        let mut caller = self.clone();
        caller.headers.push((name.to_owned(), value.to_owned()));
        caller
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.world.client.request(method, format!("{}{path}", self.world.base));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.bytes().await.expect("the answer has an end");
        let body = if text.is_empty() { Value::Null } else { serde_json::from_slice(&text).expect("JSON") };
        assert!(headers.contains_key("x-request-id"), "every answer names its request");
        assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{body}");
        Reply { status: status.as_u16(), headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(self.request("GET", path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(self.request("DELETE", path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(self.request("POST", path).json(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        self.send(self.request("PUT", path).json(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send(self.request("PATCH", path).json(body)).await
    }

    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<reqwest::Body>,
    ) -> Reply {
        self.send(self.request(method, path).header("content-type", kind).body(body)).await
    }

    /// Reads until the answer is as wanted; fails after a generous time.
    #[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..600 {
            let reply = self.get(path).await;
            if wanted(&reply.body) {
                return reply.body;
            }
            last = reply.body;
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        panic!("{path} did not become as wanted; it is {last}");
    }

    /// A new cluster; returns its id.
    pub(crate) async fn cluster(&self, name: &str) -> String {
        let body = json!({"name": name, "spec": {"platform": {"type": "gcp"}}});
        self.post("/api/v1/clusters", &body).await.expect(201).id()
    }

    /// A new pool of the seed's shape; returns its id.
    pub(crate) async fn pool(&self, cluster: &str, name: &str) -> String {
        let body = json!({"name": name, "spec": gcp_spec()});
        self.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &body).await.expect(201).id()
    }

    /// Reports on a pool or cluster, as a controller.
    pub(crate) async fn report(&self, path: &str, report: &Value) -> Reply {
        self.world.controller().put(&format!("/api/v1/{path}/status"), report).await
    }
}

/// The seed's first spec.
pub(crate) fn gcp_spec() -> Value {
    json!({
        "platform": {"type": "gcp", "gcp": {
            "machineType": "n1-standard-4", "diskSize": 100, "diskType": "pd-ssd",
            "zones": ["us-central1-a", "us-central1-b"], "preemptible": false}},
        "autoscaling": {"enabled": true, "minNodes": 1, "maxNodes": 10},
        "nodeCount": 3
    })
}

/// `value` with the place at `pointer` set; objects on the way are made.
pub(crate) fn set(mut value: Value, pointer: &str, new: Value) -> Value {
    let mut place = &mut value;
    for name in pointer.trim_start_matches('/').split('/') {
        place = &mut place[name];
    }
    *place = new;
    value
}

/// A report of one controller.
pub(crate) fn report(controller: &str, generation: u64, condition: (&str, &str)) -> Value {
    json!({
        "controller_name": controller, "observed_generation": generation,
        "conditions": [{"type": condition.0, "status": condition.1,
            "lastTransitionTime": "2025-10-17T10:30:00Z", "reason": "Test", "message": "a test"}],
        "metadata": {"platform": "gcp"}
    })
}
