//! `/api/v1/decisions`: the journal, newest first, one by one, again, and side by side.

use axum::{extract::Path, http::StatusCode, response::Response};
use muster_control::{
    explain::describe,
    journal::{Decision, DecisionFilter, DecisionId, JournalError, OutcomeState, compare, replay},
    registry::Kind,
};
use muster_model::{ClusterId, Timestamp, field::FieldError};
use serde_json::{Value, json};

use super::{Call, follow, reply, selection};
use crate::{
    error::{ApiError, Code},
    query::Query,
};

/// How a refusal of the journal is answered.
impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Missing { .. } => Self::not_found("Decision"),
            JournalError::TooOld { .. } => {
                Self::new(Code::Gone, "The decision can no longer be replayed").details(error.to_string())
            }
            JournalError::Store(error) => muster_control::registry::RegistryError::Store(error).into(),
            JournalError::Damaged { .. } | JournalError::NotLeading { .. } | JournalError::Moved { .. } => {
                tracing::error!(code = error.code(), %error, "the journal failed a request");
                Self::internal()
            }
        }
    }
}

/// The clusters whose decisions the caller sees, by id.
pub(super) fn clusters(call: &Call) -> Vec<ClusterId> {
    let mut seen = Vec::new();
    call.app.registry.each(Kind::Cluster, |summary| {
        if call.sees(&summary.project) {
            seen.push(ClusterId::from(summary.id));
        }
    });
    seen
}

/// The decision that a path names, if the caller sees it.
pub(super) async fn find(call: &Call, id: &str) -> Result<Decision, ApiError> {
    if DecisionId::parse(id).is_none() {
        return Err(ApiError::invalid("id", format!("{id:?} is no decision; ids look like 550e8400-42")));
    }
    let found = call.app.explain.find(id, &clusters(call)).await?;
    found.filter(|decision| call.sees(&decision.project)).ok_or_else(|| ApiError::not_found("Decision"))
}

fn read_time(query: &mut Query, name: &'static str) -> Option<Timestamp> {
    let text = query.text(name)?;
    let time = text.parse().ok();
    if time.is_none() {
        let fault = FieldError::new(name, "is not a time").found_text(&text);
        query.fault(fault.hint("write it like 2026-11-16T02:00:00Z"));
    }
    time
}

/// The filters that lists and watches share.
fn read_filter(query: &mut Query) -> DecisionFilter {
    let outcome = query.text("outcome").and_then(|text| {
        let found = OutcomeState::ALL.into_iter().find(|state| state.as_str() == text);
        if found.is_none() {
            let words: Vec<&str> = OutcomeState::ALL.iter().map(|state| state.as_str()).collect();
            query.fault(
                FieldError::new("outcome", "is not an outcome").found_text(&text).allowed(words.join(", ")),
            );
        }
        found
    });
    DecisionFilter {
        pool: query.text("pool"),
        host: query.text("host"),
        node: query.text("node"),
        outcome,
        since: read_time(query, "since"),
        until: read_time(query, "until"),
        actions_only: query.flag("actions_only"),
    }
}

/// Which of the caller's clusters are asked about.
fn read_clusters(call: &Call, query: &mut Query) -> Result<Vec<ClusterId>, ApiError> {
    let seen = clusters(call);
    let Some(text) = query.text("cluster_id") else { return Ok(seen) };
    let id = super::request::path_id(&text)?;
    match seen.into_iter().find(|cluster| cluster.uuid() == id) {
        Some(cluster) => Ok(vec![cluster]),
        None => Err(ApiError::not_found("Cluster")),
    }
}

