//! Why a pod has the place it has, or none.

use std::collections::BTreeMap;

use muster_model::k8s::{Pod, PodSpec, VolumeSource};

use super::{
    Cause, Code, Conflict, Fix, HostRow, Match, Next, NodeTally, PodAnswer, PoolRow, conflict,
    constraint::{self, Machine},
    fix,
    hosts::refusal,
    limits::{self, Limit},
    one_line, say,
    scene::{Candidate, Judgement, Scene, Stage, judge},
    templates, with_number,
};
use crate::{
    fit::{Cycle, Plugin},
    plan::{Source, Target},
    snapshot::MemberState,
};

/// Answers for a pod of the snapshot.
pub(super) fn explain<'a>(stage: &Stage<'a, '_>, pod: &'a Pod) -> PodAnswer {
    let scene = stage.scene;
    let object = format!("pods/{}", pod.key());
    if let Some(node) = pod.spec.node_name.as_deref().filter(|_| !pod.is_finished()) {
        let cause = Cause::new(Code::Running, object, "spec.nodeName").found(node, node);
        return short(scene, pod, cause.saying(format!("runs on node {node}")));
    }
    if pod.is_finished() {
        let cause =
            Cause::new(Code::Finished, object, "status.phase").found(format!("{:?}", pod.status.phase), "");
        return short(scene, pod, cause.saying("has finished and holds nothing any more"));
    }
    if pod.is_terminating() {
        let cause = Cause::new(Code::Terminating, object, "metadata.deletionTimestamp");
        return short(scene, pod, cause.saying("is being deleted; nobody looks for a node for it"));
    }
    if let Some(gate) = pod.spec.scheduling_gates.first() {
        let cause = Cause::new(Code::Gated, object, "spec.schedulingGates").found(&*gate.name, "no gate");
        return short(
            scene,
            pod,
            cause.saying(format!("waits for scheduling gate {} to be removed", gate.name)),
        );
    }
    let key = pod.key();
    match scene.plan.placements.iter().find(|placement| placement.pod == key) {
        Some(placement) => placed(stage, pod, &placement.on),
        None => unplaced(stage, pod),
    }
}

fn short(scene: &Scene<'_>, pod: &Pod, cause: Cause) -> PodAnswer {
    PodAnswer {
        pod: pod.key(),
        headline: one_line(&with_number(&format!("{} ", pod.key()), &cause.text, &size(pod))),
        node: pod.spec.node_name.as_deref().map(Into::into),
        alike: 1,
        pools: Vec::new(),
        hosts: Vec::new(),
        nodes: Vec::new(),
        conflict: None,
        fixes: Vec::new(),
        next: Vec::new(),
        evaluated: scene.snapshot.now,
        cause,
    }
}

fn placed<'a>(stage: &Stage<'a, '_>, pod: &'a Pod, on: &Target) -> PodAnswer {
    let scene = stage.scene;
    let object = format!("pods/{}", pod.key());
    let (node, text, next) = match on {
        Target::Node(name) => {
            let member = scene.snapshot.members.get(name);
            if let Some(MemberState::Upcoming { expected }) = member.map(|member| member.state) {
                let text = format!("will run on node {name}, which is on its way");
                (name.clone(), text, Next { at: Some(expected), text: format!("node {name} is expected") })
            } else {
                let text = format!("fits node {name}, which is there");
                (name.clone(), text, Next { at: None, text: "the scheduler binds it".to_owned() })
            }
        }
        Target::New(at) => {
            let Some(new) = scene.plan.new_nodes.get(*at as usize) else {
                return unplaced(stage, pod);
            };
            let text = format!("will run on a new node {} of pool {} ({})", new.name, new.pool, new.template);
            let next = match &new.source {
                Source::Host { host } => {
                    let wake = scene.snapshot.host(host).map(|host| host.wake_time).unwrap_or_default();
                    let at = scene.snapshot.now.saturating_add(wake);
                    Next { at: Some(at), text: format!("host {host} is started and takes about {wake}") }
                }
                Source::Bought { zone, .. } => {
                    let place = zone.as_ref().map_or_else(String::new, |zone| format!(" in {zone}"));
                    Next { at: None, text: format!("a {} is asked for{place}", new.template) }
                }
            };
            (new.name.clone(), text, next)
        }
    };
    let cause = Cause::new(Code::Fits, object, "spec").found(format!("node {node}"), "a node").saying(text);
    PodAnswer { node: Some(node), next: vec![next], ..short(scene, pod, cause) }
}

