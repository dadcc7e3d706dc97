//! Every store, judged by the same cases, and each by the faults of its own world.

mod conformance;
mod embedded;
mod etcd;
mod leading;
mod opening;
mod portable;
mod support;
