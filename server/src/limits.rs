//! Bounds on what one caller can take: requests per second, and watches held open.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use muster_model::Duration;

/// What the configuration sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body.
    pub body: usize,
    /// Requests per second of one identity, sustained; zero means no limit.
    pub requests_per_second: u32,
    /// Watches open at once in this process.
    pub watches: usize,
    /// Watches open at once of one identity.
    pub watches_per_identity: usize,
    /// A client has this long to finish its request line and headers: a slow sender holds a connection no longer.
    pub header_timeout: Duration,
    /// A request's body must have arrived within this time.
    pub body_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // What the seed's bodies need a thousand times over, and what one stored value may hold.
            body: 1 << 20,
            // Above what one client reaches on a small machine: it stops a runaway loop on a large one.
            requests_per_second: 50_000,
            watches: 5_000,
            watches_per_identity: 2_000,
            // A modem sends 64 KiB of headers in this time.
            header_timeout: Duration::from_secs(10),
            // A 1 MiB body at 35 KiB a second.
            body_timeout: Duration::from_secs(30),
        }
    }
}

/// Identities that are remembered. Beyond it the ones that were idle longest are forgotten, which can
/// only favour them.
const MAX_BUCKETS: usize = 10_000;

/// A token bucket for each identity: `rate` per second, bursts of twice that.
#[derive(Debug)]
pub struct RateLimit {
    rate: u64,
    buckets: Mutex<HashMap<Arc<str>, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Thousandths of a request that may still be made now.
    left: u64,
    at: Duration,
}

impl RateLimit {
    pub fn new(requests_per_second: u32) -> Self {
        Self { rate: u64::from(requests_per_second), buckets: Mutex::default() }
    }

    /// Takes one request from the bucket of `name`, or says how long to wait.
    pub fn take(&self, name: &Arc<str>, now: Duration) -> Result<(), Duration> {
        if self.rate == 0 {
            return Ok(());
        }
        let full = self.rate.saturating_mul(2_000);
        let mut buckets = self.buckets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(name) {
            let oldest = buckets.values().map(|bucket| bucket.at).min().unwrap_or(now);
            let middle = Duration::from_millis(u64::midpoint(oldest.millis(), now.millis()));
            buckets.retain(|_, bucket| bucket.at > middle);
        }
        let bucket = buckets.entry(Arc::clone(name)).or_insert(Bucket { left: full, at: now });
        let passed = now.saturating_sub(bucket.at).millis();
        bucket.left = bucket.left.saturating_add(passed.saturating_mul(self.rate)).min(full);
        bucket.at = now;
        if bucket.left >= 1_000 {
            bucket.left -= 1_000;
            Ok(())
        } else {
            Err(Duration::from_millis((1_000 - bucket.left).div_ceil(self.rate)))
        }
    }
}

/// Counts open watches, in all and by identity.
#[derive(Debug)]
pub struct WatchSlots {
    limits: Limits,
    open: AtomicUsize,
    by_identity: Mutex<HashMap<Arc<str>, usize>>,
}

/// A place for one watch; giving it back is dropping it.
#[derive(Debug)]
pub struct WatchSlot {
    slots: Arc<WatchSlots>,
    name: Arc<str>,
}

impl WatchSlots {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, open: AtomicUsize::new(0), by_identity: Mutex::default() })
    }

    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A place, or `None` when all are taken.
    pub fn take(self: &Arc<Self>, name: &Arc<str>) -> Option<WatchSlot> {
        let mut by_identity = self.by_identity.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = by_identity.get(name).copied().unwrap_or(0);
        if own >= self.limits.watches_per_identity || self.open() >= self.limits.watches {
            return None;
        }
        by_identity.insert(Arc::clone(name), own + 1);
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(WatchSlot { slots: Arc::clone(self), name: Arc::clone(name) })
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        let mut by_identity =
            self.slots.by_identity.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.slots.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(own) = by_identity.get_mut(&self.name) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                by_identity.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_a_burst_then_the_rate() {
        let limit = RateLimit::new(10);
        let (alice, bob): (Arc<str>, Arc<str>) = ("alice".into(), "bob".into());
        let at = Duration::from_millis;
        assert_eq!((0..30).filter(|_| limit.take(&alice, at(0)).is_ok()).count(), 20);
        assert_eq!(limit.take(&alice, at(0)), Err(at(100)));
        assert_eq!(limit.take(&bob, at(0)), Ok(()), "one caller's use is not another's");
        assert_eq!(limit.take(&alice, at(100)), Ok(()));
        assert!(limit.take(&alice, at(100)).is_err());
        assert!(RateLimit::new(0).take(&alice, at(0)).is_ok(), "zero means no limit");
    }

    #[test]
    fn remembered_identities_are_bounded() {
        let limit = RateLimit::new(10);
        for index in 0..(MAX_BUCKETS as u64 + 500) {
            let _ = limit.take(&format!("user-{index}").into(), Duration::from_millis(index));
        }
        assert!(limit.buckets.lock().unwrap().len() <= MAX_BUCKETS);
    }

    #[test]
    fn watch_places_are_counted_and_given_back() {
        let slots = WatchSlots::new(Limits { watches: 3, watches_per_identity: 2, ..Limits::default() });
        let (alice, bob): (Arc<str>, Arc<str>) = ("alice".into(), "bob".into());
        let held = (slots.take(&alice), slots.take(&alice));
        assert!(held.0.is_some() && held.1.is_some());
        assert!(slots.take(&alice).is_none(), "her own limit");
        let third = slots.take(&bob);
        assert!(third.is_some() && slots.take(&bob).is_none(), "the limit of all");
        drop(held);
        assert_eq!(slots.open(), 1);
        assert!(slots.take(&bob).is_some());
    }
}
