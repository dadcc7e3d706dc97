//! From a snapshot to a plan for its pending pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_model::k8s::{Node, Pod};

use super::{
    explain::{self, Report},
    offers::{Way, WaySource, Ways, pools_by_name},
    translate::{Input, Offer, Translated, translate},
    types::{NewNode, Placement, Plan, Source, Target},
};
use crate::{
    admit, down,
    down::by_name,
    snapshot::{MemberState, Snapshot},
    solve,
};

/// A plan and why it is so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    pub plan: Plan,
    pub report: Report,
}

/// Whether reasons are worked out. A plan without them is for measuring what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    Yes,
    No,
}

/// Plans machines for the pending pods of a snapshot. Nothing is removed.
pub fn scale_up(snapshot: &Snapshot) -> Decision {
    scale_up_with(snapshot, Explain::Yes)
}

/// As [`scale_up`], with or without reasons.
pub fn scale_up_with(snapshot: &Snapshot, explain: Explain) -> Decision {
    let ways = Ways::new(snapshot);
    let scene = Scene::new(snapshot, &ways);
    let mut left_out: BTreeSet<usize> = BTreeSet::new();
    loop {
        let mut keys = Vec::new();
        let pending = scene.pending_without(snapshot, &left_out);
        let input = scene.input(&pending, snapshot, &ways);
        let translated = translate(&input, &mut keys);
        let solution = solve::solve(&translated.problem);
        let draft =
            Draft { snapshot, ways: &ways, scene: &scene, pending: &pending, translated: &translated };
        let plan = draft.plan(&solution, &left_out);
        let torn = torn_groups(snapshot, &plan, &left_out);
        if torn.is_empty() {
            let report = match explain {
                Explain::Yes => {
                    explain::report(snapshot, &ways, &translated, &solution, &pending, &scene.nodes)
                }
                Explain::No => Report::default(),
            };
            return Decision { plan, report };
        }
        left_out.extend(torn);
    }
}

/// The numeric problem that a snapshot poses, for bounds and measurements.
pub fn problem(snapshot: &Snapshot) -> solve::Problem {
    let ways = Ways::new(snapshot);
    let scene = Scene::new(snapshot, &ways);
    let mut keys = Vec::new();
    let input = scene.input(&scene.pending, snapshot, &ways);
    translate(&input, &mut keys).problem
}

/// The parts of the world that the planner reads, with what is only simulated.
#[derive(Debug)]
struct Scene<'a> {
    /// By name, so that the order of the snapshot does not matter.
    nodes: Vec<&'a Node>,
    pending: Vec<&'a Pod>,
    /// Bound pods by index of their node.
    running: Vec<(&'a Pod, u32)>,
    real_nodes: usize,
    /// Nodes that a pool's minimum asks for: the way they come, and the node.
    required: Vec<(usize, Node)>,
    /// One pod of each daemon set.
    daemons: Vec<Pod>,
    /// Which of them run on the node of each way.
    on_way: Vec<Vec<u32>>,
    /// Simulated daemon pods on nodes on their way: daemon, node.
    on_upcoming: Vec<(u32, u32)>,
    budgets: Vec<i64>,
    supply: Vec<u32>,
    closed: Vec<Node>,
}

