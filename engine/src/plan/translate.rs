//! Turns pods, nodes and offers into a numeric problem.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{Labels, Namespace, Node, Pod};

use super::{
    classes::{self, PodClass},
    hash::FixedMap,
    targets::{Locations, Signatures},
    terms::{Terms, topology_keys},
};
use crate::{
    fit::{Amounts, node_affinity, pod_affinity, requests},
    solve,
};

/// What is planned for, as plain references.
#[derive(Debug, Default)]
pub struct Input<'a> {
    /// Nodes that exist or are on their way.
    pub nodes: Vec<&'a Node>,
    /// Bound pods that have not finished, with the index of their node.
    pub running: Vec<(&'a Pod, u32)>,
    pub pending: Vec<&'a Pod>,
    pub offers: Vec<Offer<'a>>,
    pub namespaces: Vec<&'a Namespace>,
    /// One pod of each daemon; offers say which of them run there.
    pub daemons: Vec<&'a Pod>,
    /// Limits that offers share.
    pub budgets: Vec<i64>,
}

/// A machine that can be called up, as the node it would be.
#[derive(Debug)]
pub struct Offer<'a> {
    pub node: &'a Node,
    /// Millionths of the currency per hour, penalties included.
    pub cost: i64,
    pub supply: u32,
    pub takes: Vec<(u32, i64)>,
    pub rank: i64,
    /// Indexes into the daemons that would run on it.
    pub daemons: Vec<u32>,
}

/// A problem and how to read its answer.
#[derive(Debug)]
pub struct Translated<'a> {
    pub problem: solve::Problem,
    pub classes: Vec<PodClass<'a>>,
    /// Names of the lanes.
    pub lanes: Vec<Box<str>>,
}

pub fn translate<'a>(input: &Input<'a>, keys: &'a mut Vec<Box<str>>) -> Translated<'a> {
    let specs = classes::distinct_specs(&input.pending);
    let guards: Vec<(&Pod, u32)> = input
        .running
        .iter()
        .copied()
        .filter(|(pod, _)| !pod_affinity::required_anti(&pod.spec).is_empty())
        .collect();
    let mut read: BTreeSet<&str> = BTreeSet::new();
    classes::keys_read(specs.iter().copied().chain(guards.iter().map(|(pod, _)| *pod)), &mut read);
    let classes = classes::group(&input.pending, &read);
    *keys = topology_keys(specs.iter().copied().chain(guards.iter().map(|(pod, _)| *pod)));
    let targets: Vec<&Node> =
        input.nodes.iter().copied().chain(input.offers.iter().map(|offer| offer.node)).collect();
    let signatures = Signatures::new(&targets, &classes);
    let locations = Locations::new(&targets, keys);
    let namespaces: BTreeMap<&str, &Labels> =
        input.namespaces.iter().map(|space| (&*space.metadata.name, &space.metadata.labels)).collect();
    let mut terms = Terms::new(keys, namespaces);
    let lanes = lanes(&classes);
    let mut numeric: Vec<solve::Class> = classes
        .iter()
        .zip(&signatures.of_class)
        .map(|(class, &signature)| {
            let mut rules = solve::Class {
                count: class.members.len() as u32,
                request: amounts(&lanes, &class.request, 1),
                priority: class.pod.spec.priority.unwrap_or(0),
                signature,
                prefers: prefers(class.pod, &targets, &locations),
                ..solve::Class::default()
            };
            terms.rules(class.pod, &signatures, &mut rules);
            rules
        })
        .collect();
    let held: Vec<Vec<u32>> = guards.iter().map(|(pod, _)| terms.hold(pod)).collect();
    let occupied: Vec<(u32, Vec<u32>)> = input
        .running
        .iter()
        .filter(|(pod, _)| has_ports(pod))
        .map(|(pod, node)| (*node, terms.occupy(pod)))
        .collect();
    let mut daemon_marks: Vec<Vec<u32>> = input.daemons.iter().map(|pod| terms.occupy(pod)).collect();
    for (class, rules) in classes.iter().zip(&mut numeric) {
        rules.raises.extend(terms.raises(class.face, class.pod));
        rules.raises.sort_unstable();
        rules.raises.dedup();
        rules.forbids.extend(terms.forbidden(class.pod));
        rules.forbids.sort_unstable();
        rules.forbids.dedup();
    }
    for (marks, pod) in daemon_marks.iter_mut().zip(&input.daemons) {
        marks.extend(terms.raised_by(pod));
    }
    let mut marks: Vec<Vec<(u32, u32)>> = vec![Vec::new(); input.nodes.len()];
    for ((_, node), held) in guards.iter().zip(&held) {
        raise(&mut marks[*node as usize], held);
    }
    for (node, ports) in &occupied {
        raise(&mut marks[*node as usize], ports);
    }
    let mut free = free_amounts(input, &lanes);
    mark_running(input, &terms, &mut marks);
    let nodes = marks
        .into_iter()
        .enumerate()
        .map(|(at, marks)| solve::Node {
            free: std::mem::take(&mut free[at]),
            signature: signatures.of_target[at],
            location: locations.of_target[at],
            marks,
        })
        .collect();
    let shapes = shapes(input, &lanes, &signatures, &locations, &daemon_marks);
    let problem = solve::Problem {
        lanes: lanes.len(),
        classes: numeric,
        shapes,
        nodes,
        counters: terms.counters,
        keys: locations.domains,
        locations: locations.table,
        budgets: input.budgets.clone(),
        allowed: signatures.allowed,
    };
    Translated { problem, classes, lanes }
}

