//! A reading of the outside world that may be missing.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What was read and when, or why nothing is known.
///
/// This is not `Option`: there is no default, and "unknown" can be read neither as zero nor as off.
/// Whoever wants the value has to say what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", untagged)]
#[serde(try_from = "Parts<T, Why>", bound(deserialize = "T: Deserialize<'de>, Why: Deserialize<'de>"))]
pub enum Known<T, Why = String> {
    Value { value: T, at: Timestamp },
    Unknown { why: Why, since: Timestamp },
}

/// How it is read: field by field, so that nothing has to be kept until it is clear which of the two it is.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>, Why: Deserialize<'de>"))]
struct Parts<T, Why> {
    value: Option<T>,
    at: Option<Timestamp>,
    why: Option<Why>,
    since: Option<Timestamp>,
}

impl<T, Why> TryFrom<Parts<T, Why>> for Known<T, Why> {
    type Error = &'static str;

    fn try_from(parts: Parts<T, Why>) -> Result<Self, Self::Error> {
        match parts {
            Parts { value: Some(value), at: Some(at), .. } => Ok(Self::Value { value, at }),
            Parts { why: Some(why), since: Some(since), .. } => Ok(Self::Unknown { why, since }),
            Parts { .. } => Err("a reading has `value` and `at`, or `why` and `since`"),
        }
    }
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
