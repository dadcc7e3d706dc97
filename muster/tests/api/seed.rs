//! API-R1 to API-R25: the seed's requests and their answers.

use serde_json::{Value, json};

use crate::harness::{World, gcp_spec, report, rows};

rows!(
    api_r1_health_needs_no_identity,
    api_r2_an_empty_list,
    api_r3_a_minimal_cluster,
    api_r4_a_new_cluster_is_pending,
    api_r5_a_changed_cluster_has_the_next_generation,
    api_r6_a_report_makes_a_cluster_ready,
    api_r7_a_user_cannot_report,
    api_r8_pages_are_newest_first,
    api_r9_what_is_no_id_is_refused,
    api_r10_what_is_no_json_is_refused,
    api_r11_names_are_unique_for_a_user,
    api_r12_clusters_can_be_deleted,
    api_r13_the_seeds_nested_create,
    api_r14_the_seeds_flat_create,
    api_r15_the_status_filter,
    api_r16_the_nested_list,
    api_r17_reading_a_pool,
    api_r18_the_seeds_replace,
    api_r19_the_seeds_report,
    api_r20_a_pool_without_name,
    api_r21_names_are_unique_in_a_cluster,
    api_r22_deleting_twice,
    api_r23_aggregation,
    api_r24_pages_are_disjoint,
    api_r25_others_objects_are_not_found,
);

async fn api_r1_health_needs_no_identity(world: World) {
    let reply = world.with(&[]).get("/health").await.expect(200);
    assert_eq!(reply.body["status"], "healthy");
}

async fn api_r2_an_empty_list(world: World) {
    let body = world.user().get("/api/v1/clusters").await.expect(200).body;
    assert_eq!(
        (&body["clusters"], &body["total"], &body["limit"], &body["offset"]),
        (&json!([]), &json!(0), &json!(50), &json!(0))
    );
}

async fn api_r3_a_minimal_cluster(world: World) {
    let user = world.user();
    let body = json!({"name": "simple-test-cluster", "spec": {"platform": {"type": "gcp"}}});
    let reply = user.post("/api/v1/clusters", &body).await.expect(201);
    assert_eq!(reply.id().len(), 36);
    assert_eq!(reply.body["generation"], 1);
    assert_eq!(reply.body["created_by"], user.headers[0].1);
    assert_eq!(reply.header("location"), format!("/api/v1/clusters/{}", reply.id()));
}

async fn api_r4_a_new_cluster_is_pending(world: World) {
    let user = world.user();
    let id = user.cluster("c").await;
    let body = user.get(&format!("/api/v1/clusters/{id}")).await.expect(200).body;
    assert_eq!(body["status"]["phase"], "Pending");
    for kind in ["Ready", "Available"] {
        assert_eq!(condition(&body, kind)["status"], "False");
    }
}

fn condition<'v>(body: &'v Value, kind: &str) -> &'v Value {
    let conditions = body["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|condition| condition["type"] == kind).expect("the condition is there")
}

async fn api_r5_a_changed_cluster_has_the_next_generation(world: World) {
    let user = world.user();
    let id = user.cluster("c").await;
    let body = json!({"spec": {"platform": {"type": "gcp", "gcp": {"region": "us-east1"}}}});
    let reply = user.put(&format!("/api/v1/clusters/{id}"), &body).await.expect(200);
    assert_eq!(reply.body["generation"], 2);
    let again = user.put(&format!("/api/v1/clusters/{id}"), &body).await.expect(200);
    assert_eq!(again.body["generation"], 2, "the same spec again is no change");
}

async fn api_r6_a_report_makes_a_cluster_ready(world: World) {
    let user = world.user();
    let id = user.cluster("c").await;
    let body = json!({"spec": {"platform": {"type": "gcp", "gcp": {"region": "us-east1"}}}});
    user.put(&format!("/api/v1/clusters/{id}"), &body).await.expect(200);
    user.report(&format!("clusters/{id}"), &report("example-controller", 2, ("Available", "True")))
        .await
        .expect(200);
    let body = user.get(&format!("/api/v1/clusters/{id}")).await.expect(200).body;
    assert_eq!(
        (&body["status"]["phase"], &body["status"]["observed_generation"]),
        (&json!("Ready"), &json!(2))
    );
}

async fn api_r7_a_user_cannot_report(world: World) {
    let user = world.user();
    let id = user.cluster("c").await;
    let body = report("example-controller", 1, ("Available", "True"));
    user.put(&format!("/api/v1/clusters/{id}/status"), &body).await.refused(403, "FORBIDDEN");
}

async fn api_r8_pages_are_newest_first(world: World) {
    let user = world.user();
    user.cluster("older").await;
    user.cluster("newer").await;
    let body = user.get("/api/v1/clusters?limit=1&offset=0").await.expect(200).body;
    assert_eq!(body["clusters"].as_array().unwrap().len(), 1);
    assert_eq!((&body["total"], &body["clusters"][0]["name"]), (&json!(2), &json!("newer")));
}