fn has_ports(pod: &Pod) -> bool {
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    containers.flat_map(|container| &container.ports).any(|port| port.host_port > 0)
}

/// The resources that pending pods ask for, and the number of pods.
fn lanes(classes: &[PodClass<'_>]) -> Vec<Box<str>> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let (mut cpu, mut memory, mut disk) = (false, false, false);
    for class in classes {
        cpu |= class.request.milli_cpu > 0;
        memory |= class.request.memory > 0;
        disk |= class.request.ephemeral_storage > 0;
        if !class.request.scalars.is_empty() {
            names.extend(class.request.scalars.keys().map(|name| &**name));
        }
    }
    let mut lanes: Vec<Box<str>> = Vec::new();
    for (used, name) in [(cpu, "cpu"), (memory, "memory"), (disk, "ephemeral-storage")] {
        if used {
            lanes.push(name.into());
        }
    }
    lanes.push("pods".into());
    lanes.extend(names.into_iter().map(Into::into));
    lanes
}

/// Four pebibytes, or so many of anything else: sums of amounts within it do not overflow. Larger ones are
/// written by mistake, and count as so much.
const MOST: i64 = 1 << 52;

pub(crate) fn in_bounds(amount: i64) -> i64 {
    amount.clamp(-MOST, MOST)
}

/// Amounts by lane; a request counts as one pod.
fn amounts(lanes: &[Box<str>], amounts: &Amounts, pods: i64) -> Vec<i64> {
    lanes
        .iter()
        .map(|lane| match &**lane {
            "cpu" => amounts.milli_cpu,
            "memory" => amounts.memory,
            "ephemeral-storage" => amounts.ephemeral_storage,
            "pods" => pods,
            name => amounts.scalar(name),
        })
        .map(in_bounds)
        .collect()
}

fn capacity(lanes: &[Box<str>], node: &Node) -> Vec<i64> {
    let capacity = Amounts::capacity(&node.status.allocatable);
    amounts(lanes, &capacity, capacity.pods)
}

fn free_amounts(input: &Input<'_>, lanes: &[Box<str>]) -> Vec<Vec<i64>> {
    let mut free: Vec<Vec<i64>> = input.nodes.iter().map(|node| capacity(lanes, node)).collect();
    let mut known: FixedMap<usize, Vec<i64>> = FixedMap::default();
    for (pod, node) in &input.running {
        let plain = pod.status.container_statuses.is_empty();
        let pointer = std::sync::Arc::as_ptr(&pod.spec) as usize;
        let used = if plain {
            known.entry(pointer).or_insert_with(|| amounts(lanes, &requests::of_bound(pod), 1)).clone()
        } else {
            amounts(lanes, &requests::of_bound(pod), 1)
        };
        for (have, used) in free[*node as usize].iter_mut().zip(used) {
            *have -= used;
        }
    }
    free
}

fn raise(marks: &mut Vec<(u32, u32)>, counters: &[u32]) {
    for &counter in counters {
        match marks.iter_mut().find(|(id, _)| *id == counter) {
            Some(entry) => entry.1 += 1,
            None => marks.push((counter, 1)),
        }
    }
}

/// Counts running pods for spread and affinity; a terminating pod does not count for spread.
fn mark_running(input: &Input<'_>, terms: &Terms<'_>, marks: &mut [Vec<(u32, u32)>]) {
    if terms.counters.is_empty() {
        return;
    }
    let mut known: FixedMap<(&str, &Labels), Vec<u32>> = FixedMap::default();
    for (pod, node) in &input.running {
        let face = (&*pod.metadata.namespace, &pod.metadata.labels);
        let raised = known.entry(face).or_insert_with(|| terms.raised_by(pod));
        if raised.is_empty() {
            continue;
        }
        if pod.is_terminating() {
            let kept: Vec<u32> = raised.iter().copied().filter(|&id| !terms.is_spread(id)).collect();
            raise(&mut marks[*node as usize], &kept);
        } else {
            raise(&mut marks[*node as usize], raised);
        }
    }
}

fn shapes(
    input: &Input<'_>,
    lanes: &[Box<str>],
    signatures: &Signatures<'_>,
    locations: &Locations,
    daemon_marks: &[Vec<u32>],
) -> Vec<solve::Shape> {
    let daemons: Vec<Vec<i64>> =
        input.daemons.iter().map(|pod| amounts(lanes, &requests::of_pending(pod), 1)).collect();
    let first = input.nodes.len();
    let mut rooms: FixedMap<usize, Vec<i64>> = FixedMap::default();
    input
        .offers
        .iter()
        .enumerate()
        .map(|(at, offer)| {
            // Offerings of one template share its amounts.
            let list = std::ptr::from_ref(offer.node) as usize;
            let mut room = rooms.entry(list).or_insert_with(|| capacity(lanes, offer.node)).clone();
            let mut marks = Vec::new();
            for &daemon in &offer.daemons {
                for (have, want) in room.iter_mut().zip(&daemons[daemon as usize]) {
                    *have -= want;
                }
                raise(&mut marks, &daemon_marks[daemon as usize]);
            }
            solve::Shape {
                room,
                signature: signatures.of_target[first + at],
                location: locations.of_target[first + at],
                cost: offer.cost,
                supply: offer.supply,
                takes: offer.takes.clone(),
                rank: offer.rank,
                marks,
            }
        })
        .collect()
}

/// Weights of preferred node affinity by location.
fn prefers(pod: &Pod, targets: &[&Node], locations: &Locations) -> Vec<(u32, i64)> {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let Some(affinity) = affinity.filter(|affinity| !affinity.preferred.is_empty()) else {
        return Vec::new();
    };
    let mut best: BTreeMap<u32, i64> = BTreeMap::new();
    for (node, &location) in targets.iter().zip(&locations.of_target) {
        let score: i64 = affinity
            .preferred
            .iter()
            .filter(|term| node_affinity::term_matches(&term.preference, &node.metadata.labels, node.name()))
            .map(|term| i64::from(term.weight))
            .sum();
        let entry = best.entry(location).or_default();
        *entry = (*entry).max(score);
    }
    best.into_iter().filter(|(_, score)| *score != 0).collect()
}
