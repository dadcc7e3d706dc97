//! Whole stories, by the number of the acceptance scenario where there is one.

use muster_engine::lifecycle::{
    Cordon, EffectKind, Freeze, Leadership, Outcome, Performed, PodsView, Rule, step,
};
use muster_model::{
    Duration, Known,
    host::{
        Acknowledgement, Admin, ConditionType, Draw, Hold, OnReset, PendingEffect, Phase, Power, PowerCall,
        Presence, Switch, find_condition, is_true,
    },
};

use crate::world::{
    Crash, World, at, calls, evidence, goodbye, has, hello, host, intent, known, seen_power, silent, unknown,
    wol_settings,
};

#[test]
fn a_new_host_is_enrolled() {
    let mut world = World::new_host();
    world.until(Phase::Idle, 60);
    assert_eq!(world.calls, []);
}

#[test]
fn bm_7_01_one_power_on_and_the_phases_in_order() {
    let mut world = World::idle();
    world.want(Switch::On, "i-1").until(Phase::Serving, 300);
    assert_eq!(world.count("power-on"), 1);
    assert_eq!(
        world.trail,
        [
            Phase::Idle,
            Phase::Reserved,
            Phase::PreparingBoot,
            Phase::PowerRequested,
            Phase::Powered,
            Phase::Serving
        ]
    );
    world.run(60);
    let node = world.node.as_ref().unwrap();
    assert!(!node.startup_taint && node.labels_complete);
}

#[test]
fn bm_7_03_a_budget_that_blocks_ends_the_drain() {
    let mut world = World::serving();
    world.pdb_blocks = true;
    world.want(Switch::Off, "i-1").until(Phase::Evicting, 60).until(Phase::Serving, 1000);
    assert!(world.evictions > 10, "retried until the deadline, {} times", world.evictions);
    assert_eq!(world.calls, [], "power never changes");
    assert!(world.reasons.iter().any(|reason| reason.contains("web-pdb")));
    assert_eq!(world.node.as_ref().unwrap().cordon, Cordon::None);
    assert!(is_true(&world.state.status.conditions, ConditionType::DrainBlocked));
}

#[test]
fn bm_7_04_shutdown_waits_for_the_last_pod() {
    let mut world = World::serving();
    world.pod_grace_secs = 40;
    world.want(Switch::Off, "i-1").until(Phase::Evicting, 60);
    let began = world.now;
    world.until(Phase::Stopping, 300);
    let (sent, _, _, call) = world.calls[0].clone();
    assert_eq!(call, PowerCall::GracefulOff { driver: 0 });
    assert!(sent.since(began) >= Duration::from_secs(35), "{}", sent.since(began));
    assert_eq!(world.pods.total(), 0);
    world.until(Phase::Idle, 300);
}

#[test]
fn bm_7_05_a_system_that_ignores_acpi_is_forced_off_once() {
    let mut world = World::serving();
    world.machine.ignores_acpi = true;
    world.want(Switch::Off, "i-1").until(Phase::Idle, 900);
    assert_eq!((world.count("graceful-off"), world.count("force-off")), (1, 1));
    let forced = world.calls[1].0;
    assert!(forced.since(world.calls[0].0) >= Duration::from_secs(300));
    assert!(world.now.since(forced) > Duration::from_secs(40), "not before the lease is silent");
}

