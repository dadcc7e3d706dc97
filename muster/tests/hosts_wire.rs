//! The host loop over the wire: `muster serve` on a real etcd, switching an emulated machine by Redfish, killed in
//! the middle.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "shared with the tests of the API, which use all of it")]
#[path = "api/harness.rs"]
mod harness;

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use muster_emulate::{
    Power, RealClock, Timing,
    redfish::{Faults, Fleet, Layout},
};
use muster_model::{
    Clock as _, Duration,
    host::{
        BareMetalNodeStatus, HostOp, Intent, Phase, Switch,
        keys::{self, HostRecord},
    },
    store::{Store, Txn},
};
use muster_store::{OpenOptions, Target};
use serde_json::{Value, json};

use harness::{Caller, Etcd, Server, World};

/// Time limits are divided by this: a debounce of 20 s becomes one.
const FACTOR: &str = "hosts.time-factor=20";

const USER: &str = "ann@example.com";

/// Limits that no machine is too slow for, although they are divided.
fn patient() -> Value {
    json!({ "bootDeadline": "5h", "enrolDeadline": "5h", "forceOffDeadline": "1h", "confirmOffDeadline": "1h" })
}

struct Inventory {
    store: Arc<dyn Store>,
    clock: Arc<RealClock>,
}

impl Inventory {
    async fn read<T: serde::de::DeserializeOwned>(&self, record: HostRecord) -> Option<T> {
        let entry = self.store.get(&keys::host("gpu-1", record)).await.unwrap()?;
        Some(serde_json::from_slice(&entry.value).unwrap())
    }

    async fn want(&self, want: Switch, id: &str) {
        let intent = Intent {
            id: id.into(),
            want,
            pool: "gpu".into(),
            decision: "d-1".into(),
            reason: "2 pods wait".into(),
            epoch: 0,
            at: self.clock.now(),
            spread_weighed: false,
        };
        let txn =
            Txn::new().put(keys::host("gpu-1", HostRecord::Intent), serde_json::to_vec(&intent).unwrap());
        let _ = self.store.commit(txn).await.unwrap();
    }

    /// Waits until something holds of the host, for as long as a slow machine may take.
    async fn until(&self, what: &str, mut holds: impl FnMut(&BareMetalNodeStatus, Option<&HostOp>) -> bool) {
        for _ in 0..1_200 {
            let status: Option<BareMetalNodeStatus> = self.read(HostRecord::Status).await;
            let op: Option<HostOp> = self.read(HostRecord::Op).await;
            if status.as_ref().is_some_and(|status| holds(status, op.as_ref())) {
                return;
            }
            self.clock.sleep(Duration::from_millis(200)).await;
        }
        let status: Option<Value> = self.read(HostRecord::Status).await;
        let events: Option<Value> = self.read(HostRecord::Events).await;
        panic!("{what} did not come: {status:#?}\n{events:#?}");
    }
}

/// Registers host `gpu-1` on a server that keeps its store in etcd, and waits until it is at rest. What the planner
/// would write is written into etcd.
async fn on_etcd(address: &str, server: &Server, bmc: std::net::SocketAddr) -> (Caller, Inventory) {
    let user = World::new(&server.base, "etcd").named(USER);
    let credential =
        json!({ "name": "rack-a", "spec": { "kind": "bmc", "user": "admin", "password": "emulated" } });
    user.post("/api/v1/credentials", &credential).await.expect(201);
    let host = json!({ "name": "gpu-1", "spec": {
        "powerInterface": "redfish", "mgmtAddress": bmc.to_string(), "pool": "gpu",
        "bmcCredentials": "rack-a", "tlsVerify": "insecure", "deadlines": patient(),
    } });
    user.post("/api/v1/hosts", &host).await.expect(201);
    let clock = Arc::new(RealClock::default());
    let options = OpenOptions::new("a test", clock.clone());
    let store = muster_store::open(&Target::parse(address).unwrap(), options).await.expect("etcd");
    let inventory = Inventory { store, clock };
    inventory.until("rest", |status, _| status.phase == Phase::Idle).await;
    (user, inventory)
}

