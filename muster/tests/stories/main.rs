//! The whole way on real parts: a kube-apiserver with its scheduler and controllers, emulated servers that are switched
//! over Redfish and join by a kubelet, and `muster serve` as its own process. One control plane for all stories; each
//! has its own Muster, rack, pool and namespace.
//!
//! The stories that are ignored run in `make e2e`.
#![allow(clippy::disallowed_methods, reason = "tests wait in real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[allow(dead_code, reason = "shared with the tests of the API, which use all of it")]
#[path = "../api/harness.rs"]
mod harness;
#[path = "../api/prometheus.rs"]
mod prometheus;

mod blind;
mod demand;
mod disturbed;
mod drains;
mod elected;
mod groups;
mod inside;
mod keeps;
mod lab;
mod liar;
mod lied;
mod measured;
mod privilege;
mod replicas;
mod resources;
mod trouble;
mod twins;
mod verdicts;
mod wire;
