//! etcd, in the ways that members and networks fail. Real members, on loopback.

mod access;
mod answers;
mod faults;
mod history;
