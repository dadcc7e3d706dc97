//! Growth without pending pods: a trigger that asks for it, or a pool above its high mark for long enough.
//!
//! The order of reasons is pending pods, then triggers, then marks. A step is one node; pending pods use the
//! same node, so that they are not counted twice, and a pool whose last step is still on its way waits.

use muster_model::{Duration, Timestamp, k8s::Pod};
use serde::Serialize;

use super::usage::Share;
use crate::{
    fit::{Amounts, requests},
    snapshot::{MemberState, Pool, Snapshot, Trigger},
};

/// Why a pool grows by one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "reason")]
pub enum Step {
    /// The pool's trigger asks for growth.
    Trigger,
    /// Requests have been above the high mark for the whole delay.
    HighMark { share: Share, mark: u32, since: Timestamp, required: Duration },
}

/// A trigger that asks for more, and whose metric had no time yet to show the pool's youngest node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsettled {
    /// Since when that node serves.
    pub since: Timestamp,
    pub required: Duration,
    /// When the trigger is believed again.
    pub until: Timestamp,
}

/// Why a pool whose trigger asks for more waits with it, if it does.
pub fn unsettled(snapshot: &Snapshot, pool: &Pool) -> Option<Unsettled> {
    let required = pool.demand.trigger_settles;
    if pool.demand.trigger != Some(Trigger::Up) || required == Duration::ZERO {
        return None;
    }
    let ours = |node: &str| snapshot.members.get(node).is_some_and(|member| member.pool == pool.name);
    let nodes = snapshot.cluster.nodes.iter().filter(|node| ours(node.name()));
    let since = nodes.filter_map(|node| node.metadata.creation_timestamp).max()?;
    let until = since.saturating_add(required);
    (snapshot.now < until).then_some(Unsettled { since, required, until })
}

/// The step that a pool asks for now, beside what pending pods need.
pub fn step(snapshot: &Snapshot, pool: &Pool) -> Option<Step> {
    step_among(snapshot, pool, || bound(snapshot))
}

/// As [`step`]; `bound` are pods with the name of their node and how many like them are there.
pub(crate) fn step_among<'p, I: Iterator<Item = (&'p Pod, &'p str, u32)>>(
    snapshot: &Snapshot,
    pool: &Pool,
    bound: impl FnOnce() -> I,
) -> Option<Step> {
    let demand = &pool.demand;
    let high = demand.target_cpu_percent.is_some() || demand.target_memory_percent.is_some();
    if pool.fixed.is_some() || (demand.trigger != Some(Trigger::Up) && !(high && demand.high_since.is_some()))
    {
        return None;
    }
    let mut members = snapshot.members.values().filter(|member| member.pool == pool.name);
    if members.any(|member| matches!(member.state, MemberState::Upcoming { .. })) {
        return None;
    }
    if demand.trigger == Some(Trigger::Up) && unsettled(snapshot, pool).is_none() {
        return Some(Step::Trigger);
    }
    let since = demand.high_since?;
    if snapshot.now.since(since) < demand.scale_up_delay {
        return None;
    }
    let (share, mark) = mark_among(snapshot, pool, bound())?;
    Some(Step::HighMark { share, mark, since, required: demand.scale_up_delay })
}

/// What the pool asks for above one of its high marks, and that mark. Whoever observes the pool remembers
/// since when there is one.
pub fn above_mark(snapshot: &Snapshot, pool: &Pool) -> Option<(Share, u32)> {
    mark_among(snapshot, pool, bound(snapshot))
}

/// Running pods with the name of their node, one by one.
fn bound(snapshot: &Snapshot) -> impl Iterator<Item = (&Pod, &str, u32)> {
    let running = snapshot.cluster.pods.iter().filter(|pod| !pod.is_finished());
    running.filter_map(|pod| Some((pod, pod.spec.node_name.as_deref()?, 1)))
}

fn mark_among<'p>(
    snapshot: &Snapshot,
    pool: &Pool,
    bound: impl Iterator<Item = (&'p Pod, &'p str, u32)>,
) -> Option<(Share, u32)> {
    let demand = &pool.demand;
    let [cpu, memory] = shares(snapshot, pool, bound);
    let marks = [(cpu, demand.target_cpu_percent), (memory, demand.target_memory_percent)];
    marks.into_iter().find_map(|(share, mark)| {
        let mark = mark?;
        let above = i128::from(share.used) * 100 > i128::from(share.allocatable) * i128::from(mark);
        above.then_some((share, mark))
    })
}

/// What the pods on a pool's nodes ask for of cpu and memory, against what the nodes hold.
fn shares<'p>(
    snapshot: &Snapshot,
    pool: &Pool,
    bound: impl Iterator<Item = (&'p Pod, &'p str, u32)>,
) -> [Share; 2] {
    let ours = |node: &str| {
        let member = snapshot.members.get(node);
        member.is_some_and(|member| member.pool == pool.name && member.state != MemberState::Leaving)
    };
    let (mut used, mut whole) = (Amounts::default(), Amounts::default());
    for node in snapshot.cluster.nodes.iter().filter(|node| ours(node.name())) {
        whole.add(&Amounts::capacity(&node.status.allocatable));
    }
    for (pod, _, count) in bound.filter(|(_, node, _)| ours(node)) {
        let one = requests::of_bound(pod);
        for _ in 0..count {
            used.add(&one);
        }
    }
    [
        Share { resource: "cpu".into(), used: used.milli_cpu, allocatable: whole.milli_cpu },
        Share { resource: "memory".into(), used: used.memory, allocatable: whole.memory },
    ]
}
