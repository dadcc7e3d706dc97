//! The host loop on a store in memory, with machines and a cluster that do what a test says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::await_holding_lock, reason = "a story looks at its own world, on one thread")]

mod advice;
#[path = "../support/asked.rs"]
mod asked;
mod crashes;
mod energy;
mod late;
mod left_behind;
mod limits;
mod rows;
mod unsafe_store;
mod withheld;
mod world;
