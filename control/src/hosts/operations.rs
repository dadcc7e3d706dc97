//! Operations on hosts as a resource: listed, waited for and cancelled like every other operation.
//!
//! The record is written in the transaction that begins, changes or ends the host's operation, under an id
//! that follows from the operation's own: whoever goes on after a crash finds the same one.

use muster_model::{
    Timestamp,
    host::{
        Cause, HostOp, OpKind, Phase,
        keys::{self, HostRecord},
    },
    store::{Committed, Expect, Store, StoreError, Txn},
};
use sha2::{Digest, Sha256};
use thiserror::Error;
use uuid::Uuid;

use super::store::{Writes, encode};
use crate::inventory::{HostChanges, SpecChange, keys as inventory_keys};
use crate::registry::{Operation, OperationState, Subject, keys::operation};

/// Where operations on hosts that name no project belong.
const INVENTORY_PROJECT: &str = "default";
/// Operations of one host that stay listed.
const KEPT: u64 = 10;

/// The id of a host's operation among all operations.
pub fn operation_id(host_operation: &str) -> Uuid {
    let digest = Sha256::digest(format!("host operation {host_operation}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Adds what the step did to the host's operations.
pub(super) fn record(txn: Txn, writes: &Writes<'_>) -> Txn {
    let before = writes.before.and_then(|state| state.op.as_ref());
    let after = writes.step.state.op.as_ref().filter(|_| !writes.step.gone);
    let mut txn = txn;
    // A request by hand has an operation of its own, which the inventory made and ends.
    let is_listed = |op: &&HostOp| !matches!(op.cause, Cause::Manual { .. });
    let (before, after) = (before.filter(is_listed), after.filter(is_listed));
    if let Some(old) = before
        && after.is_none_or(|new| new.id != old.id)
    {
        let (state, message) = ended(old, writes);
        txn = txn.put(operation(operation_id(&old.id)), encode(&show(old, writes, Some((state, message)))));
    }
    if let Some(new) = after {
        let same =
            before.is_some_and(|old| old.id == new.id && old.failed == new.failed && !writes.step.moved());
        if !same {
            txn = txn.put(operation(operation_id(&new.id)), encode(&show(new, writes, None)));
        }
        let begins = before.is_none_or(|old| old.id != new.id);
        if begins && let Some(old) = writes.step.state.status.operations.checked_sub(KEPT).filter(|n| *n > 0)
        {
            txn = txn.delete(operation(operation_id(&format!("{}-{old}", writes.name))));
        }
    }
    txn
}

/// How an operation ended, seen from where its host stands now.
fn ended(op: &HostOp, writes: &Writes<'_>) -> (OperationState, String) {
    let step = writes.step;
    let state = match (op.kind, step.state.status.phase) {
        _ if op.failed.is_some() => OperationState::Failed,
        (OpKind::On | OpKind::Cycle, Phase::Serving) | (OpKind::Off | OpKind::SelfTest, Phase::Idle) => {
            OperationState::Succeeded
        }
        (_, Phase::Backoff | Phase::Quarantined) => OperationState::Failed,
        _ if step.gone && op.cause == Cause::Deletion => OperationState::Succeeded,
        _ => OperationState::Superseded,
    };
    (state, step.reason.clone())
}

fn show(op: &HostOp, writes: &Writes<'_>, end: Option<(OperationState, String)>) -> Operation {
    let kind = match op.kind {
        OpKind::On => "power-on",
        OpKind::Off => "power-off",
        OpKind::Cycle => "power-cycle",
        OpKind::SelfTest => "self-test",
    };
    let by = match &op.cause {
        Cause::Intent { decision, .. } => format!("decision {decision}"),
        Cause::Manual { by } => by.clone(),
        Cause::Drift => "drift policy".into(),
        Cause::Deletion => "deletion".into(),
        Cause::Recovery => "recovery".into(),
        Cause::Probation => "probation".into(),
        Cause::AllOn => "freeze all-on".into(),
    };
    let spec = writes.record.spec.as_ref();
    let done = end.is_some();
    let (state, message) = end.unwrap_or_else(|| (OperationState::Running, op.reason.clone()));
    Operation {
        id: operation_id(&op.id),
        kind: kind.into(),
        project: spec.and_then(|spec| spec.project.clone()).unwrap_or_else(|| INVENTORY_PROJECT.to_owned()),
        subject: Subject::Host {
            host: writes.name.to_string(),
            reason: op.reason.clone(),
            power: None,
            operation: Some(op.id.clone()),
            phase: Some(writes.step.state.status.phase.as_str().to_owned()),
        },
        state,
        done,
        message,
        created_at: op.started,
        created_by: by,
        finished_at: done.then_some(writes.now),
    }
}

/// Why an operation on a host was not cancelled.
#[derive(Debug, Error)]
pub enum CancelError {
    #[error("operation {id} is not one of a host that is under way")]
    NotUnderWay { id: Uuid },
    #[error("operation {operation} of host {host} cannot be cancelled: {why}")]
    Refused { host: String, operation: String, why: String },
    #[error("host {host} was changed at the same time; look again and repeat")]
    Conflict { host: String },
    #[error("the operation could not be cancelled")]
    Store(#[from] StoreError),
}

impl CancelError {
    /// Stable name for metrics, API answers and documentation.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotUnderWay { .. } => "NOT_FOUND",
            Self::Refused { .. } | Self::Conflict { .. } => "CONFLICT",
            Self::Store(error) => error.code(),
        }
    }
}

/// Who withdraws a wish, when and why.
#[derive(Debug, Clone, Copy)]
pub struct Withdrawal<'w> {
    pub by: &'w str,
    pub at: Timestamp,
    pub reason: Option<&'w str>,
}

impl Withdrawal<'_> {
    /// Its line in the host's history.
    fn told(&self, operation: &str, project: Option<String>) -> SpecChange {
        let reason = self.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        SpecChange {
            at: self.at,
            by: self.by.to_owned(),
            verb: "cancel".to_owned(),
            message: format!("operation {operation} is withdrawn{reason}"),
            project,
        }
    }
}

