//! Pools and hosts from their manifests, from flags, and from the labels of nodes.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::{
    explain::{field_annotation, learned_annotation, source_annotation},
    snapshot::{Demand, Health, Hold, Host, HostState, Mode, Offering, Pool, Scope, Spare, Stops, Template},
};
use muster_model::{
    ClusterId, Duration, NODEPOOL_LABEL, NodePool, Quantity, Timestamp,
    catalogue::Catalogue,
    k8s::{Effect, Node, NodeStatus, ObjectMeta, Taint},
    pool::{Headroom, NodeShape, PoolContext, PoolSpec, ShapeSource},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::document::{Document, SetAside};

/// Labels by which others mark the pool of a node, ours first.
pub(super) const POOL_LABELS: [&str; 6] = [
    NODEPOOL_LABEL,
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "node.cluster.x-k8s.io/machine-pool",
];
/// What the server fills in; a dump of its objects carries them.
const SERVER_OWNED: [&str; 12] = [
    "id",
    "project",
    "generation",
    "status",
    "created_at",
    "updated_at",
    "created_by",
    "deleted_at",
    "resource_version",
    "cluster_id",
    "cluster",
    "cluster_name",
];
const DEFAULT_PODS: i64 = 110;

/// Reads a pool's manifest: the body of the REST API, or the custom resource.
pub(super) fn read_pool(document: &Document, now: Timestamp) -> Result<Pool, Vec<SetAside>> {
    let body = body_of(&document.value);
    let context = PoolContext { cluster_id: Some(placeholder()), cluster: None };
    let parsed = NodePool::parse_create(&Value::Object(body), &context).map_err(|errors| {
        let fault = |error: &muster_model::FieldError| document.fault(&error.path, error.to_string());
        errors.iter().map(fault).collect::<Vec<_>>()
    })?;
    let draft = parsed.value;
    let spec = &draft.spec;
    let name: Arc<str> = draft.name.to_string().into();
    let bounds = spec.bounds_at(now);
    let templates = match spec.node_shape(&draft.name, Catalogue::shipped(), None) {
        Ok(shape) => vec![template(spec, &shape)],
        Err(_) => Vec::new(), // completed later by a node or a host of the pool
    };
    let demand =
        spec.autoscaling.as_ref().filter(|_| spec.is_autoscaled()).map_or_else(Demand::default, |auto| {
            Demand {
                target_cpu_percent: Some(auto.target_cpu()),
                target_memory_percent: Some(auto.target_memory()),
                scale_down_percent: Some(auto.scale_down_utilization()),
                scale_down_delay: auto.scale_down_delay(),
                scale_up_delay: auto.scale_up_delay(),
                ..Demand::default()
            }
        });
    let scales = spec.is_autoscaled();
    Ok(Pool {
        name,
        min: if scales { bounds.min } else { 0 },
        max: if scales { bounds.max } else { spec.node_count.unwrap_or(0).max(bounds.max) },
        fixed: (!scales).then(|| spec.node_count.unwrap_or_else(|| spec.initial_nodes())),
        mode: Mode::Act,
        templates,
        demand,
        spare: spec
            .autoscaling
            .as_ref()
            .and_then(|auto| auto.headroom.as_ref())
            .map(spare)
            .unwrap_or_default(),
        ..Pool::default()
    })
}

fn spare(headroom: &Headroom) -> Spare {
    match headroom {
        Headroom::Nodes { nodes } => Spare { nodes: *nodes, ..Spare::default() },
        Headroom::Pods { pods, resources } => Spare {
            pods: *pods,
            shape: resources.iter().map(|(name, amount)| (name.as_str(), quantity(&amount.text()))).collect(),
            ..Spare::default()
        },
    }
}

fn placeholder() -> ClusterId {
    "00000000-0000-4000-8000-000000000000".parse().expect("a constant UUID is a UUID")
}

/// `metadata.name` is the same as `name`; what the server fills in is not ours to check.
fn body_of(value: &Value) -> Map<String, Value> {
    let mut body = value.as_object().cloned().unwrap_or_default();
    let name = value["metadata"]["name"].as_str().map(str::to_owned);
    for key in SERVER_OWNED.iter().chain(&["apiVersion", "kind", "metadata"]) {
        body.remove(*key);
    }
    if let Some(name) = name {
        // Custom resources are called CLUSTER.POOL.
        let own = name.rsplit('.').next().unwrap_or(&name).to_owned();
        body.entry("name").or_insert(Value::String(own));
    }
    body
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_default()
}

fn template(spec: &PoolSpec, shape: &NodeShape) -> Template {
    let (source, name) = match &shape.source {
        ShapeSource::Template => ("spec.template".to_owned(), "template".to_owned()),
        ShapeSource::Platform => ("spec.platform".to_owned(), "platform".to_owned()),
        ShapeSource::Catalogue { machine_type } => {
            (format!("the catalogue's entry for {machine_type}"), machine_type.clone())
        }
        ShapeSource::Learned => ("a node that the pool once had".to_owned(), "learned".to_owned()),
    };
    let name = spec.platform.machine_type().unwrap_or(name);
    let mut node = Node::default();
    for (key, value) in &shape.labels {
        node.metadata.labels.insert(key, value.as_str().into());
        let own = spec.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
        let said = spec
            .template
            .as_ref()
            .and_then(|t| t.labels.as_ref())
            .is_some_and(|labels| labels.contains_key(key));
        let from = if own {
            "spec.labels"
        } else if said {
            "spec.template.labels"
        } else {
            "the pool and its machine type"
        };
        node.metadata.annotations.insert(&field_annotation(&format!("label {key}")), from.into());
    }
    let annotations = &mut node.metadata.annotations;
    annotations.insert(&source_annotation(), source.as_str().into());
    annotations.insert(&field_annotation("taints"), "spec.taints or spec.template.taints".into());
    annotations.insert(&field_annotation("pods"), "spec.template.maxPods, or the default".into());
    node.spec.taints = shape
        .taints
        .iter()
        .map(|taint| pool_taint(&taint.key, taint.value(), &taint.effect.to_string()))
        .collect();
    for (resource, amount) in &shape.capacity {
        let all = quantity(&amount.text());
        let kept = shape.reserved.get(resource).map(|kept| quantity(&kept.text())).unwrap_or_default();
        node.status.capacity.insert(resource, all);
        node.status.allocatable.insert(resource, all - kept);
    }
    node.status.allocatable.insert("pods", Quantity::from_units(i64::from(shape.max_pods)));
    let price = shape.price_micros.unwrap_or(0);
    let kind: Arc<str> = if shape.spot { "spot".into() } else { "on-demand".into() };
    let offering = |zone: Option<&String>| Offering {
        zone: zone.map(|zone| zone.as_str().into()),
        capacity_type: Some(kind.clone()),
        price,
        ..Offering::default()
    };
    let bought = !matches!(spec.platform.kind.to_string().as_str(), "baremetal" | "byoh");
    let offerings = match (bought, &shape.zones[..]) {
        (false, _) => Vec::new(),
        (true, []) => vec![offering(None)],
        (true, zones) => zones.iter().map(|zone| offering(Some(zone))).collect(),
    };
    Template { name: name.into(), node: Arc::new(node), csi: None, offerings }
}

fn pool_taint(key: &str, value: &str, effect: &str) -> Taint {
    let effect = match effect {
        "NoExecute" => Effect::NoExecute,
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        _ => Effect::NoSchedule,
    };
    Taint { key: key.into(), value: value.into(), effect }
}

/// The fields of a host's manifest that decide anything here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostBody {
    name: String,
    spec: HostSpec,
    status: HostStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostSpec {
    pool: String,
    rack: Option<String>,
    zone: Option<String>,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    resources: HostResources,
    idle_watts: Option<i64>,
    max_watts: Option<i64>,
    admin: Option<String>,
    hold: Option<HostHold>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostResources {
    cpu: Quantity,
    memory: Quantity,
    gpu: u32,
    storage: Quantity,
    custom_resources: BTreeMap<String, Quantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostHold {
    #[serde(alias = "why")]
    reason: String,
    until: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostStatus {
    #[serde(deserialize_with = "power_word")]
    state: Option<String>,
    phase: Option<String>,
    kubernetes_node: Option<String>,
    off_since: Option<Timestamp>,
    retry_at: Option<Timestamp>,
    failures: Vec<Value>,
    health: Option<String>,
    health_reading: Option<String>,
    wake_seconds: Option<u64>,
}

/// An unquoted `off` is a boolean to many YAML readers; it means the word.
fn power_word<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Word {
        Text(String),
        Switch(bool),
    }
    Ok(Option::<Word>::deserialize(deserializer)?.map(|word| match word {
        Word::Text(text) => text,
        Word::Switch(false) => "off".to_owned(),
        Word::Switch(true) => "on".to_owned(),
    }))
}

/// How long a machine takes to start, where nobody measured it.
const DEFAULT_WAKE: Duration = Duration::from_mins(5);

/// A host, the node it would make, and the hold on it.
#[derive(Debug)]
pub(super) struct ReadHost {
    pub(super) host: Host,
    pub(super) node: Node,
    pub(super) hold: Option<Hold>,
}

pub(super) fn read_host(document: &Document) -> Result<ReadHost, Vec<SetAside>> {
    let body: HostBody = muster_model::k8s::from_value("BareMetalNode", &document.value)
        .map_err(|error| vec![document.fault(&error.path, error.source.to_string())])?;
    let name = document.value["metadata"]["name"].as_str().map_or(body.name, str::to_owned);
    if name.is_empty() {
        return Err(vec![document.fault("metadata.name", "is required")]);
    }
    if body.spec.pool.is_empty() {
        return Err(vec![document.fault("spec.pool", "is required: the pool that the host serves")]);
    }
    let (spec, status) = (body.spec, body.status);
    let host = Host {
        name: name.as_str().into(),
        pool: spec.pool.as_str().into(),
        state: host_state(&spec, &status),
        zone: spec.zone.as_deref().map(Into::into),
        rack: spec.rack.as_deref().map(Into::into),
        node: status.kubernetes_node.as_deref().filter(|node| !node.is_empty()).map(Into::into),
        idle_milliwatts: spec.idle_watts.unwrap_or(0) * 1000,
        max_milliwatts: spec.max_watts.unwrap_or(0) * 1000,
        inrush_milliwatts: spec.max_watts.unwrap_or(0) * 1000,
        wake_time: status.wake_seconds.map_or(DEFAULT_WAKE, Duration::from_secs),
        off_since: status.off_since,
        health: health(&status),
        recent_failures: u32::try_from(status.failures.len()).unwrap_or(u32::MAX),
        backoff_until: status.retry_at,
        ..Host::default()
    };
    let mut node = Node { metadata: ObjectMeta::default(), ..Node::default() };
    for (key, value) in &spec.labels {
        node.metadata.labels.insert(key, value.as_str().into());
        node.metadata
            .annotations
            .insert(&field_annotation(&format!("label {key}")), format!("host {name} spec.labels").into());
    }
    node.spec.taints = spec.taints.into();
    node.status = resources(&spec.resources);
    let hold = spec.hold.map(|hold| Hold {
        scope: Scope::Host(host.name.clone()),
        stops: Stops::Both,
        why: if hold.reason.is_empty() { "no reason given".into() } else { hold.reason.into() },
        until: hold.until,
    });
    Ok(ReadHost { host, node, hold })
}

fn resources(resources: &HostResources) -> NodeStatus {
    let mut status = NodeStatus::default();
    let mut add = |name: &str, amount: Quantity| {
        if !amount.is_zero() {
            status.allocatable.insert(name, amount);
            status.capacity.insert(name, amount);
        }
    };
    add("cpu", resources.cpu);
    add("memory", resources.memory);
    add("ephemeral-storage", resources.storage);
    add("nvidia.com/gpu", Quantity::from_units(i64::from(resources.gpu)));
    for (name, amount) in &resources.custom_resources {
        add(name, *amount);
    }
    status
}

fn host_state(spec: &HostSpec, status: &HostStatus) -> HostState {
    if spec.admin.as_deref() == Some("maintenance") {
        return HostState::Maintenance;
    }
    match (status.state.as_deref(), status.phase.as_deref()) {
        (_, Some("quarantined")) | (Some("error"), _) => HostState::Failed,
        (Some("off") | None, _) => HostState::Off,
        (Some("powering-on"), _) => HostState::Waking,
        (Some("on"), _) => HostState::On,
        (Some("ready"), _) => HostState::Ready,
        (Some("draining"), _) => HostState::Leaving,
        (Some("maintenance"), _) => HostState::Maintenance,
        (Some(_), _) => HostState::Unknown,
    }
}

fn health(status: &HostStatus) -> Health {
    let reading = status.health_reading.clone().unwrap_or_else(|| "no reading named".to_owned());
    match status.health.as_deref().map(str::to_ascii_lowercase).as_deref() {
        Some("critical") => Health::Critical(reading.into()),
        Some("warning") => Health::Warning(reading.into()),
        _ => Health::Good,
    }
}

/// Gives a host the template that describes it: the pool's, with what the host itself says on top.
pub(super) fn attach(pools: &mut [Pool], mut read: ReadHost, hosts: &mut Vec<Host>) {
    let Some(pool) = pools.iter_mut().find(|pool| pool.name == read.host.pool) else {
        hosts.push(read.host); // explained as a host without a pool
        return;
    };
    let base = pool.templates.iter().find(|template| !template.name.starts_with("host-"));
    let mut node = base.map_or_else(Node::default, |base| Node::clone(&base.node));
    let said = format!("host {}", read.host.name);
    for (key, value) in read.node.metadata.labels.iter() {
        node.metadata.labels.insert(key, value.clone());
    }
    for (key, value) in read.node.metadata.annotations.iter() {
        node.metadata.annotations.insert(key, value.into());
    }
    node.metadata.labels.insert(NODEPOOL_LABEL, (&*pool.name).into());
    let taints: Vec<Taint> = node.spec.taints.iter().chain(&read.node.spec.taints).cloned().collect();
    node.spec.taints = taints.into();
    for (name, amount) in read.node.status.allocatable.iter() {
        let kept = node
            .status
            .capacity
            .get(name)
            .zip(node.status.allocatable.get(name))
            .map(|(all, free)| *all - *free);
        node.status.allocatable.insert(name, *amount - kept.unwrap_or_default());
        node.status.capacity.insert(name, *amount);
        node.metadata.annotations.insert(&field_annotation(name), format!("{said} spec.resources").into());
    }
    if !node.status.allocatable.contains("pods") {
        node.status.allocatable.insert("pods", Quantity::from_units(DEFAULT_PODS));
    }
    if !node.status.allocatable.contains("cpu") || !node.status.allocatable.contains("memory") {
        hosts.push(read.host);
        return;
    }
    // Hosts that are alike share a template.
    let known = pool
        .templates
        .iter()
        .find(|template| template.name.starts_with("host-") && template.node.same_shape(&node));
    let name: Arc<str> = if let Some(template) = known {
        template.name.clone()
    } else {
        let name: Arc<str> = format!("host-{}", read.host.name).into();
        pool.templates.push(Template {
            name: name.clone(),
            node: Arc::new(node),
            csi: None,
            offerings: Vec::new(),
        });
        name
    };
    read.host.template = name;
    hosts.push(read.host);
}

trait SameShape {
    fn same_shape(&self, other: &Self) -> bool;
}

impl SameShape for Node {
    fn same_shape(&self, other: &Self) -> bool {
        self.metadata.labels == other.metadata.labels
            && self.spec.taints == other.spec.taints
            && self.status.allocatable == other.status.allocatable
    }
}

/// A template learned from a node of the pool that is there.
pub(super) fn learned(node: &Node, offered: bool) -> Template {
    const OWN: [&str; 3] =
        ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
    const PASSING: &str = "node.kubernetes.io/";
    let mut copy = Node::default();
    for (key, value) in node.metadata.labels.iter().filter(|(key, _)| !OWN.contains(key)) {
        copy.metadata.labels.insert(key, value.clone());
    }
    copy.metadata.annotations.insert(&learned_annotation(), node.name().into());
    // Taints that come and go with the node's condition say nothing about the next node.
    copy.spec.taints =
        node.spec.taints.iter().filter(|taint| !taint.key.starts_with(PASSING)).cloned().collect();
    copy.status.allocatable = node.status.allocatable.clone();
    copy.status.capacity = node.status.capacity.clone();
    copy.status.declared_features = node.status.declared_features.clone();
    let zone = node.metadata.labels.text("topology.kubernetes.io/zone").map(Into::into);
    let offering = Offering { zone, ..Offering::default() };
    Template {
        name: node.metadata.labels.text("node.kubernetes.io/instance-type").unwrap_or("learned").into(),
        node: Arc::new(copy),
        csi: None,
        offerings: if offered { vec![offering] } else { Vec::new() },
    }
}

/// The pool that a node says it belongs to.
pub(super) fn pool_of(node: &Node) -> Option<&str> {
    POOL_LABELS.iter().find_map(|label| node.metadata.labels.text(label))
}

/// A pool or a machine from a flag: `web:cpu=8,memory=32Gi,max=10,price=0.2,label.purpose=gpu,taint=gpu:NoSchedule`.
pub(super) fn from_flag(text: &str) -> Result<Pool, String> {
    let (name, rest) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} is no pool; write NAME:cpu=8,memory=32Gi,max=10"))?;
    let mut pool = Pool { name: name.into(), max: u32::MAX, ..Pool::default() };
    let mut node = Node::default();
    let mut offering = Offering::default();
    let mut taints = Vec::new();
    node.metadata.annotations.insert(&source_annotation(), "the flag --pool".into());
    node.metadata.labels.insert(NODEPOOL_LABEL, name.into());
    for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("{part:?} in pool {name} is not KEY=VALUE"))?;
        let number = || {
            value.parse::<u32>().map_err(|_| format!("{key} of pool {name} is {value:?}, not a whole number"))
        };
        match key {
            "min" => pool.min = number()?,
            "max" => pool.max = number()?,
            "supply" => offering.supply = Some(number()?),
            "zone" => offering.zone = Some(value.into()),
            "price" => {
                offering.price =
                    price(value).ok_or_else(|| format!("price of pool {name} is {value:?}, not a number"))?;
            }
            "taint" => {
                let (pair, effect) = value.rsplit_once(':').unwrap_or((value, "NoSchedule"));
                let (taint, said) = pair.split_once('=').unwrap_or((pair, ""));
                taints.push(pool_taint(taint, said, effect));
            }
            _ => {
                if let Some(label) = key.strip_prefix("label.") {
                    node.metadata.labels.insert(label, value.into());
                    continue;
                }
                let resource = if key == "gpu" { "nvidia.com/gpu" } else { key };
                let amount: Quantity = value.parse().map_err(|_| {
                    format!("{key} of pool {name} is {value:?}, not an amount like 8 or 32Gi")
                })?;
                node.status.allocatable.insert(resource, amount);
                node.status.capacity.insert(resource, amount);
            }
        }
    }
    for needed in ["cpu", "memory"] {
        if !node.status.allocatable.contains(needed) {
            return Err(format!(
                "pool {name} needs {needed}, for example {needed}={}",
                if needed == "cpu" { "8" } else { "32Gi" }
            ));
        }
    }
    if !node.status.allocatable.contains("pods") {
        node.status.allocatable.insert("pods", Quantity::from_units(DEFAULT_PODS));
    }
    node.spec.taints = taints.into();
    pool.templates =
        vec![Template { name: name.into(), node: Arc::new(node), csi: None, offerings: vec![offering] }];
    Ok(pool)
}

fn price(text: &str) -> Option<i64> {
    let amount: Quantity = text.parse().ok()?;
    i64::try_from(amount.nanos() / 1000).ok()
}
