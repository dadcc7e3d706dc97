//! Keeps the index and the recent events in step with the store: one task, from one watch.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;
use muster_model::{
    Duration,
    store::{self, List, Revision, StoreError, WatchEvent},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Shared,
    events::Event,
    index::{Index, Summary},
    keys::{self, Kind, Place},
    light::{self, LightStatus},
};

/// Entries per page of the first load: about 2 MiB of pools.
const LOAD_PAGE: usize = 1_000;
/// A watch that is quiet for this long is asked whether its store is still there, and this long it may think.
const PROBE: Duration = Duration::from_secs(2);
const PROBE_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);
/// Commits that are applied before anyone is told: a writer's largest group, a few milliseconds of work.
const FEED_CHUNK: usize = 1_024;
/// First and longest pause after the store did not answer.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Feeds the index until `stop`. Returns early only when stopped.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut pause = RETRY_FIRST;
    let mut loaded = shared.is_loaded();
    loop {
        let result = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            result = follow(&shared, loaded, &mut pause) => result,
        };
        let error = result.err();
        loaded = !matches!(error, Some(StoreError::Compacted { .. } | StoreError::Future { .. }));
        shared.set_live(false);
        if let Some(StoreError::Future { asked, .. }) = error {
            note_regress(&shared, asked).await;
        }
        if let Some(error) = error {
            tracing::warn!(code = error.code(), %error, "the feed of changes broke off; trying again");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.clock.sleep(pause) => {}
        }
        pause = Duration::from_millis((pause.millis() * 2).min(RETRY_LONGEST.millis()));
    }
}

/// The store is behind what we have seen of it: it was restored from something older while we ran.
async fn note_regress(shared: &Shared, seen: Revision) {
    match crate::freeze::mark_when_behind(shared.store.as_ref(), seen, shared.clock.now()).await {
        Ok(true) => {
            tracing::error!(%seen, "the store went back behind what it had reached; nothing acts now");
        }
        Ok(false) => {}
        Err(error) => tracing::error!(%error, "the store went back, and that cannot be written down in it"),
    }
}

