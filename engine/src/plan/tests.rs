//! What scale-up promises, in tables. Every plan of a test passes the audit.

mod growth;
mod hosts;
mod loaded;
mod pods;
mod scarcity;

use std::sync::Arc;

use muster_model::k8s::{self, Pod};
use serde_json::{Value, json};

use super::{Decision, Target, scale_up};
use crate::{
    Snapshot, audit,
    snapshot::{Host, HostState, Member, Offering, Pool, Template},
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(super) fn object<T: for<'a> serde::Deserialize<'a>>(value: Value) -> T {
    serde_json::from_value(value).expect("the object of a test is well formed")
}

/// A pending pod.
pub(super) fn pod(name: &str, cpu: &str, spec: Value) -> Pod {
    let mut whole = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
    merge(&mut whole, spec);
    object(
        json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app(name)}}, "spec": whole}),
    )
}

/// `web-3` belongs to `web`.
fn app(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(app, _)| app)
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

pub(super) fn pods(name: &str, count: usize, cpu: &str, spec: &Value) -> Vec<Pod> {
    (0..count).map(|at| pod(&format!("{name}-{at}"), cpu, spec.clone())).collect()
}

/// A template of so many cores, with an offering in each zone at one price.
pub(super) fn template(name: &str, cores: u32, zones: &[&str], price: i64) -> Template {
    let node = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": name}},
        "status": {"allocatable": {"cpu": cores.to_string(), "memory": "64Gi", "pods": "110"}}});
    let offering = |zone: &&str| Offering {
        zone: (!zone.is_empty()).then(|| Arc::from(*zone)),
        price,
        ..Offering::default()
    };
    Template {
        name: name.into(),
        node: Arc::new(object(node)),
        offerings: zones.iter().map(offering).collect(),
        ..Template::default()
    }
}

pub(super) fn pool(name: &str, max: u32, templates: Vec<Template>) -> Pool {
    Pool { name: name.into(), max, templates, ..Pool::default() }
}

/// Adds a node that belongs to a pool, with its host if there is one of that name.
pub(super) fn add_node(snapshot: &mut Snapshot, name: &str, pool: &str, zone: &str, cores: u32) {
    snapshot.cluster.nodes.push(object(json!({
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
        "status": {"allocatable": {"cpu": cores.to_string(), "memory": "64Gi", "pods": "110"}}})));
    let host = snapshot.hosts.iter().find(|host| &*host.name == name).map(|host| host.name.clone());
    snapshot.members.insert(name.into(), Member { pool: pool.into(), host, ..Member::default() });
}

pub(super) fn host(name: &str, pool: &str, template: &str) -> Host {
    Host {
        name: name.into(),
        pool: pool.into(),
        template: template.into(),
        state: HostState::Off,
        price: 1_000,
        idle_milliwatts: 100_000,
        max_milliwatts: 300_000,
        ..Host::default()
    }
}

/// Plans; the audit accepts what comes out.
#[track_caller]
pub(super) fn plan(snapshot: &Snapshot) -> Decision {
    let decision = scale_up(snapshot);
    let findings = audit(snapshot, &decision.plan);
    assert!(findings.is_empty(), "{findings}");
    decision
}

/// Where pods went: their names with the name of their node.
pub(super) fn places(decision: &Decision) -> Vec<(String, String)> {
    let mut places: Vec<(String, String)> = decision
        .plan
        .placements
        .iter()
        .map(|placement| {
            let node = match &placement.on {
                Target::Node(name) => name.to_string(),
                Target::New(at) => decision.plan.new_nodes[*at as usize].name.to_string(),
            };
            (placement.pod.name.to_string(), node)
        })
        .collect();
    places.sort();
    places
}

pub(super) fn unplaced(decision: &Decision) -> Vec<&str> {
    decision.plan.unplaced.iter().map(|pod| &*pod.name).collect()
}

/// Zones of the new nodes, sorted.
pub(super) fn new_zones(decision: &Decision) -> Vec<String> {
    let mut zones: Vec<String> = decision
        .plan
        .new_nodes
        .iter()
        .map(|new| match &new.source {
            super::Source::Bought { zone, .. } => zone.as_deref().unwrap_or("").to_owned(),
            super::Source::Host { host } => format!("host {host}"),
        })
        .collect();
    zones.sort();
    zones
}

pub(super) fn claims(list: Value) -> Vec<k8s::PersistentVolumeClaim> {
    object(list)
}
