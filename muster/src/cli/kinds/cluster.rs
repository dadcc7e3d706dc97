//! Clusters.

use serde_json::Value;

use super::{Column, Kind, Scope, Section, View, column, conditions, dash, pool, text_at, verdict, wide};
use crate::cli::print::{age, table::Cell};

pub(super) static KIND: Kind = Kind {
    kind: "Cluster",
    singular: "cluster",
    plural: "clusters",
    aliases: &["cl"],
    scope: Scope::Project,
    written: &["name", "target_project_id", "labels", "annotations", "spec"],
    columns: COLUMNS,
    describe,
};

const COLUMNS: &[Column] = &[
    column("NAME", ".name", |view| view.or_dash("name").into()),
    column("PLATFORM", ".spec.platform.type", |view| view.or_dash("spec.platform.type").into()),
    column("MODE", ".spec.mode", |view| mode(view).into()),
    column("STATUS", ".status.phase", |view| {
        let verdict = verdict(view.object);
        Cell::toned(verdict.reason, verdict.tone)
    }),
    column("POOLS", ".status.pools.total", |view| view.or_dash("status.pools.total").into()),
    column("NODES", ".status.pools.desired_nodes", |view| nodes(view).into()),
    column("AGE", ".created_at", |view| age::since(view.at("created_at"), view.now).into()),
    wide("PROJECT", ".project", |view| view.or_dash("project").into()),
    wide("REGION", ".spec.platform.type", region),
    wide("VERSION", ".spec.release.version", |view| view.or_dash("spec.release.version").into()),
    wide("GENERATION", ".generation", |view| view.or_dash("generation").into()),
    wide("CREATED-BY", ".created_by", |view| view.or_dash("created_by").into()),
    wide("ID", ".id", |view| view.or_dash("id").into()),
    wide("MESSAGE", ".status.phase", |view| dash(verdict(view.object).message).into()),
];

/// A cluster advises until it is enabled.
fn mode(view: &View<'_>) -> String {
    Some(view.text("spec.mode")).filter(|mode| !mode.is_empty()).unwrap_or_else(|| "advise".into())
}

/// `ready/desired` of all pools together; a question mark for what nobody has said.
fn nodes(view: &View<'_>) -> String {
    let ready = Some(view.text("status.pools.ready_nodes")).filter(|text| !text.is_empty());
    match view.text("status.pools.desired_nodes") {
        desired if desired.is_empty() => "-".into(),
        desired => format!("{}/{desired}", ready.as_deref().unwrap_or("?")),
    }
}

fn region(view: &View<'_>) -> Cell {
    let platform = view.text("spec.platform.type").to_ascii_lowercase();
    view.or_dash(&format!("spec.platform.{platform}.region")).into()
}

fn describe(view: &View<'_>) -> Vec<Section> {
    let verdict = verdict(view.object);
    let facts: Vec<(String, Cell)> = vec![
        ("Name".into(), view.or_dash("name").into()),
        ("Project".into(), view.or_dash("project").into()),
        ("Id".into(), view.or_dash("id").into()),
        ("Platform".into(), view.or_dash("spec.platform.type").into()),
        ("Mode".into(), mode(view).into()),
        ("Created".into(), pool::stamp(view, "created_at", "created_by")),
        ("Generation".into(), view.or_dash("generation").into()),
        ("Phase".into(), Cell::toned(view.or_dash("status.phase"), verdict.tone)),
    ];
    let pools = pool::related(view, "pools");
    let rows = pools.iter().map(|object| pool_row(object, view)).collect();
    let total = |name: &str| -> i64 { pools.iter().filter_map(|p| p["status"][name].as_i64()).sum() };
    let size = vec![
        ("Pools".to_owned(), pools.len().to_string().into()),
        (
            "Nodes".to_owned(),
            format!(
                "{} desired, {} there, {} ready",
                total("desired_nodes"),
                total("current_nodes"),
                total("ready_nodes")
            )
            .into(),
        ),
    ];
    vec![
        Section::Facts("", facts),
        Section::Facts("Size", size),
        Section::Table("Pools", vec!["NAME", "DESIRED", "READY", "STATUS", "AGE"], rows),
        conditions::section(view),
        Section::Lines("Next steps", next_steps(view, pools)),
    ]
}

fn pool_row(object: &Value, view: &View<'_>) -> Vec<Cell> {
    let verdict = verdict(object);
    vec![
        text_at(object, "name").into(),
        dash(text_at(object, "status.desired_nodes")).into(),
        dash(text_at(object, "status.ready_nodes")).into(),
        Cell::toned(verdict.reason, verdict.tone),
        age::since(object.get("created_at"), view.now).into(),
    ]
}

fn next_steps(view: &View<'_>, pools: &[Value]) -> Vec<String> {
    let name = view.text("name");
    let mut steps = Vec::new();
    if pools.is_empty() {
        steps.push(format!("give it a pool: muster create pool NAME --cluster {name} --platform gcp --machine-type n1-standard-4"));
    }
    if mode(view) == "advise" {
        steps.push(format!("let Muster act on it: muster enable cluster {name}"));
    }
    if !pools.is_empty() {
        steps.push(format!("look at a pool: muster describe pool {name}/{}", text_at(&pools[0], "name")));
    }
    steps
}
