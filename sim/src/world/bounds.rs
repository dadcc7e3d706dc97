//! How large a pool may be: now, and not long ago.

/// What was in force from a moment on.
#[derive(Debug, Clone, Copy)]
struct Line {
    at: u64,
    min: u32,
    max: u32,
}

/// The bounds of one pool, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounds(Vec<Line>);

impl Bounds {
    /// They are these from `at` on.
    pub(super) fn set(&mut self, (min, max): (u32, u32), at: u64) {
        self.0.push(Line { at, min, max });
    }

    /// What was in force at any time from `from` on, for however short a while.
    fn since(&self, from: u64) -> impl Iterator<Item = Line> {
        let over = move |place: usize| self.0.get(place + 1).is_some_and(|next| next.at <= from);
        self.0.iter().enumerate().filter(move |(place, _)| !over(*place)).map(|(_, line)| *line)
    }

    /// What was allowed a moment ago may still be under way.
    pub(super) fn most_since(&self, from: u64) -> u32 {
        self.since(from).map(|line| line.max).max().unwrap_or(u32::MAX)
    }

    /// What is asked for only now need not be there yet.
    pub(super) fn least_since(&self, from: u64) -> u32 {
        self.since(from).map(|line| line.min).min().unwrap_or(0)
    }

    /// What was asked for until now need not be gone yet.
    pub(super) fn floor_since(&self, from: u64) -> u32 {
        self.since(from).map(|line| line.min).max().unwrap_or(0)
    }

    /// The maximum of now.
    pub(super) fn most(&self) -> u32 {
        self.0.last().map_or(u32::MAX, |line| line.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_counts_for_as_long_as_it_may_be_under_way() {
        let mut bounds = Bounds::default();
        bounds.set((1, 8), 0);
        bounds.set((0, 2), 100);
        bounds.set((2, 4), 200);
        // from => most, least, floor
        let check = |from, expected| {
            assert_eq!(
                (bounds.most_since(from), bounds.least_since(from), bounds.floor_since(from)),
                expected
            );
        };
        check(50, (8, 0, 2));
        check(99, (8, 0, 2));
        check(100, (4, 0, 2));
        check(200, (4, 2, 2));
        assert_eq!(bounds.most(), 4);
        assert_eq!(Bounds::default().most_since(0), u32::MAX);
    }
}
