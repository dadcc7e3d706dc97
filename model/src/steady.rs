//! A wall clock that does not jump.
//!
//! Deadlines are stored as points in time, so that they survive a restart. Judged by a wall clock that somebody
//! sets an hour ahead, every machine that boots would be overdue at once. [`SteadyClock`] follows the monotonic
//! clock, and makes up for what the wall clock says otherwise so slowly that no deadline is noticeably shorter.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use crate::{Clock, Duration, Timestamp};

/// One part in so many: a second is made up for in 100 seconds, an hour in four days. A wait of 15 minutes, the longest
/// cool-down by default, is wrong by 9 seconds at most: less than the 10 seconds between two looks of the planner.
const SLEW: u64 = 100;
/// How far two readings lie apart from which on the later one is the one to go on from.
const STRIDE: Duration = Duration::from_secs(1);

/// See the module.
pub struct SteadyClock {
    source: Arc<dyn Clock>,
    last: Mutex<Reading>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    monotonic: Duration,
    shown: Timestamp,
}

impl fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteadyClock").field("source", &self.source).finish_non_exhaustive()
    }
}

impl SteadyClock {
    /// Starts with what the wall clock of `source` says now.
    pub fn new(source: Arc<dyn Clock>) -> Self {
        let last = Reading { monotonic: source.monotonic(), shown: source.now() };
        Self { source, last: Mutex::new(last) }
    }

    /// By how many milliseconds the wall clock is ahead of this one; negative if it is behind.
    pub fn ahead(&self) -> i64 {
        self.source.now().millis().saturating_sub(self.now().millis())
    }
}

/// What is shown `passed` after a reading, when the wall clock says `wall`.
fn shown(last: Timestamp, passed: Duration, wall: Timestamp) -> Timestamp {
    let plain = last.saturating_add(passed);
    let most = i64::try_from(passed.millis() / SLEW).unwrap_or(i64::MAX);
    let apart = wall.millis().saturating_sub(plain.millis()).clamp(-most, most);
    Timestamp::from_millis(plain.millis().saturating_add(apart))
}

#[async_trait]
impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let monotonic = self.source.monotonic();
        let passed = monotonic.saturating_sub(last.monotonic);
        let shown = shown(last.shown, passed, self.source.now());
        if passed >= STRIDE {
            *last = Reading { monotonic, shown };
        }
        shown
    }

    fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    fn precise(&self) -> std::time::Duration {
        self.source.precise()
    }

    async fn sleep(&self, length: Duration) {
        self.source.sleep(length).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Hands {
        passed: AtomicU64,
        set: AtomicI64,
    }

    #[async_trait]
    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            let passed = i64::try_from(self.passed.load(Ordering::Relaxed)).unwrap();
            Timestamp::from_millis(1_000_000_000_000 + passed + self.set.load(Ordering::Relaxed))
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.passed.load(Ordering::Relaxed))
        }

        async fn sleep(&self, _: Duration) {}
    }

    const HOUR: i64 = 3_600_000;

    /// The wall clock is set, and is looked at every `every` milliseconds for as long as `whole`: how far the steady
    /// clock is from the time that passed.
    fn drift(set: i64, every: u64, whole: u64) -> i64 {
        let hands = Arc::new(Hands::default());
        let steady = SteadyClock::new(Arc::clone(&hands) as _);
        let start = steady.now().millis();
        hands.set.store(set, Ordering::Relaxed);
        let mut before = start;
        while hands.passed.load(Ordering::Relaxed) < whole {
            hands.passed.fetch_add(every, Ordering::Relaxed);
            let now = steady.now().millis();
            assert!(now >= before, "it went back from {before} to {now}");
            before = now;
        }
        before - start - i64::try_from(hands.passed.load(Ordering::Relaxed)).unwrap()
    }

    #[test]
    fn ops_f18_a_clock_that_is_set_is_followed_slowly() {
        // Set by, looked at every, for as long as, and how much of it is made up for.
        let table = [
            (0, 7, 60_000, 0),
            (HOUR, 1_000, 60_000, 600),
            (-HOUR, 1_000, 60_000, -600),
            (365 * 24 * HOUR, 10_000, 900_000, 9_000),
            (HOUR, 60_000, 100 * 3_600_000, HOUR),
            (HOUR, 60_000, 130 * 3_600_000, HOUR),
            (-2_000, 1_000, 300_000, -2_000),
        ];
        for (set, every, whole, expected) in table {
            assert_eq!(drift(set, every, whole), expected, "set by {set}, every {every}, for {whole}");
        }
    }

    #[test]
    fn looking_often_does_not_keep_it_from_catching_up() {
        let found = drift(2_000, 3, 300_000);
        assert!((1_990..=2_000).contains(&found), "{found}");
    }
}
