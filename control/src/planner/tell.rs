//! A plan in words: the draft of a decision, with its reasons, its evidence and what led to it.

use std::collections::BTreeMap;

use muster_engine::{
    Plan, Snapshot,
    down::{Step, step},
    explain::{Explainer, Scene, one_line},
    plan::{Source, Target},
    snapshot::{HostState, Mode, Pool, Trigger},
};
use muster_model::{
    Duration, Known, Timestamp,
    k8s::PodKey,
    pool::{self, ScaleDirection},
    trigger::Finding,
};

use super::Decided;
use crate::{
    journal::{
        Action, ActionKind, Also, Cause, Decision, DecisionId, Draft, Evidence, Outcome, OutcomeState, Told,
    },
    snapshot::{Built, Inputs},
};

/// Actions that a record lists; the rest is in its snapshot.
const MOST_ACTIONS: usize = 40;
/// Pods that an action names.
const MOST_PODS: usize = 10;
/// Hosts, nodes and pods beyond these lists that a record names, so that each of them finds it. Pods of one workload take a
/// dozen bytes each; 2,000 of the longest names there can be are still a value that every store takes.
const MOST_NAMES: usize = 2_000;
/// Kinds of pods without a place that a record explains.
const MOST_TOLD: usize = 10;
/// Changes that a cause names.
const MOST_CHANGES: usize = 12;

/// What led to this look.
#[derive(Debug, Clone, Default)]
pub(super) struct Before<'b> {
    pub(super) nudges: Vec<String>,
    pub(super) snapshot: Option<&'b Snapshot>,
    pub(super) decision: Option<&'b DecisionId>,
}

/// The decision that a plan makes, without a number.
pub(super) fn draft(inputs: &Inputs, built: &Built, decided: &Decided, before: &Before<'_>) -> Draft {
    let (snapshot, plan) = (&built.snapshot, &decided.plan);
    let mut actions = actions(inputs, snapshot, decided);
    let more_actions = count(actions.len().saturating_sub(MOST_ACTIONS));
    let mut pools: Vec<String> = actions.iter().map(|action| action.pool.clone()).collect();
    pools.sort();
    pools.dedup();
    let outcome = outcome(inputs.now, decided, &actions);
    let headline = headline(decided, &actions, &pools);
    let also = shorten(&mut actions);
    Draft {
        cluster_id: inputs.cluster.id,
        cluster_name: inputs.cluster.name.to_string(),
        project: inputs.cluster.project.to_string(),
        at: inputs.now,
        headline,
        cause: cause(snapshot, before),
        new_nodes: count(plan.new_nodes.len()),
        removals: count(plan.removals.len()),
        placed: count(plan.placements.len()),
        unplaced: count(plan.unplaced.len()),
        pools,
        actions,
        more_actions,
        also,
        told: told(built, plan),
        findings: decided.findings.clone(),
        outcome,
    }
}

/// What two decisions must differ in to be two: what is done, what is said, and what is wrong.
pub(super) fn essence(draft: &Draft) -> Vec<String> {
    of_parts(&draft.actions, draft.more_actions, &draft.also, &draft.told, &draft.findings, draft.unplaced)
}

/// The same of a decision that was read back.
pub(super) fn essence_of(decision: &Decision) -> Vec<String> {
    let Decision { actions, more_actions, also, told, findings, unplaced, .. } = decision;
    of_parts(actions, *more_actions, also, told, findings, *unplaced)
}

