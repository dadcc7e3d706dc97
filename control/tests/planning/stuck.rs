//! OPS-F4: a planner that is stuck in a look, or that breaks off, is started again.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use muster_control::planner::{Did, Planning};
use muster_model::{
    Clock, Duration, Timestamp,
    store::{StoreError, Txn, Write},
};
use tokio_util::sync::CancellationToken;

use crate::asked::{Asked, Before};
use crate::world::{CLUSTER, World, pod};

#[derive(Debug, Clone, Copy)]
enum First {
    NeverEnds,
    Panics,
    /// It is answered; the first write of the intent of host `b` is not.
    BreaksAtB,
}

/// A store whose first answer about what planners remember is a trap. They ask in the middle of a look.
#[derive(Debug)]
struct Trap {
    first: First,
    asked: AtomicU32,
    broken: AtomicU32,
}

fn trap(first: First) -> Arc<Asked<Trap>> {
    let (asked, broken) = (AtomicU32::default(), AtomicU32::default());
    Arc::new(Asked::new(Trap { first, asked, broken }))
}

#[async_trait]
impl Before for Trap {
    async fn get(&self, key: &str) -> Result<(), StoreError> {
        if key == format!("/muster/planner/{CLUSTER}") {
            match (self.asked.fetch_add(1, Ordering::SeqCst), self.first) {
                (0, First::NeverEnds) => std::future::pending().await,
                (0, First::Panics) => panic!("a planner breaks off, as the test wants it"),
                _ => {}
            }
        }
        Ok(())
    }

    async fn commit(&self, txn: &Txn) -> Result<(), StoreError> {
        let at_b =
            |write: &Write| matches!(write, Write::Put { key, .. } if key == "/baremetal/nodes/b/intent");
        if matches!(self.first, First::BreaksAtB)
            && txn.writes.iter().any(at_b)
            && self.broken.fetch_add(1, Ordering::SeqCst) == 0
        {
            return Err(StoreError::Unavailable { store: "trap".into(), why: "as the test wants it".into() });
        }
        Ok(())
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
    let trap = trap(first);
    let world = World::with(trap.clone(), true, "active").await;
    world.metal("web", 0, 2).await;
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

/// What was written before the store went away is written: the next look goes on from there, and remembers when it was.
#[tokio::test]
async fn a_plan_that_breaks_off_halfway_is_remembered_as_far_as_it_came() {
    let mut world = World::with(trap(First::BreaksAtB), true, "active").await;
    world.metal("web", 0, 2).await;
    for host in ["a", "b"] {
        world.host(host, "web").await;
    }
    world.show(|objects| objects.pods.extend(["web-1", "web-2"].map(|name| pod(name, "8"))));
    let first = world.now();
    let turn = world.turn().await;
    assert!(matches!(turn.did, Did::Waited(_)), "{turn:?}");
    assert!(world.intent("a").await.is_some() && world.intent("b").await.is_none());
    // The pods are gone: nothing more is called up, and nothing else tells of the first host.
    world.show(|objects| objects.pods.clear());
    world.pass(Duration::from_secs(11));
    world.show(|_| {});
    let _ = world.turn().await;
    let key = format!("/muster/planner/{CLUSTER}");
    let stored = world.store.get(&key).await.unwrap().expect("it remembers");
    let memory: serde_json::Value = serde_json::from_slice(&stored.value).unwrap();
    assert_eq!(memory["grownAt"]["web"], serde_json::json!(first), "{memory}");
}
