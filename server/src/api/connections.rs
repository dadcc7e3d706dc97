//! `/api/v1/clusters/{cluster_id}/connection`: how a cluster is reached. A kubeconfig goes in and never comes out.

use axum::{
    body::Body,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use muster_control::{inventory::Access, registry::Cluster};
use muster_model::{
    FieldErrors, Secret,
    field::{FieldError, Findings, Object},
    identity::{Resource, Role, Verb},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Call, objects::Done, reply, request::path_id};
use crate::{body::Accepts, error::ApiError};

/// Longest kubeconfig. One context with certificates has about 6 KiB.
const MAX_KUBECONFIG: usize = 64 * 1024;
const TITLE: &str = "Cluster";

/// Reads a body. No fault repeats what was sent.
fn read_body(body: &Value) -> Result<Access, FieldErrors> {
    let mut findings = Findings::new();
    let access = Object::read(body, "", &mut findings).and_then(|mut object| {
        let kubeconfig = object.secret("kubeconfig", MAX_KUBECONFIG, &mut findings).map(Secret::new);
        let context = object.text("context", 253, &mut findings).map(str::to_owned);
        let in_cluster = object.boolean("inCluster", &mut findings).unwrap_or(false);
        let access = match (kubeconfig, in_cluster) {
            (Some(text), false) => Some(Access::Kubeconfig { text, context }),
            (None, true) => Some(Access::InCluster),
            (Some(_), true) => {
                findings.push(FieldError::new("inCluster", "cannot be used together with kubeconfig"));
                None
            }
            (None, false) => {
                if object.get("kubeconfig").is_none() {
                    findings
                        .push(FieldError::new("kubeconfig", "is required").hint("or say inCluster: true"));
                }
                None
            }
        };
        object.finish(&mut findings);
        access
    });
    findings.result_of(access).map(|parsed| parsed.value).map_err(|faults| {
        let mut quiet = Findings::new();
        for fault in &faults {
            let mut fault = fault.clone();
            fault.found = None;
            quiet.push(fault);
        }
        quiet.result(()).err().unwrap_or_else(|| faults.clone())
    })
}

async fn cluster(call: &Call, id: Uuid) -> Result<Cluster, ApiError> {
    let stored = call.app.registry.read::<Cluster>(id).await?;
    Ok(stored.ok_or_else(|| ApiError::not_found(TITLE))?.object)
}

/// `GET /api/v1/clusters/{cluster_id}/connection`
pub async fn read(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let id = path_id(&id)?;
    call.check_object::<Cluster>(Verb::Get, id).await?;
    let cluster = cluster(&call, id).await?;
    Ok(reply::value(StatusCode::OK, &answer(&call, &cluster).await?))
}

/// The connection without its secrets, and how it is doing in this process.
async fn answer(call: &Call, cluster: &Cluster) -> Result<Value, ApiError> {
    let meta = call.app.vault.connection(cluster.id).await?;
    let status = call.app.connector.state(cluster.id);
    Ok(json!({ "cluster_id": cluster.id, "spec": meta, "status": status }))
}

/// `PUT /api/v1/clusters/{cluster_id}/connection`
pub async fn write(call: Call, Path(id): Path<String>, body: Body) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = set(&call, id, body).await;
    call.finish("connect", format!("clusters/{id}"), result).await
}

async fn set(call: &Call, id: Uuid, body: Body) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    call.check_object::<Cluster>(Verb::Update, id).await?;
    let cluster = cluster(call, id).await?;
    call.check_record(Verb::Update, Resource::Credentials, TITLE, cluster.project.as_str())?;
    let access = read_body(&Call::json(&bytes)?).map_err(|faults| ApiError::validation(&faults))?;
    if access == Access::InCluster
        && !call.app.identity.is_dev()
        && !call.caller.identity.everywhere.contains(&Role::Admin)
    {
        return Err(ApiError::forbidden(
            "inCluster lends Muster's own service account to this cluster; it takes the role admin in all projects",
        ));
    }
    let field = if access == Access::InCluster { "inCluster" } else { "kubeconfig" };
    let wrong = |why: String| ApiError::validation(&FieldErrors::one(FieldError::new(field, why)));
    let server = call.app.connector.judge(&access).await.map_err(wrong)?;
    // No idempotency record: it would keep a digest of the value.
    let context = call.context(&[], dry_run)?;
    let (_, note) = call.app.vault.set_connection(&context, &cluster, &access, server).await?;
    // A cluster that cannot be reached now may be later: that is worth a word, not a refusal.
    let warnings: Vec<String> = call
        .app
        .connector
        .probe(&access)
        .await
        .err()
        .map(|why| format!("the cluster is not reached: {why}"))
        .into_iter()
        .collect();
    if !dry_run {
        call.app.connector.refresh().await;
    }
    let response = reply::value(StatusCode::OK, &answer(call, &cluster).await?);
    Ok((reply::warn(response, &warnings), Done { note, audited: !dry_run }))
}

/// `DELETE /api/v1/clusters/{cluster_id}/connection`
pub async fn delete(call: Call, Path(id): Path<String>) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = forget(&call, id).await;
    call.finish("disconnect", format!("clusters/{id}"), result).await
}

async fn forget(call: &Call, id: Uuid) -> Result<(Response, Done), ApiError> {
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    call.check_object::<Cluster>(Verb::Update, id).await?;
    let cluster = cluster(call, id).await?;
    let context = call.context(&[], dry_run)?;
    let note = call.app.vault.forget_connection(&context, &cluster).await?;
    let note = note.ok_or_else(|| ApiError::not_found("Connection"))?;
    if !dry_run {
        call.app.connector.refresh().await;
    }
    Ok((StatusCode::NO_CONTENT.into_response(), Done { note, audited: !dry_run }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_never_repeats_what_was_sent() {
        for (body, fault) in [
            (json!({"kubeconfig": 4711}), "kubeconfig"),
            (json!({"kubeconfg": "4711"}), "kubeconfg"),
            (json!({"kubeconfig": "4711", "inCluster": true}), "inCluster"),
            (json!({}), "kubeconfig: is required"),
            (json!({"inCluster": false, "context": "4711"}), "kubeconfig: is required"),
        ] {
            let text = read_body(&body).unwrap_err().to_string();
            assert!(text.contains(fault) && !text.contains("4711"), "{text}");
        }
        assert_eq!(read_body(&json!({"inCluster": true})).unwrap(), Access::InCluster);
    }
}
