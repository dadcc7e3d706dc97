//! Counters: every distinct selection of pods that a spread constraint, an affinity term or a port reads.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{
    Effect, LabelSelector, Labels, Node, Pod, PodAffinityTerm, SpreadConstraint, VolumeSource,
    WhenUnsatisfiable,
};

use super::{
    disks::{self, Disks},
    hash::FixedMap,
    targets::{EVERYWHERE, HOSTNAME, Signatures},
};
use crate::{
    fit::{
        node_affinity, pod_affinity, ports, ports::HostPort, selector, spread, taints, volume_restrictions,
    },
    solve::{Class, Counter, RequireRule, SpreadRule, Wish, WishKind},
};

/// What a counter counts. Equal kinds share one counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind<'a> {
    /// Pods that a spread constraint counts.
    Spread {
        namespace: &'a str,
        selector: Option<&'a LabelSelector>,
        same: Vec<(&'a str, &'a str)>,
        nobody: bool,
        eligible: Option<Vec<u64>>,
        soft: bool,
    },
    /// Pods that match an anti-affinity term.
    Matched { term: &'a PodAffinityTerm, owner: &'a str },
    /// Pods that hold an anti-affinity term.
    Holding { term: &'a PodAffinityTerm, owner: &'a str },
    /// Pods that match all affinity terms of a pod.
    Wanted { terms: &'a [PodAffinityTerm], owner: &'a str },
    /// Pods that occupy a port.
    Port(HostPort),
    /// Pods that use a disk which others may not use beside them.
    Disk(&'a VolumeSource),
    /// Pods that use a claim which no other pod may use: namespace and name.
    Claim(&'a str, &'a str),
}

/// All counters of a problem.
#[derive(Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) counters: Vec<Counter>,
    kinds: Vec<Kind<'a>>,
    known: FixedMap<(Kind<'a>, Option<u32>), u32>,
    keys: &'a [Box<str>],
    /// Target signatures whose nodes carry their host name; `None` if all do.
    named: Option<Vec<u64>>,
    namespaces: BTreeMap<&'a str, &'a Labels>,
    /// Counters that pods of a face raise, filled on demand.
    raised: FixedMap<u32, Vec<u32>>,
}

