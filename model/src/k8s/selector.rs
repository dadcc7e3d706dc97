//! Label selectors and the requirements they share with node selectors.

use serde::{Deserialize, Serialize};

use super::{Labels, List, read::nullable};

/// Requirements on labels, all of which must hold. `{}` selects everything; an absent selector is a
/// `None` around this type and selects nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    pub match_labels: Labels,
    pub match_expressions: List<Requirement>,
}

impl LabelSelector {
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }
}

/// One requirement on the value of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirement {
    #[serde(deserialize_with = "nullable")]
    pub key: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub operator: Operator,
    pub values: List<Box<str>>,
}

/// How a requirement compares. `Gt` and `Lt` exist in node selectors only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    /// Not known here; holds for nothing.
    #[default]
    #[serde(other)]
    Other,
}
