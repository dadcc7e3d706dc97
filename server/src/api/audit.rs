//! `/api/v1/audit`: the log that every write leaves behind, for auditors. It is the log of this server; servers
//! that share an etcd have one each.

use axum::{http::StatusCode, response::Response};
use muster_control::audit::{Query as Wanted, page, verify};
use muster_model::{
    Timestamp,
    field::FieldError,
    identity::{Resource, Role, Verb, allowed},
};
use serde_json::json;

use super::{
    Call, reply,
    selection::{DEFAULT_LIMIT, MAX_LIMIT},
};
use crate::{
    error::{ApiError, Code},
    query::Query,
};

/// `GET /api/v1/audit`: newest first.
pub async fn list(call: Call) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let limit = query.number("limit", 1, MAX_LIMIT).unwrap_or(DEFAULT_LIMIT);
    let wanted = Wanted {
        actor: query.text("actor"),
        object: query.text("object"),
        project: query.text("project"),
        projects: auditable(&call)?,
        verb: query.text("verb"),
        outcome: query.choice("outcome"),
        since: time(&mut query, "since"),
        until: time(&mut query, "until"),
        before: query.number("cursor", 1, u64::MAX),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    query.finish()?;
    let directory = call.app.audit.directory().to_owned();
    let found = tokio::task::spawn_blocking(move || page(&directory, &wanted)).await;
    let (lines, next) = found.map_err(std::io::Error::other).and_then(|found| found).map_err(unreadable)?;
    let mut answer = json!({ "lines": lines, "limit": limit });
    if let Some(next) = next {
        answer["next_cursor"] = next.to_string().into();
    }
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `GET /api/v1/audit/verify`: walks the whole chain.
pub async fn check(call: Call) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    if auditable(&call)?.is_some() && !call.app.identity.is_dev() {
        return Err(ApiError::forbidden(
            "the chain holds all projects; it takes the role auditor in all of them",
        ));
    }
    let directory = call.app.audit.directory().to_owned();
    let verdict = tokio::task::spawn_blocking(move || verify(&directory)).await;
    let verdict = verdict.map_err(std::io::Error::other).and_then(|found| found).map_err(unreadable)?;
    Ok(reply::value(StatusCode::OK, &verdict))
}

/// The projects whose lines the caller may read; `None` means all, and lines of no project too. In dev mode, where
/// nobody has been given roles, everybody reads about the own projects.
fn auditable(call: &Call) -> Result<Option<Vec<String>>, ApiError> {
    let identity = &call.caller.identity;
    if call.app.identity.is_dev() && !identity.projects.is_empty() {
        let seen = identity.projects.keys().filter(|project| call.sees(project.as_str()));
        return Ok(Some(seen.map(ToString::to_string).collect()));
    }
    if identity.everywhere.contains(&Role::Auditor) && call.project.is_none() {
        return Ok(None);
    }
    let mut denied = None;
    let mut held = Vec::new();
    let named = call.project.iter();
    for project in named.chain(identity.projects.keys().filter(|_| call.project.is_none())) {
        match allowed(identity, Verb::List, Resource::Audit, project) {
            Ok(()) => held.push(project.to_string()),
            Err(error) => denied = Some(error),
        }
    }
    match denied {
        Some(error) if held.is_empty() => Err(ApiError::forbidden(error.to_string())),
        None if held.is_empty() => Err(ApiError::forbidden("the audit log takes the role auditor")),
        _ => Ok(Some(held)),
    }
}

fn time(query: &mut Query, name: &'static str) -> Option<Timestamp> {
    let text = query.text(name)?;
    let time = text.parse().ok();
    if time.is_none() {
        let fault = FieldError::new(name, "is not a time").found_text(&text);
        query.fault(fault.allowed("RFC 3339, like 2025-10-17T10:30:00Z"));
    }
    time
}

fn unreadable(error: std::io::Error) -> ApiError {
    tracing::error!(%error, "the audit log cannot be read");
    ApiError::new(Code::Internal, "The audit log cannot be read").details("look at the server's log")
}
