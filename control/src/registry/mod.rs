//! The registry: clusters, pools, what controllers report on them, and operations, over any [`Store`].
//!
//! Every change is one compare-and-set transaction. Lists are answered from an index in memory that is
//! fed by the store's watch; objects are read from the store, or from a small cache of rendered ones when
//! this process is the store's only writer. A write returns only after the index has seen it, so that
//! whoever wrote finds it in the next list.
//!
//! Who may do what is not decided here: callers pass what they may see.
//!
//! **Deletion.** A pool that no controller ever reported on is gone at once. Otherwise it stays with
//! `deleted_at` and phase Deleting: hidden from plain reads, shown to controllers, on watches and with
//! `include_deleted`. It is gone when every controller whose report's lease still runs has confirmed with
//! a condition `Deleted=True` (or `Available=False` with reason `Deleted`); a controller whose lease ran
//! out no longer holds it. Its name is free when it is gone.

mod cache;
mod decoded;
mod error;
mod events;
mod feed;
mod filter;
mod idempotency;
mod index;
pub mod keys;
mod labels;
mod light;
mod noun;
mod operations;
mod postings;
mod reports;
mod rollup;
mod table;
mod target;
mod timer;
mod watch;
mod write;

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use muster_model::{
    Clock, Duration,
    identity::Secrets,
    status::PoolRollup,
    store::{Entry, Revision, Store, StoreError},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use error::RegistryError;
pub use events::{Change, Event};
pub use filter::{FieldTest, Filter, LabelSelector, SelectorError};
pub use idempotency::{IdempotencyKey, MAX_KEY as MAX_IDEMPOTENCY_KEY};
pub use index::{Counts, Cursor, Found, Start, Summary};
pub use keys::Kind;
pub use labels::{Label, Labels};
pub use noun::{Cluster, NodePool, Noun, StatusRecord, Stored};
pub(crate) use noun::{Seen, inventory_pool};
pub(crate) use operations::decode as decode_operation;
pub use operations::{Operation, OperationState, Subject};
pub use reports::ObjectStatus;
pub(crate) use target::NODE_AGES;
pub use target::{CONNECTED, OwnReport, PoolWord, Said};
pub use watch::{Sight, Watch, WatchItem};
pub use write::{AuditNote, Deleted, Force, Guard, WriteContext, Written};

use crate::freeze::{self, Freeze};

use cache::{Cache, Rendered};
use decoded::Decoded;
use events::Ring;
use index::Index;

/// How long a write waits for the index to see it. The feed normally needs a millisecond; when it takes
/// this long the store's watch is in trouble, and the answer goes out without the promise.
const INDEX_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Objects of a page that are read from the store at once.
const PAGE_READS: usize = 16;

#[derive(Debug, Clone, Copy)]
pub struct RegistryOptions {
    /// No other process writes to the store, so that what the index knows is what there is.
    pub exclusive: bool,
    /// How long a report speaks for its controller when it does not say.
    pub default_lease: Duration,
}

/// Whether an object may have a stored status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusIs {
    Stored,
    Absent,
}

/// A stored object and its stored status.
type Pair = (Entry, Option<Entry>);

/// The use-cases. Cheap to clone through its `Arc`.
#[derive(Debug)]
pub struct Registry {
    shared: Arc<Shared>,
}

/// State that the feed, the timer and requests share.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    options: RegistryOptions,
    index: RwLock<Index>,
    ring: RwLock<Ring>,
    cache: Cache,
    decoded: Decoded,
    head: tokio::sync::watch::Sender<Revision>,
    live: AtomicBool,
    /// Tells those who wait for the feed that it follows the store.
    lively: tokio::sync::Notify,
    loaded: AtomicBool,
    /// What is known about the freeze, and how often that was set.
    freeze: tokio::sync::watch::Sender<(u64, Arc<Freeze>)>,
}

