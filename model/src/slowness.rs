//! Whether an API server answers so slowly that nothing may be taken away on its word.
//!
//! What is seen through it may be old, and what is done through it arrives late: a drain that cannot see the pod that came meanwhile.
//! It counts as slow from the second answer in a row that took [`SLOW`] on (one may be a hiccup of ours), until for [`WELL`] none took as long as [`BRISK`]: one that is now
//! quick, now slow stays slow, instead of opening and shutting.

use crate::{Duration, Timestamp};

/// Answers of a healthy API server take milliseconds; its own objective for reads and writes of one object is one second.
pub const SLOW: Duration = Duration::from_secs(5);
/// What an answer may take at most to count towards being well again.
const BRISK: Duration = Duration::from_secs(2);
/// How long it has to be well: as long as a node that comes and goes counts as unready.
pub(crate) const WELL: Duration = Duration::from_mins(5);

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slowness {
    last: Option<(Timestamp, Duration)>,
    /// Slow answers in a row.
    row: u8,
}

impl Slowness {
    /// An answer came at `now` after `took`, or was given up then.
    pub fn note(&mut self, took: Duration, now: Timestamp) {
        self.row = if took >= SLOW { self.row.saturating_add(1) } else { 0 };
        let counts = if self.is_slow(now) { took >= BRISK } else { self.row >= 2 };
        if counts {
            self.last = Some((now, took));
        }
    }

    fn is_slow(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|(at, _)| now.since(at) < WELL)
    }

    /// Why nothing may be taken away, if that is so.
    pub fn doubt(&self, now: Timestamp) -> Option<String> {
        let (_, took) = self.last.filter(|_| self.is_slow(now))?;
        Some(format!("the API server took {took} for an answer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_r14_slow_from_the_second_answer_on_and_well_only_after_a_while() {
        let at = |secs: i64| Timestamp::from_millis(secs * 1000);
        let mut slowness = Slowness::default();
        let mut check = |now: i64, took: u64, slow: bool| {
            slowness.note(Duration::from_millis(took), at(now));
            assert_eq!(slowness.doubt(at(now)).is_some(), slow, "at {now} after {took} ms");
        };
        check(0, 20, false);
        check(5, 4_999, false);
        check(6, 10_000, false);
        check(7, 20, false);
        check(8, 10_000, false); // once is a hiccup
        check(10, 10_000, true);
        check(15, 20, true); // quick once is not well
        check(200, 2_500, true); // not slow by itself, but not well either
        check(499, 20, true);
        check(500, 20, false); // five minutes after the last that was not quick
        check(505, 2_500, false);
        let text = {
            slowness.note(Duration::from_secs(10), at(590));
            slowness.note(Duration::from_secs(10), at(600));
            slowness.doubt(at(603)).unwrap()
        };
        assert_eq!(text, "the API server took 10s for an answer");
    }
}
