//! A restart with operations under way.

use std::{path::Path, sync::Arc};

use muster_model::{Clock, host::Phase};
use serde_json::json;

use super::{
    emulator::Emulator,
    yard::{self, Nodes, Yard},
};
use crate::{
    bench::{Bar, Measure, note, time},
    clock::SystemClock,
};

const BAR: f64 = 5.0;
/// Operations under way at the restart.
const UNDER_WAY: u32 = 200;

pub(super) async fn run(data: &Path, hosts: u32, repeat: u32) -> anyhow::Result<Vec<Measure>> {
    let serving = hosts.saturating_sub(UNDER_WAY);
    let total = serving + UNDER_WAY;
    note(&format!("resume: starting {total} BMCs"));
    let emulator = Emulator::start(total)?;
    emulator.press(0..serving).await?;
    // Power-ons are accepted and nothing happens, so that operations stay under way.
    emulator.faults(serving..total, json!({ "ignoreReset": true })).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    {
        let store = yard::open(data, &clock).await?;
        yard::fill(&*store, Some(&emulator), 0..serving, Phase::Serving, clock.now()).await?;
        yard::fill(&*store, Some(&emulator), serving..total, Phase::Idle, clock.now()).await?;
        yard::unlimited(&*store, 1_000).await?;
        store.close().await?;
    }
    let nodes = |clock: &Arc<dyn Clock>| Nodes::new(Arc::clone(clock), 0..serving);
    let yard = Yard::start(data, nodes).await?;
    yard.until(60.0, "a leader", |yard| yard.lead.now().is_some()).await?;
    yard.want(serving..total, "resume").await?;
    let under_way = |yard: &Yard| yard.phases().get(&Phase::PowerRequested).copied().unwrap_or(0);
    yard.until(90.0, "200 operations", |yard| under_way(yard) >= u64::from(UNDER_WAY)).await?;
    yard.stop().await?;
    let mut runs = Vec::new();
    for turn in 1..=repeat {
        let started = time::now();
        let yard = Yard::start(data, nodes).await?;
        let resumed = |yard: &Yard| {
            yard.driver.look(|times| {
                (serving..total).filter(|index| times.reads.contains_key(&yard::name(*index))).count()
            })
        };
        let all = usize::try_from(UNDER_WAY)?;
        yard.until(120.0, "every operation", |yard| resumed(yard) >= all).await?;
        runs.push(time::seconds(started));
        note(&format!("resume, run {turn}: {:.2} s", runs[runs.len() - 1]));
        yard.stop().await?;
    }
    let name = format!("{total} hosts, {UNDER_WAY} operations under way, until each was looked at again");
    let measure = Measure::new("resume", name, "s", runs)
        .bar(Bar::AtMost(BAR))
        .note("from opening the store, after a clean stop");
    Ok(vec![measure])
}
