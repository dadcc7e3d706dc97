//! The port to whatever answers a pool's metric triggers, and what such an answer is.
//!
//! Floats end here: a [`Finding`] tells whether a threshold is passed, and carries the value as text for
//! people. What is missing, odd or old is [`Known::Unknown`] with its own reason and never lowers capacity.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Known, Timestamp, pool::Trigger};

/// Whether a trigger's condition held for all of its duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The condition held over the whole duration.
    pub fires: bool,
    /// The last value, for people.
    pub value: String,
    /// One sentence with the numbers: value, threshold, duration.
    pub why: String,
}

/// Answers triggers.
#[async_trait]
pub trait Triggers: Send + Sync + fmt::Debug {
    /// Never an error: what cannot be answered is unknown, with the reason.
    async fn evaluate(&self, trigger: &Trigger, now: Timestamp) -> Known<Finding>;
}
