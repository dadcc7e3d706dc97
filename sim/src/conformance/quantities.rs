//! Quantity strings and what they are worth.

use muster_model::Quantity;
use serde::{Deserialize, Serialize};

use super::compare::Differences;

#[derive(Debug, Clone, Deserialize)]
pub struct QuantityCase {
    #[serde(rename = "in")]
    pub text: String,
    #[serde(default)]
    pub err: bool,
    /// Beyond what the real parser can hold: its numbers need not be matched.
    #[serde(default)]
    pub overflow: bool,
    pub value: Option<String>,
    pub milli: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuantityAnswer {
    #[serde(rename = "in")]
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milli: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub err: bool,
}

pub fn compute(text: &str) -> QuantityAnswer {
    let read = text.parse::<Quantity>().ok();
    QuantityAnswer {
        text: text.to_owned(),
        value: read.map(|quantity| quantity.value().to_string()),
        milli: read.map(|quantity| quantity.milli().to_string()),
        err: read.is_none(),
    }
}

pub fn compare(found: &QuantityAnswer, case: &QuantityCase, differences: &mut Differences) {
    differences.value("err", &found.err, &case.err);
    if !case.overflow {
        differences.value("value", &found.value, &case.value);
        differences.value("milli", &found.milli, &case.milli);
    }
}
