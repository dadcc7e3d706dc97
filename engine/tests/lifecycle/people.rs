//! What people said of a machine stops whatever nobody asked for, and what they asked for is done.

use muster_engine::lifecycle::{
    Deletion, EffectKind, Evidence, Freeze, HostState, NodeView, PodsView, Rule, Step, step,
};
use muster_model::{
    Known,
    host::{
        Acknowledgement, Admin, BootProof, BootProofBy, ConditionType, DriverKind, Failure, Hold, Intent,
        OnNodeDeleted, OnUnexpectedOn, Permission, Phase, Power, PowerCall, PowerReading, Quarantine, Switch,
        find_condition, is_true,
    },
};

use crate::world::{at, calls, evidence, has, host, intent, known, node, seen_power, trouble, unknown};

const GRACEFUL: PowerCall = PowerCall::GracefulOff { driver: 0 };

fn reading(power: Power, since: i64) -> Known<PowerReading> {
    Known::Value {
        value: PowerReading { power, driver: DriverKind::Redfish, since: at(since) },
        at: at(since),
    }
}

/// A host in `phase` whose readings have said `power` since a minute before.
fn read(phase: Phase, power: Power) -> HostState {
    let mut state = host(phase);
    state.status.power = reading(power, -60);
    state
}

fn on(now: i64) -> Evidence {
    Evidence { power: seen_power(Power::On, at(now)), ..evidence(at(now)) }
}

fn held(until: i64) -> Hold {
    Hold { by: "ann".into(), reason: "memory test".into(), until: Some(at(until)) }
}

fn quarantined(reason: &str, probation: i64) -> HostState {
    let mut state = host(Phase::Quarantined);
    let (since, probation_at) = (at(0), at(probation));
    state.status.quarantine =
        Some(Quarantine { since, reason: reason.into(), probation_at, failed_tests: 0 });
    state
}

/// Without a word of people the machine is acted on; a hold and the wishes in `by_hand` leave it alone and are named.
#[track_caller]
fn left_alone(state: &HostState, seen: &Evidence, now: i64, by_hand: &[Switch]) {
    let untouched = |done: &Step, why: &str| {
        assert_eq!((calls(done), done.state.phase()), (vec![], state.phase()), "{}", done.reason);
        assert!(done.state.op.as_ref().is_none_or(|op| Some(op) == state.op.as_ref()), "{}", done.reason);
        assert!(done.reason.contains(why), "{}", done.reason);
    };
    let acts = |seen: &Evidence| {
        let done = step(state, seen, at(now));
        assert!(!calls(&done).is_empty() || done.moved(), "it is never acted on: {}", done.reason);
    };
    acts(seen);
    let mut kept = seen.clone();
    kept.settings.hold = Some(held(90_000));
    let why = if state.phase() == Phase::Lost { "left to come back" } else { "held by ann: memory test" };
    untouched(&step(state, &kept, at(now)), why);
    kept.settings.hold = Some(held(now));
    acts(&kept);
    kept.settings.hold = None;
    for want in [Switch::On, Switch::Off] {
        kept.settings.manual = Some(want);
        if by_hand.contains(&want) {
            let why = if state.phase() == Phase::Lost { "left to come back" } else { "by hand" };
            untouched(&step(state, &kept, at(now)), why);
        }
    }
}

#[test]
fn a_machine_on_without_a_node_is_not_switched_off_under_a_person() {
    let mut state = read(Phase::Backoff, Power::On);
    state.status.retry_at = Some(at(60));
    left_alone(&state, &on(60), 60, &[Switch::On]);
    // Who wants it off gets it.
    let mut seen = on(60);
    seen.settings.manual = Some(Switch::Off);
    assert_eq!(step(&state, &seen, at(60)).state.phase(), Phase::Stopping);
}

#[test]
fn a_machine_that_a_person_has_is_not_tested() {
    let state = quarantined("NeverJoined", 86_400);
    left_alone(&state, &evidence(at(86_400)), 86_400, &[Switch::On, Switch::Off]);
}

#[test]
fn a_machine_switched_on_by_hand_and_held_is_not_enforced_off() {
    let mut state = read(Phase::Idle, Power::On);
    state.status.unexpected_on_since = Some(at(0));
    let mut seen = on(1_805);
    seen.settings.policy.on_unexpected_on = OnUnexpectedOn::EnforceOff;
    left_alone(&state, &seen, 1_805, &[]);
}

