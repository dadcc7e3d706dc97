//! Pods that run all or none: which pods say so of themselves, and how many of each group have to run.
//!
//! There is no one way to say it. Each row of [`WAYS`] is one that is in use: where the name of the group is
//! written, and where the number of pods that have to run together. Kubernetes itself has a field for the name.
//! Where the group is an object, that says the number. Without a number all pods of the group that there are
//! have to run.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use muster_model::k8s::{Pod, PodGroupApi, PodKey, PodPhase};

use crate::snapshot::{Cluster, Group};

/// Labels or annotations with the name of a pod's group, and with the number of its pods that run together.
/// The first that a pod carries counts.
pub const WAYS: [(&str, &str); 6] = [
    ("muster.dev/pod-group", "muster.dev/pod-group-min"),
    ("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"),
    ("scheduling.x-k8s.io/pod-group", "muster.dev/pod-group-min"),
    ("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"),
    ("scheduling.volcano.sh/group-name", "scheduling.volcano.sh/group-min-member"),
    ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-min-member"),
];

/// Our own way stands above all others, also for the number alone.
const OWN: (&str, &str) = WAYS[0];

/// The object that a group named by this label or annotation may have.
fn object_of(way: &str) -> Option<PodGroupApi> {
    match way {
        "scheduling.x-k8s.io/pod-group" => Some(PodGroupApi::Coscheduling),
        "scheduling.volcano.sh/group-name" | "scheduling.k8s.io/group-name" => Some(PodGroupApi::Volcano),
        _ => None,
    }
}

/// How many pods each group that is an object has to have running, by API, namespace and name.
type Objects<'a> = HashMap<(PodGroupApi, &'a str, &'a str), Option<u32>>;

/// The groups of which a pod is waiting, by namespace and name.
pub fn groups(cluster: &Cluster) -> Vec<Group> {
    let objects: Objects<'_> = cluster
        .pod_groups
        .iter()
        .filter_map(|group| {
            let meta = &group.metadata;
            Some(((group.api()?, &*meta.namespace, &*meta.name), group.min()))
        })
        .collect();
    let mut found: BTreeMap<(&str, &str), Draft<'_>> = BTreeMap::new();
    for pod in &cluster.pods {
        if let Some((name, min)) = group_of(pod, &objects) {
            found.entry((&pod.metadata.namespace, name)).or_default().add(pod, min);
        }
    }
    found.into_iter().filter_map(|((namespace, name), draft)| draft.group(namespace, name)).collect()
}

/// What a pod says of its group: the name, and how many have to run.
fn group_of<'p>(pod: &'p Pod, objects: &Objects<'_>) -> Option<(&'p str, Option<u32>)> {
    let text = |key: &str| pod.metadata.labels.text(key).or_else(|| pod.metadata.annotations.text(key));
    let number = |key: &str| text(key).and_then(|number| number.trim().parse().ok());
    let said =
        |api: PodGroupApi, name: &str| objects.get(&(api, &*pod.metadata.namespace, name)).copied().flatten();
    let labelled = |(way, min): &(&str, &str)| {
        let name = text(way).filter(|name| !name.is_empty())?;
        let object = object_of(way).and_then(|api| said(api, name));
        Some((name, number(OWN.1).or(object).or_else(|| number(min))))
    };
    let in_spec = || {
        let name = pod.spec.scheduling_group.as_ref()?.pod_group_name.as_deref()?;
        Some((name, number(OWN.1).or_else(|| said(PodGroupApi::Kubernetes, name))))
    };
    labelled(&OWN).or_else(in_spec).or_else(|| WAYS[1..].iter().find_map(labelled))
}

/// A group while its pods are collected.
#[derive(Debug, Default)]
struct Draft<'a> {
    pods: Vec<&'a Pod>,
    waiting: bool,
    /// Pods that have done their work need not run again.
    done: u32,
    /// The largest number that one of its pods names.
    min: Option<u32>,
}

impl<'a> Draft<'a> {
    fn add(&mut self, pod: &'a Pod, min: Option<u32>) {
        self.min = self.min.max(min);
        if pod.status.phase == PodPhase::Succeeded {
            self.done += 1;
        } else if !pod.is_finished() && !pod.is_terminating() {
            self.waiting |= pod.is_pending();
            self.pods.push(pod);
        }
    }

    /// Nothing for a group that cannot be torn: nobody waits, or one pod is enough.
    fn group(self, namespace: &str, name: &str) -> Option<Group> {
        let all = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let min = self.min.map_or(all, |min| min.saturating_sub(self.done));
        if !self.waiting || min <= 1 {
            return None;
        }
        let mut pods: Vec<PodKey> = self.pods.iter().map(|pod| pod.key()).collect();
        pods.sort_unstable();
        Some(Group { name: Arc::from(format!("{namespace}/{name}")), pods, min })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, meta: &Value, rest: &Value) -> Pod {
        let mut object = json!({"metadata": {"name": name, "namespace": "train"}});
        for (from, into) in [(meta, "metadata"), (rest, "")] {
            for (key, value) in from.as_object().unwrap() {
                let into = if into.is_empty() { &mut object } else { &mut object[into] };
                into[key] = value.clone();
            }
        }
        serde_json::from_value(object).unwrap()
    }

    #[track_caller]
    fn check(pods: Vec<Pod>, expected: &[(&str, &[&str], u32)]) {
        check_with(pods, json!([]), expected);
    }

