//! Processes that can be stopped, resumed and killed, and that end with the test whatever becomes of it.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

pub(crate) const USER: &str = "ann@example.com";

/// A program under a shell that kills it as soon as the pipe to the test closes.
pub(crate) struct Process {
    child: Child,
    pub(crate) pid: String,
}

impl Process {
    /// Starts it; the lines of its standard output after the first two are lost.
    pub(crate) fn start(
        command: &[&str],
        environment: &[(&str, &str)],
        log: &Path,
    ) -> (Self, BufReader<std::process::ChildStdout>) {
        let script =
            "\"$@\" & pid=$!; echo \"pid $pid\"; cat >/dev/null; kill -9 $pid; wait $pid 2>/dev/null; exit 0";
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .args(command)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("sh can be started");
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let pid = first.trim().strip_prefix("pid ").expect("the shell tells the number").to_owned();
        (Self { child, pid }, lines)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid]).status().unwrap();
        assert!(sent.success(), "kill {signal} {}", self.pid);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// One `muster serve`.
pub(crate) struct Server {
    pub(crate) base: String,
    pub(crate) process: Process,
    pub(crate) log: PathBuf,
    client: reqwest::Client,
}

impl Server {
    /// With a data directory of its own; `keys` is shared, so that every process opens the same credentials.
    pub(crate) fn start(data: &Path, keys: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        std::fs::create_dir_all(data).unwrap();
        let log = data.join("log");
        let key_file = format!("credentials.key-file={}", keys.join("credentials.key").display());
        let mut command = vec![
            env!("CARGO_BIN_EXE_muster"),
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--bmc-allow",
            "127.0.0.0/8",
            "--set",
            "hosts.time-factor=20",
            "--set",
            &key_file,
            "--data-dir",
            data.to_str().unwrap(),
        ];
        command.extend(arguments);
        let (process, mut lines) = Process::start(&command, environment, &log);
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let base = first.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(base.starts_with("http"), "the server said {first:?}: {}", said());
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(std::time::Duration::from_secs(20)).build().unwrap();
        Self { base, process, log, client }
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The answer, if there is one.
    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(u16, Value)> {
        let method = method.parse().unwrap();
        let mut request =
            self.client.request(method, format!("{}{path}", self.base)).header("x-user-email", USER);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.unwrap_or(Value::Null)))
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_send("POST", path, Some(body)).await.expect("an answer");
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.try_send("GET", path, None).await.map_or(Value::Null, |(_, answer)| answer)
    }

    /// A page that is no JSON; empty while nobody answers.
    pub(crate) async fn text(&self, path: &str) -> String {
        let Ok(page) = self.client.get(format!("{}{path}", self.base)).send().await else {
            return String::new();
        };
        page.text().await.unwrap_or_default()
    }

    pub(crate) async fn leads(&self) -> bool {
        self.text("/metrics").await.contains("\nmuster_leader 1")
    }

    pub(crate) async fn account(&self) {
        let spec = json!({ "kind": "bmc", "user": "admin", "password": "emulated" });
        self.post("/api/v1/credentials", &json!({ "name": "rack-a", "spec": spec })).await;
    }

    pub(crate) async fn register(&self, name: &str, address: std::net::SocketAddr, more: Value) {
        let mut spec = json!({ "powerInterface": "redfish", "mgmtAddress": address.to_string(), "pool": "gpu",
            "bmcCredentials": "rack-a", "tlsVerify": "insecure", "deadlines": { "bootDeadline": "5h", "enrolDeadline": "5h",
            "forceOffDeadline": "1h", "confirmOffDeadline": "1h" } });
        if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
            spec.extend(more);
        }
        self.post("/api/v1/hosts", &json!({ "name": name, "spec": spec })).await;
    }

    pub(crate) async fn power(&self, name: &str, action: &str) {
        let body = json!({ "action": action, "reason": "a test" });
        self.post(&format!("/api/v1/hosts/{name}/power"), &body).await;
    }

    pub(crate) async fn phase(&self, name: &str) -> String {
        let host = self.get(&format!("/api/v1/hosts/{name}")).await;
        host["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn until(&self, name: &str, wanted: &[&str]) {
        let mut last = String::new();
        for _ in 0..1_500 {
            last = self.phase(name).await;
            if wanted.contains(&last.as_str()) {
                return;
            }
            crate::pause(100).await;
        }
        let host = self.get(&format!("/api/v1/hosts/{name}")).await;
        panic!("{name} is {last}, not one of {wanted:?}: {host:#}\n{}", self.said());
    }
}
