//! Nodes and offers as targets: which of them classes can tell apart, and where they are.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{Node, Pod, PodSpec, Taint, Toleration, WhenUnsatisfiable};

use super::{classes::PodClass, disks::Disks};
use crate::{
    fit::{declared_features, node_affinity, pod_affinity, spread, taints},
    solve::{BitTable, NO_DOMAIN},
};

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
/// A topology key that no label has: every target is in its one domain.
pub(crate) const EVERYWHERE: &str = "";

/// What selectors of pods can see of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeView<'a> {
    labels: Vec<Option<&'a str>>,
    name: Option<&'a str>,
    taints: &'a [Taint],
    cordoned: bool,
    features: &'a [Box<str>],
}

/// What a pod says about the nodes it may use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PodView<'a> {
    selector: Vec<(&'a str, &'a str)>,
    required: Option<&'a muster_model::k8s::NodeSelector>,
    tolerations: &'a [Toleration],
    features: Vec<&'static str>,
    claims_devices: bool,
    node_name: Option<&'a str>,
    needs_hostname: bool,
    /// The class itself, if its volumes matter.
    volumes: Option<usize>,
}

/// Signatures of targets and classes, and which go together.
#[derive(Debug, Default)]
pub(crate) struct Signatures<'a> {
    /// One node of each target signature.
    pub(crate) nodes: Vec<&'a Node>,
    /// Signature of every target.
    pub(crate) of_target: Vec<u32>,
    pub(crate) of_class: Vec<u32>,
    pub(crate) allowed: BitTable,
}

/// Label keys of nodes that the pods read, and whether they read names.
fn node_keys<'a>(specs: impl Iterator<Item = &'a PodSpec>) -> (BTreeSet<&'a str>, bool) {
    let mut keys = BTreeSet::new();
    let mut names = false;
    for spec in specs {
        keys.extend(spec.node_selector.iter().map(|(key, _)| key));
        names |= spec.node_name.is_some();
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        let preferred = affinity.iter().flat_map(|affinity| affinity.preferred.iter().map(|p| &p.preference));
        let terms = required.iter().flat_map(|selector| selector.node_selector_terms.iter()).chain(preferred);
        for term in terms {
            keys.extend(term.match_expressions.iter().map(|requirement| &*requirement.key));
            names |= !term.match_fields.is_empty();
        }
        // A node without the key of a constraint is no domain of any of them.
        keys.extend(spec.topology_spread_constraints.iter().map(|constraint| &*constraint.topology_key));
    }
    keys.remove(HOSTNAME);
    (keys, names)
}

fn reads_hostname(spec: &PodSpec) -> bool {
    let selector = spec.node_selector.contains(HOSTNAME);
    let required = node_affinity::required(spec);
    selector
        || required.is_some_and(|required| {
            required
                .node_selector_terms
                .iter()
                .flat_map(|term| &term.match_expressions)
                .any(|r| &*r.key == HOSTNAME)
        })
}

/// Whether a rule of the pod counts by host name: a node without that label is then none for it. Every other rule by host name
/// passes such a node over.
fn needs_hostname(spec: &PodSpec) -> bool {
    let spreads = spec.topology_spread_constraints.iter();
    let hard = spreads.filter(|constraint| constraint.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule);
    let near = pod_affinity::required(spec).iter().map(|term| &term.topology_key);
    hard.map(|constraint| &constraint.topology_key).chain(near).any(|key| &**key == HOSTNAME)
}

impl<'a> Signatures<'a> {
    pub(crate) fn new(targets: &[&'a Node], classes: &[PodClass<'a>], disks: &Disks<'a>) -> Self {
        let (mut keys, mut names) = node_keys(classes.iter().map(|class| &*class.pod.spec));
        let mut hosts = classes.iter().any(|class| reads_hostname(&class.pod.spec));
        let (disk_keys, disk_names) = disks.node_keys();
        keys.extend(disk_keys);
        hosts |= keys.remove(HOSTNAME);
        names |= disk_names;
        let mut signatures = Self::default();
        let mut known: BTreeMap<NodeView<'_>, u32> = BTreeMap::new();
        for &node in targets {
            let mut labels: Vec<Option<&str>> =
                keys.iter().map(|key| node.metadata.labels.text(key)).collect();
            labels.push(if hosts { node.metadata.labels.text(HOSTNAME) } else { None });
            labels.push(node.metadata.labels.contains(HOSTNAME).then_some(""));
            let view = NodeView {
                labels,
                name: names.then_some(&*node.metadata.name),
                taints: &node.spec.taints,
                cordoned: node.spec.unschedulable,
                features: &node.status.declared_features,
            };
            let next = signatures.nodes.len() as u32;
            let id = *known.entry(view).or_insert(next);
            if id == next {
                signatures.nodes.push(node);
            }
            signatures.of_target.push(id);
        }
        signatures.compare(classes, disks);
        signatures
    }