fn of_parts(
    actions: &[Action],
    more: u32,
    also: &Also,
    told: &[Told],
    findings: &[String],
    unplaced: u32,
) -> Vec<String> {
    let action = |action: &Action| {
        format!("{:?} {} {:?} {:?} {}", action.kind, action.pool, action.host, action.node, action.advice)
    };
    let mut all: Vec<String> = actions.iter().map(action).collect();
    all.extend(also.hosts.iter().map(|host| format!("host {host}")));
    all.extend(also.nodes.iter().map(|node| format!("node {node}")));
    all.extend(told.iter().map(|told| format!("{} {} {}", told.about, told.code, told.count)));
    all.extend(findings.iter().cloned());
    all.push(format!("{unplaced} {more}"));
    all
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn outcome(now: Timestamp, decided: &Decided, actions: &[Action]) -> Outcome {
    let (state, text) = if !decided.findings.is_empty() {
        (OutcomeState::Refused, format!("the audit found {} faults; nothing acts", decided.findings.len()))
    } else if actions.is_empty() {
        (OutcomeState::Quiet, "0 things to do".to_owned())
    } else if actions.iter().all(|action| action.advice) {
        (
            OutcomeState::Advised,
            format!("{} things to do are shown; nothing acts in advise mode", actions.len()),
        )
    } else {
        (OutcomeState::Planned, format!("{} things to do", actions.len()))
    };
    Outcome { state, at: now, text, effects: Vec::new() }
}

fn actions(inputs: &Inputs, snapshot: &Snapshot, decided: &Decided) -> Vec<Action> {
    let plan = &decided.plan;
    let mut pods: BTreeMap<u32, Vec<PodKey>> = BTreeMap::new();
    for placement in &plan.placements {
        if let Target::New(node) = placement.on {
            pods.entry(node).or_default().push(placement.pod.clone());
        }
    }
    let advice = |pool: Option<&Pool>| pool.is_none_or(|pool| pool.mode != Mode::Act);
    let mut actions = Vec::new();
    for (number, new) in (0..).zip(&plan.new_nodes) {
        let pool = snapshot.pool(&new.pool);
        let here = pods.remove(&number).unwrap_or_default();
        let (kind, host) = match &new.source {
            Source::Host { host } => (ActionKind::Wake, Some(host.to_string())),
            Source::Bought { .. } => (ActionKind::Ask, None),
        };
        actions.push(Action {
            kind,
            pool: new.pool.to_string(),
            host,
            node: None,
            template: new.template.to_string(),
            advice: advice(pool),
            because: growth(inputs, snapshot, pool, &here),
            pod_count: count(here.len()),
            pods: here,
            evidence: None,
        });
    }
    for removal in &plan.removals {
        let member = snapshot.members.get(&removal.node);
        let pool = member.and_then(|member| snapshot.pool(&member.pool));
        actions.push(Action {
            kind: ActionKind::Remove,
            pool: member.map(|member| member.pool.to_string()).unwrap_or_default(),
            host: member.and_then(|member| member.host.as_deref()).map(str::to_owned),
            node: Some(removal.node.to_string()),
            template: String::new(),
            advice: advice(pool),
            because: removal_reason(snapshot, decided, &removal.node, pool),
            pod_count: count(removal.moves.len()),
            pods: removal.moves.iter().map(|step| step.pod.clone()).collect(),
            evidence: evidence(snapshot, decided, &removal.node, pool),
        });
    }
    actions
}

/// Cuts the lists to what a record shows, and names the rest.
fn shorten(actions: &mut Vec<Action>) -> Also {
    let rest = actions.split_off(actions.len().min(MOST_ACTIONS));
    let pods = actions.iter_mut().flat_map(|action| action.pods.split_off(action.pods.len().min(MOST_PODS)));
    let mut also = Also::default();
    let mut room = MOST_NAMES;
    let mut fits = || {
        let fits = room > 0;
        room = room.saturating_sub(1);
        fits
    };
    let mut pods: Vec<PodKey> = pods.collect();
    for action in rest {
        pods.extend(action.pods);
        for (name, names) in [(action.host, &mut also.hosts), (action.node, &mut also.nodes)] {
            match name {
                Some(name) if fits() => drop(names.insert(name)),
                Some(_) => also.unnamed += 1,
                None => {}
            }
        }
    }
    for pod in pods {
        if fits() {
            also.add_pod(&pod);
        } else {
            also.unnamed += 1;
        }
    }
    also
}

/// Why a node comes: pods, a trigger, a mark, or the size that the pool must have.
fn growth(inputs: &Inputs, snapshot: &Snapshot, pool: Option<&Pool>, pods: &[PodKey]) -> String {
    if let Some(first) = pods.first() {
        return match pods.len() {
            1 => format!("1 pod waits for it: {first}"),
            many => format!("{many} pods wait for it, {first} first"),
        };
    }
    let Some(pool) = pool else { return "1 node is missing".to_owned() };
    match step(snapshot, pool) {
        Some(Step::Trigger) => match firing(inputs, pool) {
            Some((trigger, finding)) => {
                format!("trigger {} of pool {} asks for growth: {}", trigger.title(), pool.name, finding.why)
            }
            None => format!("1 trigger of pool {} asks for growth", pool.name),
        },
        Some(Step::HighMark { share, mark, since, .. }) => format!(
            "{} % of the {} of pool {} is requested, above {mark} % for {}",
            share.percent(),
            share.resource,
            pool.name,
            seconds(snapshot.now.since(since))
        ),
        None => match pool.fixed {
            Some(1) => format!("pool {} holds 1 node", pool.name),
            Some(fixed) => format!("pool {} holds {fixed} nodes", pool.name),
            None => format!("pool {} has fewer nodes than its minimum of {}", pool.name, pool.min),
        },
    }
}

/// The trigger that asks for growth, and what it found.
fn firing<'a>(inputs: &'a Inputs, pool: &Pool) -> Option<(&'a pool::Trigger, &'a Finding)> {
    let asked = inputs.pools.iter().find(|one| one.name() == &*pool.name)?;
    asked.triggers.iter().find_map(|one| match &one.finding {
        Known::Value { value, .. } if value.fires && one.trigger.scale_direction == ScaleDirection::Up => {
            Some((&one.trigger, value))
        }
        Known::Value { .. } | Known::Unknown { .. } => None,
    })
}

