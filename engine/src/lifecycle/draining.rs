//! The state `draining`: from the cordon to a proved off.

use muster_model::{
    Known, Timestamp,
    host::{Cause, ConditionType, DriverKind, OpKind, Phase, PowerCall},
};

use super::{
    Cordon, Deletion, EffectKind, Rule, Step,
    ready::{give_up, unexpected_off},
    rules::Want,
    turn::Turn,
};

/// Why a drain is no longer wanted.
fn demand_back(turn: &Turn<'_>) -> Option<String> {
    match turn.want() {
        Want::Off(_, _) => None,
        Want::On(_, why) | Want::Nothing(why) => Some(why),
    }
}

pub(super) fn cordoned(mut turn: Turn<'_>) -> Step {
    if turn.is_off_proved() {
        return unexpected_off(turn);
    }
    if let Some(why) = demand_back(&turn) {
        return back_to_work(turn, "DemandCameBack", &format!("wanted again with 0 pods evicted: {why}"));
    }
    if let Some(why) = turn.guarded() {
        return back_to_work(turn, "NodeGuarded", &why);
    }
    let seen = match turn.node() {
        _ if muster_model::planted::is("F10") => true,
        None => false,
        Some(None) => true,
        Some(Some(node)) => node.cordon != Cordon::None,
    };
    if seen {
        let limit = turn.settings().limits.drain;
        let deadline = turn.now.saturating_add(limit);
        if let Some(op) = turn.op.as_mut() {
            op.drain_deadline = Some(deadline);
        }
        if matches!(turn.node(), Some(Some(node)) if node.cordon == Cordon::Foreign) {
            turn.status.cordoned_by = None;
        }
        turn.ask(EffectKind::Evict);
        return turn.go_until(
            Rule::Row(17),
            Phase::Evicting,
            Some(deadline),
            format!("cordoned; {limit} to drain"),
        );
    }
    if turn.is_overdue() {
        let limit = turn.settings().limits.cordon;
        return back_to_work(turn, "CordonNotSeen", &format!("the cordon was not seen within {limit}"));
    }
    turn.ask(EffectKind::Cordon);
    turn.stay("waiting for the API server to show 1 cordon")
}

pub(super) fn evicting(mut turn: Turn<'_>) -> Step {
    if turn.is_off_proved() {
        return unexpected_off(turn);
    }
    if let Some(why) = demand_back(&turn) {
        return back_to_work(turn, "DemandCameBack", &format!("wanted again after 1 drain began: {why}"));
    }
    if let Some(why) = turn.guarded() {
        return back_to_work(turn, "NodeGuarded", &why);
    }
    let overdue = turn.is_overdue() && !muster_model::planted::is("F8");
    let limit = turn.settings().limits.drain;
    let Some(pods) = turn.pods().cloned() else {
        if overdue {
            return back_to_work(turn, "PodsUnknown", &format!("0 answers about its pods within {limit}"));
        }
        return turn.stay("0 answers about its pods; unknown is not empty");
    };
    if pods.protected > 0 {
        let text = format!("{} pods may not be evicted", pods.protected);
        return back_to_work(turn, "PodsProtected", &text);
    }
    if pods.total() == 0 {
        return match &turn.seen.pool.would_pend {
            Known::Value { value: 0, .. } => {
                let deadline = turn.status.deadline;
                turn.go_until(
                    Rule::Row(18),
                    Phase::Drained,
                    deadline,
                    "all pods are gone, 0 would have no place",
                )
            }
            Known::Value { value: waiting, .. } => {
                let text = format!("{waiting} pods would have no place without it");
                back_to_work(turn, "DemandCameBack", &text)
            }
            Known::Unknown { why, .. } if overdue => {
                let text = format!("0 answers whether its pods have another place: {why}");
                back_to_work(turn, "PlanUnknown", &text)
            }
            Known::Unknown { why, .. } => {
                let text = format!("0 answers yet whether its pods have another place: {why}");
                turn.stay(text)
            }
        };
    }
    if overdue {
        let blocker = pods.blocked_by.as_deref().unwrap_or("a pod that does not end");
        let text = format!("{} pods were still there after {limit}, held by {blocker}", pods.total());
        return back_to_work(turn, "DrainTimedOut", &text);
    }
    turn.ask(EffectKind::Evict);
    let held = pods.blocked_by.as_deref().map(|by| format!(", held by {by}")).unwrap_or_default();
    turn.stay(format!("{} pods to go{held}", pods.total()))
}

