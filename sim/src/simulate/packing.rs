//! How full each node is, before and after: the data behind tables, bars and the picture.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::{
    Plan, Snapshot, admit,
    fit::{Amounts, requests},
    plan::Target,
};
use muster_model::k8s::{Node, Pod, PodKey};
use serde::Serialize;

/// One node with what is on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Packed {
    pub node: Arc<str>,
    pub pool: Arc<str>,
    pub change: Change,
    /// Percent of what the node can hold.
    pub cpu_percent: i64,
    pub memory_percent: i64,
    pub pods: usize,
    /// Thousandths of the cpu, and of the memory, by pod, the largest first; for the picture.
    #[serde(skip)]
    pub parts: Vec<(i64, i64, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    Stays,
    New,
    Goes,
}

/// Totals of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    pub nodes: usize,
    pub running_pods: usize,
    pub pending_pods: usize,
    pub cpu_requested_milli: i64,
    pub cpu_allocatable_milli: i64,
    pub memory_requested_bytes: i64,
    pub memory_allocatable_bytes: i64,
    /// Millionths of the currency.
    pub price_per_hour_micros: i64,
}

impl Totals {
    fn pay(&mut self, price: i64) {
        self.price_per_hour_micros = self.price_per_hour_micros.saturating_add(price);
    }

    pub fn cpu_percent(&self) -> i64 {
        percent(self.cpu_requested_milli, self.cpu_allocatable_milli)
    }

    pub fn memory_percent(&self) -> i64 {
        percent(self.memory_requested_bytes, self.memory_allocatable_bytes)
    }
}

pub(super) fn percent(part: i64, all: i64) -> i64 {
    if all <= 0 { 0 } else { i64::try_from(i128::from(part) * 100 / i128::from(all)).unwrap_or(i64::MAX) }
}

/// Every node after the plan, in the order old, new; removed nodes are marked and empty.
pub(super) fn after(snapshot: &Snapshot, plan: &Plan) -> (Vec<Packed>, Totals) {
    let mut on: BTreeMap<Arc<str>, Vec<(&Pod, bool)>> = BTreeMap::new();
    let pods: BTreeMap<PodKey, &Pod> = snapshot.cluster.pods.iter().map(|pod| (pod.key(), pod)).collect();
    for pod in snapshot.cluster.pods.iter().filter(|pod| !pod.is_finished()) {
        if let Some(node) = &pod.spec.node_name {
            on.entry((&**node).into()).or_default().push((pod, false));
        }
    }
    let name = |target: &Target| match target {
        Target::Node(node) => node.clone(),
        Target::New(at) => plan.new_nodes[*at as usize].name.clone(),
    };
    for placement in &plan.placements {
        if let Some(pod) = pods.get(&placement.pod) {
            on.entry(name(&placement.on)).or_default().push((pod, true));
        }
    }
    for removal in &plan.removals {
        on.remove(&removal.node);
        for step in &removal.moves {
            if let Some(pod) = pods.get(&step.pod) {
                on.entry(name(&step.on)).or_default().push((pod, true));
            }
        }
    }
    let mut rows = Vec::new();
    let mut totals = Totals { pending_pods: plan.unplaced.len(), ..Totals::default() };
    let mut nodes: Vec<&Node> = snapshot.cluster.nodes.iter().collect();
    // As people count: node-2 before node-10.
    nodes.sort_by_key(|node| (node.name().len(), node.name()));
    for node in nodes {
        let gone = plan.removals.iter().any(|removal| removal.node == node.metadata.name);
        let member = snapshot.members.get(&node.metadata.name);
        let pool = member.map_or_else(|| "-".into(), |member| member.pool.clone());
        let capacity = Amounts::capacity(&node.status.allocatable);
        let pods = on.get(&node.metadata.name).map_or(&[][..], |pods| &pods[..]);
        let change = if gone { Change::Goes } else { Change::Stays };
        rows.push(pack(
            node.metadata.name.clone(),
            pool,
            change,
            &capacity,
            if gone { &[] } else { pods },
            &mut totals,
        ));
        if !gone {
            totals.pay(member.map_or(0, |member| member.price));
        }
    }
    for new in &plan.new_nodes {
        let template = snapshot.pool(&new.pool).and_then(|pool| pool.template(&new.template));
        let capacity =
            template.map(|template| Amounts::capacity(&template.node.status.allocatable)).unwrap_or_default();
        let daemons = template.map(|template| daemons(snapshot, &template.node)).unwrap_or_default();
        let placed = on.get(&new.name).into_iter().flatten().copied();
        let pods: Vec<(&Pod, bool)> = daemons.iter().map(|pod| (pod, true)).chain(placed).collect();
        rows.push(pack(new.name.clone(), new.pool.clone(), Change::New, &capacity, &pods, &mut totals));
        totals.pay(new.price);
    }
    (rows, totals)
}

/// The daemon pods that come with a new node.
fn daemons(snapshot: &Snapshot, node: &Node) -> Vec<Pod> {
    let cluster = &snapshot.cluster;
    let classes = admit::Classes { priority: &cluster.priority_classes, runtime: &cluster.runtime_classes };
    let wanted = cluster.daemon_sets.iter().filter(|set| admit::wants_node(set, node));
    wanted.filter_map(|set| admit::admit(admit::daemon_pod(set, node.name()), classes).ok()).collect()
}

/// Every node as it is.
pub(super) fn before(snapshot: &Snapshot) -> (Vec<Packed>, Totals) {
    let waiting = snapshot.cluster.pods.iter().filter(|pod| pod.is_pending()).map(Pod::key).collect();
    after(snapshot, &Plan { unplaced: waiting, ..Plan::default() })
}

fn pack(
    node: Arc<str>,
    pool: Arc<str>,
    change: Change,
    capacity: &Amounts,
    pods: &[(&Pod, bool)],
    totals: &mut Totals,
) -> Packed {
    let mut used = Amounts::default();
    let thousandths = |part: i64, all: i64| {
        if all <= 0 { 0 } else { i64::try_from(i128::from(part) * 1000 / i128::from(all)).unwrap_or(0) }
    };
    let mut parts: Vec<(i64, i64, bool)> = Vec::new();
    for (pod, moved) in pods {
        let request = requests::of_bound(pod);
        parts.push((
            thousandths(request.milli_cpu, capacity.milli_cpu),
            thousandths(request.memory, capacity.memory),
            *moved,
        ));
        used.add(&request);
    }
    parts.sort_unstable_by(|a, b| b.cmp(a));
    if change != Change::Goes {
        totals.nodes += 1;
        totals.running_pods += pods.len();
        totals.cpu_requested_milli += used.milli_cpu;
        totals.cpu_allocatable_milli += capacity.milli_cpu;
        totals.memory_requested_bytes += used.memory;
        totals.memory_allocatable_bytes += capacity.memory;
    }
    Packed {
        node,
        pool,
        change,
        cpu_percent: percent(used.milli_cpu, capacity.milli_cpu),
        memory_percent: percent(used.memory, capacity.memory),
        pods: pods.len(),
        parts,
    }
}
