//! Fills one machine from the lots that are left.
//!
//! Requests of equal size are looked at once: the next pod is the size that leaves the smallest remainder,
//! weighed by what lanes are worth, so that a machine runs out of all lanes at about the same time.

use super::{
    places::Lot,
    prices::lane_worth,
    problem::{Problem, fits, times},
    rules::{HostCounts, Rules},
};
use crate::plan::hash::FixedSet;

/// Lots by size and location, and what is scratch while a machine is tried.
#[derive(Debug, Clone)]
pub(crate) struct Filler<'a> {
    problem: &'a Problem,
    rules: &'a Rules,
    pub(crate) lots: Vec<Lot>,
    /// Distinct requests: the amounts of each, then what its lanes are worth.
    requests: Vec<i64>,
    /// The largest worth of a lane of any request.
    dearest: u64,
    /// Pods of each size that are left.
    left: Vec<u32>,
    /// Lots per size and location; the last location is "anywhere".
    lists: Vec<List>,
    places: usize,
    /// What is left in all lots of a location, the last being "anywhere".
    demand: Vec<Vec<i64>>,
    pods_left: u64,
    size_of: Vec<u32>,
    taken: Vec<u32>,
    touched: Vec<u32>,
    counts: HostCounts,
    pub(crate) effort: u64,
}

#[derive(Debug, Clone, Default)]
struct List {
    lots: Vec<u32>,
    head: usize,
}

/// What a trial put on a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fill {
    pub(crate) pods: Vec<(u32, u32)>,
    pub(crate) load: Vec<i64>,
}

/// Where and how large the machine is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine<'a> {
    pub(crate) signature: u32,
    pub(crate) location: u32,
    pub(crate) room: &'a [i64],
    pub(crate) marks: &'a [(u32, u32)],
}

impl<'a> Filler<'a> {
    pub(crate) fn new(
        problem: &'a Problem,
        rules: &'a Rules,
        kinds: &Sizes,
        lots: Vec<Lot>,
        prices: &[i64],
    ) -> Self {
        let places = problem.locations.len() + 1;
        let mut requests: Vec<i64> = Vec::with_capacity(kinds.requests.len() * problem.lanes * 2);
        let mut dearest = 0;
        for request in &kinds.requests {
            requests.extend(request);
            for (&amount, &price) in request.iter().zip(prices) {
                let worth = lane_worth(price, amount);
                dearest = worth.unsigned_abs().max(dearest);
                requests.push(worth);
            }
        }
        let mut lists: Vec<List> = vec![List::default(); kinds.requests.len() * places];
        let mut size_of = vec![0; lots.len()];
        for (at, lot) in lots.iter().enumerate() {
            let size = kinds.of_class[lot.class as usize];
            let place = lot.location.map_or(places - 1, |at| at as usize);
            lists[size as usize * places + place].lots.push(at as u32);
            size_of[at] = size;
        }
        for list in &mut lists {
            // What is hard to place goes first, then the order of classes.
            list.lots.sort_by_key(|&lot| {
                let class = lots[lot as usize].class;
                (
                    rules.host[class as usize].free,
                    std::cmp::Reverse(problem.classes[class as usize].priority),
                    class,
                )
            });
        }
        let taken = vec![0; lots.len()];
        let mut filler = Self {
            problem,
            rules,
            requests,
            dearest,
            left: vec![0; kinds.requests.len()],
            lists,
            places,
            demand: vec![vec![0; problem.lanes]; places],
            pods_left: 0,
            size_of,
            taken,
            touched: Vec::new(),
            counts: HostCounts::new(problem.counters.len()),
            lots,
            effort: 0,
        };
        filler.recount();
        filler
    }

    fn recount(&mut self) {
        self.pods_left = 0;
        for place in &mut self.demand {
            place.fill(0);
        }
        for (lot, &size) in self.lots.iter().zip(&self.size_of) {
            self.left[size as usize] += lot.left;
            self.pods_left += u64::from(lot.left);
            let place = lot.location.map_or(self.places - 1, |at| at as usize);
            let request = &self.problem.classes[lot.class as usize].request;
            for (sum, &amount) in self.demand[place].iter_mut().zip(request) {
                *sum = sum.saturating_add(amount.saturating_mul(i64::from(lot.left)));
            }
        }
    }

