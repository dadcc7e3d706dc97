//! `OPS-R12`: `kill -9` at a point of the host loop, and the next process goes on.
//!
//! The binary that tests build stops at the point that `FAILPOINT` names and says so; the test kills it there. The points
//! that no story here comes by are passed by the tests of `muster-control`, which stop at all of them in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    path::Path,
};

use futures::{FutureExt as _, StreamExt as _, stream};
use muster_emulate::RealClock;
use muster_model::Clock as _;

use super::{
    everything, metal,
    metal::Story::{Deleted, Packets, Stuck, UpAndDown},
    nodes,
    nodes::Story::{Again, Cycled, Drained, Fenced, Removed, Returned},
    pause,
    process::Server,
};

/// A story that a server plays, and another one to its end.
pub(crate) trait Play {
    /// Brings the story on by what a person would do; whether it is over. Asking again is harmless.
    async fn drive(&mut self, server: &Server) -> bool;
    /// Panics unless everything was done, and nothing twice. No process runs any more.
    fn judge(&self, data: &Path, what: &str);
}

/// Without a cluster, or with one.
#[derive(Debug, Clone, Copy)]
enum Story {
    Metal(metal::Story),
    Nodes(nodes::Story),
}

/// Which story comes by a point, on both of its sides.
const PLAN: [(&str, Story); 26] = [
    ("write/enrol", Story::Metal(UpAndDown)),
    ("write/observe", Story::Metal(UpAndDown)),
    ("write/move", Story::Metal(UpAndDown)),
    ("write/begin", Story::Metal(UpAndDown)),
    ("write/announce", Story::Metal(UpAndDown)),
    ("write/settle", Story::Metal(UpAndDown)),
    ("write/end", Story::Metal(UpAndDown)),
    ("write/forget", Story::Metal(Deleted)),
    ("write/metrics", Story::Metal(UpAndDown)),
    ("effect/set-boot", Story::Metal(UpAndDown)),
    ("effect/power-on", Story::Metal(UpAndDown)),
    ("effect/wol-burst", Story::Metal(Packets)),
    ("effect/graceful-off", Story::Metal(Packets)),
    ("effect/force-off", Story::Metal(UpAndDown)),
    ("effect/reset-bmc", Story::Metal(Stuck)),
    ("effect/power-cycle", Story::Nodes(Cycled)),
    ("effect/label", Story::Nodes(Drained)),
    ("effect/remove-startup-taint", Story::Nodes(Drained)),
    ("effect/cordon", Story::Nodes(Drained)),
    ("effect/evict", Story::Nodes(Drained)),
    ("effect/taint-off", Story::Nodes(Drained)),
    ("effect/uncordon", Story::Nodes(Returned)),
    ("effect/remove-off-taint", Story::Nodes(Again)),
    ("effect/delete-node", Story::Nodes(Removed)),
    ("effect/taint-out-of-service", Story::Nodes(Fenced)),
    ("effect/remove-out-of-service-taint", Story::Nodes(Fenced)),
];

/// A host is read in every turn that needs it, so that one within a turn is asked for between two readings only: there is no
/// moment at which a process surely dies. The tests of `muster-control` die there.
const ELSEWHERE: [&str; 1] = ["probe"];

/// What `make test` dies at: one point of each story without a cluster, and those at which most is at stake.
const SAMPLE: [&str; 8] = [
    "write/begin/after",
    "effect/power-on/before",
    "effect/power-on/after",
    "effect/force-off/after",
    "effect/set-boot/after",
    "effect/wol-burst/after",
    "effect/reset-bmc/after",
    "write/forget/after",
];

fn plan() -> BTreeMap<String, Story> {
    let sides = |(point, story)| ["before", "after"].map(|side| (format!("{point}/{side}"), story));
    PLAN.into_iter().flat_map(sides).collect()
}

async fn dies_at(point: &str, story: Story) {
    let directory = tempfile::tempdir().unwrap();
    let (path, what) = (directory.path(), format!("{story:?}, killed at {point}"));
    match story {
        Story::Metal(story) => {
            killed(point, &mut metal::Metal::new(story, path.to_owned()).await, path, &what).await;
        }
        Story::Nodes(story) => killed(point, &mut nodes::Nodes::new(story, point).await, path, &what).await,
    }
}

/// Plays a story with two processes: the first one dies at the point.
async fn killed(point: &str, play: &mut impl Play, directory: &Path, what: &str) {
    let data = directory.join("data");
    let server = Server::start(&data, directory, &[], &[("FAILPOINT", point)]);
    server.account().await;
    until(&server, what, "the point is not reached", async || {
        play.drive(&server).await;
        server.said().contains("failpoint reached")
    })
    .await;
    drop(server); // kill -9
    let server = Server::start(&data, directory, &[], &[]);
    until(&server, what, "the next process does not end it", async || play.drive(&server).await).await;
    drop(server);
    play.judge(&data, what);
}

/// Waits until something holds, and says everything that is known when it does not come.
async fn until(server: &Server, what: &str, otherwise: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2_400 {
        if holds().await {
            return;
        }
        pause(100).await;
    }
    let hosts = server.get("/api/v1/hosts").await;
    panic!("{what}: {otherwise}: {hosts:#}\n{}", server.said());
}

#[test]
fn ops_r12_no_point_is_forgotten() {
    let points: BTreeSet<String> = muster_control::hosts::failpoint::names().into_iter().collect();
    let known = plan();
    let elsewhere = ELSEWHERE
        .into_iter()
        .flat_map(|effect| ["before", "after"].map(|side| format!("effect/{effect}/{side}")));
    assert_eq!(known.keys().cloned().chain(elsewhere).collect::<BTreeSet<_>>(), points);
    assert!(SAMPLE.iter().all(|point| known.contains_key(*point)));
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stderr, reason = "how long each of them took is a figure of the run")]
async fn ops_r12_killed_at_a_point_the_next_process_goes_on() {
    let mut points = plan();
    if !everything() {
        points.retain(|point, _| SAMPLE.contains(&point.as_str()));
    }
    if let Some(only) = super::only() {
        points = plan();
        points.retain(|point, _| point.contains(&only));
        assert!(!points.is_empty(), "no point that is passed here contains MUSTER_CHAOS_POINT={only:?}");
    }
    let count = points.len();
    // Most of the time is spent waiting for deadlines.
    let ends: Vec<_> = stream::iter(points)
        .map(async |(point, story)| {
            let clock = RealClock::default();
            // One that fails does not hide the others.
            let end = AssertUnwindSafe(dies_at(&point, story)).catch_unwind().await;
            eprintln!("{point}: {story:?}, {}", clock.monotonic());
            (point, end)
        })
        .buffer_unordered(8)
        .collect()
        .await;
    let failed: Vec<_> = ends.iter().filter(|(_, end)| end.is_err()).map(|(point, _)| point).collect();
    assert!(failed.is_empty(), "{} of {count} points: {failed:?}", failed.len());
}
