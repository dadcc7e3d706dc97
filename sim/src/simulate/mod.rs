//! `muster simulate`: ask the engine about a cluster without touching anything.
//!
//! Texts come in, an answer goes out; files, terminals and clocks are the caller's. The snapshot that is
//! asked about lives in memory, and nothing here can reach a cluster.

mod consolidate;
mod document;
mod hosts;
mod load;
mod packing;
mod pools;
mod question;
mod report;
mod svg;

pub use document::{SetAside, Source};
pub use load::{Loaded, load};
pub use packing::{Change, Packed, Totals};
pub use question::{Add, Question, QuestionError, Shape};
pub use report::{Colour, FORMAT, NewRow, Read, RemovalRow, Simulation, UnplacedRow};
pub use svg::draw;

use muster_engine::{
    Plan, Snapshot, audit, down,
    explain::{Code, Explainer, PodAnswer},
    plan,
};

/// Kinds of pods without a place that are explained one by one.
const MOST_EXPLAINED: usize = 20;
/// Reasons against draining one node that are listed.
const MOST_AGAINST: usize = 10;

/// Answers the question about what was read, and explains the named objects.
pub fn simulate(loaded: Loaded, question: &Question, names: &[String]) -> Result<Simulation, QuestionError> {
    let Loaded { snapshot: original, kinds, set_aside, notes } = loaded;
    let read = Read { objects: kinds.values().sum(), kinds, set_aside, notes };
    let (nodes_before, before) = packing::before(&original);
    let mut warnings = leaving_warnings(&original, question)?;
    let mut snapshot = original;
    let asked = question::apply(&mut snapshot, question)?;
    warnings.extend(asked.warnings.iter().cloned());
    let mut read = read;
    if question.consolidate && question::adopt(&mut snapshot) > 0 {
        read.notes.push("no pool was given; every node is taken as removable".to_owned());
    }
    if question.consolidate {
        consolidate::relax(&mut snapshot);
    }
    let mut plan = plan::scale_up(&snapshot).plan;
    let _ = down::complete(&snapshot, &mut plan);
    let (nodes_after, after) = packing::after(&snapshot, &plan);
    let findings: Vec<String> = audit(&snapshot, &plan).iter().map(ToString::to_string).collect();
    let explainer = Explainer::new(&snapshot, &plan);
    let unplaced = unplaced(&explainer, &plan);
    let explanations = names.iter().map(|name| explainer.ask(name)).collect();
    let removals = plan.removals.iter().map(|removal| RemovalRow {
        node: removal.node.to_string(),
        pool: snapshot.members.get(&removal.node).map_or_else(String::new, |member| member.pool.to_string()),
        moves: removal.moves.len(),
    });
    let mut simulation = Simulation {
        format: FORMAT,
        nothing_changed: true,
        question: phrase(question, &asked),
        summary: String::new(),
        now: snapshot.now,
        before,
        after,
        new_nodes: report::new_rows(&plan),
        removals: removals.collect(),
        unplaced,
        nodes_before,
        nodes_after,
        audit: findings,
        warnings,
        explanations,
        read,
        plan: plan.clone(),
    };
    simulation.summary = summary(&simulation, question, &asked, &snapshot);
    Ok(simulation)
}

/// What stands against taking nodes away by hand, node by node.
fn leaving_warnings(snapshot: &Snapshot, question: &Question) -> Result<Vec<String>, QuestionError> {
    let plan = Plan::default();
    let explainer = Explainer::new(snapshot, &plan);
    let mut warnings = Vec::new();
    for name in &question.remove {
        for node in question::machines(snapshot, name)?.nodes {
            let Some(answer) = explainer.node(&node) else { continue };
            let against = answer.blockers.iter().filter(|cause| stops_a_drain(cause.code));
            let against =
                against.map(|cause| format!("draining node {node} would be refused: {}", cause.text));
            warnings.extend(against.take(MOST_AGAINST));
        }
    }
    Ok(warnings)
}

/// Whether a reason against removal also stands against a drain by hand: what a pool wishes does not.
const fn stops_a_drain(code: Code) -> bool {
    matches!(
        code,
        Code::PodUnmovable
            | Code::SeveralBudgets
            | Code::BudgetExhausted
            | Code::NoPlace
            | Code::Held
            | Code::ScaleDownDisabled
    )
}

