//! What a look takes over from the evidence before anything is decided.
//!
//! A field changes only when something happened: a quiet host gives the same state again, and nothing is
//! written.

use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Admin, BlockCause, BmcBlocked, ConditionType, DriverKind, HostIdentity, PendingEffect, Phase, Power,
        PowerCall, PowerReading, Presence, PresenceReading, State,
    },
    power::{Pin, same_uuid},
};

use super::{EffectKind, Leadership, Outcome, Performed, TroubleClass, turn::Turn};

/// Starts and failures beyond this age no longer count.
const DAY: Duration = Duration::from_hours(24);

/// Says so when what answers is not the machine that is known. What one of them leaves out is no difference.
fn other_machine(known: &HostIdentity, found: &HostIdentity) -> Option<String> {
    let differs =
        |what: &str, known: &Option<String>, found: &Option<String>, same: &dyn Fn(&str, &str) -> bool| {
            let (known, found) = (known.as_deref()?, found.as_deref()?);
            (!same(known, found)).then(|| format!("{what} {found} answers where {known} was registered"))
        };
    differs("serial", &known.serial, &found.serial, &|known, found| known == found)
        .or_else(|| differs("UUID", &known.uuid, &found.uuid, &same_uuid))
}

/// What is known of a machine, with what it did not say before.
fn completed(known: &HostIdentity, found: &HostIdentity) -> HostIdentity {
    let both = |known: &Option<String>, found: &Option<String>| known.clone().or_else(|| found.clone());
    HostIdentity {
        serial: both(&known.serial, &found.serial),
        uuid: both(&known.uuid, &found.uuid),
        manufacturer: both(&known.manufacturer, &found.manufacturer),
        model: both(&known.model, &found.model),
    }
}

