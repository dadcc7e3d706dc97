//! What differs in what two decisions looked at.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::{
    Snapshot,
    explain::{price, watts},
    snapshot::{Gap, Health, Host, HostState, MemberState, Pool, Scope, Template, Trigger},
};

use super::{Change, MOST_ALIKE, MOST_NAMES, Subject, rules, sets};

/// Every difference, what people set first within its kind. Empty only where both looked at the same, but for the time.
pub(super) fn differences(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let mut all = pods(from, to);
    all.extend(nodes(from, to));
    all.extend(hosts(from, to));
    all.extend(prices(from, to));
    all.extend(rules::differences(from, to));
    all.extend(pools(from, to));
    all.extend(gaps(from, to));
    all.sort_by_key(|change| change.subject);
    all.extend(rest(from, to, &all));
    all
}

fn pods(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let waiting = |snapshot: &Snapshot| -> BTreeSet<String> {
        let waits = snapshot.cluster.pods.iter().filter(|pod| pod.is_pending());
        waits.map(|pod| pod.key().to_string()).collect()
    };
    let running = |snapshot: &Snapshot| -> BTreeSet<String> {
        let bound = snapshot.cluster.pods.iter().filter(|pod| pod.spec.node_name.is_some());
        bound.filter(|pod| !pod.is_finished()).map(|pod| pod.key().to_string()).collect()
    };
    let groups = |snapshot: &Snapshot| -> BTreeSet<String> {
        snapshot.groups.iter().map(|group| group.name.to_string()).collect()
    };
    let rows = [
        sets(Subject::Pods, "pods waiting", &waiting(from), &waiting(to)),
        sets(Subject::Pods, "pods on nodes", &running(from), &running(to)),
        sets(Subject::Pods, "groups of pods", &groups(from), &groups(to)),
    ];
    rows.into_iter().flatten().collect()
}

/// Names by pool and by what is said of them.
type ByPool = BTreeMap<(String, &'static str), BTreeSet<String>>;

fn by_pool(subject: Subject, from: &ByPool, to: &ByPool) -> Vec<Change> {
    let keys: BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let empty = BTreeSet::new();
    let rows = keys.into_iter().filter_map(|key @ (pool, name)| {
        let of = |all: &ByPool| all.get(key).unwrap_or(&empty).clone();
        sets(subject, name, &of(from), &of(to)).map(|change| change.of(pool))
    });
    rows.collect()
}

fn nodes(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let states = |snapshot: &Snapshot| {
        let mut all = ByPool::new();
        for (node, member) in &snapshot.members {
            let state = match member.state {
                MemberState::Ready => "nodes ready",
                MemberState::Upcoming { .. } => "nodes on their way",
                MemberState::Leaving => "nodes leaving",
                MemberState::Unready => "nodes not ready",
            };
            let mut add =
                |what| all.entry((member.pool.to_string(), what)).or_default().insert(node.to_string());
            add(state);
            if member.unneeded_since.is_some() {
                add("nodes unneeded");
            }
        }
        all
    };
    by_pool(Subject::Nodes, &states(from), &states(to))
}

const fn state(host: &Host) -> &'static str {
    match host.state {
        HostState::Off => "hosts off",
        HostState::On => "hosts on without a node",
        HostState::Waking => "hosts waking",
        HostState::Ready => "hosts ready",
        HostState::Leaving => "hosts leaving",
        HostState::Failed => "hosts failed",
        HostState::Maintenance => "hosts in maintenance",
        HostState::Unknown => "hosts unknown",
    }
}

/// What is unusual about a host, in words.
fn condition(host: &Host, snapshot: &Snapshot) -> String {
    let health = match &host.health {
        Health::Good => None,
        Health::Warning(why) => Some(format!("warning: {why}")),
        Health::Critical(why) => Some(format!("critical: {why}")),
    };
    let failures = match host.recent_failures {
        0 => None,
        1 => Some("1 failure to wake in a day".to_owned()),
        many => Some(format!("{many} failures to wake in a day")),
    };
    let rests = host.backoff_until.is_some_and(|until| until > snapshot.now).then(|| "rests".to_owned());
    let parts: Vec<String> = [health, failures, rests].into_iter().flatten().collect();
    if parts.is_empty() { "good".to_owned() } else { parts.join(", ") }
}

