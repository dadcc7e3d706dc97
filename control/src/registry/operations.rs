//! Operations: a scale action on a pool or a power action on a host, and what became of it.
//!
//! An operation is written with the change that it stands for. It ends when the pool has reached the
//! size, when somebody asked for another size, when controllers gave up, or when the pool is gone; how it
//! ended is stored, so that a later change does not rewrite the past.

use muster_model::{
    Duration, Timestamp,
    field::Choice,
    status::{Phase, nodes_are},
    store::{Committed, Entry, Expect, Revision, Txn},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::inventory::PowerOrder;

use super::{
    Registry, RegistryError,
    filter::Filter,
    index::{Found, OPEN, Start},
    keys::{self, Kind},
    noun::{NodePool, Noun, Stored},
    write,
};

/// Finished operations that are kept: with 500 bytes each, 5 MB in the store.
const KEEP_FINISHED: usize = 10_000;
/// How long a finished operation can be looked up.
const KEEP_FOR: Duration = Duration::from_hours(30 * 24);
/// Operations removed in one tick of the timer, so that a backlog does not stop everything else.
const PRUNE_BATCH: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationState {
    Running,
    Succeeded,
    /// Another change took its place.
    Superseded,
    Failed,
}

impl OperationState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => OPEN,
            Self::Succeeded => "Succeeded",
            Self::Superseded => "Superseded",
            Self::Failed => "Failed",
        }
    }
}

impl Choice for OperationState {
    const WHAT: &'static str = "a state of an operation";
    const ALL: &'static [(&'static str, Self)] = &[
        (OPEN, Self::Running),
        ("Succeeded", Self::Succeeded),
        ("Superseded", Self::Superseded),
        ("Failed", Self::Failed),
    ];
}

/// One operation. It is about a pool or about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: Uuid,
    /// What is done: `scale`, `power-on`, `power-off`, `power-cycle`, `self-test`.
    pub kind: String,
    pub project: String,
    #[serde(flatten)]
    pub subject: Subject,
    pub state: OperationState,
    pub done: bool,
    pub message: String,
    pub created_at: Timestamp,
    pub created_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// What an operation is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Subject {
    Pool {
        nodepool_id: Uuid,
        cluster_id: Uuid,
        nodepool_name: String,
        /// Nodes that the pool should have.
        target_nodes: u32,
        /// The pool's generation that the change made.
        generation: u64,
    },
    Host {
        host: String,
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        power: Option<PowerOrder>,
        /// The id in the host's own record, for operations that the host loop began.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<String>,
        /// Where the host stood at the last change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
}

impl Operation {
    pub(crate) fn end(&mut self, state: OperationState, message: String, now: Timestamp) {
        (self.state, self.message, self.done, self.finished_at) = (state, message, true, Some(now));
    }

    /// A scale action on a pool that has just been changed to it.
    pub fn scale(id: Uuid, pool: &NodePool, target_nodes: u32, by: &str, now: Timestamp) -> Self {
        Self {
            id,
            kind: "scale".into(),
            project: pool.project.to_string(),
            subject: Subject::Pool {
                nodepool_id: pool.id.uuid(),
                cluster_id: pool.cluster_id.uuid(),
                nodepool_name: pool.name.to_string(),
                target_nodes,
                generation: pool.generation,
            },
            state: OperationState::Running,
            done: false,
            message: format!("waiting until {} ready", nodes_are(target_nodes)),
            created_at: now,
            created_by: by.to_owned(),
            finished_at: None,
        }
    }

    /// Adds the operation to the transaction of the change that it stands for.
    pub fn attach(&self, context: &write::WriteContext, txn: Txn) -> Txn {
        let key = keys::operation(self.id);
        let value = write::encode(self);
        let txn = match &context.idempotency {
            Some(idempotency) => idempotency.record(txn, &value, context.now),
            None => txn,
        };
        txn.expect(&key, Expect::Absent).put(&key, value)
    }

    /// The pool that it is about, if it is about one.
    pub fn nodepool_id(&self) -> Option<Uuid> {
        match &self.subject {
            Subject::Pool { nodepool_id, .. } => Some(*nodepool_id),
            Subject::Host { .. } => None,
        }
    }

    /// The host that it is about, if it is about one.
    pub fn host(&self) -> Option<&str> {
        match &self.subject {
            Subject::Host { host, .. } => Some(host),
            Subject::Pool { .. } => None,
        }
    }

    /// How the operation stands, given its pool. Pure; `None` while it goes on.
    fn verdict(&self, pool: Option<&Stored<NodePool>>) -> Option<(OperationState, String)> {
        let Subject::Pool { generation, target_nodes, .. } = self.subject else { return None };
        let Some(stored) = pool.filter(|stored| !stored.object.is_deleting()) else {
            return Some((OperationState::Failed, "the pool was deleted".into()));
        };
        let status = stored.status();
        if stored.object.generation > generation && status.desired_nodes != target_nodes {
            let wanted = status.desired_nodes;
            let nodes = if wanted == 1 { "node was" } else { "nodes were" };
            return Some((OperationState::Superseded, format!("{wanted} {nodes} asked for meanwhile")));
        }
        if status.observed_generation < generation {
            return None;
        }
        if status.phase == Phase::Failed {
            return Some((OperationState::Failed, status.message));
        }
        (status.phase == Phase::Ready && status.ready_nodes.or(status.current_nodes) == Some(target_nodes))
            .then(|| (OperationState::Succeeded, format!("{} ready", nodes_are(target_nodes))))
    }
}

