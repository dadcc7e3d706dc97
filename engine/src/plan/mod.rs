//! The planner: from a snapshot to machines, placements and reasons.

pub(crate) mod classes;
pub(crate) mod hash;
mod targets;
mod terms;
mod translate;
pub mod types;

pub use translate::{Input, Offer, Translated, translate};
pub use types::{NewNode, Placement, Plan, Removal, Source, Target};