    pub(crate) fn pods_left(&self) -> u64 {
        self.pods_left
    }

    /// What is left that must go to a location, or (`None`) may go anywhere.
    pub(crate) fn demand(&self, location: Option<u32>) -> &[i64] {
        &self.demand[location.map_or(self.places - 1, |at| at as usize)]
    }

    /// Tries a machine. Nothing is taken from the lots until [`Filler::commit`].
    pub(crate) fn trial(&mut self, machine: Machine<'_>, seed: Option<u32>, prices: &[i64], fill: &mut Fill) {
        fill.pods.clear();
        fill.load.clear();
        fill.load.resize(self.problem.lanes, 0);
        for &(counter, count) in machine.marks {
            self.counts.mark(counter, count);
        }
        let mut room = machine.room.to_vec();
        if let Some(seed) = seed {
            self.add(seed, 1, &mut room, fill);
        }
        self.proportional(machine, &mut room, fill);
        self.greedy(machine, &mut room, prices, fill);
        for lot in self.touched.drain(..) {
            self.taken[lot as usize] = 0;
        }
        self.counts.clear();
    }

    /// A machine that holds a good part of all that is left takes that part of every lot first.
    fn proportional(&mut self, machine: Machine<'_>, room: &mut [i64], fill: &mut Fill) {
        let place = machine.location as usize;
        let mut part: i128 = 1 << 20;
        for (lane, have) in room.iter().enumerate() {
            let wanted = self.demand[place][lane].saturating_add(self.demand[self.places - 1][lane]);
            if wanted > 0 {
                part = part.min((i128::from((*have).max(0)) << 20) / i128::from(wanted));
            }
        }
        if part < 1 << 14 {
            return;
        }
        for size in 0..self.left.len() {
            for at in [place, self.places - 1] {
                let list = size * self.places + at;
                for index in self.lists[list].head..self.lists[list].lots.len() {
                    let lot = self.lists[list].lots[index];
                    let Lot { class, left, .. } = self.lots[lot as usize];
                    let class_data = &self.problem.classes[class as usize];
                    if left == 0 || !self.problem.allowed.get(class_data.signature, machine.signature) {
                        continue;
                    }
                    let mine = u32::try_from((i128::from(left) * part) >> 20).unwrap_or(left);
                    let most = u32::try_from(times(&class_data.request, room)).unwrap_or(u32::MAX);
                    let count = mine.min(most).min(left - self.taken[lot as usize]);
                    let count = self.counts.accepts(&self.rules.host[class as usize], count);
                    if count > 0 {
                        self.add(lot, count, room, fill);
                    }
                }
            }
        }
    }

    fn request(&self, size: usize) -> &[i64] {
        let from = size * self.problem.lanes * 2;
        &self.requests[from..from + self.problem.lanes]
    }

    fn greedy(&mut self, machine: Machine<'_>, room: &mut [i64], prices: &[i64], fill: &mut Fill) {
        let mut value: Vec<i64> = room.iter().zip(prices).map(|(&r, &p)| lane_worth(p, r)).collect();
        let mut open: Vec<u32> =
            (0..self.left.len() as u32).filter(|&size| self.left[size as usize] > 0).collect();
        let small = value.iter().all(|worth| worth.unsigned_abs() < SMALL) && self.dearest < SMALL;
        while !open.is_empty() {
            self.effort += open.len() as u64;
            let best = match (small, self.problem.lanes) {
                (true, 3) => closest::<3>(&self.requests, &mut open, room, &value),
                (true, 4) => closest::<4>(&self.requests, &mut open, room, &value),
                (true, 5) => closest::<5>(&self.requests, &mut open, room, &value),
                (true, 6) => closest::<6>(&self.requests, &mut open, room, &value),
                _ => closest_of_any(&self.requests, &mut open, room, &value),
            };
            let Some(index) = best else { break };
            let size = open[index] as usize;
            let most = times(self.request(size), room);
            let want = if open.len() == 1 { most } else { (most / 8).max(1) };
            let mut want = u32::try_from(want).unwrap_or(u32::MAX);
            let mut taken = false;
            // Several lots of one size are as good as one large lot.
            while want > 0 {
                let Some((lot, count)) = self.pick(size, machine, want) else { break };
                self.add(lot, count, room, fill);
                want -= count;
                taken = true;
            }
            if taken {
                for ((v, &r), &p) in value.iter_mut().zip(&*room).zip(prices) {
                    *v = lane_worth(p, r);
                }
            } else {
                open.swap_remove(index);
            }
        }
    }

