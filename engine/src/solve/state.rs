//! The exact state of a placement under way: free amounts, counts per domain, and the scheduler's verdict
//! on one more pod.

mod undo;

use super::problem::{NO_DOMAIN, Problem, fits, has_bit};

/// Targets are numbered through: first the nodes of the problem, then new machines.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    pub(crate) problem: &'a Problem,
    /// Free amounts, `lanes` per target.
    pub(crate) free: Vec<i64>,
    pub(crate) signature: Vec<u32>,
    pub(crate) location: Vec<u32>,
    /// Counters of the host name key per target, sparse.
    host: Vec<Vec<(u32, u32)>>,
    /// Pods per domain, for counters of other keys.
    counts: Vec<Vec<u32>>,
    /// Pods over all domains.
    totals: Vec<u64>,
    /// Eligible targets per domain, for counters of other keys.
    present: Vec<Vec<u32>>,
    /// For spread counters of the host name: how many eligible targets have 0, 1, 2 … pods.
    levels: Vec<Vec<u32>>,
    /// Treat every host as if an empty one stood beside it: its minimum is zero.
    pub(crate) empty_hosts_to_come: bool,
}

/// Why the scheduler would refuse one more pod on a target; the first that fails, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Taints, node affinity, selectors, volumes, features.
    Incompatible,
    /// A counter that must be zero is not: ports, anti-affinity in either direction.
    Forbidden { counter: u32 },
    /// Not enough of this lane.
    Room { lane: u32 },
    /// One more pod would exceed the skew.
    Skew { counter: u32 },
    /// No pod of the required selection in the domain.
    Lonely,
}

impl<'a> State<'a> {
    pub(crate) fn new(problem: &'a Problem) -> Self {
        let sizes =
            |counter: &super::problem::Counter| counter.key.map_or(0, |key| problem.keys[key as usize]);
        let tables: Vec<Vec<u32>> = problem.counters.iter().map(|c| vec![0; sizes(c) as usize]).collect();
        let mut state = Self {
            problem,
            free: Vec::with_capacity(problem.nodes.len() * problem.lanes),
            signature: Vec::with_capacity(problem.nodes.len()),
            location: Vec::with_capacity(problem.nodes.len()),
            host: Vec::with_capacity(problem.nodes.len()),
            present: tables.clone(),
            counts: tables,
            totals: vec![0; problem.counters.len()],
            levels: vec![Vec::new(); problem.counters.len()],
            empty_hosts_to_come: false,
        };
        for node in &problem.nodes {
            state.add_target(node.signature, node.location, &node.free, &node.marks);
        }
        state
    }

    pub(crate) fn targets(&self) -> usize {
        self.signature.len()
    }

    pub(crate) fn add_target(
        &mut self,
        signature: u32,
        location: u32,
        free: &[i64],
        marks: &[(u32, u32)],
    ) -> usize {
        let target = self.targets();
        self.free.extend_from_slice(free);
        self.signature.push(signature);
        self.location.push(location);
        self.host.push(Vec::new());
        for (id, counter) in self.problem.counters.iter().enumerate() {
            if !counter.spread || counter.eligible.as_ref().is_some_and(|bits| !has_bit(bits, signature)) {
                continue;
            }
            if let Some(key) = counter.key {
                let domain = self.problem.locations[location as usize][key as usize];
                if domain != NO_DOMAIN {
                    self.present[id][domain as usize] += 1;
                }
            } else {
                raise_level(&mut self.levels[id], None, 0);
            }
        }
        for &(counter, count) in marks {
            self.raise(counter, target, count);
        }
        target
    }

    #[inline]
    pub(crate) fn room(&self, target: usize) -> &[i64] {
        &self.free[target * self.problem.lanes..(target + 1) * self.problem.lanes]
    }

    /// Counts domains that offers could open as if they had a target, or no longer.
    pub(crate) fn expect_domains(&mut self, expect: bool) {
        for (id, counter) in self.problem.counters.iter().enumerate() {
            let Some(key) = counter.key.filter(|_| counter.spread) else { continue };
            for shape in &self.problem.shapes {
                let domain = self.problem.locations[shape.location as usize][key as usize];
                let counts = counter.eligible.as_ref().is_none_or(|bits| has_bit(bits, shape.signature));
                if domain != NO_DOMAIN && counts && shape.supply > 0 {
                    let targets = &mut self.present[id][domain as usize];
                    *targets = if expect { *targets + 1 } else { *targets - 1 };
                }
            }
        }
    }

    /// All that a verdict on a target depends on.
    pub(crate) fn face(&self, target: usize) -> (u32, u32, Vec<i64>, Vec<(u32, u32)>) {
        let mut host = self.host[target].clone();
        host.sort_unstable();
        (self.signature[target], self.location[target], self.room(target).to_vec(), host)
    }

    pub(crate) fn host_count(&self, target: usize, counter: u32) -> u32 {
        self.host[target].iter().find(|(id, _)| *id == counter).map_or(0, |&(_, count)| count)
    }

    fn domain(&self, target: usize, key: u32) -> u32 {
        self.problem.locations[self.location[target] as usize][key as usize]
    }

