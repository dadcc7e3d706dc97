//! One test per row of the transition table.

use muster_engine::lifecycle::{
    BootNeed, Cordon, Deletion, DriverView, EffectKind, Evidence, HostState, NodeView, Outcome, Performed,
    PodsView, Rule, Step, TroubleClass, enrol, step,
};
use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Acknowledgement, Admin, BlockCause, BootProof, BootProofBy, ConditionType, DriverKind, Intent,
        OnReset, Permission, Phase, Power, PowerAction, PowerCall, PowerReading, Quarantine, Switch,
        TestStage, find_condition, is_true,
    },
};

use crate::world::{
    at, calls, evidence, has, hello, host, intent, known, node, progress, seen_power, settings, trouble,
    unknown, wol_settings,
};

#[track_caller]
pub(super) fn check(done: &Step, rule: u8, to: Phase) {
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(rule), to), "{}", done.reason);
    assert_eq!(done.state.status.state, to.state());
    assert!(done.reason.contains(|c: char| c.is_ascii_digit()), "no number in {:?}", done.reason);
}

fn on(now: Timestamp) -> Evidence {
    let mut seen = evidence(now);
    seen.power = seen_power(Power::On, now);
    seen
}

fn wanted_on(now: Timestamp) -> Evidence {
    let mut seen = evidence(now);
    seen.intent = intent(Switch::On, "i-1");
    seen
}

/// On, its node Ready and of this boot, and it is to be stood down.
pub(super) fn wanted_off(now: Timestamp) -> Evidence {
    let mut seen = on(now);
    seen.node = known(NodeView::Present(node(now)), now);
    seen.intent = intent(Switch::Off, "i-1");
    seen
}

pub(super) fn with_deadline(phase: Phase, secs: i64) -> HostState {
    let mut state = host(phase);
    state.status.deadline = Some(at(secs));
    state
}

#[test]
fn row_01_a_new_host_is_probed() {
    let done = enrol("h1", &evidence(at(0)), at(0));
    check(&done, 1, Phase::Enrolling);
    assert!(has(&done, &EffectKind::Probe { driver: None }));
    assert_eq!(done.state.status.deadline, Some(at(300)));
}

#[test]
fn row_02_off_twice_with_a_silent_lease_is_idle() {
    let mut state = host(Phase::Enrolling);
    let reading = PowerReading { power: Power::Off, driver: DriverKind::Redfish, since: at(0) };
    state.status.power = Known::Value { value: reading, at: at(0) };
    let early = step(&state, &evidence(at(10)), at(10));
    assert_eq!(early.state.phase(), Phase::Enrolling, "10 s apart are not enough");
    check(&step(&state, &evidence(at(20)), at(20)), 2, Phase::Idle);
}

#[test]
fn row_03_registered_while_on() {
    let state = with_deadline(Phase::Enrolling, 300);
    let done = step(&state, &on(at(30)), at(30));
    check(&done, 3, Phase::Enrolling);
    assert!(is_true(&done.state.status.conditions, ConditionType::UnexpectedOn));
    assert_eq!(done.state.status.deadline, None, "a machine that a person runs is not quarantined");
    assert_eq!(calls(&done), []);
    let mut seen = on(at(30));
    seen.node = known(NodeView::Present(node(at(30))), at(30));
    check(&step(&state, &seen, at(30)), 3, Phase::Serving);
}

#[test]
fn row_04_the_pool_claims_it() {
    let done = step(&host(Phase::Idle), &wanted_on(at(5)), at(5));
    check(&done, 4, Phase::Reserved);
    assert!(has(&done, &EffectKind::Reserve));
    let op = done.state.op.expect("the operation is stored before anything is done");
    assert_eq!((op.id.as_str(), op.epoch), ("h1-2", 7));
    assert_eq!(done.state.status.deadline, Some(at(65)));
    // Its deadline leads back.
    let late = with_deadline(Phase::Reserved, 60);
    let done = step(&late, &wanted_on(at(60)), at(60));
    check(&done, 4, Phase::Idle);
    assert!(has(&done, &EffectKind::ReleaseReservation));
    // So does a wish that is withdrawn.
    check(&step(&host(Phase::Reserved), &evidence(at(5)), at(5)), 4, Phase::Idle);
}

#[test]
fn row_05_the_boot_device_is_set_when_a_profile_asks() {
    let mut seen = wanted_on(at(5));
    let done = step(&host(Phase::Reserved), &seen, at(5));
    check(&done, 5, Phase::PreparingBoot);
    assert_eq!(calls(&done), [], "no profile, nothing to set");
    seen.settings.boot = BootNeed::Profile;
    let done = step(&host(Phase::Reserved), &seen, at(5));
    check(&done, 5, Phase::PreparingBoot);
    assert_eq!(calls(&done), [PowerCall::SetBoot { driver: 0 }]);
    assert_eq!(done.state.status.deadline, Some(at(185)));
}

#[test]
fn row_05_a_driver_that_cannot_set_the_boot_device_leaves_it_to_the_next() {
    let mut seen = wanted_on(at(5));
    seen.settings.boot = BootNeed::Profile;
    let first = step(&host(Phase::Reserved), &seen, at(5));
    assert_eq!(calls(&first), [PowerCall::SetBoot { driver: 0 }]);
    seen.performed = refused(1);
    let second = step(&first.state, &seen, at(5));
    assert_eq!(
        (second.state.phase(), calls(&second)),
        (Phase::PreparingBoot, vec![PowerCall::SetBoot { driver: 1 }])
    );
    assert_eq!(second.state.status.failures, []);
    let mut set = seen.clone();
    set.performed = Performed::Ended { op: "h1-1".into(), seq: 2, outcome: Outcome::Accepted };
    check(&step(&second.state, &set, at(5)), 7, Phase::PowerRequested);
    seen.performed = refused(2);
    let failed = step(&second.state, &seen, at(5));
    check(&failed, 21, Phase::Backoff);
    assert_eq!(failed.state.status.failures[0].reason, "NotSupported");
}

