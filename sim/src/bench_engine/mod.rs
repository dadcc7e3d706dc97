//! Benches of the planner: cases, bounds, tables.
#![allow(clippy::cast_precision_loss, reason = "reports and bounds, not decisions")]

pub mod bound;
