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
pub(super) async fn saved_lately(
    call: &Call,
    part: &Part,
    hosts: &[Arc<Host>],
    now: Timestamp,
) -> Result<Value, ApiError> {
    let samples = call.app.desk.history.read(now, LONGEST).await.map_err(RegistryError::Store)?;
    let total: u64 =
        hosts.iter().filter_map(|host| host.metrics()).map(|one| one.saved_milliwatt_hours).sum();
    let before = samples.first().map(|sample| {
        let rows = sample.pools.iter().filter(|row| visible(call, row) && part.has_pool(&row.pool));
        (sample.at, rows.map(|row| row.saved_milliwatt_hours).sum::<u64>())
    });
    let (since, before) = before.map_or((None, 0), |(at, before)| (Some(at), before));
    let saved = total.saturating_sub(before);
    let global = call.inventory().global();
    Ok(json!({
        "milliwatt_hours": saved, "since": since, "method": METHOD,
        "micros": cost(saved, global.config.energy_price_micros), "currency": global.config.currency,
    }))
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
        "saved_today": saved_lately(&call, &Part::default(), &hosts, now).await?,
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
        let own = stored.and_then(|entry| serde_json::from_slice::<PoolHostConfig>(&entry.value).ok());
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
