//! The real clock: the rim where time comes in.

use async_trait::async_trait;
use muster_model::{Clock, Duration, Timestamp};

/// Wall time and monotonic time of this machine.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Moment,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self { started: Moment::now() }
    }
}

/// A moment on a clock that never goes back and counts the time in which the machine was suspended. Without that time a
/// leader that was suspended would believe in a lease that somebody else has taken, and every wait would be too long.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy)]
struct Moment(std::time::Duration);

#[cfg(target_os = "linux")]
impl Moment {
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let part = |number: i64| u64::try_from(number).unwrap_or(0);
        let nanos = std::time::Duration::from_nanos(part(time.tv_nsec));
        Self(std::time::Duration::from_secs(part(time.tv_sec)) + nanos)
    }

    fn elapsed(self) -> std::time::Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
struct Moment(std::time::Instant);

#[cfg(not(target_os = "linux"))]
impl Moment {
    #[allow(clippy::disallowed_methods, reason = "this is the rim where time comes in")]
    fn now() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(self) -> std::time::Duration {
        self.0.elapsed()
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
