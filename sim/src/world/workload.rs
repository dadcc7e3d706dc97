//! What people run on the cluster, as data.

use std::collections::BTreeMap;

use muster_model::{
    Timestamp,
    k8s::{Labels, Pod, PodPhase},
};
use serde_json::json;

/// Who makes the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number of equal pods; one that goes is replaced.
    Deployment,
    /// Pods that end by themselves after a while and are not replaced.
    Job { seconds: u64 },
    /// One pod on every node.
    Daemon,
}

/// Pods of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub name: String,
    pub kind: Kind,
    pub replicas: u32,
    pub milli_cpu: i64,
    pub mebibytes: i64,
    pub gpus: i64,
    pub grace_seconds: u64,
    /// How long its processes take to end once they are asked to.
    pub ends_after_seconds: u64,
    /// Evictions must leave so many of them.
    pub min_available: Option<u32>,
    pub selector: BTreeMap<String, String>,
    pub tolerates: Vec<String>,
    /// Its pods carry `safe-to-evict: "false"`.
    pub pinned: bool,
}

impl Workload {
    pub fn deployment(name: &str, replicas: u32, milli_cpu: i64) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::Deployment,
            replicas,
            milli_cpu,
            mebibytes: 512,
            gpus: 0,
            grace_seconds: 30,
            ends_after_seconds: 5,
            min_available: None,
            selector: BTreeMap::new(),
            tolerates: Vec::new(),
            pinned: false,
        }
    }

    /// A pod of it, before anything happened to it.
    pub(super) fn pod(&self, name: &str, uid: &str, created: Timestamp) -> Pod {
        let owner = match self.kind {
            Kind::Deployment => "ReplicaSet",
            Kind::Job { .. } => "Job",
            Kind::Daemon => "DaemonSet",
        };
        let mut requests =
            json!({"cpu": format!("{}m", self.milli_cpu), "memory": format!("{}Mi", self.mebibytes)});
        if self.gpus > 0 {
            requests["nvidia.com/gpu"] = json!(self.gpus.to_string());
        }
        let tolerations: Vec<_> = match self.kind {
            Kind::Daemon => vec![json!({"operator": "Exists"})],
            Kind::Deployment | Kind::Job { .. } => {
                self.tolerates.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect()
            }
        };
        let annotations = if self.pinned {
            json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
        } else {
            json!({})
        };
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": uid, "labels": {"app": self.name},
                "annotations": annotations,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": self.name,
                    "uid": format!("owner-{}", self.name), "controller": true}],
            },
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": requests}}],
                "nodeSelector": self.selector, "tolerations": tolerations,
                "terminationGracePeriodSeconds": self.grace_seconds, "restartPolicy": "Always",
            },
            "status": {"phase": "Pending"},
        }))
        .expect("a pod of our own making can be read");
        pod.metadata.creation_timestamp = Some(created);
        pod.status.phase = PodPhase::Pending;
        pod
    }

    pub(super) fn labels(&self) -> Labels {
        [("app", self.name.as_str())].into_iter().map(|(key, value)| (key, Box::from(value))).collect()
    }
}
