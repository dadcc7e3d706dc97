//! Turns pods, nodes and offers into a numeric problem.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_model::k8s::{CsiNodeSpec, Labels, Namespace, Node, Pod};

use super::{
    classes::{self, PodClass, Specs},
    disks::Disks,
    hash::FixedMap,
    targets::{EVERYWHERE, Locations, Signatures},
    terms::{self, Terms, topology_keys},
};
use crate::{
    fit::{Amounts, Storage, node_affinity, pod_affinity, requests},
    solve,
};

/// What is planned for, as plain references.
#[derive(Debug, Default)]
pub struct Input<'a> {
    /// Nodes that exist or are on their way.
    pub nodes: Vec<&'a Node>,
    /// Bound pods that have not finished.
    pub running: Vec<Running<'a>>,
    pub pending: Vec<&'a Pod>,
    pub offers: Vec<Offer<'a>>,
    pub namespaces: Vec<&'a Namespace>,
    /// One pod of each daemon; offers say which of them run there.
    pub daemons: Vec<&'a Pod>,
    /// Limits that offers share.
    pub budgets: Vec<i64>,
    /// Volumes and claims; without them no volume is looked at.
    pub storage: Option<Storage<'a>>,
    pub wishes: Wishes,
}

/// Whether constraints that may be violated are part of the problem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wishes {
    #[default]
    Ignored,
    Kept,
}

/// Equal pods on one node.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    /// One of them.
    pub pod: &'a Pod,
    /// Index of their node.
    pub node: u32,
    pub count: u32,
    /// A number that equal pods on other nodes share, if whoever keeps them has one.
    pub class: Option<u32>,
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
    /// Its storage drivers, if they are known.
    pub csi: Option<&'a CsiNodeSpec>,
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
    let specs = Specs::new(&input.pending);
    let guards: Vec<Running<'a>> = input
        .running
        .iter()
        .copied()
        .filter(|running| !pod_affinity::required_anti(&running.pod.spec).is_empty())
        .collect();
    let read_by = || specs.distinct.iter().copied().chain(guards.iter().map(|guard| guard.pod));
    let mut read: BTreeSet<&str> = BTreeSet::new();
    classes::keys_read(read_by(), &mut read);
    let (classes, mut requests) = sorted(input, classes::group(&input.pending, &specs, &read));
    let disks = Disks::new(input, &classes);
    *keys = topology_keys(read_by(), input.wishes == Wishes::Kept);
    if disks.shares_exclusive_claims() {
        keys.push(EVERYWHERE.into());
    }
    let targets: Vec<&Node> =
        input.nodes.iter().copied().chain(input.offers.iter().map(|offer| offer.node)).collect();
    let signatures = Signatures::new(&targets, &classes, &disks);
    let locations = Locations::new(&targets, keys);
    let namespaces: BTreeMap<&str, &Labels> =
        input.namespaces.iter().map(|space| (&*space.metadata.name, &space.metadata.labels)).collect();
    let mut terms = Terms::new(keys, signatures.named(), namespaces);
    let lanes = lanes(&classes, &disks);
    let mut numeric = Vec::with_capacity(classes.len());
    for (at, class) in classes.iter().enumerate() {
        let mut rules = solve::Class {
            count: class.members.len() as u32,
            request: disks.request(at, with_disks(&mut requests[at], lanes.len())),
            priority: class.pod.spec.priority.unwrap_or(0),
            signature: signatures.of_class[at],
            prefers: prefers(class.pod, &targets, &locations),
            ..solve::Class::default()
        };
        terms.rules(class.pod, &signatures, &disks, &mut rules);
        if input.wishes == Wishes::Kept {
            terms.wishes(class.pod, &signatures, &mut rules);
        }
        numeric.push(rules);
    }
    let held: Vec<Vec<u32>> = guards.iter().map(|guard| terms.hold(guard.pod)).collect();
    let occupied: Vec<(u32, Vec<u32>)> = input
        .running
        .iter()
        .filter(|running| terms::occupies(running.pod))
        .map(|running| (running.node, terms.occupy(running.pod)))
        .collect();
    let mut daemon_marks: Vec<Vec<u32>> = input.daemons.iter().map(|pod| terms.occupy(pod)).collect();
    complete(&mut terms, &classes, &mut numeric);
    for (marks, pod) in daemon_marks.iter_mut().zip(&input.daemons) {
        marks.extend(terms.raised_by(pod));
    }
    let mut marks: Vec<Vec<(u32, u32)>> = vec![Vec::new(); input.nodes.len()];
    for (guard, held) in guards.iter().zip(&held) {
        raise(&mut marks[guard.node as usize], held, guard.count);
    }
    for (node, ports) in &occupied {
        raise(&mut marks[*node as usize], ports, 1);
    }
    mark_running(input, &terms, &mut marks);
    let nodes = nodes(free_amounts(input, &lanes, &disks), marks, &signatures, &locations);
    let shapes = shapes(input, &lanes, &signatures, &locations, &daemon_marks, &disks);
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

/// Adds what every class raises and what it must not meet: both are known once all terms are.
fn complete(terms: &mut Terms<'_>, classes: &[PodClass<'_>], numeric: &mut [solve::Class]) {
    for (class, rules) in classes.iter().zip(numeric) {
        rules.raises.extend(terms.raises(class.face, class.pod));
        rules.raises.sort_unstable();
        rules.raises.dedup();
        rules.forbids.extend(terms.forbidden(class.pod));
        rules.forbids.sort_unstable();
        rules.forbids.dedup();
    }
}

