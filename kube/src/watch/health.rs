//! How each watch is doing, for people and for the rule that nothing is decided on old or missing knowledge.

use std::collections::BTreeMap;

use muster_model::{
    Timestamp,
    observe::{NotSynced, Waiting},
};
use serde::Serialize;

/// All watches of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    pub sources: Vec<SourceHealth>,
    /// When the slowest source was last known to be current.
    pub fresh_at: Timestamp,
    /// What the API server calls its version, once it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// One watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceHealth {
    /// Plural and lower case: `pods`.
    pub kind: String,
    pub state: SourceState,
    /// Why, when the state is not [`SourceState::Watching`].
    pub why: String,
    /// Since when it is in that state.
    pub since: Timestamp,
    /// Whether it has been complete at least once.
    pub synced: bool,
    /// When it was last known to be current.
    pub fresh_at: Timestamp,
    pub objects: usize,
    /// Complete lists, the first included.
    pub lists: u64,
    /// Connections that ended.
    pub reconnects: u64,
    /// Objects that could not be read, all told.
    pub unreadable: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceState {
    /// The first list, or a new one, is under way.
    Listing,
    Watching,
    /// The API server forbids it.
    Denied,
    /// The API server does not answer, or says that it cannot.
    Broken,
    /// The cluster does not serve this kind.
    NotServed,
}

#[derive(Debug, Default)]
pub(crate) struct Sources {
    by_kind: BTreeMap<&'static str, SourceHealth>,
    registered: bool,
    pub(super) version: Option<String>,
}

impl Sources {
    pub(super) fn entry(&mut self, kind: &'static str, now: Timestamp) -> &mut SourceHealth {
        self.registered = true;
        self.by_kind.entry(kind).or_insert_with(|| SourceHealth {
            kind: kind.to_owned(),
            state: SourceState::Listing,
            why: "its first list is under way".to_owned(),
            since: now,
            synced: false,
            fresh_at: Timestamp::EPOCH,
            objects: 0,
            lists: 0,
            reconnects: 0,
            unreadable: 0,
        })
    }

    /// The API server answered a question that was asked at `asked`: connections that are open and not
    /// silent for too long count as current then.
    pub(super) fn alive(&mut self, asked: Timestamp) {
        for source in self.by_kind.values_mut() {
            if matches!(source.state, SourceState::Watching | SourceState::NotServed) {
                source.fresh_at = source.fresh_at.max(asked);
            }
        }
    }

    pub(super) fn all_synced(&self) -> Result<(), NotSynced> {
        let waiting: Vec<Waiting> = self
            .by_kind
            .values()
            .filter(|source| !source.synced)
            .map(|source| Waiting { kind: source.kind.clone(), why: source.why.clone(), since: source.since })
            .collect();
        if waiting.is_empty() && self.registered {
            return Ok(());
        }
        Err(NotSynced { total: u32::try_from(self.by_kind.len()).unwrap_or(u32::MAX), waiting })
    }

    pub(super) fn fresh_at(&self) -> Timestamp {
        self.by_kind.values().map(|source| source.fresh_at).min().unwrap_or(Timestamp::EPOCH)
    }

    pub(super) fn health(&self) -> Health {
        Health {
            sources: self.by_kind.values().cloned().collect(),
            fresh_at: self.fresh_at(),
            version: self.version.clone(),
        }
    }
}
