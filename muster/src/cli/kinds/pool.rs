//! Node pools.

use muster_model::pool::{
    DEFAULT_SCALE_DOWN_DELAY, DEFAULT_SCALE_DOWN_UTILIZATION, DEFAULT_SCALE_UP_DELAY, DEFAULT_TARGET_CPU,
    DEFAULT_TARGET_MEMORY,
};
use serde_json::Value;

use super::{
    Column, Kind, Scope, Section, View, at, column, conditions, dash, energy as energies, text_at, verdict,
    wide,
};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

pub(super) static KIND: Kind = Kind {
    kind: "NodePool",
    singular: "nodepool",
    plural: "nodepools",
    aliases: &["pool", "pools", "np"],
    scope: Scope::Cluster,
    written: &["name", "cluster_id", "labels", "annotations", "spec"],
    columns: COLUMNS,
    describe,
};

const COLUMNS: &[Column] = &[
    column("CLUSTER", ".cluster_id", |view| view.cluster_name().into()),
    column("NAME", ".name", |view| view.or_dash("name").into()),
    column("DESIRED", ".status.desired_nodes", |view| view.or_dash("status.desired_nodes").into()),
    column("READY", ".status.ready_nodes", ready),
    column("ON", ".status.current_nodes", |view| view.or_dash("status.current_nodes").into()),
    column("MIN", ".spec.autoscaling.minNodes", |view| bound(view, "minNodes").into()),
    column("MAX", ".spec.autoscaling.maxNodes", |view| bound(view, "maxNodes").into()),
    column("MODE", ".spec.mode", |view| mode(view).into()),
    column("STATUS", ".status.phase", |view| {
        let verdict = verdict(view.object);
        Cell::toned(verdict.reason, verdict.tone)
    }),
    column("AGE", ".created_at", |view| age::since(view.at("created_at"), view.now).into()),
    wide("HEALTH", ".status.health", health),
    wide("PLATFORM", ".spec.platform.type", |view| view.or_dash("spec.platform.type").into()),
    wide("MACHINE", ".spec.platform.type", |view| dash(machine(view.object)).into()),
    wide("GENERATION", ".generation", generation),
    wide("ID", ".id", |view| view.or_dash("id").into()),
    wide("MESSAGE", ".status.phase", |view| dash(verdict(view.object).message).into()),
];

fn ready(view: &View<'_>) -> Cell {
    let (ready, desired) = (view.at("status.ready_nodes"), view.at("status.desired_nodes"));
    let short = matches!((ready.and_then(Value::as_i64), desired.and_then(Value::as_i64)), (Some(r), Some(d)) if r < d);
    Cell::toned(view.or_dash("status.ready_nodes"), if short { Tone::Busy } else { Tone::Plain })
}

/// A bound that is in force; a pool without autoscaling holds its count.
fn bound(view: &View<'_>, name: &str) -> String {
    if view.at("spec.autoscaling.enabled") == Some(&Value::Bool(true)) {
        view.or_dash(&format!("spec.autoscaling.{name}"))
    } else {
        view.or_dash("spec.nodeCount")
    }
}

/// Whether decisions about the pool are carried out: its own word, else its cluster's, else `advise`.
fn mode(view: &View<'_>) -> String {
    let own = view.text("spec.mode");
    if !own.is_empty() {
        return own;
    }
    view.cluster()
        .map(|cluster| text_at(cluster, "spec.mode"))
        .filter(|mode| !mode.is_empty())
        .unwrap_or_else(|| "advise".into())
}

/// What a node of the pool is made of, in the words of its platform.
fn machine(pool: &Value) -> String {
    let platform = text_at(pool, "spec.platform.type").to_ascii_lowercase();
    let Some(block) = at(pool, &format!("spec.platform.{platform}")) else { return String::new() };
    ["machineType", "instanceType", "vmSize", "pool", "template"]
        .iter()
        .map(|name| text_at(block, name))
        .find(|value| !value.is_empty())
        .unwrap_or_default()
}

fn health(view: &View<'_>) -> Cell {
    let health = view.or_dash("status.health");
    let tone = match health.as_str() {
        "Healthy" => Tone::Good,
        "Unhealthy" => Tone::Bad,
        "Degraded" => Tone::Busy,
        _ => Tone::Plain,
    };
    Cell::toned(health, tone)
}

/// `2`, or `1/2` while a controller has not seen the newest spec.
fn generation(view: &View<'_>) -> Cell {
    let (seen, current) = (view.text("status.observed_generation"), view.text("generation"));
    if seen.is_empty() || seen == current { dash(current).into() } else { format!("{seen}/{current}").into() }
}