/// OPS-R12: every reset that reached the BMC is in the audit log of the data directory, begun and ended, with its cause; the
/// chain holds, also over a `kill -9`.
fn audited(data: &Path, resets: &[String]) {
    let run = |words: &[&str]| {
        let data = data.to_str().unwrap();
        let ran = Command::new(env!("CARGO_BIN_EXE_muster")).args(words).args(["--data-dir", data]).output();
        let ran = ran.expect("muster runs");
        assert!(ran.status.success(), "{}", text(&ran));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    assert!(run(&["audit", "verify"]).contains("the chain holds"));
    let listed: Value =
        serde_json::from_str(&run(&["audit", "list", "--actor", "muster", "--limit", "0", "-o", "json"]))
            .unwrap();
    // Oldest first.
    let lines: Vec<&Value> = listed["items"].as_array().unwrap().iter().rev().collect();
    let begun: Vec<&&Value> = lines.iter().filter(|line| line["outcome"] == "begun").collect();
    let verb = |reset: &String| match reset.as_str() {
        "On" => "power-on",
        "ForceOff" => "force-off",
        _ => "graceful-off",
    };
    let said: Vec<_> = begun.iter().map(|line| line["verb"].as_str().unwrap_or_default()).collect();
    assert_eq!(said, resets.iter().map(verb).collect::<Vec<_>>(), "{listed:#}");
    for line in begun {
        let deed = &line["power"];
        assert_eq!((&line["object"], &deed["driver"]), (&json!("hosts/gpu-1"), &json!("redfish")), "{line}");
        assert_eq!(deed["decision"], "d-1", "{line}");
        assert!(deed["epoch"].as_u64() > Some(0) && !line["source"].as_str().unwrap().is_empty(), "{line}");
        let ended =
            lines.iter().find(|one| one["request_id"] == line["request_id"] && one["outcome"] == "done");
        let ended = ended.unwrap_or_else(|| panic!("{} has no end: {listed:#}", line["request_id"]));
        assert!(line["seq"].as_u64() < ended["seq"].as_u64(), "{line} {ended}");
    }
}

/// What was asked of a machine that is coming up is withdrawn by a person, and the machine goes back to where it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_is_cancelled_from_the_command_line() {
    let fleet = machines(1).await;
    let bmc = fleet.first();
    let etcd = Etcd::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let address = etcd.store();
    let server = Server::start(
        directory.path(),
        &["--store", &address, "--bmc-allow", "127.0.0.0/8", "--set", FACTOR],
    );
    let (user, inventory) = on_etcd(&address, &server, bmc.address).await;
    inventory.want(Switch::On, "i-1").await;
    inventory.until("power", |status, _| matches!(status.phase, Phase::Powered | Phase::Booting)).await;
    let listed = user.until("/api/v1/operations", |body| body["operations"][0].is_object()).await;
    let id = listed["operations"][0]["id"].as_str().unwrap();
    let run = |words: &[&str]| muster(&server, directory.path(), words);
    let told = text(&run(&["describe", "operation", id]));
    assert!(told.contains(&format!("muster cancel operation {id}")), "{told}");
    let cancelled = run(&["cancel", "operation", id, "--reason", "the job was called off"]);
    assert!(cancelled.status.success(), "{}", text(&cancelled));
    assert!(text(&cancelled).contains("power-on of host gpu-1 is withdrawn"), "{}", text(&cancelled));
    inventory.until("rest again", |status, op| status.phase == Phase::Idle && op.is_none()).await;
    assert_eq!(bmc.systems[0].machine.power(), Power::Off);
    let history = text(&run(&["history", "host", "gpu-1"]));
    assert!(history.contains("the job was called off") && history.contains(USER), "{history}");
    let again = run(&["cancel", "operation", id]);
    assert_eq!(again.status.code(), Some(4), "{}", text(&again));
    let wrong = run(&["cancel", "host", "gpu-1"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    assert!(text(&wrong).contains("muster cancel operation ID"), "{}", text(&wrong));
}

/// BM-7.9: the rotation of a credential is enough; nobody touches the hosts that use it.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_9_a_rotated_credential_is_tried_by_the_hosts_that_use_it() {
    let fleet = machines(1).await;
    let bmc = fleet.first();
    let directory = tempfile::tempdir().unwrap();
    let (server, user) = furnished(directory.path()).await;
    at_rest(&user, "h1", bmc.address, json!({})).await;
    bmc.set_password("another-one");
    bmc.drop_sessions();
    let host = user
        .until("/api/v1/hosts/h1", |host| host["status"]["bmcBlocked"]["cause"] == "CredentialsRefused")
        .await;
    std::fs::write(directory.path().join("password"), "another-one").unwrap();
    let words = ["rotate", "credential", "rack-a", "--user", "admin", "--password-file", "password"];
    let rotated = muster(&server, directory.path(), &words);
    assert!(rotated.status.success(), "{}", text(&rotated));
    let back = user.until("/api/v1/hosts/h1", |host| host["status"]["phase"] == "idle").await;
    assert_eq!(back["resource_version"], host["resource_version"], "its spec was not touched");
}

/// On, killed with `kill -9`, taken up by the next process with the same operation, and off again.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_17_killed_after_the_power_on_the_next_process_sends_none() {
    let fleet = machines(1).await;
    let bmc = fleet.first();
    let etcd = Etcd::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let address = etcd.store();
    let arguments = ["--store", &address, "--bmc-allow", "127.0.0.0/8", "--set", FACTOR];
    let server = Server::start(directory.path(), &arguments);
    let (user, inventory) = on_etcd(&address, &server, bmc.address).await;
    inventory.want(Switch::On, "i-1").await;
    inventory.until("power", |status, _| matches!(status.phase, Phase::Powered | Phase::Booting)).await;
    assert_eq!(bmc.counters().resets, ["On"]);
    let first: HostOp = inventory.read(HostRecord::Op).await.expect("an operation");
    // The server hears of what is in etcd a moment after us.
    let listed = user.until("/api/v1/operations", |body| body["operations"][0].is_object()).await;
    let kinds: Vec<_> =
        listed["operations"].as_array().unwrap().iter().map(|one| one["kind"].clone()).collect();
    assert_eq!(kinds, ["power-on"], "{listed}");

    drop(server); // kill -9
    let server = Server::start(directory.path(), &arguments);
    inventory
        .until("another leader", |_, op| op.is_some_and(|op| op.id == first.id && op.epoch > first.epoch))
        .await;
    assert_eq!(bmc.counters().resets, ["On"], "the next process sends none");
    inventory.want(Switch::Off, "i-2").await;
    inventory.until("rest again", |status, _| status.phase == Phase::Idle).await;
    assert_eq!(bmc.systems[0].machine.power(), Power::Off);
    let counters = bmc.counters();
    assert_eq!(counters.resets.first().map(String::as_str), Some("On"));
    assert!(counters.resets[1..].iter().all(|reset| reset.contains("Off")), "{:?}", counters.resets);
    assert!(counters.sessions_peak <= 1 && counters.in_flight_peak <= 1, "{counters:?}");
    audited(directory.path(), &counters.resets);

    // What an operator sees, a moment after us.
    let user = World::new(&server.base, "etcd").named(USER);
    user.until("/api/v1/hosts/gpu-1/events", |events| events["total"].as_u64() >= Some(5)).await;
    let mut page = String::new();
    for _ in 0..600 {
        page = reqwest::get(format!("{}/metrics", server.base)).await.unwrap().text().await.unwrap();
        if page.contains("muster_hosts{phase=\"idle\"} 1") {
            return;
        }
        inventory.clock.sleep(Duration::from_millis(200)).await;
    }
    panic!("a host that rests is not counted: {page}");
}

