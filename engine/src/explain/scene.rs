//! The cluster once the plan is carried out, and the machines that could be added to it.

use std::{
    cell::{OnceCell, RefCell, RefMut},
    collections::BTreeMap,
    sync::Arc,
};

use muster_model::k8s::{CsiNode, Node, Pod, PodKey, PodStatus};

use super::shelf::Shelf;
use crate::{
    admit::{self, Classes},
    down::{self, Verdict},
    fit::{Amounts, Cycle, Plugin, Refusal, Rejection, Storage, World},
    plan::{NewNode, Plan, Source, Target},
    snapshot::{Host, MemberState, Offering, Pool, Snapshot, Template},
    template,
};

/// A machine that a pool could add, whether or not it can be had now.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) pool: usize,
    pub(super) template: usize,
    pub(super) way: Way,
    pub(super) node: Node,
    pub(super) daemons: Vec<Pod>,
    csi: Option<CsiNode>,
}

#[derive(Debug)]
pub(super) enum Way {
    Offering(usize),
    /// Hosts of one shape in one zone, by index.
    Hosts(Vec<usize>),
    /// The template has neither offerings nor hosts.
    Nothing,
}

/// What one candidate says to one pod.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) first: Option<Refusal>,
    /// Every plugin that refuses it alone.
    pub(super) all: Vec<(Plugin, Rejection)>,
    pub(super) capacity: Amounts,
    /// What daemon pods take.
    pub(super) used: Amounts,
}

/// What explanations are about: a snapshot, a plan for it, and what follows from the two.
#[derive(Debug)]
pub struct Scene<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) plan: &'s Plan,
    pub(super) candidates: Vec<Candidate>,
    new_nodes: Vec<Option<Node>>,
    new_csi: Vec<CsiNode>,
    /// Daemon pods on nodes of the plan and on nodes on their way.
    daemons: Vec<(Arc<str>, Pod)>,
    moved: BTreeMap<PodKey, Pod>,
    /// Verdicts on all nodes, made when the first is asked for, by name.
    verdicts: OnceCell<Verdicts>,
    /// Indexes of bound pods by node.
    bound: OnceCell<BTreeMap<&'s str, Vec<u32>>>,
    /// Pods and nodes as a fix would change them, for as long as a world may look at them.
    pub(super) changed_pods: Shelf<Pod>,
    pub(super) changed_nodes: Shelf<Node>,
}

/// A scene with its world, which is made when the first pod asks for it and serves all others.
#[derive(Debug)]
pub(super) struct Stage<'a, 's> {
    pub(super) scene: &'a Scene<'s>,
    world: RefCell<Option<World<'a>>>,
}

impl<'a, 's> Stage<'a, 's> {
    pub(super) fn new(scene: &'a Scene<'s>) -> Self {
        Self { scene, world: RefCell::new(None) }
    }

    /// The cluster with the plan carried out. Who adds to it takes it back.
    pub(super) fn world(&self) -> RefMut<'_, World<'a>> {
        RefMut::map(self.world.borrow_mut(), |world| world.get_or_insert_with(|| self.scene.world()))
    }
}

#[derive(Debug)]
struct Verdicts {
    report: down::Report,
    by_name: BTreeMap<Arc<str>, u32>,
}

impl<'s> Scene<'s> {
    pub fn new(snapshot: &'s Snapshot, plan: &'s Plan) -> Self {
        let new_nodes: Vec<Option<Node>> = plan.new_nodes.iter().map(|new| node_of(snapshot, new)).collect();
        let new_csi = plan.new_nodes.iter().filter_map(|new| {
            template::csi_node(snapshot.pool(&new.pool)?.template(&new.template)?, &new.name)
        });
        let upcoming = snapshot.cluster.nodes.iter().filter(|node| {
            let member = snapshot.members.get(node.name());
            member.is_some_and(|member| matches!(member.state, MemberState::Upcoming { .. }))
        });
        let mut daemons = Vec::new();
        for node in upcoming {
            let name = &node.metadata.name;
            let missing =
                daemons_on(snapshot, node).into_iter().filter(|pod| !is_present(snapshot, pod, name));
            daemons.extend(missing.map(|pod| (name.clone(), pod)));
        }
        for node in new_nodes.iter().flatten() {
            let pods = daemons_on(snapshot, node).into_iter();
            daemons.extend(pods.map(|pod| (node.metadata.name.clone(), pod)));
        }
        let bound: BTreeMap<PodKey, &Pod> =
            snapshot.cluster.pods.iter().map(|pod| (pod.key(), pod)).collect();
        let moves = plan.removals.iter().flat_map(|removal| &removal.moves);
        let moved =
            moves.filter_map(|step| Some((step.pod.clone(), unbound(bound.get(&step.pod)?)))).collect();
        let candidates = candidates(snapshot);
        Self {
            snapshot,
            plan,
            candidates,
            new_nodes,
            new_csi: new_csi.collect(),
            daemons,
            moved,
            verdicts: OnceCell::new(),
            bound: OnceCell::new(),
            changed_pods: Shelf::default(),
            changed_nodes: Shelf::default(),
        }
    }

