//! A store in memory that asks a test before it answers.

use std::{fmt, ops::Deref};

use async_trait::async_trait;
use muster_model::store::{
    Committed, Entry, List, Page, Revision, Store, StoreError, StoreStats, Txn, WatchStream,
};
use muster_store::memory::Memory;

/// What comes before an answer: a wait, a failure, or nothing.
#[async_trait]
pub(crate) trait Before: fmt::Debug + Send + Sync + 'static {
    async fn get(&self, _key: &str) -> Result<(), StoreError> {
        Ok(())
    }

    async fn commit(&self, _txn: &Txn) -> Result<(), StoreError> {
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Asked<B> {
    memory: Memory,
    before: B,
}

impl<B> Asked<B> {
    #[allow(dead_code, reason = "some tests take the default")]
    pub(crate) fn new(before: B) -> Self {
        Self { memory: Memory::default(), before }
    }
}

impl<B> Deref for Asked<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.before
    }
}

#[async_trait]
impl<B: Before> Store for Asked<B> {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.before.get(key).await?;
        self.memory.get(key).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.memory.list(list).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        self.before.commit(&txn).await?;
        self.memory.commit(txn).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        self.memory.watch(prefix, after).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.memory.revision().await
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.memory.compact(before).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        self.memory.stats().await
    }
}