    /// A lot of the size that the machine accepts, and how many of it.
    fn pick(&mut self, size: usize, machine: Machine<'_>, want: u32) -> Option<(u32, u32)> {
        for place in [machine.location as usize, self.places - 1] {
            let list = &mut self.lists[size * self.places + place];
            while list.lots.get(list.head).is_some_and(|&lot| self.lots[lot as usize].left == 0) {
                list.head += 1;
            }
            for &lot in &list.lots[list.head..] {
                let Lot { class, left, .. } = self.lots[lot as usize];
                let free = left - self.taken[lot as usize];
                let signature = self.problem.classes[class as usize].signature;
                if free == 0 || !self.problem.allowed.get(signature, machine.signature) {
                    continue;
                }
                let rules = &self.rules.host[class as usize];
                if rules.clings {
                    continue;
                }
                let count = self.counts.accepts(rules, want.min(free));
                if count > 0 {
                    return Some((lot, count));
                }
            }
        }
        None
    }

    fn add(&mut self, lot: u32, count: u32, room: &mut [i64], fill: &mut Fill) {
        let class = self.lots[lot as usize].class;
        let request = &self.problem.classes[class as usize].request;
        for ((have, load), want) in room.iter_mut().zip(&mut fill.load).zip(request) {
            *have -= want * i64::from(count);
            *load += want * i64::from(count);
        }
        self.counts.add(&self.rules.host[class as usize], count);
        self.taken[lot as usize] += count;
        self.touched.push(lot);
        match fill.pods.last_mut() {
            Some((last, run)) if *last == lot => *run += count,
            _ => fill.pods.push((lot, count)),
        }
    }

    /// How often the same fill can be repeated with what is left.
    pub(crate) fn repeats(&self, fill: &Fill) -> u32 {
        let mut used: Vec<(u32, u32)> = fill.pods.clone();
        used.sort_unstable();
        used.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        used.iter().map(|&(lot, count)| self.lots[lot as usize].left / count).min().unwrap_or(0)
    }

    /// Takes a fill out of the lots, `machines` times.
    pub(crate) fn commit(&mut self, fill: &Fill, machines: u32) {
        for &(lot, count) in &fill.pods {
            let count = count * machines;
            let entry = &mut self.lots[lot as usize];
            entry.left -= count;
            let place = entry.location.map_or(self.places - 1, |at| at as usize);
            let request = &self.problem.classes[entry.class as usize].request;
            for (sum, want) in self.demand[place].iter_mut().zip(request) {
                *sum = sum.saturating_sub(want.saturating_mul(i64::from(count)));
            }
            self.left[self.size_of[lot as usize] as usize] -= count;
            self.pods_left -= u64::from(count);
        }
    }
}

/// Worths below this have remainders whose squares can be summed over eight lanes without a check for overflow.
const SMALL: u64 = 1 << 33;

/// Which of the open sizes leaves the smallest remainder, weighed by what lanes are worth. Those that no longer fit are taken out.
///
/// Most of the time of a plan is spent here, which is why the count of lanes is known to the compiler where it is a usual one.
fn closest<const LANES: usize>(
    requests: &[i64],
    open: &mut Vec<u32>,
    room: &[i64],
    value: &[i64],
) -> Option<usize> {
    let (Some(room), Some(value)) = (room.first_chunk::<LANES>(), value.first_chunk::<LANES>()) else {
        return None;
    };
    let rest = |size: u32| {
        let row = &requests[size as usize * 2 * LANES..][..2 * LANES];
        let mut fits = true;
        let mut rest = 0_i64;
        for lane in 0..LANES {
            fits &= row[lane] <= 0 || row[lane] <= room[lane];
            let left = (value[lane] - row[LANES + lane]) >> 4;
            rest += left * left;
        }
        fits.then_some(rest)
    };
    least(open, rest)
}

