//! `GET /api/v1/energy` and `GET /api/v1/history`: what is drawn, used and saved, and figures over time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{extract::Path, http::StatusCode, response::Response};
use muster_control::{
    history::{LONGEST, PoolRow, Sample},
    hosts::energy_cost as cost,
    inventory::Host,
    journal::DecisionFilter,
    registry::RegistryError,
};
use muster_model::{
    Duration, Known, Timestamp,
    field::FieldError,
    host::{
        BareMetalNodeSpec, HostMetrics, PoolHostConfig, PublicPower, WattsBy,
        keys::{self, PoolRecord},
    },
    identity::{Resource, Verb},
};
use serde_json::{Value, json};

use super::{Call, decisions, part::Part, reply};
use crate::error::ApiError;

/// How it is counted, for people who are shown a sum.
const METHOD: &str = "A machine that is on counts with what its BMC measures, else with its declared idle watts. A machine \
that is off saves its declared idle watts for as long as it is off: what it would have drawn at rest. Machines without \
either count for nothing, and so does time in which nobody looked.";
/// Decisions that a chart marks.
const MOST_MARKS: usize = 100;
/// Time of a host that is accounted for at once, at most.
const ACCOUNTED_WITHIN: Duration = Duration::from_mins(10);
/// Hosts whose wear is listed, the most worn first.
const MOST_CYCLES: usize = 500;

/// What hosts draw now.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub milliwatts: i64,
    /// Hosts whose draw nobody knows.
    pub unmetered: usize,
    /// Hosts that count with their declared watts.
    pub declared: usize,
}

pub(super) fn drawn(hosts: &[Arc<Host>]) -> Drawn {
    let mut sum = Drawn::default();
    for host in hosts {
        let Some(metrics) = host.metrics() else {
            sum.unmetered += 1;
            continue;
        };
        match &metrics.milliwatts {
            Known::Value { value, .. } => sum.milliwatts = sum.milliwatts.saturating_add(*value),
            Known::Unknown { .. } => sum.unmetered += 1,
        }
        let on = host.status.as_ref().is_some_and(|status| status.power_state == PublicPower::On);
        sum.declared += usize::from(on && metrics.watts_by == Some(WattsBy::Declared));
    }
    sum
}

fn visible(call: &Call, row: &PoolRow) -> bool {
    call.sees(&call.project_of(row.project.as_deref()))
}

/// What was saved since the oldest sample of the last 24 hours.
pub(super) async fn saved_lately(call: &Call, part: &Part, now: Timestamp) -> Result<Value, ApiError> {
    let mut samples = call.app.desk.history.read(now, LONGEST).await.map_err(RegistryError::Store)?;
    let since = samples.first().map(|sample| sample.at);
    samples.push(call.app.desk.history.sample(now));
    let saved = saved_over(&samples, |row| visible(call, row) && part.has_pool(&row.pool));
    let global = call.inventory().global();
    Ok(json!({
        "milliwatt_hours": saved, "since": since, "method": METHOD,
        "micros": cost(saved, global.config.energy_price_micros), "currency": global.config.currency,
    }))
}

/// What pools saved from sample to sample. A host that leaves, or that comes with what it saved elsewhere, changes the sum of
/// its pool and saves nothing by that: no interval counts for less than nothing, or for more than hosts that are all off save in it.
fn saved_over(samples: &[Sample], counts: impl Fn(&PoolRow) -> bool) -> u64 {
    let mut last: BTreeMap<(Option<&str>, &str), (Timestamp, u64)> = BTreeMap::new();
    let mut saved = 0_u64;
    for sample in samples {
        for row in sample.pools.iter().filter(|row| counts(row)) {
            let now = (sample.at, row.saved_milliwatt_hours);
            let Some((at, before)) = last.insert((row.project.as_deref(), &row.pool), now) else { continue };
            let length = sample.at.since(at).saturating_add(ACCOUNTED_WITHIN);
            let most = i128::from(row.all_on_milliwatts) * i128::from(length.millis()) / 3_600_000;
            let more = row.saved_milliwatt_hours.saturating_sub(before);
            saved = saved.saturating_add(more.min(u64::try_from(most).unwrap_or(u64::MAX)));
        }
    }
    saved
}

