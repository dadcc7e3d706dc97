//! The drift matrix, cell by cell, and the policies that choose the reaction.

use muster_engine::lifecycle::{
    DriverView, EffectKind, Evidence, HostState, NodeView, Outcome, Performed, PodsView, PowerSeen, Rule,
    TroubleClass, step,
};
use muster_model::{
    Known,
    host::{
        ConditionStatus, ConditionType, DriverKind, Hold, Intent, OnNodeDeleted, OnUnexpectedOff,
        OnUnexpectedOn, OtherReading, Permission, Phase, Power, PowerCall, PowerReading, PublicPower, Switch,
        find_condition, is_true,
    },
};

use crate::world::{at, calls, evidence, has, host, intent, known, node, seen_power, trouble, unknown};

/// A host in `phase` whose consecutive readings have said `power` since a minute.
fn read(phase: Phase, power: Power) -> muster_engine::lifecycle::HostState {
    let mut state = host(phase);
    let reading = PowerReading { power, driver: DriverKind::Redfish, since: at(-60) };
    state.status.power = Known::Value { value: reading, at: at(-60) };
    state
}

fn stale_node(now: i64) -> Known<NodeView> {
    known(NodeView::Present(node(at(now - 60))), at(now))
}

/// An API server that is away is no sign that its nodes are.
#[test]
fn ops_f16_a_lost_host_is_not_given_up_while_its_cluster_is_silent() {
    let mut state = host(Phase::Lost);
    state.status.deadline = Some(at(600));
    let mut seen = evidence(at(3_600));
    seen.node = unknown(at(3_600));
    assert_eq!(step(&state, &seen, at(3_600)).state.phase(), Phase::Lost);
    seen.node = known(NodeView::Absent, at(3_600));
    assert_ne!(step(&state, &seen, at(3_600)).state.phase(), Phase::Lost);
}

#[test]
fn cell_1_switched_off_by_hand_is_held() {
    for phase in [Phase::Serving, Phase::Degraded, Phase::Lost, Phase::Cordoned, Phase::Evicting] {
        let mut seen = evidence(at(5));
        seen.node = stale_node(5);
        seen.intent = intent(Switch::On, "i-1");
        let done = step(&read(phase, Power::Off), &seen, at(5));
        assert_eq!(
            (done.rule, done.state.phase()),
            (Rule::Drift(1), Phase::Idle),
            "{phase}: {}",
            done.reason
        );
        assert!(is_true(&done.state.status.conditions, ConditionType::UnexpectedOff));
        assert!(has(&done, &EffectKind::ReleaseReservation), "its pool replaces it");
        assert_eq!(done.state.status.held_until, Some(at(3605)));
        // A new wish does not wake it before the hold ends.
        let mut again = evidence(at(1800));
        again.intent = intent(Switch::On, "i-2");
        assert_eq!(step(&done.state, &again, at(1800)).state.phase(), Phase::Idle);
        let mut after = evidence(at(3606));
        after.intent = intent(Switch::On, "i-2").map(|intent| Intent { at: at(3600), ..intent });
        assert_eq!(step(&done.state, &after, at(3606)).state.phase(), Phase::Reserved);
        // A person may, at any time.
        let mut by_hand = evidence(at(30));
        by_hand.settings.manual = Some(Switch::On);
        assert_eq!(step(&done.state, &by_hand, at(30)).state.phase(), Phase::Reserved);
    }
}

#[test]
fn cell_1_restart_and_adopt_are_options() {
    let mut seen = evidence(at(5));
    seen.node = stale_node(5);
    seen.intent = intent(Switch::On, "i-1");
    seen.settings.policy.on_unexpected_off = OnUnexpectedOff::Restart;
    let done = step(&read(Phase::Serving, Power::Off), &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(1), Phase::Reserved));
    // Nobody's wish is needed for it to go on.
    let mut alone = evidence(at(6));
    alone.settings.policy.on_unexpected_off = OnUnexpectedOff::Restart;
    let next = step(&done.state, &alone, at(6));
    assert_eq!(next.state.phase(), Phase::PreparingBoot, "{}", next.reason);
    let next = step(&next.state, &alone, at(6));
    assert_eq!(next.state.phase(), Phase::PowerRequested, "{}", next.reason);
    assert_eq!(calls(&next).len(), 1);
    alone.settings.hold = Some(Hold { by: "ann".into(), reason: "fan".into(), until: None });
    assert_eq!(step(&done.state, &alone, at(6)).state.phase(), Phase::Idle, "a hold starts nothing");
    seen.settings.policy.on_unexpected_off = OnUnexpectedOff::Adopt;
    let done = step(&read(Phase::Serving, Power::Off), &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(1), Phase::Idle));
    assert_eq!(done.state.status.held_until, None);
    // Restart gives way to the wear limits.
    seen.settings.policy.on_unexpected_off = OnUnexpectedOff::Restart;
    let mut worn = read(Phase::Serving, Power::Off);
    worn.status.starts = vec![at(-60)];
    assert!(step(&worn, &seen, at(5)).state.status.held_until.is_some());
}

