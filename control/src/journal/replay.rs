//! Old decisions again: the stored snapshot through the present engine.

use std::collections::BTreeSet;

use muster_engine::{Plan, Snapshot, plan::Source};
use serde::Serialize;

use super::{Decision, DecisionId, Journal, JournalError, frame};
use crate::planner::decide;

/// A decision made once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[must_use]
pub struct Replay {
    pub id: DecisionId,
    /// The same plan, byte for byte.
    pub same: bool,
    /// One line that says so, with a number.
    pub headline: String,
    /// What was planned then, and what is planned now from the same snapshot.
    pub then: Plan,
    pub now: Plan,
    pub differences: Vec<Difference>,
    /// What the audit says about the plan of now.
    pub findings: Vec<String>,
}

/// Something that one of two plans has and the other has not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// `new node`, `removal`, `unplaced pod`.
    pub what: &'static str,
    pub name: String,
    /// `added` or `removed`, from the first to the second.
    pub change: &'static str,
}

impl Journal {
    /// The snapshot and the plan of a decision.
    pub async fn frame(&self, decision: &Decision) -> Result<(Snapshot, Plan), JournalError> {
        let (head, _) = self.head(decision.cluster_id).await?;
        let id = || decision.id.to_string();
        let frame = decision.frame.as_ref().ok_or_else(|| JournalError::TooOld { id: id() })?;
        if !head.key_frames.contains(&frame.key) {
            return Err(JournalError::TooOld { id: id() });
        }
        let text = self.frame_text(decision.cluster_id, decision.number, frame).await?;
        frame::parse(&super::frame_key(decision.cluster_id, decision.number, 0), &text)
    }
}

/// Decides again from the stored snapshot.
pub fn replay(decision: &Decision, snapshot: &Snapshot, then: Plan) -> Replay {
    let decided = decide(snapshot);
    let same = bytes(&then) == bytes(&decided.plan);
    let differences = plans(&then, &decided.plan);
    let (new, removed) = (decided.plan.new_nodes.len(), decided.plan.removals.len());
    let of = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    let plan = format!("{}, {}", of(new, "new node"), of(removed, "removal"));
    let headline = if same {
        format!("the same plan again: {plan}")
    } else {
        format!("another plan: {}; now {plan}", of(differences.len(), "difference"))
    };
    Replay {
        id: decision.id.clone(),
        same,
        headline,
        then,
        now: decided.plan,
        differences,
        findings: decided.findings,
    }
}

fn bytes(plan: &Plan) -> Vec<u8> {
    serde_json::to_vec(plan).expect("a plan is plain data")
}

fn plans(old: &Plan, new: &Plan) -> Vec<Difference> {
    let machines = |plan: &Plan| -> BTreeSet<String> {
        let named = plan.new_nodes.iter().enumerate().map(|(number, node)| match &node.source {
            Source::Host { host } => format!("{}/{host}", node.pool),
            Source::Bought { .. } => {
                let nth = plan.new_nodes[..number].iter().filter(|other| other.pool == node.pool).count();
                format!("{}/{} no. {}", node.pool, node.template, nth + 1)
            }
        });
        named.collect()
    };
    let removals = |plan: &Plan| plan.removals.iter().map(|one| one.node.to_string()).collect();
    let unplaced = |plan: &Plan| plan.unplaced.iter().map(ToString::to_string).collect();
    let mut all = sets("new node", &machines(old), &machines(new));
    all.extend(sets("removal", &removals(old), &removals(new)));
    all.extend(sets("unplaced pod", &unplaced(old), &unplaced(new)));
    all
}

fn sets(what: &'static str, old: &BTreeSet<String>, new: &BTreeSet<String>) -> Vec<Difference> {
    let gone = old.difference(new).map(|name| Difference { what, name: name.clone(), change: "removed" });
    let come = new.difference(old).map(|name| Difference { what, name: name.clone(), change: "added" });
    gone.chain(come).collect()
}
