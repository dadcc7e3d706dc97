//! What of a class's rules concerns the single machine, and in which layer of the order its pods come.
//!
//! A plan is replayed in three layers: classes spread over other keys than the host name, then classes
//! spread over hosts, then all others. Pods of a later layer do not count for the skew of an earlier one,
//! so that an ordinary pod never stands in the way of a spread one in the same plan.

use super::problem::Problem;

/// Rules of one class seen from a single new machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostRules {
    pub(crate) raises: Vec<u32>,
    pub(crate) forbids: Vec<u32>,
    /// Counter, most pods of it on the machine, whether the class counts itself.
    pub(crate) limits: Vec<(u32, u32, bool)>,
    /// Nothing on the machine can refuse the class and the class can refuse nothing.
    pub(crate) free: bool,
    /// Needs another pod on the same machine.
    pub(crate) clings: bool,
}

/// When the pods of a class come in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    SpreadByKey,
    SpreadByHost,
    Other,
}

#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) host: Vec<HostRules>,
    pub(crate) layer: Vec<Layer>,
    /// The class must be given a location before machines are built.
    pub(crate) bound: Vec<bool>,
}

impl Rules {
    pub(crate) fn new(problem: &Problem) -> Self {
        let by_key = |counter: u32| problem.counters[counter as usize].key.is_some();
        let mut layer: Vec<Layer> = problem
            .classes
            .iter()
            .map(|class| match &class.spreads {
                rules if rules.iter().any(|rule| by_key(rule.counter)) => Layer::SpreadByKey,
                rules if rules.is_empty() => Layer::Other,
                _ => Layer::SpreadByHost,
            })
            .collect();
        // What a spread class must find beside it has to come with it.
        let wanted: Vec<u32> = problem
            .classes
            .iter()
            .zip(&layer)
            .filter(|(_, layer)| **layer != Layer::Other)
            .filter_map(|(class, _)| class.requires.as_ref())
            .flat_map(|rule| rule.counters.iter().copied())
            .collect();
        for (class, layer) in problem.classes.iter().zip(&mut layer) {
            if class.raises.iter().any(|counter| wanted.contains(counter)) {
                *layer = Layer::SpreadByKey;
            }
        }
        let mut read = vec![false; problem.counters.len()];
        for class in &problem.classes {
            let spreads = class.spreads.iter().map(|rule| rule.counter);
            let requires = class.requires.iter().flat_map(|rule| rule.counters.iter().copied());
            for counter in class.forbids.iter().copied().chain(spreads).chain(requires) {
                read[counter as usize] = true;
            }
        }
        let mut required = vec![false; problem.counters.len()];
        for counter in problem.classes.iter().filter_map(|c| c.requires.as_ref()).flat_map(|r| &r.counters) {
            required[*counter as usize] = true;
        }
        let host = problem
            .classes
            .iter()
            .zip(&layer)
            .map(|(class, layer)| host_rules(problem, class, *layer, &read))
            .collect();
        let bound = problem
            .classes
            .iter()
            .map(|class| {
                class.spreads.iter().any(|rule| by_key(rule.counter))
                    || class.forbids.iter().any(|&counter| by_key(counter))
                    || class.requires.iter().any(|rule| rule.counters.iter().any(|&counter| by_key(counter)))
                    || class.raises.iter().any(|&counter| by_key(counter) && required[counter as usize])
                    || (!class.prefers.is_empty() && problem.locations.len() > 1)
            })
            .collect();
        Self { host, layer, bound }
    }
}

fn host_rules(problem: &Problem, class: &super::problem::Class, layer: Layer, read: &[bool]) -> HostRules {
    let on_host = |counter: u32| problem.counters[counter as usize].key.is_none();
    let raises: Vec<u32> = class
        .raises
        .iter()
        .copied()
        .filter(|&id| on_host(id) && read[id as usize])
        .filter(|&id| layer != Layer::Other || !problem.counters[id as usize].spread)
        .collect();
    let forbids: Vec<u32> = class.forbids.iter().copied().filter(|&id| on_host(id)).collect();
    let limits: Vec<(u32, u32, bool)> = class
        .spreads
        .iter()
        .filter(|rule| on_host(rule.counter))
        .map(|rule| {
            (rule.counter, u32::try_from(rule.max_skew.max(0)).unwrap_or(u32::MAX), rule.counts_itself)
        })
        .collect();
    let clings = class.requires.iter().any(|rule| rule.counters.iter().any(|&id| on_host(id)));
    let free = raises.is_empty() && forbids.is_empty() && limits.is_empty() && !clings;
    HostRules { raises, forbids, limits, free, clings }
}

/// Counts on one machine while it is filled.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostCounts {
    count: Vec<u32>,
    limit: Vec<u32>,
    touched: Vec<u32>,
}

impl HostCounts {
    pub(crate) fn new(counters: usize) -> Self {
        Self { count: vec![0; counters], limit: vec![u32::MAX; counters], touched: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        for id in self.touched.drain(..) {
            self.count[id as usize] = 0;
            self.limit[id as usize] = u32::MAX;
        }
    }

    pub(crate) fn mark(&mut self, counter: u32, by: u32) {
        self.touched.push(counter);
        self.count[counter as usize] += by;
    }

    /// How many pods of a class the machine accepts as far as counters go, whatever their order.
    pub(crate) fn accepts(&self, rules: &HostRules, most: u32) -> u32 {
        if rules.free {
            return most;
        }
        if rules.forbids.iter().any(|&id| self.count[id as usize] > 0) {
            return 0;
        }
        let mut most = most;
        if rules.forbids.iter().any(|id| rules.raises.contains(id)) {
            most = most.min(1);
        }
        for &(id, limit, itself) in &rules.limits {
            let have = self.count[id as usize];
            if itself && rules.raises.contains(&id) {
                most = most.min(limit.saturating_sub(have));
            } else if have > limit {
                return 0;
            }
        }
        for &id in &rules.raises {
            most = most.min(self.limit[id as usize].saturating_sub(self.count[id as usize]));
        }
        most
    }

    pub(crate) fn add(&mut self, rules: &HostRules, count: u32) {
        for &id in &rules.raises {
            self.mark(id, count);
        }
        for &(id, limit, _) in &rules.limits {
            self.touched.push(id);
            self.limit[id as usize] = self.limit[id as usize].min(limit);
        }
    }
}
