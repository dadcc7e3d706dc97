//! The lifecycle of one bare-metal host as a pure function.
//!
//! [`step`] looks at what is stored ([`HostState`]) and at what is known ([`Evidence`]) and says what to
//! store next and what to do. It has no clock, no I/O and no randomness: the same input gives the same
//! step. [`table`] says which moves exist; a move that it does not list cannot be made.
//!
//! The caller's part, in this order: read the machine and the node; step; store the new state and the
//! effects that belong into the same transaction, compared with the leader's epoch; perform the other
//! effects, reading the power state right before each power call and dropping the call when it is not the
//! expected one; report the outcome in the next evidence. Dying anywhere in between is safe: announced
//! power calls that may be repeated are asked for again after a fresh reading, others never; effects on
//! the node are asked for until they are seen.
//!
//! Deliberately absent: which host to take (the planner), how to talk to a BMC (the drivers), limits across
//! hosts such as watts per rack (the actuator).

mod advice;
mod backoff;
mod disagree;
mod draining;
mod effect;
mod error;
mod evidence;
mod mend;
mod observe;
mod off;
mod powering_on;
mod ready;
mod rules;
mod settings;
mod state;
pub mod table;
mod turn;

use muster_model::{
    Duration, Timestamp,
    host::{Admin, BareMetalNodeStatus, Phase},
};

pub use effect::{Effect, EffectKind, OpRef, Repeat, When};
pub use evidence::{
    Advice, AgentView, BmcTrouble, BmcView, BootNeed, BootProgress, Cordon, Deletion, DriverView, Evidence,
    Freeze, Goodbye, Hello, Leadership, NodeSeen, NodeView, Outcome, Performed, PodsView, PoolView,
    PowerSeen, Settings, TroubleClass,
};
pub use mend::UNATTENDED;
pub use settings::{Surroundings, driver_for, settings};
pub use state::{HostState, Step};
pub use table::Rule;

use turn::Turn;

/// Row 1: a host's record was written.
pub fn enrol(name: &str, seen: &Evidence, now: Timestamp) -> Step {
    let state = HostState { name: name.to_owned(), status: BareMetalNodeStatus::enrolling(now), op: None };
    let mut turn = Turn::new(&state, seen, now);
    if seen.leadership == Leadership::Follower {
        return turn.stay_by(Rule::Follower, "0 effects: another process leads");
    }
    turn.ask_probe();
    let limit = turn.settings().limits.enrol;
    turn.go(Rule::Row(1), Phase::Enrolling, Some(limit), format!("registered; {limit} to answer a probe"))
}

/// One host, one look. Does nothing itself: the caller stores the new state, then performs the effects.
pub fn step(state: &HostState, seen: &Evidence, now: Timestamp) -> Step {
    let mut turn = Turn::new(state, seen, now);
    match seen.leadership {
        Leadership::Follower => {
            return Step {
                state: state.clone(),
                from: state.status.phase,
                rule: Rule::Follower,
                effects: Vec::new(),
                reason: "0 effects: another process leads".into(),
                wake: None,
                gone: false,
            };
        }
        Leadership::Leader { .. } => {}
    }
    turn.observe();
    if let Some(reason) = turn.paused() {
        return reason.end(turn);
    }
    let acknowledged = turn.take_acknowledgement();
    turn.settle();
    turn.reset_stuck_bmc();
    if seen.deletion == Deletion::Forced {
        return turn.forget("its record is deleted by force, 0 calls made");
    }
    if turn.is_blocked() && table::admits(Rule::Row(25), turn.from, Phase::Quarantined) {
        return blocked(turn);
    }
    if turn.op.is_none() && needs_op(turn.from) {
        turn.status.retry_at = Some(now);
        return turn.go(Rule::Repair, Phase::Backoff, None, "its record lacks 1 operation; looked at afresh");
    }
    let deleting = seen.deletion != Deletion::None;
    match turn.from {
        Phase::Enrolling
        | Phase::Idle
        | Phase::Reserved
        | Phase::Backoff
        | Phase::Quarantined
        | Phase::Lost
            if deleting =>
        {
            off::deleted(turn)
        }
        Phase::Enrolling => off::enrolling(turn),
        Phase::Idle => off::idle(turn),
        Phase::Reserved => off::reserved(turn),
        Phase::PreparingBoot => powering_on::preparing_boot(turn),
        Phase::PowerRequested => powering_on::power_requested(turn),
        Phase::Powered | Phase::Booting | Phase::Joining => powering_on::booting(turn),
        Phase::Serving | Phase::Degraded => ready::serving(turn),
        Phase::Lost => ready::lost_node(turn),
        Phase::Cordoned => draining::cordoned(turn),
        Phase::Evicting => draining::evicting(turn),
        Phase::Drained => draining::drained(turn),
        Phase::Stopping => draining::stopping(turn),
        Phase::ForcingOff => draining::forcing_off(turn),
        Phase::ConfirmingOff => draining::confirming_off(turn),
        Phase::Backoff => error::backing_off(turn, acknowledged.is_some()),
        Phase::Quarantined => error::quarantined(turn, acknowledged),
    }
}

