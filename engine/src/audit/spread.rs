//! Racks and zones that a pool does not give up.

use std::collections::BTreeSet;

use super::{At, Fault, Findings};
use crate::{
    plan::Plan,
    snapshot::{Health, Host, Member, MemberState, Pool, Snapshot},
    template::ZONE_LABEL,
};

/// No removal takes the last node out of a rack or zone while the pool asks for that many. Hardware that
/// reports a critical reading goes all the same.
pub(super) fn check(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    for pool in snapshot.pools.iter().filter(|pool| pool.keep_racks > 0 || pool.keep_zones > 0) {
        let most = pool.fixed.unwrap_or(pool.max);
        check_kind(snapshot, plan, pool, "rack", pool.keep_racks.min(most), rack, findings);
        check_kind(snapshot, plan, pool, "zone", pool.keep_zones.min(most), zone, findings);
    }
}

type Of = fn(&Snapshot, &str, &Member) -> Option<String>;

fn check_kind(
    snapshot: &Snapshot,
    plan: &Plan,
    pool: &Pool,
    kind: &str,
    required: u32,
    of: Of,
    findings: &mut Findings,
) {
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for (index, removal) in plan.removals.iter().enumerate() {
        let Some(member) = snapshot.members.get(&removal.node).filter(|member| member.pool == pool.name)
        else {
            continue;
        };
        let before = places(snapshot, pool, &gone, of);
        gone.insert(&removal.node);
        let after = places(snapshot, pool, &gone, of);
        let critical = host(snapshot, member).is_some_and(|host| matches!(host.health, Health::Critical(_)));
        if after.len() < before.len() && after.len() < required as usize && !critical {
            let place = before.difference(&after).next().map_or("", String::as_str);
            let fault = Fault::LastThere {
                node: removal.node.to_string(),
                place: format!("{kind} {place}"),
                required,
            };
            findings.add(At::Removal(index), fault);
        }
    }
}

/// Where the pool has nodes that stay.
fn places(snapshot: &Snapshot, pool: &Pool, gone: &BTreeSet<&str>, of: Of) -> BTreeSet<String> {
    let staying = snapshot.members.iter().filter(|(name, member)| {
        let there = snapshot.cluster.nodes.iter().any(|node| node.name() == &***name);
        member.pool == pool.name && member.state != MemberState::Leaving && !gone.contains(&***name) && there
    });
    staying.filter_map(|(name, member)| of(snapshot, name, member)).collect()
}

fn host<'s>(snapshot: &'s Snapshot, member: &Member) -> Option<&'s Host> {
    snapshot.host(member.host.as_deref()?)
}

fn rack(snapshot: &Snapshot, _node: &str, member: &Member) -> Option<String> {
    Some(host(snapshot, member)?.rack.as_deref()?.to_owned())
}

fn zone(snapshot: &Snapshot, node: &str, member: &Member) -> Option<String> {
    if let Some(zone) = host(snapshot, member).and_then(|host| host.zone.as_deref()) {
        return Some(zone.to_owned());
    }
    let node = snapshot.cluster.nodes.iter().find(|other| other.name() == node)?;
    node.metadata.labels.text(ZONE_LABEL).map(str::to_owned)
}
