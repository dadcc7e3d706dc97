//! The nouns of Muster, their validation, and the ports through which the rest of the system reaches
//! the outside world.
//!
//! Nothing here does I/O, reads a clock or knows an adapter. Every other crate depends on this one.

pub mod catalogue;
pub mod clock;
pub mod cluster;
pub mod condition;
pub mod connection;
pub mod credential;
pub mod field;
pub mod host;
pub mod identity;
pub mod ids;
pub mod k8s;
pub mod known;
pub mod lease;
pub mod names;
pub mod observe;
pub mod patch;
pub mod planted;
pub mod platform;
pub mod pool;
pub mod power;
pub mod quantity;
pub mod rack;
pub mod report;
pub mod resource;
pub mod restored;
pub mod secret;
pub mod slowness;
pub mod status;
pub mod steady;

pub mod store;
pub mod suggest;
#[cfg(test)]
mod test_support;
pub mod time;
pub mod trigger;

pub use clock::Clock;
pub use cluster::Cluster;
pub use field::{FieldError, FieldErrors, Parsed};
pub use ids::{ClusterId, PoolId};
pub use known::Known;
pub use names::{Name, Project};
pub use pool::NodePool;
pub use quantity::Quantity;
pub use report::Report;
pub use secret::Secret;
pub use time::{Duration, Timestamp};

/// API group of the custom resources, and prefix of every label and annotation that Muster writes.
pub const API_GROUP: &str = "muster.dev";
/// API version of the custom resources.
pub const API_VERSION: &str = "v1alpha1";
/// The label that carries the name of its pool on every node.
pub const NODEPOOL_LABEL: &str = "nodepool";
