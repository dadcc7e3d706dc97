//! How much of a node is asked for, with the arithmetic.

use std::sync::Arc;

use serde::Serialize;

/// Requests of the pods that would have to move, against what the node can hold. Pods that go with their
/// node (daemons, mirrors) are left out: a node with nothing else is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Cpu (in thousandths), memory (in bytes) and every extended resource that is asked for.
    pub shares: Vec<Share>,
    /// Index of the share that counts: the largest.
    pub dominant: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    pub resource: Arc<str>,
    pub used: i64,
    pub allocatable: i64,
}

impl Share {
    /// In percent, rounded down; anything of nothing is more than full.
    pub fn percent(&self) -> u32 {
        let (used, whole) = (i128::from(self.used.max(0)), i128::from(self.allocatable));
        if used == 0 {
            return 0;
        }
        if whole <= 0 {
            return u32::MAX;
        }
        u32::try_from(used * 100 / whole).unwrap_or(u32::MAX)
    }

    /// Whether the share has reached a mark, exactly.
    pub fn reaches(&self, mark: u32) -> bool {
        self.used > 0 && i128::from(self.used) * 100 >= i128::from(self.allocatable) * i128::from(mark)
    }

    /// Orders by size without rounding.
    fn is_larger_than(&self, other: &Self) -> bool {
        i128::from(self.used.max(0)) * i128::from(other.allocatable.max(0))
            > i128::from(other.used.max(0)) * i128::from(self.allocatable.max(0))
    }
}

/// Whether a resource counts for utilisation: cpu, memory, and what a plugin adds (GPUs, custom ones).
pub(crate) fn counts(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.contains('/')
}

impl Usage {
    pub fn new(shares: Vec<Share>) -> Self {
        let mut dominant: Option<usize> = None;
        for (at, share) in shares.iter().enumerate() {
            if dominant.is_none_or(|top| share.is_larger_than(&shares[top])) {
                dominant = Some(at);
            }
        }
        Self { shares, dominant }
    }

    pub fn top(&self) -> Option<&Share> {
        self.shares.get(self.dominant?)
    }

    pub fn percent(&self) -> u32 {
        self.top().map_or(0, Share::percent)
    }

    /// In ten-thousandths, for ordering.
    pub(crate) fn fine(&self) -> i64 {
        self.top().map_or(0, |top| {
            let part = i128::from(top.used.max(0)) * 10_000 / i128::from(top.allocatable.max(1));
            i64::try_from(part).unwrap_or(i64::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_counts_and_the_arithmetic_is_kept() {
        #[track_caller]
        fn check(shares: &[(&str, i64, i64)], dominant: &str, percent: u32) {
            let share = |&(resource, used, allocatable): &(&str, i64, i64)| Share {
                resource: resource.into(),
                used,
                allocatable,
            };
            let usage = Usage::new(shares.iter().map(share).collect());
            assert_eq!((usage.top().map_or("", |top| &*top.resource), usage.percent()), (dominant, percent));
        }
        check(&[], "", 0);
        check(&[("cpu", 100, 1000), ("memory", 90, 1000)], "cpu", 10);
        check(&[("cpu", 100, 1000), ("memory", 101, 1000)], "memory", 10);
        check(&[("cpu", 100, 1000), ("nvidia.com/gpu", 1, 1)], "nvidia.com/gpu", 100);
        check(&[("cpu", 500, 1000), ("example.com/x", 0, 0)], "cpu", 50);
        check(&[("cpu", 1, 0)], "cpu", u32::MAX); // asked for where there is none
    }

    #[test]
    fn marks_are_compared_without_rounding() {
        let share = |used| Share { resource: "cpu".into(), used, allocatable: 1000 };
        assert!(!share(299).reaches(30));
        assert!(share(300).reaches(30));
        assert!(!share(0).reaches(0)); // an empty node is never busy
    }
}
