//! Taints are one list that belongs to nobody: it is read, changed and written back whole.

use muster_model::k8s::Taint;
use serde_json::{Value, json};

use super::{Change, taint_value};

/// With these taints; one with the same key and effect is replaced.
pub(super) fn added(seen: &Value, wanted: &[Taint]) -> Change {
    let before = list(seen);
    let mut after = before.clone();
    for taint in wanted {
        let value = taint_value(taint);
        match after.iter_mut().find(|one| same(one, &value)) {
            Some(one) if one["value"] == value["value"] => {}
            Some(one) => *one = value,
            None => after.push(value),
        }
    }
    change(&before, after)
}

/// Without the taints of this key, whatever their effect.
pub(super) fn removed(seen: &Value, key: &str) -> Change {
    let before = list(seen);
    let after = before.iter().filter(|one| one["key"] != key).cloned().collect();
    change(&before, after)
}

fn list(seen: &Value) -> Vec<Value> {
    seen["spec"]["taints"].as_array().cloned().unwrap_or_default()
}

fn same(one: &Value, other: &Value) -> bool {
    one["key"] == other["key"] && one["effect"] == other["effect"]
}

fn change(before: &[Value], after: Vec<Value>) -> Change {
    if before == after {
        return Change::None;
    }
    let taints = if after.is_empty() { Value::Null } else { Value::from(after) };
    Change::Patch(json!({"metadata": {}, "spec": {"taints": taints}}))
}

#[cfg(test)]
mod tests {
    use muster_model::k8s::Effect;

    use super::*;

    #[test]
    fn taints_of_others_stay_as_they_are() {
        #[track_caller]
        fn check(change: Change, expected: Option<Value>) {
            let found = match change {
                Change::None => None,
                Change::Patch(patch) => Some(patch["spec"]["taints"].clone()),
            };
            assert_eq!(found, expected);
        }
        let seen = json!({"spec": {"taints": [
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-11-16T00:00:00Z"}]}});
        let taint = |key: &str, value: &str, effect| Taint { key: key.into(), value: value.into(), effect };
        let unreachable = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-11-16T00:00:00Z"});
        let gpu = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
        check(added(&seen, &[taint("gpu", "yes", Effect::NoSchedule)]), None);
        check(
            added(&seen, &[taint("gpu", "no", Effect::NoSchedule)]),
            Some(json!([{"key": "gpu", "value": "no", "effect": "NoSchedule"}, unreachable])),
        );
        check(
            added(&seen, &[taint("muster.dev/off", "", Effect::NoSchedule)]),
            Some(json!([gpu, unreachable, {"key": "muster.dev/off", "effect": "NoSchedule"}])),
        );
        check(removed(&seen, "gpu"), Some(json!([unreachable])));
        check(removed(&seen, "absent"), None);
        check(removed(&json!({"spec": {"taints": [gpu]}}), "gpu"), Some(Value::Null));
        check(removed(&json!({"spec": {}}), "gpu"), None);
    }
}
