//! `/api/v1/freeze`: whether anything may act.

use axum::{body::Body, http::StatusCode, response::Response};
use muster_control::{
    freeze::{self, Freeze, FreezeError, Waiting},
    registry::{AuditNote, RegistryError},
};
use muster_model::{
    field::{FieldError, Findings, Object},
    host::FreezeMode,
    identity::Role,
};
use serde::Serialize;
use serde_json::Value;

use super::{Call, objects::Done, reply};
use crate::{
    body::Accepts,
    error::{ApiError, Code},
};

/// Longest reason that is kept.
const MAX_REASON: usize = 500;

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    freeze: Freeze,
    may_act: bool,
    /// What has not been heard of since a restore; only for those who see all projects.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Waiting>,
}

/// `GET /api/v1/freeze`
pub async fn read(call: Call) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    Ok(reply::value(StatusCode::OK, &answer(&call).await?))
}

async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let store = call.app.registry.store().as_ref();
    let freeze = freeze::state(store).await;
    let shown = call.app.identity.is_dev() || call.caller.identity.sees_all();
    let waiting = match &freeze.restored {
        Some(_) if shown => freeze::waiting(store).await.map_err(RegistryError::from)?,
        _ => None,
    };
    Ok(Answer { may_act: freeze.may_act(), freeze, waiting })
}

/// `PUT /api/v1/freeze`
pub async fn write(call: Call, body: Body) -> Response {
    let result = set(&call, body).await;
    call.finish("freeze", "freeze".to_owned(), result).await
}

/// Freezing concerns every project, so it takes a role in all of them. In dev mode, where only this machine can
/// ask and everybody is believed, it takes nobody in particular.
async fn set(call: &Call, body: Body) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    call.query()?.finish()?;
    let everywhere = &call.caller.identity.everywhere;
    if !call.app.identity.is_dev()
        && !everywhere.contains(&Role::Operator)
        && !everywhere.contains(&Role::Admin)
    {
        return Err(ApiError::forbidden(
            "a freeze concerns all projects; it takes the role operator or admin in all of them",
        ));
    }
    let (mode, reason) = read_body(&Call::json(&bytes)?)?;
    let store = call.app.registry.store().as_ref();
    let set = freeze::set(store, mode, reason, &call.caller.name, call.app.clock.now()).await;
    let (state, revision) = set.map_err(|error| match error {
        FreezeError::Store(error) => RegistryError::from(error).into(),
        other => ApiError::new(Code::Conflict, other.to_string()),
    })?;
    tracing::info!(mode = %state.mode, reason = state.reason, by = %call.caller.name, "the freeze was changed");
    call.app.registry.set_freeze(state);
    let note = AuditNote {
        name: mode.to_string(),
        revision: Some(revision.0),
        changed: vec!["freeze".to_owned()],
        ..AuditNote::default()
    };
    Ok((reply::value(StatusCode::OK, &answer(call).await?), Done { note, audited: true }))
}

fn read_body(body: &Value) -> Result<(FreezeMode, Option<String>), ApiError> {
    let mut findings = Findings::new();
    let read = Object::read(body, "", &mut findings).and_then(|mut object| {
        let mode: Option<FreezeMode> = object.choice("mode", &mut findings);
        if object.get("mode").is_none() {
            findings.push(FieldError::new("mode", "is required").allowed("none, frozen, all-on"));
        }
        let reason = object.text("reason", MAX_REASON, &mut findings).map(str::to_owned);
        if mode.is_some_and(|mode| mode != FreezeMode::None)
            && reason.as_deref().is_none_or(|reason| reason.trim().is_empty())
        {
            findings
                .push(FieldError::new("reason", "is required").hint("say why, for those who find it frozen"));
        }
        object.finish(&mut findings);
        Some((mode?, reason))
    });
    findings.result_of(read).map(|parsed| parsed.value).map_err(|faults| ApiError::validation(&faults))
}
