//! What a caller is told when a request fails: one envelope, one list of codes.
//!
//! A handler returns [`ApiError`]; the frame around all handlers renders it, because only the frame
//! knows the request's id. Texts of 5xx answers are fixed: what really happened goes to the log.

use std::sync::Arc;

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use muster_model::field::{FieldError, FieldErrors};
use serde::Serialize;

/// The stable codes of the API. `docs/reference/errors.md` has one heading for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    Validation,
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Conflict,
    Gone,
    PreconditionFailed,
    PayloadTooLarge,
    UnsupportedMediaType,
    IdempotencyMismatch,
    RateLimited,
    Unavailable,
    Internal,
}

impl Code {
    pub const ALL: [Self; 14] = [
        Self::Validation,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Conflict,
        Self::Gone,
        Self::PreconditionFailed,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::IdempotencyMismatch,
        Self::RateLimited,
        Self::Unavailable,
        Self::Internal,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validation => "VALIDATION_ERROR",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Forbidden => "FORBIDDEN",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::Conflict => "CONFLICT",
            Self::Gone => "GONE",
            Self::PreconditionFailed => "PRECONDITION_FAILED",
            Self::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::IdempotencyMismatch => "IDEMPOTENCY_MISMATCH",
            Self::RateLimited => "RATE_LIMITED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
        }
    }

    pub const fn status(self) -> StatusCode {
        match self {
            Self::Validation => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Gone => StatusCode::GONE,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A refusal, ready to be rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub code: Code,
    pub message: String,
    pub details: String,
    pub fields: Vec<FieldError>,
    /// Headers that belong to the answer: `Allow`, `Retry-After`, `WWW-Authenticate`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: String::new(),
            fields: Vec::new(),
            headers: Vec::new(),
        }
    }

    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// A request with faults. All of them are listed.
    pub fn validation(faults: &FieldErrors) -> Self {
        Self {
            fields: faults.iter().cloned().collect(),
            ..Self::new(Code::Validation, "Validation failed").details(faults.details())
        }
    }

    /// A request with one fault, said in a whole sentence.
    pub fn invalid(path: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self::validation(&FieldErrors::one(FieldError::sentence(path, sentence)))
    }

    pub fn not_found(kind: &str) -> Self {
        Self::new(Code::NotFound, format!("{kind} not found"))
    }

    pub fn unauthenticated(details: impl Into<String>) -> Self {
        Self::new(Code::Unauthenticated, "Authentication required")
            .details(details)
            .header(header::WWW_AUTHENTICATE, "Bearer realm=\"muster\"")
    }

    pub fn forbidden(details: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, "This identity may not do that").details(details)
    }

    pub fn unavailable() -> Self {
        Self::new(Code::Unavailable, "The store does not answer")
            .details("nothing is known to have changed; try again shortly")
            .header(header::RETRY_AFTER, "1")
    }

    pub fn internal() -> Self {
        Self::new(Code::Internal, "Internal error")
            .details("the server's log has the cause under this request id")
    }

    /// The body of the answer.
    pub fn render(&self, request_id: &str) -> Vec<u8> {
        let envelope = Envelope {
            error: Body {
                code: self.code.as_str(),
                message: &self.message,
                details: &self.details,
                fields: &self.fields,
                request_id,
            },
        };
        serde_json::to_vec(&envelope).expect("an envelope holds only text and lists of text")
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: &'static str,
    message: &'a str,
    details: &'a str,
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    fields: &'a [FieldError],
    request_id: &'a str,
}

impl IntoResponse for ApiError {
    /// Status and headers now; the frame adds the body, which needs the request's id.
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        for (name, value) in &self.headers {
            response.headers_mut().append(name, value.clone());
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_written_like_the_seed_writes_them() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{code:?} repeats a code");
            assert!(code.as_str().chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{code:?}");
            assert!(code.status().is_client_error() || code.status().is_server_error());
        }
    }

    #[test]
    fn the_envelope_is_the_seeds_with_request_id_and_fields() {
        let body = ApiError::invalid("name", "nodepool name is required").render("r-1");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            body,
            serde_json::json!({"error": {
                "code": "VALIDATION_ERROR", "message": "Validation failed",
                "details": "nodepool name is required",
                "fields": [{"path": "name", "problem": "nodepool name is required"}],
                "request_id": "r-1"}})
        );
        let body: serde_json::Value =
            serde_json::from_slice(&ApiError::not_found("NodePool").render("r-2")).unwrap();
        assert_eq!(body["error"]["message"], "NodePool not found");
        assert_eq!(body["error"]["details"], "");
        assert!(body["error"].get("fields").is_none());
    }
}
