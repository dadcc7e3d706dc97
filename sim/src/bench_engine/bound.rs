//! Lower bounds on the cost of any plan for the pending pods, existing nodes left out.
//!
//! Three relaxations, the largest counts. Neither knows zones, spread or affinity, so a legal plan may have
//! to cost more; none can cost less.
//!
//! * Affine: if every machine costs at least `w·room + b`, then all of them cost at least
//!   `w·demand + b·(machines that anti-affinity forces)`; the best `w` and `b` are a small linear program.
//! * Crowds: where every pod fits one kind of machine only, pods that leave less than `k` of a lane share a
//!   machine with none that asks for `k` or more of it; so the machines of the former, and the volume of the
//!   latter, add up.
//! * Assignment: fractions of classes on fractions of machines, each class only where a pod of it fits.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::solve::{Problem, UNLIMITED};

/// Above this many fractions the assignment program is not tried.
const MOST_FRACTIONS: usize = 6000;
/// Above this many different pods the crowds are not counted: it takes the square of them.
const MOST_GROUPS: usize = 2000;
/// Rounding of the floating-point programs, so that the bound stays below the truth.
const SLACK: f64 = 1e-7;

/// A bound on the cost, in the currency of the problem's costs, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    pub cost: f64,
    /// Machines that anti-affinity over hosts forces, or that volume forces.
    pub machines: u64,
    pub from: &'static str,
}

/// Computes the bound. `granule` is a number that divides every cost, if there is one: the bound is
/// rounded up to a multiple of it.
pub fn lower_bound(problem: &Problem, granule: Option<f64>) -> Bound {
    let forced = forced_machines(problem);
    let affine = affine(problem, forced);
    let assigned = assignment(problem);
    let (mut cost, mut from) = match assigned {
        Some(cost) if cost > affine => (cost, "assignment"),
        _ => (affine, "volume and forced machines"),
    };
    if let Some(crowds) = crowds(problem).filter(|crowds| *crowds > cost) {
        (cost, from) = (crowds, "pods that share a machine with few others");
    }
    if let Some(granule) = granule {
        cost = (cost / granule - SLACK).ceil() * granule;
    }
    Bound { cost, machines: forced.max(volume_machines(problem)), from }
}

/// The largest set of pods of which no two may share a machine.
fn forced_machines(problem: &Problem) -> u64 {
    let mut largest = 0;
    for (id, counter) in problem.counters.iter().enumerate() {
        let id = id as u32;
        if counter.key.is_some() {
            continue;
        }
        let repelled =
            |class: &&muster_engine::solve::Class| class.forbids.contains(&id) && class.raises.contains(&id);
        let pods: u64 = problem.classes.iter().filter(repelled).map(|class| u64::from(class.count)).sum();
        largest = largest.max(pods);
    }
    largest
}

/// Machines needed if each were the largest in every lane.
fn volume_machines(problem: &Problem) -> u64 {
    let mut most = 0;
    for lane in 0..problem.lanes {
        let room = problem.shapes.iter().map(|shape| shape.room[lane]).max().unwrap_or(0).max(0);
        let wanted: i128 =
            problem.classes.iter().map(|c| i128::from(c.request[lane]) * i128::from(c.count)).sum();
        if room > 0 {
            let machines = (wanted + i128::from(room) - 1) / i128::from(room);
            most = most.max(u64::try_from(machines).unwrap_or(u64::MAX));
        }
    }
    most
}

fn demand(problem: &Problem, lane: usize) -> f64 {
    problem.classes.iter().map(|class| class.request[lane] as f64 * f64::from(class.count)).sum()
}

/// max w·demand + b·forced with w·room + b <= cost for every shape: the dual of buying machines.
fn affine(problem: &Problem, forced: u64) -> f64 {
    let mut seen: BTreeSet<(&[i64], i64)> = BTreeSet::new();
    for shape in &problem.shapes {
        seen.insert((&shape.room, shape.cost));
    }
    let mut rows: Vec<Vec<f64>> = Vec::new();
    let mut right: Vec<f64> = Vec::new();
    let kinds: Vec<(&[i64], i64)> = seen.into_iter().collect();
    for lane in 0..problem.lanes {
        let scale = kinds.iter().map(|(room, _)| room[lane]).max().unwrap_or(1).max(1) as f64;
        rows.push(kinds.iter().map(|(room, _)| -(room[lane].max(0) as f64) / scale).collect());
        right.push(-demand(problem, lane) / scale);
    }
    rows.push(vec![-1.0; kinds.len()]);
    right.push(-(forced as f64));
    let costs: Vec<f64> = kinds.iter().map(|(_, cost)| *cost as f64).collect();
    minimise(&costs, rows, right).map_or(0.0, |cost| cost * (1.0 - SLACK))
}

/// Classes that the assignment treats alike, merged.
struct Group {
    request: Vec<i64>,
    signature: u32,
    repelled: Vec<u32>,
    pods: f64,
}

