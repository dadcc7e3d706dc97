//! What Muster does with its nouns: the registry of clusters and pools, the inventory of servers, and the audit
//! log.
//!
//! Everything here works against ports (`Store`, `Clock`); nothing knows HTTP.

pub mod audit;
pub mod inventory;
pub mod registry;
