//! Watches on hosts, and on the small records beside them: every change that a caller sees, in order.
//!
//! Changes come from memory. A watch that resumes from before that ends with [`InventoryError::Gone`], and the caller
//! lists again.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use bytes::Bytes;
use futures::StreamExt;
use muster_model::{
    Duration,
    store::{Entry, List, Revision, StoreError, WatchEvent, WatchStream},
};

use super::{Host, HostChange, HostFilter, Inventory, InventoryError, Shared};
use crate::registry::{Change, WatchItem};

/// A quiet watch says this often how far it has come.
const BOOKMARK: Duration = Duration::from_secs(10);

/// One watch. Dropping it ends it.
#[derive(Debug)]
pub struct HostWatch {
    shared: Arc<Shared>,
    filter: HostFilter,
    cursor: Revision,
    initial: VecDeque<Arc<Host>>,
    pending: VecDeque<Arc<HostChange>>,
    announce: bool,
}

impl Inventory {
    /// Watches what `filter` wants, after `from`; without it, everything as it is now and then on.
    pub async fn watch(
        &self,
        filter: HostFilter,
        from: Option<Revision>,
    ) -> Result<HostWatch, InventoryError> {
        if !self.is_live() {
            return Err(InventoryError::Stalled);
        }
        let mut watch = HostWatch {
            shared: Arc::clone(&self.shared),
            filter,
            cursor: Revision::ZERO,
            initial: VecDeque::new(),
            pending: VecDeque::new(),
            announce: from.is_none(),
        };
        match from {
            None => {
                let index = self.shared.index();
                watch.cursor = index.revision;
                watch.initial =
                    index.hosts.values().filter(|host| watch.filter.wants(host)).cloned().collect();
            }
            Some(from) => {
                if from > self.revision() {
                    let current = self.shared.store.revision().await?;
                    if from > current {
                        return Err(StoreError::Future { asked: from, current }.into());
                    }
                }
                watch.cursor = from;
                if self.shared.ring().after(from).is_none() {
                    return Err(InventoryError::Gone { asked: from });
                }
            }
        }
        Ok(watch)
    }
}

impl HostWatch {
    /// The next thing to tell the caller. Safe to cancel.
    pub async fn next(&mut self) -> Result<WatchItem, InventoryError> {
        loop {
            if let Some(host) = self.initial.pop_front() {
                let (revision, text) = (host.revision, host.text());
                return Ok(WatchItem::Object { change: Change::Added, revision, text });
            }
            while let Some(change) = self.pending.pop_front() {
                if self.pending.front().is_none_or(|next| next.revision > change.revision) {
                    self.cursor = self.cursor.max(change.revision);
                }
                if let Some(item) = self.deliver(&change) {
                    return Ok(item);
                }
            }
            if self.announce {
                self.announce = false;
                return Ok(WatchItem::Bookmark { revision: self.cursor });
            }
            let changes = self.shared.ring().after(self.cursor);
            match changes {
                None => return Err(InventoryError::Gone { asked: self.cursor }),
                Some(changes) if changes.is_empty() => {
                    if let Some(bookmark) = self.wait().await {
                        return Ok(bookmark);
                    }
                }
                Some(changes) => self.pending.extend(changes),
            }
        }
    }

    async fn wait(&mut self) -> Option<WatchItem> {
        let mut head = self.shared.head.subscribe();
        let cursor = self.cursor;
        tokio::select! {
            reached = head.wait_for(|head| *head > cursor) => {
                let Ok(reached) = reached.map(|head| *head) else { return None };
                // Nothing of this commit may concern a host: then the cursor simply moves on.
                if self.shared.ring().after(cursor).is_some_and(|changes| changes.is_empty()) {
                    self.cursor = reached;
                }
                None
            }
            () = self.shared.clock.sleep(BOOKMARK) => Some(WatchItem::Bookmark { revision: self.cursor }),
        }
    }

