//! Tables for bodies: what is accepted, what is refused and in which words.

mod changes;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Cluster, catalogue::Catalogue, test_support::any_json};

const CLUSTER: &str = "550e8400-e29b-41d4-a716-446655440000";

/// The first body of seed 001, word for word.
pub(crate) fn seed_body() -> Value {
    json!({
      "name": "worker-pool-1",
      "cluster_id": CLUSTER,
      "spec": {
        "platform": {
          "type": "gcp",
          "gcp": {
            "machineType": "n1-standard-4", "diskSize": 100, "diskType": "pd-ssd",
            "zones": ["us-central1-a", "us-central1-b"], "preemptible": false
          }
        },
        "autoscaling": {"enabled": true, "minNodes": 1, "maxNodes": 10},
        "nodeCount": 3
      }
    })
}

/// `body` with the value at a path of members replaced; `null` removes it.
fn with(mut body: Value, path: &str, value: Value) -> Value {
    let mut at = &mut body;
    let steps: Vec<&str> = path.split('.').collect();
    for step in &steps[..steps.len() - 1] {
        at = &mut at[*step];
    }
    at[*steps.last().unwrap()] = value;
    body
}

fn create(body: &Value) -> Result<Parsed<PoolDraft>, FieldErrors> {
    NodePool::parse_create(body, &PoolContext::default())
}

fn pool(body: &Value) -> NodePool {
    let id = "123e4567-e89b-12d3-a456-426614174000".parse().unwrap();
    let draft = create(body).unwrap().value;
    draft.into_pool(id, "team".parse().unwrap(), "user@example.com".to_owned(), Timestamp::EPOCH)
}

#[track_caller]
fn accepted(path: &str, value: Value) -> Parsed<PoolDraft> {
    let body = with(seed_body(), path, value);
    create(&body).unwrap_or_else(|errors| panic!("{body} was refused: {errors}"))
}

#[track_caller]
fn refused(path: &str, value: Value, expected: &str) {
    let body = with(seed_body(), path, value);
    match create(&body) {
        Ok(_) => panic!("{body} was accepted"),
        Err(errors) => assert!(errors.details().contains(expected), "{errors}\nexpected: {expected}"),
    }
}

/// `spec` of another platform in place of the seed's.
fn platform_body(kind: &str, block: Value) -> Value {
    with(seed_body(), "spec.platform", json!({"type": kind, kind: block}))
}

#[track_caller]
fn check_platform(kind: &str, block: Value, expected: &str) {
    match create(&platform_body(kind, block.clone())) {
        Ok(_) => assert_eq!(expected, "", "{block} was accepted"),
        Err(errors) => {
            assert!(!expected.is_empty() && errors.details().contains(expected), "{block}: {errors}");
        }
    }
}

#[test]
fn api_r13_r14_the_spec_comes_back_as_it_was_sent() {
    let full = json!({
        "platform": {"type": "gcp", "gcp": {
            "machineType": "n1-standard-4", "accelerators": [{"type": "nvidia-tesla-v100", "count": 1}],
            "labels": {"environment": "production", "team": "platform"},
            "taints": [{"key": "workload-type", "value": "gpu", "effect": "NoSchedule"}]}},
        "autoscaling": {"enabled": true, "minNodes": 1, "maxNodes": 20, "targetCPUUtilization": 70,
            "targetMemoryUtilization": 80, "scaleDownUtilization": 25, "scaleDownDelay": "600s", "scaleUpDelay": "3m",
            "triggers": [{"metricQuery": "sum(rate(x[5m]))", "threshold": 0.1, "duration": "5m", "scaleDirection": "up"}],
            "headroom": {"pods": 3, "resources": {"cpu": "500m", "memory": "1Gi"}},
            "schedules": [{"name": "day", "start": "0 8 * * MON-FRI", "duration": "10h", "timeZone": "Europe/Berlin",
                "minNodes": 5}]},
        "nodeCount": 3,
        "labels": {}, "taints": [],
        "template": {"capacity": {"cpu": 4, "memory": "15Gi", "nvidia.com/gpu": "1"}, "reserved": {"cpu": "100m"},
            "labels": {"topology.kubernetes.io/zone": "us-central1-a"}, "maxPods": 64, "arch": "amd64", "price": "0.19"},
        "management": {"upgradeType": "Replace", "maxSurge": "10%", "maxUnavailable": 0, "nodeDrainTimeout": "10m",
            "autoRepair": true},
        "mode": "active",
        "release": {"version": "1.34.1"}
    });
    for spec in [seed_body()["spec"].clone(), full] {
        let parsed = accepted("spec", spec.clone());
        assert_eq!(parsed.warnings, Vec::<String>::new());
        assert_eq!(serde_json::to_value(&parsed.value.spec).unwrap(), spec);
    }
}

