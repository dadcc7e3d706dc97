//! What can go wrong between us and an API server.

use thiserror::Error;

#[derive(Debug, Error)]
pub enum KubeError {
    /// The kubeconfig or the pod's own service account cannot be used.
    #[error("cannot reach a cluster with {from}: {why}")]
    Credentials { from: String, why: String },
    /// The API server answered, and said no.
    #[error("{what}: {message}")]
    Status { what: String, code: u16, reason: String, message: String, details: Box<Details> },
    /// No answer, or none that means anything.
    #[error("{what}: the API server cannot be reached: {why}")]
    Unreachable { what: String, why: String },
    #[error("{what}: no answer within {limit}")]
    Timeout { what: String, limit: muster_model::Duration },
    #[error("{what}: the answer cannot be read: {why}")]
    Unreadable { what: String, why: String },
}

/// What a refusal says beside its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub retry_after_seconds: Option<u64>,
    /// Reason and message of each cause.
    pub causes: Vec<(String, String)>,
}

impl KubeError {
    /// A stable word for metrics and documentation.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Credentials { .. } => "credentials",
            Self::Status { code: 401, .. } => "unauthorized",
            Self::Status { code: 403, .. } => "forbidden",
            Self::Status { code: 404, .. } => "not_found",
            Self::Status { code: 409, .. } => "conflict",
            Self::Status { code: 410, .. } => "gone",
            Self::Status { code: 429, .. } => "too_many_requests",
            Self::Status { .. } => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Unreadable { .. } => "unreadable",
        }
    }

    /// The HTTP status, when there was an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn from_client(what: &str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(what, *status),
            other => Self::Unreachable { what: what.to_owned(), why: chain(&other) },
        }
    }

    pub(crate) fn from_status(what: &str, status: kube::core::Status) -> Self {
        let details = status.details.map(|details| Details {
            retry_after_seconds: (details.retry_after_seconds > 0)
                .then_some(u64::from(details.retry_after_seconds)),
            causes: details.causes.into_iter().map(|cause| (cause.reason, cause.message)).collect(),
        });
        Self::Status {
            what: what.to_owned(),
            code: status.code,
            reason: status.reason,
            message: status.message,
            details: Box::new(details.unwrap_or_default()),
        }
    }
}

/// An error with its causes, each once: libraries like to repeat theirs.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}
