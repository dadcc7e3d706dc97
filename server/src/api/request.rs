//! What a handler knows about its request, and the checks that all of them make.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{FromRequestParts, State},
    http::{HeaderMap, Method, Uri, request::Parts},
};
use bytes::Bytes;
use muster_control::{
    audit::{Event, Outcome},
    registry::{AuditNote, IdempotencyKey, Kind, MAX_IDEMPOTENCY_KEY, WriteContext},
};
use muster_model::{
    Project,
    field::parse_json,
    identity::{Resource, Secrets, Verb, allowed},
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    app::App,
    body::{self, Accepts},
    error::ApiError,
    frame::RequestId,
    identity::{Caller, PROJECT_HEADER, single_header},
    peer::Peer,
    query::Query,
};

const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// A request whose caller is known.
#[derive(Debug, Clone)]
pub struct Call {
    pub app: App,
    pub caller: Arc<Caller>,
    pub id: Arc<str>,
    pub source: SocketAddr,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The one project that the request is about, when it says so.
    pub project: Option<Project>,
}

impl FromRequestParts<App> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let State(app) =
            State::<App>::from_request_parts(parts, app).await.unwrap_or_else(|never| match never {});
        let found = (
            parts.extensions.get::<Arc<Caller>>(),
            parts.extensions.get::<RequestId>(),
            parts.extensions.get::<Peer>(),
        );
        let (Some(caller), Some(id), Some(peer)) = found else {
            tracing::error!("a handler runs outside its frame; this is a bug");
            return Err(ApiError::internal());
        };
        let project = project_of(&parts.headers, caller)?;
        Ok(Self {
            app,
            caller: Arc::clone(caller),
            id: Arc::clone(&id.0),
            source: peer.address,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
            project,
        })
    }
}

fn project_of(headers: &HeaderMap, caller: &Caller) -> Result<Option<Project>, ApiError> {
    let Some(text) = single_header(headers, PROJECT_HEADER)? else { return Ok(None) };
    let project: Project = text.parse().map_err(|error| {
        ApiError::invalid("X-Muster-Project", format!("the header X-Muster-Project {error}"))
    })?;
    if caller.identity.sees(&project) {
        Ok(Some(project))
    } else {
        Err(ApiError::forbidden("this identity holds no role in the project that X-Muster-Project names"))
    }
}

/// The id in a path. What cannot be part of any id is no such path at all.
pub(super) fn path_id(text: &str) -> Result<Uuid, ApiError> {
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        return Err(ApiError::not_found("Path"));
    }
    text.parse::<muster_model::PoolId>()
        .map(muster_model::PoolId::uuid)
        .map_err(|error| ApiError::invalid("id", format!("the id in the path: {error}")))
}

impl Call {
    pub(super) fn query(&self) -> Result<Query, ApiError> {
        Query::read(self.uri.query())
    }

    /// Whether the caller sees objects of this project in this request.
    pub(super) fn sees(&self, project: &str) -> bool {
        self.project.as_ref().is_none_or(|only| only.as_str() == project)
            && project.parse().is_ok_and(|project| self.caller.identity.sees(&project))
    }

    pub(super) fn secrets(&self, project: &str) -> Secrets {
        project.parse().map_or(Secrets::Hidden, |project| self.caller.identity.secrets(&project))
    }

    /// Whether objects that are being torn down are shown without being asked for.
    pub(super) fn shows_deleting(&self, project: &str) -> bool {
        use muster_model::identity::Role;
        project.parse().is_ok_and(|project| self.caller.identity.has(Role::Controller, &project))
    }

    /// Fails with 404 for a project that the caller does not see, with 403 for a missing role.
    pub(super) fn check(&self, verb: Verb, kind: Kind, project: &str) -> Result<(), ApiError> {
        if !self.sees(project) {
            return Err(ApiError::not_found(kind.title()));
        }
        let resource = match kind {
            Kind::Cluster => Resource::Clusters,
            Kind::Pool => Resource::NodePools,
            Kind::Operation => Resource::Operations,
        };
        let Ok(project) = project.parse::<Project>() else { return Err(ApiError::not_found(kind.title())) };
        allowed(&self.caller.identity, verb, resource, &project).map_err(|denied| {
            if denied.visible {
                ApiError::forbidden(denied.to_string())
            } else {
                ApiError::not_found(kind.title())
            }
        })
    }

