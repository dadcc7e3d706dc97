//! The nouns of Muster, their validation, and the ports through which the rest of the system reaches
//! the outside world.
//!
//! Nothing here does I/O, reads a clock or knows an adapter. Every other crate depends on this one.

pub mod clock;
pub mod known;
pub mod power;
pub mod store;
pub mod time;

pub use clock::Clock;
pub use known::Known;
pub use time::{Duration, Timestamp};

/// API group of the custom resources, and prefix of every label and annotation that Muster writes.
pub const API_GROUP: &str = "muster.dev";
/// API version of the custom resources.
pub const API_VERSION: &str = "v1alpha1";