#[test]
fn a_lost_machine_that_a_person_has_is_not_cycled() {
    let mut state = read(Phase::Lost, Power::On);
    state.status.deadline = Some(at(900));
    let mut seen = on(5);
    let mut away = node(at(-200));
    away.ready = false;
    seen.node = known(NodeView::Present(away), at(5));
    seen.settings.policy.cycle_lost = Permission::Allowed;
    assert_eq!(calls(&step(&state, &seen, at(5))), [PowerCall::PowerCycle { driver: 0 }]);
    left_alone(&state, &seen, 5, &[Switch::On, Switch::Off]);
}

#[test]
fn a_machine_whose_node_was_deleted_is_not_stood_down_under_a_person() {
    let mut seen = on(300);
    seen.settings.policy.on_node_deleted = OnNodeDeleted::StandDown;
    seen.settings.policy.cycle_lost = Permission::Refused;
    let mut state = read(Phase::Lost, Power::On);
    state.status.deadline = Some(at(900));
    left_alone(&state, &seen, 300, &[Switch::On]);
}

#[test]
fn a_machine_switched_on_by_hand_that_never_joins_is_left_on() {
    for phase in [Phase::Powered, Phase::Booting, Phase::Joining] {
        let mut state = read(phase, Power::On);
        state.status.deadline = Some(at(900));
        let mut seen = on(900);
        seen.settings.manual = Some(Switch::On);
        let done = step(&state, &seen, at(900));
        assert_eq!((done.state.phase(), calls(&done)), (phase, vec![]), "{}", done.reason);
        assert_eq!(done.state.status.failures, [], "nobody's attempt failed");
        let told =
            find_condition(&done.state.status.conditions, ConditionType::BootFailed).expect("a condition");
        assert!(
            told.message.contains("switched on by hand, and 0 Ready nodes joined within 15m"),
            "{told:?}"
        );
        assert!(has(&done, &EffectKind::ReleaseReservation), "its pool need not wait for it");
        let again = step(&done.state, &on_by_hand(960), at(960));
        assert_eq!((again.state.phase(), calls(&again)), (phase, vec![]));
        assert!(!has(&again, &EffectKind::ReleaseReservation), "given back once");
        // It joins late, and serves.
        let mut joined = on_by_hand(1_000);
        joined.node = known(NodeView::Present(node(at(1_000))), at(1_000));
        let mut late = again.state.clone();
        for _ in 0..3 {
            late = step(&late, &joined, at(1_000)).state;
        }
        assert_eq!(late.phase(), Phase::Serving, "from {phase}");
        assert!(!is_true(&late.status.conditions, ConditionType::BootFailed));
        // Nobody wants it any more: as any other boot that nobody wants.
        let over = step(&again.state, &on(1_000), at(1_000));
        assert_eq!(over.state.phase(), Phase::Stopping, "{}", over.reason);
    }
}

fn on_by_hand(now: i64) -> Evidence {
    let mut seen = on(now);
    seen.settings.manual = Some(Switch::On);
    seen
}

/// The first list of leases after a start shows what was written, not when: who has only just begun to watch has seen no
/// silence.
#[test]
fn a_lease_that_nobody_has_watched_yet_proves_nothing() {
    let looked = |now: i64| {
        let mut seen = evidence(at(now));
        let unseen =
            muster_engine::lifecycle::NodeSeen { lease_renewed: None, lease_watched: at(0), ..node(at(0)) };
        seen.node = known(NodeView::Present(unseen), at(now));
        seen.intent = intent(Switch::On, "i-1");
        step(&read(Phase::Serving, Power::Off), &seen, at(now))
    };
    for now in [5, 40] {
        let early = looked(now);
        assert_eq!(early.state.phase(), Phase::Serving, "after {now}s: {}", early.reason);
        assert!(!has(&early, &EffectKind::OutOfServiceTaint));
    }
    let late = looked(41);
    assert_eq!((late.rule, late.state.phase()), (Rule::Drift(1), Phase::Idle), "{}", late.reason);
}

