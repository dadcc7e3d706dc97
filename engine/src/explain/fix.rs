//! Changes that would give a pod a place. Each one is tried on paper before it is offered.

use std::sync::Arc;

use muster_model::{
    Quantity,
    k8s::{Node, Operator, Pod, Taint, Toleration},
};
use serde_json::{Map, Value, json};

use super::{
    Code, Fix, PatchKind, amount,
    constraint::{of, shortages, unmet},
    hosts::refusal,
    limits::{self, Limit},
    scene::{Candidate, Judgement, Scene, Stage},
};
use crate::fit::{Plugin, requests, taints};

/// Labels that machines have by themselves; a pool cannot promise others.
const OWN_LABELS: [&str; 8] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "muster.dev/capacity-type",
    "nodepool",
];
/// Requests are not lowered below this share of what was asked for: that would be another program.
const LEAST_PERCENT: i64 = 25;

/// Fixes for a machine that refuses the pod. `alike` pods have the same problem.
pub(super) fn for_refusal<'a>(
    stage: &Stage<'a, '_>,
    candidate: &'a Candidate,
    judgement: &Judgement,
    pod: &Pod,
    alike: u32,
) -> Vec<Fix> {
    if !limits::all(stage.scene, candidate, 1).is_empty() {
        return Vec::new(); // it could not be had anyway
    }
    let mut fixes = Vec::new();
    if let [(Plugin::NodeAffinity, _)] = &judgement.all[..]
        && let Some(fix) = label_the_pool(stage, candidate, pod, alike)
    {
        fixes.push(fix);
    }
    if let Some(fix) = change_the_pod(stage, candidate, judgement, pod, alike) {
        fixes.push(fix);
    }
    fixes
}

/// Fixes for a machine that would do but cannot be had.
pub(super) fn for_limits(limits: &[Limit], alike: u32) -> Option<Fix> {
    let first = limits.first()?;
    let mut patch = first.raise.clone()?;
    for other in &limits[1..] {
        if other.cause.object != first.cause.object {
            return None; // two objects would have to change together
        }
        merge(&mut patch, other.raise.as_ref()?);
    }
    Some(Fix {
        object: first.cause.object.clone(),
        field: first.cause.field.clone(),
        text: limits.iter().map(|limit| limit.advice.as_str()).collect::<Vec<_>>().join("; "),
        patch,
        kind: PatchKind::Merge,
        helps: alike,
    })
}

/// Ending the hold of a host that would do, where nothing else stands in the way.
pub(super) fn for_held_hosts(
    scene: &Scene<'_>,
    candidate: &Candidate,
    limits: &[Limit],
    alike: u32,
) -> Vec<Fix> {
    let [only] = limits else { return Vec::new() };
    if only.cause.code != Code::NoUsableHost {
        return Vec::new();
    }
    let held = scene
        .hosts_of(candidate)
        .filter(|host| refusal(scene.snapshot, host).is_some_and(|cause| cause.code == Code::Held));
    held.map(|host| Fix {
        object: format!("baremetalnodes/{}", host.name),
        field: "spec.hold".to_owned(),
        text: format!("release host {}", host.name),
        patch: json!({"spec": {"hold": null}}),
        kind: PatchKind::Merge,
        helps: alike,
    })
    .collect()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn label_the_pool<'a>(stage: &Stage<'a, '_>, candidate: &'a Candidate, pod: &Pod, alike: u32) -> Option<Fix> {
    let pool = stage.scene.pool_of(candidate);
    let mut labels = Map::new();
    let mut node = candidate.node.clone();
    for unmet in unmet(pod, &candidate.node) {
        let key = &*unmet.requirement.key;
        let value = match unmet.requirement.operator {
            Operator::In => unmet.requirement.values.first()?.to_string(),
            Operator::Exists => "true".to_owned(),
            _ => return None,
        };
        if OWN_LABELS.contains(&key) || candidate.node.metadata.labels.contains(key) {
            return None;
        }
        node.metadata.labels.insert(key, value.as_str().into());
        labels.insert(key.to_owned(), Value::String(value));
    }
    let key = labels.keys().next().cloned()?;
    if !verified(stage, candidate, stage.scene.changed_nodes.put(node), pod) {
        return None;
    }
    let list = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let text = format!("add label {} to pool {}", list.collect::<Vec<_>>().join(", "), pool.name);
    Some(Fix {
        object: format!("nodepools/{}", pool.name),
        field: format!("spec.labels.{key}"),
        text,
        patch: json!({"spec": {"labels": labels}}),
        kind: PatchKind::Merge,
        helps: alike,
    })
}

