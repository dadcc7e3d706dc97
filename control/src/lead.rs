//! Who may act: one leader per store, known to every loop of the process.
//!
//! One task renews the lease ([`run`]); everything else asks the [`Lead`] cell right before each effect. The
//! cell runs out by itself: a task that hangs cannot prolong a leadership by not saying anything. The store has
//! the last word.
//!
//! Where a Kubernetes `Lease` elects ([`run_elected`]) it only says who may take the store's lease and raise the epoch.
//! Whoever has it keeps it while the API server is silent, because silence elects nobody. One who was elected and
//! finds the store's lease taken claims it in the store; a leader that cannot ask the API server and sees the
//! claim lays its leadership down, and one that can ask has seen by itself that another was elected. In both cases the
//! lease runs out before the next one takes it, so that calls under way are over by then.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{Either, select};
use muster_model::{
    Clock, Duration,
    lease::{Candidate, LeaseConfig, Permit, Standing},
    store::{Fence, Revision, Store, StoreError, Txn},
};
use tokio_util::sync::CancellationToken;

/// The lease that every loop that acts is fenced by.
pub const LEADER: &str = "leader";

/// Long enough for a slow BMC's answer within what is left of it, short enough that another process takes over
/// within twenty seconds: it sees the last renewal at most [`RENEW_EVERY`] after it was made, and takes the lease this long
/// after that. What its own requests to the store take comes on top.
pub const LEASE: Duration = Duration::from_secs(19);
/// A leader counts from when it sent the renewal, the others from when they saw it: they could be equal, and two seconds are
/// left for clocks that do not run alike.
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
    /// Both on the monotonic clock.
    since: Duration,
    until: Duration,
}

/// Whether this process leads. Cheap to ask, and always as of now.
#[derive(Debug)]
pub struct Lead {
    clock: Arc<dyn Clock>,
    held: Mutex<Option<Held>>,
    unattended: Mutex<Duration>,
    fence: tokio::sync::watch::Sender<Option<Fence>>,
}

impl Lead {
    /// Nobody leads yet.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            held: Mutex::default(),
            unattended: Mutex::default(),
            fence: tokio::sync::watch::Sender::new(None),
        })
    }

    /// The leadership, if this process has it now.
    pub fn now(&self) -> Option<Tenure> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let left = held.until.saturating_sub(self.clock.monotonic());
        (left > Duration::ZERO).then_some(Tenure { fence: held.fence, left })
    }

    /// How long this process has led without a break; zero if it does not lead.
    pub fn led_for(&self) -> Duration {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.clock.monotonic();
        held.filter(|held| now < held.until).map_or(Duration::ZERO, |held| now.saturating_sub(held.since))
    }

    /// Says that leadership is held until `until` on the monotonic clock, or not at all.
    pub fn set(&self, held: Option<(Fence, Duration)>) {
        let fence = held.as_ref().map(|(fence, _)| fence.clone());
        let now = self.clock.monotonic();
        let mut own = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let before = own.take();
        *own = held.map(|(fence, until)| {
            let unbroken = before.filter(|old| old.fence == fence && now < old.until);
            Held { fence, since: unbroken.map_or(now, |old| old.since), until }
        });
        drop(own);
        self.fence.send_if_modified(|told| {
            let changed = *told != fence;
            *told = fence;
            changed
        });
    }

    /// How long nobody led before this process did.
    pub fn unattended(&self) -> Duration {
        *self.unattended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every change of hands, for loops that wait for it.
    pub fn subscribe(&self) -> Leading {
        self.fence.subscribe()
    }
}

/// What another election says, as it changes.
pub type Permits = tokio::sync::watch::Receiver<Permit>;

/// Takes and renews the lease until `stop`, then gives it up so that the next one need not wait.
pub async fn run(
    store: Arc<dyn Store>,
    config: LeaseConfig,
    lead: Arc<Lead>,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    contest(store, config, lead, None, stop).await
}

/// The same for a process that takes the lease only while `permits` says so.
pub async fn run_elected(
    store: Arc<dyn Store>,
    config: LeaseConfig,
    lead: Arc<Lead>,
    permits: Permits,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    contest(store, config, lead, Some(permits), stop).await
}

