//! Groups that run together or not at all.

use std::collections::BTreeSet;

use muster_model::k8s::PodKey;

use super::{At, Fault, Findings};
use crate::snapshot::Snapshot;

/// Pods that run once the plan is carried out.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Those that ran before.
    pub(super) before: BTreeSet<PodKey>,
    /// Those that the plan places, in so far as it may.
    pub(super) placed: BTreeSet<PodKey>,
}

/// A plan that starts any pod of a group starts enough of them.
pub(super) fn check(snapshot: &Snapshot, running: &Running, findings: &mut Findings) {
    for group in &snapshot.groups {
        let count = |set: &BTreeSet<PodKey>| group.pods.iter().filter(|pod| set.contains(pod)).count();
        let (placed, before) = (count(&running.placed), count(&running.before));
        let total = u32::try_from(placed + before).unwrap_or(u32::MAX);
        if placed > 0 && total < group.min {
            let group_name = group.name.to_string();
            findings.add(At::Plan, Fault::GroupTorn { group: group_name, placed: total, min: group.min });
        }
    }
}
