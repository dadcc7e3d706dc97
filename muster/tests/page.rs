//! What pages are made of, asked of the real server with emulated machines: every endpoint, what others see of it, and
//! the page itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

#[path = "api/harness.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "shared with the acceptance rows")]
mod harness;

use std::{sync::Arc, time::Duration};

use harness::{Caller, Server, World};
use muster_emulate::{
    RealClock,
    redfish::{Fleet, Layout},
};
use serde_json::{Value, json};

const ANN: &str = "ann@example.com";
const BOB: &str = "bob@example.com";
const PASSWORD: &str = "emulated";

/// A server with three machines, a rack, a cluster that may act and its pool.
struct Lab {
    server: Server,
    _fleet: Fleet,
    _directory: tempfile::TempDir,
    pool: String,
    cluster: String,
}

impl Lab {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let layout = Layout { bmcs: 3, tls: true, ..Layout::default() };
        let fleet = Fleet::start(&layout, Arc::new(RealClock::default())).await.expect("emulated BMCs");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let arguments = ["--bmc-allow", "127.0.0.0/8", "--set", "hosts.time-factor=20"];
        let server = Server::start(directory.path(), &arguments);
        let ann = World::new(&server.base, "page").named(ANN);
        let credential =
            json!({ "name": "rack-a", "spec": { "kind": "bmc", "user": "admin", "password": PASSWORD } });
        ann.post("/api/v1/credentials", &credential).await.expect(201);
        ann.post(
            "/api/v1/racks",
            &json!({ "name": "r1", "spec": { "name": "r1", "units": 12, "wattCap": 4000 } }),
        )
        .await
        .expect(201);
        let cluster =
            json!({ "name": "lab", "spec": { "platform": { "type": "baremetal" }, "mode": "active" } });
        let cluster = ann.post("/api/v1/clusters", &cluster).await.expect(201).id();
        let pool = json!({ "name": "gpu", "spec": { "platform": { "type": "baremetal", "baremetal": { "pool": "gpu", "policy": { "maxCyclesPerDay": 6 } } },
            "nodeCount": 1 } });
        let pool = ann.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &pool).await.expect(201).id();
        for (number, bmc) in fleet.bmcs().enumerate() {
            let host = json!({ "name": format!("gpu-{number}"), "spec": {
                "powerInterface": "redfish", "mgmtAddress": bmc.address.to_string(), "pool": "gpu",
                "macAddress": format!("02:00:00:00:00:0{number}"), "rack": "r1", "slot": number + 1,
                "bmcCredentials": "rack-a", "tlsVerify": "insecure", "idleWatts": 180, "maxWatts": 400,
                "resources": { "cpu": "16", "memory": "64Gi", "gpu": 1 },
                "deadlines": { "bootDeadline": "5h", "minOffTime": "1s",
                    "enrolDeadline": "10h", "prepareDeadline": "5h", "powerConfirmDeadline": "1h", "callTimeout": "3m", "offDebounce": "4s", "staleAfter": "1h" } } });
            ann.post("/api/v1/hosts", &host).await.expect(201);
        }
        Self { server, _fleet: fleet, _directory: directory, pool, cluster }
    }

    fn as_user(&self, name: &str) -> Caller {
        World::new(&self.server.base, "page").named(name)
    }
}