/// `GET /api/v1/decisions`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let watched = query.flag("watch");
    let filter = read_filter(&mut query);
    let clusters = read_clusters(&call, &mut query)?;
    if watched {
        return follow::decisions(&call, query, clusters, filter).await;
    }
    let limit = query.number("limit", 1, selection::MAX_LIMIT).unwrap_or(selection::DEFAULT_LIMIT);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let cursor = query.text("cursor");
    let starts = cursor.as_deref().map(read_cursor);
    if let Some(None) = starts {
        let fault = FieldError::new("cursor", "is not a cursor of this list");
        query.fault(fault.found_text(&cursor.unwrap_or_default()).hint("use next_cursor of the page before"));
    }
    // Cursors are the only way on: a page is the same whatever is decided meanwhile.
    let _ = query.number("offset", 0, 0);
    query.finish()?;
    let starts = starts.flatten();
    let (mut found, mut rest, mut revision) = (Vec::new(), Vec::new(), call.app.registry.revision());
    for cluster in clusters {
        let stem = DecisionId::stem(cluster);
        let below = match &starts {
            None => None,
            Some(starts) => match starts.iter().find(|(known, _)| *known == stem) {
                Some((_, below)) => Some(*below),
                None => continue, // this cluster was read to its end
            },
        };
        let page = call.app.explain.journal().list(cluster, &filter, below, limit).await?;
        revision = revision.max(page.revision);
        rest.push((stem, page.next));
        found.extend(page.decisions);
    }
    found.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
    let cut = found.split_off(limit.min(found.len()));
    let next = next_cursor(&rest, &cut);
    let answer = json!({
        "decisions": found, "limit": limit, "next_cursor": next, "revision": revision.to_string(),
    });
    Ok(reply::value(StatusCode::OK, &answer))
}

/// Where each cluster goes on: below the oldest decision that was shown of it.
fn next_cursor(rest: &[(String, Option<u64>)], cut: &[Decision]) -> Option<String> {
    let parts: Vec<String> = rest
        .iter()
        .filter_map(|(stem, next)| {
            // Decisions that did not fit on the page come first on the next one.
            let first_cut =
                cut.iter().filter(|one| DecisionId::stem(one.cluster_id) == *stem).map(|one| one.number + 1);
            let below = first_cut.max().or(*next)?;
            Some(format!("{stem}-{below}"))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("."))
}

fn read_cursor(text: &str) -> Option<Vec<(String, u64)>> {
    text.split('.')
        .map(|part| DecisionId::parse(part).map(|(stem, below)| (stem.to_owned(), below)))
        .collect()
}

/// `GET /api/v1/decisions/{id}`
pub async fn read(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let decision = find(&call, &id).await?;
    let text = describe(&decision, None);
    let mut value = serde_json::to_value(&decision).map_err(|_| ApiError::internal())?;
    value["text"] = Value::String(text);
    Ok(reply::value(StatusCode::OK, &value))
}

/// `GET /api/v1/decisions/{id}/replay`
pub async fn again(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let decision = find(&call, &id).await?;
    let (snapshot, plan) = call.app.explain.journal().frame(&decision).await?;
    // Minutes of planning for a large cluster do not hold up other requests.
    let done = tokio::task::spawn_blocking(move || replay(&decision, &snapshot, plan)).await;
    Ok(reply::value(StatusCode::OK, &done.map_err(|_| ApiError::internal())?))
}

/// `GET /api/v1/decisions/{id}/compare?with=ID`
pub async fn side_by_side(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let with = query.text("with");
    if with.is_none() {
        query.fault(FieldError::new("with", "is required").hint("name the decision to compare with"));
    }
    query.finish()?;
    let (from, to) = (find(&call, &id).await?, find(&call, &with.unwrap_or_default()).await?);
    if from.cluster_id != to.cluster_id {
        return Err(ApiError::invalid("with", "the two decisions are about different clusters"));
    }
    let journal = call.app.explain.journal();
    let (before, old) = journal.frame(&from).await?;
    let (after, new) = journal.frame(&to).await?;
    Ok(reply::value(StatusCode::OK, &compare((&from, &before, &old), (&to, &after, &new))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back_and_nothing_else_does() {
        assert_eq!(read_cursor("550e8400-12"), Some(vec![("550e8400".into(), 12)]));
        assert_eq!(read_cursor("550e8400-12.aabbccdd-3").map(|all| all.len()), Some(2));
        for wrong in ["", "x", "550e8400", "550e8400-12.", "550e8400-1,aabbccdd-2"] {
            assert_eq!(read_cursor(wrong), None, "{wrong}");
        }
    }
}
