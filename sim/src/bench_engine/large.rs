//! Cases beyond one plan of one snapshot: loaded state, memory, growth with size, the share of reasons.

use std::{fmt::Write, sync::Arc};

use muster_engine::{
    Snapshot,
    plan::{Explain, Loaded, scale_up, scale_up_with},
};
use muster_model::k8s::{Labels, Pod};

use super::{Options, Outcome, cases, measure};

/// Names of the cases, the bars they belong to and what they are held against.
const CASES: [(&str, &str, f64); 7] = [
    ("memory-15k-450k", "11", 120.0),
    ("memory-100k-3m", "11", 800.0),
    ("burst-loaded-15k", "9", 50.0),
    ("burst-events-15k", "9", 0.1),
    ("growth-fixed", "10", 1.05),
    ("growth-diverse", "10", 1.25),
    ("explanations", "18", 0.15),
];
/// Pods on each node of the large clusters.
const PER_NODE: i64 = 30;
/// Pods of the burst.
const BURST: i64 = 5_000;
/// Processor time that is spent on one point of a curve, so that ticks of the clock do not show.
const LEAST_MS: f64 = 150.0;

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, ..)| *name)
}

/// Whether a name on the command line means a case of this file.
pub(super) fn knows(name: &str) -> bool {
    CASES.iter().any(|(case, bar, _)| *case == name || *bar == name)
}

/// Runs the cases that are asked for; all of them if none is named.
pub(super) fn run(options: &Options) -> Result<Vec<Outcome>, String> {
    let wanted = |(case, bar, _): &(&str, &str, f64)| {
        options.cases.is_empty() || options.cases.iter().any(|name| name == case || name == bar)
    };
    let mut outcomes = Vec::new();
    for (case, bars, bar) in CASES.into_iter().filter(wanted) {
        let base =
            Outcome { case: case.into(), bars: bars.into(), audit: "not run".into(), ..Outcome::default() };
        outcomes.push(match case {
            "memory-15k-450k" => memory(base, 15_000, bar)?,
            "memory-100k-3m" => memory(base, 100_000, bar)?,
            "burst-loaded-15k" => burst(base, options, bar)?,
            "burst-events-15k" => events(base, bar)?,
            "growth-fixed" => growth(base, bar, &fixed_sizes()?),
            "growth-diverse" => growth(base, bar, &diverse_sizes()?),
            _ => explanations(base, options, bar)?,
        });
    }
    Ok(outcomes)
}

/// A cluster with some room whose bound pods never exist all at once, and a burst in fifty classes.
fn loaded(nodes: i64) -> Result<Loaded, String> {
    let mut frame = cases::linear_types()?;
    for at in 0..nodes {
        let zone = ["a", "b", "c"][at as usize % 3];
        frame.cluster.nodes.push(cases::node(&format!("n{at}"), 16_000, 64 << 30, zone));
    }
    let mut loaded = Loaded::new(frame);
    for at in 0..nodes {
        for number in 0..PER_NODE {
            loaded.add(running(at, number));
        }
    }
    for at in 0..BURST {
        loaded.add(pending(at));
    }
    Ok(loaded)
}

/// A pod with a spec and labels of its own, as it comes from an API server.
fn running(node: i64, number: i64) -> Pod {
    let mut name = String::new();
    let _ = write!(name, "web-{}-6c9f7b5d4-{node:05}{number:02}", number % 10);
    let labels: Labels = [("app", Box::from(format!("web-{}", number % 10)))].into_iter().collect();
    let node_name = format!("n{node}");
    cases::pod(name, labels, cases::amounts(500 + (node % 5) * 10, 2 << 30), Some(&node_name))
}

fn pending(at: i64) -> Pod {
    let labels = [("app", Box::from(format!("burst-{}", at % 50)))].into_iter().collect();
    let amounts = cases::amounts(250 + (at % 50) * 25, (1 << 30) + (at % 7) * (256 << 20));
    cases::pod(format!("b{at}"), labels, amounts, None)
}

