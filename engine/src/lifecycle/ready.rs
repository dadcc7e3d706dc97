//! The state `ready`: serving, degraded, lost.

use muster_model::host::{
    Cause, ConditionType, DriverKind, Intent, OnNodeDeleted, OnUnexpectedOff, OpKind, Phase, Power,
    PowerCall, find_condition, is_true,
};

use super::{EffectKind, Rule, Step, rules::Want, turn::Turn};

pub(super) fn serving(mut turn: Turn<'_>) -> Step {
    if turn.is_off_proved() {
        return unexpected_off(turn);
    }
    turn.ask_other_driver();
    note_deleted(&mut turn);
    if let Some((rule, reason)) = lost(&mut turn) {
        if stands_down_deleted(&mut turn) {
            return shut_down_deleted(turn);
        }
        let limit = turn.settings().limits.lost;
        return turn.go(rule, Phase::Lost, Some(limit), reason);
    }
    turn.dress_node();
    let fine = turn.is_node_fine();
    let unreachable =
        turn.is_blocked() || (!turn.status.bmc_reachable && turn.is_readable() && turn.power().is_none());
    let surplus = is_true(&turn.status.conditions, ConditionType::Surplus);
    if turn.from == Phase::Serving && unreachable && fine {
        return turn.go(
            Rule::Row(14),
            Phase::Degraded,
            None,
            "0 answers from its BMC while its node is fine",
        );
    }
    if !unreachable && fine && surplus && turn.seen.pool.below_max {
        turn.condition(ConditionType::Surplus, Some(false), "RoomInPool", "");
        turn.condition(ConditionType::UnexpectedOn, Some(false), "Adopted", "");
        turn.dress_node();
        let reason = "its pool has room for 1 more";
        return match turn.from {
            Phase::Degraded => turn.go(Rule::Row(14), Phase::Serving, None, reason),
            _ => turn.stay(reason),
        };
    }
    if turn.from == Phase::Serving && fine && surplus {
        // It was lost, or failed, and is back: still one too many.
        let reason = "1 more than its pool's maximum; kept cordoned";
        return turn.go(Rule::Row(14), Phase::Degraded, None, reason);
    }
    if turn.from == Phase::Degraded && !unreachable && fine && !surplus {
        return turn.go(
            Rule::Row(14),
            Phase::Serving,
            None,
            "its node is Ready and its BMC answers, 1 reading",
        );
    }
    match turn.want() {
        Want::Off(cause, reason) => stand_down(turn, cause, &reason),
        Want::On(_, _) | Want::Nothing(_) if turn.status.power_disagreement.is_some() => turn.stay_by(
            Rule::Drift(2),
            "the BMC says off, and 1 kubelet renews its lease; the kubelet is believed",
        ),
        Want::On(_, why) | Want::Nothing(why) => turn.stay(format!("1 node serves; {why}")),
    }
}

/// Its Node object was deleted while it is on; the power is not in question.
fn is_deleted(turn: &Turn<'_>) -> bool {
    matches!(turn.node(), Some(None)) && turn.power() == Some(Power::On)
}

/// Says so at once, and takes it back when the node is there again.
fn note_deleted(turn: &mut Turn<'_>) {
    if is_deleted(turn) {
        let text =
            "its Node object was deleted while it is on; a kubelet registers again only when it starts";
        turn.condition(ConditionType::NodeLost, Some(true), "NodeDeleted", text);
    } else if turn.is_node_fine() && is_true(&turn.status.conditions, ConditionType::NodeLost) {
        turn.condition(ConditionType::NodeLost, Some(false), "Ready", "");
    }
}

/// Whether its pool wants such a machine shut down, and nothing is bound to it any more.
fn stands_down_deleted(turn: &mut Turn<'_>) -> bool {
    is_deleted(turn)
        && turn.settings().policy.on_node_deleted == OnNodeDeleted::StandDown
        && turn.pods().is_some_and(|pods| pods.total() == 0)
        && turn.graceful_off(0).is_some()
        && turn.off_refused().is_none()
        && turn.kept_on().is_none()
        && turn.seen.pool.repairs_stopped.is_none()
}

