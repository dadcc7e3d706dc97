//! Request bodies: their type, their size, the time they may take.

use axum::{
    body::Body,
    http::{HeaderMap, header},
};
use bytes::Bytes;
use futures::StreamExt;
use muster_model::Duration;
use tokio::time::timeout;

use crate::{
    error::{ApiError, Code},
    identity::single_header,
};

/// After a body turned out too large this much more is read and dropped, so that the sender gets to read
/// the answer instead of a reset connection.
const DRAIN_BYTES: usize = 64 << 20;

/// Which content types a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    Json,
    /// JSON merge patch, also under the plain name.
    MergePatch,
    /// JSON, YAML or CSV.
    Table,
}

/// What a body of [`Accepts::Table`] is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKind {
    Json,
    Yaml,
    Csv,
}

const YAML: [&str; 4] = ["application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"];

impl ContentKind {
    /// By the request's content type, which was checked before.
    pub fn of(headers: &HeaderMap) -> Self {
        let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = sent.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/csv" => Self::Csv,
            yaml if YAML.contains(&yaml) => Self::Yaml,
            _ => Self::Json,
        }
    }
}

/// The body of a request, at most `limit` bytes of it, and all of it within `time`.
pub async fn read(
    headers: &HeaderMap,
    body: Body,
    accepts: Accepts,
    limit: usize,
    time: Duration,
) -> Result<Bytes, ApiError> {
    let result = match timeout(time.as_std(), collect(headers, body, limit)).await {
        Ok(result) => result?,
        Err(_) => return Err(ApiError::invalid("", format!("the body did not arrive within {time}"))),
    };
    check_type(headers, accepts)?;
    Ok(result)
}

fn check_type(headers: &HeaderMap, accepts: Accepts) -> Result<(), ApiError> {
    let sent = single_header(headers, header::CONTENT_TYPE.as_str())?.unwrap_or("");
    let essence = sent.split(';').next().unwrap_or("").trim();
    let charset = sent.split(';').skip(1).map(str::trim).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    });
    let known = essence.eq_ignore_ascii_case("application/json")
        || accepts == Accepts::MergePatch && essence.eq_ignore_ascii_case("application/merge-patch+json")
        || accepts == Accepts::Table && ContentKind::of(headers) != ContentKind::Json;
    if known && charset.is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8")) {
        return Ok(());
    }
    let found = if sent.is_empty() { "nothing".to_owned() } else { format!("{sent:?}") };
    let wanted = match accepts {
        Accepts::Json => "application/json",
        Accepts::MergePatch => "application/merge-patch+json or application/json",
        Accepts::Table => "application/json, application/yaml or text/csv",
    };
    Err(ApiError::new(Code::UnsupportedMediaType, "Unsupported media type")
        .details(format!("send the body as {wanted} in UTF-8; Content-Type was {found}")))
}

async fn collect(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    let mut chunks = body.into_data_stream();
    let mut whole = Vec::with_capacity(declared.unwrap_or(0).min(limit));
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiError::invalid("", "the body broke off before its end"))?;
        if whole.len() + chunk.len() > limit {
            let mut dropped = chunk.len();
            while dropped < DRAIN_BYTES
                && let Some(Ok(chunk)) = chunks.next().await
            {
                dropped += chunk.len();
            }
            return Err(ApiError::new(Code::PayloadTooLarge, "The body is too large")
                .details(format!("at most {limit} bytes are taken")));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.into())
}
