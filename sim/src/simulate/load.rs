//! From documents to a snapshot. What cannot be read is set aside with its place; the rest goes on.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::{
    Snapshot, groups,
    snapshot::{Member, MemberState, Pool},
};
use muster_model::{Timestamp, host::GlobalConfig, k8s};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    document::{self, Document, SetAside, Source},
    hosts, pools,
};

/// What was read.
#[derive(Debug, Default)]
pub struct Loaded {
    pub snapshot: Snapshot,
    /// Number of objects by kind, those that decide nothing here included.
    pub kinds: BTreeMap<String, usize>,
    pub set_aside: Vec<SetAside>,
    /// What a reader should know about how the input was understood.
    pub notes: Vec<String>,
}

impl Loaded {
    /// What a snapshot of another origin would be if it had been read from objects.
    pub fn from_snapshot(snapshot: Snapshot) -> Self {
        let counts = [
            ("Node", snapshot.cluster.nodes.len()),
            ("Pod", snapshot.cluster.pods.len()),
            ("DaemonSet", snapshot.cluster.daemon_sets.len()),
            ("NodePool", snapshot.pools.len()),
            ("BareMetalNode", snapshot.hosts.len()),
        ];
        let kinds = counts.into_iter().filter(|(_, count)| *count > 0);
        Self {
            kinds: kinds.map(|(kind, count)| (kind.to_owned(), count)).collect(),
            snapshot,
            ..Self::default()
        }
    }
}

/// Kinds that are part of a dump but decide nothing here.
const PASSED_OVER: [&str; 34] = [
    "Service",
    "ConfigMap",
    "Secret",
    "Deployment",
    "Event",
    "Endpoints",
    "EndpointSlice",
    "ServiceAccount",
    "Ingress",
    "Lease",
    "ControllerRevision",
    "CronJob",
    "HorizontalPodAutoscaler",
    "NetworkPolicy",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ResourceQuota",
    "LimitRange",
    "CustomResourceDefinition",
    "APIService",
    "Cluster",
    "NodeMetrics",
    "PodMetrics",
    "PodTemplate",
    "IngressClass",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ComponentStatus",
    "IPAddress",
    "ServiceCIDR",
];

/// The kind of a document with the settings of all hosts.
const SETTINGS: &str = "HostSettings";

/// Reads all texts into one snapshot. `now` is the time for which schedules and delays are worked out;
/// without one it is the latest time that the objects themselves mention.
pub fn load(sources: &[Source], now: Option<Timestamp>) -> Loaded {
    let mut documents = Vec::new();
    let mut loaded = Loaded::default();
    for source in sources {
        let (found, faults) = document::parse(source);
        documents.extend(found);
        loaded.set_aside.extend(faults);
    }
    let guessed = documents.iter().filter_map(|document| latest(&document.value)).max();
    loaded.snapshot.now = now.or(guessed).unwrap_or_default();
    let global = settings(&documents, &mut loaded.set_aside);
    let mut found = Vec::new();
    let mut seen = BTreeMap::new();
    for document in &documents {
        let kind = document.value["kind"].as_str().unwrap_or_default().to_owned();
        *loaded
            .kinds
            .entry(if kind.is_empty() { "(no kind)".to_owned() } else { kind.clone() })
            .or_default() += 1;
        if let Some(first) = again(document, &kind, &mut seen) {
            loaded.set_aside.push(document.fault("metadata.name", format!("was given before, at {first}")));
            continue;
        }
        if let Err(faults) = take(document, &kind, &global, &mut loaded, &mut found) {
            loaded.set_aside.extend(faults);
        }
    }
    complete_pools(&mut loaded);
    for host in found {
        let hold = host.hold.clone();
        hosts::attach(&mut loaded.snapshot.pools, host, &mut loaded.snapshot.hosts);
        loaded.snapshot.holds.extend(hold);
    }
    join_nodes(&mut loaded);
    join_groups(&mut loaded);
    loaded
}

/// The settings of all hosts, as the service has them; what is in force where no document says any.
fn settings(documents: &[Document], set_aside: &mut Vec<SetAside>) -> GlobalConfig {
    let Some(document) = documents.iter().find(|document| document.value["kind"] == SETTINGS) else {
        return GlobalConfig::default();
    };
    let found = k8s::from_value::<GlobalConfig>(SETTINGS, &document.value["spec"])
        .map_err(|error| vec![document.fault(&format!("spec.{}", error.path), error.source.to_string())])
        .and_then(|config| {
            let faults = config.faults();
            if faults.is_empty() { Ok(config) } else { Err(vec![document.fault("spec", faults.join("; "))]) }
        });
    found.unwrap_or_else(|faults| {
        set_aside.extend(faults);
        GlobalConfig::default()
    })
}

