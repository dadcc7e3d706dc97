//! The planning problem file `muster-scenario/1`, and the report on it.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::{
    plan::{Input, Offer},
    solve::UNLIMITED,
};
use muster_model::{
    Quantity,
    k8s::{
        Affinity, Container, ContainerPort, Labels, List, Node, NodeSpec, NodeStatus, ObjectMeta, Pod, PodSpec,
        ResourceList, Resources, SpreadConstraint, Taint, Toleration,
    },
};
use serde::Deserialize;
use thiserror::Error;

const ZONE: &str = "topology.kubernetes.io/zone";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Pods per node where the file does not say.
const DEFAULT_PODS: i64 = 110;
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

/// The scenario as objects: what the planner is asked about.
#[derive(Debug, Default)]
pub struct World {
    pub nodes: Vec<Node>,
    /// Pods with the index of the node they run on.
    pub running: Vec<(Pod, u32)>,
    pub pending: Vec<Pod>,
    pub daemons: Vec<Pod>,
    pub offers: Vec<Offered>,
}

/// One way to get a machine.
#[derive(Debug, Clone)]
pub struct Offered {
    pub template: String,
    pub pool: String,
    pub zone: String,
    pub capacity_type: String,
    pub price: f64,
    pub supply: u32,
    /// The hosts behind it, in the order in which they are called up.
    pub hosts: Vec<String>,
    pub node: Node,
    pub weight: i64,
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
    /// Makes objects of the entries, `replicas` expanded.
    pub fn world(&self) -> Result<World, ScenarioError> {
        let mut world = World { offers: self.offers()?, ..World::default() };
        let templates: BTreeMap<&str, &Template> = self.templates.iter().map(|t| (&*t.name, t)).collect();
        for entry in &self.nodes {
            world.nodes.push(node(entry, &templates)?);
        }
        let places: BTreeMap<&str, u32> = self.nodes.iter().map(|entry| &*entry.name).zip(0..).collect();
        for entry in &self.pods {
            let at = match &entry.node {
                None => None,
                Some(name) => Some(*places.get(&**name).ok_or_else(|| ScenarioError::NoNode {
                    pod: entry.name.clone(),
                    node: name.clone(),
                })?),
            };
            for pod in expand(entry) {
                match at {
                    None => world.pending.push(pod),
                    Some(node) => world.running.push((pod, node)),
                }
            }
        }
        world.daemons = self.daemons.iter().flat_map(expand).collect();
        Ok(world)
    }

    fn offers(&self) -> Result<Vec<Offered>, ScenarioError> {
        let fallback = [PoolEntry { name: "default".into(), ..PoolEntry::default() }];
        let pools = if self.pools.is_empty() { &fallback[..] } else { &self.pools[..] };
        let mut offers = Vec::new();
        for pool in pools {
            if let Some(names) = &pool.templates
                && let Some(missing) = names.iter().find(|name| !self.templates.iter().any(|t| t.name == **name))
            {
                let object = format!("pool {:?}", pool.name);
                return Err(ScenarioError::NoTemplate { object, template: missing.clone() });
            }
            let used = |template: &&Template| pool.templates.as_ref().is_none_or(|names| names.contains(&template.name));
            for template in self.templates.iter().filter(used) {
                offers.extend(template.offers(pool));
            }
        }
        Ok(offers)
    }
}

