//! The state `powering-on`: from the boot device to a node that is Ready.

use muster_model::{
    Known, Timestamp,
    host::{Cause, ConditionType, OpKind, Phase, Power, PowerCall},
};

use super::{
    EffectKind, Rule, Step, TroubleClass,
    rules::{MAX_CONTACTS, Want},
    turn::Turn,
};

pub(super) fn preparing_boot(mut turn: Turn<'_>) -> Step {
    if turn.power().is_some_and(Power::is_up) {
        return turn.adopt_power(Rule::Row(6));
    }
    let asked = turn.op.as_ref().is_some_and(|op| op.power_requested_at.is_some());
    let proved = turn.is_off_proved();
    if turn.is_withdrawn() && (proved || !asked) {
        turn.release();
        if proved {
            turn.rest();
        } else {
            turn.op = None; // nobody woke it: what is known of it is what was known before
        }
        return turn.go(Rule::Row(12), Phase::Idle, None, "the wish was withdrawn with 0 power-ons sent");
    }
    let another = turn.refused.is_some();
    if let Some((reason, message)) = turn.refused.take() {
        let refused = turn.op.as_mut().map_or(0, |op| {
            op.boots_refused = op.boots_refused.saturating_add(1);
            op.boots_refused
        });
        if turn.set_boot(refused).is_none() {
            let text = format!("1 boot device was not set, {refused} drivers tried: {message}");
            return turn.fail(Rule::Row(21), reason, &text);
        }
    }
    if let Known::Unknown { why, .. } = &turn.seen.bmc
        && why.class == TroubleClass::Unreachable
        && why.attempts >= MAX_CONTACTS
    {
        let text = format!("its BMC did not answer {} times: {}", why.attempts, why.message);
        return turn.fail(Rule::Row(21), "BMCUnreachable", &text);
    }
    if turn.is_overdue() {
        let limit = turn.settings().limits.prepare;
        return turn.fail(
            Rule::Row(21),
            "NotPrepared",
            &format!("it could not be asked to boot within {limit}"),
        );
    }
    turn.prepare_boot(another);
    let ready = turn.op.as_ref().is_some_and(|op| op.boot_set && op.pending.is_none());
    if !ready {
        return turn.stay("waiting for 1 boot device to be set and read back");
    }
    let Some(call) = turn.ladder().first().copied() else {
        return turn.fail(Rule::Row(21), "NoPowerOnDriver", "0 of its drivers can switch it on");
    };
    if let Some(why) = turn.on_refused(call) {
        turn.ask_probe();
        turn.look_apart();
        return turn.stay(format!("power-on waits: {why}"));
    }
    turn.request_power(Rule::Row(7), call)
}

impl Turn<'_> {
    fn request_power(mut self, rule: Rule, call: PowerCall) -> Step {
        let limit = self.confirm_limit(call);
        let now = self.now;
        let expects = self.is_readable().then_some(Power::Off);
        self.call(call, expects);
        let attempts = self.op.as_mut().map_or(0, |op| {
            op.attempts = op.attempts.saturating_add(1);
            op.power_requested_at.get_or_insert(now);
            op.attempts
        });
        if attempts == 1 {
            self.status.starts.push(now);
        }
        let name = call.as_str();
        self.go(rule, Phase::PowerRequested, Some(limit), format!("{name} asked for, attempt {attempts}"))
    }

    /// Magic packets are confirmed by a machine that has booted, everything else by a reading.
    fn confirm_limit(&self, call: PowerCall) -> muster_model::Duration {
        let limits = &self.settings().limits;
        match call {
            PowerCall::WolBurst { .. } if !self.is_readable() => limits.boot,
            PowerCall::WolBurst { .. }
            | PowerCall::PowerOn { .. }
            | PowerCall::SetBoot { .. }
            | PowerCall::GracefulOff { .. }
            | PowerCall::ForceOff { .. }
            | PowerCall::PowerCycle { .. }
            | PowerCall::ResetBmc { .. } => limits.power_confirm,
        }
    }

    /// The operation's first power request, or the start of the phase where nothing was requested.
    fn up_since(&self) -> Timestamp {
        self.op.as_ref().and_then(|op| op.power_requested_at).unwrap_or(self.status.phase_since)
    }
}

