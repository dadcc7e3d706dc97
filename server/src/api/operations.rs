//! `…/scale` and `/api/v1/operations`.

use axum::{
    body::Body,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use muster_control::{
    hosts::{self, CancelError, Withdrawal},
    registry::{AuditNote, Kind, NodePool, Operation, Stored},
};
use muster_model::{
    FieldErrors,
    field::{FieldError, Findings, Object},
    identity::Verb,
    pool::MAX_NODES,
    store::Revision,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Call,
    host_actions::MAX_REASON,
    objects::Done,
    pools::{cluster_of, context_in},
    reply,
    request::path_id,
    selection::{Selection, encode_cursor},
    watch,
};
use crate::{
    body::Accepts,
    error::{ApiError, Code},
    preconditions::Preconditions,
};

/// `POST /api/v1/nodepools/{id}/scale`
pub async fn scale(call: Call, Path(id): Path<String>, body: Body) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = scale_to(&call, id, body).await;
    call.finish_write("scale", Kind::Pool, id, result).await
}

async fn scale_to(call: &Call, id: Uuid, body: Body) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let context = call.context(&bytes, dry_run)?;
    call.check_object::<NodePool>(Verb::Scale, id).await?;
    let nodes = read_size(&Call::json(&bytes)?).map_err(|faults| ApiError::validation(&faults))?;
    let registry = &call.app.registry;
    if let Some(operation) = registry.replayed_operation(&context).await? {
        return Ok((answer(&operation), Done { note: AuditNote::default(), audited: false }));
    }
    let cluster = cluster_of(call, id).await?;
    let scope = context_in(cluster.as_ref());
    let change = |stored: &Stored<NodePool>| {
        let patch = json!({ "spec": { "nodeCount": nodes } });
        let parsed = stored.object.merge_patch(&patch, &scope)?;
        let mut pool = stored.object.clone();
        pool.apply(parsed.value, context.now);
        Ok((pool, parsed.warnings))
    };
    let operation_id = Uuid::now_v7();
    let make = |pool: &NodePool| Operation::scale(operation_id, pool, nodes, &context.actor, context.now);
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let written =
        registry.update(&context, id, &guard, change, |txn, pool| make(pool).attach(&context, txn)).await?;
    let operation = make(&written.stored.object);
    if dry_run {
        return Ok((answer(&operation), Done { note: written.audit, audited: false }));
    }
    if !written.changed {
        registry.put_operation(&context, &operation).await?;
    }
    let operation = registry.settle_operation(operation.id).await?;
    let freeze = registry.freeze();
    let mut warnings = written.warnings;
    if !freeze.may_act() {
        warnings.push(format!("Muster is frozen, so this waits: {}", freeze.reason));
    }
    Ok((reply::warn(answer(&operation), &warnings), Done { note: written.audit, audited: true }))
}

fn answer(operation: &Operation) -> Response {
    let path = format!("/api/v1/operations/{}", operation.id);
    reply::located(reply::value(StatusCode::ACCEPTED, operation), &path)
}

/// `{"nodeCount": n}`, or `replicas` as Kubernetes calls it.
fn read_size(body: &Value) -> Result<u32, FieldErrors> {
    let mut findings = Findings::new();
    let size = Object::read(body, "", &mut findings).and_then(|mut object| {
        let range = 0..=MAX_NODES;
        let count = object.count("nodeCount", range.clone(), &mut findings);
        let replicas = object.count("replicas", range, &mut findings);
        match (object.get("nodeCount").is_some(), object.get("replicas").is_some()) {
            (false, false) => findings.push(FieldError::new("nodeCount", "is required")),
            (true, true) if count != replicas => {
                findings.push(FieldError::new("replicas", "contradicts nodeCount").hint("send one of them"));
            }
            _ => {}
        }
        object.finish(&mut findings);
        count.or(replicas)
    });
    findings.result_of(size).map(|parsed| parsed.value)
}

/// `GET /api/v1/operations/{id}`
pub async fn read(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let operation = call.app.registry.operation(path_id(&id)?).await?;
    if !call.sees(&operation.project) {
        return Err(ApiError::not_found("Operation"));
    }
    Ok(reply::value(StatusCode::OK, &operation))
}

/// `GET /api/v1/operations`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    if let Some(response) = watch::asked(&call, &mut query, Kind::Operation, None).await? {
        return Ok(response);
    }
    let selection = Selection::read(&call, &mut query, Kind::Operation);
    query.finish()?;
    let Selection { filter, limit, offset, start } = &selection;
    let (found, operations) = call.app.registry.operations(filter, *start, *limit).await?;
    let mut answer = json!({
        "operations": operations, "total": found.total, "limit": limit, "offset": offset,
        "revision": found.revision.to_string(),
    });
    if let Some(next) = found.next {
        answer["next_cursor"] = encode_cursor(next).into();
    }
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `POST /api/v1/operations/{id}/cancel`: withdraws the wish behind an operation on a host.
pub async fn cancel(call: Call, Path(id): Path<String>) -> Response {
    let result = cancel_one(&call, &id).await;
    call.finish("cancel", format!("operations/{id}"), result).await
}

async fn cancel_one(call: &Call, id: &str) -> Result<(Response, Done), ApiError> {
    let mut query = call.query()?;
    let reason = query.text("reason");
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON) {
        query.fault(FieldError::new("reason", "is too long").allowed(format!("{MAX_REASON} characters")));
    }
    query.finish()?;
    let registry = &call.app.registry;
    let operation = registry.operation(path_id(id)?).await?;
    if !call.sees(&operation.project) {
        return Err(ApiError::not_found("Operation"));
    }
    let Some(host) = operation.host().map(str::to_owned) else {
        return Err(ApiError::new(Code::Conflict, "A scale action cannot be cancelled")
            .details("ask for another size; the operation is then superseded"));
    };
    call.checked_host(Verb::Power, &host)?;
    let reason = reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
    let withdrawal = Withdrawal { by: call.caller.name.as_ref(), at: call.app.clock.now(), reason };
    hosts::cancel(&**registry.store(), &operation, &withdrawal).await.map_err(|error| match error {
        CancelError::NotUnderWay { .. } => {
            ApiError::new(Code::Conflict, "The operation is not under way").details(error.to_string())
        }
        CancelError::Refused { .. } | CancelError::Conflict { .. } => {
            ApiError::new(Code::Conflict, "The operation cannot be cancelled").details(error.to_string())
        }
        CancelError::Store(error) => {
            tracing::warn!(code = error.code(), %error, "the store failed a request");
            ApiError::unavailable()
        }
    })?;
    let note = AuditNote { project: operation.project.clone(), name: host, ..AuditNote::default() };
    Ok((reply::value(StatusCode::ACCEPTED, &operation), Done { note, audited: true }))
}
