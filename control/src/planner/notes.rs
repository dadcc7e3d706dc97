//! What the cluster's own users are told, on their pods, nodes and pools: word for word what `explain` says.

use std::collections::HashMap;

use muster_engine::{
    explain::{Code, Explainer, Scene},
    plan::{Plan, Target},
    snapshot::{Mode, Snapshot},
};
use muster_model::{
    PoolId,
    cluster::Cluster,
    k8s::PodKey,
    observe::{About, Note},
};

/// Notes of one plan: as many as the adapter writes at once. A burst that is larger is told of over the next plans.
const MOST_NOTES: usize = 100;
/// Pools that are looked at for notes; a cluster with more than this has its operators look at pages.
const MOST_POOLS: usize = 200;

/// The notes that a plan gives rise to, those that a person can act on first.
pub(super) fn notes(cluster: &Cluster, ids: &PoolIds, snapshot: &Snapshot, plan: &Plan) -> Vec<Note> {
    let scene = Scene::new(snapshot, plan);
    let explainer = Explainer::new(&scene);
    let uids: HashMap<PodKey, &str> =
        snapshot.cluster.pods.iter().map(|pod| (pod.key(), &*pod.metadata.uid)).collect();
    let acts = |pool: &str| snapshot.pool(pool).is_some_and(|pool| pool.mode == Mode::Act);
    let mut notes = pools(cluster, ids, snapshot, plan, &explainer);
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

/// The pools of a cluster by their names at the moment of the plan.
pub(super) type PoolIds = HashMap<Box<str>, PoolId>;

/// Notes on the pools that grow or shrink, and on those that should and cannot.
fn pools(
    cluster: &Cluster,
    ids: &PoolIds,
    snapshot: &Snapshot,
    plan: &Plan,
    explainer: &Explainer<'_, '_>,
) -> Vec<Note> {
    let told = snapshot.pools.iter().take(MOST_POOLS).filter_map(|pool| {
        let (code, headline) = explainer.pool_headline(&pool.name)?;
        let acts = pool.mode == Mode::Act;
        let (warning, reason) = match code {
            Code::Grows => (false, if acts { "TriggeredScaleUp" } else { "ScaleUpAdvised" }),
            Code::Shrinks => (false, if acts { "ScaleDown" } else { "ScaleDownAdvised" }),
            Code::Overdue => (true, "NodesOverdue"),
            Code::Steady => return None,
            // What keeps a pool from growing is news only to somebody who waits for it.
            _ if plan.unplaced.is_empty() => return None,
            _ => (true, "CannotGrow"),
        };
        let about = About::Pool {
            project: cluster.project.to_string(),
            cluster: cluster.name.to_string(),
            pool: pool.name.to_string(),
            id: *ids.get(&*pool.name)?,
        };
        Some(Note { about, warning, reason: reason.to_owned(), message: headline })
    });
    told.collect()
}
