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

/// Zone and rack of every way as numbers, and the counts there: asked for every machine and all of its equals.
struct Places {
    of_way: Vec<(usize, usize)>,
    counts: Vec<u32>,
}

impl Places {
    fn new(ways: &Ways, balance: &Balance) -> Self {
        // The first count is of ways that name no place; nothing is ever added to it.
        let mut counts = vec![0];
        let mut zones: BTreeMap<(usize, &str), usize> = BTreeMap::new();
        let mut racks = zones.clone();
        let of_way = ways.list.iter().map(|way| {
            let (zone_count, rack_count) = balance.crowd(way);
            let mut slot = |known: &mut BTreeMap<_, _>, place, count| {
                let Some(place) = place else { return 0 };
                *known.entry((way.pool, place)).or_insert_with(|| {
                    counts.push(count);
                    counts.len() - 1
                })
            };
            (slot(&mut zones, zone(way), zone_count), slot(&mut racks, way.rack.as_deref(), rack_count))
        });
        let of_way = of_way.collect();
        Self { of_way, counts }
    }

    fn crowd(&self, way: u32) -> (u32, u32) {
        let (zone, rack) = self.of_way[way as usize];
        (self.counts[zone], self.counts[rack])
    }

    fn add(&mut self, way: u32) {
        let (zone, rack) = self.of_way[way as usize];
        for slot in [zone, rack] {
            if slot > 0 {
                self.counts[slot] += 1;
            }
        }
    }
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
    let mut places = Places::new(ways, balance);
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
            let free = |other: &&u32| supply[**other as usize] > 0;
            let mut open: Vec<u32> = others.iter().filter(free).copied().collect();
            // The least crowded one is nearly always to be had, so nothing is sorted.
            while let Some(at) = (0..open.len()).min_by_key(|&at| (places.crowd(open[at]), open[at])) {
                let other = open.swap_remove(at);
                if move_one(other, -1, &mut supply) {
                    *machine = other;
                    break;
                }
                move_one(other, 1, &mut supply);
            }
        }
        places.add(*machine);
    }
}
