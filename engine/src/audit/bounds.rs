//! Bounds on pools and on the cluster, holds, and what may not be touched.

use std::collections::BTreeMap;

use muster_model::{
    Quantity,
    k8s::{Node, ResourceList},
};

use super::{At, Fault, Findings};
use crate::{
    plan::Plan,
    snapshot::{Host, HostState, Member, MemberState, Mode, Pool, Scope, Snapshot, Stops},
    trouble::Troubles,
};

pub(super) fn check(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    for pool in &snapshot.pools {
        check_pool(snapshot, plan, pool, findings);
    }
    check_growth(snapshot, plan, findings);
    check_trouble(snapshot, plan, findings);
    check_removals(snapshot, plan, findings);
    check_cluster(snapshot, plan, findings);
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

/// Bounds hold at every moment: removals make no room for new nodes of the same plan.
fn check_pool(snapshot: &Snapshot, plan: &Plan, pool: &Pool, findings: &mut Findings) {
    let members = || snapshot.members.values().filter(|member| member.pool == pool.name);
    let all = count(members().count());
    let staying = count(members().filter(|member| member.state != MemberState::Leaving).count());
    let new = count(plan.new_nodes.iter().filter(|new| new.pool == pool.name).count());
    let name = || pool.name.to_string();
    if new > 0 && all.saturating_add(new) > pool.max {
        findings
            .add(At::Plan, Fault::AboveMax { pool: name(), nodes: all.saturating_add(new), max: pool.max });
    }
    if let Some(fixed) = pool.fixed.filter(|fixed| new > 0 && staying.saturating_add(new) > *fixed) {
        findings
            .add(At::Plan, Fault::AboveMax { pool: name(), nodes: staying.saturating_add(new), max: fixed });
    }
    let gone =
        count(plan.removals.iter().filter(|removal| is_staying_in(snapshot, &removal.node, pool)).count());
    let kept = staying.saturating_sub(gone);
    let min = pool.fixed.map_or(pool.min, |fixed| fixed.max(pool.min));
    if gone > 0 && kept < min {
        findings.add(At::Plan, Fault::BelowMin { pool: name(), nodes: kept, min });
    }
    if let Some(max) = pool.max_new.filter(|max| new > *max) {
        findings.add(At::Plan, Fault::TooManyNew { planned: new as usize, max });
    }
    if new > 0 {
        let held =
            snapshot.cluster.nodes.iter().filter(|node| {
                snapshot.members.get(node.name()).is_some_and(|member| member.pool == pool.name)
            });
        let added = plan.new_nodes.iter().filter(|new| new.pool == pool.name);
        let added = added.filter_map(|new| Some(&*pool.template(&new.template)?.node));
        check_limits(&format!("pool {}", pool.name), &pool.limits, held, added, findings);
    }
}

fn is_staying_in(snapshot: &Snapshot, node: &str, pool: &Pool) -> bool {
    let member = snapshot.members.get(node);
    member.is_some_and(|member| member.pool == pool.name && member.state != MemberState::Leaving)
}

/// Sums of capacity; only a resource that the plan adds to can break its limit.
fn check_limits<'a>(
    whose: &str,
    limits: &ResourceList,
    held: impl Iterator<Item = &'a Node>,
    added: impl Iterator<Item = &'a Node>,
    findings: &mut Findings,
) {
    if limits.is_empty() {
        return;
    }
    let sum = |nodes: &mut dyn Iterator<Item = &'a Node>| {
        let mut totals: BTreeMap<&'a str, Quantity> = BTreeMap::new();
        for (name, amount) in nodes.flat_map(|node| capacity(node).iter()) {
            *totals.entry(name).or_default() += *amount;
        }
        totals
    };
    let (held, added) = (sum(&mut { held }), sum(&mut { added }));
    for (name, limit) in limits.iter() {
        let more = added.get(name).copied().unwrap_or_default();
        let total = held.get(name).copied().unwrap_or_default() + more;
        if !more.is_zero() && total > *limit {
            let (total, limit) = (total.to_string(), limit.to_string());
            let fault = Fault::TooMuch { whose: whose.to_owned(), resource: name.to_owned(), total, limit };
            findings.add(At::Plan, fault);
        }
    }
}

/// What a node counts with; a node that does not say its capacity counts with its allocatable.
fn capacity(node: &Node) -> &ResourceList {
    if node.status.capacity.is_empty() { &node.status.allocatable } else { &node.status.capacity }
}

