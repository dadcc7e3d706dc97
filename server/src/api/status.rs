//! `…/status`: what controllers report, and what follows from it.

use axum::{
    body::Body,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use muster_control::registry::{Cluster, Kind, NodePool, Noun, RegistryError};
use muster_model::identity::Verb;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Call, objects::Done, reply, request::path_id};
use crate::{body::Accepts, error::ApiError};

/// `GET /api/v1/nodepools/{id}/status`
pub async fn read_pool(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    read::<NodePool>(&call, path_id(&id)?).await
}

/// `GET /api/v1/clusters/{cluster_id}/status`
pub async fn read_cluster(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    read::<Cluster>(&call, path_id(&id)?).await
}

async fn read<N: Reported>(call: &Call, id: Uuid) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    call.check_object::<N>(Verb::Get, id).await?;
    let found = call.app.registry.status::<N>(id).await?;
    let reports: Vec<Value> = found
        .reports
        .iter()
        .map(|report| serde_json::to_value(report.to_api()).unwrap_or(Value::Null))
        .collect();
    let mut answer = found.stored.object.ids();
    let status = call.app.registry.shown_status(&found.stored);
    answer["status"] = serde_json::to_value(status).unwrap_or(Value::Null);
    answer["controller_status"] = Value::Array(reports);
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `PUT /api/v1/nodepools/{id}/status`
pub async fn report_pool(call: Call, Path(id): Path<String>, body: Body) -> Response {
    report::<NodePool>(call, &id, body).await
}

/// `PUT /api/v1/clusters/{cluster_id}/status`
pub async fn report_cluster(call: Call, Path(id): Path<String>, body: Body) -> Response {
    report::<Cluster>(call, &id, body).await
}

async fn report<N: Reported>(call: Call, id: &str, body: Body) -> Response {
    let id = match path_id(id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = report_on::<N>(&call, id, body).await;
    call.finish_write("report", N::KIND, id, result).await
}

async fn report_on<N: Reported>(call: &Call, id: Uuid, body: Body) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    // The role first: whoever may not report learns nothing from the faults of a body.
    call.check_object::<N>(Verb::Report, id).await?;
    let context = call.context(&bytes, dry_run)?;
    let own = &call.caller.identity.controller_name;
    let admit = |_: &str, name: &str| -> Result<(), Refusal> {
        match own {
            Some(own) if own != name => Err(Refusal(ApiError::forbidden(format!(
                "this identity reports as {own:?} only, and the report says {name:?}"
            )))),
            _ => Ok(()),
        }
    };
    let (written, report) = call
        .app
        .registry
        .report::<N, Refusal>(&context, id, &bytes, admit)
        .await
        .map_err(|Refusal(error)| error)?;
    let mut answer = written.stored.object.ids();
    answer["message"] = N::STORED.into();
    answer["controller_name"] = report.controller_name.into();
    answer["observed_generation"] = report.observed_generation.into();
    let response = reply::warn(reply::value(StatusCode::OK, &answer), &written.warnings);
    Ok((response, Done { note: written.audit, audited: !dry_run }))
}

/// `DELETE /api/v1/nodepools/{id}/status/{controller_name}`
pub async fn forget_pool(call: Call, Path((id, controller)): Path<(String, String)>) -> Response {
    forget::<NodePool>(call, &id, &controller).await
}

/// `DELETE /api/v1/clusters/{cluster_id}/status/{controller_name}`
pub async fn forget_cluster(call: Call, Path((id, controller)): Path<(String, String)>) -> Response {
    forget::<Cluster>(call, &id, &controller).await
}

async fn forget<N: Reported>(call: Call, id: &str, controller: &str) -> Response {
    let id = match path_id(id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = forget_on::<N>(&call, id, controller).await;
    call.finish_write("forget", N::KIND, id, result).await
}

/// Forgets a controller that is gone for good, so that nothing waits for it any more.
async fn forget_on<N: Reported>(
    call: &Call,
    id: Uuid,
    controller: &str,
) -> Result<(Response, Done), ApiError> {
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    call.check_object::<N>(Verb::Delete, id).await?;
    let context = call.context(&[], dry_run)?;
    let written = call.app.registry.delete_report::<N>(&context, id, controller).await?;
    let written = written.ok_or_else(|| ApiError::not_found("Report"))?;
    Ok((StatusCode::NO_CONTENT.into_response(), Done { note: written.audit, audited: !dry_run }))
}

/// A refusal, from the registry or from us.
struct Refusal(ApiError);

impl From<RegistryError> for Refusal {
    fn from(error: RegistryError) -> Self {
        Self(error.into())
    }
}

/// Objects with a status, and how their answers name them.
trait Reported: Noun {
    const STORED: &'static str;
    fn ids(&self) -> Value;
}

impl Reported for NodePool {
    const STORED: &'static str = "Status updated successfully";

    fn ids(&self) -> Value {
        json!({ "nodepool_id": self.id, "cluster_id": self.cluster_id })
    }
}

impl Reported for Cluster {
    const STORED: &'static str = "Status update stored successfully";

    fn ids(&self) -> Value {
        debug_assert_eq!(Self::KIND, Kind::Cluster);
        json!({ "cluster_id": self.id })
    }
}
