//! When a limit leaves pods over, fewer machines to choose from may hold more of them.
//!
//! The search is not exact: with one more kind of machine on offer it may take one that holds fewer pods. So
//! where pods are left over that some machine could hold, every smaller stock of the limited machines is
//! tried as well, and the answer that leaves the fewest pods is taken (higher priorities first), then the
//! cheapest. One more machine on offer then never leaves more pods over, because whatever was tried without
//! it is tried with it. That holds as long as the stocks can all be tried within the effort below; where
//! they are too many, those with one machine or one kind less are.

use std::collections::BTreeMap;

use super::{
    catalog::Stock,
    problem::{Problem, Shape, Solution, UNLIMITED, fits},
    search,
};

/// Stocks that are tried at most: eight different machines, each there or not.
const MOST_STOCKS: u64 = 256;
/// Effort that all of them may take together, in the unit of the search: some tenths of a second.
const MOST_EFFORT: u64 = 16_000_000;

/// The best of the given answer and those for smaller stocks. `solve` answers for one stock.
pub(crate) fn improve(problem: &Problem, first: Solution, solve: impl Fn(&Problem) -> Solution) -> Solution {
    if first.unplaced.is_empty() {
        return first;
    }
    let full = available(problem);
    let limited: Vec<usize> = (0..full.len())
        .filter(|&shape| problem.shapes[shape].supply != UNLIMITED && full[shape] > 0)
        .collect();
    if limited.is_empty() || !lacks_machines(problem, &full, &first) {
        return first;
    }
    let mut best = (rank(problem, &first), first);
    for stock in stocks(problem, &full, &limited) {
        let (smaller, kept) = with_stock(problem, &stock);
        let mut found = solve(&smaller);
        for shape in &mut found.machines {
            *shape = kept[*shape as usize];
        }
        found.effort += best.1.effort;
        let rank = rank(problem, &found);
        if rank < best.0 {
            best = (rank, found);
        } else {
            best.1.effort = found.effort;
        }
        if !lacks_machines(problem, &full, &best.1) {
            break;
        }
    }
    best.1
}

/// Whether a pod is left over that a machine on offer could hold.
fn lacks_machines(problem: &Problem, full: &[u32], solution: &Solution) -> bool {
    let offered = || problem.shapes.iter().zip(full).filter(|(_, most)| **most > 0).map(|(shape, _)| shape);
    // The most that any shape of a signature offers in each lane: most pods that fit nowhere fit not even this.
    let mut most: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for shape in offered() {
        let top = most.entry(shape.signature).or_insert_with(|| shape.room.clone());
        for (top, &room) in top.iter_mut().zip(&shape.room) {
            *top = (*top).max(room);
        }
    }
    solution.unplaced.iter().any(|&(class, _)| {
        let class = &problem.classes[class as usize];
        let holds = |signature: u32, room: &[i64]| {
            problem.allowed.get(class.signature, signature) && fits(&class.request, room)
        };
        most.iter().any(|(&signature, room)| holds(signature, room))
            && offered().any(|shape| holds(shape.signature, &shape.room))
    })
}

/// How many of each shape its supply and the limits leave.
fn available(problem: &Problem) -> Vec<u32> {
    let stock = Stock::new(problem);
    (0..problem.shapes.len() as u32).map(|shape| stock.available(problem, shape, UNLIMITED)).collect()
}

/// The stocks to try: how many of each shape there are.
fn stocks(problem: &Problem, full: &[u32], limited: &[usize]) -> Vec<Vec<u32>> {
    let pods: u64 = problem.classes.iter().map(|class| u64::from(class.count)).sum();
    let affordable = MOST_EFFORT / (search::budget(pods) + 8 * problem.nodes.len() as u64);
    let most = MOST_STOCKS.min(affordable) as usize;
    let all = limited.iter().try_fold(1_u64, |all, &shape| all.checked_mul(u64::from(full[shape]) + 1));
    if all.is_some_and(|all| all <= most as u64) {
        return every(full, limited);
    }
    let without = |shape: usize, left: u32| {
        let mut stock = full.to_vec();
        stock[shape] = left;
        stock
    };
    let kinds = limited.iter().map(|&shape| without(shape, 0));
    let ones = limited.iter().filter(|&&shape| full[shape] > 1).map(|&shape| without(shape, full[shape] - 1));
    kinds.chain(ones).take(most).collect()
}

/// Every stock that is no larger than the full one, the largest first.
fn every(full: &[u32], limited: &[usize]) -> Vec<Vec<u32>> {
    let mut stocks = vec![full.to_vec()];
    for &shape in limited {
        let smaller = stocks.iter().flat_map(|stock| {
            (0..full[shape]).rev().map(|left| {
                let mut stock = stock.clone();
                stock[shape] = left;
                stock
            })
        });
        let smaller: Vec<Vec<u32>> = smaller.collect();
        stocks.extend(smaller);
    }
    stocks
}

/// The problem with so many of each limited shape, without those of which there is none; and which shapes
/// of the whole problem the remaining ones are.
fn with_stock(problem: &Problem, stock: &[u32]) -> (Problem, Vec<u32>) {
    let kept: Vec<u32> = (0..stock.len() as u32).filter(|&shape| stock[shape as usize] > 0).collect();
    let shape = |&id: &u32| {
        let shape = &problem.shapes[id as usize];
        let supply = if shape.supply == UNLIMITED { UNLIMITED } else { stock[id as usize] };
        Shape { supply, ..shape.clone() }
    };
    let smaller = Problem { shapes: kept.iter().map(shape).collect(), ..problem.clone() };
    (smaller, kept)
}

/// Lower is better: pods left over by priority, the highest first, then cost, then machines.
fn rank(problem: &Problem, solution: &Solution) -> (Vec<u64>, i64, usize) {
    let mut priorities: Vec<i32> = problem.classes.iter().map(|class| class.priority).collect();
    priorities.sort_unstable_by(|a, b| b.cmp(a));
    priorities.dedup();
    let mut left = vec![0; priorities.len()];
    for &(class, count) in &solution.unplaced {
        let priority = problem.classes[class as usize].priority;
        let level = priorities.partition_point(|&other| other > priority);
        left[level] += u64::from(count);
    }
    (left, solution.cost(problem), solution.machines.len())
}
