//! Writing an export.

use std::{
    fs,
    io::{BufWriter, Write},
    path::Path,
};

use muster_model::{
    Timestamp,
    store::{List, Revision, Store},
};

use super::{
    line::{EXPORT_FORMAT, Header, Lines, PortableError},
    travels,
};

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    pub revision: Revision,
    pub count: u64,
    pub sha256: String,
}

/// Writes everything that `store` holds at this moment to `out`, while it goes on serving.
///
/// Fails with [`muster_model::store::StoreError::Compacted`] when the store forgot the moment before all of it was read: then try
/// again.
pub async fn export<W: Write>(store: &dyn Store, out: W, time: Timestamp) -> Result<Exported, PortableError> {
    let stats = store.stats().await?;
    let mut list = List { at: Some(store.revision().await?), ..List::default() };
    let revision = list.at.unwrap_or_default();
    let header = Header { muster_export: EXPORT_FORMAT, revision, time, store: stats.kind };
    let mut lines = Lines::new(out, &header)?;
    loop {
        let page = store.list(list.clone()).await?;
        for entry in page.entries.iter().filter(|entry| travels(&entry.key)) {
            lines.entry(entry)?;
        }
        if !page.more {
            break;
        }
        list.after = page.entries.last().map(|entry| entry.key.clone());
    }
    let (count, sha256, _) = lines.end()?;
    Ok(Exported { revision, count, sha256 })
}

/// Like [`export`], to a file that appears under its name only when it is whole and durable.
pub async fn export_to_file(
    store: &dyn Store,
    path: &Path,
    time: Timestamp,
) -> Result<Exported, muster_model::store::StoreError> {
    let outcome = to_file(store, path, time).await;
    outcome.map_err(|error| match error {
        PortableError::Store(error) => error,
        other => muster_model::store::StoreError::Full {
            store: path.display().to_string(),
            why: std::error::Error::source(&other).map_or_else(|| other.to_string(), ToString::to_string),
        },
    })
}

async fn to_file(store: &dyn Store, path: &Path, time: Timestamp) -> Result<Exported, PortableError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".part");
    let file = fs::File::create(&temporary)?;
    let exported = export(store, BufWriter::new(&file), time).await?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::File::open(dir)?.sync_all()?;
    }
    Ok(exported)
}
