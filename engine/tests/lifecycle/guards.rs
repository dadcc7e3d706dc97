//! What keeps power where it is, whoever wants to take it by itself: a guarded node, and a pool of which much is lost.

use muster_engine::lifecycle::{Evidence, HostState, NodeView, Outcome, Performed, Rule, step};
use muster_model::{
    Known,
    host::{
        Cause, ConditionStatus, ConditionType, DriverKind, HostCondition, OnNodeDeleted, OnUnexpectedOn,
        Permission, Phase, Power, PowerCall, PowerReading, Quarantine, Switch, is_true,
    },
};

use crate::world::{at, calls, evidence, host, intent, known, node, seen_power};

const FORCE: PowerCall = PowerCall::ForceOff { driver: 0 };

/// A host in `phase` whose readings have said `power` since a minute before.
fn read(phase: Phase, power: Power) -> HostState {
    let mut state = host(phase);
    let reading = PowerReading { power, driver: DriverKind::Redfish, since: at(-60) };
    state.status.power = Known::Value { value: reading, at: at(-60) };
    state
}

/// On, with a node that went silent, no pods but those of daemons, and everything allowed that takes power.
fn hangs(now: i64) -> Evidence {
    let mut away = node(at(now - 200));
    away.ready = false;
    let mut seen = Evidence { power: seen_power(Power::On, at(now)), ..evidence(at(now)) };
    seen.node = known(NodeView::Present(away), at(now));
    seen.settings.policy.cycle_lost = Permission::Allowed;
    seen.settings.policy.on_node_deleted = OnNodeDeleted::StandDown;
    seen.settings.policy.on_unexpected_on = OnUnexpectedOn::EnforceOff;
    seen
}

fn guarded(mut seen: Evidence) -> Evidence {
    let guarded = Some("Muster itself runs there".to_owned());
    if let Known::Value { value, .. } = &mut seen.pods {
        value.guarded = guarded;
    }
    seen
}

/// Acted on without the guard, and left with power by it.
#[track_caller]
fn keeps_power(state: &HostState, seen: Evidence, now: i64) {
    let free = step(state, &seen, at(now));
    let takes = |done: &muster_engine::lifecycle::Step| {
        done.effects.iter().any(|effect| effect.kind.is_destructive())
            || (done.moved() && matches!(done.state.phase(), Phase::Drained | Phase::Stopping))
    };
    assert!(takes(&free), "nothing is taken anyhow: {}", free.reason);
    let kept = step(state, &guarded(seen), at(now));
    assert!(!takes(&kept), "{}", kept.reason);
}

/// OPS-F22: whatever becomes of the kubelet, what Muster or its store runs on keeps its power.
#[test]
fn ops_f22_nothing_takes_power_from_a_guarded_node() {
    let mut lost = read(Phase::Lost, Power::On);
    lost.status.deadline = Some(at(900));
    keeps_power(&lost, hangs(5), 5);
    let mut deleted = hangs(5);
    deleted.node = known(NodeView::Absent, at(5));
    keeps_power(&lost, deleted, 5);
    let mut backing = read(Phase::Backoff, Power::On);
    backing.status.retry_at = Some(at(60));
    keeps_power(&backing, hangs(60), 60);
    for phase in [Phase::Powered, Phase::Booting, Phase::Joining] {
        let mut booting = read(phase, Power::On);
        booting.status.deadline = Some(at(900));
        keeps_power(&booting, hangs(900), 900);
        let failed = step(&booting, &guarded(hangs(900)), at(900));
        assert_eq!((failed.rule, failed.state.phase()), (Rule::Row(21), Phase::Backoff), "{}", failed.reason);
        // Nobody wants it any more.
        keeps_power(&booting, hangs(60), 60);
    }
    let mut stopping = read(Phase::Stopping, Power::On);
    stopping.status.deadline = Some(at(300));
    stopping.op.as_mut().expect("an operation").asked_off_at = Some(at(0));
    keeps_power(&stopping, hangs(300), 300);
    let mut forcing = read(Phase::ForcingOff, Power::On);
    forcing.status.deadline = Some(at(120));
    let op = forcing.op.as_mut().expect("an operation");
    (op.force_offs, op.last_sent_at) = (1, Some(at(0)));
    keeps_power(&forcing, hangs(70), 70);
    let mut idle = read(Phase::Idle, Power::On);
    idle.status.unexpected_on_since = Some(at(-1_800));
    keeps_power(&idle, hangs(5), 5);
    // It is not switched on either to see whether it could be switched off.
    let mut aside = read(Phase::Quarantined, Power::Off);
    let (since, probation_at) = (at(-90_000), at(0));
    aside.status.quarantine =
        Some(Quarantine { since, reason: "NodeLost".into(), probation_at, failed_tests: 0 });
    assert_eq!(calls(&step(&aside, &evidence(at(5)), at(5))).len(), 1);
    assert_eq!(calls(&step(&aside, &guarded(evidence(at(5))), at(5))), []);
}

