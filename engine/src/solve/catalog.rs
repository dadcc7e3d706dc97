//! Shapes grouped by what classes can tell apart, and what is left of them.

use std::collections::BTreeMap;

use super::problem::{Problem, UNLIMITED, fits};

/// Shapes that no class tells apart except by size: one place, one signature. Cheapest first.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    pub(crate) location: u32,
    pub(crate) signature: u32,
    pub(crate) shapes: Vec<u32>,
    /// Each shape offers at least what the one before it offers, so that the first fit is found by halving.
    monotone: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Catalog {
    pub(crate) families: Vec<Family>,
}

/// How many more of each shape may be called up.
#[derive(Debug, Clone)]
pub(crate) struct Stock {
    supply: Vec<u32>,
    budgets: Vec<i64>,
}

impl Catalog {
    pub(crate) fn new(problem: &Problem) -> Self {
        let columns = column_classes(problem);
        let mut groups: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for (id, shape) in problem.shapes.iter().enumerate() {
            let id = u32::try_from(id).expect("shape ids are u32");
            groups.entry((shape.location, columns[shape.signature as usize])).or_default().push(id);
        }
        let families = groups
            .into_iter()
            .map(|((location, _), mut shapes)| {
                let key = |&id: &u32| {
                    let shape = &problem.shapes[id as usize];
                    (shape.cost, shape.rank, id)
                };
                shapes.sort_by_key(key);
                let signature = problem.shapes[shapes[0] as usize].signature;
                let shapes = without_dominated(problem, shapes);
                let first = &problem.shapes[shapes[0] as usize].takes;
                let limited = |id: &u32| {
                    let shape = &problem.shapes[*id as usize];
                    shape.supply != UNLIMITED || shape.takes != *first
                };
                let grows = |pair: &[u32]| {
                    let (small, large) =
                        (&problem.shapes[pair[0] as usize], &problem.shapes[pair[1] as usize]);
                    small.room.iter().zip(&large.room).all(|(s, l)| s <= l)
                };
                let monotone = !shapes.iter().any(limited) && shapes.windows(2).all(grows);
                Family { location, signature, shapes, monotone }
            })
            .collect();
        Self { families }
    }

    /// The cheapest shape of a family into which a load fits and of which one more can be had.
    pub(crate) fn cheapest(
        &self,
        problem: &Problem,
        stock: &Stock,
        family: usize,
        load: &[i64],
    ) -> Option<u32> {
        let family = &self.families[family];
        let holds = |id: u32| fits(load, &problem.shapes[id as usize].room);
        if family.monotone {
            let at = family.shapes.partition_point(|&id| !holds(id));
            return family.shapes.get(at).copied().filter(|&id| stock.available(problem, id, 1) > 0);
        }
        family.shapes.iter().copied().find(|&id| holds(id) && stock.available(problem, id, 1) > 0)
    }

    /// Families of one location.
    pub(crate) fn at(&self, location: u32) -> impl Iterator<Item = usize> {
        self.families.iter().enumerate().filter(move |(_, f)| f.location == location).map(|(at, _)| at)
    }
}

/// Signatures that every class treats alike, by the lowest of them.
fn column_classes(problem: &Problem) -> Vec<u32> {
    let signatures = problem.shapes.iter().map(|s| s.signature + 1).max().unwrap_or(0).max(1);
    let mut rows: Vec<u32> = problem.classes.iter().map(|class| class.signature).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut known: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
    (0..signatures)
        .map(|signature| {
            let mut bits = vec![0_u64; (rows.len() + problem.counters.len()).div_ceil(64)];
            let eligible = problem.counters.iter().map(|counter| {
                counter.eligible.as_ref().is_none_or(|bits| super::problem::has_bit(bits, signature))
            });
            let allowed = rows.iter().map(|&row| problem.allowed.get(row, signature));
            for (at, bit) in allowed.chain(eligible).enumerate() {
                bits[at / 64] |= u64::from(bit) << (at % 64);
            }
            *known.entry(bits).or_insert(signature)
        })
        .collect()
}

/// Leaves out shapes for which an unlimited one costs no more and offers no less.
fn without_dominated(problem: &Problem, shapes: Vec<u32>) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::with_capacity(shapes.len());
    let free = |id: u32, like: &super::problem::Shape| {
        let shape = &problem.shapes[id as usize];
        shape.supply == UNLIMITED && shape.takes == like.takes && shape.marks == like.marks
    };
    for id in shapes {
        let like = &problem.shapes[id as usize];
        let room = &like.room;
        let covers = |&other: &u32| {
            free(other, like) && problem.shapes[other as usize].room.iter().zip(room).all(|(o, r)| o >= r)
        };
        if !kept.iter().rev().take(64).any(covers) {
            kept.push(id);
        }
    }
    kept
}

impl Stock {
    pub(crate) fn new(problem: &Problem) -> Self {
        Self { supply: problem.shapes.iter().map(|s| s.supply).collect(), budgets: problem.budgets.clone() }
    }

    /// How many more of a shape can be had, up to `most`.
    pub(crate) fn available(&self, problem: &Problem, shape: u32, most: u32) -> u32 {
        let mut count = most.min(self.supply[shape as usize]);
        for &(budget, amount) in &problem.shapes[shape as usize].takes {
            if amount > 0 {
                let left = self.budgets[budget as usize].max(0) / amount;
                count = count.min(u32::try_from(left).unwrap_or(u32::MAX));
            }
        }
        count
    }

    pub(crate) fn take(&mut self, problem: &Problem, shape: u32, count: u32) {
        if self.supply[shape as usize] != UNLIMITED {
            self.supply[shape as usize] -= count;
        }
        for &(budget, amount) in &problem.shapes[shape as usize].takes {
            self.budgets[budget as usize] -= amount * i64::from(count);
        }
    }

    pub(crate) fn give(&mut self, problem: &Problem, shape: u32) {
        if self.supply[shape as usize] != UNLIMITED {
            self.supply[shape as usize] += 1;
        }
        for &(budget, amount) in &problem.shapes[shape as usize].takes {
            self.budgets[budget as usize] += amount;
        }
    }
}
