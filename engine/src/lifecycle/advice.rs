//! Hosts of a pool that only gives advice: they are read, and what is seen is written down. Nothing is begun that no person
//! asked for, and what was under way when the pool was told to advise stands still.

use muster_model::host::{ConditionType, Phase};

use super::{Deletion, Rule, Step, rules::Want, turn::Turn};

impl<'a> Turn<'a> {
    /// Why nothing may be done to it now: its pool only gives advice, and no person asked for what is under way or wants
    /// anything of it.
    pub(super) fn only_read(&self) -> Option<&'a str> {
        let seen = self.seen;
        let advice = seen.pool.advice.as_ref()?;
        let asked = self.by_hand || !matches!(self.want(), Want::Nothing(_));
        (!asked).then_some(advice.why.as_str())
    }

    /// Whether an operation of our own is under way that nobody may go on with.
    pub(super) fn stands_still(&self) -> bool {
        self.op.is_some()
            && self.seen.deletion != Deletion::Forced
            && self.only_read().is_some()
            && !self.has_come_about()
    }

    /// Whether what the operation was for is there without anything being done, so that it is written down: the node of a
    /// machine on its way up is Ready, or one on its way down is off.
    fn has_come_about(&self) -> bool {
        match self.from {
            Phase::PowerRequested | Phase::Powered | Phase::Booting | Phase::Joining => self.is_node_ready(),
            Phase::Lost => self.is_node_fine() || self.is_off_proved(),
            Phase::Cordoned
            | Phase::Evicting
            | Phase::Drained
            | Phase::Stopping
            | Phase::ForcingOff
            | Phase::ConfirmingOff
            | Phase::Quarantined => self.is_off_proved(),
            Phase::Enrolling
            | Phase::Idle
            | Phase::Reserved
            | Phase::PreparingBoot
            | Phase::Serving
            | Phase::Degraded
            | Phase::Backoff => false,
        }
    }

    /// Says that it is only read, where people look for what is done.
    pub(super) fn tell_advice(&mut self) {
        let seen = self.seen;
        let Some(advice) = &seen.pool.advice else {
            self.condition(ConditionType::AdviseOnly, Some(false), "PoolActs", "");
            return;
        };
        let (why, remedy) = (&advice.why, &advice.remedy);
        let (reason, text) = match self.op.as_ref().filter(|_| self.stands_still()) {
            Some(op) => (
                "StandsStill",
                format!(
                    "{why}: its {} of {} stands still, and its node stays as it is; go on with {remedy}, or say how it is to be: \
                     muster power on|off {} --reason …",
                    op.kind.as_str(),
                    op.started,
                    self.name
                ),
            ),
            None => (
                "PoolAdvises",
                format!("{why}: nothing is done to it but what a person asks for; let it act with {remedy}"),
            ),
        };
        self.condition(ConditionType::AdviseOnly, Some(true), reason, &text);
    }
}

/// Nothing more is sent, and every wait is as long as it was. A claim is given back, so that no plan counts on it.
pub(super) fn stand_still(mut turn: Turn<'_>) -> Step {
    turn.release();
    let asked = turn.op.as_ref().is_some_and(|op| op.power_requested_at.is_some());
    let rule = match turn.from {
        Phase::Reserved => Some(Rule::Row(4)),
        Phase::PreparingBoot if !asked => Some(Rule::Row(12)),
        _ => None,
    };
    let why = turn.only_read().unwrap_or_default();
    if let Some(rule) = rule {
        turn.op = None;
        return turn.go(rule, Phase::Idle, None, format!("{why}; 1 claim given back with 0 power-ons sent"));
    }
    turn.ask_probe();
    turn.stay_by(Rule::Row(29), format!("0 actions: {why}"))
}
