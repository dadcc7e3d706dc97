//! Who may act: one leader per store, known to every loop of the process.

use std::sync::Arc;

use muster_model::{
    Clock,
    lease::{Candidate, LeaseConfig},
    store::{Fence, Store, StoreError},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The lease that every loop that acts is fenced by.
pub const LEADER: &str = "leader";

/// The fence while this process leads. Loops look at it before every effect; the store has the last word.
pub type Leading = watch::Receiver<Option<Fence>>;

/// Takes part in the election until `stop`, and tells `leading` of every change.
pub async fn run(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    holder: String,
    leading: watch::Sender<Option<Fence>>,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    let mut candidate = Candidate::new(store, clock, LeaseConfig::new(LEADER, holder))?;
    let round = candidate.run(|fence| {
        if let Some(fence) = &fence {
            tracing::info!(epoch = fence.epoch.0, "this process leads");
        } else {
            tracing::warn!("this process no longer leads");
        }
        leading.send_replace(fence);
    });
    tokio::select! {
        () = stop.cancelled() => {}
        () = round => {}
    }
    leading.send_replace(None);
    candidate.release().await
}