/// Kind, namespace and name of an object, and where it was given first.
type Seen = BTreeMap<(String, String, String), String>;

/// Where an object of the same kind and name was given before; two would be one to everything that follows.
fn again(document: &Document, kind: &str, seen: &mut Seen) -> Option<String> {
    let metadata = &document.value["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&metadata["name"]);
    if name.is_empty() || PASSED_OVER.contains(&kind) {
        return None;
    }
    // Several APIs have this kind.
    let version = if kind == "PodGroup" { text(&document.value["apiVersion"]) } else { String::new() };
    let kind = format!("{kind} {}", version.split('/').next().unwrap_or_default());
    let key = (kind, text(&metadata["namespace"]), name);
    if let Some(first) = seen.get(&key) {
        return Some(first.clone());
    }
    seen.insert(key, format!("{}:{}", document.file, document.line));
    None
}

/// Times of status changes tell when a dump was taken.
fn latest(value: &Value) -> Option<Timestamp> {
    let conditions = value["status"]["conditions"].as_array()?;
    let times = conditions
        .iter()
        .flat_map(|condition| [&condition["lastHeartbeatTime"], &condition["lastTransitionTime"]]);
    times.filter_map(|time| time.as_str()?.parse().ok()).max()
}

fn read<T: DeserializeOwned>(document: &Document, kind: &'static str) -> Result<T, Vec<SetAside>> {
    k8s::from_value(kind, &document.value)
        .map_err(|error| vec![document.fault(&error.path, error.source.to_string())])
}

fn take(
    document: &Document,
    kind: &str,
    global: &GlobalConfig,
    loaded: &mut Loaded,
    hosts: &mut Vec<hosts::ReadHost>,
) -> Result<(), Vec<SetAside>> {
    let snapshot = &mut loaded.snapshot;
    let cluster = &mut snapshot.cluster;
    if !document.value.is_object() {
        return Err(vec![document.fault("", "expected an object")]);
    }
    match kind {
        "Node" => {
            cluster.nodes.push(named(document, read(document, "Node")?, |node: &k8s::Node| &node.metadata)?);
        }
        "Pod" => cluster.pods.push(named(document, read(document, "Pod")?, |pod: &k8s::Pod| &pod.metadata)?),
        "Namespace" => cluster.namespaces.push(read(document, "Namespace")?),
        "PersistentVolume" => cluster.volumes.push(read(document, "PersistentVolume")?),
        "PersistentVolumeClaim" => cluster.claims.push(read(document, "PersistentVolumeClaim")?),
        "StorageClass" => cluster.storage_classes.push(read(document, "StorageClass")?),
        "CSINode" => cluster.csi_nodes.push(read(document, "CSINode")?),
        "CSIDriver" => cluster.csi_drivers.push(read(document, "CSIDriver")?),
        "CSIStorageCapacity" => cluster.storage_capacities.push(read(document, "CSIStorageCapacity")?),
        "VolumeAttachment" => cluster.volume_attachments.push(read(document, "VolumeAttachment")?),
        "PodDisruptionBudget" => cluster.budgets.push(read(document, "PodDisruptionBudget")?),
        "DaemonSet" => cluster.daemon_sets.push(read(document, "DaemonSet")?),
        "ReplicaSet" | "ReplicationController" => cluster.replica_sets.push(read(document, "ReplicaSet")?),
        "StatefulSet" => cluster.stateful_sets.push(read(document, "StatefulSet")?),
        "Job" => cluster.jobs.push(read(document, "Job")?),
        "PriorityClass" => cluster.priority_classes.push(read(document, "PriorityClass")?),
        "RuntimeClass" => cluster.runtime_classes.push(read(document, "RuntimeClass")?),
        "PodGroup" => cluster.pod_groups.push(read(document, "PodGroup")?),
        "NodePool" => {
            let pool = pools::read_pool(document, snapshot.now, global)?;
            if snapshot.pool(&pool.name).is_some() {
                return Err(vec![
                    document.fault("metadata.name", format!("pool {} was given before", pool.name)),
                ]);
            }
            snapshot.pools.push(pool);
        }
        "BareMetalNode" => hosts.push(hosts::read_host(document)?),
        SETTINGS => {}
        "Snapshot" => merge(snapshot, read::<Snapshot>(document, "Snapshot")?, &document.value),
        "" => return Err(vec![document.fault("kind", "is required: nobody can tell what this object is")]),
        other if PASSED_OVER.contains(&other) => {}
        other => {
            let note = format!("objects of kind {other} are not known and were passed over");
            if !loaded.notes.contains(&note) {
                loaded.notes.push(note);
            }
        }
    }
    Ok(())
}

fn named<T>(
    document: &Document,
    object: T,
    metadata: impl Fn(&T) -> &k8s::ObjectMeta,
) -> Result<T, Vec<SetAside>> {
    if metadata(&object).name.is_empty() {
        return Err(vec![document.fault("metadata.name", "is required")]);
    }
    Ok(object)
}

/// A `Snapshot` document adds what Kubernetes objects cannot say: limits, holds, gaps, groups.
fn merge(into: &mut Snapshot, from: Snapshot, value: &Value) {
    into.pools.extend(from.pools);
    into.hosts.extend(from.hosts);
    into.members.extend(from.members);
    into.groups.extend(from.groups);
    into.holds.extend(from.holds);
    into.gaps.extend(from.gaps);
    if value.get("now").is_some() {
        into.now = from.now;
    }
    if value.get("limits").is_some() {
        into.limits = from.limits;
    }
    if value.get("drain").is_some() {
        into.drain = from.drain;
    }
    into.cluster.nodes.extend(from.cluster.nodes);
    into.cluster.pods.extend(from.cluster.pods);
}

/// Pools without a template learn it from one of their nodes; labels without a pool make one.
fn complete_pools(loaded: &mut Loaded) {
    let snapshot = &mut loaded.snapshot;
    let mut by_pool: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, node) in snapshot.cluster.nodes.iter().enumerate() {
        if let Some(pool) = pools::pool_of(node) {
            by_pool.entry(pool.to_owned()).or_default().push(at);
        }
    }
    for (name, nodes) in &by_pool {
        let first = &snapshot.cluster.nodes[nodes[0]];
        match snapshot.pools.iter_mut().find(|pool| *pool.name == **name) {
            Some(pool) if pool.templates.is_empty() => pool.templates.push(pools::learned(first, true)),
            Some(_) => {}
            None => {
                let size = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                let template = pools::learned(first, true);
                snapshot.pools.push(Pool {
                    name: name.as_str().into(),
                    max: size,
                    templates: vec![template],
                    demand: pools::default_demand(),
                    ..Pool::default()
                });
                loaded.notes.push(format!(
                    "pool {name} was inferred from the labels of {size} nodes; it may not grow (--set {name}.max=N lets it)"
                ));
            }
        }
    }
}