    /// What a change means to this caller, if anything.
    fn deliver(&self, told: &HostChange) -> Option<WatchItem> {
        let wanted = |host: &Option<Arc<Host>>| host.as_ref().is_some_and(|host| self.filter.wants(host));
        let change = match (wanted(&told.before), wanted(&told.after)) {
            (false, false) => return None,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        let text = told.after.as_ref().or(told.before.as_ref())?.text();
        Some(WatchItem::Object { change, revision: told.revision, text })
    }
}

/// How a record is shown to a caller; `None` for what the caller does not see.
pub type Show = Box<dyn Fn(&Entry) -> Option<Bytes> + Send + Sync>;

/// A watch on records under one prefix, straight from the store: racks, boot profiles, credentials.
pub struct RecordWatch {
    shared: Arc<Shared>,
    show: Show,
    /// What the caller was shown last, by key.
    known: BTreeMap<String, Bytes>,
    pending: VecDeque<WatchItem>,
    changes: WatchStream,
    cursor: Revision,
}

impl fmt::Debug for RecordWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordWatch").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Inventory {
    /// Watches records after `from`; without it, all of them as they are now and then on.
    pub async fn watch_records(
        &self,
        prefix: &str,
        from: Option<Revision>,
        show: Show,
    ) -> Result<RecordWatch, InventoryError> {
        let (mut known, mut pending) = (BTreeMap::new(), VecDeque::new());
        let gone = |error: StoreError| match (error, from) {
            (StoreError::Compacted { .. }, Some(asked)) => InventoryError::Gone { asked },
            (error, _) => error.into(),
        };
        let take = |entry: Entry| {
            let Some(text) = show(&entry) else { return };
            if from.is_none() {
                let (change, revision, text) = (Change::Added, entry.modified, text.clone());
                pending.push_back(WatchItem::Object { change, revision, text });
            }
            known.insert(entry.key, text);
        };
        let list = List { at: from, ..List::prefix(prefix) };
        let cursor = list.each(&*self.shared.store, take).await.map_err(gone)?;
        if from.is_none() {
            pending.push_back(WatchItem::Bookmark { revision: cursor });
        }
        let changes = self.shared.store.watch(prefix, cursor).await.map_err(gone)?;
        Ok(RecordWatch { shared: Arc::clone(&self.shared), show, known, pending, changes, cursor })
    }
}

impl RecordWatch {
    /// The next thing to tell the caller. Safe to cancel.
    pub async fn next(&mut self) -> Result<WatchItem, InventoryError> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Ok(item);
            }
            let event = tokio::select! {
                event = self.changes.next() => event,
                () = self.shared.clock.sleep(BOOKMARK) => {
                    return Ok(WatchItem::Bookmark { revision: self.cursor });
                }
            };
            match event {
                None => return Err(InventoryError::Stalled),
                Some(Err(StoreError::Compacted { .. })) => {
                    return Err(InventoryError::Gone { asked: self.cursor });
                }
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(WatchEvent::Progress(revision))) => self.cursor = self.cursor.max(revision),
                Some(Ok(WatchEvent::Changes(changes))) => {
                    for change in changes {
                        self.cursor = self.cursor.max(change.revision);
                        self.take(&change.key, change.entry.as_ref(), change.revision);
                    }
                }
            }
        }
    }

    fn take(&mut self, key: &str, entry: Option<&Entry>, revision: Revision) {
        let before = self.known.remove(key);
        let after = entry.and_then(|entry| (self.show)(entry));
        if let Some(text) = &after {
            self.known.insert(key.to_owned(), text.clone());
        }
        let change = match (&before, &after) {
            (None, None) => return,
            (None, Some(_)) => Change::Added,
            (Some(_), Some(_)) => Change::Modified,
            (Some(_), None) => Change::Deleted,
        };
        if let Some(text) = after.or(before) {
            self.pending.push_back(WatchItem::Object { change, revision, text });
        }
    }
}
