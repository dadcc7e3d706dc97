//! Who may act: one leader per store, known to every loop of the process.
//!
//! One task renews the lease ([`run`]); everything else asks the [`Lead`] cell right before each effect. The
//! cell runs out by itself: a task that hangs cannot prolong a leadership by not saying anything. The store has
//! the last word.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{Either, select};
use muster_model::{
    Clock, Duration,
    lease::{Candidate, LeaseConfig},
    store::{Fence, Store, StoreError},
};
use tokio_util::sync::CancellationToken;

/// The lease that every loop that acts is fenced by.
pub const LEADER: &str = "leader";

/// Long enough for a slow BMC's answer within what is left of it, short enough that another process takes over
/// within twenty seconds.
pub const LEASE: Duration = Duration::from_secs(19);
const RENEW_DEADLINE: Duration = Duration::from_secs(17);
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The fence while this process leads, for loops that only write. Loops look at it before every effect.
pub type Leading = tokio::sync::watch::Receiver<Option<Fence>>;

/// How this process takes part in the election.
pub fn config(holder: impl Into<String>) -> LeaseConfig {
    LeaseConfig {
        duration: LEASE,
        renew_deadline: RENEW_DEADLINE,
        retry: RENEW_EVERY,
        ..LeaseConfig::new(LEADER, holder)
    }
}

/// A leadership as it stands at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
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
    fence: tokio::sync::watch::Sender<Option<Fence>>,
}

impl Lead {
    /// Nobody leads yet.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, held: Mutex::default(), fence: tokio::sync::watch::Sender::new(None) })
    }

    /// The leadership, if this process has it now.
    pub fn now(&self) -> Option<Tenure> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let left = held.until.saturating_sub(self.clock.monotonic());
        (left > Duration::ZERO).then_some(Tenure { fence: held.fence, left })
    }

    /// Says that leadership is held until `until` on the monotonic clock, or not at all.
    pub fn set(&self, held: Option<(Fence, Duration)>) {
        let fence = held.as_ref().map(|(fence, _)| fence.clone());
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) =
            held.map(|(fence, until)| Held { fence, until });
        self.fence.send_if_modified(|told| {
            let changed = *told != fence;
            *told = fence;
            changed
        });
    }

    /// Every change of hands, for loops that wait for it.
    pub fn subscribe(&self) -> Leading {
        self.fence.subscribe()
    }
}

/// Takes and renews the lease until `stop`, then gives it up so that the next one need not wait.
pub async fn run(
    store: Arc<dyn Store>,
    config: LeaseConfig,
    lead: Arc<Lead>,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    let clock = Arc::clone(&lead.clock);
    let (retry, patience) = (config.retry, config.renew_deadline);
    let mut candidate = Candidate::new(store, Arc::clone(&clock), config)?;
    loop {
        let limit = lead.now().map_or(patience, |tenure| tenure.left);
        let failed = {
            let round = pin!(candidate.step());
            let patience = pin!(clock.sleep(limit));
            match select(round, patience).await {
                Either::Left((Err(error), _)) => Some(error.to_string()),
                Either::Left((Ok(_), _)) => None,
                Either::Right(((), _)) => Some("the store did not answer in time".to_owned()),
            }
        };
        let was = lead.subscribe().borrow().is_some();
        lead.set(candidate.leading().zip(candidate.leads_until()));
        match (was, lead.now(), failed) {
            (false, Some(tenure), _) => tracing::info!(epoch = tenure.fence.epoch.0, "this process leads"),
            (true, None, why) => {
                tracing::warn!(why = why.unwrap_or_default(), "this process no longer leads");
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
    candidate.release().await
}
