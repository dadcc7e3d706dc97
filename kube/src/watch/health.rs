//! How each watch is doing, for people and for the rule that nothing is decided on old or missing knowledge.

use std::collections::BTreeMap;

use muster_model::{
    Timestamp,
    observe::{NotSynced, Waiting, is_behind},
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
    revisions: BTreeMap<&'static str, Stands>,
}

/// How far a kind has come.
#[derive(Debug, Clone, Copy, Default)]
struct Stands {
    now: u64,
    highest: u64,
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

    /// A kind is now at this version, by a list or an event. Says whether that changes what [`Sources::behind`] says.
    /// Versions are numbers that grow with every write; one that is no number is not compared.
    pub(super) fn stands_at(&mut self, kind: &'static str, version: &str) -> bool {
        let Ok(now) = version.parse::<u64>() else { return false };
        let before = self.behind().is_some();
        let stands = self.revisions.entry(kind).or_default();
        stands.now = now;
        stands.highest = stands.highest.max(now);
        before != self.behind().is_some()
    }

    /// A kind that is shown as it was before what has been seen already.
    pub(super) fn behind(&self) -> Option<String> {
        let (kind, stands) = self.revisions.iter().find(|(_, stands)| stands.now < stands.highest)?;
        Some(is_behind(kind, stands.now, stands.highest))
    }

    pub(super) fn revisions(&self) -> BTreeMap<&'static str, u64> {
        self.revisions.iter().map(|(kind, stands)| (*kind, stands.now)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_goes_back_is_behind_until_it_has_caught_up() {
        let mut sources = Sources::default();
        let mut check = |kind, version, changes, behind: Option<&str>| {
            assert_eq!(sources.stands_at(kind, version), changes, "{kind} {version}");
            assert_eq!(sources.behind().as_deref(), behind, "{kind} {version}");
        };
        let old = "the API server shows pods of revision 7, and 12 was seen before: an old copy";
        check("pods", "12", false, None);
        check("leases", "3", false, None); // kinds may live in stores of their own
        check("pods", "7", true, Some(old));
        check("leases", "4", false, Some(old));
        check("pods", "what", false, Some(old));
        check("pods", "12", true, None);
        check("pods", "13", false, None);
    }
}