/// `GET /api/v1/energy`
pub async fn read(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::Hosts)?;
    call.query()?.finish()?;
    let now = call.app.clock.now();
    let hosts = call.inventory().hosts(&call.host_filter())?;
    let global = call.inventory().global();
    let price = global.config.energy_price_micros;
    let mut pools: BTreeMap<String, Share> = BTreeMap::new();
    let mut racks: BTreeMap<Option<String>, Share> = BTreeMap::new();
    let mut all = Share::default();
    let mut cycles = Vec::new();
    for host in &hosts {
        let Some(spec) = host.readable() else { continue };
        for share in [
            &mut all,
            pools.entry(spec.pool.clone()).or_default(),
            racks.entry(spec.rack.clone()).or_default(),
        ] {
            share.add(spec, host.metrics());
        }
        if let Some(status) = &host.status {
            cycles.push((status.starts.len(), host.name.to_string(), spec.pool.clone()));
        }
    }
    cycles.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let drawn = drawn(&hosts);
    let budgets = budgets(&call, pools.keys()).await?;
    let answer = json!({
        "at": now,
        "milliwatts": drawn.milliwatts,
        "all_on_milliwatts": all.all_on,
        "unmetered": drawn.unmetered,
        "declared": drawn.declared,
        "used_milliwatt_hours": all.used,
        "saved_milliwatt_hours": all.saved,
        "used_micros": cost(all.used, price),
        "saved_micros": cost(all.saved, price),
        "price_micros": price,
        "currency": global.config.currency,
        "saved_today": saved_lately(&call, &Part::default(), now).await?,
        "method": METHOD,
        "pools": pools.iter().map(|(name, pool)| pool.show(Some(name), price)).collect::<Vec<_>>(),
        "racks": racks.iter().map(|(name, rack)| rack.show(name.as_deref(), price)).collect::<Vec<_>>(),
        "cycles_total": cycles.len(),
        "cycles": cycles.iter().take(MOST_CYCLES)
            .map(|(count, host, pool)| json!({ "host": host, "pool": pool, "count": count, "budget": budgets.get(pool.as_str()) }))
            .collect::<Vec<_>>(),
        "cycle_budget": global.config.policy.max_cycles_per_day,
    });
    Ok(reply::value(StatusCode::OK, &answer))
}

/// How often a host of each of these pools may be switched on in 24 hours: as its pool says, else as the settings of all hosts do.
async fn budgets<'a>(
    call: &Call,
    pools: impl Iterator<Item = &'a String>,
) -> Result<BTreeMap<&'a str, u32>, ApiError> {
    let policy = &call.inventory().global().config.policy;
    let mut budgets = BTreeMap::new();
    for pool in pools {
        let stored = call.inventory().store().get(&keys::pool(pool, PoolRecord::Config)).await;
        let stored = stored.map_err(RegistryError::Store)?;
        // A record that cannot be read is put right or set aside by the upkeep; until then it says nothing.
        let own = stored.and_then(|entry| PoolHostConfig::parse(&entry.value).ok());
        let policy = policy.with(&own.unwrap_or_default().policy);
        budgets.insert(pool.as_str(), policy.max_cycles_per_day);
    }
    Ok(budgets)
}

/// `GET /api/v1/hosts/{name}/energy`: the same of one host.
pub async fn of_host(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let host = call.checked_host(Verb::Get, &name)?;
    let global = call.inventory().global();
    let price = global.config.energy_price_micros;
    let mut share = Share::default();
    if let Some(spec) = host.readable() {
        share.add(spec, host.metrics());
    }
    let mut answer = share.show(Some(&name), price);
    answer["price_micros"] = json!(price);
    answer["currency"] = json!(global.config.currency);
    answer["method"] = json!(METHOD);
    Ok(reply::value(StatusCode::OK, &answer))
}