#[test]
fn row_06_on_already_sends_nothing() {
    for phase in [Phase::Reserved, Phase::PreparingBoot] {
        for power in [Power::On, Power::TurningOn] {
            let mut seen = wanted_on(at(5));
            seen.power = seen_power(power, at(5));
            let done = step(&host(phase), &seen, at(5));
            check(&done, 6, Phase::Powered);
            assert_eq!(calls(&done), []);
            assert!(done.state.op.expect("an operation").adopted);
        }
    }
}

#[test]
fn row_07_power_on_follows_a_fresh_reading_of_off() {
    let done = step(&host(Phase::PreparingBoot), &wanted_on(at(5)), at(5));
    check(&done, 7, Phase::PowerRequested);
    assert_eq!(calls(&done), [PowerCall::PowerOn { driver: 0, reset: OnReset::On }]);
    assert_eq!(done.effects[0].expects, Some(Power::Off), "read once more before the call");
    assert_eq!(done.state.status.deadline, Some(at(125)));
    // Not before the boot device was read back.
    let mut seen = wanted_on(at(5));
    seen.settings.boot = BootNeed::Profile;
    let set = step(&host(Phase::PreparingBoot), &seen, at(5));
    assert_eq!(calls(&set), [PowerCall::SetBoot { driver: 0 }]);
    seen.performed = Performed::Ended { op: "h1-1".into(), seq: 1, outcome: Outcome::Accepted };
    check(&step(&set.state, &seen, at(5)), 7, Phase::PowerRequested);
    // Not on an unknown, old or turning reading.
    for power in [unknown(at(5)), seen_power(Power::Off, at(-300)), seen_power(Power::TurningOff, at(5))] {
        let mut seen = wanted_on(at(5));
        seen.power = power;
        let done = step(&host(Phase::PreparingBoot), &seen, at(5));
        assert_eq!((calls(&done), done.state.phase()), (vec![], Phase::PreparingBoot));
    }
}

#[test]
fn row_08_the_next_reset_type_then_the_next_driver() {
    let mut state = with_deadline(Phase::PowerRequested, 120);
    let mut expected = vec![
        PowerCall::PowerOn { driver: 0, reset: OnReset::ForceOn },
        PowerCall::PowerOn { driver: 1, reset: OnReset::On },
    ];
    expected.reverse();
    let mut now = 120;
    while let Some(call) = expected.pop() {
        let mut seen = wanted_on(at(now));
        seen.performed = Performed::Ended { op: "h1-1".into(), seq: 1, outcome: Outcome::Accepted };
        let done = step(&state, &seen, at(now));
        check(&done, 8, Phase::PowerRequested);
        assert_eq!(calls(&done), [call]);
        state = done.state;
        state.op.as_mut().expect("an operation").pending = None;
        now += 120;
    }
    check(&step(&state, &wanted_on(at(now)), at(now)), 21, Phase::Backoff);
}

#[test]
fn row_09_power_is_confirmed_by_a_reading() {
    for power in [Power::On, Power::TurningOn] {
        let mut seen = wanted_on(at(30));
        seen.power = seen_power(power, at(30));
        let done = step(&with_deadline(Phase::PowerRequested, 120), &seen, at(30));
        check(&done, 9, Phase::Powered);
        assert_eq!(done.state.status.boot_time, Some(at(30)));
        assert_eq!(done.state.status.deadline, Some(at(30 + 900)));
    }
}

#[test]
fn row_10_progress_extends_nothing() {
    let mut seen = wanted_on(at(30));
    seen.power = seen_power(Power::On, at(30));
    seen.boot_progress = progress("OSBootStarted", false, at(25));
    let done = step(&with_deadline(Phase::Powered, 900), &seen, at(30));
    check(&done, 10, Phase::Booting);
    assert_eq!(done.state.status.deadline, Some(at(900)));
    seen.boot_progress = None;
    seen.agent.hello = hello("boot-1", at(25));
    check(&step(&with_deadline(Phase::Powered, 900), &seen, at(30)), 10, Phase::Booting);
}

/// Magic packets are proved by the agent's hello as well as by the node: from this boot, and written down once.
#[test]
fn row_10_a_hello_of_another_boot_proves_the_boot() {
    let mut seen = wanted_on(at(30));
    (seen.settings, seen.power) = (wol_settings(), unknown(at(30)));
    seen.agent.hello = hello("boot-2", at(25));
    let mut state = with_deadline(Phase::Powered, 900);
    state.status.boot_id_at_off = Some("boot-1".into());
    let done = step(&state, &seen, at(30));
    check(&done, 10, Phase::Booting);
    let proof = BootProof { boot_id: Some("boot-2".into()), at: at(30), by: BootProofBy::AgentHello };
    assert_eq!(
        (&done.state.status.boot_proof, done.state.status.wake_proved_at),
        (&Some(proof), Some(at(30)))
    );
    seen.agent.hello = hello("boot-2", at(85));
    let later = step(&done.state, &seen, at(90));
    assert_eq!(later.state.status.boot_proof, done.state.status.boot_proof);
    // A hello from before the request, or of the boot that was shut down, proves nothing.
    for old in [hello("boot-2", at(-5)), hello("boot-1", at(25))] {
        seen.agent.hello = old;
        let done = step(&state, &seen, at(30));
        assert_eq!((&done.state.status.boot_proof, done.state.status.wake_proved_at), (&None, None));
    }
}

#[test]
fn row_11_a_node_of_this_boot_is_joining() {
    let mut joining = node(at(30));
    joining.ready = false;
    let mut seen = wanted_on(at(30));
    seen.power = seen_power(Power::On, at(30));
    seen.node = known(NodeView::Present(joining.clone()), at(30));
    for phase in [Phase::Powered, Phase::Booting] {
        let done = step(&with_deadline(phase, 900), &seen, at(30));
        check(&done, 11, Phase::Joining);
        assert_eq!(done.state.status.deadline, Some(at(330)));
        assert!(!has(&done, &EffectKind::RemoveStartupTaint));
    }
    // A node that still shows the boot before is no node of this boot.
    let mut state = with_deadline(Phase::Booting, 900);
    state.status.boot_id_at_off = joining.boot_id.clone();
    assert_eq!(step(&state, &seen, at(30)).state.phase(), Phase::Booting);
}

