//! What stops a machine that would do from being had: every limit, with its numbers and who sets it.

use muster_model::k8s::{Node, ResourceList};
use serde_json::{Value, json};

use super::{
    Cause, Code, amount,
    hosts::{is_usable, refusal},
    scene::{Candidate, Scene, Way},
};
use crate::{
    plan::Source,
    snapshot::{
        Host, HostState, MemberState, Mode, Pool, PowerLimits, Scope, Snapshot, Stops, sum_of_prices,
    },
    trouble::{Place, Troubles},
};

/// A limit that is reached, and the patch that would raise it for `more` machines.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    pub(super) cause: Cause,
    pub(super) raise: Option<Value>,
    pub(super) advice: String,
}

impl Limit {
    fn fixed(cause: Cause) -> Self {
        Self { cause, raise: None, advice: String::new() }
    }
}

/// Everything that stops `more` further machines like the candidate, the most basic first.
pub(super) fn all(scene: &Scene<'_>, candidate: &Candidate, more: u32) -> Vec<Limit> {
    let (snapshot, pool) = (scene.snapshot, scene.pool_of(candidate));
    let mut found = pool_words(snapshot, pool);
    found.extend(supply(scene, candidate));
    found.extend(pool_size(scene, pool, more));
    let node = &candidate.node;
    let price = price_of(scene, candidate);
    found.extend(pool_resources(scene, pool, node, more));
    found.extend(cluster(scene, node, price, more));
    found.extend(power(scene, candidate));
    found.extend(trouble(scene, candidate));
    found
}

fn pool_words(snapshot: &Snapshot, pool: &Pool) -> Vec<Limit> {
    let object = format!("nodepools/{}", pool.name);
    let mut found = Vec::new();
    if pool.mode == Mode::Frozen {
        let cause = Cause::new(Code::Frozen, &object, "status.frozen").found("frozen", "not frozen");
        found.push(Limit::fixed(
            cause.saying(format!("pool {} is frozen; nothing is decided for it", pool.name)),
        ));
    }
    if let Some(hold) = snapshot.hold(&[Scope::Pool(pool.name.clone())], Stops::Growth) {
        let until =
            hold.until.map_or_else(|| "until further notice".to_owned(), |until| format!("until {until}"));
        let cause = Cause::new(Code::Held, &object, "holds").found(&*hold.why, "no hold").until(hold.until);
        found.push(Limit::fixed(cause.saying(format!("pool {} is held {until}: {}", pool.name, hold.why))));
    }
    found
}

fn supply(scene: &Scene<'_>, candidate: &Candidate) -> Option<Limit> {
    let (pool, template) = (scene.pool_of(candidate), scene.template_of(candidate));
    let object = format!("nodepools/{}", pool.name);
    match &candidate.way {
        Way::Nothing => {
            let cause =
                Cause::new(Code::SoldOut, object, "spec.platform").found("no offering, no host", "one");
            Some(Limit::fixed(
                cause
                    .saying(format!("template {} matches, but has neither offering nor host", template.name)),
            ))
        }
        Way::Offering(_) => {
            let offering = scene.offering_of(candidate)?;
            let place = [offering.capacity_type.as_deref(), offering.zone.as_deref()];
            let place = place.into_iter().flatten().collect::<Vec<_>>().join(" in ");
            let same = |source: &Source| {
                *source
                    == Source::Bought {
                        zone: offering.zone.clone(),
                        capacity_type: offering.capacity_type.clone(),
                    }
            };
            let planned = scene.plan.new_nodes.iter();
            let planned = planned
                .filter(|n| n.pool == pool.name && n.template == template.name && same(&n.source))
                .count();
            if let Some(until) = offering.unavailable_until.filter(|until| scene.snapshot.now < *until) {
                let cause =
                    Cause::new(Code::SoldOut, object, "spec.platform").found("failed lately", "to be had");
                return Some(Limit::fixed(cause.until(Some(until)).saying(format!(
                    "template {} matches, but {place} was not to be had; tried again {until}",
                    template.name
                ))));
            }
            let supply = usize::try_from(offering.supply?).unwrap_or(usize::MAX);
            (planned >= supply).then(|| {
                let cause = Cause::new(Code::SoldOut, object, "spec.platform")
                    .found(format!("{} left", supply - planned.min(supply)), "1")
                    .margin("1");
                Limit {
                    advice: format!(
                        "find more of {} ({place}), or let the pool use another zone or type",
                        template.name
                    ),
                    ..Limit::fixed(cause.saying(format!(
                        "template {} matches, but {place} has none left (supply {supply})",
                        template.name
                    )))
                }
            })
        }
        Way::Hosts(hosts) => {
            let usable = scene.hosts_of(candidate).filter(|host| is_usable(scene.snapshot, host)).count();
            let started = scene.hosts_of(candidate).filter(|host| starts(scene, host)).count();
            (usable <= started).then(|| {
                let worst = scene.hosts_of(candidate).find_map(|host| refusal(scene.snapshot, host));
                let why =
                    worst.map_or_else(|| "all of them are started already".to_owned(), |cause| cause.text);
                let cause = Cause::new(Code::NoUsableHost, object, "spec.platform.baremetal")
                    .found(format!("{} of {} hosts usable", usable - started, hosts.len()), "1")
                    .margin("1");
                Limit::fixed(cause.saying(format!("{} hosts match, none can be started: {why}", hosts.len())))
            })
        }
    }
}

