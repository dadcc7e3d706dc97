//! Keeps the index in step with `/baremetal/`: one task, from one watch.

use std::sync::{Arc, atomic::Ordering};

use futures::StreamExt;
use muster_model::{
    Duration,
    host::keys,
    store::{Change, Entry, List, Revision, StoreError, WatchEvent},
};
use tokio_util::sync::CancellationToken;

use super::{Shared, index::Index};

/// Entries per page of the first load: about 2 MiB of records.
const LOAD_PAGE: usize = 1_000;
/// First and longest pause after the store did not answer.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Feeds the index until `stop`.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let (mut pause, mut loaded) = (RETRY_FIRST, true);
    loop {
        let result = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            result = follow(&shared, loaded, &mut pause) => result,
        };
        let error = result.err();
        loaded = !matches!(error, Some(StoreError::Compacted { .. } | StoreError::Future { .. }));
        shared.live.store(false, Ordering::Release);
        if let Some(error) = error {
            tracing::warn!(code = error.code(), %error, "the inventory's feed broke off; trying again");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.clock.sleep(pause) => {}
        }
        pause = Duration::from_millis((pause.millis() * 2).min(RETRY_LONGEST.millis()));
    }
}

async fn follow(shared: &Shared, loaded: bool, pause: &mut Duration) -> Result<(), StoreError> {
    let from = if loaded { shared.index().revision } else { load(shared).await? };
    let mut changes = shared.store.watch(keys::ROOT, from).await?;
    shared.live.store(true, Ordering::Release);
    shared.dirty.notify_one();
    *pause = RETRY_FIRST;
    while let Some(event) = changes.next().await {
        match event? {
            WatchEvent::Changes(changes) => apply(shared, &changes),
            WatchEvent::Progress(revision) => {
                let mut index = shared.index_mut();
                index.revision = index.revision.max(revision);
                drop(index);
                shared.raise(revision);
            }
        }
    }
    Ok(())
}

fn apply(shared: &Shared, changes: &[Change]) {
    let Some(revision) = changes.first().map(|change| change.revision) else { return };
    let told = shared.index_mut().apply(changes);
    {
        let mut ring = shared.ring_mut();
        for change in told {
            ring.push(change);
        }
    }
    shared.raise(revision);
    shared.dirty.notify_one();
}

/// Reads the whole inventory at one revision, and replaces the index by it.
pub(super) async fn load(shared: &Shared) -> Result<Revision, StoreError> {
    let mut index = Index::default();
    let take = |entry: Entry| {
        let (revision, key) = (entry.modified, entry.key.clone());
        drop(index.apply(&[Change { revision, key, entry: Some(entry) }]));
    };
    let list = List { limit: LOAD_PAGE, ..List::prefix(keys::ROOT) };
    let revision = list.each(&*shared.store, take).await?;
    index.revision = revision;
    index.touched.clear();
    tracing::info!(hosts = index.hosts.len(), %revision, "loaded the inventory");
    *shared.index_mut() = index;
    shared.ring_mut().restart(revision);
    shared.head.send_replace(revision);
    Ok(revision)
}
