//! `create`: 64 writers that create pools durably, and `kill -9` in the middle of it.

use std::{
    collections::HashSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, ensure};
use muster_control::audit;
use tokio::task::JoinSet;

use super::{
    child::{Server, TOKEN},
    http::{Connection, request},
    world::{CLUSTERS, id_of, make_clusters, pool},
};
use crate::bench::{Bar, Measure, note, time};

const WRITERS: usize = 64;
/// How long the writers write before the server is killed under them.
const SECONDS: f64 = 5.0;
/// Creates per second that must be reached.
const BAR: f64 = 3_000.0;

pub(super) async fn run(data: &Path, repeat: u32) -> anyhow::Result<Vec<Measure>> {
    let (mut rates, mut tails, mut lost, mut unaudited) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut acknowledged = 0;
    for turn in 1..=repeat {
        let data = data.join(format!("create-{turn}"));
        let run = once(&data).await?;
        note(&format!("create, run {turn}: {:.0} a second, {} lost after kill -9", run.rate, run.lost));
        rates.push(run.rate);
        tails.push(run.tail);
        lost.push(run.lost);
        unaudited.push(run.unaudited);
        acknowledged += run.acknowledged;
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
    }
    Ok(vec![
        Measure::new("create", format!("durable, {WRITERS} writers"), "creates/s", rates)
            .bar(Bar::AtLeast(BAR)),
        Measure::new("create", "p99", "ms", tails),
        Measure::new("create", "acknowledged and lost after kill -9", "pools", lost)
            .bar(Bar::AtMost(0.0))
            .note(format!("of {acknowledged} acknowledged in all runs")),
        Measure::new("create", "acknowledged and not in the audit log", "pools", unaudited)
            .bar(Bar::AtMost(0.0)),
    ])
}

struct Run {
    rate: f64,
    tail: f64,
    acknowledged: usize,
    lost: f64,
    unaudited: f64,
}

/// What one writer was told before the server died.
#[derive(Default)]
struct Told {
    ids: Vec<String>,
    latencies: Vec<f64>,
}

async fn once(data: &Path) -> anyhow::Result<Run> {
    let server = Server::start(data).await?;
    let clusters = Arc::new(make_clusters(&server, CLUSTERS).await?);
    let counted = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let started = time::now();
    for writer in 0..WRITERS {
        let (clusters, counted, address) = (Arc::clone(&clusters), Arc::clone(&counted), server.address);
        tasks.spawn(async move {
            let mut told = Told::default();
            let Ok(mut connection) = Connection::open(address).await else { return Ok(told) };
            for turn in 0.. {
                let number = turn * WRITERS + writer;
                let path = format!("/api/v1/clusters/{}/nodepools", clusters[number % clusters.len()]);
                let ask = request("POST", &path, TOKEN, Some(&pool(number)));
                let sent = time::now();
                // The server dies at some moment: that is the end of this writer.
                let Ok(answer) = connection.call(&ask).await else { return Ok(told) };
                ensure!(answer.status == 201, "the server answered {}: {}", answer.status, answer.text());
                told.latencies.push(time::seconds(sent) * 1_000.0);
                told.ids.push(id_of(answer.body).context("a created pool has no id")?);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(told)
        });
    }
    while time::seconds(started) < SECONDS {
        time::pause(10).await;
    }
    let (count, seconds) = (counted.load(Ordering::Relaxed), time::seconds(started));
    server.kill()?;
    let mut told = Told::default();
    while let Some(one) = tasks.join_next().await {
        let one = one??;
        told.ids.extend(one.ids);
        told.latencies.extend(one.latencies);
    }
    let (lost, unaudited) = missing(data, &told.ids).await?;
    #[allow(clippy::cast_precision_loss, reason = "counts of a few seconds")]
    Ok(Run {
        rate: count as f64 / seconds,
        tail: time::quantile(&mut told.latencies, 0.99),
        acknowledged: told.ids.len(),
        lost: lost as f64,
        unaudited: unaudited as f64,
    })
}

/// How many of these are not in the store any more, and how many creates the audit log does not know.
async fn missing(data: &Path, ids: &[String]) -> anyhow::Result<(usize, usize)> {
    let server = Server::start(data).await?;
    let mut connection = server.connect().await?;
    let mut lost = 0;
    for id in ids {
        let answer =
            connection.call(&request("GET", &format!("/api/v1/nodepools/{id}"), TOKEN, None)).await?;
        lost += usize::from(answer.status != 200 || id_of(answer.body).as_ref() != Some(id));
    }
    server.stop()?;
    let directory = data.join("audit");
    let verdict = audit::verify(&directory).context("cannot read the audit log")?;
    ensure!(verdict.findings.is_empty(), "the audit log is not whole: {:?}", verdict.findings);
    let lines = audit::list(&directory, &audit::Query::default()).context("cannot read the audit log")?;
    let known: HashSet<&str> = lines.iter().filter_map(|line| line.event.object.rsplit('/').next()).collect();
    Ok((lost, ids.iter().filter(|id| !known.contains(id.as_str())).count()))
}
