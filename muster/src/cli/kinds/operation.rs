//! Operations: what was asked of a pool or a host and what became of it.

use serde_json::Value;

use super::{Column, Kind, Scope, Section, View, column, dash, pool, text_at, wide};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

pub(super) static KIND: Kind = Kind {
    kind: "Operation",
    singular: "operation",
    plural: "operations",
    aliases: &["op", "ops"],
    scope: Scope::Id,
    written: &[],
    columns: COLUMNS,
    describe,
};

const COLUMNS: &[Column] = &[
    column("ID", ".id", |view| view.or_dash("id").into()),
    column("WHAT", ".kind", |view| what(view.object).into()),
    column("ON", ".nodepool_name", |view| subject(view.object).into()),
    column("STATUS", ".state", |view| state(view.object)),
    column("BY", ".created_by", |view| view.or_dash("created_by").into()),
    column("AGE", ".created_at", |view| age::since(view.at("created_at"), view.now).into()),
    wide("TOOK", ".finished_at", |view| took(view).into()),
    wide("POOL-ID", ".nodepool_id", |view| view.or_dash("nodepool_id").into()),
    wide("MESSAGE", ".message", |view| view.or_dash("message").into()),
];

/// The pool or host that it is about.
fn subject(operation: &Value) -> String {
    let host = text_at(operation, "host");
    if host.is_empty() { dash(text_at(operation, "nodepool_name")) } else { format!("host {host}") }
}

/// `scale to 5`.
fn what(operation: &Value) -> String {
    let nodes = text_at(operation, "target_nodes");
    let kind = dash(text_at(operation, "kind"));
    if nodes.is_empty() { kind } else { format!("{kind} to {nodes}") }
}

fn state(operation: &Value) -> Cell {
    let state = dash(text_at(operation, "state"));
    let tone = match state.as_str() {
        "Succeeded" => Tone::Good,
        "Failed" => Tone::Bad,
        "Running" => Tone::Busy,
        _ => Tone::Plain,
    };
    Cell::toned(state, tone)
}

fn took(view: &View<'_>) -> String {
    let time = |path: &str| view.text(path).parse::<muster_model::Timestamp>().ok();
    match (time("created_at"), time("finished_at")) {
        (Some(start), Some(end)) => age::short(end.since(start)),
        _ => "-".to_owned(),
    }
}

/// The last operations of a pool, for its `describe`.
pub(super) fn section(view: &View<'_>) -> Section {
    let rows = pool::related(view, "operations")
        .iter()
        .map(|operation| {
            vec![
                age::since(operation.get("created_at"), view.now).into(),
                what(operation).into(),
                state(operation),
                dash(text_at(operation, "created_by")).into(),
                dash(text_at(operation, "id")).into(),
                text_at(operation, "message").into(),
            ]
        })
        .collect();
    Section::Table("Last operations", vec!["AGE", "WHAT", "STATUS", "BY", "ID", "MESSAGE"], rows)
}

fn describe(view: &View<'_>) -> Vec<Section> {
    let facts: Vec<(String, Cell)> = vec![
        ("Id".into(), view.or_dash("id").into()),
        ("What".into(), what(view.object).into()),
        if view.at("host").is_some() {
            ("Host".into(), view.text("host").into())
        } else {
            (
                "Pool".into(),
                format!("{} ({})", view.or_dash("nodepool_name"), view.or_dash("nodepool_id")).into(),
            )
        },
        ("Reason".into(), view.or_dash("reason").into()),
        ("Project".into(), view.or_dash("project").into()),
        ("Status".into(), state(view.object)),
        ("Message".into(), view.or_dash("message").into()),
        ("Created".into(), pool::stamp(view, "created_at", "created_by")),
        ("Finished".into(), pool::stamp(view, "finished_at", "")),
    ];
    let id = view.text("id");
    let next = if view.at("done") == Some(&Value::Bool(true)) && view.at("host").is_some() {
        format!("look at the host: muster describe host {}", view.text("host"))
    } else if view.at("done") == Some(&Value::Bool(true)) {
        format!("look at the pool: muster describe pool {}", view.text("nodepool_id"))
    } else {
        format!("wait for it: muster wait operation/{id}")
    };
    let mut steps = vec![next];
    if view.at("done") != Some(&Value::Bool(true)) && view.at("host").is_some() {
        steps.push(format!("withdraw it: muster cancel operation {id} --reason …"));
    }
    vec![Section::Facts("", facts), Section::Lines("Next steps", steps)]
}