/// Everything that a page reads, and that nothing of it is anybody else's.
#[tokio::test(flavor = "multi_thread")]
async fn pages_are_made_of_what_the_caller_sees() {
    let lab = Lab::start().await;
    let (ann, bob) = (lab.as_user(ANN), lab.as_user(BOB));
    // The pool holds one node: a machine is woken for it, and the page says so.
    let overview = ann
        .until("/api/v1/overview", |body| {
            body["hosts"]["on"].as_u64() >= Some(1)
                && body["operations"].as_array().is_some_and(|all| !all.is_empty())
        })
        .await;
    assert_eq!(overview["hosts"]["total"], 3, "{overview}");
    assert_eq!(overview["pending"]["pods"], Value::Null, "nobody sees pods here: {overview}");
    assert_eq!(overview["pending"]["unseen_clusters"], 1);
    let operation = &overview["operations"][0];
    assert!(operation["link"].as_str().unwrap().starts_with('/'), "{operation}");
    assert_eq!(overview["freeze"]["mode"], "none");

    energy_and_history(&ann).await;
    one_cluster(&ann, &lab).await;
    phases(&ann, &bob).await;
    search(&ann, &lab).await;
    transcript(&ann).await;
    what_if(&ann, &lab).await;

    // Racks count: the planner reads what the API stored.
    let pool = ann.get(&format!("/api/v1/explain/pool/{}", lab.pool)).await.expect(200).body;
    assert_eq!(pool["planner"]["set_aside"], json!([]), "{pool}");

    let pending = ann.get("/api/v1/pending").await.expect(200).body;
    assert_eq!(pending["unseen_clusters"][0]["cluster_name"], "lab", "{pending}");
    ann.get("/api/v1/pending?cluster_id=550e8400-e29b-41d4-a716-446655440000")
        .await
        .refused(404, "NOT_FOUND");

    // Somebody else sees an empty house everywhere.
    let empty = bob.get("/api/v1/overview").await.expect(200).body;
    assert_eq!((&empty["hosts"]["total"], &empty["attention"]), (&json!(0), &json!([])), "{empty}");
    assert_eq!(empty["operations"], json!([]));
    assert_eq!(bob.get("/api/v1/energy").await.expect(200).body["pools"], json!([]));
    assert_eq!(bob.get("/api/v1/pending").await.expect(200).body["unseen_clusters"], json!([]));
    for word in ["gpu", "lab", "r1", "02:00:00"] {
        let found = bob.get(&format!("/api/v1/search?q={word}")).await.expect(200).body;
        assert_eq!(found["total"], 0, "{word}: {found}");
    }
    let history = bob.get("/api/v1/history?series=total_cpu,watts").await.expect(200).body;
    for series in history["series"].as_array().unwrap() {
        let points = series["points"].as_array().unwrap();
        assert!(points.iter().all(|point| point[1] == 0), "{series}");
    }
    assert_eq!(history["marks"], json!([]));
    bob.get("/api/v1/hosts/gpu-0/transcript").await.refused(404, "NOT_FOUND");
    bob.post("/api/v1/what-if", &json!({ "cluster_id": lab.cluster })).await.refused(404, "NOT_FOUND");
}

async fn energy_and_history(ann: &Caller) {
    let energy = ann
        .until("/api/v1/energy", |body| {
            body["milliwatts"].as_i64() > Some(0) && body["cycles"][0]["count"].as_u64() > Some(0)
        })
        .await;
    assert_eq!(energy["pools"][0]["name"], "gpu", "{energy}");
    // The one rack holds what the one pool holds.
    let mut rack = energy["racks"][0].clone();
    assert_eq!(rack["name"], "r1", "{energy}");
    rack["name"] = json!("gpu");
    assert_eq!(rack, energy["pools"][0], "{energy}");
    assert!(energy["all_on_milliwatts"].as_i64() >= Some(540_000), "{energy}");
    // A price tells the same in money: of all, of a pool and of a host.
    let price = json!({ "energyPriceMicros": 300_000_000, "currency": "EUR" });
    ann.put("/api/v1/inventory/config", &price).await.expect(200);
    ann.until("/api/v1/energy", |body| {
        let pool = &body["pools"][0];
        body["used_micros"].as_u64() > Some(0) && pool["used_micros"] == body["used_micros"]
    })
    .await;
    ann.until("/api/v1/hosts/gpu-1/energy", |body| {
        let micros = |name: &str| body[name].as_u64().unwrap_or_default();
        body["currency"] == "EUR" && micros("used_micros") + micros("saved_micros") > 0
    })
    .await;
    assert!(energy["method"].as_str().unwrap().contains("idle watts"));
    assert_eq!(
        (&energy["cycle_budget"], &energy["cycles"][0]["budget"]),
        (&json!(24), &json!(6)),
        "{energy}"
    );
    // Two samples of the ring and the present moment.
    let history = ann
        .until("/api/v1/history", |body| {
            body["series"].as_array().is_some_and(|all| {
                all.iter().any(|one| one["points"].as_array().is_some_and(|points| points.len() >= 3))
            })
        })
        .await;
    let series = |name: &str| {
        let all = history["series"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} is missing: {history}"))["points"]
            .as_array()
            .unwrap()
            .clone()
    };
    assert_eq!(series("total_cpu").last().unwrap()[1], 48_000);
    assert_eq!(series("demand_cpu").last().unwrap()[1], Value::Null, "unknown is not zero");
    assert!(series("watts:gpu").last().unwrap()[1].as_i64() > Some(0));
    assert!(history["marks"][0]["id"].is_string(), "the decision that woke a machine: {history}");
    let only = ann.get("/api/v1/history?series=watts&window=10m").await.expect(200).body;
    assert_eq!(only["series"].as_array().unwrap().len(), 1, "{only}");
    let refused = ann.get("/api/v1/history?series=odd&window=3d").await.refused(400, "VALIDATION_ERROR");
    assert!(refused.details().contains("series") && refused.details().contains("window"), "{}", refused.body);
}