pub(super) fn power_requested(mut turn: Turn<'_>) -> Step {
    let since = turn.up_since();
    let confirmed = match turn.power() {
        _ if muster_model::planted::is("F13") => turn.op.as_ref().is_some_and(|op| op.pending.is_none()),
        Some(power) => power.is_up(),
        None => !turn.is_readable() && turn.answered_since(since),
    };
    if confirmed || turn.joined().is_some() {
        return powered_up(turn);
    }
    let attempts = turn.op.as_ref().map_or(0, |op| op.attempts);
    let ladder = turn.ladder();
    let next = usize::try_from(attempts).ok().and_then(|place| ladder.get(place).copied());
    let refused = turn.refused.take();
    if refused.is_none() && !turn.is_overdue() {
        return await_power(turn, &ladder);
    }
    let why = refused.map_or_else(
        || ("PowerOnIgnored", "no reading confirmed it in time".to_owned()),
        |(reason, message)| (reason, message),
    );
    match next {
        Some(call) if turn.power() == Some(Power::Off) => match turn.on_refused(call) {
            None => turn.request_power(Rule::Row(8), call),
            Some(wait) if turn.no_calls.is_some() => {
                turn.stay(format!("attempt {} waits: {wait}", attempts + 1))
            }
            // A refusal leaves time for the readings that a button needs.
            Some(wait) if !turn.is_overdue() => {
                turn.ask_probe();
                turn.look_apart();
                turn.stay(format!("attempt {} waits: {wait}", attempts + 1))
            }
            Some(wait) => turn.fail(Rule::Row(21), why.0, &format!("{attempts} attempts, {}; {wait}", why.1)),
        },
        Some(_) => {
            let text = format!("{attempts} attempts, {}, and its power is not known", why.1);
            turn.fail(Rule::Row(21), "PowerUnknown", &text)
        }
        None => turn.fail(Rule::Row(21), why.0, &format!("{attempts} attempts, {}", why.1)),
    }
}

fn powered_up(mut turn: Turn<'_>) -> Step {
    let limit = turn.settings().limits.boot;
    let deadline = turn.now.saturating_add(limit);
    if let Some(op) = turn.op.as_mut() {
        op.pending = None;
        op.boot_deadline = Some(deadline);
    }
    turn.status.boot_time = Some(turn.now);
    turn.go_until(Rule::Row(9), Phase::Powered, Some(deadline), format!("it has power; {limit} to join"))
}

/// Waits for the reading that confirms power; magic packets are sent again meanwhile.
fn await_power(mut turn: Turn<'_>, ladder: &[PowerCall]) -> Step {
    turn.ask_probe();
    let apart = turn.settings().limits.off_apart;
    let repeat = turn.settings().limits.wol_repeat;
    turn.look_in(apart);
    let attempts = turn.op.as_ref().map_or(0, |op| op.attempts);
    let current = usize::try_from(attempts).ok().and_then(|n| n.checked_sub(1)).and_then(|n| ladder.get(n));
    let sent = turn.op.as_ref().and_then(|op| op.last_sent_at);
    if let Some(call @ PowerCall::WolBurst { .. }) = current.copied() {
        let due = sent.is_none_or(|at| turn.now.since(at) >= repeat);
        if due && turn.on_refused(call).is_none() {
            let expects = turn.is_readable().then_some(Power::Off);
            turn.call(call, expects);
            return turn.stay(format!("3 more magic packets after {repeat} without an answer"));
        }
    }
    turn.stay(format!("waiting for power after attempt {attempts}"))
}

pub(super) fn booting(mut turn: Turn<'_>) -> Step {
    let since = turn.up_since();
    let os = turn.os_since(since);
    if os && let Some(op) = turn.op.as_mut() {
        op.os_seen = true;
    }
    turn.note_hello(since);
    if turn.is_node_ready() {
        return turn.serve(Rule::Row(13), "1 node of this boot is Ready");
    }
    if let Some(step) = cancelled(&mut turn) {
        return match step {
            Cancelled::Off(reason) => {
                let grace = turn.settings().limits.grace;
                turn.release();
                turn.go(Rule::Row(12), Phase::Drained, Some(grace), reason)
            }
            Cancelled::Forget => turn.forget("its record is deleted; 0 pods were on it"),
        };
    }
    // Somebody switched it on to see it, or holds it: whether a node joins or not is for that person.
    let kept = turn.kept_on();
    let alone = turn.left_alone();
    if turn.is_overdue() && kept.is_none() && alone.is_none() {
        return boot_failed(turn);
    }
    if turn.is_off_proved() {
        let confirm = turn.settings().limits.power_confirm;
        if turn.read_for(Power::Off).is_some_and(|length| length >= confirm) {
            if turn.is_overdue() || alone.is_some() {
                turn.release();
                turn.note_off_by_hand();
                turn.rest();
                let text = format!("it was left on for a person, and has been off for more than {confirm}");
                return turn.go(Rule::Drift(1), Phase::Idle, None, text);
            }
            let text = format!("it went off while booting and has been off for more than {confirm}");
            return turn.fail(Rule::Row(21), "WentOff", &text);
        }
    }
    if turn.from != Phase::Joining && turn.joined().is_some() {
        let limit = turn.settings().limits.join;
        return turn.go(
            Rule::Row(11),
            Phase::Joining,
            Some(limit),
            format!("its node joined; {limit} to be Ready"),
        );
    }
    let progress = turn.seen.boot_progress.as_ref().filter(|progress| progress.at > since);
    let stage = progress.map(|progress| progress.stage.clone());
    let hello = turn.seen.agent.hello.as_ref().is_some_and(|hello| hello.at > since);
    if turn.from == Phase::Powered && (stage.is_some() || hello) {
        let deadline = turn.status.deadline;
        let stage = stage.unwrap_or_else(|| "agent hello".into());
        return turn.go_until(
            Rule::Row(10),
            Phase::Booting,
            deadline,
            format!("1 sign of progress: {stage}"),
        );
    }
    if turn.is_overdue() {
        return match (kept, alone) {
            (Some(why), _) => left_on(turn, &why),
            (None, Some(end)) => left_alone(turn, end),
            (None, None) => boot_failed(turn),
        };
    }
    let left = turn.status.deadline.map(|deadline| turn.left(deadline)).unwrap_or_default();
    let Some(missing) = lacks(&turn) else { return turn.stay(format!("waiting for its node, {left} left")) };
    // Said where people look, without a number that would be another one at every look.
    let text = format!("its node is Ready and does not show {missing} yet");
    turn.condition(ConditionType::Ready, Some(false), "ResourceMissing", &text);
    turn.status.reason.clone_from(&text);
    turn.stay(format!("{text}, {left} left"))
}

