//! API-N rows about what a body may say.

use serde_json::{Value, json};

use crate::harness::{Caller, World, gcp_spec, rows, set};

rows!(
    api_n9_bodies_that_are_no_object,
    api_n10_other_content_types,
    api_n11_json_with_a_charset,
    api_n12_bodies_that_are_too_large,
    api_n14_a_mistyped_field,
    api_n16_names_that_are_refused,
    api_n17_names_that_are_taken,
    api_n18_a_name_that_is_no_text,
    api_n19_cluster_ids_that_are_missing_or_wrong,
    api_n21_the_cluster_of_the_path,
    api_n22_fields_that_only_the_server_writes,
    api_n23_platform_types,
    api_n24_platform_blocks,
    api_n25_bounds_in_the_wrong_order,
    api_n26_bounds_out_of_range,
    api_n27_sizes_outside_the_bounds,
    api_n28_autoscaling_without_a_maximum,
    api_n29_bounds_without_autoscaling,
    api_n30_sizes_out_of_range,
    api_n32_targets_out_of_range,
    api_n34_disks_that_are_too_small,
    api_n35_zones,
    api_n36_accelerators,
    api_n37_taints,
    api_n38_labels,
);

async fn home(world: &World) -> (Caller, String) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let path = format!("/api/v1/clusters/{cluster}/nodepools");
    (user, path)
}

/// Every spec is refused, and the answer names the field.
async fn refuses(world: &World, cases: &[(Value, &str)]) {
    let (user, path) = home(world).await;
    for (spec, field) in cases {
        let reply = user.post(&path, &json!({"name": "p", "spec": spec})).await;
        assert_eq!(reply.status, 400, "{spec} was not refused: {}", reply.body);
        let reply = reply.refused(400, "VALIDATION_ERROR");
        let fields = reply.body["error"]["fields"].as_array().expect("fields are listed");
        let named =
            fields.iter().any(|fault| fault["path"].as_str().is_some_and(|path| path.contains(field)));
        assert!(named, "{field} is not named for {spec}: {}", reply.body);
    }
    assert_eq!(user.get(&path).await.expect(200).body["total"], 0, "nothing was stored");
}

/// Every spec is taken, and given back as it was sent.
async fn takes(world: &World, cases: &[Value]) {
    let (user, path) = home(world).await;
    for (number, spec) in cases.iter().enumerate() {
        let reply = user.post(&path, &json!({"name": format!("p{number}"), "spec": spec})).await.expect(201);
        assert_eq!(reply.body["spec"], *spec);
    }
}

async fn api_n9_bodies_that_are_no_object(world: World) {
    let (user, path) = home(&world).await;
    for text in ["", "[]", "\"x\"", "null", "{\"name\": \"a\"", "{} {}", "{\"name\":\"a\",\"name\":\"b\"}"] {
        user.raw("POST", &path, "application/json", text).await.refused(400, "VALIDATION_ERROR");
        user.raw("POST", "/api/v1/clusters", "application/json", text).await.refused(400, "VALIDATION_ERROR");
    }
}

async fn api_n10_other_content_types(world: World) {
    let (user, path) = home(&world).await;
    let body = json!({"name": "p", "spec": gcp_spec()}).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"] {
        user.raw("POST", &path, kind, body.clone()).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
}

async fn api_n11_json_with_a_charset(world: World) {
    let (user, path) = home(&world).await;
    let body = json!({"name": "p", "spec": gcp_spec()}).to_string();
    user.raw("POST", &path, "application/json; charset=utf-8", body).await.expect(201);
}

async fn api_n12_bodies_that_are_too_large(world: World) {
    let (user, path) = home(&world).await;
    let huge = vec![b' '; 20 << 20];
    user.raw("POST", &path, "application/json", huge).await.refused(413, "PAYLOAD_TOO_LARGE");
    let label = set(gcp_spec(), "/labels/big", "x".repeat((1 << 20) - 1_000).into());
    user.post(&path, &json!({"name": "p", "spec": label})).await.refused(400, "VALIDATION_ERROR");
}

async fn api_n14_a_mistyped_field(world: World) {
    let spec = json!({"platform": {"type": "gcp", "gcp": {}}, "nodecount": 3});
    refuses(&world, &[(spec, "spec.nodecount")]).await;
}

async fn api_n16_names_that_are_refused(world: World) {
    let (user, path) = home(&world).await;
    for name in ["", &"a".repeat(64), "Prod", "a_b", "a b", "-a", "a-", "ünï"] {
        user.post(&path, &json!({"name": name, "spec": gcp_spec()})).await.refused(400, "VALIDATION_ERROR");
        let cluster = json!({"name": name, "spec": {"platform": {"type": "gcp"}}});
        user.post("/api/v1/clusters", &cluster).await.refused(400, "VALIDATION_ERROR");
    }
}

