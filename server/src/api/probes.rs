//! Health, readiness, metrics, and who one is.

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use muster_model::{Project, identity::Role};
use serde_json::{Map, Value, json};

use super::{Call, reply};
use crate::{
    app::App,
    error::{ApiError, Code},
};

/// `GET /health`: the seed's form of liveness.
pub async fn health(State(app): State<App>) -> Response {
    let answer = json!({
        "status": "healthy", "service": "muster", "version": env!("CARGO_PKG_VERSION"),
        "timestamp": app.clock.now(),
    });
    reply::value(StatusCode::OK, &answer)
}

/// `GET /livez`: the process answers.
pub async fn live() -> Response {
    reply::value(StatusCode::OK, &json!({ "status": "live" }))
}

/// `GET /readyz`: requests can be served: the store answers and both indexes follow it.
pub async fn ready(State(app): State<App>) -> Result<Response, ApiError> {
    let limit = std::time::Duration::from_secs(2);
    let store = match tokio::time::timeout(limit, app.registry.store().revision()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.code().to_owned()),
        Err(_) => Err("STORE_TIMEOUT".to_owned()),
    };
    let index = app.registry.is_live() && app.inventory.is_live();
    if app.stop.is_cancelled() {
        return Err(ApiError::new(Code::Unavailable, "Shutting down"));
    }
    match (store, index) {
        // Frozen is ready: requests are served, and nothing acts. Why, only those who may ask are told.
        (Ok(()), true) => {
            let freeze = app.registry.freeze();
            // So is a store that cannot be written: reads are served.
            let writes = if app.metrics.store_writable.get() == 0 { "refused" } else { "accepted" };
            let answer = json!({
                "status": "ready", "writes": writes, "freeze": freeze.mode,
                "restored": freeze.restored.is_some(),
            });
            Ok(reply::value(StatusCode::OK, &answer))
        }
        (Err(code), _) => Err(ApiError::unavailable().details(code)),
        (Ok(()), false) => Err(ApiError::unavailable().details("the index does not follow the store yet")),
    }
}

/// `GET /metrics`, for callers that may see all projects, because it names pools of all of them.
pub async fn metrics(call: Call) -> Result<Response, ApiError> {
    if !call.caller.identity.sees_all() {
        return Err(ApiError::forbidden("metrics show all projects; a role in all of them is needed"));
    }
    render_metrics(&call.app)
}

/// `GET /metrics` in dev mode, where only this machine can ask.
pub async fn open_metrics(State(app): State<App>) -> Result<Response, ApiError> {
    render_metrics(&app)
}

/// `GET /metrics/hosts`: series for every host, where they were asked for.
pub async fn host_metrics(call: Call) -> Result<Response, ApiError> {
    if !call.caller.identity.sees_all() {
        return Err(ApiError::forbidden("metrics show all projects; a role in all of them is needed"));
    }
    render_host_metrics(&call.app)
}

/// The same in dev mode.
pub async fn open_host_metrics(State(app): State<App>) -> Result<Response, ApiError> {
    render_host_metrics(&app)
}

fn render_host_metrics(app: &App) -> Result<Response, ApiError> {
    match app.metrics.render_hosts() {
        Some(text) => answer_metrics(text),
        None => {
            Err(ApiError::not_found("Page").details("set metrics.hosts to true for series of every host"))
        }
    }
}

fn render_metrics(app: &App) -> Result<Response, ApiError> {
    app.metrics.revision.set(i64::try_from(app.registry.revision().0).unwrap_or(i64::MAX));
    answer_metrics(app.metrics.render())
}

fn answer_metrics(text: Result<String, std::fmt::Error>) -> Result<Response, ApiError> {
    let text = text.map_err(|error| {
        tracing::error!(%error, "metrics could not be rendered");
        ApiError::internal()
    })?;
    let mut response = reply::json(StatusCode::OK, text);
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// `GET /api/v1/whoami`: the caller, its projects and roles.
pub async fn whoami(call: Call) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let identity = &call.caller.identity;
    let roles = |roles: &std::collections::BTreeSet<Role>| -> Value {
        roles.iter().map(|role| Value::from(role.as_str())).collect()
    };
    let projects: Map<String, Value> =
        identity.projects.iter().map(|(project, held)| (project.to_string(), roles(held))).collect();
    let answer = json!({
        "name": identity.name,
        "proof": call.caller.proof,
        "mode": call.app.identity.mode(),
        "project": call.project.as_ref().or(identity.home.as_ref()).map(Project::as_str),
        "projects": projects,
        "everywhere": roles(&identity.everywhere),
    });
    Ok(reply::value(StatusCode::OK, &answer))
}
