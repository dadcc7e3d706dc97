//! One turn's writes: status, operation, history and claim in one transaction, fenced and compared.

use std::sync::Arc;

use muster_engine::lifecycle::{EffectKind, HostState, Step, When};
use muster_model::{
    Timestamp,
    host::{
        EventRing, HostEvent, HostOp, PoolMembers,
        keys::{self, HostRecord, PoolRecord},
    },
    store::{Committed, Expect, StoreError, Txn},
};
use serde::Serialize;

use super::{
    book::{Record, Written},
    failpoint::Side,
    operations,
    turn::Shared,
};
use crate::{
    inventory::{SpecChange, forget_host, keys as inventory_keys, stored_changes, tell_end},
    lead::Tenure,
};

/// What became of a turn's writes.
#[derive(Debug)]
pub(super) enum Stored {
    Done,
    /// Somebody else wrote one of the records, or leads now. Nothing was changed.
    Lost,
}

/// Everything that one step writes.
#[derive(Debug)]
pub(super) struct Writes<'a> {
    pub name: &'a Arc<str>,
    pub record: &'a Record,
    pub before: Option<&'a HostState>,
    pub step: &'a Step,
    pub lead: &'a Tenure,
    pub now: Timestamp,
    /// Words about the circumstances, for the history.
    pub remarks: Vec<String>,
}

pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("records of hosts are plain data")
}

impl Writes<'_> {
    /// What the write is for, as a failpoint calls it.
    fn purpose(&self) -> &'static str {
        let (old, new) = (self.before.and_then(|state| state.op.as_ref()), self.step.state.op.as_ref());
        let pending = |op: Option<&HostOp>| op.and_then(|op| op.pending.clone());
        match (old, new) {
            _ if self.step.gone => "forget",
            _ if self.before.is_none() => "enrol",
            (old, Some(new)) if old.is_none_or(|old| old.id != new.id) => "begin",
            (Some(_), None) => "end",
            (old, new) if pending(new).is_some() && pending(old) != pending(new) => "announce",
            (old, new) if pending(old).is_some() && pending(new).is_none() => "settle",
            _ if self.step.moved() => "move",
            _ => "observe",
        }
    }

    /// Whether there is anything to write.
    fn is_empty(&self) -> bool {
        let state = &self.step.state;
        let same = self.before.is_some_and(|before| before.status == state.status && before.op == state.op);
        let asks = self.step.gone || self.asks(&EffectKind::ReleaseReservation);
        same && !asks && self.remarks.is_empty()
    }

    fn asks(&self, kind: &EffectKind) -> bool {
        self.step.effects.iter().any(|effect| effect.kind == *kind && kind.when() == When::WithState)
    }

    fn events(&self) -> Vec<HostEvent> {
        let told = self.step.event(self.now);
        let remark = |message: &String| HostEvent {
            number: 0,
            at: self.now,
            last_at: None,
            count: 1,
            from: self.step.from,
            to: self.step.state.status.phase,
            rule: "remark".into(),
            message: message.clone(),
            operation: self.step.state.op.as_ref().map(|op| op.id.clone()),
            deadline: None,
        };
        told.into_iter().chain(self.remarks.iter().map(remark)).collect()
    }
}