    #[track_caller]
    fn check_with(pods: Vec<Pod>, objects: Value, expected: &[(&str, &[&str], u32)]) {
        let pod_groups = serde_json::from_value(objects).unwrap();
        let cluster = Cluster { pods, pod_groups, ..Cluster::default() };
        let found = groups(&cluster);
        let found: Vec<(&str, Vec<&str>, u32)> = found
            .iter()
            .map(|group| (&*group.name, group.pods.iter().map(|pod| &*pod.name).collect(), group.min))
            .collect();
        let expected: Vec<(&str, Vec<&str>, u32)> =
            expected.iter().map(|(name, pods, min)| (*name, pods.to_vec(), *min)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_way_to_name_a_group_is_read() {
        for (name, min) in WAYS {
            let said = json!({name: "g", min: "3"});
            for place in ["labels", "annotations"] {
                let both = |at: &str| pod(at, &json!({place: said}), &json!({}));
                check(vec![both("b"), both("a")], &[("train/g", &["a", "b"], 3)]);
            }
        }
    }

    #[test]
    fn without_a_number_all_that_there_are_have_to_run() {
        let one = |at: &str, rest: Value| {
            pod(at, &json!({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}), &rest)
        };
        let runs = || one("r", json!({"spec": {"nodeName": "n"}}));
        check(vec![one("a", json!({})), one("b", json!({}))], &[("train/g", &["a", "b"], 2)]);
        check(vec![one("a", json!({})), runs()], &[("train/g", &["a", "r"], 2)]);
        check(vec![runs(), one("s", json!({"spec": {"nodeName": "n"}}))], &[]); // nobody waits
        check(vec![one("a", json!({}))], &[]); // one alone is never torn
        let failed = one("f", json!({"status": {"phase": "Failed"}}));
        check(vec![one("a", json!({})), runs(), failed], &[("train/g", &["a", "r"], 2)]);
    }

    #[test]
    fn what_is_done_need_not_run_again_and_our_own_number_counts_most() {
        let one = |at: &str, annotations: Value, rest: Value| {
            let labels = json!({"kueue.x-k8s.io/pod-group-name": "g"});
            pod(at, &json!({"labels": labels, "annotations": annotations}), &rest)
        };
        let total = || json!({"kueue.x-k8s.io/pod-group-total-count": "4"});
        let waits = |at: &str| one(at, total(), json!({}));
        let done = one("d", total(), json!({"status": {"phase": "Succeeded"}}));
        check(vec![waits("a"), waits("b"), done], &[("train/g", &["a", "b"], 3)]); // one is still to come
        let ours = json!({"kueue.x-k8s.io/pod-group-total-count": "4", "muster.dev/pod-group-min": "2"});
        let all: Vec<Pod> = ["a", "b", "c"].iter().map(|at| one(at, ours.clone(), json!({}))).collect();
        check(all, &[("train/g", &["a", "b", "c"], 2)]);
        let unread = json!({"kueue.x-k8s.io/pod-group-total-count": "many"});
        check(
            vec![one("a", unread.clone(), json!({})), one("b", unread, json!({}))],
            &[("train/g", &["a", "b"], 2)],
        );
    }

    #[test]
    fn a_group_that_is_an_object_says_its_number() {
        let object = |api: &str, namespace: &str, spec: Value| json!({"apiVersion": api, "metadata": {"name": "g", "namespace": namespace}, "spec": spec});
        let gang = |count: u32| json!({"schedulingPolicy": {"gang": {"minCount": count}}});
        let own = "scheduling.k8s.io/v1alpha2";
        let in_spec =
            |at: &str| pod(at, &json!({}), &json!({"spec": {"schedulingGroup": {"podGroupName": "g"}}}));
        let both = || vec![in_spec("a"), in_spec("b")];
        check_with(both(), json!([object(own, "train", gang(5))]), &[("train/g", &["a", "b"], 5)]);
        // Pods that are scheduled one by one are no group; an object that is not there says nothing.
        let basic = json!({"schedulingPolicy": {"basic": {}}});
        check_with(both(), json!([object(own, "train", basic)]), &[]);
        check_with(both(), json!([]), &[("train/g", &["a", "b"], 2)]);
        check_with(both(), json!([object(own, "other", gang(5))]), &[("train/g", &["a", "b"], 2)]);
        let volcano = "scheduling.volcano.sh/v1beta1";
        check_with(both(), json!([object(volcano, "train", gang(5))]), &[("train/g", &["a", "b"], 2)]);

        let member = |number: u32| json!({"minMember": number});
        for (way, api) in [
            ("scheduling.x-k8s.io/pod-group", "scheduling.x-k8s.io/v1alpha1"),
            ("scheduling.k8s.io/group-name", volcano),
            ("scheduling.volcano.sh/group-name", volcano),
        ] {
            let one = |at: &str, more: Value| {
                let mut annotations = json!({way: "g", "scheduling.volcano.sh/group-min-member": "7"});
                annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                pod(at, &json!({"annotations": annotations}), &json!({}))
            };
            let objects = || json!([object(api, "train", member(3))]);
            let plain = vec![one("a", json!({})), one("b", json!({}))];
            check_with(plain, objects(), &[("train/g", &["a", "b"], 3)]);
            // Our own number stands above that of the object.
            let ours = vec![one("a", json!({"muster.dev/pod-group-min": "2"})), one("b", json!({}))];
            check_with(ours, json!([object(api, "train", member(1))]), &[("train/g", &["a", "b"], 2)]);
        }
    }
}
