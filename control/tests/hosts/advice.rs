//! Hosts of a pool that only gives advice: read, shown, and left as they are.

use muster_model::{
    Clock as _, Duration,
    host::{
        ConditionType, Phase, Switch, find_condition, is_true,
        keys::{self, PoolRecord},
    },
    power::PowerAction,
};

use crate::world::World;

/// The pool may act from now on, or only gives advice.
fn advises(world: &World, only: bool) {
    let mut state = world.outside.state();
    state.advises = (only, state.advises.1 + 1);
}

/// Somebody presses the power button.
fn press(world: &World, name: &str, on: bool) {
    let now = world.outside.clock.now();
    let mut state = world.outside.state();
    let machine = state.machines.get_mut(name).unwrap();
    machine.boots += u32::from(on && !machine.on);
    (machine.on, machine.turned_at) = (on, now);
}

/// What reached a BMC or a node.
fn deeds(world: &World) -> (Vec<PowerAction>, Vec<String>, usize, u32) {
    let state = world.outside.state();
    let calls = state.calls.iter().map(|(.., order)| order.action).collect();
    (calls, state.node_acts.clone(), state.boots.len(), state.restarts)
}

#[track_caller]
fn nothing_was_done(world: &World) {
    assert_eq!(deeds(world), (Vec::new(), Vec::new(), 0, 0));
}

/// What its condition says of advice, while it holds.
async fn told(world: &World) -> Option<(String, String)> {
    let status = world.status("h1").await;
    let found = find_condition(&status.conditions, ConditionType::AdviseOnly).cloned()?;
    is_true(&status.conditions, ConditionType::AdviseOnly).then_some((found.reason, found.message))
}

/// Everything that may be done by itself is allowed.
async fn allow_everything(world: &World) {
    let policy = serde_json::json!({ "policy": {
        "cycleLost": "allowed", "resetBmc": "allowed", "outOfService": "allowed", "onUnexpectedOff": "restart",
        "onUnexpectedOn": "enforce-off", "onNodeDeleted": "stand-down", "nodeAtOff": "delete",
    } });
    world.put(keys::pool("gpu", PoolRecord::Config), policy).await;
}

/// A host that was registered while it was on, with a pod on its Ready node, in a pool that only gives advice.
async fn registered_while_on() -> World {
    let world = World::new().await;
    advises(&world, true);
    allow_everything(&world).await;
    world.register("h1", |_| {}).await;
    press(&world, "h1", true);
    world.pod("web-1", "h1", 10);
    world.until("h1", Phase::Serving, 600).await;
    world
}

/// BM-7.30 with scenario 3: a host that is registered while its node serves is read, and neither labelled nor tainted. What is
/// written for it all the same is not followed. Once its pool acts, it is done at once.
#[tokio::test(start_paused = true)]
async fn bm_7_30_a_host_that_is_registered_while_it_serves_is_not_touched() {
    let world = registered_while_on().await;
    world.outside.state().budget = Some("PodDisruptionBudget default/web".into());
    world.pass(1_200).await;
    world.want("h1", Switch::Off, "i-off").await;
    world.pass(1_200).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Serving));
    nothing_was_done(&world);
    let (reason, message) = told(&world).await.expect("it says why nothing is done");
    assert_eq!(reason, "PoolAdvises");
    let words = "its pool lab/gpu is in advise mode: nothing is done to it but what a person asks for; let it act with \
                 muster enable pool lab/gpu";
    assert_eq!(message, words);
    advises(&world, false);
    world.pass(5).await;
    assert_eq!(deeds(&world).1[0], "label h1", "looked at long before the next poll");
    assert_eq!(told(&world).await, None);
}

/// BM-7.30 with scenario 15: somebody presses the power button. It is seen and said, and the machine is left as it is, on or
/// off, whatever the policies of its pool allow.
#[tokio::test(start_paused = true)]
async fn bm_7_30_a_press_of_the_power_button_is_seen_and_answered_by_nothing() {
    let world = registered_while_on().await;
    world.pass(1_200).await;
    press(&world, "h1", false);
    world.until("h1", Phase::Idle, 150).await;
    assert!(is_true(&world.status("h1").await.conditions, ConditionType::UnexpectedOff));
    world.pass(7_200).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Idle));
    // And on again: for good without a node, and then with one.
    world.outside.state().machines.get_mut("h1").unwrap().boot = None;
    press(&world, "h1", true);
    world.pass(7_200).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Idle));
    assert!(is_true(&world.status("h1").await.conditions, ConditionType::UnexpectedOn));
    world.outside.state().machines.get_mut("h1").unwrap().boot = Some(Duration::from_secs(90));
    world.until("h1", Phase::Serving, 600).await;
    // Its kubelet hangs for as long as a lost node is waited for, and longer.
    world.outside.state().pods.clear();
    world.outside.state().machines.get_mut("h1").unwrap().boot = None;
    world.until("h1", Phase::Lost, 600).await;
    world.until("h1", Phase::Backoff, 1_200).await;
    world.pass(7_200).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Backoff));
    assert!(world.outside.state().machines["h1"].on);
    nothing_was_done(&world);
}

