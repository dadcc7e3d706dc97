//! Drainability of single pods: one small rule per reason.
//!
//! The rules are those of Cluster Autoscaler, with its annotations, and Karpenter's `do-not-disrupt`.

use muster_model::{
    Duration, Timestamp,
    k8s::{Pod, VolumeSource},
};

use super::report::PodBlock;
use crate::{
    plan::hash::FixedMap,
    snapshot::{Cluster, DrainPolicy, Snapshot},
};

pub(crate) const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const SAFE_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
pub(crate) const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const DAEMON_POD: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";
const SKIP_RESCHEDULE: &str = "cluster-autoscaler.kubernetes.io/skip-reschedule";
const MIRROR: &str = "kubernetes.io/config.mirror";
const SYSTEM_NAMESPACE: &str = "kube-system";
/// Grace that Kubernetes gives a pod that does not say.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// How long past its grace a pod may linger before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// What happens to a pod when its node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Finished: it holds nothing.
    Terminal,
    /// Its daemon set makes one on every node.
    Daemon,
    /// It comes from a file on the node.
    Mirror,
    /// It is on its way out.
    Terminating,
    /// It should be gone by now; nobody waits for it.
    LongTerminating,
    /// It says that it need not find another node.
    Expendable,
    /// It has to find another node.
    Moves,
}

/// Reads the fate of a bound pod.
pub fn fate(pod: &Pod, now: Timestamp) -> Fate {
    if pod.is_finished() {
        return Fate::Terminal;
    }
    if pod.metadata.annotations.contains(MIRROR) {
        return Fate::Mirror;
    }
    if let Some(deleted) = pod.metadata.deletion_timestamp {
        return if is_stuck(pod, deleted, now) { Fate::LongTerminating } else { Fate::Terminating };
    }
    let says = |annotation: &str| pod.metadata.annotations.text(annotation) == Some("true");
    let owned = pod.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet");
    // A refusal on the same pod wins: it is the safer of two words.
    let refuses = || not_safe_to_evict(pod).or_else(|| do_not_disrupt(pod)).is_some();
    match () {
        () if owned || says(DAEMON_POD) => Fate::Daemon,
        () if says(SKIP_RESCHEDULE) && !refuses() => Fate::Expendable,
        () => Fate::Moves,
    }
}

fn is_stuck(pod: &Pod, deleted: Timestamp, now: Timestamp) -> bool {
    let seconds = pod.metadata.deletion_grace_period_seconds.or(pod.spec.termination_grace_period_seconds);
    let grace = seconds.map_or(DEFAULT_GRACE, |s| Duration::from_secs(u64::try_from(s).unwrap_or(0)));
    now.since(deleted) > grace.saturating_add(STUCK_AFTER)
}

/// `safe-to-evict: "true"` overrules every rule but an explicit refusal, the replica count and budgets.
fn is_declared_safe(pod: &Pod) -> bool {
    pod.metadata.annotations.text(SAFE_TO_EVICT) == Some("true")
}

fn not_safe_to_evict(pod: &Pod) -> Option<PodBlock> {
    (pod.metadata.annotations.text(SAFE_TO_EVICT) == Some("false")).then_some(PodBlock::NotSafeToEvict)
}

fn on_completion(pod: &Pod) -> Option<PodBlock> {
    (pod.metadata.annotations.text(SAFE_TO_EVICT) == Some("on-completion"))
        .then_some(PodBlock::WaitsForCompletion)
}

fn do_not_disrupt(pod: &Pod) -> Option<PodBlock> {
    (pod.metadata.annotations.text(DO_NOT_DISRUPT) == Some("true")).then_some(PodBlock::DoNotDisrupt)
}

fn unreplicated(pod: &Pod, policy: DrainPolicy) -> Option<PodBlock> {
    (policy.keep_unreplicated && pod.metadata.controller().is_none()).then_some(PodBlock::Unreplicated)
}

fn local_storage(pod: &Pod, policy: DrainPolicy) -> Option<PodBlock> {
    if !policy.keep_local_storage {
        return None;
    }
    let local = |source: &VolumeSource| {
        matches!(source, VolumeSource::HostPath | VolumeSource::EmptyDir { in_memory: false })
    };
    let mut volumes = pod.spec.volumes.iter().filter(|volume| local(&volume.source)).peekable();
    volumes.peek()?;
    let safe = pod.metadata.annotations.text(SAFE_VOLUMES).unwrap_or("");
    let is_safe = |name: &str| safe.split(',').any(|listed| listed.trim() == name);
    let kept = volumes.find(|volume| !is_safe(&volume.name))?;
    Some(PodBlock::LocalStorage { volume: kept.name.clone() })
}