impl<'a> Scene<'a> {
    fn new(snapshot: &'a Snapshot, ways: &Ways) -> Self {
        let cluster = &snapshot.cluster;
        let mut nodes: Vec<&Node> = cluster.nodes.iter().collect();
        nodes.sort_by(|a, b| by_name(a.name(), b.name()));
        let places: BTreeMap<&str, u32> = nodes.iter().map(|node| node.name()).zip(0..).collect();
        let mut pending: Vec<&Pod> = Vec::with_capacity(cluster.pods.len());
        let mut running = Vec::new();
        for pod in &cluster.pods {
            if pod.is_pending() {
                pending.push(pod);
            } else if !pod.is_finished()
                && let Some(&node) = pod.spec.node_name.as_deref().and_then(|name| places.get(name))
            {
                running.push((pod, node));
            }
        }
        let daemons = daemons(snapshot);
        let lands = |node: &Node| -> Vec<u32> {
            let wanted = |(set, _): &(&muster_model::k8s::DaemonSet, u32)| admit::wants_node(set, node);
            daemons.iter().map(|(set, _)| *set).zip(0..).filter(wanted).map(|(_, at)| at).collect()
        };
        let on_way = ways.list.iter().map(|way| lands(&way.node)).collect();
        let present: BTreeSet<(&str, &str, u32)> = running
            .iter()
            .filter_map(|(pod, node)| {
                let owner = pod.metadata.controller().filter(|owner| &*owner.kind == "DaemonSet")?;
                Some((&*pod.metadata.namespace, &*owner.name, *node))
            })
            .collect();
        let mut on_upcoming = Vec::new();
        for (&node, at) in nodes.iter().zip(0..) {
            let member = snapshot.members.get(node.name());
            if member.is_some_and(|member| matches!(member.state, MemberState::Upcoming { .. })) {
                let missing = |daemon: &u32| {
                    let set = daemons[*daemon as usize].0;
                    !present.contains(&(&*set.metadata.namespace, &*set.metadata.name, at))
                };
                on_upcoming.extend(lands(node).into_iter().filter(missing).map(|daemon| (daemon, at)));
            }
        }
        let closed = cluster
            .nodes
            .iter()
            .filter(|node| snapshot.members.get(node.name()).is_some_and(|m| m.state == MemberState::Leaving))
            .map(cordoned)
            .collect();
        let mut scene = Self {
            real_nodes: nodes.len(),
            nodes,
            pending,
            running,
            required: Vec::new(),
            daemons: daemons.iter().map(|(_, pod)| pod.clone()).collect(),
            on_way,
            on_upcoming,
            budgets: ways.budgets.clone(),
            supply: ways.list.iter().map(|way| way.supply).collect(),
            closed,
        };
        scene.require_minimum(snapshot, ways);
        scene
    }

    /// Calls up what a pool's minimum or fixed size asks for; pods then find these nodes there.
    fn require_minimum(&mut self, snapshot: &Snapshot, ways: &Ways) {
        for (index, pool) in pools_by_name(snapshot) {
            let members = snapshot.members.values().filter(|member| member.pool == pool.name);
            let staying = members.filter(|member| member.state != MemberState::Leaving).count() as u32;
            let wanted = pool.fixed.map_or(pool.min, |fixed| fixed.max(pool.min));
            let wanted = if down::step(snapshot, pool).is_some() { wanted.max(staying + 1) } else { wanted };
            for _ in staying..wanted {
                let mut best: Option<(i64, i64, usize)> = None;
                for (at, way) in ways.list.iter().enumerate().filter(|(_, way)| way.pool == index) {
                    let room = self.supply[at] > 0
                        && way.takes.iter().all(|&(budget, amount)| self.budgets[budget as usize] >= amount);
                    if room && best.is_none_or(|top| (way.cost, way.rank, at) < top) {
                        best = Some((way.cost, way.rank, at));
                    }
                }
                let Some((.., at)) = best else { break };
                self.take(ways, at);
            }
        }
    }

    fn take(&mut self, ways: &Ways, at: usize) {
        let way = &ways.list[at];
        if self.supply[at] != solve::UNLIMITED {
            self.supply[at] -= 1;
        }
        for &(budget, amount) in &way.takes {
            self.budgets[budget as usize] -= amount;
        }
        let mut node = way.node.clone();
        let name = format!("new-{}", self.required.len());
        node.metadata.labels.insert(crate::template::HOSTNAME_LABEL, name.as_str().into());
        node.metadata.name = name.into();
        self.required.push((at, node));
    }

