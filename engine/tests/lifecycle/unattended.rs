//! A process that starts after nobody led for a while, or with a clock that was set ahead: no wait is over because of it.

use muster_engine::lifecycle::{Evidence, NodeView, step};
use muster_model::{
    Duration, Known, Timestamp,
    host::{BareMetalNodeStatus, DriverKind, Limits, OnUnexpectedOn, Phase, Power, PowerReading, Quarantine},
};

use crate::world::{at, calls, evidence, host, known, node, seen_power, unknown};

/// When the last leader was heard of, and for how long nobody led.
const LEFT: i64 = 30;
const GAP: i64 = 3_600;

/// What a new leader sees first.
fn first_look() -> Evidence {
    let now = at(LEFT + GAP);
    Evidence { unattended: Duration::from_secs(GAP.unsigned_abs()), ..evidence(now) }
}

/// `set` stores a time, `get` finds it again, and what it stands for is over `wait` after it.
#[track_caller]
fn check(
    wait: Duration,
    set: impl Fn(&mut BareMetalNodeStatus, Timestamp),
    get: impl Fn(&BareMetalNodeStatus) -> Option<Timestamp>,
) {
    let mut seen = first_look();
    (seen.power, seen.node, seen.pods) =
        (unknown(at(LEFT + GAP)), unknown(at(LEFT + GAP)), unknown(at(LEFT + GAP)));
    for (end, expected) in [(LEFT + 10, GAP), (LEFT - 10, 0)] {
        let time = at(end).saturating_sub(wait);
        let mut state = host(Phase::Idle);
        set(&mut state.status, time);
        let kept = get(&step(&state, &seen, at(LEFT + GAP)).state.status);
        let moved = kept.map(|kept| kept.since(time));
        assert_eq!(moved, Some(Duration::from_secs(expected.unsigned_abs())), "a wait until {end}");
    }
}

#[test]
fn what_was_waited_for_is_waited_for_as_long_as_before() {
    let (limits, none) = (Limits::default(), Duration::ZERO);
    check(none, |status, at| status.held_until = Some(at), |status| status.held_until);
    check(none, |status, at| status.drain_retry_at = Some(at), |status| status.drain_retry_at);
    check(none, |status, at| status.retry_at = Some(at), |status| status.retry_at);
    check(
        none,
        |status, probation_at| {
            let reason = "NeverJoined".into();
            status.quarantine = Some(Quarantine { since: at(0), reason, probation_at, failed_tests: 0 });
        },
        |status| status.quarantine.as_ref().map(|one| one.probation_at),
    );
    check(limits.min_on, |status, at| status.serving_since = Some(at), |status| status.serving_since);
    check(limits.min_off, |status, at| status.off_since = Some(at), |status| status.off_since);
    check(limits.not_ready, |status, at| status.not_ready_since = Some(at), |status| status.not_ready_since);
    check(
        limits.leave_on,
        |status, at| status.unexpected_on_since = Some(at),
        |status| status.unexpected_on_since,
    );
}

#[test]
fn a_machine_that_a_person_has_just_switched_on_is_left_alone() {
    let mut state = host(Phase::Idle);
    let reading = PowerReading { power: Power::On, driver: DriverKind::Redfish, since: at(-60) };
    state.status.power = Known::Value { value: reading, at: at(-60) };
    state.status.unexpected_on_since = Some(at(LEFT - 60));
    let mut seen = first_look();
    seen.power = seen_power(Power::On, at(LEFT + GAP));
    seen.settings.policy.on_unexpected_on = OnUnexpectedOn::EnforceOff;
    let done = step(&state, &seen, at(LEFT + GAP));
    assert_eq!((done.state.phase(), calls(&done)), (Phase::Idle, vec![]), "{}", done.reason);
    assert!(done.reason.contains("left alone for 29m more"), "{}", done.reason);
}

#[test]
fn a_node_that_was_away_for_seconds_is_not_lost() {
    let mut state = host(Phase::Serving);
    state.status.not_ready_since = Some(at(LEFT - 20));
    let mut seen = first_look();
    seen.power = seen_power(Power::On, at(LEFT + GAP));
    seen.node = known(NodeView::Present(node(at(LEFT - 20))), at(LEFT + GAP));
    let done = step(&state, &seen, at(LEFT + GAP));
    assert_eq!(done.state.phase(), Phase::Serving, "{}", done.reason);
    seen.unattended = Duration::ZERO;
    assert_eq!(step(&state, &seen, at(LEFT + GAP)).state.phase(), Phase::Lost);
}
