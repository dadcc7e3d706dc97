//! The planner: from a snapshot to machines, placements and reasons.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "ids are u32 by design; a snapshot with 2^32 pods does not fit in memory"
)]

mod balance;
pub(crate) mod classes;
mod decide;
mod disks;
mod draft;
mod explain;
pub(crate) mod hash;
pub(crate) mod headroom;
mod loaded;
mod look;
mod offers;
mod scene;
mod targets;
mod terms;
mod translate;
pub mod types;

pub use classes::PodClass;
pub use decide::{Decision, Explain, problem, scale_up, scale_up_with};
pub use explain::{ClassReport, Growth, PoolGrowth, PoolReason, Preferences, Reason, Report};
pub use loaded::Loaded;
pub use offers::{HostRefusal, LimitName};
pub(crate) use translate::in_bounds;
pub use translate::{Input, Offer, Running, Translated, Wishes, translate};
pub use types::{NewNode, Placement, Plan, Removal, Source, Target};

#[cfg(test)]
mod tests;
