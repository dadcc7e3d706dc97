//! The drivers behind [`muster_model::power::Power`].
//!
//! [`redfish`], [`ipmi`], [`wol`], [`agent`], [`webhook`] and [`dry_run`] each reach machines in one way.
//! In which order they are tried is the business of whoever calls them. [`address`] decides what may be called at
//! all, [`tls`] whom to trust. Nothing here keeps time of its own, reads the environment or starts a program.

pub mod address;
pub mod agent;
pub mod dry_run;
mod http;
pub mod ipmi;
mod job;
pub mod redfish;
pub mod sign;
mod slots;
pub mod tls;
pub mod webhook;
pub mod wol;

pub use http::Limits;