#[test]
fn the_api_form_has_the_seeds_fields_in_a_readable_order() {
    let text =
        String::from_utf8(pool(&seed_body()).to_api_bytes(Revision(42), None, Secrets::Writer)).unwrap();
    let expected = format!(
        r#"{{"id":"123e4567-e89b-12d3-a456-426614174000","name":"worker-pool-1","cluster_id":"{CLUSTER}","project":"team","generation":1,"resource_version":"42","spec":{{"platform":{{"type":"gcp""#
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.ends_with(r#""nodeCount":3},"created_at":"1970-01-01T00:00:00Z","updated_at":"1970-01-01T00:00:00Z","created_by":"user@example.com"}"#), "{text}");
}

#[test]
fn api_r20_n9_n16_n18_n19_n21_n22_the_envelope() {
    let unnamed = create(&with(seed_body(), "name", Value::Null)).unwrap_err();
    assert_eq!(unnamed.details(), "nodepool name is required");
    let empty = create(&with(seed_body(), "name", json!(""))).unwrap_err();
    assert_eq!(empty.details(), "nodepool name is required");
    for body in [json!([]), json!("x"), json!(null), json!(1)] {
        assert!(create(&body).unwrap_err().details().starts_with("body: must be an object"), "{body}");
    }
    refused("name", json!("Prod"), "name: may only hold a-z, 0-9 and -, found \"Prod\"");
    refused("name", json!(5), "name: must be a string, found 5");
    refused("cluster_id", Value::Null, "cluster_id: is required");
    refused("cluster_id", json!("x"), "cluster_id: is not a UUID, found \"x\"");
    for (field, value) in [
        ("id", json!("123e4567-e89b-12d3-a456-426614174000")),
        ("generation", json!(1)),
        ("created_by", json!("me")),
        ("resource_version", json!("1")),
        ("status", json!({})),
        ("deleted_at", json!("2025-01-01T00:00:00Z")),
    ] {
        refused(field, value, &format!("{field}: is set by the server"));
    }
    let nested = PoolContext { cluster_id: Some(CLUSTER.parse().unwrap()), cluster: None };
    let inherited = NodePool::parse_create(&with(seed_body(), "cluster_id", Value::Null), &nested).unwrap();
    assert_eq!(inherited.value.cluster_id.to_string(), CLUSTER);
    let other = with(seed_body(), "cluster_id", json!("550e8400-e29b-41d4-a716-446655440001"));
    assert!(
        NodePool::parse_create(&other, &nested)
            .unwrap_err()
            .details()
            .contains("names another cluster than the path")
    );
}

#[test]
fn api_n14_unknown_fields_are_faults_in_our_blocks_and_kept_in_the_platforms() {
    refused(
        "spec.nodecount",
        json!(3),
        "spec.nodecount: is not a known field, found 3 (did you mean nodeCount?)",
    );
    refused("spec.autoscaling.minnode", json!(3), "(did you mean minNodes?)");
    refused("specs", json!({}), "specs: is not a known field, found {} (did you mean spec?)");
    refused("spec.platform.flavour", json!(1), "spec.platform.flavour: is not a known field");
    let kept = accepted("spec.platform.gcp.localSsds", json!({"count": 2}));
    assert_eq!(
        kept.warnings,
        ["spec.platform.gcp.localSsds is not a field that Muster knows; it is kept as it is"]
    );
    assert_eq!(
        serde_json::to_value(&kept.value.spec).unwrap()["platform"]["gcp"]["localSsds"],
        json!({"count": 2})
    );
    let typo = accepted("spec.platform.gcp.machinetype", json!("x"));
    assert!(typo.warnings[0].ends_with("did you mean machineType?"), "{:?}", typo.warnings);
}

#[test]
fn all_faults_are_reported_at_once() {
    let body = json!({"name": "Bad", "spec": {"platform": {"type": "gpc"}, "nodeCount": -1, "colour": 1}});
    let errors = create(&body).unwrap_err();
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["name", "cluster_id", "spec.platform.type", "spec.nodeCount", "spec.colour"]);
    assert!(errors.details().contains("did you mean gcp?"), "{errors}");
    let fields = serde_json::to_value(&errors).unwrap();
    assert_eq!(
        fields[3],
        json!({"path": "spec.nodeCount", "problem": "is out of range", "found": "-1", "allowed": "0 to 100000"})
    );
}

#[test]
fn api_n23_n24_platforms() {
    refused(
        "spec.platform",
        json!({"type": "openstack"}),
        "spec.platform.type: is not a platform, found \"openstack\"",
    );
    refused(
        "spec.platform",
        json!({}),
        "spec.platform.type: is required, allowed: gcp, aws, azure, baremetal, byoh, vsphere",
    );
    refused("spec.platform", Value::Null, "spec.platform: is required");
    refused(
        "spec.platform",
        json!({"type": "gcp", "aws": {}}),
        "spec.platform.aws: does not belong to a platform of type gcp",
    );
    refused(
        "spec.platform",
        json!({"type": "gcp", "gcp": {}, "aws": {}}),
        "spec.platform.aws: does not belong",
    );
    refused("spec.platform", json!({"type": "gcp", "gcp": []}), "spec.platform.gcp: must be an object");
    refused("spec.platform", json!({"type": "vsphere"}), "spec.platform.vsphere: is required");
    for kind in ["gcp", "aws", "azure", "baremetal", "byoh"] {
        let _ = accepted("spec.platform", json!({"type": kind}));
    }
    let upper = accepted("spec.platform", json!({"type": "GCP", "gcp": {"machineType": "e2-medium"}}));
    assert_eq!(
        serde_json::to_value(&upper.value.spec.platform).unwrap(),
        json!({"type": "gcp", "gcp": {"machineType": "e2-medium"}})
    );
    let assumed = accepted("spec.platform", json!({"type": "gcp"}));
    assert_eq!(assumed.warnings, ["spec.platform.gcp names no machine type; e2-medium is assumed"]);
}

#[test]
fn api_n25_n26_n27_n28_n29_n30_n32_bounds_and_marks() {
    let autoscaling = |value: Value, expected: &str| refused("spec.autoscaling", value, expected);
    autoscaling(
        json!({"enabled": true, "minNodes": 5, "maxNodes": 3}),
        "spec.autoscaling.maxNodes: must not be below minNodes, which is 5, found 3",
    );
    autoscaling(json!({"minNodes": 5, "maxNodes": 3}), "spec.autoscaling.maxNodes");
    autoscaling(
        json!({"enabled": true, "minNodes": -1, "maxNodes": 3}),
        "spec.autoscaling.minNodes: is out of range, found -1",
    );
    autoscaling(
        json!({"enabled": true, "maxNodes": 0}),
        "spec.autoscaling.maxNodes: is out of range, found 0, allowed: 1 to 100000",
    );
    autoscaling(json!({"enabled": true, "maxNodes": 100_001}), "spec.autoscaling.maxNodes: is out of range");
    autoscaling(
        json!({"enabled": true, "minNodes": 1.5, "maxNodes": 3}),
        "minNodes: must be a whole number, found 1.5",
    );
    autoscaling(
        json!({"enabled": true, "minNodes": "3", "maxNodes": 3}),
        "minNodes: must be a whole number, found \"3\"",
    );
    autoscaling(json!({"enabled": "yes"}), "spec.autoscaling.enabled: must be true or false");
    autoscaling(
        json!({"enabled": true}),
        "spec.autoscaling.maxNodes: is required when autoscaling is enabled",
    );
    autoscaling(
        json!({"enabled": true, "minNodes": 4, "maxNodes": 10}),
        "spec.nodeCount: must not be below autoscaling.minNodes, which is 4, found 3, allowed: 4 to 10",
    );
    autoscaling(
        json!({"enabled": true, "minNodes": 1, "maxNodes": 2}),
        "spec.nodeCount: must not be above autoscaling.maxNodes, which is 2",
    );
    let faults = NodePool::parse_create(
        &json!({"name": "a", "cluster_id": "550e8400-e29b-41d4-a716-446655440000", "spec": {
            "platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-4"}}, "nodeCount": 7,
            "autoscaling": {"enabled": true, "minNodes": 7, "maxNodes": 2}}}),
        &PoolContext::default(),
    )
    .unwrap_err();
    // No count fits such bounds, so only the bounds are wrong.
    assert_eq!(faults.iter().count(), 1, "{}", faults.details());
    let _ = accepted("spec.autoscaling", json!({"enabled": false, "minNodes": 7, "maxNodes": 9})); // N29
    refused("spec.nodeCount", json!(-1), "spec.nodeCount: is out of range, found -1");
    refused("spec.nodeCount", json!(2_147_483_648_u32), "spec.nodeCount: is out of range");
    let on = |more: Value| {
        let mut block = json!({"enabled": true, "minNodes": 1, "maxNodes": 10});
        block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        block
    };
    autoscaling(
        on(json!({"targetCPUUtilization": 0})),
        "targetCPUUtilization: is out of range, found 0, allowed: 1 to 100",
    );
    autoscaling(on(json!({"targetCPUUtilization": 101})), "targetCPUUtilization: is out of range");
    autoscaling(
        on(json!({"scaleDownUtilization": 60})),
        "scaleDownUtilization: must be at least 20 below the high marks, cpu 70 and memory 80, found 60, allowed: 0 to 50",
    );
    autoscaling(on(json!({"targetMemoryUtilization": 40, "scaleDownUtilization": 21})), "allowed: 0 to 20");
    autoscaling(on(json!({"scaleDownDelay": "10"})), "scaleDownDelay: is not a duration, found \"10\"");
    autoscaling(on(json!({"scaleDownDelay": 10})), "scaleDownDelay: is not a duration, found 10");
    autoscaling(on(json!({"scaleUpDelay": "1000h"})), "scaleUpDelay: is too long");

    let only_memory = accepted("spec.autoscaling", on(json!({"targetMemoryUtilization": 80}))).value.spec;
    let marks = only_memory.autoscaling.unwrap();
    assert_eq!((marks.target_cpu(), marks.target_memory(), marks.scale_down_utilization()), (70, 80, 30));
    let near =
        accepted("spec.autoscaling", on(json!({"targetCPUUtilization": 40}))).value.spec.autoscaling.unwrap();
    assert_eq!(near.scale_down_utilization(), 20, "the default keeps its distance");
    let absent = json!({"platform": {"type": "gcp"}});
    assert_eq!(accepted("spec", absent).value.spec.initial_nodes(), 0); // N30
}

