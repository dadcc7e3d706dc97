//! `OPS-R12`: stopped at every point, and begun anew on the same store.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use muster_control::hosts::failpoint::{self, Failpoints, Hook};
use muster_model::{
    host::{Phase, Switch},
    power::PowerAction,
};
use muster_store::memory::Memory;

use crate::world::World;

/// Stops the loop the first time that a point is reached, as a crash would: it never comes back.
#[derive(Debug)]
struct Stop {
    point: String,
    reached: AtomicBool,
    armed: AtomicBool,
}

#[async_trait]
impl Hook for Stop {
    async fn reach(&self, point: &str) {
        if point == self.point && self.armed.load(Ordering::SeqCst) {
            self.reached.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
    }
}

/// What is done to a host, and where it should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    /// Registered, woken, joined.
    Up,
    /// Stood down and off.
    Down,
    /// Stood down by force.
    Forced,
    /// A drain that is called off.
    CalledOff,
    /// Its spec is deleted.
    Deleted,
    /// Its node is deleted when it is off.
    NodeDeleted,
    /// Woken again after it was off.
    Again,
}

const STORIES: [Story; 7] = [
    Story::Up,
    Story::Down,
    Story::Forced,
    Story::CalledOff,
    Story::Deleted,
    Story::NodeDeleted,
    Story::Again,
];

async fn prepare(world: &World, story: Story) {
    match story {
        Story::Up => {}
        Story::Again => {
            world.serving("h1").await;
            world.want("h1", Switch::Off, "i-off").await;
            world.until("h1", Phase::Idle, 300).await;
            world.pass(1_000).await;
        }
        Story::Down | Story::Forced | Story::CalledOff | Story::Deleted | Story::NodeDeleted => {
            world.serving("h1").await;
            world.pod("web-1", "h1", 10);
        }
    }
}

/// Sets the story going.
async fn begin(world: &World, story: Story) {
    match story {
        Story::Up => {
            world.register("h1", |_| {}).await;
        }
        Story::Down | Story::CalledOff => world.want("h1", Switch::Off, "i-off").await,
        Story::Again => world.want("h1", Switch::On, "i-again").await,
        Story::NodeDeleted => {
            let config = serde_json::json!({ "policy": { "nodeAtOff": "delete" } });
            world.put(muster_model::host::keys::pool("gpu", muster_model::host::keys::PoolRecord::Config), config).await;
            world.want("h1", Switch::Off, "i-off").await;
        }
        Story::Forced => {
            world.outside.state().machines.get_mut("h1").unwrap().ignores_acpi = true;
            world.want("h1", Switch::Off, "i-off").await;
        }
        Story::Deleted => {
            let key = muster_model::host::keys::host("h1", muster_model::host::keys::HostRecord::Spec);
            let _ = world.store.commit(muster_model::store::Txn::new().delete(key)).await.unwrap();
        }
    }
}

