//! The snapshot as numbers: nodes and pods in a fixed order, classes, and what occupies what.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use muster_model::k8s::{Node, Pod};

use super::{
    budgets::{Budgets, Draw},
    intern::intern,
    pods::{self, Controllers, Fate},
    report::PodBlock,
    usage::{self, Share, Usage},
    volumes,
};
use crate::{
    fit::{Amounts, requests},
    plan::{Input, Plan, Running, Source, Target, Translated, hash::FixedMap, in_bounds, translate},
    snapshot::{Member, MemberState, Snapshot},
    solve::{Problem, State},
    template,
    trouble::is_ready,
};

/// A bound pod that would have to move.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    pub(crate) pod: &'a Pod,
    /// Index in the snapshot.
    pub(crate) index: u32,
    pub(crate) class: u32,
    pub(crate) draw: Draw,
    pub(crate) has_volumes: bool,
    /// Rules that keep it where it is.
    pub(crate) blocks: Box<[PodBlock]>,
}

/// A node of the snapshot, or one that the plan adds.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) node: &'a Node,
    /// Index in the snapshot; new nodes have none.
    pub(crate) index: Option<u32>,
    pub(crate) member: Option<&'a Member>,
    /// By lane.
    pub(crate) capacity: Vec<i64>,
    /// Whether moved pods may come here.
    pub(crate) receives: bool,
    /// Pending pods that the plan puts here.
    pub(crate) arriving: u32,
}

#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// Nodes of the snapshot by name, then new ones.
    pub(crate) seats: Vec<Seat<'a>>,
    /// Number of nodes of the snapshot.
    pub(crate) real: usize,
    /// By node, largest first.
    pub(crate) guests: Vec<Guest<'a>>,
    first: Vec<u32>,
    /// Pods beside the guests that have volumes, with their node.
    pub(crate) other_volumes: Vec<(&'a Pod, u32)>,
    pub(crate) problem: Problem,
    pub(crate) lanes: Vec<Arc<str>>,
    pub(crate) budgets: Budgets<'a>,
    /// Classes of the pending pods that the plan places, with their place.
    arriving: Vec<(u32, u32)>,
    usages: Vec<Usage>,
    /// What resized pods hold beyond what they ask for: node, lane, amount.
    beyond: Vec<(u32, usize, i64)>,
}

