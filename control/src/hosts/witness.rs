//! The audit of power calls: written before a call is sent, and once more with what came of it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use muster_engine::lifecycle::{Effect, Outcome as Ended};
use muster_model::{
    host::{Cause, DriverKind, PowerCall},
    power::{Fault, PowerError},
};

use super::perform::Scene;
use crate::audit::{AuditError, AuditLog, Event, Outcome, PowerDeed};

/// Where power calls are written down.
#[async_trait]
pub trait Witness: Send + Sync + fmt::Debug {
    /// Returns once the event is safe.
    async fn record(&self, event: Event) -> Result<(), AuditError>;
}

/// The audit log of this process, which says who leads.
#[derive(Debug, Clone)]
pub struct Audited {
    pub log: Arc<AuditLog>,
    /// The name of this process among those that may lead.
    pub holder: String,
}

#[async_trait]
impl Witness for Audited {
    async fn record(&self, event: Event) -> Result<(), AuditError> {
        self.log.record(Event { source: self.holder.clone(), ..event }).await
    }
}

/// For worlds that keep no audit log: simulations, benchmarks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWitness;

#[async_trait]
impl Witness for NoWitness {
    async fn record(&self, _: Event) -> Result<(), AuditError> {
        Ok(())
    }
}

/// The line of a call that is about to be sent.
pub(super) fn begun(scene: &Scene<'_>, effect: &Effect, call: PowerCall, driver: DriverKind) -> Event {
    let announced = effect.op.as_ref();
    let operation = announced.map(|op| op.id.clone());
    let now = scene.shared.clock.now();
    let request_id = match (&operation, announced.and_then(|op| op.seq)) {
        (Some(operation), Some(number)) => format!("{operation}/{number}"),
        (Some(operation), None) => operation.clone(),
        (None, _) => format!("{}/{now}", scene.name),
    };
    let cause = scene.op.filter(|op| Some(&op.id) == operation.as_ref()).map(|op| (&op.cause, &op.reason));
    let decision = match cause {
        Some((Cause::Intent { decision, .. }, _)) => Some(decision.clone()),
        _ => None,
    };
    Event {
        at: now,
        actor: "muster".to_owned(),
        mode: "leader".to_owned(),
        source: String::new(),
        request_id,
        verb: call.as_str().to_owned(),
        object: format!("hosts/{}", scene.name),
        name: scene.name.to_string(),
        project: scene.spec.project.clone().unwrap_or_default(),
        outcome: Outcome::Begun,
        status: 0,
        revision: None,
        before: None,
        after: None,
        changed: Vec::new(),
        power: Some(PowerDeed {
            driver: driver.to_string(),
            operation,
            decision,
            cause: cause.map_or_else(|| scene.status.reason.clone(), |(cause, reason)| told(cause, reason)),
            epoch: scene.lead.fence.epoch.0,
            message: None,
        }),
    }
}

fn told(cause: &Cause, reason: &str) -> String {
    match cause {
        Cause::Intent { decision, .. } => format!("decision {decision}: {reason}"),
        Cause::Manual { by } => format!("{by} by hand: {reason}"),
        Cause::Drift => format!("switched by somebody else: {reason}"),
        Cause::Deletion => format!("its record is being deleted: {reason}"),
        Cause::Recovery => format!("the end of a failed attempt: {reason}"),
        Cause::Probation => format!("a test after quarantine: {reason}"),
        Cause::AllOn => format!("everything is to be on: {reason}"),
    }
}

/// The line of a call that has ended.
pub(super) fn ended(scene: &Scene<'_>, begun: Event, result: &Result<(), PowerError>) -> Event {
    let (outcome, message) = match result {
        Ok(()) => (Outcome::Done, None),
        Err(error @ PowerError { fault: Fault::Withheld { .. }, .. }) => {
            (Outcome::Refused, Some(error.to_string()))
        }
        Err(error) => match super::look::outcome(error) {
            Ended::Refused { message, .. } => (Outcome::Refused, Some(message)),
            Ended::Accepted | Ended::Unknown | Ended::Unsent | Ended::HeldBack { .. } => {
                (Outcome::Failed, Some(error.to_string()))
            }
        },
    };
    let power = begun.power.map(|deed| PowerDeed { message, ..deed });
    Event { at: scene.shared.clock.now(), outcome, power, ..begun }
}