/// Sees the story to its end, and that nothing was done twice.
async fn finish(world: &World, story: Story, point: &str) {
    match story {
        Story::Up => {
            world.until("h1", Phase::Idle, 300).await;
            world.pass(130).await;
            world.want("h1", Switch::On, "i-1").await;
            world.until("h1", Phase::Serving, 600).await;
            world.pass(20).await;
            let state = world.outside.state();
            assert_eq!(state.count("h1", PowerAction::On), 1, "{point}: {:?}", state.calls);
            assert_eq!(state.machines["h1"].boots, 1, "{point}");
            assert!(state.taints("h1").is_empty(), "{point}: {:?}", state.taints("h1"));
        }
        Story::Down | Story::Forced | Story::NodeDeleted => {
            world.until("h1", Phase::Idle, 1_500).await;
            world.pass(60).await;
            let state = world.outside.state();
            assert!(!state.machines["h1"].on && state.pods.is_empty(), "{point}");
            assert!(state.count("h1", PowerAction::ForceOff) <= 2, "{point}: {:?}", state.calls);
            assert_eq!(state.count("h1", PowerAction::On), 1, "{point}: {:?}", state.calls);
        }
        Story::CalledOff => {
            world.outside.state().budget = Some("PodDisruptionBudget default/web".into());
            world.until("h1", Phase::Evicting, 60).await;
            let key = muster_model::host::keys::host("h1", muster_model::host::keys::HostRecord::Intent);
            let _ = world.store.commit(muster_model::store::Txn::new().delete(key)).await.unwrap();
            world.until("h1", Phase::Serving, 60).await;
            world.pass(20).await;
            let state = world.outside.state();
            assert_eq!(state.cordon("h1"), (false, None), "{point}: a cordon leaked");
            assert!(state.machines["h1"].on, "{point}");
        }
        Story::Again => {
            world.until("h1", Phase::Serving, 600).await;
            world.pass(20).await;
            let state = world.outside.state();
            assert_eq!((state.count("h1", PowerAction::On), state.machines["h1"].boots), (2, 2), "{point}");
            assert!(state.taints("h1").is_empty(), "{point}: {:?}", state.taints("h1"));
        }
        Story::Deleted => {
            world.pass(60).await;
            let left: Vec<_> = world.keys().await.into_iter().filter(|key| key.contains("/h1/")).collect();
            assert_eq!(left, Vec::<String>::new(), "{point}");
        }
    }
}

/// Whether the point was reached in this story; if so the process died there and another one went on.
async fn run(story: Story, point: &str) -> bool {
    let stop = Arc::new(Stop { point: point.into(), reached: AtomicBool::new(false), armed: AtomicBool::new(false) });
    let failpoints = Failpoints { hook: Some(stop.clone()) };
    let mut world = World::with(Arc::new(Memory::default()), failpoints).await;
    prepare(&world, story).await;
    stop.armed.store(true, Ordering::SeqCst);
    begin(&world, story).await;
    let mut wanted = false;
    for second in 0..700 {
        if stop.reached.load(Ordering::SeqCst) {
            let (outside, store) = world.kill().await;
            world = World::on(outside, store, Failpoints::default()).await;
            break;
        }
        if story == Story::Up && !wanted && world.phase("h1").await == Some(Phase::Idle) && second > 200 {
            world.want("h1", Switch::On, "i-1").await;
            wanted = true;
        }
        if story == Story::CalledOff && second == 20 {
            let key = muster_model::host::keys::host("h1", muster_model::host::keys::HostRecord::Intent);
            let _ = world.store.commit(muster_model::store::Txn::new().delete(key)).await.unwrap();
        }
        if story == Story::CalledOff && second == 0 {
            world.outside.state().budget = Some("PodDisruptionBudget default/web".into());
        }
        world.pass(1).await;
    }
    let reached = stop.reached.load(Ordering::SeqCst);
    if reached {
        match story {
            Story::Up if wanted => {
                world.until("h1", Phase::Serving, 900).await;
                world.pass(20).await;
                let state = world.outside.state();
                assert_eq!(state.count("h1", PowerAction::On), 1, "{point}: {:?}", state.calls);
                assert_eq!(state.machines["h1"].boots, 1, "{point}");
            }
            Story::CalledOff => {
                let key = muster_model::host::keys::host("h1", muster_model::host::keys::HostRecord::Intent);
                let _ = world.store.commit(muster_model::store::Txn::new().delete(key)).await.unwrap();
                world.pass(120).await;
                assert_eq!(world.phase("h1").await, Some(Phase::Serving), "{point}");
                assert_eq!(world.outside.state().cordon("h1"), (false, None), "{point}: a cordon leaked");
            }
            story => finish(&world, story, point).await,
        }
    }
    reached
}

#[tokio::test(start_paused = true)]
async fn ops_r12_dying_at_any_point_the_next_process_goes_on() {
    let (mut reached, mut never) = (0, Vec::new());
    for point in failpoint::names() {
        let mut met = false;
        for story in STORIES {
            met |= run(story, &point).await;
        }
        if met { reached += 1 } else { never.push(point) }
    }
    assert!(reached >= 40, "{reached} points were reached; never: {never:?}");
}
