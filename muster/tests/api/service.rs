//! What the service does around its objects: freezing, the audit log, exports, retired controllers, operations,
//! several servers on one store.

use serde_json::{Value, json};

use crate::{
    faults::until,
    harness::{Caller, Etcd, Server, World, gcp_spec, report, rows},
    status::watched,
};

rows!(
    a_retired_controller_can_be_forgotten,
    a_cluster_rolls_up_its_pools,
    operations_have_pages_states_and_a_watch,
    labels_of_platform_blocks_can_be_selected,
    a_mistyped_machine_type_is_warned_of,
    a_chosen_id_that_is_taken_is_412,
    a_dry_run_says_what_rolls_nodes,
    the_audit_log_is_not_for_everyone,
    ops_r18_nothing_of_another_project_is_seen,
);

async fn a_retired_controller_can_be_forgotten(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let path = format!("nodepools/{pool}");
    user.report(&path, &report("new", 1, ("Available", "True"))).await.expect(200);
    user.report(&path, &report("old", 1, ("Available", "False"))).await.expect(200);
    let phase =
        || async { user.get(&format!("/api/v1/{path}")).await.expect(200).body["status"]["phase"].clone() };
    assert_eq!(phase().await, "Progressing");
    let forget = format!("/api/v1/{path}/status/old");
    user.delete(&format!("{forget}?dryRun=true")).await.expect(204);
    assert_eq!(phase().await, "Progressing");
    world.controller().delete(&forget).await.refused(403, "FORBIDDEN");
    world.user().delete(&forget).await.refused(404, "NOT_FOUND");
    user.delete(&forget).await.expect(204);
    assert_eq!(phase().await, "Ready");
    user.delete(&forget).await.refused(404, "NOT_FOUND");
    let left = user.get(&format!("/api/v1/{path}/status")).await.expect(200).body;
    assert_eq!(left["controller_status"].as_array().map(Vec::len), Some(1));
}

async fn a_cluster_rolls_up_its_pools(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let rollup = || async {
        let body = user.get(&format!("/api/v1/clusters/{cluster}")).await.expect(200).body;
        let listed = user.get("/api/v1/clusters").await.expect(200).body;
        assert_eq!(listed["clusters"][0]["status"]["pools"], body["status"]["pools"]);
        body["status"]["pools"].clone()
    };
    assert_eq!(
        (rollup().await["total"].clone(), rollup().await["ready_nodes"].clone()),
        (json!(0), json!(0))
    );
    let pool = user.pool(&cluster, "a").await;
    user.pool(&cluster, "b").await;
    let found = rollup().await;
    assert_eq!(
        (&found["total"], &found["desired_nodes"], &found["ready_nodes"]),
        (&json!(2), &json!(6), &json!(null))
    );
    let mut ready = report("k", 1, ("Available", "True"));
    ready["metadata"] = json!({"active_nodes": 3, "desired_nodes": 3});
    user.report(&format!("nodepools/{pool}"), &ready).await.expect(200);
    let found = rollup().await;
    assert_eq!(found["by_phase"], json!({"Pending": 1, "Ready": 1}));
    assert_eq!(found["ready_nodes"], json!(null), "one pool has not said");
    user.delete(&format!("/api/v1/nodepools/{pool}?force=true")).await.expect(204);
    assert_eq!(rollup().await["total"], 1);
}

