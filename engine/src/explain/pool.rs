//! Why a pool has the size it has, and what a host of it does.

use std::collections::BTreeMap;

use super::{
    Cause, Code, HostAnswer, HostRow, NewNodeCause, Next, NodeTally, PoolAnswer,
    hosts::refusal,
    limits::{self, count},
    node, one_line,
    scene::Scene,
    templates, with_number,
};
use crate::{
    down::{Unsettled, unsettled},
    plan::Target,
    snapshot::{Health, Host, MemberState, Pool},
};

/// What decides the verdict on a pool; the rest of an answer is detail.
struct Outline<'s> {
    members: Vec<(&'s std::sync::Arc<str>, &'s crate::snapshot::Member)>,
    new: u32,
    removed: u32,
    why_not_more: Vec<Cause>,
    in_flight: Vec<Cause>,
    causes: Vec<NewNodeCause>,
    cause: Cause,
    headline: String,
}

fn outline<'s>(scene: &Scene<'s>, pool: &Pool) -> Outline<'s> {
    let snapshot = scene.snapshot;
    let members: Vec<_> = snapshot.members.iter().filter(|(_, member)| member.pool == pool.name).collect();
    let new = limits::planned(scene, pool);
    let removed =
        scene.plan.removals.iter().filter(|removal| members.iter().any(|(name, _)| **name == removal.node));
    let removed = count(removed.count());
    let mine = scene.candidates.iter().filter(|candidate| *scene.pool_of(candidate).name == *pool.name);
    let mut why_not_more: Vec<Cause> =
        mine.flat_map(|candidate| limits::all(scene, candidate, 1)).map(|limit| limit.cause).collect();
    if pool.templates.is_empty() {
        why_not_more.push(template_unknown(pool));
    }
    why_not_more.sort_by(|a, b| (a.code, &a.text).cmp(&(b.code, &b.text)));
    why_not_more.dedup();
    let in_flight: Vec<Cause> =
        members.iter().filter_map(|(name, member)| in_flight(scene, name, member)).collect();
    let causes = causes(scene, pool);
    let late = in_flight.iter().filter(|cause| cause.code == Code::Overdue).count();
    let wait = unsettled(snapshot, pool);
    let cause = verdict(pool, count(members.len()), new, removed, late, wait, &why_not_more, &causes);
    let headline = one_line(&format!("pool {} {}", pool.name, cause.text));
    Outline { members, new, removed, why_not_more, in_flight, causes, cause, headline }
}

/// The first line of [`explain`] and its code, without the detail below it: for pools with many nodes.
pub(super) fn headline(scene: &Scene<'_>, pool: &Pool) -> (Code, String) {
    let outline = outline(scene, pool);
    (outline.cause.code, outline.headline)
}

pub(super) fn explain(scene: &Scene<'_>, pool: &Pool) -> PoolAnswer {
    let Outline { members, new, removed, why_not_more, in_flight, causes, cause, headline } =
        outline(scene, pool);
    let of_state =
        |wanted: fn(&MemberState) -> bool| count(members.iter().filter(|(_, m)| wanted(&m.state)).count());
    let next = in_flight.iter().map(|cause| Next { at: cause.until, text: cause.text.clone() });
    PoolAnswer {
        pool: pool.name.clone(),
        headline,
        cause,
        nodes: count(members.len()),
        ready: of_state(|state| *state == MemberState::Ready),
        upcoming: of_state(|state| matches!(state, MemberState::Upcoming { .. })),
        leaving: of_state(|state| *state == MemberState::Leaving),
        min: pool.fixed.unwrap_or(pool.min),
        max: pool.fixed.or((pool.max != u32::MAX).then_some(pool.max)),
        new,
        removed,
        causes,
        why_not_more,
        why_not_fewer: why_not_fewer(scene, &members.iter().map(|(name, _)| &***name).collect::<Vec<_>>()),
        templates: templates_of(scene, pool),
        hosts: hosts(scene, pool),
        next: next.collect(),
        in_flight,
        evaluated: scene.snapshot.now,
    }
}

