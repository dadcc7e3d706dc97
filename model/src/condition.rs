//! Conditions: what holds, since when, and why, in the six fields that Kubernetes uses.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, field::choice};

choice! {
    pub enum ConditionStatus("a condition status") {
        True = "True",
        False = "False",
        Unknown = "Unknown",
    }
}

choice! {
    pub enum Severity("a severity") {
        Info = "Info",
        Warning = "Warning",
        Error = "Error",
        Critical = "Critical",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ConditionStatus,
    /// One word in CamelCase, for machines.
    #[serde(default)]
    pub reason: String,
    /// One sentence, for people.
    #[serde(default)]
    pub message: String,
    /// When `status` last became what it is.
    pub last_transition_time: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<u64>,
    /// Only on what controllers report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
}

impl Condition {
    /// Keeps the time of the transition from `previous` when the status is the same.
    #[must_use]
    pub fn since(mut self, previous: Option<&Self>) -> Self {
        if let Some(previous) = previous
            && previous.status == self.status
        {
            self.last_transition_time = previous.last_transition_time;
        }
        self
    }
}

/// The condition of a kind in a list.
pub fn find<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Conditions of pools and clusters whose `True` is bad news; of all others it is `False`.
const BAD_WHEN_TRUE: [&str; 9] = [
    "Degraded",
    "Failed",
    "Stalled",
    "Paused",
    "Frozen",
    "Deleting",
    "TemplateIncomplete",
    "Overdue",
    "Held",
];
/// Conditions that merely say what goes on.
const NEUTRAL: [&str; 4] = ["ScalingUp", "ScalingDown", "Progressing", "Updating"];

/// How much a condition tells about what is wrong with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    Fine,
    Unknown,
    /// `Ready=False` sums up what another condition explains.
    Summary,
    Fault,
}

/// What a condition of a pool or a cluster weighs; of a host, other conditions are bad.
pub fn weight(kind: &str, status: &str) -> Weight {
    let bad = if BAD_WHEN_TRUE.contains(&kind) { "True" } else { "False" };
    match status {
        _ if NEUTRAL.contains(&kind) => Weight::Fine,
        "Unknown" => Weight::Unknown,
        status if status != bad => Weight::Fine,
        _ if kind == "Ready" => Weight::Summary,
        _ => Weight::Fault,
    }
}
