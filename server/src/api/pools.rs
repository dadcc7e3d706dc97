//! `/api/v1/nodepools` and `/api/v1/clusters/{cluster_id}/nodepools`.

use axum::{
    body::Body,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use muster_control::registry::{Cluster, Force, Kind, NodePool, Noun, RegistryError, Stored};
use muster_model::{
    ClusterId, FieldErrors, Parsed, Timestamp,
    field::FieldError,
    identity::Verb,
    pool::{PoolContext, PoolDraft, PoolUpdate, changes},
    store::Revision,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Call,
    clusters::without_own_id,
    objects::{self, Done, Served},
    request::path_id,
};
use crate::{
    body::Accepts,
    error::ApiError,
    example::{self, Adopts},
    preconditions::Preconditions,
};

const KIND: Kind = Kind::Pool;

/// `GET /api/v1/nodepools`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    objects::list::<NodePool>(&call, None).await
}

/// `GET /api/v1/clusters/{cluster_id}/nodepools`
pub async fn list_of_cluster(call: Call, Path(cluster): Path<String>) -> Result<Response, ApiError> {
    let cluster = path_id(&cluster)?;
    call.check_object::<Cluster>(Verb::List, cluster).await?;
    objects::list::<NodePool>(&call, Some(cluster)).await
}

/// `POST /api/v1/nodepools`
pub async fn create(call: Call, body: Body) -> Response {
    let id = Uuid::now_v7();
    let result = create_as(&call, body, Under::New(id), None).await;
    call.finish_write("create", KIND, id, result).await
}

/// `POST /api/v1/clusters/{cluster_id}/nodepools`
pub async fn create_in_cluster(call: Call, Path(cluster): Path<String>, body: Body) -> Response {
    let id = Uuid::now_v7();
    let result = match path_id(&cluster) {
        Ok(cluster) => create_as(&call, body, Under::New(id), Some(cluster)).await,
        Err(error) => Err(error),
    };
    call.finish_write("create", KIND, id, result).await
}

/// Tries of a create whose cluster is being changed by others at the same moment.
const MAX_TRIES: usize = 16;

/// The id of a pool to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Under {
    /// Ours to give: the example may put its own in the place.
    New(Uuid),
    /// The caller's.
    Chosen(Uuid),
}

async fn create_as(
    call: &Call,
    body: Body,
    under: Under,
    in_path: Option<Uuid>,
) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    let context = call.context(&bytes, dry_run)?;
    let sent = match under {
        Under::New(_) => Call::json(&bytes)?,
        Under::Chosen(id) => without_own_id(Call::json(&bytes)?, id),
    };
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
        let adopted = match (&call.app.example, under) {
            (Some(example), Under::New(_)) => {
                let name = parsed.value.name.as_str();
                example.adopts(&call.app.registry, cluster.object.id(), name).await?
            }
            _ => Adopts::Nothing,
        };
        let id = match (&adopted, under) {
            (Adopts::Nothing, Under::New(id) | Under::Chosen(id)) => id,
            _ => example::POOL,
        };
        let pool = parsed.value.into_pool(id.into(), project, context.actor.clone(), context.now);
        let parent = (Kind::Cluster.object(cluster.object.id()), cluster.version);
        let registry = &call.app.registry;
        let created = match adopted {
            Adopts::Placeholder(old) => {
                registry.take_over(&context, &old, pool, parent, parsed.warnings).await
            }
            Adopts::Nothing | Adopts::FreeId => {
                registry.create(&context, pool, Some(parent), parsed.warnings).await
            }
        };
        match created {
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

/// `PUT /api/v1/nodepools/{id}`
pub async fn replace(call: Call, Path(id): Path<String>, body: Body) -> Response {
    objects::replace::<NodePool>(call, &id, body).await
}

/// `PATCH /api/v1/nodepools/{id}`
pub async fn patch(call: Call, Path(id): Path<String>, body: Body) -> Response {
    objects::patch::<NodePool>(call, &id, body).await
}

impl Served for NodePool {
    type Update = PoolUpdate;
    type Scope = Option<Stored<Cluster>>;

    async fn scope(call: &Call, id: Uuid) -> Result<Self::Scope, ApiError> {
        cluster_of(call, id).await
    }

    fn replaced(&self, body: &Value, scope: &Self::Scope) -> Result<Parsed<PoolUpdate>, FieldErrors> {
        self.parse_replace(body, &context_in(scope.as_ref()))
    }

    fn patched(&self, patch: &Value, scope: &Self::Scope) -> Result<Parsed<PoolUpdate>, FieldErrors> {
        self.merge_patch(patch, &context_in(scope.as_ref()))
    }

    fn seen(update: &PoolUpdate) -> Option<&str> {
        update.resource_version.as_deref()
    }

    fn take(&mut self, update: PoolUpdate, now: Timestamp) {
        self.apply(update, now);
    }

    fn effects(before: &Self, after: &Self) -> Value {
        json!(changes(&before.spec, &after.spec))
    }

    async fn delete_at(call: &Call, id: Uuid) -> Result<(Response, Done), ApiError> {
        delete_at(call, id).await
    }

    async fn create_at(call: &Call, body: Body, id: Uuid) -> Result<(Response, Done), ApiError> {
        create_as(call, body, Under::Chosen(id), None).await
    }
}

/// What a pool of this cluster is checked against.
pub(super) fn context_in(cluster: Option<&Stored<Cluster>>) -> PoolContext<'_> {
    PoolContext { cluster_id: None, cluster: cluster.map(|cluster| &cluster.object.spec) }
}

/// The cluster of a pool, for the rules that depend on it.
pub(super) async fn cluster_of(call: &Call, pool: Uuid) -> Result<Option<Stored<Cluster>>, ApiError> {
    let Some(stored) = call.app.registry.read::<NodePool>(pool).await? else { return Ok(None) };
    Ok(call.app.registry.read::<Cluster>(stored.object.cluster_id.uuid()).await?)
}

/// `DELETE /api/v1/nodepools/{id}`
pub async fn delete(call: Call, Path(id): Path<String>) -> Response {
    objects::delete::<NodePool>(call, &id).await
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
    if let Some(example) = call.app.example.as_ref().filter(|_| deleted.gone && id == example::POOL) {
        example.restore(&call.app.registry, context.now).await?;
    }
    Ok((StatusCode::NO_CONTENT.into_response(), Done { note: deleted.audit, audited: !dry_run }))
}
