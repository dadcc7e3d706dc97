//! Decisions and planners in words.

use std::fmt::Write as _;

use muster_model::Timestamp;

use super::Brief;
use crate::{journal::Decision, planner::Live};

/// How the planner of the cluster fares.
pub(super) fn planner(live: Option<&Live>, now: Timestamp) -> String {
    let mut out = String::from("\nplanner:\n");
    let Some(live) = live else {
        out.push_str("  no planner looks at this cluster in this process; 0 looks so far\n");
        return out;
    };
    let age = now.since(live.turn_at);
    let role = if live.leading { "leads" } else { "watches, another process leads" };
    let _ = writeln!(out, "  last look {age} ago ({}), {} looks, {role}", live.turn_at, live.turns);
    if let Some(waiting) = &live.waiting {
        let _ = writeln!(out, "  waits: {waiting}");
    }
    if !live.connected {
        out.push_str("  not connected to the cluster: only fixed sizes, minimums and triggers are planned\n");
    }
    if let Some((at, error)) = &live.last_error {
        let _ = writeln!(out, "  last error {at}: {error}");
    }
    for (what, why) in live.set_aside.iter().take(5) {
        let _ = writeln!(out, "  set aside: {what}: {why}");
    }
    out
}

pub(super) fn history(history: &[Brief]) -> String {
    if history.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nlast decisions about it:\n");
    for brief in history {
        let _ = writeln!(out, "  {}  {}  {}  {}", brief.at, brief.id, brief.outcome, brief.because);
    }
    out
}

/// A decision from its first line to its outcome.
pub fn describe(decision: &Decision, replay: Option<&str>) -> String {
    let mut out = format!("{}\n\n", decision.headline);
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<10} {value}");
    };
    fact(
        "decision:",
        format!("{} (number {} of cluster {})", decision.id, decision.number, decision.cluster_name),
    );
    fact("made:", format!("{} by the leader of epoch {}", decision.at, decision.epoch));
    fact("outcome:", format!("{}: {}", decision.outcome.state.as_str(), decision.outcome.text));
    fact(
        "plan:",
        format!(
            "{}, {}, {} placed, {} without a place",
            counted(decision.new_nodes, "new node"),
            counted(decision.removals, "removal"),
            counted(decision.placed, "pod"),
            decision.unplaced
        ),
    );
    if let Some(replay) = replay {
        fact("replay:", replay.to_owned());
    }
    section(&mut out, "because", causes(decision));
    section(&mut out, "does", actions(decision));
    section(&mut out, "also about", also(decision));
    section(
        &mut out,
        "says",
        decision.told.iter().map(|told| {
            let alike = if told.count > 1 { format!(" ({} alike)", told.count) } else { String::new() };
            format!("{}{alike}: {}", told.about, told.headline)
        }),
    );
    section(&mut out, "audit", decision.findings.iter().cloned());
    section(
        &mut out,
        "effects",
        decision
            .outcome
            .effects
            .iter()
            .map(|effect| format!("{} of {}: {}", effect.what, effect.object, effect.text)),
    );
    out
}

/// `1 pod`, `2 pods`.
fn counted(number: u32, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

fn section(out: &mut String, title: &str, lines: impl IntoIterator<Item = String>) {
    let lines: Vec<String> = lines.into_iter().collect();
    if !lines.is_empty() {
        let _ = writeln!(out, "\n{title}:");
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
    }
}

/// What led to it: what changed, who nudged, and the decision before.
fn causes(decision: &Decision) -> Vec<String> {
    let mut lines = decision.cause.changes.clone();
    if !decision.cause.nudges.is_empty() {
        lines.push(format!("nudged by: {}", decision.cause.nudges.join(", ")));
    }
    if let Some(after) = &decision.cause.after {
        lines.push(format!("after decision {after}"));
    }
    lines
}

/// What the actions above do not name, pods of one workload together.
fn also(decision: &Decision) -> Vec<String> {
    let also = &decision.also;
    let mut lines = Vec::new();
    for (what, names) in [("hosts", &also.hosts), ("nodes", &also.nodes)] {
        if !names.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            lines.push(format!("{what}: {}", names.join(", ")));
        }
    }
    lines.extend(also.pods.iter().map(|(stem, rests)| match rests.as_slice() {
        [one] => format!("pod {stem}{one}"),
        many => format!("{} pods {stem}…: {}", many.len(), many.join(", ")),
    }));
    if also.unnamed > 0 {
        lines.push(format!("and {} more; replay the decision to see them", also.unnamed));
    }
    lines
}

fn actions(decision: &Decision) -> Vec<String> {
    let mut lines = Vec::new();
    for action in &decision.actions {
        let what = match (&action.host, &action.node) {
            (Some(host), Some(node)) => format!("node {node} on host {host}"),
            (None, Some(node)) => format!("node {node}"),
            (Some(host), None) => format!("host {host}"),
            (None, None) => format!("one more {}", action.template),
        };
        let advice = if action.advice { " (advice)" } else { "" };
        lines.push(format!(
            "{}{advice} {what} of pool {}: {}",
            action.kind.as_str(),
            action.pool,
            action.because
        ));
        if let Some(evidence) = &action.evidence {
            let since =
                evidence.unneeded_since.map_or_else(|| "not before".to_owned(), |since| since.to_string());
            let mark = evidence.mark.map_or_else(|| "no mark".to_owned(), |mark| format!("mark {mark} %"));
            lines.push(format!(
                "    evidence: {} of {} {} requested, {} %, {mark}; unneeded since {since}, required {}",
                evidence.used, evidence.allocatable, evidence.resource, evidence.percent, evidence.required
            ));
        }
        if !action.pods.is_empty() {
            let names: Vec<String> = action.pods.iter().map(ToString::to_string).collect();
            let more = usize::try_from(action.pod_count).unwrap_or(0).saturating_sub(names.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!("    pods: {}{more}", names.join(", ")));
        }
    }
    if decision.more_actions > 0 {
        lines.push(format!("and {} more; replay the decision to see them", decision.more_actions));
    }
    lines
}