async fn operations_have_pages_states_and_a_watch(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let other = user.pool(&cluster, "q").await;
    for nodes in [4, 5, 6] {
        user.post(&format!("/api/v1/nodepools/{pool}/scale"), &json!({"nodeCount": nodes})).await.expect(202);
    }
    user.post(&format!("/api/v1/nodepools/{other}/scale"), &json!({"nodeCount": 9})).await.expect(202);
    let list = |query: String| {
        let user = user.clone();
        async move { user.get(&format!("/api/v1/operations?{query}")).await.expect(200).body }
    };
    let all = list(format!("nodepool_id={pool}")).await;
    let targets: Vec<&Value> =
        all["operations"].as_array().unwrap().iter().map(|operation| &operation["target_nodes"]).collect();
    assert_eq!((all["total"].clone(), targets), (json!(3), vec![&json!(6), &json!(5), &json!(4)]));
    let first = list(format!("nodepool_id={pool}&limit=2")).await;
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let second = list(format!("nodepool_id={pool}&limit=2&cursor={cursor}")).await;
    assert_eq!(second["operations"][0]["target_nodes"], 4);
    until(|| async { list(format!("nodepool_id={pool}&state=Superseded")).await["total"] == 2 }).await;
    assert_eq!(list(format!("nodepool_id={pool}&state=Running")).await["operations"][0]["target_nodes"], 6);
    user.get("/api/v1/operations?state=Done").await.refused(400, "VALIDATION_ERROR");
    assert_eq!(world.user().get("/api/v1/operations").await.expect(200).body["total"], 0, "others see none");
    // A watch tells how the last one ends.
    let from = list(String::new()).await["revision"].as_str().unwrap().to_owned();
    let mut ready = report("k", 4, ("Available", "True"));
    ready["metadata"] = json!({"active_nodes": 6, "desired_nodes": 6});
    user.report(&format!("nodepools/{pool}"), &ready).await.expect(200);
    let events = crate::status::watched_at(
        &user,
        "/api/v1/operations",
        &format!("nodepool_id={pool}&resource_version={from}"),
        1,
    )
    .await;
    assert_eq!(
        (&events[0]["type"], &events[0]["object"]["state"]),
        (&json!("MODIFIED"), &json!("Succeeded"))
    );
}

async fn labels_of_platform_blocks_can_be_selected(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let mut spec = gcp_spec();
    spec["platform"]["gcp"]["labels"] = json!({"team": "platform"});
    spec["labels"] = json!({"tier": "web"});
    let path = format!("/api/v1/clusters/{cluster}/nodepools");
    user.post(&path, &json!({"name": "labelled", "spec": spec})).await.expect(201);
    user.pool(&cluster, "plain").await;
    for (selector, expected) in
        [("team%3Dplatform", 1), ("team%3Dplatform,tier%3Dweb", 1), ("!team", 1), ("team%3Dx", 0)]
    {
        let body = user.get(&format!("/api/v1/nodepools?labelSelector={selector}")).await.expect(200).body;
        assert_eq!(body["total"], expected, "{selector}");
    }
}

async fn a_mistyped_machine_type_is_warned_of(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let mut spec = gcp_spec();
    spec["platform"]["gcp"]["machineType"] = json!("n1-standrd-4");
    let path = format!("/api/v1/clusters/{cluster}/nodepools");
    let reply = user.post(&path, &json!({"name": "p", "spec": spec})).await.expect(201);
    assert!(reply.header("warning").contains("did you mean n1-standard-4?"), "{}", reply.header("warning"));
    let reply = user.post(&path, &json!({"name": "q", "spec": gcp_spec()})).await.expect(201);
    assert_eq!(reply.header("warning"), "");
}

async fn a_chosen_id_that_is_taken_is_412(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let id = uuid::Uuid::new_v4();
    let path = format!("/api/v1/nodepools/{id}");
    let body = json!({"id": id.to_string(), "name": "p", "cluster_id": cluster, "spec": gcp_spec()});
    let fresh = user.and("if-none-match", "*");
    let made = fresh.put(&path, &body).await.expect(201);
    assert_eq!(made.id(), id.to_string());
    fresh.put(&path, &body).await.refused(412, "PRECONDITION_FAILED");
    let other = json!({"id": uuid::Uuid::new_v4().to_string(), "name": "q", "cluster_id": cluster, "spec": gcp_spec()});
    user.post("/api/v1/nodepools", &other).await.refused(400, "VALIDATION_ERROR");
    // What was read can be sent back as it is.
    let read = user.get(&path).await.expect(200).body;
    assert_eq!(user.put(&path, &read).await.expect(200).body["generation"], 1);
    let cluster_path = format!("/api/v1/clusters/{cluster}");
    let read = user.get(&cluster_path).await.expect(200).body;
    user.put(&cluster_path, &read).await.expect(200);
    fresh
        .put(&cluster_path, &json!({"name": "x", "spec": {"platform": {"type": "gcp"}}}))
        .await
        .refused(412, "PRECONDITION_FAILED");
}

