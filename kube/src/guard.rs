//! What is never drained: ourselves, our store, and the last of what a cluster cannot be without.
//!
//! Plans know these rules too. They are checked again here, at the last place before the API server, because
//! the loop that asks may be the one that is wrong.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

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
    pub(crate) fn refuses(&self, state: &State, node: &str) -> Option<Arc<str>> {
        self.guarded(state).remove(node)
    }

    /// Every node from which nothing may be taken, and why.
    pub(crate) fn guarded(&self, state: &State) -> BTreeMap<Arc<str>, Arc<str>> {
        let mut guarded = BTreeMap::new();
        for critical in &self.replicas {
            let why: Arc<str> = format!("the last ready replica of {} runs there", critical.name).into();
            for node in critical.last_nodes(state) {
                guarded.insert(node, Arc::clone(&why));
            }
        }
        for rule in &self.nodes {
            for node in rule.which.nodes(state) {
                guarded.insert(node, rule.why.as_str().into());
            }
        }
        guarded
    }
}

impl NodeIs {
    fn nodes(&self, state: &State) -> Vec<Arc<str>> {
        match self {
            Self::Named(name) => vec![name.as_str().into()],
            Self::At(address) => {
                let there = state.addresses.iter().filter(|(_, all)| all.contains(address));
                there.map(|(node, _)| Arc::clone(node)).collect()
            }
            Self::Running(pod) => {
                let key = Key { namespace: pod.namespace.clone(), name: pod.name.clone() };
                let pod = state.tables.pods.get(&key);
                pod.and_then(|pod| pod.spec.node_name.as_deref()).map(Arc::from).into_iter().collect()
            }
        }
    }
}

impl Critical {
    /// The nodes that hold all of what is left: no pod that is ready runs elsewhere.
    fn last_nodes(&self, state: &State) -> Vec<Arc<str>> {
        let bound: Vec<(&Pod, &str)> = state
            .tables
            .pods
            .iter()
            .filter(|pod| self.covers(pod))
            .filter_map(|pod| Some((pod, pod.spec.node_name.as_deref()?)))
            .collect();
        let elsewhere = |node: &str| bound.iter().any(|(pod, on)| *on != node && is_ready(pod));
        bound.iter().map(|(_, node)| *node).filter(|node| !elsewhere(node)).map(Arc::from).collect()
    }

    fn covers(&self, pod: &Pod) -> bool {
        *pod.metadata.namespace == *self.namespace
            && pod.metadata.labels.text(&self.label.0) == Some(&self.label.1)
            && !pod.is_finished()
    }
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