/// A page about one cluster shows its machines and nothing of the others.
async fn one_cluster(ann: &Caller, lab: &Lab) {
    let other = json!({ "name": "other", "spec": { "platform": { "type": "baremetal" } } });
    let other = ann.post("/api/v1/clusters", &other).await.expect(201).id();
    let last = |body: &Value, name: &str| {
        let all = body["series"].as_array().unwrap();
        let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {body}"));
        one["points"].as_array().unwrap().last().unwrap()[1].clone()
    };
    for (cluster, hosts, cores) in [(&lab.cluster, 3, 48_000), (&other, 0, 0)] {
        let overview = ann.get(&format!("/api/v1/overview?cluster_id={cluster}")).await.expect(200).body;
        assert_eq!(overview["hosts"]["total"], hosts, "{overview}");
        assert_eq!(overview["pending"]["unseen_clusters"], 1, "{overview}");
        let busy = overview["operations"].as_array().unwrap().len()
            + overview["attention"].as_array().unwrap().len();
        assert!(hosts > 0 || busy == 0, "what the other has to do is not its: {overview}");
        let history =
            ann.get(&format!("/api/v1/history?series=total_cpu&cluster_id={cluster}")).await.expect(200).body;
        assert_eq!(last(&history, "total_cpu"), cores, "{history}");
        assert!(hosts > 0 || history["marks"] == json!([]), "{history}");
    }
    assert_eq!(ann.get("/api/v1/overview").await.expect(200).body["pending"]["unseen_clusters"], 2);
    for path in ["overview", "history", "pending"] {
        let nobody = format!("/api/v1/{path}?cluster_id=550e8400-e29b-41d4-a716-446655440000");
        ann.get(&nobody).await.refused(404, "NOT_FOUND");
    }
    ann.delete(&format!("/api/v1/clusters/{other}")).await;
}

/// How long phases may take is kept with what happened, and how long they take is known of the pool.
async fn phases(ann: &Caller, bob: &Caller) {
    let awake = |body: &Value| {
        let all = body["phases"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| one["phase"] == "power-requested")
    };
    let took = ann.until("/api/v1/hosts/gpu-1/durations", awake).await;
    assert_eq!((&took["pool"], &took["hosts"]), (&json!("gpu"), &json!(3)), "{took}");
    for one in took["phases"].as_array().unwrap() {
        assert!(one["count"].as_u64() >= Some(1) && one["median_millis"].is_u64(), "{one}");
    }
    let mut limited = 0;
    for host in ["gpu-0", "gpu-1", "gpu-2"] {
        let story = ann.get(&format!("/api/v1/hosts/{host}/events")).await.expect(200).body;
        for event in story["events"].as_array().unwrap() {
            let Some(deadline) = event["deadline"].as_str() else { continue };
            assert!(deadline > event["at"].as_str().unwrap(), "{event}");
            limited += usize::from(event["to"] == "powering-on/power-requested");
        }
    }
    assert!(limited >= 1, "a power-on has until when it may take");
    bob.get("/api/v1/hosts/gpu-1/durations").await.refused(404, "NOT_FOUND");
}

