//! Drivers against machines: our emulators and peers that others wrote. One binary, so that it links once.

mod ipmi;
mod redfish;
mod support;
