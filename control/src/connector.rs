//! The port to whatever opens connections to clusters: for those who hand in credentials and those who ask how a
//! connection is doing.

use std::fmt;

use async_trait::async_trait;
use muster_model::{ClusterId, Timestamp, connection::ConnectionWord};
use serde::Serialize;

use crate::inventory::Access;

/// What is known of a connection. Each process has its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionState {
    pub state: ConnectionWord,
    /// One sentence.
    pub message: String,
    /// What the API server calls its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// When everything was last known to be current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh_at: Option<Timestamp>,
    /// Kinds that are watched, and how many of them were complete at least once.
    pub kinds: u32,
    pub synced: u32,
    pub objects: u64,
    /// Kinds that are not current: name and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingKind>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingKind {
    pub kind: String,
    pub why: String,
    pub since: Timestamp,
}

impl ConnectionState {
    /// A state that needs only its word.
    pub fn bare(state: ConnectionWord, message: impl Into<String>) -> Self {
        Self {
            state,
            message: message.into(),
            kubernetes_version: None,
            fresh_at: None,
            kinds: 0,
            synced: 0,
            objects: 0,
            waiting: Vec::new(),
        }
    }
}

/// Opens connections.
#[async_trait]
pub trait Connector: Send + Sync + fmt::Debug {
    /// Judges credentials without calling anybody: the API server's address, or what is wrong with them. What is
    /// wrong never repeats a secret.
    async fn judge(&self, access: &Access) -> Result<String, String>;

    /// Calls the API server once with them; why not, if it does not take them.
    async fn probe(&self, access: &Access) -> Result<(), String>;

    fn state(&self, cluster: ClusterId) -> ConnectionState;

    /// Looks at once whether connections were set or forgotten.
    async fn refresh(&self);
}
