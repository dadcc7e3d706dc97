//! Room that pools keep free: how much is left once a plan is carried out, and which machines make up for
//! what is missing. Removals count by the same rules: a node that they let go would else be called up again.

use std::{collections::BTreeMap, fmt};

use muster_model::k8s::{Node, Pod, PodKey};

use super::{
    explain::{Growth, PoolGrowth},
    offers::{Way, Ways, pools_by_name},
    scene::Scene,
    types::{Plan, Target},
};
use crate::{
    fit::{Amounts, requests},
    snapshot::{Member, MemberState, Pool, Snapshot},
};

/// Most nodes that are called up to be kept free, for one pool in one plan.
const MOST_KEPT: u32 = 1_000;
/// Room for one more pod of the shape.
const PLACES: &str = "places";

pub(crate) fn is_wanted(snapshot: &Snapshot) -> bool {
    snapshot.pools.iter().any(wants)
}

pub(crate) fn wants(pool: &Pool) -> bool {
    !pool.headroom.is_empty() || pool.spare.nodes > 0 || (pool.spare.pods > 0 && !pool.spare.shape.is_empty())
}

/// What has to be called up for headroom.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Ways, one per machine.
    pub(crate) machines: Vec<usize>,
    pub(crate) growth: Vec<PoolGrowth>,
}

/// The free room of one node, for growth and for removals alike.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    free: Amounts,
    /// Nothing but daemons runs there.
    empty: bool,
}

impl Room {
    /// The room of a node without pods; nothing if pods that come may not land there.
    pub(crate) fn of(node: &Node, member: &Member) -> Option<Self> {
        let open = !node.spec.unschedulable && !member.surplus;
        open.then(|| Self { free: Amounts::capacity(&node.status.allocatable), empty: true })
    }

    /// A pod that runs there.
    pub(crate) fn holds(&mut self, pod: &Pod, used: &Amounts) {
        self.free.subtract(used);
        self.empty &= goes_with_node(pod);
    }

    /// A pod that will run there.
    pub(crate) fn takes(&mut self, asked: &Amounts) {
        self.free.subtract(asked);
        self.empty = false;
    }
}

/// What a pod that waits will take.
pub(crate) fn asked(pod: &Pod) -> Amounts {
    Amounts { pods: 1, ..requests::of_pending(pod) }
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
        let wanted = Wanted::of(pool);
        let mut held = Held::default();
        for room in rooms(snapshot, ways, scene, plan, pool) {
            wanted.add(&mut held, &room, 1);
        }
        let Some(short) = wanted.short(&held) else { continue };
        let (mut nodes, mut missing) = (0, 0);
        while wanted.short(&held).is_some() && nodes < MOST_KEPT {
            let usable = (0..ways.list.len())
                .filter(|&at| ways.list[at].pool == index && stock.is_to_be_had(ways, at))
                .map(|at| (at, fresh(scene, &ways.list[at], at)));
            let best = usable.filter_map(|(at, room)| Some((at, wanted.gain(&held, &room)?, room))).min_by(
                |(a, gain_a, _), (b, gain_b, _)| {
                    let cost = |at: &usize, gain: &i64| i128::from(ways.list[*at].cost) * i128::from(*gain);
                    cost(a, gain_b).cmp(&cost(b, gain_a)).then(a.cmp(b))
                },
            );
            let Some((at, _, room)) = best else {
                missing = 1;
                break;
            };
            stock.spend(ways, at);
            kept.machines.push(at);
            wanted.add(&mut held, &room, 1);
            nodes += 1;
        }
        let why = Growth::Headroom { short: short.to_string() };
        kept.growth.push(PoolGrowth { pool: pool.name.to_string(), nodes, missing, why });
    }
    kept
}

/// A node of the way, with its daemons and nothing else.
fn fresh(scene: &Scene<'_>, way: &Way, at: usize) -> Room {
    let mut free = Amounts::capacity(&way.node.status.allocatable);
    for &daemon in &scene.on_way[at] {
        free.subtract(&asked(scene.daemon(daemon)));
    }
    Room { free, empty: true }
}

