//! Plans: what they consist of.

pub mod types;

pub use types::{NewNode, Placement, Plan, Removal, Source, Target};
