//! Decides like kube-scheduler and plans machines: pure functions over one snapshot.
//!
//! No clock, no I/O, no randomness, no floats in decisions, no order that depends on a hash map.

pub mod admit;
pub mod audit;
pub mod down;
pub mod explain;
pub mod fit;
pub mod groups;
pub mod lifecycle;
pub mod plan;
pub mod snapshot;
pub mod solve;
pub mod template;
mod trouble;

pub use audit::audit;
pub use plan::Plan;
pub use snapshot::Snapshot;
pub use trouble::is_pool_in_trouble;
