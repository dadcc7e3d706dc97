//! The schemas beside the model: nothing that can be stored may be missing, and nothing may change on the way.

use muster_model::{
    Cluster, NodePool, Timestamp,
    cluster::{ClusterSpec, Drain, Networking},
    host::BareMetalNodeSpec,
    pool::{Autoscaling, Management, PoolContext, PoolSpec, Template},
    resource::{ResourceKind, defaults, shape},
};
use serde_json::{Value, json};

use super::*;

const CLUSTER: &str = "550e8400-e29b-41d4-a716-446655440000";

/// A pool that says everything that a pool can say.
fn whole_pool() -> NodePool {
    pool(json!({
        "platform": { "type": "gcp", "gcp": { "machineType": "n1-standard-4" } },
        "autoscaling": {
            "enabled": true, "minNodes": 1, "maxNodes": 10, "targetCPUUtilization": 75, "targetMemoryUtilization": 85,
            "scaleDownUtilization": 40, "scaleUpDelay": "1m", "scaleDownDelay": "20m",
            "triggers": [{
                "name": "queue", "metricQuery": "sum(queue_length)", "threshold": 5.0, "duration": "2m",
                "scaleDirection": "up", "comparator": "above", "clearThreshold": 2.5, "onNoData": "ignore",
                "aggregate": "max",
            }],
            "headroom": { "pods": 3, "resources": { "cpu": 0.5, "memory": "1Gi" } },
            "schedules": [
                { "name": "day", "start": "0 8 * * MON-FRI", "duration": "10h", "timeZone": "Europe/Berlin",
                  "minNodes": 2, "maxNodes": 8 },
                { "start": "0 22 * * *", "end": "0 6 * * *", "maxNodes": 4 },
            ],
        },
        "nodeCount": 3,
        "labels": { "team": "a" },
        "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }],
        "template": {
            "capacity": { "cpu": "4", "memory": "16Gi", "nvidia.com/gpu": 1 }, "reserved": { "cpu": "100m" },
            "labels": { "topology.kubernetes.io/zone": "a" },
            "taints": [{ "key": "own", "effect": "NoExecute" }],
            "startupTaints": [{ "key": "starting", "effect": "NoSchedule" }],
            "maxPods": 110, "arch": "amd64", "os": "linux", "price": 0.19,
        },
        "management": {
            "upgradeType": "Replace", "strategy": "OnDelete", "maxSurge": "25%", "maxUnavailable": 1,
            "nodeDrainTimeout": "10m", "autoRepair": true,
        },
        "mode": "active",
        "release": { "image": "i", "version": "1.30", "channelGroup": "stable" },
    }))
}

fn pool(spec: Value) -> NodePool {
    let body = json!({ "name": "web", "cluster_id": CLUSTER, "spec": spec });
    let draft =
        NodePool::parse_create(&body, &PoolContext::default()).unwrap_or_else(|error| panic!("{error}"));
    let id = "123e4567-e89b-12d3-a456-426614174000".parse().unwrap();
    draft.value.into_pool(id, "team".parse().unwrap(), "me".to_owned(), Timestamp::EPOCH)
}

fn whole_cluster() -> Cluster {
    cluster(json!({
        "infraID": "lab-1", "platform": { "type": "gcp", "gcp": { "region": "us-central1" } }, "mode": "active",
        "drain": { "barePods": "evict", "localStorage": "evict", "systemPods": "keep", "minReplicas": 2 },
        "release": { "version": "1.30" },
        "networking": {
            "clusterNetwork": [{ "cidr": "10.128.0.0/14", "hostPrefix": 23 }], "serviceNetwork": ["172.30.0.0/16"],
            "podCIDR": "10.0.0.0/16", "serviceCIDR": "10.1.0.0/16",
        },
        "dns": { "baseDomain": "example.com", "publicZone": "p", "privateZone": "q" },
        "serviceAccountSigningKey": "c2VjcmV0", "issuerURL": "https://issuer.example",
    }))
}

