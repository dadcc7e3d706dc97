//! `InterPodAffinity`: nearness to and distance from other pods.

use std::{collections::BTreeSet, fmt};

use muster_model::k8s::{Labels, Node, Pod, PodAffinityTerm, PodSpec};

use super::{Rejection, World, selector, world::BoundClass};

/// The affinity terms that must hold, all on the same pods.
pub fn required(spec: &PodSpec) -> &[PodAffinityTerm] {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    affinity.map_or(&[], |affinity| &affinity.required)
}

/// The anti-affinity terms, each of which must hold.
pub fn required_anti(spec: &PodSpec) -> &[PodAffinityTerm] {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    affinity.map_or(&[], |affinity| &affinity.required)
}

/// Whether a term of a pod in namespace `owner` covers `namespace`, whose labels are `labels`. Without a
/// list and a selector a term covers the owner's namespace; a list excludes it unless named.
pub fn covers(term: &PodAffinityTerm, owner: &str, namespace: &str, labels: Option<&Labels>) -> bool {
    let nothing = Labels::default();
    let own = term.namespaces.is_empty() && term.namespace_selector.is_none() && owner == namespace;
    own || term.namespaces.iter().any(|listed| **listed == *namespace)
        || selector::selects(term.namespace_selector.as_ref(), labels.unwrap_or(&nothing))
}

/// Whether the selector part of a term picks a pod with these labels.
pub fn selects(term: &PodAffinityTerm, labels: &Labels) -> bool {
    selector::selects(term.label_selector.as_ref(), labels)
}

/// A term of the pod to be placed, with the namespaces it covers.
struct Resolved<'a> {
    term: &'a PodAffinityTerm,
    namespaces: BTreeSet<&'a str>,
    /// The selector is satisfied by a namespace without labels. The scheduler evaluates it once more
    /// without looking at the labels of the other pod's namespace, so such a term covers all of them.
    anywhere: bool,
}

impl<'a> Resolved<'a> {
    fn new(world: &World<'a>, pod: &'a Pod, term: &'a PodAffinityTerm) -> Self {
        let owner = &*pod.metadata.namespace;
        let mut namespaces: BTreeSet<&str> = term.namespaces.iter().map(|name| &**name).collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(owner);
        }
        let selected = world
            .namespaces()
            .filter(|(_, labels)| selector::selects(term.namespace_selector.as_ref(), labels))
            .map(|(name, _)| name);
        namespaces.extend(selected);
        let anywhere = selector::selects(term.namespace_selector.as_ref(), &Labels::default());
        Self { term, namespaces, anywhere }
    }

    fn matches(&self, namespace: &str, labels: &Labels) -> bool {
        (self.anywhere || self.namespaces.contains(namespace)) && selects(self.term, labels)
    }
}

/// Bound pods that matter, and the topology key by which they do.
struct Pull<'w, 'a> {
    class: &'w BoundClass<'a>,
    key: &'a str,
}

/// The bound pods from which a pod wants to be near or far, or that want to be far from it.
pub(super) struct State<'w, 'a> {
    world: &'w World<'a>,
    near: &'a [PodAffinityTerm],
    /// Pods that match all terms of `near`, once per key.
    attracting: Vec<Pull<'w, 'a>>,
    /// Pods that match a term of the pod's anti-affinity.
    repelling: Vec<Pull<'w, 'a>>,
    /// Pods with a term of anti-affinity that matches the pod.
    repelled: Vec<Pull<'w, 'a>>,
    /// The pod matches its own terms, so it may be the first of its kind.
    attracts_itself: bool,
}

impl<'w, 'a> State<'w, 'a> {
    pub(super) fn new(world: &'w World<'a>, pod: &'a Pod) -> Self {
        let near = required(&pod.spec);
        let resolve = |terms: &'a [PodAffinityTerm]| -> Vec<Resolved<'a>> {
            terms.iter().map(|term| Resolved::new(world, pod, term)).collect()
        };
        let (near_terms, far_terms) = (resolve(near), resolve(required_anti(&pod.spec)));
        let matches_all = |namespace: &str, labels: &Labels| {
            !near_terms.is_empty() && near_terms.iter().all(|term| term.matches(namespace, labels))
        };
        let (namespace, labels) = (&*pod.metadata.namespace, &pod.metadata.labels);
        let own_namespace = world.namespace_labels(namespace);

        let (mut attracting, mut repelling, mut repelled) = (Vec::new(), Vec::new(), Vec::new());
        for class in world.classes().iter().filter(|class| !class.on.is_empty()) {
            let key = class.key;
            let pull = |term: &'a PodAffinityTerm| Pull { class, key: &term.topology_key };
            if matches_all(key.namespace, key.labels) {
                attracting.extend(near.iter().map(pull));
            }
            let far = far_terms.iter().filter(|term| term.matches(key.namespace, key.labels));
            repelling.extend(far.map(|resolved| pull(resolved.term)));
            let closing = key.repels.iter().filter(|term| {
                covers(term, key.namespace, namespace, own_namespace) && selects(term, labels)
            });
            repelled.extend(closing.map(pull));
        }
        let attracts_itself = matches_all(namespace, labels);
        Self { world, near, attracting, repelling, repelled, attracts_itself }
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Rejection> {
        if !self.is_near(node) {
            return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
        }
        let shares = |pull: &Pull<'w, 'a>| {
            let value = node.metadata.labels.text(pull.key);
            value.is_some_and(|value| self.world.domains(pull.class, pull.key).contains_key(value))
        };
        if self.repelling.iter().any(shares) {
            return Err(Rejection::resolvable("node(s) didn't match pod anti-affinity rules"));
        }
        if self.repelled.iter().any(shares) {
            return Err(Rejection::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    /// A node needs every key, and under each key a matching pod in its domain, unless no matching pod sits
    /// on a node with any of the keys and the pod would be its own match.
    fn is_near(&self, node: &Node) -> bool {
        let mut all_found = true;
        for term in self.near {
            let Some(value) = node.metadata.labels.text(&term.topology_key) else { return false };
            let alike = self.attracting.iter().filter(|pull| *pull.key == *term.topology_key);
            all_found &=
                alike.into_iter().any(|pull| self.world.domains(pull.class, pull.key).contains_key(value));
        }
        let nowhere =
            || self.attracting.iter().all(|pull| self.world.domains(pull.class, pull.key).is_empty());
        all_found || self.attracts_itself && nowhere()
    }
}

impl fmt::Debug for State<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("near", &self.near).finish_non_exhaustive()
    }
}