/// The machine of a pool that comes closest, and what stops it.
struct Closest<'c> {
    candidate: &'c Candidate,
    judgement: Judgement,
    cause: Cause,
    matches: Match,
    limits: Vec<Limit>,
}

/// What keeps a pod from every pool, and which of it is told first.
struct Verdict<'c> {
    alike: u32,
    nodes: Vec<NodeTally>,
    conflict: Option<Conflict>,
    rows: Vec<PoolRow>,
    all: Vec<Closest<'c>>,
    cause: Cause,
    headline: String,
}

fn verdict<'c>(stage: &Stage<'c, '_>, pod: &'c Pod) -> Verdict<'c> {
    let scene = stage.scene;
    let alike = alike(scene, pod);
    let mut world = stage.world();
    let nodes = tally(&world, pod);
    let (mut rows, mut all): (_, Vec<Closest<'_>>) = (Vec::new(), Vec::new());
    for (index, pool) in scene.snapshot.pools.iter().enumerate() {
        let mine = scene.candidates.iter().filter(|candidate| candidate.pool == index);
        let judged: Vec<Closest<'_>> =
            mine.map(|candidate| judged(scene, &mut world, candidate, pod)).collect();
        let best = judged.into_iter().min_by_key(distance);
        rows.push(row(scene, pool, best.as_ref()));
        all.extend(best);
    }
    drop(world); // fixes are tried in it
    all.sort_by_key(distance);
    let conflict = conflict::find(pod);
    let cause = root(scene, pod, conflict.as_ref(), all.first(), &nodes);
    let closest = all.first().map(|close| &*scene.pool_of(close.candidate).name);
    let text = headline(pod, &cause, alike, closest);
    Verdict { alike, nodes, conflict, rows, all, cause, headline: text }
}

/// The headline of [`explain`], and its cause.
pub(super) fn headline_of<'a>(stage: &Stage<'a, '_>, pod: &'a Pod) -> (Code, String) {
    let key = pod.key();
    let waits = pod.is_pending() && pod.spec.scheduling_gates.is_empty();
    if waits && !stage.scene.plan.placements.iter().any(|placement| placement.pod == key) {
        let verdict = verdict(stage, pod);
        return (verdict.cause.code, verdict.headline);
    }
    let answer = explain(stage, pod);
    (answer.cause.code, answer.headline)
}

fn unplaced<'a>(stage: &Stage<'a, '_>, pod: &'a Pod) -> PodAnswer {
    let scene = stage.scene;
    let Verdict { alike, nodes, conflict, rows, all, cause, headline } = verdict(stage, pod);
    let mut fixes: Vec<Fix> = Vec::new();
    // In the order of pools, however close they come.
    let mut by_pool: Vec<&Closest<'_>> = all.iter().collect();
    by_pool.sort_by_key(|close| close.candidate.pool);
    for close in by_pool {
        match close.matches {
            Match::NoMatch => {
                fixes.extend(fix::for_refusal(stage, close.candidate, &close.judgement, pod, alike));
            }
            Match::Unavailable => {
                let machines = alike.div_ceil(fix::per_machine(&close.judgement, pod));
                let wanted = limits::all(scene, close.candidate, machines);
                fixes.extend(fix::for_limits(&wanted, alike));
                fixes.extend(fix::for_held_hosts(scene, close.candidate, &close.limits, alike));
            }
            Match::Available => {}
        }
    }
    if let Some(conflict) = &conflict {
        let sides = [&conflict.left.field, &conflict.right.field];
        fixes.extend(sides.into_iter().filter_map(|field| fix::for_conflict(stage, pod, field, alike)));
    }
    rank(&mut fixes, all.first().map(|close| &close.cause));
    let next = next(scene, &all);
    PodAnswer {
        headline,
        alike,
        pools: rows,
        hosts: host_rows(scene, &all),
        nodes,
        conflict,
        fixes,
        next,
        ..short(scene, pod, cause)
    }
}

