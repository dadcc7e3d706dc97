//! The handlers. Each reads its request strictly, asks the registry, and answers.

pub mod agent;
pub mod audit;
pub mod boot;
pub mod clusters;
pub mod connections;
pub mod credentials;
pub mod decisions;
pub mod energy;
pub mod explain;
pub mod export;
mod follow;
pub mod freeze;
pub mod host_actions;
pub mod host_bulk;
pub mod hosts;
pub mod inventory;
pub mod me;
pub mod named;
mod objects;
pub mod operations;
pub mod overview;
mod part;
pub mod pending;
pub mod pools;
pub mod probes;
mod refusals;
mod reply;
mod request;
mod scope;
pub mod search;
mod selection;
pub mod status;
pub mod stream;
mod watch;
pub mod what_if;

pub use request::Call;
