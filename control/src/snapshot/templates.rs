//! What a node of a pool will look like: said by the pool, known to the catalogue, told by a host, or learned.

use std::{fmt::Write as _, sync::Arc};

use muster_engine::{
    explain::{field_annotation, learned_annotation, learned_at_annotation, source_annotation},
    snapshot::{Offering, Template},
};
use muster_model::{
    NODEPOOL_LABEL, Quantity, Timestamp,
    host::BareMetalNodeSpec,
    k8s::{Effect, Node, Taint},
    observe::{OFF_TAINT, STARTUP_TAINT},
    platform::PlatformKind,
    pool::{NodeShape, PoolSpec, ShapeSource, TaintEffect},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Inputs, PoolInput};

/// Pods on a node that says nothing else: the default of the kubelet.
const DEFAULT_PODS: i64 = 110;
/// The resource under which NVIDIA's device plugin offers GPUs.
const GPU: &str = muster_model::catalogue::GPU_RESOURCE;

/// A node that the pool had, as far as the next one will be like it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Learned {
    pub from: String,
    pub at: Timestamp,
    pub node: Node,
}

/// The templates of a pool, apart from those that hosts bring. An error says what is missing.
pub(super) fn of_pool(inputs: &Inputs, input: &PoolInput) -> Result<Vec<Template>, String> {
    let spec = &input.object.spec;
    match spec.node_shape(&input.object.name, &inputs.catalogue, None) {
        Ok(shape) => Ok(vec![from_shape(inputs, input, &shape)]),
        Err(incomplete) => match inputs.memory.learned.get(input.name()) {
            Some(learned) => Ok(vec![from_learned(inputs, input, learned)]),
            None => Err(incomplete.to_string()),
        },
    }
}

/// Whether machines of this platform are bought, rather than called up from the inventory.
fn is_bought(kind: PlatformKind) -> bool {
    match kind {
        PlatformKind::Baremetal => false,
        PlatformKind::Byoh
        | PlatformKind::Vsphere
        | PlatformKind::Aws
        | PlatformKind::Gcp
        | PlatformKind::Azure => true,
    }
}

fn from_shape(inputs: &Inputs, input: &PoolInput, shape: &NodeShape) -> Template {
    let spec = &input.object.spec;
    let (source, name) = match &shape.source {
        ShapeSource::Template => ("spec.template".to_owned(), "template".to_owned()),
        ShapeSource::Platform => (format!("spec.platform.{}", spec.platform.kind), "platform".to_owned()),
        ShapeSource::Catalogue { machine_type } => {
            (format!("the catalogue's entry for {machine_type}"), machine_type.clone())
        }
        ShapeSource::Learned => ("a node that the pool had".to_owned(), "learned".to_owned()),
    };
    let mut node = Node::default();
    for (key, value) in &shape.labels {
        node.metadata.labels.insert(key, value.as_str().into());
        note(&mut node, &format!("label {key}"), label_source(spec, key));
    }
    node.metadata.annotations.insert(&source_annotation(), source.into());
    note(&mut node, "taints", "spec.taints, spec.platform and spec.template.taints");
    note(&mut node, "pods", "spec.template.maxPods, or the default of 110");
    node.spec.taints = shape.taints.iter().map(taint).collect();
    for (resource, amount) in &shape.capacity {
        let all = quantity(&amount.text());
        let kept = shape.reserved.get(resource).map(|kept| quantity(&kept.text())).unwrap_or_default();
        node.status.capacity.insert(resource, all);
        node.status.allocatable.insert(resource, all - kept);
    }
    node.status.allocatable.insert("pods", Quantity::from_units(i64::from(shape.max_pods)));
    let name = spec.platform.machine_type().unwrap_or(name);
    let price = shape.price_micros.unwrap_or(0);
    let offerings = offerings(inputs, input, &shape.zones, shape.spot, price);
    Template { name: name.into(), node: Arc::new(node), csi: None, offerings }
}