#[test]
fn row_12_a_boot_that_is_no_longer_wanted() {
    for phase in [Phase::Powered, Phase::Booting, Phase::Joining] {
        let done = step(&with_deadline(phase, 900), &on(at(300)), at(300));
        check(&done, 12, Phase::Drained);
        assert!(has(&done, &EffectKind::ReleaseReservation));
        let done = step(&with_deadline(phase, 400), &on(at(300)), at(300));
        assert_eq!(done.state.phase(), phase, "100 s left: it may finish");
        assert!(done.state.op.expect("an operation").cancelling);
    }
}

#[test]
fn row_12_a_wish_that_is_withdrawn_before_the_first_call_wakes_nobody() {
    let mut state = with_deadline(Phase::PreparingBoot, 180);
    for (settings, proved) in [(settings(), None), (wol_settings(), None), (wol_settings(), Some(at(1)))] {
        state.status.off_proved_at = proved;
        state.status.power = unknown(at(0));
        let mut seen = evidence(at(5));
        (seen.settings, seen.power) = (settings, unknown(at(0)));
        let done = step(&state, &seen, at(5));
        check(&done, 12, Phase::Idle);
        assert_eq!(calls(&done), []);
        assert!(has(&done, &EffectKind::ReleaseReservation) && done.state.op.is_none());
        assert_eq!(done.state.status.off_proved_at, proved, "nothing is proved by it");
    }
}

#[test]
fn row_13_ready_with_proof_of_this_boot() {
    let mut fresh = node(at(30));
    fresh.startup_taint = true;
    fresh.labels_complete = false;
    let mut seen = wanted_on(at(30));
    seen.power = seen_power(Power::On, at(30));
    seen.node = known(NodeView::Present(fresh.clone()), at(30));
    for phase in [Phase::Powered, Phase::Booting, Phase::Joining] {
        let done = step(&with_deadline(phase, 900), &seen, at(30));
        check(&done, 13, Phase::Serving);
        assert!(has(&done, &EffectKind::ApplyLabels));
        assert!(
            !has(&done, &EffectKind::RemoveStartupTaint),
            "pods come once its labels and taints are there"
        );
        assert!(!has(&done, &EffectKind::Uncordon), "nobody cordoned it");
    }
    fresh.labels_complete = true;
    seen.node = known(NodeView::Present(fresh.clone()), at(30));
    let done = step(&with_deadline(Phase::Joining, 900), &seen, at(30));
    assert!(has(&done, &EffectKind::RemoveStartupTaint) && !has(&done, &EffectKind::ApplyLabels));
    fresh.cordon = Cordon::Foreign;
    seen.node = known(NodeView::Present(fresh.clone()), at(30));
    let done = step(&with_deadline(Phase::Joining, 900), &seen, at(30));
    assert!(!has(&done, &EffectKind::Uncordon), "a foreign cordon stays");
    fresh.cordon = Cordon::Ours { op: "h1-1".into() };
    seen.node = known(NodeView::Present(fresh.clone()), at(30));
    assert!(has(&step(&with_deadline(Phase::Joining, 900), &seen, at(30)), &EffectKind::Uncordon));
    fresh.missing = Some("nvidia.com/gpu".into());
    seen.node = known(NodeView::Present(fresh), at(30));
    let done = step(&with_deadline(Phase::Joining, 900), &seen, at(30));
    assert_eq!(done.state.phase(), Phase::Joining, "its GPUs are not there yet");
    // What is missing is said while it is waited for, in words that stay the same, and when it was waited for in vain.
    let text = "its node is Ready and does not show nvidia.com/gpu yet";
    assert_eq!(done.state.status.reason, text);
    let ready = done.state.status.conditions.iter().find(|one| one.kind == ConditionType::Ready).unwrap();
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("ResourceMissing", text));
    let failed = step(&with_deadline(Phase::Joining, 20), &seen, at(30));
    check(&failed, 20, Phase::Stopping);
    assert!(
        failed.state.status.reason.contains("did not show nvidia.com/gpu within"),
        "{:?}",
        failed.state.status
    );
}

#[test]
fn row_14_a_silent_bmc_degrades_a_serving_host() {
    let mut seen = wanted_off(at(30));
    seen.power = unknown(at(30));
    seen.bmc = trouble(TroubleClass::Unreachable, 1, at(30));
    let done = step(&host(Phase::Serving), &seen, at(30));
    check(&done, 14, Phase::Degraded);
    assert_eq!(done.effects, [], "nothing is done to a node that serves");
    let stays = step(&done.state, &seen, at(3600));
    assert_eq!(stays.state.phase(), Phase::Degraded, "never picked for scale-down");
    let mut seen = wanted_off(at(60));
    seen.intent = None;
    check(&step(&done.state, &seen, at(60)), 14, Phase::Serving);
}

#[test]
fn row_15_a_node_that_is_away_is_lost_and_may_come_back() {
    let mut away = node(at(-200));
    away.ready = false;
    let mut seen = on(at(0));
    seen.node = known(NodeView::Present(away.clone()), at(0));
    seen.pods = known(PodsView { evictable: 3, ..PodsView::default() }, at(0));
    let first = step(&host(Phase::Serving), &seen, at(0));
    assert_eq!(first.state.phase(), Phase::Serving);
    let mut later = seen.clone();
    later.power = seen_power(Power::On, at(120));
    later.node = known(NodeView::Present(away), at(120));
    later.pods = known(PodsView { evictable: 3, ..PodsView::default() }, at(120));
    let done = step(&first.state, &later, at(120));
    check(&done, 15, Phase::Lost);
    assert_eq!(done.state.status.deadline, Some(at(120 + 900)));
    // One power cycle, if the pool allows it and no pod is left to lose.
    later.settings.policy.cycle_lost = Permission::Allowed;
    assert_eq!(calls(&step(&done.state, &later, at(125))), []);
    later.pods = known(PodsView::default(), at(125));
    // OPS-R14: not while something larger is wrong.
    let mut many = later.clone();
    many.pool.repairs_stopped = Some("3 of 8 hosts of pool gpu are lost".into());
    let waits = step(&done.state, &many, at(125));
    assert_eq!((waits.state.phase(), calls(&waits)), (Phase::Lost, vec![]));
    assert!(waits.reason.contains("0 power cycles: 3 of 8 hosts"), "{}", waits.reason);
    let cycle = step(&done.state, &later, at(125));
    check(&cycle, 15, Phase::Lost);
    assert_eq!(calls(&cycle), [PowerCall::PowerCycle { driver: 0 }]);
    assert_eq!(calls(&step(&cycle.state, &later, at(130))), [], "at most once, even if nobody knows");
    let mut back = on(at(200));
    back.node = known(NodeView::Present(node(at(200))), at(200));
    let back = step(&done.state, &back, at(200));
    check(&back, 15, Phase::Serving);
    assert_eq!(
        back.state.status.boot_proof.map(|proof| proof.at),
        Some(at(200)),
        "whatever it did meanwhile"
    );
}