/// Stores what a step decided. Nothing is written when nothing changed.
pub(super) async fn store(shared: &Shared, writes: &Writes<'_>) -> Result<Stored, StoreError> {
    if writes.is_empty() {
        return Ok(Stored::Done);
    }
    let purpose = writes.purpose();
    if writes.step.gone {
        return forget(shared, writes).await;
    }
    let (name, state) = (writes.name, &writes.step.state);
    let mut txn =
        if muster_model::planted::is("F5") { Txn::new() } else { Txn::new().fenced(&writes.lead.fence) };
    let mut written = Vec::new();
    let expect =
        |txn: Txn, record: HostRecord| txn.expect(keys::host(name, record), writes.record.expect(record));
    txn = expect(txn, HostRecord::Status);
    txn = expect(txn, HostRecord::Op);
    if writes.before.is_none_or(|before| before.status != state.status) {
        txn = txn.put(keys::host(name, HostRecord::Status), encode(&state.status));
        written.push((HostRecord::Status, Written::Status(Arc::new(state.status.clone()))));
    }
    if writes.before.is_none_or(|before| before.op != state.op) {
        let key = keys::host(name, HostRecord::Op);
        if let Some(op) = &state.op {
            txn = txn.put(key, encode(op));
            written.push((HostRecord::Op, Written::Op(Arc::new(op.clone()))));
        } else {
            txn = txn.delete(key);
            written.push((HostRecord::Op, Written::Deleted));
        }
        txn = operations::record(txn, writes);
    }
    if writes.asks(&EffectKind::ReleaseReservation) && writes.record.intent.is_some() {
        txn = expect(txn, HostRecord::Intent).delete(keys::host(name, HostRecord::Intent));
        written.push((HostRecord::Intent, Written::Deleted));
    }
    let events = writes.events();
    if !events.is_empty() {
        txn = add_events(shared, name, txn, events).await?;
        written.push((HostRecord::Events, Written::Other));
    }
    shared.failpoints.reach("write", purpose, Side::Before).await;
    let committed = shared.store.commit(txn).await?;
    shared.failpoints.reach("write", purpose, Side::After).await;
    match committed {
        Committed::Done { revision } => {
            shared.book().stored(name, revision, &written);
            Ok(Stored::Done)
        }
        Committed::Refused { .. } => Ok(Stored::Lost),
    }
}

/// Adds to the host's history, which only the host loop writes.
async fn add_events(
    shared: &Shared,
    name: &str,
    txn: Txn,
    events: Vec<HostEvent>,
) -> Result<Txn, StoreError> {
    let key = keys::host(name, HostRecord::Events);
    let stored = shared.store.get(&key).await?;
    let expect = stored.as_ref().map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
    let mut ring: EventRing = stored
        .as_ref()
        .and_then(|entry| {
            serde_json::from_slice(&entry.value)
                .inspect_err(|error| tracing::warn!(host = name, %error, "a host's history cannot be read; it begins anew"))
                .ok()
        })
        .unwrap_or_default();
    for event in events {
        ring.push(event);
    }
    Ok(txn.expect(&key, expect).put(&key, encode(&ring)))
}

/// Deletes all records of a host, and its name among the members of its pool.
async fn forget(shared: &Shared, writes: &Writes<'_>) -> Result<Stored, StoreError> {
    let name = writes.name;
    let mut txn = Txn::new().fenced(&writes.lead.fence);
    for record in [HostRecord::Spec, HostRecord::Status, HostRecord::Op] {
        txn = txn.expect(keys::host(name, record), writes.record.expect(record));
    }
    txn = forget_host(txn, name);
    // Of a spec that somebody else deleted the inventory tells.
    if let Some(spec) = &writes.record.spec {
        let (changes, seen) = stored_changes(&*shared.store, name).await?;
        let last = SpecChange {
            at: writes.now,
            by: "muster".into(),
            verb: "delete".into(),
            message: "deleted, as it was asked for; its machine was ready for it".into(),
            project: spec.project.clone(),
        };
        txn = tell_end(txn.expect(inventory_keys::changes(name), seen), name, changes, last);
    }
    if let Some(spec) = &writes.record.spec {
        let key = keys::pool(&spec.pool, PoolRecord::Members);
        if let Some(entry) = shared.store.get(&key).await?
            && let Ok(mut members) = serde_json::from_slice::<PoolMembers>(&entry.value)
        {
            members.0.retain(|member| **member != **name);
            txn = txn.expect(&key, Expect::Modified(entry.modified)).put(&key, encode(&members));
        }
    }
    txn = operations::record(txn, writes);
    shared.failpoints.reach("write", "forget", Side::Before).await;
    let committed = shared.store.commit(txn).await?;
    shared.failpoints.reach("write", "forget", Side::After).await;
    match committed {
        Committed::Done { revision } => {
            let all = HostRecord::ALL.map(|record| (record, Written::Deleted));
            shared.book().stored(name, revision, &all);
            tracing::info!(host = %name, "a host's records were deleted");
            Ok(Stored::Done)
        }
        Committed::Refused { .. } => Ok(Stored::Lost),
    }
}
