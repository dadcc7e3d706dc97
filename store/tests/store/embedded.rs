//! The embedded store, in the ways that files and processes fail.

mod access;
mod crash;
mod damage;
mod full;
mod history;
mod measure;
