//! Power calls that were announced and could not leave: for want of a lease that is long enough, or of pods that anybody
//! knows. Whoever takes them for sent would cut the power of a machine that was never asked to go.

use muster_engine::lifecycle::{Evidence, HostState, Leadership, Outcome, Performed, step};
use muster_model::{
    Duration,
    host::{OnReset, Phase, Power, PowerAction, PowerCall, Switch},
};

use crate::{
    rows::{check, wanted_off, with_deadline},
    world::{at, calls, evidence, intent, seen_power, unknown},
};

const GRACEFUL: PowerCall = PowerCall::GracefulOff { driver: 0 };

fn with_lease(mut seen: Evidence, secs: u64) -> Evidence {
    seen.leadership = Leadership::Leader { epoch: 7, lease_left: Duration::from_secs(secs) };
    seen
}

/// Drained, and asked to shut down: the call is announced and nobody knows more of it.
fn asked() -> HostState {
    let mut state = with_deadline(Phase::Drained, 900);
    state.op.as_mut().expect("an operation").drain_deadline = Some(at(900));
    let asked = step(&state, &wanted_off(at(5)), at(5));
    check(&asked, 22, Phase::Stopping);
    assert_eq!(calls(&asked), [GRACEFUL]);
    asked.state
}

#[test]
fn a_shutdown_that_could_not_leave_is_asked_for_once_it_can() {
    let state = asked();
    let waits = step(&state, &with_lease(wanted_off(at(10)), 10), at(10));
    assert_eq!((calls(&waits).len(), waits.state.status.phase), (0, Phase::Stopping), "{}", waits.reason);
    assert_eq!(waits.state.op, state.op, "it stays announced as it was");
    let repeated = step(&waits.state, &wanted_off(at(15)), at(15));
    assert_eq!(calls(&repeated), [GRACEFUL], "{}", repeated.reason);
    let pending = |state: &HostState| state.op.as_ref().and_then(|op| op.pending.as_ref().map(|one| one.seq));
    assert_eq!(pending(&repeated.state), Some(1), "under its number");
    assert_eq!(repeated.state.status.deadline, Some(at(305)), "by the deadline that was stored");
}

#[test]
fn a_machine_that_may_never_have_been_asked_is_asked_before_it_is_forced() {
    let state = asked();
    let mut blind = wanted_off(at(290));
    blind.pods = unknown(at(290));
    let waits = step(&state, &blind, at(290));
    assert_eq!(calls(&waits), []);
    // Its time ran out meanwhile, and now calls may leave.
    let late = step(&waits.state, &wanted_off(at(310)), at(310));
    assert_eq!(calls(&late), [GRACEFUL], "{}", late.reason);
    assert_eq!(late.state.status.phase, Phase::Stopping);
    assert_eq!(late.state.status.deadline, Some(at(610)), "all of the time to shut down");
    // Once it was asked, its time ends it.
    let mut seen = wanted_off(at(611));
    seen.performed = Performed::Ended { op: "h1-1".into(), seq: 1, outcome: Outcome::Accepted };
    let forced = step(&late.state, &seen, at(611));
    check(&forced, 23, Phase::ForcingOff);
    assert_eq!(calls(&forced), [PowerCall::ForceOff { driver: 0 }]);
}

#[test]
fn a_power_on_that_could_not_leave_costs_no_attempt() {
    let on = PowerCall::PowerOn { driver: 0, reset: OnReset::On };
    let off = |now| {
        let mut seen = evidence(at(now));
        seen.intent = intent(Switch::On, "i-1");
        seen
    };
    let asked = step(&with_deadline(Phase::PreparingBoot, 180), &off(5), at(5));
    check(&asked, 7, Phase::PowerRequested);
    assert_eq!(calls(&asked), [on]);
    let waits = step(&asked.state, &with_lease(off(20), 3), at(20));
    assert_eq!((calls(&waits).len(), &waits.state.op), (0, &asked.state.op), "{}", waits.reason);
    let repeated = step(&waits.state, &off(30), at(30));
    assert_eq!(calls(&repeated), [on], "{}", repeated.reason);
    assert_eq!(repeated.state.op.map(|op| op.attempts), Some(1));
}

#[test]
fn a_button_press_that_did_not_leave_is_not_counted() {
    let button = PowerCall::PowerOn { driver: 0, reset: OnReset::PushPowerButton };
    let mut state = with_deadline(Phase::PowerRequested, 100);
    let op = state.op.as_mut().expect("an operation");
    (op.attempts, op.effects) = (3, 3);
    op.pending = Some(muster_model::host::PendingEffect { seq: 3, call: button, at: at(0), before: None });
    let mut seen = evidence(at(5));
    seen.power = seen_power(Power::Off, at(5));
    let outcome = Outcome::HeldBack { reason: "Withheld", why: "3s are left of the leader's lease".into() };
    seen.performed = Performed::Ended { op: op.id.clone(), seq: 3, outcome };
    let done = step(&state, &seen, at(5));
    assert_eq!((calls(&done).len(), done.state.status.phase), (0, Phase::PowerRequested), "{}", done.reason);
    let op = done.state.op.expect("it goes on");
    assert_eq!((op.attempts, op.pending), (2, None));
    assert_ne!(done.state.status.last_power_action, Some(PowerAction::On));
}

/// Nothing left for its BMC, which is busy or out of reach: it is asked again, and never forced off for that.
#[test]
fn a_shutdown_that_never_left_for_its_bmc_is_asked_for_again() {
    let mut state = asked();
    let unsent = |now: i64, seq: u32| {
        let mut seen = wanted_off(at(now));
        seen.performed = Performed::Ended { op: "h1-1".into(), seq, outcome: Outcome::Unsent };
        seen
    };
    let mut now = 10;
    for seq in 1..=30 {
        let waits = step(&state, &unsent(now, seq), at(now));
        assert_eq!(calls(&waits), [], "not at once, it was busy a moment ago: {}", waits.reason);
        assert!(seq == 30 || waits.reason.contains("asked again in"), "{}", waits.reason);
        assert_eq!(waits.state.status.last_power_action, None, "nothing was done to it");
        state = waits.state;
        if seq == 30 {
            break;
        }
        now += 20;
        let again = step(&state, &wanted_off(at(now)), at(now));
        assert_eq!(calls(&again), [GRACEFUL], "{}", again.reason);
        assert_eq!(again.state.status.deadline, Some(at(now + 300)), "it gets all of its time");
        state = again.state;
    }
    // It could not be asked for ten minutes: its power is cut when its time is over.
    let early = step(&state, &wanted_off(at(now + 200)), at(now + 200));
    assert_eq!((calls(&early), early.state.phase()), (vec![], Phase::Stopping), "{}", early.reason);
    let forced = step(&early.state, &wanted_off(at(now + 320)), at(now + 320));
    check(&forced, 23, Phase::ForcingOff);
}

#[test]
fn a_machine_that_nobody_could_ask_in_time_is_asked_before_it_is_forced() {
    let mut state = with_deadline(Phase::Stopping, 300);
    state.op.as_mut().expect("an operation").os_seen = true;
    let late = step(&state, &wanted_off(at(310)), at(310));
    assert_eq!(
        (calls(&late), late.state.status.deadline),
        (vec![GRACEFUL], Some(at(610))),
        "{}",
        late.reason
    );
}