fn describe(view: &View<'_>) -> Vec<Section> {
    let mut sections = vec![identity(view), sizes(view), platform(view), scheduling(view)];
    sections.extend(energy(view));
    sections.push(conditions::section(view));
    sections.push(reports(view));
    if let Some(ages) = node_ages(view) {
        sections.push(ages);
    }
    sections.push(super::operation::section(view));
    sections.push(Section::Lines("Next steps", next_steps(view)));
    sections
}

fn identity(view: &View<'_>) -> Section {
    let verdict = verdict(view.object);
    let mut facts = vec![
        ("Name".to_owned(), Cell::from(view.or_dash("name"))),
        ("Cluster".to_owned(), format!("{} ({})", view.cluster_name(), view.text("cluster_id")).into()),
        ("Project".to_owned(), view.or_dash("project").into()),
        ("Id".to_owned(), view.or_dash("id").into()),
        ("Created".to_owned(), stamp(view, "created_at", "created_by")),
        ("Changed".to_owned(), stamp(view, "updated_at", "")),
        ("Generation".to_owned(), generation(view)),
        ("Phase".to_owned(), Cell::toned(view.or_dash("status.phase"), verdict.tone)),
        ("Health".to_owned(), health(view)),
    ];
    if !verdict.message.is_empty() {
        facts.push((
            "Status".to_owned(),
            Cell::toned(format!("{}: {}", verdict.reason, verdict.message), verdict.tone),
        ));
    }
    Section::Facts("", facts)
}

/// `2025-10-17T10:00:00Z (5d), by user@example.com`.
pub(super) fn stamp(view: &View<'_>, time: &str, by: &str) -> Cell {
    let text = view.text(time);
    if text.is_empty() {
        return "-".into();
    }
    let who = Some(view.text(by)).filter(|who| !by.is_empty() && !who.is_empty());
    let who = who.map(|who| format!(", by {who}")).unwrap_or_default();
    format!("{text} ({} ago){who}", age::since(view.at(time), view.now)).into()
}

/// What was asked for and what therefore holds, defaults included.
fn sizes(view: &View<'_>) -> Section {
    let automatic = view.at("spec.autoscaling.enabled") == Some(&Value::Bool(true));
    let mut facts: Vec<(String, Cell)> = vec![
        ("Desired".into(), view.or_dash("status.desired_nodes").into()),
        ("Current".into(), view.or_dash("status.current_nodes").into()),
        ("Ready".into(), ready(view)),
        ("Node count".into(), view.or_dash("spec.nodeCount").into()),
        ("Autoscaling".into(), if automatic { "on" } else { "off: the pool holds its node count" }.into()),
        ("Mode".into(), mode_explained(view).into()),
    ];
    if automatic {
        let or = |path: &str, default: String, unit: &str| -> Cell {
            let value = view.text(&format!("spec.autoscaling.{path}"));
            let text = if value.is_empty() {
                format!("{default}{unit} (default)")
            } else {
                format!("{value}{unit}")
            };
            text.into()
        };
        let least = dash(view.text("spec.autoscaling.minNodes"));
        facts.push((
            "Bounds".into(),
            format!("{least} to {}", view.or_dash("spec.autoscaling.maxNodes")).into(),
        ));
        facts.push(("CPU target".into(), or("targetCPUUtilization", DEFAULT_TARGET_CPU.to_string(), " %")));
        facts.push((
            "Memory target".into(),
            or("targetMemoryUtilization", DEFAULT_TARGET_MEMORY.to_string(), " %"),
        ));
        facts.push((
            "Low mark".into(),
            or("scaleDownUtilization", DEFAULT_SCALE_DOWN_UTILIZATION.to_string(), " %"),
        ));
        facts.push(("Scale-up delay".into(), or("scaleUpDelay", DEFAULT_SCALE_UP_DELAY.to_string(), "")));
        facts.push((
            "Scale-down delay".into(),
            or("scaleDownDelay", DEFAULT_SCALE_DOWN_DELAY.to_string(), ""),
        ));
    }
    Section::Facts("Size", facts)
}

fn mode_explained(view: &View<'_>) -> String {
    let source = if view.text("spec.mode").is_empty() { "from its cluster" } else { "set on the pool" };
    match mode(view).as_str() {
        "advise" => format!("advise, {source}: decisions are shown, nothing acts"),
        other => format!("{other}, {source}"),
    }
}

fn platform(view: &View<'_>) -> Section {
    let kind = view.text("spec.platform.type").to_ascii_lowercase();
    let mut facts: Vec<(String, Cell)> = vec![("Type".into(), view.or_dash("spec.platform.type").into())];
    if let Some(block) = view.at(&format!("spec.platform.{kind}")).and_then(Value::as_object) {
        facts.extend(block.iter().map(|(key, value)| (key.clone(), compact(value).into())));
    }
    Section::Facts("Platform", facts)
}