fn system(pod: &Pod, policy: DrainPolicy, has_budget: bool) -> Option<PodBlock> {
    let system = policy.keep_system && !has_budget && &*pod.metadata.namespace == SYSTEM_NAMESPACE;
    system.then_some(PodBlock::System)
}

/// Replicas by kind of controller, namespace and name; a kind of which nothing was listed is not known.
#[derive(Debug, Default)]
pub struct Controllers<'a> {
    min: u32,
    kinds: [Option<FixedMap<(&'a str, &'a str), i32>>; 3],
}

const REPLICA_SET: usize = 0;
const STATEFUL_SET: usize = 1;
const JOB: usize = 2;

impl<'a> Controllers<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let Cluster { replica_sets, stateful_sets, jobs, .. } = &snapshot.cluster;
        let known = |entries: FixedMap<(&'a str, &'a str), i32>| (!entries.is_empty()).then_some(entries);
        let replicas = replica_sets
            .iter()
            .map(|set| ((&*set.metadata.namespace, &*set.metadata.name), set.spec.replicas.unwrap_or(1)));
        let stateful = stateful_sets
            .iter()
            .map(|set| ((&*set.metadata.namespace, &*set.metadata.name), set.spec.replicas.unwrap_or(1)));
        let jobs = jobs
            .iter()
            .map(|job| ((&*job.metadata.namespace, &*job.metadata.name), job.spec.parallelism.unwrap_or(1)));
        Self {
            min: snapshot.drain.min_replicas,
            kinds: [known(replicas.collect()), known(stateful.collect()), known(jobs.collect())],
        }
    }

    fn replica_count(&self, pod: &Pod) -> Option<PodBlock> {
        let owner = pod.metadata.controller()?;
        let kind = match &*owner.kind {
            "ReplicaSet" | "ReplicationController" => REPLICA_SET,
            "StatefulSet" => STATEFUL_SET,
            "Job" => JOB,
            _ => return None,
        };
        let known = self.kinds[kind].as_ref()?;
        let (kind, name) = (owner.kind.clone(), owner.name.clone());
        match known.get(&(&*pod.metadata.namespace, &*owner.name)) {
            // They are seldom listed with the others, so that absence says nothing.
            None if &*owner.kind == "ReplicationController" => None,
            None => Some(PodBlock::ControllerMissing { kind, name }),
            Some(&replicas) if u32::try_from(replicas).unwrap_or(0) < self.min => {
                Some(PodBlock::FewReplicas { kind, name, replicas, min: self.min })
            }
            Some(_) => None,
        }
    }
}