/// A power cycle wears a machine as a start does: it keeps to the same limits and counts towards them.
#[test]
fn row_15_a_power_cycle_keeps_to_the_limits_of_wear() {
    let mut seen = on(at(2_000));
    seen.settings.policy.cycle_lost = Permission::Allowed;
    seen.settings.policy.max_cycles_per_day = 3;
    let lost = with_deadline(Phase::Lost, 3_000);
    let condition = |done: &Step| {
        find_condition(&done.state.status.conditions, ConditionType::NodeLost).unwrap().message.clone()
    };
    for (starts, why, again) in [
        (vec![at(-9_000), at(1_101)], "switched on less than 15m ago", Some(at(2_001))),
        (
            vec![at(-9_000), at(-6_000), at(0)],
            "switched on 3 times in 24h, and 3 is the limit",
            Some(at(2_900)),
        ),
    ] {
        let mut worn = lost.clone();
        worn.status.starts = starts;
        let done = step(&worn, &seen, at(2_000));
        assert_eq!((done.state.phase(), calls(&done)), (Phase::Lost, vec![]), "{}", done.reason);
        assert!(done.reason.contains(why) && condition(&done).contains(why), "{}", done.reason);
        assert_eq!((done.wake, &done.state.status.starts), (again, &worn.status.starts));
    }
    let mut rested = lost;
    rested.status.starts = vec![at(-9_000), at(1_100)];
    let done = step(&rested, &seen, at(2_000));
    check(&done, 15, Phase::Lost);
    assert_eq!(calls(&done), [PowerCall::PowerCycle { driver: 0 }]);
    assert_eq!(done.state.status.starts, [at(-9_000), at(1_100), at(2_000)]);
    // One that was held back in front of the call has worn nothing.
    let outcome = Outcome::HeldBack { reason: "NewPods", why: "1 pods came onto its node".into() };
    seen.performed = Performed::Ended { op: "h1-2".into(), seq: 1, outcome };
    seen.pods = known(PodsView { evictable: 1, ..PodsView::default() }, at(2_000));
    let held = step(&done.state, &seen, at(2_000));
    assert_eq!((calls(&held), held.state.status.starts), (vec![], vec![at(-9_000), at(1_100)]));
}

#[test]
fn row_16_scale_down_begins_with_our_cordon() {
    #[track_caller]
    fn refused(state: &HostState, change: impl FnOnce(&mut Evidence)) {
        let mut seen = wanted_off(at(5));
        change(&mut seen);
        let done = step(state, &seen, at(5));
        assert_eq!((done.state.phase(), done.effects.len()), (Phase::Serving, 0), "{}", done.reason);
    }
    let mut state = host(Phase::Serving);
    state.status.serving_since = Some(at(-3600));
    let done = step(&state, &wanted_off(at(5)), at(5));
    check(&done, 16, Phase::Cordoned);
    assert!(has(&done, &EffectKind::Cordon));
    assert_eq!(calls(&done), []);
    // What it waits for.
    refused(&state, |seen| seen.pool.last_there = Some("rack r1".into()));
    let mut weighed = wanted_off(at(5));
    weighed.pool.last_there = Some("rack r1".into());
    weighed.intent.as_mut().unwrap().spread_weighed = true;
    check(&step(&state, &weighed, at(5)), 16, Phase::Cordoned); // whoever asks knows the bounds of now
    refused(&state, |seen| seen.pods = unknown(at(5)));
    refused(&state, |seen| seen.power = unknown(at(5)));
    let mut young = state.clone();
    young.status.serving_since = Some(at(-60));
    refused(&young, |_| {});
    let mut tried = state.clone();
    tried.status.drain_retry_at = Some(at(100));
    refused(&tried, |_| {});
    // A wish that waited for so long is no longer what the planner reckons with.
    refused(&state, |seen| seen.intent.as_mut().unwrap().at = at(5 - 300));
}

#[test]
fn row_17_eviction_follows_a_cordon_that_was_seen() {
    let state = with_deadline(Phase::Cordoned, 60);
    let done = step(&state, &wanted_off(at(5)), at(5));
    assert_eq!(done.state.phase(), Phase::Cordoned);
    assert!(has(&done, &EffectKind::Cordon), "asked for until it is seen");
    let mut cordoned = node(at(5));
    cordoned.cordon = Cordon::Ours { op: "h1-1".into() };
    let mut seen = wanted_off(at(5));
    seen.node = known(NodeView::Present(cordoned), at(5));
    let done = step(&state, &seen, at(5));
    check(&done, 17, Phase::Evicting);
    assert!(has(&done, &EffectKind::Evict));
    assert_eq!(done.state.status.deadline, Some(at(905)));
}

