//! The records of each kind, and which kinds changed since the last view.

use std::collections::BTreeMap;

use muster_model::k8s::{
    CsiDriver, CsiNode, CsiStorageCapacity, DaemonSet, Job, Namespace, Node, Objects, PersistentVolume,
    PersistentVolumeClaim, Pod, PodDisruptionBudget, PodGroup, PriorityClass, ReplicaSet, RuntimeClass,
    StatefulSet, StorageClass, VolumeAttachment,
};

use super::Key;

/// Records of one kind in the order of their names.
#[derive(Debug)]
pub(crate) struct Table<T> {
    records: BTreeMap<Key, T>,
    dirty: bool,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { records: BTreeMap::new(), dirty: false }
    }
}

impl<T: Clone + PartialEq> Table<T> {
    /// Whether anything changed.
    pub(crate) fn put(&mut self, key: Key, record: T) -> bool {
        let changed = self.records.get(&key) != Some(&record);
        if changed {
            self.records.insert(key, record);
            self.dirty = true;
        }
        changed
    }

    pub(crate) fn remove(&mut self, key: &Key) -> bool {
        let changed = self.records.remove(key).is_some();
        self.dirty |= changed;
        changed
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&T> {
        self.records.get(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.records.keys()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.records.values()
    }

    fn build(&mut self, into: &mut Vec<T>) {
        if std::mem::take(&mut self.dirty) {
            into.clear();
            into.extend(self.records.values().cloned());
        }
    }
}

macro_rules! tables {
    ($($field:ident: $record:ty),+ $(,)?) => {
        /// One table per kind that a snapshot has.
        #[derive(Debug, Default)]
        pub(crate) struct Tables {
            $(pub(crate) $field: Table<$record>,)+
        }

        impl Tables {
            pub(super) fn is_dirty(&self) -> bool {
                false $(|| self.$field.dirty)+
            }

            pub(super) fn build(&mut self, objects: &mut Objects) {
                $(self.$field.build(&mut objects.$field);)+
            }
        }
    };
}
tables! {
    nodes: Node,
    pods: Pod,
    namespaces: Namespace,
    volumes: PersistentVolume,
    claims: PersistentVolumeClaim,
    storage_classes: StorageClass,
    csi_nodes: CsiNode,
    csi_drivers: CsiDriver,
    storage_capacities: CsiStorageCapacity,
    volume_attachments: VolumeAttachment,
    budgets: PodDisruptionBudget,
    daemon_sets: DaemonSet,
    replica_sets: ReplicaSet,
    stateful_sets: StatefulSet,
    jobs: Job,
    priority_classes: PriorityClass,
    runtime_classes: RuntimeClass,
    pod_groups: PodGroup,
}
