//! The port to the store: ordered keys, transactions, watches, and a leader's fence.
//!
//! The store is the only truth of Muster. It is small on purpose: everything that an implementation
//! must get right is in [`Store`], and one conformance suite judges all of them.
//!
//! * A key is a path of UTF-8 text (`/muster/pools/…`); keys are ordered by their bytes.
//! * Every successful [`Store::commit`] that changes something has a [`Revision`] of its own, larger
//!   than all before it. Revisions are never reused, not even after a crash or a restore.
//! * A commit compares and writes atomically: all of it happens, or nothing does.
//! * A watch delivers every change after a revision exactly once and in order, or ends with
//!   [`StoreError::Compacted`]; then the caller lists again and watches from that list's revision.

use std::{fmt, pin::Pin};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A point in the store's history. Zero is before everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One key with its value, as it stood at some revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Bytes,
    /// The commit that created the key, since it was last absent.
    pub created: Revision,
    /// The last commit that wrote the key.
    pub modified: Revision,
}

/// A question for a run of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// Only keys that start with this text.
    pub prefix: String,
    /// Only keys strictly after this one: the last key of the page before.
    pub after: Option<String>,
    /// At most this many entries; zero means as many as the implementation serves at once.
    pub limit: usize,
    /// The past to read at, so that all pages show one moment. `None` reads the present.
    pub at: Option<Revision>,
    /// Leave the values out ([`Entry::value`] is empty): for counting and for indexes.
    pub keys_only: bool,
}

impl List {
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }
}

/// An answer to [`List`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// The moment that the page shows; ask for the next page with `at` set to it.
    pub revision: Revision,
    /// Whether keys follow after the last entry.
    pub more: bool,
}

/// What must hold for a commit to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    pub key: String,
    pub expect: Expect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists, whatever its value.
    Present,
    /// The key exists and was last written by exactly this commit.
    Modified(Revision),
}

/// What a commit does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Put {
        key: String,
        value: Bytes,
    },
    /// Deleting a key that is absent is no change and no error.
    Delete {
        key: String,
    },
}

/// Compare-and-set operations that happen together.
///
/// No key is written twice in one transaction. At most [`MAX_TXN_OPS`] comparisons and writes together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "a transaction does nothing until it is committed"]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub writes: Vec<Write>,
}

/// etcd refuses more than 128 operations by default; the other stores keep to the same bound so that
/// what works on one works on all.
pub const MAX_TXN_OPS: usize = 120;
/// etcd refuses requests over 1.5 MiB by default; the rest is left for keys and framing.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
/// Total of keys and values in one transaction, for the same reason.
pub const MAX_TXN_BYTES: usize = (1 << 20) + (1 << 18);
/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

impl Txn {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn expect(mut self, key: impl Into<String>, expect: Expect) -> Self {
        self.compares.push(Compare { key: key.into(), expect });
        self
    }

    /// Refuses the commit unless the leader that `fence` was handed to still leads.
    pub fn fenced(self, fence: &Fence) -> Self {
        self.expect(fence.key.clone(), Expect::Modified(fence.epoch))
    }

    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.writes.push(Write::Put { key: key.into(), value: value.into() });
        self
    }

    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.writes.push(Write::Delete { key: key.into() });
        self
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a refused commit has changed nothing"]
pub enum Committed {
    /// It happened. `revision` is its own if it changed something, else the store's present one.
    Done { revision: Revision },
    /// A comparison did not hold and nothing changed. `failed` is the first that did not hold (an index
    /// into [`Txn::compares`]), `found` the entry as it is now.
    Refused { failed: usize, found: Option<Entry> },
}

/// One change, as a watch delivers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub revision: Revision,
    pub key: String,
    /// The new entry, or `None` when the key was deleted.
    pub entry: Option<Entry>,
}

