//! Lean records of Kubernetes objects: the fields that decisions read, and nothing else.
//!
//! They are read from ordinary Kubernetes JSON or YAML. Unknown fields are skipped, `null` is the same as
//! absent, and absent stays absent: nothing is defaulted here (what admission would add to a pod made
//! from a template is the engine's business). A value of an enumeration that is not known becomes
//! `Other`, so that a newer API server cannot make a running pod disappear from the books.

mod affinity;
mod list;
mod meta;
mod node;
mod objects;
mod pod;
mod pod_group;
mod policy;
mod read;
mod selector;
mod status;
mod storage;
mod table;
mod taint;
mod unseen;
mod volume;
mod workload;

pub use affinity::{
    Affinity, FilterPolicy, NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    PreferredNodeTerm, SpreadConstraint, WeightedPodTerm, WhenUnsatisfiable,
};
pub use list::List;
pub use meta::{Annotations, ObjectMeta, OwnerReference};
pub use node::{Node, NodeCondition, NodeInfo, NodeSpec, NodeStatus};
pub use objects::Objects;
pub use pod::{
    Container, ContainerPort, ContainerRestartPolicy, Pod, PodKey, PodResourceClaim, PodSpec, Protocol,
    Resources, RestartRule, SchedulingGate, SchedulingGroup,
};
pub use pod_group::{GangPolicy, PodGroup, PodGroupApi, PodGroupSpec, SchedulingPolicy};
pub use policy::{
    IntOrPercent, Namespace, PdbSpec, PdbStatus, PodDisruptionBudget, PriorityClass, RuntimeClass,
    RuntimeOverhead, RuntimeScheduling,
};
pub use read::{ReadError, from_json, from_value};
pub use selector::{LabelSelector, Operator, Requirement};
pub use status::{ContainerStatus, PodCondition, PodPhase, PodStatus};
pub use storage::{
    ClaimPhase, ClaimRef, CsiAllocatable, CsiDriver, CsiDriverSpec, CsiNode, CsiNodeDriver, CsiNodeSpec,
    CsiStorageCapacity, CsiVolume, PersistentVolume, PersistentVolumeClaim, PvSpec, PvStatus, PvcSpec,
    PvcStatus, StorageClass, TopologyRequirement, TopologyTerm, VolumeAttachment, VolumeAttachmentSource,
    VolumeAttachmentSpec, VolumeBindingMode, VolumeNodeAffinity, VolumePhase,
};
pub use table::{Labels, ResourceList, Table};
pub use taint::{Effect, Taint, Toleration, TolerationOperator};
pub use unseen::Unseen;
pub use volume::{ClaimTemplate, Volume, VolumeSource};
pub use workload::{
    DaemonSet, DaemonSetSpec, DaemonSetStatus, Job, JobSpec, JobStatus, PodTemplate, ReplicaSet, ReplicaSpec,
    ReplicaStatus, StatefulSet,
};
