//! The planner: from a snapshot to machines, placements and reasons.

mod classes;
mod hash;
mod targets;
mod terms;
mod translate;
pub mod types;

pub use translate::{Input, Offer, Translated, translate};
pub use types::{NewNode, Placement, Plan, Removal, Source, Target};
