//! Conformance with the real scheduler.

pub mod conformance;
pub mod scenario;
pub mod bench_engine;
