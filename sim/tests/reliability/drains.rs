//! OPS-R9: a drain that is given up leaves a node that takes pods again, within one loop, however it was given up.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use muster_control::hosts::failpoint::{Failpoints, Hook};
use muster_model::{
    Duration,
    host::{ConditionType, Phase, State, find_condition},
};
use muster_sim::world::{
    Disturbance, Kind, Outage, Quirk, START, What, Workload, World, fleet::on_one_thread, fuzz,
    process::Manner, simulation::Simulation, site::PoolSetting,
};

use super::{furnish, unharmed};

/// One loop of a host that serves: the time between two of its turns when nothing asks for one (`hosts::pace::POLL`). Whatever the
/// turn that gave up could not do, the next one does.
const LOOP: Duration = Duration::from_mins(1);
/// How long troubles last: beyond the 15 minutes of a drain, and over before the next one is tried 10 minutes later.
const TROUBLE: Duration = Duration::from_mins(20);

/// What ends a drain.
#[derive(Debug, Clone)]
enum Cause {
    Outage(Outage),
    /// Of the host's BMC.
    Quirk(Quirk),
    /// A pod is bound to its node.
    Bound,
    /// A person wants the host on.
    Person,
    /// Pods that need the host come back.
    Demand,
    /// Muster itself was moved to its node.
    Guarded,
}

