//! `muster bench api`: a real `muster serve` on the embedded store, with tokens and audit, under load from this process.

mod child;
mod create;
mod get;
mod http;
mod list;
mod watch;
mod world;

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Bar, Bench, Case, Measure, Request, note};
use world::World;

/// Bytes that the server may hold with 100,000 pools.
const MEMORY_BAR: f64 = 300.0;
/// Seconds from the start of the process until it is ready, after a clean stop.
const START_BAR: f64 = 2.0;

/// The REST service: throughput, latency, watches, memory and start
///
/// Starts `muster serve` from this binary on a free loopback port with the embedded store, token mode and the audit
/// log, and loads it from this process, on the same processors.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pools in the store, for all cases but create
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    pools: u32,
    /// Directory for the stores, removed afterwards; by default a new one in the temporary directory. Its disk is measured, too
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Bench for Args {
    fn name(&self) -> &'static str {
        "api"
    }

    fn cases(&self) -> Vec<Case> {
        vec![
            Case { name: "create", about: "durable creates by 64 writers, and what is lost after kill -9" },
            Case { name: "get", about: "reads of a pool over 64 connections" },
            Case { name: "list", about: "pages of 100 pools by several filters" },
            Case { name: "watch", about: "1,000 watchers and one change" },
            Case { name: "memory", about: "resident memory of the server" },
            Case { name: "start", about: "from the start of the process until ready, after a clean stop" },
        ]
    }

    fn run(&self, request: &Request) -> anyhow::Result<Vec<Measure>> {
        crate::limits::raise_open_files();
        let mut builder = tempfile::Builder::new();
        builder.prefix("muster-bench-");
        let directory = match &self.directory {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        }
        .context("cannot make a directory for the stores")?;
        // One thread: the server shall have the rest of the machine.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.measure(request, directory.path()))
    }
}

impl Args {
    async fn measure(&self, request: &Request, directory: &Path) -> anyhow::Result<Vec<Measure>> {
        let mut measures = Vec::new();
        if request.wants("create") {
            measures.extend(create::run(directory, request.repeat).await?);
        }
        if request.cases.iter().all(|case| *case == "create") {
            return Ok(measures);
        }
        let data = directory.join("filled");
        let count = usize::try_from(self.pools).context("too many pools")?;
        let mut world = World::fill(&data, count).await?;
        let (after_filling, _) = world.server.memory()?;
        let (mut starts, mut memories) = (Vec::new(), Vec::new());
        // The first start also lets the cases begin with a server that did not do the filling.
        let turns = if request.wants("start") { request.repeat } else { 1 };
        for turn in 1..=turns {
            world = world.restart(&data).await?;
            starts.push(world.server.ready_after);
            note(&format!("start, run {turn}: ready after {:.2} s", world.server.ready_after));
        }
        if request.wants("get") {
            measures.extend(get::run(&world, request.repeat).await?);
        }
        if request.wants("list") {
            measures.extend(list::run(&world, request.repeat).await?);
        }
        if request.wants("watch") {
            measures.extend(watch::run(&world, request.repeat).await?);
        }
        if request.wants("memory") {
            let (now, most) = world.server.memory()?;
            memories.extend([
                (format!("with {count} pools"), now, Bar::AtMost(MEMORY_BAR)),
                (format!("with {count} pools, just created"), after_filling, Bar::AtMost(MEMORY_BAR)),
                ("most at any time since the start".to_owned(), most, Bar::None),
            ]);
        }
        for (name, bytes, bar) in memories {
            measures.push(Measure::new("memory", name, "MB", vec![bytes / 1e6]).bar(bar));
        }
        if request.wants("start") {
            let name = format!("ready with {count} pools after a clean stop");
            measures.push(Measure::new("start", name, "s", starts).bar(Bar::AtMost(START_BAR)));
        }
        world.server.stop()?;
        Ok(measures)
    }
}
