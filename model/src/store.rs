//! The port to the store: ordered keys, transactions, watches, and a leader's fence.
//!
//! The store is the only truth of Muster. It is small on purpose: everything that an implementation
//! must get right is in [`Store`], and one conformance suite judges all of them.
//!
//! * A key is a path of UTF-8 text that starts with a slash (`/muster/pools/…`); keys are ordered by their
//!   bytes. Keys under [`RESERVED`] belong to the implementations.
//! * Every successful [`Store::commit`] that changes something has a [`Revision`] of its own, larger
//!   than all before it. Revisions are never reused, not even after a crash or a restore.
//! * A commit compares and writes atomically: all of it happens, or nothing does. One that changes nothing
//!   (no writes, or only deletes of absent keys) has no revision of its own.
//! * A put is a change even when the value stays the same.
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

    /// Hands over every entry, read page by page at one revision, and returns that.
    pub async fn each(
        mut self,
        store: &dyn Store,
        mut take: impl FnMut(Entry) + Send,
    ) -> Result<Revision, StoreError> {
        loop {
            let page = store.list(self.clone()).await?;
            self.at = Some(page.revision);
            self.after = page.entries.last().map(|entry| entry.key.clone());
            page.entries.into_iter().for_each(&mut take);
            if !page.more || self.after.is_none() {
                return Ok(page.revision);
            }
        }
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

impl Expect {
    /// Whether the expectation holds for what is stored at its key.
    pub fn holds(self, found: Option<&Entry>) -> bool {
        match self {
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::Modified(revision) => found.is_some_and(|entry| entry.modified == revision),
        }
    }
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

impl Write {
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
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
/// Keys under this prefix are an implementation's own bookkeeping: nobody else sees or writes them.
pub const RESERVED: &str = "/muster/~";

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

    /// Refuses what no store may accept. Every implementation asks this before anything else, so that what
    /// one store takes all stores take.
    pub fn check(&self) -> Result<(), StoreError> {
        let ops = self.compares.len() + self.writes.len();
        if ops > MAX_TXN_OPS {
            return Err(invalid(format!(
                "the transaction has {ops} comparisons and writes, and {MAX_TXN_OPS} are allowed; split it"
            )));
        }
        let mut bytes = 0_usize;
        for compare in &self.compares {
            check_key(&compare.key)?;
            bytes = bytes.saturating_add(compare.key.len());
        }
        let mut written = std::collections::BTreeSet::new();
        for write in &self.writes {
            check_key(write.key())?;
            if !written.insert(write.key()) {
                return Err(invalid(format!("key {:?} is written twice in one transaction", write.key())));
            }
            bytes = bytes.saturating_add(write.key().len());
            if let Write::Put { key, value } = write {
                if value.len() > MAX_VALUE_BYTES {
                    return Err(invalid(format!(
                        "the value for key {key:?} has {} bytes, and {MAX_VALUE_BYTES} are allowed",
                        value.len()
                    )));
                }
                bytes = bytes.saturating_add(value.len());
            }
        }
        if bytes > MAX_TXN_BYTES {
            return Err(invalid(format!(
                "the transaction's keys and values have {bytes} bytes, and {MAX_TXN_BYTES} are allowed; split it"
            )));
        }
        Ok(())
    }
}

fn invalid(why: String) -> StoreError {
    StoreError::Invalid { why }
}

/// Refuses a key that no store may hold.
pub fn check_key(key: &str) -> Result<(), StoreError> {
    if !key.starts_with('/') {
        return Err(invalid(format!("key {key:?} does not start with a slash")));
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(invalid(format!(
            "a key has {} bytes, and {MAX_KEY_BYTES} are allowed; it starts with {:?}",
            key.len(),
            key.chars().take(40).collect::<String>()
        )));
    }
    if key.contains('\0') {
        return Err(invalid(format!("key {key:?} contains a zero byte")));
    }
    if key.starts_with(RESERVED) {
        return Err(invalid(format!(
            "key {key:?} lies under {RESERVED:?}, which the store keeps for itself"
        )));
    }
    Ok(())
}

/// The first text after every text that starts with `prefix`, as bytes; `None` when nothing follows.
pub fn prefix_end(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
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

    /// The entries at several keys, in their order. Each is as fresh as [`Store::get`] has it; an implementation may read
    /// all of them at one moment, and callers may not rely on it.
    async fn get_all(&self, keys: &[String]) -> Result<Vec<Option<Entry>>, StoreError> {
        futures::future::try_join_all(keys.iter().map(|key| self.get(key))).await
    }

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

    /// Sees to it that every later commit has a revision above `past`, where the store is able to, and says
    /// whether it is so. Restoring a backup asks for it, so that nobody mistakes new history for old; a store
    /// that answers `false` is told apart by [`StoreError::Future`].
    async fn advance(&self, past: Revision) -> Result<bool, StoreError> {
        Ok(self.revision().await? >= past)
    }

    /// Stops cleanly: everything acknowledged is safe, what the store holds is let go. Later calls fail.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_that_break_a_rule_are_refused_with_the_rule() {
        #[track_caller]
        fn check(txn: Txn, part: &str) {
            let text = txn.check().expect_err("must be refused").to_string();
            assert!(text.contains(part), "{text:?} does not contain {part:?}");
        }
        check(Txn::new().put("a", "1"), "slash");
        check(Txn::new().put("", "1"), "slash");
        check(Txn::new().put("/a\0b", "1"), "zero byte");
        check(Txn::new().put("/muster/~slots/1", "1"), "keeps for itself");
        check(Txn::new().put("/a", "1").delete("/a"), "written twice");
        check(Txn::new().put(format!("/{}", "x".repeat(MAX_KEY_BYTES)), "1"), "1025 bytes");
        check(Txn::new().put("/a", vec![0; MAX_VALUE_BYTES + 1]), "1048577 bytes");
        let many = (0..=MAX_TXN_OPS).fold(Txn::new(), |txn, n| txn.delete(format!("/{n}")));
        check(many, "121 comparisons and writes");
        let large = Txn::new().put("/a", vec![0; MAX_VALUE_BYTES]).put("/b", vec![0; 1 << 18]);
        check(large, "split it");
    }

    #[test]
    fn a_prefix_ends_where_the_next_text_begins() {
        assert_eq!(prefix_end(""), None);
        assert_eq!(prefix_end("/a").as_deref(), Some("/b".as_bytes()));
        assert_eq!(prefix_end("/\u{7f}").as_deref(), Some([b'/', 0x80].as_slice()));
    }
}
