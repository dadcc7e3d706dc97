//! What was decided, on what grounds, and what became of it. Nothing acts that is not in here.
//!
//! One stream of decisions per cluster, numbered from 1 without gaps. A decision is a small record with its
//! verdicts; beside it lies a *frame*: the whole snapshot and the plan, compressed and cut into pieces that every
//! store takes. A frame is a key frame, or what changed against the last one. Frames of the last [`REPLAYABLE`]
//! decisions are kept, older decisions keep their verdicts, the oldest are dropped.
//!
//! ```text
//! /muster/journal/{cluster id}/head                      number of the last decision, key frames that are kept
//! /muster/journal/{cluster id}/decisions/{number}        the record
//! /muster/journal/{cluster id}/frames/{number}/{piece}   snapshot and plan
//! ```
//!
//! The record and the head are written in one commit that compares the head's revision and the leader's
//! epoch, after the frame is complete. A leader that was superseded writes nothing.

mod compare;
mod delta;
mod frame;
mod prune;
mod query;
mod record;
mod replay;

use std::sync::Arc;

use muster_engine::{Plan, Snapshot};
use muster_model::{
    ClusterId,
    store::{Committed, Expect, Fence, Revision, Store, StoreError, Txn},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use compare::{Blame, Change, Comparison, Heading, Side, Subject, compare};
pub use query::{DecisionFilter, DecisionPage};
pub use record::{
    Action, ActionKind, Also, Cause, Decision, DecisionId, Draft, Effect, Evidence, Frame, FrameKind,
    Outcome, OutcomeState, Told,
};
pub use replay::{Difference, Replay, replay};

/// Decisions whose snapshot is kept.
pub const REPLAYABLE: u64 = 1_000;
/// Decisions whose record is kept. At about 1 KiB each they stay under 100 MiB; one that names hundreds of pods takes 10 KiB.
pub const KEPT: u64 = 100_000;
/// Decisions between two key frames: reading one costs at most two frames, and a change that is not like the
/// last one pays for itself soon.
const KEY_EVERY: u64 = 50;

pub const ROOT: &str = "/muster/journal/";

pub fn prefix(cluster: ClusterId) -> String {
    format!("{ROOT}{cluster}/")
}

pub fn head_key(cluster: ClusterId) -> String {
    format!("{ROOT}{cluster}/head")
}

pub fn decisions(cluster: ClusterId) -> String {
    format!("{ROOT}{cluster}/decisions/")
}

/// Numbers have a fixed width, so that keys are in the order of time.
pub fn decision_key(cluster: ClusterId, number: u64) -> String {
    format!("{ROOT}{cluster}/decisions/{number:016}")
}

fn frames(cluster: ClusterId) -> String {
    format!("{ROOT}{cluster}/frames/")
}

fn frame_key(cluster: ClusterId, number: u64, piece: usize) -> String {
    format!("{ROOT}{cluster}/frames/{number:016}/{piece:04}")
}

/// How far a cluster's journal has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    /// Of the last decision.
    number: u64,
    /// Numbers of the key frames that are kept, oldest first.
    key_frames: Vec<u64>,
    /// The oldest record that is kept.
    oldest: u64,
}

/// Why the journal refuses.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Somebody else leads. Nothing was written, and nothing may act.
    #[error("decision {number} was refused: this process no longer leads")]
    NotLeading { number: u64 },
    /// The head moved although we lead: two planners of one cluster, which is a bug of ours.
    #[error("decision {number} was refused: the journal has moved on")]
    Moved { number: u64 },
    #[error("there is no decision {id}")]
    Missing { id: String },
    #[error(
        "decision {id} can no longer be replayed: the snapshots of the last {REPLAYABLE} decisions are kept"
    )]
    TooOld { id: String },
    #[error("the journal holds something at {key} that cannot be read: {why}")]
    Damaged { key: String, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl JournalError {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotLeading { .. } => "JOURNAL_NOT_LEADING",
            Self::Moved { .. } => "JOURNAL_MOVED",
            Self::Missing { .. } => "JOURNAL_NO_DECISION",
            Self::TooOld { .. } => "JOURNAL_TOO_OLD",
            Self::Damaged { .. } => "JOURNAL_DAMAGED",
            Self::Store(error) => error.code(),
        }
    }
}

/// The journal of all clusters in one store.
#[derive(Debug, Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    replayable: u64,
    kept: u64,
}

