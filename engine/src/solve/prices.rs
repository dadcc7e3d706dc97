//! What a unit of each lane is worth, judged by what machines cost and what is wanted.
//!
//! The answer approximates the dual of "buy machines until every lane is covered": packing a machine well
//! then means that the worth of its load comes close to its cost. Only a guide for the search: it never
//! decides what is legal.

/// Scale of lane prices: cost units times this, per unit of the lane.
pub(crate) const SCALE: u32 = 40;
const ROUNDS: usize = 48;

/// Worth of one unit of each lane, in cost units shifted left by [`SCALE`].
pub(crate) fn lane_prices(demand: &[i128], machines: &[(&[i64], i64)]) -> Vec<i64> {
    let lanes = demand.len();
    let one = 1_i128 << 30;
    // What one machine contributes to covering each lane, as a share of the demand.
    let share = |room: &[i64], lane: usize| -> i128 {
        if demand[lane] <= 0 { 0 } else { (i128::from(room[lane].max(0)) << 40) / demand[lane] }
    };
    let shares: Vec<Vec<i128>> =
        machines.iter().map(|(room, _)| (0..lanes).map(|lane| share(room, lane)).collect()).collect();
    let mut weight: Vec<i128> = (0..lanes).map(|lane| if demand[lane] > 0 { one } else { 0 }).collect();
    let mut sums = vec![0_i128; lanes];
    let mut rounds = 0_i128;
    for _ in 0..ROUNDS {
        let total: i128 = weight.iter().sum();
        if total == 0 {
            break;
        }
        // The machine that covers most of what is still dear, for its cost.
        let mut best: Option<(i128, usize)> = None;
        for (at, (_, cost)) in machines.iter().enumerate() {
            let gain: i128 = (0..lanes).map(|lane| (weight[lane] * shares[at][lane]) >> 30).sum();
            let value = (gain << 20) / i128::from((*cost).max(1));
            if value > 0 && best.is_none_or(|(top, _)| value > top) {
                best = Some((value, at));
            }
        }
        let Some((value, at)) = best else { break };
        for lane in 0..lanes {
            if demand[lane] > 0 {
                // weight / demand / value: a feasible dual of this round.
                sums[lane] += (weight[lane] << 30) / value;
            }
        }
        rounds += 1;
        let most = shares[at].iter().copied().max().unwrap_or(1).max(1);
        for lane in 0..lanes {
            weight[lane] -= weight[lane] * shares[at][lane] / most / 6;
        }
        let peak = weight.iter().copied().max().unwrap_or(0);
        if peak < one / 2 {
            for weight in &mut weight {
                *weight *= 2;
            }
        }
    }
    (0..lanes)
        .map(|lane| {
            if demand[lane] <= 0 || rounds == 0 {
                return 0;
            }
            let price = ((sums[lane] / rounds) << SCALE) / demand[lane];
            i64::try_from(price).unwrap_or(i64::MAX)
        })
        .collect()
}

/// Worth of a load, in cost units.
#[inline]
pub(crate) fn worth(prices: &[i64], load: &[i64]) -> i64 {
    let mut sum = 0_i128;
    for (&price, &amount) in prices.iter().zip(load) {
        sum += i128::from(price) * i128::from(amount);
    }
    i64::try_from(sum >> SCALE).unwrap_or(i64::MAX)
}

/// Worth of an amount of one lane, in cost units.
#[inline]
pub(crate) fn lane_worth(price: i64, amount: i64) -> i64 {
    i64::try_from((i128::from(price) * i128::from(amount)) >> SCALE).unwrap_or(i64::MAX)
}

/// The same prices with one lane dearer or cheaper, scaled so that no machine is worth more than its cost.
pub(crate) fn tilted(prices: &[i64], lane: usize, percent: i64, machines: &[(&[i64], i64)]) -> Vec<i64> {
    let mut tilted = prices.to_vec();
    tilted[lane] = i64::try_from(i128::from(tilted[lane]) * i128::from(percent) / 100).unwrap_or(i64::MAX);
    scale_to_cost(&mut tilted, machines);
    tilted
}

/// Lanes whose whole demand is worth less than this share of the dearest lane's are not what machines are
/// bought for.
const MINOR: i128 = 4;

/// The same prices with next to nothing for lanes that are not scarce; `None` if there is no such lane.
pub(crate) fn sharpened(prices: &[i64], demand: &[i128], machines: &[(&[i64], i64)]) -> Option<Vec<i64>> {
    let mut sharp = prices.to_vec();
    for lane in minor_lanes(prices, demand) {
        sharp[lane] /= 16;
    }
    if sharp == prices {
        return None;
    }
    scale_to_cost(&mut sharp, machines);
    Some(sharp)
}

/// The same prices with what machines waste charged to all who use the lane that ran out on them first; `wasted` is by
/// that lane. `None` where prices already explain at least half of the cost: then the search finds better ones.
pub(crate) fn charged(
    prices: &[i64],
    wasted: &[i128],
    cost: i64,
    demand: &[i128],
    machines: &[(&[i64], i64)],
) -> Option<Vec<i64>> {
    let explained: i128 =
        prices.iter().zip(demand).map(|(&price, &wanted)| i128::from(price).saturating_mul(wanted)).sum();
    if (explained >> SCALE) * 2 >= i128::from(cost) {
        return None;
    }
    let mut charged = prices.to_vec();
    for ((price, &waste), &wanted) in charged.iter_mut().zip(wasted).zip(demand) {
        if wanted > 0 {
            let more = waste.saturating_mul(1 << SCALE) / wanted;
            *price = price.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        }
    }
    scale_to_cost(&mut charged, machines);
    Some(charged)
}

/// Lanes that somebody wants and machines are not bought for.
fn minor_lanes(prices: &[i64], demand: &[i128]) -> Vec<usize> {
    let worth = |lane: usize| i128::from(prices[lane]).saturating_mul(demand[lane]);
    let most = (0..prices.len()).map(worth).max().unwrap_or(0);
    (0..prices.len()).filter(|&lane| demand[lane] > 0 && worth(lane) < most / MINOR).collect()
}

/// Scales prices so that no machine is worth more than its cost.
fn scale_to_cost(prices: &mut [i64], machines: &[(&[i64], i64)]) {
    let mut most: Option<(i64, i64)> = None;
    for (room, cost) in machines {
        let value = worth(prices, room);
        if most.is_none_or(|(v, c)| i128::from(value) * i128::from(c) > i128::from(v) * i128::from(*cost)) {
            most = Some((value, *cost));
        }
    }
    if let Some((value, cost)) = most.filter(|(value, _)| *value > 0) {
        for price in prices {
            *price =
                i64::try_from(i128::from(*price) * i128::from(cost) / i128::from(value)).unwrap_or(i64::MAX);
        }
    }
}
