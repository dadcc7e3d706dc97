//! The tables, and reading them at one moment.

use std::{ops::Bound, sync::Arc};

use muster_model::store::{Change, Entry, List, Page, Revision, prefix_end};
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition};

use super::{
    disk::Trouble,
    record::{PastCommit, State, Version},
};
use crate::feed::{Commit, HISTORY_CHUNK};

/// Present values by key.
pub(super) const PRESENT: TableDefinition<&[u8], &[u8]> = TableDefinition::new("present");
/// Replaced and deleted values, by key and the commit that wrote them.
pub(super) const VERSIONS: TableDefinition<(&[u8], u64), &[u8]> = TableDefinition::new("versions");
/// Commits by revision.
pub(super) const HISTORY: TableDefinition<u64, &[u8]> = TableDefinition::new("history");
/// The one record of [`State`].
pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
pub(super) const STATE: &str = "state";

/// Entries that one page holds when the caller names no limit, and at most.
const PAGE: usize = 1000;
/// Bytes of values after which a page ends, so that large values do not make huge pages.
const PAGE_BYTES: usize = 8 << 20;

/// Why a read gives no answer.
#[derive(Debug)]
pub(super) enum Miss {
    Compacted { oldest: Revision },
    Future { current: Revision },
    Trouble(Trouble),
}

impl<E: Into<Trouble>> From<E> for Miss {
    fn from(error: E) -> Self {
        Self::Trouble(error.into())
    }
}

pub(super) fn state(txn: &ReadTransaction) -> Result<State, Trouble> {
    let table = txn.open_table(META)?;
    let record = table.get(STATE)?.ok_or_else(|| Trouble::damaged("its state record is missing"))?;
    Ok(State::decode(record.value())?)
}

pub(super) fn get(txn: &ReadTransaction, key: &str) -> Result<Option<Entry>, Trouble> {
    let table = txn.open_table(PRESENT)?;
    let Some(record) = table.get(key.as_bytes())? else { return Ok(None) };
    Ok(Some(Version::decode(key.as_bytes(), record.value())?.entry))
}

/// The entries at all of these keys, at one moment.
pub(super) fn get_all(txn: &ReadTransaction, keys: &[String]) -> Result<Vec<Option<Entry>>, Trouble> {
    let table = txn.open_table(PRESENT)?;
    let read = |key: &String| -> Result<Option<Entry>, Trouble> {
        let Some(record) = table.get(key.as_bytes())? else { return Ok(None) };
        Ok(Some(Version::decode(key.as_bytes(), record.value())?.entry))
    };
    keys.iter().map(read).collect()
}

pub(super) fn list(txn: &ReadTransaction, list: &List) -> Result<Page, Miss> {
    let state = state(txn)?;
    let at = list.at.unwrap_or(state.revision);
    if at > state.revision {
        return Err(Miss::Future { current: state.revision });
    }
    if at < state.oldest {
        return Err(Miss::Compacted { oldest: state.oldest });
    }
    let limit = if list.limit == 0 { PAGE } else { list.limit.min(PAGE) };
    let mut page = Page { entries: Vec::new(), revision: at, more: false };
    let past_the_end =
        |after: &String| prefix_end(&list.prefix).is_some_and(|end| after.as_bytes() >= &end[..]);
    if list.after.as_ref().is_some_and(past_the_end) {
        return Ok(page);
    }
    let mut bytes = 0;
    let mut present = Present::new(txn, list, at)?;
    let mut replaced = if at == state.revision { None } else { Some(Replaced::new(txn, list, at)?) };
    let mut from_present = present.next()?;
    let mut from_replaced = replaced.as_mut().map_or(Ok(None), Replaced::next)?;
    loop {
        // A key that is valid at one moment is in exactly one of the two tables.
        let take_present = match (&from_present, &from_replaced) {
            (None, None) => return Ok(page),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => a.key < b.key,
        };
        if page.entries.len() == limit || bytes >= PAGE_BYTES {
            page.more = true;
            return Ok(page);
        }
        let next = if take_present {
            std::mem::replace(&mut from_present, present.next()?)
        } else {
            let following = replaced.as_mut().map_or(Ok(None), Replaced::next)?;
            std::mem::replace(&mut from_replaced, following)
        };
        let Some(mut entry) = next else { return Ok(page) };
        if list.keys_only {
            entry.value.clear();
        }
        bytes += entry.value.len();
        page.entries.push(entry);
    }
}

/// Where a list starts and ends, as bounds over key bytes.
fn bounds(list: &List) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let start = match &list.after {
        Some(after) if *after >= list.prefix => Bound::Excluded(after.clone().into_bytes()),
        _ => Bound::Included(list.prefix.clone().into_bytes()),
    };
    (start, prefix_end(&list.prefix).map_or(Bound::Unbounded, Bound::Excluded))
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Present values that already stood at a moment.
struct Present {
    range: redb::Range<'static, &'static [u8], &'static [u8]>,
    at: Revision,
}

