//! `VolumeBinding`: bound volumes reach the node, and unbound claims find or get one there.

use std::collections::BTreeSet;

use muster_model::{
    Quantity,
    k8s::{
        ClaimPhase, CsiStorageCapacity, Labels, Node, PersistentVolume, PersistentVolumeClaim, Pod,
        StorageClass, VolumeBindingMode, VolumePhase,
    },
};

use super::{
    Rejection, node_affinity, selector,
    storage::{self, Storage},
};

/// The node for which a volume is already being made.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes people make by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The claims of a pod, by what has to happen to them.
#[derive(Debug, Default)]
pub(super) struct State<'a> {
    bound: Vec<&'a PersistentVolumeClaim>,
    /// Smallest request first.
    waiting: Vec<&'a PersistentVolumeClaim>,
}

impl<'a> State<'a> {
    pub(super) fn new(storage: &Storage<'a>, pod: &Pod) -> Result<Self, Rejection> {
        let mut state = Self::default();
        let claims = storage::claims_of(pod).map(|used| usable(storage, pod, &used));
        let mut immediate = false;
        for claim in claims.collect::<Result<Vec<_>, _>>()? {
            if storage::is_fully_bound(claim) {
                state.bound.push(claim);
            } else if waits(storage, claim)? && claim.spec.volume_name.is_empty() {
                state.waiting.push(claim);
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err(Rejection::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
        }
        state.waiting.sort_by_key(|claim| request(claim));
        Ok(state)
    }

    pub(super) fn check(&self, storage: &Storage<'a>, node: &Node) -> Result<(), Rejection> {
        let mut reasons = Vec::new();
        reasons.extend(self.check_bound(storage, node));
        reasons.extend(self.check_waiting(storage, node)?);
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Rejection::unresolvable_for(reasons.into_iter().map(str::to_owned).collect()))
    }

    fn check_bound(&self, storage: &Storage<'a>, node: &Node) -> Option<&'static str> {
        for claim in &self.bound {
            match storage.volumes.get(&*claim.spec.volume_name) {
                None => {
                    return Some("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
                }
                Some(volume) if !reaches(volume, &node.metadata.labels) => {
                    return Some("node(s) didn't match PersistentVolume's node affinity");
                }
                Some(_) => {}
            }
        }
        None
    }

    fn check_waiting(&self, storage: &Storage<'a>, node: &Node) -> Result<Option<&'static str>, Rejection> {
        const NOT_FOUND: &str = "node(s) didn't find available persistent volumes to bind";
        let selected =
            |claim: &PersistentVolumeClaim| claim.metadata.annotations.text(SELECTED_NODE).map(str::to_owned);
        let elsewhere =
            |claim: &&PersistentVolumeClaim| selected(claim).is_some_and(|name| name != node.name());
        if self.waiting.iter().any(elsewhere) {
            return Ok(Some(NOT_FOUND));
        }
        let (mut provision, open): (Vec<_>, Vec<_>) =
            self.waiting.iter().partition(|claim| selected(claim).is_some());
        let mut taken = BTreeSet::new();
        for claim in open {
            match find_volume(storage, claim, &node.metadata.labels, &taken) {
                Some(volume) => {
                    taken.insert(&*volume.metadata.name);
                }
                None => provision.push(claim),
            }
        }
        for claim in provision {
            match provisioning(storage, claim, &node.metadata.labels)? {
                Provisioning::Possible => {}
                Provisioning::Impossible => return Ok(Some(NOT_FOUND)),
                Provisioning::NoRoom => return Ok(Some("node(s) did not have enough free storage")),
            }
        }
        Ok(None)
    }
}

/// The claim, if the pod may use it.
fn usable<'a>(
    storage: &Storage<'a>,
    pod: &Pod,
    used: &storage::PodClaim,
) -> Result<&'a PersistentVolumeClaim, Rejection> {
    let name = &used.name;
    let claim = storage.claim(&pod.metadata.namespace, name).map_err(|missing| {
        if used.ephemeral {
            let why = format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
            );
            return Rejection::unresolvable(why);
        }
        missing
    })?;
    if claim.status.phase == ClaimPhase::Lost {
        let volume = &claim.spec.volume_name;
        let why = format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}");
        return Err(Rejection::unresolvable(why));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(Rejection::unresolvable(format!("persistentvolumeclaim {name:?} is being deleted")));
    }
    if used.ephemeral {
        storage::check_owner(pod, claim)?;
    }
    Ok(claim)
}

/// Whether the claim's class binds it when a pod is placed.
fn waits(storage: &Storage<'_>, claim: &PersistentVolumeClaim) -> Result<bool, Rejection> {
    let name = storage::class_of_claim(claim);
    let Some(class) = storage.classes.get(name) else { return Ok(false) };
    match class.volume_binding_mode {
        Some(mode) => Ok(mode == VolumeBindingMode::WaitForFirstConsumer),
        None => Err(Rejection::error(format!("VolumeBindingMode not set for StorageClass {name:?}"))),
    }
}

