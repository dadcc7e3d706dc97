//! Pods that must be there although nobody shows them.
//!
//! Controllers count their pods by watches of their own. A list of pods that holds clearly fewer than they count is not
//! the whole list: an API server that is in trouble, something in between, or an old copy. Jobs are left out: their pods
//! end by themselves, and their controllers are the slowest to say so.

use std::{collections::HashMap, fmt};

use super::{Objects, Pod};
use crate::{Duration, Timestamp};

/// One in so many pods may be missing: a controller says a moment later than its pod that it is gone.
const ONE_IN: u64 = 10;
/// A pod that should have been gone for so long is counted by no controller any more.
const LONG_GONE: Duration = Duration::from_mins(1);

/// Fewer pods are seen than their controllers report as ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unseen {
    pub missing: u64,
    pub reported: u64,
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, reported } = self;
        write!(f, "{missing} of {reported} pods that their controllers report as ready are not seen")
    }
}

impl Objects {
    /// What controllers report and is not here, if it is too much to be a matter of moments. `known` pods are missing
    /// for a reason that is known. Pods that no controller counts stand for none that it does.
    pub fn unseen_pods(&self, known: u64, now: Timestamp) -> Option<Unseen> {
        let counted = |ready: i32| u64::try_from(ready).unwrap_or(0);
        let sets = self.replica_sets.iter().map(|set| (&set.metadata, counted(set.status.ready_replicas)));
        let stateful =
            self.stateful_sets.iter().map(|set| (&set.metadata, counted(set.status.ready_replicas)));
        let daemons = self.daemon_sets.iter().map(|set| (&set.metadata, counted(set.status.number_ready)));
        let reports: Vec<_> = sets.chain(stateful).chain(daemons).filter(|(_, ready)| *ready > 0).collect();
        if reports.is_empty() {
            return None;
        }
        let mut seen: HashMap<&str, u64> = HashMap::new();
        for pod in self.pods.iter().filter(|pod| is_counted(pod, now)) {
            if let Some(owner) = pod.metadata.controller() {
                *seen.entry(&owner.uid).or_default() += 1;
            }
        }
        let (mut missing, mut reported) = (0, 0);
        for (owner, ready) in reports {
            reported += ready;
            missing += ready.saturating_sub(seen.get(&*owner.uid).copied().unwrap_or(0));
        }
        let missing = missing.saturating_sub(known);
        (missing.saturating_mul(ONE_IN) > reported).then_some(Unseen { missing, reported })
    }
}

/// Whether its controller may count it as ready.
fn is_counted(pod: &Pod, now: Timestamp) -> bool {
    let overdue = pod.metadata.deletion_timestamp.is_some_and(|at| now.since(at) >= LONG_GONE);
    !overdue && !pod.is_finished()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tenth_may_be_missing_and_no_more() {
        #[track_caller]
        fn check(ready: i32, pods: usize, known: u64, expected: Option<(u64, u64)>) {
            for (list, status) in [
                ("replicaSets", json!({"readyReplicas": ready})),
                ("statefulSets", json!({"readyReplicas": ready})),
                ("daemonSets", json!({"numberReady": ready})),
            ] {
                let owner = json!([{"kind": "X", "name": "x", "uid": "u-1", "controller": true}]);
                let pod = |number| json!({"metadata": {"name": format!("p{number}"), "ownerReferences": owner}, "spec": {}});
                let objects: Objects = serde_json::from_value(json!({
                    list: [{"metadata": {"name": "x", "uid": "u-1"}, "status": status},
                           {"metadata": {"name": "empty", "uid": "u-2"}}],
                    "pods": (0..pods).map(pod).collect::<Vec<_>>(),
                }))
                .unwrap();
                let found =
                    objects.unseen_pods(known, Timestamp::EPOCH).map(|one| (one.missing, one.reported));
                assert_eq!(found, expected, "{list}");
            }
        }
        check(0, 0, 0, None);
        check(10, 10, 0, None);
        check(10, 12, 0, None); // more than are ready
        check(10, 9, 0, None); // one has just gone
        check(10, 8, 0, Some((2, 10)));
        check(10, 8, 2, None); // two could not be read, which is said elsewhere
        check(10, 5, 0, Some((5, 10)));
        check(2, 0, 0, Some((2, 2)));
        check(1, 0, 0, Some((1, 1)));
    }

    #[test]
    fn a_pod_that_nobody_counts_stands_for_none_that_is_missing() {
        let owner = json!([{"kind": "ReplicaSet", "name": "few", "uid": "u-1", "controller": true}]);
        let unseen = |more: serde_json::Value, now: i64| {
            let mut last = json!({"metadata": {"name": "c", "ownerReferences": owner}, "spec": {}});
            last.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            last["metadata"]["ownerReferences"] = owner.clone();
            let pod = |name: &str| json!({"metadata": {"name": name, "ownerReferences": owner}, "spec": {}});
            let objects: Objects = serde_json::from_value(json!({
                "replicaSets": [{"metadata": {"name": "few", "uid": "u-1"}, "status": {"readyReplicas": 3}}],
                "pods": [pod("a"), pod("b"), last],
            }))
            .unwrap();
            objects.unseen_pods(0, Timestamp::from_millis(now * 1000)).map(|one| (one.missing, one.reported))
        };
        assert_eq!(unseen(json!({}), 0), None);
        assert_eq!(unseen(json!({"status": {"phase": "Failed"}}), 0), Some((1, 3)));
        let going = json!({"metadata": {"name": "c", "deletionTimestamp": "1970-01-01T00:01:00Z"}});
        assert_eq!(unseen(going.clone(), 119), None, "its controller may be a moment behind");
        assert_eq!(unseen(going, 120), Some((1, 3)), "on a node that died it goes on terminating");
    }

    #[test]
    fn what_was_not_reported_is_not_written() {
        let set: super::super::ReplicaSet =
            serde_json::from_value(json!({"metadata": {"name": "x"}, "status": {"replicas": 3}})).unwrap();
        assert!(serde_json::to_value(set).unwrap().get("status").is_none());
    }
}
