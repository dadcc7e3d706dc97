//! Room that pools keep free while nodes are taken out, counted as growth counts it.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    ground::{Ground, Seat, arrivals},
    report::Blocker,
};
use crate::{
    fit::{Amounts, requests},
    plan::{
        Plan,
        hash::FixedMap,
        headroom::{Held, Room, Wanted, asked, is_wanted, wants},
    },
};

/// What each pool keeps free, and what its nodes hold of it. Empty if no pool keeps any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headroom {
    /// By pool; nothing for one that keeps none.
    wanted: Arc<[Option<Wanted>]>,
    held: Vec<Held>,
    /// By seat: where pods may land in a pool that keeps room.
    rooms: Vec<Option<Room>>,
    /// What each guest occupies.
    asks: Arc<[Amounts]>,
}

impl Headroom {
    /// `of` is the pool of every seat. A node that is on its way may never come: only ready ones count.
    pub(crate) fn new(ground: &Ground<'_>, plan: &Plan, of: &[Option<u32>]) -> Self {
        let snapshot = ground.snapshot;
        if !is_wanted(snapshot) {
            return Self::default();
        }
        let wanted: Arc<[Option<Wanted>]> =
            snapshot.pools.iter().map(|pool| wants(pool).then(|| Wanted::of(pool))).collect();
        let room = |(seat, pool): (&Seat<'_>, &Option<u32>)| {
            let keeps = pool.is_some_and(|pool| wanted[pool as usize].is_some());
            (keeps && seat.receives).then(|| Room::of(seat.node, seat.member?)).flatten()
        };
        let mut rooms: Vec<Option<Room>> = ground.seats.iter().zip(of).map(room).collect();
        let places: FixedMap<&str, u32> =
            ground.seats[..ground.real].iter().map(|seat| seat.node.name()).zip(0..).collect();
        for pod in snapshot.cluster.pods.iter().filter(|pod| !pod.is_finished()) {
            let seat = pod.spec.node_name.as_deref().and_then(|node| places.get(node));
            if let Some(room) = seat.and_then(|seat| rooms[*seat as usize].as_mut()) {
                room.holds(pod, &requests::of_bound(pod));
            }
        }
        for (pod, seat) in arrivals(snapshot, plan, &places, ground.real) {
            if let Some(room) = &mut rooms[seat as usize] {
                room.takes(&asked(pod));
            }
        }
        let asks = ground.guests.iter().map(|guest| requests::of_bound(guest.pod)).collect();
        let mut headroom =
            Self { held: vec![Held::default(); wanted.len()], wanted, rooms: Vec::new(), asks };
        for (room, pool) in rooms.iter().zip(of) {
            headroom.count(*pool, room.as_ref(), 1);
        }
        Self { rooms, ..headroom }
    }

    fn count(&mut self, pool: Option<u32>, room: Option<&Room>, sign: i64) {
        let Some((pool, room)) = pool.map(|pool| pool as usize).zip(room) else { return };
        if let Some(wanted) = &self.wanted[pool] {
            wanted.add(&mut self.held[pool], room, sign);
        }
    }

    /// The seats that change when the node goes and its pods move so, with what is free there then.
    fn changed(&self, node: u32, moves: &[(u32, u32)]) -> BTreeMap<u32, Option<Room>> {
        let mut changed: BTreeMap<u32, Option<Room>> = BTreeMap::new();
        for &(guest, to) in moves {
            let room = changed.entry(to).or_insert_with(|| self.rooms[to as usize].clone());
            if let Some(room) = room {
                room.takes(&self.asks[guest as usize]);
            }
        }
        changed.insert(node, None);
        changed
    }

    /// Takes the node out.
    pub(crate) fn remove(&mut self, of: &[Option<u32>], node: u32, moves: &[(u32, u32)]) {
        if self.rooms.is_empty() {
            return;
        }
        for (seat, room) in self.changed(node, moves) {
            let before = std::mem::replace(&mut self.rooms[seat as usize], room);
            self.count(of[seat as usize], before.as_ref(), -1);
            let after = self.rooms[seat as usize].take();
            self.count(of[seat as usize], after.as_ref(), 1);
            self.rooms[seat as usize] = after;
        }
    }

    /// The pools that would lack room without the node.
    pub(crate) fn tight(
        &self,
        ground: &Ground<'_>,
        of: &[Option<u32>],
        node: u32,
        moves: &[(u32, u32)],
    ) -> Vec<Blocker> {
        if self.rooms.is_empty() {
            return Vec::new();
        }
        let mut after: BTreeMap<u32, Held> = BTreeMap::new();
        for (seat, room) in self.changed(node, moves) {
            let Some(pool) = of[seat as usize] else { continue };
            let Some(wanted) = &self.wanted[pool as usize] else { continue };
            let held = after.entry(pool).or_insert_with(|| self.held[pool as usize].clone());
            for (room, sign) in [(&self.rooms[seat as usize], -1), (&room, 1)] {
                if let Some(room) = room {
                    wanted.add(held, room, sign);
                }
            }
        }
        let short = |(pool, held): (&u32, &Held)| {
            let short = self.wanted[*pool as usize].as_ref()?.short(held)?;
            Some(Blocker::Headroom {
                pool: ground.snapshot.pools[*pool as usize].name.to_string(),
                resource: short.what.into(),
                left: short.left,
                required: short.wanted,
            })
        };
        after.iter().filter_map(short).collect()
    }
}