fn cluster(spec: Value) -> Cluster {
    let body = json!({ "name": "lab", "target_project_id": "cloud-1", "spec": spec });
    let draft = Cluster::parse_create(&body).unwrap_or_else(|error| panic!("{error}"));
    let id = CLUSTER.parse().unwrap();
    draft.value.into_cluster(id, "team".parse().unwrap(), "me".to_owned(), Timestamp::EPOCH)
}

fn whole_host() -> BareMetalNodeSpec {
    let spec = json!({
        "mgmtAddress": "10.0.0.5", "macAddress": "aa:bb:cc:00:11:22", "powerInterface": "redfish",
        "bmcCredentials": "bmc", "bootProfile": "net", "rack": "r1", "pool": "workers",
        "resources": { "cpu": "64", "memory": "256Gi", "gpu": 2, "storage": "1Ti", "customResources": { "example.com/nic": "2" } },
        "powerState": "on", "inventoryId": "i-1",
        "drivers": [{ "kind": "redfish" }, { "kind": "ipmi", "address": "10.0.0.6", "credentials": "other", "settings": { "port": "623" } }],
        "systemId": "1", "serial": "s", "tlsVerify": "pin", "pin": format!("sha256:{}", "ab".repeat(32)), "slot": 3, "height": 2, "zone": "z",
        "labels": { "purpose": "gpu" }, "taints": [{ "key": "gpu", "effect": "NoSchedule" }],
        "idleWatts": 100, "maxWatts": 700, "nodeMatch": { "by": "name", "value": "n" }, "admin": "maintenance",
        "hold": { "by": "me", "reason": "disk", "until": "2026-01-01T00:00:00Z" },
        "acknowledgement": { "by": "me", "reason": "seen", "at": "2026-01-01T00:00:00Z" },
        "deadlines": { "bootDeadline": "40m" }, "project": "team",
        "registered": { "by": "me", "at": "2026-01-01T00:00:00Z" },
        "deletion": { "mode": "keep", "by": "me", "at": "2026-01-01T00:00:00Z" }, "canForceOff": false,
    });
    BareMetalNodeSpec::read(&spec, "spec").unwrap_or_else(|error| panic!("{error}")).value
}

/// Fails to compile when the model gets a field that the examples above may lack, and fails when they lack one.
#[test]
fn the_examples_say_everything() {
    let PoolSpec {
        platform: _,
        autoscaling,
        node_count,
        labels,
        taints,
        template,
        management,
        mode,
        release,
    } = whole_pool().spec;
    assert!(
        node_count.is_some() && labels.is_some() && taints.is_some() && mode.is_some() && release.is_some()
    );
    let Autoscaling {
        enabled,
        min_nodes,
        max_nodes,
        target_cpu_utilization,
        target_memory_utilization,
        scale_down_utilization,
        scale_up_delay,
        scale_down_delay,
        triggers,
        headroom,
        schedules,
    } = autoscaling.unwrap();
    assert!(
        enabled.is_some() && min_nodes.is_some() && max_nodes.is_some() && target_cpu_utilization.is_some()
    );
    assert!(
        target_memory_utilization.is_some() && scale_down_utilization.is_some() && scale_up_delay.is_some()
    );
    assert!(scale_down_delay.is_some() && triggers.is_some() && headroom.is_some() && schedules.is_some());
    let Template { capacity, reserved, labels, taints, startup_taints, max_pods, arch, os, price } =
        template.unwrap();
    assert!(
        capacity.is_some() && reserved.is_some() && labels.is_some() && taints.is_some() && price.is_some()
    );
    assert!(startup_taints.is_some() && max_pods.is_some() && arch.is_some() && os.is_some());
    let Management { upgrade_type, strategy, max_surge, max_unavailable, node_drain_timeout, auto_repair } =
        management.unwrap();
    assert!(upgrade_type.is_some() && strategy.is_some() && max_surge.is_some() && max_unavailable.is_some());
    assert!(node_drain_timeout.is_some() && auto_repair.is_some());
    let ClusterSpec {
        infra_id,
        platform: _,
        mode,
        drain,
        release,
        networking,
        dns,
        service_account_signing_key,
        issuer_url,
    } = whole_cluster().spec;
    assert!(
        infra_id.is_some() && mode.is_some() && release.is_some() && dns.is_some() && issuer_url.is_some()
    );
    assert!(service_account_signing_key.is_some());
    let Drain { bare_pods, local_storage, system_pods, min_replicas } = drain.unwrap();
    assert!(
        bare_pods.is_some() && local_storage.is_some() && system_pods.is_some() && min_replicas.is_some()
    );
    let Networking { cluster_network, service_network, pod_cidr, service_cidr } = networking.unwrap();
    assert!(
        cluster_network.is_some()
            && service_network.is_some()
            && pod_cidr.is_some()
            && service_cidr.is_some()
    );
    // Every member of a host's spec is written out when it is set.
    let members = serde_json::to_value(whole_host()).unwrap();
    assert_eq!(members.as_object().unwrap().len(), 31, "{members}");
}