#[test]
fn row_18_drained_means_gone() {
    let state = with_deadline(Phase::Evicting, 900);
    for left in
        [PodsView { evictable: 1, ..PodsView::default() }, PodsView { terminating: 1, ..PodsView::default() }]
    {
        let mut seen = wanted_off(at(5));
        seen.pods = known(left, at(5));
        let done = step(&state, &seen, at(5));
        assert_eq!(done.state.phase(), Phase::Evicting, "{}", done.reason);
    }
    let done = step(&state, &wanted_off(at(5)), at(5));
    check(&done, 18, Phase::Drained);
    assert_eq!(done.state.status.deadline, Some(at(900)));
    let mut seen = wanted_off(at(5));
    seen.pool.would_pend = known(2, at(5));
    check(&step(&state, &seen, at(5)), 19, Phase::Serving);
    seen.pool.would_pend = unknown(at(5));
    assert_eq!(step(&state, &seen, at(5)).state.phase(), Phase::Evicting);
}

#[test]
fn row_19_a_drain_that_is_given_up_uncordons() {
    for phase in [Phase::Cordoned, Phase::Evicting, Phase::Drained] {
        let mut state = with_deadline(phase, 60);
        state.status.cordoned_by = Some("h1-1".into());
        let mut seen = wanted_off(at(60));
        seen.pods = known(
            PodsView { evictable: 2, blocked_by: Some("web-pdb".into()), ..PodsView::default() },
            at(60),
        );
        let done = step(&state, &seen, at(60));
        check(&done, 19, Phase::Serving);
        assert!(has(&done, &EffectKind::Uncordon));
        assert_eq!(calls(&done), []);
        assert_eq!(done.state.status.drain_retry_at, Some(at(660)));
        // What the plan wanted is over with it: only a later plan may ask again.
        let mut seen = wanted_off(at(700));
        assert_eq!(done.state.status.spent_intent, seen.intent.as_ref().map(|intent| intent.id.clone()));
        let again = step(&done.state, &seen, at(700));
        assert_eq!((again.state.phase(), again.effects.len()), (Phase::Serving, 0), "{}", again.reason);
        seen.intent = intent(Switch::Off, "i-9").map(|intent| Intent { at: at(690), ..intent });
        check(&step(&done.state, &seen, at(700)), 16, Phase::Cordoned);
        if phase == Phase::Evicting {
            assert!(done.reason.contains("web-pdb"), "{}", done.reason);
        }
        // Demand that comes back ends it as well.
        let mut seen = wanted_off(at(5));
        seen.intent = intent(Switch::On, "i-2");
        check(&step(&state, &seen, at(5)), 19, Phase::Serving);
        // A cordon of somebody else is left.
        state.status.cordoned_by = None;
        assert!(!has(&step(&state, &seen, at(5)), &EffectKind::Uncordon));
    }
}

#[test]
fn row_20_a_hung_boot_is_recorded_and_switched_off() {
    for phase in [Phase::Powered, Phase::Booting, Phase::Joining] {
        let mut seen = wanted_on(at(900));
        seen.power = seen_power(Power::On, at(900));
        let done = step(&with_deadline(phase, 900), &seen, at(900));
        check(&done, 20, Phase::Stopping);
        assert!(has(&done, &EffectKind::CaptureEvidence));
        assert!(has(&done, &EffectKind::ReleaseReservation), "the pool takes another one now");
        assert_eq!(done.state.status.failures.len(), 1);
        let next = step(&done.state, &seen, at(901));
        assert_eq!(next.rule, Rule::Row(23), "no system was seen: by force");
        assert_eq!(calls(&next), [PowerCall::ForceOff { driver: 0 }]);
        // With a system, it is asked first.
        let mut state = with_deadline(phase, 900);
        state.op.as_mut().expect("an operation").os_seen = true;
        assert_eq!(calls(&step(&state, &seen, at(900))), [PowerCall::GracefulOff { driver: 0 }]);
    }
}

#[test]
fn row_21_a_failure_frees_the_claim_and_the_third_quarantines() {
    let mut state = with_deadline(Phase::PreparingBoot, 180);
    let mut seen = wanted_on(at(180));
    seen.power = unknown(at(180));
    let done = step(&state, &seen, at(180));
    check(&done, 21, Phase::Backoff);
    assert!(has(&done, &EffectKind::ReleaseReservation));
    assert_eq!(done.state.status.spent_intent.as_deref(), Some("i-1"));
    let retry = done.state.status.retry_at.expect("a retry time");
    assert!(retry >= at(240) && retry < at(270), "{retry}");
    let old = done.state.status.failures[0].clone();
    state.status.failures = vec![old.clone(), old];
    check(&step(&state, &seen, at(180)), 21, Phase::Quarantined);
    // Failures of the day before do not count.
    state.status.failures.iter_mut().for_each(|failure| failure.at = at(180 - 25 * 3600));
    check(&step(&state, &seen, at(180)), 21, Phase::Backoff);
    // A BMC that did not answer three times need not be waited for.
    let mut seen = wanted_on(at(20));
    seen.power = unknown(at(20));
    seen.bmc = trouble(TroubleClass::Unreachable, 3, at(20));
    check(&step(&with_deadline(Phase::PreparingBoot, 180), &seen, at(20)), 21, Phase::Backoff);
}

#[test]
fn row_22_shutdown_stores_the_boot_id() {
    let done = step(&with_deadline(Phase::Drained, 900), &wanted_off(at(5)), at(5));
    check(&done, 22, Phase::Stopping);
    assert_eq!(calls(&done), [PowerCall::GracefulOff { driver: 0 }]);
    assert_eq!(done.state.status.boot_id_at_off.as_deref(), Some("boot-1"));
    assert_eq!(done.state.status.deadline, Some(at(305)));
    // Not right after a power-on.
    let mut state = with_deadline(Phase::Drained, 900);
    state.status.last_power_action = Some(muster_model::host::PowerAction::On);
    state.status.power_action_time = Some(at(-30));
    assert_eq!(calls(&step(&state, &wanted_off(at(5)), at(5))), [], "opposite actions are kept apart");
}

fn refused(seq: u32) -> Performed {
    let outcome = Outcome::Refused { reason: "NotSupported", message: "no GracefulShutdown".into() };
    Performed::Ended { op: "h1-1".into(), seq, outcome }
}

