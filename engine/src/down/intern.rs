//! Bound pods as classes: pods that the scheduler would treat alike, wherever they run now.
//!
//! The node a pod is bound to, its volumes and what only the kubelet reads do not tell classes apart;
//! volumes are judged apart.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
    sync::Arc,
};

use muster_model::k8s::{List, ObjectMeta, Pod, PodSpec};

use crate::plan::{classes, hash::FixedMap};

/// A spec as far as it decides where its pod may go.
#[derive(Debug, Clone, Copy)]
struct Placing<'a>(&'a PodSpec);

macro_rules! placing {
    ($spec:expr => $($field:ident),*) => {{
        let PodSpec { $($field,)* node_name: _, volumes: _, preemption_policy: _, priority_class_name: _,
            runtime_class_name: _, scheduler_name: _, scheduling_gates: _, scheduling_group: _,
            termination_grace_period_seconds: _, host_network: _ } = $spec;
        ($($field,)*)
    }};
}

impl<'a> Placing<'a> {
    fn parts(self) -> impl Hash + Eq + use<'a> {
        placing!(self.0 => containers, init_containers, node_selector, affinity, topology_spread_constraints,
            tolerations, resources, overhead, host_users, priority, resource_claims, restart_policy)
    }
}

impl Hash for Placing<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for Placing<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || self.parts() == other.parts()
    }
}

impl Eq for Placing<'_> {}

/// Pods by what decides their place.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    /// One pod of each kind, free of node and volumes.
    pub(crate) examples: Vec<Pod>,
    /// The example of every pod.
    pub(crate) of: Vec<u32>,
}

/// Groups pods. `guards` are other pods whose selectors may tell them apart.
pub(crate) fn intern<'a>(pods: &[&'a Pod], guards: impl Iterator<Item = &'a Pod>) -> Interned {
    let mut by_spec: FixedMap<Placing<'a>, u32> = FixedMap::default();
    let mut specs: Vec<&'a Pod> = Vec::new();
    let spec_of: Vec<u32> = pods
        .iter()
        .map(|pod| {
            *by_spec.entry(Placing(&pod.spec)).or_insert_with(|| {
                specs.push(pod);
                specs.len() as u32 - 1
            })
        })
        .collect();
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    classes::keys_read(specs.iter().copied().chain(guards), &mut keys);
    let keys: Vec<&str> = keys.into_iter().collect();
    let mut namespaces: FixedMap<&str, u32> = FixedMap::default();
    let mut labels: FixedMap<Vec<Option<&str>>, u32> = FixedMap::default();
    let mut known: FixedMap<(u32, u32, u32), u32> = FixedMap::default();
    let mut interned = Interned::default();
    let mut seen: Vec<Option<&str>> = Vec::with_capacity(keys.len());
    for (pod, &spec) in pods.iter().zip(&spec_of) {
        let next = namespaces.len() as u32;
        let namespace = *namespaces.entry(&pod.metadata.namespace).or_insert(next);
        seen.clear();
        seen.extend(keys.iter().map(|key| pod.metadata.labels.text(key)));
        let next = labels.len() as u32;
        let face = if let Some(&face) = labels.get(&seen) {
            face
        } else {
            labels.insert(seen.clone(), next);
            next
        };
        let id = *known.entry((spec, namespace, face)).or_insert_with(|| {
            interned.examples.push(unbound(pod));
            interned.examples.len() as u32 - 1
        });
        interned.of.push(id);
    }
    interned
}

/// The pod as its controller would make it again, volumes aside.
fn unbound(pod: &Pod) -> Pod {
    let spec = PodSpec { node_name: None, volumes: List::default(), ..PodSpec::clone(&pod.spec) };
    let metadata = ObjectMeta {
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        labels: pod.metadata.labels.clone(),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: Arc::new(spec), ..Pod::default() }
}
