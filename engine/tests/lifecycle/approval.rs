//! A host whose BMC shows a key that nobody has approved yet.

use muster_engine::lifecycle::{EffectKind, Rule, Step, TroubleClass, step};
use muster_model::{
    Known,
    host::{BlockCause, DriverKind, Phase, Power, PowerReading},
    power::Pin,
};

use crate::world::{at, calls, evidence, has, host, seen_power, trouble, unknown};

#[track_caller]
fn check(done: &Step, rule: u8, to: Phase) {
    assert_eq!((done.rule, done.state.phase()), (Rule::Row(rule), to), "{}", done.reason);
}

#[test]
fn row_25_and_28_an_approved_key_lets_a_new_host_go_on_where_it_stopped() {
    let key = Pin([7; 32]);
    let mut seen = evidence(at(5));
    seen.power = unknown(at(5));
    seen.bmc = trouble(TroubleClass::Blocked(BlockCause::KeyNotApproved), 1, at(5));
    if let Known::Unknown { why, .. } = &mut seen.bmc {
        why.key = Some(key);
    }
    let waits = step(&host(Phase::Enrolling), &seen, at(5));
    check(&waits, 25, Phase::Quarantined);
    let blocked = waits.state.status.bmc_blocked.as_ref().expect("a block");
    assert_eq!((blocked.cause, blocked.seen_key), (BlockCause::KeyNotApproved, Some(key)));
    let still = step(&waits.state, &seen, at(100_000));
    assert_eq!(still.effects, [], "not even a probe");
    assert!(still.reason.contains("somebody approves the key"), "{}", still.reason);
    // The pin is part of the access: a new one is looked at at once.
    seen.settings.credential_version = 2;
    let freed = step(&waits.state, &seen, at(100_001));
    check(&freed, 28, Phase::Enrolling);
    assert_eq!((&freed.state.status.bmc_blocked, &freed.state.status.quarantine), (&None, &None));
    assert!(has(&freed, &EffectKind::Probe { driver: None }));
    // It was registered while on: nobody asked to switch it off.
    let mut running = evidence(at(100_060));
    running.power = seen_power(Power::On, at(100_060));
    running.settings.credential_version = 2;
    let mut state = freed.state;
    let reading = PowerReading { power: Power::On, driver: DriverKind::Redfish, since: at(100_002) };
    state.status.power = Known::Value { value: reading, at: at(100_002) };
    let left = step(&state, &running, at(100_060));
    check(&left, 3, Phase::Enrolling);
    assert_eq!(calls(&left), []);
}
