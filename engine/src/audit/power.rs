//! Watts: what hosts may draw together, and how many may start at once.

use super::{At, Fault, Findings};
use crate::{
    plan::{Plan, Source},
    snapshot::{Host, HostState, PowerLimits, Snapshot},
};

pub(super) fn check(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    let started: Vec<&Host> = plan
        .new_nodes
        .iter()
        .filter_map(|new| match &new.source {
            Source::Host { host } => snapshot.host(host),
            Source::Bought { .. } => None,
        })
        .collect();
    check_place("all hosts", &snapshot.limits.power, &snapshot.hosts, &started, |_| true, findings);
    for (rack, limits) in &snapshot.limits.racks {
        let inside = |host: &Host| host.rack.as_ref() == Some(rack);
        check_place(&format!("rack {rack}"), limits, &snapshot.hosts, &started, inside, findings);
    }
}

/// Removals of the same plan free nothing: the hosts run until they are drained.
fn check_place(
    whose: &str,
    limits: &PowerLimits,
    hosts: &[Host],
    started: &[&Host],
    inside: impl Fn(&Host) -> bool,
    findings: &mut Findings,
) {
    let started: Vec<&Host> = started.iter().copied().filter(|host| inside(host)).collect();
    if started.is_empty() {
        return;
    }
    let whose = || whose.to_owned();
    let present = || hosts.iter().filter(|host| inside(host));
    let sum = |draws: &mut dyn Iterator<Item = i64>| draws.fold(0, i64::saturating_add);
    let waking = || started.iter().copied().filter(|host| host.state == HostState::Off);

    let on = present().filter(|host| host.draws());
    let milliwatts = sum(&mut on.chain(waking()).map(|host| host.max_milliwatts));
    if let Some(limit) = limits.milliwatts.filter(|limit| milliwatts > *limit) {
        findings.add(At::Plan, Fault::TooMuchPower { whose: whose(), milliwatts, limit });
    }
    let starting = || present().filter(|host| host.state == HostState::Waking).chain(waking());
    let milliwatts = sum(&mut starting().map(|host| host.inrush_milliwatts));
    if let Some(limit) = limits.inrush_milliwatts.filter(|limit| milliwatts > *limit) {
        findings.add(At::Plan, Fault::TooMuchInrush { whose: whose(), milliwatts, limit });
    }
    let number = u32::try_from(starting().count()).unwrap_or(u32::MAX);
    if let Some(limit) = limits.waking.filter(|limit| number > *limit) {
        findings.add(At::Plan, Fault::TooManyWaking { whose: whose(), waking: number, limit });
    }
}
