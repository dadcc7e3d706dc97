//! The DLRM trace: instances of recommendation models in five dimensions, at most so many of an
//! application on one host. The trace is read from a path; it is not part of the repository.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use muster_engine::{
    Snapshot,
    snapshot::{Offering, Pool, Template},
};
use muster_model::{
    Quantity,
    k8s::{
        Container, LabelSelector, Labels, Node, NodeStatus, ObjectMeta, Pod, PodSpec, ResourceList,
        Resources, SpreadConstraint, Taint, Toleration, TolerationOperator, WhenUnsatisfiable,
    },
};

/// One shape of host per role: cores, GPUs, RDMA percent, memory GiB, disk GiB. The trace does not publish
/// its hosts; these hold its largest instances and leave no dimension idle on average.
const HOSTS: [(&str, [i64; 5]); 2] = [("CN", [192, 0, 100, 1536, 2000]), ("HN", [128, 8, 400, 1024, 4000])];
const RESOURCES: [&str; 5] = ["cpu", "example.com/gpu", "example.com/rdma", "memory", "ephemeral-storage"];

pub(super) fn snapshot(path: &Path) -> Result<Snapshot, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut snapshot = Snapshot::default();
    for (role, amounts) in HOSTS {
        let mut allocatable: ResourceList = RESOURCES
            .iter()
            .zip(amounts)
            .map(|(name, amount)| (*name, quantity(name, amount as f64)))
            .collect();
        allocatable.insert("pods", Quantity::from_units(250));
        let taint =
            Taint { key: "role".into(), value: role.into(), effect: muster_model::k8s::Effect::NoSchedule };
        let mut node =
            Node { status: NodeStatus { allocatable, ..NodeStatus::default() }, ..Node::default() };
        node.metadata.labels.insert("role", role.into());
        node.spec.taints = [taint].into();
        let offering = Offering { price: 1_000_000, ..Offering::default() };
        snapshot.pools.push(Pool {
            name: role.into(),
            max: u32::MAX,
            templates: vec![Template {
                name: role.into(),
                node: Arc::new(node),
                csi: None,
                offerings: vec![offering],
            }],
            ..Pool::default()
        });
    }
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| {
        header
            .iter()
            .position(|h| *h == name)
            .ok_or_else(|| format!("{}: no column {name:?}", path.display()))
    };
    let wanted = [
        "instance_sn",
        "role",
        "app_name",
        "cpu_request",
        "gpu_request",
        "rdma_request",
        "memory_request",
        "disk_request",
        "max_instance_per_node",
    ];
    let at: Vec<usize> = wanted.iter().map(|name| column(name)).collect::<Result<_, _>>()?;
    let mut specs: BTreeMap<Vec<&str>, Arc<PodSpec>> = BTreeMap::new();
    for (number, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let row: Vec<&str> = at.iter().map(|&index| fields.get(index).copied().unwrap_or_default()).collect();
        let spec = if let Some(spec) = specs.get(&row[1..]) {
            Arc::clone(spec)
        } else {
            let spec = Arc::new(
                spec(&row).ok_or_else(|| format!("{}: line {}: {line:?}", path.display(), number + 2))?,
            );
            specs.insert(row[1..].to_vec(), Arc::clone(&spec));
            spec
        };
        let labels: Labels = [("app", Box::from(row[2]))].into_iter().collect();
        snapshot.cluster.pods.push(Pod {
            metadata: ObjectMeta {
                name: row[0].into(),
                namespace: "dlrm".into(),
                labels,
                ..ObjectMeta::default()
            },
            spec,
            ..Pod::default()
        });
    }
    Ok(snapshot)
}

fn spec(row: &[&str]) -> Option<PodSpec> {
    let requests: ResourceList = RESOURCES
        .iter()
        .zip(&row[3..8])
        .map(|(name, text)| Some((*name, quantity(name, text.parse().ok()?))))
        .collect::<Option<_>>()?;
    let requests = requests
        .iter()
        .filter(|(_, amount)| !amount.is_zero())
        .map(|(name, amount)| (name, *amount))
        .collect();
    let selector = LabelSelector {
        match_labels: [("app", Box::from(row[2]))].into_iter().collect(),
        ..LabelSelector::default()
    };
    let most: f64 = row[8].parse().unwrap_or(0.0);
    let limit = (most >= 1.0).then(|| SpreadConstraint {
        #[allow(clippy::cast_possible_truncation, reason = "the trace has at most 16")]
        max_skew: most as i32,
        topology_key: "kubernetes.io/hostname".into(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        label_selector: Some(selector),
        ..SpreadConstraint::default()
    });
    Some(PodSpec {
        containers: [Container {
            resources: Resources { requests, ..Resources::default() },
            ..Container::default()
        }]
        .into(),
        node_selector: [("role", Box::from(row[1]))].into_iter().collect(),
        tolerations: [Toleration {
            key: "role".into(),
            operator: TolerationOperator::Exists,
            ..Toleration::default()
        }]
        .into(),
        topology_spread_constraints: limit.into_iter().collect(),
        ..PodSpec::default()
    })
}

#[allow(clippy::cast_possible_truncation, reason = "amounts of the trace are small")]
fn quantity(name: &str, amount: f64) -> Quantity {
    match name {
        "cpu" => Quantity::from_milli((amount * 1000.0).ceil() as i64),
        "memory" | "ephemeral-storage" => Quantity::from_bytes((amount * 1_073_741_824.0).ceil() as i64),
        _ => Quantity::from_units(amount.ceil() as i64),
    }
}
