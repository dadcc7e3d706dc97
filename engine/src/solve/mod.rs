//! The numeric core of the planner: packs classes of pods onto nodes and new machines at the least cost.
//!
//! It knows lanes, bits, counters and budgets (see [`Problem`]) and nothing of Kubernetes. Everything is
//! integers and fixed orders: the same problem gives the same solution. Work is limited by counted effort,
//! never by time.

mod build;
mod catalog;
mod existing;
mod fill;
mod finish;
mod places;
mod prices;
mod problem;
mod rules;
mod search;
mod state;

pub use problem::{
    BitTable, Class, Counter, NO_DOMAIN, Node, Problem, RequireRule, Shape, Solution, SpreadRule, Step, Target,
    UNLIMITED,
};
pub use state::Refusal;

use catalog::{Catalog, Stock};
use finish::Draft;
use rules::Rules;
use state::State;

/// Solves the problem. Every step of the answer was accepted by the exact rules, in order, with all
/// machines present from the start.
pub fn solve(problem: &Problem) -> Solution {
    let rules = Rules::new(problem);
    let catalog = Catalog::new(problem);
    let order = class_order(problem);
    let counts: Vec<u32> = problem.classes.iter().map(|class| class.count).collect();
    let mut draft = Draft::new(State::new(problem), counts, Stock::new(problem));
    existing::place(&mut draft, &order);
    if draft.left.iter().all(|&left| left == 0) {
        return draft.settle(&catalog);
    }
    if hosts_matter(problem) && !problem.nodes.is_empty() {
        // New machines are new, empty domains: what leaned on a minimum above zero must not.
        let counts: Vec<u32> = problem.classes.iter().map(|class| class.count).collect();
        draft = Draft::new(State::new(problem), counts, Stock::new(problem));
        draft.state.empty_hosts_to_come = true;
        existing::place(&mut draft, &order);
        draft.state.empty_hosts_to_come = false;
    }
    let found = search::search(&draft, &rules, &catalog);
    let search::Attempt { places, batches, stock, .. } = found.best;
    draft.stock = stock;
    draft.adopt(&rules, &places, &batches);
    draft.repair(&catalog, &order, true);
    let mut solution = draft.settle(&catalog);
    solution.effort = found.effort;
    solution
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

fn hosts_matter(problem: &Problem) -> bool {
    let by_host = |rule: &SpreadRule| problem.counters[rule.counter as usize].key.is_none();
    problem.classes.iter().any(|class| class.spreads.iter().any(by_host))
}

/// How many steps the exact rules refuse on replay.
pub fn check(problem: &Problem, solution: &Solution) -> usize {
    finish::refused(problem, solution).len()
}

/// The state after a solution was carried out.
#[derive(Debug)]
pub struct End<'a>(State<'a>);

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
    End(state)
}

impl End<'_> {
    /// Tells for the first `nodes` targets why they refuse one more pod of the class.
    pub fn tally(&self, class: u32, nodes: usize, mut tell: impl FnMut(Refusal, u32)) {
        let mut counts: std::collections::BTreeMap<Refusal, u32> = std::collections::BTreeMap::new();
        for target in 0..nodes.min(self.0.targets()) {
            if let Err(refusal) = self.0.judge(class, target) {
                *counts.entry(refusal).or_default() += 1;
            }
        }
        for (refusal, count) in counts {
            tell(refusal, count);
        }
    }
}