/// Paths of a value that the schema does not know.
fn unknown(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let at = format!("{path}.{name}");
                let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                match known {
                    Some(inner) => unknown(inner, member, &at, found),
                    None => found.push(at),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                unknown(&schema["items"], item, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

#[track_caller]
fn known(kind: ResourceKind, spec: &Value) {
    let mut found = Vec::new();
    unknown(spec_schema(kind), spec, "spec", &mut found);
    assert_eq!(found, Vec::<String>::new(), "{kind}: the schema lacks fields");
}

#[test]
fn every_field_of_the_model_is_in_its_schema() {
    known(ResourceKind::NodePool, &shape::pool_spec(&whole_pool(), "lab"));
    known(ResourceKind::Cluster, &shape::cluster_spec(&whole_cluster()));
    known(ResourceKind::BareMetalNode, &shape::host_spec(&whole_host()));
    for platform in platforms() {
        known(
            ResourceKind::NodePool,
            &shape::pool_spec(&pool(json!({ "platform": platform, "nodeCount": 1 })), "lab"),
        );
    }
    for headroom in [json!({ "nodes": 2 }), json!({ "pods": 1, "resources": { "cpu": "1" } })] {
        let spec = json!({ "platform": { "type": "gcp" }, "autoscaling": { "headroom": headroom } });
        known(ResourceKind::NodePool, &shape::pool_spec(&pool(spec), "lab"));
    }
}

/// Every block with every field that its platform reads.
fn platforms() -> Vec<Value> {
    let selector = json!({ "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] });
    let reference = json!({ "apiVersion": "v1", "kind": "T", "namespace": "n", "name": "t" });
    let labels = json!({ "a": "b" });
    let taints = json!([{ "key": "k", "effect": "NoSchedule" }]);
    vec![
        json!({ "type": "gcp", "gcp": { "machineType": "n1-standard-4", "diskSize": 100, "diskType": "pd-ssd",
            "zones": ["us-central1-a"], "preemptible": true, "spot": true, "accelerators": [{ "type": "t4", "count": 1 }],
            "labels": labels, "taints": taints, "subnet": "s", "serviceAccount": "a" } }),
        json!({ "type": "aws", "aws": { "instanceType": "m5.large", "volumeSize": 100, "volumeType": "gp3",
            "availabilityZones": ["us-west-2a"], "spotInstances": true, "userData": "c2VjcmV0", "labels": labels,
            "taints": taints } }),
        json!({ "type": "azure", "azure": { "vmSize": "Standard_D4s_v3", "osDiskSizeGB": 100,
            "osDiskType": "Premium_LRS", "availabilityZones": ["1"], "spotInstances": true, "labels": labels,
            "taints": taints } }),
        json!({ "type": "baremetal", "baremetal": { "pool": "p", "selector": selector, "bootProfile": "net",
            "deadlines": { "bootDeadline": "40m" }, "rackSpread": true, "zoneSpread": true } }),
        json!({ "type": "byoh", "byoh": { "selector": selector, "inventory": "i", "templateRef": reference,
            "bootstrapConfigRef": reference, "installerRef": reference, "joinMode": "kubeadm",
            "capacityRequirements": { "cpu": "4" } } }),
        json!({ "type": "vsphere", "vsphere": { "numCPUs": 4, "memoryMiB": 8192, "diskGiB": 100,
            "cloneMode": "linkedClone", "template": "t", "datacenter": "d", "datastore": "s", "storagePolicyName": "p",
            "folder": "f", "network": "n", "resourcePool": "r", "vcIP": "10.0.0.1", "tkgIPFamily": "ipv4",
            "hardwareVersion": "vmx-15", "nameservers": ["10.0.0.2"], "templateRef": reference } }),
    ]
}

#[test]
fn secrets_are_in_no_object() {
    for platform in platforms() {
        let spec = shape::pool_spec(&pool(json!({ "platform": platform })), "lab");
        assert!(!spec.to_string().contains("c2VjcmV0"), "{spec}");
    }
    let spec = shape::cluster_spec(&whole_cluster());
    assert!(!spec.to_string().contains("c2VjcmV0"), "{spec}");
}

/// What an API server makes of an object: JSON of its own, with the defaults.
fn kept(kind: ResourceKind, spec: &Value) -> Value {
    let mut kept: Value = serde_json::from_str(&spec.to_string()).unwrap();
    defaults::fill(spec_schema(kind), &mut kept);
    kept
}

/// What comes back from an object says the same as what went into it, for all kinds.
#[test]
fn specs_go_there_and_back() {
    let mut pools: Vec<NodePool> = platforms()
        .into_iter()
        .map(|platform| pool(json!({ "platform": platform, "nodeCount": 2 })))
        .collect();
    pools.push(whole_pool());
    for pool in pools {
        let mut spec = kept(ResourceKind::NodePool, &shape::pool_spec(&pool, "lab"));
        defaults::strip(spec_schema(ResourceKind::NodePool), &mut spec);
        let update = pool.merge_patch(&shape::body(&spec), &PoolContext::default()).unwrap();
        assert_eq!((update.value.name, &update.value.spec), (pool.name.clone(), &pool.spec));
    }
    let cluster = whole_cluster();
    let spec = kept(ResourceKind::Cluster, &shape::cluster_spec(&cluster));
    let update = cluster.merge_patch(&shape::body(&spec)).unwrap().value;
    assert_eq!(
        (update.name, update.target_project_id, update.spec),
        (cluster.name, cluster.target_project_id, cluster.spec)
    );
    let mut host = whole_host();
    (host.project, host.registered, host.deletion) = (None, None, None);
    let spec = kept(ResourceKind::BareMetalNode, &shape::host_spec(&host));
    assert_eq!(BareMetalNodeSpec::read(&spec, "spec").unwrap().value, host);
}

/// The rules of structural schemas that an API server would refuse a definition for.
#[test]
fn schemas_are_structural() {
    fn check(schema: &Value, path: &str) {
        let loose = schema["x-kubernetes-int-or-string"] == true
            || schema["x-kubernetes-preserve-unknown-fields"] == true;
        assert!(schema["type"].is_string() || loose, "{path} has no type");
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            check(inner, &format!("{path}.{name}"));
        }
        for inner in [schema.get("items"), schema.get("additionalProperties")].into_iter().flatten() {
            check(inner, &format!("{path}[]"));
        }
        for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
            let required = schema["items"]["required"].as_array();
            assert!(required.is_some_and(|all| all.contains(key)), "{path}: the key {key} is not required");
        }
    }
    for kind in ResourceKind::ALL {
        check(&definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"], kind.kind());
    }
}

#[test]
fn ops_u1_at_most_ten_columns_without_wide() {
    for kind in ResourceKind::ALL {
        let columns = definition(kind)["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
        let narrow = columns.iter().filter(|column| column["priority"] == 0).count();
        assert!(narrow < 10, "{kind} has {narrow} columns beside its name");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a person asks for a new reference by the environment")]
fn the_reference_is_made_from_the_definitions() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/custom-resources.md");
    if std::env::var("MUSTER_BLESS").is_ok() {
        std::fs::write(path, markdown()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == markdown(), "{path} is out of date; run the test with MUSTER_BLESS=1");
}
