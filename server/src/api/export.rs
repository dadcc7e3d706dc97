//! `GET /api/v1/store/export`: everything in the store at one revision, while it serves.

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use futures::stream;
use muster_model::identity::Role;
use tokio::sync::mpsc;

use super::{Call, objects::Done};
use crate::{
    error::{ApiError, Code},
    export::QUEUE,
};

/// `GET /api/v1/store/export`
pub async fn export(call: Call) -> Response {
    let result = begin(&call);
    call.finish("export", "store".to_owned(), result).await
}

/// An export holds the secrets of all projects, so it takes an admin of all of them. In dev mode, where only
/// this machine can ask and everybody is believed, it takes nobody in particular.
fn begin(call: &Call) -> Result<(Response, Done), ApiError> {
    call.query()?.finish()?;
    if !call.app.identity.is_dev() && !call.caller.identity.everywhere.contains(&Role::Admin) {
        return Err(ApiError::forbidden(
            "an export holds all projects; it takes the role admin in all of them",
        ));
    }
    let exporter = call.app.exporter.as_ref().ok_or_else(|| {
        ApiError::new(Code::Unavailable, "This server cannot export").details("its store is not kept")
    })?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    exporter.begin(sender);
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let note = muster_control::registry::AuditNote::default();
    Ok((response, Done { note, audited: true }))
}