fn shut_down_deleted(mut turn: Turn<'_>) -> Step {
    if let Some(intent) = &turn.seen.intent {
        turn.status.spent_intent = Some(intent.id.clone());
    }
    turn.ask(EffectKind::ReleaseReservation);
    let grace = turn.settings().limits.grace;
    let text = format!(
        "its Node object was deleted and 0 pods are bound to it; {grace} to shut down, as its pool says"
    );
    turn.shut_down(Rule::Drift(9), Cause::Drift, "its Node object was deleted", text)
}

/// The node of a ready host has been away for too long.
fn lost(turn: &mut Turn<'_>) -> Option<(Rule, String)> {
    turn.node()?; // unknown is not lost
    let limits = &turn.settings().limits;
    let since = turn.status.not_ready_since?;
    let end = since.saturating_add(limits.not_ready);
    if turn.now < end {
        turn.look_at(end);
        return None;
    }
    let away = turn.now.since(since);
    if !is_deleted(turn) {
        turn.condition(
            ConditionType::NodeLost,
            Some(true),
            "NotReady",
            "its node does not report; nothing proves that the machine is off",
        );
    }
    let (rule, power) = match turn.power() {
        Some(power) => (Rule::Row(15), power.as_str()),
        None => (Rule::Drift(5), "unknown"),
    };
    Some((rule, format!("its node has been away for {away}, power {power}")))
}

pub(super) fn lost_node(mut turn: Turn<'_>) -> Step {
    if turn.is_off_proved() {
        return unexpected_off(turn);
    }
    if turn.is_node_fine() {
        turn.note_boot();
        turn.op = None;
        turn.condition(ConditionType::NodeLost, Some(false), "Ready", "");
        turn.dress_node();
        return turn.go(Rule::Row(15), Phase::Serving, None, "its node is Ready again, 1 lease renewed");
    }
    if stands_down_deleted(&mut turn) {
        return shut_down_deleted(turn);
    }
    // Nobody knows whether it is still away while its cluster does not answer.
    if turn.is_overdue() && turn.node().is_some() {
        let limit = turn.settings().limits.lost;
        if let Some(intent) = &turn.seen.intent {
            // Its pool has another one by now.
            turn.status.spent_intent = Some(intent.id.clone());
            turn.ask(EffectKind::ReleaseReservation);
        }
        return give_up(turn, "NodeLost", &format!("its node did not come back within {limit}"));
    }
    let left = turn.status.deadline.map(|deadline| turn.left(deadline)).unwrap_or_default();
    if let Some(why) = turn.seen.pool.repairs_stopped.clone() {
        turn.ask_probe();
        return turn.stay(format!("its node is away; {left} left to come back; 0 power cycles: {why}"));
    }
    if let Some(driver) = cycles(&turn) {
        // A cycle wears a machine as any other start, and nobody asked for this one.
        let Some((why, again)) = turn.wake_refused(&Cause::Drift) else {
            return cycle(turn, driver);
        };
        if let Some(again) = again {
            turn.look_at(again);
        }
        tell_lost(&mut turn, &format!("0 power cycles: {why}"));
        turn.ask_probe();
        return turn.stay(format!("its node is away; {left} left to come back; 0 power cycles: {why}"));
    }
    turn.ask_probe();
    turn.stay(format!("its node is away; {left} left to come back"))
}

/// The driver to cycle its power with, if its pool allows that, once.
fn cycles(turn: &Turn<'_>) -> Option<usize> {
    let driver = turn.first(|abilities| abilities.cycle)?;
    // Never on a machine whose node may only be hidden from us.
    let silent = turn.is_lease_silent() == Some(true);
    let goes = turn.settings().policy.cycle_lost.is_allowed()
        && silent
        && turn.power() == Some(Power::On)
        && turn.off_refused().is_none()
        && turn.left_to_people().is_none()
        && turn.op.is_none();
    goes.then_some(driver)
}

fn cycle(mut turn: Turn<'_>, driver: usize) -> Step {
    turn.begin(OpKind::Cycle, Cause::Recovery, "its node is lost");
    turn.call(PowerCall::PowerCycle { driver }, Some(Power::On));
    if let Some(op) = turn.op.as_mut() {
        op.cycled = true;
    }
    turn.status.starts.push(turn.now);
    tell_lost(&mut turn, "1 power cycle was asked for");
    turn.stay_by(Rule::Row(15), "1 power cycle, as its pool allows; 0 pods are left on it")
}