#[test]
fn bm_7_08_an_unreachable_bmc_frees_the_claim_and_waits_longer_each_time() {
    let mut world = World::idle();
    world.machine.unreachable = true;
    world.want(Switch::On, "i-1").until(Phase::Backoff, 60);
    assert_eq!(world.calls, []);
    assert_eq!(world.released, 1);
    let mut waits = Vec::new();
    let mut last = world.state.status.retry_at;
    for _ in 0..5000 {
        world.run(5);
        if world.state.status.retry_at != last {
            last = world.state.status.retry_at;
            waits.push(last.unwrap().since(world.now));
        }
    }
    assert!(waits.len() >= 4 && waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
}

#[test]
fn bm_7_10_accepted_and_ignored_climbs_the_ladder() {
    let mut world = World::idle();
    world.machine.ignores_on = 99;
    world.want(Switch::On, "i-1").until(Phase::Backoff, 600);
    let sent: Vec<_> = world.calls.iter().map(|(_, _, _, call)| *call).collect();
    assert_eq!(
        sent,
        [
            PowerCall::PowerOn { driver: 0, reset: OnReset::On },
            PowerCall::PowerOn { driver: 0, reset: OnReset::ForceOn },
            PowerCall::PowerOn { driver: 1, reset: OnReset::On },
        ]
    );
    assert_eq!((world.state.status.failures.len(), world.released), (1, 1));
}

/// What a BMC does not offer is no attempt: the next way has its turn at once, and the button only as itself.
#[test]
fn bm_7_10_ways_that_are_not_offered_are_passed_over() {
    #[track_caller]
    fn check(offers: &[OnReset], drivers: usize, expected: &[(usize, OnReset)]) {
        let mut world = World::idle();
        world.machine.ignores_on = 99;
        world.machine.offers = Some(offers.to_vec());
        world.seen.settings.drivers.truncate(drivers);
        world.want(Switch::On, "i-1").until(Phase::Backoff, 600);
        let sent: Vec<_> = world.calls.iter().map(|(_, _, _, call)| *call).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(driver, reset)| PowerCall::PowerOn { driver: *driver, reset: *reset })
            .collect();
        assert_eq!(sent, expected, "{offers:?}");
        assert_eq!((world.state.status.starts.len(), world.released), (1, 1), "{offers:?}");
    }
    use OnReset::{ForceOn, On, PushPowerButton};
    check(&[On, PushPowerButton], 1, &[(0, On), (0, PushPowerButton), (0, On)]);
    check(&[On], 1, &[(0, On), (0, On), (0, On)]);
    check(&[ForceOn], 2, &[(0, ForceOn), (1, On), (0, ForceOn)]);
    check(&[PushPowerButton], 1, &[(0, PushPowerButton)]);
}

#[test]
fn a_bmc_that_knows_the_button_alone_switches_on_and_stands_its_self_test() {
    let mut world = World::idle();
    world.machine.offers = Some(vec![OnReset::PushPowerButton]);
    world.seen.settings.drivers.truncate(1);
    world.want(Switch::On, "i-1").until(Phase::Serving, 400);
    assert_eq!((world.calls.len(), world.machine.boots), (1, 1), "{:?}", world.calls);

    let mut world = World::idle();
    world.seen.settings.drivers.truncate(1);
    world.machine.offers = Some(Vec::new());
    for number in 1..=3 {
        world.want(Switch::On, &format!("i-{number}"));
        world.run(40_000);
    }
    assert_eq!(
        (world.state.phase(), world.calls.len()),
        (Phase::Quarantined, 0),
        "{:?}",
        world.reasons.last()
    );
    world.machine.offers = Some(vec![OnReset::PushPowerButton]);
    world.seen.intent = None;
    world.until(Phase::Idle, 400_000);
    assert_eq!((world.calls[0].3.as_str(), world.machine.boots), ("power-on", 1), "{:?}", world.calls);
}

#[test]
fn bm_7_11_a_hung_boot_is_forced_off_and_replaced() {
    let mut world = World::idle();
    world.machine.boot_secs = None;
    world.want(Switch::On, "i-1").through(Phase::Stopping, 1100);
    assert_eq!((world.state.status.failures.len(), world.released), (1, 1), "replaced at failure time");
    world.until(Phase::Backoff, 300);
    assert_eq!(world.count("force-off"), 1);
    assert_eq!(world.state.status.failures.len(), 1, "counted once");
    assert_eq!(world.machine.power, Power::Off);
    world.until(Phase::Idle, 600);
}

#[test]
fn a_third_failure_within_a_day_quarantines_the_host() {
    let mut world = World::idle();
    world.machine.boot_secs = None;
    for round in 1..=3 {
        world.want(Switch::On, &format!("i-{round}"));
        world.until(if round < 3 { Phase::Backoff } else { Phase::Quarantined }, 4000);
        if round < 3 {
            world.until(Phase::Idle, 3000);
        }
    }
    assert_eq!(world.released, 3);
    world.run(7200);
    assert_eq!(world.state.phase(), Phase::Quarantined);
    // A day later a self-test brings it back, if it passes.
    world.machine.boot_secs = Some(60);
    world.until(Phase::Idle, 90_000);
    assert!(world.rules.contains(&Rule::Row(28)));
    assert_eq!(world.state.status.failures, []);
}

