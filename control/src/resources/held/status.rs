//! What an object's status says of its record.

use muster_model::{
    NODEPOOL_LABEL,
    condition::{self, Weight},
    resource::shape,
    status::{PoolRollup, PoolStatus},
};
use serde_json::{Value, json};

use crate::{
    inventory::Host,
    registry::{Cluster, NodePool, Noun, Stored},
};

/// A number that nobody has said.
const UNSAID: &str = "?";

fn ratio<T: ToString>(ready: Option<T>, desired: impl ToString) -> String {
    format!("{}/{}", ready.map_or_else(|| UNSAID.to_owned(), |ready| ready.to_string()), desired.to_string())
}

pub(super) fn pool(stored: &Stored<NodePool>, cluster: &Stored<Cluster>) -> Value {
    let status: PoolStatus = stored.status();
    let spec = &stored.object.spec;
    let bounds = match &spec.autoscaling {
        Some(block) if block.enabled() => (block.min_nodes(), block.max_nodes()),
        _ => (spec.initial_nodes(), spec.initial_nodes()),
    };
    let nodes = ratio(status.ready_nodes, status.desired_nodes);
    let mut shown = shape::status(json!(status));
    shown["nodes"] = nodes.into();
    shown["minNodes"] = bounds.0.into();
    shown["maxNodes"] = bounds.1.into();
    shown["mode"] = json!(stored.object.mode(&cluster.object.spec));
    shown["selector"] = format!("{NODEPOOL_LABEL}={}", stored.object.name).into();
    shown["summary"] = if stored.object.is_deleting() {
        "Deleting".into()
    } else {
        summary(&shown, shown["phase"].as_str().unwrap_or_default()).into()
    };
    shown
}

pub(super) fn cluster(stored: &Stored<Cluster>, pools: PoolRollup) -> Value {
    let nodes = ratio(pools.ready_nodes, pools.desired_nodes);
    let mut shown = shape::status(json!(stored.status_with(Some(pools))));
    shown["nodes"] = nodes.into();
    shown["mode"] = json!(stored.object.spec.mode());
    shown["summary"] = if stored.object.is_deleting() {
        "Deleting".into()
    } else {
        summary(&shown, shown["phase"].as_str().unwrap_or_default()).into()
    };
    shown
}

/// Members of a host's status that say something about the host. Readings change all the time and are left to the API.
const HOST_SHOWN: [&str; 16] = [
    "state",
    "stateSince",
    "phase",
    "phaseSince",
    "powerState",
    "lastPowerAction",
    "powerActionTime",
    "powerActionDriver",
    "kubernetesNode",
    "nodeReady",
    "bmcReachable",
    "bootTime",
    "joinTime",
    "lastError",
    "retryAt",
    "heldUntil",
];

pub(super) fn host(host: &Host) -> Value {
    let status = host.status();
    let all = json!(status);
    let mut shown =
        json!({ "health": host.health(), "message": status.reason, "conditions": status.conditions });
    for name in HOST_SHOWN {
        if let Some(value) = all.get(name).filter(|value| !value.is_null()) {
            shown[name] = value.clone();
        }
    }
    shown["node"] = shown.get("kubernetesNode").cloned().unwrap_or_else(|| "-".into());
    if let Some(aside) = host.set_aside() {
        shown["message"] = aside.reason.into();
        shown["summary"] = "SetAside".into();
        return shown;
    }
    shown["summary"] = host_summary(&shown, shown["phase"].as_str().unwrap_or_default()).into();
    shown
}

/// The worst reason of a pool or cluster; with nothing wrong the phase says it all.
fn summary(shown: &Value, phase: &str) -> String {
    let quiet = if phase == "Ready" { Weight::Unknown } else { Weight::Fine };
    worst(shown, condition::weight, quiet).unwrap_or_else(|| phase.to_owned())
}

/// The same of a host, whose conditions are troubles when they hold. A host that is off is not unwell; its state is shown
/// anyway, so its phase says what goes on.
fn host_summary(shown: &Value, phase: &str) -> String {
    let weight = |kind: &str, status: &str| match (kind, status) {
        ("Ready", _) | ("BMCReachable", "True") => Weight::Fine,
        ("BMCReachable", "False") | (_, "True") => Weight::Fault,
        _ => Weight::Fine,
    };
    worst(shown, weight, Weight::Fine).unwrap_or_else(|| phase.to_owned())
}

/// The reason of the first of the worst conditions that weigh more than `quiet`.
fn worst(shown: &Value, weight: impl Fn(&str, &str) -> Weight, quiet: Weight) -> Option<String> {
    let text = |condition: &Value, name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    let weigh = |condition: &Value| weight(&text(condition, "type"), &text(condition, "status"));
    let all = shown["conditions"].as_array()?;
    let worst = all.iter().rev().max_by_key(|condition| weigh(condition)).filter(|one| weigh(one) > quiet)?;
    Some(text(worst, "reason")).filter(|reason| !reason.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(conditions: &[(&str, &str, &str)]) -> Value {
        let all: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason)| json!({ "type": kind, "status": status, "reason": reason }))
            .collect();
        json!({ "conditions": all })
    }

    #[test]
    fn ops_u1_the_worst_reason_is_shown() {
        #[track_caller]
        fn check(phase: &str, conditions: &[(&str, &str, &str)], told: &str) {
            assert_eq!(summary(&shown(conditions), phase), told);
        }
        check("Ready", &[("Ready", "True", "AllReady"), ("ScalingUp", "False", "Idle")], "Ready");
        check("Progressing", &[("Ready", "False", "NotYet"), ("Available", "False", "NoQuota")], "NoQuota");
        check("Pending", &[("Ready", "Unknown", "NoReport")], "NoReport");
        check("Ready", &[("Ready", "True", "x"), ("MetricsAvailable", "Unknown", "NotAsked")], "Ready");
        check(
            "Pending",
            &[("TemplateIncomplete", "True", "NoTemplate"), ("Ready", "False", "x")],
            "NoTemplate",
        );
        check("Pending", &[], "Pending");
    }

    #[test]
    fn ops_u1_a_host_that_is_off_is_well() {
        let fine = [("Ready", "False", "Off"), ("BMCReachable", "True", "Answers")];
        assert_eq!(host_summary(&shown(&fine), "idle"), "idle");
        let lost = [("Ready", "False", "Off"), ("BMCReachable", "False", "Timeout")];
        assert_eq!(host_summary(&shown(&lost), "idle"), "Timeout");
        let held = [("BMCReachable", "True", "Answers"), ("Held", "True", "ByHand")];
        assert_eq!(host_summary(&shown(&held), "ready"), "ByHand");
    }
}