fn memory(base: Outcome, nodes: i64, bar: f64) -> Result<Outcome, String> {
    let before = measure::rss_kb();
    let loaded = loaded(nodes)?;
    let decision = loaded.scale_up(Explain::Yes);
    let peak = measure::max_rss_kb() as f64 / 1024.0;
    Ok(Outcome {
        pods: loaded.bound(),
        nodes: decision.plan.new_nodes.len(),
        unplaced: decision.plan.unplaced.len(),
        ratio: peak,
        limit_ratio: Some(bar),
        max_rss_kb: measure::max_rss_kb(),
        note: format!(
            "peak {peak:.0} MiB after loading and one plan ({} MiB before), {} classes",
            before / 1024,
            loaded.classes()
        ),
        ..base
    })
}

fn burst(base: Outcome, options: &Options, bar: f64) -> Result<Outcome, String> {
    let loaded = loaded(15_000)?;
    let mut times = Vec::new();
    let mut decision = None;
    let before = measure::cpu_millis();
    for _ in 0..options.repeat {
        times.push(measure::millis(|| decision = Some(loaded.scale_up(Explain::Yes))));
    }
    let cpu = (measure::cpu_millis() - before) / options.repeat as f64;
    let decision = decision.ok_or("nothing was measured")?;
    times.sort_by(f64::total_cmp);
    Ok(Outcome {
        pods: decision.plan.placements.len() + decision.plan.unplaced.len(),
        min_ms: times[0],
        median_ms: times[times.len() / 2],
        runs_ms: times.clone(),
        cpu_ms: cpu,
        bare_ms: cpu,
        limit_ms: Some(bar),
        nodes: decision.plan.new_nodes.len(),
        unplaced: decision.plan.unplaced.len(),
        ratio: 1.0,
        max_rss_kb: measure::max_rss_kb(),
        note: format!("{} bound pods in {} classes", loaded.bound(), loaded.classes()),
        ..base
    })
}

/// A bound pod that comes or goes.
fn events(base: Outcome, bar: f64) -> Result<Outcome, String> {
    let mut loaded = loaded(15_000)?;
    let mut times: Vec<f64> = Vec::new();
    for at in 0..20_000 {
        let (node, number) = (at % 15_000, at % PER_NODE);
        let next = running(node, number);
        let key = next.key();
        times.push(measure::millis(|| {
            loaded.remove(&key.namespace, &key.name);
        }));
        times.push(measure::millis(|| loaded.add(next)));
    }
    times.sort_by(f64::total_cmp);
    Ok(Outcome {
        pods: loaded.bound(),
        min_ms: times[0],
        median_ms: times[times.len() * 99 / 100],
        runs_ms: vec![times[times.len() * 99 / 100]],
        limit_ms: Some(bar),
        ratio: 1.0,
        max_rss_kb: measure::max_rss_kb(),
        note: "the median column is the 99th percentile of one change".into(),
        ..base
    })
}

/// Thirty classes, ever more pods of each.
fn fixed_sizes() -> Result<Vec<Snapshot>, String> {
    let base = cases::file("ca-binpack")?;
    let sizes = (0..5).map(|doubling| {
        let mut snapshot = base.clone();
        let specs: Vec<Pod> = (0..30)
            .map(|class: i64| {
                cases::pod(String::new(), Labels::default(), cases::amounts(30 + class * 5, 100), None)
            })
            .collect();
        snapshot.cluster.pods = (0..10_000_usize << doubling)
            .map(|at| {
                let mut pod = specs[at % specs.len()].clone();
                pod.metadata.name = Arc::from(format!("p{at}"));
                pod
            })
            .collect();
        snapshot
    });
    Ok(sizes.collect())
}

/// The diverse mix, every n-th pod of the largest.
fn diverse_sizes() -> Result<Vec<Snapshot>, String> {
    (0..5).rev().map(|halving| cases::diverse_every("20000", 1 << halving)).collect()
}