#[test]
fn triggers_headroom_and_schedules() {
    #[track_caller]
    fn check(name: &str, value: Value, expected: &str) {
        let body = with(seed_body(), &format!("spec.autoscaling.{name}"), value.clone());
        match create(&body) {
            Ok(_) => assert_eq!(expected, "", "{value} was accepted"),
            Err(errors) => assert!(!expected.is_empty() && errors.details().contains(expected), "{errors}"),
        }
    }
    let trigger = |name: &str, value: Value| {
        let mut trigger =
            json!({"metricQuery": "up", "threshold": 1, "duration": "1m", "scaleDirection": "down"});
        trigger[name] = value;
        json!([trigger])
    };
    check("triggers", trigger("threshold", json!(-2.5)), "");
    check("triggers", trigger("metricQuery", json!(" ")), "triggers[0].metricQuery: must not be empty");
    check("triggers", trigger("threshold", Value::Null), "triggers[0].threshold: is required");
    check("triggers", trigger("threshold", json!("1")), "triggers[0].threshold: must be a number");
    check("triggers", trigger("duration", json!("soon")), "triggers[0].duration: is not a duration");
    check("triggers", trigger("scaleDirection", json!("Up")), "allowed: up, down (did you mean up?)");
    check("triggers", trigger("clearThreshold", json!(0)), "must lie on the quiet side of the threshold");
    check("triggers", trigger("clearThreshold", json!(2)), "");
    check("triggers", trigger("metricquery", json!("x")), "did you mean metricQuery?");

    check("headroom", json!({"nodes": 2}), "");
    check("headroom", json!({"pods": 2, "resources": {"cpu": 1}}), "");
    check("headroom", json!({"pods": 2}), "needs resources");
    check("headroom", json!({"nodes": 2, "pods": 1}), "not both");
    check("headroom", json!({}), "must say how many");
    check("headroom", json!({"nodes": 1, "resources": {"cpu": 1}}), "belong to pods");
    check(
        "headroom",
        json!({"pods": 1, "resources": {"cpu": "much"}}),
        "headroom.resources.cpu: is not a quantity",
    );

    let schedule = |name: &str, value: Value| {
        let mut schedule = json!({"start": "0 8 * * *", "duration": "1h", "minNodes": 2});
        schedule[name] = value;
        json!([schedule])
    };
    check("schedules", schedule("timeZone", json!("Europe/Berlin")), "");
    check(
        "schedules",
        schedule("timeZone", json!("Europe/Berln")),
        "is not a time zone, found \"Europe/Berln\", allowed: an IANA name like Europe/Berlin (did you mean Europe/Berlin?)",
    );
    check("schedules", schedule("start", json!("0 8 * *")), "schedules[0].start: has 4 fields and needs 5");
    check("schedules", schedule("start", json!("0 25 * * *")), "has the hour \"25\", which is not valid");
    check("schedules", schedule("start", json!("0 0 31 2 *")), "never happens");
    check("schedules", schedule("start", Value::Null), "schedules[0].start: is required");
    check(
        "schedules",
        schedule("end", json!("0 9 * * *")),
        "schedules[0].end: must be left out when duration is given",
    );
    check("schedules", schedule("duration", Value::Null), "schedules[0].duration: is required");
    check("schedules", schedule("duration", json!("1s")), "must be at least a minute");
    check("schedules", schedule("minNodes", Value::Null), "a schedule sets minNodes, maxNodes or both");
    check(
        "schedules",
        schedule("minNodes", json!(11)),
        "schedules[0].minNodes: must not be above the maximum that holds with it, 10",
    );
}