impl Template {
    fn offers(&self, pool: &PoolEntry) -> Vec<Offered> {
        let make = |zone: Option<&str>, kind: Option<&str>, price: f64, supply: u32, hosts: Vec<String>| {
            let zone = zone.unwrap_or(DEFAULT_ZONE);
            let kind = kind.unwrap_or(DEFAULT_CAPACITY_TYPE);
            Offered {
                template: self.name.clone(),
                pool: pool.name.clone(),
                zone: zone.into(),
                capacity_type: kind.into(),
                price,
                supply,
                hosts,
                node: self.node(pool, zone, kind),
                weight: pool.weight,
            }
        };
        if !self.hosts.is_empty() {
            let mut zones: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for host in self.hosts.iter().filter(|host| host.state.as_deref() != Some("failed")) {
                zones.entry(host.zone.as_deref().unwrap_or(DEFAULT_ZONE)).or_default().push(host.name.clone());
            }
            let offer = |(zone, hosts): (&str, Vec<String>)| {
                make(Some(zone), None, self.price, hosts.len() as u32, hosts)
            };
            return zones.into_iter().map(offer).collect();
        }
        if self.offerings.is_empty() {
            return vec![make(None, None, self.price, self.supply.unwrap_or(UNLIMITED), Vec::new())];
        }
        let offer = |entry: &OfferingEntry| {
            let price = entry.price.unwrap_or(self.price);
            let supply = entry.supply.unwrap_or(UNLIMITED);
            make(entry.zone.as_deref(), entry.capacity_type.as_deref(), price, supply, Vec::new())
        };
        self.offerings.iter().map(offer).collect()
    }

    fn node(&self, pool: &PoolEntry, zone: &str, kind: &str) -> Node {
        let mut labels = self.labels.clone();
        for (key, value) in pool.labels.iter() {
            labels.insert(key, value.clone());
        }
        labels.insert(INSTANCE_TYPE, self.name.as_str().into());
        labels.insert(ZONE, zone.into());
        labels.insert(CAPACITY_TYPE, kind.into());
        labels.insert(HOSTNAME, "new".into());
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

fn node(entry: &NodeEntry, templates: &BTreeMap<&str, &Template>) -> Result<Node, ScenarioError> {
    let template = match &entry.template {
        None => None,
        Some(name) => Some(*templates.get(&**name).ok_or_else(|| ScenarioError::NoTemplate {
            object: format!("node {:?}", entry.name),
            template: name.clone(),
        })?),
    };
    let pool = PoolEntry::default();
    let zone = entry.zone.as_deref().unwrap_or(DEFAULT_ZONE);
    let mut node = template.map_or_else(Node::default, |t| t.node(&pool, zone, DEFAULT_CAPACITY_TYPE));
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

fn expand(entry: &PodEntry) -> Vec<Pod> {
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
    let spec = Arc::new(PodSpec {
        containers: [container].into(),
        node_selector: entry.node_selector.clone(),
        affinity: entry.affinity.clone(),
        topology_spread_constraints: entry.topology_spread_constraints.clone(),
        tolerations: entry.tolerations.clone(),
        ..PodSpec::default()
    });
    let pod = |name: String| Pod {
        metadata: ObjectMeta {
            name: name.into(),
            namespace: entry.namespace.as_deref().unwrap_or("default").into(),
            labels: entry.labels.clone(),
            ..ObjectMeta::default()
        },
        spec: Arc::clone(&spec),
        ..Pod::default()
    };
    match entry.replicas {
        None => vec![pod(entry.name.clone())],
        Some(count) => (0..count).map(|number| pod(format!("{}-{number}", entry.name))).collect(),
    }
}

impl World {
    /// The planner's input. Prices are rounded to millionths.
    pub fn input(&self) -> Input<'_> {
        Input {
            nodes: self.nodes.iter().collect(),
            running: self.running.iter().map(|(pod, node)| (pod, *node)).collect(),
            pending: self.pending.iter().collect(),
            offers: self
                .offers
                .iter()
                .map(|offer| Offer {
                    node: &offer.node,
                    cost: micros(offer.price),
                    supply: offer.supply,
                    takes: Vec::new(),
                    rank: -offer.weight,
                })
                .collect(),
            namespaces: Vec::new(),
            daemons: self.daemons.iter().collect(),
            budgets: Vec::new(),
        }
    }
}

/// Millionths of the currency.
#[allow(clippy::cast_possible_truncation, reason = "prices are far below 2^43")]
fn micros(price: f64) -> i64 {
    (price * 1e6).round() as i64
}
