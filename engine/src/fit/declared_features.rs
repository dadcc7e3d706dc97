//! `NodeDeclaredFeatures`: features that a pod needs and a node has to declare.

use muster_model::k8s::{Node, PodSpec};

use super::Rejection;

const HOST_NETWORK_USERS: &str = "UserNamespacesHostNetworkSupport";
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
/// The action of a restart rule that needs the feature above.
const RESTART_ALL_ACTION: &str = "RestartAllContainers";

/// The features that the pod needs.
pub fn needed(spec: &PodSpec) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if spec.host_network && spec.host_users == Some(false) {
        needed.push(HOST_NETWORK_USERS);
    }
    let mut rules = spec
        .containers
        .iter()
        .chain(&spec.init_containers)
        .flat_map(|container| &container.restart_policy_rules);
    if rules.any(|rule| &*rule.action == RESTART_ALL_ACTION) {
        needed.push(RESTART_ALL);
    }
    needed
}

pub(super) fn check(needed: &[&str], node: &Node) -> Result<(), Rejection> {
    let declared = |feature: &&str| node.status.declared_features.iter().any(|known| **known == **feature);
    if needed.iter().all(declared) {
        return Ok(());
    }
    Err(Rejection::unresolvable("node(s) didn't match Pod's required features"))
}