async fn a_dry_run_says_what_rolls_nodes(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    let patch = json!({"spec": {"nodeCount": 4, "platform": {"gcp": {"machineType": "n1-standard-8"}}}});
    let changes =
        user.patch(&format!("{path}?dryRun=true"), &patch).await.expect(200).body["changes"].clone();
    let mut found: Vec<(&str, &str)> = changes
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["path"].as_str().unwrap(), change["effect"].as_str().unwrap()))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [("spec.nodeCount", "in-place"), ("spec.platform.gcp.machineType", "rolls")]);
    let body = user.patch(&path, &patch).await.expect(200).body;
    assert!(body["changes"].is_null(), "only a dry run says so");
}

async fn the_audit_log_is_not_for_everyone(world: World) {
    let user = world.user();
    user.cluster("c").await;
    let lines = user.get("/api/v1/audit").await.expect(200).body["lines"].clone();
    assert_eq!((lines.as_array().map(Vec::len), &lines[0]["verb"]), (Some(1), &json!("create")));
    assert_eq!(
        world.user().get("/api/v1/audit").await.expect(200).body["lines"],
        json!([]),
        "others see none of it"
    );
    world.controller().get("/api/v1/audit").await.refused(403, "FORBIDDEN");
    world.controller().get("/api/v1/audit/verify").await.refused(403, "FORBIDDEN");
}

/// Settings of a small site with tokens: an admin and an operator of one project, an auditor and an admin of all.
const SITE: &str = r#"
auth:
  mode: token
  tokens:
    - { user: admin@example.com, sha256: "ADMIN" }
    - { user: operator@example.com, sha256: "OPERATOR" }
    - { user: auditor@example.com, sha256: "AUDITOR" }
    - { user: root@example.com, sha256: "ROOT" }
  bindings:
    - { user: admin@example.com, project: team, role: admin }
    - { user: operator@example.com, project: team, role: operator }
    - { user: auditor@example.com, role: auditor }
    - { user: root@example.com, role: admin }
"#;

/// A server with the settings above, and callers by their tokens.
fn site() -> (tempfile::TempDir, Server, impl Fn(&str) -> Caller) {
    use sha2::Digest;
    let directory = tempfile::tempdir().unwrap();
    let mut text = SITE.to_owned();
    for name in ["ADMIN", "OPERATOR", "AUDITOR", "ROOT"] {
        let digest = sha2::Sha256::digest(name.to_lowercase().as_bytes());
        text = text.replace(&format!("\"{name}\""), &format!("\"{}\"", hex::encode(digest)));
    }
    let config = directory.path().join("muster.yaml");
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&directory.path().join("data"), &["--config", config.to_str().unwrap()]);
    let world = World::new(&server.base, "site");
    let caller = move |token: &str| world.with(&[("authorization", &format!("Bearer {token}"))]);
    (directory, server, caller)
}