/// The story of a host whose kubelet hangs for a day: given up, looked at again and again, and on until it is back.
#[test]
fn ops_f22_a_guarded_host_that_hangs_is_waited_for() {
    let mut state = read(Phase::Serving, Power::On);
    for minute in 1..1_440 {
        let now = minute * 60;
        let done = step(&state, &guarded(hangs(now)), at(now));
        assert_eq!(calls(&done), [], "{}", done.reason);
        state = done.state;
    }
    assert_eq!(state.phase(), Phase::Backoff);
    let mut back = guarded(hangs(90_000));
    back.node = known(NodeView::Present(node(at(90_000))), at(90_000));
    let done = step(&state, &back, at(90_000));
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(27), Phase::Serving), "{}", done.reason);
}

/// Right in front of the call the newest view shows a guard: the node takes pods again, and says why.
#[test]
fn a_guard_that_is_seen_in_front_of_the_call_ends_the_drain() {
    let mut state = read(Phase::Drained, Power::On);
    state.status.deadline = Some(at(900));
    state.op.as_mut().expect("an operation").drain_deadline = Some(at(900));
    let mut seen = hangs(5);
    seen.intent = intent(Switch::Off, "i-1");
    seen.node = known(NodeView::Present(node(at(5))), at(5));
    let asked = step(&state, &seen, at(5));
    assert_eq!(asked.state.phase(), Phase::Stopping, "{}", asked.reason);
    let mut held = guarded(seen);
    let outcome =
        Outcome::HeldBack { reason: "NodeGuarded", why: "its node stays: Muster itself runs there".into() };
    held.performed = Performed::Ended { op: "h1-1".into(), seq: 1, outcome };
    let back = step(&asked.state, &held, at(6));
    assert_eq!((back.rule, back.state.phase()), (Rule::Row(19), Phase::Serving), "{}", back.reason);
    let told = muster_model::host::find_condition(&back.state.status.conditions, ConditionType::DrainBlocked);
    assert_eq!(told.map(|told| told.reason.as_str()), Some("NodeGuarded"));
}

fn stopped(mut seen: Evidence) -> Evidence {
    seen.pool.repairs_stopped = Some("20 of 20 hosts of pool gpu are lost".into());
    seen
}

fn given_up() -> HostState {
    let mut state = read(Phase::Backoff, Power::On);
    state.status.retry_at = Some(at(60));
    state.status.conditions = vec![HostCondition {
        kind: ConditionType::NodeLost,
        status: ConditionStatus::True,
        reason: "NotReady".into(),
        message: String::new(),
        last_transition_time: at(0),
        observed_generation: 1,
    }];
    state
}

