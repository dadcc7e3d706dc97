//! What the cluster's own users are told, on their pods and nodes: word for word what `explain` says.

use std::collections::HashMap;

use muster_engine::{
    explain::Explainer,
    plan::Target,
    snapshot::{Mode, Snapshot},
};
use muster_model::{
    k8s::PodKey,
    observe::{About, Note},
};

use super::Decided;

/// Notes of one plan: as many as the adapter writes at once. A burst that is larger is told of over the next plans.
const MOST_NOTES: usize = 100;

/// The notes that a plan gives rise to, those that a person can act on first.
pub(super) fn notes(snapshot: &Snapshot, decided: &Decided) -> Vec<Note> {
    let plan = &decided.plan;
    let explainer = Explainer::new(snapshot, plan);
    let uids: HashMap<PodKey, &str> =
        snapshot.cluster.pods.iter().map(|pod| (pod.key(), &*pod.metadata.uid)).collect();
    let acts = |pool: &str| snapshot.pool(pool).is_some_and(|pool| pool.mode == Mode::Act);
    let mut notes = Vec::new();
    let mut tell = |key: &PodKey, warning: bool, reason: &str| {
        if notes.len() < MOST_NOTES
            && let (Some(uid), Some(answer)) = (uids.get(key), explainer.pod(key))
        {
            notes.push(Note {
                about: About::Pod { key: key.clone(), uid: (*uid).to_owned() },
                warning,
                reason: reason.to_owned(),
                message: answer.headline,
            });
        }
    };
    for pod in &plan.unplaced {
        tell(pod, true, "NotTriggerScaleUp");
    }
    for placement in &plan.placements {
        let Target::New(number) = placement.on else { continue };
        let new = usize::try_from(number).ok().and_then(|number| plan.new_nodes.get(number));
        let reason =
            if new.is_some_and(|new| acts(&new.pool)) { "TriggeredScaleUp" } else { "ScaleUpAdvised" };
        tell(&placement.pod, false, reason);
    }
    for removal in &plan.removals {
        let node = snapshot.cluster.nodes.iter().find(|node| node.name() == &*removal.node);
        let (Some(node), Some(answer)) = (node, explainer.node(&removal.node)) else { continue };
        let member = snapshot.members.get(&removal.node);
        let reason =
            if member.is_some_and(|member| acts(&member.pool)) { "ScaleDown" } else { "ScaleDownAdvised" };
        notes.push(Note {
            about: About::Node { name: node.name().to_owned(), uid: node.metadata.uid.to_string() },
            warning: false,
            reason: reason.to_owned(),
            message: answer.headline,
        });
    }
    notes
}
