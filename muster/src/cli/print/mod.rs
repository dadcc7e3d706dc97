//! What is shown and how: tables, YAML, ages, differences. Nothing here talks to a server.

pub(crate) mod age;
pub(crate) mod format;
pub(crate) mod table;
pub(crate) mod unified;
pub(crate) mod yaml;

/// The items, each on a line of its own.
pub(crate) fn lines<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string() + "\n").collect()
}
