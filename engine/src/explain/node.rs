//! Whether a node stays or goes, with everything that keeps it.
//!
//! The node is removed on paper, its pods are given other places by the exact filters, and the audit says
//! what that would break. So the answer cannot differ from what the audit would let pass.

use std::sync::Arc;

use muster_model::k8s::{Pod, PodKey};

use super::{
    BudgetView, Cause, Code, Move, Next, NodeAnswer, Usage, amount,
    constraint::of,
    limits::count,
    one_line,
    scene::{Scene, unbound},
};
use crate::{
    audit::{Fault, audit},
    fit::{Cycle, World, selector},
    plan::{Placement, Plan, Removal, Target},
    snapshot::{Demand, MemberState, Snapshot},
};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Answers for a node of the snapshot.
pub(super) fn explain(scene: &Scene<'_>, name: &str) -> Option<NodeAnswer> {
    let snapshot = scene.snapshot;
    let world = scene.world_now();
    let at = world.index_of(name)?;
    let state = world.node(at);
    let member = snapshot.members.get(name);
    let pods: Vec<PodKey> = state.pods.iter().map(|pod| pod.key()).collect();
    let usage = usage(&world, at);
    let (moves, stuck) = places(scene, &world, at);
    let mut blockers = faults(snapshot, name, &moves, &stuck);
    blockers.extend(standing(snapshot, name));
    blockers.extend(marks(snapshot, name, &usage));
    if blockers.iter().any(|cause| cause.code == Code::PoolFixed) {
        blockers.retain(|cause| cause.code != Code::PoolMinimum); // the same said twice
    }
    blockers.sort_by_key(|cause| order(cause.code));
    blockers.dedup_by(|a, b| a.code == b.code && a.text == b.text);
    let removed = scene.plan.removals.iter().any(|removal| *removal.node == *name);
    let object = format!("nodes/{name}");
    let cause = if removed {
        Cause::new(Code::Removed, object, "spec")
            .saying(format!("goes in this plan; {} pods move", moves.len()))
    } else if let Some(first) = blockers.first() {
        let more =
            if blockers.len() > 1 { format!(" (and {} more)", blockers.len() - 1) } else { String::new() };
        Cause { text: format!("stays: {}{more}", first.text), ..first.clone() }
    } else {
        let text = match pods_to_move(&world, at).count() {
            0 => "could go: nothing on it has to move".to_owned(),
            pods => format!("could go: all {pods} pods have other places"),
        };
        Cause::new(Code::Removable, object, "spec").saying(text)
    };
    let next = next(&blockers);
    Some(NodeAnswer {
        node: state.node.metadata.name.clone(),
        headline: one_line(&format!("node {name} {}", cause.text)),
        cause,
        pool: member.map(|member| member.pool.clone()),
        blockers,
        moves: moves.into_iter().map(|(pod, to)| Move { pod, to }).collect(),
        budgets: budgets(snapshot, &state.pods),
        pods,
        usage,
        next,
        evaluated: snapshot.now,
    })
}

/// Answers for a node that the plan adds: which pods caused it.
pub(super) fn explain_new(scene: &Scene<'_>, name: &str) -> Option<NodeAnswer> {
    let (at, new) = scene.plan.new_nodes.iter().enumerate().find(|(_, new)| *new.name == *name)?;
    let on = Target::New(count(at));
    let pods: Vec<PodKey> =
        scene.plan.placements.iter().filter(|placement| placement.on == on).map(|p| p.pod.clone()).collect();
    let why = match pods.first() {
        Some(first) if pods.len() > 1 => format!("for {} pods, {first} first", pods.len()),
        Some(first) => format!("for pod {first}"),
        None => format!("because pool {} has to have that many nodes", new.pool),
    };
    let cause = Cause::new(Code::Planned, format!("nodepools/{}", new.pool), "spec.template")
        .saying(format!("is added to pool {} ({}) {why}", new.pool, new.template));
    Some(NodeAnswer {
        node: new.name.clone(),
        headline: one_line(&format!("node {name} {}", cause.text)),
        cause,
        pool: Some(new.pool.clone()),
        blockers: Vec::new(),
        moves: Vec::new(),
        pods,
        usage: Vec::new(),
        budgets: Vec::new(),
        next: Vec::new(),
        evaluated: scene.snapshot.now,
    })
}