impl Shared {
    fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    fn set_live(&self, live: bool) {
        self.live.store(live, Ordering::Release);
        if live {
            self.lively.notify_waiters();
        }
    }

    fn revision(&self) -> Revision {
        self.index().revision
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of ours happened up to `revision`.
    fn advance(&self, revision: Revision) {
        let mut index = self.index_mut();
        index.revision = index.revision.max(revision);
    }

    /// A freshly loaded index takes the place of the old one; watches re-read history from the store.
    fn replace(&self, index: Index) {
        let revision = index.revision;
        *self.index_mut() = index;
        self.ring.write().unwrap_or_else(PoisonError::into_inner).restart(revision);
        self.loaded.store(true, Ordering::Release);
        self.head.send_replace(revision);
    }

    fn publish(&self, events: Vec<Arc<Event>>, revision: Revision) {
        if !events.is_empty() {
            let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
            for event in events {
                ring.push(event);
            }
        }
        self.head.send_if_modified(|head| {
            let moved = revision > *head;
            if moved {
                *head = revision;
            }
            moved
        });
    }

    async fn read<N: Noun>(&self, id: Uuid) -> Result<Option<Stored<N>>, RegistryError> {
        let pair = self.entries(N::KIND, &[(id, StatusIs::Stored)]).await?.pop().flatten();
        pair.map(|(object, status)| Stored::of(&object, status.as_ref())).transpose()
    }

    /// The same for our own loops, which read the same objects over and over: what did not change is not read again.
    async fn look<N: Noun>(&self, id: Uuid) -> Result<Option<Seen<N>>, RegistryError> {
        let pair = self.entries(N::KIND, &[(id, StatusIs::Stored)]).await?.pop().flatten();
        pair.map(|(object, status)| Seen::of(&object, status.as_ref(), &self.decoded)).transpose()
    }

    /// Objects as they are stored, in the order of the ids, with the statuses of those that have one.
    async fn entries(
        &self,
        kind: Kind,
        ids: &[(Uuid, StatusIs)],
    ) -> Result<Vec<Option<Pair>>, RegistryError> {
        let keys: Vec<String> = ids
            .iter()
            .flat_map(|(id, status)| {
                let status = (*status == StatusIs::Stored).then(|| kind.status(*id));
                std::iter::once(kind.object(*id)).chain(status)
            })
            .collect();
        let mut entries = self.store.get_all(&keys).await?.into_iter();
        let pairs = ids.iter().map(|(_, status)| {
            let object = entries.next().flatten();
            let status = if *status == StatusIs::Stored { entries.next().flatten() } else { None };
            object.map(|object| (object, status))
        });
        Ok(pairs.collect())
    }

    /// Waits until lists show `revision`.
    async fn caught_up(&self, revision: Revision) {
        let mut head = self.head.subscribe();
        let wait = tokio::time::timeout(INDEX_WAIT, head.wait_for(|head| *head >= revision));
        if !matches!(wait.await, Ok(Ok(_))) {
            tracing::warn!(%revision, "a write is not in the index yet; answering anyway");
        }
    }
}

impl Registry {
    /// Loads the index. [`Registry::run`] then keeps it in step.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: RegistryOptions,
    ) -> Result<Arc<Self>, StoreError> {
        let shared = Arc::new(Shared {
            store,
            clock,
            options,
            index: RwLock::default(),
            ring: RwLock::default(),
            cache: Cache::default(),
            decoded: Decoded::default(),
            head: tokio::sync::watch::Sender::new(Revision::ZERO),
            live: AtomicBool::new(false),
            lively: tokio::sync::Notify::new(),
            loaded: AtomicBool::new(false),
            freeze: tokio::sync::watch::Sender::default(),
        });
        feed::load(&shared).await?;
        let registry = Self { shared };
        registry.set_freeze(freeze::state(registry.store().as_ref()).await);
        Ok(Arc::new(registry))
    }