/// Phases that make no sense without the record of an operation.
const fn needs_op(phase: Phase) -> bool {
    match phase {
        Phase::Reserved
        | Phase::PreparingBoot
        | Phase::PowerRequested
        | Phase::Powered
        | Phase::Booting
        | Phase::Joining
        | Phase::Cordoned
        | Phase::Evicting
        | Phase::Drained
        | Phase::Stopping
        | Phase::ForcingOff => true,
        Phase::Enrolling
        | Phase::Idle
        | Phase::Serving
        | Phase::Degraded
        | Phase::Lost
        | Phase::ConfirmingOff
        | Phase::Backoff
        | Phase::Quarantined => false,
    }
}

/// Row 25: nothing calls this BMC any more.
fn blocked(mut turn: Turn<'_>) -> Step {
    let (reason, message) = turn
        .status
        .bmc_blocked
        .as_ref()
        .map(|blocked| (blocked.cause.as_str(), blocked.message.clone()))
        .unwrap_or_default();
    turn.count_failure(reason, &message);
    turn.quarantine(Rule::Row(25), reason, &format!("0 more calls to its BMC: {message}"))
}

/// Why nothing may be done at all.
enum Pause {
    Frozen,
    Resting,
    /// What was under way in a pool that only gives advice now.
    Advised,
}

impl Pause {
    fn end(self, mut turn: Turn<'_>) -> Step {
        turn.status.paused_since.get_or_insert(turn.now);
        match self {
            Self::Frozen => turn.stay_by(Rule::Frozen, "0 effects: everything is frozen"),
            Self::Resting => {
                let admin = turn.settings().admin.as_str();
                turn.release();
                if turn.from == Phase::Reserved {
                    turn.op = None;
                    return turn.go(Rule::Row(29), Phase::Idle, None, format!("{admin}; 1 claim given back"));
                }
                if turn.settings().admin == Admin::Maintenance {
                    turn.ask_probe();
                }
                turn.stay_by(Rule::Row(29), format!("0 actions: {admin}"))
            }
            Self::Advised => advice::stand_still(turn),
        }
    }
}

impl Turn<'_> {
    /// Freeze, maintenance and a pool that only gives advice stop everything but observing. Afterwards deadlines have moved by as long.
    fn paused(&mut self) -> Option<Pause> {
        let admin = self.settings().admin;
        let pause = match (self.seen.freeze, admin) {
            (Freeze::Frozen, _) => Some(Pause::Frozen),
            // A record may be deleted by force while people work on the machine.
            (Freeze::None | Freeze::AllOn, Admin::Maintenance | Admin::Disabled)
                if self.seen.deletion != Deletion::Forced =>
            {
                Some(Pause::Resting)
            }
            (Freeze::None | Freeze::AllOn, _) => self.stands_still().then_some(Pause::Advised),
        };
        if pause.is_none()
            && let Some(since) = self.status.paused_since.take()
        {
            self.move_on(self.now.since(since));
        }
        pause
    }

    /// Moves what was to be over by a time, and what is counted from a time, by as long as nothing could be done.
    fn move_on(&mut self, length: Duration) {
        let now = self.now;
        let later = |time: &mut Timestamp| *time = time.saturating_add(length);
        let status = &mut self.status;
        [&mut status.deadline, &mut status.retry_at, &mut status.drain_retry_at]
            .into_iter()
            .flatten()
            .for_each(later);
        if let Some(quarantine) = &mut status.quarantine {
            later(&mut quarantine.probation_at);
        }
        // A wait that began in between begins now.
        for since in [&mut status.not_ready_since, &mut status.unexpected_on_since].into_iter().flatten() {
            *since = since.saturating_add(length).min(now);
        }
        if let Some(op) = self.op.as_mut() {
            [&mut op.boot_deadline, &mut op.drain_deadline, &mut op.stage_deadline]
                .into_iter()
                .flatten()
                .for_each(later);
        }
    }
}
