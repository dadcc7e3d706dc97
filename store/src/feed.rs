//! How watches follow a store that lives in this process.
//!
//! A watcher has no queue. It has a position, and asks for the commits after it: first the [`Feed`], which
//! holds the newest commits in memory, and where that does not reach back far enough, the store's history.
//! So a slow watcher costs nothing and blocks nobody, nothing is ever dropped, and memory is bounded by the
//! feed whatever the number of watchers.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt, stream};
use muster_model::store::{Change, Revision, StoreError, WatchEvent, WatchStream};
use tokio::sync::watch;

/// One commit as watches see it: all its changes, in the order of their keys, never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) revision: Revision,
    pub(crate) changes: Vec<Change>,
}

impl Commit {
    fn bytes(&self) -> usize {
        self.changes
            .iter()
            .map(|change| {
                change.key.len() * 2 + change.entry.as_ref().map_or(0, |entry| entry.value.len()) + 160
            })
            .sum()
    }
}

/// A watcher that has seen nothing of its own for this many commits is told how far it is, so that it can
/// resume without reading all of them again, and before they are compacted.
const PROGRESS_EVERY: u64 = 256;
/// Commits read from a store's history at once: a few hundred keep one read short.
pub(crate) const HISTORY_CHUNK: usize = 256;

/// Where a watcher reads what the feed no longer holds.
pub(crate) trait History: Send + Sync + 'static {
    /// At most [`HISTORY_CHUNK`] commits after `after`, oldest first, none left out. Fails with
    /// [`StoreError::Compacted`] when that is no longer possible.
    fn commits_after(&self, after: Revision) -> HistoryFuture<'_>;
}

pub(crate) type HistoryFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Arc<Commit>>, StoreError>> + Send + 'a>>;

/// The newest commits, and a bell that rings for each.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    head: watch::Sender<Revision>,
}

#[derive(Debug)]
struct Recent {
    commits: VecDeque<Arc<Commit>>,
    bytes: usize,
    /// Every commit after this one is in `commits`.
    after: Revision,
    limits: FeedLimits,
    closed: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedLimits {
    pub(crate) commits: usize,
    pub(crate) bytes: usize,
}

impl Default for FeedLimits {
    /// A second of heavy writing: 4,096 commits, 16 MiB.
    fn default() -> Self {
        Self { commits: 4096, bytes: 16 << 20 }
    }
}

impl Feed {
    pub(crate) fn new(head: Revision, limits: FeedLimits) -> Self {
        let recent = Recent { commits: VecDeque::new(), bytes: 0, after: head, limits, closed: None };
        Self { recent: Mutex::new(recent), head: watch::Sender::new(head) }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends commits, in order, and wakes the watchers once.
    pub(crate) fn publish(&self, commits: Vec<Arc<Commit>>) {
        let Some(last) = commits.last().map(|commit| commit.revision) else { return };
        {
            let mut recent = self.recent();
            for commit in commits {
                recent.bytes += commit.bytes();
                recent.commits.push_back(commit);
            }
            while recent.commits.len() > recent.limits.commits || recent.bytes > recent.limits.bytes {
                let Some(oldest) = recent.commits.pop_front() else { break };
                recent.bytes -= oldest.bytes();
                recent.after = oldest.revision;
            }
        }
        self.head.send_replace(last);
    }

    /// Forgets everything and continues at `head`: the numbering was moved on.
    pub(crate) fn jump(&self, head: Revision) {
        {
            let mut recent = self.recent();
            recent.commits.clear();
            recent.bytes = 0;
            recent.after = head;
        }
        self.head.send_replace(head);
    }

    /// Ends every watch.
    pub(crate) fn close(&self, why: &'static str) {
        self.recent().closed = Some(why);
        self.head.send_modify(|_| {});
    }

    /// Commits after `after` if all of them are still in memory.
    fn after(&self, after: Revision) -> Option<Vec<Arc<Commit>>> {
        let recent = self.recent();
        if after < recent.after {
            return None;
        }
        let start = recent.commits.partition_point(|commit| commit.revision <= after);
        Some(recent.commits.iter().skip(start).take(HISTORY_CHUNK).cloned().collect())
    }
}

struct Watcher<H> {
    store: String,
    feed: Arc<Feed>,
    history: Arc<H>,
    bell: watch::Receiver<Revision>,
    prefix: String,
    /// Everything up to here was delivered, or is no concern of this watcher.
    position: Revision,
    /// What the caller knows: the last event's revision.
    told: Revision,
    caught_up: bool,
}

/// Every change under `prefix` after `after`.
pub(crate) fn follow<H: History>(
    store: String,
    feed: Arc<Feed>,
    history: Arc<H>,
    prefix: &str,
    after: Revision,
) -> WatchStream {
    let bell = feed.head.subscribe();
    let watcher = Watcher {
        store,
        feed,
        history,
        bell,
        prefix: prefix.to_owned(),
        position: after,
        told: after,
        caught_up: false,
    };
    let batches: Pin<Box<dyn Stream<Item = _> + Send>> =
        Box::pin(stream::unfold(Some(watcher), |watcher| async move {
            let mut watcher = watcher?;
            match watcher.next().await {
                Ok(events) => {
                    let events: Vec<_> = events.into_iter().map(Ok).collect();
                    Some((stream::iter(events), Some(watcher)))
                }
                Err(error) => Some((stream::iter(vec![Err(error)]), None)),
            }
        }));
    Box::pin(batches.flatten())
}

impl<H: History> Watcher<H> {
    /// The next events; waits until there are some.
    async fn next(&mut self) -> Result<Vec<WatchEvent>, StoreError> {
        loop {
            if let Some(why) = self.feed.recent().closed {
                return Err(StoreError::Unavailable { store: self.store.clone(), why: why.to_owned() });
            }
            let head = *self.bell.borrow_and_update();
            if self.position >= head {
                if !self.caught_up {
                    self.caught_up = true;
                    self.told = self.position;
                    return Ok(vec![WatchEvent::Progress(self.position)]);
                }
                if self.bell.changed().await.is_err() {
                    let why = "it was closed".to_owned();
                    return Err(StoreError::Unavailable { store: self.store.clone(), why });
                }
                continue;
            }
            let commits = match self.feed.after(self.position) {
                Some(commits) => commits,
                None => self.history.commits_after(self.position).await?,
            };
            let events = self.select(&commits);
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// What of `commits` is this watcher's, and moves its position past them.
    fn select(&mut self, commits: &[Arc<Commit>]) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        for commit in commits {
            let changes: Vec<Change> = commit
                .changes
                .iter()
                .filter(|change| change.key.starts_with(&self.prefix))
                .cloned()
                .collect();
            self.position = commit.revision;
            if !changes.is_empty() {
                self.told = commit.revision;
                events.push(WatchEvent::Changes(changes));
            }
        }
        if self.position.0 - self.told.0 >= PROGRESS_EVERY {
            self.told = self.position;
            events.push(WatchEvent::Progress(self.position));
        }
        events
    }
}
