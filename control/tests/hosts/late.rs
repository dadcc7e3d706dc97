//! What comes too late, or never gets to where it should: nothing falls on a machine that has another life by now.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use muster_control::{
    hosts::failpoint::{Failpoints, Hook},
    lead::Lead,
};
use muster_model::{
    Clock as _, Duration,
    host::{
        ConditionType, Phase, Switch, find_condition,
        keys::{self, PoolRecord},
    },
    power::PowerAction,
};
use muster_store::memory::Memory;

use crate::world::{Outside, World};

/// Takes the leadership away in front of an effect, after everything about it is stored.
#[derive(Debug)]
struct Depose {
    point: &'static str,
    lead: OnceLock<Arc<Lead>>,
}

#[async_trait]
impl Hook for Depose {
    async fn reach(&self, point: &str) {
        if let Some(lead) = self.lead.get().filter(|_| point == self.point) {
            lead.set(None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ops_r7_nothing_is_done_to_a_node_by_a_process_that_no_longer_leads() {
    for point in ["effect/cordon/before", "effect/evict/before", "effect/delete-node/before"] {
        let depose = Arc::new(Depose { point, lead: OnceLock::new() });
        let hook = Failpoints { hook: Some(Arc::clone(&depose) as _) };
        let world = World::with(Arc::new(Memory::default()), hook).await;
        world.serving("h1").await;
        let config = serde_json::json!({ "policy": { "nodeAtOff": "delete" } });
        world.put(keys::pool("gpu", PoolRecord::Config), config).await;
        world.pod("web-1", "h1", 10);
        depose.lead.set(Arc::clone(&world.lead)).unwrap();
        world.want("h1", Switch::Off, "i-off").await;
        for _ in 0..3_600 {
            if world.lead.now().is_none() {
                break;
            }
            world.pass(1).await;
        }
        assert!(world.lead.now().is_none(), "{point} is never reached");
        world.pass(60).await;
        let state = world.outside.state();
        let found = (state.cordon("h1").0, state.evictions > 0, state.node_is_gone("h1"));
        let expected = match point {
            "effect/cordon/before" => (false, false, false),
            "effect/evict/before" => (true, false, false),
            _ => (true, true, false),
        };
        assert_eq!(found, expected, "{point}");
    }
}

#[tokio::test(start_paused = true)]
async fn ops_r7_evictions_end_with_the_leadership_that_began_them() {
    let world = World::new().await;
    world.serving("h1").await;
    world.pod("web-1", "h1", 10);
    world.pod("web-2", "h1", 10);
    world.outside.state().deposed_by_eviction = Some(Arc::clone(&world.lead));
    world.want("h1", Switch::Off, "i-off").await;
    world.pass(300).await;
    assert_eq!(world.outside.state().evictions, 1, "the second is for the next leader");
}

/// A BMC that reads and has no time for a power call, for longer than a machine gets to shut down.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_bmc_was_busy_is_asked_before_its_power_is_cut() {
    let world = World::new().await;
    world.serving("h1").await;
    world.outside.state().machines.get_mut("h1").unwrap().busy = true;
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Stopping, 300).await;
    let audited = world.outside.state().audit.len();
    world.pass(420).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Stopping));
    let tries = world.outside.state().audit.len() - audited;
    assert!(tries <= 2 * 22, "{tries} lines about a BMC that is busy");
    world.outside.state().machines.get_mut("h1").unwrap().busy = false;
    world.until("h1", Phase::Idle, 600).await;
    let state = world.outside.state();
    let asked = (state.count("h1", PowerAction::GracefulOff), state.count("h1", PowerAction::ForceOff));
    assert_eq!(asked, (1, 0), "asked once, never forced");
}

/// The request was taken and the answer never comes: a reading settles it, and nobody asks again.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_left_and_was_never_answered_is_not_asked_for_again() {
    let world = World::new().await;
    world.serving("h1").await;
    {
        let mut state = world.outside.state();
        let machine = state.machines.get_mut("h1").unwrap();
        (machine.swallows, machine.ignores_acpi) = (true, true);
    }
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Stopping, 300).await;
    world.pass(200).await;
    assert_eq!(world.outside.state().count("h1", PowerAction::GracefulOff), 1);
    world.until("h1", Phase::Idle, 900).await;
    let state = world.outside.state();
    let asked = (state.count("h1", PowerAction::GracefulOff), state.count("h1", PowerAction::ForceOff));
    assert_eq!(asked, (1, 1), "asked once, and forced when its time was over");
}