    /// What scale-down says about a node, beside what the plan adds and places.
    pub(super) fn verdict(&self, name: &str) -> Option<&Verdict> {
        let verdicts = self.verdicts.get_or_init(|| {
            let growth = Plan { removals: Vec::new(), ..self.plan.clone() };
            // A plan that replaces nodes has new ones that only its removals explain.
            let replaces = self.plan.placements.is_empty() && !self.plan.removals.is_empty();
            let growth = if replaces { Plan::default() } else { growth };
            let report = down::scale_down(self.snapshot, &growth);
            let by_name = report.verdicts.iter().map(|verdict| verdict.node.clone()).zip(0..).collect();
            Verdicts { report, by_name }
        });
        verdicts.report.verdicts.get(*verdicts.by_name.get(name)? as usize)
    }

    /// Pods that run on a node.
    pub(super) fn pods_on(&self, name: &str) -> impl Iterator<Item = &'s Pod> {
        let pods = &self.snapshot.cluster.pods;
        let bound = self.bound.get_or_init(|| {
            let mut bound: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
            for (pod, at) in pods.iter().zip(0..) {
                if let Some(node) = pod.spec.node_name.as_deref().filter(|_| !pod.is_finished()) {
                    bound.entry(node).or_default().push(at);
                }
            }
            bound
        });
        let here = bound.get(name).map_or(&[][..], Vec::as_slice);
        here.iter().map(|at| &pods[*at as usize]).collect::<Vec<_>>().into_iter()
    }

    /// The cluster as it is, with the plan carried out.
    fn world(&self) -> World<'_> {
        let mut world = self.world_now();
        let new: Vec<Option<usize>> =
            self.new_nodes.iter().map(|node| node.as_ref().map(|node| world.add_node(node))).collect();
        for (node, pod) in &self.daemons {
            if let Some(node) = world.index_of(node) {
                world.bind(pod, node);
            }
        }
        let pods: BTreeMap<PodKey, &Pod> =
            self.snapshot.cluster.pods.iter().map(|pod| (pod.key(), pod)).collect();
        let target = |world: &World<'_>, target: &Target| match target {
            Target::Node(name) => world.index_of(name),
            Target::New(at) => *new.get(*at as usize)?,
        };
        for placement in &self.plan.placements {
            if let (Some(pod), Some(node)) = (pods.get(&placement.pod), target(&world, &placement.on)) {
                world.bind(pod, node);
            }
        }
        for removal in &self.plan.removals {
            for step in &removal.moves {
                if let (Some(pod), Some(node)) = (self.moved.get(&step.pod), target(&world, &step.on)) {
                    world.bind(pod, node);
                }
            }
            if let Some(node) = world.index_of(&removal.node) {
                world.remove_node(node);
            }
        }
        world
    }

    /// The cluster as it is.
    fn world_now(&self) -> World<'_> {
        let cluster = &self.snapshot.cluster;
        let candidates = self.candidates.iter().filter_map(|candidate| candidate.csi.as_ref());
        let storage = Storage::default()
            .with_volumes(&cluster.volumes)
            .with_claims(&cluster.claims)
            .with_classes(&cluster.storage_classes)
            .with_csi_nodes(cluster.csi_nodes.iter().chain(&self.new_csi).chain(candidates))
            .with_csi_drivers(&cluster.csi_drivers)
            .with_capacities(&cluster.storage_capacities)
            .with_attachments(&cluster.volume_attachments);
        let mut world = World::new(&cluster.nodes, &cluster.namespaces, storage);
        world.bind_running(&cluster.pods);
        world
    }

    pub(super) fn pool_of(&self, candidate: &Candidate) -> &'s Pool {
        &self.snapshot.pools[candidate.pool]
    }

    pub(super) fn template_of(&self, candidate: &Candidate) -> &'s Template {
        &self.pool_of(candidate).templates[candidate.template]
    }

    pub(super) fn offering_of(&self, candidate: &Candidate) -> Option<&'s Offering> {
        match candidate.way {
            Way::Offering(at) => self.template_of(candidate).offerings.get(at),
            _ => None,
        }
    }

    pub(super) fn hosts_of<'c>(
        &self,
        candidate: &'c Candidate,
    ) -> impl Iterator<Item = &'s Host> + use<'s, 'c> {
        let hosts = match &candidate.way {
            Way::Hosts(hosts) => &hosts[..],
            _ => &[],
        };
        let all = &self.snapshot.hosts;
        hosts.iter().map(|&at| &all[at])
    }
}

