//! `OPS-R12`: stopped at every point, and begun anew on the same store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use muster_control::{
    audit::Outcome,
    hosts::failpoint::{self, Failpoints, Hook},
};
use muster_model::{
    Clock as _, Duration,
    host::{
        Acknowledgement, BareMetalNodeSpec, BareMetalNodeStatus, ConditionType, DriverKind, DriverSpec, Hold,
        Phase, PowerInterface, Switch, is_true,
        keys::{self, HostRecord, PoolRecord},
    },
    observe::OUT_OF_SERVICE_TAINT,
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
    /// Registered with a boot profile, woken, joined.
    Profile,
    /// Woken by magic packets.
    Packets,
    /// Its node is lost, and its power is cycled.
    Cycled,
    /// Its BMC is stuck and restarted.
    Stuck,
    /// It loses its power with a pod on it, and comes back.
    Fenced,
    /// A person holds it while it is drained, and the planner goes on asking.
    Held,
}

const STORIES: [Story; 13] = [
    Story::Up,
    Story::Down,
    Story::Forced,
    Story::CalledOff,
    Story::Deleted,
    Story::NodeDeleted,
    Story::Again,
    Story::Profile,
    Story::Packets,
    Story::Cycled,
    Story::Stuck,
    Story::Fenced,
    Story::Held,
];

async fn prepare(world: &World, story: Story) {
    match story {
        Story::Up | Story::Profile | Story::Packets => {}
        Story::Again => {
            world.serving("h1").await;
            world.want("h1", Switch::Off, "i-off").await;
            world.until("h1", Phase::Idle, 300).await;
            world.pass(1_000).await;
        }
        Story::Cycled | Story::Stuck => world.serving("h1").await,
        Story::Down
        | Story::Forced
        | Story::CalledOff
        | Story::Deleted
        | Story::NodeDeleted
        | Story::Fenced
        | Story::Held => {
            world.serving("h1").await;
            world.pod("web-1", "h1", 10);
        }
    }
}

