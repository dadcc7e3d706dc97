//! Why pods found no place: per class and pool, never per pod.

use std::sync::Arc;

use muster_model::k8s::{Pod, PodKey};
use serde::Serialize;

use super::{
    offers::{HostRefusal, LimitName, Ways, refusal},
    scene::Scene,
    translate::Translated,
};
use crate::{
    down::Step,
    snapshot::{Mode, Scope, Snapshot, Stops},
    solve::{End, Problem, Refusal, Solution, Wishes, judge_end, wishes},
};

/// What the planner has to say beside the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Units of work that the search spent.
    pub effort: u64,
    /// Number of classes of pending pods.
    pub classes: usize,
    /// Classes with pods that found no place.
    pub unplaced: Vec<ClassReport>,
    /// Pools that grow for another reason than pending pods.
    pub growth: Vec<PoolGrowth>,
    /// Hosts that were not considered.
    pub hosts: Vec<(String, HostRefusal)>,
    pub preferences: Preferences,
}

/// Why a pool grows although no pod asks for it, and by how much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolGrowth {
    pub pool: String,
    /// Nodes that are called up for it.
    pub nodes: u32,
    /// Nodes that it asks for and that are not to be had.
    pub missing: u32,
    pub why: Growth,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "reason")]
pub enum Growth {
    /// The pool's minimum.
    Minimum { min: u32 },
    /// The size of a pool that does not scale.
    Fixed { size: u32 },
    /// A trigger, or the high mark.
    Step { step: Step },
    /// Room to keep free; `short` says what would be missing without the nodes.
    Headroom { short: String },
}

impl PoolGrowth {
    /// The same wish, with nothing called up for it.
    pub(crate) fn none(self) -> Self {
        Self { nodes: 0, missing: self.nodes + self.missing, ..self }
    }
}

/// Preferences of placed pods, and how many of them hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Preferences {
    pub stated: u64,
    pub kept: u64,
}

/// Why the pods of one class found no place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassReport {
    /// The first of them.
    pub example: PodKey,
    pub pods: u32,
    /// How many nodes refuse the class for which reason, after the plan was carried out.
    pub nodes: Vec<(Reason, u32)>,
    pub pools: Vec<PoolReason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolReason {
    pub pool: String,
    pub reason: Reason,
}

/// The first thing that fails, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Reason {
    /// The pool's template is not known.
    NoTemplate,
    Frozen,
    Held,
    /// No machine is left of those that would do.
    NoSupply,
    /// A limit is reached.
    Limit {
        limit: String,
    },
    /// Taints, node affinity, selectors, features: no template of the pool admits the pod.
    Incompatible,
    /// The best machine lacks this much.
    Room {
        lane: Arc<str>,
        wanted: i64,
        most: i64,
    },
    Skew,
    Forbidden,
    Lonely,
    /// It would fit on its own; it was left out as part of a group or for what others need.
    Crowded,
}

pub(crate) fn report(
    snapshot: &Snapshot,
    ways: &Ways,
    scene: &Scene<'_>,
    translated: &Translated<'_>,
    solution: &Solution,
    pending: &[&Pod],
) -> Report {
    let problem = &translated.problem;
    let stock = left_over(problem, solution);
    let unplaced = if solution.unplaced.is_empty() {
        Vec::new()
    } else {
        let end = judge_end(problem, solution);
        let names =
            Names { translated, lanes: translated.lanes.iter().map(|lane| (**lane).into()).collect() };
        solution
            .unplaced
            .iter()
            .map(|&(class, pods)| {
                // The first members of a class are placed, the last ones are left over.
                let members = &translated.classes[class as usize].members;
                let member = members[members.len() - pods as usize];
                ClassReport {
                    example: pending[member as usize].key(),
                    pods,
                    nodes: names.tally(&end, class),
                    pools: pool_reasons(snapshot, ways, &names, class, &stock),
                }
            })
            .collect()
    };
    let hosts = snapshot
        .hosts
        .iter()
        .filter_map(|host| Some((host.name.to_string(), refusal(snapshot, host)?)))
        .filter(|(_, why)| *why != HostRefusal::InUse)
        .collect();
    Report {
        effort: solution.effort,
        classes: translated.classes.len(),
        unplaced,
        growth: scene.growth.clone(),
        hosts,
        preferences: {
            let Wishes { stated, kept } = wishes(problem, solution);
            Preferences { stated, kept }
        },
    }
}

/// Reasons by name. The names of lanes are shared by all of them.
struct Names<'t, 'a> {
    translated: &'t Translated<'a>,
    lanes: Vec<Arc<str>>,
}

