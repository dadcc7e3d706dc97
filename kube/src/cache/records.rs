//! How each kind is asked for, read and kept.

use std::{net::IpAddr, sync::Arc};

use muster_model::{
    Timestamp,
    k8s::{
        CsiDriver, CsiNode, CsiStorageCapacity, DaemonSet, Job, Namespace, Node, PersistentVolume,
        PersistentVolumeClaim, Pod, PodDisruptionBudget, PodGroup, PodGroupApi, PriorityClass, ReadError,
        ReplicaSet, RuntimeClass, StatefulSet, StorageClass, VolumeAttachment, from_json,
    },
};
use serde::Deserialize;

use super::{Key, Seen, State};

/// How a kind is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// As an object names its kind.
    pub(crate) kind: &'static str,
    /// As the API names it.
    pub(crate) plural: &'static str,
    pub(crate) path: &'static str,
    /// Where other versions of Kubernetes serve the same, tried in this order.
    pub(crate) elsewhere: &'static [&'static str],
    /// Narrows what is sent; joined to the query with `&`.
    pub(crate) narrow: &'static str,
    pub(crate) need: Need,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing is decided without it.
    Always,
    /// A cluster that does not serve this kind has none of them.
    IfServed,
    /// The same for one that has never let us see it: what hangs on it is known well enough without.
    IfShown,
}

/// One kind of object that is watched.
pub(crate) trait Record: Sized + Send + 'static {
    const SPEC: Spec;

    fn read(text: &[u8]) -> Result<Self, ReadError>;
    /// Keeps it. Says whether that is news.
    fn put(self, state: &mut State, key: Key, how: Seen, now: Timestamp) -> bool;
    fn remove(state: &mut State, key: &Key) -> bool;
    fn keys(state: &State) -> Vec<Key>;
    fn count(state: &State) -> usize;
}

macro_rules! plain {
    ($($record:ty, $field:ident, $kind:literal, $plural:literal, $path:literal, $need:ident);+ $(;)?) => {
        $(impl Record for $record {
            const SPEC: Spec =
                Spec { kind: $kind, plural: $plural, path: $path, elsewhere: &[], narrow: "", need: Need::$need };

            fn read(text: &[u8]) -> Result<Self, ReadError> {
                from_json($kind, text)
            }
            fn put(self, state: &mut State, key: Key, _: Seen, _: Timestamp) -> bool {
                state.tables.$field.put(key, self)
            }
            fn remove(state: &mut State, key: &Key) -> bool {
                state.tables.$field.remove(key)
            }
            fn keys(state: &State) -> Vec<Key> {
                state.tables.$field.keys().cloned().collect()
            }
            fn count(state: &State) -> usize {
                state.tables.$field.len()
            }
        })+
    };
}
plain! {
    Namespace, namespaces, "Namespace", "namespaces", "/api/v1/namespaces", Always;
    PersistentVolume, volumes, "PersistentVolume", "persistentvolumes", "/api/v1/persistentvolumes", Always;
    PersistentVolumeClaim, claims, "PersistentVolumeClaim", "persistentvolumeclaims",
        "/api/v1/persistentvolumeclaims", Always;
    StorageClass, storage_classes, "StorageClass", "storageclasses",
        "/apis/storage.k8s.io/v1/storageclasses", Always;
    CsiNode, csi_nodes, "CSINode", "csinodes", "/apis/storage.k8s.io/v1/csinodes", Always;
    CsiDriver, csi_drivers, "CSIDriver", "csidrivers", "/apis/storage.k8s.io/v1/csidrivers", IfServed;
    CsiStorageCapacity, storage_capacities, "CSIStorageCapacity", "csistoragecapacities",
        "/apis/storage.k8s.io/v1/csistoragecapacities", IfServed;
    VolumeAttachment, volume_attachments, "VolumeAttachment", "volumeattachments",
        "/apis/storage.k8s.io/v1/volumeattachments", IfServed;
    PodDisruptionBudget, budgets, "PodDisruptionBudget", "poddisruptionbudgets",
        "/apis/policy/v1/poddisruptionbudgets", Always;
    DaemonSet, daemon_sets, "DaemonSet", "daemonsets", "/apis/apps/v1/daemonsets", Always;
    ReplicaSet, replica_sets, "ReplicaSet", "replicasets", "/apis/apps/v1/replicasets", Always;
    StatefulSet, stateful_sets, "StatefulSet", "statefulsets", "/apis/apps/v1/statefulsets", Always;
    Job, jobs, "Job", "jobs", "/apis/batch/v1/jobs", Always;
    PriorityClass, priority_classes, "PriorityClass", "priorityclasses",
        "/apis/scheduling.k8s.io/v1/priorityclasses", Always;
    RuntimeClass, runtime_classes, "RuntimeClass", "runtimeclasses",
        "/apis/node.k8s.io/v1/runtimeclasses", IfServed;
}

impl Record for Pod {
    const SPEC: Spec = Spec {
        kind: "Pod",
        plural: "pods",
        path: "/api/v1/pods",
        elsewhere: &[],
        // Finished pods hold nothing; a pod that finishes arrives as a deletion.
        narrow: "fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed",
        need: Need::Always,
    };

    fn read(text: &[u8]) -> Result<Self, ReadError> {
        from_json("Pod", text)
    }
    fn put(mut self, state: &mut State, key: Key, _: Seen, _: Timestamp) -> bool {
        self.spec = state.intern(self.spec);
        state.tables.pods.put(key, self)
    }
    fn remove(state: &mut State, key: &Key) -> bool {
        state.tables.pods.remove(key)
    }
    fn keys(state: &State) -> Vec<Key> {
        state.tables.pods.keys().cloned().collect()
    }
    fn count(state: &State) -> usize {
        state.tables.pods.len()
    }
}

