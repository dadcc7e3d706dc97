//! The whole path in memory: from a pending pod to the intent of a host, with a clock that the test moves.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

#[path = "../support/asked.rs"]
mod asked;
mod down;
mod etcd;
mod facts;
mod grow;
mod history;
mod journal;
mod leaders;
mod pending;
mod provisioned;
mod silent;
mod stuck;
mod told;
mod unsynced;
mod world;
