//! Whether a node stays or goes, with everything that keeps it.
//!
//! The verdict is the one of [`crate::down`], by which plans are made: an answer cannot differ from what is
//! done. Here it only gets an object, a field and numbers for every reason.

use muster_model::k8s::{Pod, PodKey};

use super::{
    BudgetView, Cause, Code, Move, Next, NodeAnswer, Usage, amount, blocker, limits::count, one_line,
    scene::Scene, with_number,
};
use crate::{
    down::{Fate, Kept, Outcome, Verdict, fate},
    fit::selector,
    plan::Target,
    snapshot::{Health, Snapshot},
};

/// Answers for a node of the snapshot.
pub(super) fn explain(scene: &Scene<'_>, name: &str) -> Option<NodeAnswer> {
    let snapshot = scene.snapshot;
    let verdict = scene.verdict(name)?;
    let member = snapshot.members.get(name);
    let pods: Vec<&Pod> = scene.pods_on(name).collect();
    let moving = pods.iter().filter(|pod| fate(pod, snapshot.now) == Fate::Moves).count();
    let mut blockers: Vec<Cause> =
        verdict.blockers.iter().map(|reason| blocker::cause(snapshot, name, reason)).collect();
    blockers.sort_by_key(|cause| order(cause.code));
    let usage = usage(verdict);
    let cause = told(scene, verdict, &blockers, moving);
    let size = format!("{} pods, {moving} to move", pods.len());
    Some(NodeAnswer {
        node: verdict.node.clone(),
        headline: one_line(&with_number(&format!("node {name} "), &cause.text, &size)),
        cause,
        pool: member.map(|member| member.pool.clone()),
        next: next(&blockers),
        blockers,
        moves: moves(scene, verdict),
        budgets: budgets(snapshot, &pods),
        pods: pods.iter().map(|pod| pod.key()).collect(),
        usage,
        evaluated: snapshot.now,
    })
}

/// What becomes of the node, in one sentence.
fn told(scene: &Scene<'_>, verdict: &Verdict, blockers: &[Cause], moving: usize) -> Cause {
    let name = &verdict.node;
    let object = format!("nodes/{name}");
    let planned = scene.plan.removals.iter().find(|removal| removal.node == *name);
    if let Some(removal) = planned {
        let (moved, bought) = (removal.moves.len(), scene.plan.new_nodes.len());
        let fresh = removal.moves.iter().filter(|step| matches!(step.on, Target::New(_))).count();
        let moved = if moved == 1 { "1 pod moves".to_owned() } else { format!("{moved} pods move") };
        let text = match reading(scene, name) {
            Some(reading) => format!("goes first: its host reports {reading}; {moved}"),
            None if fresh > 0 => {
                format!("goes in this plan for one of {bought} new nodes; {moved}")
            }
            None => format!("goes in this plan; {moved}"),
        };
        return Cause::new(Code::Removed, object, "spec").saying(text);
    }
    if let Some(first) = blockers.first() {
        let more = match blockers.len() {
            1 => String::new(),
            all => format!(" (and {} more)", all - 1),
        };
        return Cause { text: format!("stays: {}{more}", first.text), ..first.clone() };
    }
    if let (false, Outcome::Kept(why)) = (scene.plan.removals.is_empty(), &verdict.outcome) {
        return kept(why, object);
    }
    let text = match moving {
        0 => "could go: 0 pods on it have to move".to_owned(),
        1 => "could go: its 1 pod has another place".to_owned(),
        pods => format!("could go: all {pods} pods have other places"),
    };
    Cause::new(Code::Removable, object, "spec").saying(text)
}

/// The critical reading of the node's host, if it has one.
fn reading<'s>(scene: &Scene<'s>, name: &str) -> Option<&'s str> {
    let member = scene.snapshot.members.get(name)?;
    match &scene.snapshot.host(member.host.as_deref()?)?.health {
        Health::Critical(reading) => Some(reading),
        _ => None,
    }
}

