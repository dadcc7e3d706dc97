//! OPS-R4, R5, R6, R8 and R9 in the simulated world, with the production loops.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

#[path = "reliability/advice.rs"]
mod advice;
#[path = "reliability/clocks.rs"]
mod clocks;
#[path = "reliability/drains.rs"]
mod drains;
#[path = "reliability/replaced.rs"]
mod replaced;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use muster_control::{
    explain::{Explain, Subject},
    hosts::failpoint::{Failpoints, Hook},
    journal::Journal,
};
use muster_model::{
    Duration, NodePool,
    condition::{Condition, find},
    host::{ConditionType, Phase, State, find_condition},
    planted,
};
use muster_sim::world::{
    Build, Disturbance, Outage, Quirk, START, What, Workload, World,
    fleet::on_one_thread,
    fuzz,
    process::Manner,
    simulation::Simulation,
    site::{self, HostSetting, PoolSetting, Site},
};

/// A pool of so many hosts, at rest.
async fn metal(hosts: u32, pool: PoolSetting, processes: usize) -> Simulation {
    let mut simulation = Simulation::new(START, fuzz::exact());
    furnish(&mut simulation, hosts, pool, processes).await;
    simulation
}

/// The same in a world that is there.
async fn furnish(simulation: &mut Simulation, hosts: u32, pool: PoolSetting, processes: usize) {
    simulation.plan_for(site::cluster_id());
    let first = simulation.start().await.unwrap();
    let mut made = Site::default();
    for number in 0..hosts {
        let build = Build::new(&format!("h{number}"), &format!("10.2.0.{}", number + 1));
        made.hosts.push(HostSetting::new(&pool.name, build));
    }
    made.pools.push(pool);
    simulation.furnish(first, &made).unwrap();
    for _ in 1..processes {
        simulation.start().await.unwrap();
    }
    simulation.run_for(Duration::from_mins(5)).await.unwrap();
}

/// What the first pool says of itself.
async fn condition(simulation: &Simulation, kind: &'static str) -> Option<Condition> {
    let process = simulation.leader().and_then(|number| simulation.process(number)).unwrap();
    let pool = process.registry.read::<NodePool>(site::pool_id(0)).await.unwrap().unwrap();
    find(&pool.status().conditions, kind).cloned()
}

fn now(simulation: &Simulation, lasts: Duration, what: What) {
    let at = simulation.world().now();
    simulation.world().disturb(Disturbance { at, lasts, what });
}

#[track_caller]
fn unharmed(simulation: &Simulation) {
    let broken = simulation.world().violations();
    assert!(broken.is_empty(), "{broken:#?}\n{}", simulation.world().lines().join("\n"));
}

/// All is well again: at least four hosts that are not needed go, and stay away.
async fn comes_to_rest(simulation: &mut Simulation) {
    simulation.run_for(Duration::from_hours(1)).await.unwrap();
    let (ons, offs) = (simulation.world().power_ons(None), simulation.world().power_offs(None));
    assert!(offs >= 4, "{offs} power-offs");
    simulation.run_for(Duration::from_hours(1)).await.unwrap();
    assert_eq!((simulation.world().power_ons(None), simulation.world().power_offs(None)), (ons, offs));
    unharmed(simulation);
}

/// OPS-R4: one pod, hosts whose nodes nobody can use or that never join, one hour.
#[test]
fn ops_r4_one_pod_does_not_wake_host_after_host() {
    for quirk in [Quirk::JoinsTainted, Quirk::NeverJoins] {
        on_one_thread(async {
            let mut simulation = metal(12, PoolSetting::metal("web", 0, 12), 1).await;
            for number in 0..12 {
                let what = What::Quirk { machine: format!("h{number}"), quirk };
                now(&simulation, Duration::from_hours(5), what);
            }
            simulation.world().add_workload(Workload::deployment("shop", 1, 2_000));
            simulation.run_for(Duration::from_hours(1)).await.unwrap();
            let world = simulation.world();
            let woken = (0..12).filter(|number| world.power_ons(Some(&format!("h{number}"))) > 0).count();
            assert!((1..=3).contains(&woken), "{quirk:?}: {woken} hosts\n{}", world.lines().join("\n"));
            for number in 0..12 {
                assert!(world.power_ons(Some(&format!("h{number}"))) <= 2, "{quirk:?} h{number}");
            }
            let paused = condition(&simulation, "GrowthPaused").await;
            let paused = paused.unwrap_or_else(|| panic!("{quirk:?}: the pool does not say why it stopped"));
            assert_eq!((paused.status.as_str(), paused.reason.as_str()), ("True", "WokenInVain"));
            let tells = paused.message.contains("shop") && paused.message.contains("until");
            assert!(tells, "{quirk:?}: {}", paused.message);
            unharmed(&simulation);
        });
    }
}

