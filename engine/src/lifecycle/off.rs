//! The state `off`: enrolling, idle, reserved.

use muster_model::{
    Known, Timestamp,
    host::{
        BootProof, BootProofBy, Cause, ConditionType, DriverKind, Intent, NodeAtOff, OnUnexpectedOn, OpKind,
        Phase, Presence, Switch,
    },
};

use super::{BootNeed, Cordon, Deletion, EffectKind, Rule, Step, rules::Want, turn::Turn};

pub(super) fn enrolling(mut turn: Turn<'_>) -> Step {
    turn.ask_probe();
    if turn.is_off_proved() {
        turn.rest();
        return turn.go(Rule::Row(2), Phase::Idle, None, "the probe succeeded and 2 readings say off");
    }
    if turn.is_up() || turn.is_lease_fresh() {
        if turn.is_node_ready() {
            return turn.serve(Rule::Row(3), "it was registered while on, and 1 node of it is Ready");
        }
        // Nobody asked for it to be on: it is left alone, for as long as it takes.
        turn.status.deadline = None;
        turn.condition(
            ConditionType::UnexpectedOn,
            Some(true),
            "OnAtEnrolment",
            "it was registered while on, and no node of it has joined",
        );
        if let Some((cause, reason)) = turn.newly_wanted_off() {
            return off_by_hand(turn, cause, &reason);
        }
        let text = "it is on and 0 nodes of it have joined; left alone";
        text.clone_into(&mut turn.status.reason);
        return turn.stay_by(Rule::Row(3), text);
    }
    // Who answers is not given up because a cluster does not.
    let answers = turn.power().is_some() || turn.presence().is_some();
    if let Known::Unknown { why, .. } = &turn.seen.node
        && (turn.is_off_twice() || (turn.is_overdue() && answers))
    {
        let text = format!("it answers, and 0 clusters say whether its node is alive: {why}");
        turn.status.reason.clone_from(&text);
        turn.condition(ConditionType::Ready, Some(false), "NodeUnknown", &text);
        return turn.stay(text);
    }
    if turn.is_overdue() {
        let limit = turn.settings().limits.enrol;
        let text = format!("no probe succeeded within {limit}");
        turn.count_failure("EnrolmentTimedOut", &text);
        return turn.quarantine(Rule::Row(25), "EnrolmentTimedOut", &text);
    }
    turn.look_apart();
    turn.stay("waiting for 2 readings that agree")
}

pub(super) fn idle(mut turn: Turn<'_>) -> Step {
    turn.mark_node_off();
    turn.free_pods_if_proved();
    if turn.is_off_proved() && turn.status.off_proved_at.is_none() {
        turn.status.off_proved_at = Some(turn.now);
    }
    let up = turn.is_on_twice() || turn.is_lease_fresh() || (turn.is_up() && !turn.is_readable());
    turn.spend_old_intent();
    let overruled = turn.overruled(up);
    match turn.want() {
        Want::On(cause, reason) => {
            if turn.is_node_ready() {
                return adopt(turn);
            }
            if turn.pretends() {
                return would_wake(turn, &cause, &reason);
            }
            if let Some(said) = overruled {
                return turn.stay(format!(
                    "switched off although it was wanted on ({said}); left off until it is acknowledged or asked for anew"
                ));
            }
            match turn.wake_refused(&cause) {
                Some((why, again)) => {
                    if let Some(again) = again {
                        turn.look_at(again);
                    }
                    turn.wait_with_intent();
                    return turn.stay(format!("{why}; asked for: {reason}"));
                }
                None => return reserve(turn, cause, &reason),
            }
        }
        Want::Off(_, _) | Want::Nothing(_) => {}
    }
    if up {
        return unexpected_on(turn);
    }
    if turn.power() == Some(muster_model::host::Power::Off) {
        turn.status.unexpected_on_since = None;
        turn.condition(ConditionType::UnexpectedOn, Some(false), "Off", "");
    }
    match turn.want() {
        Want::Nothing(why) => turn.stay(why),
        Want::On(_, _) | Want::Off(_, _) => turn.stay("it is off, as wanted by 1 request"),
    }
}

