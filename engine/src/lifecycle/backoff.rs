//! How long to wait after a failure.

use muster_model::{Duration, host::Limits};

/// The wait before retry number `count` (from 1): the base doubled each time, with up to half of it added,
/// and never beyond the cap. The addition depends on the host's name and the count alone, so that hosts
/// that failed together do not come back together, and the same history gives the same time.
pub(super) fn delay(limits: &Limits, host: &str, count: u32) -> Duration {
    let doublings = count.saturating_sub(1).min(40);
    let base = limits.backoff.millis().max(1).saturating_mul(1_u64 << doublings);
    let capped = base.min(limits.backoff_cap.millis());
    let spread = capped / 2;
    let jitter = if spread == 0 { 0 } else { hash(host, count) % spread };
    Duration::from_millis(capped.saturating_add(jitter).min(limits.backoff_cap.millis().max(1)))
}

/// FNV-1a, which is the same everywhere and for ever.
fn hash(host: &str, count: u32) -> u64 {
    host.bytes()
        .chain(count.to_be_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap_and_stay_there() {
        let limits = Limits::default();
        let delays: Vec<_> = (1..=12).map(|count| delay(&limits, "gpu-07", count)).collect();
        assert!(delays[0] >= limits.backoff && delays[0] < Duration::from_secs(90));
        assert!(delays[..9].windows(2).all(|pair| pair[0] < pair[1]), "{delays:?}");
        assert!(delays.iter().all(|one| *one <= limits.backoff_cap));
        assert_eq!(delays[11], limits.backoff_cap);
        assert_eq!(delay(&limits, "x", u32::MAX), limits.backoff_cap);
    }

    #[test]
    fn hosts_that_fail_together_come_back_apart() {
        let limits = Limits::default();
        let mut delays: Vec<_> = (0..50).map(|n| delay(&limits, &format!("host-{n}"), 3)).collect();
        delays.sort_unstable();
        delays.dedup();
        assert!(delays.len() > 40, "{}", delays.len());
    }
}