async fn api_r9_what_is_no_id_is_refused(world: World) {
    world.user().get("/api/v1/clusters/non-existent-id").await.refused(400, "VALIDATION_ERROR");
}

async fn api_r10_what_is_no_json_is_refused(world: World) {
    let reply =
        world.user().raw("POST", "/api/v1/clusters", "application/json", r#"{"invalid": json}"#).await;
    reply.refused(400, "VALIDATION_ERROR");
}

async fn api_r11_names_are_unique_for_a_user(world: World) {
    let user = world.user();
    user.cluster("same").await;
    let body = json!({"name": "same", "spec": {"platform": {"type": "gcp"}}});
    user.post("/api/v1/clusters", &body).await.refused(409, "CONFLICT");
    world.user().post("/api/v1/clusters", &body).await.expect(201);
}

async fn api_r12_clusters_can_be_deleted(world: World) {
    let user = world.user();
    let pending = user.cluster("pending").await;
    user.delete(&format!("/api/v1/clusters/{pending}")).await.expect(202);
    user.get(&format!("/api/v1/clusters/{pending}")).await.refused(404, "NOT_FOUND");
    let ready = user.cluster("ready").await;
    user.report(&format!("clusters/{ready}"), &report("c", 1, ("Available", "True"))).await.expect(200);
    user.delete(&format!("/api/v1/clusters/{ready}?force=true")).await.expect(202);
    user.get(&format!("/api/v1/clusters/{ready}")).await.refused(404, "NOT_FOUND");
    user.cluster("ready").await;
}

#[track_caller]
fn has_the_seeds_fields(body: &Value) {
    for field in [
        "id",
        "name",
        "cluster_id",
        "generation",
        "resource_version",
        "spec",
        "created_at",
        "updated_at",
        "created_by",
    ] {
        assert!(!body[field].is_null(), "{field} is missing in {body}");
    }
}

async fn api_r13_the_seeds_nested_create(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let body = json!({"name": "worker-pool-1", "cluster_id": cluster, "spec": gcp_spec()});
    let reply = user.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &body).await.expect(201);
    has_the_seeds_fields(&reply.body);
    assert_eq!((&reply.body["spec"], &reply.body["generation"]), (&gcp_spec(), &json!(1)));
}

async fn api_r14_the_seeds_flat_create(world: World) {
    // The seed's workflow, under the seed's ids.
    let user = world.named("user@example.com");
    let body = json!({"name": "production-workers", "cluster_id": "550e8400-e29b-41d4-a716-446655440000",
        "spec": {"platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-4", "diskSize": 100,
            "diskType": "pd-ssd", "zones": ["us-central1-a", "us-central1-b"]}},
            "autoscaling": {"enabled": true, "minNodes": 2, "maxNodes": 10}, "nodeCount": 3}});
    let reply = user.post("/api/v1/nodepools", &body).await.expect(201);
    has_the_seeds_fields(&reply.body);
    assert_eq!(reply.body["spec"], body["spec"]);
    user.get("/api/v1/nodepools/123e4567-e89b-12d3-a456-426614174000/status").await.expect(200);
}

async fn api_r15_the_status_filter(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let ready = user.pool(&cluster, "ready").await;
    user.pool(&cluster, "pending").await;
    user.report(&format!("nodepools/{ready}"), &report("k", 1, ("Available", "True"))).await.expect(200);
    let body = user.get("/api/v1/nodepools?limit=10&status=Ready").await.expect(200).body;
    assert_eq!(
        (&body["limit"], &body["total"], &body["nodepools"][0]["id"]),
        (&json!(10), &json!(1), &json!(ready))
    );
}

async fn api_r16_the_nested_list(world: World) {
    let user = world.user();
    let (a, b) = (user.cluster("a").await, user.cluster("b").await);
    user.pool(&a, "one").await;
    user.pool(&b, "two").await;
    let body = user.get(&format!("/api/v1/clusters/{a}/nodepools")).await.expect(200).body;
    assert_eq!((&body["total"], &body["nodepools"][0]["name"]), (&json!(1), &json!("one")));
    let body = user.get(&format!("/api/v1/nodepools?clusterId={b}")).await.expect(200).body;
    assert_eq!((&body["total"], &body["nodepools"][0]["name"]), (&json!(1), &json!("two")));
}

async fn api_r17_reading_a_pool(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let reply = user.get(&format!("/api/v1/nodepools/{pool}")).await.expect(200);
    assert_eq!(reply.header("etag"), format!("\"{}\"", reply.body["resource_version"].as_str().unwrap()));
    let missing = user.get("/api/v1/nodepools/11111111-1111-4111-8111-111111111111").await;
    assert_eq!(missing.refused(404, "NOT_FOUND").body["error"]["message"], "NodePool not found");
}

