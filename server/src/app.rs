//! What every handler can reach.

use std::sync::Arc;

use muster_control::{
    audit::AuditLog,
    connector::Connector,
    explain::Explain,
    hosts::AgentDesk,
    inventory::{Inventory, Prober, Vault},
    registry::Registry,
};
use muster_model::Clock;
use tokio_util::sync::CancellationToken;

use crate::{
    desk::Desk,
    example::Example,
    export::Exporter,
    identity::Authenticator,
    limits::{Limits, RateLimit, WatchSlots},
    metrics::Metrics,
};

/// The parts of the service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    pub registry: Arc<Registry>,
    pub inventory: Arc<Inventory>,
    pub vault: Arc<Vault>,
    /// Opens connections to clusters.
    pub connector: Arc<dyn Connector>,
    /// Asks BMCs what they are.
    pub prober: Arc<dyn Prober>,
    /// Answers the agents on hosts.
    pub agents: Arc<dyn AgentDesk>,
    /// The planners' live state and the journal.
    pub explain: Explain,
    /// What pages are made of beside the nouns.
    pub desk: Arc<Desk>,
    pub identity: Arc<Authenticator>,
    pub audit: Arc<AuditLog>,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub rate: Arc<RateLimit>,
    pub watches: Arc<WatchSlots>,
    /// Writes the whole store out; absent where there is nothing to write.
    pub exporter: Option<Arc<dyn Exporter>>,
    /// The user guide's cluster and pool, when they were asked for.
    pub example: Option<Example>,
    /// Cancelled when the server is asked to stop; watches end then.
    pub stop: CancellationToken,
}
