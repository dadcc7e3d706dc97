//! `…/scale` and `/api/v1/operations`.

use axum::{
    body::Body,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use muster_control::registry::{Kind, NodePool, Operation, Stored};
use muster_model::{
    FieldErrors,
    field::{FieldError, Findings, Object},
    identity::Verb,
    pool::{MAX_NODES, PoolContext},
    store::Revision,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Call, clusters::Done, pools::cluster_of, reply, request::path_id};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

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
        return Ok((
            answer(&operation),
            Done { note: muster_control::registry::AuditNote::default(), audited: false },
        ));
    }
    let cluster = cluster_of(call, id).await?;
    let scope =
        PoolContext { cluster_id: None, cluster: cluster.as_ref().map(|cluster| &cluster.object.spec) };
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
    Ok((answer(&operation), Done { note: written.audit, audited: true }))
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
    let limit =
        query.number("limit", 1, super::selection::MAX_LIMIT).unwrap_or(super::selection::DEFAULT_LIMIT);
    let offset = query.number("offset", 0, u64::from(u32::MAX)).unwrap_or(0);
    let pool = match query.text("nodepool_id") {
        None => None,
        Some(text) => Some(path_id(&text)?),
    };
    query.finish()?;
    let found = call
        .app
        .registry
        .operations(|operation| {
            call.sees(&operation.project) && pool.is_none_or(|id| Some(id) == operation.nodepool_id())
        })
        .await?;
    let page: Vec<&Operation> = found
        .iter()
        .skip(usize::try_from(offset).unwrap_or(usize::MAX))
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .collect();
    let answer = json!({
        "operations": page, "total": found.len(), "limit": limit, "offset": offset,
        "revision": call.app.registry.revision().to_string(),
    });
    Ok(reply::value(StatusCode::OK, &answer))
}
