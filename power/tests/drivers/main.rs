//! Drivers against machines: our emulators and peers that others wrote. One binary, so that it links once.

mod hostile;
mod ipmi;
mod lies;
mod others;
mod redfish;
mod sessions;
mod support;
