//! Says when the machine's wall clock was set, and that deadlines follow it only slowly.

use std::sync::Arc;

use muster_model::{Clock as _, Duration, steady::SteadyClock};
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(30);
/// From here on it is worth a line in the log.
const APART_MS: u64 = 60_000;

/// Looks until `stop`; every departure is told once, and its end as well.
pub(super) async fn watch(clock: Arc<SteadyClock>, stop: CancellationToken) {
    let mut apart = false;
    loop {
        let ahead = clock.ahead();
        let (by, is_apart) = (Duration::from_millis(ahead.unsigned_abs()), ahead.unsigned_abs() >= APART_MS);
        if is_apart && !apart {
            let direction = if ahead > 0 { "ahead" } else { "back" };
            tracing::warn!(
                %by,
                direction,
                "the wall clock of this machine was set; deadlines go on by the time that really passed, and follow it \
                 by 36 seconds in an hour; a restart takes it over at once"
            );
        } else if apart && !is_apart {
            tracing::info!("deadlines have caught up with the wall clock of this machine");
        }
        apart = is_apart;
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = clock.sleep(EVERY) => {}
        }
    }
}
