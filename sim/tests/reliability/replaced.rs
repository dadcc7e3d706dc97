//! A host that fails or is switched off, and the one that takes its place: planner and host loop together.

use std::sync::Arc;

use muster_model::{
    Duration, Timestamp,
    host::{
        ConditionType, Intent, Phase, Switch, is_true,
        keys::{self, HostRecord},
    },
};
use muster_sim::world::{
    Build, Quirk, START, What, Workload,
    fleet::on_one_thread,
    fuzz,
    simulation::Simulation,
    site::{self, HostSetting, PoolSetting, Site, Wires},
};

use super::{looks, metal, now, unharmed};

/// Whether the host is claimed: somebody wants it on.
async fn is_claimed(simulation: &Simulation, host: &str) -> bool {
    let entry = simulation.store().get(&keys::host(host, HostRecord::Intent)).await.unwrap();
    let intent: Option<Intent> = entry.map(|entry| serde_json::from_slice(&entry.value).unwrap());
    intent.is_some_and(|intent| intent.want == Switch::On)
}

/// Lets time pass until the host is in the phase.
async fn until(simulation: &mut Simulation, host: &str, phase: Phase, limit: Duration) {
    let late = simulation.world().now().saturating_add(limit);
    while simulation.phase(host).await.unwrap() != Some(phase) {
        let lines = || simulation.world().lines().join("\n");
        assert!(simulation.world().now() < late, "{host} is not {phase} within {limit}\n{}", lines());
        simulation.run_for(Duration::from_millis(100)).await.unwrap();
    }
}

/// One of these was claimed by the first look of the planner that began after this moment. One that had begun already may end
/// before that.
async fn claimed_within_one_look(simulation: &mut Simulation, others: &[&str]) -> String {
    let (before, late) =
        (looks(simulation), simulation.world().now().saturating_add(Duration::from_secs(60)));
    while looks(simulation) < before + 2 {
        for other in others {
            if is_claimed(simulation, other).await {
                return (*other).to_owned();
            }
        }
        assert!(simulation.world().now() < late, "the planner does not look");
        simulation.run_for(Duration::from_millis(100)).await.unwrap();
    }
    simulation.run_for(Duration::from_secs(1)).await.unwrap();
    for other in others {
        if is_claimed(simulation, other).await {
            return (*other).to_owned();
        }
    }
    panic!("none of {others:?} was claimed\n{}", simulation.world().lines().join("\n"));
}

fn quirk(simulation: &Simulation, host: &str, quirk: Quirk, lasts: Duration) {
    now(simulation, lasts, What::Quirk { machine: host.to_owned(), quirk });
}

/// The times at which its BMC is tried again, until there are so many.
async fn retries(simulation: &mut Simulation, host: &str, many: usize) -> Vec<Timestamp> {
    let mut times = Vec::new();
    while times.len() < many {
        simulation.run_for(Duration::from_secs(1)).await.unwrap();
        let status = simulation.status(host).await.unwrap().unwrap();
        assert_eq!(status.phase, Phase::Backoff);
        let next = status.retry_at.expect("a next look");
        if times.last() != Some(&next) {
            times.push(next);
        }
    }
    times
}

/// BM-7.8: its BMC refuses connections, and answers nothing at all later. The attempts are few, another host is claimed in the next
/// look of the planner, and the first one is tried after longer and longer waits.
#[test]
fn bm_7_8_another_host_is_claimed_in_the_next_look_when_a_bmc_is_silent() {
    on_one_thread(async {
        let mut simulation = metal(2, PoolSetting::metal("web", 0, 2), 1).await;
        quirk(&simulation, "h0", Quirk::Unreachable, Duration::from_mins(6));
        simulation.world().add_workload(Workload::deployment("shop", 1, 2_000));
        until(&mut simulation, "h0", Phase::Backoff, Duration::from_mins(4)).await;
        let _ = claimed_within_one_look(&mut simulation, &["h1"]).await;
        quirk(&simulation, "h0", Quirk::BlackHole, Duration::from_hours(12));
        until(&mut simulation, "h1", Phase::Serving, Duration::from_mins(5)).await;
        let times = retries(&mut simulation, "h0", 5).await;
        let waits: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
        let status = simulation.status("h0").await.unwrap().unwrap();
        let world = simulation.world();
        assert_eq!((status.failures.len(), world.power_ons(Some("h0")), world.running()), (1, 0, 1));
        unharmed(&simulation);
    });
}

