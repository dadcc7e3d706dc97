//! Why the inventory refuses.

use muster_model::{
    FieldErrors,
    host::unique::Identifier,
    store::{Revision, StoreError},
};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum InventoryError {
    #[error("{kind} not found")]
    NotFound { kind: &'static str },
    #[error("{kind} with name '{name}' already exists in the inventory")]
    Taken { kind: &'static str, name: String },
    /// Two records would mean one machine.
    #[error("{} {value} belongs to host {owner}; a machine is registered once", by.field())]
    Clash { by: Identifier, value: String, owner: String },
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error("the precondition does not hold; the present version is {current}")]
    Precondition { current: Revision },
    #[error("resource_version is {sent}, and the object is at {current}; read it again")]
    Stale { sent: String, current: Revision },
    #[error("host {name} is being deleted")]
    Deleting { name: String },
    /// The stored record cannot be read, so it can only be replaced or deleted.
    #[error("the stored record of host {name} was set aside: {why}")]
    SetAside { name: String, why: String },
    /// What would have to be drained first cannot be: its record is not in use.
    #[error("host {name} cannot be drained: it is {phase}, and its record is set aside: {why}")]
    Serving { name: String, phase: String, why: String },
    /// Somebody else keeps the host as it is.
    #[error("host {name} is held by {by}: {reason}")]
    Held { name: String, by: String, reason: String },
    #[error("{kind} {name} is used by {users}")]
    InUse { kind: &'static str, name: String, users: String },
    #[error("this Idempotency-Key was used with another request")]
    IdempotencyMismatch,
    #[error("the inventory is being changed by many at once; try again")]
    Busy,
    #[error("revision {asked} is too old to watch from; list again")]
    Gone { asked: Revision },
    #[error("the feed of changes is down, so lists would be out of date")]
    Stalled,
    #[error("a stored value cannot be read")]
    Damaged { key: String, source: serde_json::Error },
    /// The credential store cannot encrypt or decrypt.
    #[error("credential {name} cannot be used: {why}")]
    Vault { name: String, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}
