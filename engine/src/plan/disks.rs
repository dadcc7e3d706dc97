//! Volumes of pending pods: which nodes they reach, how many more a node attaches, which only one pod uses.
//!
//! Binding and zones depend on labels only and become part of what signatures tell apart, judged by the
//! scheduler's own filters. Attach limits become lanes, disks that exclude each other become counters. A
//! volume that several pods use counts once on a node: its place is reserved everywhere, and its pods go
//! only where there was room for that.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{CsiNodeSpec, Node, PersistentVolume, Pod, VolumeSource};

use super::{classes::PodClass, look, translate::Input};
use crate::fit::{Cycle, Plugin, Storage, World, storage, volume_limits, volume_limits::Attached};

const ONE_POD_ONLY: &str = "ReadWriteOncePod";
/// Labels of nodes that zones of volumes are compared with.
const ZONE_KEYS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Attachments that a node without a limit is given, beyond what others have: more than it can run pods.
const PLENTY: i64 = 10_000;

/// Whether a volume filter reads anything of the pod.
pub(crate) fn concerns(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|volume| look::concerns(&volume.source))
}

/// Sources that exclude each other on one node.
pub(crate) fn exclusive_sources(pod: &Pod) -> impl Iterator<Item = &VolumeSource> {
    use VolumeSource::{AwsDisk, GceDisk, Iscsi, Rbd};
    let exclusive = |source: &&VolumeSource| {
        matches!(source, AwsDisk { .. } | GceDisk { .. } | Iscsi { .. } | Rbd { .. })
    };
    pod.spec.volumes.iter().map(|volume| &volume.source).filter(exclusive)
}

/// Everything that is known of the volumes of the pending pods.
#[derive(Debug, Default)]
pub(crate) struct Disks<'a> {
    storage: Option<Storage<'a>>,
    /// Classes with volumes that matter, by number.
    classes: Vec<bool>,
    /// Claims of the pending pods that only one pod may use and more than one wants.
    contested: BTreeSet<(&'a str, &'a str)>,
    /// Claims that only one pod may use and a running one does.
    taken: BTreeSet<(&'a str, &'a str)>,
    /// Drivers with a limit somewhere, wanted by a pending pod.
    drivers: Vec<&'a str>,
    /// How many volumes of each driver a pod of each class asks for alone, then whether it uses shared
    /// ones; empty for classes without.
    wanted: Vec<Vec<i64>>,
    /// What is left to attach on each node and offer, by driver; then what admits users of shared volumes.
    nodes: Vec<Vec<i64>>,
    offers: Vec<Vec<i64>>,
}