async fn contest(
    store: Arc<dyn Store>,
    config: LeaseConfig,
    lead: Arc<Lead>,
    permits: Option<Permits>,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    let clock = Arc::clone(&lead.clock);
    let patience = config.renew_deadline;
    let mut contender = Contender::new(store, Arc::clone(&clock), config)?;
    loop {
        let permit = permits.as_ref().map_or(Permit::Granted, |permits| *permits.borrow());
        let limit = lead.now().map_or(patience, |tenure| tenure.left);
        let failed = {
            let round = pin!(contender.round(permit));
            let patience = pin!(clock.sleep(limit));
            match select(round, patience).await {
                Either::Left((Err(error), _)) => Some(error.to_string()),
                Either::Left((Ok(()), _)) => None,
                Either::Right(((), _)) => Some("the store did not answer in time".to_owned()),
            }
        };
        let was = lead.subscribe().borrow().is_some();
        let candidate = &contender.candidate;
        *lead.unattended.lock().unwrap_or_else(PoisonError::into_inner) = candidate.unattended();
        lead.set(candidate.leading().zip(candidate.leads_until()));
        match (was, lead.now(), failed) {
            (false, Some(tenure), _) => tracing::info!(epoch = tenure.fence.epoch.0, "this process leads"),
            (true, None, why) => {
                let why = why.unwrap_or_else(|| contender.laid_down.unwrap_or_default().to_owned());
                tracing::warn!(why, "this process no longer leads");
            }
            (_, _, Some(why)) => tracing::warn!(why, "a round of the election failed; it is tried again"),
            (_, _, None) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = clock.sleep(contender.candidate.pause()) => {}
        }
    }
    lead.set(None);
    contender.candidate.release().await
}

/// Older than every claim.
const NO_CLAIM: Revision = Revision(0);

/// A candidate for the store's lease that heeds another election.
#[derive(Debug)]
struct Contender {
    candidate: Candidate,
    store: Arc<dyn Store>,
    holder: String,
    claim_key: String,
    /// How old the claim was when nobody could be asked for the first time; `None` before that.
    claim: Option<Revision>,
    /// Why leadership was laid down, if it was.
    laid_down: Option<&'static str>,
}

impl Contender {
    fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, config: LeaseConfig) -> Result<Self, StoreError> {
        let (holder, claim_key) = (config.holder.clone(), config.claim_key());
        let candidate = Candidate::new(Arc::clone(&store), clock, config)?;
        Ok(Self { candidate, store, holder, claim_key, claim: None, laid_down: None })
    }

    async fn round(&mut self, permit: Permit) -> Result<(), StoreError> {
        let leads = self.candidate.leading().is_some();
        match permit {
            Permit::Granted => {
                (self.claim, self.laid_down) = (None, None);
                if let Standing::Following { leader: Some(_) } = self.candidate.step().await? {
                    let claim = Txn::new().put(&self.claim_key, self.holder.clone());
                    let _ = self.store.commit(claim).await?; // nothing is compared, so it is not refused
                }
            }
            Permit::Refused => self.lay_down("the Lease elects another process").await?,
            Permit::Unknown if !leads => drop(self.candidate.look().await?),
            Permit::Unknown => {
                if self.is_claimed().await? {
                    self.lay_down("another process was elected while the API server could not be asked")
                        .await?;
                } else {
                    self.candidate.step().await?;
                }
            }
        }
        Ok(())
    }

    async fn lay_down(&mut self, why: &'static str) -> Result<(), StoreError> {
        if self.candidate.leading().is_some() {
            self.laid_down = Some(why);
        }
        self.candidate.lay_down();
        self.candidate.look().await.map(drop)
    }

    /// Whether somebody has claimed the lease since nobody could be asked. What was written before that may be the
    /// word of a process that is gone.
    async fn is_claimed(&mut self) -> Result<bool, StoreError> {
        let now = self.store.get(&self.claim_key).await?.map_or(NO_CLAIM, |entry| entry.modified);
        Ok(*self.claim.get_or_insert(now) != now)
    }
}
