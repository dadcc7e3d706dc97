//! One conformance case as it stands in a file.

use std::collections::BTreeMap;

use muster_engine::fit::{Storage, World};
use muster_model::k8s::{
    CsiDriver, CsiNode, CsiStorageCapacity, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    StorageClass, VolumeAttachment,
};
use serde::{Deserialize, Serialize};

/// A cluster, pods to judge, and what the real scheduler said.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    pub id: String,
    pub kind: String,
    #[serde(default)]
    pub nodes: Vec<Node>,
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// Bound pods.
    #[serde(default)]
    pub pods: Vec<Pod>,
    #[serde(default)]
    pub pvs: Vec<PersistentVolume>,
    #[serde(default)]
    pub pvcs: Vec<PersistentVolumeClaim>,
    #[serde(default)]
    pub storage_classes: Vec<StorageClass>,
    #[serde(default)]
    pub csi_nodes: Vec<CsiNode>,
    #[serde(default)]
    pub csi_drivers: Vec<CsiDriver>,
    #[serde(default)]
    pub csi_storage_capacities: Vec<CsiStorageCapacity>,
    #[serde(default)]
    pub volume_attachments: Vec<VolumeAttachment>,
    #[serde(default)]
    pub pending: Vec<Pod>,
    /// `[pending index, node index]`, in order.
    #[serde(default)]
    pub steps: Vec<(usize, usize)>,
    pub used: Option<Vec<BTreeMap<String, i64>>>,
    pub expect: Option<Vec<Answer>>,
    pub plan: Option<PlanAnswer>,
}

impl Case {
    /// The initial state: all nodes with what is bound to them.
    pub fn world(&self) -> World<'_> {
        let storage = Storage::default()
            .with_volumes(&self.pvs)
            .with_claims(&self.pvcs)
            .with_classes(&self.storage_classes)
            .with_csi_nodes(&self.csi_nodes)
            .with_csi_drivers(&self.csi_drivers)
            .with_capacities(&self.csi_storage_capacities)
            .with_attachments(&self.volume_attachments);
        let mut world = World::new(&self.nodes, &self.namespaces, storage);
        world.bind_running(&self.pods);
        world
    }

    /// The first step that names a pod or node that is not there.
    pub fn bad_step(&self) -> Option<usize> {
        let known = |(pod, node): &(usize, usize)| *pod < self.pending.len() && *node < self.nodes.len();
        self.steps.iter().position(|step| !known(step))
    }
}

/// What is said about one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub req: BTreeMap<String, i64>,
    pub fits: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fails: Vec<Fail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre: Option<Pre>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fail {
    pub n: usize,
    pub first: String,
    pub code: String,
    pub why: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Absent means that only `first` refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<BTreeMap<String, Vec<String>>>,
}

impl Fail {
    /// With `all` written out and reasons as sets.
    pub fn normal(&self) -> Self {
        let mut fail = self.clone();
        fail.why.sort();
        let mut all = fail.all.take().unwrap_or_else(|| [(self.first.clone(), self.why.clone())].into());
        for reasons in all.values_mut() {
            reasons.sort();
        }
        fail.all = Some(all);
        fail
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pre {
    pub plugin: String,
    pub code: String,
    pub msg: String,
}

/// What is said about a list of placements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanAnswer {
    pub steps: Vec<StepAnswer>,
    pub legal: bool,
    pub any_order: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepAnswer {
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Vec<String>>,
}