/// Runs the command line as a person would.
fn muster(server: &Server, directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(words)
        .args(["--server", &server.base, "--as-email", USER])
        .current_dir(directory)
        .env("HOME", directory)
        .output()
        .expect("muster runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The key of a BMC in what was printed.
fn shown_key(said: &str) -> String {
    let mut words = said.split(|c: char| c.is_whitespace() || "\"',;".contains(c));
    let key = words.find(|word| word.starts_with("sha256:"));
    key.unwrap_or_else(|| panic!("the key is shown: {said}")).trim_end_matches([':', '.']).to_owned()
}

/// Registers what discovery found as it is, but for limits that no machine is too slow for. JSON is YAML.
#[track_caller]
fn register_found(server: &Server, directory: &Path, document: &str) {
    let patiently = document.replacen("\nspec:\n", &format!("\nspec:\n  deadlines: {}\n", patient()), 1);
    assert_ne!(patiently, document, "a document has a spec");
    std::fs::write(directory.join("gpu-1.yaml"), &patiently).unwrap();
    let applied = muster(server, directory, &["apply", "-f", "gpu-1.yaml"]);
    assert!(applied.status.success(), "{}", text(&applied));
}

const CANARY: &str = "canary-2718-albatross";

/// A machine that nobody has described: its BMC is met, its key approved, and its own words make the document. The
/// password is found in no log, however much is logged, in no export, not in the audit log, and in nothing that others on
/// the machine can read of a process that knows it.
#[tokio::test(flavor = "multi_thread")]
async fn ops_r19_discovery_sends_nothing_secret_before_its_key_is_approved_and_logs_none() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let clock = Arc::new(RealClock::default());
    let fleet = Fleet::start(&Layout { tls: true, ..Layout::default() }, clock.clone()).await.unwrap();
    let bmc = fleet.first();
    bmc.set_password(CANARY);
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--bmc-allow", "127.0.0.0/8", "--set", FACTOR, "--set", "log.level=trace"];
    let server = Server::start(directory.path(), &arguments);
    std::fs::write(directory.path().join("password"), CANARY).unwrap();
    let run = |words: &[&str]| muster(&server, directory.path(), words);
    let made = run(&["create", "credential", "rack-a", "--user", "admin", "--password-file", "password"]);
    assert!(made.status.success(), "{}", text(&made));
    let address = bmc.address.to_string();
    let first = run(&["discover", &address, "--credential", "rack-a"]);
    assert!(!first.status.success(), "an unknown key is not trusted");
    assert_eq!(bmc.counters().credentials_seen, 0, "nothing secret is sent before that");
    let said = text(&first);
    let pin = shown_key(&said);

    let found = run(&[
        "discover",
        &address,
        "--credential",
        "rack-a",
        "--pin",
        &pin,
        "--name",
        "gpu-1",
        "--pool",
        "gpu",
    ]);
    assert!(found.status.success(), "{}", text(&found));
    let document = String::from_utf8_lossy(&found.stdout).into_owned();
    for part in ["gpu-1", "EMU000000", "512Gi", "\"128\"", "macAddress", "gpu: 1", &pin] {
        assert!(document.contains(part), "{part}: {document}");
    }
    register_found(&server, directory.path(), &document);
    let user = World::new(&server.base, "embedded").named(USER);
    user.until("/api/v1/hosts/gpu-1", |host| host["status"]["phase"] == "idle").await;
    let host = run(&["describe", "host", "gpu-1"]);
    assert!(host.status.success(), "{}", text(&host));

    // The password comes by standard input, too, and whoever looks at processes meanwhile sees nothing of it.
    let shown = seen_while_given(&server, directory.path());
    let exports: Vec<String> =
        ["yaml", "json", "csv"].map(|form| text(&run(&["export", "hosts", "-o", form]))).into();
    assert!(
        exports.iter().all(|export| export.contains("gpu-1") && export.contains("rack-a")),
        "{exports:?}"
    );
    let stored = run(&["store", "export", "backup.jsonl", "--online"]);
    assert!(stored.status.success(), "{}", text(&stored));
    let audit = user.get("/api/v1/audit?limit=100").await.expect(200).body.to_string();
    assert!(audit.contains("credentials/rack-a") && audit.contains("\"rotate\""), "{audit}");

    // Refused accounts are the noisiest: the BMC's password changes behind our back, and then for us, too.
    bmc.set_password("another-one");
    bmc.drop_sessions();
    user.until("/api/v1/hosts/gpu-1", |host| host["status"]["phase"] == "quarantined").await;
    let told = [&said, &document, &text(&host), &text(&run(&["history", "host", "gpu-1"]))].map(Clone::clone);
    let page = reqwest::get(format!("{}/metrics", server.base)).await.unwrap().text().await.unwrap();
    drop(server);
    let mut files = vec![
        ("what was said".to_owned(), told.join("\n")),
        ("metrics".to_owned(), page),
        ("an export of hosts".to_owned(), exports.join("\n")),
        ("the audit log by the API".to_owned(), audit),
    ];
    files.extend(shown);
    let mut folders = vec![directory.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "password") {
                files.push((
                    path.display().to_string(),
                    String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned(),
                ));
            }
        }
    }
    let log = files.iter().find(|(name, _)| name.ends_with("stderr.log")).expect("a log");
    assert!(log.1.len() > 10_000, "the log is loud: {}", log.1.len());
    let backup =
        files.iter().find(|(name, _)| name.ends_with("backup.jsonl")).expect("an export of the store");
    assert!(backup.1.contains("/muster/inventory/credentials/"), "the credential is in it, sealed");
    let encoded =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("admin:{CANARY}"));
    for (name, content) in &files {
        for hidden in [CANARY, "albatross", &encoded] {
            assert!(!content.contains(hidden), "{hidden} is in {name}");
        }
    }
}

