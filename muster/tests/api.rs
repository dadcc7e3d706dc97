//! The acceptance rows of the node-pool API, over HTTP, against the real binary, on each store.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

#[path = "api/bodies.rs"]
mod bodies;
#[path = "api/conditions.rs"]
mod conditions;
#[path = "api/faults.rs"]
mod faults;
#[path = "api/foreign.rs"]
mod foreign;
#[path = "api/guide.rs"]
mod guide;
#[path = "api/harness.rs"]
mod harness;
#[path = "api/hosts.rs"]
mod hosts;
#[path = "api/limits.rs"]
mod limits;
#[path = "api/lists.rs"]
mod lists;
#[path = "api/metrics.rs"]
mod metrics;
#[path = "api/own.rs"]
mod own;
#[path = "api/seed.rs"]
mod seed;
#[path = "api/service.rs"]
mod service;
#[path = "api/status.rs"]
mod status;
#[path = "api/writes.rs"]
mod writes;