/// Whether the plan starts the host.
pub(super) fn starts(scene: &Scene<'_>, host: &Host) -> bool {
    let is = |source: &Source| matches!(source, Source::Host { host: name } if *name == host.name);
    scene.plan.new_nodes.iter().any(|new| is(&new.source))
}

/// Nodes of a pool now, those on their way and leaving included.
pub(super) fn members(snapshot: &Snapshot, pool: &Pool) -> u32 {
    count(snapshot.members.values().filter(|member| member.pool == pool.name).count())
}

pub(super) fn planned(scene: &Scene<'_>, pool: &Pool) -> u32 {
    count(scene.plan.new_nodes.iter().filter(|new| new.pool == pool.name).count())
}

pub(super) fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

fn pool_size(scene: &Scene<'_>, pool: &Pool, more: u32) -> Vec<Limit> {
    let object = format!("nodepools/{}", pool.name);
    let (have, new) = (members(scene.snapshot, pool), planned(scene, pool));
    let total = have.saturating_add(new);
    let also = if new > 0 { format!(" ({new} of them planned)") } else { String::new() };
    let mut found = Vec::new();
    if let Some(fixed) = pool.fixed.filter(|fixed| total >= *fixed) {
        let cause = Cause::new(Code::PoolFixed, &object, "spec.nodeCount")
            .found(format!("{total} nodes"), format!("{} nodes", total + more))
            .margin(if more == 1 { "1 node".to_owned() } else { format!("{more} nodes") });
        found.push(Limit {
            cause: cause.saying(format!("pool {} holds {fixed} nodes and does not scale", pool.name)),
            raise: Some(json!({"spec": {"nodeCount": total + more}})),
            advice: format!("raise nodeCount of pool {} from {fixed} to {}", pool.name, total + more),
        });
    } else if pool.fixed.is_none() && total >= pool.max {
        let late = overdue(scene.snapshot, pool).len();
        let stuck =
            if late > 0 { format!("; {late} of them on their way for too long") } else { String::new() };
        let cause = Cause::new(Code::PoolMax, &object, "spec.autoscaling.maxNodes")
            .found(format!("{total} nodes"), format!("{} nodes", total + more))
            .margin(if more == 1 { "1 node".to_owned() } else { format!("{more} nodes") });
        found.push(Limit {
            cause: cause
                .saying(format!("pool {} has {total} of at most {} nodes{also}{stuck}", pool.name, pool.max)),
            raise: Some(json!({"spec": {"autoscaling": {"maxNodes": total + more}}})),
            advice: format!("raise maxNodes of pool {} from {} to {}", pool.name, pool.max, total + more),
        });
    }
    if let Some(most) = pool.max_new.filter(|most| new >= *most) {
        let cause = Cause::new(Code::PoolNewLimit, object, "limits.maxNew")
            .found(format!("{new} new"), format!("{} new", new + 1));
        found.push(Limit::fixed(cause.saying(format!(
            "pool {} grows by at most {most} nodes in one plan; the next plan goes on",
            pool.name
        ))));
    }
    found
}