impl Journal {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, replayable: REPLAYABLE, kept: KEPT }
    }

    /// With other bounds, so that tests reach them.
    #[must_use]
    pub fn with_bounds(mut self, replayable: u64, kept: u64) -> Self {
        (self.replayable, self.kept) = (replayable.max(1), kept.max(replayable));
        self
    }

    /// Appends a decision. When this returns `Ok` the decision is durable and may be acted on.
    pub async fn append(
        &self,
        fence: &Fence,
        draft: Draft,
        snapshot: &Snapshot,
        plan: &Plan,
    ) -> Result<Decision, JournalError> {
        let cluster = draft.cluster_id;
        let (mut head, revision) = self.head(cluster).await?;
        let number = head.number + 1;
        let text = frame::text(snapshot, plan);
        let base = self.base(cluster, &head, number).await?;
        let packed = frame::pack(&text, number, base.as_ref());
        self.put_frame(fence, cluster, number, &packed.bytes).await?;
        if packed.frame.kind == FrameKind::Key {
            head.key_frames.push(number);
        }
        head.number = number;
        head.oldest = head.oldest.max(1);
        let decision = draft.into_decision(number, fence.epoch, packed.frame);
        let head_key = head_key(cluster);
        let expect = revision.map_or(Expect::Absent, Expect::Modified);
        let pruned = prune::due(&head, self.replayable, self.kept);
        head.key_frames.retain(|key| !pruned.key_frames.contains(key));
        head.oldest = head.oldest.max(pruned.oldest);
        let txn = Txn::new()
            .fenced(fence)
            .expect(&head_key, expect)
            .put(&head_key, encode(&head))
            .put(decision_key(cluster, number), encode(&decision));
        self.commit(txn, number).await?;
        prune::sweep(self, fence, cluster, &pruned).await?;
        Ok(decision)
    }

    /// Writes down what became of a decision.
    pub async fn settle(
        &self,
        fence: &Fence,
        decision: &Decision,
        outcome: Outcome,
    ) -> Result<Decision, JournalError> {
        let key = decision_key(decision.cluster_id, decision.number);
        let entry = self.store.get(&key).await?;
        let entry = entry.ok_or_else(|| JournalError::Missing { id: decision.id.to_string() })?;
        let mut stored: Decision = decode(&key, &entry.value)?;
        stored.outcome = outcome;
        let txn = Txn::new()
            .fenced(fence)
            .expect(&key, Expect::Modified(entry.modified))
            .put(&key, encode(&stored));
        self.commit(txn, decision.number).await?;
        Ok(stored)
    }

    async fn commit(&self, txn: Txn, number: u64) -> Result<Revision, JournalError> {
        match self.store.commit(txn).await? {
            Committed::Done { revision } => Ok(revision),
            // The fence is always the first comparison.
            Committed::Refused { failed: 0, .. } => Err(JournalError::NotLeading { number }),
            Committed::Refused { .. } => Err(JournalError::Moved { number }),
        }
    }

    async fn put_frame(
        &self,
        fence: &Fence,
        cluster: ClusterId,
        number: u64,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        for (piece, part) in frame::pieces(bytes).enumerate() {
            let txn = Txn::new().fenced(fence).put(frame_key(cluster, number, piece), part.to_vec());
            self.commit(txn, number).await?;
        }
        Ok(())
    }

    /// The key frame that the next one is a change against, unless it is time for another.
    async fn base(
        &self,
        cluster: ClusterId,
        head: &Head,
        number: u64,
    ) -> Result<Option<frame::Base>, JournalError> {
        let Some(key) = head.key_frames.last().copied().filter(|key| number - key < KEY_EVERY) else {
            return Ok(None);
        };
        match self.key_text(cluster, key).await {
            Ok(text) => Ok(Some(frame::Base { number: key, text })),
            // A frame that cannot be read makes no later one unreadable.
            Err(JournalError::Damaged { key, why }) => {
                tracing::error!(key, why, "a key frame cannot be read; another one is written");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn head(&self, cluster: ClusterId) -> Result<(Head, Option<Revision>), JournalError> {
        let key = head_key(cluster);
        match self.store.get(&key).await? {
            None => Ok((Head::default(), None)),
            Some(entry) => Ok((decode(&key, &entry.value)?, Some(entry.modified))),
        }
    }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("a record of the journal is plain data")
}

fn decode<T: serde::de::DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, JournalError> {
    serde_json::from_slice(value)
        .map_err(|error| JournalError::Damaged { key: key.to_owned(), why: error.to_string() })
}