async fn search(ann: &Caller, lab: &Lab) {
    for (text, kind, link) in [
        ("gpu-1", "host", "/hosts/gpu-1".to_owned()),
        ("02:00:00:00:00:02", "host", "/hosts/gpu-2".to_owned()),
        ("GPU-0", "host", "/hosts/gpu-0".to_owned()),
        ("gpu", "pool", format!("/pools/{}", lab.pool)),
        ("lab", "cluster", format!("/decisions?cluster={}", lab.cluster)),
        ("r1", "rack", "/racks?q=r1".to_owned()),
    ] {
        let found = ann.get(&format!("/api/v1/search?q={text}")).await.expect(200).body;
        let first = &found["results"][0];
        assert_eq!((&first["kind"], &first["link"]), (&json!(kind), &json!(link)), "{text}: {found}");
    }
    assert_eq!(
        ann.get("/api/v1/search?q=gpu&limit=1").await.expect(200).body["results"].as_array().unwrap().len(),
        1
    );
    ann.get("/api/v1/search?q=").await.refused(400, "VALIDATION_ERROR");
    ann.get("/api/v1/search").await.refused(400, "VALIDATION_ERROR");
}

async fn transcript(ann: &Caller) {
    let said = ann
        .until("/api/v1/hosts/gpu-0/transcript", |body| {
            body["calls"].as_array().is_some_and(|all| !all.is_empty())
        })
        .await;
    let text = said.to_string();
    assert!(!text.contains(PASSWORD) && !text.to_lowercase().contains("authorization"), "{text}");
    assert!(text.contains("read power"), "{text}");
    ann.get("/api/v1/hosts/nobody/transcript").await.refused(404, "NOT_FOUND");
}