/// Drift: it should be off and is on.
fn unexpected_on(mut turn: Turn<'_>) -> Step {
    if turn.is_node_ready() {
        return adopt(turn);
    }
    let by_hand = turn.newly_wanted_off();
    let since = turn.status.unexpected_on_since.unwrap_or(turn.now);
    turn.tell_unexpected_on();
    if let Some((cause, reason)) = by_hand {
        return off_by_hand(turn, cause, &reason);
    }
    let wait = turn.settings().limits.leave_on;
    let end = since.saturating_add(wait);
    if turn.now < end {
        let left = turn.left(end);
        turn.look_at(end);
        let text = match &turn.status.unexpected_on_despite {
            Some(said) => format!(
                "switched on although it was wanted off ({said}); left alone for {left} more, unless it is asked for anew"
            ),
            None => format!("it is on although not wanted; left alone for {left} more"),
        };
        return turn.stay_by(Rule::Drift(6), text);
    }
    match turn.settings().policy.on_unexpected_on {
        OnUnexpectedOn::Adopt => {
            turn.stay_by(Rule::Drift(6), format!("on for more than {wait} without a node; left on by policy"))
        }
        OnUnexpectedOn::EnforceOff => {
            if let Some(why) = turn.off_refused().or_else(|| turn.kept_on()) {
                return turn.stay_by(Rule::Drift(6), format!("to be switched off by policy, but {why}"));
            }
            let text = format!("on for more than {wait} without a node; switched off by policy");
            turn.shut_down(Rule::Drift(6), Cause::Drift, &text, text.clone())
        }
    }
}

/// A person wants it off, and no node of it is there to drain.
fn off_by_hand(mut turn: Turn<'_>, cause: Cause, reason: &str) -> Step {
    let rule = if turn.from == Phase::Enrolling { Rule::Row(3) } else { Rule::Drift(6) };
    if let Some(why) = turn.off_refused() {
        turn.ask_probe();
        return turn.stay_by(rule, format!("{reason}; its power-off waits: {why}"));
    }
    let text = format!("{reason}; {} to shut down", turn.settings().limits.grace);
    turn.shut_down(Rule::Drift(6), cause, reason, text)
}

/// Drift: it should be off, and its node serves.
fn adopt(mut turn: Turn<'_>) -> Step {
    turn.status.unexpected_on_since = None;
    if turn.seen.pool.below_max {
        turn.condition(ConditionType::UnexpectedOn, Some(false), "Adopted", "");
        return turn.serve(Rule::Drift(7), "switched on by somebody else; 1 Ready node is adopted");
    }
    turn.condition(ConditionType::UnexpectedOn, Some(true), "PoolAtMaximum", "its pool has no room for it");
    turn.condition(ConditionType::Surplus, Some(true), "PoolAtMaximum", "its pool has no room for it");
    turn.status.serving_since = Some(turn.now);
    turn.status.off_since = None;
    let id = format!("{}-surplus", turn.name);
    turn.status.cordoned_by = Some(id);
    turn.ask(EffectKind::Cordon);
    let text = turn.only_read().map_or("kept cordoned", |_| "not cordoned, as its pool only gives advice");
    turn.go(Rule::Drift(7), Phase::Degraded, None, format!("1 more than its pool's maximum; {text}"))
}

/// Its drivers switch nothing: what would be done is written down, and the pool is told to look elsewhere.
fn would_wake(mut turn: Turn<'_>, cause: &Cause, reason: &str) -> Step {
    let text = format!("would power on: {reason}");
    turn.condition(ConditionType::DryRun, Some(true), "WouldPowerOn", &text);
    if let Cause::Intent { intent, .. } = cause {
        turn.status.spent_intent = Some(intent.clone());
        turn.ask(EffectKind::ReleaseReservation);
        // As long as after a real start, so that another host has its turn.
        turn.status.retry_at = Some(turn.now.saturating_add(turn.settings().limits.cycle_interval));
    }
    turn.stay(format!("dry-run is its only driver, so 0 calls are made; {text}"))
}

