//! What is never drained: ourselves, our store, and the last of what a cluster cannot be without.
//!
//! Plans know these rules too. They are checked again here, at the last place before the API server, because
//! the loop that asks may be the one that is wrong.

use std::net::IpAddr;

use muster_model::k8s::{Pod, PodKey};

use crate::cache::{Key, State};

/// The rules of one cluster.
#[derive(Debug, Clone)]
pub struct Guard {
    pub nodes: Vec<ProtectedNode>,
    pub replicas: Vec<Critical>,
}

/// A node that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedNode {
    pub which: NodeIs,
    /// For example `Muster itself runs there`.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeIs {
    Named(String),
    /// One of the node's addresses is this: how the members of a store are known.
    At(IpAddr),
    /// This pod is bound to it.
    Running(PodKey),
}

/// Pods of which one has to stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Critical {
    /// As people call it: `cluster DNS`.
    pub name: String,
    pub namespace: String,
    /// A label that its pods carry.
    pub label: (String, String),
}

impl Default for Guard {
    fn default() -> Self {
        let critical = |name: &str, key: &str, value: &str| Critical {
            name: name.to_owned(),
            namespace: "kube-system".to_owned(),
            label: (key.to_owned(), value.to_owned()),
        };
        Self {
            nodes: Vec::new(),
            replicas: vec![
                critical("the API server", "component", "kube-apiserver"),
                critical("etcd", "component", "etcd"),
                critical("cluster DNS", "k8s-app", "kube-dns"),
            ],
        }
    }
}

impl Guard {
    /// Why nothing may be taken from this node, if there is a reason.
    pub(crate) fn refuses(&self, state: &State, node: &str) -> Option<String> {
        let protected = self.nodes.iter().find(|rule| match &rule.which {
            NodeIs::Named(name) => name == node,
            NodeIs::At(address) => state.addresses.get(node).is_some_and(|all| all.contains(address)),
            NodeIs::Running(pod) => {
                let key = Key { namespace: pod.namespace.clone(), name: pod.name.clone() };
                state.tables.pods.get(&key).is_some_and(|pod| is_on(pod, node))
            }
        });
        if let Some(rule) = protected {
            return Some(rule.why.clone());
        }
        let last = self.replicas.iter().find(|critical| {
            let here = state.tables.pods.iter().any(|pod| critical.covers(pod) && is_on(pod, node));
            here && !state.tables.pods.iter().any(|pod| {
                critical.covers(pod) && !is_on(pod, node) && pod.spec.node_name.is_some() && is_ready(pod)
            })
        })?;
        Some(format!("the last ready replica of {} runs there", last.name))
    }
}

impl Critical {
    fn covers(&self, pod: &Pod) -> bool {
        *pod.metadata.namespace == *self.namespace
            && pod.metadata.labels.text(&self.label.0) == Some(&self.label.1)
            && !pod.is_finished()
    }
}

fn is_on(pod: &Pod, node: &str) -> bool {
    pod.spec.node_name.as_deref() == Some(node)
}

fn is_ready(pod: &Pod) -> bool {
    !pod.is_terminating()
        && pod.status.condition("Ready").is_some_and(|condition| &*condition.status == "True")
}

#[cfg(test)]
mod tests {
    use muster_model::Timestamp;

    use super::*;
    use crate::cache::{Record, Seen};

    fn state(pods: &[(&str, &str, bool)]) -> State {
        let mut state = State::default();
        for (name, node, ready) in pods {
            let text = serde_json::json!({
                "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
                "spec": {"nodeName": node},
                "status": {"phase": "Running",
                    "conditions": [{"type": "Ready", "status": if *ready { "True" } else { "False" }}]},
            });
            let pod = Pod::read(text.to_string().as_bytes()).unwrap();
            let key = pod.key();
            let key = Key { namespace: key.namespace, name: key.name };
            Record::put(pod, &mut state, key, Seen::Live, Timestamp::EPOCH);
        }
        state.addresses.insert("b".into(), Box::new([[10, 0, 0, 2].into()]));
        state
    }

    #[test]
    fn the_last_replica_and_our_own_places_stay() {
        #[track_caller]
        fn check(pods: &[(&str, &str, bool)], node: &str, why: Option<&str>) {
            let mut guard = Guard::default();
            let rule = |which, why: &str| ProtectedNode { which, why: why.into() };
            guard.nodes = vec![
                rule(NodeIs::Named("self".into()), "Muster itself runs there"),
                rule(NodeIs::At([10, 0, 0, 2].into()), "it hosts the store"),
                rule(
                    NodeIs::Running(PodKey { namespace: "kube-system".into(), name: "me".into() }),
                    "our pod",
                ),
            ];
            assert_eq!(guard.refuses(&state(pods), node).as_deref(), why);
        }
        let last = Some("the last ready replica of cluster DNS runs there");
        check(&[("d1", "a", true), ("d2", "c", true)], "a", None);
        check(&[("d1", "a", true), ("d2", "c", false)], "a", last);
        check(&[("d1", "a", true), ("d2", "a", true)], "a", last); // both on one node
        check(&[("d1", "a", true)], "c", None);
        check(&[], "self", Some("Muster itself runs there"));
        check(&[], "b", Some("it hosts the store"));
        check(&[("me", "x", true), ("d", "y", true)], "x", Some("our pod"));
    }
}