/// OPS-R4 for each demand: one pod never lands wherever it is put, and the pods of others do all the time. Three hosts are woken for it, and
/// the others get theirs.
#[test]
fn ops_r4_a_pod_that_never_lands_does_not_stop_others_nor_hide_behind_them() {
    on_one_thread(async {
        let mut simulation = metal(12, PoolSetting::metal("web", 0, 12), 1).await;
        // Machines that come up tainted: nobody lands there. The others are well.
        for number in 0..6 {
            let what = What::Quirk { machine: format!("h{number}"), quirk: Quirk::JoinsTainted };
            now(&simulation, Duration::from_hours(5), what);
        }
        simulation.world().add_workload(Workload::deployment("never", 1, 7_500));
        simulation.run_for(Duration::from_mins(20)).await.unwrap();
        let world = std::sync::Arc::clone(simulation.world());
        let woken = || (0..12).filter(|n| world.power_ons(Some(&format!("h{n}"))) > 0).count();
        assert!((1..=3).contains(&woken()), "{} hosts\n{}", woken(), world.lines().join("\n"));
        let before = world.power_ons(None);
        simulation.world().add_workload(Workload::deployment("shop", 2, 5_000));
        simulation.run_for(Duration::from_mins(20)).await.unwrap();
        assert!(world.power_ons(None) > before, "others are not kept waiting\n{}", world.lines().join("\n"));
        simulation.run_for(Duration::from_mins(20)).await.unwrap();
        for number in 0..12 {
            assert!(world.power_ons(Some(&format!("h{number}"))) <= 2, "h{number}");
        }
        unharmed(&simulation);
    });
}

/// What the process that leads tells a person who asks about a node.
async fn told(simulation: &Simulation, node: &str) -> String {
    let process = simulation.leader().and_then(|number| simulation.process(number)).unwrap();
    let journal = Journal::new(Arc::clone(simulation.store()));
    let subject = Subject::Node(node.to_owned());
    let explain = Explain::new(Arc::clone(&process.board), journal);
    explain.now(site::cluster_id(), &subject, simulation.wall()).await.unwrap().text
}

/// How often the planner of the process that leads has looked.
fn looks(simulation: &Simulation) -> u64 {
    let process = simulation.leader().and_then(|number| simulation.process(number)).unwrap();
    process.board.get(site::cluster_id()).unwrap().turns
}

/// OPS-R5: views that cannot be trusted take nothing away and say so, and all is normal again within two looks.
#[test]
fn ops_r5_a_wrong_view_takes_nothing_away() {
    const UNSEEN: &str = "pods that their controllers report as ready are not seen";
    const OLD: &str = "at most 2m is trusted";
    // What a process says that has seen the whole cluster before, and one that starts in the middle of it.
    let outages = [
        (Outage::NoPods, UNSEEN, UNSEEN),
        (Outage::HalfThePods, UNSEEN, UNSEEN),
        (Outage::ApiStalled, OLD, "not in sync: pods (the API server does not answer)"),
        (Outage::ApiDown, OLD, "not in sync: pods (the API server does not answer)"),
    ];
    for (outage, why, at_first) in outages {
        on_one_thread(async {
            let mut simulation = metal(5, PoolSetting::metal("web", 0, 5), 1).await;
            simulation.world().add_workload(Workload::deployment("shop", 4, 5_000));
            simulation.run_for(Duration::from_mins(10)).await.unwrap();
            let serving = simulation.world().nodes_of("shop");
            assert_eq!(serving.len(), 4);
            now(&simulation, Duration::from_hours(1), What::Outage(outage));
            let over = simulation.world().now().saturating_add(Duration::from_hours(1));
            // One of them is not needed any more, so that there is something to be taken away.
            simulation.run_for(Duration::from_mins(1)).await.unwrap();
            simulation.world().set_replicas("shop", 3);
            simulation.run_for(Duration::from_mins(49)).await.unwrap();
            for node in &serving {
                let text = told(&simulation, node).await;
                assert!(text.contains(why), "{outage:?}: {text}");
            }
            // A process that starts meanwhile believes no more than the others.
            now(&simulation, Duration::from_secs(30), What::KillLeader);
            simulation.run_for(Duration::from_mins(9)).await.unwrap();
            let world = Arc::clone(simulation.world());
            assert_eq!((world.power_offs(None), world.evictions(), world.running()), (0, 0, 3), "{outage:?}");
            let text = told(&simulation, &serving[0]).await;
            assert!(text.contains(at_first), "{outage:?} after a restart: {text}");
            simulation.run_until(over).await.unwrap();
            is_normal_within_two_looks(&mut simulation, outage, [why, at_first], &serving[0]).await;
            simulation.run_for(Duration::from_hours(1)).await.unwrap();
            // Four hosts served, a fifth was woken; three pods are left.
            assert_eq!(
                (world.power_offs(None), world.running()),
                (2, 3),
                "{outage:?}\n{}",
                world.lines().join("\n")
            );
            unharmed(&simulation);
        });
    }
}

