//! The rules of evidence, E1 to E5, and what they allow.

use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Abilities, BootProofBy, Cause, DriverKind, HostOp, OnReset, Power, PowerAction, PowerCall, Presence,
        Switch, by_hand,
    },
};

use super::{Deletion, DriverView, Freeze, NodeSeen, NodeView, PodsView, turn::Turn};

/// Power-on requests that one operation makes at most.
pub(super) const MAX_ATTEMPTS: usize = 3;
/// Failed contacts in a row after which a host that must go on is given up.
pub(super) const MAX_CONTACTS: u32 = 3;

/// What somebody wants of the host now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    On(Cause, String),
    Off(Cause, String),
    /// Why nothing is to change.
    Nothing(String),
}

impl Turn<'_> {
    fn fresh(&self, at: Timestamp) -> bool {
        self.now.since(at) <= self.settings().limits.stale
    }

    /// Whether its drivers only say what they would do.
    pub(super) fn pretends(&self) -> bool {
        let drivers = &self.settings().drivers;
        !drivers.is_empty() && drivers.iter().all(|driver| driver.kind == DriverKind::DryRun)
    }

    /// Whether any driver can read the power state.
    pub(super) fn is_readable(&self) -> bool {
        self.settings().drivers.iter().any(|driver| driver.abilities.read_power)
    }

    /// E1: what a fresh reading says. A machine that is turning for too long says nothing.
    pub(super) fn power(&self) -> Option<Power> {
        let Known::Value { value: seen, at } = &self.seen.power else { return None };
        if !self.is_readable() || !self.fresh(*at) || self.is_stuck() {
            return None;
        }
        Some(seen.power)
    }

    /// Since when consecutive readings say the same, and when the last of them was made.
    fn run(&self) -> Option<(Power, Timestamp, Timestamp)> {
        let power = self.power()?;
        let Known::Value { at, .. } = &self.seen.power else { return None };
        let Known::Value { value: stored, .. } = &self.status.power else { return None };
        (stored.power == power).then_some((power, stored.since, *at))
    }

    pub(super) fn is_stuck(&self) -> bool {
        let Known::Value { value, .. } = &self.status.power else { return false };
        matches!(value.power, Power::TurningOn | Power::TurningOff)
            && self.now.since(value.since) > self.settings().limits.stuck
    }

    /// How long consecutive readings have said `power`, from the first to the last of them.
    pub(super) fn read_for(&self, power: Power) -> Option<Duration> {
        let (said, since, last) = self.run()?;
        (said == power).then(|| last.since(since))
    }

    /// E2: two consecutive readings of off, far enough apart.
    pub(super) fn is_off_twice(&self) -> bool {
        self.read_for(Power::Off).is_some_and(|length| length >= self.settings().limits.off_apart)
    }

    pub(super) fn is_on_twice(&self) -> bool {
        self.read_for(Power::On).is_some_and(|length| length >= self.settings().limits.off_apart)
    }

    pub(super) fn presence(&self) -> Option<Presence> {
        let Known::Value { value, at } = &self.seen.presence else { return None };
        self.fresh(*at).then_some(*value)
    }

    fn is_silent_twice(&self) -> bool {
        let (Some(Presence::Silent), Some(stored)) = (self.presence(), self.status.presence) else {
            return false;
        };
        let Known::Value { at, .. } = &self.seen.presence else { return false };
        stored.presence == Presence::Silent && at.since(stored.since) >= self.settings().limits.off_apart
    }

    /// The node as it was seen, if that is recent. `Some(None)` means that there is none.
    #[allow(clippy::option_option, reason = "unknown and absent are different answers")]
    pub(super) fn node(&self) -> Option<Option<&NodeSeen>> {
        let Known::Value { value, at } = &self.seen.node else { return None };
        if !self.fresh(*at) {
            return None;
        }
        Some(match value {
            NodeView::Absent => None,
            NodeView::Present(node) => Some(node),
        })
    }

    /// Whether the kubelet has stopped renewing; `None` if nobody knows.
    pub(super) fn is_lease_silent(&self) -> Option<bool> {
        let Some(node) = self.node()? else { return Some(true) };
        // As of the moment that the view shows: an API server that is silent says nothing about kubelets.
        let Known::Value { at, .. } = &self.seen.node else { return None };
        let silent = |since: Timestamp| at.since(since) > self.settings().limits.lease_silence;
        match node.lease_renewed {
            Some(renewed) => Some(silent(renewed)),
            // Who has begun to watch just now has not seen it silent.
            None => silent(node.lease_watched).then_some(true),
        }
    }

    /// E5: the kubelet is alive, whatever the BMC says.
    pub(super) fn is_lease_fresh(&self) -> bool {
        self.is_lease_silent() == Some(false)
    }

    /// E4: off is proved.
    pub(super) fn is_off_proved(&self) -> bool {
        if self.is_lease_silent() != Some(true) && !muster_model::planted::is("F12") {
            return false;
        }
        if self.is_readable() {
            return self.is_off_twice();
        }
        let said_goodbye = self
            .op
            .as_ref()
            .is_some_and(|op| self.seen.agent.goodbye.as_ref().is_some_and(|goodbye| goodbye.op == op.id));
        let enrolling = self.from == muster_model::host::Phase::Enrolling;
        self.is_silent_twice() && (said_goodbye || enrolling || self.status.off_proved_at.is_some())
    }

    /// E3: the node shows this boot, and its kubelet is alive.
    pub(super) fn joined(&self) -> Option<BootProofBy> {
        let node = self.node()??;
        if !self.is_lease_fresh() {
            return None;
        }
        let requested = self.op.as_ref().and_then(|op| op.power_requested_at);
        let reference = requested.or(match self.status.last_power_action {
            Some(PowerAction::GracefulOff | PowerAction::ForceOff) => self.status.power_action_time,
            Some(PowerAction::On | PowerAction::Cycle) | None => None,
        });
        let other_boot = match (&node.boot_id, &self.status.boot_id_at_off) {
            (Some(shown), Some(stored)) => Some(shown != stored),
            (None, _) | (_, None) => None,
        };
        match (other_boot, reference, node.lease_renewed) {
            (Some(true), _, _) => Some(BootProofBy::BootId),
            (_, Some(reference), Some(renewed)) if renewed > reference && other_boot != Some(false) => {
                Some(BootProofBy::Lease)
            }
            // Nothing was ever asked of it: a kubelet that renews now runs now.
            (None, None, Some(_)) => Some(BootProofBy::Lease),
            (_, _, _) => None,
        }
    }

    /// Ready, of this boot, with everything that it should have.
    pub(super) fn is_node_ready(&self) -> bool {
        self.joined().is_some()
            && self.node().flatten().is_some_and(|node| node.ready && node.missing.is_none())
    }

    /// Healthy as a node of a host that serves already: it need not prove its boot again.
    pub(super) fn is_node_fine(&self) -> bool {
        self.is_lease_fresh() && self.node().flatten().is_some_and(|node| node.ready)
    }

    pub(super) fn pods(&self) -> Option<&PodsView> {
        let Known::Value { value, at } = &self.seen.pods else { return None };
        self.fresh(*at).then_some(value)
    }

    /// A sign of life since `since` from a machine whose power cannot be read.
    pub(super) fn answered_since(&self, since: Timestamp) -> bool {
        let hello = self.seen.agent.hello.as_ref().is_some_and(|hello| hello.at > since);
        let renewed =
            self.node().flatten().and_then(|node| node.lease_renewed).is_some_and(|renewed| renewed > since);
        hello || renewed || self.presence() == Some(Presence::Answers)
    }

    /// Whether an operating system was seen running since `since`.
    pub(super) fn os_since(&self, since: Timestamp) -> bool {
        self.seen.agent.hello.as_ref().is_some_and(|hello| hello.at > since)
            || self.seen.boot_progress.as_ref().is_some_and(|progress| progress.os && progress.at > since)
            || self.joined().is_some()
    }

    /// Whether a boot was proved since anything was last asked of its power: a system is there to be asked, even if its
    /// node is silent.
    pub(super) fn is_boot_proved(&self) -> bool {
        let asked = self.status.power_action_time;
        self.status.boot_proof.as_ref().is_some_and(|proof| asked.is_none_or(|asked| proof.at >= asked))
    }

    /// Whether the BMC's account, certificate or identity is refused.
    pub(super) fn is_blocked(&self) -> bool {
        self.status.bmc_blocked.is_some()
    }

    /// The machine is up as far as anyone can tell, so that asking it to go off makes sense.
    pub(super) fn is_up(&self) -> bool {
        match self.power() {
            Some(power) => power.is_up(),
            None if self.is_readable() => false,
            None => self.presence() == Some(Presence::Answers) || self.is_lease_fresh(),
        }
    }

    /// Why nothing may be taken from its node, nor its power, if that is so.
    pub(super) fn guarded(&self) -> Option<String> {
        let why = self.pods()?.guarded.as_ref()?;
        Some(format!("its node stays: {why}"))
    }

    /// Why power may not be taken away now.
    pub(super) fn off_refused(&self) -> Option<String> {
        let on = if self.is_readable() { self.power() == Some(Power::On) } else { self.is_up() };
        self.cut_refused(on)
    }

    /// The same of a machine whose time to shut down is over: one that hangs on its way off is not read as on any more.
    pub(super) fn force_refused(&self) -> Option<String> {
        if self.is_going_off() { self.cut_refused(true) } else { self.off_refused() }
    }

    fn cut_refused(&self, on: bool) -> Option<String> {
        if let Some(why) = &self.no_calls {
            return Some(why.clone());
        }
        let Some(pods) = self.pods() else {
            return Some("0 answers about the pods on its node; unknown is not empty".into());
        };
        if let Some(why) = self.guarded() {
            return Some(why);
        }
        if pods.total() > 0 {
            return Some(format!("{} pods are still on its node", pods.total()));
        }
        if let Some(why) = self.op.as_ref().and_then(|op| self.unasked(op)) {
            return Some(why);
        }
        if !on {
            return Some("0 fresh readings say that it is on".into());
        }
        self.too_soon(Switch::Off)
    }

    /// Why an operation that takes power although no person asked for that may not go on now.
    fn unasked(&self, op: &HostOp) -> Option<String> {
        let by_person = matches!(op.cause, Cause::Manual { .. } | Cause::Deletion);
        if by_person && op.failed.is_none() && !op.cancelling {
            return None;
        }
        self.kept_on().or_else(|| self.seen.pool.repairs_stopped.clone())
    }

    /// It was asked to go off, and is read as going: that says more than nothing, however long it takes.
    pub(super) fn is_going_off(&self) -> bool {
        let Known::Value { value, at } = &self.seen.power else { return false };
        let asked = self.op.as_ref().is_some_and(|op| op.asked_off_at.is_some() || op.force_offs > 0);
        asked && value.power == Power::TurningOff && self.is_readable() && self.fresh(*at)
    }

    /// What a reading right before a forced power-off has to say.
    pub(super) fn forced_from(&self) -> Option<Power> {
        let from = if self.is_going_off() { Power::TurningOff } else { Power::On };
        self.is_readable().then_some(from)
    }

    /// Why power may not be asked for now. Magic packets need no reading: they do not harm a machine
    /// that is on.
    pub(super) fn on_refused(&self, call: PowerCall) -> Option<String> {
        if let Some(why) = &self.no_calls {
            return Some(why.clone());
        }
        let blind = match call {
            PowerCall::WolBurst { .. } => !self.is_readable(),
            PowerCall::PowerOn { .. }
            | PowerCall::SetBoot { .. }
            | PowerCall::GracefulOff { .. }
            | PowerCall::ForceOff { .. }
            | PowerCall::PowerCycle { .. }
            | PowerCall::ResetBmc { .. } => false,
        };
        if !blind && self.power() != Some(Power::Off) {
            return Some("0 fresh readings say that it is off".into());
        }
        let toggles = !call.is_repeatable();
        if toggles && !self.is_off_twice() {
            return Some("a button press needs 2 readings of off".into());
        }
        self.too_soon(Switch::On)
    }

    /// Opposite actions on one host are kept apart.
    fn too_soon(&self, wanted: Switch) -> Option<String> {
        let (last, at) = (self.status.last_power_action?, self.status.power_action_time?);
        let opposite = match (last, wanted) {
            (PowerAction::On | PowerAction::Cycle, Switch::Off)
            | (PowerAction::GracefulOff | PowerAction::ForceOff | PowerAction::Cycle, Switch::On) => true,
            (PowerAction::On, Switch::On)
            | (PowerAction::GracefulOff | PowerAction::ForceOff, Switch::Off) => false,
        };
        let apart =
            if muster_model::planted::is("F21") { Duration::ZERO } else { self.settings().limits.opposite };
        (opposite && self.now.since(at) < apart)
            .then(|| format!("{} was asked for less than {apart} ago", last.as_str()))
    }

    /// Why the autoscaler may not wake it yet: wear limits, and the wishes of people.
    pub(super) fn wake_refused(&self, cause: &Cause) -> Option<(String, Option<Timestamp>)> {
        if !cause.is_automatic() {
            return None;
        }
        let limits = &self.settings().limits;
        if let Some(until) = self.status.held_until.filter(|until| self.now < *until) {
            return Some((
                format!("it was switched off by hand and is left alone until {until}"),
                Some(until),
            ));
        }
        let starts = self.status.starts.len();
        let cap = usize::try_from(self.settings().policy.max_cycles_per_day).unwrap_or(usize::MAX);
        if starts >= cap {
            return Some((format!("it was switched on {starts} times in 24h, and {cap} is the limit"), None));
        }
        let last = self.status.starts.last().map(|at| at.saturating_add(limits.cycle_interval));
        if let Some(next) = last.filter(|next| self.now < *next) {
            return Some((format!("it was switched on less than {} ago", limits.cycle_interval), Some(next)));
        }
        let rested = self.status.off_since.map(|at| at.saturating_add(limits.min_off));
        if let Some(next) = rested.filter(|next| self.now < *next) {
            return Some((format!("it has been off for less than {}", limits.min_off), Some(next)));
        }
        None
    }

    /// What somebody wants, by rank: a deletion, a person, a hold, everything on, the autoscaler.
    pub(super) fn want(&self) -> Want {
        match self.seen.deletion {
            Deletion::None | Deletion::Forced => {}
            Deletion::Requested | Deletion::RequestedWithPowerOff => {
                return Want::Off(Cause::Deletion, "its record is being deleted, 1 request".into());
            }
        }
        let hold = self.settings().hold.as_ref();
        let held = hold.filter(|hold| hold.is_active(self.now));
        let by = held.map_or("spec.powerState", |hold| hold.by.as_str());
        match by_hand(self.settings().manual, hold, self.now) {
            Some(Switch::On) => {
                return Want::On(
                    Cause::Manual { by: by.into() },
                    format!("{by} wants it on, 1 request by hand"),
                );
            }
            Some(Switch::Off) => {
                return Want::Off(
                    Cause::Manual { by: by.into() },
                    format!("{by} wants it off, 1 request by hand"),
                );
            }
            None => {}
        }
        if let Some(hold) = held {
            return Want::Nothing(format!("held by {}: {}", hold.by, hold.reason));
        }
        if self.seen.freeze == Freeze::AllOn {
            return Want::On(Cause::AllOn, "everything is to be on, 1 freeze".into());
        }
        if let Some(advice) = &self.seen.pool.advice {
            return Want::Nothing(format!("{}, and 0 people ask anything of it", advice.why));
        }
        let Some(intent) = &self.seen.intent else {
            return Want::Nothing("0 intents ask anything of it".into());
        };
        if self.status.spent_intent.as_deref() == Some(intent.id.as_str()) {
            return Want::Nothing(format!("intent {} was given up, 1 attempt", intent.id));
        }
        let cause = Cause::Intent { intent: intent.id.clone(), decision: intent.decision.clone() };
        let reason = format!("decision {} of pool {}: {}", intent.decision, intent.pool, intent.reason);
        match intent.want {
            Switch::On => Want::On(cause, reason),
            Switch::Off => Want::Off(cause, reason),
        }
    }

    /// Whether what it is switched on for is gone. A machine that is switched on again because it went off by itself needs
    /// no wish; a hold stops it.
    pub(super) fn is_withdrawn(&self) -> bool {
        match self.want() {
            Want::On(_, _) => false,
            Want::Off(_, _) => true,
            Want::Nothing(_) => {
                let drift = self.op.as_ref().is_some_and(|op| op.cause == Cause::Drift);
                let hold = self.settings().hold.as_ref();
                !drift || hold.is_some_and(|hold| hold.is_active(self.now))
            }
        }
    }

    /// Why nobody but a person may switch it off now: somebody wants it on, or holds it.
    pub(super) fn kept_on(&self) -> Option<String> {
        match self.want() {
            Want::On(Cause::Manual { by }, _) => Some(format!("{by} wants it on, 1 request by hand")),
            Want::Off(Cause::Manual { .. }, _) => None,
            Want::On(_, _) | Want::Off(_, _) | Want::Nothing(_) => {
                let hold = self.settings().hold.as_ref().filter(|hold| hold.is_active(self.now))?;
                Some(format!("1 hold is in force: held by {}: {}", hold.by, hold.reason))
            }
        }
    }

    /// How a person, or a freeze, said that it is to be on, if one did.
    pub(super) fn wanted_on(&self) -> Option<String> {
        match self.want() {
            Want::On(Cause::Manual { .. }, _) => Some(self.said_by_hand()),
            Want::On(Cause::AllOn, reason) => Some(reason),
            Want::On(_, _) | Want::Off(_, _) | Want::Nothing(_) => None,
        }
    }

    /// A wish by hand in the words of who has it: what was said anew differs.
    pub(super) fn said_by_hand(&self) -> String {
        match &self.settings().hold {
            Some(hold) => {
                let until = hold.until.map(|until| format!(", until {until}")).unwrap_or_default();
                format!("{}: {}{until}", hold.by, hold.reason)
            }
            None => "spec.powerState".to_owned(),
        }
    }

    /// Until when a machine is left alone that somebody else switched on, and that was then wanted.
    pub(super) fn left_alone(&self) -> Option<Timestamp> {
        let since =
            self.status.unexpected_on_since.filter(|_| self.op.as_ref().is_some_and(|op| op.adopted))?;
        let end = since.saturating_add(self.settings().limits.leave_on);
        (self.now < end).then_some(end)
    }

    /// Why its power may not be changed and changed back now: a person holds it, or said how it is to be.
    pub(super) fn left_to_people(&self) -> Option<String> {
        if let Want::Off(Cause::Manual { by }, _) = self.want() {
            return Some(format!("{by} wants it off, 1 request by hand"));
        }
        self.kept_on()
    }

    /// The power-on calls to try, in order: an earlier driver leaves at least one attempt to a later one. What turned out
    /// not to be offered is left out.
    pub(super) fn ladder(&self) -> Vec<PowerCall> {
        let not_offered = self.op.as_ref().map_or(&[][..], |op| &op.not_offered);
        let offered = |(index, driver): (usize, &DriverView)| -> Vec<PowerCall> {
            let resets = driver.on_resets.iter().filter(|_| driver.abilities.on);
            let calls = resets.map(|reset| on_call(driver.kind, index, *reset));
            calls.filter(|call| !not_offered.contains(call)).collect()
        };
        let able: Vec<_> = self.settings().drivers.iter().enumerate().map(offered).collect();
        let able: Vec<_> = able.into_iter().filter(|ways| !ways.is_empty()).collect();
        let mut rungs = Vec::new();
        for (place, ways) in able.iter().enumerate() {
            let later = able.len() - place - 1;
            let room = MAX_ATTEMPTS.saturating_sub(rungs.len()).saturating_sub(later.min(MAX_ATTEMPTS - 1));
            let take = room.max(usize::from(rungs.len() < MAX_ATTEMPTS));
            rungs.extend(ways.iter().take(take).copied());
        }
        // Fewer ways than attempts: begin again with the ways that may be repeated.
        let again: Vec<_> = rungs
            .iter()
            .copied()
            .filter(|call| matches!(call, PowerCall::PowerOn { .. }) && call.is_repeatable())
            .collect();
        rungs.extend(again.into_iter().cycle().take(MAX_ATTEMPTS.saturating_sub(rungs.len())));
        rungs.truncate(MAX_ATTEMPTS);
        rungs
    }

    /// Asks the machine to shut down by the first driver that can, past as many as have refused.
    pub(super) fn graceful_off(&self, refused: u32) -> Option<PowerCall> {
        let able = self.able(|abilities| abilities.graceful_off);
        let driver = *able.get(usize::try_from(refused).ok()?)?;
        Some(PowerCall::GracefulOff { driver })
    }

    /// Sets the boot device by the first driver that can, past as many as have refused.
    pub(super) fn set_boot(&self, refused: u32) -> Option<PowerCall> {
        let able = self.able(|abilities| abilities.boot_once);
        let driver = *able.get(usize::try_from(refused).ok()?)?;
        Some(PowerCall::SetBoot { driver })
    }

    /// Forced off by the first driver that can, the second time by the next one if there is one.
    pub(super) fn force_off(&self, sent: u32) -> Option<PowerCall> {
        if !self.settings().policy.force_off.is_allowed() {
            return None;
        }
        let able = self.able(|abilities| abilities.force_off);
        let place = usize::try_from(sent).unwrap_or(0).min(able.len().checked_sub(1)?);
        Some(PowerCall::ForceOff { driver: able[place] })
    }

    /// The places of the drivers that can, in order.
    fn able(&self, can: impl Fn(&Abilities) -> bool) -> Vec<usize> {
        let drivers = self.settings().drivers.iter().enumerate();
        drivers.filter(|(_, driver)| can(&driver.abilities)).map(|(index, _)| index).collect()
    }

    pub(super) fn first(&self, can: impl Fn(&Abilities) -> bool) -> Option<usize> {
        self.settings().drivers.iter().position(|driver| can(&driver.abilities))
    }
}

const fn on_call(kind: DriverKind, driver: usize, reset: OnReset) -> PowerCall {
    match kind {
        DriverKind::Wol => PowerCall::WolBurst { driver },
        DriverKind::Redfish
        | DriverKind::Ipmi
        | DriverKind::Agent
        | DriverKind::Webhook
        | DriverKind::DryRun => PowerCall::PowerOn { driver, reset },
    }
}