/// Whatever was waited for when everything was frozen, or when people worked on it, is waited for as long afterwards.
#[test]
fn no_wait_ends_while_nothing_may_be_done() {
    type Pause = fn(&mut Evidence);
    let pauses: [Pause; 2] =
        [|seen| seen.freeze = Freeze::Frozen, |seen| seen.settings.admin = Admin::Maintenance];
    for pause in pauses {
        let after = |state: &HostState, seen: &dyn Fn(i64) -> Evidence| {
            let mut paused = seen(10);
            pause(&mut paused);
            let rests = step(state, &paused, at(10));
            assert_eq!(calls(&rests), [], "{}", rests.reason);
            step(&rests.state, &seen(3_610), at(3_610))
        };
        // Probation, a retry, a drain to be tried again, a deadline.
        let done = after(&quarantined("NeverJoined", 600), &|now| evidence(at(now)));
        assert_eq!(done.state.status.quarantine.as_ref().map(|one| one.probation_at), Some(at(4_200)));
        assert_eq!(calls(&done), [], "{}", done.reason);
        let mut state = read(Phase::Backoff, Power::On);
        state.status.retry_at = Some(at(70));
        let done = after(&state, &on);
        assert_eq!((done.state.status.retry_at, done.state.phase()), (Some(at(3_670)), Phase::Backoff));
        let mut state = read(Phase::Serving, Power::On);
        state.status.drain_retry_at = Some(at(100));
        let fine = |now: i64| Evidence { node: known(NodeView::Present(node(at(now))), at(now)), ..on(now) };
        assert_eq!(after(&state, &fine).state.status.drain_retry_at, Some(at(3_700)));
        // Switched on by hand ten minutes before: it has twenty more.
        let mut state = read(Phase::Idle, Power::On);
        state.status.unexpected_on_since = Some(at(-590));
        let enforced = |now: i64| {
            let mut seen = on(now);
            seen.settings.policy.on_unexpected_on = OnUnexpectedOn::EnforceOff;
            seen
        };
        let done = after(&state, &enforced);
        assert_eq!((done.state.phase(), calls(&done)), (Phase::Idle, vec![]));
        assert!(done.reason.contains("left alone for 20m more"), "{}", done.reason);
        // A node that is away was away for ten seconds before the pause.
        let mut state = read(Phase::Serving, Power::On);
        state.status.not_ready_since = Some(at(0));
        let away = |now: i64| {
            let mut old = node(at(-60));
            old.ready = false;
            Evidence { node: known(NodeView::Present(old), at(now)), ..on(now) }
        };
        let done = after(&state, &away);
        assert_eq!(done.state.phase(), Phase::Serving, "{}", done.reason);
        assert_eq!(done.state.status.not_ready_since, Some(at(3_600)));
    }
}

#[test]
fn a_record_deleted_with_its_power_switches_a_machine_off_first() {
    let deleted = |now: i64| Evidence { deletion: Deletion::RequestedWithPowerOff, ..on(now) };
    for phase in
        [Phase::Enrolling, Phase::Idle, Phase::Reserved, Phase::Backoff, Phase::Quarantined, Phase::Lost]
    {
        let state = read(phase, Power::On);
        let done = step(&state, &deleted(5), at(5));
        assert_eq!(
            (done.rule, done.state.phase()),
            (Rule::Row(30), Phase::Stopping),
            "{phase}: {}",
            done.reason
        );
        assert_eq!((calls(&done), done.gone), (vec![GRACEFUL], false), "{phase}");
        assert_eq!(has(&done, &EffectKind::ReleaseReservation), phase == Phase::Reserved, "{phase}");
        // Not over somebody's pods, and not over what nobody knows.
        let mut unsure = deleted(5);
        unsure.pods = unknown(at(5));
        let waits = step(&state, &unsure, at(5));
        assert_eq!(
            (calls(&waits), waits.gone, waits.state.phase()),
            (vec![], false, phase),
            "{}",
            waits.reason
        );
        assert!(waits.reason.contains("--force"), "{}", waits.reason);
        let mut silent = deleted(5);
        silent.power = unknown(at(5));
        silent.bmc = trouble(muster_engine::lifecycle::TroubleClass::Unreachable, 1, at(5));
        assert!(!step(&state, &silent, at(5)).gone, "{phase}: it may be on");
        // Its power is left where nobody asked, and it is forgotten where it is off.
        let mut plain = deleted(5);
        plain.deletion = Deletion::Requested;
        let done = step(&state, &plain, at(5));
        assert_eq!((done.gone, calls(&done)), (true, vec![]), "{phase}");
        let mut off = deleted(5);
        off.power = seen_power(Power::Off, at(5));
        assert!(step(&read(phase, Power::Off), &off, at(5)).gone, "{phase}");
        let mut forced = deleted(5);
        forced.deletion = Deletion::Forced;
        assert!(step(&state, &forced, at(5)).gone, "{phase}");
    }
    // Its node came back meanwhile: what runs there is moved away first.
    for phase in [Phase::Enrolling, Phase::Idle, Phase::Backoff, Phase::Lost] {
        for deletion in [Deletion::Requested, Deletion::RequestedWithPowerOff] {
            let mut back = Evidence { deletion, ..on(5) };
            back.node = known(NodeView::Present(node(at(5))), at(5));
            back.pods = known(PodsView { evictable: 2, ..PodsView::default() }, at(5));
            let done = step(&read(phase, Power::On), &back, at(5));
            assert_eq!(
                (done.state.phase(), calls(&done), done.gone),
                (Phase::Serving, vec![], false),
                "{phase}"
            );
            assert_eq!(step(&done.state, &back, at(6)).state.phase(), Phase::Cordoned, "{phase}");
        }
    }
    // One that does not go off is not asked for ever.
    let mut state = quarantined("CouldNotSwitchOff", 86_400);
    state.status.power = reading(Power::On, -60);
    state.status.failures = vec![Failure {
        at: at(0),
        phase: Phase::ForcingOff,
        reason: "CouldNotSwitchOff".into(),
        message: "off was not proved".into(),
    }];
    let done = step(&state, &deleted(5), at(5));
    assert_eq!((calls(&done), done.gone), (vec![], false));
    assert!(done.reason.contains("not switched off by 1 attempt"), "{}", done.reason);
}