#[tokio::test]
async fn settings_of_all_hosts_are_changed_as_they_were_read_and_denied_tables_are_written_down() {
    let (_directory, _server, caller) = site();
    let (operator, auditor, root) = (caller("operator"), caller("auditor"), caller("root"));
    let path = "/api/v1/inventory/config";
    let starts = |most: u32| json!({ "maxStartsPerSecond": most });
    let kept = root.and("if-match", "\"0\"").put(path, &starts(3)).await.expect(200);
    let first = kept.header("etag").to_owned();
    assert_eq!(first, format!("\"{}\"", kept.body["revision"].as_str().unwrap()));
    // The index that answers reads is a moment behind.
    root.until("/api/v1/inventory", |body| body["config"]["maxStartsPerSecond"] == 3).await;
    assert_eq!(root.get("/api/v1/inventory").await.expect(200).header("etag"), first);
    root.and("if-match", &first).put(path, &starts(4)).await.expect(200);
    root.and("if-match", &first).put(path, &starts(5)).await.refused(412, "PRECONDITION_FAILED");
    root.until("/api/v1/inventory", |body| body["config"]["maxStartsPerSecond"] == 4).await;

    let table = "name,powerInterface,mgmtAddress,pool\na,redfish,10.0.0.1,p\n".to_owned();
    let refused = operator.raw("POST", "/api/v1/hosts/bulk", "text/csv", table).await;
    refused.refused(403, "FORBIDDEN");
    let log = auditor.get("/api/v1/audit?outcome=denied").await.expect(200).body;
    let line = &log["lines"][0];
    assert_eq!((&line["verb"], &line["object"]), (&json!("create"), &json!("hosts")), "{log}");
}

#[tokio::test]
async fn operators_enable_and_auditors_read() {
    let (_directory, _server, caller) = site();
    let (admin, operator, auditor, root) =
        (caller("admin"), caller("operator"), caller("auditor"), caller("root"));
    let cluster = admin.cluster("c").await;
    let path = format!("/api/v1/clusters/{cluster}");
    let enabled = operator.patch(&path, &json!({"spec": {"mode": "active"}})).await.expect(200);
    assert_eq!(enabled.body["spec"]["mode"], "active");
    operator.patch(&path, &json!({"spec": {"mode": "advise"}, "name": "x"})).await.refused(403, "FORBIDDEN");
    operator.patch(&path, &json!({"spec": {"infraID": "x"}})).await.refused(403, "FORBIDDEN");
    // The log, newest first, with filters and pages.
    let log = auditor.get("/api/v1/audit").await.expect(200).body;
    let verbs: Vec<&str> =
        log["lines"].as_array().unwrap().iter().map(|line| line["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs, ["patch", "patch", "patch", "create"]);
    let denied =
        auditor.get("/api/v1/audit?outcome=denied&actor=operator@example.com").await.expect(200).body;
    assert_eq!(denied["lines"].as_array().map(Vec::len), Some(2));
    let first = auditor.get("/api/v1/audit?limit=3").await.expect(200).body;
    let next = first["next_cursor"].as_str().expect("there is more");
    let rest = auditor.get(&format!("/api/v1/audit?limit=3&cursor={next}")).await.expect(200).body;
    assert_eq!((&rest["lines"][0]["verb"], rest["next_cursor"].is_null()), (&json!("create"), true));
    let verdict = auditor.get("/api/v1/audit/verify").await.expect(200).body;
    assert_eq!((&verdict["lines"], &verdict["findings"]), (&json!(4), &json!([])));
    admin.get("/api/v1/audit").await.refused(403, "FORBIDDEN");
    auditor.get("/api/v1/audit?outcome=don").await.refused(400, "VALIDATION_ERROR");
    // Freezing and exporting concern all projects.
    let frozen = json!({"mode": "frozen", "reason": "a test"});
    for nobody in [&admin, &operator, &auditor] {
        nobody.put("/api/v1/freeze", &frozen).await.refused(403, "FORBIDDEN");
        nobody.get("/api/v1/store/export").await.refused(403, "FORBIDDEN");
    }
    assert_eq!(root.put("/api/v1/freeze", &frozen).await.expect(200).body["by"], "root@example.com");
    assert_eq!(operator.get("/api/v1/freeze").await.expect(200).body["may_act"], false);
}

#[tokio::test]
async fn a_freeze_is_shown_everywhere_and_lifted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let user = World::new(&server.base, "frozen").user();
    let cluster = user.cluster("c").await;
    let scale = format!("/api/v1/nodepools/{}/scale", user.pool(&cluster, "p").await);
    assert_eq!(user.get("/api/v1/freeze").await.expect(200).body["mode"], "none");
    for wrong in
        [json!({}), json!({"mode": "cold"}), json!({"mode": "frozen"}), json!({"mode": "none", "x": 1})]
    {
        user.put("/api/v1/freeze", &wrong).await.refused(400, "VALIDATION_ERROR");
    }
    user.put("/api/v1/freeze", &json!({"mode": "frozen", "reason": "storm"})).await.expect(200);
    assert_eq!(user.get("/readyz").await.expect(200).body["freeze"], "frozen");
    let reply = user.post(&scale, &json!({"nodeCount": 4})).await.expect(202);
    assert!(reply.header("warning").contains("storm"), "{}", reply.header("warning"));
    let metrics = user.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("muster_frozen 1"), "the alert needs it");
    user.put("/api/v1/freeze", &json!({"mode": "none"})).await.expect(200);
    assert_eq!(user.get("/readyz").await.expect(200).body["freeze"], "none");
    assert_eq!(user.post(&scale, &json!({"nodeCount": 5})).await.expect(202).header("warning"), "");
}

