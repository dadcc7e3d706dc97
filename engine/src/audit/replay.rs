//! Carries the plan out on paper, step by step, and asks the filters at each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_model::k8s::{CsiNode, Node, Pod, PodKey, PodStatus};

use super::{At, Fault, Findings, drain, drain::Budgets, groups::Running};
use crate::{
    admit::{self, Classes},
    fit::{Cycle, Storage, World},
    plan::{NewNode, Placement, Plan, Removal, Source, Target},
    snapshot::{MemberState, Snapshot},
    template,
};

const NO_SCALE_DOWN: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// Objects that exist only in the plan.
struct Planned {
    /// One per new node; `None` if its pool or template is not known.
    nodes: Vec<Option<Node>>,
    csi_nodes: Vec<CsiNode>,
    /// Daemon pods with the name of their node.
    daemons: Vec<(Arc<str>, Pod)>,
    /// Pods of removed nodes as they come back.
    moved: BTreeMap<PodKey, Pod>,
}

pub(super) fn check(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) -> Running {
    let planned = Planned::new(snapshot, plan);
    let mut replay = Replay::new(snapshot, plan, &planned, findings);
    replay.place_pending();
    for index in 0..plan.removals.len() {
        replay.remove(index);
    }
    replay.running
}

impl Planned {
    fn new(snapshot: &Snapshot, plan: &Plan) -> Self {
        let nodes: Vec<Option<Node>> = plan.new_nodes.iter().map(|new| node_of(snapshot, new)).collect();
        let csi = plan.new_nodes.iter().filter_map(|new| {
            template::csi_node(snapshot.pool(&new.pool)?.template(&new.template)?, &new.name)
        });
        let mut planned =
            Self { csi_nodes: csi.collect(), daemons: Vec::new(), moved: BTreeMap::new(), nodes };
        planned.add_daemons(snapshot);
        let bound = by_key(snapshot);
        for movement in plan.removals.iter().flat_map(|removal| &removal.moves) {
            if let Some(pod) = bound.get(&movement.pod) {
                planned.moved.insert(movement.pod.clone(), unbound(pod));
            }
        }
        planned
    }

    /// Daemon pods occupy new nodes and nodes on their way before anything else does.
    fn add_daemons(&mut self, snapshot: &Snapshot) {
        let classes = Classes {
            priority: &snapshot.cluster.priority_classes,
            runtime: &snapshot.cluster.runtime_classes,
        };
        let present: BTreeSet<(&str, &str, &str)> = snapshot
            .cluster
            .pods
            .iter()
            .filter_map(|pod| {
                let owner = pod.metadata.controller().filter(|owner| &*owner.kind == "DaemonSet")?;
                Some((&*pod.metadata.namespace, &*owner.name, pod.spec.node_name.as_deref()?))
            })
            .collect();
        let upcoming = snapshot.cluster.nodes.iter().filter(|node| {
            let member = snapshot.members.get(node.name());
            member.is_some_and(|member| matches!(member.state, MemberState::Upcoming { .. }))
        });
        let mut daemons = Vec::new();
        for node in upcoming.chain(self.nodes.iter().flatten()) {
            for set in &snapshot.cluster.daemon_sets {
                let runs = present.contains(&(&*set.metadata.namespace, &*set.metadata.name, node.name()));
                if runs || !admit::wants_node(set, node) {
                    continue;
                }
                if let Ok(pod) = admit::admit(admit::daemon_pod(set, node.name()), classes) {
                    daemons.push((node.metadata.name.clone(), pod));
                }
            }
        }
        self.daemons = daemons;
    }
}

fn node_of(snapshot: &Snapshot, new: &NewNode) -> Option<Node> {
    let template = snapshot.pool(&new.pool)?.template(&new.template)?;
    let (zone, capacity_type) = match &new.source {
        Source::Bought { zone, capacity_type } => (zone.as_deref(), capacity_type.as_deref()),
        Source::Host { host } => (snapshot.host(host).and_then(|host| host.zone.as_deref()), None),
    };
    Some(template::node(template, &new.name, zone, capacity_type))
}

