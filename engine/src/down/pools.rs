//! What pools allow: sizes, marks, headroom, triggers.

use std::collections::BTreeMap;

use muster_model::Timestamp;

use super::{
    ground::{Ground, Seat},
    headroom::Headroom,
    places::{self, Places, Spot},
    report::Blocker,
};
use crate::{
    plan::Plan,
    snapshot::{Host, Member, MemberState, Mode, Pool, Trigger},
    solve::State,
    trouble::{Troubles, Unready},
};

/// One pool while nodes are taken out of it.
#[derive(Debug, Clone)]
pub(crate) struct Tally<'a> {
    pub(crate) pool: &'a Pool,
    /// Nodes that stay, with those on their way.
    pub(crate) staying: u32,
    /// Those of them that are ready: one that is on its way may never come.
    pub(crate) ready: u32,
    /// How many must go because a person lowered the size.
    pub(crate) surplus: u32,
    pub(crate) removed: u32,
    /// Nodes that the plan adds.
    pub(crate) added: u32,
    /// Creation of the youngest node and of the second youngest.
    newest: [Option<Timestamp>; 2],
    /// By lane, over the nodes that stay.
    pub(crate) allocatable: Vec<i64>,
    pub(crate) used: Vec<i64>,
    places: Places<'a>,
}

#[derive(Debug, Clone)]
pub(crate) struct Pools<'a> {
    pub(crate) tallies: Vec<Tally<'a>>,
    /// Pool of every seat.
    pub(crate) of: Vec<Option<u32>>,
    /// Rack and zone of every seat.
    spots: Vec<Spot<'a>>,
    headroom: Headroom,
    troubles: Troubles<'a>,
    cpu: Option<usize>,
    memory: Option<usize>,
}

impl<'a> Pools<'a> {
    pub(crate) fn new(ground: &Ground<'a>, state: &State<'_>, plan: &Plan) -> Self {
        let snapshot = ground.snapshot;
        let lane = |name: &str| ground.lanes.iter().position(|lane| **lane == *name);
        let mut tallies: Vec<Tally<'a>> =
            snapshot.pools.iter().map(|pool| tally(pool, plan, ground)).collect();
        let by_name: BTreeMap<&str, u32> = snapshot.pools.iter().map(|pool| &*pool.name).zip(0..).collect();
        let hosts: BTreeMap<&str, &Host> = snapshot.hosts.iter().map(|host| (&*host.name, host)).collect();
        let mut pools = Self {
            of: Vec::with_capacity(ground.seats.len()),
            spots: Vec::with_capacity(ground.seats.len()),
            headroom: Headroom::default(),
            troubles: Troubles::of(snapshot),
            cpu: lane("cpu"),
            memory: lane("memory"),
            tallies: Vec::new(),
        };
        for (at, seat) in ground.seats.iter().enumerate() {
            let pool = seat.member.and_then(|member| by_name.get(&*member.pool)).copied();
            pools.of.push(pool);
            let host = seat.member.and_then(|member| hosts.get(member.host.as_deref()?)).copied();
            let spot = places::spot(seat, host);
            pools.spots.push(spot);
            if seat.index.is_none() {
                continue;
            }
            let Some(pool) = pool else { continue };
            let tally = &mut tallies[pool as usize];
            if let Some(created) = seat.node.metadata.creation_timestamp {
                tally.saw(created);
            }
            if seat.member.is_some_and(|member| member.state == MemberState::Leaving) {
                continue;
            }
            for (lane, capacity) in seat.capacity.iter().enumerate() {
                tally.allocatable[lane] += capacity;
                tally.used[lane] += capacity - state.room(at)[lane];
            }
            if seat.member.is_some_and(|member| member.state == MemberState::Ready && !member.surplus) {
                tally.places.add(spot);
            }
        }
        let stays = |member: &&Member| member.state != MemberState::Leaving && !member.surplus;
        for member in snapshot.members.values().filter(stays) {
            if let Some(&pool) = by_name.get(&*member.pool) {
                tallies[pool as usize].staying += 1;
                tallies[pool as usize].ready += u32::from(member.state == MemberState::Ready);
            }
        }
        for tally in &mut tallies {
            let most = tally.pool.fixed.unwrap_or(tally.pool.max);
            tally.surplus = tally.staying.saturating_sub(most);
        }
        pools.tallies = tallies;
        pools.headroom = Headroom::new(ground, plan, &pools.of);
        pools
    }

