//! What every handler can reach.

use std::sync::Arc;

use muster_control::{audit::AuditLog, explain::Explain, registry::Registry};
use muster_model::Clock;
use tokio_util::sync::CancellationToken;

use crate::{
    identity::Authenticator,
    limits::{Limits, RateLimit, WatchSlots},
    metrics::Metrics,
};

/// The parts of the service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    pub registry: Arc<Registry>,
    /// The planners' live state and the journal.
    pub explain: Explain,
    pub identity: Arc<Authenticator>,
    pub audit: Arc<AuditLog>,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub rate: Arc<RateLimit>,
    pub watches: Arc<WatchSlots>,
    /// Cancelled when the server is asked to stop; watches end then.
    pub stop: CancellationToken,
}
