//! Parts of schemas that several kinds have: labels, taints, platforms, conditions, and what every status says.

use serde_json::json;

use super::schema::{
    Field, anything, keyed, label, list, map, object, quantity, set, tally, text, time, words, yes_no,
};

/// Where machines come from; one block each.
pub(super) const PLATFORMS: [&str; 6] = ["gcp", "aws", "azure", "baremetal", "byoh", "vsphere"];

pub(super) fn labels(about: &str) -> Field {
    map(about, text("").most(63), 100)
}

pub(super) fn taints(about: &str) -> Field {
    let taint = object(
        "A taint.",
        [
            ("key", text("Its key, name or example.com/name.").most(317)),
            ("value", text("Its value; none is the same as an empty one.").most(63)),
            (
                "effect",
                words(
                    "What it does to pods that do not tolerate it.",
                    &["NoSchedule", "PreferNoSchedule", "NoExecute"],
                ),
            ),
        ],
    );
    keyed(about, taint.required(&["key", "effect"]), &["key", "effect"], 50)
}

pub(super) fn resources(about: &str) -> Field {
    map(about, quantity("An amount as Kubernetes writes it."), 50)
}

pub(super) fn release() -> Field {
    object(
        "The software that nodes run.",
        [
            ("image", text("Image that nodes are made from.").most(500)),
            ("version", text("Version of Kubernetes or of the distribution.").most(100)),
            (
                "channelGroup",
                words("Channel that versions come from.", &["stable", "fast", "candidate", "eus"]),
            ),
        ],
    )
}

pub(super) fn mode(about: &str) -> Field {
    words(about, &["advise", "active"])
}

/// `platform` with the blocks given. What is common to pools and clusters are the rules around the type.
pub(super) fn platform(about: &str, blocks: [(&str, Field); 6]) -> Field {
    let [gcp, aws, azure, baremetal, byoh, vsphere] = blocks;
    let kind =
        words("The platform; it cannot be changed.", &PLATFORMS).fixed("the platform cannot be changed");
    let mut platform =
        object(about, [("type", kind), gcp, aws, azure, baremetal, byoh, vsphere]).required(&["type"]);
    for name in PLATFORMS {
        platform = platform.rule(
            &format!("!has(self.{name}) || self.type == '{name}'"),
            &format!("the block {name} belongs to type {name}; remove it or change the type"),
        );
    }
    platform
}

pub(super) fn selector(about: &str) -> Field {
    let expression = object(
        "A requirement.",
        [
            ("key", text("A label's key.").most(317)),
            ("operator", words("How the label is compared.", &["In", "NotIn", "Exists", "DoesNotExist"])),
            ("values", set("Values for In and NotIn.", text("").most(63), 50)),
        ],
    );
    object(
        about,
        [
            ("matchLabels", labels("Labels that must be there.")),
            (
                "matchExpressions",
                list("Requirements that must hold.", expression.required(&["key", "operator"]), 50),
            ),
        ],
    )
}

pub(super) fn reference(about: &str) -> Field {
    let part = |about| text(about).most(253);
    object(
        about,
        [
            ("apiVersion", part("Its API version.")),
            ("apiGroup", part("Its API group.")),
            ("kind", part("Its kind.")),
            ("namespace", part("Its namespace.")),
            ("name", part("Its name.")),
        ],
    )
    .required(&["name"])
}

/// Conditions, in the fields that Kubernetes uses.
fn conditions() -> Field {
    let condition = object(
        "A condition.",
        [
            ("type", text("What it is about.")),
            ("status", words("Whether it holds.", &["True", "False", "Unknown"])),
            ("reason", text("One word, for programs.")),
            ("message", text("One sentence, for people.")),
            ("lastTransitionTime", time("When the status last became what it is.")),
            ("observedGeneration", tally("The generation of the object that it speaks of.")),
        ],
    );
    let about = "What holds, since when and why. Synced says whether the last edit was taken.";
    keyed(about, condition.required(&["type", "status"]), &["type"], 64)
}

/// What the status of every kind says, with `more` of its own.
pub(super) fn status<const N: usize>(more: [(&str, Field); N]) -> Field {
    let common = object(
        "Written by Muster.",
        [
            ("id", text("The record of the store that this object stands for.")),
            ("revision", text("The store's revision that this object was made from.")),
            ("store", text("Which store that is.")),
            ("observedGeneration", tally("The generation that Muster has taken up.")),
            ("seen", text("What Muster had seen of the object when it refused an edit.")),
            ("summary", text("The worst reason, in one word.")),
            ("phase", text("Where it is in its life.")),
            ("health", text("Healthy, Degraded, Unhealthy or Unknown.")),
            ("reason", text("Why, in one word.")),
            ("message", text("Why, in one sentence.")),
            ("conditions", conditions()),
        ],
    );
    let mut schema = serde_json::Value::from(common);
    for (name, field) in more {
        schema["properties"][name] = field.into();
    }
    Field::from_value(schema)
}

/// A member that may be an object of any shape.
pub(super) fn free(about: &str) -> Field {
    anything(about)
}

pub(super) fn zone_list(about: &str) -> Field {
    set(about, text("").most(63), 20)
}

/// What the three public clouds have in common for nodes.
pub(super) fn cloud_labels_and_taints() -> [(&'static str, Field); 2] {
    [("labels", labels("Labels of nodes.")), ("taints", taints("Taints of nodes."))]
}

pub(super) fn spot(about: &str) -> Field {
    yes_no(about)
}

/// A column of `kubectl get`; `wide` ones only with `-o wide`.
pub(super) fn column(name: &str, path: &str, kind: &str, wide: bool, about: &str) -> serde_json::Value {
    json!({ "name": name, "jsonPath": path, "type": kind, "priority": i32::from(wide), "description": about })
}

pub(super) fn name_of(what: &str) -> Field {
    label(&format!("The name of the {what}."))
}
