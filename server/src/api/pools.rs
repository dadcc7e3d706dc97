//! `/api/v1/nodepools` and `/api/v1/clusters/{cluster_id}/nodepools`.

use axum::{
    body::Body,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use muster_control::registry::{Cluster, Force, Kind, NodePool, Noun, RegistryError, Stored};
use muster_model::{
    ClusterId, FieldErrors, Parsed,
    field::FieldError,
    identity::Verb,
    pool::{PoolContext, PoolDraft, PoolUpdate},
    store::Revision,
};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Call,
    clusters::Done,
    request::path_id,
    selection::{self, Selection},
    watch,
};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

const KIND: Kind = Kind::Pool;

/// `GET /api/v1/nodepools`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    list_in(&call, None).await
}

/// `GET /api/v1/clusters/{cluster_id}/nodepools`
pub async fn list_of_cluster(call: Call, Path(cluster): Path<String>) -> Result<Response, ApiError> {
    let cluster = path_id(&cluster)?;
    call.check_object::<Cluster>(Verb::List, cluster).await?;
    list_in(&call, Some(cluster)).await
}

async fn list_in(call: &Call, cluster: Option<Uuid>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    if let Some(response) = watch::asked(call, &mut query, KIND, cluster).await? {
        return Ok(response);
    }
    let mut selection = Selection::read(call, &mut query, KIND);
    query.finish()?;
    selection.filter.cluster = cluster.or(selection.filter.cluster);
    selection::page::<NodePool>(call, &selection).await
}

/// `POST /api/v1/nodepools`
pub async fn create(call: Call, body: Body) -> Response {
    let id = Uuid::now_v7();
    let result = create_as(&call, body, id, None).await;
    call.finish_write("create", KIND, id, result).await
}

/// `POST /api/v1/clusters/{cluster_id}/nodepools`
pub async fn create_in_cluster(call: Call, Path(cluster): Path<String>, body: Body) -> Response {
    let id = Uuid::now_v7();
    let result = match path_id(&cluster) {
        Ok(cluster) => create_as(&call, body, id, Some(cluster)).await,
        Err(error) => Err(error),
    };
    call.finish_write("create", KIND, id, result).await
}

/// Tries of a create whose cluster is being changed by others at the same moment.
const MAX_TRIES: usize = 16;

async fn create_as(
    call: &Call,
    body: Body,
    id: Uuid,
    in_path: Option<Uuid>,
) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let context = call.context(&bytes, dry_run)?;
    let sent = Call::json(&bytes)?;
    if let Some(cluster) = in_path {
        // Before the body: whoever may not see the cluster learns nothing about it.
        call.check_object::<Cluster>(Verb::Get, cluster).await?;
    }
    for _ in 0..MAX_TRIES {
        let (cluster, parsed) = parse_create(call, &sent, in_path).await?;
        let project = cluster.object.project.clone();
        call.check(Verb::Create, KIND, project.as_str())?;
        if cluster.object.is_deleting() {
            return Err(RegistryError::Deleting { kind: Kind::Cluster }.into());
        }
        let pool = parsed.value.into_pool(id.into(), project, context.actor.clone(), context.now);
        let parent = Some((Kind::Cluster.object(cluster.object.id()), cluster.version));
        match call.app.registry.create(&context, pool, parent, parsed.warnings).await {
            Err(RegistryError::Busy) => {}
            result => return Ok(call.written(result?, StatusCode::CREATED)),
        }
    }
    Err(RegistryError::Busy.into())
}