/// What weighs most comes first.
fn order(code: Code) -> u8 {
    match code {
        Code::NotOurs | Code::Frozen | Code::Held | Code::ScaleDownDisabled => 0,
        Code::Leaving | Code::Upcoming | Code::Overdue | Code::Unready | Code::Unobserved => 1,
        Code::PoolFixed | Code::PoolMinimum => 2,
        Code::PodUnmovable | Code::SeveralBudgets | Code::BudgetExhausted => 3,
        Code::NoPlace => 4,
        _ => 5,
    }
}

fn pods_to_move<'w>(world: &'w World<'_>, at: usize) -> impl Iterator<Item = &'w Pod> {
    world.node(at).pods.iter().copied().filter(|pod| {
        let daemon = pod.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet");
        !daemon && !pod.metadata.annotations.contains(MIRROR) && !pod.is_terminating()
    })
}

type Places = Vec<(PodKey, Arc<str>)>;

/// Where each pod would go, largest first, and those that find no place with the reason.
fn places(scene: &Scene<'_>, now: &World<'_>, at: usize) -> (Places, Vec<(PodKey, String)>) {
    let mut pods: Vec<Pod> = pods_to_move(now, at).map(unbound).collect();
    pods.sort_by(|a, b| {
        let size = |pod: &Pod| crate::fit::requests::of_pending(pod);
        size(b).cmp(&size(a)).then_with(|| a.key().cmp(&b.key()))
    });
    let snapshot = scene.snapshot;
    let mut world = scene.world_now();
    let names: Vec<(String, String)> = world
        .node(at)
        .pods
        .iter()
        .map(|pod| (pod.metadata.namespace.to_string(), pod.metadata.name.to_string()))
        .collect();
    for (namespace, name) in &names {
        world.unbind(namespace, name, at);
    }
    let known = snapshot.cluster.nodes.len();
    let going = |index: usize| {
        let name = now.node(index).node.name();
        index == at || snapshot.members.get(name).is_some_and(|member| member.state == MemberState::Leaving)
    };
    let (mut placed, mut stuck) = (Vec::new(), Vec::new());
    for pod in &pods {
        let cycle = Cycle::new(&world, pod);
        let open = (0..known).filter(|index| !going(*index));
        // The fullest node that takes it, so that empty ones stay empty.
        let free = |index: &usize| {
            let state = world.node(*index);
            (state.capacity.milli_cpu - state.used.milli_cpu, *index)
        };
        let place = open.filter(|index| cycle.refusal(*index).is_none()).min_by_key(free);
        match place {
            Some(index) => {
                placed.push((pod.key(), world.node(index).node.metadata.name.clone()));
                world.bind(pod, index);
            }
            None => stuck.push((pod.key(), refusals(&world, &cycle, known, &going))),
        }
    }
    (placed, stuck)
}

