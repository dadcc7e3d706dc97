//! Reports: what controllers said about a pool, as they said it.

use serde_json::Value;

use super::{Column, Kind, Scope, Section, View, column, conditions, dash, text_at, wide};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

pub(super) static KIND: Kind = Kind {
    kind: "Report",
    singular: "report",
    plural: "reports",
    aliases: &["rep"],
    scope: Scope::OnPool,
    written: &[],
    columns: COLUMNS,
    describe,
};

const COLUMNS: &[Column] = &[
    column("POOL", ".pool", |view| view.or_dash("pool").into()),
    column("CONTROLLER", ".controller_name", |view| view.or_dash("controller_name").into()),
    column("GENERATION", ".observed_generation", |view| view.or_dash("observed_generation").into()),
    column("NODES", ".metadata.active_nodes", |view| view.or_dash("metadata.active_nodes").into()),
    column("STATE", ".conditions[0].status", state),
    column("AGE", ".updated_at", |view| {
        age::since(view.at("updated_at").or(view.at("last_updated")), view.now).into()
    }),
    wide("ERROR", ".last_error.errorCode", |view| view.or_dash("last_error.errorCode").into()),
    wide("MESSAGE", ".conditions[0].message", |view| dash(error_or_message(view.object)).into()),
];

/// `Ready=True`: the condition that counts.
fn state(view: &View<'_>) -> Cell {
    let conditions = view.at("conditions").and_then(Value::as_array);
    let find = |kind: &str| conditions.into_iter().flatten().find(|c| text_at(c, "type") == kind);
    let Some(counts) = find("Available").or_else(|| find("Ready")) else { return "-".into() };
    let status = text_at(counts, "status");
    let tone = if status == "True" { Tone::Good } else { Tone::Busy };
    Cell::toned(format!("{}={status}", text_at(counts, "type")), tone)
}

/// The error when there is one, else what the first condition says.
pub(super) fn error_or_message(report: &Value) -> String {
    let error = text_at(report, "last_error.message");
    if !error.is_empty() {
        return format!("{}: {error}", text_at(report, "last_error.errorType"));
    }
    report["conditions"]
        .as_array()
        .and_then(|all| all.first())
        .map(|c| text_at(c, "message"))
        .unwrap_or_default()
}

fn describe(view: &View<'_>) -> Vec<Section> {
    let facts: Vec<(String, Cell)> = vec![
        ("Pool".into(), view.or_dash("pool").into()),
        ("Controller".into(), view.or_dash("controller_name").into()),
        ("Generation".into(), view.or_dash("observed_generation").into()),
        ("Reported".into(), super::pool::stamp(view, "updated_at", "")),
    ];
    let listed = view.at("conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let object = |path: &str| -> Vec<(String, Cell)> {
        let fields = view.at(path).and_then(Value::as_object);
        fields
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), crate::cli::jsonpath::plain(value).into()))
            .collect()
    };
    vec![
        Section::Facts("", facts),
        Section::Facts("Metadata", object("metadata")),
        Section::Facts("Last error", object("last_error")),
        Section::Table(
            "Conditions",
            vec!["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"],
            conditions::rows(listed, view),
        ),
    ]
}
