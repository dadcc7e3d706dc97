//! The planning problem file `muster-scenario/1`, and the report on it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use muster_engine::{
    Snapshot,
    explain::{Explainer, Scene},
    plan::{Decision, Source, Target},
    snapshot::{self, Host, HostState, Member, Offering, Pool},
};
use muster_model::{
    Duration, Quantity,
    k8s::{
        Affinity, Container, ContainerPort, DaemonSet, DaemonSetSpec, Labels, List, Node, NodeSpec,
        NodeStatus, ObjectMeta, Pod, PodSpec, PodTemplate, ResourceList, Resources, SpreadConstraint, Taint,
        Toleration,
    },
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const ZONE: &str = "topology.kubernetes.io/zone";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Pods per node where the file does not say.
const DEFAULT_PODS: i64 = 110;
/// More pods than any cluster runs; a typing error in `replicas` is not to fill the memory.
const MOST_PODS: usize = 5_000_000;
/// A price per hour beyond this is written by mistake; sums of prices within it do not overflow.
const DEAREST: f64 = 1e6;
/// Kinds of pods without a place that the report names.
const MOST_ERRORS: usize = 50;
const DEFAULT_ZONE: &str = "zone-1";
const DEFAULT_CAPACITY_TYPE: &str = "on-demand";

#[derive(Debug, Error)]
pub enum ScenarioError {
    #[error("the scenario is not readable JSON")]
    Read(#[source] serde_json::Error),
    #[error("the scenario's format is {found:?}; only muster-scenario/1 is known")]
    Format { found: String },
    #[error("{object} names template {template:?}, which the scenario does not define")]
    NoTemplate { object: String, template: String },
    #[error("{kind} {name:?} is defined twice; names are unique in a scenario")]
    Twice { kind: &'static str, name: String },
    #[error("{kind} number {number} of the scenario has no name")]
    Nameless { kind: &'static str, number: usize },
    #[error("the scenario describes more than {most} pods")]
    TooManyPods { most: usize },
    #[error("pod {pod} runs on node {node:?}, which the scenario does not define")]
    NoNode { pod: String, node: String },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scenario {
    pub format: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub pools: Vec<PoolEntry>,
    #[serde(default)]
    pub templates: Vec<Template>,
    #[serde(default)]
    pub nodes: Vec<NodeEntry>,
    #[serde(default)]
    pub daemons: Vec<PodEntry>,
    #[serde(default)]
    pub pods: Vec<PodEntry>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolEntry {
    pub name: String,
    pub weight: i64,
    pub labels: Labels,
    pub taints: List<Taint>,
    pub limits: ResourceList,
    pub templates: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Template {
    pub name: String,
    pub capacity: ResourceList,
    pub reserved: ResourceList,
    pub labels: Labels,
    pub taints: List<Taint>,
    pub price: f64,
    pub supply: Option<u32>,
    pub offerings: Vec<OfferingEntry>,
    pub hosts: Vec<HostEntry>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OfferingEntry {
    pub zone: Option<String>,
    pub capacity_type: Option<String>,
    pub price: Option<f64>,
    pub supply: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostEntry {
    pub name: String,
    pub zone: Option<String>,
    pub wake_seconds: Option<i64>,
    pub idle_watts: Option<i64>,
    pub max_watts: Option<i64>,
    pub state: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeEntry {
    pub name: String,
    pub template: Option<String>,
    pub allocatable: Option<ResourceList>,
    pub labels: Labels,
    pub taints: List<Taint>,
    pub pool: Option<String>,
    pub zone: Option<String>,
    pub price: Option<f64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodEntry {
    pub name: String,
    pub namespace: Option<String>,
    pub labels: Labels,
    pub requests: ResourceList,
    pub node_selector: Labels,
    pub affinity: Option<Affinity>,
    pub topology_spread_constraints: List<SpreadConstraint>,
    pub tolerations: List<Toleration>,
    pub host_ports: Vec<i32>,
    pub node: Option<String>,
    pub replicas: Option<u32>,
}

/// Reads a scenario; nothing is expanded yet.
pub fn read(bytes: &[u8]) -> Result<Scenario, ScenarioError> {
    let scenario: Scenario = serde_json::from_slice(bytes).map_err(ScenarioError::Read)?;
    if scenario.format != "muster-scenario/1" {
        return Err(ScenarioError::Format { found: scenario.format });
    }
    Ok(scenario)
}

impl Scenario {
    /// The snapshot that the scenario describes, `replicas` expanded.
    pub fn snapshot(&self) -> Result<Snapshot, ScenarioError> {
        self.check_names()?;
        let fallback = [PoolEntry { name: "default".into(), ..PoolEntry::default() }];
        let pools = if self.pools.is_empty() { &fallback[..] } else { &self.pools[..] };
        let templates: BTreeMap<&str, &Template> = self.templates.iter().map(|t| (&*t.name, t)).collect();
        let mut snapshot = Snapshot::default();
        let mut housed: BTreeSet<&str> = BTreeSet::new();
        for entry in pools {
            if let Some(names) = &entry.templates
                && let Some(missing) = names.iter().find(|name| !templates.contains_key(name.as_str()))
            {
                let object = format!("pool {:?}", entry.name);
                return Err(ScenarioError::NoTemplate { object, template: missing.clone() });
            }
            let used = |t: &&Template| entry.templates.as_ref().is_none_or(|names| names.contains(&t.name));
            let used: Vec<&Template> = self.templates.iter().filter(used).collect();
            for template in &used {
                if housed.insert(&template.name) {
                    snapshot.hosts.extend(template.hosts.iter().map(|host| host.host(entry, template)));
                }
            }
            snapshot.pools.push(entry.pool(&used));
        }
        for entry in &self.nodes {
            let own = pools.iter().find(|pool| Some(&pool.name) == entry.pool.as_ref());
            let node = node(entry, own, &templates)?;
            let member = Member {
                pool: entry.pool.as_deref().unwrap_or(&pools[0].name).into(),
                template: entry.template.as_deref().unwrap_or("").into(),
                price: micros(entry.price.unwrap_or_else(|| {
                    entry.template.as_deref().and_then(|name| templates.get(name)).map_or(0.0, |t| t.price)
                })),
                ..Member::default()
            };
            snapshot.members.insert(node.metadata.name.clone(), member);
            snapshot.cluster.nodes.push(node);
        }
        let known: BTreeSet<&str> = self.nodes.iter().map(|entry| &*entry.name).collect();
        for entry in &self.pods {
            if let Some(node) = entry.node.as_ref().filter(|node| !known.contains(node.as_str())) {
                return Err(ScenarioError::NoNode { pod: entry.name.clone(), node: node.clone() });
            }
            let more = entry.replicas.map_or(1, |count| count as usize);
            if snapshot.cluster.pods.len().saturating_add(more) > MOST_PODS {
                return Err(ScenarioError::TooManyPods { most: MOST_PODS });
            }
            expand(entry, &mut snapshot.cluster.pods);
        }
        snapshot.cluster.daemon_sets = self.daemons.iter().map(daemon_set).collect();
        let pods = snapshot.cluster.pods.iter();
        unique("pod", pods.map(|pod| (&*pod.metadata.namespace, &*pod.metadata.name)))?;
        Ok(snapshot)
    }

    fn check_names(&self) -> Result<(), ScenarioError> {
        let hosts = || self.templates.iter().flat_map(|template| &template.hosts);
        named("host", hosts().map(|host| &*host.name))?;
        named("node", self.nodes.iter().map(|node| &*node.name))?;
        unique("pool", self.pools.iter().map(|pool| ("", &*pool.name)))?;
        unique("template", self.templates.iter().map(|template| ("", &*template.name)))?;
        unique("host", hosts().map(|host| ("", &*host.name)))?;
        unique("node", self.nodes.iter().map(|node| ("", &*node.name)))
    }
}

/// Machines without a name cannot be told apart.
fn named<'n>(kind: &'static str, names: impl Iterator<Item = &'n str>) -> Result<(), ScenarioError> {
    match names.zip(1..).find(|(name, _)| name.is_empty()) {
        Some((_, number)) => Err(ScenarioError::Nameless { kind, number }),
        None => Ok(()),
    }
}

/// Two things of one name would be one thing to everything that comes after.
fn unique<'n>(
    kind: &'static str,
    names: impl Iterator<Item = (&'n str, &'n str)>,
) -> Result<(), ScenarioError> {
    let mut seen = HashSet::new();
    for (space, name) in names {
        if !seen.insert((space, name)) {
            return Err(ScenarioError::Twice { kind, name: name.to_owned() });
        }
    }
    Ok(())
}

/// Reads a scenario and makes its snapshot.
pub fn load(bytes: &[u8]) -> Result<Snapshot, ScenarioError> {
    read(bytes)?.snapshot()
}

impl PoolEntry {
    fn pool(&self, templates: &[&Template]) -> Pool {
        Pool {
            name: self.name.as_str().into(),
            max: u32::MAX,
            priority: i32::try_from(self.weight).unwrap_or(i32::MAX),
            limits: self.limits.clone(),
            templates: templates.iter().map(|template| template.template(self)).collect(),
            ..Pool::default()
        }
    }
}

impl HostEntry {
    fn host(&self, pool: &PoolEntry, template: &Template) -> Host {
        let milliwatts = |watts: Option<i64>| watts.unwrap_or(0).saturating_mul(1000);
        Host {
            name: self.name.as_str().into(),
            pool: pool.name.as_str().into(),
            template: template.name.as_str().into(),
            state: match self.state.as_deref() {
                Some("on") => HostState::On,
                Some("failed") => HostState::Failed,
                _ => HostState::Off,
            },
            zone: Some(self.zone.as_deref().unwrap_or(DEFAULT_ZONE).into()),
            rack: self.zone.as_deref().map(Into::into),
            price: micros(template.price),
            idle_milliwatts: milliwatts(self.idle_watts),
            max_milliwatts: milliwatts(self.max_watts),
            inrush_milliwatts: milliwatts(self.max_watts),
            wake_time: Duration::from_secs(u64::try_from(self.wake_seconds.unwrap_or(0)).unwrap_or(0)),
            ..Host::default()
        }
    }
}

impl Template {
    fn template(&self, pool: &PoolEntry) -> snapshot::Template {
        let offering = |zone: Option<&str>, kind: Option<&str>, price: f64, supply: Option<u32>| Offering {
            zone: Some(zone.unwrap_or(DEFAULT_ZONE).into()),
            capacity_type: Some(kind.unwrap_or(DEFAULT_CAPACITY_TYPE).into()),
            price: micros(price),
            supply,
            unavailable_until: None,
        };
        let offerings = if !self.hosts.is_empty() {
            Vec::new()
        } else if self.offerings.is_empty() {
            vec![offering(None, None, self.price, self.supply)]
        } else {
            let each = |entry: &OfferingEntry| {
                let price = entry.price.unwrap_or(self.price);
                offering(entry.zone.as_deref(), entry.capacity_type.as_deref(), price, entry.supply)
            };
            self.offerings.iter().map(each).collect()
        };
        snapshot::Template {
            name: self.name.as_str().into(),
            node: Arc::new(self.node(pool)),
            csi: None,
            offerings,
        }
    }

    fn node(&self, pool: &PoolEntry) -> Node {
        let mut labels = self.labels.clone();
        for (key, value) in pool.labels.iter() {
            labels.insert(key, value.clone());
        }
        labels.insert(INSTANCE_TYPE, self.name.as_str().into());
        let taints: Vec<Taint> = self.taints.iter().chain(pool.taints.iter()).cloned().collect();
        Node {
            metadata: ObjectMeta { labels, ..ObjectMeta::default() },
            spec: NodeSpec { taints: taints.into(), ..NodeSpec::default() },
            status: NodeStatus {
                allocatable: allocatable(&self.capacity, &self.reserved),
                capacity: self.capacity.clone(),
                ..NodeStatus::default()
            },
        }
    }
}

fn allocatable(capacity: &ResourceList, reserved: &ResourceList) -> ResourceList {
    let mut left: ResourceList = capacity
        .iter()
        .map(|(name, &amount)| (name, amount - reserved.get(name).copied().unwrap_or_default()))
        .collect();
    if !left.contains("pods") {
        left.insert("pods", Quantity::from_units(DEFAULT_PODS));
    }
    left
}

/// A node as it runs; the pool that it names gives its labels and taints.
fn node(
    entry: &NodeEntry,
    pool: Option<&PoolEntry>,
    templates: &BTreeMap<&str, &Template>,
) -> Result<Node, ScenarioError> {
    let template = match &entry.template {
        None => None,
        Some(name) => Some(*templates.get(&**name).ok_or_else(|| ScenarioError::NoTemplate {
            object: format!("node {:?}", entry.name),
            template: name.clone(),
        })?),
    };
    let none = PoolEntry::default();
    let pool = pool.unwrap_or(&none);
    let zone = entry.zone.as_deref().unwrap_or(DEFAULT_ZONE);
    let mut node = template.map_or_else(Node::default, |t| t.node(pool));
    node.metadata.name = entry.name.as_str().into();
    let mut labels = node.metadata.labels.clone();
    labels.insert(ZONE, zone.into());
    labels.insert(HOSTNAME, entry.name.as_str().into());
    for (key, value) in entry.labels.iter() {
        labels.insert(key, value.clone());
    }
    node.metadata.labels = labels;
    if let Some(amounts) = &entry.allocatable {
        node.status.allocatable = allocatable(amounts, &ResourceList::default());
    }
    let taints: Vec<Taint> = node.spec.taints.iter().chain(entry.taints.iter()).cloned().collect();
    node.spec.taints = taints.into();
    Ok(node)
}

fn spec(entry: &PodEntry) -> PodSpec {
    let ports = entry.host_ports.iter().map(|&port| ContainerPort {
        container_port: port,
        host_port: port,
        ..ContainerPort::default()
    });
    let container = Container {
        resources: Resources { requests: entry.requests.clone(), ..Resources::default() },
        ports: ports.collect(),
        ..Container::default()
    };
    PodSpec {
        containers: [container].into(),
        node_name: entry.node.as_deref().map(Into::into),
        node_selector: entry.node_selector.clone(),
        affinity: entry.affinity.clone(),
        topology_spread_constraints: entry.topology_spread_constraints.clone(),
        tolerations: entry.tolerations.clone(),
        ..PodSpec::default()
    }
}

fn expand(entry: &PodEntry, pods: &mut Vec<Pod>) {
    let spec = Arc::new(spec(entry));
    let namespace: Arc<str> = entry.namespace.as_deref().unwrap_or("default").into();
    let pod = |name: Arc<str>| Pod {
        metadata: ObjectMeta {
            name,
            namespace: Arc::clone(&namespace),
            labels: entry.labels.clone(),
            ..ObjectMeta::default()
        },
        spec: Arc::clone(&spec),
        ..Pod::default()
    };
    match entry.replicas {
        None => pods.push(pod(entry.name.as_str().into())),
        Some(count) => pods.extend((0..count).map(|number| pod(format!("{}-{number}", entry.name).into()))),
    }
}

fn daemon_set(entry: &PodEntry) -> DaemonSet {
    let metadata = ObjectMeta { labels: entry.labels.clone(), ..ObjectMeta::default() };
    DaemonSet {
        metadata: ObjectMeta {
            name: entry.name.as_str().into(),
            namespace: entry.namespace.as_deref().unwrap_or("default").into(),
            ..ObjectMeta::default()
        },
        spec: DaemonSetSpec { template: PodTemplate { metadata, spec: Arc::new(spec(entry)) } },
        ..DaemonSet::default()
    }
}

/// Millionths of the currency.
#[allow(clippy::cast_possible_truncation, reason = "prices are far below 2^43")]
fn micros(price: f64) -> i64 {
    (price.clamp(-DEAREST, DEAREST) * 1e6).round() as i64
}

/// What `muster simulate --scenario` prints.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub peer: String,
    pub version: String,
    pub case: String,
    pub solve_ms: f64,
    pub solve_user_ms: f64,
    pub max_rss_kb: u64,
    pub nodes: usize,
    pub cost: f64,
    pub unschedulable: usize,
    pub claims: Vec<Claim>,
    /// Index of the claim by `namespace/pod`.
    pub placement: BTreeMap<String, usize>,
    /// Name of the node by `namespace/pod`, for pods on nodes that were there.
    pub existing: BTreeMap<String, String>,
    pub loops: u32,
    pub by_template: BTreeMap<String, usize>,
    pub errors: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Claim {
    pub template: String,
    pub pool: String,
    pub zone: String,
    #[serde(rename = "capacityType")]
    pub capacity_type: String,
    pub price: f64,
    pub pods: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// What a solve took, as measured by the caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    pub solve_ms: f64,
    pub solve_user_ms: f64,
    pub max_rss_kb: u64,
}

/// The report on a decision about a scenario.
pub fn report(case: &str, snapshot: &Snapshot, decision: &Decision, measured: Measured) -> Report {
    let plan = &decision.plan;
    let mut report = Report {
        peer: "muster".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        case: case.into(),
        solve_ms: measured.solve_ms,
        solve_user_ms: measured.solve_user_ms,
        max_rss_kb: measured.max_rss_kb,
        nodes: plan.new_nodes.len(),
        cost: currency(plan.new_nodes.iter().map(|new| new.price).sum()),
        unschedulable: plan.unplaced.len(),
        loops: 1,
        ..Report::default()
    };
    for new in &plan.new_nodes {
        let (zone, kind, host) = match &new.source {
            Source::Bought { zone, capacity_type } => (zone.clone(), capacity_type.clone(), None),
            Source::Host { host } => {
                (snapshot.host(host).and_then(|host| host.zone.clone()), None, Some(host.to_string()))
            }
        };
        let text = |value: Option<Arc<str>>, fallback: &str| {
            value.map_or_else(|| fallback.to_owned(), |v| v.to_string())
        };
        *report.by_template.entry(new.template.to_string()).or_default() += 1;
        report.claims.push(Claim {
            template: new.template.to_string(),
            pool: new.pool.to_string(),
            zone: text(zone, DEFAULT_ZONE),
            capacity_type: text(kind, DEFAULT_CAPACITY_TYPE),
            price: currency(new.price),
            pods: 0,
            host,
        });
    }
    for placement in &plan.placements {
        match &placement.on {
            Target::New(at) => {
                report.claims[*at as usize].pods += 1;
                report.placement.insert(placement.pod.to_string(), *at as usize);
            }
            Target::Node(node) => {
                report.existing.insert(placement.pod.to_string(), node.to_string());
            }
        }
    }
    let scene = Scene::new(snapshot, plan);
    let explainer = Explainer::new(&scene);
    let classes = decision.report.unplaced.iter().take(MOST_ERRORS);
    report.errors = classes.filter_map(|class| Some(explainer.pod(&class.example)?.headline)).collect();
    report
}

#[allow(clippy::cast_precision_loss, reason = "a price in a report")]
fn currency(micros: i64) -> f64 {
    micros as f64 / 1e6
}
