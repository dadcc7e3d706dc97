//! `VolumeZone`: volumes that carry the zone or region they live in as labels.

use std::collections::BTreeSet;

use muster_model::k8s::{Labels, Node, PersistentVolume, Pod, VolumeBindingMode, VolumeSource};

use super::{
    Rejection,
    storage::{self, Storage},
};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const OLD_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const KEYS: [&str; 4] = [OLD_ZONE, OLD_REGION, ZONE, REGION];
/// Stands between the zones of a volume that lives in several.
const SEPARATOR: &str = "__";

/// A label of a volume: the node needs one of these values.
#[derive(Debug)]
struct Place<'a> {
    key: &'a str,
    values: BTreeSet<&'a str>,
}

#[derive(Debug)]
pub(super) struct State<'a>(Vec<Place<'a>>);

impl<'a> State<'a> {
    pub(super) fn new(storage: &Storage<'a>, pod: &Pod) -> Result<Self, Rejection> {
        let mut places = Vec::new();
        for volume in &pod.spec.volumes {
            let VolumeSource::Claim { name, .. } = &volume.source else { continue };
            if name.is_empty() {
                return Err(Rejection::unresolvable("PersistentVolumeClaim had no name"));
            }
            let claim = storage.claim(&pod.metadata.namespace, name)?;
            let volume = &claim.spec.volume_name;
            if volume.is_empty() {
                check_waits(storage, storage::class_of_claim(claim))?;
                continue;
            }
            let missing = || Rejection::unresolvable(format!("persistentvolume {volume:?} not found"));
            places.extend(places_of(storage.volumes.get(&**volume).ok_or_else(missing)?));
        }
        Ok(Self(places))
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Rejection> {
        let labels = &node.metadata.labels;
        let placed = KEYS.iter().any(|key| labels.contains(key));
        if !placed || self.0.iter().all(|place| place.contains(labels)) {
            return Ok(());
        }
        Err(Rejection::unresolvable("node(s) had no available volume zone"))
    }
}

impl Place<'_> {
    fn contains(&self, labels: &Labels) -> bool {
        let newer = match self.key {
            OLD_ZONE => ZONE,
            OLD_REGION => REGION,
            key => key,
        };
        let value = labels.text(self.key).or_else(|| labels.text(newer));
        value.is_some_and(|value| self.values.contains(value))
    }
}

/// A claim without a volume is only fine if its class waits for the pod.
fn check_waits(storage: &Storage<'_>, class: &str) -> Result<(), Rejection> {
    if class.is_empty() {
        return Err(Rejection::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
    }
    let Some(found) = storage.classes.get(class) else {
        return Err(Rejection::unresolvable(format!("storageclass.storage.k8s.io {class:?} not found")));
    };
    match found.volume_binding_mode {
        Some(VolumeBindingMode::WaitForFirstConsumer) => Ok(()),
        Some(VolumeBindingMode::Immediate) => Err(Rejection::unresolvable("PersistentVolume had no name")),
        None => Err(Rejection::unresolvable(format!("VolumeBindingMode not set for StorageClass {class:?}"))),
    }
}

fn places_of(volume: &PersistentVolume) -> Vec<Place<'_>> {
    let labels = KEYS.iter().filter_map(|key| Some((*key, volume.metadata.labels.text(key)?)));
    let places =
        labels.map(|(key, value)| Place { key, values: value.split(SEPARATOR).map(str::trim).collect() });
    // A label with an empty zone in it cannot be read, and is passed over.
    places.filter(|place| !place.values.contains("")).collect()
}
