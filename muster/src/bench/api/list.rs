//! `list`: pages of 100 out of all pools, by each kind of filter.

use anyhow::{Context, ensure};

use super::{
    child::TOKEN,
    http::{Connection, request},
    world::{READY_EVERY, World},
};
use crate::bench::{Bar, Measure, note, time};

/// Requests of one run for one filter: ten of them are in the slowest hundredth.
const REQUESTS: usize = 1_000;
/// The slowest hundredth of pages, in milliseconds.
const BAR: f64 = 5.0;

pub(super) async fn run(world: &World, repeat: u32) -> anyhow::Result<Vec<Measure>> {
    let cluster = &world.clusters[7];
    // All pools of this one are reported Ready.
    let ready = &world.clusters[READY_EVERY];
    let filters = [
        ("no filter", String::new()),
        ("status", "&status=Ready".to_owned()),
        ("health", "&health=Unhealthy".to_owned()),
        ("cluster", format!("&clusterId={cluster}")),
        ("label", "&labelSelector=team%3Dteam-7".to_owned()),
        ("rare label", "&labelSelector=serial%3D50000".to_owned()),
        ("field", "&fieldSelector=spec.platform.type%3Dgcp,status.phase!%3DReady".to_owned()),
        (
            "all of them",
            format!("&status=Ready&health=Healthy&labelSelector=tier+in+(batch,serving)&clusterId={ready}"),
        ),
    ];
    let mut connection = world.server.connect().await?;
    let mut measures = Vec::new();
    for (name, filter) in &filters {
        let total = total(&mut connection, &format!("/api/v1/nodepools?limit=100{filter}")).await?;
        for (way, label) in
            [(Way::First, "first page"), (Way::Offset, "by offset"), (Way::Cursor, "by cursor")]
        {
            if way != Way::First && total <= 200 {
                continue;
            }
            let (mut tails, mut middles) = (Vec::new(), Vec::new());
            for _ in 0..repeat {
                let mut latencies = walk(&mut connection, filter, way, total).await?;
                tails.push(time::quantile(&mut latencies, 0.99));
                middles.push(time::quantile(&mut latencies, 0.5));
            }
            let tail = Measure::new("list", format!("{name}, {label}, p99"), "ms", tails)
                .bar(Bar::AtMost(BAR))
                .note(format!("{} match; median {:.2} ms", total, Measure::middle(&middles)));
            note(&format!("list, {name}, {label}: p99 {:.2} ms, {} match", tail.median(), total));
            measures.push(tail);
        }
    }
    Ok(measures)
}

/// How one goes through the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    First,
    Offset,
    Cursor,
}

/// How many pools a list has in all.
async fn total(connection: &mut Connection, path: &str) -> anyhow::Result<usize> {
    #[derive(serde::Deserialize)]
    struct Body {
        nodepools: Vec<serde::de::IgnoredAny>,
        total: usize,
    }
    let answer = connection.call(&request("GET", path, TOKEN, None)).await?;
    ensure!(answer.status == 200, "the server answered {}: {}", answer.status, answer.text());
    let body: Body = serde_json::from_slice(answer.body).context("a list is not JSON")?;
    ensure!(!body.nodepools.is_empty(), "{path} found nothing: the case measures nothing");
    Ok(body.total)
}

/// Milliseconds of each request.
async fn walk(connection: &mut Connection, filter: &str, way: Way, total: usize) -> anyhow::Result<Vec<f64>> {
    let base = format!("/api/v1/nodepools?limit=100{filter}");
    let mut latencies = Vec::with_capacity(REQUESTS);
    let mut cursor: Option<String> = None;
    for turn in 0..REQUESTS {
        let path = match (way, &cursor) {
            (Way::First, _) | (Way::Cursor, None) => base.clone(),
            // Anywhere in the list, in an order that jumps.
            (Way::Offset, _) => format!("{base}&offset={}", (turn * 7_919) % (total - 100)),
            (Way::Cursor, Some(cursor)) => format!("{base}&cursor={cursor}"),
        };
        let ask = request("GET", &path, TOKEN, None);
        let sent = time::now();
        let answer = connection.call(&ask).await?;
        latencies.push(time::seconds(sent) * 1_000.0);
        ensure!(answer.status == 200, "the server answered {}: {}", answer.status, answer.text());
        if way == Way::Cursor {
            cursor = cursor_in(answer.body);
        }
    }
    Ok(latencies)
}

/// `next_cursor` at the end of a page.
fn cursor_in(body: &[u8]) -> Option<String> {
    let tail = std::str::from_utf8(&body[body.len().saturating_sub(120)..]).ok()?;
    let (_, cursor) = tail.split_once("\"next_cursor\":\"")?;
    cursor.split('"').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_found_at_the_end() {
        assert_eq!(cursor_in(br#"{"nodepools":[],"next_cursor":"AbC-_"}"#), Some("AbC-_".into()));
        assert_eq!(cursor_in(br#"{"nodepools":[]}"#), None);
    }
}