/// Fits time against size on logarithmic scales.
fn growth(base: Outcome, bar: f64, sizes: &[Snapshot]) -> Outcome {
    let points: Vec<(f64, f64)> = sizes
        .iter()
        .map(|snapshot| ((snapshot.cluster.pods.len() as f64).ln(), cpu_of(|| drop(scale_up(snapshot)))))
        .collect();
    let exponent = slope(&points.iter().map(|(x, ms)| (*x, ms.ln())).collect::<Vec<_>>());
    let largest = sizes.last().map(|snapshot| scale_up(snapshot).plan).unwrap_or_default();
    let times: Vec<String> = points.iter().map(|(_, ms)| format!("{ms:.1}")).collect();
    Outcome {
        pods: largest.placements.len() + largest.unplaced.len(),
        nodes: largest.new_nodes.len(),
        unplaced: largest.unplaced.len(),
        ratio: exponent,
        limit_ratio: Some(bar),
        max_rss_kb: measure::max_rss_kb(),
        note: format!("exponent over four doublings; ms of cpu {}", times.join(", ")),
        ..base
    }
}

/// Processor time of one run, averaged over enough of them.
fn cpu_of(mut work: impl FnMut()) -> f64 {
    work();
    let (mut spent, mut runs) = (0.0, 0.0);
    while spent < LEAST_MS {
        let before = measure::cpu_millis();
        // Several at once: the clock of processor time ticks in milliseconds.
        for _ in 0..4 {
            work();
        }
        spent += measure::cpu_millis() - before;
        runs += 4.0;
    }
    spent / runs
}

/// Least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    over / under
}

/// The largest share of the time that reasons take, over cases with and without pods left over.
fn explanations(base: Outcome, options: &Options, bar: f64) -> Result<Outcome, String> {
    let mut worst = (0.0, String::new());
    let mut rows = Vec::new();
    for name in ["hopeless-12000", "hopeless-distinct", "diverse-1000", "web", "scale-up-50000"] {
        let snapshot = cases::named(name, options)?;
        let with = cpu_of(|| drop(scale_up(&snapshot)));
        let without = cpu_of(|| drop(scale_up_with(&snapshot, Explain::No)));
        let share = (with - without) / with;
        rows.push(format!("{name} {:.0} %", share * 100.0));
        if share > worst.0 {
            worst = (share, name.to_owned());
        }
    }
    Ok(Outcome {
        ratio: worst.0,
        limit_ratio: Some(bar),
        max_rss_kb: measure::max_rss_kb(),
        note: format!("share of processor time: {}", rows.join(", ")),
        ..base
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_has_its_own_slope() {
        let line = |by: f64| (0..5).map(|x| (f64::from(x), 3.0 + by * f64::from(x))).collect::<Vec<_>>();
        assert!((slope(&line(1.25)) - 1.25).abs() < 1e-9);
        assert!(slope(&line(0.0)).abs() < 1e-9);
    }

    #[test]
    fn eng_10_curves_are_drawn_over_pods_that_find_a_place() {
        let smallest = |sizes: Vec<Snapshot>| scale_up(&sizes[0]).plan;
        for plan in [smallest(fixed_sizes().expect("fixture")), smallest(diverse_sizes().expect("fixture"))] {
            assert_eq!(plan.unplaced, []);
            assert!(plan.placements.len() >= 1_250);
        }
    }

    #[test]
    fn eng_9_a_burst_on_loaded_state_finds_a_place() {
        let loaded = loaded(60).expect("the fixture of the linear types is there");
        assert_eq!((loaded.bound(), loaded.frame().cluster.pods.len()), (1_800, 5_000));
        let decision = loaded.scale_up(Explain::Yes);
        assert_eq!((decision.plan.placements.len(), decision.plan.unplaced.len()), (5_000, 0));
        assert!(loaded.classes() <= 50, "{} classes", loaded.classes());
    }
}
