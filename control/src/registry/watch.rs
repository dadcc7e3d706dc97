//! Watches: every change of the objects that a caller sees, in order, from a revision on.
//!
//! Recent changes come from memory. A watch that resumes from before that reads the store's own history,
//! which survives restarts: what was committed is delivered even if the process died before anyone heard
//! of it. When the history is gone too, the watch ends and the caller lists again.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::{Arc, PoisonError},
};

use bytes::Bytes;
use futures::StreamExt;
use muster_model::{
    Duration,
    identity::Secrets,
    store::{self, List, Revision, StoreError, WatchEvent, WatchStream},
};
use uuid::Uuid;

use super::{
    Registry, RegistryError, Shared,
    events::{Change, Event},
    filter::Filter,
    index::{Index, Summary},
    keys::{self, Kind, Place},
    light::{self, LightStatus},
    noun::{Cluster, NodePool, Noun, Stored},
};

/// A quiet watch says this often how far it has come, so that a client can resume from there.
const BOOKMARK: Duration = Duration::from_secs(10);
/// Events taken from memory at once.
const BATCH: usize = 256;

/// How much of an object's secrets the caller sees, by project.
pub type Sight = Box<dyn Fn(&str) -> Secrets + Send + Sync>;

/// What a watch delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchItem {
    Object {
        change: Change,
        revision: Revision,
        text: Bytes,
    },
    /// Everything up to here was delivered.
    Bookmark {
        revision: Revision,
    },
}

/// One watch. Dropping it ends it.
pub struct Watch {
    shared: Arc<Shared>,
    kind: Kind,
    filter: Filter,
    sight: Sight,
    /// Everything up to here was delivered or does not concern the caller.
    cursor: Revision,
    /// Objects that are still to be delivered as they were at the beginning.
    initial: VecDeque<Arc<Summary>>,
    pending: VecDeque<Arc<Event>>,
    history: Option<WatchStream>,
    /// The beginning was delivered, but the caller was not told so yet.
    announce: bool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("kind", &self.kind)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Watches what `filter` wants, after `from`; without it, everything as it is now and then on.
    pub async fn watch(
        &self,
        kind: Kind,
        mut filter: Filter,
        from: Option<Revision>,
        sight: Sight,
    ) -> Result<Watch, RegistryError> {
        // Objects that are being torn down are part of every watch.
        filter.include_deleted = true;
        let mut watch = Watch {
            shared: Arc::clone(&self.shared),
            kind,
            filter,
            sight,
            cursor: Revision::ZERO,
            initial: VecDeque::new(),
            pending: VecDeque::new(),
            history: None,
            announce: from.is_none(),
        };
        if let Some(from) = from {
            watch.cursor = from;
            if from > self.revision() {
                watch.check_future(from).await?;
            }
            watch.open_history_if_needed().await?;
            return Ok(watch);
        }
        if !self.is_live() {
            return Err(RegistryError::Stalled);
        }
        {
            let index = self.shared.index();
            watch.cursor = index.revision;
            watch.initial =
                index.table(kind).iter().filter(|summary| watch.filter.wants(summary)).cloned().collect();
        }
        Ok(watch)
    }
}

impl Watch {
    /// The next thing to tell the caller. Safe to cancel.
    pub async fn next(&mut self) -> Result<WatchItem, RegistryError> {
        loop {
            if let Some(item) = self.next_initial().await? {
                return Ok(item);
            }
            if let Some(item) = self.next_pending().await? {
                return Ok(item);
            }
            if self.announce {
                self.announce = false;
                return Ok(WatchItem::Bookmark { revision: self.cursor });
            }
            if self.history.is_some() {
                if let Some(item) = self.read_history().await? {
                    return Ok(item);
                }
                continue;
            }
            let events =
                self.shared.ring.read().unwrap_or_else(PoisonError::into_inner).after(self.cursor, BATCH);
            match events {
                None => self.open_history_if_needed().await?,
                Some(events) if events.is_empty() => {
                    if let Some(bookmark) = self.wait().await {
                        return Ok(bookmark);
                    }
                }
                Some(events) => self.pending.extend(events),
            }
        }
    }