fn refusals(
    world: &World<'_>,
    cycle: &Cycle<'_, '_>,
    known: usize,
    going: &impl Fn(usize) -> bool,
) -> String {
    let mut counts: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
    for index in (0..known).filter(|index| !world.node(*index).gone && !going(*index)) {
        for reason in cycle.refusal(index).into_iter().flat_map(|refusal| refusal.rejection.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
    }
    if counts.is_empty() {
        return "there is no other node".to_owned();
    }
    counts.iter().map(|(reason, nodes)| format!("{nodes} {reason}")).collect::<Vec<_>>().join(", ")
}

/// What the audit says to the removal of this node alone.
fn faults(snapshot: &Snapshot, name: &str, moves: &Places, stuck: &[(PodKey, String)]) -> Vec<Cause> {
    let steps = moves.iter().map(|(pod, to)| Placement { pod: pod.clone(), on: Target::Node(to.clone()) });
    let pending = snapshot.cluster.pods.iter().filter(|pod| pod.is_pending()).map(Pod::key);
    // Pods without a place are listed too, so that the audit judges whether they may be moved at all.
    let nowhere = stuck.iter().map(|(pod, _)| Placement { pod: pod.clone(), on: Target::Node(name.into()) });
    let removal = Removal { node: name.into(), moves: steps.chain(nowhere).collect() };
    let plan = Plan { removals: vec![removal], unplaced: pending.collect(), ..Plan::default() };
    let mut found: Vec<Cause> =
        audit(snapshot, &plan).iter().filter_map(|finding| cause(name, &finding.fault)).collect();
    found.extend(stuck.iter().map(|(pod, why)| {
        Cause::new(Code::NoPlace, format!("pods/{pod}"), "spec")
            .found(why, "a node that takes it")
            .saying(format!("pod {pod} finds no other place: {why}"))
    }));
    found
}

fn cause(node: &str, fault: &Fault) -> Option<Cause> {
    let object = format!("nodes/{node}");
    let new = |code: Code, object: String, field: &str| {
        Some(Cause::new(code, object, field).saying(fault.to_string()))
    };
    match fault {
        Fault::NotOurs { .. } => new(Code::NotOurs, object, "metadata.labels.nodepool"),
        Fault::Frozen { pool } => new(Code::Frozen, format!("nodepools/{pool}"), "status.frozen"),
        Fault::Held { why, .. } if why.contains("scale-down-disabled") => {
            new(Code::ScaleDownDisabled, object, "metadata.annotations")
        }
        Fault::Held { .. } => new(Code::Held, object, "holds"),
        Fault::Unobserved { .. } => new(Code::Unobserved, object, "status"),
        Fault::BelowMin { pool, nodes, min } => {
            let cause =
                Cause::new(Code::PoolMinimum, format!("nodepools/{pool}"), "spec.autoscaling.minNodes")
                    .found(format!("{} nodes", nodes + 1), format!("more than {min}"));
            Some(cause.saying(format!("pool {pool} has {} nodes, its minimum is {min}", nodes + 1)))
        }
        Fault::Unmovable { pod, why } => {
            let field = if why.contains("volume") {
                "spec.volumes"
            } else if why.contains(" is true") || why.contains(" is false") {
                "metadata.annotations"
            } else {
                "metadata.ownerReferences"
            };
            let cause = Cause::new(Code::PodUnmovable, format!("pods/{pod}"), field).found(why, "movable");
            Some(cause.saying(fault.to_string()))
        }
        Fault::BudgetExhausted { pod, budget, allowed } => {
            let cause = Cause::new(
                Code::BudgetExhausted,
                format!("poddisruptionbudgets/{budget}"),
                "status.disruptionsAllowed",
            )
            .found(format!("{allowed} allowed"), "1");
            Some(
                cause
                    .margin("1")
                    .saying(format!("budget {budget} allows {allowed} disruptions, pod {pod} needs one")),
            )
        }
        Fault::SeveralBudgets { pod, .. } => {
            new(Code::SeveralBudgets, format!("pods/{pod}"), "metadata.labels")
        }
        // Places are judged by ourselves, with the reasons; the rest cannot be said of one removal.
        _ => None,
    }
}

/// What the node is doing at the moment.
fn standing(snapshot: &Snapshot, name: &str) -> Option<Cause> {
    let member = snapshot.members.get(name)?;
    let object = format!("nodes/{name}");
    let pool = snapshot.pool(&member.pool);
    match member.state {
        MemberState::Ready => {
            let pool = pool.filter(|pool| pool.fixed.is_some())?;
            let fixed = pool.fixed?;
            let have = snapshot
                .members
                .values()
                .filter(|m| m.pool == pool.name && m.state != MemberState::Leaving)
                .count();
            (count(have) <= fixed).then(|| {
                Cause::new(Code::PoolFixed, format!("nodepools/{}", pool.name), "spec.nodeCount")
                    .found(format!("{have} nodes"), format!("more than {fixed}"))
                    .saying(format!("pool {} does not scale: it holds {fixed} nodes", pool.name))
            })
        }
        MemberState::Leaving => {
            Some(Cause::new(Code::Leaving, object, "status").saying("it is already leaving"))
        }
        MemberState::Unready => Some(
            Cause::new(Code::Unready, object, "status.conditions")
                .saying("it is not ready, so nobody can say what runs there"),
        ),
        MemberState::Upcoming { expected } if expected < snapshot.now => Some(
            Cause::new(Code::Overdue, object, "status")
                .found(format!("expected {expected}"), "ready")
                .saying(format!(
                    "it was expected {expected}, {} ago, and still counts",
                    snapshot.now.since(expected)
                )),
        ),
        MemberState::Upcoming { expected } => Some(
            Cause::new(Code::Upcoming, object, "status")
                .until(Some(expected))
                .saying(format!("it is on its way, expected {expected}")),
        ),
    }
}

/// Marks and delays of the pool.
fn marks(snapshot: &Snapshot, name: &str, usage: &[Usage]) -> Vec<Cause> {
    let Some(member) = snapshot.members.get(name) else { return Vec::new() };
    let Some(pool) = snapshot.pool(&member.pool) else { return Vec::new() };
    let Demand { scale_down_percent, scale_down_delay, .. } = &pool.demand;
    let mut found = Vec::new();
    let dominant = usage.first();
    if let (Some(mark), Some(top)) = (scale_down_percent, dominant)
        && top.percent >= i64::from(*mark)
    {
        found.push(
            Cause::new(
                Code::AboveMark,
                format!("nodepools/{}", pool.name),
                "spec.autoscaling.scaleDownUtilization",
            )
            .found(format!("{} % {}", top.percent, top.resource), format!("below {mark} %"))
            .margin(format!("{} %", top.percent - i64::from(*mark) + 1))
            .saying(format!(
                "{} is {} % requested ({} of {}), nodes go below {mark} %",
                top.resource, top.percent, top.requested, top.allocatable
            )),
        );
    }
    if *scale_down_delay > muster_model::Duration::ZERO && found.is_empty() {
        let since = member.unneeded_since;
        let until = since.unwrap_or(snapshot.now).saturating_add(*scale_down_delay);
        if until > snapshot.now {
            let text = match since {
                Some(since) => {
                    format!("unneeded since {since}; it goes after {scale_down_delay}, at {until}")
                }
                None => format!("it has to be unneeded for {scale_down_delay}, which begins now"),
            };
            found.push(
                Cause::new(
                    Code::TooSoon,
                    format!("nodepools/{}", pool.name),
                    "spec.autoscaling.scaleDownDelay",
                )
                .found(
                    since.map_or_else(|| "0s".to_owned(), |since| snapshot.now.since(since).to_string()),
                    scale_down_delay.to_string(),
                )
                .until(Some(until))
                .saying(text),
            );
        }
    }
    found
}

/// Requests by resource, the one with the largest share first.
pub(super) fn usage(world: &World<'_>, at: usize) -> Vec<Usage> {
    let state = world.node(at);
    let mut rows: Vec<Usage> = state
        .capacity
        .entries()
        .filter(|(name, all)| *all > 0 && *name != "pods")
        .map(|(name, all)| {
            let used = of(&state.used, name);
            let percent = i64::try_from(i128::from(used) * 100 / i128::from(all)).unwrap_or(i64::MAX);
            Usage {
                resource: name.to_owned(),
                requested: amount::say(name, used),
                allocatable: amount::say(name, all),
                percent,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.percent.cmp(&a.percent).then_with(|| a.resource.cmp(&b.resource)));
    rows
}

fn budgets(snapshot: &Snapshot, pods: &[&Pod]) -> Vec<BudgetView> {
    let covers = |budget: &muster_model::k8s::PodDisruptionBudget| -> Vec<PodKey> {
        let inside = pods.iter().filter(|pod| {
            pod.metadata.namespace == budget.metadata.namespace
                && selector::selects(budget.spec.selector.as_ref(), &pod.metadata.labels)
        });
        inside.map(|pod| pod.key()).collect()
    };
    let views = snapshot.cluster.budgets.iter().map(|budget| BudgetView {
        budget: format!("{}/{}", budget.metadata.namespace, budget.metadata.name),
        allowed: i64::from(budget.status.disruptions_allowed.unwrap_or(0)),
        healthy: budget.status.current_healthy,
        desired_healthy: budget.status.desired_healthy,
        in_use_by: budget.status.disrupted_pods.iter().map(|(pod, _)| pod.to_owned()).collect(),
        covers: covers(budget),
    });
    views.filter(|view| !view.covers.is_empty()).collect()
}

fn next(blockers: &[Cause]) -> Vec<Next> {
    let mut next: Vec<Next> = blockers
        .iter()
        .filter_map(|cause| {
            Some(Next { at: Some(cause.until?), text: format!("{} lapses", cause.code.name()) })
        })
        .collect();
    if next.is_empty() {
        next.push(Next { at: None, text: "it is judged again in the next loop".to_owned() });
    }
    next
}
