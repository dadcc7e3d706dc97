//! Who leads, for everything in this process that may act only while it does.
//!
//! One task renews the lease ([`run`]); everything else asks the [`Lead`] cell right before each effect. The
//! cell runs out by itself: a task that hangs cannot prolong a leadership by not saying anything.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{Either, select};
use muster_model::{Clock, Duration, lease::Candidate, store::Fence};
use tokio_util::sync::CancellationToken;

/// A leadership as it stands at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leading {
    /// Goes into every write.
    pub fence: Fence,
    /// How long it may still be acted on without a renewal.
    pub left: Duration,
}

#[derive(Debug, Clone)]
struct Held {
    fence: Fence,
    /// On the monotonic clock.
    until: Duration,
}

/// Whether this process leads. Cheap to ask, and always as of now.
#[derive(Debug)]
pub struct Lead {
    clock: Arc<dyn Clock>,
    held: Mutex<Option<Held>>,
    changed: tokio::sync::watch::Sender<u64>,
}

impl Lead {
    /// Nobody leads yet.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, held: Mutex::default(), changed: tokio::sync::watch::Sender::new(0) })
    }

    /// The leadership, if this process has it now.
    pub fn now(&self) -> Option<Leading> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let left = held.until.saturating_sub(self.clock.monotonic());
        (left > Duration::ZERO).then_some(Leading { fence: held.fence, left })
    }

    /// Says that leadership is held until `until` on the monotonic clock, or not at all.
    pub fn set(&self, held: Option<(Fence, Duration)>) {
        let epoch_before = {
            let mut place = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let before = place.as_ref().map(|held| held.fence.clone());
            *place = held.map(|(fence, until)| Held { fence, until });
            (before, place.as_ref().map(|held| held.fence.clone()))
        };
        if epoch_before.0 != epoch_before.1 {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Returns at the next change of hands after `seen`, with the number to wait after then.
    pub async fn changed(&self, seen: u64) -> u64 {
        let mut changes = self.changed.subscribe();
        match changes.wait_for(|count| *count > seen).await {
            Ok(count) => *count,
            Err(_) => seen,
        }
    }

    /// How often leadership has changed hands as seen here.
    pub fn changes(&self) -> u64 {
        *self.changed.borrow()
    }
}

/// Takes and renews the lease until `stop`, then gives it up so that the next one need not wait.
pub async fn run(mut candidate: Candidate, lead: Arc<Lead>, retry: Duration, stop: CancellationToken) {
    let clock = Arc::clone(&lead.clock);
    loop {
        let limit = lead.now().map_or(retry.saturating_add(retry), |leading| leading.left);
        let failed = {
            let round = pin!(candidate.step());
            let patience = pin!(clock.sleep(limit));
            match select(round, patience).await {
                Either::Left((Err(error), _)) => Some(error.to_string()),
                Either::Left((Ok(_), _)) => None,
                Either::Right(((), _)) => Some("the store did not answer in time".to_owned()),
            }
        };
        let was = lead.now().is_some();
        lead.set(candidate.leading().zip(candidate.leads_until()));
        match (was, lead.now().is_some(), failed) {
            (false, true, _) => tracing::info!("this process leads now"),
            (true, false, why) => {
                tracing::warn!(why = why.unwrap_or_default(), "this process leads no longer");
            }
            (_, _, Some(why)) => tracing::warn!(why, "a round of the election failed; it is tried again"),
            (_, _, None) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = clock.sleep(retry) => {}
        }
    }
    lead.set(None);
    if let Err(error) = candidate.release().await {
        tracing::warn!(%error, "the lease could not be given up; others wait until it runs out");
    }
}