fn by_key(snapshot: &Snapshot) -> BTreeMap<PodKey, &Pod> {
    snapshot.cluster.pods.iter().map(|pod| (pod.key(), pod)).collect()
}

/// A bound pod as its controller would make it again.
fn unbound(pod: &Pod) -> Pod {
    let mut copy = Pod { status: PodStatus::default(), ..pod.clone() };
    copy.metadata.deletion_timestamp = None;
    if copy.spec.node_name.is_some() {
        Arc::make_mut(&mut copy.spec).node_name = None;
    }
    copy
}

/// The state of the cluster while the plan is carried out.
struct Replay<'a, 'f> {
    snapshot: &'a Snapshot,
    plan: &'a Plan,
    planned: &'a Planned,
    pods: BTreeMap<PodKey, &'a Pod>,
    world: World<'a>,
    /// World index of each new node.
    new: Vec<Option<usize>>,
    /// Names of nodes that the plan removes.
    leaving: BTreeSet<&'a str>,
    removed: BTreeSet<&'a str>,
    budgets: Budgets<'a>,
    running: Running,
    findings: &'f mut Findings,
}

impl<'a, 'f> Replay<'a, 'f> {
    fn new(snapshot: &'a Snapshot, plan: &'a Plan, planned: &'a Planned, findings: &'f mut Findings) -> Self {
        let cluster = &snapshot.cluster;
        let storage = Storage::default()
            .with_volumes(&cluster.volumes)
            .with_claims(&cluster.claims)
            .with_classes(&cluster.storage_classes)
            .with_csi_nodes(cluster.csi_nodes.iter().chain(&planned.csi_nodes))
            .with_csi_drivers(&cluster.csi_drivers)
            .with_capacities(&cluster.storage_capacities)
            .with_attachments(&cluster.volume_attachments);
        let mut world = World::new(&cluster.nodes, &cluster.namespaces, storage);
        world.bind_running(&cluster.pods);
        let new: Vec<Option<usize>> =
            planned.nodes.iter().map(|node| node.as_ref().map(|node| world.add_node(node))).collect();
        for (node, pod) in &planned.daemons {
            if let Some(node) = world.index_of(node) {
                world.bind(pod, node);
            }
        }
        let before = cluster.pods.iter().filter(|pod| {
            let node = pod.spec.node_name.as_deref();
            !pod.is_finished() && node.is_some_and(|name| world.index_of(name).is_some())
        });
        let running =
            Running { before: before.map(muster_model::k8s::Pod::key).collect(), placed: BTreeSet::new() };
        let leaving = plan.removals.iter().map(|removal| &*removal.node).collect();
        Self {
            snapshot,
            plan,
            planned,
            pods: by_key(snapshot),
            world,
            new,
            leaving,
            removed: BTreeSet::new(),
            budgets: Budgets::new(snapshot),
            running,
            findings,
        }
    }

    fn place_pending(&mut self) {
        let mut seen: BTreeSet<&PodKey> = BTreeSet::new();
        for (index, placement) in self.plan.placements.iter().enumerate() {
            if !seen.insert(&placement.pod) {
                self.findings.add(At::Placement(index), Fault::PlacedTwice { pod: placement.pod.clone() });
            } else if let Err(fault) = self.place(placement) {
                self.findings.add(At::Placement(index), fault);
            }
        }
        for pod in &self.plan.unplaced {
            if !self.pods.contains_key(pod) {
                self.findings.add(At::Plan, Fault::UnknownPod { pod: pod.clone() });
            } else if !seen.insert(pod) {
                self.findings.add(At::Plan, Fault::PlacedTwice { pod: pod.clone() });
            }
        }
        let forgotten = self.pods.iter().filter(|(key, pod)| pod.is_pending() && !seen.contains(key));
        for (pod, _) in forgotten {
            self.findings.add(At::Plan, Fault::Unaccounted { pod: pod.clone() });
        }
    }