/// Nodes of the pool that should have been there by now.
pub(super) fn overdue<'s>(snapshot: &'s Snapshot, pool: &Pool) -> Vec<&'s str> {
    let late =
        |state: &MemberState| matches!(state, MemberState::Upcoming { expected } if *expected < snapshot.now);
    let members =
        snapshot.members.iter().filter(|(_, member)| member.pool == pool.name && late(&member.state));
    members.map(|(name, _)| &**name).collect()
}

pub(super) fn capacity(node: &Node) -> &ResourceList {
    if node.status.capacity.is_empty() { &node.status.allocatable } else { &node.status.capacity }
}

fn units(resource: &str, amount: muster_model::Quantity) -> i64 {
    if resource == "cpu" { amount.milli() } else { amount.value() }
}

fn held<'n>(nodes: impl Iterator<Item = &'n Node>, resource: &str) -> i64 {
    nodes.filter_map(|node| capacity(node).get(resource)).map(|amount| units(resource, *amount)).sum()
}

fn pool_resources(scene: &Scene<'_>, pool: &Pool, node: &Node, more: u32) -> Vec<Limit> {
    let snapshot = scene.snapshot;
    let mine =
        |node: &&Node| snapshot.members.get(node.name()).is_some_and(|member| member.pool == pool.name);
    let present: Vec<&Node> = snapshot.cluster.nodes.iter().filter(mine).collect();
    let added = scene.plan.new_nodes.iter().filter(|new| new.pool == pool.name);
    let added = added.filter_map(|new| Some(&*pool.template(&new.template)?.node));
    let nodes: Vec<&Node> = present.into_iter().chain(added).collect();
    let whose = Whose {
        name: format!("pool {}", pool.name),
        object: format!("nodepools/{}", pool.name),
        path: "limits",
    };
    resource_limits(&whose, Code::PoolResourceLimit, &pool.limits, &nodes, node, more)
}

struct Whose {
    name: String,
    object: String,
    path: &'static str,
}

fn resource_limits(
    whose: &Whose,
    code: Code,
    limits: &ResourceList,
    nodes: &[&Node],
    node: &Node,
    more: u32,
) -> Vec<Limit> {
    let over = limits.iter().filter_map(|(name, limit)| {
        let (limit, used) = (units(name, *limit), held(nodes.iter().copied(), name));
        let one = capacity(node).get(name).map_or(0, |amount| units(name, *amount));
        if one == 0 || used + one <= limit {
            return None;
        }
        let wanted = used.saturating_add(one.saturating_mul(i64::from(more)));
        let mut raise = json!({ name: amount::quantity(name, wanted) });
        for part in whose.path.split('.').rev() {
            raise = json!({ part: raise });
        }
        let cause = Cause::new(code, &whose.object, format!("{}.{name}", whose.path))
            .found(
                format!("{} of {}", amount::say(name, used), amount::say(name, limit)),
                format!("{} more", amount::say(name, one)),
            )
            .margin(amount::say(name, used.saturating_add(one).saturating_sub(limit)));
        Some(Limit {
            cause: cause.saying(format!(
                "{} uses {} of its limit of {}; a node adds {}",
                whose.name,
                amount::say(name, used),
                amount::say(name, limit),
                amount::say(name, one)
            )),
            raise: Some(raise),
            advice: format!(
                "raise the {name} limit of {} from {} to {}",
                whose.name,
                amount::say(name, limit),
                amount::say(name, wanted)
            ),
        })
    });
    over.collect()
}

fn price_of(scene: &Scene<'_>, candidate: &Candidate) -> i64 {
    let host = scene.hosts_of(candidate).map(|host| host.price).min();
    scene.offering_of(candidate).map(|offering| offering.price).or(host).unwrap_or(0)
}

