//! The port through which everything learns what time it is, and waits.

use async_trait::async_trait;

use crate::{Duration, Timestamp};

/// A source of time. The real one is in the binary, the simulated one in `sim`.
#[async_trait]
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall time, for display and for what is stored. It may jump.
    fn now(&self) -> Timestamp;

    /// Time since an arbitrary start; never goes back. Leases and timeouts are measured with it.
    fn monotonic(&self) -> Duration;

    /// The reading of [`Clock::monotonic`] as finely as the source has it, for measuring what takes less than a
    /// millisecond. A source that only counts milliseconds answers with those.
    fn precise(&self) -> std::time::Duration {
        self.monotonic().as_std()
    }

    /// Returns once `length` has passed on the monotonic clock.
    async fn sleep(&self, length: Duration);
}
