//! Requests that may be sent twice and are carried out once.
//!
//! What the first request made is written in the same transaction as the object itself, under a digest of
//! who sent it and of the key that they chose. A repetition gets the object as it was made then.

use bytes::Bytes;
use muster_model::{
    Duration, Timestamp,
    store::{Expect, Revision, Store, Txn},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{
    RegistryError, Shared, keys,
    noun::{Noun, Stored},
};

/// How long a key is remembered.
pub(super) const LIFE: Duration = Duration::from_hours(24);
/// Longest key that is taken.
pub const MAX_KEY: usize = 255;

/// A caller's key for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Digest of caller, project and key: where the record lies.
    place: String,
    /// Digest of method, path and body: what the key was used for.
    request: String,
}

#[derive(Serialize, Deserialize)]
struct Record {
    request: String,
    expires_at: Timestamp,
    object: Box<RawValue>,
}

/// The part of a record that the sweep needs.
#[derive(Deserialize)]
pub(super) struct LightRecord {
    pub(super) expires_at: Timestamp,
}

impl IdempotencyKey {
    /// `scope` names the caller; the same key of another caller is another key.
    pub fn new(scope: &str, key: &str, request: &[&[u8]]) -> Self {
        let digest = |parts: &[&[u8]]| {
            let mut hasher = Sha256::new();
            for part in parts {
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part);
            }
            hex::encode(hasher.finalize())
        };
        Self { place: digest(&[scope.as_bytes(), key.as_bytes()]), request: digest(request) }
    }

    fn key(&self) -> String {
        keys::idempotency(&self.place)
    }

    /// Adds the record to the transaction that carries the request out.
    pub fn record(&self, txn: Txn, object: &[u8], now: Timestamp) -> Txn {
        let object = String::from_utf8_lossy(object).into_owned();
        let record = Record {
            request: self.request.clone(),
            expires_at: now.saturating_add(LIFE),
            object: RawValue::from_string(object).expect("a stored object is JSON"),
        };
        txn.expect(self.key(), Expect::Absent).put(self.key(), super::write::encode(&record))
    }
}

/// What a request made when it was carried out.
pub(super) struct Replay;

impl Replay {
    /// `None` when the key is new. Another request under the same key is refused.
    pub(super) async fn find<N: Noun>(
        shared: &Shared,
        key: &IdempotencyKey,
    ) -> Result<Option<Stored<N>>, RegistryError> {
        let Some((text, revision)) = Self::text(shared, key).await? else { return Ok(None) };
        let object = serde_json::from_slice(&text)
            .map_err(|source| RegistryError::Damaged { key: key.key(), source })?;
        Ok(Some(Stored::fresh(object, revision)))
    }

    /// The stored text and the revision at which it was made.
    pub(super) async fn text(
        shared: &Shared,
        key: &IdempotencyKey,
    ) -> Result<Option<(Bytes, Revision)>, RegistryError> {
        key.made(&*shared.store).await
    }
}

impl IdempotencyKey {
    /// What the same request made before; another request under the same key is refused.
    pub(crate) async fn made(&self, store: &dyn Store) -> Result<Option<(Bytes, Revision)>, RegistryError> {
        let Some(entry) = store.get(&self.key()).await? else { return Ok(None) };
        let record: Record = serde_json::from_slice(&entry.value)
            .map_err(|source| RegistryError::Damaged { key: entry.key.clone(), source })?;
        if record.request != self.request {
            return Err(RegistryError::IdempotencyMismatch);
        }
        Ok(Some((Bytes::from(record.object.get().to_owned()), entry.created)))
    }
}