/// OPS-U12: asking changes nothing.
/// `muster simulate --live` as Ann.
fn live(lab: &Lab, question: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["simulate", "--live", "--server", &lab.server.base, "--as-email", ANN])
        .args(question)
        .output()
        .expect("muster runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

async fn what_if(ann: &Caller, lab: &Lab) {
    let spec = |body: &Value| body["resource_version"].clone();
    let before = spec(&ann.get(&format!("/api/v1/nodepools/{}", lab.pool)).await.expect(200).body);
    let answer = ann.post("/api/v1/what-if", &json!({ "set": ["gpu.count=3"] })).await.expect(200).body;
    assert_eq!(
        (&answer["nothing_changed"], &answer["cluster_id"]),
        (&json!(true), &json!(lab.cluster)),
        "{answer}"
    );
    assert!(answer["summary"].is_string() && answer["before"]["machines"].is_u64(), "{answer}");
    assert_eq!(spec(&ann.get(&format!("/api/v1/nodepools/{}", lab.pool)).await.expect(200).body), before);
    // The command line asks the same and gets the same.
    let said = live(lab, &["--set", "gpu.count=3", "-o", "json"]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    for part in ["question", "summary", "cluster_id", "nothing_changed", "currency"] {
        assert_eq!(said[part], answer[part], "{part}: {said}");
    }
    let text = live(lab, &["--fail", "rack/r1", "--cluster", "lab"]);
    assert!(text.contains("machines") && text.ends_with("nothing was changed\n"), "{text}");
    for (wrong, part) in [
        (json!({ "fail": ["rack/nowhere"] }), "rack/nowhere"),
        (json!({ "add": { "count": 100_000 } }), "add.count"),
        (json!({ "adds": 1 }), "adds"),
        (json!({ "set": ["gpu.max"] }), "gpu.max"),
    ] {
        let refused = ann.post("/api/v1/what-if", &wrong).await.refused(400, "VALIDATION_ERROR");
        assert!(refused.details().contains(part), "{}", refused.body);
    }
}

/// Reads a stream until `enough` says so; the events as (name, data).
async fn events(
    caller: &Caller,
    path: &str,
    mut enough: impl FnMut(&[(String, Value)]) -> bool,
) -> Vec<(String, Value)> {
    let mut response = caller.request("GET", path).send().await.expect("the server answers");
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut text, mut all) = (String::new(), Vec::new());
    let reading = async {
        while let Some(piece) = response.chunk().await.expect("the stream goes on") {
            text.push_str(std::str::from_utf8(&piece).unwrap());
            while let Some(end) = text.find("\n\n") {
                let event: String = text.drain(..end + 2).collect();
                let field = |name: &str| {
                    event
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(|value| value.trim().to_owned())
                };
                let data =
                    field("data:").map(|data| serde_json::from_str(&data).unwrap()).unwrap_or_default();
                all.push((field("event:").unwrap_or_default(), data));
            }
            if enough(&all) {
                return;
            }
        }
        panic!("the stream ended: {all:?}");
    };
    tokio::time::timeout(Duration::from_mins(2), reading).await.expect("the events come in time");
    all
}

/// OPS-U18: a page that was away for a moment goes on where it was, one that was away for long begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn ops_u18_the_stream_has_numbers_resumes_and_says_when_to_begin_anew() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(directory.path(), &[]);
    let world = World::new(&server.base, "page");
    let (ann, bob) = (world.named(ANN), world.named(BOB));
    let first = events(&ann, "/api/v1/stream", |all| all.iter().any(|(name, _)| name == "beat")).await;
    assert_eq!(first[0].0, "resync", "{first:?}");
    let start = first[0].1["sequence"].as_u64().unwrap();
    let cluster = ann.cluster("prod").await;
    let pool = ann.pool(&cluster, "web").await;
    // From where it was: the change of the pool is there, and each event names the one before it.
    let path = format!("/api/v1/stream?after={start}");
    let missed = events(&ann, &path, |all| all.iter().any(|(_, data)| data["name"] == json!(pool))).await;
    assert!(missed.iter().all(|(name, _)| name != "resync"), "{missed:?}");
    let mut last = start;
    for (_, data) in missed.iter().filter(|(name, _)| name == "change") {
        assert_eq!(data["after"].as_u64(), Some(last), "{missed:?}");
        last = data["sequence"].as_u64().unwrap();
        assert!(last > start);
    }
    // Another project hears nothing of it.
    let other = events(&bob, &path, |all| all.iter().filter(|(name, _)| name == "beat").count() >= 2).await;
    assert!(other.iter().all(|(name, data)| name == "beat" || data["kind"] == "history"), "{other:?}");
    // Too old, from another process, or made up: begin anew.
    for after in ["1", "99999999999999999"] {
        let anew = events(&ann, &format!("/api/v1/stream?after={after}"), |all| !all.is_empty()).await;
        assert_eq!(anew[0].0, "resync", "{after}");
    }
    ann.get("/api/v1/stream?after=yesterday").await.refused(400, "VALIDATION_ERROR");
}

