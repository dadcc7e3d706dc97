//! Gives every class that is bound by topology its locations, before any machine is built.
//!
//! Spread and affinity over zones or racks depend on counts per domain only, not on single machines. So the
//! scheduler's verdicts can be simulated on locations first, pod by pod, in an order that is then kept.

use super::{
    catalog::{Catalog, Stock},
    prices::{lane_worth, worth},
    problem::{NO_DOMAIN, Problem, fits, has_bit},
    rules::{Layer, Rules},
    state::State,
};

/// Pods of a class in one location (`None`: anywhere), not yet on machines.
#[derive(Debug, Clone)]
pub(crate) struct Lot {
    pub(crate) class: u32,
    pub(crate) location: Option<u32>,
    pub(crate) left: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    pub(crate) lots: Vec<Lot>,
    /// Bound pods in the order in which they are accepted: index into `lots`, and how many.
    pub(crate) order: Vec<(u32, u32)>,
    /// Bound pods that no location accepts now.
    pub(crate) refused: Vec<(u32, u32)>,
}

struct Placer<'a, 'p> {
    problem: &'p Problem,
    state: &'a State<'p>,
    rules: &'a Rules,
    counts: Vec<Vec<u32>>,
    totals: Vec<u64>,
    present: Vec<Vec<bool>>,
    /// Largest room and lowest cost per worth in each location, by class signature.
    usable: Vec<Vec<Option<Usable>>>,
    /// Worth of each lane put into each location.
    load: Vec<Vec<i64>>,
    lots: Vec<Vec<Option<u32>>>,
    out: Places,
}

#[derive(Debug, Clone)]
struct Usable {
    rooms: Vec<Vec<i64>>,
    level: i64,
}

/// Assigns locations to the bound classes among `left` (pods per class) and makes one lot of every other.
pub(crate) fn assign(
    state: &State<'_>,
    rules: &Rules,
    catalog: &Catalog,
    stock: &Stock,
    left: &[u32],
    prices: &[i64],
) -> Places {
    let problem = state.problem;
    let mut placer = Placer {
        problem,
        state,
        rules,
        counts: (0..problem.counters.len()).map(|id| state.domain_counts(id as u32).to_vec()).collect(),
        totals: (0..problem.counters.len()).map(|id| state.total(id as u32)).collect(),
        present: Vec::new(),
        usable: usable(problem, catalog, stock, prices),
        load: vec![vec![0; problem.lanes]; problem.locations.len()],
        lots: vec![Vec::new(); problem.classes.len()],
        out: Places::default(),
    };
    placer.present = placer.present_domains(catalog, stock);
    for layer in [Layer::SpreadByKey, Layer::SpreadByHost, Layer::Other] {
        let mut waiting: Vec<(u32, u32)> = (0..problem.classes.len())
            .filter(|&class| rules.bound[class] && rules.layer[class] == layer && left[class] > 0)
            .map(|class| (class as u32, left[class]))
            .collect();
        // Rounds, because affinity may wait for pods of a class that comes later.
        loop {
            let before: u64 = waiting.iter().map(|&(_, count)| u64::from(count)).sum();
            waiting.retain_mut(|(class, count)| {
                *count = placer.place(*class, *count, prices);
                *count > 0
            });
            if waiting.iter().map(|&(_, count)| u64::from(count)).sum::<u64>() == before {
                break;
            }
        }
        placer.out.refused.append(&mut waiting);
    }
    for (class, &count) in left.iter().enumerate() {
        if count > 0 && !rules.bound[class] {
            placer.out.lots.push(Lot { class: class as u32, location: None, left: count });
        }
    }
    placer.out
}

/// What each class signature can use in each location.
fn usable(problem: &Problem, catalog: &Catalog, stock: &Stock, prices: &[i64]) -> Vec<Vec<Option<Usable>>> {
    let signatures = problem.classes.iter().map(|class| class.signature + 1).max().unwrap_or(0);
    let mut table: Vec<Vec<Option<Usable>>> = vec![vec![None; problem.locations.len()]; signatures as usize];
    for family in &catalog.families {
        let stocked: Vec<u32> =
            family.shapes.iter().copied().filter(|&id| stock.available(problem, id, 1) > 0).collect();
        let Some(&last) = stocked.last() else { continue };
        let level = stocked
            .iter()
            .map(|&id| {
                let shape = &problem.shapes[id as usize];
                let value = worth(prices, &shape.room).max(1);
                i64::try_from((i128::from(shape.cost) << 20) / i128::from(value)).unwrap_or(i64::MAX)
            })
            .min()
            .unwrap_or(i64::MAX);
        let rooms: Vec<Vec<i64>> = if stocked.len() > 16 {
            vec![problem.shapes[last as usize].room.clone()]
        } else {
            stocked.iter().map(|&id| problem.shapes[id as usize].room.clone()).collect()
        };
        for (signature, row) in table.iter_mut().enumerate() {
            if problem.allowed.get(signature as u32, family.signature) {
                let entry = row[family.location as usize]
                    .get_or_insert_with(|| Usable { rooms: Vec::new(), level: i64::MAX });
                entry.level = entry.level.min(level);
                entry.rooms.extend(rooms.iter().cloned());
            }
        }
    }
    table
}