/// What a watch says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// All changes of one commit under the prefix, in the order of their keys.
    Changes(Vec<Change>),
    /// Nothing else happened up to this revision: a place to resume from.
    Progress(Revision),
}

pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchEvent, StoreError>> + Send>>;

/// Proof of leadership that guarded writes carry.
///
/// The epoch is the revision at which the leader took `key`. The key is rewritten only when leadership
/// changes hands, so that a write compared with it is refused as soon as someone else leads, no matter
/// what the old leader believes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    pub key: String,
    pub epoch: Revision,
}

#[derive(Debug, Error)]
pub enum StoreError {
    /// History before `oldest` is gone. List again and watch from that list's revision.
    #[error("the store's history before revision {oldest} is gone, and {asked} was asked for")]
    Compacted { asked: Revision, oldest: Revision },
    /// A revision that the store has not reached: it was restored, or another store answers.
    #[error("revision {asked} is ahead of the store, which is at {current}; was it restored from a backup?")]
    Future { asked: Revision, current: Revision },
    /// Nothing was changed, and the same call may succeed later.
    #[error("the store {store} does not answer: {why}")]
    Unavailable { store: String, why: String },
    /// The call may or may not have been carried out, and reading could not settle it.
    #[error("the store {store} did not say whether a write was carried out: {why}")]
    Ambiguous { store: String, why: String },
    /// The store's data cannot be trusted.
    #[error("the store {store} is damaged: {why}")]
    Damaged { store: String, why: String },
    /// The medium refuses: full, read-only, gone.
    #[error("the store {store} cannot write: {why}")]
    Full { store: String, why: String },
    /// Another process holds the store.
    #[error("the store {store} is in use by {holder}")]
    Locked { store: String, holder: String },
    /// Refused by access control.
    #[error("the store {store} denies access: {why}")]
    Denied { store: String, why: String },
    /// The caller broke a bound or rule of this port.
    #[error("a request to the store is not valid: {why}")]
    Invalid { why: String },
    /// Written by a newer version.
    #[error(
        "the store {store} has format {found}, and this version reads up to {newest}; use a newer Muster"
    )]
    Format { store: String, found: u32, newest: u32 },
}

impl StoreError {
    /// Stable name for metrics, API answers and documentation.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Compacted { .. } => "STORE_COMPACTED",
            Self::Future { .. } => "STORE_FUTURE_REVISION",
            Self::Unavailable { .. } => "STORE_UNAVAILABLE",
            Self::Ambiguous { .. } => "STORE_AMBIGUOUS",
            Self::Damaged { .. } => "STORE_DAMAGED",
            Self::Full { .. } => "STORE_FULL",
            Self::Locked { .. } => "STORE_LOCKED",
            Self::Denied { .. } => "STORE_DENIED",
            Self::Invalid { .. } => "STORE_INVALID_REQUEST",
            Self::Format { .. } => "STORE_FORMAT",
        }
    }
}

/// Numbers about a store, for `muster store stats` and for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStats {
    pub kind: String,
    pub revision: Revision,
    /// Oldest revision that can still be listed at and watched from.
    pub oldest: Revision,
    pub keys: u64,
    /// Bytes on disk, as far as the store can tell.
    pub bytes: u64,
}

/// Ordered keys with transactions and watches. See the module for what holds for all implementations.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// The entry at `key` now. Linearizable: it sees every commit that was acknowledged before the call.
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// A run of keys, at one revision. Linearizable when [`List::at`] is `None`.
    async fn list(&self, list: List) -> Result<Page, StoreError>;

    /// Compares and writes atomically, and returns once the outcome is durable.
    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError>;

    /// Every change under `prefix` after `after`, as a stream that goes on until it is dropped or fails.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError>;

    /// The present revision, linearizable.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// Forgets history before `before`. Present values stay. Asking again is harmless.
    async fn compact(&self, before: Revision) -> Result<(), StoreError>;

    async fn stats(&self) -> Result<StoreStats, StoreError>;
}
