//! What is shown and how: tables, YAML, ages, differences. Nothing here talks to a server.

pub(crate) mod age;
pub(crate) mod format;
pub(crate) mod table;
pub(crate) mod unified;
pub(crate) mod yaml;