fn judged<'c>(
    scene: &Scene<'_>,
    world: &mut crate::fit::World<'c>,
    candidate: &'c Candidate,
    pod: &'c Pod,
) -> Closest<'c> {
    let judgement = judge(world, candidate, pod);
    let (pool, template) = (scene.pool_of(candidate), scene.template_of(candidate));
    let machine = Machine {
        node: &candidate.node,
        name: format!("{}/{}", pool.name, template.name),
        taken_by: "daemons",
    };
    if let Some(mut cause) = constraint::of_judgement(pod, &machine, &judgement, world) {
        if let Some(stale) = templates::stale(scene, template) {
            cause.text = format!("{}; {stale}", cause.text);
        }
        return Closest { candidate, judgement, cause, matches: Match::NoMatch, limits: Vec::new() };
    }
    let limits = limits::all(scene, candidate, 1);
    let object = format!("nodepools/{}", pool.name);
    let (matches, cause) = if let Some(limit) = limits.first() {
        (Match::Unavailable, limit.cause.clone())
    } else {
        let cause =
            Cause::new(Code::Competition, object, "spec").found("a machine that would do", "one more");
        (Match::Available, cause.saying("would take it; others come first"))
    };
    Closest { candidate, judgement, cause, matches, limits }
}

/// Smaller is closer to taking the pod: can be had, then matches, then fails late and in few things.
fn distance(close: &Closest<'_>) -> (u8, usize, usize, i64) {
    let matches = match close.matches {
        Match::Available => 0,
        Match::Unavailable => 1,
        Match::NoMatch => 2,
    };
    let late = close.judgement.first.as_ref().map_or(0, |first| match first.plugin {
        Plugin::NodeResourcesFit => 0,
        // What a pod selects says where it wants to be: a taint there matters more than a label elsewhere.
        Plugin::NodeAffinity | Plugin::NodeName => 1 + Plugin::ORDER.len(),
        plugin => 1 + Plugin::ORDER.iter().rev().position(|other| *other == plugin).unwrap_or(0),
    });
    let count = close.judgement.all.len().max(close.limits.len());
    // Of two machines that are too small the larger is closer.
    let capacity = &close.judgement.capacity;
    let room = (capacity.memory >> 20).saturating_add(capacity.milli_cpu).saturating_neg();
    (matches, count, late, if close.matches == Match::NoMatch { room } else { 0 })
}

fn row(scene: &Scene<'_>, pool: &crate::snapshot::Pool, best: Option<&Closest<'_>>) -> PoolRow {
    let object = format!("nodepools/{}", pool.name);
    let nodes = limits::members(scene.snapshot, pool);
    let max = (pool.max != u32::MAX).then_some(pool.max);
    let Some(close) = best else {
        let cause = Cause::new(Code::TemplateUnknown, object, "spec.template")
            .found("unknown", "cpu and memory of a node")
            .saying(format!("nobody knows what a node of pool {} looks like; set spec.template", pool.name));
        return PoolRow {
            pool: pool.name.clone(),
            template: None,
            matches: Match::NoMatch,
            cause,
            nodes,
            max,
            would_make: None,
        };
    };
    PoolRow {
        pool: pool.name.clone(),
        template: Some(scene.template_of(close.candidate).name.clone()),
        matches: close.matches,
        cause: close.cause.clone(),
        nodes,
        max,
        would_make: (nodes == 0).then(|| templates::view(scene, close.candidate)),
    }
}

fn root(
    scene: &Scene<'_>,
    pod: &Pod,
    conflict: Option<&super::Conflict>,
    best: Option<&Closest<'_>>,
    nodes: &[NodeTally],
) -> Cause {
    let object = format!("pods/{}", pod.key());
    if let Some(conflict) = conflict {
        return Cause::new(Code::Contradiction, object, &conflict.left.field)
            .found(&conflict.left.text, &conflict.right.text)
            .saying(format!(
                "{} contradicts {}: no node can satisfy both",
                conflict.left.text, conflict.right.text
            ));
    }
    if let Some(spent) = scene.snapshot.spent(pod) {
        let until = spent.until.map(|until| format!("; nothing more is woken for it until {until}"));
        return Cause::new(Code::Held, object, "status.conditions")
            .found("machines called up in vain", "a machine on which it lands")
            .until(spent.until)
            .saying(format!("{}{}", spent.why, until.unwrap_or_default()));
    }
    if let Some(group) = scene.snapshot.groups.iter().find(|group| group.pods.contains(&pod.key()))
        && best.is_some_and(|close| close.matches == Match::Available)
    {
        return Cause::new(Code::GroupIncomplete, object, "spec.schedulingGroup")
            .found(format!("fewer than {}", group.min), format!("{} pods", group.min))
            .saying(format!(
                "group {} needs {} pods at once, and not all of them find a place",
                group.name, group.min
            ));
    }
    match best {
        Some(close) => close.cause.clone(),
        None if scene.snapshot.pools.is_empty() => {
            let most = nodes.first().map_or_else(String::new, |tally| format!(": {}", tally.text));
            Cause::new(Code::NoPools, object, "spec").found("no pool", "a pool").saying(format!(
                "no pool could make a node, and none of the {} nodes takes it{most}",
                scene.snapshot.cluster.nodes.len()
            ))
        }
        None => {
            let pool = &scene.snapshot.pools[0];
            Cause::new(Code::TemplateUnknown, format!("nodepools/{}", pool.name), "spec.template")
                .found("unknown", "cpu and memory of a node")
                .saying(format!(
                    "nobody knows what a node of pool {} looks like; set spec.template",
                    pool.name
                ))
        }
    }
}

