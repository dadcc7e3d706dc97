//! The decision engine.

pub mod lifecycle;