#[test]
fn api_n34_n35_n36_platform_fields() {
    check_platform(
        "gcp",
        json!({"diskSize": 9}),
        "spec.platform.gcp.diskSize: is out of range, found 9, allowed: 10 to",
    );
    check_platform("gcp", json!({"diskType": "pd-fast"}), "allowed: pd-standard, pd-ssd, pd-balanced");
    check_platform("gcp", json!({"zones": ["us-central1-a", "us-central1-a"]}), "zones[1]: is listed twice");
    check_platform("gcp", json!({"zones": [""]}), "zones[0]: must not be empty");
    check_platform(
        "gcp",
        json!({"zones": ["us-central1-a", "europe-west1-b"]}),
        "zones[1]: is outside of the region us-central1",
    );
    check_platform("gcp", json!({"zones": "us-central1-a"}), "zones: must be a list");
    check_platform(
        "gcp",
        json!({"accelerators": [{"type": "nvidia-tesla-v100", "count": 0}]}),
        "accelerators[0].count: is out of range",
    );
    check_platform("gcp", json!({"accelerators": [{"count": 1}]}), "accelerators[0].type: is required");
    check_platform("gcp", json!({"preemptible": "no"}), "preemptible: must be true or false");
    check_platform(
        "aws",
        json!({"instanceType": "m5.xlarge", "volumeSize": 100, "volumeType": "gp3",
        "availabilityZones": ["us-west-2a", "us-west-2b"], "spotInstances": false, "userData": "#!/bin/bash\necho"}),
        "",
    );
    check_platform("aws", json!({"volumeSize": 7}), "volumeSize: is out of range, found 7, allowed: 8 to");
    check_platform("aws", json!({"volumeType": "gp9"}), "allowed: gp2, gp3, io1, io2");
    check_platform(
        "aws",
        json!({"availabilityZones": ["us-west-2a", "us-east-1a"]}),
        "is outside of the region us-west-2",
    );
    check_platform(
        "azure",
        json!({"vmSize": "Standard_D4s_v3", "osDiskSizeGB": 100, "osDiskType": "Premium_LRS",
        "availabilityZones": ["1", "2"], "spotInstances": false}),
        "",
    );
    check_platform(
        "azure",
        json!({"osDiskSizeGB": 29}),
        "osDiskSizeGB: is out of range, found 29, allowed: 30 to",
    );
    check_platform(
        "azure",
        json!({"osDiskType": "Premium"}),
        "allowed: Standard_LRS, Premium_LRS, StandardSSD_LRS",
    );
    check_platform("azure", json!({"availabilityZones": [1]}), "availabilityZones[0]: must be a string");
    check_platform("baremetal", json!({"pool": "gpu", "selector": {"matchLabels": {"rack": "r1"}}}), "");
    check_platform("baremetal", json!({"pool": "GPU"}), "spec.platform.baremetal.pool: may only hold");
    check_platform(
        "byoh",
        json!({"selector": {"matchExpressions": [{"key": "purpose", "operator": "in", "values": ["gpu"]}]}}),
        "did you mean In?",
    );
    check_platform(
        "byoh",
        json!({"selector": {"matchExpressions": [{"key": "purpose", "operator": "In"}]}}),
        "needs at least one value",
    );
    check_platform(
        "byoh",
        json!({"templateRef": {"kind": "ByoMachineTemplate"}}),
        "templateRef.name: is required",
    );
    check_platform("vsphere", json!({"template": "/dc0/vm/ubuntu", "numCPUs": 8, "memoryMiB": 32768}), "");
    check_platform("vsphere", json!({"numCPUs": 8}), "spec.platform.vsphere.template: is required");
}

