//! The store's side: what it holds for an object, as the object should show it.

mod clusters;
mod hosts;
mod pools;
mod status;

use std::sync::Arc;

use muster_model::{
    Clock, FieldErrors,
    resource::{Resource, ResourceKind, shape},
    store::Revision,
};
use serde_json::Value;
use uuid::Uuid;

use super::Reason;
use crate::{
    audit::{AuditLog, Event, Outcome},
    inventory::{Host, Inventory, InventoryError},
    registry::{AuditNote, Cluster, NodePool, Registry, RegistryError, Stored, WriteContext},
};

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The store says no, and the object should say why.
    Refused(Refusal),
    /// Nothing is wrong with the wish; it has to be tried again.
    Later(String),
}

/// A refusal as a condition tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

fn invalid(faults: &FieldErrors) -> Trouble {
    let told: Vec<String> = faults.iter().map(|fault| shape::fault(&fault.to_string())).collect();
    Trouble::Refused(Refusal::new(Reason::Invalid, told.join("; ")))
}

impl From<RegistryError> for Trouble {
    fn from(error: RegistryError) -> Self {
        let text = error.to_string();
        match error {
            RegistryError::Invalid(faults) => invalid(&faults),
            RegistryError::NameTaken { .. } => {
                Self::Refused(Refusal::new(Reason::NameTaken, format!("spec.name: {text}")))
            }
            RegistryError::HasPools { .. } => Self::Refused(Refusal::new(Reason::HasPools, text)),
            RegistryError::Deleting { .. } => Self::Refused(Refusal::new(Reason::Deleting, text)),
            _ => Self::Later(text),
        }
    }
}

impl From<InventoryError> for Trouble {
    fn from(error: InventoryError) -> Self {
        let text = error.to_string();
        match error {
            InventoryError::Invalid(faults) => invalid(&faults),
            InventoryError::Taken { .. } => {
                Self::Refused(Refusal::new(Reason::NameTaken, format!("metadata.name: {text}")))
            }
            InventoryError::Clash { by, .. } => {
                Self::Refused(Refusal::new(Reason::Taken, format!("spec.{}: {text}", by.field())))
            }
            InventoryError::Deleting { .. } => Self::Refused(Refusal::new(Reason::Deleting, text)),
            InventoryError::Held { .. } => Self::Refused(Refusal::new(Reason::Held, text)),
            InventoryError::SetAside { .. } | InventoryError::Serving { .. } => {
                Self::Refused(Refusal::new(Reason::SetAside, text))
            }
            _ => Self::Later(text),
        }
    }
}

/// What the store holds under one id.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: String,
    pub(super) project: String,
    /// What a new object for it is called.
    pub(super) object_name: String,
    pub(super) version: Revision,
    /// Rises with every change of the spec in the store; another count than the object's.
    pub(super) generation: u64,
    pub(super) deleting: bool,
    /// As the object should have it, with defaults.
    pub(super) spec: Value,
    /// What does not depend on the object.
    pub(super) status: Value,
    record: Record,
}

#[derive(Debug)]
enum Record {
    Pool(Box<Stored<NodePool>>, Box<Stored<Cluster>>),
    Cluster(Box<Stored<Cluster>>),
    Host(Arc<Host>),
}

/// What a new record is made of.
#[derive(Debug, Clone)]
pub(super) struct Wish<'a> {
    pub(super) object: &'a Resource,
    /// The spec without what the API server filled in.
    pub(super) spec: Value,
    /// The id that it gets: it follows from the object, so that a second try finds the first.
    pub(super) id: Uuid,
}

