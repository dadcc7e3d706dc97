//! An independent judge of finished plans.
//!
//! It replays a plan step by step with the slow, obvious filters and refuses one that breaks a bound, a
//! limit, a supply, a filter, a budget, a hold or a group. It shares no code with the planner's fast path,
//! and it never repairs: a finding is a bug of ours, and nothing may act on the plan.

mod bounds;
mod drain;
mod fault;
mod groups;
mod power;
mod replay;
mod spread;
mod supply;

pub use fault::{At, Fault, Finding, Findings};

use crate::{plan::Plan, snapshot::Snapshot};

/// Everything the plan breaks, in the order of the plan; nothing means that it may be carried out.
pub fn audit(snapshot: &Snapshot, plan: &Plan) -> Findings {
    let mut findings = Findings::default();
    supply::check(snapshot, plan, &mut findings);
    bounds::check(snapshot, plan, &mut findings);
    spread::check(snapshot, plan, &mut findings);
    power::check(snapshot, plan, &mut findings);
    let running = replay::check(snapshot, plan, &mut findings);
    groups::check(snapshot, &running, &mut findings);
    findings.sort();
    findings
}

#[cfg(test)]
mod tests;