/// Withdraws the wish behind an operation, and leaves the rest to the lifecycle: what has not begun ends at
/// once, a boot that is nearly done is finished, a drain is given up and its node takes pods again. A machine
/// that was told to shut down goes through with it.
pub async fn cancel(
    store: &dyn Store,
    operation: &Operation,
    withdrawal: &Withdrawal<'_>,
) -> Result<(), CancelError> {
    let id = operation.id;
    let (host, wanted) = match &operation.subject {
        Subject::Host { host, operation: Some(wanted), .. } => (host, wanted),
        Subject::Host { host, power: Some(_), .. } if !operation.done => {
            let why = format!("it was asked for by hand: muster release host {host}");
            return Err(CancelError::Refused { host: host.clone(), operation: id.to_string(), why });
        }
        Subject::Host { .. } | Subject::Pool { .. } => return Err(CancelError::NotUnderWay { id }),
    };
    let op_key = keys::host(host, HostRecord::Op);
    let Some(entry) = store.get(&op_key).await? else { return Err(CancelError::NotUnderWay { id }) };
    let op: HostOp = serde_json::from_slice(&entry.value).map_err(|_| CancelError::NotUnderWay { id })?;
    if op.id != *wanted {
        return Err(CancelError::NotUnderWay { id });
    }
    let why = match &op.cause {
        Cause::Intent { .. } => None,
        Cause::Manual { .. } => Some("it follows from spec.powerState; take that back"),
        Cause::Deletion => Some("its host is being deleted; take the deletion back"),
        Cause::Drift => Some("it follows from its pool's policy for machines that somebody else switched"),
        Cause::Recovery => Some("it brings a failed attempt to rest"),
        Cause::Probation => Some("a self-test ends by itself"),
        Cause::AllOn => Some("everything is to be on; end the freeze"),
    };
    let why = why.or_else(|| {
        (op.asked_off_at.is_some() || op.force_offs > 0)
            .then_some("the machine was already told to shut down")
    });
    if let Some(why) = why {
        let why = why.to_owned();
        return Err(CancelError::Refused { host: host.clone(), operation: op.id, why });
    }
    let intent_key = keys::host(host, HostRecord::Intent);
    let Some(intent) = store.get(&intent_key).await? else { return Ok(()) }; // withdrawn already
    let changes_key = inventory_keys::changes(host);
    let told = store.get(&changes_key).await?;
    let mut changes: HostChanges =
        told.as_ref().and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default();
    changes.push(changes.digest.clone(), withdrawal.told(&op.id, changes.project()));
    let txn = Txn::new()
        .expect(&op_key, Expect::Modified(entry.modified))
        .expect(&intent_key, Expect::Modified(intent.modified))
        .expect(&changes_key, told.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified)))
        .delete(&intent_key)
        .put(&changes_key, encode(&changes));
    match store.commit(txn).await? {
        Committed::Done { .. } => Ok(()),
        Committed::Refused { .. } => Err(CancelError::Conflict { host: host.clone() }),
    }
}
