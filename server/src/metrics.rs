//! What Prometheus scrapes. Labels are bounded: routes, methods, codes and operations, never ids.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};

use prometheus_client::{
    collector::Collector,
    encoding::{
        EncodeLabelSet,
        text::{encode, encode_eof, encode_registry},
    },
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

/// From a tenth of a millisecond (a read from memory) to ten seconds (a store that hardly answers).
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Makes histograms of request times.
#[derive(Debug, Clone, Copy)]
pub struct Latency;

impl MetricConstructor<Histogram> for Latency {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub method: &'static str,
    pub route: &'static str,
    pub code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RouteLabels {
    pub method: &'static str,
    pub route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StoreLabels {
    pub operation: &'static str,
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OperationLabels {
    pub operation: &'static str,
}

/// Writes families of series at the moment of a scrape.
pub type Text = Box<dyn Fn() -> String + Send + Sync>;

/// Counters and gauges that the service keeps while it runs.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Series of every host, served apart and only where somebody wants them.
    hosts: Mutex<Option<Registry>>,
    /// Whole families as text, for names that keep to no convention.
    texts: Mutex<Vec<Text>>,
    pub requests: Family<RequestLabels, Counter>,
    pub request_seconds: Family<RouteLabels, Histogram, Latency>,
    pub in_flight: Gauge,
    pub watches: Gauge,
    pub store_requests: Family<StoreLabels, Counter>,
    pub store_seconds: Family<OperationLabels, Histogram, Latency>,
    /// 1 unless the last write failed because of the store itself.
    pub store_writable: Gauge,
    pub audit_lines: Counter,
    pub revision: Gauge<i64, std::sync::atomic::AtomicI64>,
    pub rate_limited: Counter<u64, AtomicU64>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("muster");
        let requests = Family::default();
        registry.register("http_requests", "Answers by method, route and status code", requests.clone());
        let request_seconds = Family::new_with_constructor(Latency);
        registry.register(
            "http_request_duration_seconds",
            "Time from the request's head to the answer's head",
            request_seconds.clone(),
        );
        let in_flight = Gauge::default();
        registry.register("http_requests_in_flight", "Requests being answered now", in_flight.clone());
        let watches = Gauge::default();
        registry.register("http_watches_open", "Watches being served now", watches.clone());
        let store_requests = Family::default();
        registry.register("store_requests", "Calls to the store by outcome", store_requests.clone());
        let store_seconds = Family::new_with_constructor(Latency);
        registry.register(
            "store_request_duration_seconds",
            "Time that calls to the store took",
            store_seconds.clone(),
        );
        let store_writable = Gauge::default();
        store_writable.set(1);
        registry.register(
            "store_writable",
            "0 when the last write failed because of the store: a full or read-only disk, or no answer",
            store_writable.clone(),
        );
        let audit_lines = Counter::default();
        registry.register("audit_lines", "Lines written to the audit log", audit_lines.clone());
        let revision = Gauge::default();
        registry.register("index_revision", "Store revision that lists show", revision.clone());
        let rate_limited = Counter::default();
        registry.register(
            "http_rate_limited",
            "Requests refused because their identity sent too many",
            rate_limited.clone(),
        );
        // A gauge, as Prometheus itself does it: its text format knows no type `info`.
        let build: Family<[(&'static str, &'static str); 1], Gauge> = Family::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build_info", "Version that runs", build);
        Arc::new(Self {
            registry: Mutex::new(registry),
            hosts: Mutex::default(),
            texts: Mutex::default(),
            requests,
            request_seconds,
            in_flight,
            watches,
            store_requests,
            store_seconds,
            store_writable,
            audit_lines,
            revision,
            rate_limited,
        })
    }

    /// Adds what is read from elsewhere at the moment of a scrape.
    pub fn register(&self, collector: Box<dyn Collector>) {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).register_collector(collector);
    }

    /// Adds families that write themselves.
    pub fn register_text(&self, text: Text) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Serves series of every host from now on.
    pub fn register_hosts(&self, collector: Box<dyn Collector>) {
        let mut registry = Registry::default();
        registry.register_collector(collector);
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = Some(registry);
    }

    /// The series of every host; `None` where nobody asked for them.
    pub fn render_hosts(&self) -> Option<Result<String, fmt::Error>> {
        let registry = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        Some(encode(&mut text, registry.as_ref()?).map(|()| text))
    }

    /// The text that is scraped.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        encode_registry(&mut text, &registry)?;
        for more in self.texts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            text.push_str(&more());
        }
        encode_eof(&mut text)?;
        Ok(text)
    }
}
