//! `watch`: a thousand watchers, one change.

use anyhow::{Context, ensure};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    child::TOKEN,
    http::{Connection, request},
    world::World,
};
use crate::bench::{Bar, Measure, note, time};

const WATCHERS: usize = 1_000;
/// Changes of one run; the slowest of them counts.
const CHANGES: usize = 20;
/// Milliseconds from sending the change until the last watcher has it.
const BAR: f64 = 100.0;

pub(super) async fn run(world: &World, repeat: u32) -> anyhow::Result<Vec<Measure>> {
    let (mut slowest, mut middle) = (Vec::new(), Vec::new());
    for turn in 1..=repeat {
        let mut times = once(world, turn).await?;
        slowest.push(time::quantile(&mut times, 1.0));
        middle.push(time::quantile(&mut times, 0.5));
        note(&format!("watch, run {turn}: all {WATCHERS} within {:.1} ms", time::quantile(&mut times, 1.0)));
    }
    Ok(vec![
        Measure::new(
            "watch",
            format!("{WATCHERS} watchers have a change, slowest of {CHANGES}"),
            "ms",
            slowest,
        )
        .bar(Bar::AtMost(BAR)),
        Measure::new(
            "watch",
            format!("{WATCHERS} watchers have a change, median of {CHANGES}"),
            "ms",
            middle,
        ),
    ])
}

async fn once(world: &World, run: u32) -> anyhow::Result<Vec<f64>> {
    let mut connection = world.server.connect().await?;
    let list = connection.call(&request("GET", "/api/v1/nodepools?limit=1", TOKEN, None)).await?.json(200)?;
    let revision = list["revision"].as_str().context("a list has a revision")?.to_owned();
    let ask =
        request("GET", &format!("/api/v1/nodepools?watch=true&resource_version={revision}"), TOKEN, None);
    let (seen, mut all_seen) = mpsc::unbounded_channel();
    let (opened, mut all_open) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for _ in 0..WATCHERS {
        let (ask, seen, opened, address) = (ask.clone(), seen.clone(), opened.clone(), world.server.address);
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            connection.send(&ask).await?;
            connection.until(b"\r\n\r\n").await?;
            let _ = opened.send(());
            for change in 0..CHANGES {
                connection.until(marker(run, change).as_bytes()).await?;
                let _ = seen.send(time::now());
            }
            std::io::Result::Ok(())
        });
    }
    for _ in 0..WATCHERS {
        wait(&mut all_open, &mut tasks).await?;
    }
    let mut times = Vec::new();
    for change in 0..CHANGES {
        let id = &world.pools[change * 31 % world.pools.len()];
        let body = json!({"spec": {"labels": {"changed": marker(run, change)}}});
        let ask = request("PATCH", &format!("/api/v1/nodepools/{id}"), TOKEN, Some(&body));
        let sent = time::now();
        let answer = connection.call(&ask).await?;
        ensure!(answer.status == 200, "the server answered {}: {}", answer.status, answer.text());
        let mut last = sent;
        for _ in 0..WATCHERS {
            last = last.max(wait(&mut all_seen, &mut tasks).await?);
        }
        times.push(last.duration_since(sent).as_secs_f64() * 1_000.0);
    }
    Ok(times)
}

/// A text that only this change carries.
fn marker(run: u32, change: usize) -> String {
    format!("change-{run}-{change}-end")
}

/// The next message, or why a watcher ended.
async fn wait<T>(
    from: &mut mpsc::UnboundedReceiver<T>,
    tasks: &mut JoinSet<std::io::Result<()>>,
) -> anyhow::Result<T> {
    loop {
        tokio::select! {
            biased;
            message = from.recv() => return message.context("all watchers have ended"),
            Some(ended) = tasks.join_next() => ended?.context("a watch broke off")?,
        }
    }
}