/// OPS-R5: a replica of the API server that stands still shows two nodes less and what ran half an hour ago, to a process that has
/// seen more and to one that starts in the middle of it and knows that only from what was written down.
#[test]
fn ops_r5_an_old_copy_of_the_cluster_takes_nothing_away() {
    const OLD: &str = "was seen before: an old copy";
    on_one_thread(async {
        let mut simulation = metal(5, PoolSetting::metal("web", 0, 5), 1).await;
        let world = Arc::clone(simulation.world());
        world.add_workload(Workload::deployment("shop", 2, 5_000));
        simulation.run_for(Duration::from_mins(10)).await.unwrap();
        let at = world.now().saturating_add(Duration::from_mins(31));
        let (lasts, what) = (Duration::from_mins(50), What::Outage(Outage::OldView));
        world.disturb(Disturbance { at, lasts, what });
        simulation.run_for(Duration::from_mins(2)).await.unwrap();
        world.set_replicas("shop", 4);
        simulation.run_for(Duration::from_mins(30)).await.unwrap();
        let serving = world.nodes_of("shop");
        assert_eq!(serving.len(), 4, "{}", world.lines().join("\n"));
        simulation.run_for(Duration::from_mins(20)).await.unwrap();
        let text = told(&simulation, &serving[0]).await;
        assert!(text.contains(OLD), "{text}");
        for node in &serving {
            let phase = simulation.phase(node).await.unwrap();
            assert_eq!(phase, Some(Phase::Serving), "{node} is not lost because an old copy says so");
        }
        now(&simulation, Duration::from_secs(30), What::KillLeader);
        simulation.run_for(Duration::from_mins(25)).await.unwrap();
        let text = told(&simulation, &serving[0]).await;
        assert!(text.contains(OLD), "after a restart: {text}");
        let done = (world.power_offs(None), world.evictions(), world.running());
        assert_eq!(done, (0, 0, 4), "{}", world.lines().join("\n"));
        simulation.run_for(Duration::from_mins(40)).await.unwrap();
        assert_eq!((world.power_offs(None), world.running()), (0, 4), "{}", world.lines().join("\n"));
        unharmed(&simulation);
    });
}

/// What somebody switched is held against nobody until it has been taken over again, and from then on it is.
#[test]
fn what_a_hand_did_excuses_nothing_once_the_host_is_ours_again() {
    on_one_thread(async {
        let mut simulation = metal(2, PoolSetting::metal("web", 0, 2), 1).await;
        let world = Arc::clone(simulation.world());
        world.press("h0", true);
        assert_eq!(world.in_other_hands(), (1, 2));
        // Its node joins, and it is adopted.
        simulation.run_for(Duration::from_mins(10)).await.unwrap();
        assert_eq!(world.in_other_hands(), (0, 2));
        world.press("h0", false);
        assert_eq!(world.in_other_hands(), (1, 2));
        // It is found off, and rests.
        simulation.run_for(Duration::from_mins(10)).await.unwrap();
        assert_eq!(world.in_other_hands(), (0, 2));
        unharmed(&simulation);
    });
}

