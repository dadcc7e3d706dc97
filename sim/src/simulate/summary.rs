//! The answer as a paragraph.

use std::collections::BTreeSet;

use muster_engine::{Snapshot, explain, plan::Target};
use muster_model::k8s::PodKey;

use super::{
    question::{Asked, Question},
    report::Simulation,
};

/// What a person would say who had seen the tables.
pub(super) fn summary(
    simulation: &Simulation,
    question: &Question,
    asked: &Asked,
    snapshot: &Snapshot,
) -> String {
    let mut text = Vec::new();
    match asked.displaced.len() {
        0 => {}
        1 => text.push("1 pod loses its node.".to_owned()),
        pods => text.push(format!("{pods} pods lose their node.")),
    }
    let waiting: BTreeSet<PodKey> = snapshot
        .cluster
        .pods
        .iter()
        .filter(|pod| pod.is_pending())
        .map(muster_model::k8s::Pod::key)
        .collect();
    let before: BTreeSet<&PodKey> =
        waiting.iter().filter(|pod| !asked.displaced.contains(*pod) && !asked.added.contains(*pod)).collect();
    let groups = [
        (asked.displaced.iter().collect::<BTreeSet<_>>(), "of them"),
        (asked.added.iter().collect(), "added"),
        (before, "waiting"),
    ];
    if question.consolidate {
        text.extend(removals(simulation, question));
    }
    let mut said = false;
    for (pods, kind) in &groups {
        if !pods.is_empty() {
            text.push(places(simulation, pods, kind, said));
            said = true;
        }
    }
    if !said && !question.consolidate {
        text.push("No pod waits for a node.".to_owned());
    }
    if let Some(pool) = &asked.bought {
        let bought = simulation.plan.new_nodes.iter().filter(|new| new.pool == *pool).count();
        let own = simulation.plan.new_nodes.len() - bought;
        let own =
            if own > 0 { format!(" beside {} that you own", plural(own, "machine")) } else { String::new() };
        text.push(format!("You would have to buy {}{own}.", plural(bought, "machine")));
    }
    if !question.consolidate {
        text.extend(removals(simulation, question));
    }
    text.extend(obstacle(simulation, question, asked));
    let money =
        simulation.after.price_per_hour_micros.saturating_sub(simulation.before.price_per_hour_micros);
    if money != 0 && asked.bought.is_none() {
        let sign = if money > 0 { "more" } else { "less" };
        let amount = explain::money(money.saturating_abs(), question.currency.as_deref());
        text.push(format!("It costs {amount} {sign} per hour."));
    }
    text.join(" ")
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Where the pods of one kind go: `said` if others were spoken of before.
fn places(simulation: &Simulation, pods: &BTreeSet<&PodKey>, kind: &str, said: bool) -> String {
    let plan = &simulation.plan;
    let mine = || plan.placements.iter().filter(|placement| pods.contains(&placement.pod));
    let (all, placed) = (pods.len(), mine().count());
    let nodes: BTreeSet<u32> = mine()
        .filter_map(|placement| match placement.on {
            Target::New(at) => Some(at),
            Target::Node(_) => None,
        })
        .collect();
    let on_new = mine().filter(|placement| matches!(placement.on, Target::New(_))).count();
    let who = match kind {
        "of them" => plural(all, "pod"),
        "waiting" if said => format!("{} that waited before", plural(all, "pod")),
        kind => plural(all, &format!("{kind} pod")),
    };
    let new = plural(nodes.len(), "new node");
    match (placed, on_new) {
        (0, _) if all == 1 => format!("The {} finds no place.", who.trim_start_matches("1 ")),
        (0, _) => format!("None of the {who} finds a place."),
        (placed, 0) if placed == all && all == 1 => {
            format!("The {} fits a node that is there.", who.trim_start_matches("1 "))
        }
        (2, 0) if all == 2 => format!(
            "Both {} fit nodes that are there; no new machine is needed.",
            who.trim_start_matches("2 ")
        ),
        (placed, 0) if placed == all => {
            format!("All {who} fit the nodes that are there; no new machine is needed.")
        }
        (placed, on_new) if placed == all && on_new == all => format!("All {who} find a place, on {new}."),
        (placed, on_new) if placed == all => {
            format!("All {who} find a place: {} on nodes that are there, {on_new} on {new}.", placed - on_new)
        }
        (placed, 0) => {
            format!("{placed} of {who} fit the nodes that are there; {} find no place.", all - placed)
        }
        (placed, on_new) => {
            format!("{placed} of {who} find a place, {on_new} on {new}; {} do not.", all - placed)
        }
    }
}

fn removals(simulation: &Simulation, question: &Question) -> Option<String> {
    let gone = simulation.removals.len();
    let moved = match simulation.removals.iter().map(|row| row.moves).sum() {
        0 => "no pod has to move".to_owned(),
        1 => "1 pod moves".to_owned(),
        pods => format!("{pods} pods move"),
    };
    let left = simulation.after.nodes;
    let fresh = match simulation.plan.new_nodes.len() {
        new if new > 0 && simulation.plan.placements.is_empty() => {
            format!(" for {}", plural(new, "new one"))
        }
        _ => String::new(),
    };
    match (gone, question.consolidate) {
        (0, true) => Some(
            "It could not run on fewer machines: something keeps every node (ask with --explain NODE)."
                .to_owned(),
        ),
        (0, false) => None,
        (gone, true) => {
            Some(format!("Yes: {} could go{fresh}, {left} would remain; {moved}.", plural(gone, "node")))
        }
        (1, false) => Some(format!("1 node is not needed any more{fresh} and goes; {moved}.")),
        (gone, false) => Some(format!("{gone} nodes are not needed any more{fresh} and go; {moved}.")),
    }
}

/// What stands in the way of the pods that were asked about, or of those that waited before.
fn obstacle(simulation: &Simulation, question: &Question, asked: &Asked) -> Option<String> {
    let about = |pod: &PodKey| asked.added.contains(pod) || asked.displaced.contains(pod);
    let rows = &simulation.unplaced;
    let mine = rows.iter().find(|row| about(&row.example));
    let (row, whose) = match mine {
        Some(row) => (row, "The main obstacle"),
        None if question.consolidate => (rows.first()?, "What keeps the waiting pods"),
        None if asked.added.is_empty() && asked.displaced.is_empty() => (rows.first()?, "The main obstacle"),
        None => (rows.first()?, "What keeps those that waited before"),
    };
    Some(format!("{whose}: {}.", row.headline.trim_end_matches('.')))
}
