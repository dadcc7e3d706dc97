//! The three stores behind [`muster_model::store::Store`], and what every one of them needs around it.
//!
//! * [`memory`]: for tests and the simulation. Deterministic, without a clock or a thread.
//! * [`embedded`]: one file, durable, for one control-plane process.
//! * [`etcd`]: for several processes, and for sharing the inventory with other tools.
//! * [`conformance`]: the cases that every implementation passes, as a library, so that any crate can run
//!   them on any store.
//! * [`portable`]: export, import and verification, independent of the implementation.
//! * [`open()`]: from what the user wrote on the command line to a store that is ready.
//!
//! The promises themselves are written at the port, in `muster_model::store`.

pub mod conformance;
pub mod embedded;
pub mod etcd;
mod factory;
mod feed;
pub mod memory;
pub mod portable;

pub use factory::{FORMAT, FORMAT_KEY, Migration, OpenOptions, Target, open, upgrade};
