//! The cluster as filters see it: nodes, what runs on them, namespaces and storage.
//!
//! Pods are counted by class (namespace, labels, anti-affinity), so that a term is matched once per class
//! and not once per pod, and the domains of a class are counted once per topology key.

use std::{
    cell::{Ref, RefCell},
    collections::{BTreeMap, HashMap},
};

use muster_model::k8s::{Labels, Namespace, Node, Pod, PodAffinityTerm, VolumeSource};

use super::{
    pod_affinity,
    ports::{self, HostPort},
    requests::{self, Amounts},
    storage::Storage,
};

/// A node and what occupies it.
#[derive(Debug, Clone)]
pub struct NodeState<'a> {
    pub node: &'a Node,
    pub capacity: Amounts,
    pub used: Amounts,
    pub ports: Vec<HostPort>,
    pub pods: Vec<&'a Pod>,
    /// The node was taken out of the cluster. It keeps its index, and nothing else sees it.
    pub gone: bool,
}

/// Everything that decides how a bound pod counts for the spread and affinity of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassKey<'a> {
    pub namespace: &'a str,
    pub labels: &'a Labels,
    pub terminating: bool,
    pub repels: &'a [PodAffinityTerm],
}

/// Bound pods that count alike, and on which nodes they sit.
#[derive(Debug, Clone)]
pub struct BoundClass<'a> {
    pub key: ClassKey<'a>,
    /// Number of pods by node index; never zero.
    pub on: BTreeMap<usize, u32>,
    /// Number of pods by value of a topology key, for the keys that were asked for; never zero.
    domains: RefCell<BTreeMap<Box<str>, Domains<'a>>>,
}

/// Number of pods by the value of a node label.
type Domains<'a> = BTreeMap<&'a str, u32>;

impl<'a> BoundClass<'a> {
    fn new(key: ClassKey<'a>) -> Self {
        Self { key, on: BTreeMap::new(), domains: RefCell::default() }
    }

