//! Tables for what happens to a pool after it was created.

use serde_json::{Value, json};

use super::{super::*, accepted, create, platform_body, pool, seed_body, with};
use crate::catalogue::Catalogue;

#[test]
fn api_r18_n40_n46_n47_n48_replace() {
    let pool = pool(&seed_body());
    let replace =
        |body: Value| pool.parse_replace(&body, &PoolContext::default()).map_err(|errors| errors.details());
    let spec = json!({"platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-8", "diskSize": 200}}, "nodeCount": 5});
    let update = replace(json!({"name": "worker-pool-1-updated", "spec": spec})).unwrap().value;
    let mut after = pool.clone();
    assert!(after.apply(update, Timestamp::from_millis(5)));
    assert_eq!(
        (after.generation, after.name.as_str(), after.updated_at.millis()),
        (2, "worker-pool-1-updated", 5)
    );
    assert_eq!(serde_json::to_value(&after.spec).unwrap(), spec, "autoscaling is gone");

    assert!(replace(json!({})).unwrap_err().starts_with("spec: is required"));
    assert!(replace(json!({"name": "x"})).unwrap_err().starts_with("spec: is required"));
    assert!(
        replace(with(seed_body(), "spec.platform", json!({"type": "aws"})))
            .unwrap_err()
            .contains("spec.platform.type: cannot be changed, it is gcp")
    );
    let moved = with(seed_body(), "cluster_id", json!("550e8400-e29b-41d4-a716-446655440001"));
    assert!(replace(moved).unwrap_err().contains("cluster_id: cannot be changed"));

    // What was read can be sent back as it is, and changes nothing.
    let read = pool.to_api(Revision(7), None, Secrets::Writer);
    let again = replace(read.clone()).unwrap().value;
    assert_eq!(again.resource_version.as_deref(), Some("7"));
    let mut same = pool.clone();
    assert!(!same.apply(again, Timestamp::from_millis(9)));
    assert_eq!(same, pool);
    assert!(
        replace(with(read, "generation", json!(9))).unwrap_err().contains("generation: is set by the server")
    );
    // A rename alone does not raise the generation.
    let renamed = replace(with(seed_body(), "name", json!("other"))).unwrap().value;
    let mut after = pool.clone();
    assert!(after.apply(renamed, Timestamp::EPOCH));
    assert_eq!((after.generation, after.name.as_str()), (1, "other"));
}

