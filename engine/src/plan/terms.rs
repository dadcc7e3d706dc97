//! Counters: every distinct selection of pods that a spread constraint, an affinity term or a port reads.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{LabelSelector, Labels, Pod, PodAffinityTerm, SpreadConstraint};

use super::targets::{HOSTNAME, Signatures};
use crate::{
    fit::{pod_affinity, ports, ports::HostPort, selector, spread},
    solve::{Class, Counter, RequireRule, SpreadRule},
};

/// What a counter counts. Equal kinds share one counter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kind<'a> {
    /// Pods that a spread constraint counts.
    Spread {
        namespace: &'a str,
        selector: Option<&'a LabelSelector>,
        same: Vec<(&'a str, &'a str)>,
        nobody: bool,
        eligible: Option<Vec<u64>>,
    },
    /// Pods that match an anti-affinity term.
    Matched { term: &'a PodAffinityTerm, owner: &'a str },
    /// Pods that hold an anti-affinity term.
    Holding { term: &'a PodAffinityTerm, owner: &'a str },
    /// Pods that match all affinity terms of a pod.
    Wanted { terms: &'a [PodAffinityTerm], owner: &'a str },
    /// Pods that occupy a port.
    Port(HostPort),
}

/// All counters of a problem.
#[derive(Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) counters: Vec<Counter>,
    kinds: Vec<Kind<'a>>,
    known: BTreeMap<(Kind<'a>, Option<u32>), u32>,
    keys: &'a [Box<str>],
    namespaces: BTreeMap<&'a str, &'a Labels>,
    /// Counters that pods of a face raise, filled on demand.
    raised: BTreeMap<u32, Vec<u32>>,
}

/// Topology keys, the host name excepted, that the pods read.
pub(crate) fn topology_keys<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Box<str>> {
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    for pod in pods {
        keys.extend(spread::hard(pod).map(|constraint| &*constraint.topology_key));
        let terms = pod_affinity::required(&pod.spec).iter().chain(pod_affinity::required_anti(&pod.spec));
        keys.extend(terms.map(|term| &*term.topology_key));
        let node = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred = node.iter().flat_map(|affinity| affinity.preferred.iter());
        let wanted = preferred.flat_map(|term| term.preference.match_expressions.iter());
        keys.extend(wanted.map(|requirement| &*requirement.key).filter(|key| key.starts_with("topology.")));
    }
    keys.remove(HOSTNAME);
    keys.into_iter().map(Into::into).collect()
}

impl<'a> Terms<'a> {
    pub(crate) fn new(keys: &'a [Box<str>], namespaces: BTreeMap<&'a str, &'a Labels>) -> Self {
        Self {
            counters: Vec::new(),
            kinds: Vec::new(),
            known: BTreeMap::new(),
            keys,
            namespaces,
            raised: BTreeMap::new(),
        }
    }

    fn key(&self, name: &str) -> Option<u32> {
        if name == HOSTNAME {
            return None;
        }
        let at = self.keys.iter().position(|key| **key == *name).expect("every topology key was collected");
        Some(at as u32)
    }

    fn intern(&mut self, kind: Kind<'a>, key: Option<u32>) -> u32 {
        let next = self.counters.len() as u32;
        let id = *self.known.entry((kind.clone(), key)).or_insert(next);
        if id == next {
            let (spread, eligible) = match &kind {
                Kind::Spread { eligible, .. } => (true, eligible.clone()),
                _ => (false, None),
            };
            self.counters.push(Counter { key, eligible, spread });
            self.kinds.push(kind);
        }
        id
    }

    /// Writes the rules of a pod into its class. Counters raised by others are added by [`Terms::raises`].
    pub(crate) fn rules(&mut self, pod: &'a Pod, signatures: &Signatures<'_>, class: &mut Class) {
        for constraint in spread::hard(pod) {
            let rule = self.spread_rule(pod, signatures, constraint);
            class.spreads.push(rule);
        }
        for term in pod_affinity::required_anti(&pod.spec) {
            let (owner, key) = (owner(std::slice::from_ref(term), pod), self.key(&term.topology_key));
            class.forbids.push(self.intern(Kind::Matched { term, owner }, key));
            let held = self.intern(Kind::Holding { term, owner }, key);
            class.raises.push(held);
        }
        let wanted = pod_affinity::required(&pod.spec);
        if !wanted.is_empty() {
            let owner = owner(wanted, pod);
            let mut counters = Vec::new();
            for term in wanted {
                let key = self.key(&term.topology_key);
                counters.push(self.intern(Kind::Wanted { terms: wanted, owner }, key));
            }
            counters.sort_unstable();
            counters.dedup();
            let matches_itself = self.matches(counters[0], &pod.metadata.namespace, &pod.metadata.labels);
            class.requires = Some(RequireRule { counters, matches_itself });
        }
        for port in ports::of(&pod.spec) {
            let id = self.intern(Kind::Port(port), None);
            class.raises.push(id);
        }
    }

