//! Pods that wait, grouped by why they wait, with the change that would help each group.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use muster_engine::{
    Snapshot,
    explain::{Code, Explainer, Fix, PatchKind, PodAnswer, Scene, say, text},
    fit::requests,
};
use muster_model::{
    ClusterId, Timestamp,
    k8s::{Pod, PodKey},
};
use serde::Serialize;
use serde_json::Value;

use crate::planner::View;

/// Kinds of pods that are explained; the rest is counted in one last group.
const MOST_KINDS: usize = 50;
/// Pods that a group names.
const MOST_PODS: usize = 100;
/// Pools that a group compares.
const MOST_POOLS: usize = 20;
/// Fixes that a group offers.
const MOST_FIXES: usize = 3;

/// Pods that wait for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PendingGroup {
    /// The first line of what `muster explain pod` says about the example.
    pub headline: String,
    /// All of it.
    pub text: String,
    pub code: Code,
    /// The object and the field that decide.
    pub object: String,
    pub field: String,
    /// Whether a place is on its way; otherwise somebody has to do something.
    pub helped: bool,
    pub count: usize,
    pub example: PodKey,
    pub oldest: Timestamp,
    /// The first of them.
    pub pods: Vec<PendingPod>,
    /// What each asks for, in words, by resource.
    pub requests: BTreeMap<String, String>,
    pub pools: Vec<Gap>,
    pub next: Vec<String>,
    pub fixes: Vec<Remedy>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PendingPod {
    pub namespace: String,
    pub name: String,
    pub since: Timestamp,
}

/// What one pool lacks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    pub pool: String,
    pub code: Code,
    pub observed: String,
    pub required: String,
    pub margin: String,
    pub text: String,
}

/// A change that would help, and how many pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    pub object: String,
    pub field: String,
    pub text: String,
    pub patch: Value,
    pub kind: PatchKind,
    pub helps: u32,
    /// Whose template makes the pod, like `deployment/web`: a pod that exists takes no such change itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_of: Option<String>,
}

impl Remedy {
    fn new(fix: Fix, template_of: Option<&String>) -> Self {
        let Fix { object, field, text, patch, kind, helps } = fix;
        let template_of = template_of.filter(|_| object.starts_with("pods/")).cloned();
        Self { object, field, text, patch, kind, helps, template_of }
    }
}

/// Whose template has to be changed to change a pod; none for a pod that nobody makes again, or whose template cannot be
/// changed, as a Job's.
fn template_of(pod: &Pod, snapshot: &Snapshot) -> Option<String> {
    let owner = pod.metadata.controller()?;
    let above = snapshot
        .cluster
        .replica_sets
        .iter()
        .filter(|set| *owner.kind == *"ReplicaSet" && set.metadata.namespace == pod.metadata.namespace)
        .find(|set| *set.metadata.name == *owner.name)
        .and_then(|set| set.metadata.controller())
        .filter(|above| *above.kind == *"Deployment");
    let maker = above.unwrap_or(owner);
    let known = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"];
    known.contains(&&*maker.kind).then(|| format!("{}/{}", maker.kind.to_lowercase(), maker.name))
}

/// The groups of the last look at each cluster, so that several pages cost one explanation.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<BTreeMap<ClusterId, Remembered>>);

#[derive(Debug)]
struct Remembered {
    view: std::sync::Weak<View>,
    groups: Arc<Vec<PendingGroup>>,
}

impl Known {
    pub(super) fn of(&self, cluster: ClusterId, view: &Arc<View>) -> Arc<Vec<PendingGroup>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&cluster)
            && found.view.upgrade().is_some_and(|seen| Arc::ptr_eq(&seen, view))
        {
            return Arc::clone(&found.groups);
        }
        let groups = Arc::new(groups(view));
        known.insert(cluster, Remembered { view: Arc::downgrade(view), groups: Arc::clone(&groups) });
        groups
    }
}

fn groups(view: &View) -> Vec<PendingGroup> {
    let (snapshot, plan) = (&view.snapshot, &view.plan);
    let scene = Scene::new(snapshot, plan);
    let explainer = Explainer::new(&scene);
    let pods: BTreeMap<PodKey, &Pod> = snapshot.cluster.pods.iter().map(|pod| (pod.key(), pod)).collect();
    let placed = plan.placements.iter().map(|placement| placement.pod.clone());
    // Those that no plan helps first: they are explained even when there are too many kinds.
    let queues = [(false, plan.unplaced.clone()), (true, placed.collect::<Vec<_>>())];
    let mut groups: Vec<PendingGroup> = Vec::new();
    let mut kinds = 0;
    for (helped, mut rest) in queues {
        while let Some(first) = rest.first().cloned() {
            if kinds == MOST_KINDS {
                groups.extend(others(&rest, &pods, snapshot.now, helped));
                break;
            }
            kinds += 1;
            let mut alike = explainer.alike(&first, &rest);
            if alike.is_empty() {
                alike.push(first.clone());
            }
            rest.retain(|pod| !alike.contains(pod));
            let Some(answer) = explainer.pod(&first) else { continue };
            add(&mut groups, answer, &alike, &pods, snapshot, helped);
        }
    }
    let helps = |group: &PendingGroup| group.fixes.first().map_or(0, |fix| fix.helps);
    groups.sort_by(|a, b| {
        let key = |group: &PendingGroup| (!group.helped, helps(group), group.count);
        key(b).cmp(&key(a)).then_with(|| a.example.cmp(&b.example))
    });
    groups
}

