//! The wish that a host's record should go away.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, field::choice};

choice! {
    /// What happens to the machine before its record goes.
    #[derive(Default)]
    pub enum DeletionMode("a way to delete a host") {
        /// A serving host is drained first; its power is left as it is.
        #[default]
        Keep = "keep",
        /// The same, and it is switched off.
        PowerOff = "power-off",
        /// At once, and nothing is touched.
        Force = "force",
    }
}

/// Written into the spec by a person; the host loop deletes the records when the machine is ready for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deletion {
    pub mode: DeletionMode,
    pub by: String,
    pub at: Timestamp,
}