/// Nobody cuts the power of a system that another driver could ask: each one that can has its turn, and all of the time.
#[test]
fn row_22_a_driver_that_cannot_ask_leaves_it_to_the_next() {
    let mut state = with_deadline(Phase::Drained, 900);
    let mut seen = wanted_off(at(5));
    let drivers = [DriverKind::Redfish, DriverKind::Wol, DriverKind::Agent, DriverKind::Ipmi];
    seen.settings.drivers = drivers.map(DriverView::full).into();
    for (seq, now, driver) in [(1, 5, 0), (2, 10, 2), (3, 15, 3)] {
        (seen.power, seen.node) =
            (seen_power(Power::On, at(now)), known(NodeView::Present(node(at(now))), at(now)));
        seen.pods = known(PodsView::default(), at(now));
        let done = step(&state, &seen, at(now));
        assert_eq!(done.state.phase(), Phase::Stopping, "{}", done.reason);
        assert_eq!(calls(&done), [PowerCall::GracefulOff { driver }]);
        assert_eq!(done.state.status.deadline, Some(at(now + 300)));
        (state, seen.performed) = (done.state, refused(seq));
    }
    let done = step(&state, &seen, at(15));
    check(&done, 23, Phase::ForcingOff);
    assert_eq!(calls(&done), [PowerCall::ForceOff { driver: 0 }]);
}

/// A BMC that was away when its machine was to be asked: the time to shut down begins with the asking.
#[test]
fn row_22_a_system_that_is_asked_late_gets_all_of_its_time() {
    let mut state = with_deadline(Phase::Stopping, 300);
    state.op.as_mut().expect("an operation").os_seen = true;
    let asked = step(&state, &on(at(290)), at(290));
    assert_eq!(calls(&asked), [PowerCall::GracefulOff { driver: 0 }]);
    let mut state = asked.state;
    state.op.as_mut().expect("an operation").pending = None;
    for late in [301, 589] {
        let done = step(&state, &on(at(late)), at(late));
        assert_eq!((done.state.phase(), calls(&done)), (Phase::Stopping, vec![]), "{late}");
    }
    check(&step(&state, &on(at(590)), at(590)), 23, Phase::ForcingOff);
}

#[test]
fn row_23_force_comes_after_the_deadline_and_twice_at_most() {
    let mut state = with_deadline(Phase::Stopping, 300);
    let op = state.op.as_mut().expect("an operation");
    (op.asked_off_at, op.os_seen) = (Some(at(0)), true);
    let mut seen = on(at(299));
    assert_eq!(calls(&step(&state, &seen, at(299))), []);
    seen.power = seen_power(Power::On, at(300));
    let done = step(&state, &seen, at(300));
    check(&done, 23, Phase::ForcingOff);
    assert_eq!(calls(&done), [PowerCall::ForceOff { driver: 0 }]);
    let mut state = done.state;
    state.op.as_mut().expect("an operation").pending = None;
    assert_eq!(calls(&step(&state, &on(at(330)), at(330))), [], "not before a minute");
    let again = step(&state, &on(at(360)), at(360));
    check(&again, 23, Phase::ForcingOff);
    assert_eq!(calls(&again), [PowerCall::ForceOff { driver: 1 }], "by the next driver");
    let mut state = again.state;
    state.op.as_mut().expect("an operation").pending = None;
    check(&step(&state, &on(at(420)), at(420)), 24, Phase::Backoff);
}

#[test]
fn row_24_the_out_of_service_taint_needs_a_proof() {
    let remain = PodsView { evictable: 2, ..PodsView::default() };
    let mut away = node(at(-200));
    away.ready = false;
    let mut seen = evidence(at(900));
    seen.power = unknown(at(900));
    seen.node = known(NodeView::Present(away.clone()), at(900));
    seen.pods = known(remain.clone(), at(900));
    let done = step(&with_deadline(Phase::Lost, 900), &seen, at(900));
    check(&done, 24, Phase::Backoff);
    assert!(!has(&done, &EffectKind::OutOfServiceTaint), "not proved off");
    assert_eq!(calls(&done), []);
    // Proved off with pods left: Kubernetes may let them go.
    let mut state = with_deadline(Phase::Lost, 900);
    let reading = PowerReading { power: Power::Off, driver: DriverKind::Redfish, since: at(800) };
    state.status.power = Known::Value { value: reading, at: at(800) };
    seen.power = seen_power(Power::Off, at(900));
    assert!(has(&step(&state, &seen, at(900)), &EffectKind::OutOfServiceTaint));
}

#[test]
fn row_25_a_refused_account_is_not_tried_again() {
    let mut seen = wanted_on(at(5));
    seen.power = unknown(at(5));
    seen.bmc = trouble(TroubleClass::Blocked(BlockCause::CredentialsRefused), 1, at(5));
    for phase in [Phase::Enrolling, Phase::Idle, Phase::Reserved, Phase::PreparingBoot, Phase::Backoff] {
        let done = step(&host(phase), &seen, at(5));
        check(&done, 25, Phase::Quarantined);
        let quiet = step(&done.state, &seen, at(100_000));
        assert_eq!(quiet.effects, [], "not even a probe: {}", quiet.reason);
    }
    // A serving host goes on serving.
    let mut seen = wanted_off(at(5));
    seen.bmc = trouble(TroubleClass::Blocked(BlockCause::CertificateMismatch), 1, at(5));
    check(&step(&host(Phase::Serving), &seen, at(5)), 14, Phase::Degraded);
    // Enrolment that takes too long.
    let mut silent = evidence(at(300));
    silent.power = unknown(at(300));
    check(&step(&with_deadline(Phase::Enrolling, 300), &silent, at(300)), 25, Phase::Quarantined);
}

