//! Which pods may be moved off a node, and the budgets they share.

use std::collections::BTreeMap;

use muster_model::k8s::{Pod, PodDisruptionBudget, PodPhase, VolumeSource};

use super::Fault;
use crate::{fit::selector, snapshot::Snapshot};

const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const SAFE_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const DAEMON_POD: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";
const SKIP_RESCHEDULE: &str = "cluster-autoscaler.kubernetes.io/skip-reschedule";
const MIRROR: &str = "kubernetes.io/config.mirror";
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Pods that go with their node: nobody waits for them elsewhere.
pub(super) fn goes_with_node(pod: &Pod) -> bool {
    let annotations = &pod.metadata.annotations;
    let says = |key: &str, value: &str| annotations.text(key) == Some(value);
    let daemon = pod.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet");
    let refuses = says(SAFE_TO_EVICT, "false") || says(DO_NOT_DISRUPT, "true");
    daemon
        || says(DAEMON_POD, "true")
        || says(SKIP_RESCHEDULE, "true") && !refuses
        || annotations.contains(MIRROR)
        || pod.is_terminating()
        || pod.is_finished()
}

/// Budgets as they shrink with each move of the plan.
#[derive(Debug)]
pub(super) struct Budgets<'a> {
    snapshot: &'a Snapshot,
    /// Disruptions left, by index of the budget.
    left: BTreeMap<usize, i64>,
}

impl<'a> Budgets<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        Self { snapshot, left: BTreeMap::new() }
    }

    /// Takes one disruption for the pod, if it may be moved at all.
    pub(super) fn take(&mut self, pod: &Pod) -> Result<(), Fault> {
        let covering: Vec<usize> = self.covering(pod).collect();
        if let Some(why) = self.unmovable(pod, !covering.is_empty()) {
            return Err(Fault::Unmovable { pod: pod.key(), why });
        }
        if pod.status.phase == PodPhase::Pending {
            return Ok(()); // it does not run yet: no budget is asked
        }
        let &[index] = &covering[..] else {
            return match covering.len() {
                0 => Ok(()),
                budgets => Err(Fault::SeveralBudgets { pod: pod.key(), budgets }),
            };
        };
        let budget = &self.snapshot.cluster.budgets[index];
        if needs_no_budget(budget, pod) {
            return Ok(());
        }
        let allowed = allowed(budget);
        let left = self.left.entry(index).or_insert(allowed);
        if *left <= 0 {
            let budget = format!("{}/{}", budget.metadata.namespace, budget.metadata.name);
            return Err(Fault::BudgetExhausted { pod: pod.key(), budget, allowed });
        }
        *left -= 1;
        Ok(())
    }

    fn covering(&self, pod: &Pod) -> impl Iterator<Item = usize> {
        let budgets = self.snapshot.cluster.budgets.iter().enumerate();
        budgets
            .filter(|(_, budget)| {
                budget.metadata.namespace == pod.metadata.namespace
                    && selector::selects(budget.spec.selector.as_ref(), &pod.metadata.labels)
            })
            .map(|(index, _)| index)
    }

    fn unmovable(&self, pod: &Pod, has_budget: bool) -> Option<String> {
        let policy = &self.snapshot.drain;
        let annotations = &pod.metadata.annotations;
        if annotations.text(DO_NOT_DISRUPT) == Some("true") {
            return Some(format!("{DO_NOT_DISRUPT} is true"));
        }
        if let Some(why) = self.few_replicas(pod) {
            return Some(why);
        }
        match annotations.text(SAFE_TO_EVICT) {
            Some("true") => return None,
            Some(word @ ("false" | "on-completion")) => return Some(format!("{SAFE_TO_EVICT} is {word}")),
            _ => {}
        }
        if policy.keep_unreplicated && pod.metadata.controller().is_none() {
            return Some("it has no controller that would make it again".to_owned());
        }
        if policy.keep_local_storage
            && let Some(volume) = local_volume(pod)
        {
            return Some(format!("volume {volume} lives on the node"));
        }
        let system = policy.keep_system && &*pod.metadata.namespace == SYSTEM_NAMESPACE && !has_budget;
        system.then(|| "it is a system pod without a budget".to_owned())
    }

    fn few_replicas(&self, pod: &Pod) -> Option<String> {
        let owner = pod.metadata.controller()?;
        let cluster = &self.snapshot.cluster;
        let same =
            |name: &str, namespace: &str| *name == *owner.name && *namespace == *pod.metadata.namespace;
        let gone = || Some(format!("its {} {} does not exist", owner.kind, owner.name));
        // A kind of which nothing was listed is not known, so nothing is missing.
        let wanted = match &*owner.kind {
            "ReplicaSet" | "ReplicationController" if !cluster.replica_sets.is_empty() => {
                let mut sets = cluster.replica_sets.iter();
                match sets.find(|set| same(&set.metadata.name, &set.metadata.namespace)) {
                    Some(set) => set.spec.replicas,
                    None if &*owner.kind == "ReplicationController" => return None, // seldom listed
                    None => return gone(),
                }
            }
            "StatefulSet" if !cluster.stateful_sets.is_empty() => {
                let mut sets = cluster.stateful_sets.iter();
                match sets.find(|set| same(&set.metadata.name, &set.metadata.namespace)) {
                    Some(set) => set.spec.replicas,
                    None => return gone(),
                }
            }
            "Job" if !cluster.jobs.is_empty() => {
                let mut jobs = cluster.jobs.iter();
                match jobs.find(|job| same(&job.metadata.name, &job.metadata.namespace)) {
                    Some(job) => job.spec.parallelism,
                    None => return gone(),
                }
            }
            _ => return None,
        };
        let wanted = u32::try_from(wanted.unwrap_or(1)).unwrap_or(0);
        let min = self.snapshot.drain.min_replicas;
        (wanted < min)
            .then(|| format!("{} {} has {wanted} replicas, fewer than {min}", owner.kind, owner.name))
    }
}

fn local_volume(pod: &Pod) -> Option<&str> {
    let safe: Vec<&str> =
        pod.metadata.annotations.text(SAFE_VOLUMES).unwrap_or("").split(',').map(str::trim).collect();
    let mut local = pod.spec.volumes.iter().filter(|volume| {
        matches!(volume.source, VolumeSource::HostPath | VolumeSource::EmptyDir { in_memory: false })
    });
    local.find(|volume| !safe.contains(&&*volume.name)).map(|volume| &*volume.name)
}

/// What the budget allows now; one that was not computed for its present form allows nothing.
fn allowed(budget: &PodDisruptionBudget) -> i64 {
    if budget.status.observed_generation < budget.metadata.generation {
        return 0;
    }
    i64::from(budget.status.disruptions_allowed.unwrap_or(0))
}

/// Pods that are not ready do not use up a budget, if it says so or is satisfied anyway; an eviction that
/// was already granted is not counted again.
fn needs_no_budget(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let ready = pod.status.condition("Ready").is_some_and(|condition| &*condition.status == "True");
    let known = pod.status.condition("Ready").is_some();
    let status = &budget.status;
    let lenient = &*budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow";
    let satisfied = status.current_healthy >= status.desired_healthy && status.desired_healthy > 0;
    status.disrupted_pods.contains(&pod.metadata.name) || known && !ready && (lenient || satisfied)
}
