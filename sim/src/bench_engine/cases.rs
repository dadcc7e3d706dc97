//! The cases, each with the bars it is held against.

use std::{fmt::Write, path::PathBuf, sync::Arc};

use muster_engine::Snapshot;
use muster_model::{
    Quantity,
    k8s::{Container, Labels, Node, ObjectMeta, Pod, PodSpec, ResourceList, Resources},
};

use super::{Options, dlrm};
use crate::scenario;

/// Cost of one step of the linear family of types in the diverse mix, which divides every cost.
const STEP: f64 = 0.314_748_364_8;

/// One thing to measure.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    pub bars: &'static str,
    pub limit_ms: Option<f64>,
    pub limit_ratio: Option<f64>,
    /// Divides every price, if something does.
    pub granule: Option<f64>,
    pub make: fn(&Options) -> Result<Snapshot, String>,
    /// The audit is the slow, obvious implementation.
    pub too_large_to_audit: bool,
}

const fn case(
    name: &'static str,
    bars: &'static str,
    make: fn(&Options) -> Result<Snapshot, String>,
) -> Case {
    Case { name, bars, limit_ms: None, limit_ratio: None, granule: None, make, too_large_to_audit: false }
}

const fn timed(case: Case, limit_ms: f64) -> Case {
    Case { limit_ms: Some(limit_ms), ..case }
}

const fn packed(case: Case, limit_ratio: f64) -> Case {
    Case { limit_ratio: Some(limit_ratio), ..case }
}

/// No machine more than the bound, which is rounded down by less than this.
const EXACT: f64 = 1.000_001;

const fn linear(case: Case) -> Case {
    Case { granule: Some(STEP), ..case }
}

/// Every case, in the order in which they are run.
fn all() -> Vec<Case> {
    vec![
        linear(packed(case("diverse-500", "12", |_| diverse("500", 0)), 1.10)),
        linear(packed(case("diverse-1000", "12", |_| diverse("1000", 0)), 1.10)),
        linear(packed(timed(case("diverse-5000", "1,12", |_| diverse("5000", 0)), 100.0), 1.10)),
        linear(packed(case("diverse-10000", "12", |_| diverse("10000", 0)), 1.10)),
        linear(packed(timed(case("diverse-20000", "2,12", |_| diverse("20000", 0)), 600.0), 1.10)),
        timed(case("host-anti-5000", "3", |_| anti_affinity()), 25.0),
        packed(timed(case("binpack-grouped", "4", |_| file("ca-binpack")), 15.0), EXACT),
        packed(timed(case("binpack-distinct", "4", |_| distinct_binpack()), 150.0), EXACT),
        packed(timed(case("scale-up-50000", "5", |_| controllerless()), 100.0), EXACT),
        timed(case("hopeless-12000", "7", |_| hopeless(false)), 10.0),
        timed(case("hopeless-distinct", "7", |_| hopeless(true)), 100.0),
        // With the loading of the cluster, which the bar leaves out: `burst-loaded-15k` has the bar.
        Case { too_large_to_audit: true, ..case("burst-15k-450k", "9", |_| burst(15_000, 30, 5_000)) },
        linear(packed(case("generic-1000", "12", |_| file("generic-1000")), 1.01)),
        linear(packed(case("host-spread-1000", "12", |_| file("host-spread-1000")), 1.12)),
        linear(packed(case("zone-spread-1000", "12", |_| file("zone-spread-1000")), 1.01)),
        linear(case("zone-affinity-1000", "12", |_| file("zone-affinity-1000"))),
        timed(case("preferences-4000", "16", |_| preferences()), 20.0),
        packed(timed(case("web", "17", |_| file("web")), 20.0), 1.03),
        packed(timed(case("web-plain", "17", |_| file("web-plain")), 20.0), 1.03),
        packed(timed(case("gpu", "17", |_| file("gpu")), 5.0), 1.03),
        timed(case("baremetal", "17", |_| file("baremetal")), 2.0),
        packed(timed(case("ca-efficiency", "17", |_| file("ca-efficiency")), 1.0), EXACT),
    ]
}

/// Names of all cases that need nothing from the command line.
pub fn names() -> Vec<&'static str> {
    all().iter().map(|case| case.name).collect()
}

