//! `muster demo` as a person starts it: the page, what the demo promises to show, the same fleet for the same seed, real
//! BMCs on the wire, etcd, and that nothing is left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

#[path = "api/harness.rs"]
#[allow(dead_code, unused_imports, unused_macros, clippy::expect_used, reason = "only its etcd is used here")]
mod harness;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

const MUSTER: &str = env!("CARGO_BIN_EXE_muster");
/// The machine may be slow and busy; nothing here depends on how long things take.
const PATIENCE: Duration = Duration::from_mins(5);
const PAUSE: Duration = Duration::from_millis(300);

/// A running demo with a directory for temporary files of its own.
struct Demo {
    child: Child,
    url: String,
    lines: Arc<Mutex<Vec<String>>>,
    temporary: TempDir,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "a test waits in real time")]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

#[allow(clippy::disallowed_methods, reason = "a test waits in real time")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

impl Demo {
    async fn start(arguments: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let temporary = tempfile::tempdir().unwrap();
        let mut child = Command::new(MUSTER)
            .args(["demo", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("TMPDIR", temporary.path())
            // What is set for a real server is not meant for the demo.
            .env("MUSTER_AUTH_MODE", "oidc")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (output, told) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                told.lock().unwrap().push(line);
            }
        });
        let mut demo = Self { child, url: String::new(), lines, temporary };
        let told = demo.line("muster demo on ").await;
        told.trim_start_matches("muster demo on ").clone_into(&mut demo.url);
        demo
    }

    /// The first line with these words in it, once it is there.
    async fn line(&mut self, words: &str) -> String {
        let since = clock();
        loop {
            let found = self.lines.lock().unwrap().iter().find(|line| line.contains(words)).cloned();
            if let Some(line) = found {
                return line;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the demo ended ({ended:?}) and said {:?}", self.lines.lock().unwrap());
            assert!(since.elapsed() < PATIENCE, "no {words:?} in {:?}", self.lines.lock().unwrap());
            pause().await;
        }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Asks until the answer is as it should be.
    async fn until(&self, what: &str, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = clock();
        loop {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(since.elapsed() < PATIENCE, "{what} did not happen; last: {answer}");
            pause().await;
        }
    }

    /// One of the commands that the demo says to try, with its output.
    fn try_command(&self, begins: &str) -> String {
        let told = self.lines.lock().unwrap().iter().find(|line| line.trim().starts_with(begins)).cloned();
        let told = told.unwrap_or_else(|| panic!("no command {begins:?} was told"));
        let command = told.split('#').next().unwrap().trim().trim_start_matches("muster ").to_owned();
        let words: Vec<String> = command
            .split('\'')
            .enumerate()
            .flat_map(|(quoted, part)| {
                if quoted % 2 == 1 {
                    vec![part.to_owned()]
                } else {
                    part.split_whitespace().map(str::to_owned).collect()
                }
            })
            .collect();
        let ran = Command::new(MUSTER).args(&words).env("HOME", self.temporary.path()).output().unwrap();
        let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
        assert!(ran.status.success(), "{command}: {out}{err}");
        out
    }

    /// Stops it as Ctrl-C or a supervisor does, and sees that nothing is left.
    async fn stop(mut self, signal: rustix::process::Signal) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let since = clock();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < PATIENCE, "it does not stop: {:?}", self.lines.lock().unwrap());
            pause().await;
        };
        let left: Vec<_> = std::fs::read_dir(self.temporary.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("muster"))
            .collect();
        assert_eq!(left, Vec::<String>::new(), "files are left behind");
        assert!(
            reqwest::get(format!("{}/livez", self.url)).await.is_err(),
            "somebody still answers on {}",
            self.url
        );
        status
    }

    fn host_in<'a>(hosts: &'a Value, name: &str) -> &'a Value {
        hosts["hosts"].as_array().unwrap().iter().find(|host| host["name"] == *name).unwrap()
    }
}

