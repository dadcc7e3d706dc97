//! `OPS-R13`: while the store cannot be written, nothing is switched.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use muster_control::hosts::failpoint::Failpoints;
use muster_model::{
    host::{Phase, Switch},
    power::PowerAction,
    store::{StoreError, Txn},
};

use crate::{
    asked::{Asked, Before},
    world::World,
};

/// A store whose disk can fill up, and be slow.
#[derive(Debug, Default)]
struct Disk {
    full: AtomicBool,
    /// Seconds that a commit takes before anything of it is there.
    slow: AtomicU64,
}

#[async_trait]
impl Before for Disk {
    #[allow(clippy::disallowed_methods, reason = "tokio's time is paused and belongs to the test")]
    async fn commit(&self, _: &Txn) -> Result<(), StoreError> {
        if self.full.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { store: "of the test".into(), why: "no space left".into() });
        }
        let slow = self.slow.load(Ordering::SeqCst);
        if slow > 0 {
            tokio::time::sleep(std::time::Duration::from_secs(slow)).await;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn ops_r13_while_the_store_cannot_be_written_nothing_is_switched_or_evicted() {
    let disk = Arc::new(Asked::<Disk>::default());
    let world = World::with(disk.clone(), Failpoints::default()).await;
    world.serving("h1").await;
    world.idle("h2").await;
    world.pod("web-1", "h1", 10);
    world.want("h1", Switch::Off, "i-off").await;
    world.want("h2", Switch::On, "i-on").await;
    disk.full.store(true, Ordering::SeqCst);
    let before = world.outside.state().calls.len();
    world.pass(3_600).await;
    {
        let state = world.outside.state();
        assert_eq!((state.calls.len(), state.evictions), (before, 0), "{:?}", state.calls);
        assert_eq!(state.cordon("h1"), (false, None));
    }
    // And goes on where it stood. What was wanted an hour ago is for the planner to want again: it counted on it for five
    // minutes, and may have woken another host since.
    disk.full.store(false, Ordering::SeqCst);
    world.pass(60).await;
    assert_eq!((world.outside.state().count("h2", PowerAction::On), world.intent("h2").await), (0, None));
    world.want("h2", Switch::On, "i-on-again").await;
    world.until("h2", Phase::Serving, 900).await;
    assert_eq!(world.outside.state().count("h2", PowerAction::On), 1);
    assert_eq!((world.phase("h1").await, world.outside.state().evictions), (Some(Phase::Serving), 0));
    world.want("h1", Switch::Off, "i-off-again").await;
    world.until("h1", Phase::Idle, 900).await;
}

/// A disk on which every write takes longer than a call may wait for its lease: nothing is sent before its record is
/// there, and nothing at all once the lease is gone.
#[tokio::test(start_paused = true)]
async fn ops_r13_a_slow_disk_delays_calls_and_a_lost_lease_drops_them() {
    let disk = Arc::new(Asked::<Disk>::default());
    let world = World::with(disk.clone(), Failpoints::default()).await;
    world.idle("h1").await;
    world.serving("h2").await;
    world.want("h1", Switch::On, "i-on").await;
    disk.slow.store(25, Ordering::SeqCst);
    let before = world.outside.state().calls.len();
    while world.outside.state().calls.len() == before {
        world.pass(1).await;
    }
    // Its record would be there no sooner than 25 s after a call that did not wait for it.
    let announced = world.op("h1").await.is_some_and(|op| op.power_requested_at.is_some());
    assert!(announced, "a call was made before its record was there");
    assert_eq!(world.outside.state().count("h1", PowerAction::On), 1);
    world.until("h1", Phase::Serving, 1_200).await;

    // The lease runs out while the record of a shutdown is being written.
    world.want("h2", Switch::Off, "i-off").await;
    while world.phase("h2").await != Some(Phase::Drained) {
        world.pass(1).await;
    }
    world.lead.set(None);
    let before = world.outside.state().calls.len();
    world.pass(600).await;
    assert_eq!(world.outside.state().calls.len(), before, "{:?}", world.outside.state().calls);
    // Somebody leads again, on a disk that is well.
    disk.slow.store(0, Ordering::SeqCst);
    let (outside, store) = world.kill().await;
    let world = World::on(outside, store, Failpoints::default()).await;
    world.until("h2", Phase::Idle, 900).await;
    assert_eq!(world.outside.state().count("h2", PowerAction::GracefulOff), 1);
}