fn from_learned(inputs: &Inputs, input: &PoolInput, learned: &Learned) -> Template {
    let facts = input.object.spec.platform.facts();
    let mut node = learned.node.clone();
    node.metadata.annotations.insert(&learned_annotation(), learned.from.as_str().into());
    node.metadata.annotations.insert(&learned_at_annotation(), learned.at.to_string().into());
    node.metadata.labels.insert(NODEPOOL_LABEL, input.name().into());
    let offerings = offerings(inputs, input, &facts.zones, facts.spot, 0);
    Template { name: "learned".into(), node: Arc::new(node), csi: None, offerings }
}

/// Where and how nodes can be had. A pool whose provisioner stayed silent is not asked again for a while.
fn offerings(inputs: &Inputs, input: &PoolInput, zones: &[String], spot: bool, price: i64) -> Vec<Offering> {
    if !is_bought(input.object.spec.platform.kind) {
        return Vec::new();
    }
    let unavailable_until =
        inputs.memory.asked.get(input.name()).and_then(|asked| asked.unavailable_until(inputs.now));
    let capacity_type: Arc<str> = if spot { "spot".into() } else { "on-demand".into() };
    let offering = |zone: Option<&String>| Offering {
        zone: zone.map(|zone| zone.as_str().into()),
        capacity_type: Some(Arc::clone(&capacity_type)),
        price,
        supply: None,
        unavailable_until,
    };
    if zones.is_empty() {
        vec![offering(None)]
    } else {
        zones.iter().map(|zone| offering(Some(zone))).collect()
    }
}

/// The node that a host will be, or `None` when nobody says how large it is.
pub(super) fn of_host(
    inputs: &Inputs,
    input: &PoolInput,
    host: &str,
    machine: &BareMetalNodeSpec,
) -> Option<Node> {
    let spec = &input.object.spec;
    let mut node = base_node(inputs, input);
    for (key, value) in &machine.labels {
        node.metadata.labels.insert(key, value.as_str().into());
        note(&mut node, &format!("label {key}"), "spec.labels of the host");
    }
    let own = machine.taints.iter().map(taint);
    let mut taints: Vec<Taint> = node.spec.taints.iter().cloned().chain(own).collect();
    taints.sort();
    taints.dedup();
    node.spec.taints = taints.into();
    let resources = &machine.resources;
    let reserved = spec.template.as_ref().and_then(|template| template.reserved.clone()).unwrap_or_default();
    let gpus = Quantity::from_units(i64::from(resources.gpu));
    let declared = [
        ("cpu", resources.cpu),
        ("memory", resources.memory),
        ("ephemeral-storage", resources.storage),
        (GPU, gpus),
    ];
    let custom = resources.custom_resources.iter().map(|(name, amount)| (name.as_str(), *amount));
    for (name, amount) in declared.into_iter().chain(custom).filter(|(_, amount)| !amount.is_zero()) {
        let kept = reserved.get(name).map(|kept| quantity(&kept.text())).unwrap_or_default();
        node.status.capacity.insert(name, amount);
        node.status.allocatable.insert(name, amount - kept);
        note(&mut node, name, "spec.resources of the host");
    }
    if !node.status.allocatable.contains("cpu") || !node.status.allocatable.contains("memory") {
        let learned = inputs.memory.learned_hosts.get(host)?;
        node.status.allocatable = learned.node.status.allocatable.clone();
        node.status.capacity = learned.node.status.capacity.clone();
        node.metadata.annotations.insert(&learned_annotation(), learned.from.as_str().into());
        node.metadata.annotations.insert(&learned_at_annotation(), learned.at.to_string().into());
    }
    if !node.status.allocatable.contains("pods") {
        let pods =
            spec.template.as_ref().and_then(|template| template.max_pods).map_or(DEFAULT_PODS, i64::from);
        node.status.allocatable.insert("pods", Quantity::from_units(pods));
    }
    Some(node)
}