/// Says what is done about a lost node where people look for it.
fn tell_lost(turn: &mut Turn<'_>, what: &str) {
    let told = find_condition(&turn.status.conditions, ConditionType::NodeLost);
    let reason = told.map_or_else(|| "NotReady".to_owned(), |one| one.reason.clone());
    let text = format!("its node does not report; {what}");
    turn.condition(ConditionType::NodeLost, Some(true), &reason, &text);
}

/// It cannot be brought to a known state.
pub(super) fn give_up(mut turn: Turn<'_>, reason: &str, message: &str) -> Step {
    turn.free_pods_if_proved();
    turn.fail(Rule::Row(24), reason, message)
}

/// Drift: it should be on and is proved off.
pub(super) fn unexpected_off(mut turn: Turn<'_>) -> Step {
    turn.free_pods_if_proved();
    let wanted_off = matches!(turn.want(), Want::Off(_, _));
    let policy = turn.settings().policy.on_unexpected_off;
    let cause = Cause::Drift;
    let refused = turn.pretends() || turn.only_read().is_some() || turn.wake_refused(&cause).is_some();
    let hold = turn.settings().limits.hold_after_off;
    turn.status.boot_id_at_off =
        turn.node().flatten().and_then(|node| node.boot_id.clone()).or(turn.status.boot_id_at_off.take());
    turn.op = None;
    if wanted_off {
        turn.rest();
        return turn.go(Rule::Drift(1), Phase::Idle, None, "it went off by itself, as 1 request wanted");
    }
    if let Some(intent) = &turn.seen.intent {
        turn.status.spent_intent = Some(intent.id.clone());
    }
    match policy {
        OnUnexpectedOff::Restart if !refused => {
            turn.rest();
            turn.status.spent_intent = None;
            turn.begin(OpKind::On, cause, "switched off by somebody else");
            turn.ask(EffectKind::Reserve);
            let limit = turn.settings().limits.reserve;
            turn.go(
                Rule::Drift(1),
                Phase::Reserved,
                Some(limit),
                "2 readings say off; switched on again by policy",
            )
        }
        OnUnexpectedOff::Adopt => {
            turn.ask(EffectKind::ReleaseReservation);
            turn.rest();
            turn.go(Rule::Drift(1), Phase::Idle, None, "2 readings say off; taken as off by policy")
        }
        OnUnexpectedOff::Hold | OnUnexpectedOff::Restart => {
            turn.ask(EffectKind::ReleaseReservation);
            turn.leave_off();
            turn.rest();
            let text = match &turn.status.unexpected_off_despite {
                Some(said) => format!("2 readings say off although it was wanted on ({said}); left off"),
                None => format!("2 readings say off; left off for {hold}"),
            };
            turn.go(Rule::Drift(1), Phase::Idle, None, text)
        }
    }
}

