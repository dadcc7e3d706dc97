//! Consolidation by replacing: nodes whose pods fit nowhere else go for fewer or cheaper new ones.
//!
//! Tried only when nothing can simply be removed. Each trial is a plan of the whole cluster with the pods of
//! some nodes waiting, and what is accepted has passed the audit.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use muster_model::k8s::{Pod, PodKey, PodStatus};

use super::{
    Report, fate,
    pods::Fate,
    report::{Blocker, Outcome, Verdict},
};
use crate::{
    audit::audit,
    plan::{Explain, Placement, Plan, Removal, scale_up_with},
    snapshot::{MemberState, Snapshot, sum_of_prices},
};

/// Larger clusters are not tried: every trial plans the whole cluster.
const MAX_PODS: usize = 5_000;
/// Plans made in search of a replacement.
const TRIALS: usize = 16;
/// Most nodes that go at once.
const MAX_SET: usize = 8;
/// A replacement saves at least this share of what goes, or it is not worth the moves.
const MIN_SAVING_PERCENT: i64 = 5;

/// Fills in new nodes and removals, if some nodes can be replaced by less.
pub(crate) fn replace(snapshot: &Snapshot, report: &mut Report) {
    if snapshot.cluster.pods.len() > MAX_PODS || snapshot.cluster.pods.iter().any(Pod::is_pending) {
        return;
    }
    let mut nodes: Vec<(Reverse<i64>, &Arc<str>)> = Vec::new();
    for verdict in report.verdicts.iter().filter(|verdict| only_lacks_a_place(verdict)) {
        let Some(member) = snapshot.members.get(&verdict.node) else { continue };
        if snapshot.pool(&member.pool).is_some_and(|pool| pool.fixed.is_none()) && member.price > 0 {
            nodes.push((Reverse(member.price), &verdict.node));
        }
    }
    nodes.sort();
    let names: Vec<&Arc<str>> = nodes.into_iter().map(|(_, name)| name).collect();
    let together = (2..=names.len().min(MAX_SET)).rev().map(|size| names[..size].to_vec());
    let alone = names.iter().map(|name| vec![*name]);
    let mut best: Option<(i64, Plan)> = None;
    for set in together.chain(alone).take(TRIALS) {
        if let Some((saving, plan)) = trial(snapshot, &set)
            && best.as_ref().is_none_or(|(most, _)| saving > *most)
        {
            best = Some((saving, plan));
        }
    }
    let Some((_, plan)) = best else { return };
    for verdict in &mut report.verdicts {
        if plan.removals.iter().any(|removal| removal.node == verdict.node) {
            verdict.outcome = Outcome::Replaced;
        }
    }
    report.new_nodes = plan.new_nodes;
    report.removals = plan.removals;
}

fn only_lacks_a_place(verdict: &Verdict) -> bool {
    verdict.blockers.iter().all(|blocker| matches!(blocker, Blocker::NoPlace { .. }))
}

/// Plans the cluster without the nodes of the set; a plan that is worth it, with what it saves.
fn trial(snapshot: &Snapshot, set: &[&Arc<str>]) -> Option<(i64, Plan)> {
    let goes = |name: &str| set.iter().any(|gone| ***gone == *name);
    let mut without = snapshot.clone();
    let mut home: BTreeMap<PodKey, Arc<str>> = BTreeMap::new();
    for pod in &mut without.cluster.pods {
        let Some(name) = pod.spec.node_name.as_deref().filter(|name| goes(name)) else { continue };
        if fate(pod, snapshot.now) == Fate::Moves {
            home.insert(pod.key(), name.into());
            Arc::make_mut(&mut pod.spec).node_name = None;
            pod.status = PodStatus::default();
        }
    }
    for name in set {
        without.members.get_mut(*name)?.state = MemberState::Leaving;
    }
    let found = scale_up_with(&without, Explain::No).plan;
    let old = sum_of_prices(set.iter().map(|name| snapshot.members[*name].price));
    let new = sum_of_prices(found.new_nodes.iter().map(|node| node.price));
    let saving = old - new;
    if !found.unplaced.is_empty() || found.new_nodes.is_empty() || saving * 100 < old * MIN_SAVING_PERCENT {
        return None;
    }
    let mut moves: BTreeMap<&Arc<str>, Vec<Placement>> = BTreeMap::new();
    for placement in found.placements {
        moves.entry(home.get(&placement.pod)?).or_default().push(placement);
    }
    let removals = set
        .iter()
        .map(|name| Removal { node: (*name).clone(), moves: moves.remove(*name).unwrap_or_default() });
    let plan = Plan { new_nodes: found.new_nodes, removals: removals.collect(), ..Plan::default() };
    audit(snapshot, &plan).is_empty().then_some((saving, plan))
}
