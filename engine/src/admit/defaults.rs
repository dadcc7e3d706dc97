//! The defaults that decide where a pod may run.

use std::sync::Arc;

use muster_model::{
    Quantity,
    k8s::{
        Container, Effect, LabelSelector, Labels, List, Operator, Pod, PodAffinity, PodAffinityTerm, PodSpec,
        Requirement, ResourceList, Resources, Toleration, TolerationOperator,
    },
};

use crate::fit::requests::{self, Source};

/// How long a pod stays on a node that is lost, unless it says otherwise.
const TOLERATED_SECONDS: i64 = 300;
const TOLERATED_KEYS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Applies `change` to every container and init container.
fn for_each_container(spec: &mut PodSpec, mut change: impl FnMut(&mut Container)) {
    for list in [&mut spec.containers, &mut spec.init_containers] {
        let mut containers: Vec<Container> = std::mem::take(list).into();
        containers.iter_mut().for_each(&mut change);
        *list = containers.into();
    }
}

/// Amounts are stored in thousandths, rounded up.
pub(super) fn round_amounts(spec: &mut PodSpec) {
    fn rounded(list: &ResourceList) -> ResourceList {
        list.iter().map(|(name, amount)| (name, amount.rounded_to_milli())).collect()
    }
    fn round(resources: &mut Resources) {
        resources.requests = rounded(&resources.requests);
        resources.limits = rounded(&resources.limits);
    }
    for_each_container(spec, |container| round(&mut container.resources));
    if let Some(resources) = &mut spec.resources {
        round(resources);
    }
    spec.overhead = rounded(&spec.overhead);
}

/// A limit without a request is the request.
pub(super) fn requests_from_limits(spec: &mut PodSpec) {
    for_each_container(spec, |container| {
        let Resources { requests, limits } = &mut container.resources;
        add_missing(requests, limits.iter());
    });
}

fn add_missing<'a>(list: &mut ResourceList, from: impl Iterator<Item = (&'a str, &'a Quantity)>) {
    for (name, amount) in from {
        if !list.contains(name) {
            list.insert(name, *amount);
        }
    }
}

/// In the network of the node every port of a container is a port of the node.
pub(super) fn host_ports(spec: &mut PodSpec) {
    for_each_container(spec, |container| {
        let mut ports: Vec<_> = std::mem::take(&mut container.ports).into();
        for port in &mut ports {
            if port.host_port == 0 {
                port.host_port = port.container_port;
            }
        }
        container.ports = ports.into();
    });
}

/// Pods stay a while on nodes that are not ready or not reachable.
pub(super) fn add_tolerations(spec: &mut PodSpec) {
    let mut tolerations: Vec<Toleration> = std::mem::take(&mut spec.tolerations).into();
    for key in TOLERATED_KEYS {
        let covered = tolerations.iter().any(|toleration| {
            (toleration.key.is_empty() || *toleration.key == *key)
                && toleration.effect.is_none_or(|effect| effect == Effect::NoExecute)
        });
        if !covered {
            tolerations.push(Toleration {
                key: key.into(),
                operator: TolerationOperator::Exists,
                effect: Some(Effect::NoExecute),
                toleration_seconds: Some(TOLERATED_SECONDS),
                ..Toleration::default()
            });
        }
    }
    spec.tolerations = tolerations.into();
}

/// Pod-level amounts that are given in part are completed: from the containers, else from the limits.
pub(super) fn pod_level_resources(pod: &mut Pod) {
    let Some(mut resources) = pod.spec.resources.clone() else { return };
    if resources.limits.is_empty() && resources.requests.is_empty() {
        return;
    }
    let bare = without_pod_level(pod);
    let huge = |name: &str| name.starts_with("hugepages-");
    let limits = container_limits(&bare);
    let missing = limits.iter().filter(|(name, _)| huge(name) && !resources.requests.contains(name));
    add_missing(&mut resources.limits, missing);
    if !resources.limits.is_empty() {
        let containers = requests::exact(&bare, Source::Spec);
        let shareable = |name: &str| requests::is_pod_level(name) && !huge(name);
        add_missing(&mut resources.requests, containers.iter().filter(|(name, _)| shareable(name)));
        let limits = resources.limits.clone();
        add_missing(&mut resources.requests, limits.iter().filter(|(name, _)| requests::is_pod_level(name)));
    }
    Arc::make_mut(&mut pod.spec).resources = Some(resources);
}

/// The pod as the sum of its containers.
fn without_pod_level(pod: &Pod) -> Pod {
    let mut bare = pod.clone();
    let spec = Arc::make_mut(&mut bare.spec);
    spec.resources = None;
    spec.overhead = ResourceList::default();
    bare
}

/// What the containers are limited to, added up in the same way as requests.
fn container_limits(bare: &Pod) -> ResourceList {
    let mut limited = bare.clone();
    for_each_container(Arc::make_mut(&mut limited.spec), |container| {
        container.resources.requests = container.resources.limits.clone();
    });
    requests::exact(&limited, Source::Spec)
}

/// Label keys become requirements on the pod's own values. A missing selector selects nothing and stays.
pub(super) fn merge_label_keys(spec: &mut PodSpec, labels: &Labels) {
    if let Some(affinity) = &mut spec.affinity {
        for affinity in [&mut affinity.pod_affinity, &mut affinity.pod_anti_affinity].into_iter().flatten() {
            merge_affinity(affinity, labels);
        }
    }
    let mut constraints: Vec<_> = std::mem::take(&mut spec.topology_spread_constraints).into();
    for constraint in &mut constraints {
        merge(&mut constraint.label_selector, &constraint.match_label_keys, Operator::In, labels);
    }
    spec.topology_spread_constraints = constraints.into();
}

fn merge_affinity(affinity: &mut PodAffinity, labels: &Labels) {
    let mut required: Vec<PodAffinityTerm> = std::mem::take(&mut affinity.required).into();
    for term in &mut required {
        merge_term(term, labels);
    }
    affinity.required = required.into();
    let mut preferred: Vec<_> = std::mem::take(&mut affinity.preferred).into();
    for weighted in &mut preferred {
        merge_term(&mut weighted.pod_affinity_term, labels);
    }
    affinity.preferred = preferred.into();
}

fn merge_term(term: &mut PodAffinityTerm, labels: &Labels) {
    merge(&mut term.label_selector, &term.match_label_keys, Operator::In, labels);
    merge(&mut term.label_selector, &term.mismatch_label_keys, Operator::NotIn, labels);
}

fn merge(selector: &mut Option<LabelSelector>, keys: &[Box<str>], operator: Operator, labels: &Labels) {
    let Some(selector) = selector else { return };
    let own = keys.iter().filter_map(|key| Some((key, labels.get(key)?)));
    let added: Vec<Requirement> = own
        .map(|(key, value)| Requirement { key: key.clone(), operator, values: List::from([value.clone()]) })
        .filter(|requirement| !selector.match_expressions.contains(requirement))
        .collect();
    selector.match_expressions = selector.match_expressions.iter().cloned().chain(added).collect();
}
