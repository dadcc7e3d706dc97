//! Where agents on hosts are answered: a port, because the messages belong to the driver that makes the tokens.

use std::fmt;

use async_trait::async_trait;
use muster_model::store::StoreError;
use serde_json::Value;
use thiserror::Error;

/// Why an agent gets no answer.
#[derive(Debug, Error)]
pub enum DeskError {
    #[error("this is no message of an agent: {why}")]
    Malformed { why: String },
    /// One text for every cause: a stranger learns neither which hosts there are nor how to forge.
    #[error("the message is not believed")]
    Distrusted { host: String, why: String },
    #[error("another process leads; say it there")]
    NotLeading,
    #[error("what the agent of {host} said could not be stored")]
    Store { host: String, source: StoreError },
}

/// Takes the messages of agents, as the bodies of requests. The host's own key proves who sent them.
#[async_trait]
pub trait AgentDesk: Send + Sync + fmt::Debug {
    /// A sign of life. The answer may hold the order to power off.
    async fn hello(&self, host: &str, message: Value) -> Result<Value, DeskError>;

    /// The agent powers its host off. `Ok` once that is stored: whoever leads next knows it too.
    async fn taken(&self, host: &str, message: Value) -> Result<(), DeskError>;
}
