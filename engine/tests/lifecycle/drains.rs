//! Drains that end before power is taken away: row 19.

use muster_engine::lifecycle::{EffectKind, Outcome, Performed, PodsView, step};
use muster_model::host::{Phase, PowerAction, PowerCall};

use crate::{
    rows::{check, wanted_off, with_deadline},
    world::{at, calls, has, known},
};

/// OPS-F10: a pod that was bound past the cordon and found right in front of the power-off keeps the machine on.
#[test]
fn row_19_a_power_off_that_was_held_back_ends_the_drain() {
    let mut state = with_deadline(Phase::Drained, 900);
    state.op.as_mut().expect("an operation").drain_deadline = Some(at(900));
    state.status.cordoned_by = Some("h1-1".into());
    state.status.last_power_action = Some(PowerAction::On);
    state.status.power_action_time = Some(at(-3600));
    let asked = step(&state, &wanted_off(at(5)), at(5));
    check(&asked, 22, Phase::Stopping);
    let why = "1 pods came onto its node".to_owned();
    let mut seen = wanted_off(at(6));
    let outcome = Outcome::HeldBack { reason: "NewPods", why: why.clone() };
    seen.performed = Performed::Ended { op: "h1-1".into(), seq: 1, outcome };
    let done = step(&asked.state, &seen, at(6));
    check(&done, 19, Phase::Serving);
    assert!(has(&done, &EffectKind::Uncordon) && done.reason.contains(&why), "{}", done.reason);
    assert_eq!(calls(&done), []);
    let status = &done.state.status;
    assert_eq!(
        (status.last_power_action, status.power_action_time),
        (Some(PowerAction::On), Some(at(-3600)))
    );
    assert_eq!(status.boot_id_at_off, None, "the boot that goes on need not differ from itself");
    // What was never drained has no work to go back to: it waits, and nothing is called at once again.
    let mut state = asked.state.clone();
    state.op.as_mut().expect("an operation").drain_deadline = None;
    let done = step(&state, &seen, at(6));
    assert_eq!((done.state.status.phase, calls(&done).len()), (Phase::Stopping, 0), "{}", done.reason);
    assert!(done.reason.contains(&why), "{}", done.reason);
    // Nor does a machine that was asked before: it may go at any time.
    let mut state = asked.state.clone();
    let op = state.op.as_mut().expect("an operation");
    (op.force_offs, op.asked_off_at) = (2, Some(at(0)));
    op.pending.as_mut().expect("a call").call = PowerCall::ForceOff { driver: 0 };
    let done = step(&state, &seen, at(6));
    assert_eq!((done.state.status.phase, calls(&done).len()), (Phase::Stopping, 0), "{}", done.reason);
    assert_eq!(done.state.op.as_ref().map(|op| op.force_offs), Some(1));
}

/// OPS-F22: the node that Muster or its store runs on goes back to work, whoever asked for the drain.
#[test]
fn row_19_a_guarded_node_is_not_drained() {
    for phase in [Phase::Cordoned, Phase::Evicting, Phase::Drained] {
        let state = with_deadline(phase, 60);
        let mut seen = wanted_off(at(5));
        let guarded = Some("Muster itself runs there".to_owned());
        seen.pods = known(PodsView { guarded, ..PodsView::default() }, at(5));
        let done = step(&state, &seen, at(5));
        check(&done, 19, Phase::Serving);
        assert!(done.reason.contains("Muster itself runs there"), "{}", done.reason);
        assert_eq!(calls(&done), []);
    }
}
