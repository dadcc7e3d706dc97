//! `VolumeRestrictions`: volumes that only one pod may use.

use muster_model::k8s::{Pod, VolumeSource};

use super::{Rejection, World};

const ONE_POD_ONLY: &str = "ReadWriteOncePod";

/// What the pod's volumes forbid.
#[derive(Debug)]
pub(super) struct State {
    claim_taken: bool,
}

impl State {
    /// A claim that does not exist rejects the pod as a whole.
    pub(super) fn new(world: &World<'_>, pod: &Pod) -> Result<Self, Rejection> {
        let namespace = &*pod.metadata.namespace;
        let mut claim_taken = false;
        for volume in &pod.spec.volumes {
            let VolumeSource::Claim { name, .. } = &volume.source else { continue };
            let claim = world.storage().claim(namespace, name)?;
            let exclusive = claim.spec.access_modes.iter().any(|mode| &**mode == ONE_POD_ONLY);
            claim_taken |= exclusive && world.is_claim_in_use(namespace, name);
        }
        Ok(Self { claim_taken })
    }

    pub(super) fn check(&self, pod: &Pod, bound: &[&Pod]) -> Result<(), Rejection> {
        let conflict = pod.spec.volumes.iter().any(|wanted| {
            let held = bound.iter().flat_map(|pod| &pod.spec.volumes);
            held.into_iter().any(|held| conflicts(&wanted.source, &held.source))
        });
        if conflict {
            return Err(Rejection::resolvable("node(s) had no available disk"));
        }
        if self.claim_taken {
            return Err(Rejection::resolvable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
                 already in-use by another pod",
            ));
        }
        Ok(())
    }
}

/// Whether two volumes are one disk that both may not use on one node.
pub fn conflicts(wanted: &VolumeSource, held: &VolumeSource) -> bool {
    use VolumeSource::{AwsDisk, GceDisk, Iscsi, Rbd};
    match (wanted, held) {
        (GceDisk { name, read_only }, GceDisk { name: other, read_only: other_read_only }) => {
            name == other && !(*read_only && *other_read_only)
        }
        (AwsDisk { id }, AwsDisk { id: other }) => id == other,
        (Iscsi { iqn, read_only }, Iscsi { iqn: other, read_only: other_read_only }) => {
            iqn == other && !(*read_only && *other_read_only)
        }
        (
            Rbd { monitors, pool, image, read_only },
            Rbd { monitors: others, pool: other_pool, image: other_image, read_only: other_read_only },
        ) => {
            monitors.iter().any(|monitor| others.contains(monitor))
                && (pool, image) == (other_pool, other_image)
                && !(*read_only && *other_read_only)
        }
        _ => false,
    }
}