/// Reads the body and finds its cluster, whose region the zones must lie in.
async fn parse_create(
    call: &Call,
    sent: &Value,
    in_path: Option<Uuid>,
) -> Result<(Stored<Cluster>, Parsed<PoolDraft>), ApiError> {
    let faulty = |faults: FieldErrors| ApiError::validation(&faults);
    let cluster_id = in_path.map(ClusterId::from);
    let context = PoolContext { cluster_id, cluster: None };
    let first = NodePool::parse_create(sent, &context).map_err(faulty)?;
    let wanted = first.value.cluster_id;
    let cluster = call.app.registry.read::<Cluster>(wanted.uuid()).await?;
    let visible = cluster.filter(|cluster| call.sees(cluster.object.project.as_str()));
    let Some(cluster) = visible else {
        return Err(match in_path {
            Some(_) => ApiError::not_found(Kind::Cluster.title()),
            None => faulty(FieldErrors::one(
                FieldError::new("cluster_id", "names no cluster").found_text(&wanted.to_string()),
            )),
        });
    };
    let context = PoolContext { cluster_id, cluster: Some(&cluster.object.spec) };
    let parsed = NodePool::parse_create(sent, &context).map_err(faulty)?;
    Ok((cluster, parsed))
}

/// `GET /api/v1/nodepools/{id}`
pub async fn read(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.read_object::<NodePool>(path_id(&id)?).await
}

/// `PUT /api/v1/nodepools/{id}`: replaces, or creates under a chosen id with `If-None-Match: *`.
pub async fn replace(call: Call, Path(id): Path<String>, body: Body) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = replace_at(&call, body, id).await;
    call.finish_write("replace", KIND, id, result).await
}

async fn replace_at(call: &Call, body: Body, id: Uuid) -> Result<(Response, Done), ApiError> {
    if Preconditions::read(&call.headers)?.must_be_new() {
        return create_as(call, body, id, None).await;
    }
    update(call, body, id, Accepts::Json, NodePool::parse_replace).await
}

/// `PATCH /api/v1/nodepools/{id}`
pub async fn patch(call: Call, Path(id): Path<String>, body: Body) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = update(&call, body, id, Accepts::MergePatch, NodePool::merge_patch).await;
    call.finish_write("patch", KIND, id, result).await
}

async fn update(
    call: &Call,
    body: Body,
    id: Uuid,
    accepts: Accepts,
    read: impl Fn(&NodePool, &Value, &PoolContext<'_>) -> Result<Parsed<PoolUpdate>, FieldErrors>,
) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, accepts).await?;
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let context = call.context(&bytes, dry_run)?;
    call.check_object::<NodePool>(Verb::Update, id).await?;
    let sent = Call::json(&bytes)?;
    let cluster = cluster_of(call, id).await?;
    let scope =
        PoolContext { cluster_id: None, cluster: cluster.as_ref().map(|cluster| &cluster.object.spec) };
    let change = |stored: &Stored<NodePool>| {
        let parsed = read(&stored.object, &sent, &scope)?;
        if let Some(version) = &parsed.value.resource_version
            && *version != stored.version.to_string()
        {
            return Err(RegistryError::Stale { sent: version.clone(), current: stored.version });
        }
        let mut pool = stored.object.clone();
        pool.apply(parsed.value, context.now);
        Ok((pool, parsed.warnings))
    };
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let written = call.app.registry.update(&context, id, &guard, change, |txn, _| txn).await?;
    Ok(call.written(written, StatusCode::OK))
}

/// The cluster of a pool, for the rules that depend on it.
pub(super) async fn cluster_of(call: &Call, pool: Uuid) -> Result<Option<Stored<Cluster>>, ApiError> {
    let Some(stored) = call.app.registry.read::<NodePool>(pool).await? else { return Ok(None) };
    Ok(call.app.registry.read::<Cluster>(stored.object.cluster_id.uuid()).await?)
}

/// `DELETE /api/v1/nodepools/{id}`
pub async fn delete(call: Call, Path(id): Path<String>) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = delete_at(&call, id).await;
    call.finish_write("delete", KIND, id, result).await
}

async fn delete_at(call: &Call, id: Uuid) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let (dry_run, force) = (query.flag("dryRun"), query.flag("force"));
    query.finish()?;
    call.check_object::<NodePool>(Verb::Delete, id).await?;
    let context = call.context(&[], dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let force = if force { Force::Yes } else { Force::No };
    let deleted = call
        .app
        .registry
        .delete::<NodePool>(&context, id, &guard, |stored| call.sees(stored.object.project()), force)
        .await?;
    Ok((StatusCode::NO_CONTENT.into_response(), Done { note: deleted.audit, audited: !dry_run }))
}
