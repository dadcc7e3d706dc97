//! What the agent on a host said last, when it powered the host off.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The agent took a power-off token. Stored, because the process that heard it may be gone when it matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentGoodbye {
    /// The boot that ended with it.
    pub boot_id: String,
    /// The token's number, so that the audit can find it.
    pub token: String,
    pub at: Timestamp,
}