#[test]
fn bm_7_13_a_bmc_that_lies_changes_nothing() {
    let mut world = World::serving();
    world.machine.bmc_lies_off = true;
    world.run(3600);
    assert_eq!(world.trail, [Phase::Serving]);
    assert!(is_true(&world.state.status.conditions, ConditionType::PowerReadingDisagrees));
    assert_eq!((world.evictions, world.calls.len(), world.pods.evictable), (0, 0, 3));
}

#[test]
fn bm_7_15_a_person_switches_it_off() {
    let mut world = World::serving();
    world.want(Switch::On, "i-1").run(60);
    world.press(Power::Off);
    world.until(Phase::Idle, 120);
    assert_eq!(world.released, 1, "its pool replaces it");
    world.want(Switch::On, "i-2").run(3000);
    assert_eq!(world.calls, [], "a person may be inside the chassis");
    world.seen.settings.acknowledgement =
        Some(Acknowledgement { by: "ann".into(), reason: "new fan".into(), at: world.now });
    world.until(Phase::Serving, 300);
}

#[test]
fn a_person_switches_it_on_while_idle() {
    let mut world = World::idle();
    world.press(Power::On);
    world.until(Phase::Serving, 300);
    assert_eq!(world.calls, []);
}

#[test]
fn bm_7_17_killed_around_the_power_on() {
    // The step that announces the call, found by a run without a crash.
    let mut plain = World::idle();
    plain.want(Switch::On, "i-1");
    plain.now = at(5);
    while plain.state.phase() != Phase::PowerRequested {
        plain.once();
    }
    let announced = plain.steps;
    for (point, sent_by_first) in [(Crash::Unstored, 0), (Crash::Unperformed, 0), (Crash::Unreported, 1)] {
        let mut found = false;
        for step in 1..=announced + 2 {
            let mut world = World::idle();
            world.crash = Some((step, point));
            world.want(Switch::On, "i-1");
            world.now = at(5);
            while world.steps < step {
                world.once();
            }
            let before = world.count("power-on");
            found |= before == sent_by_first && world.state.phase() == Phase::PowerRequested;
            world.fail_over(15);
            world.until(Phase::Serving, 400);
            assert_eq!(world.count("power-on"), 1, "{point:?} at step {step}: {:?}", world.calls);
            assert_eq!(world.reserved, 1);
        }
        assert!(found || point == Crash::Unstored, "{point:?} hit the announcement");
    }
}

#[test]
fn bm_7_18_killed_while_evicting_keeps_the_deadline() {
    let mut world = World::serving();
    world.pdb_blocks = true;
    world.want(Switch::Off, "i-1").until(Phase::Evicting, 60);
    let began = world.state.status.phase_since;
    world.run(300);
    let stored = world.state.status.deadline;
    world.fail_over(20);
    world.run(5);
    assert_eq!(world.state.status.deadline, stored);
    assert_eq!(world.state.op.as_ref().unwrap().epoch, 8);
    world.until(Phase::Serving, 1000);
    assert!(world.now.since(began) <= Duration::from_secs(15 * 60 + 20 + 5));
}

/// A host without a BMC: magic packets wake it, its agent stops it.
fn wol_world() -> World {
    let mut world = World::serving();
    world.seen.settings = wol_settings();
    world.state.status.wake_proved_at = Some(at(-9000));
    world.pods = PodsView::default();
    world
}

#[test]
fn bm_7_25_a_hung_kernel_without_a_bmc_is_never_called_off() {
    let mut world = wol_world();
    world.machine.ignores_acpi = true;
    world.want(Switch::Off, "i-1").until(Phase::Stopping, 120);
    // The kernel hangs: no lease, no answer, no goodbye.
    world.machine.boot_secs = None;
    for _ in 0..2000 {
        world.seen.presence = silent(world.now.saturating_add(Duration::from_secs(5)));
        world.run(5);
    }
    assert!(is_true(&world.state.status.conditions, ConditionType::CannotForceOff));
    assert!(world.state.status.last_error.as_ref().unwrap().contains("cannotForceOff"));
    assert!(matches!(world.state.phase(), Phase::Backoff | Phase::Quarantined), "{:?}", world.trail);
    assert!(!world.trail.contains(&Phase::Idle));
}

