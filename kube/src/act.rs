//! What is done to nodes and their pods.
//!
//! A node is read freshly before it is changed, and changed only if it is still what was read: a foreign mark, a
//! node that has registered anew, or a taint that somebody added meanwhile is never overwritten. Status updates
//! of the kubelet change a node all the time, so a lost race is looked at again at once, a few times; waiting
//! and trying later is the caller's business.

mod evict;
mod pods;
mod taints;

use muster_model::{
    k8s::{Effect, Labels, Taint},
    observe::{ActError, Acted, CORDON_MARK, NodeAction},
};
use serde_json::{Value, json};

use crate::{
    client::{Call, Client, FIELD_MANAGER},
    error::KubeError,
    guard::Guard,
    watch::Shared,
};

/// How often a lost race with the kubelet's status updates (every few seconds at most) is run again.
const RACES: u32 = 4;

pub(crate) struct Actor<'a> {
    pub(crate) client: &'a Client,
    pub(crate) shared: &'a Shared,
    pub(crate) guard: &'a Guard,
}

/// What a fresh look at the node asks for.
enum Change {
    /// It is so already.
    None,
    /// A merge patch; the node's version is added.
    Patch(Value),
}

impl Actor<'_> {
    pub(crate) async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError> {
        for name in names(node, action) {
            if !is_name(name) {
                let why = "an object's name has only lower case letters, digits, '-' and '.'".to_owned();
                return Err(ActError::Refused { what: format!("{} {name:?}", action.verb()), why });
            }
        }
        if takes_away(action)
            && let Some(why) = self.guard.refuses(&self.shared.lock().state, node)
        {
            return Err(ActError::Protected { what: format!("node {node}"), why: why.to_string() });
        }
        let what = format!("{} node {node}", action.verb());
        match action {
            NodeAction::Cordon { op } => self.change(node, &what, |seen| Ok(cordon(seen, op))).await,
            NodeAction::Uncordon => self.change(node, &what, |seen| Ok(uncordon(seen))).await,
            NodeAction::AddTaint(taint) => {
                self.change(node, &what, |seen| Ok(taints::added(seen, std::slice::from_ref(taint)))).await
            }
            NodeAction::RemoveTaint { key } => {
                self.change(node, &what, |seen| Ok(taints::removed(seen, key))).await
            }
            NodeAction::Label { labels, taints } => {
                let labelled = self.label(node, &what, labels).await?;
                let tainted = self.change(node, &what, |seen| Ok(taints::added(seen, taints))).await?;
                Ok(match (labelled, tainted) {
                    (Acted::Gone, _) | (_, Acted::Gone) => Acted::Gone,
                    (Acted::AlreadySo, Acted::AlreadySo) => Acted::AlreadySo,
                    _ => Acted::Done,
                })
            }
            NodeAction::DeleteNode { uid } => self.delete(node, &what, uid).await,
            NodeAction::Evict { pod, uid, grace_seconds } => self.evict(node, pod, uid, *grace_seconds).await,
        }
    }

    /// Reads the node and patches it, if it is still the same.
    async fn change(
        &self,
        node: &str,
        what: &str,
        wanted: impl Fn(&Value) -> Result<Change, ActError>,
    ) -> Result<Acted, ActError> {
        let path = node_path(node);
        let mut lost = String::new();
        for _ in 0..RACES {
            let Some(seen) = self.read(&path, what).await? else { return Ok(Acted::Gone) };
            let Change::Patch(mut patch) = wanted(&seen)? else { return Ok(Acted::AlreadySo) };
            patch["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"].clone();
            let at = format!("{path}?fieldManager={FIELD_MANAGER}");
            match self.client.text(what, Call::merge(&at, patch)).await {
                Ok(_) => return Ok(Acted::Done),
                Err(error) if error.status() == Some(404) => return Ok(Acted::Gone),
                Err(KubeError::Status { code: 409, message, .. }) => lost = message,
                Err(error) => return Err(refusal(what, error)),
            }
        }
        Err(ActError::Conflict { what: format!("node {node}"), why: lost })
    }

    async fn read(&self, path: &str, what: &str) -> Result<Option<Value>, ActError> {
        match self.client.call(what, Call::get(path)).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(refusal(what, error)),
        }
    }

    /// Applies labels under our name: those that we applied before and are not given any more go.
    async fn label(&self, node: &str, what: &str, labels: &Labels) -> Result<Acted, ActError> {
        let path = node_path(node);
        let Some(seen) = self.read(&path, what).await? else { return Ok(Acted::Gone) };
        let as_given =
            labels.iter().all(|(key, value)| seen["metadata"]["labels"][key].as_str() == Some(&**value));
        let ours = applied_labels(&seen);
        if as_given && ours.iter().all(|key| labels.contains(key)) {
            return Ok(Acted::AlreadySo);
        }
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(key, value)| (key.to_owned(), Value::from(&**value))).collect();
        // The uid keeps an apply from making a node that somebody has just deleted.
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node, "uid": seen["metadata"]["uid"], "labels": labels},
        });
        let at = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        match self.client.text(what, Call::apply(&at, body)).await {
            Ok(_) => Ok(Acted::Done),
            Err(error) if error.status() == Some(404) => Ok(Acted::Gone),
            Err(KubeError::Status { code: 409, message, .. }) => {
                Err(ActError::Conflict { what: format!("node {node}"), why: message })
            }
            Err(error) => Err(refusal(what, error)),
        }
    }

    async fn delete(&self, node: &str, what: &str, uid: &str) -> Result<Acted, ActError> {
        let options = json!({"preconditions": {"uid": uid}});
        match self.client.text(what, Call::delete(&node_path(node), options)).await {
            Ok(_) => Ok(Acted::Done),
            Err(error) if error.status() == Some(404) => Ok(Acted::Gone),
            Err(KubeError::Status { code: 409, message, .. }) => {
                Err(ActError::Conflict { what: format!("node {node}"), why: message })
            }
            Err(error) => Err(refusal(what, error)),
        }
    }
}