/// What processes show while one of them has the password from its standard input: the command lines and environments of
/// the server and of that one.
fn seen_while_given(server: &Server, directory: &Path) -> Vec<(String, String)> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["rotate", "credential", "rack-a", "--user", "admin", "--password-file", "-"])
        .args(["--server", &server.base, "--as-email", USER])
        .current_dir(directory)
        .env("HOME", directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("muster runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(CANARY.as_bytes()).unwrap();
    input.flush().unwrap();
    // It reads to the end, and that does not come before we close the pipe. Its command line comes a moment after it.
    let (own, others) = (child.id().to_string(), directory.display().to_string());
    let shows = |held: &Vec<(String, String)>| {
        held.iter().any(|(_, shown)| shown.contains("rotate credential rack-a"))
    };
    let held = std::iter::repeat_with(|| processes(|id, _| own == id)).take(10_000).find(shows);
    let held = held.expect("the command line of the process that has the password");
    let servers = processes(|_, line| line.contains(&others));
    assert!(servers.iter().any(|(_, shown)| shown.contains(" serve ")), "{servers:?}");
    drop(input);
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", text(&done));
    [held, servers].concat()
}

/// Command lines and environments of the processes that are `wanted` by their number and command line.
fn processes(wanted: impl Fn(&str, &str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        let read = |name: &str| {
            let content = std::fs::read(entry.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&content).replace('\0', " ")
        };
        let line = read("cmdline");
        if id.parse::<u32>().is_ok() && wanted(&id, &line) {
            found.push((format!("the command line of process {id}"), line));
            found.push((format!("the environment of process {id}"), read("environ")));
        }
    }
    found
}

/// A server on its own store, with an account for the emulated BMCs and a boot profile.
async fn furnished(directory: &Path) -> (Server, Caller) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::start(directory, &["--bmc-allow", "127.0.0.0/8", "--set", FACTOR]);
    let user = World::new(&server.base, "embedded").named(USER);
    let credential =
        json!({ "name": "rack-a", "spec": { "kind": "bmc", "user": "admin", "password": "emulated" } });
    user.post("/api/v1/credentials", &credential).await.expect(201);
    let profile = json!({ "name": "net", "spec": { "target": "pxe" } });
    user.post("/api/v1/boot-profiles", &profile).await.expect(201);
    (server, user)
}

