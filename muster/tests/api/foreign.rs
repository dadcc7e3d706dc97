//! Tools that write straight into etcd, with the real `etcdctl`: good records are used, bad ones set aside, what is
//! derived is put back, and nothing ever stops. And what is at rest: no secret in the clear.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::harness::{Caller, Etcd, Server, World};

struct Lab {
    etcd: Etcd,
    server: Server,
    folder: tempfile::TempDir,
}

impl Lab {
    fn start() -> (Self, Caller) {
        Self::start_with(&[])
    }

    /// A server that leaves the records of the host loop to the test.
    fn without_loops() -> (Self, Caller) {
        Self::start_with(&["--set", "lead=false"])
    }

    fn start_with(extra: &[&str]) -> (Self, Caller) {
        let etcd = Etcd::start();
        let folder = tempfile::tempdir().unwrap();
        let store = etcd.store();
        let server = Server::start(folder.path(), &[&["--store", &store], extra].concat());
        let user = World::new(&server.base, "etcd").named("ops@example.com");
        (Self { etcd, server, folder }, user)
    }

    fn put(&self, key: &str, value: &Value) {
        self.etcd.ctl(&["put", key, &value.to_string()]);
    }

    /// Waits until a key has a value that `wanted` takes.
    #[allow(clippy::disallowed_methods, reason = "a test waits for another process here")]
    async fn until(&self, key: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = String::new();
        for _ in 0..600 {
            last = self.etcd.value(key);
            let value = serde_json::from_str(&last).unwrap_or(Value::Null);
            if wanted(&value) {
                return value;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        panic!("{key} did not become as wanted; it is {last}");
    }
}

fn wol(pool: &str, last: u8) -> Value {
    json!({"powerInterface": "wol", "pool": pool, "macAddress": format!("02:aa:00:00:00:{last:02x}"),
        "drivers": [{"kind": "wol", "settings": {"broadcast": "10.0.0.255"}}]})
}

fn events(inventory: &Value, reason: &str) -> usize {
    inventory["events"].as_array().map_or(0, |events| events.iter().filter(|e| e["reason"] == reason).count())
}

#[tokio::test]
async fn records_that_etcdctl_writes_are_used_or_set_aside() {
    let (lab, user) = Lab::without_loops();
    lab.put("/baremetal/nodes/a/spec", &wol("edge", 1));
    let host = user.until("/api/v1/hosts/a", |body| body["name"] == "a").await;
    assert!(host.get("set_aside").is_none(), "{host}");
    assert_eq!(
        lab.until("/baremetal/pools/edge/members", |members| *members == json!(["a"])).await,
        json!(["a"])
    );
    // Bad in every way that a hand can be.
    lab.etcd.ctl(&["put", "/baremetal/nodes/broken/spec", "{not json"]);
    lab.etcd.ctl(&["put", "/baremetal/nodes/empty/spec", ""]);
    lab.put("/baremetal/nodes/faulty/spec", &json!({"powerInterface": "redfsh", "pool": "edge"}));
    lab.put("/baremetal/nodes/Upper/spec", &wol("edge", 2));
    lab.put("/baremetal/nodes/twin/spec", &wol("edge", 1));
    lab.put("/baremetal/nodes/list/spec", &json!([1, 2]));
    lab.etcd.ctl(&["put", "/baremetal/nodes/a/notes", "left alone"]);
    lab.etcd.ctl(&["put", "/baremetal/nodes/a/status", "{\"state\": \"on fire\"}"]);
    let inventory = user
        .until("/api/v1/inventory", |body| body["set_aside"].as_array().is_some_and(|list| list.len() == 6))
        .await;
    let why = |name: &str| {
        let list = inventory["set_aside"].as_array().unwrap();
        list.iter().find(|one| one["name"] == name).unwrap()["reason"].as_str().unwrap().to_owned()
    };
    assert!(why("faulty").contains("did you mean redfish?"), "{}", why("faulty"));
    assert!(why("twin").contains("belongs to host a"), "{}", why("twin"));
    assert!(why("Upper").contains("name"), "{}", why("Upper"));
    // A status that cannot be read is named. It was written after all the others.
    user.until("/api/v1/hosts/a", |body| body["unread"][0]["record"] == "status").await;
    assert_eq!(lab.etcd.value("/baremetal/pools/edge/members"), "[\"a\"]");
    assert_eq!(lab.etcd.value("/baremetal/nodes/a/notes"), "left alone");
    // Two writes that follow each other at once may be told as one: each is told before the next is made.
    let count = |body: &Value| body["events"].as_array().map_or(0, Vec::len);
    user.until("/api/v1/inventory", |body| events(body, "SetAside") >= 6).await;
    user.until("/api/v1/hosts/twin/events", |body| count(body) >= 1).await;
    // Everything else goes on: writes through the API, and the bad ones can be mended or deleted.
    user.post("/api/v1/hosts", &json!({"name": "b", "spec": wol("edge", 3)})).await.expect(201);
    user.post("/api/v1/hosts/faulty/hold", &json!({"reason": "x"})).await.refused(409, "CONFLICT");
    user.put("/api/v1/hosts/faulty", &json!({"spec": wol("edge", 4)})).await.expect(200);
    user.delete("/api/v1/hosts/broken").await.expect(202);
    lab.put("/baremetal/nodes/twin/spec", &wol("edge", 5));
    lab.until("/baremetal/pools/edge/members", |members| *members == json!(["a", "b", "faulty", "twin"]))
        .await;
    user.until("/api/v1/inventory", |body| events(body, "Accepted") >= 2).await;
    let story = user.until("/api/v1/hosts/twin/events", |body| count(body) >= 2).await;
    assert!(story.to_string().contains("direct write to the store"), "{story}");
    // A deleted record takes its place in the list with it.
    lab.etcd.ctl(&["del", "/baremetal/nodes/twin/spec"]);
    lab.until("/baremetal/pools/edge/members", |members| *members == json!(["a", "b", "faulty"])).await;
    // After a restart it is all the same.
    drop(lab.server);
    let server = Server::start(lab.folder.path(), &["--store", &lab.etcd.store()]);
    let user = World::new(&server.base, "etcd").named("ops@example.com");
    assert_eq!(user.get("/api/v1/hosts").await.expect(200).body["total"], 6);
    assert_eq!(user.get("/api/v1/hosts?set_aside=true").await.expect(200).body["total"], 3);
    // What this process has not seen it does not tell: whoever watched before lists again.
    user.get("/api/v1/hosts?watch=true&resource_version=2").await.refused(410, "GONE");
}

#[tokio::test]
async fn what_is_derived_is_put_back_and_settings_are_requests() {
    let (lab, user) = Lab::start();
    user.post("/api/v1/hosts", &json!({"name": "a", "spec": wol("gpu", 1)})).await.expect(201);
    assert_eq!(lab.etcd.value("/baremetal/pools/gpu/members"), "[\"a\"]", "written with the host");
    // A write of the host itself may put the list back first, and then nothing is told: it is tried until it is.
    for turn in 0.. {
        lab.put("/baremetal/pools/gpu/members", &json!(["a", "intruder"]));
        lab.until("/baremetal/pools/gpu/members", |members| *members == json!(["a"])).await;
        if user.get("/api/v1/inventory").await.body.to_string().contains("intruder") {
            break;
        }
        assert!(turn < 100, "a list that was put back is never told");
    }
    lab.etcd.ctl(&["del", "/baremetal/pools/gpu/members"]);
    lab.until("/baremetal/pools/gpu/members", |members| *members == json!(["a"])).await;
    lab.etcd.ctl(&["put", "/baremetal/pools/gpu/members", "garbage"]);
    lab.until("/baremetal/pools/gpu/members", |members| *members == json!(["a"])).await;
    let told = user.until("/api/v1/inventory", |body| events(body, "MembersRestored") >= 1).await;
    assert!(told.to_string().contains("intruder"), "{told}");
    // The pool's settings.
    let cluster = user.cluster("metal").await;
    let spec = json!({"platform": {"type": "baremetal", "baremetal": {"pool": "gpu", "rackSpread": true}},
        "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 2}});
    let pool = user
        .post(&format!("/api/v1/clusters/{cluster}/nodepools"), &json!({"name": "gpu", "spec": spec}))
        .await
        .expect(201)
        .id();
    let path = format!("/api/v1/nodepools/{pool}");
    let key = "/baremetal/pools/gpu/config";
    let config: Value = serde_json::from_str(&lab.etcd.value(key)).unwrap();
    assert_eq!(config["rackSpread"], true, "written with the pool: {config}");
    let mut asked = config.clone();
    asked["policy"]["quarantineAfter"] = json!(7);
    asked["deadlines"] = json!({"bootDeadline": "40m"});
    lab.put(key, &asked);
    let applied = user
        .until(&path, |body| body["spec"]["platform"]["baremetal"]["policy"]["quarantineAfter"] == 7)
        .await;
    assert_eq!(applied["spec"]["platform"]["baremetal"]["deadlines"]["bootDeadline"], "40m");
    assert!(applied["generation"].as_u64().unwrap() > 1);
    lab.put(key, &json!({"policy": {"onUnexpectedOff": "explode"}}));
    let restored = lab.until(key, |config| config["policy"]["quarantineAfter"] == 7).await;
    assert_eq!(restored["rackSpread"], true);
    let told = user.until("/api/v1/inventory", |body| events(body, "ConfigRestored") >= 1).await;
    assert!(events(&told, "ConfigApplied") >= 1, "{told}");
    assert!(told.to_string().contains("policy.onUnexpectedOff"), "{told}");
    // A limit that nothing could keep to, and no settings at all.
    lab.put(key, &json!({"deadlines": {"callTimeout": "0s"}}));
    lab.until(key, |config| config["policy"]["quarantineAfter"] == 7).await;
    user.until("/api/v1/inventory", |body| body.to_string().contains("deadlines.callTimeout")).await;
    lab.etcd.ctl(&["del", key]);
    lab.until(key, |config| config["policy"]["quarantineAfter"] == 7).await;
    user.until("/api/v1/inventory", |body| body.to_string().contains("that a tool deleted were restored"))
        .await;
    // Changes of the pool itself are nobody else's, however fast they come.
    let before = events(&user.get("/api/v1/inventory").await.body, "ConfigRestored");
    for number in 0..20 {
        let patch = json!({"spec": {"platform": {"baremetal": {"policy": {"quarantineAfter": 8 + number}}}}});
        user.patch(&path, &patch).await.expect(200);
    }
    lab.until(key, |config| config["policy"]["quarantineAfter"] == 27).await;
    user.put("/api/v1/inventory/config", &json!({"deadlines": {"callTimeout": "0s"}}))
        .await
        .refused(400, "VALIDATION_ERROR");
    // Settings for all hosts are read live; bad ones leave the last good in force.
    lab.put("/baremetal/global/config", &json!({"highMarkPercent": 85, "energyPriceMicros": 250_000}));
    user.until("/api/v1/inventory", |body| body["config"]["highMarkPercent"] == 85).await;
    lab.put("/baremetal/global/config", &json!({"highMarkPercent": 850}));
    let bad = user.until("/api/v1/inventory", |body| body["config_problem"].is_string()).await;
    assert_eq!(bad["config"]["highMarkPercent"], 85);
    assert_eq!(events(&bad, "ConfigRestored"), before, "{bad}");
    lab.put(
        "/baremetal/global/config",
        &json!({"deadlines": {"callTimeout": "0s"}, "prometheusUrl": "nowhere"}),
    );
    let named = |body: &Value| {
        let why = body["config_problem"].as_str().unwrap_or_default();
        why.contains("deadlines.callTimeout") && why.contains("prometheusUrl")
    };
    assert_eq!(user.until("/api/v1/inventory", named).await["config"]["highMarkPercent"], 85);
    // Figures follow by themselves.
    let stats = lab.until("/baremetal/global/stats", |stats| stats["hosts"] == 1).await;
    assert_eq!((&stats["byState"]["off"], &stats["unmetered"]), (&json!(1), &json!(1)), "{stats}");
}

/// Kim is an admin of `default`, kit of `lab`, and ada of all projects.
#[tokio::test]
async fn a_record_that_is_set_aside_is_still_its_projects() {
    use sha2::Digest as _;
    let etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let people = ["kim", "kit", "ada"];
    let tokens = people.map(|name| hex::encode(sha2::Sha256::digest(format!("{name}-token"))));
    let tokens =
        people.iter().zip(&tokens).map(|(name, sum)| format!("    - {{user: {name}, sha256: {sum}}}\n"));
    let tokens = tokens.collect::<Vec<_>>().concat();
    let config = folder.path().join("muster.yaml");
    let text = format!(
        "auth:\n  mode: token\n  tokens:\n{tokens}  bindings:\n    - {{user: kim, project: default, role: admin}}\n    \
         - {{user: kit, project: lab, role: admin}}\n    - {{user: ada, role: admin}}\n"
    );
    std::fs::write(&config, text).unwrap();
    let store = etcd.store();
    let server = Server::start(folder.path(), &["--store", &store, "--config", config.to_str().unwrap()]);
    let world = World::new(&server.base, "etcd");
    let [kim, kit, ada] =
        people.map(|name| world.with(&[("authorization", format!("Bearer {name}-token").as_str())]));
    kit.post("/api/v1/hosts", &json!({"name": "a", "spec": wol("gpu", 1)})).await.expect(201);
    etcd.ctl(&["put", "/baremetal/nodes/a/spec", "{\"pool\": 7}"]);
    etcd.ctl(&["put", "/baremetal/nodes/b/spec", "not even JSON"]);
    let path = "/api/v1/hosts?set_aside=true";
    let total = |count: u64| move |body: &Value| body["total"] == count;
    assert_eq!(kit.until(path, total(1)).await["hosts"][0]["name"], "a", "whose it was is known");
    ada.until(path, total(2)).await;
    kim.until(path, total(0)).await;
    let good = json!({"spec": wol("gpu", 2)});
    for (who, name) in [(&kim, "a"), (&kim, "b"), (&kit, "b")] {
        let path = format!("/api/v1/hosts/{name}");
        who.get(&path).await.refused(404, "NOT_FOUND");
        who.put(&path, &good).await.refused(404, "NOT_FOUND");
        who.delete(&path).await.refused(404, "NOT_FOUND");
    }
    let mut theirs = good.clone();
    theirs["spec"]["project"] = json!("default");
    kit.put("/api/v1/hosts/a", &theirs).await.refused(400, "VALIDATION_ERROR");
    let mended = kit.put("/api/v1/hosts/a", &good).await.expect(200).body;
    assert_eq!(mended["project"], "lab", "{mended}");
    let mended = ada.put("/api/v1/hosts/b", &json!({"spec": wol("gpu", 3)})).await.expect(200).body;
    assert!(mended["set_aside"].is_null(), "{mended}");
}

/// Seed 004's view of a pool, from records as a host loop writes them.
#[tokio::test]
async fn a_pools_view_follows_its_hosts() {
    let (lab, user) = Lab::without_loops();
    let cluster = user.cluster("metal").await;
    let spec = json!({"platform": {"type": "baremetal", "baremetal": {"pool": "gpu"}},
        "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 2}});
    let pool = user
        .post(&format!("/api/v1/clusters/{cluster}/nodepools"), &json!({"name": "gpu", "spec": spec}))
        .await
        .expect(201)
        .id();
    let path = format!("/api/v1/nodepools/{pool}");
    for (name, last) in [("a", 1), ("b", 2)] {
        let mut spec = wol("gpu", last);
        spec["resources"] = json!({"cpu": "64", "memory": "512Gi", "gpu": 8});
        user.post("/api/v1/hosts", &json!({"name": name, "spec": spec})).await.expect(201);
    }
    let at = "2026-01-01T00:00:00Z";
    let template = user.get("/api/v1/hosts/a").await.expect(200).body["status"].clone();
    let make = |state: &str, phase: &str| {
        let mut status = template.clone();
        status["state"] = json!(state);
        status["phase"] = json!(phase);
        status["powerState"] = json!("on");
        status["nodeReady"] = json!(phase == "serving");
        status
    };
    lab.put("/baremetal/nodes/a/status", &make("ready", "serving"));
    let op = json!({"id": "op-1", "kind": "on", "cause": {"kind": "intent", "intent": "i", "decision": "7"},
        "reason": "a pod waits for 8 GPUs", "epoch": 1, "started": at});
    lab.put("/baremetal/nodes/b/op", &op);
    lab.put("/baremetal/nodes/b/status", &make("powering-on", "booting"));
    let seen = user
        .until(&path, |body| {
            body["status"]["baremetal"]["readyNodes"] == 1 && body["status"]["baremetal"]["pendingNodes"] == 1
        })
        .await;
    let view = &seen["status"]["baremetal"];
    assert_eq!(
        (&view["availableResources"]["gpu"], &view["pendingResources"]["gpu"]),
        (&json!(8), &json!(8)),
        "{view}"
    );
    let scaling = &view["scalingNodes"][0];
    assert_eq!(
        (&scaling["action"], &scaling["state"]),
        (&json!("scale-up"), &json!("in-progress")),
        "{view}"
    );
    assert_eq!(scaling["reason"], "a pod waits for 8 GPUs");
    // It is done: the entry stays for an hour.
    lab.put("/baremetal/nodes/b/status", &make("ready", "serving"));
    lab.etcd.ctl(&["del", "/baremetal/nodes/b/op"]);
    let seen = user.until(&path, |body| body["status"]["baremetal"]["readyNodes"] == 2).await;
    let done = user
        .until(&path, |body| body["status"]["baremetal"]["scalingNodes"][0]["state"] == "completed")
        .await;
    assert_eq!(done["resource_version"], seen["resource_version"], "a status does not touch the version");
}

const CANARY: &str = "canary-0815-swordfish";

/// OPS-R19, the part at rest: a password is in no key, no file and no export of the store.
#[tokio::test]
async fn a_password_is_nowhere_in_the_clear() {
    let (lab, user) = Lab::start();
    let body = json!({"name": "rack-a", "spec": {"user": "root", "password": CANARY}});
    user.post("/api/v1/credentials", &body).await.expect(201);
    user.post("/api/v1/credentials/rack-a/rotate", &body).await.expect(200);
    let dump = lab.etcd.ctl(&["get", "/", "--prefix"]);
    assert!(dump.contains("/muster/inventory/credentials/"), "{dump}");
    let export = reqwest::Client::new()
        .get(format!("{}/api/v1/store/export", lab.server.base))
        .header("x-user-email", "ops@example.com");
    let export = export.send().await.unwrap().error_for_status().unwrap().text().await.unwrap();
    assert!(export.contains("/muster/inventory/credentials/"), "{export}");
    let encoded = base64_of(CANARY);
    for hidden in [CANARY, encoded.as_str(), "swordfish"] {
        assert!(!dump.contains(hidden), "the store holds {hidden}");
        assert!(!export.contains(hidden), "an export holds {hidden}");
    }
    let mut files = vec![lab.folder.path().to_path_buf()];
    let mut read = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let content = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&content);
            assert!(!text.contains("swordfish"), "{} holds it", path.display());
            read += 1;
        }
    }
    assert!(read >= 2, "the key and the audit log were looked at");
    let audit = std::fs::read_to_string(lab.folder.path().join("audit/audit.jsonl")).unwrap();
    assert!(audit.contains("credentials/rack-a") && audit.contains("\"rotate\""), "{audit}");
    let mode = std::fs::metadata(lab.folder.path().join("credentials.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

fn base64_of(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            out.push(char::from(DIGITS[usize::try_from(bits >> (18 - 6 * place) & 63).unwrap()]));
        }
    }
    out
}