/// One more kind of pods: into the group that waits for the same, or a group of its own.
fn add(
    groups: &mut Vec<PendingGroup>,
    answer: PodAnswer,
    alike: &[PodKey],
    pods: &BTreeMap<PodKey, &Pod>,
    snapshot: &Snapshot,
    helped: bool,
) {
    let now = snapshot.now;
    let listed = |key: &PodKey| PendingPod {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        since: since(pods.get(key).copied(), now),
    };
    let oldest = alike.iter().map(|key| since(pods.get(key).copied(), now)).min().unwrap_or(now);
    let same = groups.iter_mut().find(|group| {
        (group.code, group.helped) == (answer.cause.code, helped)
            && (&group.object, &group.field) == (&answer.cause.object, &answer.cause.field)
            && group.fixes.first().map(|fix| &fix.patch) == answer.fixes.first().map(|fix| &fix.patch)
    });
    if let Some(group) = same {
        group.count += alike.len();
        group.oldest = group.oldest.min(oldest);
        let room = MOST_PODS.saturating_sub(group.pods.len());
        group.pods.extend(alike.iter().take(room).map(listed));
        // The same change serves the pods of both kinds.
        for (own, other) in group.fixes.iter_mut().zip(&answer.fixes) {
            if own.patch == other.patch {
                own.helps = own.helps.saturating_add(other.helps);
            }
        }
        return;
    }
    let words = text::render(&muster_engine::explain::Answer::Pod(Box::new(answer.clone())));
    let requests = pods.get(&answer.pod).map(|pod| requests::of_pending(pod)).unwrap_or_default();
    let maker = pods.get(&answer.pod).and_then(|pod| template_of(pod, snapshot));
    groups.push(PendingGroup {
        headline: answer.headline,
        text: words,
        code: answer.cause.code,
        object: answer.cause.object,
        field: answer.cause.field,
        helped,
        count: alike.len(),
        oldest,
        pods: alike.iter().take(MOST_PODS).map(listed).collect(),
        requests: requests.entries().map(|(name, amount)| (name.to_owned(), say(name, amount))).collect(),
        pools: answer
            .pools
            .into_iter()
            .take(MOST_POOLS)
            .map(|row| Gap {
                pool: row.pool.to_string(),
                code: row.cause.code,
                observed: row.cause.observed,
                required: row.cause.required,
                margin: row.cause.margin,
                text: row.cause.text,
            })
            .collect(),
        next: answer.next.into_iter().map(|next| next.text).collect(),
        fixes: answer
            .fixes
            .into_iter()
            .take(MOST_FIXES)
            .map(|fix| Remedy::new(fix, maker.as_ref()))
            .collect(),
        example: answer.pod,
    });
}

/// Kinds beyond those that are explained, as one group.
fn others(
    rest: &[PodKey],
    pods: &BTreeMap<PodKey, &Pod>,
    now: Timestamp,
    helped: bool,
) -> Option<PendingGroup> {
    let example = rest.first()?.clone();
    let headline =
        format!("{} more pods wait; after {MOST_KINDS} kinds, ask about one by its name", rest.len());
    Some(PendingGroup {
        text: headline.clone(),
        headline,
        code: Code::Unknown,
        object: format!("pods/{example}"),
        field: String::new(),
        helped,
        count: rest.len(),
        oldest: rest.iter().map(|key| since(pods.get(key).copied(), now)).min().unwrap_or(now),
        pods: Vec::new(),
        requests: BTreeMap::new(),
        pools: Vec::new(),
        next: Vec::new(),
        fixes: Vec::new(),
        example,
    })
}

fn since(pod: Option<&Pod>, now: Timestamp) -> Timestamp {
    pod.and_then(|pod| pod.metadata.creation_timestamp).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use muster_model::k8s::{Objects, ReplicaSet};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_makes_a_pod_is_what_has_to_be_changed() {
        let owned = |kind: &str, name: &str| json!([{"kind": kind, "name": name, "controller": true}]);
        let set = |name: &str, owners: Value| -> ReplicaSet {
            let metadata = json!({"namespace": "shop", "name": name, "ownerReferences": owners});
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let replica_sets = vec![set("web-7f9c", owned("Deployment", "web")), set("bare", json!([]))];
        let snapshot =
            Snapshot { cluster: Objects { replica_sets, ..Objects::default() }, ..Snapshot::default() };
        let check = |owners: Value, expected: Option<&str>| {
            let metadata = json!({"namespace": "shop", "name": "p", "ownerReferences": owners});
            let pod: Pod = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            assert_eq!(template_of(&pod, &snapshot).as_deref(), expected);
        };
        check(owned("ReplicaSet", "web-7f9c"), Some("deployment/web"));
        check(owned("ReplicaSet", "bare"), Some("replicaset/bare"));
        check(owned("StatefulSet", "db"), Some("statefulset/db"));
        check(owned("Job", "once"), None);
        check(json!([]), None);
    }
}