/// The outage has just ended: the planner's second look from now on sees a whole cluster, says nothing of the outage any more and
/// has decided what is to be done about pods that came meanwhile.
async fn is_normal_within_two_looks(
    simulation: &mut Simulation,
    outage: Outage,
    whys: [&str; 2],
    node: &str,
) {
    let world = Arc::clone(simulation.world());
    let (before, ons) = (looks(simulation), world.power_ons(None));
    world.set_replicas("shop", 5);
    while looks(simulation) < before + 2 {
        simulation.run_for(Duration::from_millis(100)).await.unwrap();
    }
    let text = told(simulation, node).await;
    assert!(!whys.iter().any(|why| text.contains(why)), "{outage:?}: {text}");
    let process = simulation.leader().and_then(|number| simulation.process(number)).unwrap();
    let live = process.board.get(site::cluster_id()).unwrap();
    let gaps = &live.view.as_ref().unwrap().snapshot.gaps;
    assert!(live.waiting.is_none() && gaps.is_empty(), "{outage:?}: {:?} {gaps:?}", live.waiting);
    // The host loop has what was decided, and needs no third look for it.
    simulation.run_for(Duration::from_secs(5)).await.unwrap();
    assert_eq!(world.power_ons(None), ons + 1, "{outage:?}\n{}", world.lines().join("\n"));
    simulation.run_for(Duration::from_mins(10)).await.unwrap();
    assert_eq!(world.running(), 5, "{outage:?}");
    world.set_replicas("shop", 3);
}

/// Triggers are asked this often.
const TRIGGER_INTERVAL: Duration = Duration::from_secs(15);

/// Whether the pool says that its metrics are available.
async fn says_metrics_are(simulation: &Simulation, expected: &str, what: &str) {
    let metrics = condition(simulation, "MetricsAvailable").await.unwrap();
    assert_eq!(metrics.status.as_str(), expected, "{what}: {}", metrics.message);
}

/// OPS-R6: seven ways of not having metrics, for triggers of both directions. The pool says so within two intervals; none of them
/// is read as idle nor as load, and pods get their hosts within two looks all the same.
#[test]
fn ops_r6_no_metrics_is_neither_idle_nor_load() {
    for (outage, direction) in Outage::METRICS.into_iter().flat_map(|one| [(one, "down"), (one, "up")]) {
        let what = format!("{outage:?}, a trigger that asks for {direction}");
        on_one_thread(async {
            let mut pool = PoolSetting::metal("web", 0, 4);
            pool.spec["autoscaling"]["triggers"] = serde_json::json!([
                {"metricQuery": "load", "threshold": 0.5, "duration": "1m", "scaleDirection": direction}]);
            let mut simulation = metal(4, pool, 1).await;
            let world = Arc::clone(simulation.world());
            now(&simulation, Duration::ZERO, What::Signal { query: "load".into(), millis: 100 });
            world.add_workload(Workload::deployment("shop", 2, 5_000));
            simulation.run_for(Duration::from_mins(8)).await.unwrap();
            assert_eq!((world.running(), world.power_ons(None)), (2, 2), "{what}");
            says_metrics_are(&simulation, "True", &what).await;
            now(&simulation, Duration::from_hours(1), What::Outage(outage));
            simulation.run_for(TRIGGER_INTERVAL.saturating_add(TRIGGER_INTERVAL)).await.unwrap();
            says_metrics_are(&simulation, "False", &what).await;
            // What nobody can see may be idle, and may be load.
            let millis = if direction == "up" { 900 } else { 100 };
            now(&simulation, Duration::ZERO, What::Signal { query: "load".into(), millis });
            world.set_replicas("shop", 0);
            simulation.run_for(Duration::from_mins(40)).await.unwrap();
            assert_eq!((world.power_offs(None), world.power_ons(None)), (0, 2), "{what}");
            now(&simulation, Duration::ZERO, What::Signal { query: "load".into(), millis: 100 });
            world.set_replicas("shop", 3);
            let before = looks(&simulation);
            while looks(&simulation) < before + 2 {
                simulation.run_for(Duration::from_millis(100)).await.unwrap();
            }
            // The host loop has what was decided, and needs no third look for it.
            simulation.run_for(Duration::from_secs(5)).await.unwrap();
            assert_eq!(world.power_ons(None), 3, "{what}");
            world.set_replicas("shop", 0);
            simulation.run_for(Duration::from_hours(1)).await.unwrap();
            says_metrics_are(&simulation, "True", &what).await;
            assert_eq!(world.power_offs(None), 3, "{what}");
            unharmed(&simulation);
        });
    }
}

