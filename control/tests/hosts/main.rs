//! The host loop on a store in memory, with machines and a cluster that do what a test says.

mod crashes;
mod limits;
mod rows;
mod world;
