//! `/api/v1/clusters`.

use axum::{body::Body, extract::Path, http::StatusCode, response::Response};
use muster_control::registry::{Cluster, Force, Kind, Noun};
use muster_model::{
    ClusterId, FieldErrors, Parsed, Timestamp, cluster::ClusterUpdate, identity::Verb, patch::diff,
    store::Revision,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Call,
    objects::{self, Done, Served},
    reply,
    request::path_id,
};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

const KIND: Kind = Kind::Cluster;

/// `GET /api/v1/clusters`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    objects::list::<Cluster>(&call, None).await
}

/// `POST /api/v1/clusters`
pub async fn create(call: Call, body: Body) -> Response {
    let id = Uuid::now_v7();
    let result = create_as(&call, body, id).await;
    call.finish_write("create", KIND, id, result).await
}

async fn create_as(call: &Call, body: Body, id: Uuid) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    let context = call.context(&bytes, dry_run)?;
    let home = call.home()?;
    call.check(Verb::Create, KIND, home.as_str())?;
    let sent = without_own_id(Call::json(&bytes)?, id);
    let parsed = Cluster::parse_create(&sent).map_err(|faults| ApiError::validation(&faults))?;
    let cluster = parsed.value.into_cluster(id.into(), home, context.actor.clone(), context.now);
    let written = call.app.registry.create(&context, cluster, None, parsed.warnings).await?;
    Ok(call.written(written, StatusCode::CREATED))
}

/// A body may repeat the id that the path chose.
pub(super) fn without_own_id(mut body: Value, id: Uuid) -> Value {
    if let Some(members) = body.as_object_mut()
        && members.get("id").and_then(Value::as_str).is_some_and(|sent| sent.parse() == Ok(id))
    {
        members.remove("id");
    }
    body
}

/// `GET /api/v1/clusters/{cluster_id}`
pub async fn read(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.read_object::<Cluster>(path_id(&id)?).await
}

/// `PUT /api/v1/clusters/{cluster_id}`
pub async fn replace(call: Call, Path(id): Path<String>, body: Body) -> Response {
    objects::replace::<Cluster>(call, &id, body).await
}

/// `PATCH /api/v1/clusters/{cluster_id}`
pub async fn patch(call: Call, Path(id): Path<String>, body: Body) -> Response {
    objects::patch::<Cluster>(call, &id, body).await
}

impl Served for Cluster {
    type Update = ClusterUpdate;
    type Scope = ();

    async fn scope(_: &Call, _: Uuid) -> Result<(), ApiError> {
        Ok(())
    }

    fn replaced(&self, body: &Value, (): &()) -> Result<Parsed<ClusterUpdate>, FieldErrors> {
        self.parse_replace(body)
    }

    fn patched(&self, patch: &Value, (): &()) -> Result<Parsed<ClusterUpdate>, FieldErrors> {
        self.merge_patch(patch)
    }

    fn seen(update: &ClusterUpdate) -> Option<&str> {
        update.resource_version.as_deref()
    }

    fn take(&mut self, update: ClusterUpdate, now: Timestamp) {
        self.apply(update, now);
    }

    fn effects(before: &Self, after: &Self) -> Value {
        let shown = |cluster: &Self| {
            let zero = Revision::ZERO;
            cluster.to_api(zero, None, muster_model::identity::Secrets::Hidden)["spec"].take()
        };
        json!(diff(&json!({ "spec": shown(before) }), &json!({ "spec": shown(after) })))
    }

    async fn delete_at(call: &Call, id: Uuid) -> Result<(Response, Done), ApiError> {
        delete_at(call, id).await
    }

    async fn create_at(call: &Call, body: Body, id: Uuid) -> Result<(Response, Done), ApiError> {
        create_as(call, body, id).await
    }
}

/// `DELETE /api/v1/clusters/{cluster_id}`
pub async fn delete(call: Call, Path(id): Path<String>) -> Response {
    objects::delete::<Cluster>(call, &id).await
}

async fn delete_at(call: &Call, id: Uuid) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let (dry_run, cascade, force) = (query.flag("dryRun"), query.flag("cascade"), query.flag("force"));
    query.finish()?;
    call.check_object::<Cluster>(Verb::Delete, id).await?;
    let context = call.context(&[], dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let force = if force { Force::Yes } else { Force::No };
    let deleted = call
        .app
        .registry
        .delete_cluster(&context, id, &guard, |stored| call.sees(stored.object.project()), cascade, force)
        .await?;
    let answer = json!({
        "message": if deleted.gone { "cluster deleted" } else { "cluster deletion initiated" },
        "cluster_id": ClusterId::from(id),
    });
    Ok((reply::value(StatusCode::ACCEPTED, &answer), Done { note: deleted.audit, audited: !dry_run }))
}
