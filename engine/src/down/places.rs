//! Racks and zones: a pool that asks for spread keeps a node in so many of them.

use std::collections::BTreeMap;

use super::{ground::Seat, report::Blocker};
use crate::{
    snapshot::{Host, Pool},
    template::ZONE_LABEL,
};

/// The rack and the zone of a node, as far as they are known.
pub(crate) type Spot<'a> = [Option<&'a str>; 2];

const NAMES: [&str; 2] = ["rack", "zone"];

pub(crate) fn spot<'a>(seat: &Seat<'a>, host: Option<&'a Host>) -> Spot<'a> {
    let rack = host.and_then(|host| host.rack.as_deref());
    let zone = host.and_then(|host| host.zone.as_deref());
    [rack, zone.or_else(|| seat.node.metadata.labels.text(ZONE_LABEL))]
}

/// How many nodes of one pool serve and stay in each rack and zone. One that is not ready holds no place: the host loop
/// takes the planner's word for what is the last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places<'a> {
    required: [u32; 2],
    held: [BTreeMap<&'a str, u32>; 2],
}

impl<'a> Places<'a> {
    /// A pool that may have fewer nodes than it wants places is content with one node in each.
    pub(crate) fn new(pool: &Pool) -> Self {
        let most = pool.fixed.unwrap_or(pool.max);
        Self { required: [pool.keep_racks.min(most), pool.keep_zones.min(most)], held: Default::default() }
    }

    pub(crate) fn add(&mut self, spot: Spot<'a>) {
        for (held, place) in self.held.iter_mut().zip(spot) {
            if let Some(place) = place {
                *held.entry(place).or_default() += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, spot: Spot<'a>) {
        for (held, place) in self.held.iter_mut().zip(spot) {
            let Some(place) = place else { continue };
            if let Some(nodes) = held.get_mut(place) {
                *nodes -= 1;
                if *nodes == 0 {
                    held.remove(place);
                }
            }
        }
    }

    /// What says against taking the only node out of a place.
    pub(crate) fn last(&self, pool: &Pool, spot: Spot<'a>) -> Option<Blocker> {
        let kinds = NAMES.iter().zip(self.required).zip(self.held.iter().zip(spot));
        kinds.into_iter().find_map(|((kind, required), (held, place))| {
            let place = place?;
            let places = u32::try_from(held.len()).unwrap_or(u32::MAX);
            let last = places <= required && held.get(place) == Some(&1);
            last.then(|| Blocker::LastThere {
                pool: pool.name.to_string(),
                place: format!("{kind} {place}"),
                places,
                required,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_node_of_a_place_stays_while_the_pool_asks_for_spread() {
        #[track_caller]
        fn check(keep_racks: u32, max: u32, nodes: &[&'static str], of: &'static str, expected: Option<u32>) {
            let pool = Pool { max, keep_racks, ..Pool::default() };
            let mut places = Places::new(&pool);
            for rack in nodes {
                places.add([Some(rack), None]);
            }
            let found = places.last(&pool, [Some(of), None]).map(|blocker| match blocker {
                Blocker::LastThere { required, .. } => required,
                other => panic!("{other}"),
            });
            assert_eq!(found, expected, "{keep_racks} {nodes:?} {of}");
        }
        // racks kept, maximum, racks of the nodes, rack of the one that would go => racks required
        check(0, 9, &["a", "b"], "a", None);
        check(2, 9, &["a", "b"], "a", Some(2));
        check(2, 9, &["a", "a", "b"], "a", None);
        check(2, 9, &["a", "a", "b"], "b", Some(2));
        check(2, 9, &["a", "b", "c"], "a", None); // two are left
        check(3, 9, &["a", "b"], "a", Some(3)); // fewer than wanted already: not fewer still
        check(2, 1, &["a", "b"], "a", None); // the pool may have one node only
        check(1, 9, &["a"], "a", Some(1));
    }

    #[test]
    fn nodes_that_go_no_longer_hold_their_place() {
        let pool = Pool { keep_zones: 1, max: 9, ..Pool::default() };
        let mut places = Places::new(&pool);
        let (a, b) = ([Some("r"), Some("a")], [Some("r"), Some("b")]);
        places.add(a);
        places.add(b);
        assert_eq!(places.last(&pool, a), None);
        places.remove(a);
        assert!(places.last(&pool, b).is_some_and(|blocker| blocker.to_string().contains("zone b")));
        assert_eq!(places.last(&pool, [None, None]), None); // nobody knows where it is
    }
}
