//! Hosts from their manifests: the spec as the service reads it, and of the status what decides here.

use std::sync::Arc;

use muster_engine::{
    explain::field_annotation,
    snapshot::{Health, Hold, Host, HostState, Pool, Scope, Stops, Template},
};
use muster_model::{
    Duration, NODEPOOL_LABEL, Quantity, Timestamp,
    host::{Admin, BareMetalNodeSpec, Limits, ResourceCapacity},
    k8s::{Node, NodeStatus, Taint},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    document::{Document, SetAside},
    pools::{DEFAULT_PODS, pool_taint},
};

/// How long a machine takes to start, where nobody measured it.
const DEFAULT_WAKE: Duration = Duration::from_mins(5);

/// What of a host's status decides anything here. The rest of it is not read, so that a status of another
/// release does no harm.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HostStatus {
    #[serde(deserialize_with = "power_word")]
    state: Option<String>,
    phase: Option<String>,
    kubernetes_node: Option<String>,
    off_since: Option<Timestamp>,
    serving_since: Option<Timestamp>,
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

/// A host, the node it would make, and the hold on it.
#[derive(Debug)]
pub(super) struct ReadHost {
    pub(super) host: Host,
    pub(super) node: Node,
    pub(super) hold: Option<Hold>,
}

pub(super) fn read_host(document: &Document) -> Result<ReadHost, Vec<SetAside>> {
    let value = &document.value;
    let name = value["metadata"]["name"].as_str().or_else(|| value["name"].as_str()).unwrap_or_default();
    if name.is_empty() {
        return Err(vec![document.fault("metadata.name", "is required")]);
    }
    let spec = read_spec(document)?;
    let status: HostStatus = match value.get("status").filter(|status| !status.is_null()) {
        Some(status) => muster_model::k8s::from_value("BareMetalNode", status).map_err(|error| {
            vec![document.fault(&format!("status.{}", error.path), error.source.to_string())]
        })?,
        None => HostStatus::default(),
    };
    let milliwatts = |watts: Option<u32>| watts.map_or(0, |watts| i64::from(watts) * 1000);
    let host = Host {
        name: name.into(),
        pool: spec.pool.as_str().into(),
        state: host_state(&spec, &status),
        zone: spec.zone.as_deref().map(Into::into),
        rack: spec.rack.as_deref().map(Into::into),
        node: status.kubernetes_node.as_deref().filter(|node| !node.is_empty()).map(Into::into),
        idle_milliwatts: milliwatts(spec.idle_watts),
        max_milliwatts: milliwatts(spec.max_watts),
        inrush_milliwatts: milliwatts(spec.max_watts),
        wake_time: status.wake_seconds.map_or(DEFAULT_WAKE, Duration::from_secs),
        off_since: status.off_since,
        on_since: status.serving_since,
        min_on_time: Limits::default().with(&spec.deadlines).min_on,
        health: health(&status),
        recent_failures: u32::try_from(status.failures.len()).unwrap_or(u32::MAX),
        backoff_until: status.retry_at,
        ..Host::default()
    };
    let hold = spec.hold.as_ref().map(|hold| Hold {
        scope: Scope::Host(host.name.clone()),
        stops: Stops::Both,
        why: hold.reason.as_str().into(),
        until: hold.until,
    });
    Ok(ReadHost { node: node_of(name, &spec), host, hold })
}

/// How the machine is switched decides nothing in a simulation, so it need not be written; whatever is
/// written has to be right.
fn read_spec(document: &Document) -> Result<BareMetalNodeSpec, Vec<SetAside>> {
    let mut spec = document.value["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.entry("powerInterface").or_insert_with(|| json!("redfish"));
        fields.entry("mgmtAddress").or_insert_with(|| json!("bmc.invalid"));
        fields.entry("macAddress").or_insert_with(|| json!("02:00:00:00:00:00"));
        if let Some(hold) = fields.get_mut("hold").and_then(Value::as_object_mut) {
            hold.entry("by").or_insert_with(|| json!("somebody"));
            hold.entry("reason").or_insert_with(|| json!("no reason given"));
        }
    }
    let read = BareMetalNodeSpec::read(&spec, "spec");
    read.map(|parsed| parsed.value)
        .map_err(|errors| errors.iter().map(|error| document.fault(&error.path, error.to_string())).collect())
}

/// The node that the host would make, as far as the host says.
fn node_of(name: &str, spec: &BareMetalNodeSpec) -> Node {
    let mut node = Node::default();
    for (key, value) in &spec.labels {
        let field = field_annotation(&format!("label {key}"));
        node.metadata.labels.insert(key, value.as_str().into());
        node.metadata.annotations.insert(&field, format!("host {name} spec.labels").into());
    }
    let taint = |taint: &muster_model::pool::Taint| {
        pool_taint(&taint.key, taint.value.as_deref().unwrap_or(""), taint.effect.as_str())
    };
    node.spec.taints = spec.taints.iter().map(taint).collect();
    node.status = resources(&spec.resources);
    node
}

fn resources(resources: &ResourceCapacity) -> NodeStatus {
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

fn host_state(spec: &BareMetalNodeSpec, status: &HostStatus) -> HostState {
    if spec.admin != Admin::Normal {
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
