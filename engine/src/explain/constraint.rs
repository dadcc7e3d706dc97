//! The first failing constraint of a pod on a machine, with what was found and what was asked for.

use muster_model::k8s::{Labels, Node, NodeSelectorTerm, Operator, Pod, Requirement, Taint};

use super::{Cause, Code, amount, scene::Judgement};
use crate::fit::{Amounts, Plugin, Rejection, World, node_affinity, requests, selector, spread, taints};

/// How the machine is called in texts: a template of a pool, or a node.
#[derive(Debug, Clone)]
pub(super) struct Machine<'a> {
    pub(super) node: &'a Node,
    /// `template m5 of pool web` or `node n1`.
    pub(super) name: String,
    /// What holds back part of it: `daemons`, or `its pods`.
    pub(super) taken_by: &'static str,
}

/// Turns what a plugin said into a cause that names object and field.
pub(super) fn explain(
    pod: &Pod,
    machine: &Machine<'_>,
    plugin: Plugin,
    rejection: &Rejection,
    capacity: &Amounts,
    used: &Amounts,
    world: &World<'_>,
) -> Cause {
    let object = format!("pods/{}", pod.key());
    let reasons = rejection.reasons.join(", ");
    match plugin {
        Plugin::NodeUnschedulable => {
            Cause::new(Code::Cordoned, format!("nodes/{}", machine.node.name()), "spec.unschedulable")
                .found("cordoned", "schedulable")
                .saying("cordoned")
        }
        Plugin::NodeName => {
            let wanted = pod.spec.node_name.as_deref().unwrap_or("");
            Cause::new(Code::NodeNamed, object, "spec.nodeName")
                .found(machine.node.name(), wanted)
                .saying(format!("the pod asks for node {wanted}"))
        }
        Plugin::TaintToleration => taint(pod, object, machine.node),
        Plugin::NodeAffinity => label(pod, object, machine.node),
        Plugin::NodePorts => {
            let ports = pod.spec.containers.iter().flat_map(|c| &c.ports).filter(|port| port.host_port > 0);
            let ports: Vec<String> = ports.map(|port| port.host_port.to_string()).collect();
            Cause::new(Code::PortTaken, object, "spec.containers[].ports[].hostPort")
                .found("in use", format!("host port {}", ports.join(", ")))
                .saying(format!("host port {} is in use", ports.join(", ")))
        }
        Plugin::NodeResourcesFit => room(pod, object, machine, capacity, used),
        Plugin::PodTopologySpread => skew(pod, object, machine.node, world, &reasons),
        Plugin::InterPodAffinity if reasons.contains("anti-affinity") => {
            Cause::new(Code::AntiAffinity, object, "spec.affinity.podAntiAffinity")
                .found("a pod that it must avoid", "none")
                .saying("a pod that it must avoid, or that avoids it, is there")
        }
        Plugin::InterPodAffinity => Cause::new(Code::Affinity, object, "spec.affinity.podAffinity")
            .found("none", "a pod that it must be near")
            .saying("no pod that it must be near is there"),
        Plugin::VolumeRestrictions
        | Plugin::NodeVolumeLimits
        | Plugin::VolumeBinding
        | Plugin::VolumeZone => Cause::new(Code::Volume, object, "spec.volumes")
            .found(reasons.clone(), "usable volumes")
            .saying(reasons),
        Plugin::DynamicResources => Cause::new(Code::Devices, object, "spec.resourceClaims")
            .found("claims devices", "cannot be judged")
            .saying(reasons),
        Plugin::NodeDeclaredFeatures => {
            Cause::new(Code::Feature, object, "spec").found("missing", reasons.clone()).saying(reasons)
        }
    }
}

fn taint(pod: &Pod, object: String, node: &Node) -> Cause {
    let Some(found) = taints::untolerated(&node.spec.taints, &pod.spec.tolerations) else {
        return Cause::new(Code::TaintNotTolerated, object, "spec.tolerations")
            .saying("a taint is not tolerated");
    };
    let text = say_taint(found);
    Cause::new(Code::TaintNotTolerated, object, "spec.tolerations")
        .found(format!("taint {text}"), "a toleration for it")
        .saying(format!("taint {text} is not tolerated"))
}