/// An order to an agent is kept in a leader's memory for a minute: who is still heard is asked again, and its first
/// time stays the one that its goodbye belongs to.
#[test]
fn an_agent_that_is_still_heard_is_asked_to_go_off_again() {
    let mut world = wol_world();
    world.machine.ignores_acpi = true;
    world.want(Switch::Off, "i-1").until(Phase::Stopping, 120);
    let asked = world.state.op.as_ref().unwrap().asked_off_at;
    world.fail_over(10);
    for _ in 0..24 {
        world.seen.agent.hello = hello("boot-1", world.now);
        world.run(5);
    }
    assert_eq!(world.count("graceful-off"), 3, "{:?}", world.calls);
    assert_eq!(world.state.op.as_ref().unwrap().asked_off_at, asked);
    // One that could not be asked again was asked all the same.
    let op = world.state.op.as_ref().unwrap();
    let (id, seq, before) = (op.id.clone(), op.effects + 1, op.asks_unsent);
    world.state.op.as_mut().unwrap().pending =
        Some(PendingEffect { seq, call: PowerCall::GracefulOff { driver: 1 }, at: world.now, before: None });
    world.seen.performed = Performed::Ended { op: id, seq, outcome: Outcome::Unsent };
    world.once();
    let op = world.state.op.as_ref().unwrap();
    assert_eq!((op.asked_off_at, op.asks_unsent, &op.pending), (asked, before, &None));
    // Who is not heard any more is left alone.
    world.run(150);
    assert_eq!(world.count("graceful-off"), 3, "{:?}", world.calls);
}

#[test]
fn a_host_without_a_bmc_goes_off_by_its_agent() {
    let mut world = wol_world();
    world.want(Switch::Off, "i-1").until(Phase::Stopping, 120);
    assert_eq!(world.calls[0].3, PowerCall::GracefulOff { driver: 1 });
    let op = world.state.op.as_ref().unwrap().id.clone();
    world.seen.agent.goodbye = goodbye(&op, world.now);
    for _ in 0..40 {
        world.seen.presence = silent(world.now.saturating_add(Duration::from_secs(5)));
        world.run(5);
    }
    assert_eq!(world.state.phase(), Phase::Idle, "{:?}", world.reasons.last());
}

#[test]
fn bm_7_24_magic_packets_are_repeated_until_the_machine_answers() {
    let mut state = host(Phase::Idle);
    state.status.off_proved_at = Some(at(-60));
    let mut seen = evidence(at(0));
    seen.settings = wol_settings();
    seen.intent = intent(Switch::On, "i-1");
    let mut bursts = Vec::new();
    let mut now = 0;
    while now < 150 {
        seen.power = unknown(at(now));
        seen.node = known(muster_engine::lifecycle::NodeView::Absent, at(now));
        seen.presence = known(if now < 120 { Presence::Silent } else { Presence::Answers }, at(now));
        let done = step(&state, &seen, at(now));
        bursts.extend(calls(&done).iter().map(|_| now));
        seen.performed = muster_engine::lifecycle::Performed::Nothing;
        if let (Some(op), false) = (&done.state.op, calls(&done).is_empty()) {
            seen.performed = muster_engine::lifecycle::Performed::Ended {
                op: op.id.clone(),
                seq: op.effects,
                outcome: muster_engine::lifecycle::Outcome::Accepted,
            };
        }
        state = done.state;
        now += 5;
    }
    assert_eq!(bursts, [10, 40, 70, 100]);
    assert_eq!(state.phase(), Phase::Powered);
    seen.agent.hello = hello("boot-2", at(140));
    seen.performed = muster_engine::lifecycle::Performed::Nothing;
    assert_eq!(step(&state, &seen, at(150)).state.phase(), Phase::Booting);
}

/// A host without a BMC that was sent packets and stays silent, until it is given up.
fn woken_in_vain() -> World {
    let mut world = World::idle();
    world.seen.settings = wol_settings();
    world.machine.boot_secs = None;
    world.want(Switch::On, "i-1");
    while world.state.phase() != Phase::Backoff {
        assert!(world.now < at(7200), "{:?}", world.trail);
        quietly(&mut world, 5);
    }
    world.seen.intent = None;
    world
}

