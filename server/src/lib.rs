//! The REST service: paths and bodies, identity, limits, metrics, and the listener underneath.

pub mod api;
pub mod app;
pub mod body;
pub mod collect;
pub mod collect_hosts;
pub mod collect_seed;
pub mod desk;
pub mod error;
pub mod example;
pub mod export;
pub mod frame;
pub mod identity;
pub mod limits;
pub mod listen;
pub mod metrics;
pub mod openapi;
mod opening;
pub mod page;
pub mod peer;
pub mod preconditions;
pub mod query;
pub mod routes;
pub mod tls;