#[test]
fn cell_1_pods_of_a_machine_that_is_proved_off_are_freed() {
    let mut seen = evidence(at(5));
    seen.node = stale_node(5);
    seen.pods = known(PodsView { evictable: 2, ..PodsView::default() }, at(5));
    let done = step(&read(Phase::Serving, Power::Off), &seen, at(5));
    assert!(has(&done, &EffectKind::OutOfServiceTaint));
    seen.settings.policy.out_of_service = Permission::Refused;
    assert!(!has(&step(&read(Phase::Serving, Power::Off), &seen, at(5)), &EffectKind::OutOfServiceTaint));
}

#[test]
fn cell_2_a_fresh_lease_outweighs_a_bmc_that_says_off() {
    for phase in [Phase::Serving, Phase::Degraded] {
        let mut seen = evidence(at(5));
        seen.node = known(NodeView::Present(node(at(5))), at(5));
        seen.pods = known(PodsView { evictable: 2, ..PodsView::default() }, at(5));
        seen.intent = intent(Switch::Off, "i-1");
        let mut state = read(phase, Power::Off);
        state.status.serving_since = Some(at(-9000));
        let done = step(&state, &seen, at(5));
        assert!(matches!(done.state.phase(), Phase::Serving), "{}", done.reason);
        assert!(is_true(&done.state.status.conditions, ConditionType::PowerReadingDisagrees));
        assert!(has(&done, &EffectKind::Probe { driver: Some(1) }), "the second driver is asked");
        assert!(
            !done
                .effects
                .iter()
                .any(|effect| effect.kind.is_destructive() || effect.kind == EffectKind::Cordon)
        );
    }
}

/// Of a host whose lease is fresh, with 2 pods, and that is to be stood down: `driver` reads `power`.
fn lives(now: i64, driver: DriverKind, power: Power) -> Evidence {
    let mut seen = evidence(at(now));
    seen.power = known(PowerSeen { power, driver }, at(now));
    seen.node = known(NodeView::Present(node(at(now))), at(now));
    seen.pods = known(PodsView { evictable: 2, ..PodsView::default() }, at(now));
    seen.intent = intent(Switch::Off, "i-1").map(|intent| Intent { at: at(now), ..intent });
    seen
}

#[test]
fn cell_2_the_other_driver_is_asked_once_and_ends_nothing() {
    use DriverKind::{Ipmi, Redfish};
    #[track_caller]
    fn check(state: &mut HostState, seen: &Evidence, now: i64, asks: bool, told: &str) {
        let done = step(state, seen, at(now));
        assert_eq!(done.state.phase(), Phase::Serving, "{}", done.reason);
        assert_eq!(has(&done, &EffectKind::Probe { driver: Some(1) }), asks, "at {now}");
        assert!(!has(&done, &EffectKind::Cordon), "not picked for removal at {now}: {}", done.reason);
        let found = find_condition(&done.state.status.conditions, ConditionType::PowerReadingDisagrees);
        let found = found.expect("a condition");
        assert_eq!((found.status, found.message.as_str()), (ConditionStatus::True, told), "at {now}");
        *state = done.state;
    }
    let off = "redfish says off while the kubelet keeps renewing its lease";
    let mut state = read(Phase::Serving, Power::Off);
    state.status.serving_since = Some(at(-9000));
    check(&mut state, &lives(5, Redfish, Power::Off), 5, true, off);
    // A process that dies before it has the answer asks again.
    check(&mut state, &lives(6, Redfish, Power::Off), 6, true, off);
    let mut answered = lives(7, Redfish, Power::Off);
    answered.second = Some(OtherReading { driver: Ipmi, said: Some(Power::On) });
    let both = format!("{off}; ipmi says on");
    check(&mut state, &answered, 7, false, &both);
    check(&mut state, &lives(67, Redfish, Power::Off), 67, false, &both);
    assert_eq!(state.status.power_state, PublicPower::Off, "the answer is no reading");
    // Read through the other driver because the first is silent, or through nobody: nothing is settled.
    check(&mut state, &lives(127, Ipmi, Power::On), 127, false, &both);
    let mut hidden = lives(187, Redfish, Power::Off);
    hidden.node = unknown(at(187));
    check(&mut state, &hidden, 187, false, &both);
    // The one that said off reads up: it may go.
    let done = step(&state, &lives(247, Redfish, Power::On), at(247));
    assert!(!is_true(&done.state.status.conditions, ConditionType::PowerReadingDisagrees));
    assert_eq!(done.state.phase(), Phase::Cordoned, "{}", done.reason);
    // The lease stops: off is proved, and nothing contradicts it any more.
    let mut gone = lives(247, Redfish, Power::Off);
    gone.node = stale_node(247);
    let mut twice = state.clone();
    let reading = PowerReading { power: Power::Off, driver: Redfish, since: at(187) };
    twice.status.power = Known::Value { value: reading, at: at(187) };
    let done = step(&twice, &gone, at(247));
    assert_eq!(done.state.phase(), Phase::Idle, "{}", done.reason);
    assert!(!is_true(&done.state.status.conditions, ConditionType::PowerReadingDisagrees));
}

