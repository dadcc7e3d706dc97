//! What the parts of a server meet outside of the process: clusters, machines and Prometheus, or whatever plays them.

use std::sync::Arc;

use muster_control::{connector::Connector, hosts::Agents, inventory::Prober, planner::Connections};
use muster_model::{Duration, lease::LeaseConfig, power::Power, trigger::Triggers};

/// A world that is played instead of the real one. The loops do not notice.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) connections: Arc<dyn Connections>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) triggers: Arc<dyn Triggers>,
    pub(crate) agents: Arc<dyn Agents>,
    /// `None`: BMCs are called as in production, wherever the inventory says that they are.
    pub(crate) machines: Option<Machines>,
    /// How many seconds pass in this world in one real second. Other processes, which the leader's lease is for, live
    /// in real time.
    pub(crate) speed: f64,
}

/// Drivers for machines that are not there.
#[derive(Debug)]
pub(crate) struct Machines {
    pub(crate) drivers: Vec<Arc<dyn Power>>,
    pub(crate) prober: Arc<dyn Prober>,
}

impl Played {
    /// The lease with the same real times as in production.
    pub(super) fn lease(&self, config: LeaseConfig) -> LeaseConfig {
        let longer = |length: Duration| Duration::from(length.as_std().mul_f64(self.speed.max(1.0)));
        LeaseConfig {
            duration: longer(config.duration),
            renew_deadline: longer(config.renew_deadline),
            retry: longer(config.retry),
            ..config
        }
    }
}
