//! Builds new machines one after the other until the lots are empty.
//!
//! Classes of which a machine takes only so many (anti-affinity, spread over hosts) force a number of
//! machines. While more machines are forced than the rest would need, each next machine starts from one of
//! their pods and is chosen for the least waste; after that for the most worth per cost.

use super::{
    catalog::{Catalog, Stock},
    fill::{Fill, Filler, Machine, Sizes},
    places::Lot,
    prices::worth,
    problem::{Problem, fits},
    rules::Rules,
};

/// Machines of one shape with the same load.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) shape: u32,
    pub(crate) family: u32,
    pub(crate) machines: u32,
    /// Lot and count on each machine.
    pub(crate) pods: Vec<(u32, u32)>,
}

/// Pods of which one machine takes at most `limit`.
#[derive(Debug, Clone)]
struct Scarce {
    counter: u32,
    limit: u32,
    lots: Vec<u32>,
}

/// How the search varies from one attempt to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// How many shapes above the smallest are tried for a forced machine.
    pub(crate) seed_steps: usize,
    /// Shapes tried per family for other machines.
    pub(crate) samples: usize,
}

impl Style {
    /// What is tried beside the default.
    pub(crate) fn others() -> impl Iterator<Item = Self> {
        [8, 2, 16].into_iter().map(|seed_steps| Self { seed_steps, ..Self::default() })
    }
}

impl Default for Style {
    fn default() -> Self {
        Self { seed_steps: 4, samples: 16 }
    }
}

pub(crate) struct Builder<'a> {
    problem: &'a Problem,
    catalog: &'a Catalog,
    pub(crate) stock: Stock,
    pub(crate) filler: Filler<'a>,
    prices: &'a [i64],
    scarce: Vec<Scarce>,
    style: Style,
    pub(crate) batches: Vec<Batch>,
    /// Worth put into each location so far.
    used: Vec<i64>,
}

#[derive(Debug, Clone, Default)]
struct Choice {
    fill: Fill,
    shape: u32,
    family: usize,
    value: i64,
}

impl<'a> Builder<'a> {
    #[allow(clippy::too_many_arguments, reason = "one construction, called in one place")]
    pub(crate) fn new(
        problem: &'a Problem,
        rules: &'a Rules,
        catalog: &'a Catalog,
        stock: Stock,
        sizes: &Sizes,
        lots: Vec<Lot>,
        prices: &'a [i64],
        style: Style,
    ) -> Self {
        let scarce = scarce(problem, rules, &lots);
        Self {
            problem,
            catalog,
            stock,
            filler: Filler::new(problem, rules, sizes, lots, prices),
            prices,
            scarce,
            style,
            batches: Vec::new(),
            used: vec![0; problem.locations.len()],
        }
    }

    /// Builds until nothing is left or nothing more can be had.
    pub(crate) fn run(&mut self) {
        let mut closed = vec![false; self.problem.locations.len()];
        while self.filler.pods_left() > 0 {
            if let Some(seed) = self.seed() {
                if self.build_seeded(seed) {
                    continue;
                }
                self.drop_scarce(seed);
                continue;
            }
            let Some(locations) = self.next_locations(&closed) else { break };
            if !self.build_free(&locations) {
                for location in locations {
                    closed[location as usize] = true;
                }
            }
        }
    }

    /// A pod that forces a machine of its own, if more machines are forced than the rest needs.
    fn seed(&mut self) -> Option<u32> {
        let mut best: Option<(u64, u32)> = None;
        for scarce in &self.scarce {
            let left: u64 =
                scarce.lots.iter().map(|&lot| u64::from(self.filler.lots[lot as usize].left)).sum();
            let need = left.div_ceil(u64::from(scarce.limit.max(1)));
            if need > 0 && best.is_none_or(|(top, _)| need > top) {
                let lot = scarce.lots.iter().copied().find(|&lot| self.filler.lots[lot as usize].left > 0)?;
                best = Some((need, lot));
            }
        }
        let (need, lot) = best?;
        (need > self.machines_needed()).then_some(lot)
    }

