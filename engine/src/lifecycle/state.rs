//! What is stored of a host's lifecycle, and what one step makes of it.

use muster_model::{
    Timestamp,
    host::{BareMetalNodeStatus, HostEvent, HostOp, Phase},
};
use serde::{Deserialize, Serialize};

use super::{Effect, Rule};

/// The records `status` and `op` of one host. They are written together, in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostState {
    pub name: String,
    pub status: BareMetalNodeStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<HostOp>,
}

impl HostState {
    pub const fn phase(&self) -> Phase {
        self.status.phase
    }
}

/// The outcome of one look at one host.
///
/// The caller stores `state` first (with the effects that go into the same transaction), then performs
/// the other effects, then reads the machine and steps again. It may die between any two of these.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a step does nothing until its state is stored and its effects are performed"]
pub struct Step {
    /// What to store. Equal to the state before when nothing is to be written.
    pub state: HostState,
    pub from: Phase,
    pub rule: Rule,
    pub effects: Vec<Effect>,
    /// One sentence with a number in it.
    pub reason: String,
    /// When to look again at the latest, if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Whether the host's records are to be deleted.
    pub gone: bool,
}

impl Step {
    /// Whether the phase changed.
    pub fn moved(&self) -> bool {
        self.from != self.state.status.phase
    }

    /// What the host's history says about it; `None` for a step that changed nothing worth telling.
    pub fn event(&self, now: Timestamp) -> Option<HostEvent> {
        let told = self.moved() || self.gone || self.effects.iter().any(|one| one.kind.is_destructive());
        told.then(|| HostEvent {
            number: 0,
            at: now,
            last_at: None,
            count: 1,
            from: self.from,
            to: self.state.status.phase,
            rule: self.rule.to_string(),
            message: self.reason.clone(),
            operation: self.state.op.as_ref().map(|op| op.id.clone()),
            deadline: self.state.status.deadline,
        })
    }
}
