//! What Muster does with its nouns: the registry of clusters and pools, and the audit log.
//!
//! Everything here works against ports (`Store`, `Clock`); nothing knows HTTP.

pub mod audit;
pub mod freeze;
pub mod registry;
