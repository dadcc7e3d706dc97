//! The numeric core of the planner: packs classes of pods onto nodes and new machines at the least cost.
//!
//! It knows lanes, bits, counters and budgets (see [`Problem`]) and nothing of Kubernetes. Everything is
//! integers and fixed orders: the same problem gives the same solution. Work is limited by counted effort,
//! never by time.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "ids are u32 by design; a problem with 2^32 pods does not fit in memory"
)]

mod build;
mod catalog;
mod existing;
mod fill;
mod finish;
mod places;
mod polish;
mod prices;
mod problem;
mod rules;
mod search;
mod state;
mod stocks;
mod strict;

pub use polish::{Wishes, wishes};
pub use problem::{
    BitTable, Class, Counter, NO_DOMAIN, Node, Problem, RequireRule, Shape, Solution, SpreadRule, Step,
    Target, UNLIMITED, Wish, WishKind,
};
pub use state::Refusal;

use catalog::{Catalog, Stock};
use finish::Draft;
use rules::Rules;
pub(crate) use state::State;

/// Solves the problem. Every step of the answer was accepted by the exact rules, in order, with all
/// machines present from the start. Where not everything can be had, higher priorities come first.
pub fn solve(problem: &Problem) -> Solution {
    let mut solution = stocks::improve(problem, solve_stock(problem), solve_stock);
    polish::polish(problem, &mut solution);
    solution
}

/// Solves with the machines that the problem names.
fn solve_stock(problem: &Problem) -> Solution {
    let solution = solve_together(problem);
    if strict::is_unfair(problem, &solution) {
        return strict::solve(problem, &class_order(problem));
    }
    solution
}

/// All priorities at once, at the least cost.
fn solve_together(problem: &Problem) -> Solution {
    let rules = Rules::new(problem);
    let catalog = Catalog::new(problem);
    let order = class_order(problem);
    let counts: Vec<u32> = problem.classes.iter().map(|class| class.count).collect();
    let mut draft = Draft::new(State::new(problem), counts, Stock::new(problem));
    existing::place(&mut draft, &order);
    if draft.left.iter().all(|&left| left == 0) {
        return draft.settle(&catalog);
    }
    if spreads(problem) && !problem.nodes.is_empty() {
        // New machines are new, empty domains: what leaned on a minimum above zero must not.
        let counts: Vec<u32> = problem.classes.iter().map(|class| class.count).collect();
        draft = Draft::new(State::new(problem), counts, Stock::new(problem));
        draft.state.empty_hosts_to_come = true;
        draft.state.expect_domains(true);
        existing::place(&mut draft, &order);
        draft.state.expect_domains(false);
        draft.state.empty_hosts_to_come = false;
    }
    let found = search::search(&draft, &rules, &catalog);
    let search::Attempt { places, batches, stock, .. } = found.best;
    draft.stock = stock;
    draft.adopt(&rules, &places, &batches);
    draft.repair(&catalog, &order, true);
    if spreads(problem) {
        // Not every domain that was expected has opened: what kept its distance from an empty one may find room now.
        let spread: Vec<u32> =
            order.iter().copied().filter(|&id| !problem.classes[id as usize].spreads.is_empty()).collect();
        existing::place(&mut draft, &spread);
    }
    let mut solution = draft.settle(&catalog);
    solution.effort = found.effort;
    only_accepted(problem, solution)
}

/// Priority first, then size, then the caller's order.
fn class_order(problem: &Problem) -> Vec<u32> {
    let mut order: Vec<u32> = (0..problem.classes.len() as u32).collect();
    let class = |id: u32| &problem.classes[id as usize];
    order.sort_by(|&a, &b| {
        (class(b).priority, &class(b).request).cmp(&(class(a).priority, &class(a).request)).then(a.cmp(&b))
    });
    order
}

fn spreads(problem: &Problem) -> bool {
    problem.classes.iter().any(|class| !class.spreads.is_empty())
}

/// Takes out steps that a replay with all machines refuses, until none is left: a machine that was added
/// late may have opened a domain that closes others.
fn only_accepted(problem: &Problem, mut solution: Solution) -> Solution {
    loop {
        let refused = finish::refused(problem, &solution);
        if refused.is_empty() {
            return solution;
        }
        for (step, count) in refused {
            let step = &mut solution.steps[step as usize];
            step.count -= count;
            match solution.unplaced.iter_mut().find(|(class, _)| *class == step.class) {
                Some(entry) => entry.1 += count,
                None => solution.unplaced.push((step.class, count)),
            }
        }
        solution.steps.retain(|step| step.count > 0);
        solution.unplaced.sort_unstable();
    }
}

/// How many steps the exact rules refuse on replay.
pub fn check(problem: &Problem, solution: &Solution) -> usize {
    finish::refused(problem, solution).len()
}

/// The state after a solution was carried out.
#[derive(Debug)]
pub struct End<'a> {
    state: State<'a>,
    /// Nodes that no class can tell apart: one of them, and how many there are.
    alike: Vec<(usize, u32)>,
}

/// Carries a solution out, to ask about what is left.
pub fn judge_end<'a>(problem: &'a Problem, solution: &Solution) -> End<'a> {
    let mut state = State::new(problem);
    for &shape in &solution.machines {
        let data = &problem.shapes[shape as usize];
        state.add_target(data.signature, data.location, &data.room, &data.marks);
    }
    for step in &solution.steps {
        let target = match step.target {
            Target::Node(at) => at as usize,
            Target::Machine(at) => problem.nodes.len() + at as usize,
        };
        state.place(step.class, target, step.count);
    }
    let mut groups: std::collections::BTreeMap<_, (usize, u32)> = std::collections::BTreeMap::new();
    for target in 0..problem.nodes.len() {
        groups.entry(state.face(target)).or_insert((target, 0)).1 += 1;
    }
    let alike = groups.into_values().collect();
    End { state, alike }
}

impl End<'_> {
    /// Tells why nodes refuse one more pod of the class, and how many for each reason.
    pub fn tally(&self, class: u32, mut tell: impl FnMut(Refusal, u32)) {
        for &(target, count) in &self.alike {
            if let Err(refusal) = self.state.judge(class, target) {
                tell(refusal, count);
            }
        }
    }
}