/// The name at the end of a command that the demo told: `muster describe host NAME`.
fn told_name(demo: &Demo, begins: &str) -> String {
    let lines = demo.lines.lock().unwrap();
    let line = lines.iter().find(|line| line.trim().starts_with(begins)).unwrap();
    line.trim().trim_start_matches(begins).split_whitespace().next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_what_it_promises_and_leaves_nothing_behind() {
    let mut demo = Demo::start(&["--history", "4h"]).await;
    // The page, without signing in.
    let page = reqwest::Client::new().get(&demo.url).header("Accept", "text/html").send().await.unwrap();
    assert!(page.headers().contains_key("x-muster-time"), "{:?}", page.headers());
    let (status, text) = (page.status(), page.text().await.unwrap());
    assert!(status.is_success() && text.contains("<title>") && text.contains("Muster"), "{status} {text}");
    let overview = demo.get("/api/v1/overview").await;
    assert_eq!(overview["hosts"]["total"], 40, "{overview}");
    assert!(overview["hosts"]["on"].as_u64().unwrap() >= 3, "{overview}");
    assert!(overview["saved_today"]["micros"].as_u64() > Some(0), "{overview}");
    let history = demo.get("/api/v1/history?series=demand_cpu,on_cpu,total_cpu").await;
    for series in history["series"].as_array().unwrap() {
        assert!(series["points"].as_array().unwrap().len() > 50, "the charts are empty: {history}");
    }
    let pools = demo.get("/api/v1/nodepools").await;
    assert_eq!(pools["total"], 5, "{pools}");

    // The server that never boots, and what was wrong with it.
    let bad = told_name(&demo, "muster describe host ");
    demo.until("quarantine", &format!("/api/v1/hosts/{bad}"), |host| {
        host["status"]["phase"] == "quarantined"
    })
    .await;
    let told = demo.try_command("muster describe host ");
    assert!(told.contains("uarantined") && told.contains("15m"), "{told}");

    // The pod that can never run.
    let told = demo.try_command("muster explain pod ");
    assert!(told.contains("96") && told.contains("gpu") && told.contains("web"), "{told}");
    let pending = demo.get("/api/v1/pending").await.to_string();
    assert!(pending.contains("warehouse-export"), "{pending}");

    // A drain that a budget holds up.
    let held = told_name(&demo, "muster explain host ");
    let blocked = |events: &Value| events.to_string().contains("PodDisruptionBudget");
    demo.until("a blocked drain", &format!("/api/v1/hosts/{held}/events"), blocked).await;
    assert!(!demo.try_command("muster explain host ").is_empty());

    // The pool at zero wakes for the training job.
    demo.line("a training job asks for").await;
    let on = |hosts: &Value| {
        let mut all = hosts["hosts"].as_array().unwrap().iter();
        all.any(|host| host["spec"]["pool"] == "gpu" && host["status"]["state"] == "ready")
    };
    demo.until("a GPU server", "/api/v1/hosts?pool=gpu&limit=100", on).await;
    let decisions = demo.get("/api/v1/decisions?limit=100").await.to_string();
    assert!(decisions.contains("pool gpu"), "{decisions}");
    for command in ["muster get hosts", "muster get decisions", "muster freeze"] {
        assert!(!demo.try_command(command).is_empty(), "{command}");
    }
    demo.line("somebody presses the power button").await;
    let status = demo.stop(rustix::process::Signal::TERM).await;
    assert!(status.success(), "{status}");
}

/// The fleet, the load and everything that happened before the page opens follow from the seed.
#[tokio::test(flavor = "multi_thread")]
async fn a_seed_has_one_past_and_one_fleet() {
    let mut seen = Vec::new();
    for seed in ["3", "3", "4"] {
        let mut demo = Demo::start(&["--history", "30m", "--seed", seed]).await;
        let digest = demo.line(", history ").await;
        let mut hosts = demo.get("/api/v1/hosts?limit=100").await;
        let specs: Vec<Value> = hosts["hosts"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .map(|host| {
                let mut spec = host["spec"].take();
                for dated in ["registered", "hold", "powerState"] {
                    spec.as_object_mut().unwrap().remove(dated);
                }
                spec
            })
            .collect();
        let status = demo.stop(rustix::process::Signal::INT).await;
        assert!(status.success(), "{status}");
        seen.push((digest.split("history ").last().unwrap().to_owned(), specs));
    }
    assert_eq!(seen[0], seen[1], "the same seed");
    assert_ne!(seen[0].0, seen[2].0, "another seed");
}

/// Real Redfish on loopback, and the records in an etcd that has nothing of them afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn real_bmcs_on_the_wire_and_real_etcd() {
    let etcd = harness::Etcd::start();
    let store = etcd.store();
    let mut demo = Demo::start(&["--history", "30m", "--emulate", "wire", "--store", &store]).await;
    let hosts = demo.get("/api/v1/hosts?limit=100").await;
    let address = Demo::host_in(&hosts, "web-01")["spec"]["mgmtAddress"].as_str().unwrap().to_owned();
    assert!(address.starts_with("127.10."), "{address}");
    // A machine that was off is switched on by a Redfish call, boots and joins.
    demo.line("a training job asks for").await;
    let on = |hosts: &Value| {
        let mut all = hosts["hosts"].as_array().unwrap().iter();
        all.find(|host| host["status"]["state"] == "ready")
            .map(|host| host["name"].as_str().unwrap().to_owned())
    };
    let path = "/api/v1/hosts?pool=gpu&limit=100";
    let name = on(&demo.until("a GPU server", path, |hosts| on(hosts).is_some()).await).unwrap();
    let transcript = demo.get(&format!("/api/v1/hosts/{name}/transcript")).await;
    let asked = |call: &Value| call["driver"] == "redfish" && call["call"].as_str().unwrap().contains("on");
    assert!(transcript["calls"].as_array().unwrap().iter().any(asked), "{transcript}");
    let status = demo.stop(rustix::process::Signal::TERM).await;
    assert!(status.success(), "{status}");
    assert!(std::net::TcpStream::connect(&address).is_err(), "a BMC still listens on {address}");
    assert_eq!(etcd.ctl(&["get", "", "--prefix", "--keys-only"]).trim(), "", "records are left in etcd");
}
