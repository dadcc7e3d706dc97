//! An election by a Kubernetes `Lease`: who may raise the store's epoch.
//!
//! The rules are those that Kubernetes' own components follow. Nobody compares wall clocks: a candidate takes
//! the lease when the record has not *changed* for its duration on the candidate's own monotonic clock
//! (time in which the API server did not answer is left out: after it, the holder has the first word), and
//! a leader stops acting on it when its last renewal was sent longer ago than the renew deadline. Every write
//! is a compare-and-set on the object's version. What keeps a leader that does not know of its end from doing
//! harm is the store's fence, not this.

use std::{pin::pin, sync::Arc};

use futures::future::{Either, select};
use muster_model::{Clock, Duration, Timestamp, lease::Permit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Call, Client},
    error::KubeError,
    events::micro,
};

/// Settings of one candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionConfig {
    pub namespace: String,
    /// Of the `Lease`.
    pub name: String,
    /// Who this is; unique among all that ever run.
    pub holder: String,
    pub duration: Duration,
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl ElectionConfig {
    /// The times that Kubernetes' own components use: 15 s, 10 s, 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, holder: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            holder: holder.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Who leads, as far as this candidate can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elected {
    /// This candidate.
    Us,
    /// Somebody else; `None` when nobody does.
    Other(Option<String>),
}

/// The part of the record that is ours to write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
struct LeaseObject {
    metadata: Value,
    #[serde(default)]
    spec: LeaseSpec,
}

/// The record as it was last seen to change.
#[derive(Debug, Clone)]
struct Seen {
    spec: LeaseSpec,
    /// On the monotonic clock.
    since: Duration,
}

/// One process's part in the election. Nothing happens by itself: [`Election::step`] is one round.
#[derive(Debug)]
pub struct Election {
    client: Client,
    config: ElectionConfig,
    clock: Arc<dyn Clock>,
    seen: Option<Seen>,
    /// When the last renewal that succeeded was sent, on the monotonic clock.
    renewed: Option<Duration>,
    /// When the last round ended, on the monotonic clock.
    asked: Duration,
}

impl Election {
    pub fn new(client: Client, config: ElectionConfig) -> Self {
        let clock = Arc::clone(client.clock());
        let asked = clock.monotonic();
        Self { client, config, clock, seen: None, renewed: None, asked }
    }

    /// Whether this candidate may act on its leadership now. Ask again before every effect.
    pub fn leading(&self) -> bool {
        self.renewed.is_some_and(|at| self.clock.monotonic().saturating_sub(at) < self.config.renew_deadline)
    }

    /// Who leads, from the last round.
    pub fn elected(&self) -> Elected {
        if self.leading() {
            return Elected::Us;
        }
        let holder = self.seen.as_ref().and_then(|seen| seen.spec.holder_identity.clone());
        Elected::Other(holder.filter(|holder| !holder.is_empty() && *holder != self.config.holder))
    }

    /// One round: takes the lease, renews it, or sees that it is another's. It is given up before the retry
    /// time is over, so that a slow API server cannot make a renewal outlive the lease.
    pub async fn step(&mut self) -> Result<Elected, KubeError> {
        let limit = self.config.renew_deadline.saturating_sub(self.config.retry);
        let clock = Arc::clone(&self.clock);
        let round = {
            let round = pin!(self.attempt());
            let late = clock.sleep(limit);
            match select(round, pin!(late)).await {
                Either::Left((done, _)) => done,
                Either::Right(((), _)) => {
                    Err(KubeError::Timeout { what: "renew the lease".to_owned(), limit })
                }
            }
        };
        let now = self.clock.monotonic();
        let unknown = now.saturating_sub(std::mem::replace(&mut self.asked, now));
        // What nobody could ask about, nobody could renew: the time does not count against the holder.
        if round.is_err()
            && let Some(seen) = &mut self.seen
        {
            seen.since = seen.since.saturating_add(unknown);
        }
        round?;
        Ok(self.elected())
    }

