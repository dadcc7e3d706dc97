//! Room that pools keep free: how much is left once a plan is carried out, and which machines make up for
//! what is missing.

use std::collections::BTreeMap;

use muster_model::k8s::{Pod, PodKey};

use super::{
    explain::{Growth, PoolGrowth},
    offers::{Way, Ways, pools_by_name},
    scene::Scene,
    types::{Plan, Target},
};
use crate::{
    fit::{Amounts, requests},
    snapshot::{MemberState, Pool, Snapshot},
};

/// Most nodes that are called up to be kept free, for one pool in one plan.
const MOST_KEPT: u32 = 1_000;

pub(crate) fn is_wanted(snapshot: &Snapshot) -> bool {
    snapshot.pools.iter().any(wants)
}

fn wants(pool: &Pool) -> bool {
    !pool.headroom.is_empty() || pool.spare.nodes > 0 || (pool.spare.pods > 0 && !pool.spare.shape.is_empty())
}

/// What has to be called up for headroom.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Ways, one per machine.
    pub(crate) machines: Vec<usize>,
    pub(crate) growth: Vec<PoolGrowth>,
}

/// A node of a pool at the end of the plan.
#[derive(Debug, Default)]
struct Seat {
    free: Amounts,
    /// Nothing but daemons runs there.
    empty: bool,
}

pub(crate) fn missing(snapshot: &Snapshot, ways: &Ways, scene: &Scene<'_>, plan: &Plan) -> Kept {
    let mut kept = Kept::default();
    let mut stock = scene.clone();
    let first = scene.required.len();
    for new in plan.new_nodes.iter().skip(first) {
        let way = ways.list.iter().position(|way| way.makes(snapshot, new));
        if let Some(way) = way {
            stock.spend(ways, way);
        }
    }
    for (index, pool) in pools_by_name(snapshot).into_iter().filter(|(_, pool)| wants(pool)) {
        let mut room = Wanted::new(pool, seats(snapshot, ways, scene, plan, pool));
        let Some(short) = room.short() else { continue };
        let (mut nodes, mut missing) = (0, 0);
        while room.short().is_some() && nodes < MOST_KEPT {
            let usable = (0..ways.list.len())
                .filter(|&at| ways.list[at].pool == index && stock.is_to_be_had(ways, at))
                .map(|at| (at, fresh(scene, &ways.list[at], at)));
            let best = usable.filter_map(|(at, seat)| Some((at, room.gain(&seat)?, seat))).min_by(
                |(a, gain_a, _), (b, gain_b, _)| {
                    let cost = |at: &usize, gain: &i64| i128::from(ways.list[*at].cost) * i128::from(*gain);
                    cost(a, gain_b).cmp(&cost(b, gain_a)).then(a.cmp(b))
                },
            );
            let Some((at, _, seat)) = best else {
                missing = 1;
                break;
            };
            stock.spend(ways, at);
            kept.machines.push(at);
            room.seats.push(seat);
            nodes += 1;
        }
        let why = Growth::Headroom { short };
        kept.growth.push(PoolGrowth { pool: pool.name.to_string(), nodes, missing, why });
    }
    kept
}

/// A node of the way, with its daemons and nothing else.
fn fresh(scene: &Scene<'_>, way: &Way, at: usize) -> Seat {
    let mut free = Amounts::capacity(&way.node.status.allocatable);
    for &daemon in &scene.on_way[at] {
        let used = Amounts { pods: 1, ..requests::of_pending(scene.daemon(daemon)) };
        free.subtract(&used);
    }
    Seat { free, empty: true }
}