fn quietly(world: &mut World, secs: i64) {
    for _ in 0..secs / 5 {
        world.seen.power = unknown(world.now);
        world.seen.presence = silent(world.now.saturating_add(Duration::from_secs(5)));
        world.run(5);
    }
}

/// Unknown is never off: what was proved before the packets were sent proves nothing after them.
#[test]
fn ops_r15_a_host_that_was_sent_packets_and_stays_silent_is_not_called_off() {
    let mut world = woken_in_vain();
    assert_eq!(Draw::of(Admin::Normal, Some(&world.state.status)), Draw::NotKnownOff);
    quietly(&mut world, 12 * 3600);
    assert_eq!(world.trail.iter().filter(|phase| **phase == Phase::Idle).count(), 1, "{:?}", world.trail);
    assert_eq!(Draw::of(Admin::Normal, Some(&world.state.status)), Draw::NotKnownOff);
    let told = find_condition(&world.state.status.conditions, ConditionType::OffNotProved).unwrap();
    assert!(told.message.starts_with("it counts 400 W because nobody knows that it is off"), "{told:?}");
    // Somebody went there.
    let word = Acknowledgement { by: "ann".into(), reason: "unplugged".into(), at: world.now };
    world.seen.settings.acknowledgement = Some(word);
    quietly(&mut world, 120);
    assert_eq!(world.state.phase(), Phase::Idle, "{:?}", world.reasons.last());
    assert_eq!(Draw::of(Admin::Normal, Some(&world.state.status)), Draw::Rests);
    assert!(!is_true(&world.state.status.conditions, ConditionType::OffNotProved));
}

#[test]
fn ops_r15_a_host_that_came_up_after_all_is_switched_off_by_its_agent() {
    let mut world = woken_in_vain();
    for _ in 0..4000 {
        world.seen.power = unknown(world.now);
        world.seen.presence = known(Presence::Answers, world.now.saturating_add(Duration::from_secs(5)));
        world.run(5);
        if world.state.phase() == Phase::Stopping {
            break;
        }
    }
    assert_eq!(world.state.phase(), Phase::Stopping, "{:?}", world.reasons.last());
    assert_eq!(world.calls.last().unwrap().3, PowerCall::GracefulOff { driver: 1 });
    let op = world.state.op.as_ref().unwrap().id.clone();
    world.seen.agent.goodbye = goodbye(&op, world.now);
    quietly(&mut world, 120);
    assert_eq!(world.state.phase(), Phase::Idle, "{:?}", world.reasons.last());
    assert_eq!(Draw::of(Admin::Normal, Some(&world.state.status)), Draw::Rests);
}

#[test]
fn a_wol_host_that_never_woke_is_not_scaled_down_automatically() {
    let mut world = wol_world();
    world.state.status.wake_proved_at = None;
    world.want(Switch::Off, "i-1").run(600);
    assert_eq!(world.trail, [Phase::Serving]);
    world.seen.settings.manual = Some(Switch::Off);
    world.until(Phase::Stopping, 120);
}

#[test]
fn a_request_by_hand_outranks_the_autoscaler_and_its_limits() {
    let mut world = World::serving();
    world.state.status.serving_since = Some(at(-10));
    world.want(Switch::On, "i-1");
    world.seen.settings.manual = Some(Switch::Off);
    world.seen.settings.hold =
        Some(Hold { by: "ann".into(), reason: "new disk".into(), until: Some(at(3600)) });
    world.until(Phase::Idle, 600);
    world.run(600);
    assert_eq!(world.state.phase(), Phase::Idle);
    // The hold lapses. What was wanted before it went off is over; the autoscaler has it back, and asks anew.
    world.run(3600);
    assert_eq!((world.state.phase(), world.released), (Phase::Idle, 1));
    world.want(Switch::On, "i-2").until(Phase::Serving, 1200);
}

#[test]
fn a_hold_without_a_request_keeps_things_as_they_are() {
    let mut world = World::serving();
    world.seen.settings.hold = Some(Hold { by: "ann".into(), reason: "looking".into(), until: None });
    world.want(Switch::Off, "i-1").run(1200);
    assert_eq!(world.trail, [Phase::Serving]);
    assert!(is_true(&world.state.status.conditions, ConditionType::Held));
}