#[test]
fn row_26_rest_needs_both_signals() {
    let mut state = with_deadline(Phase::Stopping, 300);
    state.op.as_mut().expect("an operation").asked_off_at = Some(at(0));
    let off = |since: i64, lease: i64, now: i64| {
        let mut state = state.clone();
        let reading = PowerReading { power: Power::Off, driver: DriverKind::Redfish, since: at(since) };
        state.status.power = Known::Value { value: reading, at: at(since) };
        let mut seen = evidence(at(now));
        let mut old = node(at(lease));
        old.ready = false;
        seen.node = known(NodeView::Present(old), at(now));
        step(&state, &seen, at(now))
    };
    assert_eq!(off(90, 0, 100).state.phase(), Phase::Stopping, "read for 10 s only");
    assert_eq!(off(60, 70, 100).state.phase(), Phase::Stopping, "lease renewed 30 s ago");
    let done = off(60, 0, 100);
    check(&done, 26, Phase::ConfirmingOff);
    assert!(has(&done, &EffectKind::TaintOff));
    let mut seen = evidence(at(105));
    let mut marked = node(at(0));
    (marked.ready, marked.off_taint) = (false, true);
    seen.node = known(NodeView::Present(marked), at(105));
    let rest = step(&done.state, &seen, at(105));
    check(&rest, 26, Phase::Idle);
    assert_eq!(rest.state.op, None);
    assert_eq!(rest.state.status.off_since, Some(at(105)));
}

#[test]
fn row_27_the_retry_finds_out_where_the_host_stands() {
    let mut state = host(Phase::Backoff);
    state.status.retry_at = Some(at(60));
    state.status.backoff_count = 1;
    assert_eq!(step(&state, &evidence(at(59)), at(59)).state.phase(), Phase::Backoff);
    check(&step(&state, &evidence(at(60)), at(60)), 27, Phase::Idle);
    let mut seen = on(at(60));
    seen.node = known(NodeView::Present(node(at(60))), at(60));
    check(&step(&state, &seen, at(60)), 27, Phase::Serving);
    let reading = PowerReading { power: Power::On, driver: DriverKind::Redfish, since: at(0) };
    state.status.power = Known::Value { value: reading, at: at(0) };
    let stopping = step(&state, &on(at(60)), at(60));
    check(&stopping, 27, Phase::Stopping);
    check(&step(&stopping.state, &on(at(60)), at(60)), 23, Phase::ForcingOff);
    // A system that booted since its power was last asked for is asked to shut down, and has its time for it.
    state.status.last_power_action = Some(PowerAction::On);
    for (requested, first) in
        [(-900, PowerCall::GracefulOff { driver: 0 }), (-100, PowerCall::ForceOff { driver: 0 })]
    {
        state.status.power_action_time = Some(at(requested));
        state.status.boot_proof = Some(BootProof { boot_id: None, at: at(-600), by: BootProofBy::Lease });
        let stopping = step(&state, &on(at(60)), at(60)).state;
        assert_eq!(
            calls(&step(&stopping, &on(at(60)), at(60))),
            [first],
            "power was asked for at {requested}"
        );
    }
    let mut seen = evidence(at(60));
    seen.power = unknown(at(60));
    let done = step(&state, &seen, at(60));
    check(&done, 27, Phase::Backoff);
    assert!(done.state.status.retry_at > Some(at(60 + 119)), "the wait grows");
}

#[test]
fn row_28_out_of_quarantine_by_a_person_or_a_self_test() {
    let mut state = host(Phase::Quarantined);
    state.status.quarantine = Some(Quarantine {
        since: at(0),
        reason: "NeverJoined".into(),
        probation_at: at(86_400),
        failed_tests: 0,
    });
    let mut seen = evidence(at(60));
    seen.settings.acknowledgement =
        Some(Acknowledgement { by: "ann".into(), reason: "new board".into(), at: at(50) });
    let done = step(&state, &seen, at(60));
    check(&done, 28, Phase::Idle);
    assert_eq!((done.state.status.failures.len(), &done.state.status.quarantine), (0, &None));
    let mut running = seen.clone();
    running.power = seen_power(Power::On, at(60));
    check(&step(&state, &running, at(60)), 28, Phase::Backoff);
    // The self-test switches it on, sees a system, switches it off, and takes nothing for granted.
    let day = 86_400;
    let start = step(&state, &evidence(at(day)), at(day));
    check(&start, 28, Phase::Quarantined);
    assert_eq!(calls(&start), [PowerCall::PowerOn { driver: 0, reset: OnReset::On }]);
    let ended = |op: &str, seq| Performed::Ended { op: op.into(), seq, outcome: Outcome::Accepted };
    let mut seen = on(at(day + 30));
    seen.performed = ended("h1-2", 1);
    let up = step(&start.state, &seen, at(day + 30));
    assert_eq!(up.state.op.as_ref().and_then(|op| op.stage), Some(TestStage::Boot));
    let mut seen = on(at(day + 120));
    seen.boot_progress = progress("OSRunning", true, at(day + 110));
    let down = step(&up.state, &seen, at(day + 120));
    assert_eq!(calls(&down), [PowerCall::GracefulOff { driver: 0 }]);
    let mut seen = evidence(at(day + 150));
    seen.performed = ended("h1-2", 2);
    let one = step(&down.state, &seen, at(day + 150));
    assert_eq!(one.state.phase(), Phase::Quarantined, "off was read once");
    check(&step(&one.state, &evidence(at(day + 175)), at(day + 175)), 28, Phase::Idle);
    // A driver that cannot ask leaves it to the next.
    let mut seen = on(at(day + 125));
    let outcome = Outcome::Refused { reason: "NotSupported", message: "no GracefulShutdown".into() };
    seen.performed = Performed::Ended { op: "h1-2".into(), seq: 2, outcome };
    assert_eq!(calls(&step(&down.state, &seen, at(day + 125))), [PowerCall::GracefulOff { driver: 1 }]);
}

#[test]
fn row_29_maintenance_observes_and_never_acts() {
    for phase in Phase::ALL {
        let mut seen = wanted_off(at(10_000));
        seen.settings.admin = Admin::Maintenance;
        let done = step(&with_deadline(phase, 60), &seen, at(10_000));
        assert_eq!(done.rule, Rule::Row(29), "{phase}: {}", done.reason);
        for effect in &done.effects {
            assert!(
                matches!(effect.kind, EffectKind::ReleaseReservation | EffectKind::Probe { .. }),
                "{phase}: {effect:?}"
            );
        }
        assert!(done.state.phase() == phase || phase == Phase::Reserved);
    }
    // Its deadlines stand still meanwhile.
    let mut seen = on(at(100));
    seen.settings.admin = Admin::Maintenance;
    let mut state = with_deadline(Phase::Stopping, 300);
    let op = state.op.as_mut().expect("an operation");
    (op.asked_off_at, op.os_seen) = (Some(at(0)), true);
    let paused = step(&state, &seen, at(100));
    let resumed = step(&paused.state, &on(at(3700)), at(3700));
    assert_eq!(resumed.state.status.deadline, Some(at(3900)));
}