    /// A rough count of the machines that what is left would fill.
    fn machines_needed(&self) -> u64 {
        let mut total = self.filler.demand(None).to_vec();
        for location in 0..self.problem.locations.len() as u32 {
            for (sum, &amount) in total.iter_mut().zip(self.filler.demand(Some(location))) {
                *sum = sum.saturating_add(amount);
            }
        }
        let value = worth(self.prices, &total);
        let largest = self
            .catalog
            .families
            .iter()
            .filter_map(|family| family.shapes.last())
            .map(|&shape| worth(self.prices, &self.problem.shapes[shape as usize].room))
            .max()
            .unwrap_or(1)
            .max(1);
        u64::try_from(value / largest).unwrap_or(0)
    }

    fn drop_scarce(&mut self, seed: u32) {
        for scarce in &mut self.scarce {
            scarce.lots.retain(|&lot| lot != seed);
        }
    }

    fn build_seeded(&mut self, seed: u32) -> bool {
        let Lot { class, location, .. } = self.filler.lots[seed as usize].clone();
        let wanted = &self.problem.classes[class as usize];
        let location = location.or_else(|| self.fullest_location(wanted.signature));
        let Some(location) = location else { return false };
        let mut best = Choice::default();
        let mut least: Option<(i64, i64)> = None;
        let families: Vec<usize> = self.catalog.at(location).collect();
        for family in families {
            let signature = self.catalog.families[family].signature;
            if !self.problem.allowed.get(wanted.signature, signature) {
                continue;
            }
            let mut tried = 0;
            let shapes = &self.catalog.families[family].shapes;
            let start =
                shapes.iter().position(|&id| fits(&wanted.request, &self.problem.shapes[id as usize].room));
            let Some(start) = start else { continue };
            for &shape in &shapes[start..] {
                if self.stock.available(self.problem, shape, 1) == 0 {
                    continue;
                }
                let mut fill = Fill::default();
                self.try_shape(shape, location, signature, Some(seed), &mut fill);
                let value = worth(self.prices, &fill.load);
                let cost = self.problem.shapes[shape as usize].cost;
                let waste = (cost.saturating_sub(value), cost);
                if least.is_none_or(|top| waste < top) {
                    least = Some(waste);
                    best = Choice { fill, shape, family, value };
                }
                tried += 1;
                if tried >= self.style.seed_steps {
                    break;
                }
            }
        }
        if least.is_none() {
            return false;
        }
        // Half of the equal machines that could follow: the rest may find better company.
        let repeats = self.filler.repeats(&best.fill).div_ceil(2).max(1);
        let repeats = self.stock.available(self.problem, best.shape, repeats);
        self.commit(best, repeats);
        true
    }

    /// Where most of what is bound is still waiting, among locations the signature may use.
    fn fullest_location(&self, signature: u32) -> Option<u32> {
        let usable = |location: u32| {
            self.catalog.at(location).any(|family| {
                let family = &self.catalog.families[family];
                self.problem.allowed.get(signature, family.signature)
                    && family.shapes.iter().any(|&shape| self.stock.available(self.problem, shape, 1) > 0)
            })
        };
        (0..self.problem.locations.len() as u32).filter(|&location| usable(location)).min_by_key(
            |&location| {
                let waiting = worth(self.prices, self.filler.demand(Some(location)));
                (std::cmp::Reverse(waiting), self.used[location as usize], location)
            },
        )
    }

    /// The location whose bound lots are largest; when only unbound ones are left, all locations.
    fn next_locations(&self, closed: &[bool]) -> Option<Vec<u32>> {
        let open = (0..self.problem.locations.len() as u32).filter(|&location| !closed[location as usize]);
        let waiting = |location: &u32| worth(self.prices, self.filler.demand(Some(*location)));
        let most = open.clone().max_by_key(|location| (waiting(location), std::cmp::Reverse(*location)))?;
        if self.filler.demand(Some(most)).iter().any(|&amount| amount > 0) {
            return Some(vec![most]);
        }
        Some(open.collect())
    }

