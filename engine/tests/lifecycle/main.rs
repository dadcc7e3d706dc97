//! The lifecycle of a host: its table row by row, the drift matrix, the faults of others as tests, and
//! whole stories in a small scripted world.

mod approval;
mod defects;
mod drains;
mod drift;
mod guards;
mod people;
mod properties;
mod reference;
mod rows;
mod scenarios;
mod unattended;
mod withheld;
mod world;