async fn api_r18_the_seeds_replace(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "worker-pool-1").await;
    let body = json!({"name": "worker-pool-1-updated", "spec": {"platform": {"type": "gcp",
        "gcp": {"machineType": "n1-standard-8", "diskSize": 200}}, "nodeCount": 5}});
    let reply = user.put(&format!("/api/v1/nodepools/{pool}"), &body).await.expect(200);
    assert_eq!(
        (&reply.body["generation"], &reply.body["spec"], &reply.body["name"]),
        (&json!(2), &body["spec"], &body["name"])
    );
}

async fn api_r19_the_seeds_report(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    user.patch(&format!("/api/v1/nodepools/{pool}"), &json!({"spec": {"nodeCount": 5}})).await.expect(200);
    let body = json!({"controller_name": "gcp-nodepool-controller", "observed_generation": 2,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-10-17T10:30:00Z",
            "reason": "NodesReady", "message": "All nodes are ready and healthy"}],
        "metadata": {"platform": "gcp", "region": "us-central1", "active_nodes": 5, "desired_nodes": 5,
            "node_ages": "2h30m,1h45m,1h15m,45m,30m"}});
    user.report(&format!("nodepools/{pool}"), &body).await.expect(200);
    let answer = user.get(&format!("/api/v1/nodepools/{pool}/status")).await.expect(200).body;
    assert_eq!(answer["nodepool_id"], pool);
    let reports = answer["controller_status"].as_array().unwrap();
    assert_eq!((reports.len(), &reports[0]["observed_generation"]), (1, &json!(2)));
    assert_eq!(reports[0]["metadata"], body["metadata"]);
    assert!(reports[0]["updated_at"].is_string() && reports[0]["last_updated"].is_string());
}

async fn api_r20_a_pool_without_name(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let reply = user.post("/api/v1/nodepools", &json!({"cluster_id": cluster, "spec": gcp_spec()})).await;
    let reply = reply.refused(400, "VALIDATION_ERROR");
    assert_eq!(reply.details(), "nodepool name is required");
}

async fn api_r21_names_are_unique_in_a_cluster(world: World) {
    let user = world.user();
    let (a, b) = (user.cluster("a").await, user.cluster("b").await);
    user.pool(&a, "production-workers").await;
    let body = json!({"name": "production-workers", "spec": gcp_spec()});
    let reply = user.post(&format!("/api/v1/clusters/{a}/nodepools"), &body).await.refused(409, "CONFLICT");
    assert_eq!(
        reply.body["error"]["message"],
        "NodePool with name 'production-workers' already exists in cluster"
    );
    user.pool(&b, "production-workers").await;
}

async fn api_r22_deleting_twice(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let reply = user.delete(&format!("/api/v1/nodepools/{pool}")).await.expect(204);
    assert!(reply.body.is_null());
    user.delete(&format!("/api/v1/nodepools/{pool}")).await.refused(404, "NOT_FOUND");
    user.pool(&cluster, "p").await;
}

async fn api_r23_aggregation(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let path = format!("nodepools/{pool}");
    let status = || async { user.get(&format!("/api/v1/{path}")).await.expect(200).body["status"].clone() };
    assert_eq!(status().await["phase"], "Pending");
    user.report(&path, &report("a", 1, ("Available", "True"))).await.expect(200);
    assert_eq!(status().await["phase"], "Ready");
    user.report(&path, &report("b", 1, ("Available", "False"))).await.expect(200);
    let partly = status().await;
    assert_eq!((&partly["phase"], &partly["reason"]), (&json!("Progressing"), &json!("PartialProgress")));
    let mut failing = report("b", 1, ("Available", "False"));
    failing["last_error"] = json!({"errorType": "Transient", "message": "quota"});
    user.report(&path, &failing).await.expect(200);
    let failed = status().await;
    assert_eq!(
        (&failed["phase"], &failed["reason"]),
        (&json!("Progressing"), &json!("ControllersWithErrors"))
    );
}

async fn api_r24_pages_are_disjoint(world: World) {
    let user = world.user();
    for name in ["a", "b", "c", "d", "e"] {
        user.cluster(name).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    for (offset, expected) in [(0, 2), (2, 2), (4, 1)] {
        let body = user.get(&format!("/api/v1/clusters?limit=2&offset={offset}")).await.expect(200).body;
        let items = body["clusters"].as_array().unwrap();
        assert_eq!((items.len(), &body["total"]), (expected, &json!(5)));
        assert!(items.iter().all(|item| seen.insert(item["id"].to_string())), "pages overlap");
    }
}

async fn api_r25_others_objects_are_not_found(world: World) {
    let (user, other) = (world.user(), world.user());
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    for path in
        [format!("clusters/{cluster}"), format!("nodepools/{pool}"), format!("nodepools/{pool}/status")]
    {
        other.get(&format!("/api/v1/{path}")).await.refused(404, "NOT_FOUND");
    }
    let body = other.get(&format!("/api/v1/nodepools?clusterId={cluster}")).await.expect(200).body;
    assert_eq!((&body["nodepools"], &body["total"]), (&json!([]), &json!(0)), "not even the count is seen");
}
