//! Runs one case: times, cost against its bound, the audit's verdict, memory.

use std::time::Instant;

use muster_engine::{
    Snapshot, audit,
    plan::{Explain, scale_up, scale_up_with},
};
use serde::Serialize;

use super::{Case, Options, bound};

/// What was measured of a case.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    pub case: String,
    /// Numbers of the bars that the case belongs to.
    pub bars: String,
    pub pods: usize,
    pub min_ms: f64,
    pub median_ms: f64,
    /// Every run, the fastest first.
    pub runs_ms: Vec<f64>,
    /// Processor time of a run, averaged: on a shared machine the wall clock also measures the neighbours.
    pub cpu_ms: f64,
    /// The same without reasons.
    pub bare_ms: f64,
    pub limit_ms: Option<f64>,
    pub nodes: usize,
    pub cost: f64,
    pub bound: f64,
    pub ratio: f64,
    pub limit_ratio: Option<f64>,
    pub unplaced: usize,
    pub preferences_kept: Option<f64>,
    /// `accepted`, the first finding, or `not run`.
    pub audit: String,
    pub max_rss_kb: u64,
    pub note: String,
}

/// Runs a case.
pub fn measure(case: &Case, options: &Options) -> Result<Outcome, String> {
    let snapshot = (case.make)(options)?;
    let mut times = Vec::new();
    let mut decision = None;
    let before = cpu_millis();
    for _ in 0..options.repeat {
        times.push(millis(|| decision = Some(scale_up(&snapshot))));
    }
    let cpu = (cpu_millis() - before) / options.repeat as f64;
    let before = cpu_millis();
    for _ in 0..options.repeat {
        drop(scale_up_with(&snapshot, Explain::No));
    }
    let bare = (cpu_millis() - before) / options.repeat as f64;
    let decision = decision.ok_or("nothing was measured")?;
    times.sort_by(f64::total_cmp);
    let plan = &decision.plan;
    let verdict = if options.audit && !case.too_large_to_audit {
        let findings = audit(&snapshot, plan);
        findings.fatal().map_or_else(|| "accepted".into(), |finding| format!("refused: {finding:?}"))
    } else {
        "not run".into()
    };
    let cost: i64 = plan.new_nodes.iter().map(|new| new.price).sum();
    let bound = bound_of(&snapshot, case.granule);
    let stated = decision.report.preferences.stated;
    Ok(Outcome {
        case: case.name.into(),
        bars: case.bars.into(),
        pods: plan.placements.len() + plan.unplaced.len(),
        min_ms: times[0],
        median_ms: times[times.len() / 2],
        runs_ms: times.clone(),
        cpu_ms: cpu,
        bare_ms: bare,
        limit_ms: case.limit_ms,
        nodes: plan.new_nodes.len(),
        cost: cost as f64 / 1e6,
        bound: bound / 1e6,
        ratio: if bound > 0.0 { cost as f64 / bound } else { 1.0 },
        limit_ratio: case.limit_ratio,
        unplaced: plan.unplaced.len(),
        preferences_kept: (stated > 0).then(|| decision.report.preferences.kept as f64 / stated as f64),
        audit: verdict,
        max_rss_kb: max_rss_kb(),
        note: String::new(),
    })
}

/// The bound on the cost of new machines; zero where nodes exist already.
fn bound_of(snapshot: &Snapshot, granule: Option<f64>) -> f64 {
    if !snapshot.cluster.nodes.is_empty() {
        return 0.0;
    }
    let problem = muster_engine::plan::problem(snapshot);
    bound::lower_bound(&problem, granule.map(|granule| granule * 1e6)).cost
}

#[allow(clippy::disallowed_methods, reason = "a bench is what a clock is for")]
pub(super) fn millis(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

/// Processor time of this thread so far.
pub(super) fn cpu_millis() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: f64 = text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0);
    nanos / 1e6
}

/// Peak resident memory of this process.
pub(super) fn max_rss_kb() -> u64 {
    status_kb("VmHWM:")
}

/// Resident memory of this process now.
pub(super) fn rss_kb() -> u64 {
    status_kb("VmRSS:")
}

fn status_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}
