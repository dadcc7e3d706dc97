//! Cases of scale-down: speed on large clusters, and quality against the exact optimum on small ones.

use std::sync::Arc;

use muster_engine::{
    Snapshot, audit,
    down::{Outcome as Fate, Report, scale_down},
    plan::Plan,
    snapshot::{Member, Pool},
};
use muster_model::{
    Quantity,
    k8s::{
        Container, Labels, Node, ObjectMeta, OwnerReference, Pod, PodDisruptionBudget, PodSpec, ResourceList,
        Resources,
    },
};
use serde_json::{Value, json};

use super::{Options, Outcome, cases, measure};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Names of the cases and the bars they belong to.
const CASES: [(&str, &str); 3] = [("scale-down-2000", "6"), ("drain-15k-450k", "8"), ("drain-quality", "13")];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, _)| *name)
}

/// Whether a name on the command line means a case of this file.
pub(super) fn knows(name: &str) -> bool {
    CASES.iter().any(|(case, bar)| *case == name || *bar == name)
}

/// Runs the cases that are asked for; all of them if none is named.
pub(super) fn run(options: &Options) -> Result<Vec<Outcome>, String> {
    let wanted = |(case, bar): &(&str, &str)| {
        options.cases.is_empty() || options.cases.iter().any(|name| name == case || name == bar)
    };
    let mut outcomes = Vec::new();
    for (case, bars) in CASES.into_iter().filter(wanted) {
        let base = Outcome { case: case.into(), bars: bars.into(), ..Outcome::default() };
        outcomes.push(match bars {
            "6" => speed(base, &uniform(2_000, 40), 100.0, options, Judge::Audit),
            "8" => speed(base, &mixed(15_000, 30), 3_000.0, options, Judge::Nothing),
            _ => quality(base)?,
        });
    }
    Ok(outcomes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judge {
    Audit,
    /// The audit is the slow, obvious implementation.
    Nothing,
}

fn speed(base: Outcome, snapshot: &Snapshot, limit: f64, options: &Options, judge: Judge) -> Outcome {
    let mut times = Vec::new();
    let mut cpu = f64::MAX;
    let mut report = Report::default();
    for _ in 0..options.repeat {
        let before = measure::cpu_millis();
        times.push(measure::millis(|| report = scale_down(snapshot, &Plan::default())));
        cpu = cpu.min(measure::cpu_millis() - before);
    }
    times.sort_by(f64::total_cmp);
    let audit =
        if options.audit && judge == Judge::Audit { verdict(snapshot, &report) } else { "not run".into() };
    let blocked = report.verdicts.iter().filter(|verdict| verdict.outcome == Fate::Blocked).count();
    let steps: usize = report.verdicts.iter().map(|verdict| verdict.witness.len()).sum();
    Outcome {
        pods: snapshot.cluster.pods.len(),
        min_ms: times[0],
        median_ms: times[times.len() / 2],
        runs_ms: times.clone(),
        cpu_ms: cpu,
        bare_ms: cpu,
        limit_ms: Some(limit),
        nodes: snapshot.cluster.nodes.len() - report.removals.len(),
        ratio: 1.0,
        audit,
        max_rss_kb: measure::max_rss_kb(),
        note: format!(
            "{} of {} nodes removed, {blocked} blocked, {steps} steps in witnesses",
            report.removals.len(),
            report.verdicts.len()
        ),
        ..base
    }
}

fn verdict(snapshot: &Snapshot, report: &Report) -> String {
    let plan = Plan { removals: report.removals.clone(), ..Plan::default() };
    let findings = audit(snapshot, &plan);
    findings.fatal().map_or_else(|| "accepted".into(), |finding| format!("refused: {finding:?}"))
}

fn amounts(entries: &[(&str, Quantity)]) -> ResourceList {
    entries.iter().map(|(name, amount)| (*name, *amount)).collect()
}

fn node(name: &str, zone: usize, milli_cpu: i64, memory: i64, pods: i64) -> Node {
    let mut labels = Labels::default();
    labels.insert(HOSTNAME, name.into());
    labels.insert(ZONE, format!("zone-{zone}").into());
    let mut node = Node {
        metadata: ObjectMeta { name: name.into(), labels, ..ObjectMeta::default() },
        ..Node::default()
    };
    node.status.allocatable = amounts(&[
        ("cpu", Quantity::from_milli(milli_cpu)),
        ("memory", Quantity::from_bytes(memory)),
        ("pods", Quantity::from_units(pods)),
    ]);
    node
}

/// A bound pod with a spec of its own, as it comes from an API server.
fn pod(
    name: String,
    node: &str,
    app: &str,
    kind: &str,
    (milli_cpu, memory): (i64, i64),
    spec: PodSpec,
) -> Pod {
    let mut labels = Labels::default();
    labels.insert("app", app.into());
    let owner =
        OwnerReference { kind: kind.into(), name: app.into(), controller: true, ..OwnerReference::default() };
    let requests =
        amounts(&[("cpu", Quantity::from_milli(milli_cpu)), ("memory", Quantity::from_bytes(memory))]);
    let container =
        Container { resources: Resources { requests, ..Resources::default() }, ..Container::default() };
    let spec = PodSpec { containers: [container].into(), node_name: Some(node.into()), ..spec };
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        labels,
        owner_references: [owner].into(),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: Arc::new(spec), ..Pod::default() }
}

fn member(price: i64) -> Member {
    Member { pool: "p".into(), price, ..Member::default() }
}

fn pool() -> Pool {
    Pool { name: "p".into(), max: u32::MAX, ..Pool::default() }
}

/// Nodes of one kind at 40 %, a mark of 50 %.
fn uniform(nodes: usize, pods: usize) -> Snapshot {
    let mut snapshot = Snapshot { pools: vec![pool()], ..Snapshot::default() };
    snapshot.pools[0].demand.scale_down_percent = Some(50);
    for at in 0..nodes {
        let name = format!("n-{at}");
        snapshot.cluster.nodes.push(node(&name, 0, 10_000, 10_000, 100));
        snapshot.members.insert(name.as_str().into(), member(1_000_000));
        for number in 0..pods {
            let pod =
                pod(format!("pod-{at}-{number}"), &name, "web", "ReplicaSet", (100, 100), PodSpec::default());
            snapshot.cluster.pods.push(pod);
        }
    }
    snapshot
}

/// A mixed cluster: 300 workloads, of which one in ten each has anti-affinity by host, spread by zone, a zone
/// of its own or a budget; two daemons on every node.
fn mixed(nodes: usize, pods: usize) -> Snapshot {
    const APPS: usize = 300;
    let spec = |app: usize| -> PodSpec {
        let selector = json!({"matchLabels": {"app": format!("app-{app}")}});
        let value: Value = match app % 10 {
            0 => json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": selector, "topologyKey": HOSTNAME}]}}}),
            1 => json!({"topologySpreadConstraints": [{"maxSkew": 50, "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
            2 => json!({"nodeSelector": {ZONE: format!("zone-{}", app / 10 % 3)}}),
            _ => json!({}),
        };
        serde_json::from_value(value).unwrap_or_default()
    };
    let specs: Vec<PodSpec> = (0..APPS).map(spec).collect();
    let mut snapshot = Snapshot { pools: vec![pool()], ..Snapshot::default() };
    let mut next = 0;
    for at in 0..nodes {
        let name = format!("n-{at}");
        let zone = at % 3;
        let size = [1, 2, 1][at / 3 % 3];
        snapshot.cluster.nodes.push(node(&name, zone, 16_000 * size, size << 36, 110));
        snapshot.members.insert(name.as_str().into(), member(size * 500_000));
        for daemon in ["log", "net"] {
            let pod =
                pod(format!("{daemon}-{at}"), &name, daemon, "DaemonSet", (100, 1 << 26), PodSpec::default());
            snapshot.cluster.pods.push(pod);
        }
        for number in 0..pods - 2 {
            next += 1;
            while next % APPS % 10 == 2 && next % APPS / 10 % 3 != zone {
                next += 1;
            }
            let app = next % APPS;
            let size = (100 + 50 * (app as i64 % 7), (1 + app as i64 % 5) << 28);
            let pod = pod(
                format!("app-{app}-{at}-{number}"),
                &name,
                &format!("app-{app}"),
                "ReplicaSet",
                size,
                specs[app].clone(),
            );
            snapshot.cluster.pods.push(pod);
        }
    }
    for app in (3..APPS).step_by(10) {
        let budget: Result<PodDisruptionBudget, _> = serde_json::from_value(json!({
            "metadata": {"name": format!("app-{app}"), "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": format!("app-{app}")}}},
            "status": {"disruptionsAllowed": 100}}));
        snapshot.cluster.budgets.extend(budget);
    }
    snapshot
}

/// The case of six nodes and fifty random ones beside the exact optimum.
fn quality(base: Outcome) -> Result<Outcome, String> {
    let mut snapshot = cases::file("ca-efficiency-drain")?;
    snapshot.drain.keep_unreplicated = false;
    let report = scale_down(&snapshot, &Plan::default());
    let six = utilisation(&snapshot, &report);
    let mut dice = Dice(7);
    let (mut gap, mut worst, mut optimal) = (0.0_f64, 0.0_f64, 0);
    let mut audit = verdict(&snapshot, &report);
    for _ in 0..50 {
        let small = Small::roll(&mut dice);
        let snapshot = small.snapshot();
        let report = scale_down(&snapshot, &Plan::default());
        let kept: i64 = (0..small.nodes.len())
            .filter(|at| !report.removals.iter().any(|removal| *removal.node == *format!("n-{at}")))
            .map(|at| small.nodes[at])
            .sum();
        let best = small.optimum();
        let own = (kept - best) as f64 / best.max(1) as f64;
        optimal += usize::from(kept == best);
        gap += own / 50.0;
        worst = worst.max(own);
        if verdict(&snapshot, &report) != "accepted" {
            audit = verdict(&snapshot, &report);
        }
    }
    Ok(Outcome {
        pods: snapshot.cluster.pods.len(),
        nodes: snapshot.cluster.nodes.len() - report.removals.len(),
        ratio: 1.0 + gap,
        limit_ratio: Some(1.03),
        audit,
        max_rss_kb: measure::max_rss_kb(),
        note: format!(
            "six nodes end at {six:.2} % cpu; of 50 random ones {optimal} optimal, mean gap {:.2} %, worst {:.2} %",
            gap * 100.0,
            worst * 100.0
        ),
        ..base
    })
}

/// Cpu that pods ask for over cpu of the nodes that stay, in percent.
fn utilisation(snapshot: &Snapshot, report: &Report) -> f64 {
    let cpu = |list: &ResourceList| list.get("cpu").map_or(0, |amount| amount.milli()) as f64;
    let asked: f64 =
        snapshot.cluster.pods.iter().map(|pod| cpu(&pod.spec.containers[0].resources.requests)).sum();
    let stays = |node: &&Node| !report.removals.iter().any(|removal| *removal.node == *node.metadata.name);
    let held: f64 =
        snapshot.cluster.nodes.iter().filter(stays).map(|node| cpu(&node.status.allocatable)).sum();
    asked * 100.0 / held
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound) as i64
    }
}

/// A cluster small enough for the exact answer: sizes of nodes, and of pods with their node.
struct Small {
    nodes: Vec<i64>,
    pods: Vec<(i64, usize)>,
}

impl Small {
    fn roll(dice: &mut Dice) -> Self {
        let count = 5 + dice.below(5) as usize;
        let nodes: Vec<i64> =
            (0..count).map(|_| [1000, 2000, 4000, 4000, 8000, 9000][dice.below(6) as usize]).collect();
        let mut pods = Vec::new();
        for (at, &size) in nodes.iter().enumerate() {
            let mut left = size;
            for _ in 0..=dice.below(3) {
                let wish = 250 * (1 + dice.below(8));
                if wish <= left {
                    pods.push((wish, at));
                    left -= wish;
                }
            }
        }
        Self { nodes, pods }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot { pools: vec![pool()], ..Snapshot::default() };
        for (at, &size) in self.nodes.iter().enumerate() {
            let name = format!("n-{at}");
            snapshot.cluster.nodes.push(node(&name, 0, size, 1 << 30, 100));
            snapshot.members.insert(name.as_str().into(), member(size * 1000));
        }
        for (number, &(size, at)) in self.pods.iter().enumerate() {
            let pod = pod(
                format!("pod-{number}"),
                &format!("n-{at}"),
                "web",
                "ReplicaSet",
                (size, 1),
                PodSpec::default(),
            );
            snapshot.cluster.pods.push(pod);
        }
        snapshot
    }

    /// The least cpu that can stay: every set of nodes to keep is tried, pods of the others are packed exactly.
    fn optimum(&self) -> i64 {
        let sets = 1_u32 << self.nodes.len();
        let kept = |set: u32| (0..self.nodes.len()).filter(move |at| set >> at & 1 == 1);
        let cost = |set: u32| kept(set).map(|at| self.nodes[at]).sum::<i64>();
        let mut order: Vec<u32> = (0..sets).collect();
        order.sort_by_key(|&set| cost(set));
        order.into_iter().find(|&set| self.fits(set)).map_or(0, cost)
    }

    fn fits(&self, set: u32) -> bool {
        let stays = |at: usize| set >> at & 1 == 1;
        let mut free: Vec<i64> =
            self.nodes.iter().enumerate().map(|(at, &size)| if stays(at) { size } else { 0 }).collect();
        let mut moving: Vec<i64> = Vec::new();
        for &(size, at) in &self.pods {
            if stays(at) { free[at] -= size } else { moving.push(size) }
        }
        moving.sort_unstable_by_key(|size| -size);
        if free.iter().sum::<i64>() < moving.iter().sum::<i64>() {
            return false;
        }
        pack_exactly(&moving, &mut free)
    }
}

/// Whether all items fit, by trying every place that differs.
fn pack_exactly(items: &[i64], free: &mut [i64]) -> bool {
    let Some((&first, rest)) = items.split_first() else { return true };
    for at in 0..free.len() {
        if free[at] < first || free[..at].contains(&free[at]) {
            continue;
        }
        free[at] -= first;
        let done = pack_exactly(rest, free);
        free[at] += first;
        if done {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eng_13_scale_down_ends_at_full_nodes_and_near_the_optimum() {
        let outcome = quality(Outcome::default()).unwrap();
        assert!(outcome.note.starts_with("six nodes end at 100.00 % cpu"), "{}", outcome.note);
        assert!(outcome.ratio <= 1.03, "{}", outcome.note);
        assert_eq!(outcome.audit, "accepted");
    }

    #[test]
    fn eng_6_a_small_copy_of_the_large_case_is_packed_to_the_brim() {
        let snapshot = uniform(50, 40);
        let report = scale_down(&snapshot, &Plan::default());
        assert_eq!(report.removals.len(), 30);
        assert_eq!(verdict(&snapshot, &report), "accepted");
    }

    #[test]
    fn eng_8_every_node_of_a_mixed_cluster_has_a_verdict_and_a_witness() {
        let snapshot = mixed(90, 30);
        let report = scale_down(&snapshot, &Plan::default());
        assert_eq!(verdict(&snapshot, &report), "accepted");
        assert_eq!(report.verdicts.len(), 90);
        let told = |verdict: &&muster_engine::down::Verdict| {
            verdict.witness.len() == 28 || !verdict.blockers.is_empty()
        };
        assert_eq!(report.verdicts.iter().filter(told).count(), 90);
    }
}
