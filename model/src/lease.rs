//! A leader's lease with an epoch, on any [`Store`] and any [`Clock`].
//!
//! Two keys: `/muster/leases/{name}` holds who leads and is rewritten with every renewal;
//! `/muster/leases/{name}/epoch` is rewritten only when leadership changes hands, in the same commit, and the
//! revision of that commit is the epoch. Writes that carry the [`Fence`] ([`Txn::fenced`]) are refused as
//! soon as someone else has taken over, whatever the old leader believes.
//!
//! Nobody compares wall clocks. A candidate takes the lease when the record has not *changed* for its
//! duration on the candidate's own monotonic clock. The leader stops earlier, when it has not renewed for
//! [`LeaseConfig::renew_deadline`], counted from before the renewal was sent. The lease keeps two leaders from
//! working against each other most of the time; the fence makes it harmless when they do.

use std::{pin::pin, sync::Arc};

use futures::future::{Either, select};
use serde::{Deserialize, Serialize};

use crate::{
    Clock, Duration, Timestamp,
    store::{Committed, Entry, Expect, Fence, Revision, Store, StoreError, Txn},
};

/// Where leases are.
pub const LEASES: &str = "/muster/leases/";

/// Settings of one candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseConfig {
    /// What is led: one name per store and task.
    pub name: String,
    /// Who this is. Unique for every process that ever runs: host, process id and a random part.
    pub holder: String,
    /// How long others wait after the last change of the record.
    pub duration: Duration,
    /// How long after its last renewal a leader still acts. Shorter than `duration`.
    pub renew_deadline: Duration,
    /// Between two attempts to take or renew. Several fit into `renew_deadline`.
    pub retry: Duration,
    /// Nobody else can have the store open, so whoever the record names is gone and need not be waited for.
    pub sole: bool,
}

impl LeaseConfig {
    /// The times that Kubernetes' own components use: 15 s, 10 s, 2 s.
    pub fn new(name: impl Into<String>, holder: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            holder: holder.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            sole: false,
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        let why = if self.name.is_empty() || self.name.contains('/') {
            format!("lease name {:?} is empty or contains a slash", self.name)
        } else if self.holder.is_empty() {
            "a lease needs a holder".to_owned()
        } else if self.renew_deadline >= self.duration || self.retry >= self.renew_deadline {
            format!(
                "lease {:?} needs retry {} < renew deadline {} < duration {}",
                self.name, self.retry, self.renew_deadline, self.duration
            )
        } else {
            return Ok(());
        };
        Err(StoreError::Invalid { why })
    }

    pub fn record_key(&self) -> String {
        format!("{LEASES}{}", self.name)
    }

    pub fn epoch_key(&self) -> String {
        format!("{LEASES}{}/epoch", self.name)
    }

    /// Where one who was elected elsewhere and finds the lease taken says so, again in every round.
    pub fn claim_key(&self) -> String {
        format!("{LEASES}{}/claim", self.name)
    }
}

/// Whether a candidate may take the lease, where something beside the store elects who may: a Kubernetes `Lease`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// It was elected, and knows that this still holds.
    Granted,
    /// Somebody else was.
    Refused,
    /// Nobody can be asked, or nobody is elected. This takes nothing away from who leads, and gives nothing.
    Unknown,
}

/// What is stored at the record's key. Times are for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Empty once released.
    pub holder: String,
    pub duration: Duration,
    pub acquired: Timestamp,
    pub renewed: Timestamp,
    /// How often leadership changed hands.
    pub transitions: u64,
}

/// Who leads, as far as a candidate can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// This candidate, with the fence for its writes.
    Leading(Fence),
    /// Someone else; `None` when nobody does and the attempt to take over was beaten or too early.
    Following { leader: Option<String> },
}

/// One process's part in the election. Nothing happens by itself: [`Candidate::step`] is one round,
/// [`Candidate::run`] goes on for ever.
#[derive(Debug)]
pub struct Candidate {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    config: LeaseConfig,
    seen: Option<Seen>,
    held: Option<Held>,
    /// How long nobody had renewed when this candidate took the lease.
    unattended: Duration,
}

/// The record as it was last seen to change.
#[derive(Debug, Clone)]
struct Seen {
    revision: Revision,
    record: LeaseRecord,
    /// On the monotonic clock.
    since: Duration,
}

#[derive(Debug, Clone)]
struct Held {
    fence: Fence,
    /// When the last successful renewal was sent, on the monotonic clock.
    renewed: Duration,
}