    fn spread_rule(
        &mut self,
        pod: &'a Pod,
        signatures: &Signatures<'_>,
        constraint: &'a SpreadConstraint,
    ) -> SpreadRule {
        let counted = spread::Counted::new(constraint, &pod.metadata.labels);
        let same = constraint
            .match_label_keys
            .iter()
            .filter_map(|key| Some((&**key, pod.metadata.labels.text(key)?)))
            .collect();
        let kind = Kind::Spread {
            namespace: &pod.metadata.namespace,
            selector: constraint.label_selector.as_ref().filter(|selector| selector::is_valid(selector)),
            same,
            nobody: counted.counts_nobody(),
            eligible: signatures.eligible(pod, constraint),
        };
        let key = self.key(&constraint.topology_key);
        SpreadRule {
            counter: self.intern(kind, key),
            max_skew: i64::from(constraint.max_skew),
            min_domains: u32::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
            counts_itself: counted.matches(&pod.metadata.labels),
        }
    }

    /// Anti-affinity of a running pod: it keeps away pods that match its terms.
    pub(crate) fn hold(&mut self, pod: &'a Pod) -> Vec<u32> {
        let mut held = Vec::new();
        for term in pod_affinity::required_anti(&pod.spec) {
            let (owner, key) = (owner(std::slice::from_ref(term), pod), self.key(&term.topology_key));
            held.push(self.intern(Kind::Holding { term, owner }, key));
        }
        held
    }

    /// Ports of a running pod, and the pods that hold ports of others in the plan.
    pub(crate) fn occupy(&mut self, pod: &'a Pod) -> Vec<u32> {
        ports::of(&pod.spec).into_iter().map(|port| self.intern(Kind::Port(port), None)).collect()
    }

    /// Whether a pod is among those that a counter counts by their labels.
    fn matches(&self, id: u32, namespace: &str, labels: &Labels) -> bool {
        let space = self.namespaces.get(namespace).copied();
        match &self.kinds[id as usize] {
            Kind::Spread { namespace: own, selector: pick, same, nobody, .. } => {
                !nobody
                    && *own == namespace
                    && pick.is_some_and(|pick| selector::holds(pick, labels))
                    && same.iter().all(|(key, value)| labels.text(key) == Some(*value))
            }
            Kind::Matched { term, owner } => reaches(term, owner, namespace, space, labels),
            Kind::Wanted { terms, owner } => {
                terms.iter().all(|term| reaches(term, owner, namespace, space, labels))
            }
            Kind::Holding { .. } | Kind::Port(_) => false,
        }
    }

    /// Counters that a pod raises by its labels, in ascending order. Call after all rules are written.
    pub(crate) fn raises(&mut self, face: u32, pod: &Pod) -> Vec<u32> {
        if let Some(known) = self.raised.get(&face) {
            return known.clone();
        }
        let raised = self.raised_by(pod);
        self.raised.insert(face, raised.clone());
        raised
    }

    pub(crate) fn raised_by(&self, pod: &Pod) -> Vec<u32> {
        let (namespace, labels) = (&*pod.metadata.namespace, &pod.metadata.labels);
        (0..self.counters.len() as u32).filter(|&id| self.matches(id, namespace, labels)).collect()
    }

    pub(crate) fn is_spread(&self, id: u32) -> bool {
        self.counters[id as usize].spread
    }

    /// Counters that keep a pod away: held terms that match it, and ports that conflict with its own.
    pub(crate) fn forbidden(&self, pod: &Pod) -> Vec<u32> {
        let own = ports::of(&pod.spec);
        let (namespace, labels) = (&*pod.metadata.namespace, &pod.metadata.labels);
        let space = self.namespaces.get(namespace).copied();
        (0..self.counters.len() as u32)
            .filter(|&id| match &self.kinds[id as usize] {
                Kind::Holding { term, owner } => {
                    pod_affinity::covers(term, owner, namespace, space) && pod_affinity::selects(term, labels)
                }
                Kind::Port(port) => own.iter().any(|wanted| wanted.conflicts(port)),
                _ => false,
            })
            .collect()
    }
}

/// A term of a pod to be placed reaches a pod; a namespace selector that an unlabelled namespace satisfies
/// reaches all of them.
fn reaches(
    term: &PodAffinityTerm,
    owner: &str,
    namespace: &str,
    space: Option<&Labels>,
    labels: &Labels,
) -> bool {
    let anywhere = selector::selects(term.namespace_selector.as_ref(), &Labels::default());
    (anywhere || pod_affinity::covers(term, owner, namespace, space)) && pod_affinity::selects(term, labels)
}

/// The namespace of the pod, if one of its terms depends on it.
fn owner<'a>(terms: &[PodAffinityTerm], pod: &'a Pod) -> &'a str {
    let own = terms.iter().any(|term| term.namespaces.is_empty() && term.namespace_selector.is_none());
    if own { &pod.metadata.namespace } else { "" }
}