fn node_path(node: &str) -> String {
    format!("/api/v1/nodes/{node}")
}

/// What becomes part of a path.
fn names<'a>(node: &'a str, action: &'a NodeAction) -> Vec<&'a str> {
    match action {
        NodeAction::Evict { pod, .. } => vec![node, &pod.namespace, &pod.name],
        _ => vec![node],
    }
}

/// Whether it can be an object's name; anything else could lead to another path.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed) && text.bytes().any(|byte| byte != b'.')
}

/// Whether it can take a node or its pods away.
const fn takes_away(action: &NodeAction) -> bool {
    match action {
        NodeAction::Cordon { .. } | NodeAction::Evict { .. } | NodeAction::DeleteNode { .. } => true,
        NodeAction::AddTaint(taint) => matches!(taint.effect, Effect::NoExecute),
        NodeAction::Uncordon | NodeAction::Label { .. } | NodeAction::RemoveTaint { .. } => false,
    }
}

fn cordon(seen: &Value, op: &str) -> Change {
    let mark = seen["metadata"]["annotations"][CORDON_MARK].as_str();
    let cordoned = seen["spec"]["unschedulable"].as_bool() == Some(true);
    match (cordoned, mark) {
        // Somebody else's: it does what we need, and is not ours to take back.
        (true, None) => Change::None,
        (true, Some(mark)) if mark == op => Change::None,
        _ => Change::Patch(json!({
            "metadata": {"annotations": {CORDON_MARK: op}},
            "spec": {"unschedulable": true},
        })),
    }
}

fn uncordon(seen: &Value) -> Change {
    if seen["metadata"]["annotations"][CORDON_MARK].as_str().is_none() {
        return Change::None;
    }
    Change::Patch(json!({
        "metadata": {"annotations": {CORDON_MARK: null}},
        "spec": {"unschedulable": null},
    }))
}

/// Which labels were applied under our name.
fn applied_labels(seen: &Value) -> Vec<&str> {
    let managers = seen["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    managers
        .iter()
        .filter(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
        .filter_map(|entry| entry["fieldsV1"]["f:metadata"]["f:labels"].as_object())
        .flat_map(|labels| labels.keys().filter_map(|key| key.strip_prefix("f:")))
        .collect()
}

/// What an error means for whoever asked.
fn refusal(what: &str, error: KubeError) -> ActError {
    let what = what.to_owned();
    match error {
        KubeError::Status { code: 401 | 403, message, .. } => ActError::Denied { what, why: message },
        // Too busy, or broken for now: the same as no answer.
        KubeError::Status { code: 429 | 500..=599, message, .. } => {
            ActError::Unreachable { what, why: message }
        }
        KubeError::Status { message, .. } => ActError::Refused { what, why: message },
        KubeError::Unreachable { why, .. }
        | KubeError::Unreadable { why, .. }
        | KubeError::Credentials { why, .. } => ActError::Unreachable { what, why },
        KubeError::Timeout { limit, .. } => {
            ActError::Unreachable { what, why: format!("no answer within {limit}") }
        }
    }
}

/// Used by [`taints`] and its tests.
fn taint_value(taint: &Taint) -> Value {
    let mut value = json!({"key": &*taint.key, "effect": taint.effect});
    if !taint.value.is_empty() {
        value["value"] = Value::from(&*taint.value);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(change: Change) -> Option<Value> {
        match change {
            Change::None => None,
            Change::Patch(patch) => Some(patch),
        }
    }

    #[test]
    fn a_cordon_is_ours_or_left_alone() {
        #[track_caller]
        fn check(unschedulable: bool, mark: Option<&str>, cordons: bool, uncordons: bool) {
            let seen = json!({"metadata": {"annotations": {CORDON_MARK: mark}},
                "spec": {"unschedulable": unschedulable}});
            assert_eq!(patch(cordon(&seen, "op-1")).is_some(), cordons, "cordon {seen}");
            assert_eq!(patch(uncordon(&seen)).is_some(), uncordons, "uncordon {seen}");
        }
        check(false, None, true, false);
        check(true, None, false, false); // a person's
        check(true, Some("op-1"), false, true);
        check(true, Some("op-0"), true, true); // an operation of ours that is over
        check(false, Some("op-1"), true, true); // a person took our cordon back: the mark is litter
    }

    #[test]
    fn a_name_cannot_lead_to_another_path() {
        for name in ["n1", "ip-10-0-0-1.eu.internal"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "../pods", "n1/status", "n1?x=1", "N1", "n 1", "ü"] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn labels_that_we_applied_are_found_in_managed_fields() {
        let seen = json!({"metadata": {"managedFields": [
            {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}}},
            {"manager": "muster", "operation": "Apply",
             "fieldsV1": {"f:metadata": {"f:labels": {"f:nodepool": {}, "f:muster.dev/pool": {}}}}}]}});
        assert_eq!(applied_labels(&seen), ["muster.dev/pool", "nodepool"]);
        assert!(applied_labels(&json!({"metadata": {}})).is_empty());
    }
}
