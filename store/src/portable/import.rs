//! Putting an export into a store.
//!
//! The file is read twice: once to the end, so that a file with any fault changes nothing, and once to write.
//! While it is written the store carries [`RESTORING_KEY`](super::RESTORING_KEY), with which nobody opens it
//! for anything else; an import that was cut off goes on when it is asked for again. The last commit removes
//! that key and leaves [`RESTORED_KEY`](super::RESTORED_KEY).

use std::{
    collections::BTreeSet,
    io::{BufRead, Seek},
};

use muster_model::{
    Timestamp,
    store::{Committed, Entry, Expect, List, Revision, Store, Txn},
};

use super::{
    RESTORED_KEY, RESTORING_KEY,
    line::{Next, PortableError, Reader, Verified, verify},
    restored::{self, Restored},
    travels,
};
use crate::factory::FORMAT_KEY;

/// Entries per commit: below the port's bound of operations, which the guard takes part in.
const BATCH: usize = 100;
/// Bytes per commit: one value of the largest size always fits.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOptions {
    /// Replace what the target holds, instead of refusing a target that holds anything.
    pub overwrite: bool,
    /// Now.
    pub time: Timestamp,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub count: u64,
    /// Keys that the target held and the export does not.
    pub removed: u64,
    pub source: Verified,
    /// Whether later revisions are larger than those of the exported store. Where they cannot be made so,
    /// whoever holds an old revision is told [`muster_model::store::StoreError::Future`].
    pub revisions_moved_on: bool,
}

/// Puts the export `input` into `store`.
pub async fn import<R: BufRead + Seek + Send>(
    store: &dyn Store,
    mut input: R,
    options: ImportOptions,
) -> Result<Imported, PortableError> {
    let source = verify(&mut input)?;
    input.rewind()?;
    let record = Restored {
        revision: source.header.revision,
        exported: source.header.time,
        imported: options.time,
        sha256: source.sha256.clone(),
        behind: None,
    };
    let guard = begin(store, &record, options).await?;
    let (mut reader, _) = Reader::new(input)?;
    let mut kept = BTreeSet::new();
    let mut batch: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    loop {
        let next = reader.next()?;
        let full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
        match next {
            Next::Entry(entry) => {
                bytes += entry.key.len() + entry.value.len();
                if full || bytes > BATCH_BYTES {
                    bytes = entry.key.len() + entry.value.len();
                    put(store, guard, std::mem::take(&mut batch)).await?;
                }
                kept.insert(entry.key.clone());
                batch.push(entry);
            }
            Next::End(_) => {
                put(store, guard, batch).await?;
                break;
            }
        }
    }
    let removed = remove_others(store, guard, &kept).await?;
    let revisions_moved_on = store.advance(record.revision).await?;
    let last = guarded(guard).delete(RESTORING_KEY).put(RESTORED_KEY, restored::encode(&record));
    commit(store, last).await?;
    Ok(Imported { count: source.count, removed, source, revisions_moved_on })
}

/// Marks the import as under way, or finds it so; the revision of the mark guards everything after.
async fn begin(
    store: &dyn Store,
    record: &Restored,
    options: ImportOptions,
) -> Result<Revision, PortableError> {
    let found = restored::read(store, RESTORING_KEY).await?;
    if let Some((restoring, _)) = &found
        && restoring.sha256 != record.sha256
        && !options.overwrite
    {
        let (revision, time) = (restoring.revision, restoring.exported);
        return Err(PortableError::OtherImport { revision, time });
    }
    if found.is_none()
        && !options.overwrite
        && let Some(key) = first_key(store).await?
    {
        return Err(PortableError::NotEmpty { key });
    }
    let expect = found.map_or(Expect::Absent, |(_, revision)| Expect::Modified(revision));
    let txn = Txn::new().expect(RESTORING_KEY, expect).put(RESTORING_KEY, restored::encode(record));
    match store.commit(txn).await? {
        Committed::Done { revision } => Ok(revision),
        Committed::Refused { .. } => Err(PortableError::Disturbed { key: RESTORING_KEY.to_owned() }),
    }
}

/// A key that makes the target more than empty. The format is written as soon as a store is opened.
async fn first_key(store: &dyn Store) -> Result<Option<String>, PortableError> {
    let page = store.list(List { limit: 2, keys_only: true, ..List::default() }).await?;
    Ok(page.entries.into_iter().map(|entry| entry.key).find(|key| key != FORMAT_KEY))
}

fn guarded(guard: Revision) -> Txn {
    Txn::new().expect(RESTORING_KEY, Expect::Modified(guard))
}

async fn put(store: &dyn Store, guard: Revision, batch: Vec<Entry>) -> Result<(), PortableError> {
    if batch.is_empty() {
        return Ok(());
    }
    let entries = batch.into_iter().filter(|entry| travels(&entry.key));
    commit(store, entries.fold(guarded(guard), |txn, entry| txn.put(entry.key, entry.value))).await
}

async fn commit(store: &dyn Store, txn: Txn) -> Result<(), PortableError> {
    match store.commit(txn).await? {
        Committed::Done { .. } => Ok(()),
        Committed::Refused { .. } => Err(PortableError::Disturbed { key: RESTORING_KEY.to_owned() }),
    }
}

/// Deletes what the target holds beside the import.
async fn remove_others(
    store: &dyn Store,
    guard: Revision,
    kept: &BTreeSet<String>,
) -> Result<u64, PortableError> {
    let mut removed = 0;
    let mut list = List { limit: BATCH, keys_only: true, ..List::default() };
    loop {
        let page = store.list(list.clone()).await?;
        let others: Vec<&str> = page
            .entries
            .iter()
            .map(|entry| entry.key.as_str())
            .filter(|key| *key != RESTORING_KEY && !kept.contains(*key))
            .collect();
        if !others.is_empty() {
            removed += others.len() as u64;
            commit(store, others.into_iter().fold(guarded(guard), Txn::delete)).await?;
        }
        if !page.more {
            return Ok(removed);
        }
        // Not at one revision: what appears meanwhile must not be missed either.
        list.after = page.entries.last().map(|entry| entry.key.clone());
    }
}
