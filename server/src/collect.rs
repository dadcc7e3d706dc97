//! Metrics that are read from elsewhere: calls to the store, and the pools in the index.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use muster_control::{
    hosts::{HostFigure, HostLoop},
    registry::{Kind, Registry, Summary},
};
use muster_model::{
    Clock,
    host::PublicPower,
    store::{Committed, Entry, List, Page, Revision, Store, StoreError, StoreStats, Txn, WatchStream},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use crate::metrics::{Metrics, OperationLabels, StoreLabels};

/// A store whose calls are counted and timed.
#[derive(Debug)]
pub struct MeteredStore {
    inner: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
}

impl MeteredStore {
    pub fn new(inner: Arc<dyn Store>, metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, metrics, clock }
    }

    async fn measured<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let started = self.clock.precise();
        let result = call.await;
        let took = self.clock.precise().saturating_sub(started);
        self.metrics.store_seconds.get_or_create(&OperationLabels { operation }).observe(took.as_secs_f64());
        let outcome = result.as_ref().err().map_or("ok", StoreError::code);
        self.metrics.store_requests.get_or_create(&StoreLabels { operation, outcome }).inc();
        result
    }
}

#[async_trait]
impl Store for MeteredStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.measured("get", self.inner.get(key)).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.measured("list", self.inner.list(list)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        self.measured("commit", self.inner.commit(txn)).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        self.measured("watch", self.inner.watch(prefix, after)).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.measured("revision", self.inner.revision()).await
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.measured("compact", self.inner.compact(before)).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        self.measured("stats", self.inner.stats()).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

/// Pools that get series of their own: 8 each, so that a scrape stays within 2,000 series by default. The
/// rest is counted in `muster_nodepools_without_series`.
const MAX_POOLS: usize = 200;

/// The pools of the index, read at the moment of a scrape.
pub struct PoolCollector {
    registry: Arc<Registry>,
}

impl fmt::Debug for PoolCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolCollector")
    }
}

impl PoolCollector {
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }
}

/// What a gauge shows of a pool: a suffix, a help text, and the numbers with their extra label.
type Series = (&'static str, &'static str, Option<&'static str>, fn(&Summary) -> Vec<(&'static str, u32)>);

fn one(number: Option<u32>) -> Vec<(&'static str, u32)> {
    number.map(|number| ("", number)).into_iter().collect()
}

const SERIES: [Series; 6] = [
    ("nodepool_nodes", "Nodes by cluster, pool and state", Some("state"), |pool| {
        let known = [("current", pool.counts.current), ("ready", pool.counts.ready)];
        known.into_iter().filter_map(|(state, number)| Some((state, number?))).collect()
    }),
    ("nodepool_desired_nodes", "Nodes that a pool should have", None, |pool| one(pool.counts.desired)),
    ("nodepool_min_nodes", "Lower bound of a pool's size", None, |pool| one(pool.counts.min)),
    ("nodepool_max_nodes", "Upper bound of a pool's size", None, |pool| one(pool.counts.max)),
    ("nodepool_phase", "1 for the phase that a pool is in", Some("phase"), |pool| vec![(pool.phase, 1)]),
    ("nodepool_health", "1 for the health that a pool has", Some("health"), |pool| vec![(pool.health, 1)]),
];

impl Collector for PoolCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut pools = Vec::new();
        let mut total = 0_u64;
        self.registry.each(Kind::Pool, |pool| {
            total += 1;
            if pools.len() < MAX_POOLS {
                pools.push(pool.clone());
            }
        });
        let mut clusters = 0_u64;
        let mut names = std::collections::HashMap::new();
        self.registry.each(Kind::Cluster, |cluster| {
            clusters += 1;
            names.insert(cluster.id, cluster.name.clone());
        });
        for (name, help, extra, read) in SERIES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for pool in &pools {
                let cluster = names.get(&pool.cluster).map_or("", |name| &**name);
                for (value, number) in read(pool) {
                    let gauge = ConstGauge::new(i64::from(number));
                    let mut labels =
                        vec![("project", &*pool.project), ("cluster", cluster), ("nodepool", &*pool.name)];
                    if let Some(extra) = extra {
                        labels.push((extra, value));
                    }
                    gauge.encode(family.encode_family(&labels.as_slice())?)?;
                }
            }
        }
        let count = |encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, number: u64| {
            let gauge = ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX));
            let family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(family)
        };
        count(&mut encoder, "clusters", "Clusters that are registered", clusters)?;
        count(&mut encoder, "nodepools", "Pools that are registered", total)?;
        let left_out = total.saturating_sub(pools.len() as u64);
        count(&mut encoder, "nodepools_without_series", "Pools left out of the series above", left_out)?;
        Ok(())
    }
}

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
        let used = pools().map(|(name, pool)| (name.as_str(), pool.used_milliwatt_hours / 1000));
        family(
            e,
            ("hosts_energy_used_watt_hours", "Energy that a pool's hosts used", Counter),
            "pool",
            used,
        )?;
        let saved = pools().map(|(name, pool)| (name.as_str(), pool.saved_milliwatt_hours / 1000));
        family(
            e,
            ("hosts_energy_saved_watt_hours", "Energy that a pool's hosts saved while off", Counter),
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
