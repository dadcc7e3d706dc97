//! Many hosts woken at once, without and with one BMC that answers every question after 30 seconds.

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

/// How much longer the others may take.
const RATIO_BAR: f64 = 1.2;
/// Power-ons in one second: below what the loop could do, as in any real fleet.
const STARTS: u32 = 50;

pub(super) async fn run(data: &Path, woken: u32, repeat: u32) -> anyhow::Result<Vec<Measure>> {
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=repeat {
        let mut found = [0.0; 2];
        for (place, slow) in [false, true].into_iter().enumerate() {
            let data = data.join(format!("{turn}-{slow}"));
            found[place] = once(&data, woken, slow).await?;
            note(&format!("wake, run {turn}: {woken} hosts, slow BMC {slow}: p99 {:.2} s", found[place]));
        }
        without.push(found[0]);
        with.push(found[1]);
        ratios.push(found[1] / found[0]);
    }
    let name = |what: &str| format!("{woken} hosts from wanted to power on sent, p99 {what}");
    Ok(vec![
        Measure::new("wake", name("alone"), "s", without).note(format!("at most {STARTS} starts a second")),
        Measure::new("wake", name("with one BMC of 30 s"), "s", with),
        Measure::new("wake", "others with one slow BMC, times as long", "×", ratios)
            .bar(Bar::AtMost(RATIO_BAR)),
    ])
}

/// The 99th percentile of the time from the wish to the call that was answered, over all but the slow one.
async fn once(data: &Path, woken: u32, slow: bool) -> anyhow::Result<f64> {
    let emulator = Emulator::start(woken + 1)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    {
        let store = yard::open(data, &clock).await?;
        yard::fill(&*store, Some(&emulator), 0..woken + 1, Phase::Idle, clock.now()).await?;
        yard::unlimited(&*store, STARTS).await?;
        store.close().await?;
    }
    let yard = Yard::start(data, |clock| Nodes::new(Arc::clone(clock), 0..0)).await?;
    yard.until(60.0, "a leader", |yard| yard.lead.now().is_some()).await?;
    // Let everybody be looked at once, so that logins are over.
    let all = usize::try_from(woken)? + 1;
    yard.until(180.0, "the first round", |yard| yard.driver.look(|times| times.reads.len()) >= all).await?;
    time::pause(2_000).await;
    if slow {
        emulator.faults(woken..woken + 1, json!({ "delay": "30s" })).await?;
    }
    let _ = yard.driver.take();
    let started = time::now();
    yard.want(0..woken + 1, "wake").await?;
    let enough = usize::try_from(woken)?;
    let sent = |yard: &Yard| {
        yard.driver.look(|times| times.ons.keys().filter(|host| **host != yard::name(woken)).count())
    };
    yard.until(600.0, "every power-on", |yard| sent(yard) >= enough).await?;
    let times = yard.driver.take();
    let mut took: Vec<f64> = times
        .ons
        .iter()
        .filter(|(host, _)| **host != yard::name(woken))
        .map(|(_, at)| (*at - started).as_secs_f64())
        .collect();
    emulator.behave().await?;
    yard.stop().await?;
    Ok(time::quantile(&mut took, 0.99))
}