/// The store, as seen from objects.
#[derive(Debug, Clone)]
pub(super) struct Side {
    pub(super) registry: Arc<Registry>,
    pub(super) inventory: Arc<Inventory>,
    pub(super) audit: Option<Arc<AuditLog>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Side {
    /// What is held under an id. `cluster_object` gives the name of a cluster's object, which is what pools refer to.
    pub(super) async fn read(
        &self,
        kind: ResourceKind,
        id: &str,
        cluster_object: impl Fn(Uuid) -> Option<String>,
        schema: &Value,
    ) -> Result<Option<Held>, Trouble> {
        let mut held = match kind {
            ResourceKind::NodePool => self.read_pool(id, cluster_object).await?,
            ResourceKind::Cluster => self.read_cluster(id).await?,
            ResourceKind::BareMetalNode => self.read_host(id),
        };
        if let Some(held) = &mut held {
            muster_model::resource::defaults::fill(schema, &mut held.spec);
        }
        Ok(held)
    }

    /// Whether a record of this id is there, without reading all of it.
    pub(super) fn knows(&self, kind: ResourceKind, id: &str, project: &str) -> bool {
        match kind {
            ResourceKind::BareMetalNode => {
                self.inventory.host(id).is_some_and(|host| hosts::project(&host) == project)
            }
            ResourceKind::NodePool | ResourceKind::Cluster => {
                let kind = if kind == ResourceKind::NodePool {
                    crate::registry::Kind::Pool
                } else {
                    crate::registry::Kind::Cluster
                };
                let found = id.parse().ok().and_then(|id| self.registry.summary(kind, id));
                found.is_some_and(|found| *found.project == *project)
            }
        }
    }

    /// Changes a record that is still as it was read; its new revision.
    pub(super) async fn apply(
        &self,
        held: &Held,
        object: &Resource,
        patch: &Value,
    ) -> Result<Option<Revision>, Trouble> {
        let result = match &held.record {
            Record::Pool(pool, cluster) => self.apply_pool(pool, cluster, object, patch).await,
            Record::Cluster(cluster) => self.apply_cluster(cluster, object, patch).await,
            Record::Host(host) => self.apply_host(host, object, patch).await,
        };
        self.told("patch", object, &held.id, result).await
    }

    /// Makes a record for a new object; its id.
    pub(super) async fn create(&self, wish: &Wish<'_>, cluster: Option<Uuid>) -> Result<String, Trouble> {
        let result = match wish.object.kind {
            ResourceKind::NodePool => self.create_pool(wish, cluster).await,
            ResourceKind::Cluster => self.create_cluster(wish).await,
            ResourceKind::BareMetalNode => self.create_host(wish).await,
        };
        let id = match wish.object.kind {
            ResourceKind::BareMetalNode => wish.object.name().to_owned(),
            ResourceKind::NodePool | ResourceKind::Cluster => wish.id.to_string(),
        };
        self.told("create", wish.object, &id, result).await.map(|_| id)
    }

    /// Begins to delete a record, by the same rules as a request.
    pub(super) async fn delete(&self, held: &Held, object: &Resource) -> Result<(), Trouble> {
        let result = match &held.record {
            Record::Pool(pool, _) => self.delete_pool(pool, object).await,
            Record::Cluster(cluster) => self.delete_cluster(cluster, object).await,
            Record::Host(host) => self.delete_host(host, object).await,
        };
        self.told("delete", object, &held.id, result).await.map(drop)
    }

    /// Writes down that an edit came too late.
    pub(super) async fn refused(&self, held: &Held, object: &Resource, refusal: &Refusal) {
        let result = Err(Trouble::Refused(refusal.clone()));
        let _ = self.told("patch", object, &held.id, result).await;
    }

    fn context(&self, object: &Resource) -> WriteContext {
        WriteContext { actor: actor(object), now: self.clock.now(), dry_run: false, idempotency: None }
    }

    /// Writes down what was done or refused; the revision of what was done.
    async fn told(
        &self,
        verb: &str,
        object: &Resource,
        id: &str,
        result: Result<AuditNote, Trouble>,
    ) -> Result<Option<Revision>, Trouble> {
        let (outcome, status, note) = match &result {
            Ok(note) => (Outcome::Done, 200, Some(note)),
            // What was refused before, and said, is tried again from time to time.
            Err(Trouble::Refused(refusal)) if super::status::says(object, refusal) => {
                (Outcome::Refused, 0, None)
            }
            Err(Trouble::Refused(refusal)) if refusal.reason == Reason::Invalid => {
                (Outcome::Refused, 400, None)
            }
            Err(Trouble::Refused(_)) => (Outcome::Refused, 409, None),
            Err(Trouble::Later(_)) => (Outcome::Failed, 0, None),
        };
        if let Some(audit) = self.audit.as_ref().filter(|_| status > 0) {
            let place = match object.kind {
                ResourceKind::Cluster => "clusters",
                ResourceKind::NodePool => "nodepools",
                ResourceKind::BareMetalNode => "hosts",
            };
            let event = Event {
                at: self.clock.now(),
                actor: actor(object),
                mode: "custom-resource".to_owned(),
                source: "kubernetes".to_owned(),
                request_id: format!("{}/{}", object.uid(), object.generation()),
                verb: verb.to_owned(),
                object: format!("{place}/{id}"),
                name: note.map(|note| note.name.clone()).unwrap_or_default(),
                project: object.namespace().to_owned(),
                outcome,
                status,
                revision: note.and_then(|note| note.revision),
                before: note.and_then(|note| note.before.clone()),
                after: note.and_then(|note| note.after.clone()),
                changed: note.map(|note| note.changed.clone()).unwrap_or_default(),
                power: None,
            };
            if let Err(error) = audit.record(event).await {
                tracing::error!(%error, "a change that came by a custom resource is not in the audit log");
            }
        }
        result.map(|note| note.revision.map(Revision))
    }
}

impl Held {
    /// Whether a patch of the spec says nothing new.
    pub(super) fn agrees(&self, patch: &Value) -> bool {
        if patch.as_object().is_some_and(serde_json::Map::is_empty) {
            return true;
        }
        // A pool belongs to its cluster; one that was written away is written back.
        if patch.get("cluster").is_some() {
            return false;
        }
        match &self.record {
            Record::Pool(pool, cluster) => pools::agrees(pool, cluster, patch),
            Record::Cluster(cluster) => clusters::agrees(cluster, patch),
            Record::Host(host) => hosts::agrees(host, patch),
        }
    }
}

/// Who a change that came by an object is from. The API server knows the person, and does not tell.
fn actor(object: &Resource) -> String {
    format!("kubernetes:{}", object.key())
}
