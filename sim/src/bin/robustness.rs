//! Prints how many pods of a plan stay pending when the scheduler chooses nodes itself: one line per scenario.

use std::{io::Write, process::ExitCode};

use muster_engine::plan::scale_up;
use muster_sim::{
    replay::{Order, left_pending},
    scenario,
};

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    for path in std::env::args().skip(1) {
        let loaded = std::fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| scenario::load(&bytes).map_err(|error| error.to_string()));
        let snapshot = match loaded {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let _ = writeln!(out, "{path}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let plan = scale_up(&snapshot).plan;
        let [most, least] = [Order::MostAllocated, Order::LeastAllocated]
            .map(|order| left_pending(&snapshot, &plan, order).len());
        let (pods, nodes) = (plan.placements.len(), plan.new_nodes.len());
        let line = writeln!(
            out,
            "{path}: {pods} pods, {nodes} new nodes; left pending: {most} most allocated, {least} least allocated"
        );
        if line.is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
