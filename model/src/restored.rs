//! The mark that a store carries when what it holds may be older than the world: after an import, or when the
//! store was found behind what had been seen of it. Until the world has been observed again nothing may act.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, store::Revision};

/// As long as this key is there, what is stored may be older than the world.
pub const RESTORED_KEY: &str = "/muster/restored";
/// Written while an import is under way.
pub const RESTORING_KEY: &str = "/muster/restoring";

/// Where the contents of a store came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The revision in the store that was exported, or at which the store was found.
    pub revision: Revision,
    /// When it was exported; when it was noticed, if nobody knows.
    pub exported: Timestamp,
    /// When it was imported or noticed.
    pub imported: Timestamp,
    /// Digest of the export; empty when there was none.
    pub sha256: String,
    /// The store was found behind this revision, which it had reached before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Revision>,
}

impl Restored {
    /// One sentence for people.
    pub fn why(&self) -> String {
        match self.behind {
            Some(seen) => format!(
                "the store is at revision {} and had reached {seen} before: it was restored from something older",
                self.revision
            ),
            None => format!(
                "the store was restored at {} from an export of {} (revision {})",
                self.imported, self.exported, self.revision
            ),
        }
    }
}
