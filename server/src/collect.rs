//! Metrics that are read from elsewhere: calls to the store, and the pools in the index.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use muster_control::{
    planner::{Board, Live},
    registry::{Kind, Registry, Summary},
};
use muster_model::{
    Clock,
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

    async fn get_all(&self, keys: &[String]) -> Result<Vec<Option<Entry>>, StoreError> {
        self.measured("get_all", self.inner.get_all(keys)).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.measured("list", self.inner.list(list)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        let committed = self.measured("commit", self.inner.commit(txn)).await;
        match &committed {
            Ok(_) => {
                self.metrics.store_writable.set(1);
            }
            Err(
                StoreError::Full { .. }
                | StoreError::Damaged { .. }
                | StoreError::Unavailable { .. }
                | StoreError::Ambiguous { .. },
            ) => {
                self.metrics.store_writable.set(0);
            }
            // Says nothing about the store.
            Err(_) => {}
        }
        committed
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
        let frozen = u64::from(!self.registry.freeze().may_act());
        count(
            &mut encoder,
            "frozen",
            "1 while nothing may act: frozen by people, or restored and not observed since",
            frozen,
        )?;
        count(&mut encoder, "clusters", "Clusters that are registered", clusters)?;
        count(&mut encoder, "nodepools", "Pools that are registered", total)?;
        let left_out = total.saturating_sub(pools.len() as u64);
        count(&mut encoder, "nodepools_without_series", "Pools left out of the series above", left_out)?;
        Ok(())
    }
}

/// Clusters whose planners get a series of their own.
const MAX_PLANNERS: usize = 100;

/// How the planners of this process fare.
pub struct PlannerCollector {
    board: Arc<Board>,
}

impl fmt::Debug for PlannerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlannerCollector")
    }
}

impl PlannerCollector {
    pub fn new(board: Arc<Board>) -> Self {
        Self { board }
    }
}

/// A figure of one planner, if it is known.
type OfPlanner = fn(&Live) -> Option<i64>;

impl Collector for PlannerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        use std::sync::atomic::Ordering::Relaxed;
        let counters = &self.board.counters;
        for (name, help, counter) in [
            ("planner_turns", "Looks that planners have taken", &counters.turns),
            ("planner_decisions", "Decisions that were journaled", &counters.decisions),
            (
                "planner_audit_findings",
                "Faults that the audit found in plans; each is a bug",
                &counters.findings,
            ),
            ("planner_void_decisions", "Decisions that the world overtook", &counters.void),
            ("planner_errors", "Looks that failed", &counters.errors),
            (
                "planner_restarts",
                "Planners that were stuck for five minutes or broke off, and were started again; each is a bug",
                &counters.restarts,
            ),
        ] {
            let counter = ConstCounter::new(counter.load(Relaxed));
            let family = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(family)?;
        }
        let planners = self.board.all();
        let families: [(&str, &str, OfPlanner); 3] = [
            ("planner_last_turn_seconds", "When the planner of a cluster last looked", |live| {
                Some(live.turn_at.millis() / 1000)
            }),
            ("planner_waiting", "1 while a cluster has no plan because it is not in sync", |live| {
                Some(i64::from(live.waiting.is_some()))
            }),
            (
                "cluster_current_seconds",
                "When everything that is seen of a cluster was last known to be current",
                |live| Some(live.fresh_at?.millis() / 1000),
            ),
        ];
        for (name, help, figure) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for live in planners.iter().take(MAX_PLANNERS) {
                let Some(value) = figure(live) else { continue };
                let labels = [("project", live.project.as_str()), ("cluster", live.cluster_name.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&labels.as_slice())?)?;
            }
        }
        Ok(())
    }
}
