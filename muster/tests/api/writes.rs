//! API-N rows about identity and about changing what is there.

use serde_json::json;

use crate::harness::{World, gcp_spec, report, rows, set};

rows!(
    api_n1_no_identity,
    api_n2_addresses_that_are_none,
    api_n4_the_reserved_address_proves_nothing,
    api_n5_an_owner_cannot_report,
    api_n6_a_suffix_gives_no_rights,
    api_n39_a_stale_if_match,
    api_n40_a_stale_resource_version,
    api_n43_twenty_at_once,
    api_n44_idempotency_keys,
    api_n46_replacing_without_a_spec,
    api_n47_renaming,
    api_n48_what_cannot_change,
    api_n49_merge_patch,
    api_n70_deleting_a_cluster_with_pools,
    api_n71_deleting_with_a_stale_if_match,
    api_n76_secrets_are_hidden_from_others,
    chosen_ids_and_dry_runs,
    scaling_answers_an_operation,
);

async fn api_n1_no_identity(world: World) {
    let nobody = world.with(&[]);
    for path in ["/api/v1/nodepools", "/api/v1/clusters", "/api/v1/whoami"] {
        nobody.get(path).await.refused(401, "UNAUTHENTICATED");
    }
    nobody.post("/api/v1/clusters", &json!({"name": "c"})).await.refused(401, "UNAUTHENTICATED");
}

async fn api_n2_addresses_that_are_none(world: World) {
    for address in ["not-an-email", "a@b", "a@@b.c", ""] {
        world.named(address).get("/api/v1/nodepools").await.refused(401, "UNAUTHENTICATED");
    }
}

async fn api_n4_the_reserved_address_proves_nothing(world: World) {
    world.named("controller@system.local").get("/api/v1/nodepools").await.refused(401, "UNAUTHENTICATED");
    let wrong = world.with(&[("authorization", "Bearer guessed")]);
    wrong.get("/api/v1/nodepools").await.refused(401, "UNAUTHENTICATED");
    world.controller().get("/api/v1/nodepools").await.expect(200);
}

async fn api_n5_an_owner_cannot_report(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let path = format!("/api/v1/nodepools/{pool}");
    user.put(&format!("{path}/status"), &report("k", 1, ("Available", "True")))
        .await
        .refused(403, "FORBIDDEN");
    assert_eq!(user.get(&path).await.expect(200).body["status"]["phase"], "Pending");
}

async fn api_n6_a_suffix_gives_no_rights(world: World) {
    let cluster = world.user().cluster("c").await;
    let body = json!({"name": "p", "spec": gcp_spec()});
    let reply =
        world.named("x@system.local").post(&format!("/api/v1/clusters/{cluster}/nodepools"), &body).await;
    reply.refused(404, "NOT_FOUND");
}

async fn api_n39_a_stale_if_match(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    let first = user.get(&path).await.expect(200);
    let tag = first.header("etag").to_owned();
    let body = json!({"spec": set(gcp_spec(), "/nodeCount", 4.into())});
    // A report in between must not break the tag.
    user.report(path.trim_start_matches("/api/v1/"), &report("k", 1, ("Available", "True")))
        .await
        .expect(200);
    let second = user.and("if-match", &tag).put(&path, &body).await.expect(200);
    assert_ne!(second.header("etag"), tag);
    let stale = json!({"spec": set(gcp_spec(), "/nodeCount", 5.into())});
    user.and("if-match", &tag).put(&path, &stale).await.refused(412, "PRECONDITION_FAILED");
    let body = user.get(&path).await.expect(200).body;
    assert_eq!((&body["spec"]["nodeCount"], &body["generation"]), (&json!(4), &json!(2)));
}

async fn api_n40_a_stale_resource_version(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    let version = user.get(&path).await.expect(200).body["resource_version"].clone();
    let body = |nodes: u32| json!({"resource_version": version, "spec": set(gcp_spec(), "/nodeCount", nodes.into())});
    user.put(&path, &body(4)).await.expect(200);
    user.put(&path, &body(5)).await.refused(409, "CONFLICT");
}

async fn api_n43_twenty_at_once(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/clusters/{cluster}/nodepools");
    let body = json!({"name": "only-one", "spec": gcp_spec()});
    let replies = crate::lists::futures_join((0..20).map(|_| user.post(&path, &body))).await;
    let count = |status: u16| replies.iter().filter(|reply| reply.status == status).count();
    assert_eq!((count(201), count(409)), (1, 19));
}

async fn api_n44_idempotency_keys(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/clusters/{cluster}/nodepools");
    let body = json!({"name": "p", "spec": gcp_spec()});
    let keyed = user.and("idempotency-key", "once");
    let first = keyed.post(&path, &body).await.expect(201);
    let second = keyed.post(&path, &body).await.expect(201);
    assert_eq!(first.body, second.body);
    let other = json!({"name": "q", "spec": gcp_spec()});
    keyed.post(&path, &other).await.refused(422, "IDEMPOTENCY_MISMATCH");
    user.post(&path, &body).await.refused(409, "CONFLICT");
}

async fn api_n46_replacing_without_a_spec(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    for body in [json!({}), json!({"name": "x"})] {
        let reply = user.put(&path, &body).await.refused(400, "VALIDATION_ERROR");
        assert!(reply.details().contains("spec"), "{}", reply.details());
    }
    assert_eq!(user.get(&path).await.expect(200).body["spec"], gcp_spec());
}