/// OPS-R8: clocks that jump, run fast and stand still.
#[test]
fn ops_r8_clocks_switch_nothing_off() {
    const HOUR: i64 = 3_600_000;
    let troubles = [
        What::ClockJump { millis: HOUR },
        What::ClockJump { millis: -HOUR },
        What::ClockJump { millis: 365 * 24 * HOUR },
        What::ClockJump { millis: -365 * 24 * HOUR },
        What::ClockRate { rate: 3 },
        What::PauseLeader,
    ];
    for what in troubles {
        on_one_thread(async {
            let mut simulation = metal(3, PoolSetting::metal("web", 0, 3), 2).await;
            simulation.world().add_workload(Workload::deployment("shop", 2, 5_000));
            // In the middle of a boot.
            simulation.run_for(Duration::from_secs(40)).await.unwrap();
            now(&simulation, Duration::from_mins(10), what.clone());
            simulation.run_for(Duration::from_mins(30)).await.unwrap();
            let world = simulation.world();
            assert_eq!(
                (world.power_offs(None), world.running()),
                (0, 2),
                "{what:?}\n{}",
                world.lines().join("\n")
            );
            unharmed(&simulation);
        });
    }
}

/// OPS-R9: drains that do not end, and crashes at any moment of them.
#[test]
fn ops_r9_power_goes_after_the_last_pod_and_no_mark_stays() {
    for outage in [Outage::BudgetsClosed, Outage::Finalizers, Outage::ActsRefused] {
        on_one_thread(async {
            let mut simulation = metal(2, PoolSetting::metal("web", 0, 2), 1).await;
            // One of each on each host; without the big ones, one host could do without the other.
            simulation.world().add_workload(Workload::deployment("big", 2, 5_000));
            let mut shop = Workload::deployment("shop", 2, 2_000);
            (shop.grace_seconds, shop.ends_after_seconds, shop.min_available) = (120, 110, Some(1));
            simulation.world().add_workload(shop);
            simulation.run_for(Duration::from_mins(8)).await.unwrap();
            assert_eq!(simulation.world().running(), 4);
            now(&simulation, Duration::from_mins(50), What::Outage(outage));
            simulation.world().set_replicas("big", 0);
            simulation.run_for(Duration::from_mins(49)).await.unwrap();
            assert_eq!(simulation.world().power_offs(None), 0, "{outage:?}");
            simulation.run_for(Duration::from_hours(2)).await.unwrap();
            let world = simulation.world();
            assert_eq!(
                (world.power_offs(None), world.running()),
                (1, 2),
                "{outage:?}\n{}",
                world.lines().join("\n")
            );
            for number in 0..2 {
                let (name, phase) =
                    (format!("h{number}"), simulation.phase(&format!("h{number}")).await.unwrap());
                let cordoned = simulation.world().is_cordoned(&name);
                assert!(
                    !cordoned || phase == Some(Phase::Idle),
                    "{outage:?}: {name} is {phase:?} and cordoned"
                );
            }
            unharmed(&simulation);
        });
    }
}

/// OPS-R9: the leader is killed a hundred times while hosts go up and down; no mark of it stays.
#[test]
fn ops_r9_crashes_leave_no_marks() {
    on_one_thread(async {
        let mut simulation = metal(3, PoolSetting::metal("web", 0, 3), 1).await;
        simulation.world().add_workload(Workload::deployment("shop", 3, 5_000));
        for crash in 0..100_u64 {
            simulation.world().set_replicas("shop", if (crash / 3).is_multiple_of(2) { 3 } else { 1 });
            simulation.run_for(Duration::from_secs(400 + crash * 7 % 211)).await.unwrap();
            now(&simulation, Duration::from_secs(5), What::KillLeader);
        }
        simulation.world().set_replicas("shop", 3);
        simulation.run_for(Duration::from_hours(1)).await.unwrap();
        assert_eq!(simulation.world().running(), 3);
        for number in 0..3 {
            assert!(!simulation.world().is_cordoned(&format!("h{number}")));
        }
        unharmed(&simulation);
    });
}

/// Hosts that are stood down at once, and for each a pod that somebody binds to its node at another moment of that.
/// Returns how many met a host on its way down.
async fn bind_while_hosts_go_down(hosts: u32, rounds: u32, first: u64) -> u32 {
    let mut simulation = metal(hosts, PoolSetting::metal("web", 0, hosts), 1).await;
    simulation.world().add_workload(Workload::deployment("shop", 0, 5_000));
    let mut met = 0;
    for round in 0..rounds {
        simulation.world().set_replicas("shop", hosts);
        simulation.run_for(Duration::from_mins(30)).await.unwrap();
        simulation.world().set_replicas("shop", 0);
        let mut bound = vec![false; usize::try_from(hosts).unwrap()];
        for _ in 0..1_500 {
            simulation.run_for(Duration::from_secs(1)).await.unwrap();
            for number in 0..hosts {
                let (name, place) = (format!("h{number}"), usize::try_from(number).unwrap());
                let phase = simulation.phase(&name).await.unwrap();
                if !bound[place] && phase.is_some_and(|phase| phase.state() == State::Draining) {
                    bound[place] = true;
                    met += 1;
                    // From the cordon to well after the power is gone, in steps that no timer has.
                    let offset = (first + u64::from(round * hosts + number)).wrapping_mul(7_919) % 110_000;
                    let at = simulation.world().now().saturating_add(Duration::from_millis(offset));
                    let what = What::BindTo { machine: name };
                    simulation.world().disturb(Disturbance { at, lasts: Duration::ZERO, what });
                }
            }
        }
        unharmed(&simulation);
    }
    met
}