/// One patch of the pod that removes every obstacle, if there is one.
fn change_the_pod<'a>(
    stage: &Stage<'a, '_>,
    candidate: &'a Candidate,
    judgement: &Judgement,
    pod: &Pod,
    alike: u32,
) -> Option<Fix> {
    let mut change = Change { pod: pod.clone(), spec: Map::new(), says: Vec::new(), field: String::new() };
    for (plugin, _) in &judgement.all {
        match plugin {
            Plugin::NodeAffinity => change.follow_labels(&candidate.node)?,
            Plugin::TaintToleration => change.tolerate(&candidate.node),
            Plugin::NodeResourcesFit => change.lower(judgement)?,
            _ => return None,
        }
    }
    if !verified(stage, candidate, &candidate.node, &change.pod) {
        return None;
    }
    let owner = pod
        .metadata
        .controller()
        .map_or_else(String::new, |owner| format!(" (in the template of {} {})", owner.kind, owner.name));
    Some(Fix {
        object: format!("pods/{}", pod.key()),
        field: change.field,
        text: format!("{}{owner}", change.says.join(", and ")),
        patch: json!({"spec": change.spec}),
        kind: PatchKind::Strategic,
        helps: alike,
    })
}

/// Removing one side of a contradiction, so that a machine that can be had takes the pod.
pub(super) fn for_conflict(stage: &Stage<'_, '_>, pod: &Pod, field: &str, alike: u32) -> Option<Fix> {
    let scene = stage.scene;
    let key = field.strip_prefix("spec.nodeSelector.")?;
    let mut changed = pod.clone();
    let selector = &pod.spec.node_selector;
    let kept = selector.iter().filter(|(name, _)| *name != key).map(|(name, value)| (name, value.clone()));
    Arc::make_mut(&mut changed.spec).node_selector = kept.collect();
    let available = |candidate: &&Candidate| limits::all(scene, candidate, 1).is_empty();
    let candidate = scene
        .candidates
        .iter()
        .filter(available)
        .find(|candidate| verified(stage, candidate, &candidate.node, &changed))?;
    Some(Fix {
        object: format!("pods/{}", pod.key()),
        field: field.to_owned(),
        text: format!(
            "drop {key} from the pod's nodeSelector; pool {} then takes it",
            scene.pool_of(candidate).name
        ),
        patch: json!({"spec": {"nodeSelector": {key: null}}}),
        kind: PatchKind::Strategic,
        helps: alike,
    })
}

/// Whether the machine takes the pod, with the node and the pod as changed.
fn verified<'a>(stage: &Stage<'a, '_>, candidate: &'a Candidate, node: &'a Node, pod: &Pod) -> bool {
    let pod = stage.scene.changed_pods.put(pod.clone());
    let mut world = stage.world();
    let at = world.add_node(node);
    for daemon in &candidate.daemons {
        world.bind(daemon, at);
    }
    let fits = crate::fit::Cycle::new(&world, pod).refusal(at).is_none();
    world.take_back(at);
    fits
}

/// A pod that is being changed, and the same as a patch.
struct Change {
    pod: Pod,
    spec: Map<String, Value>,
    says: Vec<String>,
    field: String,
}

impl Change {
    fn says(&mut self, field: &str, text: String) {
        if self.field.is_empty() {
            field.clone_into(&mut self.field);
        }
        self.says.push(text);
    }

    fn follow_labels(&mut self, node: &Node) -> Option<()> {
        let mut patch = Map::new();
        for unmet in unmet(&self.pod, node) {
            let key = unmet.field.strip_prefix("spec.nodeSelector.")?.to_owned();
            let found = node.metadata.labels.text(&key).map(str::to_owned);
            let spec = Arc::make_mut(&mut self.pod.spec);
            if let Some(value) = &found {
                spec.node_selector.insert(&key, value.as_str().into());
            } else {
                let kept = spec.node_selector.iter().filter(|(name, _)| **name != *key);
                spec.node_selector = kept.map(|(name, value)| (name, value.clone())).collect();
            }
            let text = match &found {
                Some(value) => format!("set {key}={value} in the pod's nodeSelector"),
                None => format!("drop {key} from the pod's nodeSelector"),
            };
            self.says(&unmet.field, text);
            patch.insert(key, found.map_or(Value::Null, Value::String));
        }
        if patch.is_empty() {
            return None;
        }
        self.spec.insert("nodeSelector".to_owned(), Value::Object(patch));
        Some(())
    }

