//! How long things took, for benchmarks only.

use std::time::Instant;

/// Now, on the clock that never goes back.
#[allow(clippy::disallowed_methods, reason = "a benchmark is what a clock is for")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since then.
pub(crate) fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// Lets time pass; benchmarks wait for other processes.
#[allow(clippy::disallowed_methods, reason = "a benchmark waits for another process here")]
pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
}

/// The value below which this part (0 to 1) of them lies; they are sorted here.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list of a few thousand"
)]
pub(crate) fn quantile(values: &mut [f64], part: f64) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * part).ceil() as usize;
    values[place.clamp(1, values.len()) - 1]
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the values themselves come back")]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| quantile(&mut values, part)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(quantile(&mut [7.0], 0.99), 7.0);
    }
}
