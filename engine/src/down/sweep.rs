//! A verdict on every node, as if it alone went.

use muster_model::k8s::PodKey;

use super::{
    budgets::Draw,
    floor::{Floor, OnFailure, Trial},
    ground::Ground,
    nodes::{Against, Facts},
    pools::Pools,
    report::{Blocker, Outcome, Refused, Verdict, Witness},
};
use crate::plan::hash::FixedMap;

/// A node that could go.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) node: u32,
    /// Failing hardware goes first.
    pub(crate) critical: bool,
    /// It may go only because its pool must shrink.
    pub(crate) only_as_surplus: bool,
    /// Largest share of a resource in use, in ten-thousandths.
    pub(crate) usage: i64,
    pub(crate) price: i64,
}

/// Verdicts by the order of the ground, and the nodes that could go.
pub(crate) struct Sweep {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) candidates: Vec<Candidate>,
}

pub(crate) fn sweep<'a>(
    ground: &Ground<'a>,
    pools: &Pools<'a>,
    facts: &Facts<'a>,
    floor: &mut Floor<'_, 'a>,
) -> Sweep {
    let mut swept = Sweep { verdicts: Vec::with_capacity(ground.real), candidates: Vec::new() };
    let mut trial = Trial::default();
    let mut known: FixedMap<u32, Vec<Refused>> = FixedMap::default();
    for node in 0..ground.real as u32 {
        let usage = ground.usage(node);
        let Against { hard, soft, critical } = facts.against(ground, pools, node, usage);
        let tally = pools.of[node as usize].map(|pool| &pools.tallies[pool as usize]);
        let must_go = critical || tally.is_some_and(|tally| tally.surplus > 0);
        let only_as_surplus = !soft.is_empty() && !critical;
        let mut blockers = hard;
        if !must_go {
            blockers.extend(soft);
        }
        pod_blocks(ground, node, &mut blockers);
        budget_blocks(ground, node, &mut blockers);
        floor.try_out(node, &mut trial, OnFailure::GoOn);
        blockers.extend(place_blocks(ground, floor, node, &trial, &mut known));
        if !must_go {
            blockers.extend(pools.tight(ground, &floor.state, node, &trial.moves));
        }
        floor.revert(node, &trial);
        let witness = trial.moves.iter().map(|&(guest, to)| step(ground, guest, to)).collect();
        if blockers.is_empty() {
            let price = ground.seats[node as usize].member.map_or(0, |member| member.price);
            swept.candidates.push(Candidate { node, critical, only_as_surplus, usage: usage.fine(), price });
        }
        let unneeded = blockers.iter().all(Blocker::is_time);
        swept.verdicts.push(Verdict {
            node: ground.seats[node as usize].node.metadata.name.clone(),
            outcome: Outcome::Blocked,
            next: blockers.iter().filter_map(Blocker::until).min(),
            unneeded,
            blockers,
            witness,
            usage: usage.clone(),
        });
    }
    swept
}

fn step(ground: &Ground<'_>, guest: u32, to: u32) -> Witness {
    let to = ground.seats[to as usize].index.expect("only nodes of the snapshot receive pods");
    Witness { pod: ground.guests[guest as usize].index, to }
}

/// Rules that keep single pods.
fn pod_blocks(ground: &Ground<'_>, node: u32, blockers: &mut Vec<Blocker>) {
    for guest in ground.on(node) {
        let guest = &ground.guests[guest as usize];
        blockers
            .extend(guest.blocks.iter().map(|why| Blocker::Pod { pod: guest.pod.key(), why: why.clone() }));
    }
}

/// How many disruptions of each budget the pods of a node need.
pub(crate) fn needs(ground: &Ground<'_>, node: u32) -> Vec<(u32, u32)> {
    let mut needs: Vec<(u32, u32)> = Vec::new();
    for guest in ground.on(node) {
        if let Draw::One(budget) = ground.guests[guest as usize].draw {
            match needs.iter_mut().find(|(id, _)| *id == budget) {
                Some((_, needed)) => *needed += 1,
                None => needs.push((budget, 1)),
            }
        }
    }
    needs
}

fn budget_blocks(ground: &Ground<'_>, node: u32, blockers: &mut Vec<Blocker>) {
    for (budget, needed) in needs(ground, node) {
        let allowed = ground.budgets.allowed[budget as usize];
        if i64::from(needed) <= allowed {
            continue;
        }
        let covered = ground.on(node).map(|guest| &ground.guests[guest as usize]);
        let pods: Vec<PodKey> =
            covered.filter(|guest| guest.draw == Draw::One(budget)).map(|guest| guest.pod.key()).collect();
        blockers.push(Blocker::Budget { budget: ground.budgets.name(budget), allowed, needed, pods });
    }
}

/// Pods without a place. Reasons are counted once per class.
fn place_blocks(
    ground: &Ground<'_>,
    floor: &Floor<'_, '_>,
    node: u32,
    trial: &Trial,
    known: &mut FixedMap<u32, Vec<Refused>>,
) -> Vec<Blocker> {
    let mut blockers = Vec::new();
    for &guest in &trial.stuck {
        let data = &ground.guests[guest as usize];
        let refused = if data.has_volumes {
            floor.refusals(guest, node)
        } else {
            known.entry(data.class).or_insert_with(|| floor.refusals(guest, node)).clone()
        };
        blockers.push(Blocker::NoPlace { pod: floor.pod(guest).key(), refused });
    }
    blockers
        .extend(trial.unexamined.iter().map(|&guest| Blocker::Unexamined { pod: floor.pod(guest).key() }));
    blockers
}