#[test]
fn api_n35_zones_lie_in_the_clusters_region() {
    let body = json!({"name": "c", "spec": {"platform": {"type": "gcp", "gcp": {"region": "europe-west1"}}}});
    let cluster = Cluster::parse_create(&body).unwrap().value.spec;
    let context = PoolContext { cluster_id: None, cluster: Some(&cluster) };
    let fault = NodePool::parse_create(&seed_body(), &context).unwrap_err().details();
    assert!(
        fault.contains(
            "spec.platform.gcp.zones[0]: is outside of the region europe-west1 that its cluster is in"
        ),
        "{fault}"
    );
}

#[test]
fn api_n12_n37_n38_labels_and_taints() {
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let many: Vec<Value> = (0..51).map(|i| taint(&format!("k{i}"), "NoSchedule")).collect();
    refused(
        "spec.taints",
        json!([taint("a", "Never")]),
        "spec.taints[0].effect: is not a taint effect, found \"Never\", allowed: NoSchedule, PreferNoSchedule, NoExecute",
    );
    refused("spec.taints", json!([taint("", "NoSchedule")]), "spec.taints[0].key: must not be empty");
    refused("spec.taints", json!([{"effect": "NoSchedule"}]), "spec.taints[0].key: is required");
    refused("spec.taints", json!([{"key": "a"}]), "spec.taints[0].effect: is required");
    refused(
        "spec.taints",
        json!([taint("a", "NoSchedule"), taint("a", "NoSchedule")]),
        "spec.taints[1]: repeats the key and effect",
    );
    refused("spec.taints", json!(many), "spec.taints: has too many items, found \"51\", allowed: at most 50");
    refused("spec.taints", json!([taint("muster.dev/off", "NoSchedule")]), "is a taint that Muster sets");
    let _ = accepted("spec.taints", json!([taint("a", "NoSchedule"), taint("a", "NoExecute")]));
    refused("spec.platform.gcp.taints", json!([taint("a", "Never")]), "spec.platform.gcp.taints[0].effect");
    for block in ["spec.labels", "spec.platform.gcp.labels"] {
        refused(
            block,
            json!({"a/b/c": "x"}),
            "has a key that is not valid: it must have at most one /, found \"a/b/c\"",
        );
        refused(
            block,
            json!({"a": "v".repeat(64)}),
            ".a: is not a label value: it must have at most 63 characters",
        );
        refused(block, json!({"a": "v".repeat(1 << 20)}), ".a: is not a label value");
        refused(block, json!({"kubernetes.io/os": "linux"}), "is a label that Kubernetes sets");
        refused(block, json!({"nodepool": "x"}), "is a label that Muster sets");
        refused(block, json!({"a": 1}), ".a: must be a string, found 1 (put numbers and booleans in quotes)");
    }
}