/// OPS-R9: a pod is bound at any moment of a drain, and no power goes while it is there. 10,000 of them run in
/// `make chaos`.
#[test]
fn ops_r9_a_pod_bound_at_any_moment_of_a_drain_keeps_the_power_on() {
    let met = on_one_thread(bind_while_hosts_go_down(16, 3, 0));
    assert!(met >= 32, "{met}");
}

/// Binds a pod to a node when everything is decided and the first power-off is about to leave.
#[derive(Debug)]
struct BindsInFront {
    world: Arc<World>,
    done: AtomicBool,
}

#[async_trait::async_trait]
impl Hook for BindsInFront {
    async fn reach(&self, point: &str) {
        if point == "effect/graceful-off/before" && !self.done.swap(true, Ordering::Relaxed) {
            let at = self.world.now();
            let what = What::BindTo { machine: "h0".into() };
            self.world.disturb(Disturbance { at, lasts: Duration::ZERO, what });
            self.world.timeline().until(at.saturating_add(Duration::from_millis(1))).await;
        }
    }
}

/// OPS-R9: the pod comes after the last look that the decision was made on, and before the call. It is found by one more look.
#[test]
fn ops_r9_a_pod_bound_right_in_front_of_the_power_off_keeps_the_power_on() {
    on_one_thread(async {
        let mut simulation = Simulation::new(START, fuzz::exact());
        let hook =
            Arc::new(BindsInFront { world: Arc::clone(simulation.world()), done: AtomicBool::new(false) });
        let failpoints = Failpoints { hook: Some(Arc::clone(&hook) as _) };
        simulation.set_manner(Manner { failpoints, ..fuzz::exact() });
        furnish(&mut simulation, 1, PoolSetting::metal("web", 0, 1), 1).await;
        simulation.world().add_workload(Workload::deployment("shop", 1, 5_000));
        simulation.run_for(Duration::from_mins(15)).await.unwrap();
        simulation.world().set_replicas("shop", 0);
        simulation.run_for(Duration::from_mins(20)).await.unwrap();
        assert!(hook.done.load(Ordering::Relaxed), "it was never stood down");
        assert_eq!(simulation.world().power_offs(None), 0);
        let status = simulation.status("h0").await.unwrap().unwrap();
        let blocked = find_condition(&status.conditions, ConditionType::DrainBlocked).unwrap();
        assert_eq!(
            (status.phase, blocked.reason.as_str()),
            (Phase::Serving, "NewPods"),
            "{}",
            blocked.message
        );
        unharmed(&simulation);
    });
}

#[test]
#[ignore = "minutes; `make chaos` runs it"]
fn ops_r9_ten_thousand_bind_races() {
    let mut met = 0;
    for run in 0.. {
        met += on_one_thread(bind_while_hosts_go_down(16, 8, run * 128));
        if met >= 10_000 {
            break;
        }
        assert!(run < 200, "only {met} pods met a drain");
    }
}