    /// The project that new objects go to.
    pub(super) fn home(&self) -> Result<Project, ApiError> {
        let identity = &self.caller.identity;
        self.project.clone().or_else(|| identity.home.clone()).ok_or_else(|| {
            if identity.sees_all() {
                ApiError::invalid("X-Muster-Project", "name the project in the header X-Muster-Project")
            } else {
                ApiError::forbidden("this identity holds no role in any project")
            }
        })
    }

    /// The body as bytes.
    pub(super) async fn bytes(&self, body: Body, accepts: Accepts) -> Result<Bytes, ApiError> {
        let limits = self.app.limits;
        body::read(&self.headers, body, accepts, limits.body, limits.body_timeout).await
    }

    /// What a write sends: its body, and whether it is only a trial.
    pub(super) async fn sent(&self, body: Body, accepts: Accepts) -> Result<(Bytes, bool), ApiError> {
        let bytes = self.bytes(body, accepts).await?;
        let mut query = self.query()?;
        let dry_run = query.flag("dryRun");
        query.finish()?;
        Ok((bytes, dry_run))
    }

    /// The body as a JSON value; duplicate members and trailing text are faults.
    pub(super) fn json(bytes: &[u8]) -> Result<Value, ApiError> {
        parse_json(bytes).map_err(|faults| ApiError::validation(&faults))
    }

    /// What surrounds a write: who, when, and how often it may be carried out.
    pub(super) fn context(&self, body: &[u8], dry_run: bool) -> Result<WriteContext, ApiError> {
        let idempotency = match single_header(&self.headers, IDEMPOTENCY_HEADER)? {
            None => None,
            Some(key) if key.is_empty() || key.len() > MAX_IDEMPOTENCY_KEY => {
                let text =
                    format!("the header Idempotency-Key must have 1 to {MAX_IDEMPOTENCY_KEY} characters");
                return Err(ApiError::invalid("Idempotency-Key", text));
            }
            Some(key) => {
                let project = self.project.as_ref().map_or("", Project::as_str);
                let scope = format!("{}\n{project}", self.caller.name);
                let path = self.uri.path();
                Some(IdempotencyKey::new(
                    &scope,
                    key,
                    &[self.method.as_str().as_bytes(), path.as_bytes(), body],
                ))
            }
        };
        Ok(WriteContext {
            actor: self.caller.name.to_string(),
            now: self.app.clock.now(),
            dry_run,
            idempotency: idempotency.filter(|_| !dry_run),
        })
    }

    /// Writes down what a write came to. The answer goes out only after that.
    pub(super) async fn audit(
        &self,
        verb: &str,
        object: String,
        note: Option<AuditNote>,
        status: u16,
    ) -> Result<(), ApiError> {
        let note = note.unwrap_or_default();
        let outcome = match status {
            200..300 => Outcome::Done,
            401 | 403 => Outcome::Denied,
            400..500 => Outcome::Refused,
            _ => Outcome::Failed,
        };
        let event = Event {
            at: self.app.clock.now(),
            actor: self.caller.name.to_string(),
            mode: self.caller.proof.to_owned(),
            source: self.source.to_string(),
            request_id: self.id.to_string(),
            verb: verb.to_owned(),
            object,
            name: note.name,
            project: note.project,
            outcome,
            status,
            revision: note.revision,
            before: note.before,
            after: note.after,
            changed: note.changed,
            power: None,
        };
        self.app.audit.record(event).await.map_err(|error| {
            tracing::error!(request_id = %self.id, %error, "a change could not be audited");
            ApiError::internal().details("the audit log cannot be written; the change may have been made")
        })?;
        self.app.metrics.audit_lines.inc();
        Ok(())
    }
}