pub(super) fn select(options: &Options) -> Vec<Result<Case, String>> {
    let mut known = all();
    if options.dlrm.is_some() {
        let make =
            |options: &Options| dlrm::snapshot(options.dlrm.as_deref().ok_or("--dlrm names the trace")?);
        known.push(packed(timed(case("dlrm", "15", make), 300.0), 1.03));
    }
    if options.cases.is_empty() {
        return known.into_iter().map(Ok).collect();
    }
    let wanted = |name: &String| {
        let by_bar = |case: &&Case| case.name == name || case.bars.split(',').any(|bar| bar == name);
        let found: Vec<Case> = known.iter().filter(by_bar).cloned().collect();
        if found.is_empty() {
            return vec![Err(format!("no case is called {name:?}; there are {}", names().join(", ")))];
        }
        found.into_iter().map(Ok).collect()
    };
    options
        .cases
        .iter()
        .filter(|name| !super::down::knows(name) && !super::large::knows(name))
        .flat_map(wanted)
        .collect()
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

pub(super) fn file(name: &str) -> Result<Snapshot, String> {
    let path = fixtures().join(format!("scenarios/{name}.json"));
    let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    scenario::load(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// The 400 linear types of the diverse mix.
pub(super) fn linear_types() -> Result<Snapshot, String> {
    let mut snapshot = file("generic-1000")?;
    snapshot.cluster.pods.clear();
    Ok(snapshot)
}

fn rows(size: &str) -> Result<Vec<[String; 5]>, String> {
    let path = fixtures().join(format!("diverse/{size}.csv"));
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let row = |line: &str| {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        <[String; 5]>::try_from(fields)
            .map_err(|_| format!("{}: {line:?} has not five fields", path.display()))
    };
    text.lines().skip(1).map(row).collect()
}

/// One pod of the diverse mix, as an entry of a scenario file.
fn diverse_entry(
    number: usize,
    [kind, label, selector, cpu, memory]: &[String; 5],
) -> Result<String, String> {
    let zone = "topology.kubernetes.io/zone";
    let host = "kubernetes.io/hostname";
    let spread = |key: &str| {
        format!(
            r#","topologySpreadConstraints":[{{"maxSkew":1,"topologyKey":"{key}","whenUnsatisfiable":"DoNotSchedule","labelSelector":{{"matchLabels":{{"my-label":"{selector}"}}}}}}]"#
        )
    };
    let term = |name: &str, value: &str, key: &str| {
        format!(
            r#"{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"labelSelector":{{"matchLabels":{{"{name}":"{value}"}}}},"topologyKey":"{key}"}}]}}"#
        )
    };
    let (own, rules) = match kind.as_str() {
        "generic" => (("my-label", label.as_str()), String::new()),
        "zone-spread" => (("my-label", label.as_str()), spread(zone)),
        "host-spread" => (("my-label", label.as_str()), spread(host)),
        "zone-affinity" => {
            let affinity = term("my-affininity", label, zone);
            (("my-affininity", label.as_str()), format!(r#","affinity":{{"podAffinity":{affinity}}}"#))
        }
        "host-anti-affinity" => {
            let affinity = term("app", "nginx", host);
            (("app", "nginx"), format!(r#","affinity":{{"podAntiAffinity":{affinity}}}"#))
        }
        other => return Err(format!("the diverse mix has no kind {other:?}")),
    };
    Ok(format!(
        r#"{{"name":"p{number:05}-{kind}","labels":{{"testing/cluster":"unspecified","{}":"{}"}},"requests":{{"cpu":"{cpu}m","memory":"{memory}Mi"}}{rules}}}"#,
        own.0, own.1
    ))
}

fn pods(entries: &str) -> Result<Vec<Pod>, String> {
    let text = format!(r#"{{"format":"muster-scenario/1","pods":[{entries}]}}"#);
    Ok(scenario::load(text.as_bytes()).map_err(|error| error.to_string())?.cluster.pods)
}

fn diverse(size: &str, skip: usize) -> Result<Snapshot, String> {
    let mut snapshot = linear_types()?;
    let entries: Vec<String> = rows(size)?
        .iter()
        .enumerate()
        .skip(skip)
        .map(|(at, row)| diverse_entry(at, row))
        .collect::<Result<_, _>>()?;
    snapshot.cluster.pods = pods(&entries.join(","))?;
    Ok(snapshot)
}

/// Every n-th pod of a mix: the same shares of every kind.
pub(super) fn diverse_every(size: &str, step: usize) -> Result<Snapshot, String> {
    let mut snapshot = diverse(size, 0)?;
    let mut at = 0;
    snapshot.cluster.pods.retain(|_| {
        at += 1;
        at % step == 0
    });
    Ok(snapshot)
}

/// The snapshot of a case.
pub(super) fn named(name: &str, options: &Options) -> Result<Snapshot, String> {
    let case = all().into_iter().find(|case| case.name == name);
    (case.ok_or_else(|| format!("no case is called {name:?}"))?.make)(options)
}

fn anti_affinity() -> Result<Snapshot, String> {
    let mut snapshot = linear_types()?;
    let mut draws = rows("20000")?;
    draws.extend(rows("10000")?);
    draws.retain(|row| row[0] == "host-anti-affinity");
    draws.truncate(5_000);
    let entries: Vec<String> =
        draws.iter().enumerate().map(|(at, row)| diverse_entry(at, row)).collect::<Result<_, _>>()?;
    snapshot.cluster.pods = pods(&entries.join(","))?;
    Ok(snapshot)
}

/// As the grouped case, but no two pods are equal: every pod asks for another amount of a third resource.
fn distinct_binpack() -> Result<Snapshot, String> {
    let mut snapshot = file("ca-binpack")?;
    for (number, pod) in snapshot.cluster.pods.iter_mut().enumerate() {
        let spec = Arc::make_mut(&mut pod.spec);
        let mut container = spec.containers[0].clone();
        container.resources.requests.insert("example.com/serial", Quantity::from_units(1 + number as i64));
        spec.containers = [container].into();
    }
    for template in &mut snapshot.pools[0].templates {
        let mut node = Node::clone(&template.node);
        node.status.allocatable.insert("example.com/serial", Quantity::from_units(1 << 40));
        template.node = Arc::new(node);
    }
    Ok(snapshot)
}

/// Pods without an owner, each with a spec and labels of its own.
fn controllerless() -> Result<Snapshot, String> {
    let mut snapshot = file("ca-scaleup")?;
    for (number, pod) in snapshot.cluster.pods.iter_mut().enumerate() {
        pod.spec = Arc::new(PodSpec::clone(&pod.spec));
        pod.metadata.labels.insert("serial", number.to_string().into());
    }
    Ok(snapshot)
}

pub(super) fn node(name: &str, cpu: i64, memory: i64, zone: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = name.into();
    node.metadata.labels = [("kubernetes.io/hostname", name), ("topology.kubernetes.io/zone", zone)]
        .into_iter()
        .map(|(key, value)| (key, Box::from(value)))
        .collect();
    node.status.allocatable = amounts(cpu, memory);
    node.status.allocatable.insert("pods", Quantity::from_units(110));
    node
}

pub(super) fn amounts(cpu: i64, memory: i64) -> ResourceList {
    [("cpu", Quantity::from_milli(cpu)), ("memory", Quantity::from_bytes(memory))].into_iter().collect()
}

pub(super) fn pod(name: String, labels: Labels, requests: ResourceList, node: Option<&str>) -> Pod {
    let container =
        Container { resources: Resources { requests, ..Resources::default() }, ..Container::default() };
    Pod {
        metadata: ObjectMeta {
            name: name.into(),
            namespace: "default".into(),
            labels,
            ..ObjectMeta::default()
        },
        spec: Arc::new(PodSpec {
            containers: [container].into(),
            node_name: node.map(Into::into),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

/// Pods that fit nowhere: larger than what any node has free, and no pool to grow.
#[allow(clippy::unnecessary_wraps, reason = "the signature that all cases share")]
fn hopeless(distinct: bool) -> Result<Snapshot, String> {
    let mut snapshot = Snapshot::default();
    snapshot.cluster.nodes = (0..1_000).map(|at| node(&format!("n{at}"), 2_000, 8 << 30, "a")).collect();
    snapshot.cluster.pods = (0..12_000)
        .map(|at| {
            let extra = if distinct { at } else { 0 };
            pod(format!("p{at}"), Labels::default(), amounts(4_000 + extra, (1 << 30) + extra), None)
        })
        .collect();
    Ok(snapshot)
}

/// A large cluster with some room, and a burst of pending pods in fifty classes.
fn burst(nodes: i64, per_node: i64, pending: i64) -> Result<Snapshot, String> {
    let mut snapshot = linear_types()?;
    for at in 0..nodes {
        let name = format!("n{at}");
        snapshot.cluster.nodes.push(node(&name, 16_000, 64 << 30, ["a", "b", "c"][at as usize % 3]));
        let shared =
            pod(String::new(), Labels::default(), amounts(500 + (at % 5) * 10, 2 << 30), Some(&name));
        for number in 0..per_node {
            let mut text = String::new();
            let _ = write!(text, "r{at}-{number}");
            let mut running = shared.clone();
            running.metadata.name = text.into();
            snapshot.cluster.pods.push(running);
        }
    }
    for at in 0..pending {
        let labels = [("app", Box::from(format!("burst-{}", at % 50)))].into_iter().collect();
        let amounts = amounts(250 + (at % 50) * 25, (1 << 30) + (at % 7) * (256 << 20));
        snapshot.cluster.pods.push(pod(format!("b{at}"), labels, amounts, None));
    }
    Ok(snapshot)
}

/// Equal pods that would rather be in one zone and apart from each other.
fn preferences() -> Result<Snapshot, String> {
    let mut snapshot = linear_types()?;
    let entry = r#"{"name":"pref","replicas":4000,"labels":{"app":"nginx"},"requests":{"cpu":"500m","memory":"512Mi"},
        "affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":
            {"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["test-zone-1"]}]}}]},
        "podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[
            {"weight":10,"podAffinityTerm":{"labelSelector":{"matchLabels":{"app":"nginx"}},"topologyKey":"topology.kubernetes.io/zone"}},
            {"weight":1,"podAffinityTerm":{"labelSelector":{"matchLabels":{"app":"nginx"}},"topologyKey":"kubernetes.io/hostname"}}]}}}"#;
    snapshot.cluster.pods = pods(entry)?;
    Ok(snapshot)
}