    /// The breaker, if it is open for a node of the pool and rack.
    pub(crate) fn breaker(&self, pool: Option<u32>, rack: Option<&'a str>) -> Option<Blocker> {
        let pool = pool.map(|pool| &*self.tallies[pool as usize].pool.name);
        let (place, Unready { unready, total }) = self.troubles.around(pool, rack)?;
        Some(Blocker::TooManyUnready { scope: place.to_string(), unready, total })
    }

    /// The word of a pool that asks for spread, if the node is the last one in its rack or zone.
    pub(crate) fn last_there(&self, node: u32) -> Option<Blocker> {
        let tally = &self.tallies[self.of[node as usize]? as usize];
        tally.places.last(tally.pool, self.spots[node as usize])
    }

    /// What the pool says against losing the node if its pods moved so: marks and headroom.
    pub(crate) fn tight(
        &self,
        ground: &Ground<'a>,
        state: &State<'_>,
        node: u32,
        moves: &[(u32, u32)],
    ) -> Vec<Blocker> {
        let mut found = self.headroom.tight(ground, &self.of, node, moves);
        if self.tallies.iter().all(|tally| !tally.has_marks()) {
            return found;
        }
        let own = self.of[node as usize];
        for (pool, used) in self.used_deltas(ground, state, node, moves) {
            if self.tallies[pool as usize].has_marks() {
                let mut tally = self.tallies[pool as usize].clone();
                tally.shift(&used, (Some(pool) == own).then_some(&ground.seats[node as usize]));
                found.extend(tally.above_mark(self.cpu, self.memory));
            }
        }
        found
    }

    /// Takes the node out and lets its pods count where they went. Call before the state is changed back.
    pub(crate) fn remove(&mut self, ground: &Ground<'a>, state: &State<'_>, node: u32, moves: &[(u32, u32)]) {
        let own = self.of[node as usize];
        for (pool, used) in self.used_deltas(ground, state, node, moves) {
            let seat = (Some(pool) == own).then_some(&ground.seats[node as usize]);
            self.tallies[pool as usize].shift(&used, seat);
        }
        self.headroom.remove(&self.of, node, moves);
        if let Some(pool) = own {
            let tally = &mut self.tallies[pool as usize];
            tally.removed += 1;
            tally.places.remove(self.spots[node as usize]);
            tally.staying = tally.staying.saturating_sub(1);
            tally.ready = tally.ready.saturating_sub(1);
        }
    }

    /// How the used amounts of pools change. In `state` the pods have been lifted off the node, so that what
    /// is still missing there is what its daemons use.
    fn used_deltas(
        &self,
        ground: &Ground<'a>,
        state: &State<'_>,
        node: u32,
        moves: &[(u32, u32)],
    ) -> BTreeMap<u32, Vec<i64>> {
        let lanes = ground.lanes.len();
        let mut deltas: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        let own = self.of[node as usize];
        for &(guest, to) in moves {
            let request = &ground.problem.classes[ground.guests[guest as usize].class as usize].request;
            for (pool, sign) in [(own, -1), (self.of[to as usize], 1)] {
                if let Some(pool) = pool {
                    let used = deltas.entry(pool).or_insert_with(|| vec![0; lanes]);
                    for (used, want) in used.iter_mut().zip(request) {
                        *used += sign * want;
                    }
                }
            }
        }
        if let Some(pool) = own {
            let used = deltas.entry(pool).or_insert_with(|| vec![0; lanes]);
            let room = state.room(node as usize);
            for ((used, capacity), room) in
                used.iter_mut().zip(&ground.seats[node as usize].capacity).zip(room)
            {
                *used -= capacity - room;
            }
        }
        deltas
    }
}

