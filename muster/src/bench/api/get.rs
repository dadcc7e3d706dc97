//! `get`: reads of single pools over 64 connections.

use std::sync::Arc;

use anyhow::ensure;
use tokio::task::JoinSet;

use super::{
    child::TOKEN,
    http::{Connection, request},
    world::World,
};
use crate::bench::{Bar, Measure, note, time};

const CONNECTIONS: usize = 64;
/// How long one run lasts.
const SECONDS: f64 = 5.0;
/// Requests per second that one pool must be read with.
const BAR: f64 = 20_000.0;

/// Which pools are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    One,
    Any,
}

pub(super) async fn run(world: &World, repeat: u32) -> anyhow::Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for (choice, name) in [(Choice::One, "one pool"), (Choice::Any, "any pool")] {
        let (mut rates, mut tails) = (Vec::new(), Vec::new());
        for turn in 1..=repeat {
            let (rate, tail) = measure(world, choice).await?;
            note(&format!("get, {name}, run {turn}: {rate:.0} requests/s"));
            rates.push(rate);
            tails.push(tail);
        }
        let bar = if choice == Choice::One { Bar::AtLeast(BAR) } else { Bar::None };
        let rate =
            Measure::new("get", format!("{name}, {CONNECTIONS} connections"), "requests/s", rates).bar(bar);
        measures.push(if choice == Choice::One { rate } else { rate.higher() });
        measures.push(Measure::new("get", format!("{name}, p99"), "ms", tails));
    }
    Ok(measures)
}

/// Requests per second, and the slowest hundredth in milliseconds.
async fn measure(world: &World, choice: Choice) -> anyhow::Result<(f64, f64)> {
    let mut tasks = JoinSet::new();
    let started = time::now();
    for place in 0..CONNECTIONS {
        let (address, pools) = (world.server.address, Arc::clone(&world.pools));
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut latencies = Vec::new();
            // Steps through all pools in an order that is not that of their creation.
            let mut number = place * 7_919;
            let read = |id: &str| request("GET", &format!("/api/v1/nodepools/{id}"), TOKEN, None);
            let mut ask = read(&pools[0]);
            while time::seconds(started) < SECONDS {
                if choice == Choice::Any {
                    number = (number + 48_611) % pools.len();
                    ask = read(&pools[number]);
                }
                let sent = time::now();
                let answer = connection.call(&ask).await?;
                ensure!(answer.status == 200, "the server answered {}: {}", answer.status, answer.text());
                latencies.push(time::seconds(sent) * 1_000.0);
            }
            anyhow::Ok(latencies)
        });
    }
    let mut all = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        all.extend(latencies??);
    }
    let seconds = time::seconds(started);
    #[allow(clippy::cast_precision_loss, reason = "a count of requests in seconds")]
    let rate = all.len() as f64 / seconds;
    Ok((rate, time::quantile(&mut all, 0.99)))
}