/// Names as people count them: `n-2` before `n-10`.
pub(crate) fn by_name(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn pod_order(a: &Pod, b: &Pod) -> Ordering {
    let (a, b) = (&a.metadata, &b.metadata);
    let space =
        if Arc::ptr_eq(&a.namespace, &b.namespace) { Ordering::Equal } else { a.namespace.cmp(&b.namespace) };
    space.then_with(|| by_name(&a.name, &b.name))
}

impl<'a> Ground<'a> {
    /// `fresh` are the nodes that `plan` adds, as they will look.
    pub(crate) fn new(snapshot: &'a Snapshot, plan: &Plan, fresh: &'a [Node]) -> Self {
        let mut seats = seats(snapshot, fresh);
        let real = snapshot.cluster.nodes.len();
        let places: FixedMap<&str, u32> =
            seats[..real].iter().map(|seat| seat.node.name()).zip(0..).collect();
        let Bound { moving, first, going } = bound(snapshot, &places, real);
        let arrivals = arrivals(snapshot, plan, &places, real);
        for (_, place) in &arrivals {
            seats[*place as usize].arriving += 1;
        }
        let placed: Vec<&'a Pod> = moving
            .iter()
            .map(|&(at, _)| &snapshot.cluster.pods[at as usize])
            .chain(arrivals.iter().map(|(pod, _)| *pod))
            .collect();
        let interned = intern(&placed, going.iter().map(|(pod, _)| *pod));
        let input = Input {
            nodes: seats.iter().map(|seat| seat.node).collect(),
            running: going.iter().map(|&(pod, node)| Running { pod, node, count: 1, class: None }).collect(),
            pending: interned.examples.iter().collect(),
            namespaces: snapshot.cluster.namespaces.iter().collect(),
            ..Input::default()
        };
        let mut keys = Vec::new();
        let translated = translate(&input, &mut keys);
        let class_of = class_of(&translated, interned.examples.len());
        let lanes: Vec<Arc<str>> = translated.lanes.iter().map(|lane| (&**lane).into()).collect();
        let problem = translated.problem;
        for seat in &mut seats {
            let capacity = Amounts::capacity(&seat.node.status.allocatable);
            seat.capacity = lanes.iter().map(|lane| amount(lane, &capacity)).collect();
        }
        let mut budgets = Budgets::new(&snapshot.cluster.budgets);
        let controllers = Controllers::new(snapshot);
        let mut beyond = Vec::new();
        let mut guests: Vec<Guest<'a>> = Vec::with_capacity(moving.len());
        for (&(index, node), &kind) in moving.iter().zip(&interned.of) {
            let pod = &snapshot.cluster.pods[index as usize];
            let class = class_of[kind as usize];
            if is_resized(pod) {
                let asked = &problem.classes[class as usize].request;
                beyond.extend(surplus(pod, &lanes, asked).map(|(lane, more)| (node, lane, more)));
            }
            guests.push(guest(snapshot, pod, index, class, &mut budgets, &controllers));
        }
        for node in 0..real {
            guests[first[node] as usize..first[node + 1] as usize].sort_by_key(|guest| guest.class);
        }
        let arriving_classes = &interned.of[moving.len()..];
        let arriving = arriving_classes
            .iter()
            .zip(&arrivals)
            .map(|(&kind, &(_, place))| (class_of[kind as usize], place))
            .collect();
        let other_volumes =
            going.into_iter().chain(arrivals).filter(|(pod, _)| volumes::concerns(pod)).collect();
        let mut ground = Self {
            snapshot,
            seats,
            real,
            guests,
            first,
            other_volumes,
            problem,
            lanes,
            budgets,
            arriving,
            usages: Vec::new(),
            beyond,
        };
        ground.usages = (0..real as u32).map(|node| ground.measure(node)).collect();
        ground
    }

    /// Indexes of the pods on a node that would have to move.
    pub(crate) fn on(&self, node: u32) -> Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }

    /// The state with every pod where it is and pending ones where the plan puts them.
    pub(crate) fn state(&self) -> State<'_> {
        let mut state = State::new(&self.problem);
        for node in 0..self.real as u32 {
            for guest in self.on(node) {
                state.place(self.guests[guest as usize].class, node as usize, 1);
            }
        }
        for &(class, place) in &self.arriving {
            state.place(class, place as usize, 1);
        }
        for &(node, lane, more) in &self.beyond {
            state.free[node as usize * self.problem.lanes + lane] -= more;
        }
        state
    }

    /// How much of a node is asked for.
    pub(crate) fn usage(&self, node: u32) -> &Usage {
        &self.usages[node as usize]
    }

    fn measure(&self, node: u32) -> Usage {
        let seat = &self.seats[node as usize];
        let mut used = vec![0_i64; self.lanes.len()];
        for guest in self.on(node) {
            let request = &self.problem.classes[self.guests[guest as usize].class as usize].request;
            for (sum, want) in used.iter_mut().zip(request) {
                *sum += want;
            }
        }
        let lanes = self.lanes.iter().zip(used).zip(&seat.capacity);
        let shares = lanes
            .filter(|((lane, used), capacity)| usage::counts(lane) && (*used > 0 || **capacity > 0))
            .map(|((lane, used), &allocatable)| Share { resource: lane.clone(), used, allocatable });
        Usage::new(shares.collect())
    }
}

pub(crate) fn amount(lane: &str, amounts: &Amounts) -> i64 {
    in_bounds(match lane {
        "cpu" => amounts.milli_cpu,
        "memory" => amounts.memory,
        "ephemeral-storage" => amounts.ephemeral_storage,
        "pods" => amounts.pods,
        name => amounts.scalar(name),
    })
}

/// The class of every example.
fn class_of(translated: &Translated<'_>, examples: usize) -> Vec<u32> {
    let mut class_of = vec![0; examples];
    for (class, data) in (0..).zip(&translated.classes) {
        for &member in &data.members {
            class_of[member as usize] = class;
        }
    }
    class_of
}

/// What a pod holds beyond what it asks for, by lane.
fn surplus<'l>(
    pod: &Pod,
    lanes: &'l [Arc<str>],
    asked: &'l [i64],
) -> impl Iterator<Item = (usize, i64)> + use<'l> {
    let held = requests::of_bound(pod);
    let more = lanes.iter().zip(asked).map(move |(lane, asked)| amount(lane, &held) - asked);
    more.enumerate().filter(|(_, more)| *more > 0)
}

fn is_resized(pod: &Pod) -> bool {
    let status = &pod.status;
    status.resources.is_some()
        || status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses)
            .any(|s| s.resources.is_some())
}

fn guest<'a>(
    snapshot: &'a Snapshot,
    pod: &'a Pod,
    index: u32,
    class: u32,
    budgets: &mut Budgets<'a>,
    controllers: &Controllers<'_>,
) -> Guest<'a> {
    let draw = budgets.draw(pod);
    let mut blocks = pods::blocks(pod, snapshot.drain, controllers, draw != Draw::None);
    if draw == Draw::Several {
        let covering = budgets.covering(pod).to_vec();
        blocks.push(PodBlock::SeveralBudgets {
            budgets: covering.into_iter().map(|at| budgets.name(at)).collect(),
        });
    }
    Guest { pod, index, class, draw, has_volumes: volumes::concerns(pod), blocks: blocks.into() }
}