/// OPS-R14: a quarter of a pool is not ready. Nothing is taken away until it has been well for a while, and pods still
/// get their hosts; nodes that come and go for an hour do not let the breaker go open and shut.
#[test]
fn ops_r14_a_quarter_of_a_pool_not_ready_stops_removals_and_not_growth() {
    on_one_thread(async {
        let mut simulation = metal(10, PoolSetting::metal("web", 0, 10), 1).await;
        simulation.world().add_workload(Workload::deployment("shop", 8, 5_000));
        simulation.run_for(Duration::from_mins(30)).await.unwrap();
        let serving = simulation.world().nodes_of("shop");
        assert_eq!(serving.len(), 8);
        let hang = |simulation: &Simulation, minutes: u64| {
            for machine in &serving[..2] {
                let what = What::Quirk { machine: machine.clone(), quirk: Quirk::KubeletHangs };
                now(simulation, Duration::from_mins(minutes), what);
            }
        };
        // Two of eight come and go for an hour; four of eight are not needed from its beginning on.
        simulation.world().set_replicas("shop", 4);
        for _ in 0..12 {
            hang(&simulation, 2);
            simulation.run_for(Duration::from_mins(5)).await.unwrap();
            assert_eq!(simulation.world().power_offs(None), 0, "{}", simulation.world().lines().join("\n"));
        }
        // A pod that fits nowhere else still gets a host meanwhile.
        let before = simulation.world().power_ons(None);
        simulation.world().add_workload(Workload::deployment("train", 6, 7_000));
        hang(&simulation, 2);
        simulation.run_for(Duration::from_mins(4)).await.unwrap();
        assert!(simulation.world().power_ons(None) > before);
        simulation.world().set_replicas("train", 0);
        comes_to_rest(&mut simulation).await;
    });
}

/// OPS-R14: an API server that takes ten seconds for every answer, now and then for an hour. Nothing is taken away, pods still get
/// their hosts, and once it has been quick for a while what is not needed goes and stays away.
#[test]
fn ops_r14_a_slow_api_server_stops_removals_and_not_growth() {
    on_one_thread(async {
        let mut simulation = metal(10, PoolSetting::metal("web", 0, 10), 1).await;
        simulation.world().add_workload(Workload::deployment("shop", 8, 5_000));
        simulation.run_for(Duration::from_mins(30)).await.unwrap();
        assert_eq!(simulation.world().nodes_of("shop").len(), 8);
        now(&simulation, Duration::from_mins(2), What::Outage(Outage::ApiSlow));
        simulation.run_for(Duration::from_secs(20)).await.unwrap();
        simulation.world().set_replicas("shop", 4);
        // One loop later a plan says why nothing goes.
        simulation.run_for(Duration::from_secs(100)).await.unwrap();
        for _ in 0..11 {
            simulation.run_for(Duration::from_mins(3)).await.unwrap();
            now(&simulation, Duration::from_mins(2), What::Outage(Outage::ApiSlow));
            simulation.run_for(Duration::from_mins(2)).await.unwrap();
            let (offs, evictions) = (simulation.world().power_offs(None), simulation.world().evictions());
            assert_eq!((offs, evictions), (0, 0), "{}", simulation.world().lines().join("\n"));
        }
        // A pod that fits nowhere else still gets a host while every answer takes ten seconds.
        let before = simulation.world().power_ons(None);
        now(&simulation, Duration::from_mins(10), What::Outage(Outage::ApiSlow));
        simulation.run_for(Duration::from_secs(30)).await.unwrap();
        simulation.world().add_workload(Workload::deployment("train", 6, 7_000));
        simulation.run_for(Duration::from_mins(8)).await.unwrap();
        assert!(simulation.world().power_ons(None) > before);
        assert_eq!(simulation.world().power_offs(None), 0);
        simulation.world().set_replicas("train", 0);
        comes_to_rest(&mut simulation).await;
    });
}

/// BM-7.18: the leader dies while it evicts. The next one goes on with the stored deadline, so that the whole drain
/// takes no longer than its limit and the change of hands.
#[test]
fn bm_7_18_killed_while_evicting_the_next_leader_keeps_the_deadline() {
    on_one_thread(async {
        let mut simulation = metal(2, PoolSetting::metal("web", 0, 2), 2).await;
        simulation.world().add_workload(Workload::deployment("big", 2, 5_000));
        simulation.world().add_workload(Workload::deployment("shop", 2, 2_000));
        simulation.run_for(Duration::from_mins(8)).await.unwrap();
        simulation.world().set_replicas("big", 0);
        let (mut found, mut began) = (None, Duration::ZERO);
        for _ in 0..3_600 {
            simulation.run_for(Duration::from_secs(1)).await.unwrap();
            for name in ["h0", "h1"] {
                if simulation.phase(name).await.unwrap() == Some(Phase::Evicting) {
                    found = Some(name);
                }
            }
            if found.is_some() {
                began = simulation.world().now();
                break;
            }
        }
        // The pods that were just told to go do not end.
        now(&simulation, Duration::from_hours(2), What::Outage(Outage::Finalizers));
        let name = found.expect("a host that is drained");
        let deadline = simulation.status(name).await.unwrap().unwrap().deadline;
        simulation.run_for(Duration::from_mins(5)).await.unwrap();
        now(&simulation, Duration::from_mins(1), What::KillLeader);
        simulation.run_for(Duration::from_mins(2)).await.unwrap();
        let status = simulation.status(name).await.unwrap().unwrap();
        assert_eq!((status.phase, status.deadline), (Phase::Evicting, deadline));
        while simulation.phase(name).await.unwrap() == Some(Phase::Evicting) {
            simulation.run_for(Duration::from_secs(1)).await.unwrap();
        }
        let took = simulation.world().now().saturating_sub(began);
        assert_eq!(simulation.phase(name).await.unwrap(), Some(Phase::Serving));
        let limit = Duration::from_mins(15).saturating_add(Duration::from_secs(40));
        assert!(took >= Duration::from_mins(14) && took <= limit, "{took}");
        unharmed(&simulation);
    });
}

