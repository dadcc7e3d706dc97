//! Conformance with the real scheduler.

pub mod bench_engine;
pub mod conformance;
pub mod scenario;
pub mod simulate;
pub mod tree;
