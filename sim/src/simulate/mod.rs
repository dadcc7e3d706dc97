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
mod summary;
mod svg;

pub use document::{SetAside, Source};
pub use load::{Loaded, load};
pub use packing::{Change, Packed, Totals};
pub use question::{Add, Question, QuestionError, Shape};
pub use report::{Colour, FORMAT, NewRow, Read, RemovalRow, Simulation, UnplacedRow};
pub use svg::draw;

use muster_engine::{
    Plan, Snapshot, audit, down,
    explain::{Code, Explainer, PodAnswer, Scene},
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
        read.notes.extend(consolidate::relax(&mut snapshot));
    }
    let mut plan = plan::scale_up(&snapshot).plan;
    let _ = down::complete(&snapshot, &mut plan);
    let (nodes_after, after) = packing::after(&snapshot, &plan);
    let findings: Vec<String> = audit(&snapshot, &plan).iter().map(ToString::to_string).collect();
    let scene = Scene::new(&snapshot, &plan);
    let explainer = Explainer::new(&scene);
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
    if asked.unpriced {
        simulation.forget_prices();
    }
    simulation.summary = summary::summary(&simulation, question, &asked, &snapshot);
    Ok(simulation)
}

/// What stands against taking nodes away by hand, node by node.
fn leaving_warnings(snapshot: &Snapshot, question: &Question) -> Result<Vec<String>, QuestionError> {
    let plan = Plan::default();
    let scene = Scene::new(snapshot, &plan);
    let explainer = Explainer::new(&scene);
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
fn unplaced(explainer: &Explainer<'_, '_>, plan: &Plan) -> Vec<UnplacedRow> {
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