/// Nobody's cluster says anything about a machine that is enrolled: no pool, or an API server that is away.
#[test]
fn a_machine_that_answers_is_not_given_up_for_want_of_its_cluster() {
    let alone = |now: i64, power: Known<muster_engine::lifecycle::PowerSeen>| {
        let mut seen = evidence(at(now));
        (seen.power, seen.node, seen.pods) = (power, unknown(at(now)), unknown(at(now)));
        seen
    };
    let mut state = host(Phase::Enrolling);
    state.status.power = reading(Power::Off, 0);
    state.status.deadline = Some(at(300));
    let waits = step(&state, &alone(400, seen_power(Power::Off, at(400))), at(400));
    assert_eq!(waits.state.phase(), Phase::Enrolling, "a BMC alone proves nothing: {}", waits.reason);
    assert!(waits.reason.contains("0 clusters say whether its node is alive"), "{}", waits.reason);
    // People are told as soon as two readings agree, where they look.
    let told = step(&state, &alone(60, seen_power(Power::Off, at(60))), at(60)).state.status;
    assert!(told.reason.contains("0 clusters say whether its node is alive: silence"), "{}", told.reason);
    assert_eq!(
        find_condition(&told.conditions, ConditionType::Ready).map(|one| &*one.reason),
        Some("NodeUnknown")
    );
    let proved = step(&waits.state, &evidence(at(460)), at(460));
    assert_eq!((proved.rule, proved.state.phase()), (Rule::Row(2), Phase::Idle), "once its cluster is there");
    // One that answers and is on is not given up; one that says nothing is.
    state.status.power = reading(Power::On, 0);
    let up = step(&state, &alone(400, seen_power(Power::On, at(400))), at(400));
    assert_eq!(up.state.phase(), Phase::Enrolling, "{}", up.reason);
    let mut nobody = alone(400, unknown(at(400)));
    nobody.bmc = trouble(muster_engine::lifecycle::TroubleClass::Unreachable, 9, at(400));
    let given_up = step(&state, &nobody, at(400));
    assert_eq!(given_up.state.phase(), Phase::Quarantined, "{}", given_up.reason);
    // Until it answers: nobody has to acknowledge that a cable was plugged in.
    let waits = step(&given_up.state, &Evidence { ..nobody.clone() }, at(400));
    assert_eq!(waits.state.phase(), Phase::Quarantined);
    let again = step(&given_up.state, &alone(460, seen_power(Power::Off, at(460))), at(460));
    assert_eq!((again.rule, again.state.phase()), (Rule::Row(28), Phase::Enrolling), "{}", again.reason);
}

