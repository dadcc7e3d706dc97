//! Priorities one after the other, for when not everything can be had: what a higher priority needs is
//! settled before a lower one is looked at.

use super::{
    catalog::{Catalog, Stock},
    existing,
    finish::{self, Draft},
    only_accepted,
    problem::{Problem, Solution, fits},
    rules::Rules,
    search, spreads,
    state::State,
};

/// Whether a pod is left over that some machine or node could hold, while one of lower priority is placed.
pub(crate) fn is_unfair(problem: &Problem, solution: &Solution) -> bool {
    let class = |id: u32| &problem.classes[id as usize];
    let Some(lowest) = solution.steps.iter().map(|step| class(step.class).priority).min() else {
        return false;
    };
    solution.unplaced.iter().any(|&(id, _)| {
        let wanted = class(id);
        let shape = || problem.shapes.iter().any(|s| holds(problem, wanted, s.signature, &s.room));
        let node = || problem.nodes.iter().any(|n| holds(problem, wanted, n.signature, &n.free));
        wanted.priority > lowest && (shape() || node())
    })
}

fn holds(problem: &Problem, class: &super::Class, signature: u32, room: &[i64]) -> bool {
    problem.allowed.get(class.signature, signature) && fits(&class.request, room)
}

/// Solves level by level.
pub(crate) fn solve(problem: &Problem, order: &[u32]) -> Solution {
    let rules = Rules::new(problem);
    let catalog = Catalog::new(problem);
    let none = vec![0; problem.classes.len()];
    let mut draft = Draft::new(State::new(problem), none.clone(), Stock::new(problem));
    let mut given_up = none;
    let mut effort = 0;
    // Classes come by priority, highest first.
    for level in order.chunk_by(|&a, &b| priority(problem, a) == priority(problem, b)) {
        let start = with_level(&draft, problem, level);
        let mut tried = start.clone();
        effort += place_level(&mut tried, &rules, &catalog, level, Machines::New);
        if breaks(problem, &tried, &catalog) {
            // A machine for this level opened a domain that closes others: do without new ones.
            tried = start.clone();
            place_level(&mut tried, &rules, &catalog, level, Machines::Open);
            if breaks(problem, &tried, &catalog) {
                tried = start;
            }
        }
        for &class in level {
            given_up[class as usize] = std::mem::take(&mut tried.left[class as usize]);
        }
        draft = tried;
    }
    draft.left = given_up;
    let mut solution = draft.settle(&catalog);
    solution.effort = effort;
    only_accepted(problem, solution)
}

fn priority(problem: &Problem, class: u32) -> i32 {
    problem.classes[class as usize].priority
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machines {
    /// Those that are there, and new ones.
    New,
    /// Those that are there.
    Open,
}

fn with_level<'p>(draft: &Draft<'p>, problem: &Problem, level: &[u32]) -> Draft<'p> {
    let mut draft = draft.clone();
    for &class in level {
        draft.left[class as usize] = problem.classes[class as usize].count;
    }
    draft
}

/// Places the pods of a level; returns the effort of the search.
fn place_level(
    draft: &mut Draft<'_>,
    rules: &Rules,
    catalog: &Catalog,
    level: &[u32],
    machines: Machines,
) -> u64 {
    let careful = spreads(draft.state.problem);
    if careful {
        draft.state.empty_hosts_to_come = true;
        draft.state.expect_domains(true);
    }
    existing::place(draft, level);
    if careful {
        draft.state.expect_domains(false);
        draft.state.empty_hosts_to_come = false;
    }
    let mut effort = 0;
    if machines == Machines::New && draft.left.iter().any(|&left| left > 0) {
        let found = search::search(draft, rules, catalog);
        effort = found.effort;
        let search::Attempt { places, batches, stock, .. } = found.best;
        draft.stock = stock;
        draft.adopt(rules, &places, &batches);
        draft.repair(catalog, level, true);
    }
    // What was held back for domains that did not come.
    existing::place(draft, level);
    effort
}

/// Whether a replay would refuse anything.
fn breaks(problem: &Problem, draft: &Draft<'_>, catalog: &Catalog) -> bool {
    !finish::refused(problem, &draft.clone().settle(catalog)).is_empty()
}