impl Present {
    fn new(txn: &ReadTransaction, list: &List, at: Revision) -> Result<Self, Trouble> {
        let table: ReadOnlyTable<&[u8], &[u8]> = txn.open_table(PRESENT)?;
        let (start, end) = bounds(list);
        let range = table.range::<&[u8]>((as_slice(&start), as_slice(&end)))?;
        Ok(Self { range, at })
    }

    fn next(&mut self) -> Result<Option<Entry>, Trouble> {
        for item in self.range.by_ref() {
            let (key, record) = item?;
            let version = Version::decode(key.value(), record.value())?;
            if version.entry.modified <= self.at {
                return Ok(Some(version.entry));
            }
        }
        Ok(None)
    }
}

/// Replaced values that still stood at a moment.
struct Replaced {
    range: redb::Range<'static, (&'static [u8], u64), &'static [u8]>,
    at: Revision,
}

impl Replaced {
    fn new(txn: &ReadTransaction, list: &List, at: Revision) -> Result<Self, Trouble> {
        let table: ReadOnlyTable<(&[u8], u64), &[u8]> = txn.open_table(VERSIONS)?;
        let (start, end) = bounds(list);
        let start = match &start {
            Bound::Excluded(after) => Bound::Excluded((after.as_slice(), u64::MAX)),
            Bound::Included(prefix) => Bound::Included((prefix.as_slice(), 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let end = as_slice(&end).map(|end| (end, 0));
        Ok(Self { range: table.range::<(&[u8], u64)>((start, end))?, at })
    }

    fn next(&mut self) -> Result<Option<Entry>, Trouble> {
        for item in self.range.by_ref() {
            let (key, record) = item?;
            let version = Version::decode(key.value().0, record.value())?;
            if version.entry.modified <= self.at && self.at < version.superseded {
                return Ok(Some(version.entry));
            }
        }
        Ok(None)
    }
}

/// Some of the commits after `after`, oldest first.
pub(super) fn commits_after(txn: &ReadTransaction, after: Revision) -> Result<Vec<Arc<Commit>>, Miss> {
    let state = state(txn)?;
    if after < state.oldest {
        return Err(Miss::Compacted { oldest: state.oldest });
    }
    let history = txn.open_table(HISTORY)?;
    let present = txn.open_table(PRESENT)?;
    let versions = txn.open_table(VERSIONS)?;
    let mut commits = Vec::new();
    for item in history.range(after.0 + 1..)?.take(HISTORY_CHUNK) {
        let (revision, record) = item?;
        let revision = Revision(revision.value());
        let past = PastCommit::decode(revision, record.value())?;
        let mut changes = Vec::with_capacity(past.changes.len());
        for change in past.changes {
            let entry = if change.deleted {
                None
            } else {
                Some(written_by(&present, &versions, &change.key, revision)?)
            };
            changes.push(Change { revision, key: change.key, entry });
        }
        commits.push(Arc::new(Commit { revision, changes }));
    }
    Ok(commits)
}

/// The entry that commit `revision` wrote at `key`: the present one, or one that was replaced since.
fn written_by(
    present: &ReadOnlyTable<&[u8], &[u8]>,
    versions: &ReadOnlyTable<(&[u8], u64), &[u8]>,
    key: &str,
    revision: Revision,
) -> Result<Entry, Trouble> {
    if let Some(record) = present.get(key.as_bytes())? {
        let version = Version::decode(key.as_bytes(), record.value())?;
        if version.entry.modified == revision {
            return Ok(version.entry);
        }
    }
    let record = versions
        .get((key.as_bytes(), revision.0))?
        .ok_or_else(|| Trouble::damaged(format!("what commit {revision} wrote at key {key:?} is missing")))?;
    Ok(Version::decode(key.as_bytes(), record.value())?.entry)
}

pub(super) fn keys(txn: &ReadTransaction) -> Result<u64, Trouble> {
    Ok(txn.open_table(PRESENT)?.len()?)
}

/// Reads everything once, and compares what must agree. Returns the number of keys.
pub(super) fn check_all(txn: &ReadTransaction) -> Result<u64, Trouble> {
    let state = state(txn)?;
    let mut keys = 0;
    for item in txn.open_table(PRESENT)?.iter()? {
        let (key, record) = item?;
        let version = Version::decode(key.value(), record.value())?;
        if version.entry.modified > state.revision {
            return Err(Trouble::damaged(format!("key {:?} is newer than the store", version.entry.key)));
        }
        keys += 1;
    }
    for item in txn.open_table(VERSIONS)?.iter()? {
        let (key, record) = item?;
        let (key, modified) = key.value();
        let version = Version::decode(key, record.value())?;
        if version.entry.modified.0 != modified || version.superseded <= version.entry.modified {
            return Err(Trouble::damaged(format!("a past value of key {:?} is misfiled", version.entry.key)));
        }
    }
    let mut commits = 0;
    for item in txn.open_table(HISTORY)?.iter()? {
        let (revision, record) = item?;
        PastCommit::decode(Revision(revision.value()), record.value())?;
        commits += 1;
    }
    if commits != state.commits {
        return Err(Trouble::damaged(format!(
            "its history holds {commits} commits and should hold {}",
            state.commits
        )));
    }
    Ok(keys)
}
