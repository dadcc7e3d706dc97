//! Pools from their manifests, from flags, and from the labels of nodes.

use std::{collections::BTreeSet, sync::Arc};

use muster_engine::{
    Snapshot,
    explain::{field_annotation, learned_annotation, source_annotation},
    snapshot::{Demand, Mode, Offering, Pool, Spare, Template},
};
use muster_model::{
    ClusterId, NODEPOOL_LABEL, NodePool, Quantity, Timestamp,
    catalogue::Catalogue,
    host::GlobalConfig,
    k8s::{Effect, Node, Taint},
    platform::PlatformKind,
    pool::{Autoscaling, Headroom, NodeShape, PoolContext, PoolSpec, ShapeSource},
};
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
pub(super) const DEFAULT_PODS: i64 = 110;

/// Reads a pool's manifest: the body of the REST API, or the custom resource. `global` has the marks of pools of servers that
/// say none.
pub(super) fn read_pool(
    document: &Document,
    now: Timestamp,
    global: &GlobalConfig,
) -> Result<Pool, Vec<SetAside>> {
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
            let marks = match spec.platform.kind {
                PlatformKind::Baremetal => auto.marks(global.high_mark_percent, global.low_mark_percent),
                _ => auto.marks(None, None),
            };
            Demand {
                target_cpu_percent: Some(marks.cpu),
                target_memory_percent: Some(marks.memory),
                scale_down_percent: Some(marks.scale_down),
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

pub(super) fn pool_taint(key: &str, value: &str, effect: &str) -> Taint {
    let effect = match effect {
        "NoExecute" => Effect::NoExecute,
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        _ => Effect::NoSchedule,
    };
    Taint { key: key.into(), value: value.into(), effect }
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

/// Templates that were learned from nodes which a question takes away: another node of the pool shows the same.
pub(super) fn forget(snapshot: &mut Snapshot, gone: &BTreeSet<Arc<str>>) {
    let members = &snapshot.members;
    for pool in &mut snapshot.pools {
        let Some(other) = members.iter().find(|(_, member)| member.pool == pool.name).map(|(name, _)| name)
        else {
            continue;
        };
        for template in &mut pool.templates {
            let from = template.node.metadata.annotations.text(&learned_annotation()).unwrap_or_default();
            if gone.contains(from) {
                let node = Arc::make_mut(&mut template.node);
                node.metadata.annotations.insert(&learned_annotation(), (&**other).into());
            }
        }
    }
}

/// What a pool does that says nothing about itself: the defaults of the service.
pub(super) fn default_demand() -> Demand {
    let auto = Autoscaling::default();
    Demand {
        scale_down_percent: Some(auto.scale_down_utilization()),
        scale_down_delay: auto.scale_down_delay(),
        scale_up_delay: auto.scale_up_delay(),
        ..Demand::default()
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
