//! A cluster that is loaded once and planned many times.
//!
//! Bound pods are most of a snapshot, and a plan for pending pods reads next to nothing of each. Here they
//! are a record of a few bytes each, with one example per class of equal pods; a plan starts from counts
//! per node. What the planner does with them is the same: a plan on loaded state equals the plan on the
//! snapshot that it was loaded from.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use muster_model::k8s::{ObjectMeta, Pod, PodKey, PodSpec, PodStatus};

use super::{
    decide::{Decision, Explain, decide},
    hash::{FixedHasher, FixedMap},
    look::{self, Look},
    scene::Pods,
    translate::Running,
};
use crate::snapshot::Snapshot;

/// A pod on a node.
#[derive(Debug, Clone, Copy)]
struct Record {
    class: u32,
    node: u32,
    /// Where its name starts in the arena, and how long it is. The namespace is the class's.
    name: u32,
    length: u16,
}

/// Free slots in the list of records, and pods whose node is not known, have no node.
const NOWHERE: u32 = u32::MAX;
/// An arena with less garbage than this is left alone.
const SMALL: usize = 1 << 12;

/// Everything a plan reads, with bound pods in a compact form.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Everything but the bound pods.
    frame: Snapshot,
    places: FixedMap<Arc<str>, u32>,
    /// One pod of each class, free of its node and of what nobody reads.
    examples: Vec<Pod>,
    by_look: FixedMap<u64, u32>,
    records: Vec<Record>,
    by_name: FixedMap<u64, u32>,
    names: String,
    /// Bytes of the arena that belong to nobody.
    garbage: usize,
    /// Classes on each node, with the number of their pods.
    on: Vec<Vec<(u32, u32)>>,
}

impl Loaded {
    /// Takes a snapshot in. Its bound pods are stored compactly, everything else as it is.
    pub fn new(mut snapshot: Snapshot) -> Self {
        let pods = std::mem::take(&mut snapshot.cluster.pods);
        let places = snapshot.cluster.nodes.iter().map(|node| node.metadata.name.clone()).zip(0..).collect();
        let on = vec![Vec::new(); snapshot.cluster.nodes.len()];
        let mut loaded = Self { frame: snapshot, places, on, ..Self::default() };
        for pod in pods {
            loaded.add(pod);
        }
        loaded
    }

    /// Everything but the bound pods.
    pub fn frame(&self) -> &Snapshot {
        &self.frame
    }

    /// Number of bound pods.
    pub fn bound(&self) -> usize {
        self.by_name.len()
    }

    /// Number of classes of bound pods.
    pub fn classes(&self) -> usize {
        self.examples.len()
    }

    /// Bytes that names of bound pods take.
    #[cfg(test)]
    pub(crate) fn arena(&self) -> usize {
        self.names.len()
    }

    /// Takes a pod in, bound or pending. A bound one that is known already is replaced.
    pub fn add(&mut self, pod: Pod) {
        if pod.spec.node_name.is_none() {
            self.frame.cluster.pods.push(pod);
            return;
        }
        self.remove(&pod.metadata.namespace, &pod.metadata.name);
        if pod.is_finished() {
            return;
        }
        let place = pod.spec.node_name.as_deref().and_then(|name| self.places.get(name)).copied();
        let node = place.unwrap_or(NOWHERE);
        let class = self.class(&pod);
        let name = self.names.len() as u32;
        let length = u16::try_from(pod.metadata.name.len()).unwrap_or(u16::MAX);
        self.names.push_str(&pod.metadata.name[..usize::from(length)]);
        let slot = self.records.len() as u32;
        self.records.push(Record { class, node, name, length });
        let key = self.free_key(&pod.metadata.namespace, &pod.metadata.name);
        self.by_name.insert(key, slot);
        if node != NOWHERE {
            let here = &mut self.on[node as usize];
            match here.iter_mut().find(|(other, _)| *other == class) {
                Some(entry) => entry.1 += 1,
                None => here.push((class, 1)),
            }
        }
    }

    /// Takes a bound pod out; says whether it was there.
    pub fn remove(&mut self, namespace: &str, name: &str) -> bool {
        let Some((key, slot)) = self.find(namespace, name) else { return false };
        let Record { class, node, .. } = self.records[slot as usize];
        if node != NOWHERE {
            let here = &mut self.on[node as usize];
            if let Some(at) = here.iter().position(|(other, _)| *other == class) {
                here[at].1 -= 1;
                if here[at].1 == 0 {
                    here.swap_remove(at);
                }
            }
        }
        self.forget(key, slot);
        true
    }

    /// Takes a pending pod out; says whether it was there.
    pub fn remove_pending(&mut self, key: &PodKey) -> bool {
        let pods = &mut self.frame.cluster.pods;
        let before = pods.len();
        pods.retain(|pod| pod.metadata.name != key.name || pod.metadata.namespace != key.namespace);
        pods.len() < before
    }