/// Machines that sleep in the firmware for ever, each behind a BMC of its own.
async fn machines(count: u32) -> Fleet {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let timing = Timing { boot: Duration::from_hours(1), ..Timing::default() };
    let layout = Layout { bmcs: count, tls: true, timing, ..Layout::default() };
    Fleet::start(&layout, Arc::new(RealClock::default())).await.expect("emulated BMCs")
}

/// Registers a host, and waits until it is at rest.
async fn at_rest(user: &Caller, name: &str, address: std::net::SocketAddr, more: Value) {
    let mut spec = json!({
        "powerInterface": "redfish", "mgmtAddress": address.to_string(), "pool": "gpu", "bmcCredentials": "rack-a",
        "tlsVerify": "insecure", "deadlines": patient(),
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    user.post("/api/v1/hosts", &json!({ "name": name, "spec": spec })).await.expect(201);
    user.until(&format!("/api/v1/hosts/{name}"), |host| host["status"]["phase"] == "idle").await;
}

async fn switch_on(user: &Caller, name: &str) {
    let body = json!({ "action": "on", "reason": "a test" });
    let _ = user.post(&format!("/api/v1/hosts/{name}/power"), &body).await;
}

/// OPS-R13, all of it with the binary: a backup is made, the world goes on, the older backup is put back, and the server starts. What
/// it holds says off, the machine is on: nothing is switched, and whoever asks is told why, until the world was observed again.
#[tokio::test(flavor = "multi_thread")]
async fn ops_r13_after_an_older_backup_nothing_is_switched_until_the_world_was_observed() {
    let fleet = machines(1).await;
    let bmc = fleet.first();
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (server, user) = furnished(&data).await;
    at_rest(&user, "gpu-1", bmc.address, json!({})).await;
    // A pool that somebody else reports on: what it said before the backup is waited for after the restore.
    let cluster = user.cluster("c").await;
    let pool = format!("nodepools/{}", user.pool(&cluster, "p").await);
    user.report(&pool, &harness::report("k", 1, ("Available", "True"))).await.expect(200);
    let off = json!({ "action": "off", "reason": "the disk is changed" });
    user.post("/api/v1/hosts/gpu-1/power", &off).await.expect(202);
    let run = |server: &Server, words: &[&str]| text(&muster(server, directory.path(), words));
    let said = run(&server, &["store", "export", "backup.jsonl", "--online"]);
    assert!(said.contains("sha256"), "{said}");

    // The world goes on: somebody wants it on, and it is.
    switch_on(&user, "gpu-1").await;
    user.until("/api/v1/hosts/gpu-1", |host| host["status"]["powerState"] == "on").await;
    assert_eq!(bmc.counters().resets, ["On"]);
    drop(server);

    let import = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["store", "import", "backup.jsonl", "--overwrite", "--data-dir", data.to_str().unwrap()])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", text(&import));
    let server = Server::start(&data, &["--bmc-allow", "127.0.0.0/8", "--set", FACTOR]);
    let user = World::new(&server.base, "embedded").named(USER);

    // The machine is looked at and its record put right, and nothing is done about it.
    let host = user.until("/api/v1/hosts/gpu-1", |host| host["status"]["powerState"] == "on").await;
    assert_eq!(host["spec"]["powerState"], "off", "what was restored is the older wish: {host}");
    let state = user.get("/api/v1/freeze").await.expect(200).body;
    assert_eq!((&state["mode"], &state["may_act"]), (&json!("frozen"), &json!(false)), "{state}");
    let shown = run(&server, &["freeze"]);
    for part in ["frozen: nothing acts", "restored", "not heard of since the restore", "muster unfreeze"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let doctor = run(&server, &["doctor"]);
    assert!(doctor.contains("restored"), "{doctor}");
    assert_eq!(user.get("/readyz").await.expect(200).body["restored"], true);
    let page = reqwest::get(format!("{}/metrics", server.base)).await.unwrap().text().await.unwrap();
    assert!(page.lines().any(|line| line.starts_with("muster_frozen") && line.ends_with(" 1")), "{page}");
    assert_eq!(bmc.counters().resets, ["On"], "nothing is switched meanwhile");

    // The last one who was waited for reports, and Muster acts again. It does not fight whoever switched the machine on.
    user.report(&pool, &harness::report("k", 1, ("Available", "True"))).await.expect(200);
    user.until("/api/v1/freeze", |state| state["may_act"] == true).await;
    let told = |host: &Value| {
        let conditions = host["status"]["conditions"].as_array();
        conditions
            .is_some_and(|all| all.iter().any(|one| one["type"] == "UnexpectedOn" && one["status"] == "True"))
    };
    user.until("/api/v1/hosts/gpu-1", told).await;
    assert_eq!(bmc.counters().resets, ["On"]);
    assert!(run(&server, &["freeze"]).contains("not frozen"));
}

/// Step by step as the guide says, with the TLS that is the default: a table without keys registers hosts that wait, one command
/// shows and approves what was seen, and a table with keys needs no further word. A key that changes later is never taken over.
#[tokio::test(flavor = "multi_thread")]
async fn ops_r19_a_host_waits_for_its_key_to_be_approved_and_no_account_is_sent_before() {
    let fleet = machines(2).await;
    let bmcs: Vec<_> = fleet.bmcs().collect();
    let directory = tempfile::tempdir().unwrap();
    let (server, user) = furnished(directory.path()).await;
    user.put("/api/v1/inventory/config", &json!({ "deadlines": patient() })).await.expect(200);
    let run = |words: &[&str]| muster(&server, directory.path(), words);
    let table = |name: &str, address: std::net::SocketAddr, pin: &str| {
        let rows = format!(
            "name,powerInterface,mgmtAddress,bmcCredentials,pool,pin\n{name},redfish,{address},rack-a,gpu,{pin}\n"
        );
        std::fs::write(directory.path().join("servers.csv"), rows).unwrap();
        let made = run(&["register", "hosts", "-f", "servers.csv"]);
        assert!(made.status.success(), "{}", text(&made));
    };
    table("gpu-1", bmcs[0].address, "");
    let waits = |host: &Value| host["status"]["bmcBlocked"]["cause"] == "KeyNotApproved";
    let host = user.until("/api/v1/hosts/gpu-1", waits).await;
    assert_eq!(bmcs[0].counters().credentials_seen, 0, "nothing secret is sent before that");
    let pin = host["status"]["bmcBlocked"]["seenKey"].as_str().unwrap().to_owned();
    let told = text(&run(&["describe", "host", "gpu-1"]));
    assert!(told.contains(&format!("muster approve host gpu-1 --pin {pin}")), "{told}");
    assert!(!told.contains("muster rotate"), "a password does not help: {told}");
    let overview = user.get("/api/v1/overview").await.expect(200).body;
    assert!(overview["attention"].to_string().contains("muster approve host gpu-1"), "{overview}");

    let other = format!("sha256:{}", "00".repeat(32));
    assert_eq!(
        run(&["approve", "host", "gpu-1", "--pin", &other]).status.code(),
        Some(4),
        "not what was seen"
    );
    let shown = run(&["approve", "host", "gpu-1"]);
    assert_eq!(shown.status.code(), Some(2), "nobody said yes");
    assert!(text(&shown).contains(&pin), "{}", text(&shown));
    assert_eq!(bmcs[0].counters().credentials_seen, 0);
    let approved = run(&["approve", "host", "gpu-1", "--yes"]);
    assert!(approved.status.success(), "{}", text(&approved));
    user.until("/api/v1/hosts/gpu-1", |host| host["status"]["phase"] == "idle").await;
    let story = text(&run(&["history", "host", "gpu-1"]));
    assert!(story.contains("approve") && story.contains(&pin), "{story}");
    table("gpu-1", bmcs[0].address, ""); // the same file again is no error

    // In bulk, by a file with the keys: no further word is needed.
    let met = run(&["discover", &bmcs[1].address.to_string(), "--credential", "rack-a"]);
    table("gpu-2", bmcs[1].address, &shown_key(&text(&met)));
    user.until("/api/v1/hosts/gpu-2", |host| host["status"]["phase"] == "idle").await;

    let before = bmcs[1].counters().credentials_seen;
    bmcs[1].change_certificate().unwrap();
    let changed = |host: &Value| host["status"]["bmcBlocked"]["cause"] == "CertificateMismatch";
    user.until("/api/v1/hosts/gpu-2", changed).await;
    let told = text(&run(&["describe", "host", "gpu-2"]));
    assert!(
        told.contains("find out why it changed") && told.contains("muster approve host gpu-2 --pin"),
        "{told}"
    );
    assert_eq!(bmcs[1].counters().credentials_seen, before, "no account is sent to a stranger");
    assert!(run(&["approve", "host/gpu-2", "--yes"]).status.success());
    user.until("/api/v1/hosts/gpu-2", |host| host["status"]["phase"] == "idle").await;
}

/// A BMC whose certificate an authority signed: the document that discovery makes can be registered as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_discovered_and_registered_under_its_authority() {
    let fleet = machines(1).await;
    let bmc = fleet.first();
    let directory = tempfile::tempdir().unwrap();
    let (server, user) = furnished(directory.path()).await;
    let run = |words: &[&str]| muster(&server, directory.path(), words);
    let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem();
    std::fs::write(directory.path().join("stranger.pem"), stranger).unwrap();
    std::fs::write(directory.path().join("ca.pem"), bmc.certificate().unwrap()).unwrap();
    let address = bmc.address.to_string();
    let discover = |ca: &str| {
        run(&["discover", &address, "--credential", "rack-a", "--ca", ca, "--name", "gpu-1", "--pool", "gpu"])
    };
    let refused = discover("stranger.pem");
    assert!(!refused.status.success() && text(&refused).contains("POWER_UNTRUSTED"), "{}", text(&refused));
    assert_eq!(bmc.counters().credentials_seen, 0);
    assert_eq!(discover("missing.pem").status.code(), Some(2));
    let found = discover("ca.pem");
    assert!(found.status.success(), "{}", text(&found));
    let document = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(document.contains("tlsVerify: ca") && document.contains("BEGIN CERTIFICATE"), "{document}");
    register_found(&server, directory.path(), &document);
    user.until("/api/v1/hosts/gpu-1", |host| host["status"]["phase"] == "idle").await;

    // What belongs to another trust is said, and nothing is asked.
    let body = json!({ "address": address, "tlsVerify": "ca" });
    let answer = user.post("/api/v1/discover", &body).await.expect(400).body;
    assert!(answer.to_string().contains("is required for tlsVerify ca"), "{answer}");
    let body = json!({ "address": address, "tlsVerify": "insecure", "ca": "x" });
    let answer = user.post("/api/v1/discover", &body).await.expect(400).body;
    assert!(answer.to_string().contains("is not used with tlsVerify insecure"), "{answer}");
}

/// A BMC without TLS, on a server that permits it: the document that discovery makes can be registered as it is, and the
/// host says what is wrong with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_tls_is_discovered_and_registered_as_that() {
    let clock = Arc::new(RealClock::default());
    let fleet = Fleet::start(&Layout { tls: false, ..Layout::default() }, clock).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--bmc-allow", "127.0.0.0/8", "--set", FACTOR, "--set", "bmc.plain-http=true"];
    let server = Server::start(directory.path(), &arguments);
    let user = World::new(&server.base, "embedded").named(USER);
    let account = json!({ "kind": "bmc", "user": "admin", "password": "emulated" });
    user.post("/api/v1/credentials", &json!({ "name": "rack-a", "spec": account })).await.expect(201);
    let run = |words: &[&str]| muster(&server, directory.path(), words);
    let address = fleet.first().address.to_string();
    let found = run(&[
        "discover",
        &address,
        "--credential",
        "rack-a",
        "--plain-http",
        "--name",
        "gpu-1",
        "--pool",
        "gpu",
    ]);
    assert!(found.status.success(), "{}", text(&found));
    let document = String::from_utf8_lossy(&found.stdout).into_owned();
    register_found(&server, directory.path(), &document);
    let host = user.until("/api/v1/hosts/gpu-1", |host| host["status"]["phase"] == "idle").await;
    let conditions = host["status"]["conditions"].to_string();
    assert!(conditions.contains("PlainHttp"), "{conditions}");
}