    /// Waits until there is something after the cursor; after a quiet time, a bookmark.
    async fn wait(&mut self) -> Option<WatchItem> {
        let mut head = self.shared.head.subscribe();
        let cursor = self.cursor;
        tokio::select! {
            reached = head.wait_for(|head| *head > cursor) => {
                let Ok(reached) = reached.map(|head| *head) else { return None };
                // Nothing of this commit may be in the ring: then the cursor simply moves on.
                let ring = self.shared.ring.read().unwrap_or_else(PoisonError::into_inner);
                if ring.after(cursor, 1).is_some_and(|events| events.is_empty()) {
                    self.cursor = reached;
                }
                None
            }
            () = self.shared.clock.sleep(BOOKMARK) => Some(WatchItem::Bookmark { revision: self.cursor }),
        }
    }

    async fn next_initial(&mut self) -> Result<Option<WatchItem>, RegistryError> {
        while let Some(summary) = self.initial.front().cloned() {
            let secrets = (self.sight)(&summary.project);
            let text = self.shared.text_at(self.kind, summary.id, self.cursor, secrets).await?;
            self.initial.pop_front();
            if let Some(text) = text {
                let revision = summary.version.max(summary.status_version);
                return Ok(Some(WatchItem::Object { change: Change::Added, revision, text }));
            }
        }
        Ok(None)
    }

