//! Every BMC read every 60 seconds.

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use muster_model::host::Phase;

use super::{
    emulator::Emulator,
    yard::{self, Nodes, Yard},
};
use crate::bench::{Bar, Measure, note, time};

const CORES_BAR: f64 = 0.5;
const MEMORY_BAR: f64 = 200.0;
/// Seconds between two polls of a host that serves, and what is 10 % late.
const INTERVAL: f64 = 60.0;
const LATE: f64 = INTERVAL * 1.1;

#[allow(clippy::cast_precision_loss, reason = "counts of a few thousand")]
pub(super) async fn run(data: &Path, hosts: u32, watch: u32) -> anyhow::Result<Vec<Measure>> {
    note(&format!("poll: starting {hosts} BMCs"));
    let emulator = Emulator::start(hosts)?;
    emulator.press(0..hosts).await?;
    let clock: std::sync::Arc<dyn muster_model::Clock> =
        std::sync::Arc::new(crate::clock::SystemClock::new());
    {
        let store = yard::open(data, &clock).await?;
        yard::fill(&*store, Some(&emulator), 0..hosts, Phase::Serving, clock.now()).await?;
        store.close().await?;
    }
    let yard = Yard::start(data, |clock| Nodes::new(std::sync::Arc::clone(clock), 0..hosts)).await?;
    // The first round says who everybody is and opens a session with each.
    let all = usize::try_from(hosts)?;
    yard.until(600.0, "the first round", |yard| yard.driver.look(|times| times.reads.len()) >= all).await?;
    time::pause(5_000).await;
    let _ = yard.driver.take();
    let (started, used) = (time::now(), processor_seconds()?);
    note(&format!("poll: watching for {watch} s"));
    time::pause(u64::from(watch) * 1_000).await;
    let (length, used) = (time::seconds(started), processor_seconds()? - used);
    let memory = resident()?;
    let times = yard.driver.take();
    let phases = yard.phases();
    yard.stop().await?;

    let mut gaps = Vec::new();
    let mut never = u32::try_from(all.saturating_sub(times.reads.len()))?;
    for reads in times.reads.values() {
        let before = reads.first().map(|first| (*first - started).as_secs_f64());
        gaps.extend(before);
        gaps.extend(reads.windows(2).map(|two| (two[1] - two[0]).as_secs_f64()));
        gaps.extend(reads.last().map(|last| length - (*last - started).as_secs_f64()));
        never += u32::from(reads.is_empty());
    }
    let late = gaps.iter().filter(|gap| **gap > LATE).count() as f64 + f64::from(never);
    let longest = gaps.iter().copied().fold(0.0, f64::max);
    let polls: usize = times.reads.values().map(Vec::len).sum();
    let case = "poll";
    let serving = phases.get(&Phase::Serving).copied().unwrap_or(0);
    ensure!(
        serving == u64::from(hosts),
        "of {hosts} hosts {serving} serve at the end, {phases:?}: the case measures nothing"
    );
    Ok(vec![
        Measure::new(case, format!("{hosts} BMCs every 60 s, processor"), "cores", vec![used / length])
            .bar(Bar::AtMost(CORES_BAR))
            .note(format!("over {length:.0} s, all serving")),
        Measure::new(case, format!("{hosts} BMCs every 60 s, memory"), "MB", vec![memory / 1e6])
            .bar(Bar::AtMost(MEMORY_BAR))
            .note("of the process with the loop and the benchmark"),
        Measure::new(case, "polls late by more than 10 %", "polls", vec![late]).bar(Bar::AtMost(0.0)),
        Measure::new(case, "longest time between two polls", "s", vec![longest]),
        Measure::new(case, "readings", "1/s", vec![polls as f64 / length]).higher(),
    ])
}

/// Seconds of processor time that this process has used, in all its threads.
fn processor_seconds() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat").context("/proc/self/stat cannot be read")?;
    // The name in brackets may hold spaces; times are the 14th and 15th field, in hundredths.
    let rest = text.rsplit(") ").next().unwrap_or_default();
    let field = |at: usize| rest.split(' ').nth(at).and_then(|value| value.parse::<u32>().ok());
    let (user, system) = field(11).zip(field(12)).context("/proc/self/stat has no times")?;
    Ok((f64::from(user) + f64::from(system)) / 100.0)
}

/// Bytes of this process in memory.
fn resident() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/status").context("/proc/self/status cannot be read")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
    kib.map(|kib| f64::from(kib) * 1024.0).context("/proc/self/status has no VmRSS")
}