pub(super) fn say_taint(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{:?}", taint.key, taint.effect)
}

/// A requirement of the pod on labels that the node does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmet {
    pub(super) field: String,
    pub(super) requirement: Requirement,
}

/// Requirements that fail: of the node selector, and of the term of the node affinity that comes closest.
pub(super) fn unmet(pod: &Pod, node: &Node) -> Vec<Unmet> {
    let labels = &node.metadata.labels;
    let mut found: Vec<Unmet> = pod
        .spec
        .node_selector
        .iter()
        .filter(|(key, value)| labels.text(key) != Some(&***value))
        .map(|(key, value)| Unmet {
            field: format!("spec.nodeSelector.{key}"),
            requirement: Requirement {
                key: key.into(),
                operator: Operator::In,
                values: [value.clone()].into(),
            },
        })
        .collect();
    let Some(required) = node_affinity::required(&pod.spec) else { return found };
    if node_affinity::any_term_matches(required, labels, node.name()) {
        return found;
    }
    let terms = required.node_selector_terms.iter().enumerate();
    let closest = terms
        .map(|(at, term)| failing(term, at, labels))
        .filter(|failing| !failing.is_empty())
        .min_by_key(Vec::len);
    found.extend(closest.unwrap_or_default());
    found
}

fn failing(term: &NodeSelectorTerm, at: usize, labels: &Labels) -> Vec<Unmet> {
    let path = format!(
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{at}]"
    );
    let expressions = term.match_expressions.iter().enumerate();
    expressions
        .filter(|(_, requirement)| !selector::requirement_holds(requirement, labels))
        .map(|(number, requirement)| Unmet {
            field: format!("{path}.matchExpressions[{number}]"),
            requirement: requirement.clone(),
        })
        .collect()
}

fn label(pod: &Pod, object: String, node: &Node) -> Cause {
    let missing = unmet(pod, node);
    let Some(first) = missing.first() else {
        return Cause::new(Code::NodeNamed, object, "spec.affinity.nodeAffinity")
            .found(node.name(), "another node")
            .saying("the pod asks for certain nodes by name");
    };
    let wanted = say_requirement(&first.requirement);
    let key = &*first.requirement.key;
    match node.metadata.labels.text(key) {
        None => Cause::new(Code::LabelMissing, object, &first.field)
            .found(format!("no label {key}"), wanted.clone())
            .saying(format!("label {key} is missing, the pod asks for {wanted}")),
        Some(value) => Cause::new(Code::LabelDiffers, object, &first.field)
            .found(format!("{key}={value}"), wanted.clone())
            .saying(format!("label {key}={value}, the pod asks for {wanted}")),
    }
}

pub(super) fn say_requirement(requirement: &Requirement) -> String {
    let Requirement { key, operator, values } = requirement;
    let list = values.iter().map(|value| &**value).collect::<Vec<_>>().join(", ");
    match operator {
        Operator::In if values.len() == 1 => format!("{key}={list}"),
        Operator::In => format!("{key} in ({list})"),
        Operator::NotIn => format!("{key} not in ({list})"),
        Operator::Exists => format!("any {key}"),
        Operator::DoesNotExist => format!("no {key}"),
        Operator::Gt => format!("{key} > {list}"),
        Operator::Lt => format!("{key} < {list}"),
        Operator::Other => format!("{key} (operator not known)"),
    }
}

/// A resource that is short: name, wanted, free.
pub(super) fn shortages(request: &Amounts, capacity: &Amounts, used: &Amounts) -> Vec<(String, i64, i64)> {
    let mut free = capacity.clone();
    free.subtract(used);
    let short = request.entries().map(|(name, wanted)| (name.to_owned(), wanted, of(&free, name)));
    let mut short: Vec<_> = short.filter(|(_, wanted, free)| wanted > free).collect();
    // The resource of which the smallest share is there comes first.
    short.sort_by_key(|(name, wanted, free)| {
        (i128::from((*free).max(0)) * 1_000_000 / i128::from((*wanted).max(1)), name.clone())
    });
    short
}

pub(super) fn of(amounts: &Amounts, name: &str) -> i64 {
    match name {
        "cpu" => amounts.milli_cpu,
        "memory" => amounts.memory,
        "ephemeral-storage" => amounts.ephemeral_storage,
        "pods" => amounts.pods,
        _ => amounts.scalar(name),
    }
}

