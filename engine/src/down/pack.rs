//! Which of the nodes that could go alone go together: the most worth with the fewest moves.
//!
//! Nodes go in an order; those at its end are the first to take in pods. A node that takes in pods stays.
//! One order is tried for certain; others, and changes of the best one, as long as a counted effort allows.

use std::cmp::Reverse;

use super::{
    exits::Exits,
    floor::{Floor, OnFailure, Trial},
    ground::Ground,
    pools::Pools,
    report::{Blocker, Kept},
    sweep::{Candidate, needs},
};
use crate::solve::State;

/// Further orders are tried only if the first took no more than this many steps …
const SMALL: u64 = 4_000;
/// … until so many steps are spent in all …
const EFFORT: u64 = 100_000;
/// … and no more than this many, of which each makes a new state.
const ATTEMPTS: u32 = 256;

/// Better is larger: failing hardware, pools that must shrink, cost, capacity, then few moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Score {
    critical: u32,
    surplus: u32,
    price: i64,
    capacity: i64,
    nodes: u32,
    moves: Reverse<u32>,
}

/// One way to go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packed {
    /// Node and where its guests go, in order.
    pub(crate) removals: Vec<(u32, Vec<(u32, u32)>)>,
    /// Why other candidates stay.
    pub(crate) kept: Vec<(u32, Kept)>,
    pub(crate) effort: u64,
    score: Score,
}

/// The best removals found.
pub(crate) fn pack<'a>(
    ground: &Ground<'a>,
    base: &State<'_>,
    pools: &Pools<'a>,
    candidates: &[Candidate],
) -> Packed {
    let mut orders: Vec<Vec<usize>> = Vec::new();
    let sorted = |key: &dyn Fn(&Candidate) -> (i64, i64)| {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order
            .sort_by_key(|&at| (Reverse(candidates[at].critical), key(&candidates[at]), candidates[at].node));
        order
    };
    orders.push(sorted(&|c| (c.usage, -c.price)));
    orders.push(sorted(&|c| (-c.price, c.usage)));
    orders.push(sorted(&|c| (i64::from(ground.on(c.node).len() as u32), -c.price)));
    orders.push(sorted(&|c| (c.price, c.usage)));
    let exits = Exits::new(ground, candidates);
    let attempt = |order: &[usize]| attempt(ground, base, pools, &exits, candidates, order);
    let mut best = attempt(&orders[0]);
    let mut effort = best.effort;
    if effort > SMALL || best.removals.len() == candidates.len() {
        best.effort = effort;
        return best;
    }
    let mut at_best = orders[0].clone();
    for order in orders.into_iter().skip(1) {
        let found = attempt(&order);
        effort += found.effort;
        if found.score > best.score {
            (best, at_best) = (found, order);
        }
    }
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for _ in 0..ATTEMPTS {
        if effort > EFFORT || candidates.len() < 2 {
            break;
        }
        let mut order = at_best.clone();
        for _ in 0..=dice.below(2) {
            let (from, to) = (dice.below(order.len()), dice.below(order.len()));
            let moved = order.remove(from);
            order.insert(to, moved);
        }
        let found = attempt(&order);
        effort += found.effort;
        if found.score >= best.score {
            (best, at_best) = (found, order);
        }
    }
    best.effort = effort;
    best
}

/// A fixed sequence of numbers, the same on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

fn attempt<'a>(
    ground: &Ground<'a>,
    base: &State<'_>,
    pools: &Pools<'a>,
    exits: &Exits,
    candidates: &[Candidate],
    order: &[usize],
) -> Packed {
    let mut floor = Floor::new(ground, base.clone(), receivers(ground, candidates, order));
    let mut run = Run {
        ground,
        pools: pools.clone(),
        exits: exits.clone(),
        left: ground.budgets.allowed.clone(),
        received: vec![0; ground.seats.len()],
        packed: Packed::default(),
    };
    let mut trial = Trial::default();
    for &at in order {
        let candidate = &candidates[at];
        match run.remove(&mut floor, candidate, &mut trial) {
            Ok(()) => run.packed.removals.push((candidate.node, std::mem::take(&mut trial.moves))),
            Err(kept) => run.packed.kept.push((candidate.node, kept)),
        }
    }
    run.packed.effort = floor.effort + candidates.len() as u64 + 1;
    run.packed
}