/// Whether a node with these labels can attach the volume.
fn reaches(volume: &PersistentVolume, labels: &Labels) -> bool {
    let required = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| node_affinity::any_term_matches(required, labels, ""))
}

fn request(claim: &PersistentVolumeClaim) -> Quantity {
    claim.spec.resources.requests.get("storage").copied().unwrap_or_default()
}

/// The volume that the claim would be bound to on a node: the one made for it, else the smallest that
/// serves. Among equals the first by name.
fn find_volume<'a>(
    storage: &Storage<'a>,
    claim: &PersistentVolumeClaim,
    labels: &Labels,
    taken: &BTreeSet<&str>,
) -> Option<&'a PersistentVolume> {
    let class = storage::class_of_claim(claim);
    let mut smallest: Option<(Quantity, &PersistentVolume)> = None;
    for (name, volume) in &storage.volumes {
        let size = volume.spec.capacity.get("storage").copied().unwrap_or_default();
        let usable = storage::class_of_volume(volume) == class
            && !taken.contains(name)
            && size >= request(claim)
            && mode(volume.spec.volume_mode.as_deref()) == mode(claim.spec.volume_mode.as_deref())
            && volume.spec.volume_attributes_class_name == claim.spec.volume_attributes_class_name
            && volume.metadata.deletion_timestamp.is_none();
        let reserved = volume.spec.claim_ref.as_ref().map(|_| is_for(volume, claim));
        match (usable, reserved) {
            (false, _) | (true, Some(false)) => {}
            (true, Some(true)) => return reaches(volume, labels).then_some(*volume),
            (true, None) => {
                let smaller = smallest.is_none_or(|(best, _)| size < best);
                if smaller && is_free_for(volume, claim) && reaches(volume, labels) {
                    smallest = Some((size, volume));
                }
            }
        }
    }
    smallest.map(|(_, volume)| volume)
}

fn mode(mode: Option<&str>) -> &str {
    mode.unwrap_or("Filesystem")
}

fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|reference| {
        *reference.name == *claim.metadata.name
            && *reference.namespace == *claim.metadata.namespace
            && (reference.uid.is_empty() || reference.uid == claim.metadata.uid)
    })
}

fn is_free_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let selected = claim.spec.selector.is_none()
        || selector::selects(claim.spec.selector.as_ref(), &volume.metadata.labels);
    let modes = &volume.spec.access_modes;
    volume.status.phase == VolumePhase::Available
        && selected
        && claim.spec.access_modes.iter().all(|mode| modes.contains(mode))
}

enum Provisioning {
    Possible,
    Impossible,
    NoRoom,
}

/// Whether a volume for the claim could be made for a node with these labels.
fn provisioning(
    storage: &Storage<'_>,
    claim: &PersistentVolumeClaim,
    labels: &Labels,
) -> Result<Provisioning, Rejection> {
    let name = storage::class_of_claim(claim);
    let Some(class) = storage.classes.get(name) else {
        return Err(Rejection::error(format!("failed to find storage class {name:?}")));
    };
    if class.provisioner.is_empty() || &*class.provisioner == NO_PROVISIONER || !allowed(class, labels) {
        return Ok(Provisioning::Impossible);
    }
    if has_room(storage, class, claim, labels) {
        return Ok(Provisioning::Possible);
    }
    Ok(Provisioning::NoRoom)
}

/// No terms allow every node; an empty term allows none.
fn allowed(class: &StorageClass, labels: &Labels) -> bool {
    let terms = &class.allowed_topologies;
    terms.is_empty()
        || terms.iter().any(|term| {
            let mut expressions = term.match_label_expressions.iter();
            !term.match_label_expressions.is_empty()
                && expressions.all(|expression| {
                    let value = labels.text(&expression.key);
                    value.is_some_and(|value| expression.values.iter().any(|listed| **listed == *value))
                })
        })
}

/// Only drivers that publish their capacity are asked for it.
fn has_room(
    storage: &Storage<'_>,
    class: &StorageClass,
    claim: &PersistentVolumeClaim,
    labels: &Labels,
) -> bool {
    let publishes =
        storage.csi_drivers.get(&*class.provisioner).is_some_and(|driver| driver.spec.storage_capacity);
    let Some(wanted) = claim.spec.resources.requests.get("storage").filter(|_| publishes) else {
        return true;
    };
    let enough = |capacity: &&CsiStorageCapacity| {
        let limit = capacity.maximum_volume_size.or(capacity.capacity);
        *capacity.storage_class_name == *class.metadata.name
            && limit.is_some_and(|limit| limit.value() >= wanted.value())
            && selector::selects(capacity.node_topology.as_ref(), labels)
    };
    storage.capacities.iter().any(enough)
}