    /// Takes part until `stop`, and tells through `permit` whether this process is the one that may take the
    /// store's own lease. Gives the `Lease` back at the end.
    pub async fn run(mut self, permit: watch::Sender<Permit>, stop: CancellationToken) {
        let publish = |now: Permit| {
            permit.send_if_modified(|before| std::mem::replace(before, now) != now);
        };
        let mut silent = false;
        while !stop.is_cancelled() {
            let round = self.step().await;
            match (&round, silent) {
                (Err(error), false) => {
                    tracing::warn!(lease = self.config.name, %error, "the election by Lease cannot be held; it is tried again");
                }
                (Ok(_), true) => tracing::info!(lease = self.config.name, "the election by Lease goes on"),
                _ => {}
            }
            silent = round.is_err();
            publish(self.permit(round.as_ref().ok()));
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.clock.sleep(self.config.retry) => {
                    if !self.leading() {
                        publish(self.permit(round.as_ref().ok()));
                    }
                }
            }
        }
        publish(Permit::Unknown);
        if let Err(error) = self.release().await {
            tracing::warn!(lease = self.config.name, %error, "the lease could not be given back; it runs out");
        }
    }

    /// What the last round means for the store's lease. Only another's name in the record is a refusal.
    fn permit(&self, round: Option<&Elected>) -> Permit {
        match round {
            _ if self.leading() => Permit::Granted,
            Some(Elected::Other(Some(_))) => Permit::Refused,
            _ => Permit::Unknown,
        }
    }

    /// Gives the lease back, so that another takes it at once. Only if it is still ours.
    pub async fn release(&mut self) -> Result<(), KubeError> {
        if self.renewed.take().is_none() {
            return Ok(());
        }
        let Some(object) = self.read().await? else { return Ok(()) };
        if object.spec.holder_identity.as_deref() != Some(&self.config.holder) {
            return Ok(());
        }
        let mut spec = object.spec.clone();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        self.write(&object.metadata, &spec).await.map(drop)
    }

    async fn attempt(&mut self) -> Result<(), KubeError> {
        let now = self.clock.now();
        let Some(object) = self.read().await? else { return self.create(now).await };
        self.notice(&object.spec);
        let ours = object.spec.holder_identity.as_deref() == Some(&self.config.holder);
        if !ours && !self.is_free(&object.spec) {
            self.renewed = None;
            return Ok(());
        }
        let mut spec = object.spec.clone();
        if !ours {
            spec.holder_identity = Some(self.config.holder.clone());
            spec.acquire_time = Some(micro(now));
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.renew_time = Some(micro(now));
        spec.lease_duration_seconds = Some(seconds(self.config.duration));
        let sent = self.clock.monotonic();
        match self.write(&object.metadata, &spec).await {
            Ok(written) => {
                self.notice(&written.spec);
                self.renewed = Some(sent);
                Ok(())
            }
            // Somebody was faster. The next round shows who.
            Err(error) if error.status() == Some(409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self, now: Timestamp) -> Result<(), KubeError> {
        let spec = LeaseSpec {
            holder_identity: Some(self.config.holder.clone()),
            lease_duration_seconds: Some(seconds(self.config.duration)),
            acquire_time: Some(micro(now)),
            renew_time: Some(micro(now)),
            lease_transitions: Some(0),
        };
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.config.name, "namespace": self.config.namespace}, "spec": spec,
        });
        let sent = self.clock.monotonic();
        match self.client.call::<LeaseObject>("create the lease", Call::post(&self.path(""), body)).await {
            Ok(made) => {
                self.notice(&made.spec);
                self.renewed = Some(sent);
                Ok(())
            }
            Err(error) if error.status() == Some(409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn read(&self) -> Result<Option<LeaseObject>, KubeError> {
        let path = self.path(&format!("/{}", self.config.name));
        match self.client.call("read the lease", Call::get(&path)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, metadata: &Value, spec: &LeaseSpec) -> Result<LeaseObject, KubeError> {
        let path = self.path(&format!("/{}", self.config.name));
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        });
        self.client.call("renew the lease", Call::put(&path, body)).await
    }

    fn path(&self, name: &str) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases{name}", self.config.namespace)
    }

    /// Remembers the record, and since when it is as it is.
    fn notice(&mut self, spec: &LeaseSpec) {
        if self.seen.as_ref().is_none_or(|seen| seen.spec != *spec) {
            self.seen = Some(Seen { spec: spec.clone(), since: self.clock.monotonic() });
        }
    }

    /// Nobody's, or not renewed for its own duration since we began to look.
    fn is_free(&self, spec: &LeaseSpec) -> bool {
        if spec.holder_identity.as_deref().is_none_or(str::is_empty) {
            return true;
        }
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts = lasts.map_or(self.config.duration, Duration::from_secs);
        self.seen.as_ref().is_some_and(|seen| self.clock.monotonic().saturating_sub(seen.since) > lasts)
    }
}

fn seconds(length: Duration) -> i64 {
    i64::try_from(length.millis().div_ceil(1000)).unwrap_or(i64::MAX)
}