/// One row for each kind of pod without a place.
fn unplaced(explainer: &Explainer<'_>, plan: &Plan) -> Vec<UnplacedRow> {
    let mut rows: Vec<UnplacedRow> = Vec::new();
    let mut rest = plan.unplaced.clone();
    while let Some(first) = rest.first().cloned() {
        if rows.len() == MOST_EXPLAINED {
            break;
        }
        let Some(answer) = explainer.pod(&first) else { break };
        let PodAnswer { pod, headline, cause, alike, fixes, .. } = answer;
        let same: Vec<_> = explainer.alike(&pod, &rest);
        rest.retain(|other| *other != pod && !same.contains(other));
        rows.push(UnplacedRow {
            pods: alike,
            example: pod,
            code: cause.code,
            headline,
            fix: fixes.into_iter().next(),
        });
    }
    rows
}

fn phrase(question: &Question, asked: &question::Asked) -> String {
    let mut parts = asked.phrases.clone();
    if question.consolidate {
        parts.push("could it run on fewer machines?".to_owned());
    }
    if parts.is_empty() { "what would be done now?".to_owned() } else { parts.join("; ") }
}

fn summary(
    simulation: &Simulation,
    question: &Question,
    asked: &question::Asked,
    snapshot: &Snapshot,
) -> String {
    let Simulation { before, after, .. } = simulation;
    let plural =
        |count: usize, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    let mut text = Vec::new();
    let waiting = snapshot.cluster.pods.iter().filter(|pod| pod.is_pending()).count();
    if asked.displaced > 0 {
        let lose = if asked.displaced == 1 { "loses its node" } else { "lose their node" };
        text.push(format!("{} {lose}.", plural(asked.displaced, "pod")));
    }
    let placed = simulation.plan.placements.len();
    let on_old = simulation.plan.placements.iter().filter(|p| matches!(p.on, plan::Target::Node(_))).count();
    match (waiting, placed) {
        (0, _) => text.push("No pod waits for a node.".to_owned()),
        (all, placed) if placed == all && on_old == placed => {
            text.push(format!(
                "{} fit the nodes that are there; no new machine is needed.",
                capital(&all_of(all))
            ));
        }
        (all, placed) if placed == all => text.push(format!(
            "{} find a place: {on_old} on nodes that are there, {} on {}.",
            capital(&all_of(all)),
            placed - on_old,
            plural(simulation.plan.new_nodes.len(), "new node")
        )),
        (1, 0) => text.push("The waiting pod finds no place.".to_owned()),
        (all, 0) => text.push(format!("None of the {all} waiting pods finds a place.")),
        (all, placed) => text.push(format!(
            "{placed} of {all} waiting pods find a place, {} of them on {}; {} do not.",
            placed - on_old,
            plural(simulation.plan.new_nodes.len(), "new node"),
            all - placed
        )),
    }
    if let Some(pool) = &asked.bought {
        let bought = simulation.plan.new_nodes.iter().filter(|new| new.pool == *pool).count();
        let own = simulation.plan.new_nodes.len() - bought;
        let own =
            if own > 0 { format!(" beside {} that you own", plural(own, "machine")) } else { String::new() };
        text.push(format!("You would have to buy {}{own}.", plural(bought, "machine")));
    }
    if question.consolidate {
        match simulation.removals.len() {
            0 => text.push(
                "It could not run on fewer machines: something keeps every node (ask with --explain NODE)."
                    .to_owned(),
            ),
            gone => text.push(format!(
                "Yes: {} could go, {} would remain; {}.",
                plural(gone, "node"),
                after.nodes,
                match simulation.removals.iter().map(|row| row.moves).sum() {
                    0 => "no pod has to move".to_owned(),
                    1 => "1 pod moves".to_owned(),
                    pods => format!("{pods} pods move"),
                }
            )),
        }
    }
    if let Some(row) = simulation.unplaced.first() {
        text.push(format!("The main obstacle: {}.", row.headline.trim_end_matches('.')));
    }
    let money = after.price_per_hour_micros - before.price_per_hour_micros;
    if money != 0 && asked.bought.is_none() {
        let sign = if money > 0 { "more" } else { "less" };
        text.push(format!("It costs {} {sign} per hour.", muster_engine::explain::price(money.abs())));
    }
    text.join(" ")
}

fn all_of(count: usize) -> String {
    if count == 1 { "the waiting pod".to_owned() } else { format!("all {count} waiting pods") }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