fn groups(problem: &Problem) -> Vec<Group> {
    let mut merged: BTreeMap<(Vec<i64>, u32, Vec<u32>), f64> = BTreeMap::new();
    for class in &problem.classes {
        let alone = |id: &&u32| problem.counters[**id as usize].key.is_none() && class.raises.contains(id);
        let repelled: Vec<u32> = class.forbids.iter().filter(alone).copied().collect();
        *merged.entry((class.request.clone(), class.signature, repelled)).or_default() +=
            f64::from(class.count);
    }
    merged
        .into_iter()
        .map(|((request, signature, repelled), pods)| Group { request, signature, repelled, pods })
        .collect()
}

struct Kind {
    room: Vec<i64>,
    cost: f64,
    signature: u32,
    supply: Option<f64>,
}

#[allow(clippy::type_complexity, reason = "what makes machines alike, used once")]
fn kinds(problem: &Problem) -> Vec<Kind> {
    let column = |signature: u32| -> Vec<bool> {
        let rows = problem.classes.iter().map(|class| class.signature + 1).max().unwrap_or(0);
        (0..rows).map(|row| problem.allowed.get(row, signature)).collect()
    };
    let mut merged: BTreeMap<(Vec<i64>, i64, Vec<bool>), (u32, Option<f64>)> = BTreeMap::new();
    for shape in &problem.shapes {
        let supply = (shape.supply != UNLIMITED).then_some(f64::from(shape.supply));
        let entry = merged
            .entry((shape.room.clone(), shape.cost, column(shape.signature)))
            .or_insert((shape.signature, Some(0.0)));
        entry.1 = entry.1.zip(supply).map(|(a, b)| a + b);
    }
    merged
        .into_iter()
        .map(|((room, cost, _), (signature, supply))| Kind { room, cost: cost as f64, signature, supply })
        .collect()
}

/// `None` if some pod could go to several kinds of machines, or to none.
fn crowds(problem: &Problem) -> Option<f64> {
    let (groups, kinds) = (groups(problem), kinds(problem));
    if groups.len() > MOST_GROUPS {
        return None;
    }
    let mut by_kind: Vec<Vec<&Group>> = kinds.iter().map(|_| Vec::new()).collect();
    for group in &groups {
        let fits = |kind: &&Kind| {
            problem.allowed.get(group.signature, kind.signature)
                && group.request.iter().zip(&kind.room).all(|(want, have)| *want <= 0 || want <= have)
        };
        let mut usable = kinds.iter().enumerate().filter(|(_, kind)| fits(kind));
        let (only, more) = (usable.next()?, usable.next());
        if more.is_some() {
            return None;
        }
        by_kind[only.0].push(group);
    }
    let cost = |(kind, pods): (&Kind, &Vec<&Group>)| kind.cost * (machines(kind, pods) - SLACK).ceil();
    Some(kinds.iter().zip(&by_kind).map(cost).sum())
}

/// Machines of one kind that these pods need at least.
fn machines(kind: &Kind, groups: &[&Group]) -> f64 {
    let volume = |inside: &dyn Fn(&Group) -> bool| {
        let lane = |lane: usize| {
            let wanted: f64 =
                groups.iter().filter(|g| inside(g)).map(|g| g.request[lane].max(0) as f64 * g.pods).sum();
            if wanted > 0.0 { wanted / kind.room[lane].max(1) as f64 } else { 0.0 }
        };
        (0..kind.room.len()).map(lane).fold(0.0, f64::max)
    };
    let mut most = volume(&|_| true);
    for (lane, &room) in kind.room.iter().enumerate() {
        let steps: BTreeSet<i64> =
            groups.iter().map(|g| g.request[lane]).filter(|&want| want > 0 && want * 2 <= room).collect();
        for least in steps {
            let alone = |g: &Group| g.request[lane] > room - least;
            let large: f64 = groups.iter().filter(|g| alone(g)).map(|g| g.pods).sum();
            most = most.max(large + volume(&|g| g.request[lane] >= least && !alone(g)));
        }
    }
    most
}