fn headline(pod: &Pod, cause: &Cause, alike: u32, closest: Option<&str>) -> String {
    let others = if alike > 1 { format!(" (and {} alike)", alike - 1) } else { String::new() };
    let named = matches!(
        cause.code,
        Code::LabelMissing
            | Code::LabelDiffers
            | Code::TaintNotTolerated
            | Code::Volume
            | Code::Spread
            | Code::Affinity
            | Code::AntiAffinity
            | Code::PortTaken
    );
    let pool = closest.filter(|_| named).map_or_else(String::new, |pool| format!("pool {pool}: "));
    let lead = format!("{}{others}: {pool}", pod.key());
    one_line(&with_number(&lead, &cause.text, &size(pod)))
}

/// What the pod asks for.
fn size(pod: &Pod) -> String {
    let request = crate::fit::requests::of_pending(pod);
    let amounts: Vec<String> = request.entries().take(2).map(|(name, amount)| say(name, amount)).collect();
    if amounts.is_empty() { "0 cpu".to_owned() } else { amounts.join(", ") }
}

/// The fix for the closest machine first, then by the number of pods it helps and by name.
fn rank(fixes: &mut Vec<Fix>, cause: Option<&Cause>) {
    let near = |fix: &Fix| cause.is_some_and(|cause| cause.object == fix.object && cause.field == fix.field);
    fixes.sort_by(|a, b| {
        let size = |fix: &Fix| fix.patch.to_string().len();
        (std::cmp::Reverse(a.helps), !near(a), size(a), &a.object).cmp(&(
            std::cmp::Reverse(b.helps),
            !near(b),
            size(b),
            &b.object,
        ))
    });
    fixes.dedup_by(|a, b| a.object == b.object && a.patch == b.patch);
}

/// Whether two specs decide alike. Volumes that do not (service account tokens and the like) have names
/// that differ from pod to pod.
pub(super) fn same_spec(left: &PodSpec, right: &PodSpec) -> bool {
    if std::ptr::eq(left, right) || left == right {
        return true;
    }
    let plain = |spec: &PodSpec| {
        let volumes = spec.volumes.iter().filter(|volume| volume.source != VolumeSource::Other);
        PodSpec { volumes: volumes.cloned().collect(), ..spec.clone() }
    };
    left.containers == right.containers && plain(left) == plain(right)
}

/// Pods without a place that are the same in everything that decides.
fn alike(scene: &Scene<'_>, pod: &Pod) -> u32 {
    let out: std::collections::BTreeSet<_> = scene.plan.unplaced.iter().collect();
    let same = |other: &&Pod| {
        other.metadata.namespace == pod.metadata.namespace
            && same_spec(&other.spec, &pod.spec)
            && (other.metadata.name == pod.metadata.name || out.contains(&other.key()))
    };
    limits::count(scene.snapshot.cluster.pods.iter().filter(same).count()).max(1)
}