/// What some hosts draw, used and saved.
#[derive(Debug, Default)]
struct Share {
    hosts: usize,
    unmetered: usize,
    undeclared: usize,
    milliwatts: i64,
    all_on: i64,
    used: u64,
    saved: u64,
}

impl Share {
    fn add(&mut self, spec: &BareMetalNodeSpec, metrics: Option<&HostMetrics>) {
        let idle = spec.idle_watts.map(|watts| i64::from(watts) * 1000);
        let drawn = metrics.and_then(|metrics| metrics.milliwatts.value().copied());
        self.hosts += 1;
        self.unmetered += usize::from(drawn.is_none());
        self.undeclared += usize::from(idle.is_none());
        self.milliwatts = self.milliwatts.saturating_add(drawn.unwrap_or(0));
        self.all_on = self.all_on.saturating_add(idle.unwrap_or(0).max(drawn.unwrap_or(0)));
        if let Some(metrics) = metrics {
            self.used = self.used.saturating_add(metrics.used_milliwatt_hours);
            self.saved = self.saved.saturating_add(metrics.saved_milliwatt_hours);
        }
    }

    /// `null` is the name of hosts that stand in no rack.
    fn show(&self, name: Option<&str>, price: Option<u64>) -> Value {
        json!({ "name": name, "hosts": self.hosts, "milliwatts": self.milliwatts, "all_on_milliwatts": self.all_on,
            "used_milliwatt_hours": self.used, "saved_milliwatt_hours": self.saved,
            "used_micros": cost(self.used, price), "saved_micros": cost(self.saved, price),
            "unmetered": self.unmetered, "undeclared": self.undeclared })
    }
}

/// Series that can be asked for. `pool_watts` is one series for each pool.
const SERIES: [&str; 8] =
    ["demand_cpu", "on_cpu", "total_cpu", "pending", "hosts_on", "watts", "all_on_watts", "pool_watts"];

/// `GET /api/v1/history`
pub async fn history(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::NodePools)?;
    let mut query = call.query()?;
    let window = query.text("window").map_or(Some(LONGEST), |text| {
        let window =
            text.parse::<Duration>().ok().filter(|window| *window > Duration::ZERO && *window <= LONGEST);
        if window.is_none() {
            let fault = FieldError::new("window", "is not a length of time up to 24h").found_text(&text);
            query.fault(fault.hint("write it like 2h or 90m"));
        }
        window
    });
    let asked: BTreeSet<String> = match query.text("series") {
        None => SERIES.iter().map(|name| (*name).to_owned()).collect(),
        Some(text) => text.split(',').map(str::to_owned).collect(),
    };
    for wrong in asked.iter().filter(|name| !SERIES.contains(&name.as_str())) {
        let fault = FieldError::new("series", "is not a series").found_text(wrong);
        query.fault(fault.allowed(SERIES.join(", ")));
    }
    let part = Part::read(&call, &mut query).await?;
    query.finish()?;
    let window = window.unwrap_or(LONGEST);
    let now = call.app.clock.now();
    let from = now.saturating_sub(window);
    let mut samples = call.app.desk.history.read(now, window).await.map_err(RegistryError::Store)?;
    // The newest moment is now: charts end where figures beside them are.
    samples.push(call.app.desk.history.sample(now));
    let mut series: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for sample in &samples {
        let at = sample.at.millis() / 1000;
        for (name, value) in points(&call, &part, sample, &asked) {
            series.entry(name).or_default().push(json!([at, value]));
        }
    }
    let series: Vec<Value> =
        series.into_iter().map(|(name, points)| json!({ "name": name, "points": points })).collect();
    let answer =
        json!({ "from": from, "to": now, "series": series, "marks": marks(&call, &part, from).await? });
    Ok(reply::value(StatusCode::OK, &answer))
}

