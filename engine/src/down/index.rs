//! Finds the first node in an order that has room: a tree of the largest free amounts.

/// A binary tree over positions; each inner node holds the largest free amount per lane below it.
#[derive(Debug, Clone)]
pub(crate) struct MaxTree {
    lanes: usize,
    /// Leaves, a power of two.
    size: usize,
    max: Vec<i64>,
}

/// A leaf that takes nothing.
const CLOSED: i64 = i64::MIN;

impl MaxTree {
    /// `free` gives the amounts of a position, or nothing if it takes no pods.
    pub(crate) fn new<'f>(positions: usize, lanes: usize, free: impl Fn(usize) -> Option<&'f [i64]>) -> Self {
        let size = positions.max(1).next_power_of_two();
        let mut tree = Self { lanes, size, max: vec![CLOSED; 2 * size * lanes] };
        for position in 0..positions {
            if let Some(free) = free(position) {
                tree.max[(size + position) * lanes..][..lanes].copy_from_slice(free);
            }
        }
        for at in (1..size).rev() {
            tree.pull(at);
        }
        tree
    }

    fn pull(&mut self, at: usize) {
        for lane in 0..self.lanes {
            let left = self.max[2 * at * self.lanes + lane];
            let right = self.max[(2 * at + 1) * self.lanes + lane];
            self.max[at * self.lanes + lane] = left.max(right);
        }
    }

    /// Sets the free amounts of a position that is open.
    pub(crate) fn set(&mut self, position: usize, free: &[i64]) {
        let leaf = (self.size + position) * self.lanes;
        if self.max[leaf] == CLOSED {
            return;
        }
        self.max[leaf..leaf + self.lanes].copy_from_slice(free);
        self.climb(position);
    }

    /// Closes a position for good.
    pub(crate) fn close(&mut self, position: usize) {
        let leaf = (self.size + position) * self.lanes;
        self.max[leaf..leaf + self.lanes].fill(CLOSED);
        self.climb(position);
    }

    fn climb(&mut self, position: usize) {
        let leaf = self.size + position;
        let mut at = leaf >> 1;
        while at > 0 {
            self.pull(at);
            at /= 2;
        }
    }

    /// The first position from `from` up to `to` whose free amounts hold the request and that `accept` takes.
    pub(crate) fn find(
        &self,
        (from, to): (usize, usize),
        request: &[i64],
        accept: &mut impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        self.search(1, (0, self.size), (from, to), request, accept)
    }

    fn search(
        &self,
        at: usize,
        (low, high): (usize, usize),
        (from, to): (usize, usize),
        request: &[i64],
        accept: &mut impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        if high <= from || low >= to {
            return None;
        }
        let max = &self.max[at * self.lanes..(at + 1) * self.lanes];
        if request.iter().zip(max).any(|(&want, &have)| want > 0 && want > have) {
            return None;
        }
        if high - low == 1 {
            return accept(low).then_some(low);
        }
        let middle = usize::midpoint(low, high);
        self.search(2 * at, (low, middle), (from, to), request, accept)
            .or_else(|| self.search(2 * at + 1, (middle, high), (from, to), request, accept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_open_position_with_room_is_found() {
        let free = [[4, 1], [2, 9], [9, 9], [9, 9]];
        let mut tree = MaxTree::new(4, 2, |at| (at != 2).then_some(&free[at][..]));
        let find = |tree: &MaxTree, range, request: [i64; 2]| tree.find(range, &request, &mut |_| true);
        assert_eq!(find(&tree, (0, 4), [3, 1]), Some(0));
        assert_eq!(find(&tree, (0, 4), [3, 2]), Some(3)); // one lane alone is not enough
        assert_eq!(find(&tree, (1, 4), [2, 1]), Some(1));
        assert_eq!(find(&tree, (0, 3), [9, 9]), None); // position 2 takes nothing
        assert_eq!(find(&tree, (0, 4), [10, 0]), None);
        tree.set(0, &[5, 5]);
        assert_eq!(find(&tree, (0, 4), [3, 2]), Some(0));
        tree.close(3);
        tree.set(3, &[99, 99]); // closed for good
        assert_eq!(find(&tree, (0, 4), [9, 9]), None);
        assert_eq!(tree.find((0, 4), &[1, 1], &mut |at| at == 1), Some(1));
    }
}