async fn api_n47_renaming(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    user.pool(&cluster, "taken").await;
    let path = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    let body = |name: &str| json!({"name": name, "spec": gcp_spec()});
    user.put(&path, &body("taken")).await.refused(409, "CONFLICT");
    let reply = user.put(&path, &body("free")).await.expect(200);
    assert_eq!((&reply.body["name"], &reply.body["generation"]), (&json!("free"), &json!(1)));
    user.pool(&cluster, "p").await;
}

async fn api_n48_what_cannot_change(world: World) {
    let user = world.user();
    let (a, b) = (user.cluster("a").await, user.cluster("b").await);
    let path = format!("/api/v1/nodepools/{}", user.pool(&a, "p").await);
    let platform =
        json!({"spec": {"platform": {"type": "aws", "aws": {"instanceType": "m5.xlarge"}}, "nodeCount": 3}});
    user.put(&path, &platform).await.refused(400, "VALIDATION_ERROR");
    user.put(&path, &json!({"cluster_id": b, "spec": gcp_spec()})).await.refused(400, "VALIDATION_ERROR");
}

async fn api_n49_merge_patch(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    let patch = json!({"spec": {"nodeCount": 6}});
    let reply = user.raw("PATCH", &path, "application/merge-patch+json", patch.to_string()).await.expect(200);
    assert_eq!(reply.body["spec"], set(gcp_spec(), "/nodeCount", 6.into()));
    assert_eq!(reply.body["status"]["desired_nodes"], 6);
}

async fn api_n70_deleting_a_cluster_with_pools(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/clusters/{cluster}");
    let pool = user.pool(&cluster, "still-here").await;
    let reply = user.delete(&path).await.refused(409, "CONFLICT");
    assert!(reply.details().contains("still-here"), "{}", reply.details());
    user.get(&path).await.expect(200);
    user.delete(&format!("{path}?cascade=true")).await.expect(202);
    user.get(&path).await.refused(404, "NOT_FOUND");
    user.get(&format!("/api/v1/nodepools/{pool}")).await.refused(404, "NOT_FOUND");
}

async fn api_n71_deleting_with_a_stale_if_match(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/nodepools/{}", user.pool(&cluster, "p").await);
    user.and("if-match", "\"1\"").delete(&path).await.refused(412, "PRECONDITION_FAILED");
    let tag = user.get(&path).await.expect(200).header("etag").to_owned();
    user.and("if-match", &tag).delete(&path).await.expect(204);
}

async fn api_n76_secrets_are_hidden_from_others(world: World) {
    // An admin reads back what it wrote; a private key is shown to nobody but controllers.
    let user = world.user();
    let spec = json!({"platform": {"type": "gcp"}, "serviceAccountSigningKey": "c2VjcmV0LWtleQ=="});
    let reply = user.post("/api/v1/clusters", &json!({"name": "c", "spec": spec})).await.expect(201);
    let path = format!("/api/v1/clusters/{}", reply.id());
    for body in [
        reply.body,
        user.get(&path).await.expect(200).body,
        user.get("/api/v1/clusters").await.expect(200).body,
    ] {
        assert!(!body.to_string().contains("c2VjcmV0LWtleQ"), "{body}");
    }
    let seen = world.controller().get(&path).await.expect(200).body.to_string();
    assert!(seen.contains("c2VjcmV0LWtleQ"), "{seen}");
}

async fn chosen_ids_and_dry_runs(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let id = uuid::Uuid::new_v4();
    let path = format!("/api/v1/nodepools/{id}");
    let body = json!({"name": "chosen", "cluster_id": cluster, "spec": gcp_spec()});
    user.put(&path, &body).await.refused(404, "NOT_FOUND");
    let new = user.and("if-none-match", "*");
    new.put(&format!("{path}?dryRun=true"), &body).await.expect(201);
    user.get(&path).await.refused(404, "NOT_FOUND");
    assert_eq!(new.put(&path, &body).await.expect(201).id(), id.to_string());
    new.put(&path, &set(body, "/name", "another".into())).await.refused(412, "PRECONDITION_FAILED");
    let dry =
        user.patch(&format!("{path}?dryRun=true"), &json!({"spec": {"nodeCount": 9}})).await.expect(200);
    assert_eq!(dry.body["spec"]["nodeCount"], 9);
    assert_eq!(user.get(&path).await.expect(200).body["spec"]["nodeCount"], 3);
}

async fn scaling_answers_an_operation(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let pool = user.pool(&cluster, "p").await;
    let path = format!("/api/v1/nodepools/{pool}/scale");
    let beyond = user.post(&path, &json!({"nodeCount": 11})).await.refused(400, "VALIDATION_ERROR");
    assert!(beyond.details().contains("maxNodes"), "{}", beyond.details());
    let operation = user.post(&path, &json!({"replicas": 5})).await.expect(202);
    assert_eq!((&operation.body["state"], &operation.body["target_nodes"]), (&json!("Running"), &json!(5)));
    let place = operation.header("location").to_owned();
    let mut done = report("k", 2, ("Available", "True"));
    done["metadata"] = json!({"active_nodes": 5});
    user.report(&format!("nodepools/{pool}"), &done).await.expect(200);
    crate::faults::until(|| async { user.get(&place).await.expect(200).body["state"] == "Succeeded" }).await;
    world.user().get(&place).await.refused(404, "NOT_FOUND");
}
