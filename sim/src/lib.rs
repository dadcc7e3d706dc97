//! Conformance with the real scheduler, simulations, replays and benches.

pub mod bench_engine;
pub mod conformance;
pub mod fuzzing;
pub mod replay;
pub mod scenario;
pub mod simulate;
pub mod tree;
pub mod world;