impl Candidate {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        config: LeaseConfig,
    ) -> Result<Self, StoreError> {
        config.check()?;
        Ok(Self { store, clock, config, seen: None, held: None, unattended: Duration::ZERO })
    }

    /// The fence, as long as this candidate may act on its own leadership. Ask again before every effect.
    pub fn leading(&self) -> Option<Fence> {
        let held = self.held.as_ref()?;
        let age = self.clock.monotonic().saturating_sub(held.renewed);
        (age < self.config.renew_deadline).then(|| held.fence.clone())
    }

    /// Until when this candidate may act on its own leadership, on the monotonic clock.
    pub fn leads_until(&self) -> Option<Duration> {
        self.leading()?;
        self.held.as_ref().map(|held| held.renewed.saturating_add(self.config.renew_deadline))
    }

    /// How long the lease had not been renewed, by the wall clocks of the last leader and of this candidate, when this
    /// one began to lead. A clock that was set between them counts as time that passed.
    pub const fn unattended(&self) -> Duration {
        self.unattended
    }

    /// Who leads, from the last round; does not ask the store.
    pub fn standing(&self) -> Standing {
        match self.leading() {
            Some(fence) => Standing::Leading(fence),
            None => Standing::Following { leader: self.leader() },
        }
    }

    fn leader(&self) -> Option<String> {
        let holder = &self.seen.as_ref()?.record.holder;
        (!holder.is_empty() && *holder != self.config.holder).then(|| holder.clone())
    }

    /// One round: renews what is held, takes what is free, looks at what is not. An error leaves a leader
    /// leading until its deadline.
    pub async fn step(&mut self) -> Result<Standing, StoreError> {
        let sent = self.clock.monotonic();
        let led = self.leading().is_some();
        self.observe().await?;
        let last = self.seen.as_ref().map(|seen| seen.record.renewed);
        let mine = self.seen.as_ref().is_some_and(|seen| seen.record.holder == self.config.holder);
        match self.seen.clone() {
            Some(seen) if mine => self.renew(seen, sent).await?,
            Some(seen) if !self.expired(&seen) => self.held = None,
            seen => self.acquire(seen, sent).await?,
        }
        if !led && self.leading().is_some() {
            self.unattended = last.map_or(Duration::ZERO, |last| self.clock.now().since(last));
        }
        Ok(self.standing())
    }

    /// Looks without taking or renewing anything, so that the time which a silent leader has left is counted.
    pub async fn look(&mut self) -> Result<Standing, StoreError> {
        self.observe().await?;
        Ok(self.standing())
    }

    /// Stops acting on the lease and leaves it to run out: what was begun on it ends before another begins.
    pub fn lay_down(&mut self) {
        self.held = None;
    }

    /// Rounds for ever, `retry` apart, none longer than the renew deadline; `changed` hears of every change
    /// of leadership, and of its end in time even when the store hangs.
    pub async fn run(&mut self, mut changed: impl FnMut(Option<Fence>) + Send) {
        let mut told = None;
        loop {
            let limit = self.remaining();
            let clock = Arc::clone(&self.clock);
            {
                let round = pin!(self.step());
                let limit = pin!(clock.sleep(limit));
                // A round that fails or hangs changes nothing: `leading` runs out by itself.
                let _: Either<_, _> = select(round, limit).await;
            }
            let now = self.leading();
            if now.is_none() {
                self.held = None; // lapsed: to be taken again like anyone else
            }
            if now != told {
                changed(now.clone());
                told = now;
            }
            clock.sleep(self.pause().min(self.remaining())).await;
        }
    }

    /// How long to wait for the next round: the retry time, or less for one who follows a lease that runs out before. Rounds that
    /// take their time would otherwise come by up to a retry time after that.
    pub fn pause(&self) -> Duration {
        let others = self.seen.as_ref().filter(|seen| seen.record.holder != self.config.holder);
        let left = others.map(|seen| {
            let until = seen.since.saturating_add(self.wait(seen));
            until.saturating_sub(self.clock.monotonic())
        });
        left.filter(|left| *left > Duration::ZERO).unwrap_or(self.config.retry).min(self.config.retry)
    }

    /// How long a leader may still act, or a follower may wait for an answer.
    fn remaining(&self) -> Duration {
        let deadline = self.config.renew_deadline;
        match &self.held {
            Some(held) => held.renewed.saturating_add(deadline).saturating_sub(self.clock.monotonic()),
            None => deadline,
        }
    }

    /// Gives the lease up, so that the next candidate need not wait. Nothing happens if it is not held.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        let Some(held) = self.held.take() else { return Ok(()) };
        let Some(seen) = self.seen.clone() else { return Ok(()) };
        let record = LeaseRecord { holder: String::new(), renewed: self.clock.now(), ..seen.record };
        let txn = Txn::new()
            .expect(self.config.record_key(), Expect::Modified(seen.revision))
            .fenced(&held.fence)
            .put(self.config.record_key(), encode(&record));
        // Refused: someone else has it already, which is what was wanted.
        self.store.commit(txn).await.map(|_| ())
    }

    /// Looks at the record, and remembers since when it has been as it is.
    async fn observe(&mut self) -> Result<(), StoreError> {
        let entry = self.store.get(&self.config.record_key()).await?;
        self.saw(entry)
    }

    fn saw(&mut self, entry: Option<Entry>) -> Result<(), StoreError> {
        let Some(entry) = entry else {
            self.seen = None;
            return Ok(());
        };
        if self.seen.as_ref().is_some_and(|seen| seen.revision == entry.modified) {
            return Ok(());
        }
        let record = serde_json::from_slice(&entry.value).map_err(|error| StoreError::Invalid {
            why: format!("the record of lease {:?} at {} is not one: {error}", self.config.name, entry.key),
        })?;
        self.seen = Some(Seen { revision: entry.modified, record, since: self.clock.monotonic() });
        Ok(())
    }

    /// For how long a record that does not change is respected. The longer of the two: a leader with longer times than ours is not
    /// robbed, nor are we hurried by one that wrote nonsense.
    fn wait(&self, seen: &Seen) -> Duration {
        seen.record.duration.max(self.config.duration)
    }

    fn expired(&self, seen: &Seen) -> bool {
        self.config.sole
            || seen.record.holder.is_empty()
            || self.clock.monotonic().saturating_sub(seen.since) >= self.wait(seen)
    }

    async fn acquire(&mut self, seen: Option<Seen>, sent: Duration) -> Result<(), StoreError> {
        self.held = None;
        let now = self.clock.now();
        let record = LeaseRecord {
            holder: self.config.holder.clone(),
            duration: self.config.duration,
            acquired: now,
            renewed: now,
            transitions: seen.as_ref().map_or(0, |seen| seen.record.transitions + 1),
        };
        let expect = seen.map_or(Expect::Absent, |seen| Expect::Modified(seen.revision));
        let txn = Txn::new()
            .expect(self.config.record_key(), expect)
            .put(self.config.record_key(), encode(&record))
            .put(self.config.epoch_key(), self.config.holder.clone());
        match self.store.commit(txn).await? {
            Committed::Done { revision } => {
                self.seen = Some(Seen { revision, record, since: self.clock.monotonic() });
                self.hold(revision, sent);
                Ok(())
            }
            Committed::Refused { found, .. } => self.saw(found),
        }
    }

    fn hold(&mut self, epoch: Revision, sent: Duration) {
        let fence = Fence { key: self.config.epoch_key(), epoch };
        self.held = Some(Held { fence, renewed: sent });
    }

    async fn renew(&mut self, seen: Seen, sent: Duration) -> Result<(), StoreError> {
        let fence = match &self.held {
            Some(held) => held.fence.clone(),
            // The record is ours and we do not know it: an earlier attempt got through without an answer.
            None => match self.store.get(&self.config.epoch_key()).await? {
                Some(entry) if entry.value == self.config.holder => {
                    Fence { key: self.config.epoch_key(), epoch: entry.modified }
                }
                _ => return self.acquire(Some(seen), sent).await,
            },
        };
        let record = LeaseRecord { renewed: self.clock.now(), duration: self.config.duration, ..seen.record };
        let txn = Txn::new()
            .expect(self.config.record_key(), Expect::Modified(seen.revision))
            .fenced(&fence)
            .put(self.config.record_key(), encode(&record));
        match self.store.commit(txn).await? {
            Committed::Done { revision } => {
                self.seen = Some(Seen { revision, record, since: self.clock.monotonic() });
                self.hold(fence.epoch, sent);
                Ok(())
            }
            Committed::Refused { failed, found } => {
                self.held = None;
                // Only the first comparison is about the record; the second says that the epoch moved on.
                if failed == 0 { self.saw(found) } else { Ok(()) }
            }
        }
    }
}

fn encode(record: &LeaseRecord) -> Vec<u8> {
    serde_json::to_vec(record).expect("a lease record is plain data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_must_stop_before_others_may_start() {
        #[track_caller]
        fn check(duration: u64, renew_deadline: u64, retry: u64, fine: bool) {
            let config = LeaseConfig {
                duration: Duration::from_secs(duration),
                renew_deadline: Duration::from_secs(renew_deadline),
                retry: Duration::from_secs(retry),
                ..LeaseConfig::new("leader", "a")
            };
            assert_eq!(config.check().is_ok(), fine, "{config:?}");
        }
        // duration, renew deadline, retry => accepted
        check(15, 10, 2, true);
        check(10, 10, 2, false);
        check(15, 10, 10, false);
        assert!(LeaseConfig::new("a/b", "a").check().is_err());
        assert!(LeaseConfig::new("", "a").check().is_err());
        assert!(LeaseConfig::new("leader", "").check().is_err());
    }
}
