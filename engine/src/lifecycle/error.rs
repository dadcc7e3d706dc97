//! The state `error`: waiting for the next look, or set aside.

use muster_model::{
    Duration,
    host::{BlockCause, Cause, ConditionType, OpKind, Phase, Power, PowerCall, Presence, TestStage, is_true},
};

use super::{Rule, Step, backoff, rules::Want, turn::Turn};

pub(super) fn backing_off(mut turn: Turn<'_>, acknowledged: bool) -> Step {
    if turn.is_on_by_others() {
        turn.tell_unexpected_on();
        if turn.is_lease_silent() != Some(true) {
            turn.ask_probe();
            return turn.stay("switched on by somebody else, and its kubelet runs: 1 node is to join");
        }
        let text = "it was proved off, and somebody else switched it on since; 0 calls are made";
        return turn.go(Rule::Row(27), Phase::Idle, None, text);
    }
    let back = is_true(&turn.status.conditions, ConditionType::NodeLost) && turn.is_node_ready();
    let due = acknowledged || back || turn.status.retry_at.is_none_or(|at| turn.now >= at);
    if !due {
        if let Some(at) = turn.status.retry_at {
            turn.look_at(at);
        }
        let left = turn.status.retry_at.map(|at| turn.left(at)).unwrap_or_default();
        return turn.stay(format!("next look in {left}"));
    }
    turn.ask_probe();
    if turn.is_off_proved() {
        let count = turn.status.backoff_count;
        // It ran since its power was last asked for: who took its power was not asked by us. A person who has seen to it since
        // it failed knows that it is off.
        let seen_to = turn.status.acknowledged.is_some_and(|at| at >= turn.status.state_since);
        if turn.is_boot_proved() && !seen_to {
            turn.note_off_by_hand();
        }
        turn.rest();
        return turn.go(
            Rule::Row(27),
            Phase::Idle,
            None,
            format!("off is proved after {count} {}", if count == 1 { "wait" } else { "waits" }),
        );
    }
    if turn.is_node_ready() {
        return turn.serve(Rule::Row(27), "its node is Ready again, 1 lease renewed");
    }
    let not_joined = turn.node().is_some() && turn.joined().is_none();
    // Where power cannot be read, an agent that is heard can be asked, and its goodbye proves off.
    let heard = !turn.is_readable() && turn.presence() == Some(Presence::Answers);
    let on = (turn.is_on_twice() || heard) && not_joined;
    if on && let Some(why) = turn.guarded().or_else(|| turn.only_read().map(str::to_owned)) {
        return turn.stay_by(Rule::Row(27), format!("on with 0 nodes joined, and left on: {why}"));
    }
    if on && turn.off_refused().is_none() {
        if let Some(why) = turn.kept_on() {
            // Looked at again as soon as that is over: its record changes with it.
            return turn.stay_by(Rule::Row(27), format!("on with 0 nodes joined, and left on: {why}"));
        }
        let by_hand = match turn.want() {
            Want::Off(cause @ Cause::Manual { .. }, _) => Some(cause),
            Want::On(_, _) | Want::Off(_, _) | Want::Nothing(_) => None,
        };
        if by_hand.is_none()
            && let Some(why) = turn.seen.pool.repairs_stopped.clone()
        {
            // When that is over it has as long to come back as one whose node was only just lost.
            let at = turn.now.saturating_add(turn.settings().limits.lost);
            turn.status.retry_at = Some(at);
            turn.look_at(at);
            return turn.stay_by(Rule::Row(27), format!("on with 0 nodes joined, and left on: {why}"));
        }
        turn.begin(OpKind::Off, by_hand.unwrap_or(Cause::Recovery), "on without a node after a failure");
        let runs = turn.seen.boot_progress.as_ref().is_some_and(|progress| progress.os);
        let os_seen = heard || runs || turn.is_boot_proved();
        if let Some(op) = turn.op.as_mut() {
            op.os_seen = os_seen;
        }
        let grace = turn.settings().limits.grace;
        return turn.go(Rule::Row(27), Phase::Stopping, Some(grace), "on with 0 nodes joined; switched off");
    }
    // One reading is not two: a short wait for the second, once, before the long one.
    let apart = turn.settings().limits.off_apart;
    let undecided =
        matches!(turn.power(), Some(Power::Off | Power::On)) && !turn.is_off_twice() && !turn.is_on_twice();
    if undecided {
        turn.look_in(apart);
        return turn.stay("waiting for 2 readings that agree");
    }
    turn.status.backoff_count = turn.status.backoff_count.saturating_add(1);
    let wait = backoff::delay(&turn.settings().limits, turn.name, turn.status.backoff_count);
    let at = turn.now.saturating_add(wait);
    turn.status.retry_at = Some(at);
    turn.look_at(at);
    turn.stay_by(Rule::Row(27), format!("its state is still not known; next look in {wait}"))
}