/// Topology keys, the host name excepted, that the pods read.
pub(crate) fn topology_keys<'a>(pods: impl Iterator<Item = &'a Pod>, soft: bool) -> Vec<Box<str>> {
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    for pod in pods {
        if soft {
            keys.extend(soft_terms(pod).map(|(term, ..)| &*term.topology_key));
            keys.extend(soft_spreads(pod).map(|constraint| &*constraint.topology_key));
        }
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
    pub(crate) fn new(
        keys: &'a [Box<str>],
        named: Option<Vec<u64>>,
        namespaces: BTreeMap<&'a str, &'a Labels>,
    ) -> Self {
        Self {
            counters: Vec::new(),
            kinds: Vec::new(),
            known: FixedMap::default(),
            keys,
            named,
            namespaces,
            raised: FixedMap::default(),
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
                // A node without its host name is in no domain of that key; ports and disks are the node's all the same.
                Kind::Matched { .. } | Kind::Holding { .. } | Kind::Wanted { .. } if key.is_none() => {
                    (false, self.named.clone())
                }
                _ => (false, None),
            };
            self.counters.push(Counter { key, eligible, spread });
            self.kinds.push(kind);
        }
        id
    }

    /// Writes the rules of a pod into its class. Counters raised by others are added by [`Terms::raises`].
    pub(crate) fn rules(
        &mut self,
        pod: &'a Pod,
        signatures: &Signatures<'_>,
        disks: &Disks<'a>,
        class: &mut Class,
    ) {
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
        if occupies(pod) {
            class.raises.extend(self.occupy(pod));
        }
        for (space, claim) in disks.contested(pod) {
            let everywhere = self.key(EVERYWHERE);
            let id = self.intern(Kind::Claim(space, claim), everywhere);
            class.raises.push(id);
            class.forbids.push(id);
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
            soft: false,
        };
        let key = self.key(&constraint.topology_key);
        SpreadRule {
            counter: self.intern(kind, key),
            max_skew: i64::from(constraint.max_skew),
            min_domains: u32::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
            counts_itself: counted.matches(&pod.metadata.labels),
        }
    }

    /// Writes what the pod would rather have into its class.
    pub(crate) fn wishes(&mut self, pod: &'a Pod, signatures: &Signatures<'_>, class: &mut Class) {
        let affinity = pod.spec.affinity.as_ref();
        let nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        for term in nodes.iter().flat_map(|affinity| &affinity.preferred) {
            let on = signatures.bits(|node| {
                node_affinity::term_matches(&term.preference, &node.metadata.labels, node.name())
            });
            class.wishes.push(wish(i64::from(term.weight), WishKind::On { signatures: on }));
        }
        if signatures.nodes.iter().any(|node| averse(node, pod)) {
            let on = signatures.bits(|node| !averse(node, pod));
            class.wishes.push(wish(TAINT_WEIGHT, WishKind::On { signatures: on }));
        }
        for (term, weight, near) in soft_terms(pod) {
            let (owner, key) = (owner(std::slice::from_ref(term), pod), self.key(&term.topology_key));
            let counter = self.intern(Kind::Matched { term, owner }, key);
            let kind = if near { WishKind::Near { counter } } else { WishKind::Far { counter } };
            let itself = self.matches(counter, &pod.metadata.namespace, &pod.metadata.labels);
            class.wishes.push(Wish { counts_itself: itself, ..wish(i64::from(weight), kind) });
        }
        for constraint in soft_spreads(pod) {
            let counted = spread::Counted::new(constraint, &pod.metadata.labels);
            let kind = Kind::Spread {
                namespace: &pod.metadata.namespace,
                selector: constraint.label_selector.as_ref().filter(|s| selector::is_valid(s)),
                same: constraint
                    .match_label_keys
                    .iter()
                    .filter_map(|key| Some((&**key, pod.metadata.labels.text(key)?)))
                    .collect(),
                nobody: counted.counts_nobody(),
                eligible: None,
                soft: true,
            };
            let key = self.key(&constraint.topology_key);
            let counter = self.intern(kind, key);
            let max_skew = i64::from(constraint.max_skew);
            class.wishes.push(Wish {
                counts_itself: counted.matches(&pod.metadata.labels),
                ..wish(SPREAD_WEIGHT, WishKind::Even { counter, max_skew })
            });
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

    /// Ports and disks that a pod keeps from others on its node.
    pub(crate) fn occupy(&mut self, pod: &'a Pod) -> Vec<u32> {
        let ports = ports::of(&pod.spec).into_iter().map(Kind::Port);
        let disks = disks::exclusive_sources(pod).map(Kind::Disk);
        let kinds: Vec<Kind<'a>> = ports.chain(disks).collect();
        kinds.into_iter().map(|kind| self.intern(kind, None)).collect()
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
            Kind::Holding { .. } | Kind::Port(_) | Kind::Disk(_) | Kind::Claim(..) => false,
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

    /// Counters that keep a pod away: held terms that match it, ports and disks that conflict with its own.
    pub(crate) fn forbidden(&self, pod: &Pod) -> Vec<u32> {
        if self.counters.is_empty() {
            return Vec::new();
        }
        let own = ports::of(&pod.spec);
        let (namespace, labels) = (&*pod.metadata.namespace, &pod.metadata.labels);
        let space = self.namespaces.get(namespace).copied();
        (0..self.counters.len() as u32)
            .filter(|&id| match &self.kinds[id as usize] {
                Kind::Holding { term, owner } => {
                    pod_affinity::covers(term, owner, namespace, space) && pod_affinity::selects(term, labels)
                }
                Kind::Port(port) => own.iter().any(|wanted| wanted.conflicts(port)),
                Kind::Disk(held) => {
                    disks::exclusive_sources(pod).any(|wanted| volume_restrictions::conflicts(wanted, held))
                }
                _ => false,
            })
            .collect()
    }
}

/// What a taint that should be avoided weighs against the weights of affinity, which reach 100.
const TAINT_WEIGHT: i64 = 100;
/// What a constraint that may be violated weighs for every pod that a domain has more than another.
const SPREAD_WEIGHT: i64 = 50;

fn wish(weight: i64, kind: WishKind) -> Wish {
    Wish { weight, counts_itself: false, kind }
}

/// Whether the node carries a taint that asks pods like this to stay away if they can.
fn averse(node: &Node, pod: &Pod) -> bool {
    let soft = |taint: &&muster_model::k8s::Taint| taint.effect == Effect::PreferNoSchedule;
    let covered = |taint| pod.spec.tolerations.iter().any(|toleration| taints::tolerates(toleration, taint));
    node.spec.taints.iter().filter(soft).any(|taint| !covered(taint))
}

/// Preferred terms of a pod with their weights, and whether they ask for nearness.
fn soft_terms(pod: &Pod) -> impl Iterator<Item = (&PodAffinityTerm, i32, bool)> {
    let affinity = pod.spec.affinity.as_ref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let far = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let near = near.into_iter().flat_map(|terms| &terms.preferred).map(|term| (term, true));
    let far = far.into_iter().flat_map(|terms| &terms.preferred).map(|term| (term, false));
    near.chain(far).map(|(term, near)| (&term.pod_affinity_term, term.weight, near))
}

fn soft_spreads(pod: &Pod) -> impl Iterator<Item = &SpreadConstraint> {
    let constraints = pod.spec.topology_spread_constraints.iter();
    constraints.filter(|constraint| constraint.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway)
}

/// Whether the pod keeps a port or a disk of its node from others.
pub(crate) fn occupies(pod: &Pod) -> bool {
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    containers.flat_map(|container| &container.ports).any(|port| port.host_port > 0)
        || disks::exclusive_sources(pod).next().is_some()
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
