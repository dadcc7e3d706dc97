//! Clusters.

use serde_json::Value;

use super::{Column, Kind, Scope, Section, View, column, conditions, dash, pool, text_at, verdict, wide};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

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

/// Kinds that are not current and shown one by one; the first says it for all, as a rule.
const MOST_WAITING: usize = 5;

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

/// Pods for which nodes stay, beside those that say so themselves.
fn keeps(view: &View<'_>) -> String {
    let kinds = [
        ("barePods", "pods without a controller"),
        ("localStorage", "pods with local storage"),
        ("systemPods", "system pods without a budget"),
    ];
    let kept = kinds.into_iter().filter(|(field, _)| view.text(&format!("spec.drain.{field}")) != "evict");
    let mut kept: Vec<String> = kept.map(|(_, words)| words.to_owned()).collect();
    let least = view.text("spec.drain.minReplicas");
    if !least.is_empty() && least != "0" {
        kept.push(format!("pods of controllers with fewer than {least} replicas"));
    }
    if kept.is_empty() {
        "only nodes of pods that ask for it".to_owned()
    } else {
        format!("nodes of {}", kept.join(", "))
    }
}

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
        ("Keeps".into(), keeps(view).into()),
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
        Section::Facts("Connection", connection(view)),
        Section::Facts("Size", size),
        Section::Table("Pools", vec!["NAME", "DESIRED", "READY", "STATUS", "AGE"], rows),
        conditions::section(view),
        Section::Lines("Next steps", next_steps(view, pools)),
    ]
}

/// How Muster reaches it, and how that is going.
fn connection(view: &View<'_>) -> Vec<(String, Cell)> {
    let known = &view.related["connection"];
    if known.is_null() {
        return Vec::new();
    }
    let state = text_at(known, "status.state");
    let tone = match state.as_str() {
        "Connected" => Tone::Good,
        "Syncing" => Tone::Busy,
        "NotConnected" => Tone::Plain,
        _ => Tone::Bad,
    };
    let mut facts: Vec<(String, Cell)> = vec![
        ("State".into(), Cell::toned(state.clone(), tone)),
        ("Message".into(), dash(text_at(known, "status.message")).into()),
    ];
    if state == "NotConnected" {
        return facts;
    }
    let how = match text_at(known, "spec.context") {
        context if context.is_empty() => text_at(known, "spec.kind"),
        context => format!("{}, context {context}", text_at(known, "spec.kind")),
    };
    let stamp = age::since(super::at(known, "spec.setAt"), view.now);
    facts.extend([
        ("Server".to_owned(), Cell::from(dash(text_at(known, "spec.server")))),
        ("Kubernetes".to_owned(), dash(text_at(known, "status.kubernetesVersion")).into()),
        (
            "Credentials".to_owned(),
            format!("{how}, version {}, set {stamp} ago", text_at(known, "spec.version")).into(),
        ),
        (
            "In sync".to_owned(),
            format!(
                "{} of {} kinds, {} objects",
                text_at(known, "status.synced"),
                text_at(known, "status.kinds"),
                text_at(known, "status.objects")
            )
            .into(),
        ),
        (
            "Current".to_owned(),
            match super::at(known, "status.freshAt") {
                Some(at) => format!("{} ago", age::since(Some(at), view.now)).into(),
                None => "never since the server started".into(),
            },
        ),
    ]);
    // An API server that does not answer says the same about every kind; one that refuses says which.
    let waiting = super::at(known, "status.waiting").and_then(Value::as_array).filter(|_| state == "Denied");
    for one in waiting.into_iter().flatten().take(MOST_WAITING) {
        facts.push((format!("  {}", text_at(one, "kind")), text_at(one, "why").into()));
    }
    facts
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
    if text_at(&view.related["connection"], "status.state") == "NotConnected" {
        steps.push(format!(
            "let Muster see its pods and nodes: muster connect cluster {name} --kubeconfig FILE"
        ));
    }
    if pools.is_empty() {
        let how = match view.text("spec.platform.type").as_str() {
            "baremetal" => "--platform baremetal --inventory NAME --min 0 --max 4",
            _ => "--platform gcp --machine-type n1-standard-4",
        };
        steps.push(format!("give it a pool: muster create pool NAME --cluster {name} {how}"));
    }
    if mode(view) == "advise" {
        steps.push(format!("let Muster act on it: muster enable cluster {name}"));
    }
    if !pools.is_empty() {
        steps.push(format!("look at a pool: muster describe pool {name}/{}", text_at(&pools[0], "name")));
    }
    steps
}