#[test]
fn cell_2_an_other_driver_that_is_silent_is_said_and_degrades_nothing() {
    let mut state = read(Phase::Serving, Power::Off);
    let mut seen = lives(5, DriverKind::Redfish, Power::Off);
    state = step(&state, &seen, at(5)).state;
    seen.second = Some(OtherReading { driver: DriverKind::Ipmi, said: None });
    let done = step(&state, &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Wait, Phase::Serving), "{}", done.reason);
    let found = find_condition(&done.state.status.conditions, ConditionType::PowerReadingDisagrees);
    assert!(found.is_some_and(|one| one.message.ends_with("; ipmi gives no answer")), "{found:?}");
    assert!(done.state.status.bmc_reachable);
}

#[test]
fn cell_3_on_and_not_ready_is_row_15() {
    let mut state = read(Phase::Serving, Power::On);
    state.status.not_ready_since = Some(at(-120));
    let mut seen = evidence(at(5));
    seen.power = seen_power(Power::On, at(5));
    seen.node = stale_node(5);
    let done = step(&state, &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(15), Phase::Lost));
}

#[test]
fn cell_4_bmc_down_and_node_fine_is_row_14() {
    let mut seen = evidence(at(5));
    seen.power = unknown(at(5));
    seen.bmc = trouble(TroubleClass::Unreachable, 9, at(5));
    seen.node = known(NodeView::Present(node(at(5))), at(5));
    let done = step(&read(Phase::Serving, Power::On), &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(14), Phase::Degraded));
}

#[test]
fn cell_5_nothing_answers_is_lost_and_never_fenced() {
    let mut state = read(Phase::Serving, Power::On);
    state.status.not_ready_since = Some(at(-120));
    let mut seen = evidence(at(5));
    seen.power = unknown(at(5));
    seen.bmc = trouble(TroubleClass::Unreachable, 9, at(5));
    seen.node = stale_node(5);
    seen.pods = known(PodsView { evictable: 4, ..PodsView::default() }, at(5));
    seen.settings.policy.cycle_lost = Permission::Allowed;
    let done = step(&state, &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(5), Phase::Lost));
    let mut later = seen.clone();
    later.node = stale_node(5000);
    later.pods = known(PodsView { evictable: 4, ..PodsView::default() }, at(5000));
    let given_up = step(&done.state, &later, at(5000));
    assert_eq!(given_up.state.phase(), Phase::Backoff);
    assert!(!has(&given_up, &EffectKind::OutOfServiceTaint) && calls(&given_up).is_empty());
}

