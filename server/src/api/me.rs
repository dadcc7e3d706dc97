//! `/api/v1/me`, `/api/v1/sign-in`, `/api/v1/settings`, and what was said to a host's BMC.

use std::collections::BTreeSet;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use muster_model::{
    Project,
    identity::{Resource, Role, Verb, allowed},
};
use serde_json::{Map, Value, json};

use super::{Call, reply, scope::DEFAULT_PROJECT};
use crate::{app::App, error::ApiError};

/// What pages offer to do: each is shown, and disabled with the missing role where the caller lacks it.
const RIGHTS: [(Verb, Resource); 12] = [
    (Verb::Scale, Resource::NodePools),
    (Verb::Update, Resource::NodePools),
    (Verb::Create, Resource::NodePools),
    (Verb::Delete, Resource::NodePools),
    (Verb::Enable, Resource::NodePools),
    (Verb::Hold, Resource::Hosts),
    (Verb::Power, Resource::Hosts),
    (Verb::Update, Resource::Hosts),
    (Verb::Create, Resource::Hosts),
    (Verb::Freeze, Resource::Clusters),
    (Verb::List, Resource::Audit),
    (Verb::List, Resource::Credentials),
];

/// `GET /api/v1/sign-in`: how callers prove who they are here. Whoever is not signed in asks this first.
pub async fn sign_in(State(app): State<App>) -> Response {
    let mode = app.identity.mode();
    let (send, how) = match mode {
        "dev" => ("header", "Every address is believed, and only this machine is served: send X-User-Email."),
        "mtls" => {
            ("certificate", "The server knows people by their client certificate: choose one in the browser.")
        }
        "trusted-proxy" => {
            ("proxy", "The server stands behind a proxy that signs people in: open it through that proxy.")
        }
        "oidc" => ("bearer", "Send an ID token of the configured issuer as a bearer token."),
        "k8s" => ("bearer", "Send a token of the cluster as a bearer token: kubectl create token NAME"),
        _ => ("bearer", "Send the token that an administrator gave you as a bearer token."),
    };
    reply::value(StatusCode::OK, &json!({ "mode": mode, "send": send, "how": how }))
}

/// `GET /api/v1/me`: who the caller is, its roles, and what it may do.
pub async fn me(call: Call) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let identity = &call.caller.identity;
    let project = call.project.clone().or_else(|| identity.home.clone());
    let mut roles: BTreeSet<Role> = identity.everywhere.clone();
    for (at, held) in &identity.projects {
        if call.project.as_ref().is_none_or(|only| only == at) {
            roles.extend(held);
        }
    }
    // A right counts when it is held anywhere: where it is not, the server says so.
    let mut places: Vec<Project> = match &call.project {
        Some(only) => vec![only.clone()],
        None => identity.projects.keys().cloned().collect(),
    };
    if places.is_empty() {
        places.extend(DEFAULT_PROJECT.parse::<Project>());
    }
    let mut rights = Map::new();
    for (verb, resource) in RIGHTS {
        let verdicts: Vec<_> = places.iter().map(|place| allowed(identity, verb, resource, place)).collect();
        let held = verdicts.iter().any(Result::is_ok);
        let needs: Vec<&str> = verdicts
            .iter()
            .filter_map(|verdict| verdict.as_ref().err())
            .flat_map(|denied| denied.needs)
            .map(|role| role.as_str())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let needs = if held { Vec::new() } else { needs };
        rights.insert(format!("{verb} {resource}"), json!({ "allowed": held, "needs": needs }));
    }
    let answer = json!({
        "name": identity.name,
        "mode": call.app.identity.mode(),
        "proof": call.caller.proof,
        "project": project.as_ref().map(Project::as_str),
        "projects": identity.projects.keys().map(Project::as_str).collect::<Vec<_>>(),
        "everywhere": identity.sees_all(),
        "roles": roles.iter().map(|role| role.as_str()).collect::<Vec<_>>(),
        "rights": rights,
        "version": env!("CARGO_PKG_VERSION"),
        "at": call.app.clock.now(),
    });
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `GET /api/v1/settings`: what is in force and where it comes from. Secrets are not among it.
pub async fn settings(call: Call) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    if !call.caller.identity.sees_all() && !call.app.identity.is_dev() {
        return Err(ApiError::forbidden(
            "the settings hold for all projects; a role in all of them is needed",
        ));
    }
    let global = call.inventory().global();
    let mut settings: Vec<Value> = call.app.desk.settings.iter().map(|one| json!(one)).collect();
    // What is read live from the store, beside what this process was started with.
    let defaults = json!(muster_model::host::GlobalConfig::default());
    if let Value::Object(members) = json!(*global.config) {
        for (name, value) in members {
            let set = defaults.get(&name) != Some(&value);
            let origin = if set { muster_model::host::keys::GLOBAL_CONFIG } else { "default" };
            let value = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            settings.push(json!({ "name": format!("hosts.{name}"), "value": value,
                "origin": origin, "help": "settings of all hosts, read live" }));
        }
    }
    Ok(reply::value(StatusCode::OK, &json!({ "settings": settings, "problem": global.problem })))
}

/// `GET /api/v1/hosts/{name}/transcript`: what was said to its BMC by this replica.
pub async fn transcript(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let host = call.checked_host(Verb::Get, &name)?;
    let calls = call.app.desk.transcripts.of(&host.name);
    let answer = json!({ "host": &*host.name, "since": call.app.desk.since, "calls": calls });
    Ok(reply::value(StatusCode::OK, &answer))
}
