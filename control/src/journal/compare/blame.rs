//! Whether the world, what people set, or time alone made two decisions differ.

use muster_engine::Snapshot;
use serde::Serialize;

use super::{Comparison, Side, Subject, outcome::planned, rules};
use crate::planner::decide;

/// Where the difference of two decisions comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blame {
    /// The world changed: under the rules of the first, the second would have been the same.
    World,
    /// Bounds, policies or holds changed: under the rules of the first, it would have been decided as in the first.
    Rules,
    /// Both, and neither alone.
    Both,
    /// Nothing that was looked at changed, but the clock moved on.
    Time,
    /// Nothing changed at all: another version of the engine decided.
    Engine,
}

impl Blame {
    pub const ALL: [Self; 5] = [Self::World, Self::Rules, Self::Both, Self::Time, Self::Engine];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::World => "world",
            Self::Rules => "rules",
            Self::Both => "both",
            Self::Time => "time",
            Self::Engine => "engine",
        }
    }
}

/// Where the rows tell it, the rows do. Where both the world and the rules changed, the second moment is planned once
/// more under the rules of the first: what comes out says which of them mattered.
pub(super) fn of(comparison: &Comparison, from: Side<'_>, to: Side<'_>) -> Option<Blame> {
    let ((before, _), (after, plan)) = (from.frame?, to.frame?);
    // What became of a plan is no part of it.
    let acts = |subject: Subject| !matches!(subject, Subject::State | Subject::Audit);
    if !comparison.outcome.iter().any(|change| acts(change.subject)) {
        return None;
    }
    let rule = comparison.inputs.iter().any(|change| change.rule);
    let world = comparison.inputs.iter().any(|change| !change.rule);
    Some(match (world, rule) {
        (false, false) if before.now == after.now => Blame::Engine,
        (false, false) => Blame::Time,
        (true, false) => Blame::World,
        (false, true) => Blame::Rules,
        (true, true) => {
            let then = rules::under(after, before)?;
            let again = decided(&then);
            if again == essence(after, plan) {
                Blame::World
            } else if from.frame.is_some_and(|(snapshot, plan)| again.acts_as(&essence(snapshot, plan))) {
                Blame::Rules
            } else {
                Blame::Both
            }
        }
    })
}

/// What a plan comes to, without the names of machines that are as good as others.
#[derive(Debug, PartialEq, Eq)]
struct Essence {
    pools: Vec<(String, usize, usize)>,
    unplaced: usize,
}

impl Essence {
    /// Calls up and stands down as the other does.
    fn acts_as(&self, other: &Self) -> bool {
        self.pools == other.pools
    }
}

fn essence(snapshot: &Snapshot, plan: &muster_engine::Plan) -> Essence {
    let tally = planned(snapshot, plan);
    let changed = tally.into_iter().filter(|(_, one)| !one.up.is_empty() || !one.down.is_empty());
    Essence {
        pools: changed.map(|(pool, one)| (pool, one.up.len(), one.down.len())).collect(),
        unplaced: plan.unplaced.len(),
    }
}

fn decided(snapshot: &Snapshot) -> Essence {
    essence(snapshot, &decide(snapshot).plan)
}