/// Who one is, what one may do, and what is not for everybody.
#[tokio::test(flavor = "multi_thread")]
async fn rights_are_said_and_settings_hide_secrets() {
    let digest = |token: &str| {
        use sha2::Digest as _;
        hex::encode(sha2::Sha256::digest(token))
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("muster.yaml");
    let text = format!(
        "auth:\n  mode: token\n  tokens:\n    - {{user: vic, sha256: {}}}\n    - {{user: ada, sha256: {}}}\n  \
         bindings:\n    - {{user: vic, project: lab, role: viewer}}\n    - {{user: ada, role: admin}}\n",
        digest("vics-token"),
        digest("adas-token")
    );
    std::fs::write(&config, text).unwrap();
    let server = Server::start(directory.path(), &["--config", config.to_str().unwrap()]);
    let world = World::new(&server.base, "page");
    let bearer = |token: &str| world.with(&[("authorization", &format!("Bearer {token}"))]);
    let (vic, ada) = (bearer("vics-token"), bearer("adas-token"));
    // Whoever is not signed in is told how to be.
    let way = world.with(&[]).get("/api/v1/sign-in").await.expect(200).body;
    assert_eq!((&way["mode"], &way["send"]), (&json!("token"), &json!("bearer")), "{way}");
    for path in ["/api/v1/overview", "/api/v1/stream", "/api/v1/me", "/api/v1/settings", "/api/v1/energy"] {
        world.with(&[]).get(path).await.refused(401, "UNAUTHENTICATED");
    }
    let me = vic.get("/api/v1/me").await.expect(200).body;
    assert_eq!(
        (&me["name"], &me["roles"], &me["projects"]),
        (&json!("vic"), &json!(["viewer"]), &json!(["lab"])),
        "{me}"
    );
    let scale = &me["rights"]["scale nodepools"];
    assert_eq!((&scale["allowed"], &scale["needs"]), (&json!(false), &json!(["admin", "operator"])), "{me}");
    let me = ada.get("/api/v1/me").await.expect(200).body;
    assert_eq!(
        (&me["rights"]["power hosts"]["allowed"], &me["everywhere"]),
        (&json!(true), &json!(true)),
        "{me}"
    );
    vic.get("/api/v1/settings").await.refused(403, "FORBIDDEN");
    let settings = ada.get("/api/v1/settings").await.expect(200).body;
    let listed = settings["settings"].as_array().unwrap();
    let mode = listed.iter().find(|one| one["name"] == "auth.mode").unwrap();
    assert!(mode["origin"].as_str().unwrap().starts_with("file "), "{mode}");
    let text = settings.to_string();
    for secret in [harness::CONTROLLER_TOKEN, "vics-token", &digest("vics-token")] {
        assert!(!text.contains(secret), "the settings show {secret}");
    }
}

/// The page is in the program, keeps to its origin, and is cached as it may be.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_from_the_program() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(directory.path(), &[]);
    let world = World::new(&server.base, "page");
    let browser = world.with(&[("accept", "text/html")]);
    for path in ["/", "/pools", "/hosts/gpu-1", "/what-if?ask=fewer"] {
        let response = browser.request("GET", path).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{path}");
        let header =
            |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("content-type").unwrap(), "text/html; charset=utf-8");
        let policy = header("content-security-policy").unwrap();
        assert!(
            policy.contains("script-src 'self'") && !policy.contains("unsafe") && !policy.contains("http"),
            "{policy}"
        );
        assert!(header("x-request-id").is_some() && header("x-content-type-options").is_some());
        let text = response.text().await.unwrap();
        assert!(text.contains("Muster"), "{text}");
        assert!(!text.contains("<script>") && !text.contains("//cdn"), "{text}");
    }
    // Programs are answered as before.
    world.with(&[]).get("/pools").await.refused(404, "NOT_FOUND");
    world.with(&[("accept", "text/html")]).get("/api/v1/nothing").await.refused(404, "NOT_FOUND");
    let page = browser.request("GET", "/").send().await.unwrap().text().await.unwrap();
    let Some(script) = page.split('"').find(|part| part.starts_with("/assets/") && part.contains(".js"))
    else {
        assert!(page.contains("make page"), "neither the page nor how to build it: {page}");
        return;
    };
    let asset = browser.request("GET", script).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(asset.headers()["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(asset.headers()["content-encoding"], "gzip");
    let tag = asset.headers()["etag"].to_str().unwrap().to_owned();
    let again = browser.request("GET", script).header("if-none-match", tag).send().await.unwrap();
    assert_eq!(again.status().as_u16(), 304);
}