impl<'a> Disks<'a> {
    pub(crate) fn new(input: &Input<'a>, classes: &[PodClass<'a>]) -> Self {
        let Some(storage) = &input.storage else { return Self::default() };
        let matter: Vec<bool> = classes.iter().map(|class| concerns(class.pod)).collect();
        if !matter.contains(&true) {
            return Self::default();
        }
        let mut disks = Self { storage: Some(storage.clone()), classes: matter, ..Self::default() };
        disks.find_exclusive(input, classes);
        disks.count_attachments(input, classes, storage);
        disks
    }

    fn find_exclusive(&mut self, input: &Input<'a>, classes: &[PodClass<'a>]) {
        let Some(storage) = &self.storage else { return };
        let exclusive = |(space, name): &(&str, &str)| {
            let claim = storage.claims.get(&(*space, *name));
            claim.is_some_and(|claim| claim.spec.access_modes.iter().any(|mode| &**mode == ONE_POD_ONLY))
        };
        let mut seen: BTreeMap<(&'a str, &'a str), usize> = BTreeMap::new();
        for class in classes {
            for claim in claims(class.pod).filter(exclusive) {
                *seen.entry(claim).or_default() += class.members.len();
            }
        }
        if seen.is_empty() {
            return;
        }
        let running = input.running.iter().flat_map(|running| claims(running.pod));
        self.taken = running.filter(|claim| seen.contains_key(claim)).collect();
        self.contested = seen.into_iter().filter(|(_, pods)| *pods > 1).map(|(claim, _)| claim).collect();
    }

    fn count_attachments(&mut self, input: &Input<'a>, classes: &[PodClass<'a>], storage: &Storage<'a>) {
        let mut users: BTreeMap<Attached<'a>, usize> = BTreeMap::new();
        for (class, _) in classes.iter().zip(&self.classes).filter(|(_, matters)| **matters) {
            for volume in volume_limits::in_use(storage, class.pod) {
                *users.entry(volume).or_default() += class.members.len();
            }
        }
        if users.is_empty() {
            return;
        }
        let mut held: Vec<BTreeSet<Attached<'a>>> = vec![BTreeSet::new(); input.nodes.len()];
        for running in input.running.iter().filter(|running| concerns(running.pod)) {
            for volume in volume_limits::in_use(storage, running.pod) {
                if let Some(count) = users.get_mut(&volume) {
                    *count += 1;
                }
                held[running.node as usize].insert(volume);
            }
        }
        let limits_of_node = |node: &Node| storage.csi_nodes.get(node.name()).map(|csi| limits(&csi.spec));
        let on_nodes: Vec<BTreeMap<&str, i64>> =
            input.nodes.iter().map(|node| limits_of_node(node).unwrap_or_default()).collect();
        let on_offers: Vec<BTreeMap<&str, i64>> =
            input.offers.iter().map(|offer| offer.csi.map(limits).unwrap_or_default()).collect();
        let limited: BTreeSet<&str> =
            on_nodes.iter().chain(&on_offers).flat_map(|limits| limits.keys().copied()).collect();
        let drivers: BTreeSet<&'a str> =
            users.keys().map(|volume| volume.driver).filter(|driver| limited.contains(driver)).collect();
        self.drivers = drivers.into_iter().collect();
        let shared: BTreeSet<&Attached<'a>> =
            users.iter().filter(|(_, pods)| **pods > 1).map(|(volume, _)| volume).collect();
        let of = |set: &mut dyn Iterator<Item = &Attached<'a>>, driver: &str| -> i64 {
            set.filter(|volume| volume.driver == driver).count() as i64
        };
        self.wanted = classes
            .iter()
            .zip(&self.classes)
            .map(|(class, matters)| {
                if !matters {
                    return Vec::new();
                }
                let own: BTreeSet<Attached<'a>> =
                    volume_limits::in_use(storage, class.pod).into_iter().collect();
                let alone = |driver: &&str| of(&mut own.iter().filter(|v| !shared.contains(v)), driver);
                let together =
                    |driver: &&str| of(&mut own.iter().filter(|v| shared.contains(v)), driver).min(1);
                self.drivers.iter().map(alone).chain(self.drivers.iter().map(together)).collect()
            })
            .collect();
        let most = on_nodes.iter().chain(&on_offers).flat_map(BTreeMap::values).copied().max().unwrap_or(0);
        let left = |limits: &BTreeMap<&str, i64>, driver: &str, used: i64| {
            limits.get(driver).map_or(most + PLENTY, |limit| limit - used)
        };
        self.nodes = input
            .nodes
            .iter()
            .zip(&on_nodes)
            .zip(held)
            .map(|((node, limits), mut held)| {
                held.extend(volume_limits::attachments(storage, node));
                let driver = |driver: &&str| {
                    let reserved = of(&mut shared.iter().copied().filter(|v| !held.contains(v)), driver);
                    left(limits, driver, of(&mut held.iter(), driver) + reserved)
                };
                gated(self.drivers.iter().map(driver).collect())
            })
            .collect();
        self.offers = on_offers
            .iter()
            .map(|limits| {
                let driver = |driver: &&str| left(limits, driver, of(&mut shared.iter().copied(), driver));
                gated(self.drivers.iter().map(driver).collect())
            })
            .collect();
    }

    /// Whether pending pods want one claim of which only one of them can have.
    pub(crate) fn shares_exclusive_claims(&self) -> bool {
        !self.contested.is_empty()
    }

    /// Claims of the pod that it keeps from all others, wherever they are.
    pub(crate) fn contested(&self, pod: &'a Pod) -> impl Iterator<Item = (&'a str, &'a str)> {
        claims(pod).filter(|claim| self.contested.contains(claim))
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = Box<str>> {
        let lane =
            |what: &'static str| self.drivers.iter().map(move |driver| format!("{what} of {driver}").into());
        lane("volumes").chain(lane("shared volumes"))
    }

    /// Writes what a pod of the class attaches into its last lanes.
    pub(crate) fn request(&self, class: usize, amounts: Vec<i64>) -> Vec<i64> {
        self.with_last(self.wanted.get(class).filter(|wanted| !wanted.is_empty()), amounts)
    }

    pub(crate) fn left_on_node(&self, node: usize, amounts: Vec<i64>) -> Vec<i64> {
        self.with_last(self.nodes.get(node), amounts)
    }

    pub(crate) fn left_on_offer(&self, offer: usize, amounts: Vec<i64>) -> Vec<i64> {
        self.with_last(self.offers.get(offer), amounts)
    }

    fn with_last(&self, values: Option<&Vec<i64>>, mut amounts: Vec<i64>) -> Vec<i64> {
        if let Some(values) = values {
            let first = amounts.len() - 2 * self.drivers.len();
            amounts[first..].copy_from_slice(values);
        }
        amounts
    }

    pub(crate) fn matters(&self, class: usize) -> bool {
        self.classes.get(class).copied().unwrap_or(false)
    }

    /// Label keys of nodes that binding and zones read, and whether they read the names of nodes.
    pub(crate) fn node_keys(&self) -> (BTreeSet<&'a str>, bool) {
        let mut keys: BTreeSet<&'a str> = BTreeSet::new();
        let Some(storage) = &self.storage else { return (keys, false) };
        keys.extend(ZONE_KEYS);
        for volume in storage.volumes.values() {
            keys.extend(affinity_keys(volume));
        }
        for class in storage.classes.values() {
            let terms = class.allowed_topologies.iter().flat_map(|term| &term.match_label_expressions);
            keys.extend(terms.map(|expression| &*expression.key));
        }
        for selector in storage.capacities.iter().filter_map(|capacity| capacity.node_topology.as_ref()) {
            keys.extend(selector.match_labels.iter().map(|(key, _)| key));
            keys.extend(selector.match_expressions.iter().map(|requirement| &*requirement.key));
        }
        let names = storage.claims.values().any(|claim| claim.metadata.annotations.contains(SELECTED_NODE));
        (keys, names)
    }

    /// A world of these nodes without pods, to ask about binding and zones.
    pub(crate) fn world(&self, nodes: &[&'a Node]) -> Option<World<'a>> {
        Some(World::new(nodes.iter().copied(), [], self.storage.clone()?))
    }

    /// Which of the nodes of a world the pod's volumes reach.
    pub(crate) fn reach(&self, world: &World<'a>, pod: &'a Pod) -> Vec<bool> {
        let nodes = world.nodes().len();
        let cycle = Cycle::new(world, pod);
        if cycle.whole().is_some() || claims(pod).any(|claim| self.taken.contains(&claim)) {
            return vec![false; nodes];
        }
        let reached = |node| {
            let refuses = |plugin| cycle.alone(plugin, node).is_some();
            !refuses(Plugin::VolumeBinding) && !refuses(Plugin::VolumeZone)
        };
        (0..nodes).map(reached).collect()
    }
}

/// What is left, and behind it whether there was room for what is reserved.
fn gated(mut left: Vec<i64>) -> Vec<i64> {
    let gates: Vec<i64> = left.iter().map(|&left| if left >= 0 { PLENTY } else { 0 }).collect();
    left.extend(gates);
    left
}

/// Claims that a pod names.
fn claims(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim { name, .. } => Some((&*pod.metadata.namespace, &**name)),
        _ => None,
    })
}

fn limits(csi: &CsiNodeSpec) -> BTreeMap<&str, i64> {
    let limit = |driver: &muster_model::k8s::CsiNodeDriver| driver.allocatable.as_ref()?.count;
    csi.drivers.iter().filter_map(|driver| Some((&*driver.name, i64::from(limit(driver)?)))).collect()
}

fn affinity_keys(volume: &PersistentVolume) -> impl Iterator<Item = &str> {
    let required = volume.spec.node_affinity.iter().filter_map(|affinity| affinity.required.as_ref());
    let terms = required.flat_map(|selector| &selector.node_selector_terms);
    terms.flat_map(|term| &term.match_expressions).map(|requirement| &*requirement.key)
}

/// The storage objects of a snapshot, for looking claims up.
pub(crate) fn storage(cluster: &crate::snapshot::Cluster) -> Storage<'_> {
    storage::Storage::default()
        .with_volumes(&cluster.volumes)
        .with_claims(&cluster.claims)
        .with_classes(&cluster.storage_classes)
        .with_csi_nodes(&cluster.csi_nodes)
        .with_csi_drivers(&cluster.csi_drivers)
        .with_capacities(&cluster.storage_capacities)
        .with_attachments(&cluster.volume_attachments)
}
