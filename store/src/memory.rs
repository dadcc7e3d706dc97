//! The store in memory: deterministic, without a clock, a thread or a file.
//!
//! It keeps a bounded history of commits. A read in the past starts from the present and undoes the commits
//! since, which is slow for the distant past and needs no second index.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use muster_model::store::{
    Change, Committed, Entry, List, Page, Revision, Store, StoreError, StoreStats, Txn, WatchStream, Write,
    check_key,
};

use crate::feed::{self, Commit, Feed, FeedLimits, HISTORY_CHUNK, History, HistoryFuture};

/// Entries that one page holds when the caller names no limit.
const PAGE: usize = 1000;
/// Commits that are remembered unless told otherwise.
pub const DEFAULT_HISTORY: usize = 10_000;
const NAME: &str = "in memory";

/// See the module.
#[derive(Debug)]
pub struct Memory {
    shared: Arc<Shared>,
    feed: Arc<Feed>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    entries: BTreeMap<String, Entry>,
    revision: Revision,
    oldest: Revision,
    history: VecDeque<Past>,
    limit: usize,
    closed: bool,
}

/// A commit, and what it replaced.
#[derive(Debug)]
struct Past {
    commit: Arc<Commit>,
    replaced: Vec<(String, Option<Entry>)>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(DEFAULT_HISTORY)
    }
}