/// OPS-R13: what was restored from something older acts on nothing until the world was observed again.
/// `store` says where it is restored to.
async fn a_restored_store_is_frozen_until_the_world_was_observed(store: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let (old, new, export) =
        (directory.path().join("old"), directory.path().join("new"), directory.path().join("export.jsonl"));
    let server = Server::start(&old, &[]);
    let user = World::new(&server.base, "restored").user();
    let cluster = user.cluster("c").await;
    let pool = format!("nodepools/{}", user.pool(&cluster, "p").await);
    user.report(&pool, &report("k", 1, ("Available", "True"))).await.expect(200);
    // Exported while it serves; changes go on meanwhile.
    let text = user.request("GET", "/api/v1/store/export").send().await.unwrap().text().await.unwrap();
    assert!(
        text.starts_with("{\"muster_export\":1") && text.trim_end().contains("\"end\":true"),
        "{text:.200}"
    );
    std::fs::write(&export, &text).unwrap();
    drop(server);
    let import = std::process::Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["store", "import", export.to_str().unwrap(), "--data-dir", new.to_str().unwrap()])
        .args(store)
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    let server = Server::start(&new, store);
    let mut user = user.clone();
    user.world = World::new(&server.base, "restored");
    let state = user.get("/api/v1/freeze").await.expect(200).body;
    assert_eq!(
        (&state["mode"], &state["may_act"], &state["waiting"]["count"]),
        (&json!("frozen"), &json!(false), &json!(1))
    );
    assert_eq!(user.get("/readyz").await.expect(200).body["restored"], true);
    user.report(&pool, &report("k", 1, ("Available", "True"))).await.expect(200);
    until(|| async { user.get("/api/v1/freeze").await.expect(200).body["may_act"] == true }).await;
    // Probes are told what was known a moment ago.
    until(|| async { user.get("/readyz").await.expect(200).body["restored"] == false }).await;
}

#[tokio::test]
async fn ops_r13_a_restored_embedded_store_is_frozen_until_the_world_was_observed() {
    a_restored_store_is_frozen_until_the_world_was_observed(&[]).await;
}

#[tokio::test]
async fn ops_r13_a_restored_etcd_is_frozen_until_the_world_was_observed() {
    let etcd = Etcd::start();
    a_restored_store_is_frozen_until_the_world_was_observed(&["--store", &etcd.store()]).await;
}