fn cluster(scene: &Scene<'_>, node: &Node, price: i64, more: u32) -> Vec<Limit> {
    let (snapshot, limits) = (scene.snapshot, &scene.snapshot.limits);
    let object = "config/global";
    let new = count(scene.plan.new_nodes.len());
    let total = count(snapshot.cluster.nodes.len()).saturating_add(new);
    let mut found = Vec::new();
    if let Some(most) = limits.max_nodes.filter(|most| total >= *most) {
        let cause = Cause::new(Code::ClusterNodes, object, "limits.maxNodes")
            .found(format!("{total} nodes"), format!("{} nodes", total + more))
            .margin(if more == 1 { "1 node".to_owned() } else { format!("{more} nodes") });
        found.push(Limit {
            cause: cause.saying(format!("the cluster has {total} of at most {most} nodes")),
            raise: Some(json!({"limits": {"maxNodes": total + more}})),
            advice: format!("raise the limit of nodes from {most} to {}", total + more),
        });
    }
    if let Some(most) = limits.max_new.filter(|most| new >= *most) {
        let cause = Cause::new(Code::ClusterNewLimit, object, "limits.maxNew")
            .found(format!("{new} new"), format!("{} new", new + 1));
        found.push(Limit::fixed(
            cause.saying(format!("one plan adds at most {most} nodes; the next plan goes on")),
        ));
    }
    let added = scene
        .plan
        .new_nodes
        .iter()
        .filter_map(|new| Some(&*snapshot.pool(&new.pool)?.template(&new.template)?.node));
    let nodes: Vec<&Node> = snapshot.cluster.nodes.iter().chain(added).collect();
    let whose = Whose { name: "the cluster".to_owned(), object: object.to_owned(), path: "limits.resources" };
    found.extend(resource_limits(&whose, Code::ClusterResourceLimit, &limits.resources, &nodes, node, more));
    if let Some(most) = limits.price {
        let members = snapshot.members.values().map(|member| member.price);
        let spent = sum_of_prices(members.chain(scene.plan.new_nodes.iter().map(|new| new.price)));
        if spent.saturating_add(price) > most {
            let cause = Cause::new(Code::ClusterPriceLimit, object, "limits.price")
                .found(
                    format!("{} of {} per hour", amount::price(spent), amount::price(most)),
                    format!("{} more", amount::price(price)),
                )
                .margin(amount::price(spent.saturating_add(price).saturating_sub(most)));
            found.push(Limit {
                cause: cause.saying(format!(
                    "all nodes cost {} of at most {} per hour; this one adds {}",
                    amount::price(spent),
                    amount::price(most),
                    amount::price(price)
                )),
                raise: Some(
                    json!({"limits": {"price": spent.saturating_add(price.saturating_mul(i64::from(more)))}}),
                ),
                advice: format!(
                    "raise the price limit to {} per hour",
                    amount::price(spent.saturating_add(price.saturating_mul(i64::from(more))))
                ),
            });
        }
    }
    found
}

/// The word of a place in trouble, where as many machines are on their way up as may be.
fn trouble(scene: &Scene<'_>, candidate: &Candidate) -> Option<Limit> {
    let (snapshot, pool) = (scene.snapshot, scene.pool_of(candidate));
    let free: Vec<Option<&str>> = scene
        .hosts_of(candidate)
        .filter(|host| is_usable(snapshot, host) && !starts(scene, host))
        .map(|host| host.rack.as_deref())
        .collect();
    let brakes = Troubles::of(snapshot).brakes(snapshot).into_iter().filter(|brake| {
        let holds = if free.is_empty() {
            brake.place.holds(&pool.name, None)
        } else {
            free.iter().all(|rack| brake.place.holds(&pool.name, *rack))
        };
        holds && brake.rising.saturating_add(brake.added(snapshot, scene.plan)) >= brake.most
    });
    brakes.into_iter().next().map(|brake| {
        let object = match brake.place {
            Place::Cluster => "config/global".to_owned(),
            Place::Pool(name) => format!("nodepools/{name}"),
            Place::Rack(name) => format!("racks/{name}"),
        };
        let cause = Cause::new(Code::SlowGrowth, object, "nodes")
            .found(format!("{} on their way up", brake.most), "one more");
        Limit::fixed(
            cause.saying(format!("{} grows by {} at a time while {}", brake.place, brake.most, brake.why)),
        )
    })
}

