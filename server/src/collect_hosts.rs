//! Metrics about hosts: bounded ones for all, and series for each where somebody wants them.

use std::{fmt, sync::Arc};

use muster_control::hosts::{HostFigure, HostLoop, UNVERIFIED};
use muster_model::host::PublicPower;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// Pools with energy series of their own; the rest is left out.
const MAX_ENERGY_POOLS: usize = 200;

/// Numbers about hosts as a whole, read at the moment of a scrape. No label names a host.
pub struct HostCollector {
    hosts: Arc<HostLoop>,
}

impl fmt::Debug for HostCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostCollector")
    }
}

impl HostCollector {
    pub fn new(hosts: Arc<HostLoop>) -> Self {
        Self { hosts }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// One family of gauges or counters with one label.
fn family<'l>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, kind): (&str, &str, MetricType),
    label: &str,
    rows: impl IntoIterator<Item = (&'l str, u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (value, number) in rows {
        let labels = [(label, value)];
        let labels = labels.as_slice();
        let place = family.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(number).encode(place)?,
            _ => ConstGauge::new(whole(number)).encode(place)?,
        }
    }
    Ok(())
}

fn single(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, kind): (&str, &str, MetricType),
    number: u64,
) -> Result<(), fmt::Error> {
    let place = encoder.encode_descriptor(name, help, None, kind)?;
    match kind {
        MetricType::Counter => ConstCounter::new(number).encode(place),
        _ => ConstGauge::new(whole(number)).encode(place),
    }
}

impl Collector for HostCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        use MetricType::{Counter, Gauge};
        let figures = self.hosts.figures();
        let e = &mut encoder;
        single(e, ("leader", "1 while this process leads", Gauge), u64::from(figures.leading))?;
        let phases = figures.phases.iter().map(|(phase, count)| (phase.as_str(), *count));
        family(e, ("hosts", "Hosts by phase", Gauge), "phase", phases)?;
        single(e, ("hosts_overdue", "Hosts in a phase for longer than it may take", Gauge), figures.overdue)?;
        single(e, ("hosts_bmc_unreachable", "Hosts whose BMC does not answer", Gauge), figures.unreachable)?;
        let unverified = UNVERIFIED
            .into_iter()
            .map(|(_, how)| (how, figures.unverified.get(how).copied().unwrap_or_default()));
        family(
            e,
            ("hosts_unverified", "Hosts whose BMC is talked to without checking who it is", Gauge),
            "how",
            unverified,
        )?;
        single(e, ("hosts_set_aside", "Hosts whose record cannot be used", Gauge), figures.set_aside)?;
        let entered = figures.entered.iter().map(|(phase, count)| (phase.as_str(), *count));
        family(e, ("host_transitions", "Phases that hosts entered", Counter), "phase", entered)?;
        family(
            e,
            ("host_power_calls", "Calls that were sent to power drivers", Counter),
            "call",
            figures.calls,
        )?;
        let looks = [("answered", figures.looks), ("failed", figures.failed_looks)];
        family(e, ("host_looks", "Readings of machines by outcome", Counter), "outcome", looks)?;
        single(e, ("host_turns", "Turns that hosts took", Counter), figures.turns)?;
        single(
            e,
            ("host_start_waits", "Times that a start was held back by a limit", Counter),
            figures.waits,
        )?;
        let pools = || figures.pools.iter().take(MAX_ENERGY_POOLS);
        let used = pools().map(|(name, pool)| (name.as_str(), joules(pool.used_milliwatt_hours)));
        family(
            e,
            (
                "hosts_energy_used_joules",
                "Energy that a pool's hosts used since the process started",
                Counter,
            ),
            "pool",
            used,
        )?;
        let saved = pools().map(|(name, pool)| (name.as_str(), joules(pool.saved_milliwatt_hours)));
        family(
            e,
            (
                "hosts_energy_saved_joules",
                "Energy that a pool's hosts saved while off since the process started",
                Counter,
            ),
            "pool",
            saved,
        )?;
        let drawn =
            pools().map(|(name, pool)| (name.as_str(), u64::try_from(pool.milliwatts / 1000).unwrap_or(0)));
        family(
            e,
            ("hosts_power_watts", "Power that a pool's hosts draw as far as it is known", Gauge),
            "pool",
            drawn,
        )
    }
}

/// Series for every host, under the names that dashboards and triggers know.
pub struct EachHostCollector {
    hosts: Arc<HostLoop>,
}

impl fmt::Debug for EachHostCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EachHostCollector")
    }
}

impl EachHostCollector {
    pub fn new(hosts: Arc<HostLoop>) -> Self {
        Self { hosts }
    }
}

/// A series of a host: its name, its help text, and how it is read. What is not known is left out.
type HostSeries = (&'static str, &'static str, fn(&HostFigure) -> Option<f64>);

const HOST_SERIES: [HostSeries; 6] = [
    ("node_cpu_utilization", "Requested share of the allocatable CPU", |host| host.cpu_permille.map(share)),
    ("node_memory_utilization", "Requested share of the allocatable memory", |host| {
        host.memory_permille.map(share)
    }),
    ("node_temperature", "Hottest sensor in degrees Celsius", |host| host.millicelsius.map(share)),
    ("node_power_consumption", "Watts that the BMC measures, else the declared ones", |host| {
        host.milliwatts.map(share)
    }),
    ("muster_host_bmc_reachable", "1 if the BMC answers", |host| {
        Some(f64::from(u8::from(host.bmc_reachable)))
    }),
    ("muster_host_on", "1 if the machine is on, 0 if it is off", |host| match host.power {
        PublicPower::On => Some(1.0),
        PublicPower::Off => Some(0.0),
        PublicPower::Unknown => None,
    }),
];

#[allow(clippy::cast_precision_loss, reason = "thousandths of small amounts")]
fn share(thousandths: i64) -> f64 {
    thousandths as f64 / 1000.0
}

impl Collector for EachHostCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let hosts = self.hosts.host_figures();
        for (name, help, read) in HOST_SERIES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for host in &hosts {
                if let Some(value) = read(host) {
                    let labels = [("node", &*host.host), ("pool", host.pool.as_str())];
                    ConstGauge::new(value).encode(family.encode_family(&labels.as_slice())?)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "muster_host_phase",
            "1 for the phase that a host is in",
            None,
            MetricType::Gauge,
        )?;
        for host in &hosts {
            let labels =
                [("node", &*host.host), ("pool", host.pool.as_str()), ("phase", host.phase.as_str())];
            ConstGauge::new(1_i64).encode(family.encode_family(&labels.as_slice())?)?;
        }
        Ok(())
    }
}

/// Prometheus wants base units.
const fn joules(milliwatt_hours: u64) -> u64 {
    // 3,600 seconds in an hour, 1,000 milliwatts in a watt.
    milliwatt_hours.saturating_mul(18) / 5
}