/// Makes a BMC silent right in front of its call, for longer than a reading is good for.
#[derive(Debug, Default)]
struct Blind(OnceLock<Arc<Outside>>);

#[async_trait]
impl Hook for Blind {
    async fn reach(&self, point: &str) {
        let Some(outside) = self.0.get().filter(|_| point == "effect/graceful-off/before") else { return };
        outside.state().machines.get_mut("h1").unwrap().silent = ["redfish"].into();
        outside.clock.sleep(Duration::from_secs(10)).await;
    }
}

/// Nothing is known right before the call: it is made once something is.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_nobody_could_read_for_is_asked_for_later() {
    let blind = Arc::new(Blind::default());
    let hook = Failpoints { hook: Some(Arc::clone(&blind) as _) };
    let world = World::with(Arc::new(Memory::default()), hook).await;
    world.serving("h1").await;
    blind.0.set(Arc::clone(&world.outside)).unwrap();
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Stopping, 300).await;
    world.pass(100).await;
    assert_eq!(world.outside.state().calls.len(), 1, "only what switched it on");
    let (outside, store) = world.kill().await;
    outside.state().machines.get_mut("h1").unwrap().silent = [].into();
    let world = World::on(outside, store, Failpoints::default()).await;
    world.until("h1", Phase::Idle, 900).await;
    let state = world.outside.state();
    let asked = (state.count("h1", PowerAction::GracefulOff), state.count("h1", PowerAction::ForceOff));
    assert_eq!(asked, (1, 0), "asked once, never forced");
}

/// A kubeconfig was replaced: what changes in the cluster is noticed as before, not with the next poll.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_connected_anew_is_listened_to() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(60).await;
    world.outside.state().renewed = true;
    world.pass(60).await;
    {
        let now = world.outside.clock.now();
        let mut state = world.outside.state();
        let machine = state.machines.get_mut("h1").unwrap();
        (machine.on, machine.turned_at, machine.boots) = (true, now, 1);
    }
    world.pass(90).await;
    world.until("h1", Phase::Serving, 10).await;
}

/// Moves Muster onto a node right in front of the call that takes its power.
#[derive(Debug)]
struct Guards(OnceLock<Arc<Outside>>);

#[async_trait]
impl Hook for Guards {
    async fn reach(&self, point: &str) {
        if let Some(outside) = self.0.get().filter(|_| point == "effect/graceful-off/before") {
            outside.state().guarded.insert("h1".into(), "Muster itself runs there".into());
        }
    }
}

/// OPS-F22: the last look in front of a power-off sees what guards the node by then.
#[tokio::test(start_paused = true)]
async fn ops_f22_a_guard_in_front_of_the_call_keeps_it_back() {
    let guards = Arc::new(Guards(OnceLock::new()));
    let hook = Failpoints { hook: Some(Arc::clone(&guards) as _) };
    let world = World::with(Arc::new(Memory::default()), hook).await;
    world.serving("h1").await;
    guards.0.set(Arc::clone(&world.outside)).unwrap();
    world.want("h1", Switch::Off, "i-off").await;
    for _ in 0..3_600 {
        if !world.outside.state().guarded.is_empty() {
            break;
        }
        world.pass(1).await;
    }
    world.pass(60).await;
    let blocked = find_condition(&world.status("h1").await.conditions, ConditionType::DrainBlocked).cloned();
    assert_eq!(blocked.map(|one| one.reason).as_deref(), Some("NodeGuarded"));
    assert_eq!(world.phase("h1").await, Some(Phase::Serving));
    let state = world.outside.state();
    assert_eq!(state.count("h1", PowerAction::GracefulOff), 0);
    assert!(!state.cordon("h1").0, "it takes pods again");
}
