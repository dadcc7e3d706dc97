//! JSON merge patches (RFC 7396), and what differs between two documents.

use serde::Serialize;
use serde_json::{Map, Value};

/// Applies `patch` to `target`: objects are merged, `null` removes, everything else replaces.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge_patch(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The patch that turns `from` into `to`. A `null` inside `to` cannot be expressed and counts as absent.
pub fn make_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| to.get(*name).is_none_or(Value::is_null)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to.iter().filter(|(_, value)| !value.is_null()) {
        match from.get(name) {
            Some(old) if old == value => {}
            Some(old) if old.is_object() && value.is_object() => {
                patch.insert(name.clone(), make_patch(old, value));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// One place in which two documents differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    pub path: String,
    /// `None` when the place is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// `None` when the place is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// Everything that changes from `old` to `new`, in the order of the paths.
pub fn diff(old: &Value, new: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    walk(String::new(), Some(old), Some(new), &mut differences);
    differences
}

fn walk(path: String, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Difference>) {
    match (old, new) {
        (Some(old), Some(new)) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let mut names: Vec<&String> =
                old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))).collect();
            names.sort();
            for name in names {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(inner, old.get(name), new.get(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                walk(format!("{path}[{index}]"), old.get(index), new.get(index), found);
            }
        }
        (old, new) => found.push(Difference { path, old: old.cloned(), new: new.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::test_support::any_json;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        #[track_caller]
        fn check(target: Value, patch: Value, expected: Value) {
            let mut result = target.clone();
            merge_patch(&mut result, &patch);
            assert_eq!(result, expected, "{target} + {patch}");
        }
        check(json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"}));
        check(json!({"a":"b"}), json!({"a":null}), json!({}));
        check(json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"}));
        check(json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]}));
        check(json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}}));
        check(json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a":"b"}), json!(["c"]), json!(["c"]));
        check(json!({"a":"foo"}), json!(null), json!(null));
        check(json!({"a":"foo"}), json!("bar"), json!("bar"));
        check(json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1}));
        check(json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"}));
        check(json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}}));
    }

    #[test]
    fn differences_name_every_changed_place() {
        let old = json!({"spec": {"nodeCount": 3, "zones": ["a", "b"], "gone": 1}});
        let new = json!({"spec": {"nodeCount": 5, "zones": ["a"], "labels": {"x": "y"}}});
        let found: Vec<String> = diff(&old, &new)
            .into_iter()
            .map(|d| {
                format!("{} {:?} {:?}", d.path, d.old.map(|v| v.to_string()), d.new.map(|v| v.to_string()))
            })
            .collect();
        assert_eq!(
            found,
            [
                "spec.gone Some(\"1\") None",
                "spec.labels None Some(\"{\\\"x\\\":\\\"y\\\"}\")",
                "spec.nodeCount Some(\"3\") Some(\"5\")",
                "spec.zones[1] Some(\"\\\"b\\\"\") None",
            ]
        );
    }

    fn without_nulls(value: Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(
                map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
            ),
            other => other,
        }
    }

    proptest! {
        #[test]
        fn patching_twice_is_patching_once(target in any_json(), patch in any_json()) {
            let mut once = target;
            merge_patch(&mut once, &patch);
            let mut twice = once.clone();
            merge_patch(&mut twice, &patch);
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn a_made_patch_leads_to_its_goal(from in any_json(), to in any_json()) {
            let (from, to) = (without_nulls(from), without_nulls(to));
            let mut result = from.clone();
            merge_patch(&mut result, &make_patch(&from, &to));
            prop_assert_eq!(result, to);
        }

        #[test]
        fn only_equal_documents_have_no_difference(old in any_json(), new in any_json()) {
            prop_assert_eq!(diff(&old, &new).is_empty(), old == new);
            prop_assert!(diff(&old, &old).is_empty());
        }
    }
}
