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
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    #[serde(deserialize_with = "nullable")]
    pub template: PodTemplate,
}

/// A `ReplicaSet`, or a `ReplicationController`: they share what is read here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ReplicaSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ReplicaSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSpec {
    /// Absent means one.
    pub replicas: Option<i32>,
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
