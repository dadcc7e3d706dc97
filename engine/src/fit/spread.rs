//! `PodTopologySpread`: even numbers of pods over the values of a node label.

use std::collections::BTreeMap;

use muster_model::k8s::{
    FilterPolicy, LabelSelector, Labels, Node, Pod, SpreadConstraint, WhenUnsatisfiable,
};

use super::{Rejection, World, node_affinity, selector, taints};

/// Which pods a constraint counts: its selector, and the pod's own values of the match label keys.
#[derive(Debug, Clone)]
pub struct Counted<'a> {
    selector: Option<&'a LabelSelector>,
    same: Vec<(&'a str, &'a str)>,
}

impl<'a> Counted<'a> {
    pub fn new(constraint: &'a SpreadConstraint, own: &'a Labels) -> Self {
        let keys = constraint.match_label_keys.iter();
        let same = keys.filter_map(|key| Some((&**key, own.text(key)?))).collect();
        let selector = constraint.label_selector.as_ref().filter(|selector| selector::is_valid(selector));
        Self { selector, same }
    }

    /// Whether a pod with these labels matches. Without a selector none does.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.selector.is_some_and(|selector| selector::holds(selector, labels))
            && self.same.iter().all(|(key, value)| labels.text(key) == Some(*value))
    }

    /// A selector without any requirement: it matches every pod, but other pods are not counted.
    pub fn counts_nobody(&self) -> bool {
        self.same.is_empty() && self.selector.is_none_or(LabelSelector::is_empty)
    }
}

/// The constraints of a pod that can reject a node.
pub fn hard(pod: &Pod) -> impl Iterator<Item = &SpreadConstraint> {
    let constraints = pod.spec.topology_spread_constraints.iter();
    constraints.filter(|constraint| constraint.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule)
}

/// Whether a node's pods and its domain count for the constraint, beside having all keys.
pub fn includes(constraint: &SpreadConstraint, pod: &Pod, node: &Node) -> bool {
    let affinity = constraint.node_affinity_policy.unwrap_or(FilterPolicy::Honor);
    let taints = constraint.node_taints_policy.unwrap_or(FilterPolicy::Ignore);
    (affinity == FilterPolicy::Ignore || node_affinity::matches(&pod.spec, node))
        && (taints == FilterPolicy::Ignore
            || taints::untolerated(&node.spec.taints, &pod.spec.tolerations).is_none())
}

/// One constraint, counted.
#[derive(Debug)]
struct Domains<'a> {
    key: &'a str,
    max_skew: i64,
    /// What the pod itself would add to its domain.
    own: i64,
    counts: BTreeMap<&'a str, i64>,
    least: i64,
}

/// All hard constraints of a pod, counted over the cluster.
#[derive(Debug)]
pub(super) struct State<'a>(Vec<Domains<'a>>);

impl<'a> State<'a> {
    pub(super) fn new(world: &World<'a>, pod: &'a Pod) -> Self {
        let constraints: Vec<_> = hard(pod).collect();
        let has_all_keys = |node: &Node| {
            constraints.iter().all(|constraint| node.metadata.labels.contains(&constraint.topology_key))
        };
        let candidates: Vec<usize> = world
            .present()
            .filter(|index| !constraints.is_empty() && has_all_keys(world.node(*index).node))
            .collect();
        Self(constraints.iter().map(|constraint| count(world, pod, constraint, &candidates)).collect())
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Rejection> {
        for domains in &self.0 {
            let Some(value) = node.metadata.labels.text(domains.key) else {
                return Err(Rejection::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let here = domains.counts.get(value).copied().unwrap_or(0);
            if here + domains.own - domains.least > domains.max_skew {
                return Err(Rejection::resolvable("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }
}

fn count<'a>(
    world: &World<'a>,
    pod: &'a Pod,
    constraint: &'a SpreadConstraint,
    candidates: &[usize],
) -> Domains<'a> {
    let counted = Counted::new(constraint, &pod.metadata.labels);
    let key = &*constraint.topology_key;
    let mut domain_of: BTreeMap<usize, &str> = BTreeMap::new();
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for &index in candidates {
        let node = world.node(index).node;
        if includes(constraint, pod, node)
            && let Some(value) = node.metadata.labels.text(key)
        {
            domain_of.insert(index, value);
            counts.entry(value).or_default();
        }
    }
    if !counted.counts_nobody() {
        let alike = world.classes().iter().filter(|class| {
            !class.key.terminating
                && class.key.namespace == &*pod.metadata.namespace
                && counted.matches(class.key.labels)
        });
        for (node, number) in alike.flat_map(|class| &class.on) {
            if let Some(value) = domain_of.get(node) {
                *counts.entry(value).or_default() += i64::from(*number);
            }
        }
    }
    // Fewer domains than asked for: the emptiest one is a domain that does not exist yet.
    let wanted = i64::from(constraint.min_domains.unwrap_or(1));
    let too_few = i64::try_from(counts.len()).is_ok_and(|domains| domains < wanted);
    let least = if too_few { 0 } else { counts.values().copied().min().unwrap_or(i64::from(i32::MAX)) };
    let own = i64::from(counted.matches(&pod.metadata.labels));
    Domains { key, max_skew: i64::from(constraint.max_skew), own, counts, least }
}