fn template_unknown(pool: &Pool) -> Cause {
    Cause::new(Code::TemplateUnknown, format!("nodepools/{}", pool.name), "spec.template")
        .found("unknown", "cpu and memory of a node")
        .saying("nobody knows what a node of it looks like; set spec.template")
}

#[allow(clippy::too_many_arguments, reason = "each is a fact of its own")]
fn verdict(
    pool: &Pool,
    nodes: u32,
    new: u32,
    removed: u32,
    late: usize,
    wait: Option<Unsettled>,
    stops: &[Cause],
    causes: &[NewNodeCause],
) -> Cause {
    let object = format!("nodepools/{}", pool.name);
    let size = match pool.fixed {
        Some(fixed) => format!("has {} and holds {fixed}", counted(nodes)),
        None if pool.max == u32::MAX => format!("has {}, at least {}", counted(nodes), pool.min),
        None => format!("has {}, {} to {}", counted(nodes), pool.min, pool.max),
    };
    let pods: usize = causes.iter().map(|cause| cause.pods.len()).sum();
    let stuck = stops.first();
    match () {
        () if late > 0 => Cause::new(Code::Overdue, object, "status")
            .found(format!("{late} overdue"), "0")
            .saying(format!("{size}; {late} on their way are overdue and count against the maximum")),
        () if new > 0 => Cause::new(Code::Grows, object, "spec.autoscaling")
            .found(counted(nodes), counted(nodes + new))
            .margin(counted(new))
            .saying(format!("{size}; grows by {new} for {pods} {}", if pods == 1 { "pod" } else { "pods" })),
        () if removed > 0 => Cause::new(Code::Shrinks, object, "spec.autoscaling")
            .saying(format!("{size}; shrinks by {removed}")),
        () => match (stuck, wait) {
            (Some(stop), _) => Cause { text: format!("{size}; cannot grow: {}", stop.text), ..stop.clone() },
            (None, Some(Unsettled { since, required, until })) => Cause::new(
                Code::TriggerWaits,
                object,
                "spec.autoscaling.triggers",
            )
            .found(format!("its last node serves since {since}"), required.to_string())
            .until(Some(until))
            .saying(format!(
                "{size}; a trigger waits until {until}: its metric has {required} to show the last node"
            )),
            (None, None) => Cause::new(Code::Steady, object, "spec.autoscaling")
                .saying(format!("{size}; nothing asks for more")),
        },
    }
}

/// A number of nodes in words.
fn counted(nodes: impl Into<u64>) -> String {
    match nodes.into() {
        1 => "1 node".to_owned(),
        many => format!("{many} nodes"),
    }
}

fn in_flight(scene: &Scene<'_>, name: &str, member: &crate::snapshot::Member) -> Option<Cause> {
    let MemberState::Upcoming { expected } = member.state else { return None };
    let object =
        member.host.as_ref().map_or_else(|| format!("nodes/{name}"), |host| format!("baremetalnodes/{host}"));
    let now = scene.snapshot.now;
    Some(if expected < now {
        Cause::new(Code::Overdue, object, "status.deadline")
            .found(format!("expected {expected}"), "ready")
            .margin(now.since(expected).to_string())
            .saying(format!("node {name} was expected {expected}, {} ago", now.since(expected)))
    } else {
        Cause::new(Code::Upcoming, object, "status.deadline")
            .until(Some(expected))
            .saying(format!("node {name} is expected {expected}"))
    })
}

fn causes(scene: &Scene<'_>, pool: &Pool) -> Vec<NewNodeCause> {
    let new = scene.plan.new_nodes.iter().enumerate().filter(|(_, new)| new.pool == pool.name);
    new.map(|(at, new)| {
        let on = Target::New(count(at));
        let pods = scene.plan.placements.iter().filter(|placement| placement.on == on);
        NewNodeCause {
            node: new.name.clone(),
            template: new.template.clone(),
            pods: pods.map(|p| p.pod.clone()).collect(),
        }
    })
    .collect()
}

