//! Conformance with the real scheduler.

pub mod conformance;