fn room(pod: &Pod, object: String, machine: &Machine<'_>, capacity: &Amounts, used: &Amounts) -> Cause {
    let request = requests::of_pending(pod);
    let short = shortages(&request, capacity, used);
    let Some((name, wanted, free)) = short.first() else {
        return Cause::new(
            Code::TooManyPods,
            format!("nodes/{}", machine.node.name()),
            "status.allocatable.pods",
        )
        .found(format!("{} of {} pods", used.pods, capacity.pods), "one more")
        .saying(format!("{} of {} pods are there already", used.pods, capacity.pods));
    };
    let (all, taken) = (of(capacity, name), of(used, name));
    let daemons = if taken > 0 {
        format!(" after {} for {}", amount::say(name, taken), machine.taken_by)
    } else {
        String::new()
    };
    let gives = if all == 0 { format!("no {name}") } else { amount::say(name, *free) };
    Cause::new(Code::ResourceShort, object, format!("spec.containers[].resources.requests.{name}"))
        .found(gives.clone(), amount::say(name, *wanted))
        .margin(amount::say(name, wanted.saturating_sub((*free).max(0))))
        .saying(format!("needs {}, {} gives {gives}{daemons}", amount::say(name, *wanted), machine.name))
}

/// Counts the domains of each hard constraint and names the one that is too uneven.
fn skew(pod: &Pod, object: String, node: &Node, world: &World<'_>, reasons: &str) -> Cause {
    for (at, constraint) in pod.spec.topology_spread_constraints.iter().enumerate() {
        if !spread::hard(pod).any(|hard| std::ptr::eq(hard, constraint)) {
            continue;
        }
        let field = format!("spec.topologySpreadConstraints[{at}]");
        let key = &*constraint.topology_key;
        let Some(own) = node.metadata.labels.text(key) else {
            return Cause::new(Code::Spread, object, field)
                .found(format!("no label {key}"), format!("a label {key}"))
                .saying(format!("label {key}, over which the pod spreads, is missing"));
        };
        let counted = spread::Counted::new(constraint, &pod.metadata.labels);
        let mut counts: std::collections::BTreeMap<&str, i64> = std::collections::BTreeMap::new();
        counts.entry(own).or_default();
        for index in world.present() {
            let state = world.node(index);
            let Some(domain) = state.node.metadata.labels.text(key) else { continue };
            if !spread::includes(constraint, pod, state.node) {
                continue;
            }
            let same = |other: &&&Pod| {
                other.metadata.namespace == pod.metadata.namespace
                    && !other.is_terminating()
                    && counted.matches(&other.metadata.labels)
            };
            *counts.entry(domain).or_default() +=
                i64::try_from(state.pods.iter().filter(same).count()).unwrap_or(i64::MAX);
        }
        let least = counts.values().copied().min().unwrap_or(0);
        let here = counts.get(own).copied().unwrap_or(0) + 1;
        if here - least > i64::from(constraint.max_skew) {
            let (emptiest, _) = counts.iter().min_by_key(|(_, count)| **count).unwrap_or((&"", &0));
            return Cause::new(Code::Spread, object, field)
                .found(format!("skew {}", here - least), format!("at most {}", constraint.max_skew))
                .margin((here - least - i64::from(constraint.max_skew)).to_string())
                .saying(format!(
                    "{key}={own} would have {here} of these pods, {key}={emptiest} has {least}; maxSkew is {}",
                    constraint.max_skew
                ));
        }
    }
    Cause::new(Code::Spread, object, "spec.topologySpreadConstraints")
        .found("too uneven", "even")
        .saying(reasons)
}

/// The cause of a judgement, if the machine refuses the pod.
pub(super) fn of_judgement(
    pod: &Pod,
    machine: &Machine<'_>,
    judgement: &Judgement,
    world: &World<'_>,
) -> Option<Cause> {
    let first = judgement.first.as_ref()?;
    let (capacity, used) = (&judgement.capacity, &judgement.used);
    Some(explain(pod, machine, first.plugin, &first.rejection, capacity, used, world))
}