/// A value on one line: lists of words joined, everything else as JSON.
fn compact(value: &Value) -> String {
    match value.as_array() {
        Some(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            items.iter().map(crate::cli::jsonpath::plain).collect::<Vec<_>>().join(", ")
        }
        _ => crate::cli::jsonpath::plain(value),
    }
}

/// What its servers used and saved; other platforms say nothing of it.
fn energy(view: &View<'_>) -> Option<Section> {
    let energy = view.related.get("energy").filter(|energy| energy.is_object())?;
    let (used, saved) = (energies::amount(energy, "used")?, energies::amount(energy, "saved")?);
    let text = format!("used {used}, saved {saved} since registration");
    let facts =
        vec![("Servers".to_owned(), text_at(energy, "hosts").into()), ("Energy".to_owned(), text.into())];
    Some(Section::Facts("Energy", facts))
}

fn scheduling(view: &View<'_>) -> Section {
    let mut facts: Vec<(String, Cell)> = Vec::new();
    if let Some(labels) = view.at("spec.labels").and_then(Value::as_object) {
        facts.extend(
            labels
                .iter()
                .map(|(key, value)| ("Label".to_owned(), format!("{key}={}", compact(value)).into())),
        );
    }
    for taint in view.at("spec.taints").and_then(Value::as_array).into_iter().flatten() {
        let value = text_at(taint, "value");
        let value = if value.is_empty() { value } else { format!("={value}") };
        facts.push((
            "Taint".to_owned(),
            format!("{}{value}:{}", text_at(taint, "key"), text_at(taint, "effect")).into(),
        ));
    }
    if let Some(management) = view.at("spec.management").and_then(Value::as_object) {
        facts.extend(management.iter().map(|(key, value)| (key.clone(), compact(value).into())));
    }
    Section::Facts("Scheduling and management", facts)
}

fn reports(view: &View<'_>) -> Section {
    let rows = related(view, "reports")
        .iter()
        .map(|report| {
            let ready = report["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|c| matches!(text_at(c, "type").as_str(), "Available" | "Ready"));
            vec![
                dash(text_at(report, "controller_name")).into(),
                dash(text_at(report, "observed_generation")).into(),
                ready
                    .map_or_else(
                        || "-".into(),
                        |c| format!("{}={}", text_at(c, "type"), text_at(c, "status")),
                    )
                    .into(),
                dash(text_at(report, "metadata.active_nodes")).into(),
                age::since(report.get("updated_at").or(report.get("last_updated")), view.now).into(),
                super::report::error_or_message(report).into(),
            ]
        })
        .collect();
    Section::Table(
        "Controller reports",
        vec!["CONTROLLER", "GENERATION", "STATE", "NODES", "AGE", "MESSAGE"],
        rows,
    )
}

/// Ages of nodes, from controllers that report them.
fn node_ages(view: &View<'_>) -> Option<Section> {
    let lines: Vec<(String, Cell)> = related(view, "reports")
        .iter()
        .filter_map(|report| {
            let ages = text_at(report, "metadata.node_ages");
            (!ages.is_empty()).then(|| {
                let ages: Vec<&str> = ages.split(',').map(str::trim).collect();
                (
                    text_at(report, "controller_name"),
                    format!("{} nodes: {}", ages.len(), ages.join(", ")).into(),
                )
            })
        })
        .collect();
    (!lines.is_empty()).then_some(Section::Facts("Node ages", lines))
}

pub(super) fn related<'a>(view: &View<'a>, name: &str) -> &'a [Value] {
    view.related.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What a person would do next, given how the pool is.
fn next_steps(view: &View<'_>) -> Vec<String> {
    let name = KIND.full_name(view);
    let mut steps = Vec::new();
    if mode(view) == "advise" {
        steps.push(format!("let Muster act on it: muster enable pool {name}"));
    }
    if related(view, "reports").is_empty() {
        steps.push("no controller has reported yet: check that one for this platform is running".into());
    }
    for report in related(view, "reports") {
        for suggestion in at(report, "last_error.suggestions").and_then(Value::as_array).into_iter().flatten()
        {
            steps.push(format!(
                "{}: {}",
                text_at(report, "controller_name"),
                crate::cli::jsonpath::plain(suggestion)
            ));
        }
    }
    match view.text("status.phase").as_str() {
        "Ready" => steps.push(format!("change its size: muster scale pool {name} --to N --wait")),
        "Deleting" => steps.push(format!("wait until it is gone: muster wait pool/{name} --for=delete")),
        _ => steps.push(format!("wait until it is ready: muster wait pool/{name} --for=condition=Ready")),
    }
    steps
}
