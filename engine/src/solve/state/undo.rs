//! Taking back: the inverse of placing, for what-ifs that are reverted and for nodes that go.

use super::{NO_DOMAIN, State, has_bit, raise_level};

impl State<'_> {
    /// Takes pods off a target again; the exact inverse of [`State::place`].
    pub(crate) fn unplace(&mut self, class: u32, target: usize, count: u32) {
        let problem = self.problem;
        let lanes = problem.lanes;
        let request = &problem.classes[class as usize].request;
        for (have, want) in self.free[target * lanes..(target + 1) * lanes].iter_mut().zip(request) {
            *have += want * i64::from(count);
        }
        for &counter in &problem.classes[class as usize].raises {
            self.lower(counter, target, count);
        }
    }

    /// Lowers counters that something on the target raised.
    pub(crate) fn lift(&mut self, target: usize, marks: &[(u32, u32)]) {
        for &(counter, count) in marks {
            self.lower(counter, target, count);
        }
    }

    /// The inverse of [`State::lift`].
    pub(crate) fn put_back(&mut self, target: usize, marks: &[(u32, u32)]) {
        for &(counter, count) in marks {
            self.raise(counter, target, count);
        }
    }

    /// An emptied target is no domain any more.
    pub(crate) fn withdraw(&mut self, target: usize) {
        for id in 0..self.problem.counters.len() {
            let counter = &self.problem.counters[id];
            let signature = self.signature[target];
            if !counter.spread || counter.eligible.as_ref().is_some_and(|bits| !has_bit(bits, signature)) {
                continue;
            }
            if let Some(key) = counter.key {
                let domain = self.domain(target, key);
                if domain != NO_DOMAIN {
                    self.present[id][domain as usize] -= 1;
                }
            } else {
                let level = self.host_count(target, id as u32);
                self.levels[id][level as usize] -= 1;
            }
        }
    }

    fn lower(&mut self, id: u32, target: usize, by: u32) {
        let counter = &self.problem.counters[id as usize];
        if counter.eligible.as_ref().is_some_and(|bits| !has_bit(bits, self.signature[target])) {
            return;
        }
        if let Some(key) = counter.key {
            let domain = self.domain(target, key);
            if domain != NO_DOMAIN {
                self.counts[id as usize][domain as usize] -= by;
                self.totals[id as usize] -= u64::from(by);
            }
            return;
        }
        self.totals[id as usize] -= u64::from(by);
        let entry = self.host[target].iter_mut().find(|(other, _)| *other == id);
        let entry = entry.expect("what is taken back was counted before");
        let before = entry.1;
        entry.1 -= by;
        if counter.spread {
            raise_level(&mut self.levels[id as usize], Some(before), before - by);
        }
    }
}
