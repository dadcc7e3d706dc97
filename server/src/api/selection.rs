//! Lists: which objects, which page, in which form.

use axum::{http::StatusCode, response::Response};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::{BufMut, BytesMut};
use muster_control::registry::{Cursor, FieldTest, Filter, Kind, LabelSelector, Noun, OperationState, Start};
use muster_model::{
    Timestamp,
    field::FieldError,
    status::{Health, Phase},
};
use uuid::Uuid;

use super::{Call, reply};
use crate::{error::ApiError, query::Query};

/// Pages are this long unless asked otherwise, and never longer than [`MAX_LIMIT`].
pub(super) const DEFAULT_LIMIT: u64 = 50;
pub(super) const MAX_LIMIT: u64 = 100;

/// A list request.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) filter: Filter,
    pub(super) limit: usize,
    pub(super) offset: usize,
    pub(super) start: Start,
}

impl Selection {
    /// Reads what all lists take. The caller adds what only it takes, then finishes the query.
    pub(super) fn read(call: &Call, query: &mut Query, kind: Kind) -> Self {
        let limit = query.number("limit", 1, MAX_LIMIT).unwrap_or(DEFAULT_LIMIT);
        let offset = query.number("offset", 0, u64::from(u32::MAX)).unwrap_or(0);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let start = match query.text("cursor") {
            None => Start::Offset(offset),
            Some(text) => match decode_cursor(&text) {
                Some(cursor) if offset == 0 => Start::After(cursor),
                Some(_) => {
                    query.fault(FieldError::new("cursor", "cannot be used together with offset"));
                    Start::Offset(0)
                }
                None => {
                    query.fault(
                        FieldError::new("cursor", "is not a cursor of this list")
                            .found_text(&text)
                            .hint("use next_cursor of the page before"),
                    );
                    Start::Offset(0)
                }
            },
        };
        let filter = read_filter(call, query, kind);
        Self { filter, limit: usize::try_from(limit).unwrap_or(usize::MAX), offset, start }
    }
}

/// Reads the filters that lists and watches share.
pub(super) fn read_filter(call: &Call, query: &mut Query, kind: Kind) -> Filter {
    if kind == Kind::Operation {
        return operation_filter(call, query);
    }
    let phase: Option<Phase> = query.choice("status");
    let health: Option<Health> = query.choice("health");
    let name = query.text("name").map(String::into_boxed_str);
    let labels = match query.text("labelSelector").map(|text| LabelSelector::parse(&text)) {
        None => LabelSelector::default(),
        Some(Ok(selector)) => selector,
        Some(Err(error)) => {
            query.fault(FieldError::new("labelSelector", error.to_string()));
            LabelSelector::default()
        }
    };
    let fields = match query.text("fieldSelector").map(|text| FieldTest::parse(&text)) {
        None => Vec::new(),
        Some(Ok(tests)) => tests,
        Some(Err(error)) => {
            query.fault(FieldError::new("fieldSelector", error.to_string()));
            Vec::new()
        }
    };
    let cluster = if kind == Kind::Pool { read_cluster(query) } else { None };
    let projects = projects_of(call);
    let controller = call.caller.identity.everywhere.contains(&muster_model::identity::Role::Controller);
    Filter {
        projects,
        cluster,
        phase: phase.map(Phase::as_str),
        health: health.map(Health::as_str),
        name,
        labels,
        fields,
        include_deleted: query.flag("include_deleted") || controller,
    }
}

/// The projects that a request is about; `None` means all.
fn projects_of(call: &Call) -> Option<Vec<std::sync::Arc<str>>> {
    let identity = &call.caller.identity;
    match &call.project {
        Some(only) => Some(vec![only.as_str().into()]),
        None if identity.sees_all() => None,
        None => Some(identity.projects.keys().map(|project| project.as_str().into()).collect()),
    }
}

/// Operations are found by pool and by state.
fn operation_filter(call: &Call, query: &mut Query) -> Filter {
    let pool = query.text("nodepool_id").and_then(|text| {
        let id = text.parse::<muster_model::PoolId>();
        if let Err(error) = &id {
            query.fault(FieldError::sentence(
                "nodepool_id",
                format!("the query parameter nodepool_id: {error}"),
            ));
        }
        id.ok().map(muster_model::PoolId::uuid)
    });
    let state: Option<OperationState> = query.choice("state");
    Filter {
        projects: projects_of(call),
        cluster: pool,
        phase: state.map(OperationState::as_str),
        ..Filter::everything()
    }
}

/// `clusterId`, as the seed's system calls it, or `cluster_id`, as the objects do.
fn read_cluster(query: &mut Query) -> Option<Uuid> {
    let (camel, snake) = (query.text("clusterId"), query.text("cluster_id"));
    let text = camel.or(snake)?;
    let id = text.parse::<muster_model::ClusterId>();
    if let Err(error) = &id {
        query.fault(FieldError::sentence("clusterId", format!("the query parameter clusterId: {error}")));
    }
    id.ok().map(muster_model::ClusterId::uuid)
}

/// A page as JSON.
pub(super) async fn page<N: Noun>(call: &Call, selection: &Selection) -> Result<Response, ApiError> {
    let Selection { filter, limit, offset, start } = selection;
    let found = call.app.registry.list(N::KIND, filter, *start, *limit)?;
    let texts = call.app.registry.texts::<N>(&found.items, |project| call.secrets(project)).await?;
    let mut body = BytesMut::with_capacity(texts.iter().map(|text| text.len() + 1).sum::<usize>() + 256);
    body.put_slice(format!("{{\"{}\":[", N::KIND.plural()).as_bytes());
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(text);
    }
    let tail = format!(
        "],\"total\":{},\"limit\":{limit},\"offset\":{offset},\"revision\":\"{}\"",
        found.total, found.revision
    );
    body.put_slice(tail.as_bytes());
    if let Some(next) = found.next {
        body.put_slice(format!(",\"next_cursor\":\"{}\"", encode_cursor(next)).as_bytes());
    }
    body.put_u8(b'}');
    Ok(reply::json(StatusCode::OK, body.freeze()))
}

pub(super) fn encode_cursor(cursor: Cursor) -> String {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&cursor.at.millis().to_be_bytes());
    bytes[8..].copy_from_slice(cursor.id.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode_cursor(text: &str) -> Option<Cursor> {
    let bytes: [u8; 24] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
    let (at, id) = bytes.split_at(8);
    Some(Cursor {
        at: Timestamp::from_millis(i64::from_be_bytes(at.try_into().ok()?)),
        id: Uuid::from_slice(id).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back_and_made_up_ones_refused() {
        let cursor = Cursor { at: Timestamp::from_millis(1_700_000_000_123), id: Uuid::from_u128(7) };
        assert_eq!(decode_cursor(&encode_cursor(cursor)), Some(cursor));
        for wrong in ["", "x", "AAAA", "====", &encode_cursor(cursor)[1..]] {
            assert_eq!(decode_cursor(wrong), None, "{wrong:?} was accepted");
        }
    }
}