    fn place(&mut self, placement: &Placement) -> Result<(), Fault> {
        let pod = &placement.pod;
        let found = *self.pods.get(pod).ok_or_else(|| Fault::UnknownPod { pod: pod.clone() })?;
        if !found.is_pending() {
            return Err(Fault::NotPending { pod: pod.clone() });
        }
        self.bind(found, &placement.on)?;
        self.running.placed.insert(pod.clone());
        Ok(())
    }

    /// Binds the pod, if the target takes pods and no filter refuses it.
    fn bind(&mut self, pod: &'a Pod, target: &Target) -> Result<(), Fault> {
        let node = self.target(target)?;
        if let Some(refusal) = Cycle::new(&self.world, pod).refusal(node) {
            return Err(Fault::Refused {
                pod: pod.key(),
                node: self.world.node(node).node.name().to_owned(),
                plugin: refusal.plugin,
                reasons: refusal.rejection.reasons,
            });
        }
        self.world.bind(pod, node);
        Ok(())
    }

    fn target(&self, target: &Target) -> Result<usize, Fault> {
        match target {
            Target::New(index) => {
                let node = usize::try_from(*index).ok().and_then(|index| *self.new.get(index)?);
                node.ok_or_else(|| Fault::UnknownNode { node: format!("newNodes[{index}]") })
            }
            Target::Node(name) => {
                let member = self.snapshot.members.get(name);
                let going = member.is_some_and(|member| member.state == MemberState::Leaving);
                if going || self.leaving.contains(&**name) {
                    return Err(Fault::LeavingNode { node: name.to_string() });
                }
                let known = self.snapshot.cluster.nodes.len();
                let node = self.world.index_of(name).filter(|index| *index < known);
                node.ok_or_else(|| Fault::UnknownNode { node: name.to_string() })
            }
        }
    }

    fn remove(&mut self, index: usize) {
        let removal: &'a Removal = &self.plan.removals[index];
        let at = At::Removal(index);
        let name = &*removal.node;
        if !self.removed.insert(name) {
            self.findings.add(at, Fault::RemovedTwice { node: name.to_owned() });
            return;
        }
        let known = self.snapshot.cluster.nodes.len();
        let Some(node) = self.world.index_of(name).filter(|index| *index < known) else {
            self.findings.add(at, Fault::UnknownNode { node: name.to_owned() });
            return;
        };
        self.check_removable(at, node);
        let pods = self.world.node(node).pods.clone();
        for pod in &pods {
            self.world.unbind(&pod.metadata.namespace, &pod.metadata.name, node);
        }
        let mut waiting: BTreeMap<PodKey, &Pod> =
            pods.iter().filter(|pod| !drain::goes_with_node(pod)).map(|pod| (pod.key(), *pod)).collect();
        for (step, movement) in removal.moves.iter().enumerate() {
            let at = At::Move(index, step);
            let Some(pod) = waiting.remove(&movement.pod) else {
                let fault = Fault::NotOnNode { pod: movement.pod.clone(), node: name.to_owned() };
                self.findings.add(at, fault);
                continue;
            };
            if let Err(fault) = self.budgets.take(pod) {
                self.findings.add(at, fault);
            }
            // The node is still there while its pods look for another: it is cordoned, not gone.
            if let Some(copy) = self.planned.moved.get(&movement.pod)
                && let Err(fault) = self.bind(copy, &movement.on)
            {
                self.findings.add(at, fault);
            }
        }
        for pod in waiting.into_keys() {
            self.findings.add(at, Fault::LeftBehind { pod, node: name.to_owned() });
        }
        self.world.remove_node(node);
    }

    fn check_removable(&mut self, at: At, node: usize) {
        let object = self.world.node(node).node;
        let name = object.name();
        if !self.snapshot.members.contains_key(name) {
            self.findings.add(at, Fault::NotOurs { node: name.to_owned() });
        }
        if object.metadata.annotations.text(NO_SCALE_DOWN) == Some("true") {
            let (what, why) = (format!("node {name}"), format!("{NO_SCALE_DOWN} is true"));
            self.findings.add(at, Fault::Held { what, why });
        }
    }
}