fn power(scene: &Scene<'_>, candidate: &Candidate) -> Option<Limit> {
    if scene.offering_of(candidate).is_some() {
        return None;
    }
    let snapshot = scene.snapshot;
    let mut first = None;
    for host in scene.hosts_of(candidate).filter(|host| is_usable(snapshot, host) && !starts(scene, host)) {
        let whole = ("all hosts".to_owned(), &snapshot.limits.power, None);
        let rack = host
            .rack
            .as_ref()
            .and_then(|rack| Some((format!("rack {rack}"), snapshot.limits.racks.get(rack)?, Some(rack))));
        let over = std::iter::once(whole).chain(rack).find_map(|(whose, limits, rack)| {
            let inside = |other: &&Host| rack.is_none_or(|rack| other.rack.as_ref() == Some(rack));
            power_of(scene, host, &whose, limits, inside)
        });
        match over {
            None => return None,
            Some(limit) => first = first.or(Some(limit)),
        }
    }
    first
}

fn power_of(
    scene: &Scene<'_>,
    host: &Host,
    whose: &str,
    limits: &PowerLimits,
    inside: impl Fn(&&Host) -> bool,
) -> Option<Limit> {
    let present = || scene.snapshot.hosts.iter().filter(|other| inside(other));
    let object = if whose == "all hosts" {
        "config/global".to_owned()
    } else {
        format!("racks/{}", whose.trim_start_matches("rack "))
    };
    let on = |other: &&Host| other.draws() || starts(scene, other);
    let waking = |other: &&Host| other.state == HostState::Waking || starts(scene, other);
    let drawn: i64 = present().filter(on).map(|other| other.max_milliwatts).fold(0, i64::saturating_add);
    if let Some(limit) = limits.milliwatts.filter(|limit| drawn + host.max_milliwatts > *limit) {
        let cause = Cause::new(Code::PowerLimit, object, "wattCap")
            .found(
                format!("{} of {}", amount::watts(drawn), amount::watts(limit)),
                format!("{} more", amount::watts(host.max_milliwatts)),
            )
            .margin(amount::watts(drawn.saturating_add(host.max_milliwatts).saturating_sub(limit)));
        let blind = present().filter(|other| other.is_not_known_off());
        let (hosts, watts) =
            blind.fold((0_u32, 0_i64), |(n, sum), one| (n + 1, sum.saturating_add(one.max_milliwatts)));
        let blind = match hosts {
            0 => String::new(),
            1 => {
                format!(" ({} of them by 1 host of which nobody knows that it is off)", amount::watts(watts))
            }
            _ => format!(
                " ({} of them by {hosts} hosts of which nobody knows that they are off)",
                amount::watts(watts)
            ),
        };
        return Some(Limit::fixed(cause.saying(format!(
            "{whose} may draw {}, {} are taken{blind}, host {} takes up to {}",
            amount::watts(limit),
            amount::watts(drawn),
            host.name,
            amount::watts(host.max_milliwatts)
        ))));
    }
    let surge: i64 =
        present().filter(waking).map(|other| other.inrush_milliwatts).fold(0, i64::saturating_add);
    let starting = present().filter(waking).count();
    let many = limits
        .waking
        .filter(|most| starting >= *most as usize)
        .map(|most| format!("{whose} may start {most} hosts at a time, {starting} start now"));
    let inrush = limits.inrush_milliwatts.filter(|limit| surge + host.inrush_milliwatts > *limit);
    let inrush = inrush.map(|limit| {
        format!("{whose} may surge to {}, {} start now", amount::watts(limit), amount::watts(surge))
    });
    let text = many.or(inrush)?;
    Some(Limit::fixed(
        Cause::new(Code::WakingLimit, object, "startLimit")
            .found(format!("{starting} starting"), "one more")
            .saying(format!("{text}; the next plan goes on")),
    ))
}
