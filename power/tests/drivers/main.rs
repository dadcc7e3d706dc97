//! Drivers against machines: our emulators and peers that others wrote. One binary, so that it links once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hostile;
mod ipmi;
mod leave;
mod lies;
mod logs;
mod others;
mod redfish;
mod sessions;
mod support;
