//! Numbers about hosts for a scrape: bounded ones for all, and one row per host for whoever asks for it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use muster_model::{
    Duration, Known,
    host::{
        BareMetalNodeStatus, ConditionStatus, ConditionType, HostMetrics, Phase, PowerCall, PublicPower,
        find_condition,
    },
};

use super::turn::Shared;

const CALLS: [&str; 7] =
    ["set-boot", "power-on", "wol-burst", "graceful-off", "force-off", "power-cycle", "reset-bmc"];

/// Sensors that were read longer ago than this are not shown: a host at rest is read every five minutes.
const SENSORS_LAST: Duration = Duration::from_mins(15);

/// Counters that only grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    looks: AtomicU64,
    failed_looks: AtomicU64,
    waits: AtomicU64,
    turns: AtomicU64,
    calls: [AtomicU64; CALLS.len()],
    entered: [AtomicU64; Phase::ALL.len()],
    /// Energy that was accounted for by this process, by pool: the sums of hosts that are there fall when one leaves.
    energy: Mutex<BTreeMap<String, Energy>>,
}

/// Milliwatt-hours.
#[derive(Debug, Clone, Copy, Default)]
struct Energy {
    used: u64,
    saved: u64,
}

impl Counters {
    pub(super) fn looked(&self, answered: bool) {
        let counter = if answered { &self.looks } else { &self.failed_looks };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn waited(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn turned(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn calls(&self, call: PowerCall) {
        if let Some(place) = CALLS.iter().position(|name| *name == call.as_str()) {
            self.calls[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts what a host used and saved between two of its records.
    pub(super) fn accounted(&self, pool: &str, before: Option<&HostMetrics>, after: &HostMetrics) {
        let Some(before) = before else { return };
        let mut energy = self.energy.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = energy.entry(pool.to_owned()).or_default();
        sums.used += after.used_milliwatt_hours.saturating_sub(before.used_milliwatt_hours);
        sums.saved += after.saved_milliwatt_hours.saturating_sub(before.saved_milliwatt_hours);
    }

    pub(super) fn moved(&self, to: Phase) {
        if let Some(place) = Phase::ALL.iter().position(|phase| *phase == to) {
            self.entered[place].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Figures of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolFigure {
    /// Counted by this process since it started.
    pub used_milliwatt_hours: u64,
    pub saved_milliwatt_hours: u64,
    pub milliwatts: i64,
}

/// Figures of one host; `None` is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFigure {
    pub host: Arc<str>,
    pub pool: String,
    pub phase: Phase,
    pub power: PublicPower,
    pub milliwatts: Option<i64>,
    pub millicelsius: Option<i64>,
    pub cpu_permille: Option<i64>,
    pub memory_permille: Option<i64>,
    pub bmc_reachable: bool,
}

/// Everything that a scrape shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    pub leading: bool,
    pub phases: BTreeMap<Phase, u64>,
    /// Hosts in a phase for longer than it may take.
    pub overdue: u64,
    pub unreachable: u64,
    /// Hosts whose BMC is talked to without checking who it is, by how.
    pub unverified: BTreeMap<&'static str, u64>,
    pub set_aside: u64,
    pub pools: BTreeMap<String, PoolFigure>,
    pub looks: u64,
    pub failed_looks: u64,
    pub waits: u64,
    pub turns: u64,
    pub calls: Vec<(&'static str, u64)>,
    pub entered: Vec<(Phase, u64)>,
}

/// How a BMC is talked to without checking who it is: each is a label of a metric.
pub const UNVERIFIED: [(&str, &str); 2] = [("InsecureTls", "insecure-tls"), ("PlainHttp", "plain-http")];

fn unverified(status: &BareMetalNodeStatus) -> Option<&'static str> {
    let condition = find_condition(&status.conditions, ConditionType::BmcUnverified)?;
    let holds = condition.status == ConditionStatus::True;
    UNVERIFIED.into_iter().find(|(reason, _)| holds && *reason == condition.reason).map(|(_, label)| label)
}

impl Shared {
    pub(super) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let mut figures = Figures {
            leading: self.lead.now().is_some(),
            looks: read(&counters.looks),
            failed_looks: read(&counters.failed_looks),
            waits: read(&counters.waits),
            turns: read(&counters.turns),
            calls: CALLS.into_iter().zip(counters.calls.iter().map(read)).collect(),
            entered: Phase::ALL.into_iter().zip(counters.entered.iter().map(read)).collect(),
            ..Figures::default()
        };
        for record in self.book().hosts.values() {
            figures.set_aside += u64::from(record.fault.is_some());
            let (Some(spec), Some(status)) = (&record.spec, &record.status) else { continue };
            *figures.phases.entry(status.phase).or_default() += 1;
            figures.overdue += u64::from(status.overdue_since.is_some());
            figures.unreachable += u64::from(!status.bmc_reachable);
            if let Some(how) = unverified(status) {
                *figures.unverified.entry(how).or_default() += 1;
            }
            let Some(metrics) = &record.metrics else { continue };
            let pool = figures.pools.entry(spec.pool.clone()).or_default();
            pool.milliwatts += metrics.milliwatts.value().copied().unwrap_or(0);
        }
        for (pool, sums) in counters.energy.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let figure = figures.pools.entry(pool.clone()).or_default();
            (figure.used_milliwatt_hours, figure.saved_milliwatt_hours) = (sums.used, sums.saved);
        }
        figures
    }

    pub(super) fn host_figures(&self) -> Vec<HostFigure> {
        let now = self.clock.now();
        let known = |value: Option<&Known<i64>>| value.and_then(|value| value.value().copied());
        let figure = |(name, record): (&Arc<str>, &super::Record)| {
            let (spec, status) = (record.spec.as_ref()?, record.status.as_ref()?);
            let metrics = record.metrics.as_deref().filter(|one| now.since(one.at) < SENSORS_LAST);
            Some(HostFigure {
                host: Arc::clone(name),
                pool: spec.pool.clone(),
                phase: status.phase,
                power: status.power_state,
                milliwatts: known(metrics.map(|one| &one.milliwatts)),
                millicelsius: known(metrics.map(|one| &one.millicelsius)),
                cpu_permille: known(metrics.map(|one| &one.cpu_permille)),
                memory_permille: known(metrics.map(|one| &one.memory_permille)),
                bmc_reachable: status.bmc_reachable,
            })
        };
        self.book().hosts.iter().filter_map(figure).collect()
    }
}
