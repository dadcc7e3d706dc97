//! Why the registry refuses.

use muster_model::{
    field::FieldErrors,
    store::{Revision, StoreError},
};
use thiserror::Error;

use super::keys::Kind;

#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("{} not found", kind.title())]
    NotFound { kind: Kind },
    #[error("operation not found")]
    NoOperation,
    /// The body is wrong; every fault is listed.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error("{} with name '{name}' already exists in {place}", kind.title())]
    NameTaken { kind: Kind, name: String, place: &'static str },
    #[error("{} {id} exists already", kind.title())]
    IdTaken { kind: Kind, id: String },
    /// The caller's `If-Match` or `If-None-Match` does not hold.
    #[error("the precondition does not hold; the present version is {current}")]
    Precondition { current: Revision },
    /// The body carries a resource version that is not the present one.
    #[error("resource_version is {sent}, and the object is at {current}; read it again")]
    Stale { sent: String, current: Revision },
    #[error("the cluster still has {count} pool{}: {}", if *count == 1 { "" } else { "s" }, names.join(", "))]
    HasPools { count: usize, names: Vec<String> },
    #[error("the {} is being deleted", kind.title())]
    Deleting { kind: Kind },
    /// A report about a generation that does not exist yet.
    #[error("observed_generation {observed} is ahead of the object, which is at generation {current}")]
    Ahead { observed: u64, current: u64 },
    #[error("this Idempotency-Key was used with another request")]
    IdempotencyMismatch,
    /// Others changed the object again and again while we tried.
    #[error("the object is being changed by many at once; try again")]
    Busy,
    /// The history that a watch asks for is gone.
    #[error("revision {asked} is too old to watch from; list again")]
    Gone { asked: Revision },
    #[error("a stored value cannot be read")]
    Damaged { key: String, source: serde_json::Error },
    #[error("the feed of changes is down, so lists would be out of date")]
    Stalled,
    #[error(transparent)]
    Store(#[from] StoreError),
}
