//! What clusters and pools answer alike: listing them, and reading, replacing, patching and deleting one.

use axum::{
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use muster_control::registry::{AuditNote, Kind, Noun, RegistryError, Stored, Written};
use muster_model::{FieldErrors, Parsed, Timestamp, identity::Verb, store::Revision};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Call, reply,
    request::path_id,
    selection::{self, Selection},
    watch,
};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

/// How a kind reads what people send about it.
pub(super) trait Served: Noun {
    type Update: Send + Sync;
    /// What its rules depend on besides itself.
    type Scope: Send + Sync;

    fn scope(call: &Call, id: Uuid) -> impl Future<Output = Result<Self::Scope, ApiError>> + Send;
    fn replaced(&self, body: &Value, scope: &Self::Scope) -> Result<Parsed<Self::Update>, FieldErrors>;
    fn patched(&self, patch: &Value, scope: &Self::Scope) -> Result<Parsed<Self::Update>, FieldErrors>;
    /// The version that the body says it was made from.
    fn seen(update: &Self::Update) -> Option<&str>;
    fn take(&mut self, update: Self::Update, now: Timestamp);
    /// What a change means to what exists, for a dry run.
    fn effects(before: &Self, after: &Self) -> Value;
    /// Deletes it, as far as preconditions and what depends on it allow.
    fn delete_at(call: &Call, id: Uuid) -> impl Future<Output = Result<(Response, Done), ApiError>> + Send;
    /// Creates it under a chosen id.
    fn create_at(
        call: &Call,
        body: Body,
        id: Uuid,
    ) -> impl Future<Output = Result<(Response, Done), ApiError>> + Send;
}

/// What the audit log is told about a write that succeeded.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) note: AuditNote,
    /// A dry run and a repetition change nothing and are not written down.
    pub(super) audited: bool,
}

/// Which of the two ways to change an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Replace,
    Patch,
}

/// `PUT`: replaces, or creates under a chosen id with `If-None-Match: *`.
pub(super) async fn replace<N: Served>(call: Call, id: &str, body: Body) -> Response {
    let id = match path_id(id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = match Preconditions::read(&call.headers) {
        Ok(preconditions) if preconditions.must_be_new() => create_new::<N>(&call, body, id).await,
        Ok(_) => update::<N>(&call, body, id, Way::Replace).await,
        Err(error) => Err(error),
    };
    call.finish_write("replace", N::KIND, id, result).await
}

/// A create whose condition is that nothing is there: what is there makes the condition false.
async fn create_new<N: Served>(call: &Call, body: Body, id: Uuid) -> Result<(Response, Done), ApiError> {
    if let Some(stored) = call.app.registry.read::<N>(id).await?
        && call.sees(stored.object.project())
    {
        return Err(RegistryError::Precondition { current: stored.version }.into());
    }
    N::create_at(call, body, id).await
}

/// `PATCH`: a JSON merge patch.
pub(super) async fn patch<N: Served>(call: Call, id: &str, body: Body) -> Response {
    let id = match path_id(id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = update::<N>(&call, body, id, Way::Patch).await;
    call.finish_write("patch", N::KIND, id, result).await
}

/// `DELETE`.
pub(super) async fn delete<N: Served>(call: Call, id: &str) -> Response {
    let id = match path_id(id) {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    let result = N::delete_at(&call, id).await;
    call.finish_write("delete", N::KIND, id, result).await
}

async fn update<N: Served>(
    call: &Call,
    body: Body,
    id: Uuid,
    way: Way,
) -> Result<(Response, Done), ApiError> {
    let accepts = if way == Way::Replace { Accepts::Json } else { Accepts::MergePatch };
    let (bytes, dry_run) = call.sent(body, accepts).await?;
    let preconditions = Preconditions::read(&call.headers)?;
    let context = call.context(&bytes, dry_run)?;
    let sent = parse_json_or_null(&bytes);
    let verb = if way == Way::Patch && sets_mode_only(&sent) { Verb::Enable } else { Verb::Update };
    call.check_object::<N>(verb, id).await?;
    let sent = Call::json(&bytes)?;
    let scope = N::scope(call, id).await?;
    let before = std::sync::Mutex::new(None);
    let change = |stored: &Stored<N>| {
        let parsed = match way {
            Way::Replace => stored.object.replaced(&sent, &scope)?,
            Way::Patch => stored.object.patched(&sent, &scope)?,
        };
        if let Some(version) = N::seen(&parsed.value)
            && version != stored.version.to_string()
        {
            return Err(RegistryError::Stale { sent: version.to_owned(), current: stored.version });
        }
        let mut object = stored.object.clone();
        object.take(parsed.value, context.now);
        if dry_run {
            *before.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(stored.object.clone());
        }
        Ok((object, parsed.warnings))
    };
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let written = call.app.registry.update(&context, id, &guard, change, |txn, _| txn).await?;
    let before = before.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let effects = before.map(|before| N::effects(&before, &written.stored.object));
    Ok(call.written_with(written, StatusCode::OK, effects))
}

/// The body for a first look; whether it is JSON at all is judged after the caller's rights.
fn parse_json_or_null(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// `{"spec": {"mode": …}}` and nothing else: letting decisions act takes an operator, not an admin.
fn sets_mode_only(patch: &Value) -> bool {
    let only = |value: &Value, name: &str| {
        value.as_object().is_some_and(|members| members.len() == 1 && members.contains_key(name))
    };
    only(patch, "spec") && only(&patch["spec"], "mode")
}

/// `GET` of a collection, or of what a cluster has of it: a page, or a watch where that was asked for.
pub(super) async fn list<N: Noun>(call: &Call, cluster: Option<Uuid>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    if let Some(response) = watch::asked(call, &mut query, N::KIND, cluster).await? {
        return Ok(response);
    }
    let mut selection = Selection::read(call, &mut query, N::KIND);
    query.finish()?;
    selection.filter.cluster = cluster.or(selection.filter.cluster);
    selection::page::<N>(call, &selection).await
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
            return Ok(reply::object(StatusCode::NOT_MODIFIED, Bytes::new(), version));
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
        self.written_with(written, status, None)
    }

    /// The answer to a write; a dry run also says what would change.
    fn written_with<N: Noun>(
        &self,
        written: Written<N>,
        status: StatusCode,
        changes: Option<Value>,
    ) -> (Response, Done) {
        let Written { stored, changed, replayed, warnings, audit } = written;
        let mut text = self.app.registry.render(&stored, self.secrets(stored.object.project()));
        if let Some(changes) = changes {
            let mut longer = text[..text.len() - 1].to_vec();
            longer.extend_from_slice(format!(",\"changes\":{changes}}}").as_bytes());
            text = longer.into();
        }
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
        self.finish(verb, format!("{}/{id}", kind.plural()), result).await
    }

    /// The same for what is no object of a kind.
    pub(super) async fn finish(
        &self,
        verb: &str,
        object: String,
        result: Result<(Response, Done), ApiError>,
    ) -> Response {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_patch_of_the_mode_alone_takes_an_operator() {
        assert!(sets_mode_only(&json!({"spec": {"mode": "active"}})));
        for other in [
            json!({"spec": {"mode": "active", "nodeCount": 1}}),
            json!({"spec": {"mode": "active"}, "name": "x"}),
            json!({"spec": {}}),
            json!({}),
            json!([]),
            json!(null),
        ] {
            assert!(!sets_mode_only(&other), "{other}");
        }
    }
}
