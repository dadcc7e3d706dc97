//! Groups pods by content: equal pods are one class, whoever owns them.
//!
//! Labels that no selector in the snapshot reads do not tell pods apart.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    hash::{Hash, Hasher},
    sync::Arc,
};

use muster_model::k8s::{Labels, Pod, WhenUnsatisfiable};

use super::{
    hash::{FixedHasher, FixedMap},
    look::Look,
};
use crate::fit::{Amounts, pod_affinity, requests};

/// Pods of equal content.
#[derive(Debug)]
pub struct PodClass<'a> {
    /// Any of them: they are alike in all that is read.
    pub pod: &'a Pod,
    pub request: Amounts,
    /// Indexes into the list they came from, by namespace, length of the name and name.
    pub members: Vec<u32>,
    /// Number of the pair of namespace and labels that selectors see.
    pub face: u32,
}

/// Distinct specs and label sets of the pods of one list.
#[derive(Debug, Default)]
struct Interner<'a> {
    by_pointer: FixedMap<usize, u32>,
    by_content: FixedMap<Hashed<'a>, u32>,
    specs: Vec<&'a Pod>,
    namespaces: FixedMap<&'a str, u32>,
    labels: FixedMap<Vec<Option<&'a str>>, u32>,
    faces: FixedMap<(u32, u32), u32>,
}

impl<'a> Interner<'a> {
    fn spec(&mut self, pod: &'a Pod) -> u32 {
        let shared = Arc::strong_count(&pod.spec) > 1;
        let pointer = Arc::as_ptr(&pod.spec) as usize;
        if shared && let Some(&id) = self.by_pointer.get(&pointer) {
            return id;
        }
        let look = Look::of(pod);
        let next = self.specs.len() as u32;
        let id = *self.by_content.entry(Hashed::new(look)).or_insert(next);
        if id == next {
            self.specs.push(pod);
        }
        if shared && !look.is_named() {
            self.by_pointer.insert(pointer, id);
        }
        id
    }
}

/// A look with its hash, which a growing map would otherwise work out again and again.
#[derive(Debug, PartialEq, Eq)]
struct Hashed<'a> {
    hash: u64,
    look: Look<'a>,
}

impl<'a> Hashed<'a> {
    fn new(look: Look<'a>) -> Self {
        let mut hasher = FixedHasher::default();
        look.hash(&mut hasher);
        Self { hash: hasher.finish(), look }
    }
}

impl Hash for Hashed<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Label keys that some selector of these pods reads.
pub(crate) fn keys_read<'a>(pods: impl Iterator<Item = &'a Pod>, keys: &mut BTreeSet<&'a str>) {
    for pod in pods {
        let spec = &pod.spec;
        let terms = pod_affinity::required(spec).iter().chain(pod_affinity::required_anti(spec));
        let soft = spec.affinity.iter().flat_map(|affinity| {
            let near = affinity.pod_affinity.iter().flat_map(|terms| terms.preferred.iter());
            let far = affinity.pod_anti_affinity.iter().flat_map(|terms| terms.preferred.iter());
            near.chain(far).map(|term| &term.pod_affinity_term)
        });
        for selector in terms.chain(soft).filter_map(|term| term.label_selector.as_ref()) {
            read_selector(selector, keys);
        }
        for constraint in &spec.topology_spread_constraints {
            if constraint.when_unsatisfiable == WhenUnsatisfiable::Other {
                continue;
            }
            keys.extend(constraint.match_label_keys.iter().map(|key| &**key));
            if let Some(selector) = &constraint.label_selector {
                read_selector(selector, keys);
            }
        }
    }
}

fn read_selector<'a>(selector: &'a muster_model::k8s::LabelSelector, keys: &mut BTreeSet<&'a str>) {
    keys.extend(selector.match_labels.iter().map(|(key, _)| key));
    keys.extend(selector.match_expressions.iter().map(|requirement| &*requirement.key));
}

/// Pods by what their specs decide.
#[derive(Debug, Default)]
pub(crate) struct Specs<'a> {
    /// One pod of each, for collecting what they read.
    pub(crate) distinct: Vec<&'a Pod>,
    /// The spec of every pod.
    of: Vec<u32>,
}