/// Why a host may not be stood down now.
fn stand_down_refused(turn: &mut Turn<'_>, cause: &Cause) -> Option<String> {
    let keeps_power = *cause == Cause::Deletion && turn.seen.deletion == super::Deletion::Requested;
    if turn.status.power_disagreement.is_some() {
        return Some("its 2 signals about power disagree".into());
    }
    if !keeps_power && turn.is_blocked() {
        return Some("0 calls go to its BMC, so it could not be switched off".into());
    }
    if !keeps_power && turn.is_readable() && turn.power() != Some(Power::On) {
        return Some("0 fresh readings say that it is on, so it could not be switched off safely".into());
    }
    if !keeps_power && turn.graceful_off(0).is_none() && turn.force_off(0).is_none() {
        return Some("0 of its drivers can switch it off".into());
    }
    if turn.pods().is_none() {
        return Some("0 answers about its pods; unknown is not empty".into());
    }
    if let Some(again) = turn.status.drain_retry_at.filter(|again| turn.now < *again) {
        turn.look_at(again);
        return Some(format!("the last drain was given up; the next in {}", turn.left(again)));
    }
    if !cause.is_automatic() {
        return None;
    }
    let intent = turn.seen.intent.as_ref().filter(|_| matches!(cause, Cause::Intent { .. }));
    let waited = intent.map(|intent| turn.now.since(intent.at)).unwrap_or_default();
    let weighed = intent.is_some_and(|intent| intent.spread_weighed);
    if waited >= Intent::TAKEN_UP_WITHIN {
        return Some(format!("what the planner wanted {waited} ago is for a later plan to ask again"));
    }
    let limits = &turn.settings().limits;
    let since = turn.status.serving_since.unwrap_or(turn.status.phase_since);
    let end = since.saturating_add(limits.min_on);
    if turn.now < end {
        turn.look_at(end);
        return Some(format!("it has served for less than {}", limits.min_on));
    }
    if let Some(place) = turn.seen.pool.last_there.as_ref().filter(|_| !weighed) {
        return Some(format!("it is the last 1 in {place}, and its pool asks for spread"));
    }
    let wol_only = turn.settings().drivers.iter().any(|driver| driver.kind == DriverKind::Wol)
        && !turn
            .settings()
            .drivers
            .iter()
            .any(|driver| driver.kind != DriverKind::Wol && driver.abilities.on);
    if wol_only && turn.status.wake_proved_at.is_none() {
        return Some("it wakes by magic packet only and has been woken 0 times so far".into());
    }
    None
}

fn stand_down(mut turn: Turn<'_>, cause: Cause, reason: &str) -> Step {
    if turn.pretends() {
        // Whoever takes pods from a machine that stays on does harm for nothing.
        let hint =
            if cause == Cause::Deletion { "; delete it with --force to forget its record" } else { "" };
        let text = format!("would be stood down, and 0 pods are evicted{hint}: {reason}");
        turn.condition(ConditionType::DryRun, Some(true), "WouldStandDown", &text);
        return turn.stay(format!("not stood down, as dry-run is its only driver; {text}"));
    }
    if let Some(why) = stand_down_refused(&mut turn, &cause) {
        return turn.stay(format!("not stood down: {why}"));
    }
    turn.begin(OpKind::Off, cause, reason);
    turn.status.cordoned_by = turn.op.as_ref().map(|op| op.id.clone());
    turn.ask(EffectKind::Cordon);
    let limit = turn.settings().limits.cordon;
    turn.go(Rule::Row(16), Phase::Cordoned, Some(limit), format!("stood down, 1 cordon: {reason}"))
}

impl Turn<'_> {
    /// Somebody else switched it off where its pool says what becomes of that.
    pub(super) fn note_off_by_hand(&mut self) {
        if self.settings().policy.on_unexpected_off == OnUnexpectedOff::Hold {
            self.leave_off();
        }
    }

    /// It stays off for a while, and what a person or a freeze said before is overruled: whoever switched it off stood
    /// before it. A pool that restarts its machines wants them on all the same.
    fn leave_off(&mut self) {
        self.status.held_until = Some(self.now.saturating_add(self.settings().limits.hold_after_off));
        let restarts = self.settings().policy.on_unexpected_off == OnUnexpectedOff::Restart;
        self.status.unexpected_off_despite = self.wanted_on().filter(|_| !restarts);
        let text = match &self.status.unexpected_off_despite {
            Some(said) => format!(
                "it was switched off by somebody else although it was wanted on ({said}); it stays off until acknowledged or asked for anew"
            ),
            None => "it was switched off by somebody else; it stays off until acknowledged or the hold ends"
                .into(),
        };
        self.condition(ConditionType::UnexpectedOff, Some(true), "SwitchedOffByHand", &text);
    }

    /// Kubernetes may take the pods of a machine as gone only if off is proved.
    pub(super) fn free_pods_if_proved(&mut self) {
        let remain = self.pods().is_some_and(|pods| pods.total() > 0);
        let untold = matches!(self.node(), Some(Some(node)) if !node.out_of_service);
        if remain && untold && self.is_off_proved() && self.settings().policy.out_of_service.is_allowed() {
            self.ask(EffectKind::OutOfServiceTaint);
        }
    }
}