/// Where its node was last alive is known until it is proved off, or until a person says that nothing is missed.
#[test]
fn the_cluster_of_a_node_is_remembered_until_the_machine_is_off() {
    let mut seen = on(5);
    seen.node = known(NodeView::Present(node(at(5))), at(5));
    let serves = step(&read(Phase::Serving, Power::On), &seen, at(5)).state;
    assert_eq!(serves.status.kubernetes_cluster.as_deref(), Some("c1"));
    let mut gone = on(10);
    (gone.node, gone.pods) = (unknown(at(10)), unknown(at(10)));
    let unseen = step(&serves, &gone, at(10)).state;
    assert_eq!(unseen.status.kubernetes_cluster.as_deref(), Some("c1"));
    gone.settings.acknowledgement =
        Some(Acknowledgement { by: "ann".into(), reason: "that cluster is gone".into(), at: at(8) });
    assert_eq!(step(&unseen, &gone, at(10)).state.status.kubernetes_cluster, None);
    let mut off = evidence(at(120));
    off.node = known(NodeView::Present(node(at(5))), at(120));
    let mut switched_off = serves;
    switched_off.status.power = reading(Power::Off, -60);
    let rests = step(&switched_off, &off, at(120)).state;
    assert_eq!((rests.phase(), rests.status.kubernetes_cluster), (Phase::Idle, None));
    // An old object of a machine that is off is no sign of life there.
    let stays = step(&read(Phase::Idle, Power::Off), &off, at(120)).state;
    assert_eq!(stays.status.kubernetes_cluster, None);
}

/// A wish of before the machine last went off was served then, and one that is seen only after five minutes may have been
/// given to another host by now.
#[test]
fn a_decision_of_long_ago_wakes_nobody() {
    let wished = |state: &HostState, now: i64| {
        let mut seen = evidence(at(now));
        seen.intent = intent(Switch::On, "i-1").map(|intent| Intent { at: at(0), ..intent });
        step(state, &seen, at(now))
    };
    let mut state = read(Phase::Idle, Power::Off);
    let old = wished(&state, 300);
    assert_eq!(old.state.phase(), Phase::Idle, "{}", old.reason);
    assert!(has(&old, &EffectKind::ReleaseReservation));
    let again = wished(&old.state, 400);
    assert_eq!((again.state.phase(), has(&again, &EffectKind::ReleaseReservation)), (Phase::Idle, false));
    assert_eq!(wished(&state, 299).state.phase(), Phase::Reserved);
    // What a person wants waits for as long as it takes.
    let mut by_hand = evidence(at(300));
    by_hand.settings.manual = Some(Switch::On);
    assert_eq!(step(&old.state, &by_hand, at(300)).state.phase(), Phase::Reserved);
    // So does what waits for its turn since it was new.
    state.status.starts = vec![at(-100)];
    let waits = wished(&state, 10);
    assert_eq!(waits.state.status.waiting_intent.as_deref(), Some("i-1"), "{}", waits.reason);
    assert_eq!(wished(&waits.state, 3_000).state.phase(), Phase::Reserved);
    // Unless it was served in between.
    state = waits.state;
    state.status.off_since = Some(at(1_000));
    assert_eq!(wished(&state, 3_000).state.phase(), Phase::Idle);
}

#[test]
fn a_host_that_is_given_up_gives_its_claim_back() {
    let mut state = read(Phase::Lost, Power::On);
    state.status.deadline = Some(at(900));
    let mut seen = on(900);
    seen.intent = intent(Switch::On, "i-1");
    let done = step(&state, &seen, at(900));
    assert_eq!(done.state.phase(), Phase::Backoff, "{}", done.reason);
    assert!(has(&done, &EffectKind::ReleaseReservation));
    assert_eq!(done.state.status.spent_intent.as_deref(), Some("i-1"));
}

/// A hold stops what nobody asked for, and whoever looks at a boot that hangs did not ask for its end.
#[test]
fn a_machine_that_is_held_while_it_boots_is_left_on() {
    for phase in [Phase::Powered, Phase::Booting, Phase::Joining] {
        let mut state = read(phase, Power::On);
        state.status.deadline = Some(at(900));
        let looked = |state: &HostState, now: i64, until: i64| {
            let mut seen = on(now);
            seen.intent = intent(Switch::On, "i-1");
            seen.settings.hold = Some(held(until));
            step(state, &seen, at(now))
        };
        let done = looked(&state, 900, 90_000);
        assert_eq!((done.state.phase(), calls(&done)), (phase, vec![]), "{}", done.reason);
        assert!(done.reason.contains("held by ann: memory test"), "{}", done.reason);
        assert!(has(&done, &EffectKind::ReleaseReservation), "its pool need not wait for it");
        let told = find_condition(&done.state.status.conditions, ConditionType::BootFailed);
        assert!(told.is_some_and(|told| told.message.contains("held by ann")), "{told:?}");
        let again = looked(&done.state, 960, 90_000);
        assert_eq!((again.state.phase(), calls(&again)), (phase, vec![]));
        // The hold is over.
        let over = looked(&again.state, 1_000, 1_000);
        assert_eq!((over.rule, over.state.phase()), (Rule::Row(20), Phase::Stopping), "{}", over.reason);
    }
}