    /// Fills the table of which class goes where.
    fn compare(&mut self, classes: &[PodClass<'a>], disks: &Disks<'a>) {
        let mut pods: BTreeMap<PodView<'_>, u32> = BTreeMap::new();
        let mut examples: Vec<(usize, &PodClass<'a>)> = Vec::new();
        let mut last: Option<(&PodSpec, u32)> = None;
        for (at, class) in classes.iter().enumerate() {
            let spec = &*class.pod.spec;
            let volumes = disks.matters(at).then_some(at);
            // Neighbours mostly differ in what they ask for only.
            if volumes.is_none()
                && let Some((other, id)) = last
                && looks_alike(spec, other)
            {
                self.of_class.push(id);
                continue;
            }
            let next = examples.len() as u32;
            let id = *pods.entry(pod_view(spec, volumes)).or_insert(next);
            if id == next {
                examples.push((at, class));
            }
            self.of_class.push(id);
            last = volumes.is_none().then_some((spec, id));
        }
        self.allowed = BitTable::new(examples.len(), self.nodes.len());
        let world = disks.world(&self.nodes);
        for (row, (at, class)) in (0..).zip(&examples) {
            let reach = world.as_ref().filter(|_| disks.matters(*at)).map(|w| disks.reach(w, class.pod));
            for (column, node) in self.nodes.iter().enumerate() {
                let reached = reach.as_ref().is_none_or(|reach| reach[column]);
                if reached && admits(class.pod, node) {
                    self.allowed.set(row, column as u32);
                }
            }
        }
    }

    /// Target signatures whose nodes satisfy a predicate.
    pub(crate) fn bits(&self, is_one: impl Fn(&Node) -> bool) -> Vec<u64> {
        let mut bits = vec![0_u64; self.nodes.len().div_ceil(64)];
        for (at, node) in self.nodes.iter().enumerate() {
            bits[at / 64] |= u64::from(is_one(node)) << (at % 64);
        }
        bits
    }

    /// Target signatures whose nodes carry their host name; `None` if all do.
    pub(crate) fn named(&self) -> Option<Vec<u64>> {
        let is_named = |node: &Node| node.metadata.labels.contains(HOSTNAME);
        (!self.nodes.iter().all(|node| is_named(node))).then(|| self.bits(is_named))
    }

    /// Target signatures whose nodes count as domains of a constraint.
    pub(crate) fn eligible(
        &self,
        pod: &Pod,
        constraint: &muster_model::k8s::SpreadConstraint,
    ) -> Option<Vec<u64>> {
        let mut bits = vec![0_u64; self.nodes.len().div_ceil(64)];
        let mut all = true;
        for (at, node) in self.nodes.iter().enumerate() {
            let keys = spread::hard(pod).all(|other| node.metadata.labels.contains(&other.topology_key));
            if keys && spread::includes(constraint, pod, node) {
                bits[at / 64] |= 1 << (at % 64);
            } else {
                all = false;
            }
        }
        (!all).then_some(bits)
    }
}

/// Whether two specs say the same about nodes, as far as a quick look tells.
fn looks_alike(one: &PodSpec, other: &PodSpec) -> bool {
    let plain = |spec: &PodSpec| {
        spec.resource_claims.is_empty()
            && spec.node_name.is_none()
            && node_affinity::required(spec).is_none()
            && declared_features::needed(spec).is_empty()
    };
    plain(one)
        && plain(other)
        && one.node_selector == other.node_selector
        && one.tolerations == other.tolerations
        && needs_hostname(one) == needs_hostname(other)
}

fn pod_view(spec: &PodSpec, volumes: Option<usize>) -> PodView<'_> {
    PodView {
        volumes,
        selector: spec.node_selector.iter().map(|(key, value)| (key, &**value)).collect(),
        required: node_affinity::required(spec),
        tolerations: &spec.tolerations,
        features: declared_features::needed(spec),
        claims_devices: !spec.resource_claims.is_empty(),
        node_name: spec.node_name.as_deref(),
        needs_hostname: needs_hostname(spec),
    }
}

/// Everything about a node that does not change while pods are placed.
fn admits(pod: &Pod, node: &Node) -> bool {
    let spec = &pod.spec;
    let declared = |feature: &&str| node.status.declared_features.iter().any(|known| **known == **feature);
    spec.resource_claims.is_empty()
        && (!node.spec.unschedulable || taints::tolerates_cordon(&spec.tolerations))
        && spec.node_name.as_ref().is_none_or(|name| **name == *node.metadata.name)
        && taints::untolerated(&node.spec.taints, &spec.tolerations).is_none()
        && node_affinity::matches(spec, node)
        && (!needs_hostname(spec) || node.metadata.labels.contains(HOSTNAME))
        && declared_features::needed(spec).iter().all(declared)
}

/// Distinct places: the values of all topology keys but the host name.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    /// Number of domains per key.
    pub(crate) domains: Vec<u32>,
    pub(crate) table: Vec<Vec<u32>>,
    pub(crate) of_target: Vec<u32>,
}

/// The value of a topology key on a node.
fn value<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    if key == EVERYWHERE { Some("") } else { node.metadata.labels.text(key) }
}

impl Locations {
    pub(crate) fn new(targets: &[&Node], keys: &[Box<str>]) -> Self {
        if keys.is_empty() {
            return Self { domains: Vec::new(), table: vec![Vec::new()], of_target: vec![0; targets.len()] };
        }
        let mut values: Vec<BTreeMap<&str, u32>> = vec![BTreeMap::new(); keys.len()];
        for node in targets {
            for (key, values) in keys.iter().zip(&mut values) {
                if let Some(value) = value(node, key) {
                    values.insert(value, 0);
                }
            }
        }
        for values in &mut values {
            for (number, id) in (0..).zip(values.values_mut()) {
                *id = number;
            }
        }
        let mut known: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        let tuples: Vec<Vec<u32>> = targets
            .iter()
            .map(|node| {
                let domain = |(key, values): (&str, &BTreeMap<&str, u32>)| {
                    value(node, key).map_or(NO_DOMAIN, |value| values[value])
                };
                keys.iter().map(|key| &**key).zip(&values).map(domain).collect()
            })
            .collect();
        for tuple in &tuples {
            known.insert(tuple.clone(), 0);
        }
        for (number, id) in (0..).zip(known.values_mut()) {
            *id = number;
        }
        let of_target = tuples.iter().map(|tuple| known[tuple]).collect();
        let domains = values.iter().map(|values| values.len() as u32).collect();
        Self { domains, table: known.into_keys().collect(), of_target }
    }
}