/// Sets the story going.
async fn begin(world: &World, story: Story) {
    match story {
        Story::Up => world.register("h1", |_| {}).await,
        Story::Profile => world.register("h1", |spec| spec.boot_profile = Some("net".into())).await,
        Story::Packets => {
            let mut wol = DriverSpec::new(DriverKind::Wol);
            wol.settings.insert("broadcast".into(), "10.0.0.255".into());
            let drivers = vec![wol, DriverSpec::new(DriverKind::Agent)];
            let change = |spec: &mut BareMetalNodeSpec| {
                spec.power_interface = PowerInterface::Wol;
                (spec.mgmt_address, spec.mac_address) = (None, Some("02:00:00:00:00:01".parse().unwrap()));
                spec.drivers = drivers;
            };
            world.register("h1", change).await;
        }
        Story::Cycled => {
            allow(world, "cycleLost").await;
            world.outside.state().machines.get_mut("h1").unwrap().boot = None;
        }
        Story::Stuck => {
            allow(world, "resetBmc").await;
            world.outside.state().machines.get_mut("h1").unwrap().stuck = true;
        }
        Story::Fenced => {
            allow(world, "outOfService").await;
            let now = world.outside.clock.now();
            let mut state = world.outside.state();
            let machine = state.machines.get_mut("h1").unwrap();
            (machine.on, machine.turned_at) = (false, now);
        }
        Story::Down => world.want("h1", Switch::Off, "i-off").await,
        Story::CalledOff | Story::Held => {
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

/// Lets hosts of the pool be treated so.
async fn allow(world: &World, what: &str) {
    let config = serde_json::json!({ "policy": { what: "allowed" } });
    world.put(keys::pool("gpu", PoolRecord::Config), config).await;
}

/// What is said while the story goes on, at the right moment of its own: the wish to wake the host that was just
/// registered, the end of the wish to stand it down.
async fn prompt(world: &World, story: Story, said: &mut bool) {
    if story == Story::Cycled && world.outside.state().count("h1", PowerAction::Cycle) > 0 {
        world.outside.state().machines.get_mut("h1").unwrap().boot = Some(Duration::from_secs(90));
    }
    if *said {
        return;
    }
    let phase = world.phase("h1").await;
    match story {
        Story::Cycled if phase == Some(Phase::Lost) => {}
        Story::Fenced if world.outside.state().taints("h1").iter().any(|key| key == OUT_OF_SERVICE_TAINT) => {
            let at = world.outside.clock.now();
            let (by, reason) = ("ann".into(), "a fuse".into());
            world.respec("h1", |spec| spec.acknowledgement = Some(Acknowledgement { by, reason, at })).await;
            world.want("h1", Switch::On, "i-again").await;
        }
        Story::Up | Story::Profile | Story::Packets if phase == Some(Phase::Idle) => {
            world.want("h1", Switch::On, "i-1").await;
        }
        Story::CalledOff if phase == Some(Phase::Evicting) => {
            let txn = Txn::new().delete(keys::host("h1", HostRecord::Intent));
            let _ = world.store.commit(txn).await.unwrap();
        }
        Story::Held if phase == Some(Phase::Evicting) => {
            let (by, reason) = ("ann".into(), "a disk is swapped".into());
            world.respec("h1", |spec| spec.hold = Some(Hold { by, reason, until: None })).await;
            // Nothing protects the pod any more, and the wish is new: only the hold keeps them.
            world.outside.state().budget = None;
            world.want("h1", Switch::Off, "i-off-again").await;
        }
        _ => return,
    }
    *said = true;
}

/// Whether the story has come to its end, with everything as it should be then.
async fn is_over(world: &World, story: Story, said: bool) -> bool {
    let phase = world.phase("h1").await;
    let keys = world.keys().await;
    let status: Option<BareMetalNodeStatus> = world.read(&keys::host("h1", HostRecord::Status)).await;
    let reset = status.as_ref().is_some_and(|status| status.bmc_reset_at.is_some());
    let state = world.outside.state();
    match story {
        Story::Up | Story::Again | Story::Profile | Story::Packets | Story::Fenced => {
            (said || story == Story::Again) && phase == Some(Phase::Serving) && state.taints("h1").is_empty()
        }
        // A cycle is never repeated: where nobody knows whether it was sent, the machine is stood down in the end.
        Story::Cycled => said && matches!(phase, Some(Phase::Serving | Phase::Idle)),
        Story::Stuck => reset && matches!(phase, Some(Phase::Serving | Phase::Degraded)),
        Story::Down | Story::Forced => phase == Some(Phase::Idle) && state.taints("h1") == ["muster.dev/off"],
        Story::NodeDeleted => phase == Some(Phase::Idle) && state.node_is_gone("h1"),
        Story::Held => {
            let held = matches!(status, Some(status) if is_true(&status.conditions, ConditionType::Held));
            said && held && phase == Some(Phase::Serving) && state.cordon("h1") == (false, None)
        }
        Story::CalledOff => said && phase == Some(Phase::Serving) && state.cordon("h1") == (false, None),
        Story::Deleted => !keys.iter().any(|key| key.contains("/h1/")),
    }
}

/// That nothing was done twice, and nothing too early.
fn judge(world: &World, story: Story, point: &str) {
    let state = world.outside.state();
    assert_eq!(state.audit_is_complete(), Ok(()), "{story:?} {point}: {:#?}", state.audit);
    assert!(state.restarts <= 1, "{story:?} {point}: a BMC is restarted once");
    assert!(state.count("h1", PowerAction::Cycle) <= 1, "{story:?} {point}: {:?}", state.calls);
    if matches!(story, Story::Cycled | Story::Packets) {
        return; // packets are repeated until the machine answers, and a machine that is cycled boots again
    }
    let on = usize::from(matches!(story, Story::Again | Story::Fenced)) + 1;
    assert_eq!(state.count("h1", PowerAction::On), on, "{story:?} {point}: {:?}", state.calls);
    assert_eq!(usize::try_from(state.machines["h1"].boots).unwrap(), on, "{story:?} {point}");
    let forced = state.count("h1", PowerAction::ForceOff);
    assert!(forced <= 2, "{story:?} {point}: {:?}", state.calls);
    let up = !matches!(story, Story::Down | Story::Forced | Story::NodeDeleted);
    assert_eq!(state.machines["h1"].on, up, "{story:?} {point}");
    assert!(up || state.pods.is_empty(), "{story:?} {point}: off with pods");
}

/// The planner goes on asking, and the hold holds for as long as nobody releases it.
async fn is_held(world: &World, point: Option<&str>) {
    world.want("h1", Switch::Off, "i-off-once-more").await;
    world.pass(1_200).await;
    let state = world.outside.state();
    assert_eq!((state.pods.len(), state.cordon("h1")), (1, (false, None)), "{point:?}");
}

/// In seconds of the world's time: so long after it got the lease, a process has taken up what it found under way, and so much
/// later than without a crash everything is done.
const CONVERGES: u64 = 60;

/// A cycle that was begun and may have been sent is never sent again: the machine is given its time to come back first.
const UNKNOWN_END: &str = "effect/power-cycle/before";

/// Whether this process has looked at the host, has decided what comes next, and works on the operation as its own.
async fn has_taken_up(world: &World) -> bool {
    let ours = world.op("h1").await.is_none_or(|op| op.epoch == world.fence.epoch.0);
    world.host_loop.figures().turns > 0 && ours
}

/// How a story went: the points that were reached, and the seconds that it took.
struct Played {
    points: BTreeSet<String>,
    seconds: u64,
}

/// Plays a story; at `point` the process dies and another one goes on.
async fn play(story: Story, point: Option<&str>) -> Played {
    let stop = Arc::new(Stop { point: point.map(str::to_owned), ..Stop::default() });
    let failpoints = Failpoints { hook: Some(stop.clone()) };
    let mut world = World::with(Arc::new(Memory::default()), failpoints).await;
    prepare(&world, story).await;
    stop.armed.store(true, Ordering::SeqCst);
    begin(&world, story).await;
    let (mut said, mut died, mut leads_since) = (false, false, None);
    for seconds in 0..4_000 {
        if !died && stop.reached.load(Ordering::SeqCst) {
            let (outside, store) = world.kill().await;
            world = World::on(outside, store, Failpoints::default()).await;
            (died, leads_since) = (true, Some(seconds));
        }
        if let Some(since) = leads_since {
            let done = has_taken_up(&world).await;
            assert!(done || seconds < since + CONVERGES, "{story:?} {point:?}: nothing is taken up");
            leads_since = leads_since.filter(|_| !done);
        }
        prompt(&world, story, &mut said).await;
        // Metrics are written a while after everything else.
        let late = point.is_none_or(|point| !point.contains("metrics")) || died;
        if late && is_over(&world, story, said).await {
            if story == Story::Held {
                is_held(&world, point).await;
            }
            judge(&world, story, point.unwrap_or("no point"));
            return Played { points: std::mem::take(&mut *stop.seen.lock().unwrap()), seconds };
        }
        world.pass(1).await;
    }
    let status = world.read::<serde_json::Value>(&keys::host("h1", HostRecord::Status)).await;
    panic!("{story:?} did not end after {point:?}: {status:#?}");
}

#[tokio::test(start_paused = true)]
async fn ops_r12_dying_at_any_point_the_next_process_goes_on() {
    let mut plan: BTreeMap<String, (Story, u64)> = BTreeMap::new();
    for story in STORIES {
        let Played { points, seconds } = play(story, None).await;
        for point in points {
            plan.entry(point).or_insert((story, seconds));
        }
    }
    // Every point that there is, and no other: a new effect or write needs a story that comes by it.
    let points: BTreeSet<String> = failpoint::names().into_iter().collect();
    assert_eq!(plan.keys().cloned().collect::<BTreeSet<_>>(), points);
    assert!(points.len() >= 40, "{}", points.len());
    for (point, (story, alone)) in &plan {
        let took = play(*story, Some(point)).await.seconds;
        let in_time = took <= alone + CONVERGES || point == UNKNOWN_END;
        assert!(in_time, "{story:?} {point}: {took} s, and {alone} s without a crash");
    }
}

/// A hold that comes in the middle of a drain holds, whoever dies at which point of it: the node takes pods again, and its pod and its
/// power stay however often the planner asks.
#[tokio::test(start_paused = true)]
async fn ops_r12_a_hold_outlives_a_death_at_any_point() {
    let Played { points, .. } = play(Story::Held, None).await;
    assert!(points.iter().any(|point| point.starts_with("effect/uncordon")), "{points:?}");
    for point in &points {
        let _ = play(Story::Held, Some(point)).await;
    }
}

/// What cannot be written down is not done: the host waits where it is, fails nothing, and goes on once it can.
#[tokio::test(start_paused = true)]
async fn ops_r12_a_power_call_that_cannot_be_audited_is_not_made() {
    let world = World::new().await;
    world.idle("h1").await;
    world.pass(130).await;
    world.outside.state().audit_is_full = true;
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::PowerRequested, 60).await;
    world.pass(20).await;
    assert_eq!(world.outside.state().calls, [], "nothing is sent");
    assert_eq!(world.status("h1").await.failures, [], "and nobody is blamed");
    world.outside.state().audit_is_full = false;
    world.until("h1", Phase::Serving, 600).await;
    assert_eq!(world.outside.state().count("h1", PowerAction::On), 1);

    world.pass(1_000).await; // it serves for a while first
    world.outside.state().audit_is_full = true;
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Stopping, 300).await;
    world.pass(20).await;
    assert!(world.outside.state().machines["h1"].on, "nothing is taken from the machine");
    world.outside.state().audit_is_full = false;
    world.until("h1", Phase::Idle, 600).await;
    let state = world.outside.state();
    assert_eq!(state.audit_is_complete(), Ok(()), "{:#?}", state.audit);
    let told: Vec<_> = state.audit.iter().map(|one| (one.verb.as_str(), one.outcome)).collect();
    let both = |verb| [(verb, Outcome::Begun), (verb, Outcome::Done)];
    assert_eq!(told, [both("power-on"), both("graceful-off")].concat());
    let deed = state.audit[0].power.as_ref().unwrap();
    assert_eq!((deed.driver.as_str(), deed.decision.as_deref()), ("redfish", Some("d-1")));
    assert_eq!(state.audit[0].request_id, format!("{}/1", deed.operation.as_deref().unwrap()));
}