/// Refusals of the nodes that are there, by cause.
fn tally<'w>(world: &crate::fit::World<'w>, pod: &'w Pod) -> Vec<NodeTally> {
    let cycle = Cycle::new(world, pod);
    let mut found: BTreeMap<(Code, String), (u32, String)> = BTreeMap::new();
    for index in world.present() {
        let state = world.node(index);
        let Some(refused) = cycle.refusal(index) else { continue };
        let machine =
            Machine { node: state.node, name: format!("node {}", state.node.name()), taken_by: "its pods" };
        let cause = constraint::explain(
            pod,
            &machine,
            refused.plugin,
            &refused.rejection,
            &state.capacity,
            &state.used,
            world,
        );
        let text = match cause.code {
            Code::ResourceShort => {
                format!("too little {}", cause.field.rsplit("requests.").next().unwrap_or("room"))
            }
            Code::TooManyPods => "as many pods as they may have".to_owned(),
            _ => cause.text,
        };
        let entry = found.entry((cause.code, text)).or_insert_with(|| (0, state.node.name().to_owned()));
        entry.0 += 1;
    }
    let mut rows: Vec<NodeTally> = found
        .into_iter()
        .map(|((code, text), (nodes, example))| NodeTally { code, text, nodes, example })
        .collect();
    rows.sort_by(|a, b| b.nodes.cmp(&a.nodes).then_with(|| a.text.cmp(&b.text)));
    rows
}

/// Every host of a pool that was considered: what keeps it, or that its shape does not do.
fn host_rows(scene: &Scene<'_>, all: &[Closest<'_>]) -> Vec<HostRow> {
    let fits = |host: &crate::snapshot::Host| {
        all.iter().find(|close| scene.pool_of(close.candidate).name == host.pool)
    };
    let mut rows: Vec<HostRow> = scene
        .snapshot
        .hosts
        .iter()
        .map(|host| {
            let object = format!("baremetalnodes/{}", host.name);
            let close = fits(host);
            let shape = close.filter(|close| close.matches == Match::NoMatch);
            let cause = refusal(scene.snapshot, host)
                .or_else(|| {
                    limits::starts(scene, host).then(|| {
                        Cause::new(Code::HostStarts, &object, "spec.pool")
                            .saying(format!("host {} is started for other pods", host.name))
                    })
                })
                .or_else(|| {
                    let close = shape?;
                    let text = format!("its node would not do: {}", close.cause.text);
                    Some(
                        Cause::new(Code::HostShape, &object, &close.cause.field)
                            .found(&close.cause.observed, &close.cause.required)
                            .saying(text),
                    )
                })
                .unwrap_or_else(|| {
                    let why = close.map_or_else(
                        || "its pool is not planned".to_owned(),
                        |close| close.cause.text.clone(),
                    );
                    Cause::new(Code::HostOff, &object, "status.state")
                        .found("off", "started")
                        .saying(format!("could be started; {why}"))
                });
            HostRow { host: host.name.clone(), pool: host.pool.clone(), cause }
        })
        .collect();
    rows.sort_by(|a, b| a.host.cmp(&b.host));
    rows
}

/// Only of pools whose machines would do: what becomes of the others changes nothing for the pod.
fn next(scene: &Scene<'_>, all: &[Closest<'_>]) -> Vec<Next> {
    let mut next: Vec<Next> = Vec::new();
    let would_do = || all.iter().filter(|close| close.matches != Match::NoMatch);
    let serves = |pool: &str| would_do().any(|close| *scene.pool_of(close.candidate).name == *pool);
    for close in would_do() {
        for limit in &close.limits {
            if let Some(until) = limit.cause.until {
                next.push(Next {
                    at: Some(until),
                    text: format!("pool {} is tried again", scene.pool_of(close.candidate).name),
                });
            }
        }
    }
    for host in scene.snapshot.hosts.iter().filter(|host| serves(&host.pool)) {
        if let Some(until) = host.backoff_until.filter(|until| *until > scene.snapshot.now) {
            next.push(Next { at: Some(until), text: format!("host {} may be tried again", host.name) });
        }
    }
    let upcoming = scene.snapshot.members.iter().filter_map(|(name, member)| match member.state {
        MemberState::Upcoming { expected } if serves(&member.pool) => Some((name, expected)),
        _ => None,
    });
    for (name, expected) in upcoming {
        let text = if expected < scene.snapshot.now { "is overdue" } else { "is expected" };
        next.push(Next { at: Some(expected), text: format!("node {name} {text}") });
    }
    next.sort_by(|a, b| (a.at, &a.text).cmp(&(b.at, &b.text)));
    next.dedup();
    next.push(Next {
        at: None,
        text: "it is looked at again whenever a node, pod, pool or host changes".to_owned(),
    });
    next
}
