//! The parts of the world that the planner reads, with what is only simulated: nodes that a pool has to
//! have, and daemons on nodes that are not there yet.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{DaemonSet, Node, Pod};

use super::{
    balance::Balance,
    disks,
    explain::{Growth, PoolGrowth},
    hash::FixedMap,
    offers::{Ways, pools_by_name},
    translate::{Input, Offer, Running, Wishes},
};
use crate::{
    admit, down,
    snapshot::{MemberState, Pool, Snapshot},
    solve,
};

/// The pods of a cluster as the planner reads them.
#[derive(Debug, Default)]
pub(crate) struct Pods<'a> {
    pub(crate) pending: Vec<&'a Pod>,
    pub(crate) running: Vec<Running<'a>>,
}

impl<'a> Pods<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let cluster = &snapshot.cluster;
        let places: FixedMap<&str, u32> = cluster.nodes.iter().map(Node::name).zip(0..).collect();
        let mut pods = Self::default();
        let mut last: Option<(&str, u32)> = None;
        for pod in &cluster.pods {
            let Some(name) = pod.spec.node_name.as_deref() else {
                if pod.is_pending() && snapshot.spent(pod).is_none() {
                    pods.pending.push(pod);
                }
                continue;
            };
            if pod.is_finished() {
                continue;
            }
            let node = match last {
                Some((known, node)) if known == name => Some(node),
                _ => places.get(name).copied(),
            };
            if let Some(node) = node {
                last = Some((name, node));
                pods.running.push(Running { pod, node, count: 1, class: None });
            }
        }
        pods
    }
}

/// A node that the plan adds whether or not a pod asks for it.
#[derive(Debug, Clone)]
pub(crate) struct Required {
    /// Index of the way it comes.
    pub(crate) way: usize,
    node: Node,
}

