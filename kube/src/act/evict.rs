//! One eviction, through the disruption budgets.

use muster_model::{
    k8s::{Pod, PodKey},
    observe::{ActError, Acted},
};
use serde_json::json;

use super::{Actor, refusal};
use crate::{
    cache::{Key, State},
    client::Call,
    error::{Details, KubeError},
};

impl Actor<'_> {
    pub(super) async fn evict(
        &self,
        node: &str,
        pod: &PodKey,
        uid: &str,
        grace_seconds: Option<i64>,
    ) -> Result<Acted, ActError> {
        let what = format!("evict pod {pod}");
        if let Some(answer) = known(&self.shared.lock().state, node, pod, uid)? {
            return Ok(answer);
        }
        let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
        let mut options = json!({"preconditions": {"uid": uid}});
        if let Some(seconds) = grace_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": &*pod.name, "namespace": &*pod.namespace},
            "deleteOptions": options,
        });
        match self.client.text(&what, Call::post(&path, body)).await {
            Ok(_) => Ok(Acted::Done),
            // Also when another pod has taken its name: the one that we meant is gone.
            Err(error) if matches!(error.status(), Some(404 | 409)) => Ok(Acted::Gone),
            Err(KubeError::Status { code: 429, message, details, .. }) if is_budget(&details) => {
                Err(ActError::Budget {
                    pod: pod.to_string(),
                    budget: budget_name(pod, &details).unwrap_or(message),
                    retry_after_seconds: details.retry_after_seconds,
                })
            }
            // Nothing may be made in a namespace that is going; its pods go with it.
            Err(KubeError::Status { code: 403, details, .. })
                if details.causes.iter().any(|(reason, _)| reason == "NamespaceTerminating") =>
            {
                Ok(Acted::AlreadySo)
            }
            // More than one budget covers the pod. The API calls that an error of its own; it is a refusal.
            Err(KubeError::Status { code: 500, message, .. })
                if message.contains("more than one PodDisruptionBudget") =>
            {
                Err(ActError::Refused { what, why: message })
            }
            Err(error) => Err(refusal(&what, error)),
        }
    }
}

/// The budget that stands in the way, which only the text of the answer names: "The disruption budget NAME
/// needs 1 healthy pods and has 1 currently", or "... NAME is still being processed".
fn budget_name(pod: &PodKey, details: &Details) -> Option<String> {
    let name = details
        .causes
        .iter()
        .find_map(|(_, message)| message.split_once("disruption budget ")?.1.split_whitespace().next())?;
    Some(format!("PodDisruptionBudget {}/{name}", pod.namespace))
}

fn is_budget(details: &Details) -> bool {
    details.causes.iter().any(|(reason, _)| reason == "DisruptionBudget")
}

/// What the cache already knows about the pod: that there is nothing to ask for.
fn known(state: &State, node: &str, pod: &PodKey, uid: &str) -> Result<Option<Acted>, ActError> {
    let key = Key { namespace: pod.namespace.clone(), name: pod.name.clone() };
    let Some(seen) = state.tables.pods.get(&key).filter(|seen| *seen.metadata.uid == *uid) else {
        return Ok(None); // the cache may lag behind whoever asks
    };
    if seen.is_terminating() {
        return Ok(Some(Acted::AlreadySo));
    }
    let conflict = |why: String| Err(ActError::Conflict { what: format!("pod {pod}"), why });
    match seen.spec.node_name.as_deref() {
        Some(bound) if bound == node => {}
        Some(bound) => return conflict(format!("it runs on {bound}, not on {node}")),
        None => return conflict("it is not bound to any node".to_owned()),
    }
    if let Some(why) = stays(seen) {
        return Err(ActError::Protected { what: format!("pod {pod}"), why: why.to_owned() });
    }
    Ok(None)
}

/// Pods that an eviction does not take from their node.
fn stays(pod: &Pod) -> Option<&'static str> {
    if pod.metadata.annotations.contains("kubernetes.io/config.mirror") {
        return Some("it is a static pod of the node itself");
    }
    let daemon = pod.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet");
    daemon.then_some("it belongs to a DaemonSet, which would make it again on the same node")
}