#[test]
fn row_30_deletion_drains_first_and_leaves_the_power() {
    for phase in Phase::ALL {
        let mut seen = wanted_off(at(5));
        seen.deletion = Deletion::Forced;
        let done = step(&host(phase), &seen, at(5));
        assert!(done.gone && has(&done, &EffectKind::Forget), "{phase}: {}", done.reason);
        assert_eq!(calls(&done), []);
    }
    let mut state = host(Phase::Serving);
    state.status.serving_since = Some(at(0));
    let mut seen = wanted_off(at(5));
    (seen.deletion, seen.intent) = (Deletion::Requested, None);
    let cordon = step(&state, &seen, at(5));
    check(&cordon, 16, Phase::Cordoned);
    let mut drained = with_deadline(Phase::Drained, 900);
    drained.op = cordon.state.op;
    let done = step(&drained, &seen, at(5));
    assert!(done.gone, "{}", done.reason);
    assert_eq!((done.rule, calls(&done)), (Rule::Row(30), vec![]), "nobody asked to switch it off");
    seen.deletion = Deletion::RequestedWithPowerOff;
    check(&step(&drained, &seen, at(5)), 22, Phase::Stopping);
    let mut rests = evidence(at(5));
    rests.deletion = Deletion::RequestedWithPowerOff;
    let done = step(&host(Phase::Idle), &rests, at(5));
    assert!(done.gone && done.rule == Rule::Row(30));
}

/// E2 wherever off counts: two readings 19 s apart prove nothing, 20 s apart they do.
#[test]
fn e2_readings_closer_than_twenty_seconds_prove_off_nowhere() {
    #[track_caller]
    fn check(phase: Phase, prepare: impl Fn(&mut HostState, &mut Evidence), to: Phase) {
        for (apart, proved) in [(19, false), (20, true)] {
            let mut state = with_deadline(phase, 300);
            let reading =
                PowerReading { power: Power::Off, driver: DriverKind::Redfish, since: at(100 - apart) };
            state.status.power = Known::Value { value: reading, at: at(100 - apart) };
            let mut seen = evidence(at(100));
            prepare(&mut state, &mut seen);
            let done = step(&state, &seen, at(100));
            assert_eq!(
                done.state.phase() == to,
                proved,
                "{phase} after {apart}s: {} ({})",
                done.state.phase(),
                done.reason
            );
        }
    }
    let plain = |_: &mut HostState, _: &mut Evidence| {};
    let wanted_off = |_: &mut HostState, seen: &mut Evidence| seen.intent = intent(Switch::Off, "i-1");
    check(Phase::Enrolling, plain, Phase::Idle); // row 2
    check(Phase::Serving, plain, Phase::Idle); // drift 1
    check(Phase::Degraded, plain, Phase::Idle);
    check(Phase::Lost, plain, Phase::Idle);
    check(Phase::Cordoned, wanted_off, Phase::Idle);
    check(Phase::Evicting, wanted_off, Phase::Idle);
    check(Phase::Drained, wanted_off, Phase::ConfirmingOff); // row 26
    check(Phase::Stopping, wanted_off, Phase::ConfirmingOff);
    check(Phase::ForcingOff, wanted_off, Phase::ConfirmingOff);
    check(Phase::ConfirmingOff, wanted_off, Phase::Idle);
    check(Phase::Backoff, plain, Phase::Idle); // row 27
    check(
        Phase::Quarantined, // row 28
        |state, seen| {
            let reason = "NeverJoined".into();
            state.status.quarantine =
                Some(Quarantine { since: at(0), reason, probation_at: at(900), failed_tests: 0 });
            let (by, reason) = ("ann".into(), "seen to".into());
            seen.settings.acknowledgement = Some(Acknowledgement { by, reason, at: at(99) });
        },
        Phase::Idle,
    );
}

/// And a button is pressed only after two such readings.
#[test]
fn e2_a_button_waits_for_two_readings() {
    for (apart, pressed) in [(19, false), (20, true)] {
        let mut state = with_deadline(Phase::PreparingBoot, 300);
        state.op.as_mut().expect("an operation").boot_set = true;
        let reading = PowerReading { power: Power::Off, driver: DriverKind::Redfish, since: at(100 - apart) };
        state.status.power = Known::Value { value: reading, at: at(100 - apart) };
        let mut seen = wanted_on(at(100));
        seen.settings.drivers.truncate(1);
        seen.settings.drivers[0].on_resets = vec![OnReset::PushPowerButton];
        assert_eq!(!calls(&step(&state, &seen, at(100))).is_empty(), pressed, "{apart}s apart");
    }
}

/// A BMC that nobody has reached so far.
fn out_of_reach(now: Timestamp) -> Evidence {
    let mut seen = evidence(now);
    (seen.power, seen.bmc) = (unknown(now), trouble(TroubleClass::Unreachable, 1, now));
    seen
}

#[test]
fn time_without_a_leader_makes_no_host_late() {
    let state = with_deadline(Phase::Enrolling, 300);
    let mut seen = out_of_reach(at(3_600));
    check(&step(&state, &seen, at(3_600)), 25, Phase::Quarantined);
    seen.unattended = Duration::from_secs(3_500);
    let kept = step(&state, &seen, at(3_600)).state.status;
    assert_eq!((kept.phase, kept.deadline), (Phase::Enrolling, Some(at(3_800))));
}

#[test]
fn ops_f18_a_deadline_of_a_clock_that_was_ahead_does_not_hold_a_host_for_ever() {
    let state = with_deadline(Phase::Enrolling, 365 * 24 * 3_600);
    let kept = step(&state, &out_of_reach(at(10)), at(10)).state.status;
    assert_eq!(kept.deadline, Some(at(910)), "no phase is given more than 15 minutes");
}
