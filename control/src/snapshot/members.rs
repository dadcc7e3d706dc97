//! Which node belongs to which pool, and which nodes are on their way.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::{
    snapshot::{HostState, Member, MemberState, Pool, Template},
    template,
};
use muster_model::{
    Duration, NODEPOOL_LABEL, Timestamp,
    host::{ConditionType, is_true},
    k8s::{Node, Taint},
    observe::{CORDON_MARK, OFF_TAINT},
};

use super::{
    Draft, HostInput, Inputs, Observed, PoolInput,
    hosts::{Standing, limits, standing},
    templates,
};

/// How long our taints on a node that serves may take to go.
const SETTLES: Duration = Duration::from_mins(2);
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

pub(super) fn add(inputs: &Inputs, draft: &mut Draft) {
    let mut nodes = std::mem::take(&mut draft.snapshot.cluster.nodes);
    let by_node = inputs.hosts_by_node();
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes.drain(..) {
        if let Some(host) = by_node.get(node.name()).copied() {
            kept.extend(of_host(inputs, host, node, draft));
        } else {
            by_label(inputs, &node, draft);
            kept.push(node);
        }
    }
    draft.snapshot.cluster.nodes = kept;
    unseen_hosts(inputs, draft);
    reported_nodes(inputs, draft);
    asked_nodes(inputs, draft);
}

/// A node that a host of the inventory runs. `None`: the machine is off and its node is only kept.
fn of_host(inputs: &Inputs, host: &HostInput, mut node: Node, draft: &mut Draft) -> Option<Node> {
    let Some((pool, standing)) = place(inputs, host) else { return Some(node) };
    let known = draft.snapshot.host(&host.name)?.clone();
    let state = match standing {
        Standing::Waking { expected } => {
            let planned = upcoming(draft, pool, &known.template, node.name(), known.zone.as_deref());
            node = planned.unwrap_or(node);
            MemberState::Upcoming { expected }
        }
        Standing::Ready if is_ready(&node) => {
            if settles_until(inputs, host).is_some() {
                dress(pool, host, &mut node);
            }
            MemberState::Ready
        }
        Standing::Ready => match settles_until(inputs, host) {
            // Its host was seen to serve after this view of the cluster was taken.
            Some(expected) => {
                dress(pool, host, &mut node);
                MemberState::Upcoming { expected }
            }
            None => MemberState::Unready,
        },
        Standing::Leaving => MemberState::Leaving,
        // Its machine is off: the object says nothing about capacity.
        Standing::Off | Standing::On => return None,
        Standing::Failed if node.spec.taints.iter().any(|taint| &*taint.key == OFF_TAINT) => return None,
        Standing::Failed | Standing::Maintenance | Standing::Unknown => {
            // Whoever runs there still runs there, but the node is nobody's to remove.
            return Some(node);
        }
    };
    if let Some(Ok(status)) = &host.status
        && let Some(since) = status.serving_since
    {
        // The object outlives the machine's rest; what counts is since when it serves.
        node.metadata.creation_timestamp = Some(since);
    }
    let member = Member {
        pool: pool.name().into(),
        template: known.template,
        host: Some(known.name),
        state,
        price: known.price,
        unneeded_since: unneeded(inputs, node.name()),
        surplus: is_surplus(host),
    };
    draft.snapshot.members.insert(node.metadata.name.clone(), member);
    Some(node)
}

/// Whether a person switched it on while its pool was full.
fn is_surplus(host: &HostInput) -> bool {
    let Some(Ok(status)) = &host.status else { return false };
    is_true(&status.conditions, ConditionType::Surplus)
}

/// Until when a host that began to serve a moment ago may have a node that is not yet as it will be.
fn settles_until(inputs: &Inputs, host: &HostInput) -> Option<Timestamp> {
    let Some(Ok(status)) = &host.status else { return None };
    let until = status.serving_since?.saturating_add(SETTLES);
    (inputs.now < until).then_some(until)
}