impl Placer<'_, '_> {
    /// Domains with a target now, and those that the plan may open.
    fn present_domains(&self, catalog: &Catalog, stock: &Stock) -> Vec<Vec<bool>> {
        let problem = self.problem;
        (0..problem.counters.len())
            .map(|id| {
                let counter = &problem.counters[id];
                let mut present: Vec<bool> =
                    self.state.domain_targets(id as u32).iter().map(|&targets| targets > 0).collect();
                let Some(key) = counter.key else { return present };
                for family in &catalog.families {
                    let domain = problem.locations[family.location as usize][key as usize];
                    let counts = counter.eligible.as_ref().is_none_or(|bits| has_bit(bits, family.signature));
                    let stocked = family.shapes.iter().any(|&shape| stock.available(problem, shape, 1) > 0);
                    if domain != NO_DOMAIN && counts && stocked {
                        present[domain as usize] = true;
                    }
                }
                present
            })
            .collect()
    }

    /// Places as many pods as locations accept; returns how many are left over.
    fn place(&mut self, class: u32, count: u32, prices: &[i64]) -> u32 {
        let wanted = &self.problem.classes[class as usize];
        let value: Vec<i64> = wanted.request.iter().zip(prices).map(|(&w, &p)| lane_worth(p, w)).collect();
        let open: Vec<(u32, i64)> = (0..self.problem.locations.len() as u32)
            .filter_map(|location| {
                let usable = self.usable[wanted.signature as usize][location as usize].as_ref()?;
                let fitting = usable.rooms.iter().any(|room| fits(&wanted.request, room));
                fitting.then_some((location, usable.level))
            })
            .collect();
        for done in 0..count {
            let mut best: Option<((i64, i64, i128), u32)> = None;
            for &(location, level) in &open {
                let liking = wanted.prefers.iter().find(|(at, _)| *at == location).map_or(0, |&(_, w)| w);
                // Least of what the pod wants, so that lanes stay in balance everywhere.
                let load = &self.load[location as usize];
                let crowd: i128 = load
                    .iter()
                    .zip(&value)
                    .map(|(&l, &v)| i128::from(l) * i128::from(v.clamp(1, i64::MAX >> 8)))
                    .sum();
                let key = (level, -liking, crowd);
                if best.is_none_or(|(top, _)| key < top) && self.accepts(class, location) {
                    best = Some((key, location));
                }
            }
            let Some((_, location)) = best else { return count - done };
            self.bind(class, location, &value);
        }
        0
    }

    fn accepts(&self, class: u32, location: u32) -> bool {
        let domains = &self.problem.locations[location as usize];
        let at = |id: u32| -> Option<Option<u32>> {
            let key = self.problem.counters[id as usize].key?;
            let domain = domains[key as usize];
            Some((domain != NO_DOMAIN).then(|| self.counts[id as usize][domain as usize]))
        };
        let wanted = &self.problem.classes[class as usize];
        for rule in &wanted.spreads {
            match at(rule.counter) {
                None => {}
                Some(None) => return false,
                Some(Some(here)) => {
                    let minimum = self.minimum(rule.counter, rule.min_domains);
                    if i64::from(here) + i64::from(rule.counts_itself) - minimum > rule.max_skew {
                        return false;
                    }
                }
            }
        }
        if wanted.forbids.iter().any(|&id| matches!(at(id), Some(Some(count)) if count > 0)) {
            return false;
        }
        let Some(rule) = &wanted.requires else { return true };
        let keyed = |&&id: &&u32| self.problem.counters[id as usize].key.is_some();
        let here =
            rule.counters.iter().filter(keyed).all(|&id| matches!(at(id), Some(Some(count)) if count > 0));
        let first = rule.matches_itself
            && rule
                .counters
                .iter()
                .filter(keyed)
                .all(|&id| self.totals[id as usize] == 0 && matches!(at(id), Some(Some(_))));
        here || first
    }

    fn minimum(&self, id: u32, min_domains: u32) -> i64 {
        let mut domains = 0;
        let mut lowest = u32::MAX;
        for (&count, &present) in self.counts[id as usize].iter().zip(&self.present[id as usize]) {
            if present {
                domains += 1;
                lowest = lowest.min(count);
            }
        }
        if domains == 0 || domains < min_domains { 0 } else { i64::from(lowest) }
    }

    fn bind(&mut self, class: u32, location: u32, value: &[i64]) {
        let wanted = &self.problem.classes[class as usize];
        for &id in &wanted.raises {
            let Some(key) = self.problem.counters[id as usize].key else { continue };
            let domain = self.problem.locations[location as usize][key as usize];
            if domain != NO_DOMAIN {
                self.counts[id as usize][domain as usize] += 1;
                self.totals[id as usize] += 1;
            }
        }
        for (sum, value) in self.load[location as usize].iter_mut().zip(value) {
            *sum = sum.saturating_add(*value);
        }
        let lots = &mut self.lots[class as usize];
        if lots.is_empty() {
            lots.resize(self.problem.locations.len(), None);
        }
        let lot = *lots[location as usize].get_or_insert_with(|| {
            self.out.lots.push(Lot { class, location: Some(location), left: 0 });
            self.out.lots.len() as u32 - 1
        });
        self.out.lots[lot as usize].left += 1;
        match self.out.order.last_mut() {
            Some((last, run)) if *last == lot => *run += 1,
            _ => self.out.order.push((lot, 1)),
        }
        debug_assert!(self.rules.bound[class as usize]);
    }
}