#[test]
fn freeze_stops_every_effect_and_time_stands_still() {
    let mut world = World::idle();
    world.machine.boot_secs = Some(800);
    world.want(Switch::On, "i-1").until(Phase::Powered, 100);
    world.seen.freeze = Freeze::Frozen;
    world.machine.boot_secs = None;
    world.run(7200);
    assert_eq!(world.state.phase(), Phase::Powered);
    world.seen.freeze = Freeze::None;
    world.run(60);
    assert_eq!(world.state.phase(), Phase::Powered, "not failed for the time it was frozen");
    world.through(Phase::Stopping, 1000);
}

#[test]
fn freeze_with_everything_on_wakes_a_host() {
    let mut world = World::idle();
    world.seen.freeze = Freeze::AllOn;
    world.until(Phase::Serving, 300);
}

#[test]
fn a_follower_does_nothing_and_changes_nothing() {
    for phase in Phase::ALL {
        let mut state = host(phase);
        state.status.deadline = Some(at(1));
        let mut seen = evidence(at(9000));
        seen.leadership = Leadership::Follower;
        let done = step(&state, &seen, at(9000));
        assert_eq!((done.state, done.effects), (state, vec![]), "{phase}");
    }
}

#[test]
fn a_lease_that_runs_out_withholds_power_calls() {
    let mut seen = evidence(at(5));
    seen.intent = intent(Switch::On, "i-1");
    seen.leadership = Leadership::Leader { epoch: 7, lease_left: Duration::from_secs(34) };
    let done = step(&host(Phase::PreparingBoot), &seen, at(5));
    assert_eq!((calls(&done), done.state.phase()), (vec![], Phase::PreparingBoot));
    seen.leadership = Leadership::Leader { epoch: 7, lease_left: Duration::from_secs(35) };
    assert_eq!(calls(&step(&host(Phase::PreparingBoot), &seen, at(5))).len(), 1);
}

#[test]
fn a_clock_that_goes_back_cuts_no_wait_short_and_makes_none_endless() {
    let mut world = World::idle();
    world.machine.boot_secs = Some(600);
    world.want(Switch::On, "i-1").until(Phase::Powered, 100);
    let left = world.state.status.deadline.unwrap().since(world.now);
    let year = Duration::from_hours(24 * 365);
    world.now = world.now.saturating_sub(year);
    world.machine.turned_at = world.machine.turned_at.saturating_sub(year);
    world.run(5);
    let now_left = world.state.status.deadline.unwrap().since(world.now);
    assert!(now_left >= left.saturating_sub(Duration::from_secs(5)), "{now_left} < {left}");
    assert!(now_left <= Duration::from_mins(15), "{now_left}");
    world.until(Phase::Serving, 700);
}

#[test]
fn wear_limits_hold_the_autoscaler_back() {
    let mut seen = evidence(at(0));
    seen.intent = intent(Switch::On, "i-1");
    let mut state = host(Phase::Idle);
    state.status.starts = vec![at(-600)];
    let done = step(&state, &seen, at(0));
    assert_eq!((done.state.phase(), done.wake), (Phase::Idle, Some(at(300))));
    state.status.starts = vec![];
    state.status.off_since = Some(at(-60));
    assert_eq!(step(&state, &seen, at(0)).wake, Some(at(60)));
    state.status.off_since = None;
    state.status.starts = (0..24).map(|n| at(-3600 * n - 3000)).rev().collect();
    let done = step(&state, &seen, at(0));
    assert_eq!(done.state.phase(), Phase::Idle, "{}", done.reason);
    assert!(done.reason.contains("24 times"), "{}", done.reason);
    seen.settings.policy.max_cycles_per_day = 25;
    assert_eq!(step(&state, &seen, at(0)).state.phase(), Phase::Reserved);
}

