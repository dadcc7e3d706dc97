//! Answers: bodies, tags, warnings.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use muster_model::store::Revision;

use crate::preconditions::etag;

/// A JSON answer.
pub(super) fn json(status: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer from a serialisable value.
pub(super) fn value(status: StatusCode, value: &impl serde::Serialize) -> Response {
    json(status, serde_json::to_vec(value).expect("answers have text keys and finite numbers only"))
}

/// An object with its entity tag.
pub(super) fn object(status: StatusCode, text: impl Into<Bytes>, version: Revision) -> Response {
    let mut response = json(status, text);
    response.headers_mut().insert(header::ETAG, etag(&version.to_string()));
    response
}

/// Warnings that a `Warning` header carries at most, so that headers stay within what clients take.
const MAX_WARNINGS: usize = 20;

/// Adds one `Warning` header for each sentence.
pub(super) fn warn(mut response: Response, warnings: &[String]) -> Response {
    for warning in warnings.iter().take(MAX_WARNINGS) {
        let text: String = warning
            .chars()
            .map(|c| match c {
                '"' | '\\' => '\'',
                c if c.is_ascii_graphic() || c == ' ' => c,
                _ => '?',
            })
            .take(300)
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 muster \"{text}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// Says where an object is.
pub(super) fn located(mut response: Response, path: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
