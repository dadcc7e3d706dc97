//! Scale down: a verdict with its witness for every node, and the removals of a plan.
//!
//! Every reason against a node is one small pure rule with a code and its operands; all of them are
//! collected, not just the first. Budgets are one account over the whole plan, a node that goes never
//! takes pods in, and the finished removals are carried out once more on a fresh state, so that no pod is
//! left without a place. Nothing here reads a clock: delays are arithmetic over times in the snapshot.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "ids are u32 by design; a snapshot with 2^32 pods does not fit in memory"
)]

mod budgets;
mod exits;
mod floor;
mod ground;
mod headroom;
mod index;
mod intern;
mod nodes;
mod pack;
mod places;
mod pods;
mod pools;
mod replace;
mod report;
mod steps;
mod sweep;
mod usage;
mod volumes;

pub(crate) use ground::by_name;
pub use pods::{Controllers, Fate, blocks, fate};
pub use report::{Blocker, Kept, Movement, Outcome, PodBlock, Refusal, Refused, Report, Verdict, Witness};
pub(crate) use steps::step_among;
pub use steps::{Step, Unsettled, above_mark, step, unsettled};
pub use usage::{Share, Usage};

use crate::{
    plan::{Placement, Plan, Removal, Target},
    snapshot::Snapshot,
    solve::State,
};
use floor::Floor;
use ground::{Ground, fresh_nodes};
use nodes::Facts;
use pack::Packed;
use pools::Pools;

/// Judges every node and chooses removals. `plan` is what is already decided: its new nodes and the places
/// of pending pods are taken as given, and its pools that grow do not shrink.
pub fn scale_down(snapshot: &Snapshot, plan: &Plan) -> Report {
    let fresh = fresh_nodes(snapshot, plan);
    let ground = Ground::new(snapshot, plan, &fresh);
    let base = ground.state();
    let pools = Pools::new(&ground, &base, plan);
    let facts = Facts::new(&ground);
    let mut floor = Floor::new(&ground, base.clone(), fullest_first(&ground));
    let sweep::Sweep { mut verdicts, candidates } = sweep::sweep(&ground, &pools, &facts, &mut floor);
    let mut packed = if candidates.is_empty() {
        Packed::default()
    } else {
        pack::pack(&ground, &base, &pools, &candidates)
    };
    recheck(&ground, base, &mut packed);
    tell(&ground, &packed, &mut verdicts);
    let removals = packed.removals.iter().map(|(node, moves)| removal(&ground, *node, moves)).collect();
    let effort = floor.effort + packed.effort;
    let mut report = Report { new_nodes: Vec::new(), removals, verdicts, effort };
    if report.removals.is_empty() && *plan == Plan::default() {
        replace::replace(snapshot, &mut report);
    }
    report
}

/// Adds what can go to a plan that is decided so far, and says why about every node.
pub fn complete(snapshot: &Snapshot, plan: &mut Plan) -> Report {
    let report = scale_down(snapshot, plan);
    // Replacements are made only for a plan without new nodes of its own, so that their numbers hold.
    plan.new_nodes.extend(report.new_nodes.iter().cloned());
    plan.removals.clone_from(&report.removals);
    report
}

/// The order in which single nodes offer pods to others.
fn fullest_first(ground: &Ground<'_>) -> Vec<u32> {
    let mut order: Vec<(i64, u32)> =
        (0..ground.real as u32).map(|node| (-ground.usage(node).fine(), node)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, node)| node).collect()
}

/// Carries the removals out once more from the start; from the first that does not work on, all are dropped.
fn recheck<'g>(ground: &'g Ground<'_>, base: State<'g>, packed: &mut Packed) {
    let mut floor = Floor::new(ground, base, Vec::new());
    let mut left = ground.budgets.allowed.clone();
    let mut good = 0;
    let mut goes = vec![false; ground.real];
    for (node, _) in &packed.removals {
        goes[*node as usize] = true;
    }
    for (node, moves) in &packed.removals {
        let complete = moves.len() == ground.on(*node).len();
        let stays = moves.iter().all(|(_, to)| !goes[*to as usize]);
        for (budget, needed) in sweep::needs(ground, *node) {
            left[budget as usize] -= i64::from(needed);
        }
        if !complete || !stays || left.iter().any(|left| *left < 0) || floor.replay(*node, moves).is_err() {
            break;
        }
        good += 1;
    }
    let dropped = packed.removals.split_off(good);
    packed.kept.extend(dropped.into_iter().map(|(node, _)| (node, Kept::Better)));
}

fn tell(ground: &Ground<'_>, packed: &Packed, verdicts: &mut [Verdict]) {
    for (node, moves) in &packed.removals {
        let outcome = if moves.is_empty() { Outcome::Empty } else { Outcome::Drained };
        verdicts[*node as usize].outcome = outcome;
    }
    let mut taken = vec![0_u32; ground.real];
    for (_, to) in packed.removals.iter().flat_map(|(_, moves)| moves) {
        taken[*to as usize] += 1;
    }
    for (node, why) in &packed.kept {
        let pods = taken[*node as usize];
        let why = if pods > 0 { Kept::Receives { pods } } else { why.clone() };
        verdicts[*node as usize].outcome = Outcome::Kept(why);
    }
}

fn removal(ground: &Ground<'_>, node: u32, moves: &[(u32, u32)]) -> Removal {
    let name = |node: u32| ground.seats[node as usize].node.metadata.name.clone();
    let placement = |&(guest, to): &(u32, u32)| Placement {
        pod: ground.guests[guest as usize].pod.key(),
        on: Target::Node(name(to)),
    };
    Removal { node: name(node), moves: moves.iter().map(placement).collect() }
}

#[cfg(test)]
mod tests;