/// A `PodGroup` of one of the APIs that have that kind. All of them are in one table, the API before the name.
macro_rules! pod_groups {
    ($($(#[$doc:meta])* $record:ident, $api:ident, $plural:literal, $path:literal, $elsewhere:expr);+ $(;)?) => {
        $($(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $record(PodGroup);

        impl $record {
            const PREFIX: &'static str = concat!($plural, "/");

            fn key(key: &Key) -> Key {
                let name = format!("{}{}", Self::PREFIX, key.name).into();
                Key { namespace: Arc::clone(&key.namespace), name }
            }
        }

        impl Record for $record {
            const SPEC: Spec = Spec {
                kind: "PodGroup", plural: $plural, path: $path, elsewhere: $elsewhere, narrow: "", need: Need::IfShown,
            };

            fn read(text: &[u8]) -> Result<Self, ReadError> {
                let mut group: PodGroup = from_json("PodGroup", text)?;
                // Items of a page do not say what they are.
                group.api_version = PodGroupApi::$api.group().into();
                Ok(Self(group))
            }
            fn put(self, state: &mut State, key: Key, _: Seen, _: Timestamp) -> bool {
                state.tables.pod_groups.put(Self::key(&key), self.0)
            }
            fn remove(state: &mut State, key: &Key) -> bool {
                state.tables.pod_groups.remove(&Self::key(key))
            }
            fn keys(state: &State) -> Vec<Key> {
                let ours = state.tables.pod_groups.keys().filter_map(|key| {
                    let name = key.name.strip_prefix(Self::PREFIX)?.into();
                    Some(Key { namespace: Arc::clone(&key.namespace), name })
                });
                ours.collect()
            }
            fn count(state: &State) -> usize {
                state.tables.pod_groups.keys().filter(|key| key.name.starts_with(Self::PREFIX)).count()
            }
        })+
    };
}
pod_groups! {
    /// Kubernetes' own: beta in 1.37, and alpha, if somebody switches it on, in 1.36.
    KubernetesPodGroup, Kubernetes, "podgroups", "/apis/scheduling.k8s.io/v1beta1/podgroups",
        &["/apis/scheduling.k8s.io/v1alpha2/podgroups"];
    /// Of the scheduler plugin coscheduling.
    CoschedulingPodGroup, Coscheduling, "podgroups.scheduling.x-k8s.io",
        "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", &[];
    /// Of Volcano.
    VolcanoPodGroup, Volcano, "podgroups.scheduling.volcano.sh",
        "/apis/scheduling.volcano.sh/v1beta1/podgroups", &[];
}

/// A node with its addresses.
#[derive(Debug)]
pub(crate) struct NodeRecord {
    node: Node,
    addresses: Box<[IpAddr]>,
}

#[derive(Deserialize)]
struct NodeExtras {
    #[serde(default)]
    status: AddressStatus,
}

#[derive(Default, Deserialize)]
struct AddressStatus {
    #[serde(default)]
    addresses: Option<Vec<Address>>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(default)]
    address: String,
}

impl Record for NodeRecord {
    const SPEC: Spec = Spec {
        kind: "Node",
        plural: "nodes",
        path: "/api/v1/nodes",
        elsewhere: &[],
        narrow: "",
        need: Need::Always,
    };

    fn read(text: &[u8]) -> Result<Self, ReadError> {
        let node = from_json("Node", text)?;
        let extras: NodeExtras = from_json("Node", text)?;
        let addresses = extras.status.addresses.unwrap_or_default();
        Ok(Self { node, addresses: addresses.iter().filter_map(|one| one.address.parse().ok()).collect() })
    }
    fn put(self, state: &mut State, key: Key, _: Seen, _: Timestamp) -> bool {
        state.addresses.insert(Arc::clone(&key.name), self.addresses);
        state.tables.nodes.put(key, self.node)
    }
    fn remove(state: &mut State, key: &Key) -> bool {
        state.addresses.remove(&key.name);
        state.tables.nodes.remove(key)
    }
    fn keys(state: &State) -> Vec<Key> {
        state.tables.nodes.keys().cloned().collect()
    }
    fn count(state: &State) -> usize {
        state.tables.nodes.len()
    }
}

/// A kubelet's sign of life.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Option<Timestamp>,
}

impl Record for Lease {
    const SPEC: Spec = Spec {
        kind: "Lease",
        plural: "leases",
        path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        elsewhere: &[],
        narrow: "",
        need: Need::Always,
    };

    fn read(text: &[u8]) -> Result<Self, ReadError> {
        from_json("Lease", text)
    }
    fn put(self, state: &mut State, key: Key, how: Seen, now: Timestamp) -> bool {
        state.note_lease(&key.name, self.spec.renew_time, how, now)
    }
    fn remove(state: &mut State, key: &Key) -> bool {
        state.drop_lease(&key.name)
    }
    fn keys(state: &State) -> Vec<Key> {
        let namespace: Arc<str> = "kube-node-lease".into();
        let key = |name: &Arc<str>| Key { namespace: Arc::clone(&namespace), name: Arc::clone(name) };
        state.leases.keys().map(key).collect()
    }
    fn count(state: &State) -> usize {
        state.leases.len()
    }
}
