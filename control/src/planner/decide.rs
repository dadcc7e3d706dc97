//! From a snapshot to a plan that was judged: the one place where the engine is asked what to do.

use muster_engine::{
    Plan, Snapshot, audit, down,
    plan::{self, Decision},
};

/// A plan, why it is so, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Decided {
    pub plan: Plan,
    pub up: plan::Report,
    pub down: down::Report,
    /// What the audit found: a bug of ours, and nothing may act on the plan.
    pub findings: Vec<String>,
}

/// Decides. Pure: equal snapshots give equal plans, byte for byte.
pub fn decide(snapshot: &Snapshot) -> Decided {
    let Decision { mut plan, report: up } = plan::scale_up(snapshot);
    let down = down::complete(snapshot, &mut plan);
    let findings = faults(snapshot, &plan);
    Decided { plan, up, down, findings }
}

/// What the audit says about a plan in a world, in sentences.
pub fn faults(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    audit(snapshot, plan).iter().map(ToString::to_string).collect()
}