/// The nodes of the pool that take pods, as the plan leaves them.
fn seats(snapshot: &Snapshot, ways: &Ways, scene: &Scene<'_>, plan: &Plan, pool: &Pool) -> Vec<Seat> {
    let mut seats: BTreeMap<usize, Seat> = BTreeMap::new();
    for (at, node) in scene.nodes.iter().enumerate() {
        let member = snapshot.members.get(node.name()).filter(|member| member.pool == pool.name);
        let serves = member
            .is_some_and(|member| matches!(member.state, MemberState::Ready | MemberState::Upcoming { .. }));
        if serves && !node.spec.unschedulable {
            seats.insert(at, Seat { free: Amounts::capacity(&node.status.allocatable), empty: true });
        }
    }
    for running in &scene.running {
        if let Some(seat) = seats.get_mut(&(running.node as usize)) {
            for _ in 0..running.count {
                seat.free.subtract(&requests::of_bound(running.pod));
            }
            seat.empty &= goes_with_node(running.pod);
        }
    }
    let first_new = snapshot.cluster.nodes.len();
    for (at, new) in plan.new_nodes.iter().enumerate().filter(|(_, new)| new.pool == pool.name) {
        if let Some(way) = ways.list.iter().position(|way| way.makes(snapshot, new)) {
            seats.insert(first_new + at, fresh(scene, &ways.list[way], way));
        }
    }
    let places: BTreeMap<&str, usize> = scene.nodes.iter().map(|node| node.name()).zip(0..).collect();
    let pending: BTreeMap<PodKey, &Pod> = scene.pending.iter().map(|pod| (pod.key(), *pod)).collect();
    for placement in &plan.placements {
        let at = match &placement.on {
            Target::Node(name) => places.get(&**name).copied(),
            Target::New(at) => Some(first_new + *at as usize),
        };
        if let Some(seat) = at.and_then(|at| seats.get_mut(&at))
            && let Some(pod) = pending.get(&placement.pod)
        {
            seat.free.subtract(&Amounts { pods: 1, ..requests::of_pending(pod) });
            seat.empty = false;
        }
    }
    seats.into_values().collect()
}

/// Pods that are no reason to call a node used.
fn goes_with_node(pod: &Pod) -> bool {
    pod.metadata.annotations.contains("kubernetes.io/config.mirror")
        || pod.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet")
}

/// What a pool wants and what it has.
struct Wanted {
    nodes: i64,
    pods: i64,
    shape: Amounts,
    sum: Amounts,
    seats: Vec<Seat>,
}

impl Wanted {
    fn new(pool: &Pool, seats: Vec<Seat>) -> Self {
        Self {
            nodes: i64::from(pool.spare.nodes),
            pods: if pool.spare.shape.is_empty() { 0 } else { i64::from(pool.spare.pods) },
            shape: Amounts { pods: 1, ..Amounts::rounded(&pool.spare.shape) },
            sum: Amounts::capacity(&pool.headroom),
            seats,
        }
    }

    /// The first thing that is missing, in words; nothing if all is there.
    fn short(&self) -> Option<String> {
        let empty = self.empty();
        if empty < self.nodes {
            return Some(format!("{empty} of {} nodes are free", self.nodes));
        }
        let places = self.places();
        if places < self.pods {
            return Some(format!("{places} of {} more pods would find a place", self.pods));
        }
        let (name, wanted, left) = self.lane()?;
        Some(format!("{left} of {wanted} {name} are free"))
    }

    fn empty(&self) -> i64 {
        self.seats.iter().filter(|seat| seat.empty).count() as i64
    }

    fn places(&self) -> i64 {
        self.seats.iter().map(|seat| times(&self.shape, &seat.free)).sum()
    }

    /// The first resource of which less is free than wanted: name, wanted, free.
    fn lane(&self) -> Option<(String, i64, i64)> {
        self.sum.entries().find_map(|(name, wanted)| {
            let left: i64 = self.seats.iter().map(|seat| amount(&seat.free, name).max(0)).sum();
            (left < wanted).then(|| (name.to_owned(), wanted, left))
        })
    }

    /// How much a further node helps with what is missing first; `None` if it does not.
    fn gain(&self, seat: &Seat) -> Option<i64> {
        if self.empty() < self.nodes {
            return Some(1);
        }
        let left = self.pods - self.places();
        let gain = if left > 0 {
            times(&self.shape, &seat.free).min(left)
        } else {
            let (name, wanted, left) = self.lane()?;
            amount(&seat.free, &name).min(wanted - left)
        };
        (gain > 0).then_some(gain)
    }
}

fn amount(amounts: &Amounts, name: &str) -> i64 {
    match name {
        "cpu" => amounts.milli_cpu,
        "memory" => amounts.memory,
        "ephemeral-storage" => amounts.ephemeral_storage,
        "pods" => amounts.pods,
        name => amounts.scalar(name),
    }
}

/// How many times a request fits.
fn times(request: &Amounts, free: &Amounts) -> i64 {
    let share = |(name, want): (&str, i64)| amount(free, name).max(0) / want;
    request.entries().filter(|(_, want)| *want > 0).map(share).min().unwrap_or(0)
}