/// BM-7.10: power-on is accepted and nothing happens, three times by two drivers; then the pool uses another host.
#[test]
fn bm_7_10_after_three_attempts_the_pool_uses_another_host() {
    on_one_thread(async {
        let mut simulation = Simulation::new(START, fuzz::exact());
        simulation.plan_for(site::cluster_id());
        let first = simulation.start().await.unwrap();
        let host = |name: &str, address: &str| {
            let mut host = HostSetting::new("web", Build::new(name, address));
            host.wires = Wires::Both;
            host
        };
        let made = Site {
            pools: vec![PoolSetting::metal("web", 0, 2)],
            hosts: vec![host("h0", "10.2.0.1"), host("h1", "10.2.0.2")],
            ..Site::default()
        };
        simulation.furnish(first, &made).unwrap();
        simulation.run_for(Duration::from_mins(5)).await.unwrap();
        quirk(&simulation, "h0", Quirk::IgnoresOn, Duration::from_hours(5));
        simulation.world().add_workload(Workload::deployment("shop", 1, 2_000));
        until(&mut simulation, "h0", Phase::PowerRequested, Duration::from_mins(2)).await;
        assert!(!is_claimed(&simulation, "h1").await, "one at a time");
        until(&mut simulation, "h0", Phase::Backoff, Duration::from_mins(10)).await;
        assert_eq!(simulation.world().power_ons(Some("h0")), 3);
        let _ = claimed_within_one_look(&mut simulation, &["h1"]).await;
        until(&mut simulation, "h1", Phase::Serving, Duration::from_mins(5)).await;
        simulation.run_for(Duration::from_mins(1)).await.unwrap();
        assert_eq!(simulation.world().nodes_of("shop"), ["h1"]);
        unharmed(&simulation);
    });
}

/// BM-7.11: a boot hangs. Its replacement is claimed when the boot has failed, and not only when the machine is off.
#[test]
fn bm_7_11_a_replacement_is_claimed_at_the_moment_of_the_failure() {
    on_one_thread(async {
        let mut simulation = metal(2, PoolSetting::metal("web", 0, 2), 1).await;
        quirk(&simulation, "h0", Quirk::BootHangs, Duration::from_hours(5));
        simulation.world().add_workload(Workload::deployment("shop", 1, 2_000));
        until(&mut simulation, "h0", Phase::Booting, Duration::from_mins(3)).await;
        let status = simulation.status("h0").await.unwrap().unwrap();
        let deadline = status.deadline.expect("a deadline");
        while simulation.wall() < deadline.saturating_sub(Duration::from_secs(1)) {
            assert!(!is_claimed(&simulation, "h1").await, "{}: it may still come", simulation.wall());
            simulation.run_for(Duration::from_secs(1)).await.unwrap();
        }
        // What follows is a matter of milliseconds: forced off at once, as no system was seen.
        for _ in 0..600 {
            simulation.run_for(Duration::from_millis(10)).await.unwrap();
            if simulation.status("h0").await.unwrap().unwrap().failures.len() == 1 {
                break;
            }
        }
        let failed = simulation.status("h0").await.unwrap().unwrap();
        assert_eq!((failed.failures.len(), failed.phase.state()), (1, Phase::Stopping.state()), "{failed:?}");
        let _ = claimed_within_one_look(&mut simulation, &["h1"]).await;
        let still = simulation.phase("h0").await.unwrap().map(Phase::state);
        assert_eq!(still, Some(Phase::Stopping.state()), "its off is not proved yet");
        until(&mut simulation, "h0", Phase::Backoff, Duration::from_mins(5)).await;
        until(&mut simulation, "h1", Phase::Serving, Duration::from_mins(5)).await;
        assert!(!simulation.world().is_on("h0"));
        unharmed(&simulation);
    });
}

/// BM-7.15: somebody switches the only node of a pool off whose minimum is one. Within two polls it is held, another host is claimed
/// in the next look of the planner, and it is not switched on again before somebody acknowledges it.
#[test]
fn bm_7_15_a_host_that_was_switched_off_is_replaced_where_its_pool_is_below_its_minimum() {
    on_one_thread(async {
        let mut simulation = metal(2, PoolSetting::metal("web", 1, 2), 1).await;
        let world = Arc::clone(simulation.world());
        simulation.run_for(Duration::from_mins(10)).await.unwrap();
        let on = |name: &&str| world.is_on(name);
        let serving: Vec<&str> = ["h0", "h1"].into_iter().filter(on).collect();
        let [gone] = serving[..] else { panic!("{serving:?} serve, and one should") };
        let other = if gone == "h0" { "h1" } else { "h0" };
        world.press(gone, false);
        // Two polls of a host that serves.
        until(&mut simulation, gone, Phase::Idle, Duration::from_secs(120)).await;
        let status = simulation.status(gone).await.unwrap().unwrap();
        assert!(is_true(&status.conditions, ConditionType::UnexpectedOff));
        let _ = claimed_within_one_look(&mut simulation, &[other]).await;
        until(&mut simulation, other, Phase::Serving, Duration::from_mins(5)).await;
        // Its pool could use it now, and leaves it alone.
        world.add_workload(Workload::deployment("shop", 2, 5_000));
        simulation.run_for(Duration::from_mins(30)).await.unwrap();
        assert_eq!((world.power_ons(Some(gone)), world.pending()), (1, 1), "{}", world.lines().join("\n"));
        now(&simulation, Duration::ZERO, What::Acknowledge { host: gone.to_owned() });
        simulation.run_for(Duration::from_mins(10)).await.unwrap();
        assert_eq!((world.power_ons(Some(gone)), world.pending()), (2, 0), "{}", world.lines().join("\n"));
        unharmed(&simulation);
    });
}