/// The nodes of the pool that take pods, as the plan leaves them.
fn rooms(snapshot: &Snapshot, ways: &Ways, scene: &Scene<'_>, plan: &Plan, pool: &Pool) -> Vec<Room> {
    let mut rooms: BTreeMap<usize, Room> = BTreeMap::new();
    for (at, node) in scene.nodes.iter().enumerate() {
        let member = snapshot.members.get(node.name()).filter(|member| member.pool == pool.name);
        let serves =
            |member: &&Member| matches!(member.state, MemberState::Ready | MemberState::Upcoming { .. });
        let room = member.filter(serves).and_then(|member| Room::of(node, member));
        rooms.extend(room.map(|room| (at, room)));
    }
    for running in &scene.running {
        if let Some(room) = rooms.get_mut(&(running.node as usize)) {
            let used = requests::of_bound(running.pod);
            for _ in 0..running.count {
                room.holds(running.pod, &used);
            }
        }
    }
    let first_new = snapshot.cluster.nodes.len();
    for (at, new) in plan.new_nodes.iter().enumerate().filter(|(_, new)| new.pool == pool.name) {
        if let Some(way) = ways.list.iter().position(|way| way.makes(snapshot, new)) {
            rooms.insert(first_new + at, fresh(scene, &ways.list[way], way));
        }
    }
    let places: BTreeMap<&str, usize> = scene.nodes.iter().map(|node| node.name()).zip(0..).collect();
    let pending: BTreeMap<PodKey, &Pod> = scene.pending.iter().map(|pod| (pod.key(), *pod)).collect();
    for placement in &plan.placements {
        let at = match &placement.on {
            Target::Node(name) => places.get(&**name).copied(),
            Target::New(at) => Some(first_new + *at as usize),
        };
        if let Some(room) = at.and_then(|at| rooms.get_mut(&at))
            && let Some(pod) = pending.get(&placement.pod)
        {
            room.takes(&asked(pod));
        }
    }
    rooms.into_values().collect()
}

/// Pods that are no reason to call a node used.
fn goes_with_node(pod: &Pod) -> bool {
    pod.metadata.annotations.contains("kubernetes.io/config.mirror")
        || pod.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet")
}

/// What a pool keeps free.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    nodes: i64,
    pods: i64,
    shape: Amounts,
    sum: Vec<(Box<str>, i64)>,
}

/// What nodes hold of it: a sum over nodes, each of which gives only what it has whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    empty: i64,
    places: i64,
    sum: Vec<i64>,
}

/// The first thing that is missing.
#[derive(Debug)]
pub(crate) struct Short<'w> {
    /// `nodes`, `places` for pods, or a resource.
    pub(crate) what: &'w str,
    pub(crate) left: i64,
    pub(crate) wanted: i64,
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, left, wanted } = self;
        match *what {
            PLACES => write!(f, "{left} of {wanted} more pods would find a place"),
            what => write!(f, "{left} of {wanted} {what} are free"),
        }
    }
}

impl Wanted {
    pub(crate) fn of(pool: &Pool) -> Self {
        let sum = Amounts::capacity(&pool.headroom);
        Self {
            nodes: i64::from(pool.spare.nodes),
            pods: if pool.spare.shape.is_empty() { 0 } else { i64::from(pool.spare.pods) },
            shape: Amounts { pods: 1, ..Amounts::rounded(&pool.spare.shape) },
            sum: sum.entries().map(|(name, wanted)| (name.into(), wanted)).collect(),
        }
    }

    /// Counts a node in, or out again with `sign` -1.
    pub(crate) fn add(&self, held: &mut Held, room: &Room, sign: i64) {
        held.empty += sign * i64::from(room.empty);
        held.places += sign * times(&self.shape, &room.free);
        held.sum.resize(self.sum.len(), 0);
        for (sum, (name, _)) in held.sum.iter_mut().zip(&self.sum) {
            *sum += sign * amount(&room.free, name).max(0);
        }
    }

    /// The first thing that is missing; nothing if all is there.
    pub(crate) fn short(&self, held: &Held) -> Option<Short<'_>> {
        let first = [("nodes", held.empty, self.nodes), (PLACES, held.places, self.pods)];
        let left = held.sum.iter().copied().chain(std::iter::repeat(0));
        let sums = self.sum.iter().zip(left).map(|((name, wanted), left)| (&**name, left, *wanted));
        let short = first.into_iter().chain(sums).find(|(_, left, wanted)| left < wanted);
        short.map(|(what, left, wanted)| Short { what, left, wanted })
    }

    /// How much a further node helps with what is missing first; `None` if it does not.
    fn gain(&self, held: &Held, room: &Room) -> Option<i64> {
        let Short { what, left, wanted } = self.short(held)?;
        let gain = match what {
            "nodes" => 1,
            PLACES => times(&self.shape, &room.free),
            name => amount(&room.free, name),
        };
        (gain > 0).then_some(gain.min(wanted - left))
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
