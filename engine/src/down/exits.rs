//! How many nodes may be on their way out at one time: in all, and in each rack. Those that are going already count.

use std::{collections::BTreeMap, sync::Arc};

use super::{ground::Ground, report::Kept, sweep::Candidate};
use crate::snapshot::{HostState, MemberState, Snapshot};

#[derive(Debug, Clone, Copy)]
struct Exit {
    going: u32,
    planned: u32,
    max: u32,
}

impl Exit {
    fn check(&self, rack: Option<&str>) -> Result<(), Kept> {
        let Self { going, planned, max } = *self;
        if going.saturating_add(planned) < max {
            return Ok(());
        }
        Err(Kept::MaxRemovals { rack: rack.map(str::to_owned), going, planned, max })
    }
}

/// What a plan may still remove.
#[derive(Debug, Clone)]
pub(super) struct Exits {
    all: Option<Exit>,
    racks: BTreeMap<Arc<str>, Exit>,
    /// The racks of candidates, where they have a limit.
    rack_of: BTreeMap<u32, Arc<str>>,
}

impl Exits {
    pub(super) fn new(ground: &Ground<'_>, candidates: &[Candidate]) -> Self {
        let snapshot = ground.snapshot;
        let all = snapshot.limits.max_removals.map(|max| Exit { going: going(snapshot), planned: 0, max });
        let racks: BTreeMap<Arc<str>, Exit> = snapshot
            .limits
            .racks
            .iter()
            .filter_map(|(rack, limits)| {
                let inside = |host: &&_| leaves(host) && host.rack.as_ref() == Some(rack);
                let going = count(snapshot.hosts.iter().filter(inside).count());
                Some((Arc::clone(rack), Exit { going, planned: 0, max: limits.leaving? }))
            })
            .collect();
        let racked: BTreeMap<&str, &Arc<str>> =
            snapshot.hosts.iter().filter_map(|host| Some((&*host.name, host.rack.as_ref()?))).collect();
        let rack_of = candidates
            .iter()
            .filter_map(|candidate| {
                let host = ground.seats[candidate.node as usize].member?.host.as_deref()?;
                let rack = racked.get(host).filter(|rack| racks.contains_key(**rack))?;
                Some((candidate.node, Arc::clone(rack)))
            })
            .collect();
        Self { all, racks, rack_of }
    }

    /// Whether the node may go beside those that do.
    pub(super) fn check(&self, node: u32) -> Result<(), Kept> {
        self.all.map_or(Ok(()), |all| all.check(None))?;
        let rack = self.rack_of.get(&node);
        rack.and_then(|rack| self.racks.get(rack)).map_or(Ok(()), |exit| exit.check(rack.map(|rack| &**rack)))
    }

    /// The node goes.
    pub(super) fn take(&mut self, node: u32) {
        let rack = self.rack_of.get(&node).and_then(|rack| self.racks.get_mut(rack));
        for exit in self.all.iter_mut().chain(rack) {
            exit.planned += 1;
        }
    }
}

fn leaves(host: &crate::snapshot::Host) -> bool {
    host.state == HostState::Leaving
}

/// Hosts on their way down, whosever they are, and nodes on their way out that no host of ours runs.
fn going(snapshot: &Snapshot) -> u32 {
    let hosts = snapshot.hosts.iter().filter(|host| leaves(host)).count();
    let bought = snapshot.members.values();
    let bought = bought.filter(|one| one.host.is_none() && one.state == MemberState::Leaving).count();
    count(hosts + bought)
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}