#[test]
fn cell_6_switched_on_by_hand_is_left_alone_for_half_an_hour() {
    let mut seen = evidence(at(5));
    seen.power = seen_power(Power::On, at(5));
    let done = step(&read(Phase::Idle, Power::On), &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(6), Phase::Idle));
    assert!(is_true(&done.state.status.conditions, ConditionType::UnexpectedOn));
    assert_eq!(calls(&done), []);
    for (policy, phase) in
        [(OnUnexpectedOn::Adopt, Phase::Idle), (OnUnexpectedOn::EnforceOff, Phase::Stopping)]
    {
        let mut late = evidence(at(1805));
        late.power = seen_power(Power::On, at(1805));
        late.settings.policy.on_unexpected_on = policy;
        let done = step(&done.state, &late, at(1805));
        assert_eq!((done.rule, done.state.phase()), (Rule::Drift(6), phase));
        if policy == OnUnexpectedOn::EnforceOff {
            assert_eq!(calls(&done), [PowerCall::GracefulOff { driver: 0 }]);
            late.performed = Performed::Ended { op: "h1-2".into(), seq: 1, outcome: Outcome::Accepted };
            let next = step(&done.state, &late, at(1805));
            assert_eq!(
                (next.state.phase(), calls(&next)),
                (Phase::Stopping, vec![]),
                "it has its time for that"
            );
        }
    }
    // A person who wants it off gets that now, as soon as nobody can be on it.
    let enrolled = step(&read(Phase::Enrolling, Power::On), &seen, at(5)).state;
    for from in [done.state.clone(), enrolled] {
        let mut by_hand = evidence(at(10));
        by_hand.power = seen_power(Power::On, at(10));
        by_hand.settings.manual = Some(Switch::Off);
        by_hand.pods = unknown(at(10));
        let waits = step(&from, &by_hand, at(10));
        assert_eq!((waits.state.phase(), calls(&waits)), (from.phase(), vec![]), "{}", waits.reason);
        by_hand.pods = known(PodsView::default(), at(10));
        let goes = step(&from, &by_hand, at(10));
        assert_eq!((goes.rule, goes.state.phase()), (Rule::Drift(6), Phase::Stopping), "{}", goes.reason);
        assert_eq!(calls(&goes), [PowerCall::GracefulOff { driver: 0 }]);
    }
    // Who pressed the button nevertheless knew what was said before, and is not fought; what is said from then on counts.
    for from in [Phase::Idle, Phase::Enrolling] {
        let mut despite = seen.clone();
        despite.settings.manual = Some(Switch::Off);
        let left = step(&read(from, Power::On), &despite, at(5));
        assert_eq!((left.state.phase(), calls(&left)), (from, vec![]), "{}", left.reason);
        let mut still = despite.clone();
        still.power = seen_power(Power::On, at(10));
        let left = step(&left.state, &still, at(10));
        assert_eq!((left.state.phase(), calls(&left)), (from, vec![]), "{}", left.reason);
        still.settings.hold = Some(Hold { by: "ann".into(), reason: "smoke".into(), until: None });
        let goes = step(&left.state, &still, at(10));
        assert_eq!(goes.state.phase(), Phase::Stopping, "{}", goes.reason);
        let mut none = seen.clone();
        none.power = seen_power(Power::On, at(10));
        let released = step(&left.state, &none, at(10)).state;
        none.settings.manual = Some(Switch::Off);
        assert_eq!(
            step(&released, &none, at(10)).state.phase(),
            Phase::Stopping,
            "withdrawn, and said again"
        );
    }
    // Never while anyone could still be on it.
    let mut late = evidence(at(1805));
    late.power = seen_power(Power::On, at(1805));
    late.settings.policy.on_unexpected_on = OnUnexpectedOn::EnforceOff;
    late.pods = unknown(at(1805));
    assert_eq!(calls(&step(&done.state, &late, at(1805))), []);
}

#[test]
fn cell_7_switched_on_by_hand_and_joined_is_adopted() {
    let mut seen = evidence(at(5));
    seen.power = seen_power(Power::On, at(5));
    seen.node = known(NodeView::Present(node(at(5))), at(5));
    let done = step(&read(Phase::Idle, Power::On), &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(7), Phase::Serving));
    seen.pool.below_max = false;
    let done = step(&read(Phase::Idle, Power::On), &seen, at(5));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(7), Phase::Degraded));
    assert!(has(&done, &EffectKind::Cordon));
    assert_eq!(calls(&done), [], "never switched off at once");
    // Room in the pool makes it serve.
    let mut room = evidence(at(60));
    room.power = seen_power(Power::On, at(60));
    let mut cordoned = node(at(60));
    cordoned.cordon = muster_engine::lifecycle::Cordon::Ours { op: "h1-surplus".into() };
    room.node = known(NodeView::Present(cordoned), at(60));
    let surplus = done.state;
    let done = step(&surplus, &room, at(60));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(14), Phase::Serving));
    assert!(has(&done, &EffectKind::Uncordon));
    // One that was lost in between and is back is still one too many, or is not any more.
    let mut back = surplus.clone();
    (back.status.phase, back.status.state) = (Phase::Serving, Phase::Serving.state());
    let done = step(&back, &room, at(60));
    assert_eq!(done.state.phase(), Phase::Serving);
    assert!(has(&done, &EffectKind::Uncordon), "no cordon of ours stays on a node that serves");
    assert!(!is_true(&done.state.status.conditions, ConditionType::Surplus));
    room.pool.below_max = false;
    let done = step(&back, &room, at(60));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(14), Phase::Degraded));
    assert!(!has(&done, &EffectKind::Uncordon));
}