/// Its record goes, and no node of it is known to serve. Who asked for its power to be taken gets that first.
pub(super) fn deleted(mut turn: Turn<'_>) -> Step {
    let back = match turn.from {
        Phase::Enrolling => turn.is_node_ready().then_some(Rule::Row(3)),
        Phase::Idle => turn.is_node_ready().then_some(Rule::Drift(7)),
        Phase::Lost => turn.is_node_fine().then_some(Rule::Row(15)),
        Phase::Backoff => turn.is_node_ready().then_some(Rule::Row(27)),
        _ => None,
    };
    if let Some(rule) = back {
        return turn.serve(rule, "its record is deleted, and its node is Ready: 1 drain comes first");
    }
    let asked = turn.seen.deletion == Deletion::RequestedWithPowerOff && !turn.pretends();
    let known_off = turn.power() == Some(muster_model::host::Power::Off) || turn.is_off_proved();
    let silent = !turn.is_readable() && turn.presence() != Some(Presence::Answers) && !turn.is_lease_fresh();
    if !asked || known_off || silent {
        return turn.forget("its record is deleted; 0 pods are served by it");
    }
    turn.ask_probe();
    let tried = turn.status.failures.last().is_some_and(|last| {
        turn.from == Phase::Quarantined
            && matches!(last.phase, Phase::Stopping | Phase::ForcingOff | Phase::ConfirmingOff)
    });
    let waits = turn.status.retry_at.filter(|at| turn.now < *at);
    let refused = if tried {
        Some("it was not switched off by 1 attempt".to_owned())
    } else if let Some(at) = waits {
        turn.look_at(at);
        Some(format!("the next attempt is in {}", turn.left(at)))
    } else if turn.graceful_off(0).is_none() && turn.force_off(0).is_none() {
        Some("0 of its drivers can switch it off".into())
    } else {
        turn.off_refused()
    };
    if let Some(why) = refused {
        let text = format!(
            "to be switched off before its record goes, but {why}; with --force the record goes at once"
        );
        return turn.stay_by(Rule::Row(30), text);
    }
    turn.release();
    let text = format!("{} to shut down before its record goes", turn.settings().limits.grace);
    turn.shut_down(Rule::Row(30), Cause::Deletion, "its record is deleted, and its power with it", text)
}

fn reserve(mut turn: Turn<'_>, cause: Cause, reason: &str) -> Step {
    turn.begin(OpKind::On, cause, reason);
    turn.ask(EffectKind::Reserve);
    let limit = turn.settings().limits.reserve;
    turn.go(Rule::Row(4), Phase::Reserved, Some(limit), format!("claimed for 1 power-on: {reason}"))
}

pub(super) fn reserved(mut turn: Turn<'_>) -> Step {
    if turn.power().is_some_and(muster_model::host::Power::is_up) {
        return turn.adopt_power(Rule::Row(6));
    }
    if turn.is_withdrawn() {
        turn.release();
        turn.op = None;
        return turn.go(Rule::Row(4), Phase::Idle, None, "the wish was withdrawn with 0 calls made");
    }
    if turn.is_overdue() {
        turn.release();
        turn.op = None;
        let limit = turn.settings().limits.reserve;
        return turn.go(Rule::Row(4), Phase::Idle, None, format!("nothing was done within {limit}"));
    }
    let limit = turn.settings().limits.prepare;
    turn.prepare_boot(false);
    turn.go(Rule::Row(5), Phase::PreparingBoot, Some(limit), format!("preparing to boot within {limit}"))
}

