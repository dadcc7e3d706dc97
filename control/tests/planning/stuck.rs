//! OPS-F4: a planner that is stuck in a look, or that breaks off, is started again.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use muster_control::planner::Planning;
use muster_model::{
    Clock, Duration, Known, Timestamp,
    pool::Trigger,
    trigger::{Finding, Triggers},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::World;

#[derive(Debug, Clone, Copy)]
enum First {
    NeverEnds,
    Panics,
}

/// A Prometheus whose first answer is a trap.
#[derive(Debug)]
struct Trap {
    first: First,
    asked: AtomicU32,
}

#[async_trait]
impl Triggers for Trap {
    async fn evaluate(&self, _: &Trigger, now: Timestamp) -> Known<Finding> {
        match (self.asked.fetch_add(1, Ordering::SeqCst), self.first) {
            (0, First::NeverEnds) => std::future::pending().await,
            (0, First::Panics) => panic!("a planner breaks off, as the test wants it"),
            _ => Known::Unknown { why: "no data".to_owned(), since: now },
        }
    }
}

/// Minutes pass at once, seconds as they do.
#[derive(Debug)]
struct Impatient(Timestamp);

#[async_trait]
impl Clock for Impatient {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    #[allow(clippy::disallowed_methods, reason = "the planners run beside the test")]
    async fn sleep(&self, length: Duration) {
        let short = if length >= Duration::from_mins(1) { Duration::from_millis(50) } else { length };
        tokio::time::sleep(short.as_std()).await;
    }
}

#[allow(clippy::disallowed_methods, reason = "the test waits for a condition")]
async fn is_started_again(first: First) {
    let mut world = World::new().await;
    world
        .pool(
            "web",
            json!({"platform": {"type": "baremetal"}, "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 2,
                "triggers": [{"metricQuery": "up", "threshold": 1, "duration": "1m", "scaleDirection": "up"}]}}),
        )
        .await;
    let trap = Arc::new(Trap { first, asked: AtomicU32::default() });
    let triggers: Arc<dyn Triggers> = trap.clone();
    world.parts.triggers = Some(triggers);
    let (_elect, leading) = tokio::sync::watch::channel(Some(world.fence.clone()));
    let stop = CancellationToken::new();
    let planning = Planning::new(world.parts.clone(), Arc::new(Impatient(world.now())));
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { planning.run(leading, stop).await }
    });
    let board = Arc::clone(&world.parts.board);
    let restarts = || board.counters.restarts.load(Ordering::SeqCst);
    let looked = async {
        while board.get(world.id).is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), looked).await.expect("another planner looks");
    assert!(restarts() >= 1, "it is counted");
    assert!(trap.asked.load(Ordering::SeqCst) >= 2, "the first look did not come to an end");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn ops_f4_a_planner_that_is_stuck_is_started_again() {
    is_started_again(First::NeverEnds).await;
}

#[tokio::test]
async fn ops_f4_a_planner_that_breaks_off_is_started_again() {
    is_started_again(First::Panics).await;
}