/// The drain is given up: the node takes pods again. The intent that it was for is spent: the plan behind it knew
/// nothing of what ended the drain, and only a later one may ask again. A person's wish stands.
fn back_to_work(mut turn: Turn<'_>, reason: &str, message: &str) -> Step {
    let retry = turn.settings().limits.drain_retry;
    turn.status.drain_retry_at = Some(turn.now.saturating_add(retry));
    if let Some(Cause::Intent { intent, .. }) = turn.op.as_ref().map(|op| &op.cause) {
        turn.status.spent_intent = Some(intent.clone());
    }
    turn.condition(ConditionType::DrainBlocked, Some(true), reason, message);
    turn.op = None;
    if turn.status.cordoned_by.is_some() {
        turn.ask(EffectKind::Uncordon);
    }
    // One that cannot take pods does not serve: what became of its node is seen from there.
    let phase = match turn.node() {
        Some(Some(node)) if !node.ready => Phase::Degraded,
        Some(None) => Phase::Degraded,
        Some(Some(_)) | None => Phase::Serving,
    };
    turn.go(Rule::Row(19), phase, None, message)
}

pub(super) fn drained(mut turn: Turn<'_>) -> Step {
    let boot_cancelled = turn.op.as_ref().is_some_and(|op| op.cancelling);
    if turn.is_off_proved() {
        return off_proved(turn);
    }
    if !boot_cancelled && let Some(why) = demand_back(&turn) {
        return back_to_work(turn, "DemandCameBack", &format!("wanted again with 0 pods on it: {why}"));
    }
    if !boot_cancelled && let Some(why) = turn.guarded() {
        return back_to_work(turn, "NodeGuarded", &why);
    }
    let deletes = turn.op.as_ref().is_some_and(|op| op.cause == Cause::Deletion);
    if deletes && turn.seen.deletion == Deletion::Requested {
        return turn.forget("its record is deleted after its drain; 0 power calls were made");
    }
    if !boot_cancelled && turn.pods().is_some_and(|pods| pods.total() > 0) {
        let count = turn.pods().map_or(0, super::PodsView::total);
        return back_to_work(turn, "NewPods", &format!("{count} pods came onto it after the drain"));
    }
    if let Some(why) = turn.off_refused() {
        if turn.is_overdue() {
            return if boot_cancelled {
                give_up(turn, "NotSwitchedOff", &format!("it was no longer wanted, but {why}"))
            } else {
                back_to_work(turn, "NotSwitchedOff", &format!("drained, but {why}"))
            };
        }
        turn.ask_probe();
        turn.look_apart();
        return turn.stay(format!("power-off waits: {why}"));
    }
    if let Some(op) = turn.op.as_mut() {
        op.kind = OpKind::Off;
        op.os_seen |= !boot_cancelled;
    }
    let os_seen = turn.op.as_ref().is_some_and(|op| op.os_seen);
    if os_seen {
        turn.ask_off();
    }
    let grace = turn.settings().limits.grace;
    turn.go(Rule::Row(22), Phase::Stopping, Some(grace), format!("0 pods left; {grace} to shut down"))
}

/// How often in a row a machine is asked to shut down when nothing leaves: by default for ten minutes.
const MAX_UNSENT: u32 = 30;