/// A process that starts while the API server is silent sees nothing, and asks no oftener than anybody who tries again. Everything
/// that comes in meanwhile would have woken it about ten times a second.
#[test]
fn a_planner_looks_once_a_second_while_its_cluster_is_not_in_sync() {
    on_one_thread(async {
        let mut simulation = Simulation::new(START, Manner::default());
        furnish(&mut simulation, 2, PoolSetting::metal("web", 0, 2), 1).await;
        now(&simulation, Duration::from_mins(20), What::Outage(Outage::ApiDown));
        now(&simulation, Duration::from_secs(5), What::KillLeader);
        simulation.world().add_workload(Workload::deployment("shop", 2, 2_000));
        simulation.run_for(Duration::from_mins(2)).await.unwrap();
        let looks = |simulation: &Simulation| {
            let process = simulation.leader().and_then(|number| simulation.process(number)).unwrap();
            process.board.counters.turns.load(Ordering::Relaxed)
        };
        let before = looks(&simulation);
        simulation.run_for(Duration::from_mins(1)).await.unwrap();
        let many = looks(&simulation) - before;
        assert!((30..=61).contains(&many), "{many} looks in a minute");
        unharmed(&simulation);
    });
}

/// OPS-F22: the kubelet hangs on the machine that Muster or its store runs on, and nobody but daemons is on its node. What is
/// on a node that is not guarded is switched off in the end.
#[test]
fn ops_f22_a_guarded_host_whose_kubelet_hangs_keeps_its_power() {
    let hangs = |bug| {
        planted::plant(bug);
        let lived = on_one_thread(async {
            let mut simulation = metal(6, PoolSetting::metal("web", 6, 6), 1).await;
            simulation.run_for(Duration::from_mins(15)).await.unwrap();
            simulation.world().protect("h0");
            let what = What::Quirk { machine: "h0".to_owned(), quirk: Quirk::KubeletHangs };
            now(&simulation, Duration::from_hours(3), what);
            simulation.run_for(Duration::from_hours(3)).await.unwrap();
            let off = simulation.world().power_offs(None);
            simulation.run_for(Duration::from_mins(15)).await.unwrap();
            let back = simulation.phase("h0").await.unwrap();
            let rows: Vec<_> = simulation.world().violations().iter().map(|one| one.row).collect();
            (off, back, rows)
        });
        planted::plant(None);
        lived
    };
    assert_eq!(hangs(None), (0, Some(Phase::Serving), vec![]));
    let (off, _, rows) = hangs(Some("F22"));
    assert!(off > 0 && rows.contains(&"F22"), "the judge saw {rows:?} after {off} power-offs");
}

/// OPS-R14: the network of all nodes is away for as long as lost hosts are waited for, and longer. Their BMCs answer, and
/// nobody is on them: not one of them is switched off, and all of them serve again.
#[test]
fn ops_r14_a_pool_that_is_dark_keeps_its_power() {
    on_one_thread(async {
        let mut simulation = metal(8, PoolSetting::metal("web", 8, 8), 1).await;
        simulation.run_for(Duration::from_mins(15)).await.unwrap();
        for host in 0..8 {
            let what = What::Quirk { machine: format!("h{host}"), quirk: Quirk::KubeletHangs };
            now(&simulation, Duration::from_mins(50), what);
        }
        simulation.run_for(Duration::from_mins(70)).await.unwrap();
        let lines = || simulation.world().lines().join("\n");
        assert_eq!(simulation.world().power_offs(None), 0, "{}", lines());
        for host in 0..8 {
            let phase = simulation.phase(&format!("h{host}")).await.unwrap();
            assert_eq!(phase, Some(Phase::Serving), "h{host}\n{}", lines());
        }
        unharmed(&simulation);
    });
}