/// OPS-R13: an etcd that is behind what the audit log has seen of it is another one, or an older one.
#[tokio::test]
async fn ops_r13_an_etcd_that_went_back_is_frozen() {
    let (before, after) = (Etcd::start(), Etcd::start());
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(data.path(), &["--store", &before.store()]);
    let user = World::new(&server.base, "back").user();
    let cluster = user.cluster("c").await;
    for number in 0..40 {
        user.pool(&cluster, &format!("p{number}")).await;
    }
    drop(server);
    // The one to go back to: with a cluster in it, and not as far.
    let server = Server::start(other.path(), &["--store", &after.store()]);
    World::new(&server.base, "back").user().cluster("c").await;
    drop(server);
    let server = Server::start(data.path(), &["--store", &after.store()]);
    let user = World::new(&server.base, "back").user();
    let state = user.get("/api/v1/freeze").await.expect(200).body;
    assert_eq!((&state["mode"], &state["may_act"]), (&json!("frozen"), &json!(false)), "{state}");
    assert!(state["reason"].as_str().unwrap().contains("had reached"), "{state}");
}

/// OPS-R18: what belongs to others is not there: not by id, not in lists, counts, watches or the audit log.
async fn ops_r18_nothing_of_another_project_is_seen(world: World) {
    let (ada, bob) = (world.user(), world.user());
    let cluster = ada.cluster("c").await;
    let pool = ada.pool(&cluster, "p").await;
    let scaled =
        ada.post(&format!("/api/v1/nodepools/{pool}/scale"), &json!({"nodeCount": 4})).await.expect(202);
    let project = ada.get("/api/v1/whoami").await.expect(200).body["project"].as_str().unwrap().to_owned();
    for list in [
        "clusters".to_owned(),
        "nodepools".to_owned(),
        "operations".to_owned(),
        format!("nodepools?clusterId={cluster}"),
        "nodepools?labelSelector=!none".to_owned(),
        format!("nodepools?fieldSelector=project%3D{project}"),
        format!("operations?nodepool_id={pool}"),
        "nodepools?include_deleted=true".to_owned(),
    ] {
        let seen = bob.get(&format!("/api/v1/{list}")).await.expect(200).body;
        assert_eq!(seen["total"], 0, "{list}: {seen}");
    }
    let (pool_path, cluster_path) = (format!("nodepools/{pool}"), format!("clusters/{cluster}"));
    let operation = format!("operations/{}", scaled.id());
    for path in [&pool_path, &cluster_path, &operation] {
        bob.get(&format!("/api/v1/{path}")).await.refused(404, "NOT_FOUND");
    }
    for path in [&pool_path, &cluster_path] {
        let path = format!("/api/v1/{path}");
        bob.get(&format!("{path}/status")).await.refused(404, "NOT_FOUND");
        bob.put(&path, &json!({"spec": gcp_spec()})).await.refused(404, "NOT_FOUND");
        bob.patch(&path, &json!({"name": "mine"})).await.refused(404, "NOT_FOUND");
        bob.delete(&path).await.refused(404, "NOT_FOUND");
    }
    bob.get(&format!("/api/v1/{cluster_path}/nodepools")).await.refused(404, "NOT_FOUND");
    let body = json!({"name": "q", "spec": gcp_spec()});
    bob.post(&format!("/api/v1/{cluster_path}/nodepools"), &body).await.refused(404, "NOT_FOUND");
    bob.post(&format!("/api/v1/{pool_path}/scale"), &json!({"nodeCount": 1})).await.refused(404, "NOT_FOUND");
    bob.and("x-muster-project", &project).get("/api/v1/nodepools").await.refused(403, "FORBIDDEN");
    // An unknown cluster and somebody else's answer alike.
    let unknown =
        json!({"name": "q", "cluster_id": "11111111-1111-4111-8111-111111111111", "spec": gcp_spec()});
    let others = json!({"name": "q", "cluster_id": cluster, "spec": gcp_spec()});
    let (a, b) =
        (bob.post("/api/v1/nodepools", &unknown).await, bob.post("/api/v1/nodepools", &others).await);
    assert_eq!((a.status, &a.body["error"]["message"]), (b.status, &b.body["error"]["message"]));
    assert_eq!(ada.get(&format!("/api/v1/{pool_path}")).await.expect(200).body["name"], "p", "unharmed");
}