#[derive(Debug, Clone)]
pub(crate) struct Scene<'a> {
    /// By name, so that the order of the snapshot does not matter.
    pub(crate) nodes: Vec<&'a Node>,
    pub(crate) pending: Vec<&'a Pod>,
    pub(crate) running: Vec<Running<'a>>,
    pub(crate) real_nodes: usize,
    pub(crate) required: Vec<Required>,
    pub(crate) growth: Vec<PoolGrowth>,
    /// One pod of each daemon set.
    daemons: Vec<Pod>,
    /// Which of them run on the node of each way.
    pub(crate) on_way: Vec<Vec<u32>>,
    /// Simulated daemon pods on nodes on their way: daemon, node.
    on_upcoming: Vec<(u32, u32)>,
    pub(crate) budgets: Vec<i64>,
    pub(crate) supply: Vec<u32>,
    pub(crate) balance: Balance,
    /// Nodes that take nothing new, by index, as the planner sees them.
    closed: BTreeMap<usize, Node>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, ways: &Ways, pods: Pods<'a>) -> Self {
        let Pods { pending, mut running } = pods;
        let nodes = nodes_by_name(snapshot, &mut running);
        let daemons = daemons(snapshot);
        let lands = |node: &Node| -> Vec<u32> {
            let wanted = |(set, _): &(&DaemonSet, u32)| admit::wants_node(set, node);
            daemons.iter().map(|(set, _)| *set).zip(0..).filter(wanted).map(|(_, at)| at).collect()
        };
        let on_way = ways.list.iter().map(|way| lands(&way.node)).collect();
        let present: BTreeSet<(&str, &str, u32)> = running
            .iter()
            .filter(|_| !daemons.is_empty())
            .filter_map(|running| {
                let owner = running.pod.metadata.controller().filter(|owner| &*owner.kind == "DaemonSet")?;
                Some((&*running.pod.metadata.namespace, &*owner.name, running.node))
            })
            .collect();
        let mut on_upcoming = Vec::new();
        let mut closed = BTreeMap::new();
        for (&node, at) in nodes.iter().zip(0..) {
            match snapshot.members.get(node.name()).map(|member| member.state) {
                Some(MemberState::Upcoming { .. }) => {
                    let missing = |daemon: &u32| {
                        let set = daemons[*daemon as usize].0;
                        !present.contains(&(&*set.metadata.namespace, &*set.metadata.name, at))
                    };
                    on_upcoming.extend(lands(node).into_iter().filter(missing).map(|daemon| (daemon, at)));
                }
                Some(MemberState::Leaving) => {
                    closed.insert(at as usize, without_room(node));
                }
                _ => {}
            }
        }
        let mut scene = Self {
            real_nodes: nodes.len(),
            nodes,
            pending,
            running,
            required: Vec::new(),
            growth: Vec::new(),
            daemons: daemons.iter().map(|(_, pod)| pod.clone()).collect(),
            on_way,
            on_upcoming,
            budgets: ways.budgets.clone(),
            supply: ways.list.iter().map(|way| way.supply).collect(),
            balance: Balance::new(snapshot),
            closed,
        };
        scene.require(snapshot, ways);
        scene
    }

    /// Calls up what a pool's minimum, its fixed size or a step asks for; pods then find these nodes there.
    fn require(&mut self, snapshot: &Snapshot, ways: &Ways) {
        let mut staying: FixedMap<&str, u32> = FixedMap::default();
        for member in snapshot.members.values().filter(|member| member.state != MemberState::Leaving) {
            *staying.entry(&*member.pool).or_default() += 1;
        }
        for (index, pool) in pools_by_name(snapshot) {
            let staying = staying.get(&*pool.name).copied().unwrap_or(0);
            let (wanted, why) = self.wanted(snapshot, pool, staying);
            let mut called = 0;
            for _ in staying..wanted {
                let Some(at) = self.cheapest(ways, |at| ways.list[at].pool == index) else { break };
                self.take(ways, at, Room::Open);
                called += 1;
            }
            if let Some(why) = why.filter(|_| wanted > staying) {
                let missing = wanted - staying - called;
                self.growth.push(PoolGrowth { pool: pool.name.to_string(), nodes: called, missing, why });
            }
        }
    }

    /// How many nodes the pool has to have, and for what reason.
    fn wanted(&self, snapshot: &Snapshot, pool: &Pool, staying: u32) -> (u32, Option<Growth>) {
        let (least, why) = match pool.fixed {
            Some(size) if size >= pool.min => (size, Growth::Fixed { size }),
            _ => (pool.min, Growth::Minimum { min: pool.min }),
        };
        if staying < least {
            return (least, Some(why));
        }
        let bound = || {
            let name = |at: u32| self.nodes[at as usize].name();
            self.running.iter().map(move |running| (running.pod, name(running.node), running.count))
        };
        match down::step_among(snapshot, pool, bound) {
            Some(step) => (staying + 1, Some(Growth::Step { step })),
            None => (least, None),
        }
    }

    /// The best way among those that are to be had: cost, then time, then the least crowded place.
    fn cheapest(&self, ways: &Ways, among: impl Fn(usize) -> bool) -> Option<usize> {
        let usable = (0..ways.list.len()).filter(|&at| among(at) && self.is_to_be_had(ways, at));
        usable.min_by_key(|&at| {
            (ways.list[at].cost, ways.list[at].rank, self.balance.crowd(&ways.list[at]), at)
        })
    }

    pub(crate) fn is_to_be_had(&self, ways: &Ways, at: usize) -> bool {
        let enough = |&(budget, amount): &(u32, i64)| self.budgets[budget as usize] >= amount;
        self.supply[at] > 0 && ways.list[at].takes.iter().all(enough)
    }

    /// Adds the node of a way to what is there.
    pub(crate) fn take(&mut self, ways: &Ways, at: usize, room: Room) {
        let way = &ways.list[at];
        self.spend(ways, at);
        let mut node = if room == Room::Kept { without_room(&way.node) } else { way.node.clone() };
        let name = format!("new-{}", self.required.len());
        node.metadata.labels.insert(crate::template::HOSTNAME_LABEL, name.as_str().into());
        node.metadata.name = name.into();
        self.required.push(Required { way: at, node });
    }

    /// Takes a machine out of supply and limits.
    pub(crate) fn spend(&mut self, ways: &Ways, at: usize) {
        let way = &ways.list[at];
        if self.supply[at] != solve::UNLIMITED {
            self.supply[at] -= 1;
        }
        for &(budget, amount) in &way.takes {
            self.budgets[budget as usize] -= amount;
        }
        self.balance.add(way);
    }

    /// Index of the node of a required one among all nodes of the problem.
    pub(crate) fn required_node(&self, at: usize) -> usize {
        self.real_nodes + at
    }

    pub(crate) fn daemon(&self, at: u32) -> &Pod {
        &self.daemons[at as usize]
    }

    pub(crate) fn pending_without(&self, snapshot: &Snapshot, left_out: &BTreeSet<usize>) -> Vec<&'a Pod> {
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

    pub(crate) fn input<'s>(
        &'s self,
        pending: &[&'s Pod],
        snapshot: &'s Snapshot,
        ways: &'s Ways,
    ) -> Input<'s>
    where
        'a: 's,
    {
        let mut nodes: Vec<&Node> = self.nodes.clone();
        for (at, node) in &self.closed {
            nodes[*at] = node;
        }
        let mut running: Vec<Running<'s>> = self.running.clone();
        let daemon =
            |daemon: u32, node: u32| Running { pod: self.daemon(daemon), node, count: 1, class: None };
        running.extend(self.on_upcoming.iter().map(|&(at, node)| daemon(at, node)));
        for (at, required) in self.required.iter().enumerate() {
            let place = self.required_node(at) as u32;
            nodes.push(&required.node);
            running.extend(self.on_way[required.way].iter().map(|&at| daemon(at, place)));
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
                .map(|((way, daemons), &supply)| {
                    let pool = &snapshot.pools[way.pool];
                    Offer {
                        node: &way.node,
                        cost: way.cost,
                        supply,
                        takes: way.takes.clone(),
                        rank: way.rank,
                        daemons: daemons.clone(),
                        csi: pool.templates[way.template].csi.as_ref(),
                    }
                })
                .collect(),
            namespaces: snapshot.cluster.namespaces.iter().collect(),
            daemons: self.daemons.iter().collect(),
            budgets: self.budgets.clone(),
            storage: Some(disks::storage(&snapshot.cluster)),
            wishes: Wishes::Kept,
        }
    }
}