/// A BMC behind which power comes and never arrives is restarted, once, where its pool allows that.
#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_bmc_is_restarted_once_where_its_pool_allows_it() {
    let fleet = machines(1).await;
    let bmc = fleet.first();
    let directory = tempfile::tempdir().unwrap();
    let (server, user) = furnished(directory.path()).await;
    let cluster = json!({ "name": "lab", "spec": { "platform": { "type": "baremetal" } } });
    let cluster = user.post("/api/v1/clusters", &cluster).await.expect(201).body;
    let metal = json!({ "pool": "gpu", "policy": { "resetBmc": "allowed" } });
    let pool = json!({ "name": "gpu",
        "spec": { "nodeCount": 0, "platform": { "type": "baremetal", "baremetal": metal } } });
    let pools = format!("/api/v1/clusters/{}/nodepools", cluster["id"].as_str().unwrap());
    user.post(&pools, &pool).await.expect(201);
    let mut limits = patient();
    limits["powerConfirmDeadline"] = json!("5h");
    at_rest(&user, "gpu-1", bmc.address, json!({ "deadlines": limits })).await;
    bmc.set_faults(Faults { stuck_powering_on: true, ..Faults::default() });
    let on = json!({ "action": "on", "reason": "a test" });
    user.post("/api/v1/hosts/gpu-1/power", &on).await.expect(202);
    user.until("/api/v1/hosts/gpu-1", |host| !host["status"]["bmcResetAt"].is_null()).await;
    let clock = RealClock::default();
    for _ in 0..600 {
        if bmc.counters().restarts > 0 {
            break;
        }
        clock.sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        bmc.counters().restarts,
        1,
        "{}",
        text(&muster(&server, directory.path(), &["history", "host", "gpu-1"]))
    );
}

