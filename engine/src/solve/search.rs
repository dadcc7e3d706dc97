//! Tries several ways to build machines for what is left and keeps the cheapest.
//!
//! Every attempt is a full construction under other lane prices or another style. Where the first prices explain little
//! of the cost, what machines waste says which lanes are too cheap; then the search climbs from the best so far, one lane at a time, until its budget of
//! counted effort is spent.

use super::{
    build::{Batch, Builder, Style},
    catalog::{Catalog, Stock},
    fill::Sizes,
    finish::Draft,
    places::{self, Places},
    prices,
    problem::Problem,
    rules::Rules,
};

/// Effort that every problem may spend, in looks at a size.
const BASE_EFFORT: u64 = 60_000;
/// Effort per pod on top, up to [`PLENTY`].
const EFFORT_PER_POD: u64 = 500;
/// Enough for a problem of ordinary size; beyond it a pod adds a tenth.
const PLENTY: u64 = 1_000_000;
/// A problem of this size in which machines are forced gets more: each machine has few pods to choose from,
/// and the choice decides what is wasted. Smaller ones are exhausted before.
const SMALL: std::ops::RangeInclusive<u64> = 200..=1_000;
/// How often the waste of the last attempt is charged to the lanes that ran out; it changes little after the first.
const CHARGES: usize = 3;
/// Steps in which the price of a lane is raised or lowered, in percent.
const TILTS: [(i64, i64); 3] = [(140, 71), (118, 85), (108, 93)];

/// One construction.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) places: Places,
    pub(crate) batches: Vec<Batch>,
    pub(crate) stock: Stock,
    prices: Vec<i64>,
    style: Style,
    score: Score,
}

/// Lower is better: pods left over, then cost, then machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    left: u64,
    cost: i64,
    machines: u64,
}

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) best: Attempt,
    pub(crate) effort: u64,
}

struct Search<'d, 'p> {
    draft: &'d Draft<'p>,
    rules: &'d Rules,
    catalog: &'d Catalog,
    sizes: Sizes,
    effort: u64,
    budget: u64,
}

pub(crate) fn search(draft: &Draft<'_>, rules: &Rules, catalog: &Catalog) -> Found {
    let problem = draft.state.problem;
    let machines = machines(problem, catalog);
    let demand = demand(problem, &draft.left);
    let pods: u64 = draft.left.iter().map(|&left| u64::from(left)).sum();
    let sizes = Sizes::new(problem, &draft.left);
    let mut search = Search { draft, rules, catalog, sizes, effort: 0, budget: budget(pods) };
    let start = prices::lane_prices(&demand, &machines);
    let mut best = search.attempt(start, Style::default());
    let forced = forced_cost(draft, catalog);
    if forced > 0 && SMALL.contains(&pods) {
        search.budget += PLENTY;
    }
    let ideal = ideal(&best.prices, &demand, &machines).max(forced);
    for _ in 0..CHARGES {
        let (wasted, cost) = (wasted(problem, &best), best.score.cost);
        let Some(charged) = prices::charged(&best.prices, &wasted, cost, &demand, &machines) else { break };
        if search.spent() || cost <= ideal {
            break;
        }
        let next = search.attempt(charged, Style::default());
        if next.score >= best.score {
            break;
        }
        best = next;
    }
    if let Some(sharp) = prices::sharpened(&best.prices, &demand, &machines)
        && !search.spent()
        && best.score.cost > ideal
    {
        let next = search.attempt(sharp, Style::default());
        if next.score < best.score {
            best = next;
        }
    }
    for style in Style::others() {
        if search.spent() || best.score.cost <= ideal {
            break;
        }
        let next = search.attempt(best.prices.clone(), style);
        if next.score < best.score {
            best = next;
        }
    }
    for (up, down) in TILTS {
        let mut moved = true;
        while moved && !search.spent() && best.score.cost > ideal {
            moved = false;
            for lane in 0..problem.lanes {
                for percent in [up, down] {
                    if best.prices[lane] == 0 || search.spent() {
                        continue;
                    }
                    let tilted = prices::tilted(&best.prices, lane, percent, &machines);
                    let next = search.attempt(tilted, best.style);
                    if next.score < best.score {
                        best = next;
                        moved = true;
                    }
                }
            }
        }
    }
    Found { best, effort: search.effort }
}

/// Effort that so many pods may spend.
pub(crate) fn budget(pods: u64) -> u64 {
    BASE_EFFORT + (EFFORT_PER_POD * pods).min(PLENTY) + EFFORT_PER_POD * pods / 10
}

impl Search<'_, '_> {
    fn spent(&self) -> bool {
        self.effort >= self.budget
    }

    fn attempt(&mut self, prices: Vec<i64>, style: Style) -> Attempt {
        let Draft { state, stock, left, .. } = self.draft;
        let places = places::assign(state, self.rules, self.catalog, stock, left, &prices);
        let lots = places.lots.clone();
        let mut builder = Builder::new(
            state.problem,
            self.rules,
            self.catalog,
            stock.clone(),
            &self.sizes,
            lots,
            &prices,
            style,
        );
        builder.run();
        let refused: u64 = places.refused.iter().map(|&(_, count)| u64::from(count)).sum();
        let score = Score {
            left: builder.filler.pods_left() + refused,
            cost: builder
                .batches
                .iter()
                .map(|b| state.problem.shapes[b.shape as usize].cost.saturating_mul(i64::from(b.machines)))
                .fold(0, i64::saturating_add),
            machines: builder.batches.iter().map(|b| u64::from(b.machines)).sum(),
        };
        // Placing lots and copying tables is work too, even where few sizes are looked at.
        self.effort += builder.filler.effort + places.order.len() as u64 * 8 + 2_000;
        let Builder { batches, stock, .. } = builder;
        Attempt { places, batches, stock, prices, style, score }
    }
}