pub(super) fn quarantined(mut turn: Turn<'_>, acknowledged: Option<String>) -> Step {
    if let Some(by) = acknowledged {
        return release(turn, &format!("cleared by {by} after 1 acknowledgement"));
    }
    let reason = turn.status.quarantine.as_ref().map(|one| one.reason.clone()).unwrap_or_default();
    let by_block = BlockCause::ALL.into_iter().find(|cause| cause.as_str() == reason);
    if by_block.is_some() && !turn.is_blocked() {
        return release(turn, "its account, key or address was changed, 1 more try");
    }
    if turn.op.as_ref().is_some_and(|op| op.kind == OpKind::SelfTest) {
        return self_test(turn);
    }
    let at = turn.status.quarantine.as_ref().map_or(turn.now, |one| one.probation_at);
    if let Some(blocked) = &turn.status.bmc_blocked {
        let missing = awaited(blocked.cause);
        return turn.stay(format!("set aside until {missing}; 0 calls are made"));
    }
    if reason == "EnrolmentTimedOut" && turn.power().is_some() {
        return release(turn, "its BMC answers now, 1 more try to enrol it");
    }
    if turn.now < at {
        turn.look_at(at);
        let left = turn.left(at);
        return turn.stay(format!("set aside; self-test in {left}"));
    }
    if reason == "EnrolmentTimedOut" {
        return release(turn, "1 more try to enrol it");
    }
    turn.ask_probe();
    // Whoever may not be switched off afterwards is not switched on to see that.
    if let Some(why) = turn.left_to_people().or_else(|| turn.guarded()) {
        return turn.stay(format!("the self-test waits: {why}"));
    }
    if turn.pretends() {
        return turn.stay("0 self-tests: dry-run is its only driver; acknowledge it when it is mended");
    }
    let Some(call) = turn.ladder().first().copied() else {
        return turn.stay("0 of its drivers can switch it on for a self-test");
    };
    // A magic packet does no harm to a machine that is on, and its watts are taken already.
    if !turn.is_off_proved() && turn.is_readable() {
        turn.look_apart();
        return turn.stay("the self-test waits for 2 readings of off");
    }
    if let Some(why) = turn.on_refused(call) {
        return turn.stay(format!("the self-test waits: {why}"));
    }
    turn.begin(OpKind::SelfTest, Cause::Probation, "probation");
    switch_on_to_test(turn, call)
}

fn switch_on_to_test(mut turn: Turn<'_>, call: PowerCall) -> Step {
    turn.call(call, turn.is_readable().then_some(Power::Off));
    let limit = turn.settings().limits.power_confirm;
    turn.stage(TestStage::PowerOn, limit);
    let now = turn.now;
    if let Some(op) = turn.op.as_mut() {
        op.attempts = 1;
        op.power_requested_at = Some(now);
    }
    turn.status.starts.push(now);
    turn.stay_by(Rule::Row(28), "self-test, stage 1 of 3: power on")
}

/// What lifts a block.
const fn awaited(cause: BlockCause) -> &'static str {
    match cause {
        BlockCause::CredentialsRefused | BlockCause::PasswordChangeRequired => {
            "a new version of its credential is there"
        }
        BlockCause::KeyNotApproved => "somebody approves the key of its BMC",
        BlockCause::CertificateMismatch => {
            "somebody approves the new key of its BMC, or its trust is changed"
        }
        BlockCause::IdentityChanged => {
            "somebody acknowledges that it is another machine, or its record is corrected"
        }
    }
}

/// Out of quarantine: at rest if off is proved, else to be looked at. What was never enrolled begins there again: a machine
/// that was registered while on is nobody's to switch off.
fn release(mut turn: Turn<'_>, reason: &str) -> Step {
    let enrolled = turn.status.failures.last().is_none_or(|last| last.phase != Phase::Enrolling);
    turn.status.quarantine = None;
    turn.status.failures.clear();
    turn.status.backoff_count = 0;
    turn.status.last_error = None;
    turn.op = None;
    if turn.is_off_proved() {
        turn.rest();
        return turn.go(Rule::Row(28), Phase::Idle, None, reason);
    }
    turn.ask_probe();
    if !enrolled {
        let limit = turn.settings().limits.enrol;
        return turn.go(Rule::Row(28), Phase::Enrolling, Some(limit), reason);
    }
    turn.status.retry_at = Some(turn.now);
    turn.go(Rule::Row(28), Phase::Backoff, None, reason)
}