impl Registry {
    pub async fn operation(&self, id: Uuid) -> Result<Operation, RegistryError> {
        let entry = self.shared.store.get(&keys::operation(id)).await?;
        decode(&entry.ok_or(RegistryError::NoOperation)?)
    }

    /// A page of operations, newest first. `filter.cluster` is the pool, `filter.phase` the state.
    pub async fn operations(
        &self,
        filter: &Filter,
        start: Start,
        limit: usize,
    ) -> Result<(Found, Vec<Operation>), RegistryError> {
        let found = self.list(Kind::Operation, filter, start, limit)?;
        let read = |id: Uuid| async move {
            let entry = self.shared.store.get(&keys::operation(id)).await?;
            entry.as_ref().map(decode).transpose()
        };
        let read = futures::future::try_join_all(found.items.iter().map(|item| read(item.id))).await?;
        Ok((found, read.into_iter().flatten().collect()))
    }

    /// Operations under way, oldest first.
    pub async fn open_operations(&self) -> Result<Vec<Operation>, RegistryError> {
        let open: Vec<Uuid> = self.shared.index().open_operations.iter().copied().collect();
        let mut found = Vec::with_capacity(open.len());
        for id in open {
            let Some(entry) = self.shared.store.get(&keys::operation(id)).await? else { continue };
            let operation = self.shared.decoded.get(&entry, decode)?;
            if !operation.done {
                found.push(Operation::clone(&operation));
            }
        }
        found.sort_by_key(|operation| (operation.created_at, operation.id));
        Ok(found)
    }

    /// Stores an operation by itself, for a change that changed nothing.
    pub async fn put_operation(
        &self,
        context: &write::WriteContext,
        operation: &Operation,
    ) -> Result<(), RegistryError> {
        let txn = operation.attach(context, Txn::new());
        match self.shared.store.commit(txn).await? {
            Committed::Done { revision } => {
                self.shared.caught_up(revision).await;
                Ok(())
            }
            Committed::Refused { .. } => Err(RegistryError::Busy),
        }
    }

    /// The operation that the same request began before.
    pub async fn replayed_operation(
        &self,
        context: &write::WriteContext,
    ) -> Result<Option<Operation>, RegistryError> {
        let Some(key) = &context.idempotency else { return Ok(None) };
        let Some((text, _)) = super::idempotency::Replay::text(&self.shared, key).await? else {
            return Ok(None);
        };
        let first: Operation = serde_json::from_slice(&text)
            .map_err(|source| RegistryError::Damaged { key: keys::IDEMPOTENCY.into(), source })?;
        Ok(Some(first))
    }

    /// Ends an operation whose pool says that it is over. Returns it as it stands then.
    pub async fn settle_operation(&self, id: Uuid) -> Result<Operation, RegistryError> {
        let key = keys::operation(id);
        let entry = self.shared.store.get(&key).await?.ok_or(RegistryError::NoOperation)?;
        let mut operation: Operation = decode(&entry)?;
        if operation.done {
            return Ok(operation);
        }
        // Operations on hosts are ended by the inventory, which knows them.
        let Some(pool) = operation.nodepool_id() else { return Ok(operation) };
        let pool = self.read::<NodePool>(pool).await?;
        let Some((state, message)) = operation.verdict(pool.as_ref()) else { return Ok(operation) };
        operation.state = state;
        operation.message = message;
        operation.done = true;
        operation.finished_at = Some(self.shared.clock.now());
        let txn =
            Txn::new().expect(&key, Expect::Modified(entry.modified)).put(&key, write::encode(&operation));
        if let Committed::Done { revision } = self.shared.store.commit(txn).await? {
            self.shared.caught_up(revision).await;
        }
        Ok(operation)
    }
}

/// Ends every open operation that is over.
pub(super) async fn settle(registry: &Registry) -> Result<(), RegistryError> {
    let open: Vec<Uuid> = registry.shared.index().open_operations.iter().copied().collect();
    for id in open {
        match registry.settle_operation(id).await {
            Ok(_) | Err(RegistryError::NoOperation) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes finished operations that are old or too many, oldest first; at most [`PRUNE_BATCH`] at once.
pub(super) async fn prune(registry: &Registry) -> Result<usize, RegistryError> {
    let now = registry.shared.clock.now();
    let gone: Vec<(Uuid, Revision)> = {
        let index = registry.shared.index();
        let finished = || index.operations.iter().filter(|summary| summary.phase != OPEN);
        let surplus = finished().count().saturating_sub(KEEP_FINISHED);
        let due = finished()
            .enumerate()
            .take_while(|(place, summary)| *place < surplus || now.since(summary.created_at) > KEEP_FOR);
        due.take(PRUNE_BATCH).map(|(_, summary)| (summary.id, summary.version)).collect()
    };
    for (id, version) in &gone {
        let key = keys::operation(*id);
        // Refused: another process removed it.
        let txn = Txn::new().expect(&key, Expect::Modified(*version)).delete(&key);
        let _ = registry.shared.store.commit(txn).await?;
    }
    Ok(gone.len())
}

pub(crate) fn decode(entry: &Entry) -> Result<Operation, RegistryError> {
    serde_json::from_slice(&entry.value)
        .map_err(|source| RegistryError::Damaged { key: entry.key.clone(), source })
}
