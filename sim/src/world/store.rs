//! One process's way to the store: it may be cut, and what goes over it is seen by the judge.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use futures::StreamExt as _;
use muster_model::store::{
    Committed, Entry, List, Page, Revision, Store, StoreError, StoreStats, Txn, WatchStream, Write,
};

use super::World;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) store: Arc<dyn Store>,
    pub(super) world: Arc<World>,
    pub(super) process: Arc<str>,
    pub(super) cut: Arc<AtomicBool>,
}

/// Who leads.
const LEASE: &str = "/muster/leases/leader";

fn unavailable() -> StoreError {
    StoreError::Unavailable { store: "simulated".to_owned(), why: "no route to it".to_owned() }
}

impl Link {
    fn reach(&self) -> Result<(), StoreError> {
        if self.cut.load(Ordering::Relaxed) { Err(unavailable()) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for Link {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.reach()?;
        self.store.get(key).await
    }

    async fn get_all(&self, keys: &[String]) -> Result<Vec<Option<Entry>>, StoreError> {
        self.reach()?;
        self.store.get_all(keys).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.reach()?;
        self.store.list(list).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        self.reach()?;
        let seen: Vec<(String, bytes::Bytes)> = txn
            .writes
            .iter()
            .filter_map(|write| match write {
                Write::Put { key, value } if key.starts_with("/baremetal/nodes/") || key == LEASE => {
                    Some((key.clone(), value.clone()))
                }
                Write::Put { .. } | Write::Delete { .. } => None,
            })
            .collect();
        let committed = self.store.commit(txn).await?;
        if matches!(committed, Committed::Done { .. }) {
            for (key, value) in &seen {
                self.world.stored(&self.process, key, value);
            }
        }
        Ok(committed)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        self.reach()?;
        let inner = self.store.watch(prefix, after).await?;
        let cut = Arc::clone(&self.cut);
        Ok(Box::pin(
            inner.map(move |event| if cut.load(Ordering::Relaxed) { Err(unavailable()) } else { event }),
        ))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.reach()?;
        self.store.revision().await
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.reach()?;
        self.store.compact(before).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        self.reach()?;
        self.store.stats().await
    }
}
