//! `platform` of pools and clusters. Blocks keep fields that they do not know.

use muster_model::{field::Choice, platform::PlatformKind};
use serde_json::{Map, Value, json};

use super::{integer, labels, list, open, optional, reference, short, words};

pub(super) fn schemas() -> Value {
    let boolean = json!({ "type": "boolean" });
    let taints = || list(reference("Taint"), 50);
    let word = |words: &[&str]| json!({ "type": "string", "enum": words });
    let zones = || list(json!({ "type": "string", "minLength": 1 }), 100);
    let named = open(
        &["name"],
        [
            ("name", short(253)),
            ("apiVersion", short(253)),
            ("apiGroup", short(253)),
            ("kind", short(253)),
            ("namespace", short(253)),
        ],
    );
    let accelerator = open(&["type", "count"], [("type", short(63)), ("count", integer(1, 64))]);
    let expression = open(
        &["key", "operator"],
        [
            ("key", short(400)),
            ("operator", word(&["In", "NotIn", "Exists", "DoesNotExist"])),
            ("values", list(json!({ "type": "string" }), 50)),
        ],
    );
    let selector = open(&[], [("matchLabels", labels()), ("matchExpressions", list(expression, 50))]);
    json!({
        "Platform": frame("", "of a pool"),
        "ClusterPlatform": frame("Cluster", "of a cluster"),
        "Gcp": open(&[], [
            ("machineType", short(63)), ("diskSize", integer(10, 65_536)),
            ("diskType", word(&["pd-standard", "pd-ssd", "pd-balanced"])), ("zones", zones()),
            ("preemptible", boolean.clone()), ("spot", boolean.clone()), ("accelerators", list(accelerator, 8)),
            ("labels", labels()), ("taints", taints()), ("subnet", short(253)), ("serviceAccount", short(253)),
        ]),
        "Aws": open(&[], [
            ("instanceType", short(63)), ("volumeSize", integer(8, 65_536)),
            ("volumeType", word(&["gp2", "gp3", "io1", "io2"])), ("availabilityZones", zones()),
            ("spotInstances", boolean.clone()), ("userData", json!({ "type": "string", "description":
                "Shown only to those who may write it; others read (redacted)" })),
            ("labels", labels()), ("taints", taints()),
        ]),
        "Azure": open(&[], [
            ("vmSize", short(63)), ("osDiskSizeGB", integer(30, 65_536)),
            ("osDiskType", word(&["Standard_LRS", "Premium_LRS", "StandardSSD_LRS"])), ("availabilityZones", zones()),
            ("spotInstances", boolean.clone()), ("labels", labels()), ("taints", taints()),
        ]),
        "Baremetal": open(&[], [
            ("pool", json!({ "type": "string", "pattern": super::objects::NAME, "description":
                "Name in the inventory; by default the pool's own" })),
            ("selector", reference("Selector")), ("bootProfile", short(253)), ("rackSpread", boolean.clone()),
            ("zoneSpread", boolean),
        ]),
        "Byoh": open(&[], [
            ("selector", reference("Selector")), ("inventory", short(253)), ("templateRef", reference("Reference")),
            ("bootstrapConfigRef", reference("Reference")), ("installerRef", reference("Reference")),
            ("joinMode", word(&["kubeadm", "tlsBootstrap"])), ("capacityRequirements", reference("Resources")),
        ]),
        "Vsphere": open(&[], [
            ("numCPUs", integer(1, 1024)), ("memoryMiB", integer(128, 33_554_432)), ("diskGiB", integer(1, 65_536)),
            ("cloneMode", word(&["fullClone", "linkedClone"])), ("template", short(400)), ("datacenter", short(400)),
            ("datastore", short(400)), ("storagePolicyName", short(400)), ("folder", short(400)),
            ("network", short(400)), ("resourcePool", short(400)), ("vcIP", short(400)), ("tkgIPFamily", short(400)),
            ("hardwareVersion", short(400)), ("nameservers", list(json!({ "type": "string" }), 16)),
            ("templateRef", reference("Reference")),
        ]),
        "ClusterGcp": open(&[], [
            ("projectID", short(253)), ("region", short(253)), ("network", short(253)), ("subnet", short(253)),
            ("endpointAccess", short(63)), ("workloadIdentity", json!({ "type": "object" })),
        ]),
        "ClusterAws": open(&[], [("region", short(253)), ("accountID", short(253)), ("vpcID", short(253))]),
        "ClusterAzure": open(&[], [
            ("location", short(253)), ("resourceGroup", short(253)), ("subscriptionID", short(253)),
        ]),
        "ClusterBaremetal": { "type": "object" },
        "ClusterByoh": { "type": "object" },
        "ClusterVsphere": open(&[], [
            ("server", short(400)), ("datacenter", short(400)), ("datastore", short(400)), ("network", short(400)),
            ("folder", short(400)), ("resourcePool", short(400)),
        ]),
        "Reference": named,
        "Selector": selector,
    })
}

/// A type and the block of that name. Another block is refused, which a schema cannot say briefly.
fn frame(prefix: &str, what: &str) -> Value {
    let mut properties = Map::new();
    properties.insert("type".into(), words::<PlatformKind>());
    for (word, _) in PlatformKind::ALL {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase()).into_iter();
        let name: String = prefix.chars().chain(first).chain(letters).collect();
        properties.insert((*word).to_owned(), optional(reference(&name)));
    }
    json!({
        "type": "object", "required": ["type"], "properties": properties, "additionalProperties": false,
        "description": format!("The platform {what}: a type, and the block of that name"),
    })
}