/// A node that has just come still carries taints that go in a moment (ours of a new node and of a machine that was off,
/// Kubernetes' own of a node that is not ready), and lacks what we give it: it counts as it will be, or a second host would
/// be woken for the same pods.
fn dress(pool: &PoolInput, host: &HostInput, node: &mut Node) {
    let Ok(own) = &host.spec else { return };
    let spec = &pool.object.spec;
    for (key, value) in spec.node_labels().iter().chain(&own.labels) {
        node.metadata.labels.insert(key, value.as_str().into());
    }
    node.metadata.labels.insert(NODEPOOL_LABEL, pool.name().into());
    // Our own cordon of the time before goes too; one that somebody else closed stays closed.
    let reopens = node.metadata.annotations.contains(CORDON_MARK);
    node.spec.unschedulable &= !reopens;
    let passes =
        |taint: &&Taint| templates::is_passing(taint) && (reopens || &*taint.key != UNSCHEDULABLE_TAINT);
    let mut taints: Vec<Taint> = node.spec.taints.iter().filter(|taint| !passes(taint)).cloned().collect();
    for given in spec.node_taints().iter().chain(&own.taints).map(templates::taint) {
        if !taints.iter().any(|taint| taint.key == given.key && taint.effect == given.effect) {
            taints.push(given);
        }
    }
    node.spec.taints = taints.into();
}

fn place<'i>(inputs: &'i Inputs, host: &HostInput) -> Option<(&'i PoolInput, Standing)> {
    let spec = host.spec.as_ref().ok()?;
    let pool = inputs.pool_of_inventory(&spec.pool).filter(|pool| pool.takes(spec))?;
    Some((pool, standing(host, &limits(inputs, Some(pool), spec), inputs.now)))
}

/// A node of a pool that others provision: its label says whose it is.
fn by_label(inputs: &Inputs, node: &Node, draft: &mut Draft) {
    let Some(name) = node.metadata.labels.text(NODEPOOL_LABEL) else { return };
    let Some(input) = inputs.pool_named(name).filter(|pool| !pool.is_bare_metal()) else { return };
    let Some(pool) = draft.snapshot.pool(name) else { return };
    let template = template_of(pool, node);
    let asked = inputs.memory.asked.get(input.name());
    let leaving = asked.is_some_and(|asked| asked.leaving.iter().any(|one| one == node.name()))
        || node.metadata.deletion_timestamp.is_some();
    let state = if leaving {
        MemberState::Leaving
    } else if is_ready(node) {
        MemberState::Ready
    } else {
        MemberState::Unready
    };
    let zone = node.metadata.labels.text(template::ZONE_LABEL);
    let price = template.and_then(|template| {
        let here = template.offerings.iter().find(|offering| offering.zone.as_deref() == zone);
        here.or_else(|| template.offerings.first())
    });
    let member = Member {
        pool: pool.name.clone(),
        template: template.map_or_else(|| Arc::from(""), |template| template.name.clone()),
        host: None,
        state,
        price: price.map_or(0, |offering| offering.price),
        unneeded_since: unneeded(inputs, node.name()),
        surplus: false,
    };
    draft.snapshot.members.insert(node.metadata.name.clone(), member);
}

fn template_of<'p>(pool: &'p Pool, node: &Node) -> Option<&'p Template> {
    let kind = node.metadata.labels.text(INSTANCE_TYPE);
    kind.and_then(|kind| pool.template(kind)).or_else(|| pool.templates.first())
}

