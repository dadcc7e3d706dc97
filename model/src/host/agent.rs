//! What the agent on a host said last about an order to power the host off.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The agent took a power-off token, and perhaps the host goes down with it. Stored, because the process that heard it may
/// be gone when it matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentGoodbye {
    /// The boot that ends with it.
    pub boot_id: String,
    /// The token's number, so that the audit can find it.
    pub token: String,
    pub at: Timestamp,
    /// The host goes down: the command that powers it off has succeeded. Without it, the order was taken and no more.
    #[serde(default)]
    pub left: bool,
}
