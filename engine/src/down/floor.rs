//! Trying out removals: pods are lifted off a node, look for other nodes, and all is put back or kept.

use muster_model::k8s::Pod;

use super::{
    ground::Ground,
    index::MaxTree,
    report::{Refusal, Refused},
    volumes::Disks,
};
use crate::solve::{Refusal as Refused0, State};

/// Most trees kept: one per set of node kinds that a pod may use; further sets share one over all nodes.
const MAX_TREES: usize = 16;
/// Nodes tried in all before searches are cut short.
const EFFORT_LIMIT: u64 = 200_000_000;
/// Nodes tried in one search after that.
const SHORT_SEARCH: u64 = 16;

/// The cluster while nodes are taken out of it.
#[derive(Debug, Clone)]
pub(crate) struct Floor<'g, 'a> {
    ground: &'g Ground<'a>,
    pub(crate) state: State<'g>,
    /// Nodes in the order in which they are offered pods.
    order: Vec<u32>,
    position: Vec<u32>,
    trees: Vec<MaxTree>,
    tree_of: Vec<u32>,
    /// Where the last pod of a class with rules found its place.
    hint: Vec<u32>,
    disks: Option<Disks<'a>>,
    pub(crate) effort: u64,
}

/// Where the pods of a node would go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trial {
    /// Guest and node.
    pub(crate) moves: Vec<(u32, u32)>,
    /// Guests that found no place.
    pub(crate) stuck: Vec<u32>,
    /// Guests whose search was cut short.
    pub(crate) unexamined: Vec<u32>,
}

impl Trial {
    pub(crate) fn is_complete(&self) -> bool {
        self.stuck.is_empty() && self.unexamined.is_empty()
    }
}

/// Whether to go on after a pod that finds no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    GoOn,
    Stop,
}

enum Found {
    At(u32),
    Nowhere,
    Cut,
}

impl<'g, 'a> Floor<'g, 'a> {
    pub(crate) fn new(ground: &'g Ground<'a>, state: State<'g>, order: Vec<u32>) -> Self {
        let mut position = vec![u32::MAX; ground.seats.len()];
        for (at, &node) in (0..).zip(&order) {
            position[node as usize] = at;
        }
        let (trees, tree_of) = trees(ground, &state, &order);
        let any = ground.guests.iter().any(|guest| guest.has_volumes);
        let disks = any.then(|| {
            let own =
                (0..ground.real as u32).flat_map(|node| ground.on(node).map(move |guest| (guest, node)));
            let own = own.map(|(guest, node)| (&ground.guests[guest as usize], node));
            let own = own.filter(|(guest, _)| guest.has_volumes).map(|(guest, node)| (guest.pod, node));
            let nodes = ground.seats.iter().map(|seat| seat.node);
            Disks::new(ground.snapshot, nodes, own.chain(ground.other_volumes.iter().copied()))
        });
        let hint = vec![0; ground.problem.classes.len()];
        Self { ground, state, order, position, trees, tree_of, hint, disks, effort: 0 }
    }

    /// Lifts everything off the node and looks for other places; the floor stays as tried.
    pub(crate) fn try_out(&mut self, node: u32, trial: &mut Trial, on_failure: OnFailure) {
        trial.moves.clear();
        trial.stuck.clear();
        trial.unexamined.clear();
        self.lift(node);
        let mut last: Option<(u32, usize)> = None;
        for guest in self.ground.on(node) {
            let class = self.ground.guests[guest as usize].class;
            let from = last.filter(|(known, _)| *known == class).map_or(0, |(_, from)| from);
            match self.find(guest, node, from) {
                Found::At(to) => {
                    self.put(guest, to);
                    trial.moves.push((guest, to));
                    last = Some((class, self.position[to as usize] as usize));
                }
                Found::Nowhere => trial.stuck.push(guest),
                Found::Cut => trial.unexamined.push(guest),
            }
            if on_failure == OnFailure::Stop && !trial.is_complete() {
                return;
            }
        }
    }

    /// Undoes [`Floor::try_out`].
    pub(crate) fn revert(&mut self, node: u32, trial: &Trial) {
        for &(guest, to) in trial.moves.iter().rev() {
            let data = &self.ground.guests[guest as usize];
            self.state.unplace(data.class, to as usize, 1);
            if data.has_volumes
                && let Some(disks) = &mut self.disks
            {
                disks.unbind(data.pod, to);
            }
        }
        for guest in self.ground.on(node) {
            self.put(guest, node);
        }
        self.state.put_back(node as usize, &self.ground.problem.nodes[node as usize].marks);
    }

    /// Makes a trial final: the node is gone.
    pub(crate) fn commit(&mut self, node: u32, trial: &Trial) {
        self.state.withdraw(node as usize);
        let gone = self.position[node as usize] as usize;
        for tree in &mut self.trees {
            tree.close(gone);
        }
        let mut touched: Vec<u32> = trial.moves.iter().map(|&(_, to)| to).collect();
        touched.sort_unstable();
        touched.dedup();
        for to in touched {
            let at = self.position[to as usize] as usize;
            for tree in &mut self.trees {
                tree.set(at, self.state.room(to as usize));
            }
        }
    }

    /// Repeats moves that were found before; the guest that finds its place taken is the error.
    pub(crate) fn replay(&mut self, node: u32, moves: &[(u32, u32)]) -> Result<(), u32> {
        self.lift(node);
        for &(guest, to) in moves {
            let data = &self.ground.guests[guest as usize];
            let volumes = !data.has_volumes
                || self.disks.as_ref().is_some_and(|disks| Disks::accepts(&disks.ask(data.pod), to));
            if to == node || !volumes || self.state.judge(data.class, to as usize).is_err() {
                return Err(guest);
            }
            self.put(guest, to);
        }
        self.state.withdraw(node as usize);
        Ok(())
    }

