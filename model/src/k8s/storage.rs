//! Persistent volumes, claims and what limits them.

use serde::{Deserialize, Serialize};

use super::{
    LabelSelector, List, NodeSelector, ObjectMeta, ResourceList, Resources,
    read::{non_empty, nullable},
};
use crate::Quantity;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: PvSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: PvStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PvSpec {
    pub access_modes: List<Box<str>>,
    pub capacity: ResourceList,
    pub claim_ref: Option<ClaimRef>,
    pub csi: Option<CsiVolume>,
    pub node_affinity: Option<VolumeNodeAffinity>,
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: Box<str>,
    /// `Filesystem` when absent.
    #[serde(deserialize_with = "non_empty")]
    pub volume_mode: Option<Box<str>>,
    #[serde(deserialize_with = "non_empty")]
    pub volume_attributes_class_name: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PvStatus {
    #[serde(deserialize_with = "nullable")]
    pub phase: VolumePhase,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VolumePhase {
    Pending,
    Available,
    Bound,
    Released,
    Failed,
    /// Absent or not known here.
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    pub required: Option<NodeSelector>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolume {
    #[serde(deserialize_with = "nullable")]
    pub driver: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub volume_handle: Box<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    #[serde(deserialize_with = "nullable")]
    pub namespace: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub uid: Box<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: PvcSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: PvcStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PvcSpec {
    pub access_modes: List<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
    pub selector: Option<LabelSelector>,
    /// `Some("")` asks for a volume without a class; `None` leaves the class to admission.
    pub storage_class_name: Option<Box<str>>,
    #[serde(deserialize_with = "nullable")]
    pub volume_name: Box<str>,
    /// `Filesystem` when absent.
    #[serde(deserialize_with = "non_empty")]
    pub volume_mode: Option<Box<str>>,
    #[serde(deserialize_with = "non_empty")]
    pub volume_attributes_class_name: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PvcStatus {
    #[serde(deserialize_with = "nullable")]
    pub phase: ClaimPhase,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ClaimPhase {
    Pending,
    Bound,
    Lost,
    /// Absent or not known here.
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub provisioner: Box<str>,
    pub volume_binding_mode: Option<VolumeBindingMode>,
    /// Terms of which one must match a node; none means anywhere.
    pub allowed_topologies: List<TopologyTerm>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VolumeBindingMode {
    WaitForFirstConsumer,
    #[serde(other)]
    Immediate,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm {
    pub match_label_expressions: List<TopologyRequirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyRequirement {
    #[serde(deserialize_with = "nullable")]
    pub key: Box<str>,
    pub values: List<Box<str>>,
}

/// Which drivers run on a node, and how many volumes each can attach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: CsiNodeSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    pub drivers: List<CsiNodeDriver>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    pub allocatable: Option<CsiAllocatable>,
    pub topology_keys: List<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiAllocatable {
    /// Absent means no limit.
    pub count: Option<i32>,
}

/// A volume that is attached to a node, or on its way there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: VolumeAttachmentSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The driver.
    #[serde(deserialize_with = "nullable")]
    pub attacher: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub node_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub source: VolumeAttachmentSource,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    #[serde(deserialize_with = "non_empty")]
    pub persistent_volume_name: Option<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: CsiDriverSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// Whether the driver publishes how much room is left where.
    #[serde(deserialize_with = "nullable")]
    pub storage_capacity: bool,
}

/// How much room a storage class has in one part of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiStorageCapacity {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: Box<str>,
    pub node_topology: Option<LabelSelector>,
    pub capacity: Option<Quantity>,
    pub maximum_volume_size: Option<Quantity>,
}