/// Every rule that keeps a pod that would have to move where it is.
pub fn blocks(
    pod: &Pod,
    policy: DrainPolicy,
    controllers: &Controllers<'_>,
    has_budget: bool,
) -> Vec<PodBlock> {
    let mut found = Vec::new();
    found.extend(do_not_disrupt(pod));
    found.extend(controllers.replica_count(pod));
    if is_declared_safe(pod) {
        return found;
    }
    found.extend(not_safe_to_evict(pod));
    found.extend(on_completion(pod));
    found.extend(unreplicated(pod, policy));
    found.extend(local_storage(pod, policy));
    found.extend(system(pod, policy, has_budget));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn owned(extra: &Value) -> Pod {
        let mut base = json!({"metadata": {"name": "p", "namespace": "d",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "controller": true}]}, "spec": {}});
        for (part, value) in extra.as_object().unwrap() {
            for (key, value) in value.as_object().unwrap() {
                base[part][key] = value.clone();
            }
        }
        pod(base)
    }

    #[test]
    fn pods_that_nobody_waits_for_go_with_their_node() {
        #[track_caller]
        fn check(extra: &Value, expected: Fate) {
            assert_eq!(fate(&owned(extra), "2026-01-01T00:10:00Z".parse().unwrap()), expected);
        }
        check(&json!({}), Fate::Moves);
        check(&json!({"status": {"phase": "Succeeded"}}), Fate::Terminal);
        check(&json!({"status": {"phase": "Failed"}}), Fate::Terminal);
        check(&json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), Fate::Mirror);
        let daemon = json!([{"kind": "DaemonSet", "name": "ds", "controller": true}]);
        check(&json!({"metadata": {"ownerReferences": daemon}}), Fate::Daemon);
        let gone = |at: &str, grace: i64| json!({"metadata": {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace}});
        check(&gone("2026-01-01T00:09:30Z", 30), Fate::Terminating);
        check(&gone("2026-01-01T00:09:00Z", 30), Fate::Terminating); // exactly at the limit
        check(&gone("2026-01-01T00:08:59Z", 30), Fate::LongTerminating);
        check(&gone("2026-01-01T00:00:00Z", 3600), Fate::Terminating);
    }

    #[test]
    fn every_rule_says_why() {
        #[track_caller]
        fn check(extra: &Value, policy: DrainPolicy, codes: &[&str]) {
            let found = blocks(&owned(extra), policy, &Controllers::default(), false);
            assert_eq!(found.iter().map(PodBlock::code).collect::<Vec<_>>(), codes, "{extra}");
        }
        let strict = DrainPolicy::default();
        let lax = DrainPolicy {
            keep_unreplicated: false,
            keep_local_storage: false,
            keep_system: false,
            min_replicas: 0,
        };
        let note = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
        check(&json!({}), strict, &[]);
        check(&note(SAFE_TO_EVICT, "false"), lax, &["notSafeToEvict"]);
        check(&note(SAFE_TO_EVICT, "on-completion"), lax, &["waitsForCompletion"]);
        check(&note(SAFE_TO_EVICT, "maybe"), strict, &[]);
        check(&note(DO_NOT_DISRUPT, "true"), lax, &["doNotDisrupt"]);
        check(&note(DO_NOT_DISRUPT, "false"), strict, &[]);
        let bare = json!({"metadata": {"ownerReferences": []}});
        check(&bare, strict, &["unreplicated"]);
        check(&bare, lax, &[]);
        check(
            &json!({"metadata": {"ownerReferences": [], "annotations": {SAFE_TO_EVICT: "true"}}}),
            strict,
            &[],
        );
        let scratch = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/x"}}]);
        check(&json!({"spec": {"volumes": scratch}}), strict, &["localStorage"]);
        check(&json!({"spec": {"volumes": scratch}}), lax, &[]);
        let some = json!({"spec": {"volumes": scratch}, "metadata": {"annotations": {SAFE_VOLUMES: "a"}}});
        check(&some, strict, &["localStorage"]);
        let all = json!({"spec": {"volumes": scratch}, "metadata": {"annotations": {SAFE_VOLUMES: "a, b"}}});
        check(&all, strict, &[]);
        check(&json!({"spec": {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}}), strict, &[]);
        check(&json!({"metadata": {"namespace": "kube-system"}}), strict, &["systemPod"]);
        check(&json!({"metadata": {"namespace": "kube-system"}}), lax, &[]);
        let two = json!({"metadata": {"ownerReferences": [], "annotations": {SAFE_TO_EVICT: "false"}}});
        check(&two, strict, &["notSafeToEvict", "unreplicated"]);
    }

    #[test]
    fn a_system_pod_with_a_budget_may_move() {
        let pod = owned(&json!({"metadata": {"namespace": "kube-system"}}));
        assert!(blocks(&pod, DrainPolicy::default(), &Controllers::default(), true).is_empty());
    }

    #[test]
    fn controllers_with_few_replicas_or_none_at_all_keep_their_pods() {
        #[track_caller]
        fn check(kind: &str, cluster: Value, min: u32, code: Option<&str>) {
            let mut snapshot =
                Snapshot { cluster: serde_json::from_value(cluster).unwrap(), ..Snapshot::default() };
            snapshot.drain.min_replicas = min;
            let pod = owned(
                &json!({"metadata": {"ownerReferences": [{"kind": kind, "name": "o", "controller": true}]}}),
            );
            let found = blocks(&pod, snapshot.drain, &Controllers::new(&snapshot), false);
            assert_eq!(found.first().map(PodBlock::code), code, "{kind}");
        }
        let set = |name: &str, replicas: Value| json!([{"metadata": {"name": name, "namespace": "d"}, "spec": {"replicas": replicas}}]);
        for kind in ["ReplicaSet", "ReplicationController"] {
            check(kind, json!({"replicaSets": set("o", json!(2))}), 3, Some("fewReplicas"));
            check(kind, json!({"replicaSets": set("o", json!(3))}), 3, None);
            check(kind, json!({"replicaSets": set("o", Value::Null)}), 2, Some("fewReplicas")); // absent is one
            check(kind, json!({}), 3, None); // nothing was listed: not known, not missing
        }
        let other = json!({"replicaSets": set("other", json!(3))});
        check("ReplicaSet", other.clone(), 0, Some("controllerMissing"));
        check("ReplicationController", other, 0, None); // seldom listed
        check("StatefulSet", json!({"statefulSets": set("o", json!(1))}), 2, Some("fewReplicas"));
        check("StatefulSet", json!({"statefulSets": set("x", json!(1))}), 0, Some("controllerMissing"));
        let job = |parallelism: i32| json!({"jobs": [{"metadata": {"name": "o", "namespace": "d"}, "spec": {"parallelism": parallelism}}]});
        check("Job", job(1), 2, Some("fewReplicas"));
        check("Job", job(2), 2, None);
        check("Custom", json!({"replicaSets": set("o", json!(1))}), 2, None);
    }
}
