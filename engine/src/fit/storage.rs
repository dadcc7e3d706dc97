//! Volumes and claims, found by name.

use std::collections::BTreeMap;

use muster_model::k8s::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass,
    VolumeAttachment, VolumeSource,
};

use super::Rejection;

/// The older way to name a storage class, which still wins over the field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Set once a claim and its volume point to each other.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The storage objects of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Storage<'a> {
    pub volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    pub claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    pub classes: BTreeMap<&'a str, &'a StorageClass>,
    /// By the name of their node.
    pub csi_nodes: BTreeMap<&'a str, &'a CsiNode>,
    pub csi_drivers: BTreeMap<&'a str, &'a CsiDriver>,
    pub capacities: Vec<&'a CsiStorageCapacity>,
    /// By the name of their node.
    pub attachments: BTreeMap<&'a str, Vec<&'a VolumeAttachment>>,
}

impl<'a> Storage<'a> {
    pub fn with_volumes(mut self, volumes: impl IntoIterator<Item = &'a PersistentVolume>) -> Self {
        self.volumes.extend(volumes.into_iter().map(|volume| (&*volume.metadata.name, volume)));
        self
    }

    pub fn with_claims(mut self, claims: impl IntoIterator<Item = &'a PersistentVolumeClaim>) -> Self {
        let key = |claim: &'a PersistentVolumeClaim| (&*claim.metadata.namespace, &*claim.metadata.name);
        self.claims.extend(claims.into_iter().map(|claim| (key(claim), claim)));
        self
    }

    pub fn with_classes(mut self, classes: impl IntoIterator<Item = &'a StorageClass>) -> Self {
        self.classes.extend(classes.into_iter().map(|class| (&*class.metadata.name, class)));
        self
    }

    pub fn with_csi_nodes(mut self, nodes: impl IntoIterator<Item = &'a CsiNode>) -> Self {
        self.csi_nodes.extend(nodes.into_iter().map(|node| (&*node.metadata.name, node)));
        self
    }

    pub fn with_csi_drivers(mut self, drivers: impl IntoIterator<Item = &'a CsiDriver>) -> Self {
        self.csi_drivers.extend(drivers.into_iter().map(|driver| (&*driver.metadata.name, driver)));
        self
    }

    pub fn with_capacities(mut self, capacities: impl IntoIterator<Item = &'a CsiStorageCapacity>) -> Self {
        self.capacities.extend(capacities);
        self
    }

    pub fn with_attachments(mut self, attachments: impl IntoIterator<Item = &'a VolumeAttachment>) -> Self {
        for attachment in attachments {
            self.attachments.entry(&attachment.spec.node_name).or_default().push(attachment);
        }
        self
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Result<&'a PersistentVolumeClaim, Rejection> {
        let missing = || Rejection::unresolvable(format!("persistentvolumeclaim {name:?} not found"));
        self.claims.get(&(namespace, name)).copied().ok_or_else(missing)
    }
}

/// The storage class that a claim asks for; empty for none.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let annotated = claim.metadata.annotations.text(CLASS_ANNOTATION);
    annotated.or(claim.spec.storage_class_name.as_deref()).unwrap_or("")
}

/// The storage class that a volume belongs to; empty for none.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    volume.metadata.annotations.text(CLASS_ANNOTATION).unwrap_or(&volume.spec.storage_class_name)
}

pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty() && claim.metadata.annotations.contains(BIND_COMPLETED)
}

/// A claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim {
    pub name: Box<str>,
    /// It is made for the pod and has to belong to it.
    pub ephemeral: bool,
}

/// The claims a pod uses, in the order of its volumes.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = PodClaim> {
    pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim { name, .. } => Some(PodClaim { name: name.clone(), ephemeral: false }),
        VolumeSource::Ephemeral { .. } => {
            let name = format!("{}-{}", pod.metadata.name, volume.name).into();
            Some(PodClaim { name, ephemeral: true })
        }
        _ => None,
    })
}

/// Whether an ephemeral claim was made for this pod and not for another of the same name.
pub(super) fn check_owner(pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), Rejection> {
    let owner = claim.metadata.controller();
    if owner.is_some_and(|owner| owner.uid == pod.metadata.uid) {
        return Ok(());
    }
    Err(Rejection::unresolvable(format!(
        "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
        claim.metadata.namespace, claim.metadata.name, pod.metadata.namespace, pod.metadata.name
    )))
}