fn tally<'a>(pool: &'a Pool, plan: &Plan, ground: &Ground<'_>) -> Tally<'a> {
    let lanes = ground.lanes.len();
    Tally {
        pool,
        staying: 0,
        ready: 0,
        surplus: 0,
        removed: 0,
        added: plan.new_nodes.iter().filter(|new| new.pool == pool.name).count() as u32,
        newest: [None; 2],
        allocatable: vec![0; lanes],
        used: vec![0; lanes],
        places: Places::new(pool),
    }
}

impl Tally<'_> {
    fn saw(&mut self, created: Timestamp) {
        let [first, second] = self.newest;
        if first.is_none_or(|first| created > first) {
            self.newest = [Some(created), first];
        } else if second.is_none_or(|second| created > second) {
            self.newest[1] = Some(created);
        }
    }

    /// Changes used amounts, and takes a node out.
    fn shift(&mut self, used: &[i64], gone: Option<&Seat<'_>>) {
        for (sum, delta) in self.used.iter_mut().zip(used) {
            *sum += delta;
        }
        if let Some(seat) = gone {
            for (sum, capacity) in self.allocatable.iter_mut().zip(&seat.capacity) {
                *sum -= capacity;
            }
        }
    }

    fn has_marks(&self) -> bool {
        let demand = &self.pool.demand;
        demand.target_cpu_percent.is_some() || demand.target_memory_percent.is_some()
    }

    /// The least number of ready nodes to keep.
    pub(crate) fn floor(&self) -> u32 {
        self.pool.fixed.map_or(self.pool.min, |fixed| fixed.max(self.pool.min))
    }

    pub(crate) fn at_minimum(&self) -> impl Iterator<Item = Blocker> + use<> {
        let (pool, nodes) = (self.pool.name.to_string(), self.ready);
        let fixed = self.pool.fixed.filter(|size| nodes <= *size);
        let fixed = fixed.map(|size| Blocker::FixedSize { pool: pool.clone(), nodes, size });
        let min = self.pool.min;
        let least = (nodes <= min).then_some(Blocker::Minimum { pool, nodes, min });
        fixed.into_iter().chain(least)
    }

    pub(crate) fn frozen(&self) -> Option<Blocker> {
        (self.pool.mode == Mode::Frozen).then(|| Blocker::Frozen { pool: self.pool.name.to_string() })
    }

    pub(crate) fn growing(&self) -> Option<Blocker> {
        (self.added > 0).then(|| Blocker::Growing { pool: self.pool.name.to_string(), nodes: self.added })
    }

    /// A pool with a trigger shrinks only when the trigger says so.
    pub(crate) fn trigger(&self) -> Option<Blocker> {
        let state = self.pool.demand.trigger.filter(|state| *state != Trigger::Down)?;
        Some(Blocker::Trigger { pool: self.pool.name.to_string(), state })
    }

    /// The rest after the pool grew; the node itself is not counted, it has an age of its own.
    pub(crate) fn cooldown(&self, own: Option<Timestamp>, now: Timestamp) -> Option<Blocker> {
        let required = self.pool.demand.scale_down_delay;
        let [first, second] = self.newest;
        let since = if own.is_some() && own == first { second } else { first }?;
        let until = since.saturating_add(required);
        (now < until).then(|| Blocker::Cooldown { pool: self.pool.name.to_string(), since, required, until })
    }

    fn above_mark(&self, cpu: Option<usize>, memory: Option<usize>) -> Option<Blocker> {
        let demand = &self.pool.demand;
        let marks =
            [(cpu, "cpu", demand.target_cpu_percent), (memory, "memory", demand.target_memory_percent)];
        marks.into_iter().find_map(|(lane, resource, mark)| {
            let (lane, mark) = (lane?, mark?);
            let (used, allocatable) = (self.used[lane], self.allocatable[lane]);
            let above = i128::from(used) * 100 > i128::from(allocatable) * i128::from(mark);
            above.then(|| Blocker::HighMark {
                pool: self.pool.name.to_string(),
                resource: resource.into(),
                used,
                allocatable,
                mark,
            })
        })
    }
}