/// Why a node that could go alone stays in this plan.
fn kept(why: &Kept, object: String) -> Cause {
    let text = match why {
        Kept::Receives { pods } => format!("takes in {pods} pods of nodes that go"),
        Kept::PlaceTaken { pod } => format!("pod {pod} has no place once the others have moved"),
        Kept::BudgetSpent { budget, allowed } => {
            format!("the {allowed} disruptions of budget {budget} are used by nodes that go")
        }
        Kept::Minimum { nodes, min } => {
            format!("{nodes} ready nodes are left of its pool, its minimum is {min}")
        }
        Kept::Tight { resource, used, allocatable } => {
            let used = amount::say(resource, *used);
            format!("{used} of {} would be used without it", amount::say(resource, *allocatable))
        }
        Kept::MaxRemovals { rack, going, planned, max } => {
            let whose = rack.as_ref().map_or_else(|| "all nodes".to_owned(), |rack| format!("rack {rack}"));
            let together = going.saturating_add(*planned);
            match planned {
                0 => format!("{going} of {max} of {whose} are already going"),
                _ => format!("{together} of {max} of {whose} go at one time, {planned} by this plan"),
            }
        }
        Kept::LastThere { place, required } => {
            format!("it is the last of its pool in {place}, and {required} of them are kept")
        }
        Kept::Better => "better ones go".to_owned(),
    };
    Cause::new(Code::Kept, object, "spec").saying(format!("could go alone, but stays: {text}"))
}

fn moves(scene: &Scene<'_>, verdict: &Verdict) -> Vec<Move> {
    let removal = scene.plan.removals.iter().find(|removal| removal.node == verdict.node);
    let Some(removal) = removal else {
        let steps = verdict.movements(scene.snapshot);
        return steps.map(|step| Move { pod: step.pod, to: step.to }).collect();
    };
    let name = |on: &Target| match on {
        Target::Node(name) => name.clone(),
        Target::New(at) => {
            scene.plan.new_nodes.get(*at as usize).map_or_else(|| "unknown".into(), |new| new.name.clone())
        }
    };
    removal.moves.iter().map(|step| Move { pod: step.pod.clone(), to: name(&step.on) }).collect()
}

/// Answers for a node that the plan adds: which pods caused it.
pub(super) fn explain_new(scene: &Scene<'_>, name: &str) -> Option<NodeAnswer> {
    let (at, new) = scene.plan.new_nodes.iter().enumerate().find(|(_, new)| *new.name == *name)?;
    let on = Target::New(count(at));
    let moved = scene.plan.removals.iter().flat_map(|removal| &removal.moves);
    let there = scene.plan.placements.iter().chain(moved).filter(|placement| placement.on == on);
    let pods: Vec<PodKey> = there.map(|placement| placement.pod.clone()).collect();
    let why = match pods.first() {
        Some(first) if pods.len() > 1 => format!("for {} pods, {first} first", pods.len()),
        Some(first) => format!("for 1 pod, {first}"),
        None => {
            let size = scene.snapshot.members.values().filter(|member| member.pool == new.pool).count();
            format!("because the pool's {size} nodes are too few")
        }
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

/// What weighs most comes first; what only time keeps comes last.
fn order(code: Code) -> u8 {
    match code {
        Code::NotOurs | Code::Frozen | Code::Held | Code::ScaleDownDisabled | Code::PoolFixed => 0,
        Code::Leaving | Code::Upcoming | Code::Overdue | Code::Unready | Code::Unobserved => 1,
        Code::Distrusted => 2,
        Code::PoolMinimum | Code::LastThere => 4,
        Code::PodUnmovable | Code::SeveralBudgets | Code::BudgetExhausted => 5,
        Code::NoPlace => 6,
        Code::TooSoon | Code::Resting | Code::TooYoung | Code::OnTime => 8,
        _ => 7,
    }
}

/// Requests by resource, the one that counts first.
fn usage(verdict: &Verdict) -> Vec<Usage> {
    let shares = &verdict.usage.shares;
    let mut rows: Vec<Usage> = shares
        .iter()
        .filter(|share| share.allocatable > 0 || share.used > 0)
        .map(|share| Usage {
            resource: share.resource.to_string(),
            requested: amount::say(&share.resource, share.used),
            allocatable: amount::say(&share.resource, share.allocatable),
            percent: i64::from(share.percent()),
        })
        .collect();
    let top = verdict.usage.top().map(|top| top.resource.clone());
    rows.sort_by(|a, b| {
        let first = |row: &Usage| top.as_deref() != Some(&*row.resource);
        (first(a), -a.percent, &a.resource).cmp(&(first(b), -b.percent, &b.resource))
    });
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