impl Memory {
    /// An empty store that remembers the last `history` commits.
    pub fn new(history: usize) -> Self {
        let state = State {
            entries: BTreeMap::new(),
            revision: Revision::ZERO,
            oldest: Revision::ZERO,
            history: VecDeque::new(),
            limit: history,
            closed: false,
        };
        Self {
            shared: Arc::new(Shared { state: Mutex::new(state) }),
            feed: Arc::new(Feed::new(Revision::ZERO, FeedLimits { commits: 64, bytes: 1 << 20 })),
        }
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.shared.lock();
        if state.closed {
            return Err(StoreError::Unavailable { store: NAME.to_owned(), why: "it was closed".to_owned() });
        }
        Ok(state)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held cannot leave the state half changed: `apply` computes first.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The entries of a range as they were at `at`.
    fn past(&self, list: &List, at: Revision) -> BTreeMap<String, Entry> {
        let mut entries: BTreeMap<String, Entry> =
            range(&self.entries, list).map(|(key, entry)| (key.clone(), entry.clone())).collect();
        let after = list.after.as_deref();
        for past in self.history.iter().rev().take_while(|past| past.commit.revision > at) {
            for (key, replaced) in &past.replaced {
                if !key.starts_with(&list.prefix) || after.is_some_and(|after| key.as_str() <= after) {
                    continue;
                }
                match replaced {
                    Some(entry) => entries.insert(key.clone(), entry.clone()),
                    None => entries.remove(key),
                };
            }
        }
        entries
    }

    fn apply(&mut self, txn: &Txn) -> (Committed, Option<Arc<Commit>>) {
        for (failed, compare) in txn.compares.iter().enumerate() {
            let found = self.entries.get(&compare.key);
            if !compare.expect.holds(found) {
                return (Committed::Refused { failed, found: found.cloned() }, None);
            }
        }
        let revision = Revision(self.revision.0 + 1);
        let mut changes = Vec::new();
        let mut replaced = Vec::new();
        for write in &txn.writes {
            let before = self.entries.get(write.key()).cloned();
            let entry = match write {
                Write::Put { key, value } => Some(Entry {
                    key: key.clone(),
                    value: value.clone(),
                    created: before.as_ref().map_or(revision, |entry| entry.created),
                    modified: revision,
                }),
                Write::Delete { .. } if before.is_none() => continue,
                Write::Delete { .. } => None,
            };
            changes.push(Change { revision, key: write.key().to_owned(), entry });
            replaced.push((write.key().to_owned(), before));
        }
        if changes.is_empty() {
            return (Committed::Done { revision: self.revision }, None);
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        for change in &changes {
            match &change.entry {
                Some(entry) => self.entries.insert(change.key.clone(), entry.clone()),
                None => self.entries.remove(&change.key),
            };
        }
        let commit = Arc::new(Commit { revision, changes });
        self.revision = revision;
        self.history.push_back(Past { commit: Arc::clone(&commit), replaced });
        while self.history.len() > self.limit {
            self.forget_one();
        }
        (Committed::Done { revision }, Some(commit))
    }

    fn forget_one(&mut self) {
        if let Some(past) = self.history.pop_front() {
            self.oldest = past.commit.revision;
        }
    }
}

fn range<'a>(
    entries: &'a BTreeMap<String, Entry>,
    list: &'a List,
) -> impl Iterator<Item = (&'a String, &'a Entry)> {
    let start = match &list.after {
        Some(after) if *after >= list.prefix => Bound::Excluded(after.as_str()),
        _ => Bound::Included(list.prefix.as_str()),
    };
    entries.range::<str, _>((start, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(&list.prefix))
}

/// Cuts `entries` to the page that `list` asks for.
fn page<'a>(entries: impl Iterator<Item = &'a Entry>, list: &List, revision: Revision) -> Page {
    let limit = if list.limit == 0 { PAGE } else { list.limit };
    let mut entries = entries.peekable();
    let mut taken = Vec::new();
    while taken.len() < limit {
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.clone();
        if list.keys_only {
            entry.value.clear();
        }
        taken.push(entry);
    }
    Page { more: entries.peek().is_some(), entries: taken, revision }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        check_key(key)?;
        Ok(self.state()?.entries.get(key).cloned())
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        let state = self.state()?;
        let Some(at) = list.at else {
            return Ok(page(range(&state.entries, &list).map(|(_, entry)| entry), &list, state.revision));
        };
        if at > state.revision {
            return Err(StoreError::Future { asked: at, current: state.revision });
        }
        if at < state.oldest {
            return Err(StoreError::Compacted { asked: at, oldest: state.oldest });
        }
        let entries = state.past(&list, at);
        Ok(page(entries.values(), &list, at))
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        txn.check()?;
        let mut state = self.state()?;
        let (committed, commit) = state.apply(&txn);
        // Published under the lock, so that the feed sees commits in order.
        self.feed.publish(commit.into_iter().collect());
        Ok(committed)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        let state = self.state()?;
        if after > state.revision {
            return Err(StoreError::Future { asked: after, current: state.revision });
        }
        if after < state.oldest {
            return Err(StoreError::Compacted { asked: after, oldest: state.oldest });
        }
        Ok(feed::follow(NAME.to_owned(), Arc::clone(&self.feed), Arc::clone(&self.shared), prefix, after))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.state()?.revision)
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        let mut state = self.state()?;
        if before > state.revision {
            return Err(StoreError::Future { asked: before, current: state.revision });
        }
        while state.history.front().is_some_and(|past| past.commit.revision <= before) {
            state.forget_one();
        }
        state.oldest = state.oldest.max(before);
        Ok(())
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        let state = self.state()?;
        Ok(StoreStats {
            kind: "memory".to_owned(),
            revision: state.revision,
            oldest: state.oldest,
            keys: state.entries.len() as u64,
            bytes: state.entries.values().map(|entry| (entry.key.len() + entry.value.len()) as u64).sum(),
        })
    }

    async fn advance(&self, past: Revision) -> Result<bool, StoreError> {
        let mut state = self.state()?;
        if past > state.revision {
            state.history.clear();
            state.revision = past;
            state.oldest = past;
            self.feed.jump(past);
        }
        Ok(true)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.shared.lock().closed = true;
        self.feed.close("it was closed");
        Ok(())
    }
}

impl History for Shared {
    fn commits_after(&self, after: Revision) -> HistoryFuture<'_> {
        let state = self.lock();
        let answer = if after < state.oldest {
            Err(StoreError::Compacted { asked: after, oldest: state.oldest })
        } else {
            let start = state.history.partition_point(|past| past.commit.revision <= after);
            let commits = state.history.iter().skip(start).take(HISTORY_CHUNK);
            Ok(commits.map(|past| Arc::clone(&past.commit)).collect())
        };
        Box::pin(std::future::ready(answer))
    }
}