/// Pods say which of them run all or none; a group of a `Snapshot` document stands above what they say.
fn join_groups(loaded: &mut Loaded) {
    let snapshot = &mut loaded.snapshot;
    for group in groups::groups(&snapshot.cluster) {
        if snapshot.groups.iter().all(|known| known.name != group.name) {
            snapshot.groups.push(group);
        }
    }
}

/// Nodes belong to the pool that their label names, or to that of their host.
fn join_nodes(loaded: &mut Loaded) {
    let snapshot = &mut loaded.snapshot;
    let mut loose = 0;
    for node in &snapshot.cluster.nodes {
        let name = &node.metadata.name;
        if snapshot.members.contains_key(name) {
            continue;
        }
        let host = snapshot.hosts.iter().find(|host| host.node.as_deref() == Some(node.name()));
        let pool = pools::pool_of(node).map(str::to_owned).or_else(|| host.map(|host| host.pool.to_string()));
        let Some(pool) = pool.and_then(|name| snapshot.pools.iter().find(|pool| *pool.name == *name)) else {
            loose += 1;
            continue;
        };
        let ready = node.status.condition("Ready").is_none_or(|condition| &*condition.status == "True");
        let kind = node.metadata.labels.text("node.kubernetes.io/instance-type");
        let template = kind.and_then(|kind| pool.template(kind)).or_else(|| pool.templates.first());
        let member = Member {
            pool: pool.name.clone(),
            template: template.map_or_else(|| Arc::from(""), |template| template.name.clone()),
            host: host.map(|host| host.name.clone()),
            state: if ready { MemberState::Ready } else { MemberState::Unready },
            price: template
                .and_then(|template| template.offerings.first())
                .map_or(0, |offering| offering.price),
            unneeded_since: None,
            surplus: false,
        };
        snapshot.members.insert(name.clone(), member);
    }
    if loose > 0 && loose < snapshot.cluster.nodes.len() {
        loaded.notes.push(format!("{loose} nodes carry no pool label; they are used, and never removed"));
    }
}