    /// Plans machines for the pending pods, as [`super::scale_up`] does for a snapshot.
    pub fn scale_up(&self, explain: Explain) -> Decision {
        let pending = self.frame.cluster.pods.iter().filter(|pod| pod.is_pending()).collect();
        let mut running = Vec::with_capacity(self.on.iter().map(Vec::len).sum());
        for (here, node) in self.on.iter().zip(0..) {
            running.extend(here.iter().map(|&(class, count)| Running {
                pod: &self.examples[class as usize],
                node,
                count,
                class: Some(class),
            }));
        }
        decide(&self.frame, Pods { pending, running }, explain)
    }

    /// The class of a bound pod; makes one if it is the first of its kind.
    fn class(&mut self, pod: &Pod) -> u32 {
        let mut key = Seen(pod).hash_key();
        loop {
            match self.by_look.get(&key) {
                Some(&class) if Seen(&self.examples[class as usize]) == Seen(pod) => return class,
                Some(_) => key = key.wrapping_add(1),
                None => break,
            }
        }
        let class = self.examples.len() as u32;
        self.examples.push(example(pod));
        self.by_look.insert(key, class);
        class
    }

    fn name(&self, record: &Record) -> (&str, &str) {
        let from = record.name as usize;
        let name = &self.names[from..from + usize::from(record.length)];
        (&self.examples[record.class as usize].metadata.namespace, name)
    }

    fn find(&self, namespace: &str, name: &str) -> Option<(u64, u32)> {
        let mut key = name_key(namespace, name);
        loop {
            let &slot = self.by_name.get(&key)?;
            if self.name(&self.records[slot as usize]) == (namespace, name) {
                return Some((key, slot));
            }
            key = key.wrapping_add(1);
        }
    }

    fn free_key(&self, namespace: &str, name: &str) -> u64 {
        let mut key = name_key(namespace, name);
        while self.by_name.contains_key(&key) {
            key = key.wrapping_add(1);
        }
        key
    }

    /// Removes a record; the last one takes its slot, and keys that had to give way move up.
    fn forget(&mut self, key: u64, slot: u32) {
        self.by_name.remove(&key);
        let mut next = key.wrapping_add(1);
        while let Some(other) = self.by_name.remove(&next) {
            let (namespace, name) = self.name(&self.records[other as usize]);
            let free = self.free_key(namespace, name);
            self.by_name.insert(free, other);
            next = next.wrapping_add(1);
        }
        let end = self.records.len() as u32 - 1;
        if slot != end {
            let (namespace, name) = self.name(&self.records[end as usize]);
            if let Some((moved, _)) = self.find(namespace, name) {
                self.by_name.insert(moved, slot);
            }
        }
        let gone = self.records.swap_remove(slot as usize);
        self.garbage += usize::from(gone.length);
        if self.garbage > SMALL && self.garbage * 2 > self.names.len() {
            self.sweep();
        }
    }

    /// Writes the names anew, without those of pods that are gone.
    fn sweep(&mut self) {
        let mut names = String::with_capacity(self.names.len() - self.garbage);
        for record in &mut self.records {
            let from = record.name as usize;
            record.name = names.len() as u32;
            names.push_str(&self.names[from..from + usize::from(record.length)]);
        }
        self.names = names;
        self.garbage = 0;
    }
}

fn name_key(namespace: &str, name: &str) -> u64 {
    let mut hasher = FixedHasher::default();
    (namespace, name).hash(&mut hasher);
    hasher.finish()
}

/// A bound pod as far as a plan for others reads it.
struct Seen<'a>(&'a Pod);

impl Seen<'_> {
    fn hash_key(&self) -> u64 {
        let mut hasher = FixedHasher::default();
        Look::anywhere(self.0).hash(&mut hasher);
        self.rest().hash(&mut hasher);
        hasher.finish()
    }

    fn rest(&self) -> impl Hash + Eq + '_ {
        let Pod { metadata, status, .. } = self.0;
        let owner =
            metadata.controller().filter(|owner| &*owner.kind == "DaemonSet").map(|owner| &owner.name);
        let resized = is_resized(status).then_some(status);
        (&*metadata.namespace, &metadata.labels, metadata.deletion_timestamp.is_some(), owner, resized)
    }
}

impl PartialEq for Seen<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rest() == other.rest() && Look::anywhere(self.0) == Look::anywhere(other.0)
    }
}

fn is_resized(status: &PodStatus) -> bool {
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    status.resources.is_some() || containers.into_iter().any(|status| status.resources.is_some())
}

/// One pod for all of its class.
fn example(pod: &Pod) -> Pod {
    let volumes = pod.spec.volumes.iter().filter(|volume| look::concerns(&volume.source));
    let spec = PodSpec { volumes: volumes.cloned().collect(), ..PodSpec::clone(&pod.spec) };
    let metadata = ObjectMeta {
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        labels: pod.metadata.labels.clone(),
        annotations: pod.metadata.annotations.clone(),
        owner_references: pod.metadata.owner_references.clone(),
        deletion_timestamp: pod.metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    let status = if is_resized(&pod.status) { pod.status.clone() } else { PodStatus::default() };
    Pod { metadata, spec: Arc::new(spec), status }
}