    fn pending_without(&self, snapshot: &Snapshot, left_out: &BTreeSet<usize>) -> Vec<&'a Pod> {
        if left_out.is_empty() {
            return self.pending.clone();
        }
        let out: BTreeSet<(&str, &str)> = left_out
            .iter()
            .flat_map(|&group| &snapshot.groups[group].pods)
            .map(|pod| (&*pod.namespace, &*pod.name))
            .collect();
        let stays = |pod: &&&Pod| !out.contains(&(&*pod.metadata.namespace, &*pod.metadata.name));
        self.pending.iter().filter(stays).copied().collect()
    }

    fn input<'s>(&'s self, pending: &[&'s Pod], snapshot: &'s Snapshot, ways: &'s Ways) -> Input<'s>
    where
        'a: 's,
    {
        let mut nodes: Vec<&Node> = self.nodes.clone();
        for closed in &self.closed {
            if let Some(node) = nodes.iter_mut().find(|node| node.name() == closed.name()) {
                *node = closed;
            }
        }
        let mut running: Vec<(&Pod, u32)> = self.running.clone();
        running.extend(self.on_upcoming.iter().map(|&(daemon, node)| (&self.daemons[daemon as usize], node)));
        for (at, (way, node)) in self.required.iter().enumerate() {
            let place = (self.real_nodes + at) as u32;
            nodes.push(node);
            running.extend(self.on_way[*way].iter().map(|&daemon| (&self.daemons[daemon as usize], place)));
        }
        Input {
            nodes,
            running,
            pending: pending.to_vec(),
            offers: ways
                .list
                .iter()
                .zip(&self.on_way)
                .zip(&self.supply)
                .map(|((way, daemons), &supply)| Offer {
                    node: &way.node,
                    cost: way.cost,
                    supply,
                    takes: way.takes.clone(),
                    rank: way.rank,
                    daemons: daemons.clone(),
                })
                .collect(),
            namespaces: snapshot.cluster.namespaces.iter().collect(),
            daemons: self.daemons.iter().collect(),
            budgets: self.budgets.clone(),
        }
    }
}

/// Nothing new goes to a node that is being removed.
fn cordoned(node: &Node) -> Node {
    let mut copy = node.clone();
    copy.status.allocatable =
        copy.status.allocatable.iter().filter(|(name, _)| *name != "pods").map(|(n, a)| (n, *a)).collect();
    copy
}

/// Daemon sets with the pod they would make, as it would be stored.
fn daemons(snapshot: &Snapshot) -> Vec<(&muster_model::k8s::DaemonSet, Pod)> {
    let classes = admit::Classes {
        priority: &snapshot.cluster.priority_classes,
        runtime: &snapshot.cluster.runtime_classes,
    };
    let made = |set| Some((set, admit::admit(admit::daemon_pod(set, "new"), classes).ok()?));
    snapshot.cluster.daemon_sets.iter().filter_map(made).collect()
}

/// Groups of which some pods but not enough are placed.
fn torn_groups(snapshot: &Snapshot, plan: &Plan, left_out: &BTreeSet<usize>) -> Vec<usize> {
    if snapshot.groups.is_empty() {
        return Vec::new();
    }
    let placed: BTreeSet<_> = plan.placements.iter().map(|placement| &placement.pod).collect();
    let bound: BTreeSet<_> = snapshot
        .cluster
        .pods
        .iter()
        .filter(|pod| pod.spec.node_name.is_some() && !pod.is_finished())
        .map(Pod::key)
        .collect();
    let torn = |(at, group): &(usize, &crate::snapshot::Group)| {
        let new = group.pods.iter().filter(|pod| placed.contains(pod)).count();
        let old = group.pods.iter().filter(|pod| bound.contains(pod)).count();
        !left_out.contains(at) && new > 0 && new + old < group.min as usize
    };
    snapshot.groups.iter().enumerate().filter(torn).map(|(at, _)| at).collect()
}

/// Everything needed to write a solution down as a plan.
struct Draft<'d> {
    snapshot: &'d Snapshot,
    ways: &'d Ways,
    scene: &'d Scene<'d>,
    pending: &'d [&'d Pod],
    translated: &'d Translated<'d>,
}

