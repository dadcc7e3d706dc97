//! What agents on hosts say: hello, and that they power off.
//!
//! A message carries the signature of its host's own key and nothing else proves it: an agent has no account here,
//! and an account here is no agent.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State},
    http::{StatusCode, header},
    response::Response,
};
use muster_control::hosts::DeskError;
use serde_json::{Value, json};

use super::{Call, reply};
use crate::{
    app::App,
    body::{self, Accepts},
    error::{ApiError, Code},
    peer::Peer,
};

/// Longest message: a host with a hundred network cards fits.
const MAX_BODY: usize = 8192;

/// `POST /api/v1/hosts/{name}/agent/hello`
pub async fn hello(
    State(app): State<App>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let message = message(&app, request).await?;
    let answer = app.agents.hello(&name, message).await.map_err(refuse)?;
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `POST /api/v1/hosts/{name}/agent/taken`
pub async fn taken(
    State(app): State<App>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let message = message(&app, request).await?;
    app.agents.taken(&name, message).await.map_err(refuse)?;
    Ok(reply::value(StatusCode::OK, &json!({ "message": "noted", "name": name })))
}

/// The body. Whoever is not believed yet takes nothing from the host that it claims to be: until the signature is checked,
/// only the address counts that a message came from. What a believed agent may say is bounded by those who believe it.
async fn message(app: &App, request: Request) -> Result<Value, ApiError> {
    let (parts, body) = request.into_parts();
    let from = parts.extensions.get::<Peer>().map(|peer| peer.address.ip());
    let who: Arc<str> = from.map_or_else(|| "agents".into(), |from| format!("agents at {from}").into());
    if let Err(wait) = app.rate.take(&who, app.clock.monotonic()) {
        app.metrics.rate_limited.inc();
        let seconds = wait.millis().div_ceil(1000).max(1);
        return Err(ApiError::new(Code::RateLimited, "Too many requests")
            .header(header::RETRY_AFTER, &seconds.to_string()));
    }
    let bytes = body::read(&parts.headers, body, Accepts::Json, MAX_BODY, app.limits.body_timeout).await?;
    Call::json(&bytes)
}

fn refuse(error: DeskError) -> ApiError {
    match error {
        DeskError::Malformed { why } => {
            ApiError::invalid("", format!("The body is no message of an agent: {why}."))
        }
        DeskError::Distrusted { host, why } => {
            tracing::warn!(host, why, "a message of an agent is not believed");
            ApiError::unauthenticated("the message is not signed with this host's key, or its clock is wrong")
        }
        DeskError::NotLeading => ApiError::new(Code::Unavailable, "Another process leads")
            .details("agents are answered by the process that leads; ask the next one")
            .header(header::RETRY_AFTER, "1"),
        DeskError::Store { host, source } => {
            tracing::warn!(host, error = %source, "what an agent said could not be stored");
            ApiError::unavailable()
        }
    }
}
