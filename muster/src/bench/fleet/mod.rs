//! `muster bench fleet`: the production host loop and drivers in this process, thousands of emulated BMCs in another.

mod emulator;
mod list;
mod pending;
mod poll;
mod resume;
mod wake;
mod watched;
mod yard;

use std::path::PathBuf;

use anyhow::Context;

use super::{Bench, Case, Measure, Request};

/// Thousands of BMCs: polling, waking at once, waking for a pod, resuming, and reading from etcd
///
/// Runs the host loop with its Redfish driver and an embedded store in this process, whose processor time and memory
/// are measured, and the BMCs in a process of their own on 127.20.0.0/16, each with TLS. Nodes are shown by a cluster in
/// memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Servers that are polled and resumed
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    hosts: u32,
    /// Servers that are woken at once
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    woken: u32,
    /// How long polls are watched, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u32).range(70..=7_200))]
    watch: u32,
    /// The program etcd, for the case list
    #[arg(long, value_name = "FILE", default_value = "etcd")]
    etcd: PathBuf,
}

impl Bench for Args {
    fn name(&self) -> &'static str {
        "fleet"
    }

    fn cases(&self) -> Vec<Case> {
        vec![
            Case { name: "poll", about: "every BMC read every 60 s: processor time, memory, late polls" },
            Case { name: "wake", about: "many woken at once, without and with one BMC that answers in 30 s" },
            Case { name: "pending", about: "from a pod that waits to the power-on that is sent" },
            Case { name: "resume", about: "restart with 200 operations under way, until all are taken up" },
            Case { name: "list", about: "all hosts with their status read from etcd" },
        ]
    }

    fn run(&self, request: &Request) -> anyhow::Result<Vec<Measure>> {
        crate::limits::raise_open_files();
        let directory = tempfile::Builder::new()
            .prefix("muster-bench-")
            .tempdir()
            .context("cannot make a directory for the stores")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut measures = Vec::new();
            if request.wants("pending") {
                measures.extend(pending::run(&directory.path().join("pending"), request.repeat).await?);
            }
            if request.wants("wake") {
                measures.extend(wake::run(&directory.path().join("wake"), self.woken, request.repeat).await?);
            }
            if request.wants("poll") {
                measures.extend(poll::run(&directory.path().join("poll"), self.hosts, self.watch).await?);
            }
            if request.wants("resume") {
                let (hosts, repeat) = (self.hosts, request.repeat);
                measures.extend(resume::run(&directory.path().join("resume"), hosts, repeat).await?);
            }
            if request.wants("list") {
                let data = directory.path().join("list");
                measures.extend(list::run(&data, &self.etcd, self.hosts, request.repeat).await?);
            }
            // In the order of the cases, whatever the order of their memory was good for.
            let place = |measure: &Measure| self.cases().iter().position(|case| case.name == measure.case);
            measures.sort_by_key(place);
            Ok(measures)
        })
    }
}
