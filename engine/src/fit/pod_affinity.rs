//! `InterPodAffinity`: nearness to and distance from other pods.

use std::collections::BTreeSet;

use muster_model::k8s::{Labels, Node, Pod, PodAffinityTerm, PodSpec};

use super::{Rejection, World, selector};

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

/// A label of a node: the domain of a topology key.
type Domain<'a> = (&'a str, &'a str);

/// The domains in which a pod finds what it needs, or what keeps it away.
#[derive(Debug)]
pub(super) struct State<'a> {
    near: &'a [PodAffinityTerm],
    far: &'a [PodAffinityTerm],
    /// Domains with a pod that matches all terms of `near`.
    attracting: BTreeSet<Domain<'a>>,
    /// Domains with a pod that matches a term of `far`.
    repelling: BTreeSet<Domain<'a>>,
    /// Domains that a bound pod keeps free of pods like this one.
    closed: BTreeSet<Domain<'a>>,
    /// The pod matches its own terms, so it may be the first of its kind.
    attracts_itself: bool,
}

impl<'a> State<'a> {
    pub(super) fn new(world: &World<'a>, pod: &'a Pod) -> Self {
        let (near, far) = (required(&pod.spec), required_anti(&pod.spec));
        let resolve = |terms: &'a [PodAffinityTerm]| -> Vec<Resolved<'a>> {
            terms.iter().map(|term| Resolved::new(world, pod, term)).collect()
        };
        let (near_terms, far_terms) = (resolve(near), resolve(far));
        let matches_all = |namespace: &str, labels: &Labels| {
            !near_terms.is_empty() && near_terms.iter().all(|term| term.matches(namespace, labels))
        };
        let (namespace, labels) = (&*pod.metadata.namespace, &pod.metadata.labels);
        let own_namespace = world.namespace_labels(namespace);

        let mut state = Self {
            near,
            far,
            attracting: BTreeSet::new(),
            repelling: BTreeSet::new(),
            closed: BTreeSet::new(),
            attracts_itself: matches_all(namespace, labels),
        };
        for class in world.classes() {
            let key = class.key;
            let mut open = |into: fn(&mut Self) -> &mut BTreeSet<Domain<'a>>, term: &'a PodAffinityTerm| {
                let labels = class.on.keys().map(|node| &world.node(*node).node.metadata.labels);
                let domains =
                    labels.filter_map(|labels| Some((&*term.topology_key, labels.text(&term.topology_key)?)));
                into(&mut state).extend(domains);
            };
            if matches_all(key.namespace, key.labels) {
                near.iter().for_each(|term| open(|state| &mut state.attracting, term));
            }
            for term in far_terms.iter().filter(|term| term.matches(key.namespace, key.labels)) {
                open(|state| &mut state.repelling, term.term);
            }
            for term in key.repels {
                if covers(term, key.namespace, namespace, own_namespace) && selects(term, labels) {
                    open(|state| &mut state.closed, term);
                }
            }
        }
        state
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Rejection> {
        if !self.is_near(node) {
            return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
        }
        let repelled = self.far.iter().any(|term| self.repelling_at(term, node));
        if repelled {
            return Err(Rejection::resolvable("node(s) didn't match pod anti-affinity rules"));
        }
        let mut labels = node.metadata.labels.iter();
        if !self.closed.is_empty() && labels.any(|(key, value)| self.closed.contains(&(key, value))) {
            return Err(Rejection::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    fn is_near(&self, node: &Node) -> bool {
        let labels = &node.metadata.labels;
        let mut all_found = true;
        for term in self.near {
            let Some(value) = labels.text(&term.topology_key) else { return false };
            all_found &= self.attracting.contains(&(&*term.topology_key, value));
        }
        all_found || self.attracting.is_empty() && self.attracts_itself
    }

    fn repelling_at(&self, term: &PodAffinityTerm, node: &Node) -> bool {
        let value = node.metadata.labels.text(&term.topology_key);
        value.is_some_and(|value| self.repelling.contains(&(&*term.topology_key, value)))
    }
}
