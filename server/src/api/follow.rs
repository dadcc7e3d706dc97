//! `GET /api/v1/decisions?watch=true`: decisions as they are made, and what becomes of them.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::StreamExt;
use muster_control::{
    journal::{self, Decision, DecisionFilter},
    registry::{Change, WatchItem},
};
use muster_model::{
    ClusterId, Duration,
    field::FieldError,
    store::{Change as Changed, Revision, WatchEvent, WatchStream},
};

use super::{Call, watch};
use crate::{error::ApiError, query::Query};

pub(super) async fn decisions(
    call: &Call,
    mut query: Query,
    clusters: Vec<ClusterId>,
    filter: DecisionFilter,
) -> Result<Response, ApiError> {
    let from = query.text("resource_version").and_then(|text| {
        let revision = text.parse().ok().map(Revision);
        if revision.is_none() {
            let fault = FieldError::new("resource_version", "is not a revision").found_text(&text);
            query.fault(fault.hint("use revision of a list or of an event"));
        }
        revision
    });
    let seconds = query.number("timeout_seconds", 1, watch::MAX_SECONDS);
    query.finish()?;
    let place = watch::Place::take(call)?;
    let store = call.app.explain.journal().store();
    let unavailable = |error| ApiError::from(muster_control::registry::RegistryError::Store(error));
    let from = match from {
        Some(from) => from,
        None => store.revision().await.map_err(unavailable)?,
    };
    let changes = store.watch(journal::ROOT, from).await.map_err(unavailable)?;
    let state = Following {
        changes,
        pending: VecDeque::new(),
        call: call.clone(),
        clusters,
        filter,
        until: seconds.map(|seconds| call.app.clock.monotonic().saturating_add(Duration::from_secs(seconds))),
        form: watch::form_of(call),
        _place: place,
    };
    let form = state.form;
    let stream = futures::stream::unfold(state, |mut state| async move {
        let item = state.next().await?;
        Some((Ok::<Bytes, Infallible>(watch::render(&item, state.form)), state))
    });
    Ok(watch::response(Body::from_stream(stream), form))
}

struct Following {
    changes: WatchStream,
    pending: VecDeque<WatchItem>,
    call: Call,
    clusters: Vec<ClusterId>,
    filter: DecisionFilter,
    until: Option<Duration>,
    form: watch::Form,
    _place: watch::Place,
}

impl Following {
    /// `None` ends the stream: the server stops, time is up, or the store's history is gone.
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Some(item);
            }
            let clock = Arc::clone(&self.call.app.clock);
            let left = self.until.map(|until| until.saturating_sub(clock.monotonic()));
            let event = tokio::select! {
                biased;
                () = self.call.app.stop.cancelled() => return None,
                () = async { match left {
                    Some(left) => clock.sleep(left).await,
                    None => std::future::pending().await,
                } } => return None,
                event = self.changes.next() => event?.ok()?,
            };
            match event {
                WatchEvent::Progress(revision) => self.pending.push_back(WatchItem::Bookmark { revision }),
                WatchEvent::Changes(changes) => {
                    let items: Vec<WatchItem> =
                        changes.iter().filter_map(|change| self.item(change)).collect();
                    self.pending.extend(items);
                }
            }
        }
    }

    fn item(&self, change: &Changed) -> Option<WatchItem> {
        let entry = change.entry.as_ref().filter(|entry| entry.key.contains("/decisions/"))?;
        let decision: Decision = serde_json::from_slice(&entry.value).ok()?;
        let wanted = self.clusters.contains(&decision.cluster_id)
            && self.call.sees(&decision.project)
            && self.filter.wants(&decision);
        let change_kind = if entry.created == entry.modified { Change::Added } else { Change::Modified };
        wanted.then(|| WatchItem::Object {
            change: change_kind,
            revision: change.revision,
            text: entry.value.clone(),
        })
    }
}
