//! Could the cluster run on fewer machines? Nodes are given up one after the other, least used first.

use std::sync::Arc;

use muster_engine::{
    Plan, Snapshot,
    explain::{Code, Explainer},
    fit::{requests, selector},
    plan::{Placement, Removal, Target},
};
use muster_model::k8s::Node;

/// Nodes that are tried: each trial looks at the whole cluster.
const MOST_TRIED: usize = 400;

/// Removals that the audit lets pass, and the snapshot after them. Delays and marks are not asked: the
/// question is what could be, not what is done now.
pub(super) fn fewer(snapshot: &Snapshot) -> (Vec<Removal>, Snapshot, Vec<String>) {
    let mut after = snapshot.clone();
    let (mut removals, mut notes) = (Vec::new(), Vec::new());
    let mut order: Vec<(i64, Arc<str>)> =
        after.cluster.nodes.iter().map(|node| (share(&after, node), node.metadata.name.clone())).collect();
    order.sort();
    if order.len() > MOST_TRIED {
        notes.push(format!("only the {MOST_TRIED} least used of {} nodes were tried", order.len()));
        order.truncate(MOST_TRIED);
    }
    let nothing = Plan::default();
    for (_, name) in order {
        let Some(answer) = Explainer::new(&after, &nothing).node(&name) else { continue };
        let waits = |code: Code| matches!(code, Code::TooSoon | Code::AboveMark);
        if answer.blockers.iter().any(|cause| !waits(cause.code)) {
            continue;
        }
        let moves =
            answer.moves.into_iter().map(|step| Placement { pod: step.pod, on: Target::Node(step.to) });
        let removal = Removal { node: name.clone(), moves: moves.collect() };
        give_up(&mut after, &removal);
        removals.push(removal);
    }
    (removals, after, notes)
}

/// The share of the dominant resource that is requested, in thousandths.
fn share(snapshot: &Snapshot, node: &Node) -> i64 {
    let mut used = muster_engine::fit::Amounts::default();
    for pod in &snapshot.cluster.pods {
        if pod.spec.node_name.as_deref() == Some(node.name()) && !pod.is_finished() {
            used.add(&requests::of_bound(pod));
        }
    }
    let all = muster_engine::fit::Amounts::capacity(&node.status.allocatable);
    let cpu = used.milli_cpu * 1000 / all.milli_cpu.max(1);
    let memory =
        i64::try_from(i128::from(used.memory) * 1000 / i128::from(all.memory.max(1))).unwrap_or(i64::MAX);
    cpu.max(memory)
}

fn give_up(snapshot: &mut Snapshot, removal: &Removal) {
    for step in &removal.moves {
        let Target::Node(to) = &step.on else { continue };
        let Some(pod) = snapshot.cluster.pods.iter_mut().find(|pod| pod.key() == step.pod) else { continue };
        Arc::make_mut(&mut pod.spec).node_name = Some((&**to).into());
        let (namespace, labels) = (pod.metadata.namespace.clone(), pod.metadata.labels.clone());
        for budget in &mut snapshot.cluster.budgets {
            if budget.metadata.namespace == namespace
                && selector::selects(budget.spec.selector.as_ref(), &labels)
            {
                budget.status.disruptions_allowed =
                    budget.status.disruptions_allowed.map(|allowed| allowed - 1);
            }
        }
    }
    snapshot.cluster.pods.retain(|pod| pod.spec.node_name.as_deref() != Some(&*removal.node));
    snapshot.cluster.nodes.retain(|node| node.metadata.name != removal.node);
    snapshot.members.remove(&removal.node);
}
