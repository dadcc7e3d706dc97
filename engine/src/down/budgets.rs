//! Disruption budgets: which pod draws on which, and what is left of each.

use std::collections::BTreeMap;

use muster_model::k8s::{Labels, Pod, PodDisruptionBudget, PodPhase};

use crate::{fit::selector, plan::hash::FixedMap};

/// Which budget a pod draws on when it is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draw {
    /// No budget covers it.
    None,
    /// A budget covers it and counts the move.
    One(u32),
    /// A budget covers it, but its move costs nothing.
    Free,
    /// More than one covers it: the API server refuses to evict it.
    Several,
}

#[derive(Debug)]
pub(crate) struct Budgets<'a> {
    list: &'a [PodDisruptionBudget],
    by_namespace: BTreeMap<&'a str, Vec<u32>>,
    covering: FixedMap<(&'a str, &'a Labels), Vec<u32>>,
    /// What each budget allows before anything moves.
    pub(crate) allowed: Vec<i64>,
}

impl<'a> Budgets<'a> {
    pub(crate) fn new(list: &'a [PodDisruptionBudget]) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (budget, at) in list.iter().zip(0..) {
            by_namespace.entry(&budget.metadata.namespace).or_default().push(at);
        }
        Self {
            list,
            by_namespace,
            covering: FixedMap::default(),
            allowed: list.iter().map(allowed).collect(),
        }
    }

    pub(crate) fn name(&self, at: u32) -> String {
        let budget = &self.list[at as usize];
        format!("{}/{}", budget.metadata.namespace, budget.metadata.name)
    }

    /// Budgets that select the pod.
    pub(crate) fn covering(&mut self, pod: &'a Pod) -> &[u32] {
        let namespace: &'a str = &pod.metadata.namespace;
        let Some(here) = self.by_namespace.get(namespace) else { return &[] };
        let list = self.list;
        self.covering.entry((namespace, &pod.metadata.labels)).or_insert_with(|| {
            let selects = |at: &&u32| {
                selector::selects(list[**at as usize].spec.selector.as_ref(), &pod.metadata.labels)
            };
            here.iter().filter(selects).copied().collect()
        })
    }

    pub(crate) fn draw(&mut self, pod: &'a Pod) -> Draw {
        let list = self.list;
        match *self.covering(pod) {
            [] => Draw::None,
            // The API server asks no budget about a pod that does not run yet.
            _ if pod.status.phase == PodPhase::Pending => Draw::Free,
            [only] if costs_nothing(&list[only as usize], pod) => Draw::Free,
            [only] => Draw::One(only),
            _ => Draw::Several,
        }
    }
}

/// A budget that was not computed for its present form allows nothing.
fn allowed(budget: &PodDisruptionBudget) -> i64 {
    let current = budget.status.observed_generation >= budget.metadata.generation;
    let allowed = budget.status.disruptions_allowed.filter(|_| current);
    allowed.map_or(0, |allowed| i64::from(allowed).max(0))
}

/// A pod whose eviction was granted before, or one that is not ready where the budget lets such pods go.
fn costs_nothing(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    if budget.status.disrupted_pods.contains(&pod.metadata.name) {
        return true;
    }
    let Some(ready) = pod.status.condition("Ready") else { return false };
    let met =
        budget.status.desired_healthy > 0 && budget.status.current_healthy >= budget.status.desired_healthy;
    &*ready.status != "True" && (met || &*budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({"metadata": {"name": "b", "namespace": "d", "generation": 2}, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn what_a_budget_allows() {
        #[track_caller]
        fn check(status: Value, expected: i64) {
            assert_eq!(allowed(&budget(json!({}), status)), expected);
        }
        check(json!({"observedGeneration": 2, "disruptionsAllowed": 3}), 3);
        check(json!({"observedGeneration": 1, "disruptionsAllowed": 3}), 0); // of an older form
        check(json!({"observedGeneration": 2}), 0); // not computed yet
        check(json!({"observedGeneration": 2, "disruptionsAllowed": -1}), 0);
    }

    #[test]
    fn which_budget_a_pod_draws_on() {
        #[track_caller]
        fn check(list: &[PodDisruptionBudget], labels: Value, ready: Option<&str>, expected: Draw) {
            let conditions =
                ready.map(|status| json!([{"type": "Ready", "status": status}])).unwrap_or(json!([]));
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "d", "labels": labels},
                "status": {"conditions": conditions}}))
                .unwrap();
            assert_eq!(Budgets::new(list).draw(&pod), expected);
        }
        let one = json!({"selector": {"matchLabels": {"app": "a"}}});
        let lenient =
            json!({"selector": {"matchLabels": {"app": "b"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
        let ok = json!({"observedGeneration": 2, "disruptionsAllowed": 1});
        let granted = json!({"observedGeneration": 2, "disruptedPods": {"p": null}});
        let list = [
            budget(one.clone(), ok.clone()),
            budget(lenient, ok.clone()),
            budget(json!({"selector": {"matchLabels": {"app": "c"}}}), granted),
            budget(json!({"selector": {"matchLabels": {"twice": "x"}}}), ok),
        ];
        check(&list, json!({"app": "z"}), None, Draw::None);
        check(&list, json!({"app": "a"}), Some("True"), Draw::One(0));
        check(&list, json!({"app": "a"}), Some("False"), Draw::One(0));
        check(&list, json!({"app": "b"}), Some("False"), Draw::Free);
        check(&list, json!({"app": "b"}), Some("True"), Draw::One(1));
        check(&list, json!({"app": "b"}), None, Draw::One(1)); // readiness is not known
        check(&list, json!({"app": "c"}), Some("True"), Draw::Free);
        check(&list, json!({"app": "a", "twice": "x"}), None, Draw::Several);
    }
}
