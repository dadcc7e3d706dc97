//! Volumes of pods that would move, judged by the scheduler's own volume filters.
//!
//! Only pods with disks or claims are here; everything else about them is judged by counts.

use muster_model::k8s::{Node, Pod, VolumeSource};

use crate::{
    fit::{Cycle, Plugin, Storage, World},
    snapshot::Snapshot,
};

const FILTERS: [Plugin; 4] =
    [Plugin::VolumeRestrictions, Plugin::NodeVolumeLimits, Plugin::VolumeBinding, Plugin::VolumeZone];

/// Whether a volume filter reads anything of the pod.
pub(crate) fn concerns(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|volume| {
        !matches!(volume.source, VolumeSource::Other | VolumeSource::EmptyDir { .. } | VolumeSource::HostPath)
    })
}

/// Where volumes are in use.
#[derive(Debug, Clone)]
pub(crate) struct Disks<'a> {
    world: World<'a>,
}

impl<'a> Disks<'a> {
    /// `nodes` in the order by which they are asked for; `bound` are pods with the index of their node.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        nodes: impl IntoIterator<Item = &'a Node>,
        bound: impl Iterator<Item = (&'a Pod, u32)>,
    ) -> Self {
        let cluster = &snapshot.cluster;
        let storage = Storage::default()
            .with_volumes(&cluster.volumes)
            .with_claims(&cluster.claims)
            .with_classes(&cluster.storage_classes)
            .with_csi_nodes(&cluster.csi_nodes)
            .with_csi_drivers(&cluster.csi_drivers)
            .with_capacities(&cluster.storage_capacities)
            .with_attachments(&cluster.volume_attachments);
        let mut world = World::new(nodes, &cluster.namespaces, storage);
        for (pod, node) in bound {
            world.bind(pod, node as usize);
        }
        Self { world }
    }

    pub(crate) fn ask(&self, pod: &'a Pod) -> Cycle<'_, 'a> {
        Cycle::new(&self.world, pod)
    }

    /// Whether every volume filter accepts the node.
    pub(crate) fn accepts(cycle: &Cycle<'_, 'a>, node: u32) -> bool {
        FILTERS.into_iter().all(|filter| cycle.alone(filter, node as usize).is_none())
    }

    pub(crate) fn bind(&mut self, pod: &'a Pod, node: u32) {
        self.world.bind(pod, node as usize);
    }

    pub(crate) fn unbind(&mut self, pod: &'a Pod, node: u32) {
        self.world.unbind(&pod.metadata.namespace, &pod.metadata.name, node as usize);
    }
}
