//! What changed lately: per host for watches, and a short list of what the inventory did by itself.

use std::{collections::VecDeque, sync::Arc};

use muster_model::{Timestamp, store::Revision};
use serde::{Deserialize, Serialize};

use super::host::Host;

/// Changes kept in memory for watches. Each shares its host with the index; at 5,000 hosts that report once a
/// minute this is more than three minutes for a slow reader.
const MAX_CHANGES: usize = 16_384;
/// Events of the inventory that are kept, in about 40 KB.
pub(super) const MAX_EVENTS: usize = 200;
/// Changes by people and tools that are kept for each host.
pub(super) const MAX_HOST_CHANGES: usize = 50;

/// One commit's effect on one host.
#[derive(Debug, Clone)]
pub struct HostChange {
    pub revision: Revision,
    pub name: Arc<str>,
    pub before: Option<Arc<Host>>,
    pub after: Option<Arc<Host>>,
}

/// Recent changes in order.
#[derive(Debug, Default)]
pub(super) struct Ring {
    changes: VecDeque<Arc<HostChange>>,
    /// Every change after this revision is here.
    start: Revision,
}

impl Ring {
    pub(super) fn restart(&mut self, revision: Revision) {
        self.changes.clear();
        self.start = revision;
    }

    pub(super) fn push(&mut self, change: HostChange) {
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > MAX_CHANGES {
            let Some(gone) = self.changes.pop_front() else { break };
            self.start = gone.revision;
            while self.changes.front().is_some_and(|next| next.revision == gone.revision) {
                self.changes.pop_front();
            }
        }
    }

    /// Everything after `cursor`; `None` when the ring does not reach back that far.
    pub(super) fn after(&self, cursor: Revision) -> Option<Vec<Arc<HostChange>>> {
        if cursor < self.start {
            return None;
        }
        let from = self.changes.partition_point(|change| change.revision <= cursor);
        Some(self.changes.range(from..).cloned().collect())
    }
}

/// What the inventory noticed or did by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryEvent {
    pub at: Timestamp,
    /// One word: `SetAside`, `Accepted`, `MembersRestored`, `ConfigApplied`, `ConfigRestored`, `GlobalRefused`.
    pub reason: String,
    /// `host/gpu-07`, `pool/gpu`, `global/config`.
    pub object: String,
    pub message: String,
}

/// What people and tools did to one host's spec.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostChanges {
    /// SHA-256 of the spec that the last entry speaks of: another one was written by somebody else.
    pub digest: String,
    /// Oldest first.
    pub changes: Vec<SpecChange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecChange {
    pub at: Timestamp,
    pub by: String,
    /// `create`, `patch`, `hold`, `power`, `delete`, …; `direct` for a write past the API.
    pub verb: String,
    pub message: String,
    /// Whose the host was then: its name may be another project's later, and this is not theirs to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

impl HostChanges {
    /// Whose the host was last.
    pub(crate) fn project(&self) -> Option<String> {
        self.changes.last().and_then(|change| change.project.clone())
    }

    pub(crate) fn push(&mut self, digest: String, change: SpecChange) {
        self.digest = digest;
        self.changes.push(change);
        if self.changes.len() > MAX_HOST_CHANGES {
            self.changes.drain(..self.changes.len() - MAX_HOST_CHANGES);
        }
    }
}