/// Whether pods of the plan may use a node that is called up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Open,
    /// It is there for what comes next.
    Kept,
}

/// The nodes in the order of their names; running pods are numbered anew.
fn nodes_by_name<'a>(snapshot: &'a Snapshot, running: &mut [Running<'_>]) -> Vec<&'a Node> {
    let nodes: Vec<&Node> = snapshot.cluster.nodes.iter().collect();
    let before = |a: &Node, b: &Node| down::by_name(a.name(), b.name()).is_le();
    if nodes.windows(2).all(|pair| before(pair[0], pair[1])) {
        return nodes;
    }
    let mut order: Vec<u32> = (0..nodes.len() as u32).collect();
    order.sort_by(|&a, &b| down::by_name(nodes[a as usize].name(), nodes[b as usize].name()));
    let mut place = vec![0; nodes.len()];
    for (at, &old) in (0..).zip(&order) {
        place[old as usize] = at;
    }
    for running in running {
        running.node = place[running.node as usize];
    }
    order.iter().map(|&at| nodes[at as usize]).collect()
}

/// Nothing new goes there, but it is there and counts for spread.
fn without_room(node: &Node) -> Node {
    let mut copy = node.clone();
    copy.status.allocatable =
        copy.status.allocatable.iter().filter(|(name, _)| *name != "pods").map(|(n, a)| (n, *a)).collect();
    copy
}

/// Daemon sets with the pod they would make, as it would be stored.
fn daemons(snapshot: &Snapshot) -> Vec<(&DaemonSet, Pod)> {
    let classes = admit::Classes {
        priority: &snapshot.cluster.priority_classes,
        runtime: &snapshot.cluster.runtime_classes,
    };
    let made = |set| Some((set, admit::admit(admit::daemon_pod(set, "new"), classes).ok()?));
    snapshot.cluster.daemon_sets.iter().filter_map(made).collect()
}
