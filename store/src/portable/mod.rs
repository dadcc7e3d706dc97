//! Taking everything out of a store, and putting it into another one.
//!
//! An export is a text file of JSON documents, one per line:
//!
//! ```text
//! {"muster_export":1,"revision":812,"time":"2025-10-17T10:00:00Z","store":"embedded","crc":"…"}
//! {"n":1,"key":"/muster/pools/1","created":17,"modified":802,"json":{"name":"a"},"crc":"…"}
//! {"n":2,"key":"/muster/blob","created":18,"modified":18,"base64":"AAEC","crc":"…"}
//! {"end":true,"count":2,"sha256":"…","crc":"…"}
//! ```
//!
//! It shows one revision, however long it took and whatever was written meanwhile. Values that are JSON on
//! one line stay as they are, byte for byte; others are base64. Each line's `crc` is the CRC-32C of the line
//! up to it, continued from the line before, so that a changed, missing or moved line is found where it is;
//! `sha256` is over all bytes before the last line. Keys are those that callers use: a root that an etcd
//! store puts before them is not in the file.
//!
//! Left out are leases, which mean nothing elsewhere, and what the implementations keep for themselves.

mod export;
mod import;
mod line;
mod restored;

pub use export::{Exported, export, export_to_file};
pub use import::{ImportOptions, Imported, import};
pub use line::{Header, PortableError, Verified, verify};
pub use restored::{RESTORED_KEY, RESTORING_KEY, Restored, clear_restored, refuse_half_restored, restored};

/// Reads everything that a store holds, so that damage shows: every record passes its checks on the way.
pub async fn read_all(
    store: &dyn muster_model::store::Store,
) -> Result<(u64, u64), muster_model::store::StoreError> {
    let (mut keys, mut bytes) = (0, 0);
    let mut list = muster_model::store::List::default();
    loop {
        let page = store.list(list.clone()).await?;
        keys += page.entries.len() as u64;
        bytes += page.entries.iter().map(|entry| (entry.key.len() + entry.value.len()) as u64).sum::<u64>();
        if !page.more {
            return Ok((keys, bytes));
        }
        list.at = Some(page.revision);
        list.after = page.entries.last().map(|entry| entry.key.clone());
    }
}

/// Whether a key travels.
fn travels(key: &str) -> bool {
    !key.starts_with(muster_model::lease::LEASES)
        && !key.starts_with(muster_model::store::RESERVED)
        && key != RESTORED_KEY
        && key != RESTORING_KEY
}
