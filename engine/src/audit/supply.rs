//! Whether the new nodes can be had: pools, templates, offerings, hosts, names and prices.

use std::collections::{BTreeMap, BTreeSet};

use super::{At, Fault, Findings};
use crate::{
    plan::{NewNode, Plan, Source},
    snapshot::{Health, Host, HostState, Offering, Pool, Scope, Snapshot, Stops, Template},
};

pub(super) fn check(snapshot: &Snapshot, plan: &Plan, findings: &mut Findings) {
    let mut names: BTreeSet<&str> =
        snapshot.cluster.nodes.iter().map(muster_model::k8s::Node::name).collect();
    let mut bought: BTreeMap<(&str, &str, usize), u32> = BTreeMap::new();
    let mut woken: BTreeSet<&str> = BTreeSet::new();
    for (index, new) in plan.new_nodes.iter().enumerate() {
        let at = At::NewNode(index);
        if new.name.is_empty() || !names.insert(&new.name) {
            findings.add(at, Fault::NodeNameTaken { node: new.name.to_string() });
        }
        let Some(pool) = snapshot.pool(&new.pool) else {
            findings.add(at, Fault::UnknownPool { pool: new.pool.to_string() });
            continue;
        };
        let Some(template) = pool.template(&new.template) else {
            let (pool, template) = (new.pool.to_string(), new.template.to_string());
            findings.add(at, Fault::UnknownTemplate { pool, template });
            continue;
        };
        let price = match &new.source {
            Source::Bought { .. } => check_offering(snapshot, pool, template, new, &mut bought),
            Source::Host { host } => check_host(snapshot, new, host, &mut woken),
        };
        match price {
            Err(fault) => findings.add(at, fault),
            Ok(expected) if expected != new.price => {
                let fault = Fault::WrongPrice { node: new.name.to_string(), found: new.price, expected };
                findings.add(at, fault);
            }
            Ok(_) => {}
        }
    }
}

/// The price of the offering that the new node takes one of.
fn check_offering<'a>(
    snapshot: &Snapshot,
    pool: &'a Pool,
    template: &'a Template,
    new: &NewNode,
    bought: &mut BTreeMap<(&'a str, &'a str, usize), u32>,
) -> Result<i64, Fault> {
    let Source::Bought { zone, capacity_type } = &new.source else {
        return Err(Fault::UnknownHost { host: String::new() });
    };
    let offered = |offering: &Offering| {
        offering.zone == *zone
            && offering.capacity_type == *capacity_type
            && offering.unavailable_until.is_none_or(|until| until <= snapshot.now)
    };
    let text = |value: &Option<std::sync::Arc<str>>| value.as_deref().unwrap_or("any").to_owned();
    let template_name = || template.name.to_string();
    // Of several offerings of one kind, the one with the planned price is meant.
    let candidates = || template.offerings.iter().enumerate().filter(|(_, offering)| offered(offering));
    let meant =
        candidates().find(|(_, offering)| offering.price == new.price).or_else(|| candidates().next());
    let Some((index, offering)) = meant else {
        let (zone, capacity_type) = (text(zone), text(capacity_type));
        return Err(Fault::NotOffered { template: template_name(), zone, capacity_type });
    };
    let taken = bought.entry((&pool.name, &template.name, index)).or_default();
    *taken += 1;
    match offering.supply {
        Some(supply) if *taken > supply => {
            let (zone, capacity_type) = (text(zone), text(capacity_type));
            Err(Fault::OfferingExhausted { template: template_name(), zone, capacity_type, supply })
        }
        _ => Ok(offering.price),
    }
}

/// The price of running the host.
fn check_host<'a>(
    snapshot: &'a Snapshot,
    new: &NewNode,
    name: &str,
    woken: &mut BTreeSet<&'a str>,
) -> Result<i64, Fault> {
    let Some(host) = snapshot.host(name) else { return Err(Fault::UnknownHost { host: name.to_owned() }) };
    if !woken.insert(&host.name) {
        return Err(Fault::HostUsedTwice { host: name.to_owned() });
    }
    if let Some(why) = unusable(snapshot, new, host) {
        return Err(Fault::WrongHost { host: name.to_owned(), why });
    }
    if let Some(hold) = snapshot.hold(&[Scope::Host(host.name.clone())], Stops::Growth) {
        return Err(Fault::Held { what: format!("host {name}"), why: hold.why.to_string() });
    }
    Ok(host.price)
}

fn unusable(snapshot: &Snapshot, new: &NewNode, host: &Host) -> Option<String> {
    if host.pool != new.pool {
        return Some(format!("it serves pool {}", host.pool));
    }
    if host.template != new.template {
        return Some(format!("it is a {}", host.template));
    }
    if let Some(node) = &host.node {
        return Some(format!("it already is node {node}"));
    }
    if !matches!(host.state, HostState::Off | HostState::On) {
        return Some(format!("it is {:?}", host.state));
    }
    if let Health::Critical(reading) = &host.health {
        return Some(format!("its health is critical: {reading}"));
    }
    host.backoff_until
        .filter(|until| snapshot.now < *until)
        .map(|until| format!("it failed lately and is not tried before {until}"))
}
