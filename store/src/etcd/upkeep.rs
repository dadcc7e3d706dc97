//! What is done now and then: leftovers of crashed processes are removed, history is compacted if asked for.

use std::{collections::HashMap, sync::Weak};

use bytes::Bytes;
use muster_model::store::{Revision, StoreError, prefix_end};

use super::{
    Shared,
    call::{pause, revision},
    commit::{compare_modified, delete_op},
    proto::{RangeRequest, TxnRequest, TxnResponse},
};

/// Slots looked at in one round. More are left for the next.
const MOST_SLOTS: i64 = 10_000;

pub(super) async fn run(shared: Weak<Shared>) {
    let mut seen = HashMap::new();
    loop {
        let Some(every) = shared.upgrade().map(|shared| shared.options.sweep_every) else { return };
        pause(every).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = shared.sweep(&mut seen).await {
            tracing::debug!(store = %shared.name, code = error.code(), "leftover slots were not removed: {error}");
        }
        if let Some(keep) = shared.options.keep_revisions
            && let Err(error) = shared.compact_all_but(keep).await
        {
            tracing::warn!(store = %shared.name, code = error.code(), "history was not compacted: {error}");
        }
    }
}

impl Shared {
    /// Removes slots of others that are as they were at the last look.
    async fn sweep(&self, seen: &mut HashMap<Bytes, Revision>) -> Result<(), StoreError> {
        let request = RangeRequest {
            key: Bytes::from(self.slots.all.clone()),
            range_end: prefix_end(&self.slots.all).unwrap_or_default().into(),
            keys_only: true,
            limit: MOST_SLOTS,
            ..RangeRequest::default()
        };
        let answer = self.range(request).await?;
        let mut now = HashMap::new();
        for found in answer.kvs {
            if found.key.starts_with(self.slots.own.as_bytes()) {
                continue;
            }
            let at = revision(found.mod_revision);
            if seen.get(&found.key) != Some(&at) {
                now.insert(found.key, at);
                continue;
            }
            let Ok(key) = std::str::from_utf8(&found.key) else { continue };
            let request = TxnRequest {
                compare: vec![compare_modified(key, at)],
                success: vec![delete_op(key, Bytes::new())],
                failure: Vec::new(),
            };
            let _: TxnResponse = self
                .read(|mut client| {
                    let request = request.clone();
                    async move { client.txn(request).await }
                })
                .await?;
        }
        *seen = now;
        Ok(())
    }

    async fn compact_all_but(&self, keep: u64) -> Result<(), StoreError> {
        let current = self.revision().await?;
        self.compact(Revision(current.0.saturating_sub(keep))).await
    }

    /// Leaves nothing of this process behind.
    pub(super) async fn remove_own_slots(&self) -> Result<(), StoreError> {
        let end = prefix_end(&self.slots.own).unwrap_or_default();
        let request = TxnRequest {
            compare: Vec::new(),
            success: vec![delete_op(&self.slots.own, end.into())],
            failure: Vec::new(),
        };
        let _: TxnResponse = self
            .read(|mut client| {
                let request = request.clone();
                async move { client.txn(request).await }
            })
            .await?;
        Ok(())
    }
}
