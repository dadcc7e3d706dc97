//! The adapter against a real kube-apiserver, scheduler and controller manager, started once for all of these.
#![allow(clippy::disallowed_methods, reason = "tests wait in real time")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod acting;
mod connecting;
mod denied;
mod disturbed;
mod electing;
mod grouping;
mod kubelets;
mod proxy;
mod reviewing;
mod rights;
mod secrets;
mod support;
mod telling;
mod watching;