#[test]
fn contradictions_between_blocks_are_refused() {
    let mut body = with(seed_body(), "spec.labels", json!({"team": "a"}));
    body = with(body, "spec.platform.gcp.labels", json!({"team": "a", "x": "y"}));
    let spec = create(&body).unwrap().value.spec;
    assert_eq!(spec.node_labels().len(), 2, "the same label twice is no contradiction");
    body = with(body, "spec.platform.gcp.labels", json!({"team": "b"}));
    let fault = create(&body).unwrap_err().details();
    assert!(
        fault.contains(
            "spec.platform.gcp.labels.team: contradicts spec.labels.team, which is \"a\", found \"b\""
        ),
        "{fault}"
    );
    let mut body =
        with(seed_body(), "spec.taints", json!([{"key": "k", "value": "1", "effect": "NoSchedule"}]));
    body =
        with(body, "spec.template", json!({"taints": [{"key": "k", "value": "2", "effect": "NoSchedule"}]}));
    let fault = create(&body).unwrap_err().details();
    assert!(fault.contains("spec.template.taints[0]: contradicts spec.taints[0]"), "{fault}");
}

#[test]
fn other_names_are_read_and_said_so() {
    let body = json!({"name": "p", "cluster_id": CLUSTER, "spec": {
        "replicas": 4, "nodeDrainTimeout": "5m",
        "management": {"autoRepair": true, "upgradeType": "Replace",
            "replace": {"strategy": "RollingUpdate", "rollingUpdate": {"maxSurge": "1", "maxUnavailable": "0"}}},
        "platform": {"type": "GCP", "gcp": {"instanceType": "n1-standard-4", "rootVolume": {"size": 50, "type": "pd-ssd"}}},
        "release": {"image": "x", "version": "4.20"}}});
    let parsed = create(&body).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed.value.spec).unwrap(),
        json!({
            "nodeCount": 4,
            "management": {"autoRepair": true, "upgradeType": "Replace", "strategy": "RollingUpdate", "maxSurge": 1,
                "maxUnavailable": 0, "nodeDrainTimeout": "5m"},
            "platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-4", "diskSize": 50, "diskType": "pd-ssd"}},
            "release": {"image": "x", "version": "4.20"}
        })
    );
    assert!(
        parsed.warnings.contains(&"spec.replicas is read as spec.nodeCount".to_owned()),
        "{:?}",
        parsed.warnings
    );
    refused("spec.replicas", json!(4), "spec.replicas: contradicts spec.nodeCount, found 4");
    let _ = accepted("spec.replicas", json!(3)); // the same value twice
    // A fault is reported under the name that was sent.
    let sent = with(body, "spec.replicas", json!(-4));
    assert!(create(&sent).unwrap_err().details().starts_with("spec.replicas: is out of range"));
}