/// BMCs with their own ideas about boot settings: the override is set and read back, or the host says why not and no
/// power-on is sent.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_27_a_boot_override_is_set_by_the_way_that_the_bmc_takes_or_the_reason_is_told() {
    let fleet = machines(3).await;
    let bmcs: Vec<_> = fleet.bmcs().collect();
    bmcs[0].set_faults(Faults { require_etag: true, ..Faults::default() });
    bmcs[1].set_faults(Faults { ami_boot: true, ..Faults::default() });
    bmcs[2].set_faults(Faults { ignore_boot: true, ..Faults::default() });
    let directory = tempfile::tempdir().unwrap();
    let (_server, user) = furnished(directory.path()).await;
    for (name, bmc) in ["etag", "ami", "deaf"].into_iter().zip(&bmcs) {
        at_rest(&user, name, bmc.address, json!({ "bootProfile": "net" })).await;
        switch_on(&user, name).await;
    }
    for (name, bmc) in ["etag", "ami"].into_iter().zip(&bmcs) {
        let up = |host: &Value| matches!(host["status"]["phase"].as_str(), Some("powered" | "booting"));
        user.until(&format!("/api/v1/hosts/{name}"), up).await;
        assert_eq!(bmc.counters().resets, ["On"], "{name}");
    }
    let told = |host: &Value| {
        host["status"]["lastError"].as_str().is_some_and(|error| error.contains("BootOverrideIgnored"))
    };
    user.until("/api/v1/hosts/deaf", told).await;
    assert_eq!(bmcs[2].counters().resets, Vec::<String>::new(), "nothing boots from where it should not");
}

