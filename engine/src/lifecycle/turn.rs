//! One look at one host: the working copy of its state, and the ways to end the look.

use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Admin, BareMetalNodeStatus, Cause, ConditionStatus, ConditionType, Draw, Failure, HostCondition,
        HostOp, LastAction, OpKind, PendingEffect, Phase, Power, PowerAction, PowerCall, set_condition,
    },
};

use super::{
    Effect, EffectKind, Evidence, HostState, Leadership, OpRef, Rule, Settings, Step, backoff, driver_for,
    table,
};

/// Failures that are kept for display. Quarantine comes long before.
const MAX_FAILURES: usize = 16;

#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) name: &'a str,
    pub(super) from: Phase,
    pub(super) seen: &'a Evidence,
    pub(super) now: Timestamp,
    pub(super) status: BareMetalNodeStatus,
    pub(super) op: Option<HostOp>,
    pub(super) effects: Vec<Effect>,
    /// Why no power call may be sent now, if so.
    pub(super) no_calls: Option<String>,
    /// The last power call was refused: reason and message.
    pub(super) refused: Option<(&'static str, String)>,
    /// Why the last power-off was kept back in front of the call: reason and message.
    pub(super) held_back: Option<(&'static str, String)>,
    /// A person asked for what was under way when this look began.
    pub(super) by_hand: bool,
    wake: Option<Timestamp>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(state: &'a HostState, seen: &'a Evidence, now: Timestamp) -> Self {
        Self {
            name: &state.name,
            from: state.status.phase,
            seen,
            now,
            status: state.status.clone(),
            op: state.op.clone(),
            effects: Vec::new(),
            no_calls: None,
            refused: None,
            held_back: None,
            by_hand: state.op.as_ref().is_some_and(|op| op.cause.is_by_hand()),
            wake: None,
        }
    }

    pub(super) fn settings(&self) -> &'a Settings {
        &self.seen.settings
    }

    pub(super) fn epoch(&self) -> u64 {
        match self.seen.leadership {
            Leadership::Leader { epoch, .. } => epoch,
            Leadership::Follower => 0,
        }
    }

    /// Time in this phase so far.
    pub(super) fn elapsed(&self) -> Duration {
        self.now.since(self.status.phase_since)
    }

    /// Time until `when`; zero if it has passed.
    pub(super) fn left(&self, when: Timestamp) -> Duration {
        when.since(self.now)
    }

    /// Whether the phase's time is over.
    pub(super) fn is_overdue(&self) -> bool {
        self.status.deadline.is_some_and(|deadline| self.now >= deadline)
    }

    /// Asks to be looked at again at `when`, or earlier if that is already wanted.
    pub(super) fn look_at(&mut self, when: Timestamp) {
        self.wake = Some(self.wake.map_or(when, |earlier| earlier.min(when)));
    }

    pub(super) fn look_in(&mut self, length: Duration) {
        self.look_at(self.now.saturating_add(length));
    }

    /// Asks for the next look when a reading made then is far enough from this one to count as a second. The clock
    /// that stamps readings may be a twentieth slower than the one that counts the wait.
    pub(super) fn look_apart(&mut self) {
        let apart = self.settings().limits.off_apart.millis();
        self.look_in(Duration::from_millis(apart + apart / 20 + 1));
    }

    /// Asks for something that is not a power call.
    pub(super) fn ask(&mut self, kind: EffectKind) {
        if self.effects.iter().any(|one| one.kind == kind)
            || kind.changes_node() && self.only_read().is_some()
        {
            return;
        }
        let op = self.op.as_ref().map(|op| OpRef { id: op.id.clone(), epoch: op.epoch, seq: None });
        self.effects.push(Effect { repeat: kind.repeat(), kind, op, expects: None });
    }

    /// Announces a power call in the operation's record and asks for it.
    pub(super) fn call(&mut self, call: PowerCall, expects: Option<Power>) {
        let Some(op) = self.op.as_mut() else { return };
        op.effects = op.effects.saturating_add(1);
        let last = self.status.last_power_action.zip(self.status.power_action_time);
        let before = last.map(|(action, at)| LastAction { action, at });
        op.pending = Some(PendingEffect { seq: op.effects, call, at: self.now, before });
        op.last_sent_at = Some(self.now);
        if call.is_on() || call.is_off() {
            self.status.off_since = None;
        }
        if call.is_on() {
            // From here on nobody knows that it is off until that is proved again.
            let proof = self.status.off_proved_at.take();
            op.off_proved_before = op.off_proved_before.or(proof);
        }
        let action = match call {
            PowerCall::PowerOn { .. } | PowerCall::WolBurst { .. } => Some(PowerAction::On),
            PowerCall::GracefulOff { .. } => Some(PowerAction::GracefulOff),
            PowerCall::ForceOff { .. } => Some(PowerAction::ForceOff),
            PowerCall::PowerCycle { .. } => Some(PowerAction::Cycle),
            PowerCall::SetBoot { .. } | PowerCall::ResetBmc { .. } => None,
        };
        if let Some(action) = action {
            self.status.last_power_action = Some(action);
            self.status.power_action_time = Some(self.now);
            let drivers = &self.seen.settings.drivers;
            let place = driver_for(call, &self.status, |index| Some(drivers.get(index)?.kind), self.now);
            self.status.power_action_driver = drivers.get(place).map(|driver| driver.kind);
        }
        self.push_call(call, expects);
    }

    /// Asks again for the call that is announced already, under the same number.
    pub(super) fn repeat_call(&mut self, call: PowerCall, expects: Option<Power>) {
        self.push_call(call, expects);
    }

    fn push_call(&mut self, call: PowerCall, expects: Option<Power>) {
        let op = self.op.as_ref().map(|op| OpRef {
            id: op.id.clone(),
            epoch: op.epoch,
            seq: op.pending.as_ref().map(|pending| pending.seq),
        });
        let kind = EffectKind::Power(call);
        self.effects.push(Effect { repeat: kind.repeat(), kind, op, expects });
        self.no_calls = Some("1 power call is under way".into());
    }

    /// Starts an operation in place of the one before.
    pub(super) fn begin(&mut self, kind: OpKind, cause: Cause, reason: &str) {
        self.status.operations = self.status.operations.saturating_add(1);
        let id = format!("{}-{}", self.name, self.status.operations);
        self.op = Some(HostOp::new(id, kind, cause, reason.to_owned(), self.epoch(), self.now));
    }

    /// Gives the claim on the pool back, once.
    pub(super) fn release(&mut self) {
        let claimed = self.op.as_ref().is_some_and(|op| op.kind == OpKind::On && !op.released);
        if claimed {
            self.ask(EffectKind::ReleaseReservation);
            if let Some(op) = self.op.as_mut() {
                op.released = true;
                if let Cause::Intent { intent, .. } = &op.cause {
                    self.status.spent_intent = Some(intent.clone());
                }
            }
        }
    }

    /// Counts a failed attempt of this operation, once.
    pub(super) fn count_failure(&mut self, reason: &str, message: &str) {
        if self.op.as_ref().is_some_and(|op| op.failed.is_some()) {
            return;
        }
        if let Some(op) = self.op.as_mut() {
            op.failed = Some(reason.to_owned());
        }
        self.status.last_error = Some(format!("{reason}: {message}"));
        self.status.failures.push(Failure {
            at: self.now,
            phase: self.from,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
        let excess = self.status.failures.len().saturating_sub(MAX_FAILURES);
        self.status.failures.drain(..excess);
    }

    pub(super) fn condition(
        &mut self,
        kind: ConditionType,
        holds: Option<bool>,
        reason: &str,
        message: &str,
    ) {
        // What was never true needs no record that it is not.
        let known = self.status.conditions.iter().any(|one| one.kind == kind);
        if holds == Some(false)
            && !known
            && !matches!(kind, ConditionType::Ready | ConditionType::BmcReachable)
        {
            return;
        }
        let status = match holds {
            Some(true) => ConditionStatus::True,
            Some(false) => ConditionStatus::False,
            None => ConditionStatus::Unknown,
        };
        let observed_generation = self.settings().generation;
        set_condition(
            &mut self.status.conditions,
            HostCondition {
                kind,
                status,
                reason: reason.to_owned(),
                message: message.to_owned(),
                last_transition_time: self.now,
                observed_generation,
            },
        );
    }

    /// Ends the look without a move.
    pub(super) fn stay(self, reason: impl Into<String>) -> Step {
        self.end(Rule::Wait, reason.into())
    }

    /// Ends the look under a rule that keeps the phase.
    pub(super) fn stay_by(self, rule: Rule, reason: impl Into<String>) -> Step {
        assert!(table::admits(rule, self.from, self.from), "{rule} does not keep {}", self.from);
        self.end(rule, reason.into())
    }

    /// Ends the look with a move that the table admits, and the limit of the new phase.
    pub(super) fn go(
        mut self,
        rule: Rule,
        to: Phase,
        limit: Option<Duration>,
        reason: impl Into<String>,
    ) -> Step {
        let reason = with_number(reason.into(), self.elapsed());
        self.enter(rule, to, limit.map(|limit| self.now.saturating_add(limit)), &reason);
        self.end(rule, reason)
    }

    /// Like [`Self::go`], with an absolute deadline that was set earlier.
    pub(super) fn go_until(
        mut self,
        rule: Rule,
        to: Phase,
        deadline: Option<Timestamp>,
        reason: impl Into<String>,
    ) -> Step {
        let reason = with_number(reason.into(), self.elapsed());
        self.enter(rule, to, deadline, &reason);
        self.end(rule, reason)
    }

    fn enter(&mut self, rule: Rule, to: Phase, deadline: Option<Timestamp>, reason: &str) {
        assert!(table::admits(rule, self.from, to), "{rule} does not lead from {} to {to}", self.from);
        if to.state() != self.status.state {
            self.status.state = to.state();
            self.status.state_since = self.now;
        }
        self.status.phase = to;
        self.status.phase_since = self.now;
        self.status.deadline = deadline;
        self.status.overdue_since = None;
        reason.clone_into(&mut self.status.reason);
        let serving = matches!(to, Phase::Serving | Phase::Degraded);
        self.condition(ConditionType::Ready, Some(serving), camel(to), "");
        self.condition(ConditionType::Overdue, Some(false), "InTime", "");
        self.condition(
            ConditionType::Quarantined,
            Some(to == Phase::Quarantined),
            if to == Phase::Quarantined { "SetAside" } else { "Cleared" },
            "",
        );
        // What was given up here and is over by then is looked at again at once.
        self.look_at(deadline.unwrap_or(self.now));
        self.look_at(self.now);
    }

    /// The record goes away.
    pub(super) fn forget(mut self, reason: impl Into<String>) -> Step {
        self.release();
        self.ask(EffectKind::Forget);
        let mut step = self.end(Rule::Row(30), reason.into());
        step.gone = true;
        step
    }

    /// The way of every failure that ends an operation: a wait, or quarantine at the third.
    pub(super) fn fail(mut self, rule: Rule, reason: &str, message: &str) -> Step {
        self.count_failure(reason, message);
        self.release();
        let limits = &self.settings().limits;
        let count = u32::try_from(self.status.failures.len()).unwrap_or(u32::MAX);
        self.op = None;
        self.status.serving_since = None;
        let threshold = self.settings().policy.quarantine_after.max(1);
        if count >= threshold && table::admits(rule, self.from, Phase::Quarantined) {
            let text =
                format!("{message}; set aside after {count} failures within {}", limits.failure_window);
            return self.quarantine(rule, reason, &text);
        }
        self.status.backoff_count = self.status.backoff_count.saturating_add(1);
        let wait = backoff::delay(limits, self.name, self.status.backoff_count);
        self.status.retry_at = Some(self.now.saturating_add(wait));
        let mut step = self.go(rule, Phase::Backoff, None, format!("{message}; next look in {wait}"));
        step.wake = step.state.status.retry_at;
        step
    }

    pub(super) fn quarantine(mut self, rule: Rule, reason: &str, message: &str) -> Step {
        let limits = &self.settings().limits;
        self.release();
        self.op = None;
        self.status.retry_at = None;
        self.status.quarantine = Some(muster_model::host::Quarantine {
            since: self.now,
            reason: reason.to_owned(),
            probation_at: self.now.saturating_add(limits.probation),
            failed_tests: 0,
        });
        self.status.last_error = Some(format!("{reason}: {message}"));
        self.go(rule, Phase::Quarantined, None, message)
    }

    /// Says what its rack has to reckon with while nobody knows that it is off.
    fn tell_draw(&mut self) {
        let told = self.status.phase != Phase::Enrolling
            && Draw::of(Admin::Normal, Some(&self.status)) == Draw::NotKnownOff;
        let watts =
            self.settings().max_watts.map_or_else(|| "its watts".into(), |watts| format!("{watts} W"));
        let text = format!(
            "it counts {watts} because nobody knows that it is off; it is released by 2 readings of off, by its agent's \
             goodbye and silence, or by a person who looked: muster acknowledge host {}",
            self.name
        );
        let (reason, text) = if told { ("NotProved", text.as_str()) } else { ("Settled", "") };
        self.condition(ConditionType::OffNotProved, Some(told), reason, text);
    }

    /// Says that it is never switched, for as long as that is so. What would have been done stays to be read.
    fn tell_pretence(&mut self) {
        let told = muster_model::host::is_true(&self.status.conditions, ConditionType::DryRun);
        match (self.pretends(), told) {
            (true, false) => {
                let text = "it is read and never switched: dry-run is its only driver";
                self.condition(ConditionType::DryRun, Some(true), "ReadOnly", text);
            }
            (false, true) => self.condition(ConditionType::DryRun, Some(false), "Switches", ""),
            (true, true) | (false, false) => {}
        }
    }

    fn end(mut self, rule: Rule, reason: String) -> Step {
        let reason = with_number(reason, self.elapsed());
        if let Some(deadline) = self.status.deadline {
            self.look_at(deadline);
            if self.now >= deadline
                && self.status.overdue_since.is_none()
                && self.status.paused_since.is_none()
            {
                self.status.overdue_since = Some(deadline);
                self.condition(
                    ConditionType::Overdue,
                    Some(true),
                    camel(self.status.phase),
                    "the phase has lasted longer than it may",
                );
            }
        }
        if let Known::Value { value, .. } = &self.status.power {
            self.status.power_state = muster_model::host::PublicPower::of(Some(value.power));
        } else {
            self.status.power_state = muster_model::host::PublicPower::Unknown;
        }
        self.tell_draw();
        self.tell_pretence();
        Step {
            from: self.from,
            state: HostState { name: self.name.to_owned(), status: self.status, op: self.op },
            rule,
            effects: self.effects,
            reason,
            wake: self.wake,
            gone: false,
        }
    }
}

/// A reason that has no number says how long the phase has lasted.
fn with_number(mut reason: String, elapsed: Duration) -> String {
    if !reason.contains(|c: char| c.is_ascii_digit()) {
        reason.push_str(", after ");
        reason.push_str(&elapsed.to_string());
        reason.push_str(" in this phase");
    }
    reason
}

/// A phase as a condition's reason.
const fn camel(phase: Phase) -> &'static str {
    match phase {
        Phase::Enrolling => "Enrolling",
        Phase::Idle => "Idle",
        Phase::Reserved => "Reserved",
        Phase::PreparingBoot => "PreparingBoot",
        Phase::PowerRequested => "PowerRequested",
        Phase::Powered => "Powered",
        Phase::Booting => "Booting",
        Phase::Joining => "Joining",
        Phase::Serving => "Serving",
        Phase::Degraded => "Degraded",
        Phase::Lost => "Lost",
        Phase::Cordoned => "Cordoned",
        Phase::Evicting => "Evicting",
        Phase::Drained => "Drained",
        Phase::Stopping => "Stopping",
        Phase::ForcingOff => "ForcingOff",
        Phase::ConfirmingOff => "ConfirmingOff",
        Phase::Backoff => "Backoff",
        Phase::Quarantined => "Quarantined",
    }
}
