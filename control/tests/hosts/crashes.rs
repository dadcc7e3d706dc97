//! `OPS-R12`: stopped at every point, and begun anew on the same store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use muster_control::hosts::failpoint::{self, Failpoints, Hook};
use muster_model::{
    host::{
        Phase, Switch,
        keys::{self, HostRecord, PoolRecord},
    },
    power::PowerAction,
    store::Txn,
};
use muster_store::memory::Memory;

use crate::world::World;

/// Remembers which points are reached, and stops the loop the first time that one of them is, as a crash would:
/// it never comes back.
#[derive(Debug, Default)]
struct Stop {
    point: Option<String>,
    reached: AtomicBool,
    armed: AtomicBool,
    seen: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Hook for Stop {
    async fn reach(&self, point: &str) {
        if !self.armed.load(Ordering::SeqCst) {
            return;
        }
        self.seen.lock().unwrap().insert(point.to_owned());
        if self.point.as_deref() == Some(point) {
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
        Story::Down => world.want("h1", Switch::Off, "i-off").await,
        Story::CalledOff => {
            world.outside.state().budget = Some("PodDisruptionBudget default/web".into());
            world.want("h1", Switch::Off, "i-off").await;
        }
        Story::Again => world.want("h1", Switch::On, "i-again").await,
        Story::NodeDeleted => {
            let config = serde_json::json!({ "policy": { "nodeAtOff": "delete" } });
            world.put(keys::pool("gpu", PoolRecord::Config), config).await;
            world.want("h1", Switch::Off, "i-off").await;
        }
        Story::Forced => {
            world.outside.state().machines.get_mut("h1").unwrap().ignores_acpi = true;
            world.want("h1", Switch::Off, "i-off").await;
        }
        Story::Deleted => {
            let txn = Txn::new().delete(keys::host("h1", HostRecord::Spec));
            let _ = world.store.commit(txn).await.unwrap();
        }
    }
}

/// What is said while the story goes on, at the right moment of its own: the wish to wake the host that was just
/// registered, the end of the wish to stand it down.
async fn prompt(world: &World, story: Story, said: &mut bool) {
    if *said {
        return;
    }
    let phase = world.phase("h1").await;
    match story {
        Story::Up if phase == Some(Phase::Idle) => world.want("h1", Switch::On, "i-1").await,
        Story::CalledOff if phase == Some(Phase::Evicting) => {
            let txn = Txn::new().delete(keys::host("h1", HostRecord::Intent));
            let _ = world.store.commit(txn).await.unwrap();
        }
        _ => return,
    }
    *said = true;
}

/// Whether the story has come to its end, with everything as it should be then.
async fn is_over(world: &World, story: Story, said: bool) -> bool {
    let phase = world.phase("h1").await;
    let keys = world.keys().await;
    let state = world.outside.state();
    match story {
        Story::Up | Story::Again => {
            (said || story == Story::Again) && phase == Some(Phase::Serving) && state.taints("h1").is_empty()
        }
        Story::Down | Story::Forced => phase == Some(Phase::Idle) && state.taints("h1") == ["muster.dev/off"],
        Story::NodeDeleted => phase == Some(Phase::Idle) && state.node_is_gone("h1"),
        Story::CalledOff => said && phase == Some(Phase::Serving) && state.cordon("h1") == (false, None),
        Story::Deleted => !keys.iter().any(|key| key.contains("/h1/")),
    }
}

/// That nothing was done twice, and nothing too early.
fn judge(world: &World, story: Story, point: &str) {
    let state = world.outside.state();
    let on = usize::from(story == Story::Again) + 1;
    assert_eq!(state.count("h1", PowerAction::On), on, "{story:?} {point}: {:?}", state.calls);
    assert_eq!(usize::try_from(state.machines["h1"].boots).unwrap(), on, "{story:?} {point}");
    let forced = state.count("h1", PowerAction::ForceOff);
    assert!(forced <= 2, "{story:?} {point}: {:?}", state.calls);
    let up = matches!(story, Story::Up | Story::Again | Story::CalledOff | Story::Deleted);
    assert_eq!(state.machines["h1"].on, up, "{story:?} {point}");
    assert!(up || state.pods.is_empty(), "{story:?} {point}: off with pods");
}

/// Plays a story; at `point` the process dies and another one goes on. The points that were reached.
async fn play(story: Story, point: Option<&str>) -> BTreeSet<String> {
    let stop = Arc::new(Stop { point: point.map(str::to_owned), ..Stop::default() });
    let failpoints = Failpoints { hook: Some(stop.clone()) };
    let mut world = World::with(Arc::new(Memory::default()), failpoints).await;
    prepare(&world, story).await;
    stop.armed.store(true, Ordering::SeqCst);
    begin(&world, story).await;
    let (mut said, mut died) = (false, false);
    for _ in 0..2_000 {
        if !died && stop.reached.load(Ordering::SeqCst) {
            let (outside, store) = world.kill().await;
            world = World::on(outside, store, Failpoints::default()).await;
            died = true;
        }
        prompt(&world, story, &mut said).await;
        // Metrics are written a while after everything else.
        let late = point.is_none_or(|point| !point.contains("metrics")) || died;
        if late && is_over(&world, story, said).await {
            judge(&world, story, point.unwrap_or("no point"));
            return std::mem::take(&mut *stop.seen.lock().unwrap());
        }
        world.pass(1).await;
    }
    let status = world.read::<serde_json::Value>(&keys::host("h1", HostRecord::Status)).await;
    panic!("{story:?} did not end after {point:?}: {status:#?}");
}

#[tokio::test(start_paused = true)]
async fn ops_r12_dying_at_any_point_the_next_process_goes_on() {
    let mut plan: BTreeMap<String, Story> = BTreeMap::new();
    for story in STORIES {
        for point in play(story, None).await {
            plan.entry(point).or_insert(story);
        }
    }
    let never: Vec<_> = failpoint::names().into_iter().filter(|point| !plan.contains_key(point)).collect();
    assert!(plan.len() >= 40, "{} points are reached; never: {never:?}", plan.len());
    for (point, story) in &plan {
        let _ = play(*story, Some(point)).await;
    }
}
