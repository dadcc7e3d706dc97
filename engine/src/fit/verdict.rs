//! The verdict on one pod over all nodes, and the message the scheduler would write.

use std::collections::BTreeMap;

use muster_model::k8s::Pod;

use super::{Amounts, Cycle, Plugin, Refusal, Rejection, World};

/// What the scheduler would say about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub request: Amounts,
    /// Nodes that pass every filter, ascending.
    pub fits: Vec<usize>,
    /// All other nodes, ascending.
    pub failures: Vec<Failure>,
    /// Set if the pod was rejected as a whole; then every node failed with it.
    pub whole: Option<Refusal>,
    /// The scheduler's summary, if no node fits.
    pub message: Option<String>,
}

/// Why one node does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub node: usize,
    /// The plugin that refused the node in a normal cycle.
    pub first: Refusal,
    /// Every plugin that refuses the node when it runs alone.
    pub all: BTreeMap<Plugin, Rejection>,
}

/// Judges a pod on every node of the world, every plugin alone as well.
pub fn judge<'a>(world: &World<'a>, pod: &'a Pod) -> Verdict {
    let cycle = Cycle::new(world, pod);
    let (mut fits, mut failures) = (Vec::new(), Vec::new());
    for node in world.present() {
        let Some(first) = cycle.refusal(node) else {
            fits.push(node);
            continue;
        };
        let alone = |plugin: Plugin| Some((plugin, cycle.alone(plugin, node)?));
        failures.push(Failure { node, first, all: Plugin::ORDER.into_iter().filter_map(alone).collect() });
    }
    let whole = cycle.whole();
    let message = fits.is_empty().then(|| message(world.present().count(), &failures, whole.as_ref()));
    Verdict { request: cycle.request().clone(), fits, failures, whole, message }
}

/// Each reason with the number of nodes it was given for, sorted as text; a pod that was rejected as a
/// whole has one reason without a number.
fn message(nodes: usize, failures: &[Failure], whole: Option<&Refusal>) -> String {
    let mut text = format!("0/{nodes} nodes are available:");
    if let Some(whole) = whole {
        return format!("{text} {}.", whole.rejection.reasons.join(", "));
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in failures.iter().flat_map(|failure| &failure.first.rejection.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    if !parts.is_empty() {
        text = format!("{text} {}.", parts.join(", "));
    }
    text
}
