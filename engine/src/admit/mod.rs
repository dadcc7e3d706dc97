//! What the API server would make of a pod that so far exists only as a template.
//!
//! The scheduler judges pods as they are stored: defaulted, with priority and runtime class resolved and
//! label keys merged into selectors. A simulated pod has to be brought into that form first.
//! Deliberately absent: limit ranges, quotas, webhooks and everything that does not change where a pod
//! may run.

mod daemon;
mod defaults;

use std::sync::Arc;

use muster_model::k8s::{ObjectMeta, Pod, PodSpec, PodTemplate, PriorityClass, RuntimeClass};
use thiserror::Error;

pub use daemon::{daemon_pod, wants_node};

/// Classes that pods refer to by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Classes<'a> {
    pub priority: &'a [PriorityClass],
    pub runtime: &'a [RuntimeClass],
}

/// Why the API server would not take the pod.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("priority class {name:?} does not exist; create it or name another in spec.priorityClassName")]
    PriorityClass { name: String },
    #[error("runtime class {name:?} does not exist; create it or name another in spec.runtimeClassName")]
    RuntimeClass { name: String },
    #[error(
        "spec.nodeSelector[{key:?}] is {pod:?}, but the runtime class demands {class:?}; make them agree"
    )]
    NodeSelector { key: String, pod: String, class: String },
    #[error("spec.overhead differs from that of runtime class {name:?}; leave it out")]
    Overhead { name: String },
    #[error("spec.priority is {found}, but the priority class says {expected}; leave it out")]
    Priority { found: i32, expected: i32 },
}

/// The pod that a controller would create from its template, before admission.
pub fn instance(template: &PodTemplate, namespace: &str, name: &str) -> Pod {
    let metadata = ObjectMeta { name: name.into(), namespace: namespace.into(), ..template.metadata.clone() };
    Pod { metadata, spec: Arc::clone(&template.spec), status: muster_model::k8s::PodStatus::default() }
}

/// The pod as it would be stored.
pub fn admit(mut pod: Pod, classes: Classes<'_>) -> Result<Pod, Refused> {
    let spec = Arc::make_mut(&mut pod.spec);
    set_runtime_class(spec, classes.runtime)?;
    set_priority(spec, classes.priority)?;
    defaults::round_amounts(spec);
    defaults::requests_from_limits(spec);
    defaults::add_tolerations(spec);
    if spec.host_network {
        defaults::host_ports(spec);
    }
    defaults::pod_level_resources(&mut pod);
    let labels = pod.metadata.labels.clone();
    defaults::merge_label_keys(Arc::make_mut(&mut pod.spec), &labels);
    Ok(pod)
}

fn set_runtime_class(spec: &mut PodSpec, classes: &[RuntimeClass]) -> Result<(), Refused> {
    let Some(name) = spec.runtime_class_name.clone() else { return Ok(()) };
    let Some(class) = classes.iter().find(|class| *class.metadata.name == *name) else {
        return Err(Refused::RuntimeClass { name: name.into() });
    };
    if let Some(overhead) = &class.overhead {
        if !spec.overhead.is_empty() && spec.overhead != overhead.pod_fixed {
            return Err(Refused::Overhead { name: name.into() });
        }
        spec.overhead = overhead.pod_fixed.clone();
    }
    let Some(scheduling) = &class.scheduling else { return Ok(()) };
    for (key, wanted) in scheduling.node_selector.iter() {
        if let Some(found) = spec.node_selector.text(key).filter(|found| *found != &**wanted) {
            let (pod, class) = (found.to_owned(), wanted.to_string());
            return Err(Refused::NodeSelector { key: key.to_owned(), pod, class });
        }
        spec.node_selector.insert(key, wanted.clone());
    }
    let missing = scheduling.tolerations.iter().filter(|toleration| !spec.tolerations.contains(toleration));
    spec.tolerations = spec.tolerations.iter().chain(missing).cloned().collect();
    Ok(())
}

/// Classes that every cluster has.
const SYSTEM_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

fn set_priority(spec: &mut PodSpec, classes: &[PriorityClass]) -> Result<(), Refused> {
    let (value, policy) = match &spec.priority_class_name {
        Some(name) => {
            let class = classes.iter().find(|class| *class.metadata.name == **name);
            let system = SYSTEM_CLASSES.iter().find(|(system, _)| *system == &**name);
            match (class, system) {
                (Some(class), _) => (class.value, Some(class.preemption_policy.clone())),
                (None, Some((_, value))) => (*value, None),
                (None, None) => return Err(Refused::PriorityClass { name: name.to_string() }),
            }
        }
        // Of several default classes the smallest value counts.
        None => match classes.iter().filter(|class| class.global_default).min_by_key(|class| class.value) {
            Some(class) => (class.value, Some(class.preemption_policy.clone())),
            None => (0, None),
        },
    };
    if let Some(found) = spec.priority.filter(|found| *found != value) {
        return Err(Refused::Priority { found, expected: value });
    }
    spec.priority = Some(value);
    if spec.preemption_policy.is_none() {
        spec.preemption_policy = policy.filter(|policy| !policy.is_empty());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