#[test]
fn api_n49_patch() {
    let pool = pool(&seed_body());
    let patch =
        |patch: Value| pool.merge_patch(&patch, &PoolContext::default()).map_err(|errors| errors.details());
    let six = patch(json!({"spec": {"nodeCount": 6}})).unwrap().value;
    assert_eq!(
        serde_json::to_value(&six.spec).unwrap(),
        with(seed_body()["spec"].clone(), "nodeCount", json!(6))
    );
    let off = patch(json!({"spec": {"autoscaling": null}})).unwrap().value;
    assert_eq!(off.spec.autoscaling, None);
    assert_eq!(patch(json!({"name": "other"})).unwrap().value.name.as_str(), "other");
    assert_eq!(patch(json!({"spec": {"replicas": 7}})).unwrap().value.spec.node_count, Some(7));
    let zones =
        patch(json!({"spec": {"platform": {"gcp": {"instanceType": "n1-standard-8"}}}})).unwrap().value;
    assert_eq!(zones.spec.platform.machine_type().as_deref(), Some("n1-standard-8"));
    for (body, expected) in [
        (json!([]), "must be an object"),
        (json!({"spec": null}), "spec: is required"),
        (json!({"spec": {"nodeCount": 11}}), "must not be above autoscaling.maxNodes"),
        (json!({"spec": {"nodecount": 6}}), "did you mean nodeCount?"),
        (json!({"spec": {"platform": {"type": "aws"}}}), "does not belong to a platform of type aws"),
        (json!({"id": "x"}), "id: is set by the server"),
    ] {
        let fault = patch(body).unwrap_err();
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn api_n76_secrets_are_hidden_and_survive_being_sent_back() {
    let body = platform_body("aws", json!({"instanceType": "m5.large", "userData": "s3cret"}));
    let pool = pool(&body);
    let shown =
        |secrets| pool.to_api(Revision(1), None, secrets)["spec"]["platform"]["aws"]["userData"].clone();
    assert_eq!(
        (shown(Secrets::Hidden), shown(Secrets::Writer), shown(Secrets::All)),
        (json!(REDACTED), json!("s3cret"), json!("s3cret"))
    );
    assert!(
        !String::from_utf8(pool.to_api_bytes(Revision(1), None, Secrets::Hidden)).unwrap().contains("s3cret")
    );
    let back = pool.to_api(Revision(1), None, Secrets::Hidden);
    let update = pool.parse_replace(&back, &PoolContext::default()).unwrap().value;
    assert_eq!(update.spec, pool.spec);
    let fresh = platform_body("aws", json!({"userData": REDACTED}));
    assert!(create(&fresh).unwrap_err().details().contains("holds the text that stands for a hidden value"));
}

#[test]
fn the_target_follows_the_spec() {
    #[track_caller]
    fn check(
        old: (Option<u32>, Option<(u32, u32)>),
        desired: u32,
        new: (Option<u32>, Option<(u32, u32)>),
        expected: u32,
    ) {
        let spec = |(nodes, bounds): (Option<u32>, Option<(u32, u32)>)| {
            let mut spec = json!({"platform": {"type": "gcp"}, "nodeCount": nodes});
            if let Some((min, max)) = bounds {
                spec["autoscaling"] = json!({"enabled": true, "minNodes": min, "maxNodes": max});
            }
            accepted("spec", spec).value.spec
        };
        assert_eq!(spec(new).desired_after(&spec(old), desired), expected);
    }
    let auto = Some((1, 10));
    check((Some(3), auto), 7, (Some(3), auto), 7); // the autoscaler's target stays
    check((Some(3), auto), 7, (Some(4), auto), 4); // a changed nodeCount resets it
    check((Some(3), auto), 7, (None, auto), 7);
    check((Some(3), auto), 7, (Some(3), Some((1, 5))), 5); // into the new bounds
    check((Some(3), auto), 7, (Some(9), Some((8, 10))), 9);
    check((Some(3), auto), 7, (None, Some((8, 10))), 8);
    check((Some(3), auto), 7, (Some(3), None), 3); // switched off: back to nodeCount
    check((Some(3), None), 3, (Some(3), auto), 3);
    check((None, None), 0, (None, Some((2, 4))), 2);
    check((Some(3), None), 3, (None, None), 0);
}

#[test]
fn what_a_node_looks_like() {
    let shape = |body: &Value, learned: Option<&NodeShape>| {
        let draft = create(body).unwrap().value;
        draft.spec.node_shape(&draft.name, Catalogue::shipped(), learned)
    };
    let seed = shape(&seed_body(), None).unwrap();
    assert_eq!(seed.source, ShapeSource::Catalogue { machine_type: "n1-standard-4".to_owned() });
    assert_eq!(
        (seed.capacity["cpu"].text(), seed.capacity["memory"].text()),
        ("4000m".into(), "15360Mi".into())
    );
    assert_eq!(seed.price_micros, Some(190_000));
    assert_eq!(seed.labels["nodepool"], "worker-pool-1");
    assert_eq!(seed.labels["node.kubernetes.io/instance-type"], "n1-standard-4");
    assert_eq!(seed.labels[CAPACITY_TYPE_LABEL], "on-demand");
    assert_eq!(seed.zones.len(), 2);

    let mut gpu = with(
        seed_body(),
        "spec.platform.gcp.accelerators",
        json!([{"type": "nvidia-tesla-v100", "count": 2}]),
    );
    gpu = with(gpu, "spec.platform.gcp.preemptible", json!(true));
    let gpu = shape(&gpu, None).unwrap();
    assert_eq!(gpu.capacity["nvidia.com/gpu"].text(), "2");
    assert_eq!((gpu.labels[CAPACITY_TYPE_LABEL].as_str(), gpu.spot), ("spot", true));
    assert_eq!(gpu.price_micros, Some(39_900 + 2 * 740_000));

    let odd = with(seed_body(), "spec.platform.gcp.machineType", json!("z9-huge-4"));
    let fault = shape(&odd, None).unwrap_err().to_string();
    assert_eq!(
        fault,
        "nothing says how much cpu a node of this pool has; set spec.template.capacity, or add z9-huge-4 to the catalogue: it is not a known type of gcp"
    );
    let learned = shape(&odd, Some(&seed)).unwrap();
    assert_eq!((learned.source, &learned.capacity), (ShapeSource::Learned, &seed.capacity));
    let told = with(
        odd,
        "spec.template",
        json!({"capacity": {"cpu": 8, "memory": "32Gi"}, "price": 0.5, "labels": {"disk": "ssd"}}),
    );
    let told = shape(&told, Some(&seed)).unwrap();
    assert_eq!(
        (told.source, told.price_micros, told.labels["disk"].as_str()),
        (ShapeSource::Template, Some(500_000), "ssd")
    );
    let partly =
        shape(&with(seed_body(), "spec.template", json!({"capacity": {"example.com/fpga": 1}})), None)
            .unwrap();
    assert_eq!(partly.capacity.len(), 3, "the template adds to the catalogue");

    let vm =
        shape(&platform_body("vsphere", json!({"template": "t", "numCPUs": 8, "memoryMiB": 32768})), None)
            .unwrap();
    assert_eq!((vm.source, vm.capacity["memory"].text()), (ShapeSource::Platform, "32768Mi".into()));
    let metal = shape(&with(seed_body(), "spec.platform", json!({"type": "baremetal"})), None).unwrap_err();
    assert_eq!(metal.missing, "cpu");
}

#[test]
fn a_change_says_whether_nodes_are_replaced() {
    #[track_caller]
    fn check(path: &str, value: Value, expected: &[(&str, Effect)]) {
        let old =
            create(&platform_body("aws", json!({"instanceType": "m5.large", "userData": "s3cret"}))).unwrap();
        let mut body = platform_body("aws", json!({"instanceType": "m5.large", "userData": "s3cret"}));
        body = with(body, path, value);
        let found = changes(&old.value.spec, &create(&body).unwrap().value.spec);
        let found: Vec<_> = found.iter().map(|c| (c.difference.path.as_str(), c.effect)).collect();
        assert_eq!(found, expected);
    }
    check("spec.nodeCount", json!(3), &[]);
    check("spec.nodeCount", json!(4), &[("spec.nodeCount", Effect::InPlace)]);
    check("spec.labels", json!({"a": "b"}), &[("spec.labels", Effect::InPlace)]);
    check(
        "spec.platform.aws.instanceType",
        json!("m5.xlarge"),
        &[("spec.platform.aws.instanceType", Effect::Rolls)],
    );
    check("spec.platform.aws.taints", json!([]), &[("spec.platform.aws.taints", Effect::InPlace)]);
    check(
        "spec.platform.aws.availabilityZones",
        json!(["us-west-2a"]),
        &[("spec.platform.aws.availabilityZones", Effect::InPlace)],
    );
    check("spec.release", json!({"version": "2"}), &[("spec.release", Effect::Rolls)]);
    check("spec.platform.aws.userData", json!("other"), &[("spec.platform.aws.userData", Effect::Rolls)]);
    let text = |data: &str| create(&platform_body("aws", json!({"userData": data}))).unwrap().value.spec;
    assert!(!format!("{:?}", changes(&text("s3cret"), &text("s3cret2"))).contains("s3cret"));
    assert!(!format!("{:?}", text("s3cret")).contains("s3cret"));
}