/// What the candidate says to the pod, in a world to which it is added for the moment.
pub(super) fn judge<'w>(world: &mut World<'w>, candidate: &'w Candidate, pod: &'w Pod) -> Judgement {
    let at = world.add_node(&candidate.node);
    for daemon in &candidate.daemons {
        world.bind(daemon, at);
    }
    let cycle = Cycle::new(world, pod);
    let first = cycle.refusal(at);
    let all = match first {
        None => Vec::new(),
        Some(_) => {
            Plugin::ORDER.into_iter().filter_map(|plugin| Some((plugin, cycle.alone(plugin, at)?))).collect()
        }
    };
    let state = world.node(at);
    let judgement = Judgement { first, all, capacity: state.capacity.clone(), used: state.used.clone() };
    world.take_back(at);
    judgement
}

fn node_of(snapshot: &Snapshot, new: &NewNode) -> Option<Node> {
    let template = snapshot.pool(&new.pool)?.template(&new.template)?;
    let (zone, kind) = match &new.source {
        Source::Bought { zone, capacity_type } => (zone.as_deref(), capacity_type.as_deref()),
        Source::Host { host } => (snapshot.host(host).and_then(|host| host.zone.as_deref()), None),
    };
    Some(template::node(template, &new.name, zone, kind))
}

/// The daemon pods that would run on a node, as they would be stored.
fn daemons_on(snapshot: &Snapshot, node: &Node) -> Vec<Pod> {
    let cluster = &snapshot.cluster;
    let classes = Classes { priority: &cluster.priority_classes, runtime: &cluster.runtime_classes };
    let wanted = cluster.daemon_sets.iter().filter(|set| admit::wants_node(set, node));
    wanted.filter_map(|set| admit::admit(admit::daemon_pod(set, node.name()), classes).ok()).collect()
}

fn is_present(snapshot: &Snapshot, daemon: &Pod, node: &str) -> bool {
    let set =
        |pod: &Pod| pod.metadata.controller().filter(|o| &*o.kind == "DaemonSet").map(|o| o.name.clone());
    snapshot.cluster.pods.iter().any(|pod| {
        pod.spec.node_name.as_deref() == Some(node)
            && pod.metadata.namespace == daemon.metadata.namespace
            && set(pod).is_some_and(|name| Some(name) == set(daemon))
    })
}

/// A bound pod as its controller would make it again.
pub(super) fn unbound(pod: &Pod) -> Pod {
    let mut copy = Pod { status: PodStatus::default(), ..pod.clone() };
    copy.metadata.deletion_timestamp = None;
    Arc::make_mut(&mut copy.spec).node_name = None;
    copy
}

fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    let mut all = Vec::new();
    for (index, pool) in snapshot.pools.iter().enumerate() {
        for (number, kind) in pool.templates.iter().enumerate() {
            let mut add = |way: Way, zone: Option<&str>, capacity_type: Option<&str>| {
                let name = format!("{}-{}-{}", pool.name, kind.name, all.len());
                let node = template::node(kind, &name, zone, capacity_type);
                let daemons = daemons_on(snapshot, &node);
                let csi = template::csi_node(kind, &name);
                all.push(Candidate { pool: index, template: number, way, node, daemons, csi });
            };
            for (at, offering) in kind.offerings.iter().enumerate() {
                add(Way::Offering(at), offering.zone.as_deref(), offering.capacity_type.as_deref());
            }
            let mut zones: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
            for (at, host) in snapshot.hosts.iter().enumerate() {
                if host.pool == pool.name && host.template == kind.name {
                    zones.entry(host.zone.as_deref()).or_default().push(at);
                }
            }
            let none = kind.offerings.is_empty() && zones.is_empty();
            for (zone, hosts) in zones {
                add(Way::Hosts(hosts), zone, None);
            }
            if none {
                add(Way::Nothing, None, None);
            }
        }
    }
    all
}
