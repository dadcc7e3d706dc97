//! Node affinity, pod affinity and topology spread.

use serde::{Deserialize, Serialize};

use super::{LabelSelector, List, Requirement, read::nullable};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    pub node_affinity: Option<NodeAffinity>,
    pub pod_affinity: Option<PodAffinity>,
    pub pod_anti_affinity: Option<PodAffinity>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: List<PreferredNodeTerm>,
}

/// Terms of which one must match. No terms match nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    pub node_selector_terms: List<NodeSelectorTerm>,
}

/// Requirements on labels and fields that must all hold. An empty term matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    pub match_expressions: List<Requirement>,
    pub match_fields: List<Requirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredNodeTerm {
    #[serde(deserialize_with = "nullable")]
    pub weight: i32,
    #[serde(deserialize_with = "nullable")]
    pub preference: NodeSelectorTerm,
}

/// Affinity or anti-affinity to other pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: List<PodAffinityTerm>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: List<WeightedPodTerm>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// `None` selects no pod, `{}` every pod.
    pub label_selector: Option<LabelSelector>,
    /// Namespaces beside those the selector picks; with neither, the pod's own.
    pub namespaces: List<Box<str>>,
    /// `None` selects no namespace, `{}` every namespace.
    pub namespace_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    pub topology_key: Box<str>,
    /// Merged into the selector by admission; the scheduler itself does not look at it.
    pub match_label_keys: List<Box<str>>,
    /// Merged into the selector by admission; the scheduler itself does not look at it.
    pub mismatch_label_keys: List<Box<str>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodTerm {
    #[serde(deserialize_with = "nullable")]
    pub weight: i32,
    #[serde(deserialize_with = "nullable")]
    pub pod_affinity_term: PodAffinityTerm,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadConstraint {
    #[serde(deserialize_with = "nullable")]
    pub max_skew: i32,
    #[serde(deserialize_with = "nullable")]
    pub topology_key: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub when_unsatisfiable: WhenUnsatisfiable,
    pub label_selector: Option<LabelSelector>,
    pub min_domains: Option<i32>,
    /// Absent means `Honor`.
    pub node_affinity_policy: Option<FilterPolicy>,
    /// Absent means `Ignore`.
    pub node_taints_policy: Option<FilterPolicy>,
    pub match_label_keys: List<Box<str>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WhenUnsatisfiable {
    DoNotSchedule,
    ScheduleAnyway,
    /// Not known here; never rejects.
    #[default]
    #[serde(other)]
    Other,
}

/// Whether nodes that the pod could not use count as domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FilterPolicy {
    Honor,
    #[serde(other)]
    Ignore,
}