#[test]
fn cell_8_a_bmc_that_is_turning_for_ever_says_nothing() {
    for power in [Power::TurningOn, Power::TurningOff] {
        for phase in Phase::ALL {
            let mut state = read(phase, power);
            let reading = PowerReading { power, driver: DriverKind::Redfish, since: at(-400) };
            state.status.power = Known::Value { value: reading, at: at(-400) };
            let mut seen = evidence(at(5));
            seen.power = seen_power(power, at(5));
            seen.intent = intent(Switch::On, "i-1");
            let done = step(&state, &seen, at(5));
            assert_eq!(calls(&done), [], "{phase}: {}", done.reason);
            assert!(is_true(&done.state.status.conditions, ConditionType::BmcStuck));
        }
    }
    // Restarted only where that is allowed, and once a day.
    let mut state = read(Phase::Idle, Power::TurningOn);
    let reading = PowerReading { power: Power::TurningOn, driver: DriverKind::Redfish, since: at(-400) };
    state.status.power = Known::Value { value: reading, at: at(-400) };
    let mut seen = evidence(at(5));
    seen.power = seen_power(Power::TurningOn, at(5));
    seen.settings.policy.reset_bmc = Permission::Allowed;
    let done = step(&state, &seen, at(5));
    assert_eq!(calls(&done), [PowerCall::ResetBmc { driver: 0 }]);
    assert_eq!(calls(&step(&done.state, &seen, at(10))), []);
    // By whichever driver speaks to a BMC, and by none where there is none.
    let mut check = |kinds: &[DriverKind], expected: &[PowerCall]| {
        seen.settings.drivers = kinds.iter().map(|kind| DriverView::full(*kind)).collect();
        assert_eq!(calls(&step(&state, &seen, at(5))), expected, "{kinds:?}");
    };
    check(&[DriverKind::Webhook, DriverKind::Ipmi], &[PowerCall::ResetBmc { driver: 1 }]);
    check(&[DriverKind::Ipmi], &[PowerCall::ResetBmc { driver: 0 }]);
    check(&[DriverKind::Webhook], &[]);
}

#[test]
fn cell_9_a_deleted_node_is_said_at_once_and_stood_down_only_where_its_pool_says_so() {
    let away = |length: i64| {
        let mut seen = evidence(at(length));
        seen.intent = intent(Switch::On, "i-9");
        seen.power = seen_power(Power::On, at(length));
        seen.node = known(NodeView::Absent, at(length));
        seen
    };
    let done = step(&read(Phase::Serving, Power::On), &away(30), at(30));
    assert_eq!(done.state.phase(), Phase::Serving);
    assert!(is_true(&done.state.status.conditions, ConditionType::NodeLost), "it is said at once");
    let gone = done.state;
    let done = step(&gone, &away(300), at(300));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(15), Phase::Lost), "by default it is waited for");
    let mut seen = away(300);
    seen.settings.policy.on_node_deleted = OnNodeDeleted::StandDown;
    let done = step(&gone, &seen, at(300));
    assert_eq!((done.rule, done.state.phase()), (Rule::Drift(9), Phase::Stopping));
    // Somebody may still run there.
    seen.pods = known(PodsView { evictable: 1, ..PodsView::default() }, at(300));
    assert_eq!(step(&gone, &seen, at(300)).state.phase(), Phase::Lost);
    // Back again: taken back.
    let mut back = evidence(at(40));
    back.power = seen_power(Power::On, at(40));
    back.node = known(NodeView::Present(node(at(40))), at(40));
    assert!(!is_true(&step(&gone, &back, at(40)).state.status.conditions, ConditionType::NodeLost));
}
