//! Daemon pods: one on every node that their set wants.

use std::sync::Arc;

use muster_model::k8s::{
    Affinity, DaemonSet, Effect, List, Node, NodeSelector, NodeSelectorTerm, Operator, OwnerReference, Pod,
    PodSpec, Requirement, Toleration, TolerationOperator,
};

use super::instance;
use crate::fit::{node_affinity, taints};

/// Taints that daemon pods are made to tolerate, with their effect.
const TOLERATED: [(&str, Effect); 6] = [
    ("node.kubernetes.io/not-ready", Effect::NoExecute),
    ("node.kubernetes.io/unreachable", Effect::NoExecute),
    ("node.kubernetes.io/disk-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/unschedulable", Effect::NoSchedule),
];
/// Tolerated as well by daemon pods in the network of the node.
const TOLERATED_ON_HOST_NETWORK: (&str, Effect) =
    ("node.kubernetes.io/network-unavailable", Effect::NoSchedule);

/// Whether the set wants a pod on the node: its selector and affinity match, and it tolerates the taints.
pub fn wants_node(set: &DaemonSet, node: &Node) -> bool {
    let spec = &set.spec.template.spec;
    let named = spec.node_name.as_deref().is_none_or(|name| name == node.name());
    named
        && node_affinity::matches(spec, node)
        && taints::untolerated(&node.spec.taints, &tolerations(spec)).is_none()
}

/// The pod that the set would make for a node, before admission.
pub fn daemon_pod(set: &DaemonSet, node: &str) -> Pod {
    let name = format!("{}-{node}", set.metadata.name);
    let mut pod = instance(&set.spec.template, &set.metadata.namespace, &name);
    pod.metadata.owner_references = List::from([OwnerReference {
        api_version: "apps/v1".into(),
        kind: "DaemonSet".into(),
        name: (&*set.metadata.name).into(),
        uid: set.metadata.uid.clone(),
        controller: true,
    }]);
    let spec = Arc::make_mut(&mut pod.spec);
    spec.tolerations = tolerations(spec).into();
    spec.affinity = Some(pinned(spec.affinity.take().unwrap_or_default(), node));
    pod
}

fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let extra = spec.host_network.then_some(TOLERATED_ON_HOST_NETWORK);
    let added = TOLERATED.into_iter().chain(extra).map(|(key, effect)| Toleration {
        key: key.into(),
        operator: TolerationOperator::Exists,
        effect: Some(effect),
        ..Toleration::default()
    });
    spec.tolerations.iter().cloned().chain(added).collect()
}

/// The required node affinity is replaced by the name of the node: the set has already checked it.
fn pinned(mut affinity: Affinity, node: &str) -> Affinity {
    let by_name = Requirement {
        key: "metadata.name".into(),
        operator: Operator::In,
        values: List::from([node.into()]),
    };
    let term = NodeSelectorTerm { match_fields: List::from([by_name]), ..NodeSelectorTerm::default() };
    let mut wanted = affinity.node_affinity.take().unwrap_or_default();
    wanted.required = Some(NodeSelector { node_selector_terms: List::from([term]) });
    affinity.node_affinity = Some(wanted);
    affinity
}