/// Whole seconds: nobody reads further.
fn seconds(length: Duration) -> Duration {
    Duration::from_secs(length.millis() / 1000)
}

fn evidence(snapshot: &Snapshot, decided: &Decided, node: &str, pool: Option<&Pool>) -> Option<Evidence> {
    let verdict = decided.down.verdict(node)?;
    let top = verdict.usage.top();
    Some(Evidence {
        resource: top.map(|top| top.resource.to_string()).unwrap_or_default(),
        used: top.map_or(0, |top| top.used),
        allocatable: top.map_or(0, |top| top.allocatable),
        percent: top.map_or(0, muster_engine::down::Share::percent),
        mark: pool.and_then(|pool| pool.demand.scale_down_percent),
        unneeded_since: snapshot.members.get(node).and_then(|member| member.unneeded_since),
        required: pool.map_or(Duration::ZERO, |pool| pool.demand.scale_down_delay),
    })
}

fn removal_reason(snapshot: &Snapshot, decided: &Decided, node: &str, pool: Option<&Pool>) -> String {
    let have = |pool: &Pool| snapshot.members.values().filter(|member| member.pool == pool.name).count();
    if let Some(pool) = pool {
        let most = pool.fixed.unwrap_or(pool.max);
        if count(have(pool)) > most {
            let nodes = if have(pool) == 1 { "node" } else { "nodes" };
            return format!("pool {} has {} {nodes} and is to have {most}", pool.name, have(pool));
        }
    }
    match evidence(snapshot, decided, node, pool) {
        Some(Evidence { percent, resource, mark, unneeded_since: Some(since), required, .. }) => {
            let resource = if resource.is_empty() { "it".to_owned() } else { format!("its {resource}") };
            let mark = mark.map_or_else(String::new, |mark| format!(", below {mark} %"));
            format!(
                "{percent} % of {resource} is requested{mark}; unneeded for {}, {required} are required",
                seconds(snapshot.now.since(since))
            )
        }
        Some(Evidence { percent, .. }) => {
            format!("{percent} % of it is requested, and its pods fit elsewhere")
        }
        None => "0 pods need it".to_owned(),
    }
}

fn headline(decided: &Decided, actions: &[Action], pools: &[String]) -> String {
    let plan = &decided.plan;
    let at = if let [one] = pools { format!(" in pool {one}") } else { String::new() };
    let waiting = match plan.unplaced.len() {
        0 => String::new(),
        1 => "; 1 pod finds no place".to_owned(),
        many => format!("; {many} pods find no place"),
    };
    let nodes = |number: usize| if number == 1 { "1 node".to_owned() } else { format!("{number} nodes") };
    let text = match (plan.new_nodes.len(), plan.removals.len()) {
        (0, 0) if plan.unplaced.is_empty() => "0 changes: every pod has a place, no node can go".to_owned(),
        (0, 0) => format!("0 changes{waiting}"),
        (new, 0) => format!("{} more{at}{}{waiting}", nodes(new), first_reason(actions)),
        (0, gone) => format!("{} fewer{at}{}{waiting}", nodes(gone), first_reason(actions)),
        (new, gone) => format!("{} more and {gone} fewer{at}{waiting}", nodes(new)),
    };
    let text = match decided.findings.len() {
        0 => text,
        faults => format!("refused, the audit found {faults} faults: {text}"),
    };
    one_line(&text)
}

fn first_reason(actions: &[Action]) -> String {
    match actions {
        [one] => format!(": {}", one.because),
        [first, ..] if first.kind != ActionKind::Remove => {
            let pods: u32 = actions.iter().map(|action| action.pod_count).sum();
            if pods > 0 { format!(": {pods} pods wait for them") } else { format!(": {}", first.because) }
        }
        _ => String::new(),
    }
}