pub(super) fn stopping(mut turn: Turn<'_>) -> Step {
    if turn.is_off_proved() {
        return off_proved(turn);
    }
    if let Some((reason, why)) = turn.held_back.take() {
        // Only a node that was drained, and only while nothing has left: a machine that was asked to go may go at any time.
        let returns = turn.op.as_ref().is_some_and(|op| {
            op.drain_deadline.is_some()
                && op.failed.is_none()
                && op.asked_off_at.is_none()
                && op.force_offs == 0
        });
        if returns {
            return back_to_work(turn, reason, &format!("0 power calls were made: {why}"));
        }
        turn.no_calls = Some(why);
    }
    let another = turn.note_refused_ask();
    let Some(op) = &turn.op else { return turn.stay("0 operations are under way") };
    let (asked, os_seen, sent, refused, unsent, last) =
        (op.asked_off_at, op.os_seen, op.force_offs, op.asks_refused, op.asks_unsent, op.last_sent_at);
    let overdue = turn.is_overdue();
    let can_ask = os_seen && turn.graceful_off(refused).is_some();
    // Nobody cuts the power of a machine that was not asked first, unless it cannot be asked for long.
    if asked.is_none()
        && can_ask
        && sent == 0
        && unsent < MAX_UNSENT
        && let Some(text) = ask_first(&mut turn, last.filter(|_| !another), overdue)
    {
        return turn.stay(text);
    }
    if !overdue && let Some(call) = turn.renewed_ask(refused) {
        turn.call(call, None);
        return turn.stay("asked to shut down again: its agent is still heard, and an order lasts 1 minute");
    }
    if overdue || !can_ask {
        let Some(call) = turn.force_off(sent) else { return cannot_force(turn) };
        return match if overdue { turn.force_refused() } else { turn.off_refused() } {
            None => force(turn, call),
            Some(why) if overdue && turn.no_calls.is_none() => give_up(turn, "NotSwitchedOff", &why),
            // A lease that runs out is no reason to give up; a BMC that is silent for good is.
            Some(why) if overdue && is_late_by_a_phase(&turn) => give_up(turn, "NotSwitchedOff", &why),
            Some(why) => {
                turn.ask_probe();
                turn.stay(format!("forced off waits: {why}"))
            }
        };
    }
    turn.ask_probe();
    turn.look_apart();
    let left = turn.status.deadline.map(|deadline| turn.left(deadline)).unwrap_or_default();
    turn.stay(format!("shutting down, {left} left"))
}

/// Asks the machine to shut down, a while after the `last` call; what is done about that now. Nothing, if its time is over
/// and it may not be switched off.
fn ask_first(turn: &mut Turn<'_>, last: Option<Timestamp>, overdue: bool) -> Option<String> {
    let refused = turn.off_refused();
    if let Some(why) = refused.as_ref().filter(|_| !overdue) {
        turn.ask_probe();
        return Some(format!("shutdown waits: {why}"));
    }
    let next = last.map(|last| last.saturating_add(turn.settings().limits.off_apart));
    if let Some(next) = next.filter(|next| turn.now < *next) {
        turn.ask_probe();
        turn.look_at(next);
        return Some(format!("0 answers to its shutdown; asked again in {}", turn.left(next)));
    }
    if refused.is_some() {
        return None;
    }
    turn.ask_off();
    turn.grant_grace();
    Some("asked to shut down, 1 call".to_owned())
}

/// Nothing can cut its power: what is left is its time to go by itself.
fn cannot_force(mut turn: Turn<'_>) -> Step {
    if !turn.is_overdue() {
        turn.ask_probe();
        return turn.stay("it cannot be forced off; 1 deadline is left to it");
    }
    turn.condition(
        ConditionType::CannotForceOff,
        Some(true),
        "CannotForceOff",
        "it does not go off on request, and none of its drivers can cut its power",
    );
    let grace = turn.settings().limits.grace;
    give_up(turn, "cannotForceOff", &format!("not off within {grace}, and 0 drivers can force it"))
}

/// The deadline has been over for as long as another forced power-off may take.
fn is_late_by_a_phase(turn: &Turn<'_>) -> bool {
    let limit = turn.settings().limits.force_off;
    turn.status.deadline.is_some_and(|deadline| turn.now.since(deadline) >= limit)
}

fn force(mut turn: Turn<'_>, call: PowerCall) -> Step {
    turn.send_force(call);
    let limit = turn.settings().limits.force_off;
    turn.go(
        Rule::Row(23),
        Phase::ForcingOff,
        Some(limit),
        format!("forced off, 1 of 2 calls, {limit} to confirm"),
    )
}

