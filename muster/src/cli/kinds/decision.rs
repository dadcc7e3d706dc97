//! Decisions: what was to be done, why, and what became of it.

use serde_json::Value;

use super::{Column, Kind, Scope, Section, View, column, dash, text_at, wide};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

pub(super) static KIND: Kind = Kind {
    kind: "Decision",
    singular: "decision",
    plural: "decisions",
    aliases: &["dec"],
    scope: Scope::Id,
    written: &[],
    columns: COLUMNS,
    describe,
};

const COLUMNS: &[Column] = &[
    column("ID", ".id", |view| view.or_dash("id").into()),
    column("CLUSTER", ".cluster_name", |view| view.or_dash("cluster_name").into()),
    column("NEW", ".new_nodes", |view| view.or_dash("new_nodes").into()),
    column("GONE", ".removals", |view| view.or_dash("removals").into()),
    column("UNPLACED", ".unplaced", |view| view.or_dash("unplaced").into()),
    column("OUTCOME", ".outcome.state", |view| outcome(view.object)),
    column("AGE", ".at", |view| age::since(view.at("at"), view.now).into()),
    column("WHY", ".headline", |view| view.or_dash("headline").into()),
    wide("EPOCH", ".epoch", |view| view.or_dash("epoch").into()),
    wide("RESULT", ".outcome.text", |view| view.or_dash("outcome.text").into()),
];

fn outcome(decision: &Value) -> Cell {
    let state = dash(text_at(decision, "outcome.state"));
    let tone = match state.as_str() {
        "acted" => Tone::Good,
        "refused" | "failed" => Tone::Bad,
        "planned" | "advised" => Tone::Busy,
        _ => Tone::Plain,
    };
    Cell::toned(state, tone)
}

/// The server tells the story; what to do with it is added.
fn describe(view: &View<'_>) -> Vec<Section> {
    let id = view.text("id");
    let story = view.text("text");
    let lines: Vec<String> = if story.is_empty() {
        vec![view.or_dash("headline")]
    } else {
        story.trim_end().lines().map(str::to_owned).collect()
    };
    let mut next = vec![format!("see whether it would be made again: muster explain decision {id}")];
    if !view.text("cause.after").is_empty() {
        next.push(format!("see what changed since the decision before: muster compare decision {id}"));
    }
    let node = view.at("actions.0.node").or_else(|| view.object.pointer("/actions/0/node"));
    if let Some(node) = node.and_then(Value::as_str) {
        next.push(format!("see its node as it was: muster explain node {node} --at {id}"));
    }
    let pod = view.object.pointer("/actions/0/pods/0").and_then(Value::as_str);
    if let Some(pod) = pod {
        next.push(format!("see the pod as it was: muster explain pod {pod} --at {id}"));
    }
    vec![Section::Lines("", lines), Section::Lines("Next steps", next)]
}
