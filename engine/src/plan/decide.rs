//! From a snapshot to a plan for its pending pods.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{Pod, PodKey};

use super::{
    balance,
    draft::Draft,
    explain::{self, Report},
    headroom,
    offers::Ways,
    scene::{Pods, Room, Scene},
    translate::translate,
    types::Plan,
};
use crate::{
    snapshot::{Group, Snapshot},
    solve,
};

/// A plan and why it is so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    pub plan: Plan,
    pub report: Report,
}

/// Whether reasons are worked out. A plan without them is for measuring what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explain {
    Yes,
    No,
}

/// Plans machines for the pending pods of a snapshot. Nothing is removed.
pub fn scale_up(snapshot: &Snapshot) -> Decision {
    scale_up_with(snapshot, Explain::Yes)
}

/// As [`scale_up`], with or without reasons.
pub fn scale_up_with(snapshot: &Snapshot, explain: Explain) -> Decision {
    decide(snapshot, Pods::of(snapshot), explain)
}

/// Plans for these pods on the nodes of the snapshot; pods of the snapshot itself are not looked at.
pub(crate) fn decide<'a>(snapshot: &'a Snapshot, pods: Pods<'a>, explain: Explain) -> Decision {
    let ways = Ways::new(snapshot);
    let scene = Scene::new(snapshot, &ways, pods);
    let first = attempt(snapshot, &ways, &scene, explain);
    if !headroom::is_wanted(snapshot) {
        return first;
    }
    let kept = headroom::missing(snapshot, &ways, &scene, &first.plan);
    if kept.machines.is_empty() {
        let mut first = first;
        first.report.growth.extend(kept.growth);
        return first;
    }
    // The nodes kept free are there when pods are placed: they may open domains that close others.
    let mut roomy = scene.clone();
    for &way in &kept.machines {
        roomy.take(&ways, way, Room::Kept);
    }
    let mut second = attempt(snapshot, &ways, &roomy, explain);
    if second.plan.unplaced.len() > first.plan.unplaced.len() {
        // Pods come before room for pods to come.
        let mut first = first;
        first.report.growth.extend(kept.growth.into_iter().map(explain::PoolGrowth::none));
        return first;
    }
    second.report.growth.extend(kept.growth);
    second
}

/// Plans, leaving out groups that cannot run as a whole.
fn attempt(snapshot: &Snapshot, ways: &Ways, scene: &Scene<'_>, explain: Explain) -> Decision {
    let mut left_out: BTreeSet<usize> = BTreeSet::new();
    loop {
        let mut keys = Vec::new();
        let pending = scene.pending_without(snapshot, &left_out);
        let input = scene.input(&pending, snapshot, ways);
        let translated = translate(&input, &mut keys);
        let mut solution = solve::solve(&translated.problem);
        balance::spread_out(&translated.problem, ways, &scene.balance, &mut solution.machines);
        let draft = Draft { snapshot, ways, scene, pending: &pending, translated: &translated };
        let plan = draft.plan(&solution, &left_out);
        let Some(torn) = torn_group(snapshot, scene, &plan, &left_out) else {
            let report = match explain {
                Explain::Yes => explain::report(snapshot, ways, scene, &translated, &solution, &pending),
                Explain::No => Report::default(),
            };
            return Decision { plan, report };
        };
        left_out.insert(torn);
    }
}

/// The numeric problem that a snapshot poses, for bounds and measurements.
pub fn problem(snapshot: &Snapshot) -> solve::Problem {
    let ways = Ways::new(snapshot);
    let scene = Scene::new(snapshot, &ways, Pods::of(snapshot));
    let mut keys = Vec::new();
    let input = scene.input(&scene.pending, snapshot, &ways);
    translate(&input, &mut keys).problem
}

/// Of the groups of which some pods but not enough are placed, the one that gives way: the lowest priority,
/// then the most that is missing, then the last by name.
fn torn_group(
    snapshot: &Snapshot,
    scene: &Scene<'_>,
    plan: &Plan,
    left_out: &BTreeSet<usize>,
) -> Option<usize> {
    if snapshot.groups.is_empty() {
        return None;
    }
    let placed: BTreeSet<&PodKey> = plan.placements.iter().map(|placement| &placement.pod).collect();
    let running: BTreeSet<PodKey> = scene.running.iter().map(|running| running.pod.key()).collect();
    let pending: BTreeMap<PodKey, &Pod> = scene.pending.iter().map(|pod| (pod.key(), *pod)).collect();
    let torn = |(at, group): (usize, &Group)| {
        let new = group.pods.iter().filter(|pod| placed.contains(pod)).count();
        let old = group.pods.iter().filter(|pod| running.contains(*pod)).count();
        let missing = (group.min as usize).saturating_sub(new + old);
        if left_out.contains(&at) || new == 0 || missing == 0 {
            return None;
        }
        let priority = |key: &PodKey| pending.get(key).map(|pod| pod.spec.priority.unwrap_or(0));
        let highest = group.pods.iter().filter_map(priority).max().unwrap_or(0);
        Some(((std::cmp::Reverse(highest), missing, group.name.clone()), at))
    };
    snapshot.groups.iter().enumerate().filter_map(torn).max().map(|(_, at)| at)
}
