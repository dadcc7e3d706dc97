//! Who may do what to the records of the inventory, and how its refusals are answered.

use muster_control::inventory::{Host, HostFilter, Inventory, InventoryError};
use muster_model::{
    Project,
    identity::{Resource, Verb, allowed},
    store::StoreError,
};
use std::sync::Arc;

use super::Call;
use crate::error::{ApiError, Code};

/// Where records belong that name no project: what tools write straight into the store.
pub(super) const DEFAULT_PROJECT: &str = "default";

impl Call {
    pub(super) fn inventory(&self) -> &Arc<Inventory> {
        &self.app.inventory
    }

    /// The project that a record without one belongs to. In dev mode that is whoever asks: there is one person.
    fn unowned(&self) -> String {
        let own = self.project.as_ref().or(self.caller.identity.home.as_ref());
        match own {
            Some(project) if self.app.identity.is_dev() => project.to_string(),
            _ => DEFAULT_PROJECT.to_owned(),
        }
    }

    /// The project of a record, as this caller sees it.
    pub(super) fn project_of(&self, project: Option<&str>) -> String {
        project.map_or_else(|| self.unowned(), str::to_owned)
    }

    /// What lists and watches of hosts are limited to.
    pub(super) fn host_filter(&self) -> HostFilter {
        let call = self.clone();
        HostFilter {
            visible: Some(Arc::new(move |project| call.sees(&call.project_of(project)))),
            ..HostFilter::default()
        }
    }

    /// Fails with 404 for a project that the caller does not see, with 403 for a missing role.
    pub(super) fn check_record(
        &self,
        verb: Verb,
        resource: Resource,
        title: &str,
        project: &str,
    ) -> Result<(), ApiError> {
        let missing = || ApiError::not_found(title);
        if !self.sees(project) {
            return Err(missing());
        }
        let project = project.parse::<Project>().map_err(|_| missing())?;
        allowed(&self.caller.identity, verb, resource, &project).map_err(|denied| {
            if denied.visible { ApiError::forbidden(denied.to_string()) } else { missing() }
        })
    }

    /// A host that the caller may do this to.
    pub(super) fn checked_host(&self, verb: Verb, name: &str) -> Result<Arc<Host>, ApiError> {
        let host = self.inventory().host(name).ok_or_else(|| ApiError::not_found(HOST))?;
        self.check_record(verb, Resource::Hosts, HOST, &self.project_of(host.project()))?;
        Ok(host)
    }
}

pub(super) const HOST: &str = "BareMetalNode";

/// How a refusal of the inventory is answered.
impl From<InventoryError> for ApiError {
    fn from(error: InventoryError) -> Self {
        match error {
            InventoryError::NotFound { kind } => Self::not_found(kind),
            InventoryError::Invalid(faults) => Self::validation(&faults),
            InventoryError::Precondition { current } => {
                Self::new(Code::PreconditionFailed, "The object is not as the request demands")
                    .details(format!("its present version is \"{current}\"; read it again"))
            }
            InventoryError::Stale { .. } => {
                Self::new(Code::Conflict, "The object has changed").details(error.to_string())
            }
            InventoryError::Clash { by, .. } => Self::new(Code::Conflict, "Another host has it")
                .details(format!("spec.{}: {error}", by.field())),
            InventoryError::SetAside { .. } => Self::new(Code::Conflict, "The record was set aside")
                .details(format!("{error}; replace it with PUT, or delete it")),
            InventoryError::Held { .. } => Self::new(Code::Conflict, "Somebody else holds the host")
                .details(format!("{error}; release it first")),
            InventoryError::InUse { .. } => Self::new(Code::Conflict, "The record is in use")
                .details(format!("{error}; change them first")),
            InventoryError::Taken { .. } | InventoryError::Deleting { .. } => {
                Self::new(Code::Conflict, error.to_string())
            }
            InventoryError::Busy => Self::new(Code::Conflict, "The inventory is being changed by others")
                .details("read it again and repeat the change"),
            InventoryError::IdempotencyMismatch => {
                Self::new(Code::IdempotencyMismatch, "This Idempotency-Key was used with another request")
                    .details("use a new key for a new request")
            }
            InventoryError::Gone { .. } | InventoryError::Store(StoreError::Compacted { .. }) => {
                Self::new(Code::Gone, "That revision is too old").details("list again and watch from there")
            }
            InventoryError::Store(StoreError::Future { asked, current }) => {
                Self::new(Code::Gone, "That revision is ahead of the store")
                    .details(format!("{asked} was asked for, and the store is at {current}; list again"))
            }
            InventoryError::Vault { .. } => {
                Self::new(Code::Conflict, "The credential cannot be used").details(error.to_string())
            }
            InventoryError::Stalled => Self::unavailable(),
            InventoryError::Store(error) => {
                tracing::warn!(code = error.code(), %error, "the store failed a request");
                match error {
                    StoreError::Invalid { .. } | StoreError::Damaged { .. } => Self::internal(),
                    StoreError::Ambiguous { .. } => Self::unavailable()
                        .details("whether the change was made is not known; read the object again"),
                    _ => Self::unavailable(),
                }
            }
            InventoryError::Damaged { key, source } => {
                tracing::error!(key, %source, "a stored value cannot be read");
                Self::internal()
            }
        }
    }
}
