//! etcd, in the ways that members and networks fail. Real members, on loopback.

mod access;
mod faults;
mod history;