/// Nobody asked for the end of a failed boot or of a lost node: a hold that comes later stops what is left of it.
#[test]
fn a_switch_off_that_nobody_asked_for_stops_at_a_hold() {
    let mut booting = read(Phase::Powered, Power::On);
    booting.status.deadline = Some(at(900));
    let failed = step(&booting, &on(900), at(900)).state;
    assert_eq!(failed.phase(), Phase::Stopping);
    let mut backing = read(Phase::Backoff, Power::On);
    backing.status.retry_at = Some(at(900));
    let recovered = step(&backing, &on(900), at(900)).state;
    assert_eq!(recovered.phase(), Phase::Stopping);
    for state in [failed, recovered] {
        let mut seen = on(905);
        assert_eq!(calls(&step(&state, &seen, at(905))), [PowerCall::ForceOff { driver: 0 }]);
        seen.settings.hold = Some(held(90_000));
        let waits = step(&state, &seen, at(905));
        assert_eq!((waits.state.phase(), calls(&waits)), (Phase::Stopping, vec![]), "{}", waits.reason);
        let mut late = Evidence { power: seen_power(Power::On, at(1_200)), ..seen.clone() };
        (late.node, late.pods) = (known(NodeView::Absent, at(1_200)), known(PodsView::default(), at(1_200)));
        let given_up = step(&waits.state, &late, at(1_200));
        assert_eq!(
            (given_up.state.phase(), calls(&given_up)),
            (Phase::Backoff, vec![]),
            "{}",
            given_up.reason
        );
    }
    // What a person asked for is done, whoever holds it.
    let mut asked = read(Phase::Idle, Power::On);
    asked.status.unexpected_on_since = Some(at(0));
    let mut seen = on(5);
    seen.settings.manual = Some(Switch::Off);
    seen.settings.hold = Some(held(90_000));
    let goes = step(&asked, &seen, at(5)).state;
    assert_eq!(goes.phase(), Phase::Stopping);
    let mut late = on(400);
    late.settings = seen.settings.clone();
    let mut waits = goes.clone();
    waits.op.as_mut().expect("an operation").pending = None;
    assert_eq!(calls(&step(&waits, &late, at(400))), [PowerCall::ForceOff { driver: 0 }]);
}

