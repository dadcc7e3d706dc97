//! The handlers. Each reads its request strictly, asks the registry, and answers.

pub mod audit;
pub mod clusters;
pub mod decisions;
pub mod explain;
pub mod export;
mod follow;
pub mod freeze;
mod objects;
pub mod operations;
pub mod pools;
pub mod probes;
mod reply;
mod request;
mod selection;
pub mod status;
mod watch;

pub use request::Call;
