//! How refusals of the registry, the inventory and the store are answered: the same refusal in the same words, whoever
//! it comes from.

use muster_control::{inventory::InventoryError, registry::RegistryError};
use muster_model::store::{Revision, StoreError};

use crate::error::{ApiError, Code};

impl ApiError {
    fn conflict(message: impl Into<String>, details: impl Into<String>) -> Self {
        Self::new(Code::Conflict, message).details(details)
    }

    fn not_as_demanded(current: Revision) -> Self {
        Self::new(Code::PreconditionFailed, "The object is not as the request demands")
            .details(format!("its present version is \"{current}\"; read it again"))
    }

    fn key_reused() -> Self {
        Self::new(Code::IdempotencyMismatch, "This Idempotency-Key was used with another request")
            .details("use a new key for a new request")
    }

    fn too_old() -> Self {
        Self::new(Code::Gone, "That revision is too old").details("list again and watch from there")
    }

    fn damaged(key: &str, source: &serde_json::Error) -> Self {
        tracing::error!(key, %source, "a stored value cannot be read");
        Self::internal()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Compacted { .. } => return Self::too_old(),
            StoreError::Future { asked, current } => {
                return Self::new(Code::Gone, "That revision is ahead of the store")
                    .details(format!("{asked} was asked for, and the store is at {current}; list again"));
            }
            _ => tracing::warn!(code = error.code(), %error, "the store failed a request"),
        }
        match error {
            StoreError::Invalid { .. } | StoreError::Damaged { .. } => Self::internal(),
            StoreError::Ambiguous { .. } => Self::unavailable()
                .details("whether the change was made is not known; read the object again"),
            StoreError::Full { .. } => Self { message: "The store takes no writes".into(), ..Self::unavailable() }
                .details("its disk is full or cannot be written; nothing was changed, and reads go on: the server's log and `muster doctor` say more"),
            _ => Self::unavailable(),
        }
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let text = error.to_string();
        match error {
            RegistryError::NotFound { kind } => Self::not_found(kind.title()),
            RegistryError::NoOperation => Self::not_found("Operation"),
            RegistryError::Invalid(faults) => Self::validation(&faults),
            RegistryError::Precondition { current } => Self::not_as_demanded(current),
            RegistryError::Stale { .. } => Self::conflict("The object has changed", text),
            RegistryError::HasPools { .. } => Self::conflict(
                "The cluster still has pools",
                format!("{text}; delete them first, or add ?cascade=true"),
            ),
            RegistryError::NameTaken { .. }
            | RegistryError::IdTaken { .. }
            | RegistryError::Deleting { .. }
            | RegistryError::Ahead { .. } => Self::new(Code::Conflict, text),
            RegistryError::Busy => {
                Self::conflict("The object is being changed by others", "read it again and repeat the change")
            }
            RegistryError::IdempotencyMismatch => Self::key_reused(),
            RegistryError::Gone { .. } => Self::too_old(),
            RegistryError::Stalled => Self::unavailable(),
            RegistryError::Store(error) => error.into(),
            RegistryError::Damaged { key, source } => Self::damaged(&key, &source),
        }
    }
}

impl From<InventoryError> for ApiError {
    fn from(error: InventoryError) -> Self {
        let text = error.to_string();
        match error {
            InventoryError::NotFound { kind } => Self::not_found(kind),
            InventoryError::Invalid(faults) => Self::validation(&faults),
            InventoryError::Precondition { current } => Self::not_as_demanded(current),
            InventoryError::Stale { .. } => Self::conflict("The object has changed", text),
            InventoryError::Clash { by, .. } => {
                Self::conflict("Another host has it", format!("spec.{}: {text}", by.field()))
            }
            InventoryError::SetAside { .. } => Self::conflict(
                "The record was set aside",
                format!("{text}; replace it with PUT, or delete it"),
            ),
            InventoryError::Serving { .. } => Self::conflict(
                "The host cannot be drained",
                format!(
                    "{text}; correct the record first, or delete it with force: nothing is done to the machine then"
                ),
            ),
            InventoryError::Held { .. } => {
                Self::conflict("Somebody else holds the host", format!("{text}; release it first"))
            }
            InventoryError::InUse { .. } => {
                Self::conflict("The record is in use", format!("{text}; change them first"))
            }
            InventoryError::Taken { .. } | InventoryError::Deleting { .. } => Self::new(Code::Conflict, text),
            InventoryError::Busy => Self::conflict(
                "The inventory is being changed by others",
                "read it again and repeat the change",
            ),
            InventoryError::IdempotencyMismatch => Self::key_reused(),
            InventoryError::Gone { .. } => Self::too_old(),
            InventoryError::Vault { .. } => Self::conflict("The credential cannot be used", text),
            InventoryError::Stalled => Self::unavailable(),
            InventoryError::Store(error) => error.into(),
            InventoryError::Damaged { key, source } => Self::damaged(&key, &source),
        }
    }
}