/// Who pressed the button stands before the machine, maybe with its case open: what was said before is overruled.
#[test]
fn a_machine_switched_off_although_it_was_wanted_on_stays_off() {
    let by_hand = |seen: &mut Evidence| seen.settings.manual = Some(Switch::On);
    let all_on = |seen: &mut Evidence| seen.freeze = Freeze::AllOn;
    let wishes: [&dyn Fn(&mut Evidence); 2] = [&by_hand, &all_on];
    for phase in [Phase::Serving, Phase::Degraded, Phase::Lost] {
        for (place, wish) in wishes.iter().enumerate() {
            let wished = |now: i64| {
                let mut seen = evidence(at(now));
                wish(&mut seen);
                seen
            };
            let off = step(&read(phase, Power::Off), &wished(5), at(5));
            assert_eq!((off.rule, off.state.phase()), (Rule::Drift(1), Phase::Idle), "{}", off.reason);
            // Not now, and not when the hour is over.
            let mut state = off.state;
            for now in [10, 1_800, 4_000, 90_000] {
                let stays = step(&state, &wished(now), at(now));
                assert_eq!((stays.state.phase(), calls(&stays)), (Phase::Idle, vec![]), "{}", stays.reason);
                assert!(stays.reason.contains("although it was wanted on"), "{}", stays.reason);
                state = stays.state;
            }
            let told = find_condition(&state.status.conditions, ConditionType::UnexpectedOff);
            assert!(
                told.is_some_and(|told| told.message.contains("acknowledged or asked for anew")),
                "{told:?}"
            );
            // Until it is acknowledged,
            let mut seen_to = wished(90_060);
            let ack = Acknowledgement { by: "ann".into(), reason: "new fan".into(), at: at(90_050) };
            seen_to.settings.acknowledgement = Some(ack);
            let done = step(&state, &seen_to, at(90_060));
            assert_eq!(done.state.phase(), Phase::Reserved, "{}", done.reason);
            // or something newer is said,
            let mut newer = wished(90_060);
            newer.freeze = Freeze::None;
            newer.settings.manual = Some(Switch::On);
            newer.settings.hold = Some(held(99_000));
            let done = step(&state, &newer, at(90_060));
            assert_eq!(done.state.phase(), Phase::Reserved, "{}", done.reason);
            // or the same once more, after it was taken back.
            let back = step(&state, &evidence(at(90_060)), at(90_060)).state;
            assert_eq!(back.phase(), Phase::Idle);
            let done = step(&back, &wished(90_120), at(90_120));
            assert_eq!(done.state.phase(), Phase::Reserved, "{place}: {}", done.reason);
            // Somebody switches it on again: nobody disagrees any more.
            let mut on_again = wished(90_060);
            on_again.power = seen_power(Power::On, at(90_060));
            let mut read_on = state.clone();
            read_on.status.power = reading(Power::On, 90_000);
            let done = step(&read_on, &on_again, at(90_060));
            assert_eq!((done.state.phase(), calls(&done)), (Phase::Reserved, vec![]), "{}", done.reason);
        }
    }
    // A pool that restarts its machines is asked first.
    let mut restarts = evidence(at(5));
    by_hand(&mut restarts);
    restarts.settings.policy.on_unexpected_off = muster_model::host::OnUnexpectedOff::Restart;
    let done = step(&read(Phase::Serving, Power::Off), &restarts, at(5));
    assert_eq!((done.state.phase(), &done.state.status.unexpected_off_despite), (Phase::Reserved, &None));
}

/// The same of a machine that nobody gets to know any more, and of one that was left on for a person.
#[test]
fn a_machine_left_on_for_a_person_and_switched_off_stays_off() {
    let wished = |now: i64| {
        let mut seen = evidence(at(now));
        seen.settings.manual = Some(Switch::On);
        seen
    };
    let stays = |state: &HostState| {
        assert!(is_true(&state.status.conditions, ConditionType::UnexpectedOff));
        let later = step(state, &wished(9_000), at(9_000));
        assert_eq!((later.state.phase(), calls(&later)), (Phase::Idle, vec![]), "{}", later.reason);
    };
    // It served, was lost and given up, and is off now.
    let mut lost = read(Phase::Backoff, Power::Off);
    lost.status.retry_at = Some(at(5));
    let served = BootProof { boot_id: Some("boot-1".into()), at: at(-900), by: BootProofBy::Lease };
    lost.status.boot_proof = Some(served);
    let off = step(&lost, &wished(5), at(5));
    assert_eq!((off.rule, off.state.phase()), (Rule::Row(27), Phase::Idle), "{}", off.reason);
    stays(&off.state);
    // Whoever has seen to it since it was given up knows that it is off.
    lost.status.acknowledged = Some(at(0));
    lost.status.state_since = at(-10);
    let off = step(&lost, &wished(5), at(5)).state;
    assert_eq!((off.phase(), off.status.held_until), (Phase::Idle, None));
    assert_eq!(step(&off, &wished(10), at(10)).state.phase(), Phase::Reserved);
    // What was said before that is about something else.
    lost.status.acknowledged = Some(at(-20));
    stays(&step(&lost, &wished(5), at(5)).state);
    // One that never came up is tried again.
    lost.status.boot_proof = None;
    let off = step(&lost, &wished(5), at(5)).state;
    assert_eq!(step(&off, &wished(10), at(10)).state.phase(), Phase::Reserved);
    for phase in [Phase::Powered, Phase::Booting, Phase::Joining] {
        let mut state = read(phase, Power::Off);
        state.status.power = reading(Power::Off, 800);
        state.status.deadline = Some(at(900));
        let off = step(&state, &wished(1_000), at(1_000));
        assert_eq!((off.rule, off.state.phase()), (Rule::Drift(1), Phase::Idle), "{phase}: {}", off.reason);
        stays(&off.state);
    }
}

