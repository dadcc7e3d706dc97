//! `/api/v1/decisions`: the journal, newest first, one by one, again, and side by side.

use axum::{extract::Path, http::StatusCode, response::Response};
use muster_control::{
    explain::describe,
    journal::{Decision, DecisionFilter, DecisionId, JournalError, OutcomeState, Side, compare, replay},
    registry::Kind,
};
use muster_engine::{Plan, Snapshot};
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
        pod: None,
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

/// The decision that a comparison names: one that is not there is named, because there are two of them.
async fn one_of_two(call: &Call, field: &'static str, id: &str) -> Result<Decision, ApiError> {
    if DecisionId::parse(id).is_none() {
        return Err(ApiError::invalid(field, format!("{id:?} is no decision; ids look like 550e8400-42")));
    }
    find(call, id).await.map_err(|error| match error.code {
        Code::NotFound => error.details(format!(
            "there is no decision {id}: the number was never given, it is older than what is kept, or it is another project's"
        )),
        _ => error,
    })
}

/// `GET /api/v1/decisions/{id}/compare?with=ID`: from this one to that; without `with`, from the one before to this.
pub async fn side_by_side(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let with = query.text("with");
    query.finish()?;
    let named = one_of_two(&call, "id", &id).await?;
    let (from, to) = match with {
        Some(with) => (named, one_of_two(&call, "with", &with).await?),
        None => match named.cause.after.clone() {
            Some(before) => (one_of_two(&call, "with", before.as_str()).await?, named),
            None => {
                return Err(ApiError::invalid(
                    "with",
                    format!("decision {id} is the first of its cluster; name another one to compare with"),
                ));
            }
        },
    };
    if from.cluster_id != to.cluster_id {
        return Err(ApiError::invalid(
            "with",
            format!(
                "decision {} is about cluster {} and decision {} about cluster {}; only two of one cluster can be compared",
                from.id, from.cluster_name, to.id, to.cluster_name
            ),
        ));
    }
    let (before, after) = (frame(&call, &from).await?, frame(&call, &to).await?);
    // It may plan once more, to tell what made the difference.
    let done = tokio::task::spawn_blocking(move || {
        let before =
            Side { decision: &from, frame: before.as_ref().map(|(snapshot, plan)| (snapshot, plan)) };
        let after = Side { decision: &to, frame: after.as_ref().map(|(snapshot, plan)| (snapshot, plan)) };
        compare(before, after)
    });
    Ok(reply::value(StatusCode::OK, &done.await.map_err(|_| ApiError::internal())?))
}

/// The snapshot and the plan of a decision, if they are kept.
async fn frame(call: &Call, decision: &Decision) -> Result<Option<(Snapshot, Plan)>, ApiError> {
    match call.app.explain.journal().frame(decision).await {
        Ok(frame) => Ok(Some(frame)),
        Err(JournalError::TooOld { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
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
