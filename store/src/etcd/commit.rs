//! Transactions as etcd understands them, and its answers as we do. See [`super::slots`] for what ties a
//! transaction to a slot.

use bytes::Bytes;
use muster_model::store::{Committed, Entry, Expect, Revision, StoreError, Txn, Write};

use super::{
    Shared,
    call::{Miss, Pace, number, revision},
    proto::{
        Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest,
        TxnResponse, compare, request_op, response_op,
    },
    slots::Slot,
};

pub(super) fn op(request: request_op::Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub(super) fn put_op(key: &str, value: Bytes) -> RequestOp {
    op(request_op::Request::RequestPut(PutRequest { key: Bytes::copy_from_slice(key.as_bytes()), value }))
}

pub(super) fn get_op(key: &str) -> RequestOp {
    let key = Bytes::copy_from_slice(key.as_bytes());
    op(request_op::Request::RequestRange(RangeRequest { key, ..RangeRequest::default() }))
}

pub(super) fn delete_op(key: &str, range_end: Bytes) -> RequestOp {
    let key = Bytes::copy_from_slice(key.as_bytes());
    op(request_op::Request::RequestDeleteRange(DeleteRangeRequest { key, range_end }))
}

fn compare_version(key: &str, result: compare::CompareResult) -> Compare {
    Compare {
        result: result.into(),
        target: compare::CompareTarget::Version.into(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        target_union: Some(compare::TargetUnion::Version(0)),
    }
}

pub(super) fn compare_absent(key: &str) -> Compare {
    compare_version(key, compare::CompareResult::Equal)
}

pub(super) fn compare_modified(key: &str, at: Revision) -> Compare {
    // An absent key counts as modified at zero in etcd; nothing is ever modified at minus one.
    let at = if at == Revision::ZERO { -1 } else { number(at) };
    Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Mod.into(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        target_union: Some(compare::TargetUnion::ModRevision(at)),
    }
}

fn ranged(op: &ResponseOp) -> Option<&KeyValue> {
    match &op.response {
        Some(response_op::Response::ResponseRange(range)) => range.kvs.first(),
        _ => None,
    }
}

/// What one answer means.
enum Meaning {
    Committed(Committed),
    /// The slot is not what it was taken for; nothing was done by this copy.
    SlotMoved,
    /// An earlier copy was refused without our knowing, so that no copy can be carried out any more.
    Sealed,
}

/// What a slot shows after its transaction was refused.
fn sealed(token: &str) -> String {
    format!("{token} refused")
}

impl Shared {
    pub(super) async fn commit(&self, txn: &Txn) -> Result<Committed, StoreError> {
        if txn.writes.is_empty() {
            return self.compare_only(txn).await;
        }
        let (slot, _permit) = self.slots.take().await;
        let token = self.slots.token();
        let mut slot = self.existing(slot).await?;
        let mut pace = Pace::new(self.options.call_timeout, self.members.len());
        // Set once an attempt may have been carried out without our knowing.
        let mut open: Option<String> = None;
        loop {
            let request = self.request(txn, &slot, &token, open.is_some());
            let attempt = self.attempt(|mut client| {
                let request = request.clone();
                async move { client.txn(request).await }
            });
            match attempt.await {
                Ok(answer) => match self.interpret(txn, &mut slot, &token, open.is_some(), &answer) {
                    Meaning::Committed(committed) => {
                        self.slots.give_back(slot);
                        return Ok(committed);
                    }
                    Meaning::SlotMoved => {
                        if let Some(why) = open {
                            let why = format!("{why}; and what would tell was removed meanwhile");
                            return Err(StoreError::Ambiguous { store: self.name.clone(), why });
                        }
                        slot = self.existing(slot).await?;
                        if !pace.again().await {
                            return Err(self.unavailable("others keep changing what is ours".to_owned()));
                        }
                    }
                    Meaning::Sealed => open = None, // as if it had never been sent
                },
                Err(Miss::Definite(error)) => match open {
                    // This copy was refused, but an earlier one may still be on its way.
                    Some(why) => {
                        let why = format!("{why}; then: {error}");
                        return Err(StoreError::Ambiguous { store: self.name.clone(), why });
                    }
                    None => return Err(error),
                },
                Err(Miss::NotDone(why)) => {
                    if !pace.again().await {
                        return Err(self.out_of_time(open, why));
                    }
                }
                Err(Miss::Open(why)) => {
                    open = Some(why.clone());
                    if !pace.again().await {
                        return Err(self.out_of_time(open, why));
                    }
                }
            }
        }
    }

    fn out_of_time(&self, open: Option<String>, why: String) -> StoreError {
        match open {
            Some(first) => {
                StoreError::Ambiguous { store: self.name.clone(), why: format!("{first}; then: {why}") }
            }
            None => self.unavailable(why),
        }
    }

    /// The slot, made to exist. Repeating this is harmless: nobody else uses it.
    async fn existing(&self, mut slot: Slot) -> Result<Slot, StoreError> {
        if slot.revision.is_some() {
            return Ok(slot);
        }
        let request = TxnRequest {
            compare: vec![compare_absent(&slot.key)],
            success: vec![put_op(&slot.key, Bytes::from_static(b"new"))],
            failure: vec![get_op(&slot.key)],
        };
        let answer: TxnResponse = self
            .read(|mut client| {
                let request = request.clone();
                async move { client.txn(request).await }
            })
            .await?;
        let at = if answer.succeeded {
            answer.header.map(|header| header.revision)
        } else {
            answer.responses.first().and_then(ranged).map(|found| found.mod_revision)
        };
        slot.revision = at.map(revision);
        Ok(slot)
    }

    /// A transaction that only compares: a read, without a slot.
    async fn compare_only(&self, txn: &Txn) -> Result<Committed, StoreError> {
        let request = TxnRequest {
            compare: self.compares(txn),
            success: Vec::new(),
            failure: txn.compares.iter().map(|compare| get_op(&self.full(&compare.key))).collect(),
        };
        let answer: TxnResponse = self
            .read(|mut client| {
                let request = request.clone();
                async move { client.txn(request).await }
            })
            .await?;
        if answer.succeeded {
            return Ok(Committed::Done { revision: revision(answer.header.unwrap_or_default().revision) });
        }
        self.refusal(txn, &answer.responses)
            .ok_or_else(|| self.unavailable("it refused a transaction whose comparisons all hold".to_owned()))
    }

    fn compares(&self, txn: &Txn) -> Vec<Compare> {
        let of = |compare: &muster_model::store::Compare| {
            let key = self.full(&compare.key);
            match compare.expect {
                Expect::Absent => compare_absent(&key),
                Expect::Present => compare_version(&key, compare::CompareResult::Greater),
                Expect::Modified(at) => compare_modified(&key, at),
            }
        };
        txn.compares.iter().map(of).collect()
    }

    fn request(&self, txn: &Txn, slot: &Slot, token: &str, resent: bool) -> TxnRequest {
        let mut compare = vec![compare_modified(&slot.key, slot.revision.unwrap_or_default())];
        compare.extend(self.compares(txn));
        let mark = put_op(&slot.key, Bytes::copy_from_slice(token.as_bytes()));
        let mut writes: Vec<RequestOp> = txn.writes.iter().map(|write| self.write_op(write)).collect();
        let deletes_only = txn.writes.iter().all(|write| matches!(write, Write::Delete { .. }));
        writes.push(mark);
        let success = if deletes_only {
            // Where nothing is there to delete, nothing is written at all.
            let nothing = txn.writes.iter().map(|write| compare_absent(&self.full(write.key()))).collect();
            let inner = TxnRequest { compare: nothing, success: Vec::new(), failure: writes };
            vec![op(request_op::Request::RequestTxn(inner))]
        } else {
            writes
        };
        let mut failure = vec![get_op(&slot.key)];
        failure.extend(txn.compares.iter().map(|compare| get_op(&self.full(&compare.key))));
        if resent {
            // Refused by its own comparisons: seal the slot. Refused by the slot: leave what it shows.
            let seal = TxnRequest {
                compare: vec![compare_modified(&slot.key, slot.revision.unwrap_or_default())],
                success: vec![put_op(&slot.key, Bytes::from(sealed(token)))],
                failure: Vec::new(),
            };
            failure.push(op(request_op::Request::RequestTxn(seal)));
        }
        TxnRequest { compare, success, failure }
    }

    fn write_op(&self, write: &Write) -> RequestOp {
        match write {
            Write::Put { key, value } => put_op(&self.full(key), value.clone()),
            Write::Delete { key } => delete_op(&self.full(key), Bytes::new()),
        }
    }

    fn interpret(
        &self,
        txn: &Txn,
        slot: &mut Slot,
        token: &str,
        resent: bool,
        answer: &TxnResponse,
    ) -> Meaning {
        let now = revision(answer.header.unwrap_or_default().revision);
        if answer.succeeded {
            let inner = answer.responses.first().and_then(|op| match &op.response {
                Some(response_op::Response::ResponseTxn(inner)) => Some(inner.succeeded),
                _ => None,
            });
            let changed = inner != Some(true);
            if changed {
                slot.revision = Some(now);
            }
            return Meaning::Committed(Committed::Done { revision: now });
        }
        let found = answer.responses.first().and_then(ranged);
        let at = found.map(|found| revision(found.mod_revision));
        let moved = at != slot.revision;
        // A copy that was sent again and refused by its own comparisons has sealed the slot just now.
        slot.revision = if resent && !moved { Some(now) } else { at };
        if moved {
            return match found {
                Some(found) if found.value == token.as_bytes() => {
                    Meaning::Committed(Committed::Done { revision: revision(found.mod_revision) })
                }
                Some(found) if found.value == sealed(token).as_bytes() => Meaning::Sealed,
                _ => Meaning::SlotMoved,
            };
        }
        match self.refusal(txn, answer.responses.get(1..).unwrap_or_default()) {
            Some(refused) => Meaning::Committed(refused),
            None => Meaning::SlotMoved,
        }
    }

    /// The first comparison that does not hold for what was found in the same transaction.
    fn refusal(&self, txn: &Txn, found: &[ResponseOp]) -> Option<Committed> {
        txn.compares.iter().zip(found).enumerate().find_map(|(failed, (compare, op))| {
            let found = ranged(op).and_then(|found| self.entry(found));
            (!compare.expect.holds(found.as_ref())).then_some(Committed::Refused { failed, found })
        })
    }

    /// An entry as callers know it; `None` for keys that cannot be ours.
    pub(super) fn entry(&self, found: &KeyValue) -> Option<Entry> {
        Some(Entry {
            key: self.short(&found.key)?,
            value: found.value.clone(),
            created: revision(found.create_revision),
            modified: revision(found.mod_revision),
        })
    }
}