/// OPS-R13: an older copy of the files is noticed by what the audit log has seen.
#[tokio::test]
async fn ops_r13_a_store_that_went_back_is_frozen() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &[]);
    let user = World::new(&server.base, "back").user();
    let cluster = user.cluster("c").await;
    let pool = format!("nodepools/{}", user.pool(&cluster, "p").await);
    user.report(&pool, &report("k", 1, ("Available", "True"))).await.expect(200);
    drop(server);
    let copy = directory.path().join("copy");
    let files = |from: &std::path::Path, to: &std::path::Path| {
        let done = std::process::Command::new("cp").args(["-a"]).arg(from).arg(to).status().unwrap();
        assert!(done.success());
    };
    files(&data.join("store"), &copy);
    let server = Server::start(&data, &[]);
    let mut user = user.clone();
    user.world = World::new(&server.base, "back");
    for name in ["q", "r", "s"] {
        user.pool(&cluster, name).await;
    }
    drop(server);
    std::fs::remove_dir_all(data.join("store")).unwrap();
    files(&copy, &data.join("store"));
    let server = Server::start(&data, &[]);
    user.world = World::new(&server.base, "back");
    let state = user.get("/api/v1/freeze").await.expect(200).body;
    assert_eq!(state["mode"], "frozen", "{state}");
    assert!(state["reason"].as_str().unwrap().contains("had reached"), "{state}");
    user.put("/api/v1/freeze", &json!({"mode": "none"})).await.expect(200);
    assert_eq!(user.get("/api/v1/freeze").await.expect(200).body["may_act"], true);
}

/// Two servers on one etcd: what one writes, the other lists, watches and compares with.
#[tokio::test]
async fn two_servers_on_one_etcd_are_one_service() {
    let etcd = Etcd::start();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = [0, 1].map(|index| Server::start(directories[index].path(), &["--store", &etcd.store()]));
    let here = World::new(&servers[0].base, "here").named("both@example.com");
    let there = World::new(&servers[1].base, "there").named("both@example.com");
    let cluster = here.cluster("c").await;
    let from = there.get("/api/v1/nodepools").await.expect(200).body["revision"].as_str().unwrap().to_owned();
    let pool = here.pool(&cluster, "p").await;
    let events = watched(&there, &format!("resource_version={from}"), 1).await;
    assert_eq!((&events[0]["type"], &events[0]["object"]["id"]), (&json!("ADDED"), &json!(pool)));
    // A version read there, changed here, is stale there.
    let path = format!("/api/v1/nodepools/{pool}");
    let tag = there.get(&path).await.expect(200).header("etag").to_owned();
    here.patch(&path, &json!({"spec": {"nodeCount": 4}})).await.expect(200);
    there
        .and("if-match", &tag)
        .patch(&path, &json!({"spec": {"nodeCount": 9}}))
        .await
        .refused(412, "PRECONDITION_FAILED");
    assert_eq!(there.get(&path).await.expect(200).body["spec"]["nodeCount"], 4);
    // One name, both sides at once: one wins.
    let body = json!({"name": "same", "spec": gcp_spec()});
    let create = format!("/api/v1/clusters/{cluster}/nodepools");
    let (a, b) = tokio::join!(here.post(&create, &body), there.post(&create, &body));
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
}

#[tokio::test]
async fn api_n75_etcd_lists_are_503_once_the_store_is_gone() {
    let etcd = Etcd::start();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--store", &etcd.store()]);
    let user = World::new(&server.base, "dead-list").user();
    user.cluster("c").await;
    drop(etcd);
    until(|| async { user.get("/api/v1/nodepools").await.status == 503 }).await;
    user.get("/api/v1/clusters").await.refused(503, "UNAVAILABLE");
    user.get("/api/v1/nodepools?watch=true").await.refused(503, "UNAVAILABLE");
    user.get("/livez").await.expect(200);
}