/// What a node that has joined and is Ready still lacks.
fn lacks(turn: &Turn<'_>) -> Option<String> {
    let node = turn.node().flatten().filter(|node| node.ready && turn.from == Phase::Joining)?;
    node.missing.clone()
}

enum Cancelled {
    Off(String),
    Forget,
}

/// The wish went away while the machine boots.
fn cancelled(turn: &mut Turn<'_>) -> Option<Cancelled> {
    let reason = match turn.want() {
        Want::On(_, _) => {
            if let Some(op) = turn.op.as_mut() {
                op.cancelling = false;
            }
            return None;
        }
        // A claim that was given back is not a wish for off.
        Want::Nothing(_) if turn.op.as_ref().is_some_and(|op| matches!(op.cause, Cause::Drift)) => {
            return None;
        }
        Want::Off(Cause::Deletion, _) if turn.seen.deletion == super::Deletion::Requested => {
            return Some(Cancelled::Forget);
        }
        Want::Nothing(why) | Want::Off(_, why) => why,
    };
    if turn.settings().hold.as_ref().is_some_and(|hold| hold.is_active(turn.now))
        && turn.settings().manual.is_none()
    {
        return None; // a hold starts nothing, and ends nothing either
    }
    let by_person = matches!(turn.want(), Want::Off(Cause::Manual { .. } | Cause::Deletion, _));
    if turn.guarded().is_some() || (turn.left_alone().is_some() && !by_person) {
        return None;
    }
    if let Some(op) = turn.op.as_mut() {
        op.cancelling = true;
    }
    let left = turn.status.deadline.map(|deadline| turn.left(deadline)).unwrap_or_default();
    let nearly = turn.settings().limits.nearly_booted;
    if left < nearly {
        return None;
    }
    let reason = format!("no longer wanted with {left} of its boot left: {reason}");
    if let Some(op) = turn.op.as_mut() {
        op.pending = None;
    }
    Some(Cancelled::Off(reason))
}

/// The time to join is over, and a person wants it on or holds it.
fn left_on(mut turn: Turn<'_>, why: &str) -> Step {
    let limit = turn.settings().limits.boot;
    let text = if matches!(turn.want(), Want::On(_, _)) {
        format!(
            "switched on by hand, and 0 Ready nodes joined within {limit}; left on until it is no longer wanted"
        )
    } else {
        format!("{why}; 0 Ready nodes joined within {limit}, and it is left on")
    };
    turn.condition(ConditionType::BootFailed, Some(true), "NeverJoined", &text);
    turn.release();
    turn.ask_probe();
    turn.stay(text)
}

/// Somebody else switched it on a short while ago, and may be at work on it: its pool need not wait for it.
fn left_alone(mut turn: Turn<'_>, end: Timestamp) -> Step {
    turn.release();
    turn.tell_unexpected_on();
    turn.ask_probe();
    turn.look_at(end);
    let left = turn.left(end);
    turn.stay(format!("0 nodes joined, and it was on already when it was wanted; left alone for {left} more"))
}

fn boot_failed(mut turn: Turn<'_>) -> Step {
    let limits = &turn.settings().limits;
    let (reason, text) = if let Some(missing) = lacks(&turn) {
        ("ResourceMissing", format!("its node was Ready and did not show {missing} within {}", limits.join))
    } else if turn.from == Phase::Joining {
        ("NotReadyInTime", format!("its node was not Ready within {}", limits.join))
    } else {
        ("NeverJoined", format!("powered on, but no node joined within {}", limits.boot))
    };
    turn.ask(EffectKind::CaptureEvidence);
    turn.condition(ConditionType::BootFailed, Some(true), reason, &text);
    turn.release();
    turn.count_failure(reason, &text);
    if let Some(why) = turn.guarded() {
        return turn.fail(Rule::Row(21), reason, &format!("{text}; left on: {why}"));
    }
    let os_seen = turn.op.as_ref().is_some_and(|op| op.os_seen);
    if let Some(op) = turn.op.as_mut() {
        op.pending = None;
        op.kind = OpKind::Off;
    }
    if os_seen && turn.off_refused().is_none() {
        turn.ask_off();
    }
    let grace = turn.settings().limits.grace;
    turn.go(Rule::Row(20), Phase::Stopping, Some(grace), text)
}