#[test]
fn stored_and_api_forms_round_trip() {
    let pool = pool(&seed_body());
    let stored = serde_json::to_string(&pool).unwrap();
    assert!(!stored.contains("resource_version"));
    assert_eq!(serde_json::from_str::<NodePool>(&stored).unwrap(), pool);
}

/// A spec in which one place was replaced by something arbitrary.
fn damaged() -> impl Strategy<Value = Value> {
    let places = prop::sample::select(vec![
        "name",
        "cluster_id",
        "spec",
        "spec.platform",
        "spec.platform.type",
        "spec.platform.gcp",
        "spec.platform.gcp.zones",
        "spec.platform.gcp.accelerators",
        "spec.platform.gcp.labels",
        "spec.platform.gcp.taints",
        "spec.platform.gcp.rootVolume",
        "spec.autoscaling",
        "spec.autoscaling.minNodes",
        "spec.autoscaling.triggers",
        "spec.autoscaling.schedules",
        "spec.autoscaling.headroom",
        "spec.nodeCount",
        "spec.replicas",
        "spec.labels",
        "spec.taints",
        "spec.template",
        "spec.template.capacity",
        "spec.management",
        "spec.management.replace",
        "spec.management.maxSurge",
        "spec.nodeDrainTimeout",
        "spec.mode",
        "spec.release",
    ]);
    let words =
        prop::sample::select(vec!["", "a", "5", "50%", "10m", "NoSchedule", "0 8 * * *", "gcp", "-1", "ü\0"]);
    let value = prop_oneof![
        any_json(),
        words.clone().prop_map(|word| json!(word)),
        words.clone().prop_map(
            |word| json!([{"key": word, "effect": word, "start": word, "duration": word, "minNodes": 1}])
        ),
        words.prop_map(|word| json!({word: word, "cpu": word, "nodes": 1, "pods": 2})),
        (-3_i64..200_000).prop_map(|number| json!(number)),
    ];
    (places, value).prop_map(|(place, value)| {
        let mut body = seed_body();
        body["spec"]["template"] = json!({});
        body["spec"]["management"] = json!({});
        with(body, place, value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_input_panics_and_what_is_accepted_is_stable(body in prop_oneof![any_json(), damaged()]) {
        let _ = Cluster::parse_create(&body);
        if let Ok(parsed) = create(&body) {
            let spec = parsed.value.spec;
            // Read, written and read again it is the same, and says no more about other names.
            let written = serde_json::to_value(&spec).unwrap();
            let again = accepted("spec", written.clone());
            prop_assert_eq!(&again.value.spec, &spec);
            prop_assert_eq!(&serde_json::from_value::<PoolSpec>(written).unwrap(), &spec);
            prop_assert!(!again.warnings.iter().any(|warning| warning.contains("is read as")));
            // An empty patch changes nothing, and every accessor has an answer.
            let pool = pool(&with(seed_body(), "spec", serde_json::to_value(&spec).unwrap()));
            let same = pool.merge_patch(&json!({}), &PoolContext::default()).unwrap().value;
            prop_assert!(!spec_changed(&pool.spec, &same.spec));
            let bounds = spec.bounds_at(Timestamp::from_millis(1_760_000_000_000));
            prop_assert!(bounds.min <= bounds.max);
            prop_assert!(!spec.is_autoscaled() || spec.initial_nodes() <= MAX_NODES);
            let _ = spec.node_shape(&pool.name, Catalogue::shipped(), None);
        }
    }

    #[test]
    fn no_text_panics(text in any::<Vec<u8>>()) {
        let _ = crate::field::parse_json(&text);
        let _ = crate::Report::parse(&text, &crate::report::ReportContext { generation: 1, now: Timestamp::EPOCH });
    }
}