fn why_not_fewer(scene: &Scene<'_>, members: &[&str]) -> Vec<NodeTally> {
    let mut found: BTreeMap<Code, (u32, String, String)> = BTreeMap::new();
    for name in members {
        let Some(answer) = node::explain(scene, name) else { continue };
        let text = answer.cause.text.trim_start_matches("stays: ").to_owned();
        let entry = found.entry(answer.cause.code).or_insert_with(|| (0, text, (*name).to_owned()));
        entry.0 += 1;
    }
    let mut rows: Vec<NodeTally> = found
        .into_iter()
        .map(|(code, (nodes, text, example))| NodeTally { code, text, nodes, example })
        .collect();
    rows.sort_by(|a, b| b.nodes.cmp(&a.nodes).then_with(|| a.code.cmp(&b.code)));
    rows
}

/// One view per template: offerings and zones of one template differ in little.
fn templates_of(scene: &Scene<'_>, pool: &Pool) -> Vec<super::TemplateView> {
    let mut seen = std::collections::BTreeSet::new();
    let mine = scene.candidates.iter().filter(|candidate| *scene.pool_of(candidate).name == *pool.name);
    mine.filter(|candidate| seen.insert(candidate.template))
        .map(|candidate| templates::view(scene, candidate))
        .collect()
}

fn hosts(scene: &Scene<'_>, pool: &Pool) -> Vec<HostRow> {
    let mut rows: Vec<HostRow> = scene
        .snapshot
        .hosts
        .iter()
        .filter(|host| host.pool == pool.name)
        .map(|host| HostRow {
            host: host.name.clone(),
            pool: host.pool.clone(),
            cause: host_cause(scene, host),
        })
        .collect();
    rows.sort_by(|a, b| a.host.cmp(&b.host));
    rows
}

fn host_cause(scene: &Scene<'_>, host: &Host) -> Cause {
    let object = format!("baremetalnodes/{}", host.name);
    if limits::starts(scene, host) {
        return Cause::new(Code::HostStarts, object, "spec.pool")
            .saying(format!("host {} is started by this plan", host.name));
    }
    if let Some(cause) = refusal(scene.snapshot, host) {
        return cause;
    }
    if scene.snapshot.pool(&host.pool).is_none() {
        let cause = Cause::new(Code::Unknown, object, "spec.pool").found(&*host.pool, "a pool that exists");
        return cause
            .saying(format!("host {} belongs to pool {}, which does not exist", host.name, host.pool));
    }
    let worry = match &host.health {
        Health::Warning(reading) => format!("; it warns: {reading}"),
        _ => String::new(),
    };
    Cause::new(Code::HostOff, object, "status.state")
        .found(format!("{:?}", host.state).to_lowercase(), "")
        .saying(format!("host {} may be started; no pod asks for it{worry}", host.name))
}

/// Answers for a host.
pub(super) fn explain_host(scene: &Scene<'_>, host: &Host) -> HostAnswer {
    let cause = host_cause(scene, host);
    let node = host.node.as_ref().and_then(|name| node::explain(scene, name)).map(Box::new);
    let failures = match host.recent_failures {
        0 => String::new(),
        1 if node.is_some() => "; works now, 1 failure in the last day is past".to_owned(),
        1 => "; 1 failure in the last day".to_owned(),
        failures if node.is_some() => format!("; works now, {failures} failures in the last day are past"),
        failures => format!("; {failures} failures in the last day"),
    };
    let next = cause.until.map(|at| Next { at: Some(at), text: "it may be tried again".to_owned() });
    let already = cause.text.contains("failure") || cause.text.contains("failed");
    let text = if already { cause.text.clone() } else { format!("{}{failures}", cause.text) };
    HostAnswer {
        host: host.name.clone(),
        headline: one_line(&with_number("", &text, &format!("starts in about {}", host.wake_time))),
        cause,
        pool: host.pool.clone(),
        template: host.template.clone(),
        rack: host.rack.clone(),
        recent_failures: host.recent_failures,
        node,
        next: next.into_iter().collect(),
        evaluated: scene.snapshot.now,
    }
}
