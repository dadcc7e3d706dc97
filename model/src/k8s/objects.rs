//! All that is known of one cluster, as lean records.

use serde::{Deserialize, Serialize};

use super::{
    CsiDriver, CsiNode, CsiStorageCapacity, DaemonSet, Job, Namespace, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, PodDisruptionBudget, PodGroup, PriorityClass, ReplicaSet, RuntimeClass,
    StatefulSet, StorageClass, VolumeAttachment,
};

/// The objects of one cluster at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Objects {
    /// Registered nodes, and nodes on their way (a planner adds them) as they will look.
    pub nodes: Vec<Node>,
    /// Bound and pending pods.
    pub pods: Vec<Pod>,
    pub namespaces: Vec<Namespace>,
    pub volumes: Vec<PersistentVolume>,
    pub claims: Vec<PersistentVolumeClaim>,
    pub storage_classes: Vec<StorageClass>,
    pub csi_nodes: Vec<CsiNode>,
    pub csi_drivers: Vec<CsiDriver>,
    pub storage_capacities: Vec<CsiStorageCapacity>,
    pub volume_attachments: Vec<VolumeAttachment>,
    pub budgets: Vec<PodDisruptionBudget>,
    pub daemon_sets: Vec<DaemonSet>,
    pub replica_sets: Vec<ReplicaSet>,
    pub stateful_sets: Vec<StatefulSet>,
    pub jobs: Vec<Job>,
    pub priority_classes: Vec<PriorityClass>,
    pub runtime_classes: Vec<RuntimeClass>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_groups: Vec<PodGroup>,
}