impl Turn<'_> {
    fn stage(&mut self, stage: TestStage, limit: Duration) {
        let deadline = self.now.saturating_add(limit);
        if let Some(op) = self.op.as_mut() {
            op.stage = Some(stage);
            op.stage_deadline = Some(deadline);
        }
        self.look_at(deadline);
    }
}

/// On and off again, with the same proofs as the real thing.
fn self_test(mut turn: Turn<'_>) -> Step {
    turn.ask_probe();
    let limits = &turn.settings().limits;
    turn.look_apart();
    let (stage, requested, deadline, failed, sent) = match turn.op.as_ref() {
        Some(op) => (
            op.stage.unwrap_or(TestStage::ForceOff),
            op.power_requested_at.unwrap_or(op.started),
            op.stage_deadline.unwrap_or(turn.now),
            op.failed.is_some(),
            op.force_offs,
        ),
        None => return turn.stay("0 self-tests are under way"),
    };
    let late = turn.now >= deadline;
    match stage {
        TestStage::PowerOn => {
            let up = match turn.power() {
                Some(power) => power.is_up(),
                None => !turn.is_readable() && turn.answered_since(requested),
            };
            if up {
                turn.stage(TestStage::Boot, limits.boot);
                return turn.stay_by(Rule::Row(28), "self-test, stage 2 of 3: it has power");
            }
            let unsent = turn.op.as_ref().is_some_and(|op| op.attempts == 0);
            let next = turn.ladder().first().copied().filter(|_| unsent);
            if let Some(call) = next.filter(|call| turn.on_refused(*call).is_none()) {
                return switch_on_to_test(turn, call); // its BMC does not offer what was asked for first
            }
            if late {
                return test_failed(turn, "SelfTestNoPower", "stage 1 of 3: it did not switch on");
            }
        }
        TestStage::Boot => {
            if turn.os_since(requested) {
                if turn.off_refused().is_none() {
                    turn.ask_off();
                    turn.stage(TestStage::PowerOff, limits.grace);
                    return turn.stay_by(Rule::Row(28), "self-test, stage 3 of 3: asked to shut down");
                }
            } else if late {
                turn.count_failure("SelfTestNoSystem", "stage 2 of 3: no operating system came up");
                turn.stage(TestStage::ForceOff, limits.force_off);
                return turn.stay_by(Rule::Row(28), "self-test failed in stage 2 of 3; to be switched off");
            }
            if late && turn.now.since(deadline) >= limits.grace {
                return test_failed(turn, "SelfTestNotOff", "stage 3 of 3: it could not be switched off");
            }
        }
        TestStage::PowerOff | TestStage::ForceOff => {
            if turn.is_off_proved() {
                return if failed {
                    test_failed(turn, "SelfTestFailed", "off again after 1 failed self-test")
                } else {
                    release(turn, "1 self-test passed: on, booted and off again")
                };
            }
            if stage == TestStage::PowerOff && turn.note_refused_ask() && turn.off_refused().is_none() {
                turn.ask_off();
            }
            if stage == TestStage::PowerOff && late {
                turn.stage(TestStage::ForceOff, limits.force_off);
                return turn.stay_by(Rule::Row(28), "self-test, stage 3 of 3: to be forced off");
            }
            if stage == TestStage::ForceOff && late {
                return test_failed(turn, "SelfTestNotOff", "stage 3 of 3: off was not proved");
            }
            if stage == TestStage::ForceOff
                && sent == 0
                && let Some(call) = turn.force_off(sent)
                && turn.force_refused().is_none()
            {
                turn.send_force(call);
                return turn.stay_by(Rule::Row(28), "self-test, stage 3 of 3: forced off");
            }
        }
    }
    turn.stay("1 self-test is under way")
}

fn test_failed(mut turn: Turn<'_>, reason: &str, message: &str) -> Step {
    turn.count_failure(reason, message);
    turn.op = None;
    let probation = turn.settings().limits.probation;
    let now = turn.now;
    if let Some(quarantine) = &mut turn.status.quarantine {
        quarantine.failed_tests = quarantine.failed_tests.saturating_add(1);
        let doubled = probation.millis().saturating_mul(1 << quarantine.failed_tests.min(5));
        quarantine.probation_at = now.saturating_add(Duration::from_millis(doubled));
    }
    turn.stay_by(Rule::Row(28), format!("set aside longer: {message}"))
}
