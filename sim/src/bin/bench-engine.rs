//! Measures the planner; `muster bench engine` calls the same library.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_sim::bench_engine::run(std::env::args().skip(1))
}