impl Draft<'_> {
    fn plan(&self, solution: &solve::Solution, left_out: &BTreeSet<usize>) -> Plan {
        let required = self.scene.required.len() as u32;
        let mut names = Names::new(self.snapshot);
        let ways = self.scene.required.iter().map(|(way, _)| *way);
        let ways = ways.chain(solution.machines.iter().map(|&shape| shape as usize));
        let new_nodes = ways.map(|at| names.node(&self.ways.list[at], at)).collect();
        let mut next = vec![0_usize; self.translated.classes.len()];
        let mut placements = Vec::with_capacity(self.pending.len());
        for step in &solution.steps {
            let on = match step.target {
                solve::Target::Node(at) if (at as usize) < self.scene.real_nodes => {
                    Target::Node(self.scene.nodes[at as usize].metadata.name.clone())
                }
                solve::Target::Node(at) => Target::New(at - self.scene.real_nodes as u32),
                solve::Target::Machine(at) => Target::New(required + at),
            };
            let members = &self.translated.classes[step.class as usize].members;
            let from = &mut next[step.class as usize];
            for &member in &members[*from..*from + step.count as usize] {
                placements.push(Placement { pod: self.pending[member as usize].key(), on: on.clone() });
            }
            *from += step.count as usize;
        }
        let mut unplaced: Vec<_> = self
            .translated
            .classes
            .iter()
            .zip(&next)
            .flat_map(|(class, &from)| &class.members[from..])
            .map(|&member| self.pending[member as usize].key())
            .collect();
        let groups = left_out.iter().flat_map(|&group| &self.snapshot.groups[group].pods);
        let pending: BTreeSet<_> = if left_out.is_empty() {
            BTreeSet::new()
        } else {
            self.scene.pending.iter().map(|pod| pod.key()).collect()
        };
        unplaced.extend(groups.filter(|pod| pending.contains(*pod)).cloned());
        unplaced.sort_unstable();
        unplaced.dedup();
        Plan { new_nodes, placements, removals: Vec::new(), unplaced }
    }
}

/// Gives new nodes names that nothing else has.
struct Names<'a> {
    snapshot: &'a Snapshot,
    taken: BTreeSet<&'a str>,
    numbers: BTreeMap<usize, u32>,
    hosts: BTreeMap<usize, usize>,
}

impl<'a> Names<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let taken = snapshot.cluster.nodes.iter().map(Node::name).collect();
        Self { snapshot, taken, numbers: BTreeMap::new(), hosts: BTreeMap::new() }
    }

    fn node(&mut self, way: &Way, at: usize) -> NewNode {
        let pool = &self.snapshot.pools[way.pool];
        let template = &pool.templates[way.template];
        let (name, source) = match &way.source {
            WaySource::Offering(offering) => {
                let offering = &template.offerings[*offering];
                let source = Source::Bought {
                    zone: offering.zone.clone(),
                    capacity_type: offering.capacity_type.clone(),
                };
                (self.fresh(way.pool, &pool.name), source)
            }
            WaySource::Hosts(hosts) => {
                let used = self.hosts.entry(at).or_default();
                let host = &self.snapshot.hosts[hosts[*used]];
                *used += 1;
                let free = !self.taken.contains(&*host.name);
                let name = if free { host.name.clone() } else { self.fresh(way.pool, &pool.name) };
                (name, Source::Host { host: host.name.clone() })
            }
        };
        NewNode { name, pool: pool.name.clone(), template: template.name.clone(), source, price: way.price }
    }

    fn fresh(&mut self, pool: usize, prefix: &str) -> Arc<str> {
        loop {
            let number = self.numbers.entry(pool).or_default();
            let name = format!("{prefix}-new-{number}");
            *number += 1;
            if !self.taken.contains(name.as_str()) {
                return name.into();
            }
        }
    }
}
