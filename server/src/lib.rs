//! The REST service: paths and bodies, identity, limits, metrics, and the listener underneath.

pub mod body;
pub mod error;
pub mod identity;
pub mod limits;
pub mod listen;
pub mod metrics;
pub mod peer;
pub mod preconditions;
pub mod tls;
