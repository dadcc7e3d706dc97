//! Label selectors and requirements: pure matching, no state.
//!
//! A selector that the API server would not accept (an unknown operator, a value that cannot be a label
//! value, …) matches nothing.

use muster_model::k8s::{LabelSelector, Labels, Operator, Requirement};

/// The longest label value, and the longest name part of a label key.
const MAX_NAME: usize = 63;
/// The longest domain in front of a label key.
const MAX_DOMAIN: usize = 253;

/// Whether `labels` satisfy `selector`; no selector selects nothing, an empty one everything.
pub fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_some_and(|selector| is_valid(selector) && holds(selector, labels))
}

/// Whether the API server would accept the selector on labels.
pub fn is_valid(selector: &LabelSelector) -> bool {
    let pairs = selector.match_labels.iter().all(|(key, value)| is_label_key(key) && is_label_value(value));
    pairs
        && selector.match_expressions.iter().all(|requirement| {
            is_valid_requirement(requirement) && !matches!(requirement.operator, Operator::Gt | Operator::Lt)
        })
}

/// As [`selects`], for a selector that is known to be valid.
pub fn holds(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.text(key) == Some(&**value))
        && selector.match_expressions.iter().all(|requirement| requirement_holds(requirement, labels))
}

/// Whether one requirement holds for `labels`; `NotIn` and `DoesNotExist` hold without the label.
pub fn requirement_holds(requirement: &Requirement, labels: &Labels) -> bool {
    let found = labels.text(&requirement.key);
    let listed = |value: &str| requirement.values.iter().any(|listed| &**listed == value);
    match requirement.operator {
        Operator::In => found.is_some_and(listed),
        Operator::NotIn => !found.is_some_and(listed),
        Operator::Exists => found.is_some(),
        Operator::DoesNotExist => found.is_none(),
        Operator::Gt => compare(requirement, found).is_some_and(|(label, bound)| label > bound),
        Operator::Lt => compare(requirement, found).is_some_and(|(label, bound)| label < bound),
        Operator::Other => false,
    }
}

/// The label and the bound as integers; nothing if either is not one.
fn compare(requirement: &Requirement, found: Option<&str>) -> Option<(i64, i64)> {
    let [bound] = &*requirement.values else { return None };
    Some((found?.parse().ok()?, bound.parse().ok()?))
}

/// Whether a requirement can be evaluated at all.
pub fn is_valid_requirement(requirement: &Requirement) -> bool {
    let values = &requirement.values;
    let counted = match requirement.operator {
        Operator::In | Operator::NotIn => !values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => values.is_empty(),
        Operator::Gt | Operator::Lt => values.len() == 1 && values[0].parse::<i64>().is_ok(),
        Operator::Other => false,
    };
    counted && is_label_key(&requirement.key) && values.iter().all(|value| is_label_value(value))
}

/// Whether `value` may be the value of a label.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Whether `key` may be the key of a label: a name, or a domain, a slash and a name.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((domain, name)) => is_domain(domain) && is_name(name),
    }
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && text.len() <= MAX_NAME
        && bytes.iter().all(inner)
}

fn is_domain(text: &str) -> bool {
    let part = |part: &str| {
        let bytes = part.as_bytes();
        let end = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        end(bytes.first())
            && end(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    !text.is_empty() && text.len() <= MAX_DOMAIN && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_on_a_label() {
        #[track_caller]
        fn check(operator: Operator, values: &[&str], label: Option<&str>, expected: bool) {
            let requirement = Requirement {
                key: "k".into(),
                operator,
                values: values.iter().map(|value| Box::from(*value)).collect(),
            };
            let labels: Labels = label.map(|value| ("k", Box::from(value))).into_iter().collect();
            let found = is_valid_requirement(&requirement) && requirement_holds(&requirement, &labels);
            assert_eq!(found, expected, "{operator:?} {values:?} {label:?}");
        }
        check(Operator::In, &["a", "b"], Some("b"), true);
        check(Operator::In, &["a"], None, false);
        check(Operator::In, &[""], Some(""), true);
        check(Operator::In, &[""], None, false);
        check(Operator::In, &[], Some("a"), false);
        check(Operator::NotIn, &["a"], None, true);
        check(Operator::NotIn, &["a"], Some("a"), false);
        check(Operator::Exists, &[], Some(""), true);
        check(Operator::DoesNotExist, &[], None, true);
        check(Operator::Gt, &["5"], Some("6"), true);
        check(Operator::Gt, &["5"], Some("5"), false);
        check(Operator::Gt, &["5"], Some("5.5"), false);
        check(Operator::Gt, &["5"], Some("99999999999999999999"), false);
        check(Operator::Gt, &["05"], Some("010"), true); // leading zeros are decimal
        check(Operator::Lt, &["5"], Some("4"), true);
        check(Operator::Lt, &["5"], None, false);
        check(Operator::Lt, &["-5"], Some("4"), false); // not a label value
        check(Operator::Lt, &["+5"], Some("4"), false); // not a label value
        check(Operator::Other, &["a"], Some("a"), false);
    }

    #[test]
    fn keys_and_values_of_labels() {
        for (text, value, key) in [
            ("", true, false),
            ("a.B_c-9", true, true),
            ("-a", false, false),
            ("a-", false, false),
            ("example.com/a", false, true),
            ("Example.com/a", false, false),
            ("/a", false, false),
            ("a/", false, false),
            ("a/b/c", false, false),
            ("é", false, false),
        ] {
            assert_eq!((is_label_value(text), is_label_key(text)), (value, key), "{text:?}");
        }
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
    }
}