fn seats<'a>(snapshot: &'a Snapshot, fresh: &'a [Node]) -> Vec<Seat<'a>> {
    let mut order: Vec<u32> = (0..snapshot.cluster.nodes.len() as u32).collect();
    let node = |at: u32| &snapshot.cluster.nodes[at as usize];
    order.sort_by(|&a, &b| by_name(node(a).name(), node(b).name()));
    let old = order.into_iter().map(|at| {
        let member = snapshot.members.get(node(at).name());
        let receives = is_ready(node(at)) && member.is_none_or(|member| member.state == MemberState::Ready);
        Seat { node: node(at), index: Some(at), member, capacity: Vec::new(), receives, arriving: 0 }
    });
    let new = fresh.iter().map(|node| Seat {
        node,
        index: None,
        member: None,
        capacity: Vec::new(),
        receives: false,
        arriving: 0,
    });
    old.chain(new).collect()
}

/// Bound pods by node.
struct Bound<'a> {
    /// Index of the pod and its node, by node and name.
    moving: Vec<(u32, u32)>,
    first: Vec<u32>,
    /// Pods that go with their node.
    going: Vec<(&'a Pod, u32)>,
}

fn bound<'a>(snapshot: &'a Snapshot, places: &FixedMap<&str, u32>, real: usize) -> Bound<'a> {
    let pods = &snapshot.cluster.pods;
    let mut going = Vec::new();
    let mut found: Vec<(u32, u32)> = Vec::with_capacity(pods.len());
    let mut first = vec![0_u32; real + 1];
    let mut last: Option<(&str, u32)> = None;
    for (pod, index) in pods.iter().zip(0..) {
        let Some(name) = pod.spec.node_name.as_deref() else { continue };
        let node = match last {
            Some((known, node)) if known == name => node,
            _ => match places.get(name) {
                Some(&node) => node,
                None => continue,
            },
        };
        last = Some((name, node));
        match pods::fate(pod, snapshot.now) {
            Fate::Terminal => {}
            Fate::Daemon | Fate::Mirror | Fate::Terminating | Fate::LongTerminating | Fate::Expendable => {
                going.push((pod, node));
            }
            Fate::Moves => {
                found.push((index, node));
                first[node as usize + 1] += 1;
            }
        }
    }
    for node in 0..real {
        first[node + 1] += first[node];
    }
    let mut next = first.clone();
    let mut moving = vec![(0, 0); found.len()];
    for (index, node) in found {
        moving[next[node as usize] as usize] = (index, node);
        next[node as usize] += 1;
    }
    for node in 0..real {
        let here = &mut moving[first[node] as usize..first[node + 1] as usize];
        here.sort_by(|a, b| pod_order(&pods[a.0 as usize], &pods[b.0 as usize]));
    }
    Bound { moving, first, going }
}

/// Pending pods that the plan places, with the number of their place.
pub(super) fn arrivals<'a>(
    snapshot: &'a Snapshot,
    plan: &Plan,
    places: &FixedMap<&str, u32>,
    real: usize,
) -> Vec<(&'a Pod, u32)> {
    if plan.placements.is_empty() {
        return Vec::new();
    }
    let pending = snapshot.cluster.pods.iter().filter(|pod| pod.is_pending());
    let by_key: FixedMap<(&str, &str), &Pod> =
        pending.map(|pod| ((&*pod.metadata.namespace, &*pod.metadata.name), pod)).collect();
    plan.placements
        .iter()
        .filter_map(|placement| {
            let pod = *by_key.get(&(&*placement.pod.namespace, &*placement.pod.name))?;
            let place = match &placement.on {
                Target::Node(name) => *places.get(&**name)?,
                Target::New(at) if (*at as usize) < plan.new_nodes.len() => real as u32 + at,
                Target::New(_) => return None,
            };
            Some((pod, place))
        })
        .collect()
}

/// The plan's new nodes as they will look. One whose template is not known looks like nothing.
pub(crate) fn fresh_nodes(snapshot: &Snapshot, plan: &Plan) -> Vec<Node> {
    let look = |new: &crate::plan::NewNode| {
        let template = snapshot.pool(&new.pool).and_then(|pool| pool.template(&new.template));
        let (zone, kind) = match &new.source {
            Source::Bought { zone, capacity_type } => (zone.as_deref(), capacity_type.as_deref()),
            Source::Host { host } => (snapshot.host(host).and_then(|host| host.zone.as_deref()), None),
        };
        template.map(|template| template::node(template, &new.name, zone, kind)).unwrap_or_default()
    };
    plan.new_nodes.iter().map(look).collect()
}
