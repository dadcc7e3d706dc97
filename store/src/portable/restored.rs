//! What an import leaves in the store: that it is under way, and that it happened.

pub use muster_model::restored::{RESTORED_KEY, RESTORING_KEY, Restored};
use muster_model::store::{Committed, Expect, Revision, Store, StoreError, Txn};

pub(super) async fn read(store: &dyn Store, key: &str) -> Result<Option<(Restored, Revision)>, StoreError> {
    let Some(entry) = store.get(key).await? else { return Ok(None) };
    let restored = serde_json::from_slice(&entry.value).map_err(|error| StoreError::Damaged {
        store: key.to_owned(),
        why: format!("what is written there is not the record of an import: {error}"),
    })?;
    Ok(Some((restored, entry.modified)))
}

pub(super) fn encode(restored: &Restored) -> Vec<u8> {
    serde_json::to_vec(restored).expect("it is plain data")
}

/// The last import, if nobody has confirmed since that the world was observed again.
pub async fn restored(store: &dyn Store) -> Result<Option<Restored>, StoreError> {
    Ok(read(store, RESTORED_KEY).await?.map(|(restored, _)| restored))
}

/// Confirms that the world was observed again after the import that `seen` tells of. `false` when there has
/// been another import meanwhile, or none is left to confirm.
pub async fn clear_restored(store: &dyn Store, seen: &Restored) -> Result<bool, StoreError> {
    let Some((found, revision)) = read(store, RESTORED_KEY).await? else { return Ok(false) };
    if found != *seen {
        return Ok(false);
    }
    let txn = Txn::new().expect(RESTORED_KEY, Expect::Modified(revision)).delete(RESTORED_KEY);
    Ok(matches!(store.commit(txn).await?, Committed::Done { .. }))
}

/// Refuses to work with a store into which an import was begun and not finished.
pub async fn refuse_half_restored(store: &dyn Store) -> Result<(), StoreError> {
    let Some((restoring, _)) = read(store, RESTORING_KEY).await? else { return Ok(()) };
    Err(StoreError::Damaged {
        store: store.stats().await?.kind,
        why: format!(
            "an import of the export of {} (revision {}) was begun and not finished; run the same \
             `muster store import` again",
            restoring.exported, restoring.revision
        ),
    })
}
