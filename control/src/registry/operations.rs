//! Operations: a scale action on a pool or a power action on a host, and what became of it.
//!
//! An operation is written with the change that it stands for. It ends when the pool has reached the
//! size, when somebody asked for another size, when controllers gave up, or when the pool is gone; how it
//! ended is stored, so that a later change does not rewrite the past.

use muster_model::{
    Timestamp,
    status::Phase,
    store::{Committed, Entry, Expect, List, Txn},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::inventory::PowerOrder;

use super::{
    Registry, RegistryError, keys,
    noun::{NodePool, Noun, Stored},
    write,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationState {
    Running,
    Succeeded,
    /// Another change took its place.
    Superseded,
    Failed,
}

/// One operation. It is about a pool or about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: Uuid,
    /// What is done: `scale`, `power-on`, `power-off`, `power-cycle`.
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
    },
}

/// Operations on pools that the index follows.
#[derive(Debug, Deserialize)]
pub(super) struct LightOperation {
    #[serde(default)]
    pub(super) nodepool_id: Option<Uuid>,
    pub(super) done: bool,
}

impl Operation {
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
            message: format!("waiting until {target_nodes} nodes are ready"),
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
            return Some((OperationState::Superseded, format!("{wanted} nodes were asked for meanwhile")));
        }
        if status.observed_generation < generation {
            return None;
        }
        if status.phase == Phase::Failed {
            return Some((OperationState::Failed, status.message));
        }
        (status.phase == Phase::Ready && status.ready_nodes.or(status.current_nodes) == Some(target_nodes))
            .then(|| (OperationState::Succeeded, format!("{target_nodes} nodes are ready")))
    }
}

impl Registry {
    pub async fn operation(&self, id: Uuid) -> Result<Operation, RegistryError> {
        let entry = self.shared.store.get(&keys::operation(id)).await?;
        decode(&entry.ok_or(RegistryError::NoOperation)?)
    }

    /// Operations newest first, as far as `wants` takes them.
    pub async fn operations(
        &self,
        wants: impl Fn(&Operation) -> bool,
    ) -> Result<Vec<Operation>, RegistryError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.shared.store.list(List { after, ..List::prefix(keys::OPERATIONS) }).await?;
            after = page.entries.last().map(|entry| entry.key.clone());
            found.extend(page.entries.iter().filter_map(|entry| decode(entry).ok()).filter(&wants));
            if !page.more || after.is_none() {
                break;
            }
        }
        found.sort_by_key(|operation| std::cmp::Reverse((operation.created_at, operation.id)));
        Ok(found)
    }

    /// Operations under way, oldest first. The index knows them; while it is not fed, all are looked through.
    pub async fn running_operations(&self) -> Result<Vec<Operation>, RegistryError> {
        if !self.is_live() {
            let mut found = self.operations(|operation| !operation.done).await?;
            found.reverse();
            return Ok(found);
        }
        let ids: Vec<Uuid> = self.shared.index().open_operations.keys().copied().collect();
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            match self.operation(id).await {
                Ok(operation) if !operation.done => found.push(operation),
                Ok(_) | Err(RegistryError::NoOperation) => {}
                Err(error) => return Err(error),
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
    let open: Vec<Uuid> = registry.shared.index().open_operations.keys().copied().collect();
    for id in open {
        match registry.settle_operation(id).await {
            Ok(_) | Err(RegistryError::NoOperation) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) fn decode(entry: &Entry) -> Result<Operation, RegistryError> {
    serde_json::from_slice(&entry.value)
        .map_err(|source| RegistryError::Damaged { key: entry.key.clone(), source })
}
