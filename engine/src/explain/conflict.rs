//! The smallest contradiction inside a pod: two requirements that no node can satisfy together.

use muster_model::k8s::{Operator, Pod, Requirement as Rule};

use super::{
    constraint::say_requirement,
    types::{Conflict, Requirement},
};
use crate::fit::node_affinity;

/// Two requirements on one key that exclude each other. If the pod gives alternatives, every one of them
/// has to contain a contradiction, and that of the first is named.
pub(super) fn find(pod: &Pod) -> Option<Conflict> {
    let selector: Vec<(String, Rule)> = pod
        .spec
        .node_selector
        .iter()
        .map(|(key, value)| {
            let rule = Rule { key: key.into(), operator: Operator::In, values: [value.clone()].into() };
            (format!("spec.nodeSelector.{key}"), rule)
        })
        .collect();
    let terms = node_affinity::required(&pod.spec).map(|required| &required.node_selector_terms);
    let Some(terms) = terms.filter(|terms| !terms.is_empty()) else { return pair(&selector) };
    let mut first = None;
    for (at, term) in terms.iter().enumerate() {
        let path = format!(
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{at}]"
        );
        let mut rules = selector.clone();
        let expressions = term.match_expressions.iter().enumerate();
        rules.extend(expressions.map(|(at, rule)| (format!("{path}.matchExpressions[{at}]"), rule.clone())));
        let conflict = pair(&rules)?;
        first.get_or_insert(conflict);
    }
    first
}

fn pair(rules: &[(String, Rule)]) -> Option<Conflict> {
    for (at, (left_field, left)) in rules.iter().enumerate() {
        for (right_field, right) in &rules[at + 1..] {
            if left.key == right.key && (excludes(left, right) || excludes(right, left)) {
                let side = |field: &String, rule: &Rule| Requirement {
                    field: field.clone(),
                    text: say_requirement(rule),
                };
                return Some(Conflict { left: side(left_field, left), right: side(right_field, right) });
            }
        }
    }
    None
}

/// Whether no value of the label satisfies both.
fn excludes(left: &Rule, right: &Rule) -> bool {
    let number = |rule: &Rule| rule.values.first().and_then(|value| value.parse::<i64>().ok());
    match (left.operator, right.operator) {
        (Operator::In, Operator::In) => !left.values.iter().any(|value| right.values.contains(value)),
        (Operator::In, Operator::NotIn) => left.values.iter().all(|value| right.values.contains(value)),
        (Operator::In, Operator::Gt) => number(right)
            .is_some_and(|bound| left.values.iter().all(|v| v.parse::<i64>().map_or(true, |v| v <= bound))),
        (Operator::In, Operator::Lt) => number(right)
            .is_some_and(|bound| left.values.iter().all(|v| v.parse::<i64>().map_or(true, |v| v >= bound))),
        (Operator::Gt, Operator::Lt) => {
            matches!((number(left), number(right)), (Some(low), Some(high)) if high.saturating_sub(low) < 2)
        }
        (Operator::In | Operator::Exists | Operator::Gt | Operator::Lt, Operator::DoesNotExist) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_exclude_each_other_are_found() {
        #[track_caller]
        fn check(spec: &str, expected: Option<(&str, &str)>) {
            let pod: Pod = serde_json::from_str(&format!("{{\"spec\":{spec}}}")).unwrap();
            let found = find(&pod).map(|conflict| (conflict.left.text, conflict.right.text));
            assert_eq!(found, expected.map(|(left, right)| (left.to_owned(), right.to_owned())));
        }
        let term = |rules: &str| {
            format!(
                "\"affinity\":{{\"nodeAffinity\":{{\"requiredDuringSchedulingIgnoredDuringExecution\":\
                 {{\"nodeSelectorTerms\":[{rules}]}}}}}}"
            )
        };
        let one = term(
            r#"{"matchExpressions":[{"key":"b","operator":"Exists"},{"key":"a","operator":"In","values":["2","3"]}]}"#,
        );
        check(&format!("{{\"nodeSelector\":{{\"a\":\"1\"}},{one}}}"), Some(("a=1", "a in (2, 3)")));
        check(&format!("{{\"nodeSelector\":{{\"a\":\"2\"}},{one}}}"), None);
        let two = term(
            r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]},{"matchExpressions":[{"key":"a","operator":"In","values":["1"]}]}"#,
        );
        check(&format!("{{\"nodeSelector\":{{\"a\":\"1\"}},{two}}}"), None); // the second alternative is possible
        let bounds = term(
            r#"{"matchExpressions":[{"key":"n","operator":"Gt","values":["4"]},{"key":"n","operator":"Lt","values":["5"]}]}"#,
        );
        check(&format!("{{{bounds}}}"), Some(("n > 4", "n < 5")));
    }
}