/// OPS-R14: where much of a pool is lost, what is lost is not the hosts.
#[test]
fn ops_r14_lost_hosts_are_not_switched_off_while_much_of_their_pool_is_lost() {
    let dark = step(&given_up(), &stopped(hangs(60)), at(60));
    assert_eq!((dark.rule, dark.state.phase()), (Rule::Row(27), Phase::Backoff), "{}", dark.reason);
    assert_eq!(calls(&dark), []);
    assert!(dark.reason.contains("20 of 20 hosts of pool gpu are lost"), "{}", dark.reason);
    // The others are back: it has its time to come back, too, and serves as soon as it is.
    let soon = step(&dark.state, &hangs(120), at(120));
    assert_eq!((soon.state.phase(), calls(&soon)), (Phase::Backoff, vec![]), "{}", soon.reason);
    let mut back = hangs(130);
    back.node = known(NodeView::Present(node(at(130))), at(130));
    let serves = step(&soon.state, &back, at(130));
    assert_eq!((serves.rule, serves.state.phase()), (Rule::Row(27), Phase::Serving), "{}", serves.reason);
    assert!(!is_true(&serves.state.status.conditions, ConditionType::NodeLost));
    assert_eq!(step(&soon.state, &hangs(960), at(960)).state.phase(), Phase::Stopping);
    // A switch-off under way stops where it stands.
    let began = step(&given_up(), &hangs(60), at(60)).state;
    assert_eq!(
        (began.phase(), began.op.as_ref().map(|op| &op.cause)),
        (Phase::Stopping, Some(&Cause::Recovery))
    );
    assert_eq!(calls(&step(&began, &hangs(65), at(65))), [FORCE]);
    let waits = step(&began, &stopped(hangs(65)), at(65));
    assert_eq!((waits.state.phase(), calls(&waits)), (Phase::Stopping, vec![]), "{}", waits.reason);
    // What a person wants is done.
    let mut by_hand = stopped(hangs(60));
    by_hand.settings.manual = Some(Switch::Off);
    let goes = step(&given_up(), &by_hand, at(60)).state;
    assert_eq!(goes.phase(), Phase::Stopping);
    let mut next = stopped(hangs(65));
    next.settings.manual = Some(Switch::Off);
    assert_eq!(calls(&step(&goes, &next, at(65))), [FORCE]);
    // Somebody deleted many nodes at once.
    let mut deleted = hangs(5);
    deleted.node = known(NodeView::Absent, at(5));
    deleted.settings.policy.cycle_lost = Permission::Refused;
    let mut lost = read(Phase::Lost, Power::On);
    lost.status.deadline = Some(at(900));
    assert_eq!(step(&lost, &deleted, at(5)).state.phase(), Phase::Stopping);
    assert_eq!(step(&lost, &stopped(deleted), at(5)).state.phase(), Phase::Lost);
}

/// A system that hangs on its way off, at a BMC that says so: its power is cut as that of any other.
#[test]
fn row_23_a_machine_that_hangs_on_its_way_off_is_forced() {
    let off = |now: i64| {
        let mut seen = hangs(now);
        seen.power = seen_power(Power::TurningOff, at(now));
        seen
    };
    for since in [10, -60] {
        // For less, and for more, than a BMC may take to turn.
        let mut state = read(Phase::Stopping, Power::TurningOff);
        let reading =
            PowerReading { power: Power::TurningOff, driver: DriverKind::Redfish, since: at(since) };
        state.status.power = Known::Value { value: reading, at: at(since) };
        state.status.deadline = Some(at(300));
        let op = state.op.as_mut().expect("an operation");
        (op.asked_off_at, op.os_seen) = (Some(at(0)), true);
        assert_eq!(calls(&step(&state, &off(299), at(299))), [], "it has its time");
        let forced = step(&state, &off(300), at(300));
        assert_eq!((forced.rule, calls(&forced)), (Rule::Row(23), vec![FORCE]), "{}", forced.reason);
        let expects = forced.effects.iter().find_map(|effect| effect.expects);
        assert_eq!(expects, Some(Power::TurningOff), "what is read right before the call");
        // Whoever died in front of it asks again, and once more after a minute.
        let repeated = step(&forced.state, &off(310), at(310));
        assert_eq!(calls(&repeated), [FORCE], "{}", repeated.reason);
        let mut ended = off(360);
        ended.performed = Performed::Ended { op: "h1-1".into(), seq: 1, outcome: Outcome::Accepted };
        let again = step(&repeated.state, &ended, at(360));
        assert_eq!(calls(&again), [PowerCall::ForceOff { driver: 1 }], "{}", again.reason);
        // Not over pods that nobody knows of, and not without force.
        let mut unsure = off(300);
        unsure.pods = Known::Unknown { why: "silence".into(), since: at(300) };
        assert_eq!(calls(&step(&state, &unsure, at(300))), []);
        let mut soft = off(300);
        soft.settings.policy.force_off = Permission::Refused;
        assert_eq!(calls(&step(&state, &soft, at(300))), []);
        // Nobody asked it to go: what a BMC says for ever is nothing.
        let mut unasked = state.clone();
        unasked.op.as_mut().expect("an operation").asked_off_at = None;
        assert_eq!(calls(&step(&unasked, &off(400), at(400))), []);
    }
}
