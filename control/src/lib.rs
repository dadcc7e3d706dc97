//! What Muster does with its nouns: the registry of clusters and pools, the inventory of servers, the planner of each
//! cluster with its journal and actuator, the freeze, and the audit log.
//! What Muster does with its nouns: the registry of clusters and pools, the inventory of servers, the planner of
//! each cluster with its journal and actuator, the host loop that switches machines, and the audit log.
//! each cluster with its journal and actuator, and the audit log.
//! each cluster with its journal and actuator, the host loop that switches machines, the freeze, and the audit log.
//!
//! Everything here works against ports (`Store`, `Clock`, `ClusterPort`, `Triggers`); nothing knows HTTP.

pub mod actuator;
pub mod audit;
pub mod connector;
pub mod explain;
pub mod freeze;
pub mod hosts;
pub mod inventory;
pub mod journal;
pub mod lead;
pub mod planner;
pub mod registry;
pub mod snapshot;