async fn api_n17_names_that_are_taken(world: World) {
    let (user, path) = home(&world).await;
    for name in ["a", &"a".repeat(63), "0a"] {
        user.post(&path, &json!({"name": name, "spec": gcp_spec()})).await.expect(201);
    }
}

async fn api_n18_a_name_that_is_no_text(world: World) {
    let (user, path) = home(&world).await;
    for name in [json!(5), json!(["a"]), json!({"a": 1}), json!(true)] {
        user.post(&path, &json!({"name": name, "spec": gcp_spec()})).await.refused(400, "VALIDATION_ERROR");
    }
}

async fn api_n19_cluster_ids_that_are_missing_or_wrong(world: World) {
    let user = world.user();
    let unknown = "11111111-1111-4111-8111-111111111111";
    let body = json!({"name": "p", "spec": gcp_spec()});
    for id in [Value::Null, json!("x"), json!(unknown)] {
        user.post("/api/v1/nodepools", &set(body.clone(), "/cluster_id", id))
            .await
            .refused(400, "VALIDATION_ERROR");
    }
    user.post(&format!("/api/v1/clusters/{unknown}/nodepools"), &body).await.refused(404, "NOT_FOUND");
}

async fn api_n21_the_cluster_of_the_path(world: World) {
    let user = world.user();
    let (a, b) = (user.cluster("a").await, user.cluster("b").await);
    let body = json!({"name": "p", "spec": gcp_spec()});
    let reply = user.post(&format!("/api/v1/clusters/{a}/nodepools"), &body).await.expect(201);
    assert_eq!(reply.body["cluster_id"], a);
    let other = set(body, "/cluster_id", b.into());
    user.post(&format!("/api/v1/clusters/{a}/nodepools"), &other).await.refused(400, "VALIDATION_ERROR");
}

async fn api_n22_fields_that_only_the_server_writes(world: World) {
    let (user, path) = home(&world).await;
    for (field, value) in [
        ("id", json!("11111111-1111-4111-8111-111111111111")),
        ("generation", json!(7)),
        ("created_by", json!("eve@example.com")),
        ("resource_version", json!("9")),
        ("status", json!({"phase": "Ready"})),
    ] {
        let body = set(json!({"name": "p", "spec": gcp_spec()}), field, value);
        let reply = user.post(&path, &body).await.refused(400, "VALIDATION_ERROR");
        assert!(reply.details().contains(field), "{}", reply.details());
    }
}

async fn api_n23_platform_types(world: World) {
    refuses(
        &world,
        &[
            (json!({"platform": {"type": "openstack", "openstack": {}}}), "platform.type"),
            (json!({"platform": {"gcp": {}}}), "platform.type"),
            (json!({"nodeCount": 1}), "platform"),
        ],
    )
    .await;
    let (user, path) = home(&world).await;
    let body = json!({"name": "p", "spec": {"platform": {"type": "GCP", "gcp": {}}}});
    let reply = user.post(&path, &body).await.expect(201);
    assert_eq!(reply.body["spec"]["platform"]["type"], "gcp");
}

async fn api_n24_platform_blocks(world: World) {
    refuses(
        &world,
        &[
            (json!({"platform": {"type": "gcp", "aws": {"instanceType": "m5.xlarge"}}}), "platform"),
            (json!({"platform": {"type": "gcp", "gcp": {}, "aws": {}}}), "platform"),
        ],
    )
    .await;
}

async fn api_n25_bounds_in_the_wrong_order(world: World) {
    let spec = set(gcp_spec(), "/autoscaling", json!({"enabled": true, "minNodes": 5, "maxNodes": 3}));
    refuses(&world, &[(spec, "autoscaling.maxNodes")]).await;
}

async fn api_n26_bounds_out_of_range(world: World) {
    let case = |field: &str, value: Value| {
        (set(gcp_spec(), &format!("/autoscaling/{field}"), value), "spec.autoscaling")
    };
    refuses(
        &world,
        &[
            case("minNodes", json!(-1)),
            case("maxNodes", json!(0)),
            case("maxNodes", json!(100_001)),
            case("minNodes", json!(1.5)),
            case("minNodes", json!("3")),
        ],
    )
    .await;
}

async fn api_n27_sizes_outside_the_bounds(world: World) {
    let spec = |nodes: u32| {
        let spec = set(gcp_spec(), "/autoscaling", json!({"enabled": true, "minNodes": 2, "maxNodes": 10}));
        (set(spec, "/nodeCount", nodes.into()), "nodeCount")
    };
    refuses(&world, &[spec(1), spec(11)]).await;
}