fn check_growth(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    for (index, new) in plan.new_nodes.iter().enumerate() {
        let at = At::NewNode(index);
        if snapshot.pool(&new.pool).is_some_and(|pool| pool.mode == Mode::Frozen) {
            findings.add(at, Fault::Frozen { pool: new.pool.to_string() });
        }
        if let Some(hold) = snapshot.hold(&[Scope::Pool(new.pool.clone())], Stops::Growth) {
            let fault = Fault::Held { what: format!("pool {}", new.pool), why: hold.why.to_string() };
            findings.add(at, fault);
        }
    }
    if let Some(max) = snapshot.limits.max_new.filter(|max| count(plan.new_nodes.len()) > *max) {
        findings.add(At::Plan, Fault::TooManyNew { planned: plan.new_nodes.len(), max });
    }
}

/// Where there is trouble only few machines are on their way up at one time.
fn check_trouble(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    if plan.new_nodes.is_empty() {
        return;
    }
    for brake in Troubles::of(snapshot).brakes(snapshot) {
        let new = brake.added(snapshot, plan);
        let rising = brake.rising.saturating_add(new);
        if new > 0 && rising > brake.most {
            let (place, limit) = (brake.place.to_string(), brake.most);
            findings.add(At::Plan, Fault::TooFast { place, why: brake.why, rising, limit });
        }
    }
}

/// A node may go if it is ours, nothing holds it, and everything about it is known.
fn check_removals(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    for (index, removal) in plan.removals.iter().enumerate() {
        let at = At::Removal(index);
        let Some(member) = snapshot.members.get(&removal.node) else { continue };
        let mut scopes = vec![Scope::Node(removal.node.clone()), Scope::Pool(member.pool.clone())];
        scopes.extend(member.host.clone().map(Scope::Host));
        let what = || format!("node {}", removal.node);
        if let Some(hold) = snapshot.hold(&scopes, Stops::Removal) {
            findings.add(at, Fault::Held { what: what(), why: hold.why.to_string() });
        }
        let unknown = |scope: &Scope| *scope == Scope::Everything || scopes.contains(scope);
        if let Some(gap) = snapshot.gaps.iter().find(|gap| unknown(&gap.scope)) {
            findings.add(at, Fault::Unobserved { node: removal.node.to_string(), why: gap.why.to_string() });
        }
        match snapshot.pool(&member.pool) {
            None => findings.add(at, Fault::UnknownPool { pool: member.pool.to_string() }),
            Some(pool) if pool.mode == Mode::Frozen => {
                findings.add(at, Fault::Frozen { pool: pool.name.to_string() });
            }
            Some(_) => {}
        }
    }
    check_exits(snapshot, plan, findings);
}

/// Nodes that go at one time: those of the plan beside those that are on their way out.
fn check_exits(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    let mut check = |whose: String, going: usize, planned: usize, max: Option<u32>| {
        if let Some(max) = max.filter(|max| planned > 0 && count(going + planned) > *max) {
            findings.add(At::Plan, Fault::TooManyRemovals { whose, going, planned, max });
        }
    };
    let down: Vec<_> = snapshot.hosts.iter().filter(|host| host.state == HostState::Leaving).collect();
    let without_host = |member: &&Member| member.state == MemberState::Leaving && member.host.is_none();
    let bought = snapshot.members.values().filter(without_host).count();
    check("all nodes".to_owned(), down.len() + bought, plan.removals.len(), snapshot.limits.max_removals);
    for (rack, limits) in &snapshot.limits.racks {
        let inside = |host: &Host| host.rack.as_ref() == Some(rack);
        let planned = plan.removals.iter().filter(|removal| {
            let member = snapshot.members.get(&removal.node);
            let host = member.and_then(|member| snapshot.host(member.host.as_deref()?));
            host.is_some_and(inside)
        });
        let going = down.iter().filter(|host| inside(host)).count();
        check(format!("rack {rack}"), going, planned.count(), limits.leaving);
    }
}

fn check_cluster(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    if plan.new_nodes.is_empty() {
        return;
    }
    let limits = &snapshot.limits;
    let nodes = snapshot.cluster.nodes.len() + plan.new_nodes.len();
    if let Some(max) = limits.max_nodes.filter(|max| count(nodes) > *max) {
        findings.add(At::Plan, Fault::TooManyNodes { nodes, max });
    }
    let held = snapshot.members.values().map(|member| member.price);
    let added = plan.new_nodes.iter().map(|new| new.price);
    let price = held.chain(added).fold(0, i64::saturating_add);
    if let Some(limit) = limits.price.filter(|limit| price > *limit) {
        findings.add(At::Plan, Fault::TooExpensive { price, limit });
    }
    let templates = plan.new_nodes.iter();
    let templates =
        templates.filter_map(|new| Some(&*snapshot.pool(&new.pool)?.template(&new.template)?.node));
    check_limits("the cluster", &limits.resources, snapshot.cluster.nodes.iter(), templates, findings);
}
