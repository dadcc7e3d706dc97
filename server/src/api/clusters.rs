//! `/api/v1/clusters`.

use axum::{
    body::Body,
    extract::Path,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use muster_control::registry::{Cluster, Force, Kind, Noun, RegistryError, Written};
use muster_model::{ClusterId, identity::Verb};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Call, reply,
    request::path_id,
    selection::{self, Selection},
    watch,
};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

const KIND: Kind = Kind::Cluster;

/// `GET /api/v1/clusters`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    if let Some(response) = watch::asked(&call, &mut query, KIND, None).await? {
        return Ok(response);
    }
    let selection = Selection::read(&call, &mut query, KIND);
    query.finish()?;
    selection::page::<Cluster>(&call, &selection).await
}

/// `POST /api/v1/clusters`
pub async fn create(call: Call, body: Body) -> Response {
    let id = Uuid::now_v7();
    let result = create_as(&call, body, id).await;
    call.finish_write("create", KIND, id, result).await
}

async fn create_as(call: &Call, body: Body, id: Uuid) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let context = call.context(&bytes, dry_run)?;
    let home = call.home()?;
    call.check(Verb::Create, KIND, home.as_str())?;
    let parsed =
        Cluster::parse_create(&Call::json(&bytes)?).map_err(|faults| ApiError::validation(&faults))?;
    let cluster = parsed.value.into_cluster(id.into(), home, context.actor.clone(), context.now);
    let written = call.app.registry.create(&context, cluster, None, parsed.warnings).await?;
    Ok(call.written(written, StatusCode::CREATED))
}

/// `GET /api/v1/clusters/{cluster_id}`
pub async fn read(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.read_object::<Cluster>(path_id(&id)?).await
}

/// `PUT /api/v1/clusters/{cluster_id}`: replaces, or creates under a chosen id with `If-None-Match: *`.
pub async fn replace(call: Call, Path(id): Path<String>, body: Body) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = replace_at(&call, body, id).await;
    call.finish_write("replace", KIND, id, result).await
}

async fn replace_at(call: &Call, body: Body, id: Uuid) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    if preconditions.must_be_new() {
        return create_as(call, body, id).await;
    }
    update(call, body, id, Accepts::Json, Cluster::parse_replace).await
}

/// `PATCH /api/v1/clusters/{cluster_id}`
pub async fn patch(call: Call, Path(id): Path<String>, body: Body) -> Response {
    let id = match path_id(&id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = update(&call, body, id, Accepts::MergePatch, Cluster::merge_patch).await;
    call.finish_write("patch", KIND, id, result).await
}

type Parsed = Result<muster_model::Parsed<muster_model::cluster::ClusterUpdate>, muster_model::FieldErrors>;

async fn update(
    call: &Call,
    body: Body,
    id: Uuid,
    accepts: Accepts,
    read: impl Fn(&Cluster, &Value) -> Parsed,
) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, accepts).await?;
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let context = call.context(&bytes, dry_run)?;
    call.check_object::<Cluster>(Verb::Update, id).await?;
    let sent = Call::json(&bytes)?;
    let change = |stored: &muster_control::registry::Stored<Cluster>| {
        let parsed = read(&stored.object, &sent)?;
        if let Some(version) = &parsed.value.resource_version
            && *version != stored.version.to_string()
        {
            return Err(RegistryError::Stale { sent: version.clone(), current: stored.version });
        }
        let mut cluster = stored.object.clone();
        cluster.apply(parsed.value, context.now);
        Ok((cluster, parsed.warnings))
    };
    let guard =
        |version: muster_model::store::Revision| preconditions.check_write(&version.to_string()).is_ok();
    let written = call.app.registry.update(&context, id, &guard, change, |txn, _| txn).await?;
    Ok(call.written(written, StatusCode::OK))
}

/// `DELETE /api/v1/clusters/{cluster_id}`
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
    let (dry_run, cascade, force) = (query.flag("dryRun"), query.flag("cascade"), query.flag("force"));
    query.finish()?;
    call.check_object::<Cluster>(Verb::Delete, id).await?;
    let context = call.context(&[], dry_run)?;
    let guard =
        |version: muster_model::store::Revision| preconditions.check_write(&version.to_string()).is_ok();
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

/// What the audit log is told about a write that succeeded.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) note: muster_control::registry::AuditNote,
    /// A dry run and a repetition change nothing and are not written down.
    pub(super) audited: bool,
}

impl Call {
    /// One object, or 304 when the caller has it already.
    pub(super) async fn read_object<N: Noun>(&self, id: Uuid) -> Result<Response, ApiError> {
        let mut query = self.query()?;
        let include_deleted = query.flag("include_deleted");
        query.finish()?;
        let see = |project: &str, deleting: bool| {
            let shown = self.sees(project) && (!deleting || include_deleted || self.shows_deleting(project));
            shown.then(|| self.secrets(project))
        };
        let (text, version) = self.app.registry.text::<N>(id, see).await?;
        // Status has no part in the tag, so a conditional read only makes sense for the spec.
        if Preconditions::read(&self.headers)?.not_modified(&version.to_string()) {
            return Ok(reply::object(StatusCode::NOT_MODIFIED, bytes::Bytes::new(), version));
        }
        Ok(reply::object(StatusCode::OK, text, version))
    }

    /// Fails unless the caller may do this to the object: 404 when it is not there for the caller.
    pub(super) async fn check_object<N: Noun>(&self, verb: Verb, id: Uuid) -> Result<(), ApiError> {
        let missing = || ApiError::not_found(N::KIND.title());
        let stored = self.app.registry.read::<N>(id).await?.ok_or_else(missing)?;
        let project = stored.object.project();
        if stored.object.is_deleting() && !self.shows_deleting(project) {
            return Err(missing());
        }
        self.check(verb, N::KIND, project)
    }

    /// The answer to a write.
    pub(super) fn written<N: Noun>(&self, written: Written<N>, status: StatusCode) -> (Response, Done) {
        let Written { stored, changed, replayed, warnings, audit } = written;
        let text = stored.text(self.secrets(stored.object.project()));
        let response = reply::object(status, text, stored.version);
        let path = format!("/api/v1/{}/{}", N::KIND.plural(), stored.object.id());
        let response = if status == StatusCode::CREATED { reply::located(response, &path) } else { response };
        let audited = changed && !replayed && audit.revision.is_some();
        (reply::warn(response, &warnings), Done { note: audit, audited })
    }

    /// Writes down what a write came to, then lets its answer go.
    pub(super) async fn finish_write(
        &self,
        verb: &str,
        kind: Kind,
        id: Uuid,
        result: Result<(Response, Done), ApiError>,
    ) -> Response {
        let object = format!("{}/{id}", kind.plural());
        let (response, note) = match result {
            Ok((response, done)) if !done.audited => return response,
            Ok((response, done)) => (response, Some(done.note)),
            Err(error) => (error.into_response(), None),
        };
        match self.audit(verb, object, note, response.status().as_u16()).await {
            Ok(()) => response,
            Err(error) => error.into_response(),
        }
    }
}