/// The driver `dry-run` reads the real machine and changes nothing, however often it is asked.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_30_a_host_of_the_driver_dry_run_is_read_and_never_switched() {
    let fleet = machines(1).await;
    let bmc = fleet.first();
    let directory = tempfile::tempdir().unwrap();
    let (_server, user) = furnished(directory.path()).await;
    let drivers = json!({ "drivers": [{ "kind": "dry-run" }] });
    at_rest(&user, "h1", bmc.address, drivers).await;
    switch_on(&user, "h1").await;
    // It says what it would do, stays where it is, and nothing counts as failed.
    let said = |host: &Value| {
        let conditions = host["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["reason"] == "WouldPowerOn"))
    };
    let host = user.until("/api/v1/hosts/h1", said).await;
    assert_eq!((&host["status"]["phase"], host["status"].get("failures")), (&json!("idle"), None), "{host}");
    user.until("/api/v1/operations", |body| {
        let message = body["operations"][0]["message"].as_str().unwrap_or_default();
        message.contains("it would be switched on, and nothing was")
    })
    .await;
    let events = user.get("/api/v1/hosts/h1/events").await.expect(200).body;
    assert!(events.to_string().contains("dry-run: would power on"), "{events}");
    assert_eq!(bmc.counters().resets, Vec::<String>::new());
    assert_eq!(bmc.systems[0].machine.power(), Power::Off);
}
