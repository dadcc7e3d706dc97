//! The inventory: servers, racks, boot profiles and credentials, over any [`Store`].
//!
//! Specs are written here, by compare-and-set, together with what follows from them (the members of a pool).
//! Everything else about a host is written by others and only read here. Lists are answered from an index
//! that the store's watch feeds; a write returns after the index has seen it.
//!
//! **Foreign writes.** Tools may write specs and settings straight into the store. Whatever cannot be used is set
//! aside with a reason and harms nothing else: see [`Host::set_aside`]. Of two records that mean one machine the
//! older is used. Members are derived and restored; a pool's `config` is a request that is applied to the pool or
//! restored; each of these is an [`InventoryEvent`].
//!
//! **Writers.** Writes of one process go one after the other; those of several processes meet at
//! [`keys::GUARD`], so that no two of them claim one address at the same moment.

mod bulk;
mod change;
mod connections;
mod discover;
mod durations;
mod error;
mod events;
mod feed;
mod filter;
mod history;
mod host;
pub(crate) mod index;
pub mod keys;
mod named;
mod pool_status;
mod power;
mod settings;
mod upkeep;
mod vault;
mod watch;

use std::collections::BTreeSet;
use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, Ordering},
};

use muster_model::{
    Clock,
    host::GlobalStats,
    store::{Revision, Store, StoreError},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::registry::Registry;

pub use bulk::{LineReport, LineResult};
pub use change::{Act, HostDeleted, HostWritten};
pub(crate) use change::{forget_host, stored_changes, tell_end};
pub use connections::{Access, ConnectionMeta};
pub use discover::{Discovered, Prober, propose};
pub use durations::PhaseDuration;
pub use error::InventoryError;
pub use events::{HostChange, HostChanges, InventoryEvent, SpecChange};
pub use filter::{HostFilter, HostTest, Visible};
pub use history::HistoryEntry;
pub use host::{Host, Owner, SetAside, StoredSpec};
pub use index::Global;
pub use keys::NamedKind;
pub use named::{Named, NamedStored, NamedWritten};
pub use power::{ManualRequest, PowerOrder};
pub use settings::{SettingsError, set_settings};
pub use vault::{CredentialDraft, CredentialShown, DraftValue, Vault, VaultKey, VaultKeyError};
pub use watch::{HostWatch, RecordWatch, Show};

use events::Ring;
use index::Index;

/// How long a write waits for the index to see it.
const INDEX_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// The use-cases of the inventory.
#[derive(Debug)]
pub struct Inventory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    index: RwLock<Index>,
    ring: RwLock<Ring>,
    head: tokio::sync::watch::Sender<Revision>,
    live: AtomicBool,
    /// Writers of this process, one at a time: they would only refuse each other.
    writer: tokio::sync::Mutex<()>,
    /// Operations on hosts that are not over.
    power: std::sync::Mutex<BTreeSet<Uuid>>,
    /// Something changed that the upkeep may have to follow.
    dirty: tokio::sync::Notify,
}

impl Shared {
    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring_mut(&self) -> RwLockWriteGuard<'_, Ring> {
        self.ring.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_power(&self) -> std::sync::MutexGuard<'_, BTreeSet<Uuid>> {
        self.power.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raise(&self, revision: Revision) {
        self.head.send_if_modified(|head| {
            let moved = revision > *head;
            if moved {
                *head = revision;
            }
            moved
        });
    }

    /// Waits until lists show `revision`; `false` when that takes too long.
    async fn caught_up(&self, revision: Revision) -> bool {
        let mut head = self.head.subscribe();
        let wait = tokio::time::timeout(INDEX_WAIT, head.wait_for(|head| *head >= revision));
        let reached = matches!(wait.await, Ok(Ok(_)));
        if !reached {
            tracing::warn!(%revision, "a write is not in the inventory's index yet; going on anyway");
        }
        reached
    }
}

impl Inventory {
    /// Loads the index. [`Inventory::run`] then keeps it in step.
    pub async fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StoreError> {
        let shared = Arc::new(Shared {
            store,
            clock,
            index: RwLock::default(),
            ring: RwLock::default(),
            head: tokio::sync::watch::Sender::new(Revision::ZERO),
            live: AtomicBool::new(false),
            writer: tokio::sync::Mutex::new(()),
            power: std::sync::Mutex::default(),
            dirty: tokio::sync::Notify::new(),
        });
        feed::load(&shared).await?;
        // As fresh as it can be; the watch goes on from there.
        shared.live.store(true, Ordering::Release);
        Ok(Arc::new(Self { shared }))
    }

    /// Follows the store and looks after what is derived, until `stop`.
    pub async fn run(&self, registry: Arc<Registry>, stop: CancellationToken) {
        tokio::join!(
            feed::run(Arc::clone(&self.shared), stop.clone()),
            upkeep::run(Self { shared: Arc::clone(&self.shared) }, registry, stop)
        );
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Whether the feed follows the store now.
    pub fn is_live(&self) -> bool {
        self.shared.live.load(Ordering::Acquire)
    }

    /// How far lists have come.
    pub fn revision(&self) -> Revision {
        self.shared.index().revision
    }

    /// One host as the index knows it.
    pub fn host(&self, name: &str) -> Option<Arc<Host>> {
        self.shared.index().get(name).cloned()
    }

    /// All hosts that `filter` wants, in the order of their names.
    pub fn hosts(&self, filter: &HostFilter) -> Result<Vec<Arc<Host>>, InventoryError> {
        if !self.is_live() {
            return Err(InventoryError::Stalled);
        }
        Ok(self.shared.index().hosts.values().filter(|host| filter.wants(host)).cloned().collect())
    }

    /// Calls `each` with every host: for metrics.
    pub fn each(&self, mut each: impl FnMut(&Host)) {
        self.shared.index().hosts.values().for_each(|host| each(host));
    }

    /// The settings that are in force for all hosts.
    pub fn global(&self) -> Global {
        self.shared.index().global.clone()
    }

    /// The last figures about all hosts.
    pub fn stats(&self) -> Option<GlobalStats> {
        self.shared.index().stats.clone()
    }
}

pub(crate) fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("stored records have text keys and finite numbers only")
}