/// Nodes that stay anyway, fullest first, then candidates from the last to go to the first.
fn receivers(ground: &Ground<'_>, candidates: &[Candidate], order: &[usize]) -> Vec<u32> {
    let mut goes = vec![false; ground.real];
    for candidate in candidates {
        goes[candidate.node as usize] = true;
    }
    let mut stay: Vec<(Reverse<i64>, u32)> = (0..ground.real as u32)
        .filter(|&node| !goes[node as usize])
        .map(|node| (Reverse(ground.usage(node).fine()), node))
        .collect();
    stay.sort_unstable();
    let stay = stay.into_iter().map(|(_, node)| node);
    stay.chain(order.iter().rev().map(|&at| candidates[at].node)).collect()
}

struct Run<'g, 'a> {
    ground: &'g Ground<'a>,
    pools: Pools<'a>,
    exits: Exits,
    /// Disruptions left, by budget: one account for the whole plan.
    left: Vec<i64>,
    received: Vec<u32>,
    packed: Packed,
}

impl<'a> Run<'_, 'a> {
    fn remove(
        &mut self,
        floor: &mut Floor<'_, 'a>,
        candidate: &Candidate,
        trial: &mut Trial,
    ) -> Result<(), Kept> {
        let node = candidate.node;
        self.check_bounds(candidate)?;
        let needs = needs(self.ground, node);
        if let Some(&(budget, _)) =
            needs.iter().find(|(id, needed)| self.left[*id as usize] < i64::from(*needed))
        {
            let allowed = self.ground.budgets.allowed[budget as usize];
            return Err(Kept::BudgetSpent { budget: self.ground.budgets.name(budget), allowed });
        }
        floor.try_out(node, trial, OnFailure::Stop);
        if let Some(&guest) = trial.stuck.first().or(trial.unexamined.first()) {
            floor.revert(node, trial);
            return Err(Kept::PlaceTaken { pod: floor.pod(guest).key() });
        }
        let surplus = self.is_surplus(candidate);
        if !candidate.critical && !surplus {
            let tight = self.pools.tight(self.ground, &floor.state, node, &trial.moves);
            if let Some(tight) = tight.into_iter().next() {
                floor.revert(node, trial);
                return Err(kept_tight(tight));
            }
        }
        self.pools.remove(self.ground, &floor.state, node, &trial.moves);
        self.exits.take(node);
        floor.commit(node, trial);
        for (budget, needed) in needs {
            self.left[budget as usize] -= i64::from(needed);
        }
        for &(_, to) in &trial.moves {
            self.received[to as usize] += 1;
        }
        let seat = &self.ground.seats[node as usize];
        let score = &mut self.packed.score;
        score.critical += u32::from(candidate.critical);
        score.surplus += u32::from(surplus);
        score.price = score.price.saturating_add(candidate.price);
        score.capacity += seat.capacity.first().copied().unwrap_or(0);
        score.nodes += 1;
        score.moves.0 += trial.moves.len() as u32;
        Ok(())
    }

    fn is_surplus(&self, candidate: &Candidate) -> bool {
        let pool = self.pools.of[candidate.node as usize];
        pool.is_some_and(|pool| {
            let tally = &self.pools.tallies[pool as usize];
            tally.removed < tally.surplus
        })
    }

    fn check_bounds(&self, candidate: &Candidate) -> Result<(), Kept> {
        let pods = self.received[candidate.node as usize];
        if pods > 0 {
            return Err(Kept::Receives { pods });
        }
        self.exits.check(candidate.node)?;
        if candidate.only_as_surplus && !self.is_surplus(candidate) {
            return Err(Kept::Better);
        }
        let pool = self.pools.of[candidate.node as usize].expect("a candidate has a pool");
        let tally = &self.pools.tallies[pool as usize];
        if tally.ready <= tally.floor() {
            return Err(Kept::Minimum { nodes: tally.ready, min: tally.floor() });
        }
        match self.pools.last_there(candidate.node).filter(|_| !candidate.critical) {
            Some(Blocker::LastThere { place, required, .. }) => Err(Kept::LastThere { place, required }),
            _ => Ok(()),
        }
    }
}

fn kept_tight(blocker: Blocker) -> Kept {
    match blocker {
        Blocker::HighMark { resource, used, allocatable, .. } => Kept::Tight { resource, used, allocatable },
        Blocker::Headroom { resource, left, required, .. } => {
            Kept::Tight { resource, used: required, allocatable: left }
        }
        _ => Kept::Better,
    }
}
