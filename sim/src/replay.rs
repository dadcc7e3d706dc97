//! What is left of a plan when the scheduler places the pods itself.
//!
//! A plan says where each pod fits; kube-scheduler chooses on its own, by scores that do not know the plan. Here
//! the new nodes appear and the scheduler binds the pods one by one, in the order of its queue, each to the
//! feasible node that it likes best. Pods that stay pending show how much a plan depends on its placements.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use muster_engine::{
    Plan, Snapshot,
    admit::{self, Classes},
    fit::{Cycle, NodeState, Storage, World},
    plan::{NewNode, Source},
    template,
};
use muster_model::k8s::{CsiNode, Node, Pod, PodKey, PodStatus};

/// Which node the scheduler likes best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The fullest.
    MostAllocated,
    /// The emptiest; the default of kube-scheduler.
    LeastAllocated,
}

/// Pods without a node once nothing can be bound any more, beside those that the plan itself leaves out.
pub fn left_pending(snapshot: &Snapshot, plan: &Plan, order: Order) -> Vec<PodKey> {
    let stage = Stage::new(snapshot, plan);
    let mut world = stage.world(snapshot);
    let mut waiting: Vec<&Pod> = stage.waiting.iter().collect();
    loop {
        let before = waiting.len();
        waiting.retain(|pod| match choose(&world, pod, order) {
            Some(node) => {
                world.bind(pod, node);
                false
            }
            None => true,
        });
        if waiting.is_empty() || waiting.len() == before {
            break;
        }
    }
    waiting.into_iter().map(Pod::key).collect()
}

/// Everything that the world borrows.
struct Stage {
    nodes: Vec<Node>,
    csi_nodes: Vec<CsiNode>,
    daemons: Vec<Pod>,
    running: Vec<Pod>,
    /// In the order of the scheduler's queue.
    waiting: Vec<Pod>,
}

impl Stage {
    fn new(snapshot: &Snapshot, plan: &Plan) -> Self {
        let cluster = &snapshot.cluster;
        let gone: BTreeSet<&str> = plan.removals.iter().map(|removal| &*removal.node).collect();
        let new: Vec<Node> = plan.new_nodes.iter().filter_map(|new| look(snapshot, new)).collect();
        let classes = Classes { priority: &cluster.priority_classes, runtime: &cluster.runtime_classes };
        let sets = |node: &Node| {
            let wanted = cluster.daemon_sets.iter().filter(|set| admit::wants_node(set, node));
            let pods =
                wanted.filter_map(|set| admit::admit(admit::daemon_pod(set, node.name()), classes).ok());
            pods.map(|pod| bound(pod, node.name())).collect::<Vec<_>>()
        };
        let csi = plan.new_nodes.iter().filter_map(|new| {
            template::csi_node(snapshot.pool(&new.pool)?.template(&new.template)?, &new.name)
        });
        let moved: BTreeSet<&PodKey> =
            plan.removals.iter().flat_map(|removal| &removal.moves).map(|step| &step.pod).collect();
        let left_out: BTreeSet<&PodKey> = plan.unplaced.iter().collect();
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        for pod in &cluster.pods {
            let key = pod.key();
            match pod.spec.node_name.as_deref() {
                Some(node) if !gone.contains(node) => running.push(pod.clone()),
                Some(_) if moved.contains(&key) => waiting.push(unbound(pod)),
                None if pod.is_pending() && !left_out.contains(&key) => waiting.push(pod.clone()),
                _ => {}
            }
        }
        waiting.sort_by_key(|pod| Reverse(pod.spec.priority.unwrap_or(0)));
        let staying = cluster.nodes.iter().filter(|node| !gone.contains(node.name())).cloned();
        Self {
            daemons: new.iter().flat_map(sets).collect(),
            csi_nodes: cluster.csi_nodes.iter().cloned().chain(csi).collect(),
            nodes: staying.chain(new).collect(),
            running,
            waiting,
        }
    }

    fn world<'a>(&'a self, snapshot: &'a Snapshot) -> World<'a> {
        let cluster = &snapshot.cluster;
        let storage = Storage::default()
            .with_volumes(&cluster.volumes)
            .with_claims(&cluster.claims)
            .with_classes(&cluster.storage_classes)
            .with_csi_nodes(&self.csi_nodes)
            .with_csi_drivers(&cluster.csi_drivers)
            .with_capacities(&cluster.storage_capacities)
            .with_attachments(&cluster.volume_attachments);
        let mut world = World::new(&self.nodes, &cluster.namespaces, storage);
        world.bind_running(&self.running);
        world.bind_running(&self.daemons);
        world
    }
}

fn look(snapshot: &Snapshot, new: &NewNode) -> Option<Node> {
    let template = snapshot.pool(&new.pool)?.template(&new.template)?;
    let (zone, kind) = match &new.source {
        Source::Bought { zone, capacity_type } => (zone.as_deref(), capacity_type.as_deref()),
        Source::Host { host } => (snapshot.host(host).and_then(|host| host.zone.as_deref()), None),
    };
    Some(template::node(template, &new.name, zone, kind))
}

fn bound(mut pod: Pod, node: &str) -> Pod {
    Arc::make_mut(&mut pod.spec).node_name = Some(node.into());
    pod
}

fn unbound(pod: &Pod) -> Pod {
    let mut copy = Pod { status: PodStatus::default(), ..pod.clone() };
    Arc::make_mut(&mut copy.spec).node_name = None;
    copy
}

fn choose<'a>(world: &World<'a>, pod: &'a Pod, order: Order) -> Option<usize> {
    let cycle = Cycle::new(world, pod);
    let feasible = world.present().filter(|node| cycle.refusal(*node).is_none());
    let fill = |node: &usize| fill(world.node(*node), cycle.request());
    match order {
        Order::MostAllocated => feasible.max_by_key(|node| (fill(node), Reverse(*node))),
        Order::LeastAllocated => feasible.min_by_key(|node| (fill(node), *node)),
    }
}

/// How full the node would be, in thousandths of cpu and memory together.
fn fill(node: &NodeState<'_>, request: &muster_engine::fit::Amounts) -> i64 {
    let share = |used: i64, whole: i64| {
        if whole <= 0 {
            0
        } else {
            i64::try_from(i128::from(used) * 1000 / i128::from(whole)).unwrap_or(i64::MAX / 4)
        }
    };
    share(node.used.milli_cpu + request.milli_cpu, node.capacity.milli_cpu)
        + share(node.used.memory + request.memory, node.capacity.memory)
}
