//! Racks, boot profiles and credentials: small records beside the hosts.

use serde_json::Value;

use super::{Column, Kind, Scope, Section, View, column, pool, wide};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

pub(super) static RACK: Kind = Kind {
    kind: "Rack",
    singular: "rack",
    plural: "racks",
    aliases: &[],
    scope: Scope::Name,
    written: &["name", "spec"],
    columns: &[
        column("NAME", ".name", |view| view.or_dash("name").into()),
        column("UNITS", ".spec.units", |view| view.or_dash("spec.units").into()),
        column("ZONE", ".spec.zone", |view| view.or_dash("spec.zone").into()),
        column("WATT-CAP", ".spec.wattCap", |view| view.or_dash("spec.wattCap").into()),
        column("STARTS", ".spec.startLimit", |view| view.or_dash("spec.startLimit").into()),
        AGE,
        PROJECT,
    ],
    describe,
};

pub(super) static PROFILE: Kind = Kind {
    kind: "BootProfile",
    singular: "boot-profile",
    plural: "boot-profiles",
    aliases: &["bootprofile", "bootprofiles", "profile", "profiles"],
    scope: Scope::Name,
    written: &["name", "spec"],
    columns: &[
        column("NAME", ".name", |view| view.or_dash("name").into()),
        column("TARGET", ".spec.target", |view| view.or_dash("spec.target").into()),
        column("MODE", ".spec.mode", |view| view.or_dash("spec.mode").into()),
        column("ONCE", ".spec.once", |view| view.or_dash("spec.once").into()),
        column("URL", ".spec.url", |view| view.or_dash("spec.url").into()),
        AGE,
        PROJECT,
    ],
    describe,
};

pub(super) static CREDENTIAL: Kind = Kind {
    kind: "Credential",
    singular: "credential",
    plural: "credentials",
    aliases: &["cred", "creds"],
    scope: Scope::Name,
    written: &["name", "spec"],
    columns: &[
        column("NAME", ".name", |view| view.or_dash("name").into()),
        column("KIND", ".spec.kind", |view| view.or_dash("spec.kind").into()),
        column("VERSION", ".status.version", |view| view.or_dash("status.version").into()),
        column("ROTATED", ".status.rotatedAt", |view| {
            age::since(view.at("status.rotatedAt"), view.now).into()
        }),
        column("USED", ".status.accepted", used),
        AGE,
        PROJECT,
    ],
    describe,
};

const AGE: Column = column("AGE", ".created_at", |view| age::since(view.at("created_at"), view.now).into());
const PROJECT: Column = wide("PROJECT", ".project", |view| view.or_dash("project").into());

/// Whether a BMC has taken or refused the version in force.
fn used(view: &View<'_>) -> Cell {
    if view.at("status.isRefused") == Some(&Value::Bool(true)) {
        return Cell::toned(format!("refused by {}", view.text("status.refused.host")), Tone::Bad);
    }
    match view.at("status.accepted") {
        Some(_) => Cell::toned(format!("accepted by {}", view.text("status.accepted.host")), Tone::Good),
        None => "not yet".into(),
    }
}

fn describe(view: &View<'_>) -> Vec<Section> {
    let mut facts: Vec<(String, Cell)> = vec![
        ("Name".into(), view.or_dash("name").into()),
        ("Project".into(), view.or_dash("project").into()),
        ("Created".into(), pool::stamp(view, "created_at", "created_by")),
    ];
    for part in ["spec", "status"] {
        let members = view.at(part).and_then(Value::as_object).into_iter().flatten();
        facts.extend(
            members
                .filter(|(name, value)| *name != "name" && !value.is_null())
                .map(|(name, value)| (name.clone(), crate::cli::jsonpath::plain(value).into())),
        );
    }
    vec![Section::Facts("", facts)]
}
