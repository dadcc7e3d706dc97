//! How long to wait before the next try.

use muster_model::Duration;

/// The first wait: long enough not to spin, short enough that a cut connection is not noticed.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest wait. An API server that comes back is found again within this time.
const LONGEST: Duration = Duration::from_secs(20);

/// Doubles with every failure in a row, with jitter, so that the watches of a restarted server do not all come
/// at one moment.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The next wait. `dice` is between 0 and 1.
    pub(super) fn failed(&mut self, dice: f64) -> Duration {
        let full = SHORTEST.millis().saturating_mul(1 << self.failures.min(16)).min(LONGEST.millis());
        self.failures = self.failures.saturating_add(1);
        // Between half and all of it.
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "milliseconds below a minute"
        )]
        let length = (full as f64 * dice.clamp(0.0, 1.0).mul_add(0.5, 0.5)) as u64;
        Duration::from_millis(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_again() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..10).map(|_| backoff.failed(1.0).millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 20_000, 20_000]);
        backoff.succeeded();
        assert_eq!(backoff.failed(0.0).millis(), 50);
    }
}
