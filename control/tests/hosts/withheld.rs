//! Calls that are under way when they may no longer leave: nothing is sent, and nothing is lost.

use muster_model::{
    Clock as _, Duration,
    host::{Admin, Phase, Switch, keys},
    power::PowerAction,
};

use crate::world::World;

/// How long a slow BMC takes for every answer.
const SLOW: Duration = Duration::from_secs(9);

/// A wish for a host whose BMC has become slow, until the call for it is on its way.
async fn wish(world: &World, name: &str, want: Switch) {
    world.pass(130).await;
    world.outside.state().machines.get_mut(name).unwrap().latency = SLOW;
    let audited = world.outside.state().audit.len();
    world.want(name, want, "i-1").await;
    until_under_way(world, audited).await;
}

/// Waits until the next call is on its way to its BMC: it is in the audit log before anything is sent.
async fn until_under_way(world: &World, audited: usize) {
    for _ in 0..120 {
        if world.outside.state().audit.len() > audited {
            return;
        }
        world.pass(1).await;
    }
    panic!("no call is under way");
}

/// The lease is held for so long from now on.
fn lead_for(world: &World, length: Duration) {
    let until = world.outside.clock.monotonic().saturating_add(length);
    world.lead.set(Some((world.fence.clone(), until)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_under_way_when_leadership_ends_sends_nothing() {
    let world = World::new().await;
    world.idle("h1").await;
    wish(&world, "h1", Switch::On).await;
    world.lead.set(None);
    world.pass(120).await;
    assert_eq!(world.outside.state().calls.len(), 0, "it was sent by a process that no longer led");
    // It stays announced: whoever leads next sends it, once.
    lead_for(&world, Duration::from_hours(1));
    world.until("h1", Phase::Serving, 600).await;
    assert_eq!(world.outside.state().count("h1", PowerAction::On), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_nearly_over_costs_no_attempt_and_no_storm() {
    let world = World::new().await;
    world.idle("h1").await;
    wish(&world, "h1", Switch::On).await;
    let audited = world.outside.state().audit.len();
    for _ in 0..12 {
        // Renewed again and again, and never for long enough.
        lead_for(&world, Duration::from_secs(8));
        world.pass(5).await;
    }
    assert_eq!(world.outside.state().calls.len(), 0);
    let lines = world.outside.state().audit.len() - audited;
    assert!(lines <= 3, "{lines} lines about a call that could not leave");
    lead_for(&world, Duration::from_hours(1));
    world.until("h1", Phase::Serving, 600).await;
    let op = world.status("h1").await;
    assert_eq!((world.outside.state().count("h1", PowerAction::On), op.failures.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_shutdown_was_withheld_is_not_forced_off() {
    let world = World::new().await;
    world.serving("h1").await;
    wish(&world, "h1", Switch::Off).await;
    lead_for(&world, Duration::from_secs(8));
    world.pass(7).await;
    lead_for(&world, Duration::from_secs(8));
    world.pass(7).await;
    lead_for(&world, Duration::from_hours(2));
    world.until("h1", Phase::Idle, 900).await;
    let state = world.outside.state();
    let asked = (state.count("h1", PowerAction::GracefulOff), state.count("h1", PowerAction::ForceOff));
    assert_eq!(asked, (1, 0), "asked once, never forced");
}

#[tokio::test(start_paused = true)]
async fn a_freeze_or_maintenance_stops_a_call_that_is_under_way() {
    let world = World::new().await;
    world.idle("h1").await;
    wish(&world, "h1", Switch::On).await;
    let global = |freeze: &str| serde_json::json!({ "freeze": freeze });
    world.put(keys::GLOBAL_CONFIG.into(), global("frozen")).await;
    world.pass(300).await;
    assert_eq!(world.outside.state().calls.len(), 0, "a freeze was answered, and a call left after it");
    let audited = world.outside.state().audit.len();
    world.put(keys::GLOBAL_CONFIG.into(), global("none")).await;
    until_under_way(&world, audited).await;
    world.respec("h1", |spec| spec.admin = Admin::Maintenance).await;
    world.pass(300).await;
    assert_eq!(world.outside.state().calls.len(), 0, "a person works on it");
    world.respec("h1", |spec| spec.admin = Admin::Normal).await;
    world.want("h1", Switch::On, "i-2").await;
    world.until("h1", Phase::Serving, 900).await;
    assert_eq!(world.outside.state().count("h1", PowerAction::On), 1);
}