fn assignment(problem: &Problem) -> Option<f64> {
    let (groups, kinds) = (groups(problem), kinds(problem));
    let fits = |group: &Group, kind: &Kind| {
        problem.allowed.get(group.signature, kind.signature)
            && group.request.iter().zip(&kind.room).all(|(want, have)| *want <= 0 || want <= have)
    };
    let pairs: Vec<(usize, usize)> = (0..groups.len())
        .flat_map(|g| (0..kinds.len()).map(move |k| (g, k)))
        .filter(|&(g, k)| fits(&groups[g], &kinds[k]))
        .collect();
    if pairs.len() > MOST_FRACTIONS {
        return None;
    }
    let columns = kinds.len() + pairs.len();
    let mut costs = vec![0.0; columns];
    for (at, kind) in kinds.iter().enumerate() {
        costs[at] = kind.cost;
    }
    let (mut rows, mut right) = (Vec::new(), Vec::new());
    for (g, group) in groups.iter().enumerate() {
        let mut row = vec![0.0; columns];
        for (at, _) in pairs.iter().enumerate().filter(|(_, pair)| pair.0 == g) {
            row[kinds.len() + at] = -1.0;
        }
        rows.push(row);
        right.push(-group.pods);
    }
    for (k, kind) in kinds.iter().enumerate() {
        for lane in 0..problem.lanes {
            let scale = kind.room[lane].max(1) as f64;
            let mut row = vec![0.0; columns];
            row[k] = -(kind.room[lane].max(0) as f64) / scale;
            for (at, &(g, _)) in pairs.iter().enumerate().filter(|(_, pair)| pair.1 == k) {
                row[kinds.len() + at] = groups[g].request[lane] as f64 / scale;
            }
            rows.push(row);
            right.push(0.0);
        }
        let repelled: std::collections::BTreeSet<u32> =
            groups.iter().flat_map(|group| group.repelled.iter().copied()).collect();
        for id in repelled {
            let mut row = vec![0.0; columns];
            row[k] = -1.0;
            let here = pairs.iter().enumerate().filter(|(_, pair)| pair.1 == k);
            for (at, _) in here.filter(|(_, pair)| groups[pair.0].repelled.contains(&id)) {
                row[kinds.len() + at] = 1.0;
            }
            rows.push(row);
            right.push(0.0);
        }
        if let Some(supply) = kind.supply {
            let mut row = vec![0.0; columns];
            row[k] = 1.0;
            rows.push(row);
            right.push(supply);
        }
    }
    minimise(&costs, rows, right).map(|cost| cost * (1.0 - SLACK))
}

/// min costs·x with rows·x <= right, x >= 0 and costs >= 0, by the dual simplex method. `None` if nothing
/// satisfies the rows, or if it does not come to an end.
fn minimise(costs: &[f64], mut rows: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<f64> {
    const ZERO: f64 = 1e-9;
    let height = rows.len();
    // The slack columns are kept implicitly: basis[r] is the column that row r stands for.
    for (at, row) in rows.iter_mut().enumerate() {
        row.extend((0..height).map(|slack| f64::from(u8::from(slack == at))));
    }
    let mut reduced: Vec<f64> = costs.iter().copied().chain(std::iter::repeat_n(0.0, height)).collect();
    let mut value = 0.0;
    for _ in 0..50_000 {
        let (mut leave, mut worst) = (None, -ZERO);
        for (at, &amount) in right.iter().enumerate() {
            if amount < worst {
                worst = amount;
                leave = Some(at);
            }
        }
        let Some(leave) = leave else { return Some(-value) };
        let mut enter: Option<(f64, f64, usize)> = None;
        for (at, &entry) in rows[leave].iter().enumerate() {
            if entry < -ZERO {
                let ratio = reduced[at] / -entry;
                let better = enter
                    .is_none_or(|(top, size, _)| ratio < top - ZERO || (ratio < top + ZERO && -entry > size));
                if better {
                    enter = Some((ratio, -entry, at));
                }
            }
        }
        let (_, _, enter) = enter?;
        let pivot = rows[leave][enter];
        for entry in &mut rows[leave] {
            *entry /= pivot;
        }
        right[leave] /= pivot;
        let (row, amount) = (rows[leave].clone(), right[leave]);
        for (at, other) in rows.iter_mut().enumerate() {
            let factor = other[enter];
            if at != leave && factor.abs() > 0.0 {
                for (entry, &by) in other.iter_mut().zip(&row) {
                    *entry -= factor * by;
                }
                right[at] -= factor * amount;
            }
        }
        let factor = reduced[enter];
        for (entry, &by) in reduced.iter_mut().zip(&row) {
            *entry -= factor * by;
        }
        value -= factor * amount;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_leave_no_room_for_others_add_up() {
        #[track_caller]
        fn check(pods: &[(&[i64], f64)], expected: f64) {
            let groups: Vec<Group> = pods
                .iter()
                .map(|(request, pods)| Group {
                    request: request.to_vec(),
                    signature: 0,
                    repelled: Vec::new(),
                    pods: *pods,
                })
                .collect();
            let kind = Kind { room: vec![12, 100], cost: 1.0, signature: 0, supply: None };
            let found = machines(&kind, &groups.iter().collect::<Vec<_>>());
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
        check(&[(&[6, 0], 4.0)], 2.0);
        check(&[(&[7, 0], 4.0)], 28.0 / 12.0); // no pod small enough to tell that two of them do not fit
        check(&[(&[7, 0], 4.0), (&[6, 0], 2.0)], 5.0);
        // Those that take a whole lane leave the other lane idle.
        check(&[(&[1, 100], 5.0), (&[12, 1], 3.0)], 8.0);
        check(&[(&[1, 100], 5.0), (&[12, 0], 3.0)], 8.0); // in either lane
        check(&[(&[0, 100], 5.0), (&[12, 0], 3.0)], 5.0); // neither needs what the other takes
    }
}