async fn follow(shared: &Shared, loaded: bool, pause: &mut Duration) -> Result<(), StoreError> {
    let from = if loaded { shared.revision() } else { load(shared).await? };
    // What has piled up is applied together, and whoever waits is woken once for all of it.
    let mut changes = shared.store.watch(keys::ROOT, from).await?.ready_chunks(FEED_CHUNK);
    // A watch may be opened before its store answers: only a store that does makes lists recent.
    shared.store.revision().await?;
    shared.set_live(true);
    *pause = RETRY_FIRST;
    loop {
        let chunk = tokio::select! {
            biased;
            chunk = changes.next() => chunk,
            () = shared.clock.sleep(PROBE) => {
                // A quiet watch looks like one whose store is gone: ask, so that lists do not grow old unnoticed.
                let answer = tokio::time::timeout(PROBE_LIMIT, shared.store.revision()).await;
                shared.set_live(matches!(answer, Ok(Ok(_))));
                continue;
            }
        };
        let Some(chunk) = chunk else { return Ok(()) };
        let (mut events, mut reached) = (Vec::new(), Revision::ZERO);
        let mut failed = None;
        for event in chunk {
            match event {
                Ok(WatchEvent::Changes(changes)) => {
                    reached = changes.first().map_or(reached, |change| change.revision);
                    events.extend(apply(shared, &changes));
                }
                Ok(WatchEvent::Progress(revision)) => {
                    reached = reached.max(revision);
                    shared.advance(revision);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        shared.publish(events, reached);
        if let Some(error) = failed {
            return Err(error);
        }
        shared.set_live(true);
    }
}

/// Reads everything that lists show, at one revision, and replaces the index by it.
pub(super) async fn load(shared: &Shared) -> Result<Revision, StoreError> {
    let mut index = Index::default();
    let mut at = None;
    for kind in Kind::ALL {
        // In the order of the keys, which is that of the ids.
        let mut summaries: Vec<Summary> = Vec::new();
        read_all(shared, kind.objects(), &mut at, |entry| {
            summaries.extend(object_summary(kind, &entry.key, &entry.value, entry.modified, &mut index));
        })
        .await?;
        summaries.sort_by_key(|summary| summary.id);
        read_all(shared, kind.statuses(), &mut at, |entry| {
            if let Some(Place::Status(_, id)) = keys::place(&entry.key)
                && let Some(status) = light_status(&entry.key, &entry.value)
                && let Ok(place) = summaries.binary_search_by_key(&id, |summary| summary.id)
            {
                status.merge(&mut summaries[place], entry.modified);
            }
        })
        .await?;
        // Oldest first: then each goes to the end of the table.
        summaries.sort_by_key(|summary| (summary.created_at, summary.id));
        for summary in summaries {
            index.set(Arc::new(summary));
        }
    }
    let revision = match at {
        Some(revision) => revision,
        None => shared.store.revision().await?,
    };
    index.revision = revision;
    tracing::info!(
        clusters = index.clusters.len(),
        pools = index.pools.len(),
        %revision,
        "loaded the registry"
    );
    shared.replace(index);
    Ok(revision)
}

/// Calls `each` with every entry under a prefix, at one revision. While it works on one page the next one is being read.
async fn read_all(
    shared: &Shared,
    prefix: String,
    at: &mut Option<Revision>,
    mut each: impl FnMut(store::Entry),
) -> Result<(), StoreError> {
    let read = |after: Option<String>, at: Option<Revision>| {
        let list = List { prefix: prefix.clone(), after, limit: LOAD_PAGE, at, keys_only: false };
        let store = Arc::clone(&shared.store);
        tokio::spawn(async move { store.list(list).await })
    };
    let mut reading = read(None, *at);
    loop {
        let page = reading.await.unwrap_or_else(|error| {
            let why = format!("a page of the first load was not read: {error}");
            Err(StoreError::Unavailable { store: "store".to_owned(), why })
        })?;
        *at = Some(page.revision);
        let after = page.entries.last().map(|entry| entry.key.clone());
        if !page.more || after.is_none() {
            page.entries.into_iter().for_each(&mut each);
            return Ok(());
        }
        reading = read(after, *at);
        page.entries.into_iter().for_each(&mut each);
    }
}

fn object_summary(
    kind: Kind,
    key: &str,
    value: &[u8],
    modified: Revision,
    index: &mut Index,
) -> Option<Summary> {
    match light::summary(kind, value, modified, index) {
        Ok(summary) => Some(summary),
        Err(error) => {
            tracing::error!(key, %error, "a stored object cannot be read and is left out of lists");
            None
        }
    }
}

fn light_status(key: &str, value: &[u8]) -> Option<LightStatus> {
    serde_json::from_slice(value)
        .map_err(|error| tracing::error!(key, %error, "a stored status cannot be read and is ignored"))
        .ok()
}

/// What one commit did to one key.
#[derive(Default, Clone, Copy)]
enum Touch<'a> {
    #[default]
    Untouched,
    Put(&'a store::Entry),
    Deleted,
}

impl<'a> From<Option<&'a store::Entry>> for Touch<'a> {
    fn from(entry: Option<&'a store::Entry>) -> Self {
        entry.map_or(Self::Deleted, Self::Put)
    }
}

/// What one commit did to one object.
#[derive(Default)]
struct Touched<'a> {
    object: Touch<'a>,
    status: Touch<'a>,
}

/// Applies one commit to the index; the events that it means.
fn apply(shared: &Shared, changes: &[store::Change]) -> Vec<Arc<Event>> {
    let Some(revision) = changes.first().map(|change| change.revision) else { return Vec::new() };
    let mut touched: BTreeMap<(Kind, Uuid), Touched<'_>> = BTreeMap::new();
    let mut events = Vec::new();
    {
        let mut index = shared.index_mut();
        for change in changes {
            let entry = change.entry.as_ref();
            match keys::place(&change.key) {
                Some(Place::Object(kind, id)) => touched.entry((kind, id)).or_default().object = entry.into(),
                Some(Place::Status(kind, id)) => touched.entry((kind, id)).or_default().status = entry.into(),
                None => {}
            }
        }
        for ((kind, id), touched) in touched {
            if let Some((before, after)) = touch(&mut index, kind, id, &touched) {
                events.push(Arc::new(Event::new(revision, kind, id, before, after)));
            }
        }
        index.revision = index.revision.max(revision);
    }
    events
}

type Seen = (Option<Arc<Summary>>, Option<Arc<Summary>>);

/// Brings one object up to date; `None` when the index does not show it, before or after.
fn touch(index: &mut Index, kind: Kind, id: Uuid, touched: &Touched<'_>) -> Option<Seen> {
    let known = index.get(kind, id).cloned();
    let mut summary = match touched.object {
        Touch::Deleted => return index.remove(kind, id).map(|before| (Some(before), None)),
        Touch::Put(entry) => {
            let mut summary = object_summary(kind, &entry.key, &entry.value, entry.modified, index)?;
            if let Some(known) = &known {
                carry_status(known, &mut summary);
            }
            summary
        }
        Touch::Untouched => Summary::clone(known.as_ref()?),
    };
    match touched.status {
        Touch::Put(entry) => {
            if let Some(status) = light_status(&entry.key, &entry.value) {
                status.merge(&mut summary, entry.modified);
            }
        }
        Touch::Deleted => summary.status_version = Revision::ZERO,
        Touch::Untouched => {}
    }
    let after = Arc::new(summary);
    index.set(Arc::clone(&after));
    Some((known, Some(after)))
}

/// A spec was written without its status: the status that was there still stands.
fn carry_status(known: &Summary, into: &mut Summary) {
    if known.status_version > Revision::ZERO {
        into.status_version = known.status_version;
        into.phase = known.phase;
        into.health = known.health;
        into.counts.desired = known.counts.desired;
        into.counts.current = known.counts.current;
        into.counts.ready = known.counts.ready;
        into.recheck_at = known.recheck_at;
    }
}
