//! How many of the pods' preferences a plan keeps.

use std::collections::BTreeMap;

use muster_model::k8s::{Labels, Node, PodAffinityTerm, WhenUnsatisfiable};

use super::{explain::Preferences, offers::Ways, targets::HOSTNAME, translate::Translated};
use crate::{
    fit::{node_affinity, pod_affinity},
    solve::{Solution, Target},
};

/// Counts preferred node affinity and preferred pod (anti-)affinity among the pods of the plan. Spread that
/// may be violated counts as kept where no domain of the plan is more than the allowed skew above another.
pub(crate) fn count(
    translated: &Translated<'_>,
    solution: &Solution,
    ways: &Ways,
    nodes: &[&Node],
) -> Preferences {
    let mut total = Preferences::default();
    let count = nodes.len() as u32;
    let node_of = |target: Target| -> Option<&Node> {
        match target {
            Target::Node(at) => nodes.get(at as usize).copied(),
            Target::Machine(at) => Some(&ways.list[solution.machines[at as usize] as usize].node),
        }
    };
    // Domains of a key: the value of the label, or the target itself for the host name.
    let domain = |target: Target, key: &str| -> Option<String> {
        if key == HOSTNAME {
            return Some(match target {
                Target::Node(at) => at.to_string(),
                Target::Machine(at) => (count + at).to_string(),
            });
        }
        node_of(target)?.metadata.labels.text(key).map(str::to_owned)
    };
    let wants = |class: u32| {
        let spec = &translated.classes[class as usize].pod.spec;
        spec.affinity.is_some()
            || spec
                .topology_spread_constraints
                .iter()
                .any(|c| c.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway)
    };
    if !(0..translated.classes.len() as u32).any(wants) {
        return total;
    }
    let mut matched: BTreeMap<(&PodAffinityTerm, &str, String), u64> = BTreeMap::new();
    let terms: std::collections::BTreeSet<(&PodAffinityTerm, &str)> = translated
        .classes
        .iter()
        .flat_map(|class| soft_terms(class.pod).map(move |(term, _)| (term, &*class.pod.metadata.namespace)))
        .collect();
    for step in &solution.steps {
        let pod = translated.classes[step.class as usize].pod;
        for (term, owner) in &terms {
            if reaches(term, owner, &pod.metadata.namespace, &pod.metadata.labels)
                && let Some(domain) = domain(step.target, &term.topology_key)
            {
                *matched.entry((term, owner, domain)).or_default() += u64::from(step.count);
            }
        }
    }
    for step in &solution.steps {
        let pod = translated.classes[step.class as usize].pod;
        let count = u64::from(step.count);
        let node = node_of(step.target);
        let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        for term in affinity.iter().flat_map(|affinity| &affinity.preferred) {
            total.stated += count;
            let kept = node.is_some_and(|node| {
                node_affinity::term_matches(&term.preference, &node.metadata.labels, node.name())
            });
            total.kept += if kept { count } else { 0 };
        }
        for (term, near) in soft_terms(pod) {
            total.stated += count;
            let owner = &*pod.metadata.namespace;
            let here = domain(step.target, &term.topology_key)
                .and_then(|domain| matched.get(&(term, owner, domain)).copied())
                .unwrap_or(0);
            let own = u64::from(reaches(term, owner, owner, &pod.metadata.labels));
            let others = here.saturating_sub(own) > 0;
            total.kept += if others == near { count } else { 0 };
        }
    }
    total
}

/// Preferred terms of a pod, and whether they ask for nearness.
fn soft_terms(pod: &muster_model::k8s::Pod) -> impl Iterator<Item = (&PodAffinityTerm, bool)> {
    let affinity = pod.spec.affinity.as_ref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let far = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let near =
        near.into_iter().flat_map(|terms| &terms.preferred).map(|term| (&term.pod_affinity_term, true));
    let far = far.into_iter().flat_map(|terms| &terms.preferred).map(|term| (&term.pod_affinity_term, false));
    near.chain(far)
}

fn reaches(term: &PodAffinityTerm, owner: &str, namespace: &str, labels: &Labels) -> bool {
    pod_affinity::covers(term, owner, namespace, None) && pod_affinity::selects(term, labels)
}