/// Hosts that run or start without a node that we see: on their way, or the cluster is not connected.
fn unseen_hosts(inputs: &Inputs, draft: &mut Draft) {
    let connected = matches!(inputs.observed, Observed::View(_));
    let mut missing = Vec::new();
    for host in &draft.snapshot.hosts {
        let Some(node) = host.node.as_ref().filter(|node| !draft.snapshot.members.contains_key(*node)) else {
            continue;
        };
        let Some(input) = inputs.hosts.iter().find(|input| *input.name == *host.name) else { continue };
        let Some((pool, standing)) = place(inputs, input) else { continue };
        let state = match standing {
            Standing::Waking { expected } => MemberState::Upcoming { expected },
            Standing::Ready if connected => MemberState::Unready,
            Standing::Ready => MemberState::Ready,
            Standing::Leaving => MemberState::Leaving,
            _ => continue,
        };
        missing.push((pool, host.clone(), Arc::clone(node), state, is_surplus(input)));
    }
    for (pool, host, name, state, surplus) in missing {
        // A ready host without a node object has no room for pods; it is counted all the same.
        let counts = host.state != HostState::Leaving && !(host.state == HostState::Ready && connected);
        let node = upcoming(draft, pool, &host.template, &name, host.zone.as_deref());
        if let Some(mut node) = node.filter(|_| counts) {
            if state == MemberState::Ready {
                node.metadata.creation_timestamp = host.on_since;
            }
            // One that registered a moment ago is not known as the host's yet: one node of a name, as it will be.
            draft.snapshot.cluster.nodes.retain(|known| known.name() != &*name);
            draft.snapshot.cluster.nodes.push(node);
        }
        let member = Member {
            pool: pool.name().into(),
            template: host.template.clone(),
            host: Some(host.name.clone()),
            state,
            price: host.price,
            unneeded_since: unneeded(inputs, &name),
            surplus,
        };
        draft.snapshot.members.insert(name, member);
    }
}

/// Without a connection the nodes of pools that others provision are those that their controllers report, or as
/// many as are wanted: nobody asks for them a second time because they cannot be seen.
fn reported_nodes(inputs: &Inputs, draft: &mut Draft) {
    if matches!(inputs.observed, Observed::View(_)) {
        return;
    }
    for input in inputs.pools.iter().filter(|pool| !pool.is_bare_metal()) {
        let template = draft.snapshot.pool(input.name()).and_then(|pool| pool.templates.first());
        let template = template.map_or_else(|| Arc::from(""), |template| Arc::clone(&template.name));
        for number in 0..input.current.unwrap_or(input.desired) {
            let member = Member {
                pool: input.name().into(),
                template: Arc::clone(&template),
                state: MemberState::Ready,
                ..Member::default()
            };
            draft.snapshot.members.insert(format!("{}-reported-{number}", input.name()).into(), member);
        }
    }
}

/// Nodes that were asked of others and have not shown up. Past the deadline they no longer count as coming.
fn asked_nodes(inputs: &Inputs, draft: &mut Draft) {
    let mut have: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    for member in draft.snapshot.members.values().filter(|member| member.state != MemberState::Leaving) {
        *have.entry(member.pool.clone()).or_default() += 1;
    }
    for input in inputs.pools.iter().filter(|pool| !pool.is_bare_metal()) {
        let Some(asked) = inputs.memory.asked.get(input.name()) else { continue };
        if inputs.now >= asked.deadline {
            draft.wake_at(asked.unavailable_until(inputs.now));
            continue;
        }
        let present = have.get(input.name()).copied().unwrap_or(0);
        if asked.nodes > present {
            draft.wake_at(Some(asked.deadline));
        }
        for number in present..asked.nodes {
            let name: Arc<str> = format!("{}-upcoming-{number}", input.name()).into();
            let Some(pool) = draft.snapshot.pool(input.name()) else { break };
            let Some(first) = pool.templates.first().cloned() else { break };
            let zone = first.offerings.first().and_then(|offering| offering.zone.clone());
            let price = first.offerings.first().map_or(0, |offering| offering.price);
            let node = upcoming(draft, input, &first.name, &name, zone.as_deref());
            draft.snapshot.cluster.nodes.extend(node);
            let member = Member {
                pool: input.name().into(),
                template: first.name.clone(),
                host: None,
                state: MemberState::Upcoming { expected: asked.deadline },
                price,
                unneeded_since: None,
                surplus: false,
            };
            draft.snapshot.members.insert(name, member);
        }
    }
}

/// A node as it will look.
fn upcoming(
    draft: &Draft,
    pool: &PoolInput,
    template_name: &str,
    name: &str,
    zone: Option<&str>,
) -> Option<Node> {
    let pool = draft.snapshot.pool(pool.name())?;
    Some(template::node(pool.template(template_name)?, name, zone, None))
}

fn is_ready(node: &Node) -> bool {
    node.status.condition("Ready").is_some_and(|condition| &*condition.status == "True")
}

fn unneeded(inputs: &Inputs, node: &str) -> Option<Timestamp> {
    inputs.memory.unneeded_since.get(node).copied().filter(|since| *since <= inputs.now)
}