/// What the pool alone says about its nodes.
fn base_node(inputs: &Inputs, input: &PoolInput) -> Node {
    let spec = &input.object.spec;
    if let Ok(shape) = spec.node_shape(&input.object.name, &inputs.catalogue, None) {
        return Node::clone(&from_shape(inputs, input, &shape).node);
    }
    let mut node = Node::default();
    let template = spec.template.as_ref();
    let arch = template.and_then(|template| template.arch).unwrap_or(muster_model::pool::Arch::Amd64);
    let os = template.and_then(|template| template.os.clone()).unwrap_or_else(|| "linux".to_owned());
    node.metadata.labels.insert("kubernetes.io/arch", arch.as_str().into());
    node.metadata.labels.insert("kubernetes.io/os", os.into());
    for (key, value) in spec.node_labels() {
        node.metadata.labels.insert(&key, value.into());
        note(&mut node, &format!("label {key}"), label_source(spec, &key));
    }
    node.metadata.labels.insert(NODEPOOL_LABEL, input.name().into());
    node.metadata.annotations.insert(&source_annotation(), "the pool and its host".into());
    node.spec.taints = spec.node_taints().iter().map(taint).collect();
    node
}

/// The same name for the same shape, whatever the order of hosts: hosts that are alike share a template.
pub(super) fn shape_name(node: &Node) -> Arc<str> {
    let shape = (&node.metadata.labels, &node.spec.taints, &node.status.allocatable, &node.status.capacity);
    let text = serde_json::to_vec(&shape).expect("a node is plain data");
    let digest = Sha256::digest(&text);
    let amount = |name: &str| {
        node.status.capacity.get(name).copied().map(Quantity::value).filter(|amount| *amount > 0)
    };
    let mut name = String::new();
    if let Some(cores) = amount("cpu") {
        let _ = write!(name, "{cores}cpu-");
    }
    if let Some(bytes) = amount("memory") {
        let _ = write!(name, "{}Gi-", bytes >> 30);
    }
    format!("{name}{}", hex::encode(&digest[..3])).into()
}

/// What the next node of a pool will have in common with this one.
pub(super) fn learn(node: &Node, now: Timestamp) -> Learned {
    const OWN: [&str; 2] = [muster_engine::template::HOSTNAME_LABEL, muster_engine::template::ZONE_LABEL];
    let mut copy = Node::default();
    for (key, value) in node.metadata.labels.iter().filter(|(key, _)| !OWN.contains(key)) {
        copy.metadata.labels.insert(key, value.clone());
    }
    copy.spec.taints = node.spec.taints.iter().filter(|taint| !is_passing(taint)).cloned().collect();
    copy.status.allocatable = node.status.allocatable.clone();
    copy.status.capacity = node.status.capacity.clone();
    copy.status.declared_features = node.status.declared_features.clone();
    Learned { from: node.name().to_owned(), at: now, node: copy }
}

/// Taints that come and go with a node's condition say nothing about the next node.
pub(super) fn is_passing(taint: &Taint) -> bool {
    taint.key.starts_with("node.kubernetes.io/")
        || taint.key.starts_with("node.cloudprovider.kubernetes.io/")
        || &*taint.key == OFF_TAINT
        || &*taint.key == STARTUP_TAINT
}

fn note(node: &mut Node, field: &str, from: &str) {
    node.metadata.annotations.insert(&field_annotation(field), from.into());
}

fn label_source(spec: &PoolSpec, key: &str) -> &'static str {
    let said =
        |labels: Option<&muster_model::pool::Labels>| labels.is_some_and(|labels| labels.contains_key(key));
    if said(spec.labels.as_ref()) {
        "spec.labels"
    } else if said(spec.template.as_ref().and_then(|template| template.labels.as_ref())) {
        "spec.template.labels"
    } else {
        "the pool, its platform and its machine type"
    }
}

pub(super) fn taint(taint: &muster_model::pool::Taint) -> Taint {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => Effect::NoSchedule,
        TaintEffect::PreferNoSchedule => Effect::PreferNoSchedule,
        TaintEffect::NoExecute => Effect::NoExecute,
    };
    Taint { key: taint.key.as_str().into(), value: taint.value().into(), effect }
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_default()
}
