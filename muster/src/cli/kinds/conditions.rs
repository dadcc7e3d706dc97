//! Which condition tells most about an object, and how bad it is.

use muster_model::condition::{self, Weight};
use serde_json::Value;

use super::{Section, View, at, dash, text_at};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

/// The short word for an object's state, and its sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) tone: Tone,
}

fn weight(condition: &Value) -> Weight {
    condition::weight(&text_at(condition, "type"), &text_at(condition, "status"))
}

/// The worst condition's reason and message; with nothing wrong the phase says it all.
pub(crate) fn verdict(object: &Value) -> Verdict {
    let phase = text_at(object, "status.phase");
    let tone = match phase.as_str() {
        "Ready" | "Succeeded" | "Active" => Tone::Good,
        "Failed" => Tone::Bad,
        "" => Tone::Plain,
        _ => Tone::Busy,
    };
    let conditions =
        at(object, "status.conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // `max_by_key` takes the last of equals; the first one listed counts more.
    let worst = conditions
        .iter()
        .rev()
        .max_by_key(|condition| weight(condition))
        .filter(|c| weight(c) > Weight::Fine);
    let ready = condition(object, "Ready");
    let shown =
        if phase == "Ready" && worst.is_some_and(|c| weight(c) == Weight::Unknown) { None } else { worst };
    let reason = shown.map(|c| text_at(c, "reason")).filter(|reason| !reason.is_empty());
    let message = shown.or(ready).map(|c| text_at(c, "message")).filter(|message| !message.is_empty());
    let tone = if shown.is_some() && tone == Tone::Good { Tone::Busy } else { tone };
    Verdict {
        reason: dash(reason.unwrap_or(phase)),
        message: message.unwrap_or_else(|| text_at(object, "status.message")),
        tone,
    }
}

/// The condition of one type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    at(object, "status.conditions")?.as_array()?.iter().find(|condition| text_at(condition, "type") == kind)
}

/// The conditions as a table of `describe`.
pub(super) fn section(view: &View<'_>) -> Section {
    let conditions =
        view.at("status.conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Section::Table("Conditions", vec!["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], rows(conditions, view))
}

pub(super) fn rows(conditions: &[Value], view: &View<'_>) -> Vec<Vec<Cell>> {
    conditions
        .iter()
        .map(|condition| {
            let tone = match weight(condition) {
                Weight::Fine => Tone::Plain,
                Weight::Unknown => Tone::Busy,
                Weight::Summary | Weight::Fault => Tone::Bad,
            };
            vec![
                dash(text_at(condition, "type")).into(),
                Cell::toned(dash(text_at(condition, "status")), tone),
                dash(text_at(condition, "reason")).into(),
                age::since(condition.get("lastTransitionTime"), view.now).into(),
                text_at(condition, "message").into(),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_condition_speaks() {
        #[track_caller]
        fn check(phase: &str, conditions: &[(&str, &str, &str)], reason: &str, tone: Tone) {
            let conditions: Vec<Value> = conditions
                .iter()
                .map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason, "message": "m"}))
                .collect();
            let found = verdict(&json!({"status": {"phase": phase, "conditions": conditions}}));
            assert_eq!((found.reason.as_str(), found.tone), (reason, tone));
        }
        check("Ready", &[("Ready", "True", "AllReady"), ("ScalingUp", "False", "Idle")], "Ready", Tone::Good);
        check(
            "Ready",
            &[("Ready", "True", "AllReady"), ("Paused", "True", "HeldByHand")],
            "HeldByHand",
            Tone::Busy,
        );
        check(
            "Progressing",
            &[("Ready", "False", "NotYet"), ("Available", "False", "NoQuota")],
            "NoQuota",
            Tone::Busy,
        );
        check(
            "Failed",
            &[("Ready", "False", "ControllerFailed"), ("Degraded", "Unknown", "?")],
            "ControllerFailed",
            Tone::Bad,
        );
        check("Pending", &[("Ready", "Unknown", "NoReport")], "NoReport", Tone::Busy);
        check(
            "Ready",
            &[("Ready", "True", "x"), ("MetricsAvailable", "Unknown", "NotAsked")],
            "Ready",
            Tone::Good,
        );
        check("Pending", &[], "Pending", Tone::Busy);
        check("", &[], "-", Tone::Plain);
    }
}
