//! API-N rows about reports and what follows from them.

use serde_json::{Value, json};

use crate::harness::{Caller, World, report, rows, set};

rows!(
    api_n59_a_report_from_the_future,
    api_n61_reports_that_are_refused,
    api_n62_ready_alone_is_enough,
    api_n63_a_lagging_controller_counts,
    api_n65_a_fatal_error_fails_at_once,
    api_n67_a_changed_spec_is_not_ready,
    api_n68_reports_on_what_is_gone,
    deletion_waits_for_controllers,
    watches_deliver_in_order_and_resume,
);

async fn pool(world: &World) -> (Caller, String) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    (user, format!("nodepools/{pool}"))
}

async fn phase(user: &Caller, path: &str) -> Value {
    user.get(&format!("/api/v1/{path}")).await.expect(200).body["status"]["phase"].clone()
}

async fn api_n59_a_report_from_the_future(world: World) {
    let (user, path) = pool(&world).await;
    user.report(&path, &report("k", 2, ("Available", "True"))).await.refused(409, "CONFLICT");
    assert_eq!(phase(&user, &path).await, "Pending");
}

async fn api_n61_reports_that_are_refused(world: World) {
    let (user, path) = pool(&world).await;
    let good = report("k", 1, ("Available", "True"));
    for bad in [
        set(good.clone(), "/conditions", Value::Null),
        report("k", 1, ("Available", "Yes")),
        set(
            good.clone(),
            "/conditions",
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": "yesterday"}]),
        ),
        set(good, "/metadata", json!({"big": "x".repeat((1 << 20) - 2_000)})),
    ] {
        user.report(&path, &bad).await.refused(400, "VALIDATION_ERROR");
    }
}

async fn api_n62_ready_alone_is_enough(world: World) {
    let (user, path) = pool(&world).await;
    user.report(&path, &report("k", 1, ("Ready", "True"))).await.expect(200);
    assert_eq!(phase(&user, &path).await, "Ready");
}

async fn api_n63_a_lagging_controller_counts(world: World) {
    let (user, path) = pool(&world).await;
    for controller in ["a", "b"] {
        user.report(&path, &report(controller, 1, ("Available", "True"))).await.expect(200);
    }
    user.patch(&format!("/api/v1/{path}"), &json!({"spec": {"nodeCount": 4}})).await.expect(200);
    user.report(&path, &report("a", 2, ("Available", "True"))).await.expect(200);
    assert_eq!(phase(&user, &path).await, "Progressing");
    user.report(&path, &report("b", 2, ("Available", "True"))).await.expect(200);
    assert_eq!(phase(&user, &path).await, "Ready");
}

async fn api_n65_a_fatal_error_fails_at_once(world: World) {
    let (user, path) = pool(&world).await;
    let failing = |kind: &str| {
        let body = report("k", 1, ("Available", "False"));
        set(body, "/last_error", json!({"errorType": kind, "message": "no quota"}))
    };
    user.report(&path, &failing("Transient")).await.expect(200);
    assert_eq!(phase(&user, &path).await, "Progressing");
    user.report(&path, &failing("Fatal")).await.expect(200);
    assert_eq!(phase(&user, &path).await, "Failed");
}

async fn api_n67_a_changed_spec_is_not_ready(world: World) {
    let (user, path) = pool(&world).await;
    user.report(&path, &report("k", 1, ("Available", "True"))).await.expect(200);
    assert_eq!(phase(&user, &path).await, "Ready");
    let reply = user.patch(&format!("/api/v1/{path}"), &json!({"spec": {"nodeCount": 4}})).await.expect(200);
    for body in [reply.body, user.get(&format!("/api/v1/{path}")).await.expect(200).body] {
        assert_eq!(body["status"]["phase"], "Progressing");
        assert!(body["status"]["observed_generation"].as_u64() < body["generation"].as_u64());
    }
}

