//! Faults that others have shipped, each as a test that would find it here.

use muster_engine::lifecycle::{
    Cordon, EffectKind, HostState, NodeView, Outcome, Performed, PodsView, TroubleClass, step,
};
use muster_model::host::{BlockCause, Permission, Phase, Power, Switch};

use crate::world::{World, at, calls, evidence, has, host, known, node, seen_power, trouble};

/// Right after a shutdown the node still reads Ready and carries our cordon; it must not be taken for a
/// node that came back.
#[test]
fn cba_a_node_that_is_going_down_is_not_recovered() {
    let mut going = node(at(95));
    going.cordon = Cordon::Ours { op: "h1-1".into() };
    let mut state = host(Phase::Stopping);
    state.status.deadline = Some(at(300));
    state.status.boot_id_at_off = Some("boot-1".into());
    state.status.cordoned_by = Some("h1-1".into());
    let op = state.op.as_mut().unwrap();
    (op.asked_off_at, op.os_seen) = (Some(at(90)), true);
    for phase in [Phase::Stopping, Phase::ForcingOff, Phase::ConfirmingOff, Phase::Idle, Phase::Backoff] {
        let mut state = state.clone();
        (state.status.phase, state.status.state) = (phase, phase.state());
        state.status.retry_at = Some(at(0));
        state.status.last_power_action = Some(muster_model::host::PowerAction::GracefulOff);
        state.status.power_action_time = Some(at(90));
        let mut seen = evidence(at(100));
        seen.node = known(NodeView::Present(going.clone()), at(100));
        seen.pods = known(PodsView::default(), at(100));
        let done = step(&state, &seen, at(100));
        assert!(!has(&done, &EffectKind::Uncordon), "{phase}: {}", done.reason);
        assert_ne!(done.state.phase(), Phase::Serving, "{phase}: {}", done.reason);
    }
}

#[test]
fn cba_a_failed_drain_leaves_no_cordon_and_the_node_can_be_chosen_again() {
    let mut world = World::serving();
    world.pdb_blocks = true;
    world.want(Switch::Off, "i-1").until(Phase::Evicting, 60);
    world.until(Phase::Serving, 1000);
    assert_eq!(world.node.as_ref().unwrap().cordon, Cordon::None);
    world.pdb_blocks = false;
    // As the planner does, once the pause after a drain is over and the node can still go.
    let again = world.state.status.drain_retry_at.unwrap();
    while world.now < again {
        world.run(5);
    }
    world.want(Switch::Off, "i-2").until(Phase::Idle, 600);
}

#[test]
fn cba_a_shutdown_that_fails_is_not_off() {
    let mut world = World::serving();
    (world.machine.ignores_acpi, world.machine.ignores_force) = (true, true);
    world.want(Switch::Off, "i-1").until(Phase::Backoff, 1500);
    assert!(!world.trail.contains(&Phase::Idle), "{:?}", world.trail);
    assert_eq!(world.count("force-off"), 2);
}

/// A new process has the deadline of the old one, because it is stored.
#[test]
fn hla_a_stuck_phase_is_noticed_after_a_restart() {
    let mut state = host(Phase::Booting);
    state.status.deadline = Some(at(900));
    let stored = serde_json::to_string(&state).unwrap();
    let state: HostState = serde_json::from_str(&stored).unwrap();
    let mut seen = evidence(at(901));
    seen.power = seen_power(Power::On, at(901));
    seen.intent = crate::world::intent(Switch::On, "i-1");
    assert_eq!(step(&state, &seen, at(901)).state.phase(), Phase::Stopping);
}

#[test]
fn hla_a_failure_frees_its_claim_at_once() {
    let mut world = World::idle();
    world.machine.unreachable = true;
    world.want(Switch::On, "i-1").until(Phase::Backoff, 120);
    assert_eq!((world.reserved, world.released), (1, 1));
}

/// Ten minutes of power-on self-test without a sign of life are no failure.
#[test]
fn bmctl_a_slow_post_is_not_fatal() {
    let mut world = World::idle();
    world.machine.boot_secs = Some(600);
    world.want(Switch::On, "i-1").until(Phase::Serving, 700);
    assert_eq!(world.state.status.failures, []);
}

/// The call is announced before it is made; if its process dies, it is not made again.
#[test]
fn rufio_a_power_cycle_is_never_repeated() {
    let mut state = host(Phase::Lost);
    state.status.deadline = Some(at(900));
    let mut seen = evidence(at(5));
    seen.power = seen_power(Power::On, at(5));
    seen.node = known(NodeView::Present(node(at(-200))), at(5));
    seen.settings.policy.cycle_lost = Permission::Allowed;
    let first = step(&state, &seen, at(5));
    assert_eq!(calls(&first).len(), 1);
    let op = first.state.op.clone().unwrap();
    assert!(op.pending.is_some(), "stored before it is sent");
    for performed in [
        Performed::Nothing,
        Performed::Running { op: op.id.clone(), seq: 1 },
        Performed::Ended { op: op.id.clone(), seq: 1, outcome: Outcome::Unknown },
        Performed::Ended { op: "h1-0".into(), seq: 1, outcome: Outcome::Accepted },
    ] {
        let mut state = first.state.clone();
        for second in 6..60 {
            let mut seen = seen.clone();
            seen.power = seen_power(Power::On, at(second));
            seen.performed = performed.clone();
            let done = step(&state, &seen, at(second));
            assert_eq!(calls(&done), [], "{performed:?}");
            state = done.state;
        }
    }
}

/// `PoweringOn` is neither on nor off, and no reason to ask again.
#[test]
fn omni_turning_on_is_not_answered_with_another_on() {
    let mut seen = evidence(at(120));
    seen.power = seen_power(Power::TurningOn, at(120));
    seen.intent = crate::world::intent(Switch::On, "i-1");
    for phase in [Phase::Reserved, Phase::PreparingBoot, Phase::PowerRequested, Phase::Powered] {
        let mut state = host(phase);
        state.status.deadline = Some(at(120));
        assert_eq!(calls(&step(&state, &seen, at(120))), [], "{phase}");
    }
}

/// One failed probe does not pin a host to its second driver.
#[test]
fn omni_a_failed_probe_is_forgotten() {
    let mut world = World::idle();
    world.machine.unreachable = true;
    world.run(10);
    world.machine.unreachable = false;
    world.want(Switch::On, "i-1").until(Phase::Serving, 300);
    assert_eq!(world.calls[0].3.driver(), 0);
}

/// A first error is not final: the host comes back by itself.
#[test]
fn rufio_the_first_error_of_a_bmc_is_not_terminal() {
    let mut world = World::idle();
    world.machine.unreachable = true;
    world.want(Switch::On, "i-1").until(Phase::Backoff, 120);
    world.machine.unreachable = false;
    world.until(Phase::Idle, 600);
    world.want(Switch::On, "i-2").until(Phase::Serving, 1200);
}

/// A refused account is tried again only with another credential.
#[test]
fn bm_7_09_a_refused_account_waits_for_a_new_secret() {
    let mut world = World::idle();
    world.seen.bmc = trouble(TroubleClass::Blocked(BlockCause::CredentialsRefused), 1, at(0));
    world.seen.power = crate::world::unknown(at(0));
    world.run(3600);
    assert_eq!(world.trail, [Phase::Idle, Phase::Quarantined]);
    world.seen.settings.credential_version = 2;
    world.seen.bmc = known(
        muster_engine::lifecycle::BmcView { identity: muster_model::host::HostIdentity::default() },
        world.now,
    );
    world.until(Phase::Idle, 60);
}
