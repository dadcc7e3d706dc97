//! `NodeVolumeLimits`: how many volumes of a driver a node can attach.
//!
//! Disks of the old in-tree plugins are not counted.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::k8s::{Node, PersistentVolumeClaim, Pod};

use super::{
    Rejection,
    storage::{self, Storage},
};

/// A volume that is attached for a driver; volumes used by several pods count once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attached<'a> {
    pub driver: &'a str,
    handle: String,
}

pub(super) fn check(storage: &Storage<'_>, pod: &Pod, node: &Node, bound: &[&Pod]) -> Result<(), Rejection> {
    if storage::claims_of(pod).next().is_none() {
        return Ok(());
    }
    let mut new = wanted(storage, pod)?;
    let Some(csi) = storage.csi_nodes.get(node.name()) else { return Ok(()) };
    let limits: BTreeMap<&str, i64> = csi
        .spec
        .drivers
        .iter()
        .filter_map(|driver| Some((&*driver.name, i64::from(driver.allocatable.as_ref()?.count?))))
        .collect();
    if new.is_empty() || limits.is_empty() {
        return Ok(());
    }
    let mut held: BTreeSet<Attached<'_>> = bound.iter().flat_map(|pod| in_use(storage, pod)).collect();
    new.retain(|volume| !held.contains(volume));
    // What is attached without a pod takes room too, even from a pod that wants this very volume.
    held.extend(attachments(storage, node));
    let exceeded = limits.iter().any(|(driver, limit)| {
        let of_driver =
            |set: &BTreeSet<Attached<'_>>| set.iter().filter(|volume| volume.driver == *driver).count();
        let (added, present) = (of_driver(&new), of_driver(&held));
        added > 0 && i64::try_from(added + present).is_ok_and(|total| total > *limit)
    });
    if exceeded {
        return Err(Rejection::resolvable("node(s) exceed max volume count"));
    }
    Ok(())
}

fn wanted<'a>(storage: &Storage<'a>, pod: &Pod) -> Result<BTreeSet<Attached<'a>>, Rejection> {
    let namespace = &pod.metadata.namespace;
    let mut volumes = BTreeSet::new();
    for used in storage::claims_of(pod) {
        if used.name.is_empty() {
            return Err(Rejection::error("PersistentVolumeClaim had no name"));
        }
        let claim = storage.claim(namespace, &used.name).map_err(|missing| {
            let reasons = missing.reasons.iter();
            let reasons = reasons.map(|reason| format!("looking up PVC {namespace}/{}: {reason}", used.name));
            Rejection::unresolvable_for(reasons.collect())
        })?;
        if used.ephemeral {
            storage::check_owner(pod, claim)?;
        }
        volumes.extend(attached(storage, claim));
    }
    Ok(volumes)
}

/// Volumes of a pod that count on its node.
pub fn in_use<'a>(storage: &Storage<'a>, pod: &Pod) -> Vec<Attached<'a>> {
    let claims = storage::claims_of(pod);
    claims
        .filter_map(|used| attached(storage, storage.claim(&pod.metadata.namespace, &used.name).ok()?))
        .collect()
}

/// Volumes that are attached to the node, whether or not a pod there uses them.
pub fn attachments<'a>(storage: &Storage<'a>, node: &Node) -> impl Iterator<Item = Attached<'a>> {
    let attached = storage.attachments.get(node.name()).map(Vec::as_slice).unwrap_or_default();
    let named = attached.iter().filter(|attachment| !attachment.spec.attacher.is_empty());
    named.filter_map(|attachment| {
        let volume = attachment.spec.source.persistent_volume_name.as_deref()?;
        let csi = storage.volumes.get(volume)?.spec.csi.as_ref()?;
        Some(Attached { driver: &attachment.spec.attacher, handle: format!("={}", csi.volume_handle) })
    })
}

/// The driver and volume behind a claim; for one that is not bound yet, a volume of its class to come.
fn attached<'a>(storage: &Storage<'a>, claim: &'a PersistentVolumeClaim) -> Option<Attached<'a>> {
    let volume = storage.volumes.get(&*claim.spec.volume_name).filter(|_| !claim.spec.volume_name.is_empty());
    if let Some(volume) = volume {
        let csi = volume.spec.csi.as_ref()?;
        let known = !csi.driver.is_empty() && !csi.volume_handle.is_empty();
        return known.then(|| Attached { driver: &csi.driver, handle: format!("={}", csi.volume_handle) });
    }
    let class = storage.classes.get(storage::class_of_claim(claim))?;
    let handle = format!("+{}/{}", claim.metadata.namespace, claim.metadata.name);
    (!class.provisioner.is_empty()).then_some(Attached { driver: &class.provisioner, handle })
}