/// The pods without a place, one line for those that are alike, and the pools that cannot be planned.
fn told(built: &Built, plan: &Plan) -> Vec<Told> {
    let mut told: Vec<Told> = built
        .incomplete
        .iter()
        .map(|(pool, why)| Told {
            about: format!("pool/{pool}"),
            count: 1,
            code: "TemplateIncomplete".to_owned(),
            headline: one_line(why),
        })
        .collect();
    if plan.unplaced.is_empty() {
        return told;
    }
    let scene = Scene::new(&built.snapshot, plan);
    let explainer = Explainer::new(&scene);
    let mut left = plan.unplaced.clone();
    while let Some(first) = left.first().cloned().filter(|_| told.len() < MOST_TOLD) {
        let alike = explainer.alike(&first, &left);
        left.retain(|pod| *pod != first && !alike.contains(pod));
        if let Some((code, headline)) = explainer.pod_headline(&first) {
            told.push(Told {
                about: format!("pod/{first}"),
                count: count(alike.len().max(1)),
                code: code.name().to_owned(),
                headline,
            });
        }
    }
    told
}

/// What changed in the world since the decision before.
fn cause(now: &Snapshot, before: &Before<'_>) -> Cause {
    let mut changes = Vec::new();
    if let Some(old) = before.snapshot {
        changes.extend(pool_changes(old, now));
        let pending =
            |snapshot: &Snapshot| snapshot.cluster.pods.iter().filter(|pod| pod.is_pending()).count();
        if pending(old) != pending(now) {
            changes.push(format!("pending pods: {} → {}", pending(old), pending(now)));
        }
        let nodes = |snapshot: &Snapshot| snapshot.members.len();
        if nodes(old) != nodes(now) {
            changes.push(format!("nodes of pools: {} → {}", nodes(old), nodes(now)));
        }
        for (name, state) in
            [("off", HostState::Off), ("failed", HostState::Failed), ("ready", HostState::Ready)]
        {
            let hosts =
                |snapshot: &Snapshot| snapshot.hosts.iter().filter(|host| host.state == state).count();
            if hosts(old) != hosts(now) {
                changes.push(format!("hosts {name}: {} → {}", hosts(old), hosts(now)));
            }
        }
        for (what, old, now) in
            [("holds", old.holds.len(), now.holds.len()), ("gaps", old.gaps.len(), now.gaps.len())]
        {
            if old != now {
                changes.push(format!("{what}: {old} → {now}"));
            }
        }
        let more = changes.len().saturating_sub(MOST_CHANGES);
        changes.truncate(MOST_CHANGES);
        if more > 0 {
            changes.push(format!("and {more} more"));
        }
    }
    let mut nudges = before.nudges.clone();
    nudges.sort();
    nudges.dedup();
    Cause { nudges, changes, after: before.decision.cloned() }
}

/// What a trigger asks for, in a word.
fn asks(trigger: Option<Trigger>) -> String {
    match trigger {
        None => "none",
        Some(Trigger::Up) => "grow",
        Some(Trigger::Down) => "shrink",
        Some(Trigger::Idle) => "idle",
    }
    .to_owned()
}

fn pool_changes(old: &Snapshot, now: &Snapshot) -> Vec<String> {
    let mut changes = Vec::new();
    for pool in &now.pools {
        let Some(was) = old.pool(&pool.name) else {
            changes.push(format!("pool {} is new", pool.name));
            continue;
        };
        let mut say = |field: &str, from: String, to: String| {
            if from != to {
                changes.push(format!("pool {}: {field} {from} → {to}", pool.name));
            }
        };
        let size = |size: Option<u32>| size.map_or_else(|| "none".to_owned(), |size| size.to_string());
        say("minimum", was.min.to_string(), pool.min.to_string());
        say("maximum", was.max.to_string(), pool.max.to_string());
        say("fixed size", size(was.fixed), size(pool.fixed));
        say("mode", format!("{:?}", was.mode).to_lowercase(), format!("{:?}", pool.mode).to_lowercase());
        say("trigger", asks(was.demand.trigger), asks(pool.demand.trigger));
        if was.templates != pool.templates {
            changes.push(format!("pool {}: what its nodes look like", pool.name));
        }
    }
    for gone in old.pools.iter().filter(|pool| now.pool(&pool.name).is_none()) {
        changes.push(format!("pool {} is gone", gone.name));
    }
    changes
}