impl Turn<'_> {
    /// That a person wants it off, and has said so since it was found on. What was said before is left to whoever switched
    /// it on nevertheless.
    fn newly_wanted_off(&mut self) -> Option<(Cause, String)> {
        let wish = match self.want() {
            Want::Off(cause @ Cause::Manual { .. }, reason) => Some((cause, reason)),
            _ => None,
        };
        let said = wish.as_ref().map(|_| self.said_by_hand());
        if self.status.unexpected_on_since.is_none() {
            self.status.unexpected_on_since = Some(self.now);
            self.status.unexpected_on_despite = said;
            return None;
        }
        if said != self.status.unexpected_on_despite {
            self.status.unexpected_on_despite = None;
        }
        wish.filter(|_| self.status.unexpected_on_despite.is_none())
    }

    /// What was wanted already when somebody else switched it off, for as long as nothing newer is said and it stays off.
    fn overruled(&mut self, up: bool) -> Option<String> {
        let said = self.status.unexpected_off_despite.take().filter(|_| !up)?;
        if self.wanted_on().as_ref() == Some(&said) {
            self.status.unexpected_off_despite = Some(said.clone());
            return Some(said);
        }
        None
    }

    /// It was proved off, nothing was asked of its power since, and it is on without a node.
    pub(super) fn is_on_by_others(&self) -> bool {
        let heard = !self.is_readable() && self.presence() == Some(Presence::Answers);
        let without_node = self.node().is_some() && self.joined().is_none();
        self.status.off_since.is_some() && (self.is_on_twice() || heard) && without_node
    }

    /// Says that somebody else switched it on.
    pub(super) fn tell_unexpected_on(&mut self) {
        self.condition(
            ConditionType::UnexpectedOn,
            Some(true),
            "SwitchedOnByHand",
            "it was switched on by somebody else, or power came back",
        );
    }

    /// What was wanted before it last went off was served then, and what is seen only when the planner counts on it no
    /// longer may have woken another one by now. What has waited for its turn since it was new waits on.
    fn spend_old_intent(&mut self) {
        let Some(intent) = &self.seen.intent else { return };
        let served = self.status.off_since.is_some_and(|off| off > intent.at);
        let waited = self.status.waiting_intent.as_deref() == Some(intent.id.as_str());
        let old = intent.want == Switch::On && self.now.since(intent.at) >= Intent::TAKEN_UP_WITHIN;
        if old && (served || !waited) && self.status.spent_intent.as_deref() != Some(intent.id.as_str()) {
            self.status.spent_intent = Some(intent.id.clone());
            self.ask(EffectKind::ReleaseReservation);
        }
    }

    /// Notes that it waits for what the planner wants of it.
    fn wait_with_intent(&mut self) {
        self.status.waiting_intent = self.seen.intent.as_ref().map(|intent| intent.id.clone());
    }

    /// Sets the boot device if a profile asks for it and a driver can.
    ///
    /// One that could not be asked is asked again a while later, unless it is `another`'s turn.
    pub(super) fn prepare_boot(&mut self, another: bool) {
        let call = self.set_boot(self.op.as_ref().map_or(0, |op| op.boots_refused));
        let needed = self.settings().boot == BootNeed::Profile;
        let last = self.op.as_ref().filter(|op| !another && !op.boot_set && op.pending.is_none());
        let apart = self.settings().limits.off_apart;
        let next = last.and_then(|op| op.last_sent_at).map(|last| last.saturating_add(apart));
        if let Some(next) = next.filter(|next| needed && self.now < *next) {
            return self.look_at(next);
        }
        let Some(op) = self.op.as_mut() else { return };
        match call {
            Some(call) if needed && !op.boot_set => {
                if self.no_calls.is_none() && op.pending.is_none() {
                    self.call(call, None);
                }
            }
            Some(_) | None => op.boot_set = true,
        }
    }

    /// It is on already: nothing is sent.
    pub(super) fn adopt_power(mut self, rule: Rule) -> Step {
        let limit = self.settings().limits.boot;
        let deadline = self.now.saturating_add(limit);
        if let Some(op) = self.op.as_mut() {
            op.adopted = op.power_requested_at.is_none();
            op.pending = None;
            op.boot_deadline = Some(deadline);
        }
        if self.op.as_ref().is_some_and(|op| op.adopted) {
            self.status.unexpected_on_since.get_or_insert(self.now);
            self.status.off_since = None;
        }
        self.status.boot_time = Some(self.now);
        self.go_until(rule, Phase::Powered, Some(deadline), "on already, 0 calls sent; recorded as adopted")
    }

    /// The end of a way off.
    pub(super) fn rest(&mut self) {
        self.status.waiting_intent = None;
        self.status.off_proved_at = Some(self.now);
        self.status.off_since = Some(self.now);
        self.status.kubernetes_cluster = None;
        self.status.serving_since = None;
        self.status.backoff_count = 0;
        self.status.retry_at = None;
        self.status.unexpected_on_since = None;
        self.op = None;
        self.condition(ConditionType::UnexpectedOn, Some(false), "Off", "");
        self.condition(ConditionType::CannotForceOff, Some(false), "Off", "");
        self.condition(ConditionType::NodeLost, Some(false), "Off", "");
        self.condition(ConditionType::Surplus, Some(false), "Off", "");
        self.condition(ConditionType::DrainBlocked, Some(false), "Off", "");
        self.mark_node_off();
    }

    /// What the pool wants to become of the node of a host that is off. Asked for until it is seen.
    pub(super) fn mark_node_off(&mut self) {
        if !self.is_off_proved() {
            return;
        }
        let Some(Some(node)) = self.node() else { return };
        let marked = node.off_taint;
        match self.settings().policy.node_at_off {
            NodeAtOff::KeepTainted if !marked => self.ask(EffectKind::TaintOff),
            NodeAtOff::Delete if self.pods().is_some_and(|pods| pods.total() == 0) => {
                self.ask(EffectKind::DeleteNode);
            }
            NodeAtOff::KeepTainted | NodeAtOff::Delete | NodeAtOff::Leave => {}
        }
    }

    /// The node serves: labels, cordon and taints are put right, and asked for until they are seen.
    pub(super) fn serve(mut self, rule: Rule, reason: impl Into<String>) -> Step {
        let now = self.now;
        self.note_wake();
        self.note_boot();
        self.status.join_time = Some(now);
        self.status.serving_since = Some(now);
        self.status.off_since = None;
        self.status.unexpected_off_despite = None;
        self.status.not_ready_since = None;
        self.status.backoff_count = 0;
        self.status.retry_at = None;
        self.status.last_error = None;
        self.status.unexpected_on_since = None;
        self.op = None;
        for kind in [
            ConditionType::NodeLost,
            ConditionType::UnexpectedOff,
            ConditionType::UnexpectedOn,
            ConditionType::BootFailed,
            ConditionType::CannotForceOff,
        ] {
            self.condition(kind, Some(false), "Serving", "");
        }
        self.dress_node();
        self.go(rule, Phase::Serving, None, reason)
    }

    /// Writes down which boot its node shows, and what proves it.
    pub(super) fn note_boot(&mut self) {
        let Some(by) = self.joined() else { return };
        let boot_id = self.node().flatten().and_then(|node| node.boot_id.clone());
        self.status.boot_proof = Some(BootProof { boot_id, at: self.now, by });
    }

    /// The agent says hello from another boot than the last ones: the machine has booted, be its node there or not.
    pub(super) fn note_hello(&mut self, since: Timestamp) {
        let Some(hello) = self.seen.agent.hello.as_ref().filter(|hello| hello.at > since) else { return };
        let last = self.status.boot_proof.as_ref().and_then(|proof| proof.boot_id.as_ref());
        if [self.status.boot_id_at_off.as_ref(), last].contains(&Some(&hello.boot_id)) {
            return;
        }
        let boot_id = Some(hello.boot_id.clone());
        self.status.boot_proof = Some(BootProof { boot_id, at: self.now, by: BootProofBy::AgentHello });
        self.note_wake();
    }

    /// It has come up. Where magic packets wake it nothing else shows that they do.
    fn note_wake(&mut self) {
        let waked = self.op.as_ref().is_some_and(|op| op.kind == OpKind::On && !op.adopted);
        let wol = self.settings().drivers.iter().any(|driver| driver.kind == DriverKind::Wol);
        if waked && wol {
            self.status.wake_proved_at = Some(self.now);
        }
    }

    /// What a serving node should look like. Asked for until it is seen, whoever died in between.
    pub(super) fn dress_node(&mut self) {
        let Some(Some(node)) = self.node() else { return };
        let node = node.clone();
        // In a pool that only gives advice a person may have switched it on: then it is made ready to serve, as long as
        // nothing serves on it yet. Whoever asks for power does not ask for taints among running pods.
        let fresh = node.startup_taint || node.off_taint || node.out_of_service;
        if !node.labels_complete && (fresh || self.seen.pool.advice.is_none()) {
            self.ask(EffectKind::ApplyLabels);
        }
        // Pods come only when the node says whose it is and whom it takes.
        if node.startup_taint
            && node.labels_complete
            && !(muster_model::planted::is("F17") && self.from == Phase::Serving)
        {
            self.ask(EffectKind::RemoveStartupTaint);
        }
        if node.off_taint && node.labels_complete {
            self.ask(EffectKind::RemoveOffTaint);
        }
        if node.out_of_service {
            self.ask(EffectKind::RemoveOutOfServiceTaint);
        }
        let surplus = muster_model::host::is_true(&self.status.conditions, ConditionType::Surplus);
        match node.cordon {
            Cordon::Ours { .. } if !surplus && !muster_model::planted::is("F11") => {
                self.ask(EffectKind::Uncordon);
            }
            Cordon::None if surplus => self.ask(EffectKind::Cordon),
            Cordon::None => self.status.cordoned_by = None,
            Cordon::Ours { .. } | Cordon::Foreign => {}
        }
    }

    /// The time to shut down begins now: what went by before, the operating system did not have.
    pub(super) fn grant_grace(&mut self) {
        self.status.deadline = Some(self.now.saturating_add(self.settings().limits.grace));
    }

    /// Begins to switch off a machine of which nobody knows what it runs: it is asked first, if it can be.
    pub(super) fn shut_down(mut self, rule: Rule, cause: Cause, why: &str, text: String) -> Step {
        self.begin(OpKind::Off, cause, why);
        self.status.off_since = None;
        if let Some(op) = self.op.as_mut() {
            op.os_seen = true;
        }
        self.ask_off();
        let grace = self.settings().limits.grace;
        self.go(rule, Phase::Stopping, Some(grace), text)
    }

    /// Asks the machine to shut down if it can be asked; the answer is awaited in `stopping`.
    pub(super) fn ask_off(&mut self) {
        let boot_id = self.node().flatten().and_then(|node| node.boot_id.clone());
        if boot_id.is_some() {
            self.status.boot_id_at_off = boot_id;
        }
        let refused = self.op.as_ref().map_or(0, |op| op.asks_refused);
        let Some(call) = self.graceful_off(refused) else { return };
        let expects = self.is_readable().then_some(muster_model::host::Power::On);
        self.call(call, expects);
        let now = self.now;
        if let Some(op) = self.op.as_mut() {
            op.asked_off_at = Some(now);
        }
    }
}