/// BM-7.30 with scenario 1: a wish for a host at rest is not followed, be it the planner's of before.
#[tokio::test(start_paused = true)]
async fn bm_7_30_a_host_at_rest_is_not_woken() {
    let world = World::new().await;
    advises(&world, true);
    world.register("h1", |spec| spec.boot_profile = Some("net".into())).await;
    world.until("h1", Phase::Idle, 120).await;
    world.pass(130).await;
    world.want("h1", Switch::On, "i-1").await;
    world.pass(1_200).await;
    assert_eq!((world.phase("h1").await, world.op("h1").await), (Some(Phase::Idle), None));
    nothing_was_done(&world);
}

/// What a person asks for is done: on, with a node that takes pods, and off again with a drain before it.
#[tokio::test(start_paused = true)]
async fn in_a_pool_that_advises_a_person_still_gets_power_on_and_off() {
    let world = World::new().await;
    advises(&world, true);
    world.idle("h1").await;
    world.respec("h1", |spec| spec.power_state = Some(Switch::On)).await;
    world.until("h1", Phase::Serving, 300).await;
    world.pass(10).await;
    assert_eq!(world.outside.state().taints("h1"), Vec::<String>::new(), "{:?}", deeds(&world).1);
    world.pod("web-1", "h1", 10);
    world.respec("h1", |spec| spec.power_state = Some(Switch::Off)).await;
    world.until("h1", Phase::Idle, 600).await;
    let (calls, acts, ..) = deeds(&world);
    assert_eq!(calls, [PowerAction::On, PowerAction::GracefulOff]);
    assert!(acts.contains(&"evict h1".to_owned()), "{acts:?}");
    // The wish is over, and so is everything else.
    world.respec("h1", |spec| spec.power_state = None).await;
    world.pass(1_200).await;
    let before = deeds(&world);
    press(&world, "h1", true);
    world.until("h1", Phase::Serving, 300).await;
    world.pass(1_200).await;
    assert_eq!(deeds(&world), before, "somebody else switched it on");
}

/// Whoever asks for a machine that serves to be on does not ask for the pool's taints among its pods.
#[tokio::test(start_paused = true)]
async fn a_wish_for_on_does_not_taint_a_node_that_serves() {
    let world = registered_while_on().await;
    world.outside.state().serves_plainly("h1");
    world.pass(5).await;
    world.respec("h1", |spec| spec.power_state = Some(Switch::On)).await;
    world.pass(1_200).await;
    nothing_was_done(&world);
}

/// A world in which `h1` is being drained and a budget keeps a pod there.
async fn draining() -> World {
    let world = World::new().await;
    world.serving("h1").await;
    world.pod("web-1", "h1", 10);
    world.outside.state().budget = Some("PodDisruptionBudget default/web".into());
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Evicting, 30).await;
    world
}

/// A drain is under way when its pool is told to advise: nothing more is evicted, its time stands still, and it goes on from
/// there when the pool may act again.
#[tokio::test(start_paused = true)]
async fn a_drain_stands_still_while_its_pool_advises() {
    let world = draining().await;
    world.pass(60).await;
    advises(&world, true);
    world.pass(5).await;
    let (before, left) = (deeds(&world), world.status("h1").await.deadline);
    world.pass(7_200).await;
    assert_eq!((world.phase("h1").await, deeds(&world)), (Some(Phase::Evicting), before));
    let (reason, message) = told(&world).await.expect("it says what stands still");
    assert_eq!(reason, "StandsStill");
    assert!(message.contains("muster enable pool lab/gpu") && message.contains("muster power"), "{message}");
    advises(&world, false);
    world.pass(5).await;
    assert!(world.status("h1").await.deadline > left, "its time did not run meanwhile");
    world.outside.state().budget = None;
    world.until("h1", Phase::Idle, 300).await;
}

/// Or a person says how it is to be.
#[tokio::test(start_paused = true)]
async fn a_drain_that_stands_still_is_ended_by_a_person() {
    let world = draining().await;
    advises(&world, true);
    world.pass(60).await;
    assert!(world.outside.state().cordon("h1").0);
    world.respec("h1", |spec| spec.power_state = Some(Switch::On)).await;
    world.until("h1", Phase::Serving, 30).await;
    world.pass(5).await;
    assert_eq!(world.outside.state().cordon("h1"), (false, None));
}

/// A machine was told to start, or to stop, when its pool is told to advise. No further call is made; what becomes of it is seen.
#[tokio::test(start_paused = true)]
async fn what_was_asked_before_its_pool_advises_is_awaited_and_nothing_is_added() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Powered, 60).await;
    advises(&world, true);
    world.until("h1", Phase::Serving, 300).await;
    world.pass(600).await;
    assert_eq!(deeds(&world), (vec![PowerAction::On], Vec::new(), 0, 0), "its node is not touched");
    advises(&world, false);
    world.pass(700).await;
    world.outside.state().machines.get_mut("h1").unwrap().ignores_acpi = true;
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Stopping, 60).await;
    world.pass(5).await;
    advises(&world, true);
    world.pass(3_600).await;
    assert_eq!(world.phase("h1").await, Some(Phase::Stopping));
    assert_eq!(deeds(&world).0, [PowerAction::On, PowerAction::GracefulOff], "it is not forced off");
    press(&world, "h1", false);
    world.until("h1", Phase::Idle, 300).await;
    assert_eq!(deeds(&world).0.len(), 2);
}