#[test]
fn an_api_server_that_is_away_neither_fails_a_drain_early_nor_switches_anything_off() {
    let mut world = World::serving();
    world.want(Switch::Off, "i-1").until(Phase::Evicting, 60);
    world.api_down = true;
    world.run(3600);
    assert_eq!(world.calls, []);
    // The same for a machine that boots while nobody can see its node.
    let mut world = World::idle();
    world.want(Switch::On, "i-1").until(Phase::Powered, 60);
    world.api_down = true;
    world.run(3600);
    assert_eq!((world.count("force-off"), world.count("graceful-off")), (0, 0), "{:?}", world.trail);
    world.api_down = false;
    world.until(Phase::Serving, 6 * 3600);
}

#[test]
fn a_pod_that_is_bound_after_the_drain_stops_the_power_off() {
    let mut state = host(Phase::Drained);
    state.status.deadline = Some(at(900));
    state.status.cordoned_by = Some("h1-1".into());
    let mut seen = evidence(at(5));
    seen.power = seen_power(Power::On, at(5));
    seen.intent = intent(Switch::Off, "i-1");
    seen.node = known(muster_engine::lifecycle::NodeView::Present(crate::world::node(at(5))), at(5));
    seen.pods = known(PodsView { evictable: 1, ..PodsView::default() }, at(5));
    let done = step(&state, &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(19), Phase::Serving));
    assert!(has(&done, &EffectKind::Uncordon) && calls(&done).is_empty());
}

#[test]
fn a_quiet_host_is_not_rewritten() {
    for mut world in [World::idle(), World::serving()] {
        world.run(120);
        let before = world.state.clone();
        world.run(3600);
        assert_eq!(world.state, before, "nothing happened, so nothing is stored");
    }
}

#[test]
fn a_machine_is_told_by_whatever_it_says_of_itself() {
    const ONE: &str = "33221100-5544-7766-0809-0a0b0c0d0e0f";
    const SWAPPED: &str = "00112233-4455-6677-0809-0a0b0c0d0e0f";
    const OTHER: &str = "33221100-5544-7766-0809-0a0b0c0d0e10";
    type Said<'a> = (Option<&'a str>, Option<&'a str>);
    #[track_caller]
    fn check(known: Option<Said<'_>>, found: Said<'_>, blocked: bool, kept: Option<Said<'_>>) {
        let identity = |(serial, uuid): Said<'_>| muster_model::host::HostIdentity {
            serial: serial.map(str::to_owned),
            uuid: uuid.map(str::to_owned),
            ..Default::default()
        };
        let mut state = host(Phase::Idle);
        state.status.identity = known.map(identity);
        let mut seen = evidence(at(5));
        seen.bmc = Known::Value {
            value: muster_engine::lifecycle::BmcView { identity: identity(found) },
            at: at(5),
        };
        let after = step(&state, &seen, at(5)).state.status;
        assert_eq!(after.bmc_blocked.is_some(), blocked, "{known:?} {found:?}");
        assert_eq!(after.identity, kept.map(identity), "{known:?} {found:?}");
    }
    check(None, (None, None), false, None);
    check(None, (None, Some(ONE)), false, Some((None, Some(ONE))));
    check(Some((None, Some(ONE))), (None, None), false, Some((None, Some(ONE))));
    check(Some((None, Some(ONE))), (None, Some(OTHER)), true, Some((None, Some(ONE))));
    // Another driver writes it in another byte order, and knows the serial number as well.
    check(Some((None, Some(ONE))), (Some("A1"), Some(SWAPPED)), false, Some((Some("A1"), Some(ONE))));
    check(Some((Some("A1"), Some(ONE))), (Some("A1"), Some(OTHER)), true, Some((Some("A1"), Some(ONE))));
    check(Some((Some("A1"), Some(ONE))), (Some("B2"), None), true, Some((Some("A1"), Some(ONE))));
}

#[test]
fn another_machine_behind_the_address_is_not_touched() {
    let mut state = host(Phase::Idle);
    state.status.identity =
        Some(muster_model::host::HostIdentity { serial: Some("A1".into()), ..Default::default() });
    let mut seen = evidence(at(5));
    seen.intent = intent(Switch::On, "i-1");
    let identity = muster_model::host::HostIdentity { serial: Some("B2".into()), ..Default::default() };
    seen.bmc = Known::Value { value: muster_engine::lifecycle::BmcView { identity }, at: at(5) };
    let done = step(&state, &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(25), Phase::Quarantined));
    assert!(done.state.status.last_error.unwrap().contains("B2"));
}