async fn api_n68_reports_on_what_is_gone(world: World) {
    let (user, path) = pool(&world).await;
    let good = report("k", 1, ("Available", "True"));
    user.report(&path, &good).await.expect(200);
    user.delete(&format!("/api/v1/{path}")).await.expect(204);
    user.report(&path, &good).await.expect(200); // it is being torn down: controllers still speak
    let gone = report("k", 1, ("Deleted", "True"));
    user.report(&path, &gone).await.expect(200);
    user.report(&path, &good).await.refused(404, "NOT_FOUND");
    user.report("nodepools/11111111-1111-4111-8111-111111111111", &good).await.refused(404, "NOT_FOUND");
}

async fn deletion_waits_for_controllers(world: World) {
    let (user, path) = pool(&world).await;
    let path_of = format!("/api/v1/{path}");
    user.report(&path, &report("k", 1, ("Available", "True"))).await.expect(200);
    user.delete(&path_of).await.expect(204);
    user.get(&path_of).await.refused(404, "NOT_FOUND");
    let shown = user.get(&format!("{path_of}?include_deleted=true")).await.expect(200).body;
    assert_eq!(shown["status"]["phase"], "Deleting");
    assert_eq!(world.controller().get(&path_of).await.expect(200).body["status"]["phase"], "Deleting");
    assert_eq!(user.get("/api/v1/nodepools").await.expect(200).body["total"], 0);
    assert_eq!(user.get("/api/v1/nodepools?include_deleted=true").await.expect(200).body["total"], 1);
    user.report(&path, &report("k", 1, ("Deleted", "True"))).await.expect(200);
    world.controller().get(&path_of).await.refused(404, "NOT_FOUND");
}

/// Reads lines of a watch until there are as many that are no bookmarks.
pub(crate) async fn watched(user: &Caller, query: &str, count: usize) -> Vec<Value> {
    watched_at(user, "/api/v1/nodepools", query, count).await
}

/// The first events of a watch on any collection.
pub(crate) async fn watched_at(user: &Caller, path: &str, query: &str, count: usize) -> Vec<Value> {
    let request = user.request("GET", &format!("{path}?watch=true&{query}"));
    let mut response = request.send().await.expect("the watch opens");
    assert_eq!(response.status().as_u16(), 200);
    let (mut text, mut found) = (Vec::new(), Vec::new());
    while found.len() < count {
        let chunk = response.chunk().await.expect("the watch goes on").expect("the watch has not ended");
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(&text[..end]).expect("one document per line");
            text.drain(..=end);
            if line["type"] != "BOOKMARK" {
                found.push(line);
            }
        }
    }
    found
}

async fn watches_deliver_in_order_and_resume(world: World) {
    let (user, path) = pool(&world).await;
    let start = user.get("/api/v1/nodepools").await.expect(200).body["revision"].as_str().unwrap().to_owned();
    user.patch(&format!("/api/v1/{path}"), &json!({"spec": {"nodeCount": 4}})).await.expect(200);
    user.report(&path, &report("k", 2, ("Available", "True"))).await.expect(200);
    user.delete(&format!("/api/v1/{path}?force=true")).await.expect(204);
    let events = watched(&user, &format!("resource_version={start}"), 3).await;
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["MODIFIED", "MODIFIED", "DELETED"]);
    assert_eq!(events[0]["object"]["spec"]["nodeCount"], 4);
    assert_eq!(events[1]["object"]["status"]["phase"], "Ready");
    let revisions: Vec<u64> =
        events.iter().map(|e| e["revision"].as_str().unwrap().parse().unwrap()).collect();
    assert!(revisions.is_sorted(), "{revisions:?}");
    let rest = watched(&user, &format!("resource_version={}", revisions[1]), 1).await;
    assert_eq!(rest[0], events[2]);
    user.get("/api/v1/nodepools?watch=true&resource_version=999999999999").await.refused(410, "GONE");
}