    async fn next_pending(&mut self) -> Result<Option<WatchItem>, RegistryError> {
        while let Some(event) = self.pending.front().cloned() {
            let item = self.deliver(&event).await?;
            self.pending.pop_front();
            // The cursor moves past a commit only when all of its events were looked at.
            if self.pending.front().is_none_or(|next| next.revision > event.revision) {
                self.cursor = self.cursor.max(event.revision);
            }
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
    }

    /// What an event means to this caller, if anything.
    async fn deliver(&mut self, event: &Event) -> Result<Option<WatchItem>, RegistryError> {
        if event.kind != self.kind {
            return Ok(None);
        }
        let wanted = |summary: &Option<Arc<Summary>>| summary.as_ref().is_some_and(|s| self.filter.wants(s));
        let change = match (wanted(&event.before), wanted(&event.after)) {
            (false, false) => return Ok(None),
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        let shown = event.after.as_ref().or(event.before.as_ref());
        let secrets = shown.map_or(Secrets::Hidden, |summary| (self.sight)(&summary.project));
        let text = event.text(&self.shared, secrets).await?;
        Ok(text.map(|text| WatchItem::Object { change, revision: event.revision, text }))
    }

    async fn check_future(&mut self, from: Revision) -> Result<(), RegistryError> {
        let current = self.shared.store.revision().await?;
        if from > current {
            return Err(RegistryError::Store(StoreError::Future { asked: from, current }));
        }
        Ok(())
    }

    /// Turns to the store's history when memory does not reach back to the cursor.
    async fn open_history_if_needed(&mut self) -> Result<(), RegistryError> {
        let start = self.shared.ring.read().unwrap_or_else(PoisonError::into_inner).start();
        if self.cursor >= start {
            return Ok(());
        }
        let stream =
            self.shared.store.watch(keys::ROOT, self.cursor).await.map_err(|error| self.gone(error))?;
        self.history = Some(stream);
        Ok(())
    }

    fn gone(&self, error: StoreError) -> RegistryError {
        match error {
            StoreError::Compacted { .. } => RegistryError::Gone { asked: self.cursor },
            other => RegistryError::Store(other),
        }
    }

    /// Reads on in the store's history, and goes back to memory once that reaches far enough.
    async fn read_history(&mut self) -> Result<Option<WatchItem>, RegistryError> {
        let Some(stream) = &mut self.history else { return Ok(None) };
        let event = tokio::select! {
            event = stream.next() => event,
            () = self.shared.clock.sleep(BOOKMARK) => {
                return Ok(Some(WatchItem::Bookmark { revision: self.cursor }));
            }
        };
        let reached = match event {
            None => {
                self.history = None;
                return Ok(None);
            }
            Some(Err(error)) => return Err(self.gone(error)),
            Some(Ok(WatchEvent::Progress(revision))) => revision,
            Some(Ok(WatchEvent::Changes(changes))) => {
                let Some(revision) = changes.first().map(|change| change.revision) else { return Ok(None) };
                let events = self.past_events(&changes, revision).await?;
                self.pending.extend(events);
                revision
            }
        };
        if self.pending.is_empty() {
            self.cursor = self.cursor.max(reached);
        }
        if reached >= self.shared.ring.read().unwrap_or_else(PoisonError::into_inner).start() {
            self.history = None;
        }
        Ok(None)
    }

    /// Events of a commit of the past, with the objects as they were before and after it.
    async fn past_events(
        &mut self,
        changes: &[store::Change],
        revision: Revision,
    ) -> Result<Vec<Arc<Event>>, RegistryError> {
        let touched: BTreeSet<Uuid> = changes
            .iter()
            .filter_map(|change| match keys::place(&change.key)? {
                Place::Object(kind, id) | Place::Status(kind, id) if kind == self.kind => Some(id),
                _ => None,
            })
            .collect();
        let mut events = Vec::new();
        for id in touched {
            let before = self.shared.summary_at(self.kind, id, Revision(revision.0.saturating_sub(1))).await;
            let before = match before {
                // The commit is the oldest that is left: what was before it is gone, which is no loss.
                Err(RegistryError::Store(StoreError::Compacted { .. })) => None,
                other => other?,
            };
            let after = self.shared.summary_at(self.kind, id, revision).await?;
            if before.is_some() || after.is_some() {
                events.push(Arc::new(Event::new(revision, self.kind, id, before, after)));
            }
        }
        Ok(events)
    }
}

impl Event {
    /// The object as it was at this event (before it, when it was deleted), made once for all who ask.
    async fn text(&self, shared: &Shared, secrets: Secrets) -> Result<Option<Bytes>, RegistryError> {
        let place = match secrets {
            Secrets::Hidden => 0,
            Secrets::Writer => 1,
            Secrets::All => 2,
        };
        let at = match self.change {
            Change::Deleted => Revision(self.revision.0.saturating_sub(1)),
            Change::Added | Change::Modified => self.revision,
        };
        self.texts[place].get_or_try_init(|| shared.text_at(self.kind, self.id, at, secrets)).await.cloned()
    }
}

impl Shared {
    /// The object's text as it was at a revision; as it is now when that part of history is gone.
    async fn text_at(
        &self,
        kind: Kind,
        id: Uuid,
        at: Revision,
        secrets: Secrets,
    ) -> Result<Option<Bytes>, RegistryError> {
        match kind {
            Kind::Cluster => self.text_of::<Cluster>(id, at, secrets).await,
            Kind::Pool => self.text_of::<NodePool>(id, at, secrets).await,
            // An operation is shown as it is stored, and holds no secrets.
            Kind::Operation => match self.entries_at(kind, id, at).await {
                Ok((object, _)) => Ok(object.map(|entry| entry.value)),
                Err(StoreError::Compacted { .. }) => {
                    Ok(self.store.get(&kind.object(id)).await?.map(|entry| entry.value))
                }
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn text_of<N: Noun>(
        &self,
        id: Uuid,
        at: Revision,
        secrets: Secrets,
    ) -> Result<Option<Bytes>, RegistryError> {
        let stored = match self.entries_at(N::KIND, id, at).await {
            Ok((object, status)) => {
                object.map(|object| Stored::<N>::of(&object, status.as_ref())).transpose()?
            }
            Err(StoreError::Compacted { .. }) => self.read::<N>(id).await?,
            Err(error) => return Err(error.into()),
        };
        Ok(stored.map(|stored| Bytes::from(stored.text(secrets))))
    }

    async fn entries_at(
        &self,
        kind: Kind,
        id: Uuid,
        at: Revision,
    ) -> Result<(Option<store::Entry>, Option<store::Entry>), StoreError> {
        let one = |prefix: String| async move {
            let list = List { limit: 1, at: Some(at), ..List::prefix(prefix) };
            Ok::<_, StoreError>(self.store.list(list).await?.entries.into_iter().next())
        };
        futures::future::try_join(one(kind.object(id)), one(kind.status(id))).await
    }

    async fn summary_at(
        &self,
        kind: Kind,
        id: Uuid,
        at: Revision,
    ) -> Result<Option<Arc<Summary>>, RegistryError> {
        let (object, status) = self.entries_at(kind, id, at).await?;
        let Some(object) = object else { return Ok(None) };
        let read = light::summary(kind, &object.value, object.modified, &mut Index::default());
        let Ok(mut summary) = read else { return Ok(None) };
        if let Some(status) = status
            && let Ok(light) = serde_json::from_slice::<LightStatus>(&status.value)
        {
            light.merge(&mut summary, status.modified);
        }
        Ok(Some(Arc::new(summary)))
    }
}