impl Turn<'_> {
    /// The order to an agent that is to be given once more: it waits in the memory of whoever leads, and not for long. One
    /// that is heard since has not taken it, or did not get away with it.
    fn renewed_ask(&self, refused: u32) -> Option<PowerCall> {
        let op = self.op.as_ref().filter(|op| op.asked_off_at.is_some() && op.force_offs == 0)?;
        let call @ PowerCall::GracefulOff { driver } = self.graceful_off(refused)? else { return None };
        let agent = self.settings().drivers.get(driver).is_some_and(|one| one.kind == DriverKind::Agent);
        let (sent, limits) = (op.last_sent_at?, &self.settings().limits);
        let hello = self.seen.agent.hello.as_ref()?.at;
        let heard = hello > sent && self.now.since(hello) < limits.off_apart;
        let due = self.now.since(sent) >= limits.force_again;
        (agent && heard && due && self.off_refused().is_none()).then_some(call)
    }

    /// A driver that refused to ask the machine to shut down: the next one that can has its turn. Whether one did.
    pub(super) fn note_refused_ask(&mut self) -> bool {
        let refused = self.refused.take().is_some();
        if let Some(op) = self.op.as_mut().filter(|_| refused) {
            op.asks_refused = op.asks_refused.saturating_add(1);
            op.asked_off_at = None;
        }
        refused
    }

    pub(super) fn send_force(&mut self, call: PowerCall) {
        let boot_id = self.node().flatten().and_then(|node| node.boot_id.clone());
        if boot_id.is_some() {
            self.status.boot_id_at_off = boot_id;
        }
        self.call(call, self.forced_from());
        if let Some(op) = self.op.as_mut() {
            op.force_offs = op.force_offs.saturating_add(1);
        }
    }
}

pub(super) fn forcing_off(mut turn: Turn<'_>) -> Step {
    if turn.is_off_proved() {
        return off_proved(turn);
    }
    let limits = &turn.settings().limits;
    let (sent, last) = turn.op.as_ref().map_or((0, None), |op| (op.force_offs, op.last_sent_at));
    if turn.is_overdue() {
        let text = format!("{sent} forced power-offs within {} did not prove it off", limits.force_off);
        return give_up(turn, "ForceOffFailed", &text);
    }
    let due = last.is_none_or(|at| turn.now.since(at) >= limits.force_again);
    if due
        && sent < 2
        && let Some(call) = turn.force_off(sent)
        && turn.force_refused().is_none()
    {
        turn.send_force(call);
        return turn.stay_by(Rule::Row(23), "forced off again, 2 of 2 calls");
    }
    turn.ask_probe();
    turn.look_apart();
    turn.stay(format!("waiting for 2 readings of off after {sent} forced power-offs"))
}

/// Off is proved: the end of a failed attempt, or rest.
fn off_proved(mut turn: Turn<'_>) -> Step {
    let failed = turn.op.as_ref().and_then(|op| op.failed.clone());
    turn.free_pods_if_proved();
    turn.status.off_proved_at = Some(turn.now);
    if let Some(op) = turn.op.as_mut() {
        op.pending = None;
    }
    if let (Some(reason), true) = (failed, turn.from != Phase::Drained) {
        turn.status.off_since = Some(turn.now);
        turn.mark_node_off();
        return turn.fail(Rule::Row(21), &reason, "off after a failed attempt, 2 readings agree");
    }
    turn.mark_node_off();
    let limit = turn.settings().limits.confirm_off;
    turn.go(Rule::Row(26), Phase::ConfirmingOff, Some(limit), "2 readings say off and its lease is silent")
}

pub(super) fn confirming_off(mut turn: Turn<'_>) -> Step {
    if turn.is_off_proved() {
        turn.rest();
        turn.status.serving_since = None;
        turn.status.cordoned_by = None;
        return turn.go(Rule::Row(26), Phase::Idle, None, "off, 2 signals agree");
    }
    if turn.is_overdue() {
        let limit = turn.settings().limits.confirm_off;
        return give_up(
            turn,
            "OffNotConfirmed",
            &format!("off was proved once and not again within {limit}"),
        );
    }
    turn.ask_probe();
    turn.stay("off was proved once; 1 more look confirms it")
}