async fn api_n28_autoscaling_without_a_maximum(world: World) {
    let spec = set(gcp_spec(), "/autoscaling", json!({"enabled": true, "minNodes": 1}));
    refuses(&world, &[(spec, "autoscaling.maxNodes")]).await;
}

async fn api_n29_bounds_without_autoscaling(world: World) {
    takes(&world, &[set(gcp_spec(), "/autoscaling/enabled", false.into())]).await;
}

async fn api_n30_sizes_out_of_range(world: World) {
    let plain = json!({"platform": {"type": "gcp", "gcp": {}}});
    refuses(
        &world,
        &[
            (set(plain.clone(), "/nodeCount", json!(-1)), "nodeCount"),
            (set(plain.clone(), "/nodeCount", json!(2_147_483_648_u64)), "nodeCount"),
        ],
    )
    .await;
    let (user, path) = home(&world).await;
    let reply = user.post(&path, &json!({"name": "p", "spec": plain})).await.expect(201);
    assert_eq!(reply.body["status"]["desired_nodes"], 0, "without a size and without autoscaling: none");
}

async fn api_n32_targets_out_of_range(world: World) {
    let spec = |field: &str, value: u32| set(gcp_spec(), &format!("/autoscaling/{field}"), value.into());
    let target = "autoscaling.targetCPUUtilization";
    refuses(
        &world,
        &[(spec("targetCPUUtilization", 0), target), (spec("targetCPUUtilization", 101), target)],
    )
    .await;
    takes(&world, &[spec("targetMemoryUtilization", 80)]).await;
}

async fn api_n34_disks_that_are_too_small(world: World) {
    let spec =
        |kind: &str, field: &str, value: Value| json!({"platform": {"type": kind, kind: {field: value}}});
    refuses(
        &world,
        &[
            (spec("gcp", "diskSize", json!(9)), "gcp.diskSize"),
            (spec("aws", "volumeSize", json!(7)), "aws.volumeSize"),
            (spec("azure", "osDiskSizeGB", json!(29)), "azure.osDiskSizeGB"),
            (spec("gcp", "diskType", json!("floppy")), "gcp.diskType"),
            (spec("aws", "volumeType", json!("gp9")), "aws.volumeType"),
            (spec("azure", "osDiskType", json!("Tape_LRS")), "azure.osDiskType"),
        ],
    )
    .await;
}

async fn api_n35_zones(world: World) {
    let zones = |zones: Value| (json!({"platform": {"type": "gcp", "gcp": {"zones": zones}}}), "zones");
    refuses(&world, &[zones(json!(["us-central1-a", "us-central1-a"])), zones(json!([""]))]).await;
    let user = world.user();
    let body = json!({"name": "c", "spec": {"platform": {"type": "gcp", "gcp": {"region": "europe-west1"}}}});
    let cluster = user.post("/api/v1/clusters", &body).await.expect(201).id();
    let pool = json!({"name": "p", "spec": zones(json!(["us-central1-a"])).0});
    let reply = user.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &pool).await;
    assert!(reply.refused(400, "VALIDATION_ERROR").details().contains("europe-west1"));
}

async fn api_n36_accelerators(world: World) {
    let one = |accelerator: Value| {
        (json!({"platform": {"type": "gcp", "gcp": {"accelerators": [accelerator]}}}), "accelerators[0]")
    };
    refuses(&world, &[one(json!({"type": "nvidia-tesla-v100", "count": 0})), one(json!({"count": 1}))]).await;
}

async fn api_n37_taints(world: World) {
    let taints = |taints: Value| (set(gcp_spec(), "/taints", taints), "taints");
    let many: Vec<Value> = (0..51).map(|n| json!({"key": format!("k{n}"), "effect": "NoSchedule"})).collect();
    let twice = json!({"key": "a", "value": "b", "effect": "NoSchedule"});
    refuses(
        &world,
        &[
            taints(json!([{"key": "a", "effect": "Never"}])),
            taints(json!([{"key": "", "effect": "NoSchedule"}])),
            taints(json!([twice.clone(), twice])),
            taints(Value::Array(many)),
        ],
    )
    .await;
}

async fn api_n38_labels(world: World) {
    let label = |key: &str, value: &str| (set(gcp_spec(), "/labels", json!({key: value})), "labels");
    refuses(
        &world,
        &[label("a/b/c", "x"), label("a", &"x".repeat(64)), label("kubernetes.io/hostname", "x")],
    )
    .await;
}