/// [`closest`] for any count of lanes and worths of any size.
fn closest_of_any(requests: &[i64], open: &mut Vec<u32>, room: &[i64], value: &[i64]) -> Option<usize> {
    let lanes = room.len();
    let rest = |size: u32| {
        let (request, worths) = requests[size as usize * 2 * lanes..][..2 * lanes].split_at(lanes);
        let rest = || {
            let mut rest = 0_i64;
            for (&have, &want) in value.iter().zip(worths) {
                let left = have.saturating_sub(want) >> 4;
                rest = rest.saturating_add(left.saturating_mul(left));
            }
            rest
        };
        fits(request, room).then(rest)
    };
    least(open, rest)
}

/// The index of the size with the least `rest`. Equal remainders: the larger request, which is the lower size id.
#[inline]
fn least(open: &mut Vec<u32>, rest: impl Fn(u32) -> Option<i64>) -> Option<usize> {
    let mut best: Option<(i64, u32, usize)> = None;
    let mut at = 0;
    while at < open.len() {
        let size = open[at];
        let Some(rest) = rest(size) else {
            open.swap_remove(at);
            continue;
        };
        if best.is_none_or(|(top, of, _)| (rest, size) < (top, of)) {
            best = Some((rest, size, at));
        }
        at += 1;
    }
    best.map(|(_, _, at)| at)
}

/// More distinct requests than this are rounded up into groups.
const MOST_EXACT: usize = 256;
/// How many groups are aimed at then: every machine that is filled looks at all of them for every pod.
const MOST_ROUNDED: usize = 32;
/// A lane with more distinct amounts than this is rounded; others stay exact.
const MOST_AMOUNTS: usize = 24;

/// The requests by which pods are looked at: exact ones if they are few, else amounts of crowded lanes
/// rounded up to fewer and fewer leading bits. What is bound and what is left stays exact.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Largest first.
    requests: Vec<Vec<i64>>,
    of_class: Vec<u32>,
}

impl Sizes {
    /// Looks at the classes of which pods are left.
    pub(crate) fn new(problem: &Problem, left: &[u32]) -> Self {
        let mut requests: Vec<&[i64]> = problem
            .classes
            .iter()
            .zip(left)
            .filter(|(_, left)| **left > 0)
            .map(|(class, _)| class.request.as_slice())
            .collect();
        let mut bits: Option<(u32, Vec<usize>)> = None;
        if distinct(requests.iter().copied(), MOST_EXACT) > MOST_EXACT {
            let crowded: Vec<usize> = (0..problem.lanes)
                .filter(|&lane| distinct(requests.iter().map(|r| r[lane]), MOST_AMOUNTS) > MOST_AMOUNTS)
                .collect();
            let enough = |bits: &u32| {
                let rounded = requests.iter().map(|request| rounded(request, *bits, &crowded));
                distinct(rounded, MOST_ROUNDED) <= MOST_ROUNDED
            };
            let least = (1..8_u32).rev().find(enough).unwrap_or(1);
            bits = Some((least, crowded));
        }
        let view = |request: &[i64]| match &bits {
            None => request.to_vec(),
            Some((bits, crowded)) => rounded(request, *bits, crowded),
        };
        requests.sort_unstable_by(|a, b| b.cmp(a));
        requests.dedup();
        let mut seen: Vec<Vec<i64>> = requests.into_iter().map(view).collect();
        seen.sort_unstable_by(|a, b| b.cmp(a));
        seen.dedup();
        let of_class = problem
            .classes
            .iter()
            .zip(left)
            .map(|(class, &left)| {
                if left == 0 {
                    return 0;
                }
                let request = view(&class.request);
                let at = seen.binary_search_by(|size| request.cmp(size));
                at.expect("the request of every class that is left was collected") as u32
            })
            .collect();
        Self { requests: seen, of_class }
    }
}

/// Amounts of the lanes rounded up to so many leading bits.
fn rounded(request: &[i64], bits: u32, lanes: &[usize]) -> Vec<i64> {
    let mut request = request.to_vec();
    for &lane in lanes {
        let shift = (64 - request[lane].leading_zeros()).saturating_sub(bits);
        request[lane] = ((request[lane] + (1 << shift) - 1) >> shift) << shift;
    }
    request
}

/// How many different ones there are; stops counting above `most`.
fn distinct<T: Eq + std::hash::Hash>(items: impl Iterator<Item = T>, most: usize) -> usize {
    let mut seen: FixedSet<T> = FixedSet::default();
    for item in items {
        seen.insert(item);
        if seen.len() > most {
            break;
        }
    }
    seen.len()
}