/// The nodes, each with what is free on it and the marks of what runs there.
fn nodes(
    free: Vec<Vec<i64>>,
    marks: Vec<Vec<(u32, u32)>>,
    signatures: &Signatures<'_>,
    locations: &Locations,
) -> Vec<solve::Node> {
    let node = |(at, (free, marks))| solve::Node {
        free,
        signature: signatures.of_target[at],
        location: locations.of_target[at],
        marks,
    };
    free.into_iter().zip(marks).enumerate().map(node).collect()
}

/// Classes in the order of the problem, and what each asks for by lane, those of volumes not among them.
fn sorted<'a>(input: &Input<'a>, classes: Vec<PodClass<'a>>) -> (Vec<PodClass<'a>>, Vec<Vec<i64>>) {
    let lanes = lanes(&classes, &Disks::default());
    let mut requests: Vec<Vec<i64>> =
        classes.iter().map(|class| amounts(&lanes, &class.request, 1)).collect();
    let order = classes::order(&input.pending, &classes, &requests);
    let mut taken: Vec<Option<PodClass<'a>>> = classes.into_iter().map(Some).collect();
    let take = |&at: &u32| Some((taken[at as usize].take()?, std::mem::take(&mut requests[at as usize])));
    order.iter().filter_map(take).unzip()
}

/// A request with room for the lanes of volumes, which are the last.
fn with_disks(request: &mut Vec<i64>, lanes: usize) -> Vec<i64> {
    let mut request = std::mem::take(request);
    request.resize(lanes, 0);
    request
}

/// The resources that pending pods ask for, and the number of pods.
fn lanes(classes: &[PodClass<'_>], disks: &Disks<'_>) -> Vec<Box<str>> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let (mut cpu, mut memory, mut disk) = (false, false, false);
    let mut last: Option<&str> = None;
    for class in classes {
        cpu |= class.request.milli_cpu > 0;
        memory |= class.request.memory > 0;
        disk |= class.request.ephemeral_storage > 0;
        for name in class.request.scalars.keys() {
            // Most classes ask for what the one before asked for.
            if last != Some(&**name) {
                names.insert(name);
                last = Some(name);
            }
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
    lanes.extend(disks.lanes());
    lanes
}

/// Four pebibytes, or so many of anything else: sums of amounts within it do not overflow. Larger ones are
/// written by mistake, and count as so much.
const MOST: i64 = 1 << 52;

/// A million of the currency per hour: sums over millions of machines do not overflow. What is dearer is
/// written by mistake, and is as dear as this.
const DEAREST: i64 = 1 << 40;

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

fn free_amounts(input: &Input<'_>, lanes: &[Box<str>], disks: &Disks<'_>) -> Vec<Vec<i64>> {
    let mut free: Vec<Vec<i64>> = input
        .nodes
        .iter()
        .enumerate()
        .map(|(at, node)| disks.left_on_node(at, capacity(lanes, node)))
        .collect();
    let mut by_class: Vec<Option<Vec<i64>>> = Vec::new();
    let mut by_spec: FixedMap<usize, Vec<i64>> = FixedMap::default();
    for Running { pod, node, count, class } in &input.running {
        let used = || amounts(lanes, &requests::of_bound(pod), 1);
        let own;
        let used = if let Some(class) = *class {
            if by_class.len() <= class as usize {
                by_class.resize(class as usize + 1, None);
            }
            by_class[class as usize].get_or_insert_with(used)
        } else if pod.status.container_statuses.is_empty() && Arc::strong_count(&pod.spec) > 1 {
            by_spec.entry(Arc::as_ptr(&pod.spec) as usize).or_insert_with(used)
        } else {
            own = used();
            &own
        };
        for (have, used) in free[*node as usize].iter_mut().zip(used) {
            *have -= used * i64::from(*count);
        }
    }
    free
}

fn raise(marks: &mut Vec<(u32, u32)>, counters: &[u32], by: u32) {
    for &counter in counters {
        match marks.iter_mut().find(|(id, _)| *id == counter) {
            Some(entry) => entry.1 += by,
            None => marks.push((counter, by)),
        }
    }
}

/// Counts running pods for spread and affinity; a terminating pod does not count for spread.
fn mark_running(input: &Input<'_>, terms: &Terms<'_>, marks: &mut [Vec<(u32, u32)>]) {
    if terms.counters.is_empty() {
        return;
    }
    let mut known: FixedMap<(&str, &Labels), Vec<u32>> = FixedMap::default();
    for Running { pod, node, count, .. } in &input.running {
        let face = (&*pod.metadata.namespace, &pod.metadata.labels);
        let raised = known.entry(face).or_insert_with(|| terms.raised_by(pod));
        if raised.is_empty() {
            continue;
        }
        if pod.is_terminating() {
            let kept: Vec<u32> = raised.iter().copied().filter(|&id| !terms.is_spread(id)).collect();
            raise(&mut marks[*node as usize], &kept, *count);
        } else {
            raise(&mut marks[*node as usize], raised, *count);
        }
    }
}

fn shapes(
    input: &Input<'_>,
    lanes: &[Box<str>],
    signatures: &Signatures<'_>,
    locations: &Locations,
    daemon_marks: &[Vec<u32>],
    disks: &Disks<'_>,
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
                raise(&mut marks, &daemon_marks[daemon as usize], 1);
            }
            solve::Shape {
                room: disks.left_on_offer(at, room),
                signature: signatures.of_target[first + at],
                location: locations.of_target[first + at],
                cost: offer.cost.clamp(1, DEAREST),
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
