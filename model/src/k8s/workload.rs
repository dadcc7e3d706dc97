//! Controllers of pods: how many they want, and what daemon pods look like.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::{ObjectMeta, PodSpec, read::nullable};

/// What a controller makes pods from. It has not been through admission.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: Arc<PodSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: DaemonSetSpec,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub status: DaemonSetStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    #[serde(deserialize_with = "nullable")]
    pub template: PodTemplate,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// Nodes whose daemon pod is ready, as its controller counts.
    #[serde(deserialize_with = "nullable")]
    pub number_ready: i32,
}

/// A `ReplicaSet`, or a `ReplicationController`: they share what is read here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ReplicaSpec,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub status: ReplicaStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ReplicaSpec,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub status: ReplicaStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSpec {
    /// Absent means one.
    pub replicas: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaStatus {
    /// Its pods that are ready, as its controller counts.
    #[serde(deserialize_with = "nullable")]
    pub ready_replicas: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: JobSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: JobStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSpec {
    /// Absent means one.
    pub parallelism: Option<i32>,
    pub completions: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct JobStatus {
    #[serde(deserialize_with = "nullable")]
    pub active: i32,
    #[serde(deserialize_with = "nullable")]
    pub succeeded: i32,
}

/// What nobody has reported is not written down.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
