//! Watches on hosts: every change that a caller sees, in order.
//!
//! Changes come from memory. A watch that resumes from before that ends with [`InventoryError::Gone`], and the caller
//! lists again.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use muster_model::{
    Duration,
    store::{Revision, StoreError},
};

use super::{Host, HostChange, HostFilter, Inventory, InventoryError, Shared};
use crate::registry::Change;

/// A quiet watch says this often how far it has come.
const BOOKMARK: Duration = Duration::from_secs(10);

/// What a watch delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostWatchItem {
    Object { change: Change, revision: Revision, text: Bytes },
    Bookmark { revision: Revision },
}

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
    pub async fn next(&mut self) -> Result<HostWatchItem, InventoryError> {
        loop {
            if let Some(host) = self.initial.pop_front() {
                let (revision, text) = (host.revision, host.text());
                return Ok(HostWatchItem::Object { change: Change::Added, revision, text });
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
                return Ok(HostWatchItem::Bookmark { revision: self.cursor });
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

    async fn wait(&mut self) -> Option<HostWatchItem> {
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
            () = self.shared.clock.sleep(BOOKMARK) => Some(HostWatchItem::Bookmark { revision: self.cursor }),
        }
    }

    /// What a change means to this caller, if anything.
    fn deliver(&self, told: &HostChange) -> Option<HostWatchItem> {
        let wanted = |host: &Option<Arc<Host>>| host.as_ref().is_some_and(|host| self.filter.wants(host));
        let change = match (wanted(&told.before), wanted(&told.after)) {
            (false, false) => return None,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        let text = told.after.as_ref().or(told.before.as_ref())?.text();
        Some(HostWatchItem::Object { change, revision: told.revision, text })
    }
}