/// A machine that is proved off, and then on without any call of ours, is in somebody's hands.
#[test]
fn a_machine_switched_on_after_it_was_proved_off_is_left_alone() {
    let mut state = read(Phase::Backoff, Power::Off);
    state.status.retry_at = Some(at(3_600));
    state.status.unexpected_on_since = Some(at(-9_000));
    state = step(&state, &evidence(at(60)), at(60)).state;
    assert_eq!((state.phase(), state.status.off_since), (Phase::Backoff, Some(at(60))));
    state = step(&state, &on(600), at(600)).state;
    assert_eq!(state.phase(), Phase::Backoff, "1 reading is not 2");
    let found = step(&state, &on(630), at(630));
    assert_eq!((found.rule, found.state.phase()), (Rule::Row(27), Phase::Idle), "{}", found.reason);
    assert!(is_true(&found.state.status.conditions, ConditionType::UnexpectedOn));
    assert_eq!(found.state.status.retry_at, Some(at(3_600)), "its pool leaves it in peace as long");
    let mut state = found.state;
    for now in [635, 2_400] {
        let left = step(&state, &on(now), at(now));
        assert_eq!((left.state.phase(), calls(&left)), (Phase::Idle, vec![]), "{}", left.reason);
        state = left.state;
    }
    // What was asked to go on by us, and was never proved off since, is switched off as ever.
    let mut ours = read(Phase::Backoff, Power::On);
    ours.status.retry_at = Some(at(600));
    assert_eq!(step(&ours, &on(600), at(600)).state.phase(), Phase::Stopping);
}

/// A wish finds a machine on that somebody switched on a while ago, to look at its firmware: it is used if its node joins.
#[test]
fn a_machine_that_was_on_already_is_left_alone_for_its_half_hour() {
    let wanted = |now: i64| {
        let mut seen = on(now);
        seen.intent = intent(Switch::On, "i-1");
        seen
    };
    let mut state = read(Phase::Reserved, Power::On);
    state.status.unexpected_on_since = Some(at(-600));
    let adopted = step(&state, &wanted(5), at(5)).state;
    assert_eq!((adopted.phase(), adopted.status.deadline), (Phase::Powered, Some(at(905))));
    // Its time to join ends within the half hour.
    let left = step(&adopted, &wanted(905), at(905));
    assert_eq!((left.state.phase(), calls(&left)), (Phase::Powered, vec![]), "{}", left.reason);
    assert!(left.reason.contains("left alone for 4m55s more"), "{}", left.reason);
    assert!(is_true(&left.state.status.conditions, ConditionType::UnexpectedOn));
    assert!(has(&left, &EffectKind::ReleaseReservation), "its pool takes another one");
    assert_eq!(left.state.status.failures, [], "nobody's attempt failed");
    let over = step(&left.state, &wanted(1_200), at(1_200));
    assert_eq!((over.rule, over.state.phase()), (Rule::Row(20), Phase::Stopping), "{}", over.reason);
    // The wish is withdrawn meanwhile.
    let unwanted = step(&adopted, &on(100), at(100));
    assert_eq!((unwanted.state.phase(), calls(&unwanted)), (Phase::Powered, vec![]), "{}", unwanted.reason);
    // Whoever was at work on it switches it off again: nobody's boot failed.
    let mut off_again = adopted.clone();
    off_again.status.power = reading(Power::Off, 100);
    let mut seen = wanted(300);
    seen.power = seen_power(Power::Off, at(300));
    let done = step(&off_again, &seen, at(300));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(1), Phase::Idle), "{}", done.reason);
    assert_eq!((done.state.status.held_until, done.state.status.failures.len()), (Some(at(3_900)), 0));
    // A person wants it off by now.
    let mut by_hand = on(100);
    by_hand.settings.manual = Some(Switch::Off);
    assert_eq!(step(&adopted, &by_hand, at(100)).rule, Rule::Row(12));
    // Nobody is at work on it any more.
    let mut long_ago = adopted;
    long_ago.status.unexpected_on_since = Some(at(-1_200));
    let done = step(&long_ago, &wanted(905), at(905));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(20), Phase::Stopping), "{}", done.reason);
    // It was off when it was claimed: its half hour begins with the reading.
    let fresh = step(&read(Phase::Reserved, Power::On), &wanted(5), at(5)).state;
    assert_eq!(fresh.status.unexpected_on_since, Some(at(5)));
}
