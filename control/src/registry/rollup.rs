//! The pools of a cluster, counted as they come and go, so that reading a cluster costs nothing.

use std::collections::BTreeMap;

use muster_model::status::PoolRollup;

use super::index::Summary;

#[derive(Debug, Default)]
pub(super) struct Rollup {
    pub(super) total: u64,
    by_phase: BTreeMap<&'static str, u64>,
    by_health: BTreeMap<&'static str, u64>,
    desired: u64,
    current: Known,
    ready: Known,
}

/// A sum of which some parts may not be known.
#[derive(Debug, Default)]
struct Known {
    sum: u64,
    unknown: u64,
}

impl Known {
    fn add(&mut self, count: Option<u32>) {
        match count {
            Some(count) => self.sum += u64::from(count),
            None => self.unknown += 1,
        }
    }

    fn remove(&mut self, count: Option<u32>) {
        match count {
            Some(count) => self.sum -= u64::from(count),
            None => self.unknown -= 1,
        }
    }

    fn value(&self) -> Option<u64> {
        (self.unknown == 0).then_some(self.sum)
    }
}

impl Rollup {
    pub(super) fn add(&mut self, pool: &Summary) {
        self.total += 1;
        *self.by_phase.entry(pool.phase).or_default() += 1;
        *self.by_health.entry(pool.health).or_default() += 1;
        self.desired += u64::from(pool.counts.desired.unwrap_or(0));
        self.current.add(pool.counts.current);
        self.ready.add(pool.counts.ready);
    }

    /// Takes out what [`Rollup::add`] put in for the same summary.
    pub(super) fn remove(&mut self, pool: &Summary) {
        self.total -= 1;
        for (counts, word) in [(&mut self.by_phase, pool.phase), (&mut self.by_health, pool.health)] {
            if let Some(count) = counts.get_mut(word) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(word);
                }
            }
        }
        self.desired -= u64::from(pool.counts.desired.unwrap_or(0));
        self.current.remove(pool.counts.current);
        self.ready.remove(pool.counts.ready);
    }

    pub(super) fn render(&self) -> PoolRollup {
        let words = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect()
        };
        PoolRollup {
            total: self.total,
            by_phase: words(&self.by_phase),
            by_health: words(&self.by_health),
            desired_nodes: self.desired,
            current_nodes: self.current.value(),
            ready_nodes: self.ready.value(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::registry::{
        Kind,
        index::{Counts, Index},
    };

    #[test]
    fn counts_follow_every_change_and_unknown_is_not_zero() {
        let cluster = Uuid::from_u128(9);
        let pool = |number: u128, phase: &'static str, ready: Option<u32>| {
            let counts = Counts { desired: Some(3), current: Some(3), ready, min: None, max: None };
            Arc::new(Summary { cluster, phase, counts, ..super::super::index::tests::summary(number, 1) })
        };
        let mut index = Index::default();
        assert_eq!((index.rollup(cluster).total, index.rollup(cluster).ready_nodes), (0, Some(0)));
        index.set(pool(1, "Ready", Some(3)));
        index.set(pool(2, "Pending", None));
        let found = index.rollup(cluster);
        assert_eq!((found.total, found.desired_nodes, found.ready_nodes), (2, 6, None));
        index.set(pool(2, "Ready", Some(1)));
        let found = index.rollup(cluster);
        assert_eq!((found.by_phase["Ready"], found.by_phase.len(), found.ready_nodes), (2, 1, Some(4)));
        index.remove(Kind::Pool, Uuid::from_u128(1));
        index.remove(Kind::Pool, Uuid::from_u128(2));
        assert_eq!(index.rollup(cluster), Rollup::default().render());
    }
}
