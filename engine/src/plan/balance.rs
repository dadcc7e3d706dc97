//! Diversity: among machines that no pod can tell apart and that cost the same, the plan takes those in the
//! zone and the rack where the pool has the fewest.

use std::collections::BTreeMap;

use super::offers::{Way, Ways};
use crate::{
    snapshot::{MemberState, Snapshot},
    solve::{Problem, Shape, UNLIMITED},
    template::ZONE_LABEL,
};

/// How many nodes of a pool are where.
#[derive(Debug, Clone, Default)]
pub(crate) struct Balance {
    zones: BTreeMap<(usize, Box<str>), u32>,
    racks: BTreeMap<(usize, Box<str>), u32>,
}

impl Balance {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let pools: BTreeMap<&str, usize> = snapshot.pools.iter().map(|pool| &*pool.name).zip(0..).collect();
        let racks: BTreeMap<&str, &str> =
            snapshot.hosts.iter().filter_map(|host| Some((&*host.name, host.rack.as_deref()?))).collect();
        let mut balance = Self::default();
        for node in &snapshot.cluster.nodes {
            let Some(member) = snapshot.members.get(node.name()) else { continue };
            let Some(&pool) = pools.get(&*member.pool) else { continue };
            if member.state == MemberState::Leaving {
                continue;
            }
            if let Some(zone) = node.metadata.labels.text(ZONE_LABEL) {
                *balance.zones.entry((pool, zone.into())).or_default() += 1;
            }
            if let Some(rack) = member.host.as_deref().and_then(|host| racks.get(host)) {
                *balance.racks.entry((pool, (*rack).into())).or_default() += 1;
            }
        }
        balance
    }

    /// Nodes of the pool in the zone and in the rack of a way.
    pub(crate) fn crowd(&self, way: &Way) -> (u32, u32) {
        let count = |map: &BTreeMap<(usize, Box<str>), u32>, place: Option<&str>| {
            place.and_then(|place| map.get(&(way.pool, place.into()))).copied().unwrap_or(0)
        };
        (count(&self.zones, zone(way)), count(&self.racks, way.rack.as_deref()))
    }

    pub(crate) fn add(&mut self, way: &Way) {
        if let Some(zone) = zone(way) {
            *self.zones.entry((way.pool, zone.into())).or_default() += 1;
        }
        if let Some(rack) = &way.rack {
            *self.racks.entry((way.pool, rack.clone())).or_default() += 1;
        }
    }
}

fn zone(way: &Way) -> Option<&str> {
    way.node.metadata.labels.text(ZONE_LABEL)
}

/// What pods and costs see of a machine, pool included.
type Face<'p> = (usize, &'p [i64], i64, i64, u32, u32, &'p [(u32, u32)]);

fn face<'p>(shape: &'p Shape, way: &Way) -> Face<'p> {
    (way.pool, &shape.room, shape.cost, shape.rank, shape.signature, shape.location, &shape.marks)
}

/// Exchanges machines of a solution for equals elsewhere, so that zones and racks are filled evenly.
pub(crate) fn spread_out(problem: &Problem, ways: &Ways, balance: &Balance, machines: &mut [u32]) {
    let mut equals: BTreeMap<Face<'_>, Vec<u32>> = BTreeMap::new();
    for (at, (shape, way)) in problem.shapes.iter().zip(&ways.list).enumerate() {
        equals.entry(face(shape, way)).or_default().push(at as u32);
    }
    let mut supply: Vec<u32> = problem.shapes.iter().map(|shape| shape.supply).collect();
    let mut budgets = problem.budgets.clone();
    let mut balance = balance.clone();
    let mut move_one = |at: u32, by: i64, supply: &mut [u32]| {
        let shape = &problem.shapes[at as usize];
        if shape.supply != UNLIMITED {
            let left = i64::from(supply[at as usize]) + by;
            supply[at as usize] = u32::try_from(left).unwrap_or(0);
        }
        for &(budget, amount) in &shape.takes {
            budgets[budget as usize] += by * amount;
        }
        budgets.iter().all(|left| *left >= 0)
    };
    for &machine in machines.iter() {
        move_one(machine, -1, &mut supply);
    }
    for machine in machines {
        let own = face(&problem.shapes[*machine as usize], &ways.list[*machine as usize]);
        let others = &equals[&own];
        if others.len() > 1 {
            move_one(*machine, 1, &mut supply);
            let mut order: Vec<u32> =
                others.iter().copied().filter(|&other| supply[other as usize] > 0).collect();
            order.sort_by_key(|&other| (balance.crowd(&ways.list[other as usize]), other));
            for other in order {
                if move_one(other, -1, &mut supply) {
                    *machine = other;
                    break;
                }
                move_one(other, 1, &mut supply);
            }
        }
        balance.add(&ways.list[*machine as usize]);
    }
}
