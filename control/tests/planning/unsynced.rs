//! A cluster that is not in sync shows nothing, however much comes in of it: its planner looks at the pace of retries.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use muster_control::planner::Planning;
use muster_model::{Clock, Duration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::world::{World, pod};

/// Tokio's time, which passes at once when nobody has anything to do.
#[derive(Debug)]
struct Paused {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl Paused {
    fn new(start: Timestamp) -> Self {
        Self { start, origin: tokio::time::Instant::now() }
    }
}

#[async_trait]
impl Clock for Paused {
    fn now(&self) -> Timestamp {
        self.start.saturating_add(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap())
    }

    #[allow(clippy::disallowed_methods, reason = "the clock of the test")]
    async fn sleep(&self, length: Duration) {
        tokio::time::sleep(length.as_std()).await;
    }
}

#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods, reason = "the test lets time pass")]
async fn a_planner_looks_once_a_second_while_its_cluster_is_not_in_sync() {
    let world = World::new().await;
    world.metal("web", 0, 2).await;
    world.unsync(true);
    let (_elect, leading) = tokio::sync::watch::channel(Some(world.fence.clone()));
    let stop = CancellationToken::new();
    let planning = Planning::new(world.parts.clone(), Arc::new(Paused::new(world.now())));
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { planning.run(leading, stop).await }
    });
    let board = Arc::clone(&world.parts.board);
    let looks = || board.counters.turns.load(Ordering::SeqCst);
    // Pods come and go as they do in any cluster, while another kind has not been listed yet.
    for number in 0..600 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        world.show(|objects| objects.pods.push(pod(&format!("p{number}"), "1")));
    }
    let before = looks();
    assert!((30..=62).contains(&before), "{before} looks in a minute");
    // And it looks at once when there is something to be seen.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let waits = looks();
    world.unsync(false);
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    assert!(looks() > waits, "nobody looked at the view that there is");
    stop.cancel();
    running.await.unwrap();
}
