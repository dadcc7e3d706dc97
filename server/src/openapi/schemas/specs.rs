//! `spec` of pools and clusters.

use muster_model::cluster::{Keep, MAX_REPLICAS};
use muster_model::pool::{
    Arch, Comparator, MAX_NODES, Mode, OnNoData, RolloutStrategy, ScaleDirection, SeriesAggregate,
    TaintEffect, UpgradeType,
};
use serde_json::{Value, json};

use super::{closed, integer, labels, list, reference, short, text, words};

fn nodes(least: u64) -> Value {
    integer(least, u64::from(MAX_NODES))
}

fn duration() -> Value {
    json!({ "type": "string", "minLength": 1, "description": "Like 90s, 10m or 1h30m", "examples": ["10m"] })
}

fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = text.into();
    schema
}

pub(super) fn schemas() -> Value {
    let amount = json!({ "type": ["string", "number"], "description":
        "A quantity as Kubernetes writes it: 500m, 4, 16Gi, 1e3" });
    let percent = || integer(1, 100);
    let boolean = json!({ "type": "boolean" });
    let channel = json!({ "type": "string", "enum": ["stable", "fast", "candidate", "eus"] });
    let or_percent =
        json!({ "type": ["integer", "string"], "description": "A number of nodes, or a share like 25%" });
    json!({
        "Resources": { "type": "object", "additionalProperties": amount, "examples": [{ "cpu": "4", "memory": "16Gi" }] },
        "Taint": closed(&["key", "effect"], [
            ("key", short(317)), ("value", json!({ "type": "string", "maxLength": 63 })),
            ("effect", words::<TaintEffect>()),
        ]),
        "Trigger": closed(&["metricQuery", "threshold", "duration", "scaleDirection"], [
            ("name", short(63)), ("metricQuery", json!({ "type": "string", "minLength": 1 })),
            ("threshold", json!({ "type": "number" })), ("duration", duration()),
            ("scaleDirection", words::<ScaleDirection>()), ("comparator", words::<Comparator>()),
            ("clearThreshold", json!({ "type": "number" })), ("onNoData", words::<OnNoData>()),
            ("aggregate", described(words::<SeriesAggregate>(),
                "How several series become one verdict; `single` unless given: several are then unknown")),
        ]),
        "Headroom": closed(&[], [("nodes", nodes(0)), ("pods", nodes(0)), ("resources", reference("Resources"))]),
        "Schedule": closed(&["start"], [
            ("name", short(63)), ("start", short(200)), ("end", short(200)), ("duration", duration()),
            ("timeZone", short(100)), ("minNodes", nodes(0)), ("maxNodes", nodes(1)),
        ]),
        "Autoscaling": closed(&[], [
            ("enabled", boolean.clone()), ("minNodes", nodes(0)), ("maxNodes", nodes(1)),
            ("targetCPUUtilization", percent()), ("targetMemoryUtilization", percent()),
            ("scaleDownUtilization", integer(0, 100)), ("scaleUpDelay", duration()), ("scaleDownDelay", duration()),
            ("triggers", list(reference("Trigger"), 20)), ("headroom", reference("Headroom")),
            ("schedules", list(reference("Schedule"), 50)),
        ]),
        "Template": closed(&[], [
            ("capacity", reference("Resources")), ("reserved", reference("Resources")), ("labels", labels()),
            ("taints", list(reference("Taint"), 50)), ("startupTaints", list(reference("Taint"), 50)),
            ("maxPods", integer(1, 10_000)), ("arch", words::<Arch>()), ("os", short(63)),
            ("price", json!({ "type": ["string", "number"], "description": "Currency per node and hour" })),
        ]),
        "Management": closed(&[], [
            ("upgradeType", words::<UpgradeType>()), ("strategy", words::<RolloutStrategy>()),
            ("maxSurge", or_percent.clone()), ("maxUnavailable", or_percent), ("nodeDrainTimeout", duration()),
            ("autoRepair", boolean),
        ]),
        "Release": closed(&[], [("image", short(500)), ("version", short(100)), ("channelGroup", channel)]),
        "NodePoolSpec": closed(&["platform"], [
            ("platform", reference("Platform")), ("autoscaling", reference("Autoscaling")), ("nodeCount", nodes(0)),
            ("labels", labels()), ("taints", list(reference("Taint"), 50)), ("template", reference("Template")),
            ("management", reference("Management")), ("mode", words::<Mode>()), ("release", reference("Release")),
            ("replicas", deprecated(nodes(0), "nodeCount")),
            ("nodeDrainTimeout", deprecated(duration(), "management.nodeDrainTimeout")),
        ]),
        "Network": closed(&["cidr"], [("cidr", short(64)), ("hostPrefix", integer(1, 128))]),
        "Networking": closed(&[], [
            ("clusterNetwork", list(reference("Network"), 16)), ("serviceNetwork", list(text(), 16)),
            ("podCIDR", short(64)), ("serviceCIDR", short(64)),
        ]),
        "Drain": closed(&[], [
            ("barePods", words::<Keep>()), ("localStorage", words::<Keep>()), ("systemPods", words::<Keep>()),
            ("minReplicas", integer(0, u64::from(MAX_REPLICAS))),
        ]),
        "Dns": closed(&[], [("baseDomain", short(253)), ("publicZone", short(253)), ("privateZone", short(253))]),
        "ClusterSpec": closed(&["platform"], [
            ("platform", reference("ClusterPlatform")), ("infraID", short(63)), ("mode", words::<Mode>()),
            ("drain", reference("Drain")), ("release", reference("Release")), ("networking", reference("Networking")), ("dns", reference("Dns")),
            ("issuerURL", short(2048)), ("serviceAccountSigningKey", json!({ "type": "string", "description":
                "Shown only to those who may write it; others read (redacted)" })),
        ]),
        "Scale": { "type": "object", "properties": { "nodeCount": nodes(0), "replicas": nodes(0) },
            "additionalProperties": false, "minProperties": 1, "example": { "nodeCount": 6 } },
    })
}

fn deprecated(mut schema: Value, instead: &str) -> Value {
    schema["deprecated"] = true.into();
    schema["description"] = format!("Read as {instead}").into();
    schema
}