impl Turn<'_> {
    pub(super) fn observe(&mut self) {
        self.mend();
        self.observe_power();
        self.observe_presence();
        self.observe_node();
        self.observe_disagreement();
        self.observe_off();
        self.observe_bmc();
        self.observe_people();
        self.prune();
    }

    fn observe_power(&mut self) {
        let unread = Known::Unknown { why: "none of its drivers reads power".into(), since: self.now };
        let power = if self.is_readable() { &self.seen.power } else { &unread };
        match (power, &self.status.power) {
            (Known::Value { value: seen, at }, Known::Value { value: stored, .. })
                if seen.power == stored.power && seen.driver == stored.driver && stored.since <= *at => {}
            (Known::Value { value: seen, at }, _) => {
                let reading = PowerReading { power: seen.power, driver: seen.driver, since: *at };
                self.status.power = Known::Value { value: reading, at: *at };
            }
            (Known::Unknown { .. }, Known::Unknown { .. }) => {}
            (Known::Unknown { why, since }, Known::Value { .. }) => {
                self.status.power = Known::Unknown { why: why.clone(), since: *since };
            }
        }
        let up = self.power().is_some_and(Power::is_up)
            || self.presence() == Some(Presence::Answers)
            || self.is_lease_fresh();
        if up {
            self.status.off_proved_at = None;
        }
        if self.is_stuck() {
            self.condition(
                ConditionType::BmcStuck,
                Some(true),
                "TurningTooLong",
                "the BMC has said turning-on or turning-off for too long; its readings count as unknown",
            );
        } else {
            self.condition(ConditionType::BmcStuck, Some(false), "Settled", "");
        }
    }

    /// A machine that is set aside and proved off takes none of its rack's watts.
    fn observe_off(&mut self) {
        let aside = matches!(self.status.phase, Phase::Backoff | Phase::Quarantined);
        if aside && self.is_off_proved() {
            self.status.off_proved_at.get_or_insert(self.now);
            // Whoever finds it on later knows that it was off, and since when it may be on.
            self.status.off_since.get_or_insert(self.now);
            self.status.unexpected_on_since = None;
        }
    }

    fn observe_presence(&mut self) {
        let Known::Value { value, at } = &self.seen.presence else {
            self.status.presence = None;
            return;
        };
        let same = self.status.presence.is_some_and(|one| one.presence == *value && one.since <= *at);
        if !same {
            self.status.presence = Some(PresenceReading { presence: *value, since: *at });
        }
    }

    fn observe_node(&mut self) {
        let Some(node) = self.node() else { return };
        let ready = node.is_some_and(|node| node.ready);
        let names = node.map(|node| (node.name.clone(), node.cluster.clone()));
        let fine = self.is_node_fine();
        self.status.node_ready = ready && fine;
        if let Some((name, cluster)) = names {
            self.status.kubernetes_node = Some(name);
            // The object of a machine that is off may stay behind; a kubelet that renews is there.
            if self.is_lease_fresh() {
                self.status.kubernetes_cluster = cluster;
            }
        }
        if self.status.state != State::Ready || fine {
            self.status.not_ready_since = None;
        } else if self.status.not_ready_since.is_none() {
            self.status.not_ready_since = Some(self.now);
        }
    }

    fn observe_bmc(&mut self) {
        match &self.seen.bmc {
            Known::Value { value, .. } => {
                self.status.bmc_reachable = true;
                let found = &value.identity;
                match &self.status.identity {
                    Some(known) => match other_machine(known, found) {
                        Some(message) => self.block(BlockCause::IdentityChanged, &message, None, None),
                        None => self.status.identity = Some(completed(known, found)),
                    },
                    None if found.serial.is_some() || found.uuid.is_some() => {
                        self.status.identity = Some(found.clone());
                    }
                    None => {}
                }
                self.condition(ConditionType::BmcReachable, Some(true), "Answers", "");
            }
            Known::Unknown { why, .. } => match why.class {
                TroubleClass::NotTried => {}
                TroubleClass::Unreachable => {
                    self.status.bmc_reachable = false;
                    self.condition(ConditionType::BmcReachable, Some(false), "Unreachable", &why.message);
                }
                TroubleClass::Blocked(cause) => {
                    self.status.bmc_reachable = false;
                    if why.credential_version == self.settings().credential_version {
                        self.block(cause, &why.message, why.driver, why.key);
                    }
                }
            },
        }
        let lifted = self
            .status
            .bmc_blocked
            .as_ref()
            .is_some_and(|blocked| blocked.credential_version != self.settings().credential_version);
        if lifted {
            self.status.bmc_blocked = None;
            self.condition(ConditionType::BmcBlocked, Some(false), "NewAccess", "");
        }
    }

    fn block(&mut self, cause: BlockCause, message: &str, driver: Option<usize>, seen_key: Option<Pin>) {
        if self.status.bmc_blocked.is_some() {
            return;
        }
        let version = self.settings().credential_version;
        self.status.bmc_blocked = Some(BmcBlocked {
            cause,
            message: message.to_owned(),
            since: self.now,
            credential_version: version,
            driver,
            seen_key,
        });
        self.condition(ConditionType::BmcBlocked, Some(true), cause.as_str(), message);
        self.condition(ConditionType::BmcReachable, Some(false), cause.as_str(), message);
    }

    fn observe_people(&mut self) {
        let settings = self.settings();
        self.status.observed_generation = settings.generation;
        let held = settings.hold.as_ref().filter(|hold| hold.is_active(self.now));
        match held {
            Some(hold) => self.condition(ConditionType::Held, Some(true), "ByHand", &hold.reason),
            None => self.condition(ConditionType::Held, Some(false), "Released", ""),
        }
        let resting = settings.admin != Admin::Normal;
        self.tell_advice();
        self.condition(
            ConditionType::Maintenance,
            Some(resting),
            if resting { "ByHand" } else { "Over" },
            settings.admin.as_str(),
        );
    }

    /// A person has seen to the host since the last time; says so once.
    pub(super) fn take_acknowledgement(&mut self) -> Option<String> {
        let ack = self.settings().acknowledgement.as_ref()?;
        if self.status.acknowledged.is_some_and(|last| last >= ack.at) {
            return None;
        }
        self.status.acknowledged = Some(ack.at);
        if self.node().is_none() {
            // Nobody shows its node, and a person says that nothing of it is missed.
            self.status.kubernetes_cluster = None;
        }
        self.status.held_until = None;
        self.status.unexpected_off_despite = None;
        self.condition(ConditionType::UnexpectedOff, Some(false), "Acknowledged", &ack.reason);
        if !self.is_readable() {
            // Nobody else can say whether a machine without a BMC is off.
            self.status.off_proved_at = Some(self.now);
        }
        self.condition(ConditionType::CannotForceOff, Some(false), "Acknowledged", &ack.reason);
        if self.status.bmc_blocked.take().is_some() {
            // Another machine or certificate may be right: it is learnt anew.
            self.status.identity = None;
            self.condition(ConditionType::BmcBlocked, Some(false), "Acknowledged", &ack.reason);
        }
        Some(ack.by.clone())
    }

    fn prune(&mut self) {
        let (now, window) = (self.now, self.settings().limits.failure_window);
        if self.status.starts.iter().any(|at| now.since(*at) >= DAY) {
            self.status.starts.retain(|at| now.since(*at) < DAY);
        }
        if self.status.phase != Phase::Quarantined {
            self.status.failures.retain(|failure| now.since(failure.at) < window);
        }
    }

    /// Settles the announced power call: done, refused, lost, or never sent because its process died.
    pub(super) fn settle(&mut self) {
        let limits = &self.settings().limits;
        if let Leadership::Leader { lease_left, .. } = self.seen.leadership
            && lease_left < limits.call.saturating_add(limits.lease_margin)
        {
            self.no_calls =
                Some(format!("{lease_left} are left of the leader's lease, too little for a call"));
        }
        if self.is_blocked() {
            self.no_calls = Some("0 calls go to a BMC that refuses us".into());
        }
        if self.settings().drivers.is_empty() {
            self.no_calls = Some("it has 0 power drivers".into());
        }
        if self.pretends() {
            self.no_calls = Some("0 calls go through dry-run, its only driver".into());
        }
        if let Some(why) = self.only_read() {
            self.no_calls = Some(format!("0 calls are made: {why}"));
        }
        let up = self.is_up();
        let Some(op) = self.op.as_mut() else { return };
        if let Leadership::Leader { epoch, .. } = self.seen.leadership {
            op.epoch = epoch;
        }
        let Some(pending) = op.pending.clone() else { return };
        let is_ours = |id: &str, seq: u32| id == op.id && seq == pending.seq;
        match &self.seen.performed {
            Performed::Running { op: id, seq } if is_ours(id, *seq) => {
                self.no_calls = Some("1 power call is under way".into());
            }
            Performed::Ended { op: id, seq, outcome } if is_ours(id, *seq) => {
                op.pending = None;
                let is_renewed = op.is_renewed(&pending);
                match outcome {
                    Outcome::Accepted => {
                        if matches!(pending.call, PowerCall::SetBoot { .. }) {
                            op.boot_set = true;
                        }
                    }
                    Outcome::Unknown => {}
                    // The first time may have reached it, whatever became of the next.
                    Outcome::Unsent | Outcome::Refused { .. } if is_renewed => {}
                    Outcome::Unsent => self.note_unsent(&pending),
                    Outcome::Refused { reason, message } => {
                        let never_left = matches!(*reason, "AddressRefused" | "NotUsable" | "NotSupported");
                        let mut first = pending.seq == 1;
                        if *reason == "NotSupported" && pending.call.is_on() {
                            self.pass_over(&pending);
                            first |= self.op.as_ref().is_some_and(|op| op.attempts == 0);
                        }
                        if never_left && pending.call.is_on() && first && !up {
                            self.status.off_proved_at = self.op.as_ref().and_then(|op| op.off_proved_before);
                        }
                        self.refused = Some((reason, message.clone()));
                    }
                    Outcome::HeldBack { reason, why } => self.take_back(&pending, reason, why),
                }
            }
            Performed::Nothing | Performed::Running { .. } | Performed::Ended { .. } => {
                self.resume(pending.call, pending.at);
            }
        }
    }

    /// A shutdown that was never asked for is asked for again. Other calls have their deadlines and their next attempts.
    fn note_unsent(&mut self, call: &PendingEffect) {
        if !matches!(call.call, PowerCall::GracefulOff { .. }) {
            return;
        }
        if let Some(op) = self.op.as_mut() {
            op.asked_off_at = None;
            op.asks_unsent = op.asks_unsent.saturating_add(1);
        }
        self.status.last_power_action = call.before.map(|last| last.action);
        self.status.power_action_time = call.before.map(|last| last.at);
        self.status.power_action_driver = None;
    }

    /// A way to switch it on that it does not have: that was no attempt, and the ladder goes on without it.
    fn pass_over(&mut self, call: &PendingEffect) {
        let Some(op) = self.op.as_mut().filter(|op| !op.not_offered.contains(&call.call)) else { return };
        op.not_offered.push(call.call);
        op.attempts = op.attempts.saturating_sub(1);
        self.status.starts.retain(|start| *start != call.at);
        self.status.last_power_action = call.before.map(|last| last.action);
        self.status.power_action_time = call.before.map(|last| last.at);
        self.status.power_action_driver = None;
    }

    /// A call that was announced and never left: what was noted of it is as before.
    fn take_back(&mut self, call: &PendingEffect, reason: &'static str, why: &str) {
        let Some(op) = self.op.as_mut() else { return };
        match call.call {
            PowerCall::GracefulOff { .. } if op.is_renewed(call) => {}
            PowerCall::GracefulOff { .. } => op.asked_off_at = None,
            PowerCall::ForceOff { .. } => op.force_offs = op.force_offs.saturating_sub(1),
            PowerCall::PowerCycle { .. } => {
                self.op = None;
                self.status.starts.retain(|start| *start != call.at);
            }
            PowerCall::PowerOn { .. } => {
                // Its attempt is left to it, and what was known of the machine is known still.
                op.attempts = op.attempts.saturating_sub(1);
                if call.seq == 1 && !self.is_up() {
                    self.status.off_proved_at = self.op.as_ref().and_then(|op| op.off_proved_before);
                }
            }
            PowerCall::SetBoot { .. } | PowerCall::WolBurst { .. } | PowerCall::ResetBmc { .. } => return,
        }
        self.no_calls = Some(why.to_owned());
        self.status.last_power_action = call.before.map(|last| last.action);
        self.status.power_action_time = call.before.map(|last| last.at);
        self.status.power_action_driver = None;
        // The boot that goes on need not differ from itself.
        self.status.boot_id_at_off = None;
        self.held_back = call.call.is_off().then(|| (reason, why.to_owned()));
    }

    /// Nobody knows whether the call was sent. What may be repeated is asked for again once a reading
    /// made after it says that it is still needed, and stays announced while nothing may be sent: whoever takes it for
    /// sent would wait for its effect, and cut the power of a machine that was never asked to go. Anything else is
    /// left to its deadline.
    fn resume(&mut self, call: PowerCall, at: Timestamp) {
        let read_since = matches!(&self.seen.power, Known::Value { at: read, .. } if *read > at);
        let power = self.power().filter(|_| read_since);
        let (needed, expects) = match call {
            PowerCall::SetBoot { .. } => (Some(true), None),
            PowerCall::WolBurst { .. } if !self.is_readable() => (Some(!self.answered_since(at)), None),
            PowerCall::PowerOn { .. } | PowerCall::WolBurst { .. } => {
                (power.map(|power| power == Power::Off), Some(Power::Off))
            }
            PowerCall::GracefulOff { .. } if !self.is_readable() => (Some(self.is_up()), None),
            PowerCall::ForceOff { .. } if read_since && self.is_going_off() => {
                (Some(true), self.forced_from())
            }
            PowerCall::GracefulOff { .. } | PowerCall::ForceOff { .. } => {
                (power.map(|power| power == Power::On), Some(Power::On))
            }
            PowerCall::PowerCycle { .. } | PowerCall::ResetBmc { .. } => (Some(false), None),
        };
        let Some(needed) = needed else {
            self.ask_probe();
            self.no_calls = Some("1 power call was announced, and a reading must settle it".into());
            return;
        };
        let waits = match call {
            PowerCall::ForceOff { .. } => self.force_refused(),
            call if call.is_off() => self.off_refused(),
            _ => self.no_calls.clone(),
        };
        match waits {
            None if needed && call.is_repeatable() => {
                if matches!(call, PowerCall::GracefulOff { .. }) && self.is_overdue() {
                    // Maybe it is asked only now: it gets its time to shut down.
                    self.grant_grace();
                }
                self.repeat_call(call, expects);
            }
            Some(_) if needed && call.is_repeatable() => {}
            Some(_) | None => {
                if let Some(op) = self.op.as_mut() {
                    op.pending = None;
                }
            }
        }
    }

    /// Restarts a BMC that has been stuck, where that is allowed, at most once a day. The time is stored
    /// before the call, so that it is not made twice.
    pub(super) fn reset_stuck_bmc(&mut self) {
        let recent = self.status.bmc_reset_at.is_some_and(|at| self.now.since(at) < DAY);
        let allowed = self.settings().policy.reset_bmc.is_allowed();
        if self.is_stuck() && allowed && !recent && self.no_calls.is_none() {
            // Only a BMC can be restarted: a webhook that reads power has none.
            let bmc = |one: &super::DriverView| matches!(one.kind, DriverKind::Redfish | DriverKind::Ipmi);
            let Some(driver) = self.settings().drivers.iter().position(bmc) else { return };
            self.status.bmc_reset_at = Some(self.now);
            self.ask(EffectKind::Power(PowerCall::ResetBmc { driver }));
            self.no_calls = Some("1 restart of its BMC is under way".into());
        }
    }

    /// Reads the machine, unless nobody may talk to it.
    pub(super) fn ask_probe(&mut self) {
        if !self.is_blocked() && self.settings().admin != Admin::Disabled {
            self.ask(EffectKind::Probe { driver: None });
        }
    }
}
