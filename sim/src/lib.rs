//! Conformance with the real scheduler, simulations, replays and benches.

pub mod bench_engine;
pub mod conformance;
pub mod fuzzing;
pub mod replay;
pub mod scenario;
pub mod simulate;
pub mod tree;
pub mod world;

/// The reference of reasons: those of explanations, and those of custom resources.
pub fn reasons() -> String {
    let parts = [
        muster_engine::explain::reference(),
        muster_model::host::BlockCause::reference(),
        muster_control::resources::reference(),
    ];
    parts.join("\n")
}
