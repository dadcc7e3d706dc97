//! API-N rows about lists, filters, paths and methods.

use serde_json::{Value, json};

use crate::harness::{World, report, rows};

rows!(
    api_n8_empty_lists_are_lists,
    api_n50_wrong_methods_name_the_right_ones,
    api_n52_limits_and_offsets_are_checked,
    api_n53_an_offset_beyond_the_end,
    api_n55_the_order_is_stable,
    api_n56_filters_match_exactly_and_are_counted,
    api_n58_odd_paths_are_not_redirected,
    cursors_label_and_field_selectors,
);

async fn api_n8_empty_lists_are_lists(world: World) {
    let user = world.user();
    assert_eq!(user.get("/api/v1/nodepools").await.expect(200).body["nodepools"], json!([]));
    let cluster = user.cluster("c").await;
    let body = user.get(&format!("/api/v1/clusters/{cluster}/nodepools")).await.expect(200).body;
    assert_eq!(body["nodepools"], json!([]));
    let pool = user.pool(&cluster, "p").await;
    let body = user.get(&format!("/api/v1/nodepools/{pool}/status")).await.expect(200).body;
    assert_eq!(body["controller_status"], json!([]));
}

async fn api_n50_wrong_methods_name_the_right_ones(world: World) {
    let user = world.user();
    let id = "11111111-1111-4111-8111-111111111111";
    for (method, path, allowed) in [
        ("PATCH", "/api/v1/nodepools".to_owned(), "GET"),
        ("DELETE", "/api/v1/nodepools".to_owned(), "POST"),
        ("POST", format!("/api/v1/nodepools/{id}"), "PATCH"),
        ("DELETE", format!("/api/v1/nodepools/{id}/status"), "PUT"),
        ("GET", format!("/api/v1/nodepools/{id}/scale"), "POST"),
    ] {
        let reply = user.send(user.request(method, &path)).await.refused(405, "METHOD_NOT_ALLOWED");
        assert!(reply.header("allow").contains(allowed), "{method} {path}: {}", reply.header("allow"));
    }
}

async fn api_n52_limits_and_offsets_are_checked(world: World) {
    let user = world.user();
    for query in
        ["limit=0", "limit=-1", "limit=101", "limit=abc", "limit=1e2", "offset=-1", "offset=abc", "limt=5"]
    {
        user.get(&format!("/api/v1/nodepools?{query}")).await.refused(400, "VALIDATION_ERROR");
        user.get(&format!("/api/v1/clusters?{query}")).await.refused(400, "VALIDATION_ERROR");
    }
}

async fn api_n53_an_offset_beyond_the_end(world: World) {
    let user = world.user();
    user.cluster("c").await;
    let body = user.get("/api/v1/clusters?offset=7").await.expect(200).body;
    assert_eq!((&body["clusters"], &body["total"]), (&json!([]), &json!(1)));
}

async fn api_n55_the_order_is_stable(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let body = |number: usize| json!({"name": format!("p{number}"), "spec": {"platform": {"type": "gcp", "gcp": {}}}});
    let path = format!("/api/v1/clusters/{cluster}/nodepools");
    let bodies: Vec<Value> = (0..12).map(body).collect();
    let all = bodies.iter().map(|body| user.post(&path, body));
    for reply in futures_join(all).await {
        reply.expect(201);
    }
    let order = |body: &Value| {
        body["nodepools"].as_array().unwrap().iter().map(|p| p["id"].to_string()).collect::<Vec<_>>()
    };
    let first = order(&user.get("/api/v1/nodepools").await.expect(200).body);
    assert_eq!(first.len(), 12);
    for _ in 0..3 {
        assert_eq!(order(&user.get("/api/v1/nodepools").await.expect(200).body), first);
    }
}

/// Runs all of them at once.
pub(crate) async fn futures_join<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = all.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, slot) in waiting.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(output) = future.as_mut().poll(context)
            {
                *slot = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

async fn api_n56_filters_match_exactly_and_are_counted(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let ready = user.pool(&cluster, "ready").await;
    user.pool(&cluster, "other").await;
    user.report(&format!("nodepools/{ready}"), &report("k", 1, ("Available", "True"))).await.expect(200);
    for query in ["status=ready", "status=Bogus", "health=healthy", "status="] {
        user.get(&format!("/api/v1/nodepools?{query}")).await.refused(400, "VALIDATION_ERROR");
    }
    for (query, total) in [
        ("health=Healthy", 1),
        ("status=Ready&health=Healthy", 1),
        ("status=Ready&health=Unknown", 0),
        ("status=Pending", 1),
    ] {
        let body = user.get(&format!("/api/v1/nodepools?{query}")).await.expect(200).body;
        assert_eq!(body["total"], total, "{query}");
        assert_eq!(body["nodepools"].as_array().unwrap().len(), usize::try_from(total).unwrap());
    }
}

async fn api_n58_odd_paths_are_not_redirected(world: World) {
    let user = world.user();
    for path in [
        "/api/v1/nodepools/",
        "/api/v1//nodepools",
        "/api/v1/nodepools/%2e%2e",
        "/api/v1/nodepools/a%2fb",
        "/api/v2/nodepools",
    ] {
        user.get(path).await.refused(404, "NOT_FOUND");
        let body = json!({"name": "x"});
        let reply = user.post(path, &body).await;
        assert!([404, 405].contains(&reply.status), "{path}: {}", reply.status);
    }
}

async fn cursors_label_and_field_selectors(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    for number in 0..5 {
        let body = json!({"name": format!("p{number}"), "spec": {"platform": {"type": "gcp", "gcp": {}},
            "labels": {"tier": if number % 2 == 0 { "gpu" } else { "cpu" }}}});
        user.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &body).await.expect(201);
    }
    let (mut seen, mut path) = (Vec::new(), "/api/v1/nodepools?limit=2".to_owned());
    loop {
        let body = user.get(&path).await.expect(200).body;
        assert!(body["revision"].is_string());
        seen.extend(
            body["nodepools"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = body["next_cursor"].as_str() else { break };
        path = format!("/api/v1/nodepools?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ["p4", "p3", "p2", "p1", "p0"]);
    for (query, total) in [
        ("labelSelector=tier%3Dgpu", 3),
        ("labelSelector=tier%20notin%20(gpu)", 2),
        ("fieldSelector=name%3Dp1", 1),
        ("name=p3", 1),
    ] {
        assert_eq!(
            user.get(&format!("/api/v1/nodepools?{query}")).await.expect(200).body["total"],
            total,
            "{query}"
        );
    }
    user.get("/api/v1/nodepools?cursor=made-up").await.refused(400, "VALIDATION_ERROR");
    user.get("/api/v1/nodepools?fieldSelector=colour%3Dred").await.refused(400, "VALIDATION_ERROR");
}
