//! A reading of the outside world that may be missing.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What was read and when, or why nothing is known.
///
/// This is not `Option`: there is no default, and "unknown" can be read neither as zero nor as off.
/// Whoever wants the value has to say what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", untagged)]
pub enum Known<T, Why = String> {
    Value { value: T, at: Timestamp },
    Unknown { why: Why, since: Timestamp },
}

impl<T, Why> Known<T, Why> {
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Value { value, .. } => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    pub fn map<U>(self, read: impl FnOnce(T) -> U) -> Known<U, Why> {
        match self {
            Self::Value { value, at } => Known::Value { value: read(value), at },
            Self::Unknown { why, since } => Known::Unknown { why, since },
        }
    }
}
