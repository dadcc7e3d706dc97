//! Every store, judged by the same cases, and each by the faults of its own world.

mod conformance;
mod embedded;
mod support;