    fn lift(&mut self, node: u32) {
        for guest in self.ground.on(node) {
            let data = &self.ground.guests[guest as usize];
            self.state.unplace(data.class, node as usize, 1);
            if data.has_volumes
                && let Some(disks) = &mut self.disks
            {
                disks.unbind(data.pod, node);
            }
        }
        self.state.lift(node as usize, &self.ground.problem.nodes[node as usize].marks);
    }

    fn put(&mut self, guest: u32, to: u32) {
        let data = &self.ground.guests[guest as usize];
        self.state.place(data.class, to as usize, 1);
        if data.has_volumes
            && let Some(disks) = &mut self.disks
        {
            disks.bind(data.pod, to);
        }
    }

    fn find(&mut self, guest: u32, leaving: u32, from: usize) -> Found {
        let data = &self.ground.guests[guest as usize];
        let class = &self.ground.problem.classes[data.class as usize];
        let ruled = !class.spreads.is_empty() || !class.forbids.is_empty() || class.requires.is_some();
        let start = if ruled || data.has_volumes { self.hint[data.class as usize] as usize } else { from };
        let limit = if self.effort > EFFORT_LIMIT { SHORT_SEARCH } else { u64::MAX };
        let mut tried = 0;
        let Self { state, order, disks, .. } = self;
        let cycle = disks.as_ref().filter(|_| data.has_volumes).map(|disks| disks.ask(data.pod));
        let mut accept = |at: usize| {
            tried += 1;
            if tried > limit {
                return false;
            }
            let node = order[at];
            node != leaving
                && state.judge(data.class, node as usize).is_ok()
                && cycle.as_ref().is_none_or(|cycle| Disks::accepts(cycle, node))
        };
        let tree = &self.trees[self.tree_of[data.class as usize] as usize];
        let end = order.len();
        let mut found = tree.find((start, end), &class.request, &mut accept);
        if found.is_none() && start > 0 {
            found = tree.find((0, start), &class.request, &mut accept);
        }
        self.effort += tried + 1;
        match found {
            Some(at) => {
                if start > 0 || ruled {
                    self.hint[data.class as usize] = at as u32;
                }
                Found::At(self.order[at])
            }
            None if tried > limit => Found::Cut,
            None => Found::Nowhere,
        }
    }

    /// Why the nodes of the snapshot refuse a pod that is to leave its own.
    pub(crate) fn refusals(&self, guest: u32, leaving: u32) -> Vec<Refused> {
        let data = &self.ground.guests[guest as usize];
        let disks = self.disks.as_ref().filter(|_| data.has_volumes);
        let cycle = disks.map(|disks| disks.ask(data.pod));
        let mut tally: std::collections::BTreeMap<Refusal, u32> = std::collections::BTreeMap::new();
        for node in (0..self.ground.real as u32).filter(|&node| node != leaving) {
            let why = if self.ground.seats[node as usize].receives {
                match self.state.judge(data.class, node as usize) {
                    Err(refusal) => self.name(refusal),
                    Ok(()) if cycle.as_ref().is_some_and(|cycle| !Disks::accepts(cycle, node)) => {
                        Refusal::Volumes
                    }
                    Ok(()) => continue,
                }
            } else {
                Refusal::NoReceiver
            };
            *tally.entry(why).or_default() += 1;
        }
        tally.into_iter().map(|(why, nodes)| Refused { why, nodes }).collect()
    }

    fn name(&self, refusal: Refused0) -> Refusal {
        match refusal {
            Refused0::Incompatible => Refusal::Incompatible,
            Refused0::Forbidden { .. } => Refusal::Conflict,
            Refused0::Room { lane } => {
                Refusal::Insufficient { resource: (&*self.ground.lanes[lane as usize]).into() }
            }
            Refused0::Skew { .. } => Refusal::Spread,
            Refused0::Lonely => Refusal::Affinity,
        }
    }

    /// Names a guest.
    pub(crate) fn pod(&self, guest: u32) -> &'a Pod {
        self.ground.guests[guest as usize].pod
    }
}

/// One tree per distinct row of the compatibility table, and the tree of every class.
fn trees(ground: &Ground<'_>, state: &State<'_>, order: &[u32]) -> (Vec<MaxTree>, Vec<u32>) {
    let problem = &ground.problem;
    let mut rows: Vec<Option<&[u64]>> = Vec::new();
    let mut tree_of = Vec::with_capacity(problem.classes.len());
    for class in &problem.classes {
        let row = problem.allowed.row(class.signature);
        let known = rows.iter().position(|other| other.is_none_or(|other| other == row));
        tree_of.push(known.unwrap_or(rows.len()) as u32);
        if known.is_none() {
            rows.push((rows.len() + 1 < MAX_TREES).then_some(row));
        }
    }
    let open = |row: Option<&[u64]>, at: usize| {
        let node = order[at] as usize;
        let signature = state.signature[node];
        let allowed = row.is_none_or(|row| row[signature as usize / 64] >> (signature % 64) & 1 == 1);
        (allowed && ground.seats[node].receives).then(|| state.room(node))
    };
    let trees =
        rows.iter().map(|row| MaxTree::new(order.len(), problem.lanes, |at| open(*row, at))).collect();
    (trees, tree_of)
}