    fn add(&mut self, node: usize, labels: &'a Labels) {
        *self.on.entry(node).or_default() += 1;
        for (key, counts) in self.domains.get_mut() {
            if let Some(value) = labels.text(key) {
                *counts.entry(value).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, node: usize, labels: &'a Labels) {
        take_one(&mut self.on, node);
        for (key, counts) in self.domains.get_mut() {
            if let Some(value) = labels.text(key) {
                take_one(counts, value);
            }
        }
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct World<'a> {
    nodes: Vec<NodeState<'a>>,
    by_name: HashMap<&'a str, usize>,
    namespaces: BTreeMap<&'a str, &'a Labels>,
    classes: Vec<BoundClass<'a>>,
    class_of: HashMap<ClassKey<'a>, usize>,
    claims_in_use: HashMap<(&'a str, &'a str), u32>,
    storage: Storage<'a>,
}

impl<'a> World<'a> {
    pub fn new(
        nodes: impl IntoIterator<Item = &'a Node>,
        namespaces: impl IntoIterator<Item = &'a Namespace>,
        storage: Storage<'a>,
    ) -> Self {
        let named = |namespace: &'a Namespace| (&*namespace.metadata.name, &namespace.metadata.labels);
        let mut world =
            Self { namespaces: namespaces.into_iter().map(named).collect(), storage, ..Self::default() };
        for node in nodes {
            world.add_node(node);
        }
        world
    }

    /// Adds an empty node and returns its index. The first of several nodes with one name is found by it.
    pub fn add_node(&mut self, node: &'a Node) -> usize {
        let index = self.nodes.len();
        self.nodes.push(NodeState {
            node,
            capacity: Amounts::capacity(&node.status.allocatable),
            used: Amounts::default(),
            ports: Vec::new(),
            pods: Vec::new(),
            gone: false,
        });
        self.by_name.entry(node.name()).or_insert(index);
        index
    }

    /// Binds every pod that sits on a known node and has not finished.
    pub fn bind_running(&mut self, pods: impl IntoIterator<Item = &'a Pod>) {
        for pod in pods {
            let node = pod.spec.node_name.as_deref().and_then(|name| self.index_of(name));
            if let Some(node) = node
                && !pod.is_finished()
            {
                self.bind(pod, node);
            }
        }
    }

    /// Lets `pod` occupy the node, whatever its spec says about a node.
    pub fn bind(&mut self, pod: &'a Pod, node: usize) {
        let state = &mut self.nodes[node];
        state.used.add(&requests::of_bound(pod));
        state.ports.extend(ports::of(&pod.spec));
        state.pods.push(pod);
        let labels = &state.node.metadata.labels;
        let class = self.class(pod);
        self.classes[class].add(node, labels);
        for claim in claims(pod) {
            *self.claims_in_use.entry(claim).or_default() += 1;
        }
    }

    /// Takes a pod off its node again; false if it was not there.
    pub fn unbind(&mut self, namespace: &str, name: &str, node: usize) -> bool {
        let state = &mut self.nodes[node];
        let named = |pod: &&Pod| *pod.metadata.name == *name && *pod.metadata.namespace == *namespace;
        let Some(at) = state.pods.iter().position(named) else { return false };
        let pod = state.pods.remove(at);
        state.used.subtract(&requests::of_bound(pod));
        for port in ports::of(&pod.spec) {
            if let Some(held) = state.ports.iter().position(|held| *held == port) {
                state.ports.remove(held);
            }
        }
        let labels = &state.node.metadata.labels;
        let class = self.class(pod);
        self.classes[class].remove(node, labels);
        for claim in claims(pod) {
            if let Some(count) = self.claims_in_use.get_mut(&claim) {
                *count = count.saturating_sub(1);
            }
        }
        true
    }

    /// Takes the node and everything on it out of the cluster.
    pub fn remove_node(&mut self, node: usize) {
        for pod in self.nodes[node].pods.clone() {
            self.unbind(&pod.metadata.namespace, &pod.metadata.name, node);
        }
        let state = &mut self.nodes[node];
        state.gone = true;
        let name = state.node.name();
        if self.by_name.get(name) == Some(&node) {
            self.by_name.remove(name);
        }
    }

    /// Takes the node out as [`World::remove_node`] does; the one that was added last leaves no index behind.
    pub fn take_back(&mut self, node: usize) {
        self.remove_node(node);
        if node + 1 == self.nodes.len() {
            self.nodes.pop();
        }
    }

    fn class(&mut self, pod: &'a Pod) -> usize {
        let key = ClassKey {
            namespace: &pod.metadata.namespace,
            labels: &pod.metadata.labels,
            terminating: pod.is_terminating(),
            repels: pod_affinity::required_anti(&pod.spec),
        };
        let next = self.classes.len();
        let class = *self.class_of.entry(key).or_insert(next);
        if class == next {
            self.classes.push(BoundClass::new(key));
        }
        class
    }

    /// All nodes by index, those that are gone included.
    pub fn nodes(&self) -> &[NodeState<'a>] {
        &self.nodes
    }

    /// Indexes of the nodes that are there.
    pub fn present(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|node| !self.nodes[*node].gone)
    }

    pub fn node(&self, index: usize) -> &NodeState<'a> {
        &self.nodes[index]
    }

    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn classes(&self) -> &[BoundClass<'a>] {
        &self.classes
    }

    /// Where the pods of a class are, by the value of a node label; nodes without the label do not count.
    pub fn domains<'w>(&'w self, class: &'w BoundClass<'a>, key: &str) -> Ref<'w, BTreeMap<&'a str, u32>> {
        if !class.domains.borrow().contains_key(key) {
            let mut counts = Domains::new();
            for (node, number) in &class.on {
                if let Some(value) = self.nodes[*node].node.metadata.labels.text(key) {
                    *counts.entry(value).or_default() += number;
                }
            }
            class.domains.borrow_mut().insert(key.into(), counts);
        }
        Ref::map(class.domains.borrow(), |domains| &domains[key])
    }

    pub fn namespaces(&self) -> impl Iterator<Item = (&'a str, &'a Labels)> + '_ {
        self.namespaces.iter().map(|(name, labels)| (*name, *labels))
    }

    /// Labels of a namespace; a namespace that is not known has none.
    pub fn namespace_labels(&self, name: &str) -> Option<&'a Labels> {
        self.namespaces.get(name).copied()
    }

    pub fn storage(&self) -> &Storage<'a> {
        &self.storage
    }

    /// Whether a bound pod uses the claim.
    pub fn is_claim_in_use(&self, namespace: &str, claim: &str) -> bool {
        self.claims_in_use.get(&(namespace, claim)).is_some_and(|count| *count > 0)
    }
}

fn claims(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim { name, .. } => Some((&*pod.metadata.namespace, &**name)),
        _ => None,
    })
}
