//! The decision engine.

pub mod solve;
