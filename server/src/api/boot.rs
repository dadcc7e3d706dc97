//! Boot progress: what a PXE server or an installer says about a host that is coming up.
//!
//! A reporter shows a controller's credential, or the token of that one host, which can do nothing else.

use axum::{
    body::Body,
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use muster_model::{
    field::{Findings, Object},
    host::BootReport,
    identity::Verb,
};
use serde_json::json;

use super::{Call, objects::Done, reply};
use crate::{
    app::App,
    body::{self, Accepts},
    error::ApiError,
    frame,
};

/// What a token of a host begins with.
const PREFIX: &str = "mbt_";
/// Longest name of a step.
const MAX_STAGE: usize = 120;
/// Bytes of a token, before they are written as text.
const TOKEN_BYTES: usize = 32;
/// Longest body that a reporter sends.
const MAX_BODY: usize = 4096;

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim).filter(|token| token.starts_with(PREFIX))
}

/// Lets a host's own token pass to the handler, which checks it; everybody else proves who they are.
pub async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    if token(request.headers()).is_some() {
        return next.run(request).await;
    }
    frame::authenticated(State(app), request, next).await
}

/// `POST /api/v1/hosts/{name}/boot`
pub async fn report(
    State(app): State<App>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let by = if let Some(token) = token(&parts.headers).map(str::to_owned) {
        if !app.inventory.is_boot_token(&name, &token).await? {
            return Err(ApiError::unauthenticated("this token is not the one of this host"));
        }
        "boot token".to_owned()
    } else {
        let call =
            <Call as axum::extract::FromRequestParts<App>>::from_request_parts(&mut parts, &app).await?;
        call.checked_host(Verb::Report, &name)?;
        call.caller.name.to_string()
    };
    let bytes = body::read(&parts.headers, body, Accepts::Json, MAX_BODY, app.limits.body_timeout).await?;
    let sent = Call::json(&bytes)?;
    let mut findings = Findings::new();
    let read = Object::read(&sent, "", &mut findings).and_then(|mut object| {
        let stage = object.text("stage", MAX_STAGE, &mut findings).map(str::to_owned);
        if stage.is_none() && object.get("stage").is_none() {
            findings.push(
                muster_model::FieldError::new("stage", "is required").hint("like dhcp, kernel or installed"),
            );
        }
        let os = object.boolean("os", &mut findings).unwrap_or(false);
        object.finish(&mut findings);
        Some((stage?, os))
    });
    let (stage, os) = findings
        .result_of(read)
        .map(|parsed| parsed.value)
        .map_err(|faults| ApiError::validation(&faults))?;
    let report = BootReport { stage, os, at: app.clock.now(), by };
    app.inventory.report_boot(&name, &report).await?;
    Ok(reply::value(StatusCode::OK, &json!({ "message": "noted", "name": name })))
}

/// `POST /api/v1/hosts/{name}/boot-token`: a new token for this host's reporter, shown once. The old one ends.
pub async fn make_token(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = new_token(&call, &name, body).await;
    call.finish("boot-token", format!("hosts/{name}"), result).await
}

async fn new_token(call: &Call, name: &str, body: Body) -> Result<(Response, Done), ApiError> {
    let host = call.checked_host(Verb::Update, name)?;
    // A body is not needed; what is there must be an empty object.
    let bytes = axum::body::to_bytes(body, MAX_BODY).await.unwrap_or_default();
    if !bytes.is_empty() && Call::json(&bytes)? != json!({}) {
        return Err(super::host_actions::fault("", "takes no members"));
    }
    call.query()?.finish()?;
    let mut random = [0_u8; TOKEN_BYTES];
    random[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    random[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    call.inventory().set_boot_token(name, &token).await?;
    let note = muster_control::registry::AuditNote {
        project: call.project_of_host(&host).unwrap_or_default(),
        name: name.to_owned(),
        ..Default::default()
    };
    let answer = json!({ "name": name, "token": token });
    Ok((reply::value(StatusCode::CREATED, &answer), Done { note, audited: true }))
}

/// `GET /api/v1/hosts/{name}/boot`
pub async fn read(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    call.checked_host(Verb::Get, &name)?;
    let report = call.inventory().boot_report(&name).await?;
    let report = report.ok_or_else(|| ApiError::not_found("Boot report"))?;
    Ok(reply::value(StatusCode::OK, &report))
}