    fn raise(&mut self, id: u32, target: usize, by: u32) {
        let counter = &self.problem.counters[id as usize];
        if counter.eligible.as_ref().is_some_and(|bits| !has_bit(bits, self.signature[target])) {
            return;
        }
        if let Some(key) = counter.key {
            let domain = self.domain(target, key);
            if domain != NO_DOMAIN {
                self.counts[id as usize][domain as usize] += by;
                self.totals[id as usize] += u64::from(by);
            }
            return;
        }
        self.totals[id as usize] += u64::from(by);
        let entries = &mut self.host[target];
        let before = if let Some(entry) = entries.iter_mut().find(|(other, _)| *other == id) {
            entry.1 += by;
            entry.1 - by
        } else {
            entries.push((id, by));
            0
        };
        if counter.spread {
            raise_level(&mut self.levels[id as usize], Some(before), before + by);
        }
    }

    /// Binds pods without asking.
    pub(crate) fn place(&mut self, class: u32, target: usize, count: u32) {
        let problem = self.problem;
        let request = &problem.classes[class as usize].request;
        let lanes = problem.lanes;
        for (have, want) in self.free[target * lanes..(target + 1) * lanes].iter_mut().zip(request) {
            *have -= want * i64::from(count);
        }
        for &counter in &problem.classes[class as usize].raises {
            self.raise(counter, target, count);
        }
    }

    /// Whether the scheduler would accept one more pod of the class there.
    pub(crate) fn judge(&self, class: u32, target: usize) -> Result<(), Refusal> {
        let wanted = &self.problem.classes[class as usize];
        if !self.problem.allowed.get(wanted.signature, self.signature[target]) {
            return Err(Refusal::Incompatible);
        }
        if !fits(&wanted.request, self.room(target)) {
            let short = wanted.request.iter().zip(self.room(target)).position(|(&w, &h)| w > 0 && w > h);
            return Err(Refusal::Room { lane: u32::try_from(short.unwrap_or(0)).unwrap_or(0) });
        }
        self.judge_counters(class, target)
    }

    /// The part of [`State::judge`] that reads counters.
    pub(crate) fn judge_counters(&self, class: u32, target: usize) -> Result<(), Refusal> {
        let wanted = &self.problem.classes[class as usize];
        for rule in &wanted.spreads {
            let Some((here, minimum)) = self.spread(rule.counter, target, rule.min_domains) else {
                return Err(Refusal::Skew { counter: rule.counter });
            };
            if here + i64::from(rule.counts_itself) - minimum > rule.max_skew {
                return Err(Refusal::Skew { counter: rule.counter });
            }
        }
        for &counter in &wanted.forbids {
            if self.count_at(counter, target).is_some_and(|count| count > 0) {
                return Err(Refusal::Forbidden { counter });
            }
        }
        if let Some(rule) = &wanted.requires {
            let all_here =
                rule.counters.iter().all(|&c| self.count_at(c, target).is_some_and(|count| count > 0));
            let first = rule.matches_itself
                && rule
                    .counters
                    .iter()
                    .all(|&c| self.totals[c as usize] == 0 && self.count_at(c, target).is_some());
            if !all_here && !first {
                return Err(Refusal::Lonely);
            }
        }
        Ok(())
    }

    /// Pods in the target's domain; `None` if it has none.
    pub(crate) fn count_at(&self, id: u32, target: usize) -> Option<u32> {
        match self.problem.counters[id as usize].key {
            None => Some(self.host_count(target, id)),
            Some(key) => match self.domain(target, key) {
                NO_DOMAIN => None,
                domain => Some(self.counts[id as usize][domain as usize]),
            },
        }
    }

    /// Count in the target's domain and the minimum over all domains.
    pub(crate) fn spread(&self, id: u32, target: usize, min_domains: u32) -> Option<(i64, i64)> {
        let here = i64::from(self.count_at(id, target)?);
        if self.problem.counters[id as usize].key.is_none() {
            let levels = &self.levels[id as usize];
            let domains: u32 = levels.iter().sum();
            let lowest = levels.iter().position(|&hosts| hosts > 0).unwrap_or(0);
            let zero = self.empty_hosts_to_come || domains < min_domains;
            return Some((here, if zero { 0 } else { i64::try_from(lowest).unwrap_or(0) }));
        }
        let mut domains = 0;
        let mut minimum = u32::MAX;
        for (&count, &targets) in self.counts[id as usize].iter().zip(&self.present[id as usize]) {
            if targets > 0 {
                domains += 1;
                minimum = minimum.min(count);
            }
        }
        Some((here, if domains == 0 || domains < min_domains { 0 } else { i64::from(minimum) }))
    }

    /// Count of a counter in a domain of its own key.
    pub(crate) fn domain_counts(&self, id: u32) -> &[u32] {
        &self.counts[id as usize]
    }

    pub(crate) fn domain_targets(&self, id: u32) -> &[u32] {
        &self.present[id as usize]
    }

    pub(crate) fn total(&self, id: u32) -> u64 {
        self.totals[id as usize]
    }
}

/// Moves one host from its old level, if it had one, to a new one.
fn raise_level(levels: &mut Vec<u32>, old: Option<u32>, new: u32) {
    if let Some(old) = old {
        levels[old as usize] -= 1;
    }
    if levels.len() <= new as usize {
        levels.resize(new as usize + 1, 0);
    }
    levels[new as usize] += 1;
}
