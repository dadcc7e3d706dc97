//! What Muster does with its nouns: the registry of clusters and pools, the inventory of servers, the planner of
//! each cluster with its journal and actuator, the host loop that switches machines, the freeze, the audit log, and
//! what pages are made of: the news of what changed and the history of figures.
//!
//! Everything here works against ports (`Store`, `Clock`, `ClusterPort`, `Triggers`); nothing knows HTTP.

pub mod actuator;
pub mod audit;
pub mod connector;
pub mod explain;
pub mod freeze;
pub mod history;
pub mod hosts;
pub mod inventory;
pub mod journal;
pub mod lead;
pub mod news;
pub mod planner;
pub mod registry;
pub mod resources;
pub mod snapshot;
