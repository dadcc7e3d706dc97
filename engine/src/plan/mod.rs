//! The planner: from a snapshot to machines, placements and reasons.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "ids are u32 by design; a snapshot with 2^32 pods does not fit in memory"
)]

pub(crate) mod classes;
mod decide;
mod explain;
pub(crate) mod hash;
mod offers;
mod soft;
mod targets;
mod terms;
mod translate;
pub mod types;

pub use classes::PodClass;
pub use decide::{Decision, Explain, problem, scale_up, scale_up_with};
pub use explain::{ClassReport, PoolReason, Preferences, Reason, Report};
pub use offers::{HostRefusal, LimitName};
pub(crate) use translate::in_bounds;
pub use translate::{Input, Offer, Translated, translate};
pub use types::{NewNode, Placement, Plan, Removal, Source, Target};