/// When that happens.
#[derive(Debug, Clone, Copy)]
enum When {
    In(Phase),
    /// At a point of the host loop, before it goes on.
    At(&'static str),
}

/// Every reason for which `engine::lifecycle::draining` gives a drain up, but two: `PodsProtected`, which needs a pod that may not
/// be evicted after the plan found none (the lifecycle's own tests have it), and `PlanUnknown`, which needs a planner that is
/// silent while its cluster answers. Both go through the same function.
fn causes() -> [(Cause, When, &'static str); 12] {
    let (cordoned, evicting) = (When::In(Phase::Cordoned), When::In(Phase::Evicting));
    [
        (Cause::Outage(Outage::BudgetsClosed), cordoned, "DrainTimedOut"),
        (Cause::Outage(Outage::Finalizers), evicting, "DrainTimedOut"),
        (Cause::Outage(Outage::ActsRefused), cordoned, "DrainTimedOut"),
        (Cause::Outage(Outage::ApiStalled), evicting, "PodsUnknown"),
        (Cause::Outage(Outage::ApiDown), evicting, "PodsUnknown"),
        (Cause::Outage(Outage::ApiStalled), When::At("effect/cordon/before"), "CordonNotSeen"),
        (Cause::Quirk(Quirk::BlackHole), evicting, "NotSwitchedOff"),
        (Cause::Bound, When::At("effect/graceful-off/before"), "NewPods"),
        (Cause::Person, evicting, "DemandCameBack"),
        (Cause::Demand, cordoned, "DemandCameBack"),
        (Cause::Demand, evicting, "DemandCameBack"),
        (Cause::Guarded, evicting, "NodeGuarded"),
    ]
}

/// Lets something happen when the loop comes by a point for the first time.
#[derive(Debug)]
struct AtPoint {
    world: Arc<World>,
    point: &'static str,
    cause: Cause,
    /// The host that the drain is about, which is known by then.
    host: Mutex<Option<String>>,
    done: AtomicBool,
}

impl AtPoint {
    fn host(&self) -> Option<String> {
        self.host.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl Hook for AtPoint {
    async fn reach(&self, point: &str) {
        if point == self.point && !self.done.swap(true, Ordering::Relaxed) {
            let host = self.host().unwrap_or_else(|| "h0".to_owned());
            happens(&self.world, &self.cause, &host);
            let at = self.world.now().saturating_add(Duration::from_millis(1));
            self.world.timeline().until(at).await;
        }
    }
}

fn happens(world: &World, cause: &Cause, host: &str) {
    let machine = || host.to_owned();
    let what = match cause {
        Cause::Outage(outage) => What::Outage(*outage),
        Cause::Quirk(quirk) => What::Quirk { machine: machine(), quirk: *quirk },
        Cause::Bound => What::BindTo { machine: machine() },
        Cause::Person => What::Ask { host: machine(), on: true },
        Cause::Demand => return world.set_replicas("big", 2),
        Cause::Guarded => return world.protect(host),
    };
    world.disturb(Disturbance { at: world.now(), lasts: TROUBLE, what });
}

/// The host that is being drained, if one is.
async fn is_draining(simulation: &Simulation) -> Option<String> {
    for name in ["h0", "h1"] {
        let phase = simulation.phase(name).await.unwrap();
        if phase.is_some_and(|phase| phase.state() == State::Draining) {
            return Some(name.to_owned());
        }
    }
    None
}

/// Two hosts with a pod each, one of which could run both, so that the other one is drained; and what ends that. The host.
async fn is_drained(simulation: &mut Simulation, cause: &Cause, when: When, hook: &AtPoint) -> String {
    furnish(simulation, 2, PoolSetting::metal("web", 0, 2), 1).await;
    simulation.world().add_workload(Workload::deployment("big", 2, 5_000));
    let mut shop = Workload::deployment("shop", 2, 2_000);
    (shop.grace_seconds, shop.ends_after_seconds, shop.min_available) = (60, 30, Some(1));
    simulation.world().add_workload(shop);
    simulation.run_for(Duration::from_mins(15)).await.unwrap();
    assert_eq!(simulation.world().running(), 4);
    simulation.world().set_replicas("big", 0);
    for _ in 0..36_000 {
        simulation.run_for(Duration::from_millis(100)).await.unwrap();
        let Some(name) = is_draining(simulation).await.or_else(|| hook.host()) else { continue };
        *hook.host.lock().unwrap() = Some(name.clone());
        match when {
            When::In(phase) if simulation.phase(&name).await.unwrap() == Some(phase) => {
                happens(simulation.world(), cause, &name);
                return name;
            }
            When::At(_) if hook.done.load(Ordering::Relaxed) => return name,
            When::In(_) | When::At(_) => {}
        }
    }
    panic!("{cause:?} {when:?}: nothing is drained");
}

/// Plays it: the reason for which the drain was given up, and how long the cordon outlived the status that says so, or the trouble
/// because of which nobody could take it away.
async fn gives_up(cause: Cause, when: When) -> (String, Duration) {
    let mut simulation = Simulation::new(START, fuzz::exact());
    let point = if let When::At(point) = when { point } else { "" };
    let hook = Arc::new(AtPoint {
        world: Arc::clone(simulation.world()),
        point,
        cause: cause.clone(),
        host: Mutex::default(),
        done: AtomicBool::new(false),
    });
    let failpoints = Failpoints { hook: Some(Arc::clone(&hook) as _) };
    simulation.set_manner(Manner { failpoints, ..fuzz::exact() });
    let name = is_drained(&mut simulation, &cause, when, &hook).await;
    let over = simulation.world().now().saturating_add(TROUBLE);
    let mut given_up = None;
    loop {
        simulation.run_for(Duration::from_millis(100)).await.unwrap();
        let status = simulation.status(&name).await.unwrap().unwrap();
        let present = simulation.world().now();
        if given_up.is_none() && matches!(status.phase, Phase::Serving | Phase::Degraded) {
            let blocked = find_condition(&status.conditions, ConditionType::DrainBlocked).unwrap();
            given_up = Some((blocked.reason.clone(), present));
        }
        if let Some((reason, at)) = &given_up
            && !simulation.world().is_cordoned(&name)
        {
            unharmed(&simulation);
            let nobody_can = matches!(cause, Cause::Outage(Outage::ActsRefused | Outage::ApiDown));
            let from = if nobody_can { (*at).max(over) } else { *at };
            return (reason.clone(), present.saturating_sub(from));
        }
        let lines = || simulation.world().lines().join("\n");
        assert!(status.phase != Phase::Idle, "{cause:?} {when:?}: the drain was not given up\n{}", lines());
        let late = over.saturating_add(Duration::from_mins(15));
        assert!(present < late, "{cause:?} {when:?}: still cordoned, given up {given_up:?}\n{}", lines());
    }
}

#[test]
fn ops_r9_a_drain_that_is_given_up_uncordons_within_one_loop() {
    for (cause, when, expected) in causes() {
        let (reason, length) = on_one_thread(gives_up(cause.clone(), when));
        assert_eq!(reason, expected, "{cause:?} {when:?}");
        assert!(length <= LOOP, "{cause:?} {when:?}: cordoned for {length} after it was given up");
    }
}

/// BM-7, row 18: a pod a minute that fits nowhere ends no drain: the node could not hold it either. Those that it could hold end
/// one, as `Cause::Demand` shows.
#[test]
fn pods_that_fit_nowhere_end_no_drain() {
    on_one_thread(async {
        let mut simulation = Simulation::new(START, fuzz::exact());
        furnish(&mut simulation, 2, PoolSetting::metal("web", 0, 2), 1).await;
        let world = Arc::clone(simulation.world());
        world.add_workload(Workload::deployment("big", 2, 5_000));
        world.add_workload(Workload::deployment("shop", 2, 2_000));
        simulation.run_for(Duration::from_mins(15)).await.unwrap();
        assert_eq!(world.running(), 4);
        world.set_replicas("big", 0);
        for minute in 0..60 {
            let mut nightly = Workload::deployment(&format!("nightly-{minute}"), 1, 64_000);
            nightly.kind = Kind::Job { seconds: 10 };
            world.add_workload(nightly);
            simulation.run_for(Duration::from_mins(1)).await.unwrap();
        }
        assert_eq!((world.power_offs(None), world.running()), (1, 2), "{}", world.lines().join("\n"));
        unharmed(&simulation);
    });
}

/// A pod comes onto a host that is drained, and more that need it follow. The planner says that no node can go: what it wanted
/// before does not drain the host again once the pause after a drain is over.
#[test]
fn a_drain_that_was_given_up_is_not_tried_again_unless_a_plan_asks_for_it() {
    on_one_thread(async {
        let mut simulation = Simulation::new(START, fuzz::exact());
        let hook = Arc::new(AtPoint {
            world: Arc::clone(simulation.world()),
            point: "effect/graceful-off/before",
            cause: Cause::Bound,
            host: Mutex::default(),
            done: AtomicBool::new(false),
        });
        let failpoints = Failpoints { hook: Some(Arc::clone(&hook) as _) };
        simulation.set_manner(Manner { failpoints, ..fuzz::exact() });
        let name = is_drained(&mut simulation, &Cause::Bound, When::At(hook.point), &hook).await;
        simulation.world().set_replicas("big", 2);
        while simulation.phase(&name).await.unwrap() != Some(Phase::Serving) {
            simulation.run_for(Duration::from_millis(100)).await.unwrap();
        }
        for _ in 0..40 * 60 {
            simulation.run_for(Duration::from_secs(1)).await.unwrap();
            let lines = || simulation.world().lines().join("\n");
            assert_eq!(is_draining(&simulation).await, None, "{}", lines());
        }
        // Once a plan finds that it can go, it goes.
        simulation.world().set_replicas("big", 0);
        simulation.run_for(Duration::from_mins(40)).await.unwrap();
        let phases = [simulation.phase("h0").await.unwrap(), simulation.phase("h1").await.unwrap()];
        assert!(phases.contains(&Some(Phase::Idle)), "{phases:?}\n{}", simulation.world().lines().join("\n"));
        unharmed(&simulation);
    });
}