impl Names<'_, '_> {
    /// How many nodes refuse the class for which reason.
    fn tally(&self, end: &End<'_>, class: u32) -> Vec<(Reason, u32)> {
        let mut nodes: Vec<(Reason, u32)> = Vec::new();
        end.tally(class, |refusal, count| {
            let reason = self.name(class, refusal);
            match nodes.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, nodes)) => *nodes += count,
                None => nodes.push((reason, count)),
            }
        });
        nodes.sort_unstable();
        nodes
    }

    fn name(&self, class: u32, refusal: Refusal) -> Reason {
        match refusal {
            Refusal::Incompatible => Reason::Incompatible,
            Refusal::Forbidden { .. } => Reason::Forbidden,
            Refusal::Room { lane } => Reason::Room {
                lane: self.lanes[lane as usize].clone(),
                wanted: self.translated.problem.classes[class as usize].request[lane as usize],
                most: 0,
            },
            Refusal::Skew { .. } => Reason::Skew,
            Refusal::Lonely => Reason::Lonely,
        }
    }
}

/// What is left of each shape and each limit once the plan is carried out.
struct LeftOver {
    supply: Vec<u32>,
    budgets: Vec<i64>,
}

fn left_over(problem: &Problem, solution: &Solution) -> LeftOver {
    let mut left = LeftOver {
        supply: problem.shapes.iter().map(|shape| shape.supply).collect(),
        budgets: problem.budgets.clone(),
    };
    for &shape in &solution.machines {
        let data = &problem.shapes[shape as usize];
        if data.supply != crate::solve::UNLIMITED {
            left.supply[shape as usize] -= 1;
        }
        for &(budget, amount) in &data.takes {
            left.budgets[budget as usize] -= amount;
        }
    }
    left
}

fn pool_reasons(
    snapshot: &Snapshot,
    ways: &Ways,
    names: &Names<'_, '_>,
    class: u32,
    left: &LeftOver,
) -> Vec<PoolReason> {
    snapshot
        .pools
        .iter()
        .enumerate()
        .map(|(index, pool)| {
            let held = snapshot.hold(&[Scope::Pool(pool.name.clone())], Stops::Growth).is_some();
            let reason = match () {
                () if pool.templates.is_empty() => Reason::NoTemplate,
                () if pool.mode == Mode::Frozen => Reason::Frozen,
                () if held => Reason::Held,
                () => pool_reason(index, ways, names, class, left),
            };
            PoolReason { pool: pool.name.to_string(), reason }
        })
        .collect()
}

/// Of all ways of the pool, the reason of the one that comes closest.
fn pool_reason(pool: usize, ways: &Ways, names: &Names<'_, '_>, class: u32, left: &LeftOver) -> Reason {
    let problem = &names.translated.problem;
    let wanted = &problem.classes[class as usize];
    let shapes =
        || problem.shapes.iter().zip(&ways.list).enumerate().filter(|(_, (_, way))| way.pool == pool);
    let admitted = || {
        shapes()
            .filter(|(_, (shape, _))| problem.allowed.get(wanted.signature, shape.signature))
            .map(|(at, (s, _))| (at, s))
    };
    if shapes().next().is_none() {
        return Reason::NoSupply;
    }
    if admitted().next().is_none() {
        return Reason::Incompatible;
    }
    let roomy = || {
        admitted().filter(|(_, shape)| wanted.request.iter().zip(&shape.room).all(|(w, h)| *w <= 0 || w <= h))
    };
    if roomy().next().is_none() {
        return short_of(names, wanted, admitted().map(|(_, shape)| &shape.room[..]));
    }
    let mut limited: Option<&LimitName> = None;
    let mut any = false;
    for (at, shape) in roomy() {
        any |= left.supply[at] > 0;
        let over = shape.takes.iter().find(|(budget, amount)| left.budgets[*budget as usize] < *amount);
        match over {
            Some((budget, _)) => limited = limited.or(Some(&ways.limits[*budget as usize])),
            None if left.supply[at] > 0 => return counters_reason(wanted),
            None => {}
        }
    }
    match limited {
        Some(limit) if any => Reason::Limit { limit: format!("{limit:?}") },
        _ => Reason::NoSupply,
    }
}

/// A fresh machine could be had and is large enough: rules between pods stand in the way.
fn counters_reason(wanted: &crate::solve::Class) -> Reason {
    if !wanted.spreads.is_empty() {
        Reason::Skew
    } else if wanted.requires.is_some() {
        Reason::Lonely
    } else if !wanted.forbids.is_empty() {
        Reason::Forbidden
    } else {
        Reason::Crowded
    }
}

/// The lane that is short by the smallest share on the best machine.
fn short_of<'a>(
    names: &Names<'_, '_>,
    wanted: &crate::solve::Class,
    rooms: impl Iterator<Item = &'a [i64]>,
) -> Reason {
    let mut best: Option<(i128, usize, i64)> = None;
    for room in rooms {
        // The worst lane of this machine, as a share of the request that it covers.
        let worst = (0..room.len())
            .filter(|&lane| wanted.request[lane] > room[lane].max(0))
            .map(|lane| (i128::from(room[lane].max(0)) * 1_000_000 / i128::from(wanted.request[lane]), lane))
            .min();
        if let Some((share, lane)) = worst
            && best.is_none_or(|(top, ..)| share > top)
        {
            best = Some((share, lane, room[lane]));
        }
    }
    let (_, lane, most) = best.unwrap_or((0, 0, 0));
    Reason::Room { lane: names.lanes[lane].clone(), wanted: wanted.request[lane], most }
}