impl<'a> Specs<'a> {
    pub(crate) fn new(pods: &[&'a Pod]) -> Self {
        let mut interner = Interner::default();
        let of = pods.iter().map(|pod| interner.spec(pod)).collect();
        Self { distinct: interner.specs, of }
    }
}

/// What tells classes apart: spec, namespace and labels.
type Key = (u32, u32, u32);

/// Groups pods, in the order in which they are met. `keys` are the label keys that matter.
pub(crate) fn group<'a>(pods: &[&'a Pod], specs: &Specs<'a>, keys: &BTreeSet<&'a str>) -> Vec<PodClass<'a>> {
    let mut interner = Interner::default();
    let mut classes: Vec<PodClass<'a>> = Vec::new();
    // Classes whose pods do not come by name. Looked at pod by pod, while names are still at hand.
    let mut mixed: Vec<bool> = Vec::new();
    let mut known: FixedMap<Key, u32> = FixedMap::default();
    let mut last: Option<(Key, u32)> = None;
    let mut space: Option<(&'a Arc<str>, u32)> = None;
    let mut projected: Vec<Option<&'a str>> = Vec::with_capacity(keys.len());
    for (index, pod) in pods.iter().copied().enumerate() {
        let namespace = match space {
            Some((name, id)) if Arc::ptr_eq(name, &pod.metadata.namespace) => id,
            _ => {
                let next = interner.namespaces.len() as u32;
                *interner.namespaces.entry(&*pod.metadata.namespace).or_insert(next)
            }
        };
        space = Some((&pod.metadata.namespace, namespace));
        let labels = project(&mut interner, keys, &pod.metadata.labels, &mut projected);
        let key = (specs.of[index], namespace, labels);
        let class = match last {
            Some((previous, class)) if previous == key => class,
            _ => {
                let next = classes.len() as u32;
                let class = *known.entry(key).or_insert(next);
                if class == next {
                    let next_face = interner.faces.len() as u32;
                    let face = *interner.faces.entry((namespace, labels)).or_insert(next_face);
                    classes.push(PodClass { pod, request: request(pod), members: Vec::new(), face });
                    mixed.push(false);
                }
                last = Some((key, class));
                class
            }
        };
        let members = &mut classes[class as usize].members;
        if let Some(&last) = members.last() {
            mixed[class as usize] |= by_name(pods[last as usize], pod).is_gt();
        }
        members.push(index as u32);
    }
    for (class, _) in classes.iter_mut().zip(mixed).filter(|(_, mixed)| *mixed) {
        class.members.sort_unstable_by(|&a, &b| by_name(pods[a as usize], pods[b as usize]));
    }
    classes
}

fn project<'a>(
    interner: &mut Interner<'a>,
    keys: &BTreeSet<&'a str>,
    labels: &'a Labels,
    projected: &mut Vec<Option<&'a str>>,
) -> u32 {
    if keys.is_empty() {
        return 0;
    }
    projected.clear();
    projected.extend(keys.iter().map(|key| labels.text(key)));
    if let Some(&id) = interner.labels.get(projected) {
        return id;
    }
    let id = interner.labels.len() as u32;
    interner.labels.insert(projected.clone(), id);
    id
}

/// Namespace, then names as people count them: `web-2` before `web-10`.
pub(crate) fn name_key(pod: &Pod) -> (&str, usize, &str) {
    (&pod.metadata.namespace, pod.metadata.name.len(), &pod.metadata.name)
}

/// The order of classes: priority, size, then the name of the first pod. `requests` are amounts by lane.
pub(crate) fn order(pods: &[&Pod], classes: &[PodClass<'_>], requests: &[Vec<i64>]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..classes.len() as u32).collect();
    let priority = |at: u32| classes[at as usize].pod.spec.priority.unwrap_or(0);
    let first = |at: u32| name_key(pods[classes[at as usize].members[0] as usize]);
    order.sort_unstable_by(|&a, &b| {
        let size = || requests[b as usize].cmp(&requests[a as usize]);
        priority(b).cmp(&priority(a)).then_with(size).then_with(|| first(a).cmp(&first(b)))
    });
    order
}

fn by_name(one: &Pod, other: &Pod) -> Ordering {
    if Arc::ptr_eq(&one.metadata.namespace, &other.metadata.namespace) {
        let (one, other) = (&one.metadata.name, &other.metadata.name);
        return one.len().cmp(&other.len()).then_with(|| one.cmp(other));
    }
    name_key(one).cmp(&name_key(other))
}

/// The request of a pending pod; the common pod with one container without detours.
fn request(pod: &Pod) -> Amounts {
    let spec = &pod.spec;
    match &*spec.containers {
        [only] if spec.init_containers.is_empty() && spec.resources.is_none() && spec.overhead.is_empty() => {
            let mut amounts = Amounts::rounded(&only.resources.requests);
            amounts.milli_cpu = amounts.milli_cpu.max(0);
            amounts.memory = amounts.memory.max(0);
            amounts.ephemeral_storage = amounts.ephemeral_storage.max(0);
            amounts.scalars.retain(|_, amount| *amount > 0);
            amounts
        }
        _ => requests::of_pending(pod),
    }
}