/// The figures of one moment that the caller sees; `None` is unknown.
fn points(call: &Call, part: &Part, sample: &Sample, asked: &BTreeSet<String>) -> Vec<(String, Option<i64>)> {
    let pools: Vec<&PoolRow> =
        sample.pools.iter().filter(|row| visible(call, row) && part.has_pool(&row.pool)).collect();
    let clusters: Vec<_> =
        sample.clusters.iter().filter(|row| call.sees(&row.project) && part.has_cluster(row.id)).collect();
    let known = |values: Vec<Option<i64>>| -> Option<i64> {
        let known: Vec<i64> = values.into_iter().flatten().collect();
        (!known.is_empty()).then(|| known.into_iter().fold(0, i64::saturating_add))
    };
    let other: i64 = clusters.iter().map(|row| row.other_milli).sum();
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut found: Vec<(String, Option<i64>)> = Vec::new();
    for name in asked {
        let value = match name.as_str() {
            "demand_cpu" => known(clusters.iter().map(|row| row.demand_milli).collect()),
            "on_cpu" => Some(other + pools.iter().map(|row| row.on_milli).sum::<i64>()),
            "total_cpu" => Some(other + pools.iter().map(|row| row.total_milli).sum::<i64>()),
            "pending" => known(clusters.iter().map(|row| row.pending.map(number)).collect()),
            "hosts_on" => Some(number(pools.iter().map(|row| row.on).sum())),
            "watts" => Some(pools.iter().map(|row| row.milliwatts).sum()),
            "all_on_watts" => Some(pools.iter().map(|row| row.all_on_milliwatts).sum()),
            _ => {
                found.extend(pools.iter().map(|row| (format!("watts:{}", row.pool), Some(row.milliwatts))));
                continue;
            }
        };
        found.push((name.clone(), value));
    }
    found
}

/// Decisions that changed something, for the time axis.
async fn marks(call: &Call, part: &Part, from: Timestamp) -> Result<Vec<Value>, ApiError> {
    let filter = DecisionFilter { since: Some(from), actions_only: true, ..DecisionFilter::default() };
    let mut marks = Vec::new();
    for cluster in decisions::clusters(call).into_iter().filter(|one| part.has_cluster(*one)) {
        let page = call.app.explain.journal().list(cluster, &filter, None, MOST_MARKS).await?;
        marks.extend(page.decisions.into_iter().map(|one| (one.at, one)));
    }
    marks.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let shown = marks.into_iter().take(MOST_MARKS);
    Ok(shown.map(|(at, one)| json!({ "at": at, "id": one.id, "text": one.headline })).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_come_and_go_save_nothing_by_that() {
        /// What each pool of 360 W had saved, every five minutes.
        #[track_caller]
        fn check(samples: &[&[(&str, u64)]], expected: u64) {
            let sample = |(number, pools): (i64, &&[(&str, u64)])| Sample {
                at: Timestamp::from_millis(number * 300_000),
                clusters: Vec::new(),
                pools: pools
                    .iter()
                    .map(|(pool, saved)| PoolRow {
                        pool: (*pool).to_owned(),
                        all_on_milliwatts: 360_000,
                        saved_milliwatt_hours: *saved,
                        ..PoolRow::default()
                    })
                    .collect(),
                left_out: 0,
            };
            let samples: Vec<Sample> = (0..).zip(samples).map(sample).collect();
            assert_eq!(saved_over(&samples, |row| row.pool != "hidden"), expected);
        }
        check(&[], 0);
        check(&[&[("a", 500_000)]], 0);
        check(&[&[("a", 500_000)], &[("a", 530_000)], &[("a", 560_000)]], 60_000);
        check(&[&[("a", 500_000), ("b", 100)], &[("a", 250_000), ("b", 30_100)]], 30_000); // a host is deleted
        check(&[&[("a", 500_000)], &[("a", 250_000)], &[("a", 265_000)]], 15_000);
        // One comes with a year of savings: a quarter of an hour counts at most.
        check(&[&[("a", 0), ("hidden", 0)], &[("a", 9_000_000_000), ("hidden", 9_000)]], 90_000);
        check(&[&[("a", 0)], &[("a", 10), ("new", 700_000)], &[("a", 20), ("new", 700_030)]], 50);
    }
}