    fn build_free(&mut self, locations: &[u32]) -> bool {
        let mut best: Option<(Choice, i64)> = None;
        let mut order: Vec<u32> = locations.to_vec();
        order.sort_by_key(|&location| (self.used[location as usize], location));
        for location in order {
            let families: Vec<usize> = self.catalog.at(location).collect();
            for family in families {
                for shape in self.samples(family, location) {
                    let mut fill = Fill::default();
                    let signature = self.catalog.families[family].signature;
                    self.try_shape(shape, location, signature, None, &mut fill);
                    if fill.pods.is_empty() {
                        continue;
                    }
                    let value = worth(self.prices, &fill.load);
                    let cost = self.problem.shapes[shape as usize].cost.max(1);
                    // Most worth per cost.
                    let better = best.as_ref().is_none_or(|(top, top_cost)| {
                        i128::from(value) * i128::from(*top_cost) > i128::from(top.value) * i128::from(cost)
                    });
                    if better {
                        best = Some((Choice { fill, shape, family, value }, cost));
                    }
                }
            }
        }
        let Some((choice, _)) = best else { return false };
        let repeats = self.filler.repeats(&choice.fill).max(1);
        let repeats = self.stock.available(self.problem, choice.shape, repeats);
        self.commit(choice, repeats);
        true
    }

    /// Shapes of a family worth trying: all if they are few, else a sample over the sizes and the one
    /// that would hold everything.
    fn samples(&self, family: usize, location: u32) -> Vec<u32> {
        let shapes = &self.catalog.families[family].shapes;
        let stocked = |id: &u32| self.stock.available(self.problem, *id, 1) > 0;
        if shapes.len() <= self.style.samples {
            return shapes.iter().copied().filter(stocked).collect();
        }
        let mut total = self.filler.demand(None).to_vec();
        for (sum, &amount) in total.iter_mut().zip(self.filler.demand(Some(location))) {
            *sum = sum.saturating_add(amount);
        }
        if let Some(shape) = self.catalog.cheapest(self.problem, &self.stock, family, &total) {
            return vec![shape];
        }
        let mut picked: Vec<u32> = Vec::new();
        let step = shapes.len().div_ceil(self.style.samples / 4);
        picked.extend(shapes.iter().rev().step_by(step).copied().filter(stocked));
        picked
    }

    fn try_shape(&mut self, shape: u32, location: u32, signature: u32, seed: Option<u32>, fill: &mut Fill) {
        let data = &self.problem.shapes[shape as usize];
        let machine = Machine { signature, location, room: &data.room, marks: &data.marks };
        self.filler.trial(machine, seed, self.prices, fill);
    }

    fn commit(&mut self, choice: Choice, machines: u32) {
        let shape = self
            .catalog
            .cheapest(self.problem, &self.stock, choice.family, &choice.fill.load)
            .filter(|&id| self.stock.available(self.problem, id, machines) >= machines)
            .unwrap_or(choice.shape);
        self.filler.commit(&choice.fill, machines);
        self.stock.take(self.problem, shape, machines);
        let location = self.catalog.families[choice.family].location;
        let used = &mut self.used[location as usize];
        *used = used.saturating_add(choice.value.saturating_mul(i64::from(machines)));
        self.batches.push(Batch { shape, family: choice.family as u32, machines, pods: choice.fill.pods });
    }
}

/// Groups of lots of which one machine takes only so many.
fn scarce(problem: &Problem, rules: &Rules, lots: &[Lot]) -> Vec<Scarce> {
    let mut groups: Vec<Scarce> = Vec::new();
    for (at, lot) in lots.iter().enumerate() {
        let host = &rules.host[lot.class as usize];
        let repelled = host.forbids.iter().filter(|id| host.raises.contains(id)).map(|&id| (id, 1));
        let limited = host.limits.iter().filter(|limit| limit.2).map(|&(id, limit, _)| (id, limit));
        for (counter, limit) in repelled.chain(limited) {
            match groups.iter_mut().find(|group| group.counter == counter && group.limit == limit) {
                Some(group) => group.lots.push(at as u32),
                None => groups.push(Scarce { counter, limit, lots: vec![at as u32] }),
            }
        }
    }
    let size = |lot: &u32| std::cmp::Reverse(&problem.classes[lots[*lot as usize].class as usize].request);
    for group in &mut groups {
        group.lots.sort_by(|a, b| size(a).cmp(&size(b)).then(a.cmp(b)));
    }
    groups
}
