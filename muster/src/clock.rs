//! The real clock: the rim where time comes in.

use std::time::Instant;

use async_trait::async_trait;
use muster_model::{Clock, Duration, Timestamp};

/// Wall time and monotonic time of this machine.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Instant,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the rim where time comes in")]
    pub(crate) fn new() -> Self {
        Self { started: Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the rim where time comes in")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        Timestamp::from_millis(since)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed().into()
    }

    fn precise(&self) -> std::time::Duration {
        self.started.elapsed()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the rim where time comes in")]
    async fn sleep(&self, length: Duration) {
        tokio::time::sleep(length.as_std()).await;
    }
}