    fn tolerate(&mut self, node: &Node) {
        let spec = Arc::make_mut(&mut self.pod.spec);
        let mut tolerations: Vec<Toleration> = spec.tolerations.iter().cloned().collect();
        let mut names = Vec::new();
        while let Some(taint) = taints::untolerated(&node.spec.taints, &tolerations) {
            names.push(super::constraint::say_taint(taint));
            tolerations.push(toleration(taint));
        }
        spec.tolerations = tolerations.clone().into();
        let list: Vec<Value> = tolerations.iter().map(toleration_json).collect();
        self.spec.insert("tolerations".to_owned(), Value::Array(list));
        self.says("spec.tolerations", format!("let the pod tolerate {}", names.join(", ")));
    }

    /// Takes what is too much from the container that asks for the most of it.
    fn lower(&mut self, judgement: &Judgement) -> Option<()> {
        let request = requests::of_pending(&self.pod);
        let mut containers: Vec<Value> = Vec::new();
        for (name, wanted, free) in shortages(&request, &judgement.capacity, &judgement.used) {
            let spec = Arc::make_mut(&mut self.pod.spec);
            let mut list: Vec<_> = spec.containers.iter().cloned().collect();
            let amount_in = |container: &muster_model::k8s::Container| {
                let list = &container.resources.requests;
                of(&crate::fit::Amounts::rounded(list), &name)
            };
            let largest = list.iter_mut().max_by_key(|container| amount_in(container))?;
            let held = amount_in(largest);
            let left = held.saturating_sub(wanted.saturating_sub(free));
            let lowered = amount::quantity(&name, left);
            if left <= 0 || i128::from(left) * 100 < i128::from(held) * i128::from(LEAST_PERCENT) {
                return None;
            }
            largest.resources.requests.insert(&name, lowered.parse::<Quantity>().ok()?);
            containers.push(json!({"name": largest.name, "resources": {"requests": {&name: lowered}}}));
            let said = format!(
                "lower the {name} request of container {} from {} to {}",
                largest.name,
                amount::say(&name, held),
                amount::say(&name, left)
            );
            spec.containers = list.into();
            self.says(&format!("spec.containers[].resources.requests.{name}"), said);
        }
        if containers.is_empty() {
            return None;
        }
        self.spec.insert("containers".to_owned(), Value::Array(join_by_name(containers)));
        Some(())
    }
}

fn join_by_name(containers: Vec<Value>) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for container in containers {
        match joined.iter_mut().find(|known| known["name"] == container["name"]) {
            Some(known) => merge(known, &container),
            None => joined.push(container),
        }
    }
    joined
}

fn toleration(taint: &Taint) -> Toleration {
    use muster_model::k8s::TolerationOperator::{Equal, Exists};
    let operator = if taint.value.is_empty() { Exists } else { Equal };
    Toleration {
        key: taint.key.clone(),
        operator,
        value: taint.value.clone(),
        effect: Some(taint.effect),
        toleration_seconds: None,
    }
}

/// Without the fields that say nothing.
fn toleration_json(toleration: &Toleration) -> Value {
    let mut object = Map::new();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            object.insert(key.to_owned(), Value::String(value.to_owned()));
        }
    };
    add("key", &toleration.key);
    add("operator", &format!("{:?}", toleration.operator));
    add("value", &toleration.value);
    add("effect", &toleration.effect.map_or_else(String::new, |effect| format!("{effect:?}")));
    if let Some(seconds) = toleration.toleration_seconds {
        object.insert("tolerationSeconds".to_owned(), seconds.into());
    }
    Value::Object(object)
}

/// How many such pods one empty machine takes.
pub(super) fn per_machine(judgement: &Judgement, pod: &Pod) -> u32 {
    let request = requests::of_pending(pod);
    let mut free = judgement.capacity.clone();
    free.subtract(&judgement.used);
    let apart = crate::fit::pod_affinity::required_anti(&pod.spec)
        .iter()
        .any(|term| crate::fit::pod_affinity::selects(term, &pod.metadata.labels));
    let ports = !crate::fit::ports::of(&pod.spec).is_empty();
    if apart || ports {
        return 1;
    }
    let by_amount =
        request.entries().filter(|(_, wanted)| *wanted > 0).map(|(name, wanted)| of(&free, name) / wanted);
    let most = by_amount.min().unwrap_or(i64::MAX).min(free.pods).max(1);
    u32::try_from(most).unwrap_or(u32::MAX)
}