    /// Runs the feed and the timer until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(
            feed::run(Arc::clone(&self.shared), stop.clone()),
            timer::run(Arc::clone(&self.shared), stop)
        );
    }

    /// Whether no other process can write to the store while this one runs.
    pub fn is_exclusive(&self) -> bool {
        self.shared.options.exclusive
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The clock that it was opened with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Whether the feed follows the store now.
    pub fn is_live(&self) -> bool {
        self.shared.live.load(Ordering::Acquire)
    }

    /// Waits until the feed follows the store: only then lists are answered.
    pub async fn until_live(&self) {
        loop {
            // Asked for before looking, so that nothing is missed in between.
            let mut told = std::pin::pin!(self.shared.lively.notified());
            told.as_mut().enable();
            if self.is_live() {
                return;
            }
            told.await;
        }
    }

    /// Whether anything may act, as of a moment ago. [`freeze::state`] asks the store itself.
    pub fn freeze(&self) -> Arc<Freeze> {
        Arc::clone(&self.shared.freeze.borrow().1)
    }

    /// Hears of every freeze that begins, ends or is told otherwise.
    pub(crate) fn freezes(&self) -> tokio::sync::watch::Receiver<(u64, Arc<Freeze>)> {
        self.shared.freeze.subscribe()
    }

    pub fn set_freeze(&self, state: Freeze) {
        self.note_freeze(None, state);
    }

    /// Notes what is known now, unless it was set more often than `times` meanwhile. Only what is new is told.
    fn note_freeze(&self, times: Option<u64>, state: Freeze) {
        self.shared.freeze.send_if_modified(|known| {
            if times.is_some_and(|times| known.0 != times) {
                return false;
            }
            let news = *known.1 != state;
            *known = (known.0 + 1, Arc::new(state));
            news
        });
    }

    /// Asks the store about the freeze. What was set while it answered is newer than its answer, and stays.
    pub(crate) async fn look_at_freeze(&self) {
        let times = self.shared.freeze.borrow().0;
        let state = freeze::state(self.store().as_ref()).await;
        self.note_freeze(Some(times), state);
    }

    /// How far lists have come.
    pub fn revision(&self) -> Revision {
        self.shared.revision()
    }

    /// A page of a list. Fails when the index cannot be trusted to be recent.
    pub fn list(
        &self,
        kind: Kind,
        filter: &Filter,
        start: Start,
        limit: usize,
    ) -> Result<Found, RegistryError> {
        if !self.is_live() {
            return Err(RegistryError::Stalled);
        }
        Ok(self.shared.index().find(kind, filter, start, limit))
    }

    /// What the index knows of an object.
    pub fn summary(&self, kind: Kind, id: Uuid) -> Option<Arc<Summary>> {
        self.shared.index().get(kind, id).cloned()
    }

    /// A cluster's pools, counted.
    pub fn pools_of(&self, cluster: Uuid) -> PoolRollup {
        self.shared.index().rollup(cluster)
    }

    /// Calls `each` with every object of a kind, oldest first: for metrics.
    pub fn each(&self, kind: Kind, mut each: impl FnMut(&Summary)) {
        self.shared.index().table(kind).iter().for_each(|summary| each(summary));
    }

    /// The objects of a page as the API shows them, in its order. One that is gone by now is left out.
    pub async fn texts<N: Noun>(
        &self,
        page: &[Arc<Summary>],
        sight: impl Fn(&str) -> Secrets,
    ) -> Result<Vec<Bytes>, RegistryError> {
        let mut texts: Vec<Option<Bytes>> = Vec::with_capacity(page.len());
        let mut missing = Vec::new();
        for (place, known) in page.iter().enumerate() {
            let secrets = sight(&known.project);
            let cached = self.shared.cache.get((known.id, secrets), known.version, known.status_version);
            if cached.is_none() {
                // The list is as of its revision: who had no status then is shown without one.
                let none = known.status_version == Revision::ZERO;
                let status = if none { StatusIs::Absent } else { StatusIs::Stored };
                missing.push((place, secrets, (known.id, status)));
            }
            texts.push(cached);
        }
        for group in missing.chunks(PAGE_READS) {
            let ids: Vec<(Uuid, StatusIs)> = group.iter().map(|(_, _, id)| *id).collect();
            let pairs = self.shared.entries(N::KIND, &ids).await?;
            for ((place, secrets, (id, _)), pair) in group.iter().zip(pairs) {
                texts[*place] = pair.map(|pair| self.kept::<N>(*id, &pair, *secrets)).transpose()?;
            }
        }
        Ok(texts.into_iter().flatten().collect())
    }

    /// An object as the API shows it now. Nothing is kept: what was only tried must not be shown to others.
    pub fn render<N: Noun>(&self, stored: &Stored<N>, secrets: Secrets) -> Bytes {
        let pools = (N::KIND == Kind::Cluster).then(|| self.shared.index().rollup(stored.object.id()));
        Bytes::from(match pools {
            Some(pools) => stored.text_with(secrets, Some(pools)),
            None => stored.text(secrets),
        })
    }

    /// The same of an object as it was read from the store, kept for whoever asks next.
    fn kept<N: Noun>(&self, id: Uuid, pair: &Pair, secrets: Secrets) -> Result<Bytes, RegistryError> {
        let (object, status) = pair;
        let text = match N::short_text(object, status.as_ref(), secrets)? {
            Some(text) => Bytes::from(text),
            None => self.render(&Stored::<N>::of(object, status.as_ref())?, secrets),
        };
        // The pools of a cluster change without it, so its text is never kept.
        if N::KIND != Kind::Cluster {
            let status_version = status.as_ref().map_or(Revision::ZERO, |status| status.modified);
            let rendered = Rendered { version: object.modified, status_version, text: text.clone() };
            self.shared.cache.put((id, secrets), rendered);
        }
        Ok(text)
    }

    /// An object as the API shows it, with its resource version. `see` decides from project and deletion
    /// whether the caller sees it, and whether with secrets.
    pub async fn text<N: Noun>(
        &self,
        id: Uuid,
        see: impl Fn(&str, bool) -> Option<Secrets>,
    ) -> Result<(Bytes, Revision), RegistryError> {
        let missing = || RegistryError::NotFound { kind: N::KIND };
        if self.shared.options.exclusive && self.is_live() {
            let known = self.summary(N::KIND, id).ok_or_else(missing)?;
            let secrets = see(&known.project, known.deleting).ok_or_else(missing)?;
            if let Some(text) = self.shared.cache.get((id, secrets), known.version, known.status_version) {
                return Ok((text, known.version));
            }
        }
        let pair = self.shared.entries(N::KIND, &[(id, StatusIs::Stored)]).await?.pop().flatten();
        let pair = pair.ok_or_else(missing)?;
        let (project, deleting) = N::whereabouts(&pair.0)?;
        let secrets = see(&project, deleting).ok_or_else(missing)?;
        Ok((self.kept::<N>(id, &pair, secrets)?, pair.0.modified))
    }

    /// The object and its status, from the store.
    pub async fn read<N: Noun>(&self, id: Uuid) -> Result<Option<Stored<N>>, RegistryError> {
        self.shared.read(id).await
    }

    /// The value of a record beside those of the registry, for loops that look at the same ones all the time.
    pub(crate) fn known<T: serde::de::DeserializeOwned + Send + Sync + 'static>(
        &self,
        entry: &Entry,
    ) -> Result<Arc<T>, serde_json::Error> {
        self.shared.decoded.get(entry, |entry| serde_json::from_slice(&entry.value))
    }

    /// The same, for loops that look at the same objects all the time.
    pub(crate) async fn look<N: Noun>(&self, id: Uuid) -> Result<Option<Seen<N>>, RegistryError> {
        self.shared.look(id).await
    }
}