/// A cost below which nothing can be had, as far as volume goes. Costs that are multiples of one number can
/// only add up to a multiple of it.
fn ideal(prices: &[i64], demand: &[i128], machines: &[(&[i64], i64)]) -> i64 {
    let demand: Vec<i64> = demand.iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX)).collect();
    let volume = prices::worth(prices, &demand);
    let granule = machines.iter().map(|(_, cost)| *cost).fold(0, common_divisor).max(1);
    // Lane prices are rounded down; the last few parts in a million are rounding.
    let steps = (volume - volume / 1_000_000) / granule;
    let exact = steps.saturating_mul(granule);
    let bound = if exact < volume - volume / 1_000_000 { exact.saturating_add(granule) } else { exact };
    bound.max(volume).max(lane_bound(&demand, machines, granule))
}

/// What the scarcest lane alone costs, were all of it bought where it is cheapest.
fn lane_bound(demand: &[i64], machines: &[(&[i64], i64)], granule: i64) -> i64 {
    let lane = |lane: usize| {
        let wanted = i128::from(demand[lane]);
        let offers = machines.iter().filter(|(room, _)| room[lane] > 0);
        // Whole granules: the sum of costs is a multiple of them.
        let granules = |room: i64, cost: i64| {
            let unit = i128::from(room) * i128::from(granule);
            (wanted * i128::from(cost) + unit - 1) / unit
        };
        let least = offers.map(|(room, cost)| granules(room[lane], (*cost).max(0))).min().unwrap_or(0);
        i64::try_from(least).unwrap_or(i64::MAX).saturating_mul(granule)
    };
    (0..demand.len()).filter(|&at| demand[at] > 0).map(lane).max().unwrap_or(0)
}

fn common_divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// What pods cost of which no two may share a machine, each on the cheapest that holds it.
fn forced_cost(draft: &Draft<'_>, catalog: &Catalog) -> i64 {
    let problem = draft.state.problem;
    let on_host = |id: &&u32| problem.counters[**id as usize].key.is_none();
    let mut sums: std::collections::BTreeMap<u32, i64> = std::collections::BTreeMap::new();
    for (class, &left) in problem.classes.iter().zip(&draft.left).filter(|(_, left)| **left > 0) {
        let mut repelled =
            class.forbids.iter().filter(on_host).filter(|id| class.raises.contains(id)).peekable();
        if repelled.peek().is_none() {
            continue;
        }
        let usable = (0..catalog.families.len())
            .filter(|&family| problem.allowed.get(class.signature, catalog.families[family].signature));
        let shapes = usable.filter_map(|at| catalog.cheapest(problem, &draft.stock, at, &class.request));
        let Some(cost) = shapes.map(|shape| problem.shapes[shape as usize].cost).min() else { continue };
        for &id in repelled {
            *sums.entry(id).or_default() += cost.saturating_mul(i64::from(left));
        }
    }
    sums.into_values().max().unwrap_or(0)
}

/// What machines of an attempt cost beyond the worth of their load, by the lane of which the smallest share is left.
fn wasted(problem: &Problem, attempt: &Attempt) -> Vec<i128> {
    let mut wasted = vec![0_i128; problem.lanes];
    let mut load = vec![0_i64; problem.lanes];
    for batch in &attempt.batches {
        load.fill(0);
        for &(lot, count) in &batch.pods {
            let class = attempt.places.lots[lot as usize].class;
            for (sum, &want) in load.iter_mut().zip(&problem.classes[class as usize].request) {
                *sum = sum.saturating_add(want.saturating_mul(i64::from(count)));
            }
        }
        let shape = &problem.shapes[batch.shape as usize];
        let share = |lane: usize| {
            let (have, used) = (i128::from(shape.room[lane]), i128::from(load[lane]));
            (have > 0 && used > 0).then(|| (used << 32) / have)
        };
        let tightest = (0..problem.lanes).rev().max_by_key(|&lane| share(lane));
        let waste = shape.cost.saturating_sub(prices::worth(&attempt.prices, &load)).max(0);
        if let Some(lane) = tightest {
            wasted[lane] += i128::from(waste) * i128::from(batch.machines);
        }
    }
    wasted
}

fn demand(problem: &Problem, left: &[u32]) -> Vec<i128> {
    let mut sums = vec![0_i128; problem.lanes];
    for (class, &count) in problem.classes.iter().zip(left) {
        for (sum, &want) in sums.iter_mut().zip(&class.request) {
            *sum += i128::from(want) * i128::from(count);
        }
    }
    sums
}

/// Room and cost of every shape worth looking at.
fn machines<'p>(problem: &'p Problem, catalog: &Catalog) -> Vec<(&'p [i64], i64)> {
    let mut machines: Vec<(&[i64], i64)> = catalog
        .families
        .iter()
        .flat_map(|family| &family.shapes)
        .map(|&shape| (problem.shapes[shape as usize].room.as_slice(), problem.shapes[shape as usize].cost))
        .collect();
    machines.sort_unstable();
    machines.dedup();
    machines
}
