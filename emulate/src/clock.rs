//! Real time, for emulators that stand on their own.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use muster_model::{Clock, Duration, Timestamp};

/// The operating system's clock.
#[derive(Debug, Clone, Copy)]
pub struct RealClock {
    start: Instant,
}

impl Default for RealClock {
    #[allow(clippy::disallowed_methods, reason = "this is the rim: real time enters here")]
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

#[async_trait]
impl Clock for RealClock {
    #[allow(clippy::disallowed_methods, reason = "this is the rim: real time enters here")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the rim: real time enters here")]
    fn monotonic(&self) -> Duration {
        Instant::now().duration_since(self.start).into()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the rim: real time enters here")]
    async fn sleep(&self, length: Duration) {
        tokio::time::sleep(length.as_std()).await;
    }
}
