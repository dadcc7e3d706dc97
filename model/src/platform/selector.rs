//! Label selectors: which hosts may serve a pool.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::typed_at;
use crate::{
    field::{FieldError, Findings, Object, choice},
    names,
    pool::{LabelUse, Labels, read_labels},
};

/// Expressions that one selector may have, and values that one expression may have.
const MAX_EXPRESSIONS: usize = 50;

choice! {
    pub enum SelectorOperator("a selector operator") {
        In = "In",
        NotIn = "NotIn",
        Exists = "Exists",
        DoesNotExist = "DoesNotExist",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    pub key: String,
    pub operator: SelectorOperator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Everything in it must hold; an empty selector matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub match_labels: Labels,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

impl Selector {
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }

    /// What the labels lack, one sentence each; none where they match.
    pub fn refusals(&self, labels: &Labels) -> Vec<String> {
        let has = |key: &str| {
            labels.get(key).map_or_else(|| format!("{key} is not set"), |value| format!("{key} is {value}"))
        };
        let unlike = self.match_labels.iter().filter(|(key, value)| labels.get(*key) != Some(*value));
        let mut refusals: Vec<String> =
            unlike.map(|(key, value)| format!("label {} and has to be {value}", has(key))).collect();
        for one in self.match_expressions.iter().filter(|one| !one.matches(labels)) {
            let values = one.values.join(", ");
            let wish = match one.operator {
                SelectorOperator::In => format!("has to be one of {values}"),
                SelectorOperator::NotIn => format!("has to be none of {values}"),
                SelectorOperator::Exists => "has to be".to_owned(),
                SelectorOperator::DoesNotExist => "must not be set".to_owned(),
            };
            refusals.push(format!("label {} and {wish}", has(&one.key)));
        }
        refusals
    }

    pub(super) fn at(block: &Map<String, Value>, name: &str) -> Option<Self> {
        typed_at(block, name)
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let listed = labels.get(&self.key).map(|value| self.values.contains(value));
        match self.operator {
            SelectorOperator::In => listed == Some(true),
            SelectorOperator::NotIn => listed != Some(true),
            SelectorOperator::Exists => listed.is_some(),
            SelectorOperator::DoesNotExist => listed.is_none(),
        }
    }
}

pub(super) fn check(block: &mut Object<'_>, name: &'static str, findings: &mut Findings) {
    let Some(mut object) = block.object(name, findings) else { return };
    read_labels(&mut object, "matchLabels", LabelUse::Selector, findings);
    for (path, item) in object.list("matchExpressions", MAX_EXPRESSIONS, findings).unwrap_or_default() {
        let Some(mut expression) = Object::read(item, path, findings) else { continue };
        check_expression(&mut expression, findings);
        expression.finish(findings);
    }
    object.finish(findings);
}

fn check_expression(expression: &mut Object<'_>, findings: &mut Findings) {
    match expression.text("key", 400, findings) {
        Some(key) => {
            if let Err(error) = names::check_label_key(key) {
                findings.push(FieldError::new(expression.at("key"), error.problem).found_text(key));
            }
        }
        None if expression.get("key").is_none() => {
            findings.push(FieldError::new(expression.at("key"), "is required"));
        }
        None => {}
    }
    let operator: Option<SelectorOperator> = expression.choice("operator", findings);
    if expression.get("operator").is_none() {
        findings.push(FieldError::new(expression.at("operator"), "is required"));
    }
    let values = expression.strings("values", MAX_EXPRESSIONS, findings).map_or(0, |values| values.len());
    let problem = match operator {
        Some(SelectorOperator::In | SelectorOperator::NotIn) if values == 0 => "needs at least one value",
        Some(SelectorOperator::Exists | SelectorOperator::DoesNotExist) if values > 0 => "must be left out",
        _ => return,
    };
    findings.push(FieldError::new(expression.at("values"), problem));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_choose_hosts() {
        #[track_caller]
        fn check(selector: Value, expected: bool) {
            let labels = Labels::from([("purpose".into(), "gpu".into()), ("rack".into(), "r1".into())]);
            let parsed: Selector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
        let one = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), true);
        check(json!({"matchLabels": {"purpose": "gpu"}}), true);
        check(json!({"matchLabels": {"purpose": "worker"}}), false);
        check(one("rack", "In", &["r1", "r2"]), true);
        check(one("rack", "NotIn", &["r1"]), false);
        check(one("zone", "NotIn", &["a"]), true); // as Kubernetes: a missing label is not in the list
        check(one("zone", "In", &["a"]), false);
        check(one("rack", "Exists", &[]), true);
        check(one("rack", "DoesNotExist", &[]), false);
    }
}