fn hosts(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let states = |snapshot: &Snapshot| {
        let mut all = ByPool::new();
        for host in &snapshot.hosts {
            all.entry((host.pool.to_string(), state(host))).or_default().insert(host.name.to_string());
        }
        all
    };
    let mut all = by_pool(Subject::Hosts, &states(from), &states(to));
    let conditions = pairs(from, to).into_iter().filter_map(|(was, is)| {
        let (old, new) = (condition(was, from), condition(is, to));
        let change = || Change::new(Subject::Hosts, format!("health of host {}", is.name), &*old, &*new);
        (old != new).then(|| change().of(&is.pool))
    });
    all.extend(conditions.take(MOST_ALIKE));
    all
}

/// Hosts that both know.
fn pairs<'s>(from: &'s Snapshot, to: &'s Snapshot) -> Vec<(&'s Host, &'s Host)> {
    let old: BTreeMap<&str, &Host> = from.hosts.iter().map(|host| (&*host.name, host)).collect();
    to.hosts.iter().filter_map(|host| Some((*old.get(&*host.name)?, host))).collect()
}

/// Hosts of one pool whose figure changed alike are one row.
fn prices(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    type Figure = (&'static str, fn(&Host) -> String);
    const FIGURES: [Figure; 2] = [
        ("price of a host", |host| format!("{} an hour", price(host.price))),
        ("draw of a host", |host| {
            format!("{} to {}", watts(host.idle_milliwatts), watts(host.max_milliwatts))
        }),
    ];
    let mut alike: BTreeMap<(String, &'static str, String, String), Vec<String>> = BTreeMap::new();
    for (was, is) in pairs(from, to) {
        for (name, say) in FIGURES {
            let (old, new) = (say(was), say(is));
            if old != new {
                alike.entry((is.pool.to_string(), name, old, new)).or_default().push(is.name.to_string());
            }
        }
    }
    let mut all: Vec<Change> = alike
        .into_iter()
        .take(MOST_ALIKE)
        .map(|((pool, name, old, new), hosts)| {
            let mut change = Change::new(Subject::Prices, name, old, new).of(&pool);
            change.details = hosts.iter().take(MOST_NAMES).cloned().collect();
            if hosts.len() > MOST_NAMES {
                change.details.push(format!("and {} more", hosts.len() - MOST_NAMES));
            }
            change
        })
        .collect();
    for pool in &to.pools {
        if let Some(was) = from.pool(&pool.name) {
            all.extend(offerings(was, from, pool, to));
        }
    }
    all
}

fn offerings(was: &Pool, from: &Snapshot, is: &Pool, to: &Snapshot) -> Vec<Change> {
    let list = |pool: &Pool, snapshot: &Snapshot| -> BTreeMap<String, String> {
        let each = pool.templates.iter().flat_map(|template| {
            template.offerings.iter().map(move |offering| {
                let place = [offering.zone.as_deref(), offering.capacity_type.as_deref()];
                let place =
                    place.into_iter().flatten().fold(template.name.to_string(), |all, part| all + " " + part);
                let supply = offering.supply.map_or_else(String::new, |left| format!(", {left} to be had"));
                let pause = offering.unavailable_until.is_some_and(|until| until > snapshot.now);
                let pause = if pause { ", not to be had now" } else { "" };
                (place, format!("{} an hour{supply}{pause}", price(offering.price)))
            })
        });
        each.collect()
    };
    let (old, new) = (list(was, from), list(is, to));
    let places: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let say =
        |all: &BTreeMap<String, String>, place: &String| all.get(place).cloned().unwrap_or_else(rules::none);
    let rows = places.into_iter().filter(|place| old.get(*place) != new.get(*place)).map(|place| {
        Change::new(Subject::Prices, format!("price of {place}"), say(&old, place), say(&new, place))
            .of(&is.name)
    });
    rows.take(MOST_ALIKE).collect()
}

/// What happened to pools without anybody setting it: triggers, marks, and what their nodes look like.
fn pools(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let asks = |pool: &Pool| match pool.demand.trigger {
        None => "none",
        Some(Trigger::Up) => "grow",
        Some(Trigger::Down) => "shrink",
        Some(Trigger::Idle) => "idle",
    };
    let above = |pool: &Pool| rules::yes(pool.demand.high_since.is_some());
    let mut all = Vec::new();
    for pool in &to.pools {
        let Some(was) = from.pool(&pool.name) else { continue };
        if asks(was) != asks(pool) {
            let change = Change::new(Subject::Pools, "trigger", asks(was), asks(pool));
            all.push(change.of(&pool.name));
        }
        if above(was) != above(pool) {
            all.push(
                Change::new(Subject::Pools, "above its high mark", above(was), above(pool)).of(&pool.name),
            );
        }
        all.extend(templates(was, pool));
    }
    all
}

/// A node as a pool would make it, in the figures that decide what fits.
fn looks(template: Option<&Template>) -> String {
    template.map_or_else(rules::none, |template| rules::resources(&template.node.status.allocatable))
}

fn templates(was: &Pool, is: &Pool) -> Vec<Change> {
    let names: BTreeSet<_> = was.templates.iter().chain(&is.templates).map(|one| one.name.clone()).collect();
    let rows = names.into_iter().filter_map(|name| {
        let (old, new) = (was.template(&name), is.template(&name));
        // Offerings are prices, and have their own rows.
        let node = |one: Option<&Template>| one.map(|one| (one.node.clone(), one.csi.clone()));
        if node(old) == node(new) {
            return None;
        }
        let mut change = Change::new(Subject::Pools, format!("a node like {name}"), looks(old), looks(new));
        if change.from == change.to {
            change.details = vec!["labels, taints or other properties".to_owned()];
        }
        Some(change.of(&is.name))
    });
    rows.take(MOST_ALIKE).collect()
}

fn gaps(from: &Snapshot, to: &Snapshot) -> Vec<Change> {
    let by_scope = |snapshot: &Snapshot| {
        let mut all: BTreeMap<Scope, Vec<String>> = BTreeMap::new();
        for Gap { scope, why } in &snapshot.gaps {
            all.entry(scope.clone()).or_default().push(why.to_string());
        }
        all
    };
    let (old, new) = (by_scope(from), by_scope(to));
    let scopes: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let say = |all: &BTreeMap<Scope, Vec<String>>, which: &Scope| {
        all.get(which).map_or_else(rules::none, |words| words.join("; "))
    };
    let rows = scopes.into_iter().filter(|which| old.get(*which) != new.get(*which)).map(|which| {
        let name = format!("not known of {}", rules::scope(which));
        let change = Change::new(Subject::Gaps, name, say(&old, which), say(&new, which));
        match which {
            Scope::Pool(pool) => change.of(pool),
            _ => change,
        }
    });
    rows.take(MOST_ALIKE).collect()
}

/// What differs and has no row: objects whose content changed while their names did not.
fn rest(from: &Snapshot, to: &Snapshot, found: &[Change]) -> Option<Change> {
    let (old, new) = (&from.cluster, &to.cluster);
    let kinds = [
        ("pods", old.pods != new.pods),
        ("nodes", old.nodes != new.nodes || from.members != to.members),
        ("hosts", from.hosts != to.hosts),
        ("disruption budgets", old.budgets != new.budgets),
        ("volumes and claims", old.volumes != new.volumes || old.claims != new.claims),
        ("daemon sets", old.daemon_sets != new.daemon_sets),
        (
            "controllers of pods",
            old.replica_sets != new.replica_sets
                || old.stateful_sets != new.stateful_sets
                || old.jobs != new.jobs,
        ),
        (
            "storage",
            old.storage_classes != new.storage_classes
                || old.storage_capacities != new.storage_capacities
                || old.volume_attachments != new.volume_attachments
                || old.csi_nodes != new.csi_nodes
                || old.csi_drivers != new.csi_drivers,
        ),
        (
            "classes",
            old.priority_classes != new.priority_classes || old.runtime_classes != new.runtime_classes,
        ),
        ("namespaces", old.namespaces != new.namespaces),
        ("pod groups", old.pod_groups != new.pod_groups),
    ];
    let told = |kind: &str| {
        let subjects: &[Subject] = match kind {
            "pods" => &[Subject::Pods],
            "nodes" => &[Subject::Nodes],
            "hosts" => &[Subject::Hosts, Subject::Prices],
            _ => &[],
        };
        found.iter().any(|change| subjects.contains(&change.subject))
    };
    let details: Vec<String> = kinds
        .into_iter()
        .filter(|(kind, differs)| *differs && !told(kind))
        .map(|(kind, _)| kind.to_owned())
        .collect();
    (!details.is_empty()).then(|| {
        let mut change =
            Change::new(Subject::Other, "other properties of objects", "as they were", "changed");
        change.details = details;
        change
    })
}
