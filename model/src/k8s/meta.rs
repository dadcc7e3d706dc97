//! `metadata` and owner references.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::{Labels, List, read::nullable};
use crate::Timestamp;

/// What decisions read of `metadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Shared, as plans and reports repeat it.
    #[serde(deserialize_with = "nullable")]
    pub name: Arc<str>,
    /// Empty for objects that live in no namespace.
    #[serde(deserialize_with = "nullable")]
    pub namespace: Arc<str>,
    #[serde(deserialize_with = "nullable")]
    pub uid: Box<str>,
    pub labels: Labels,
    pub annotations: Annotations,
    pub owner_references: List<OwnerReference>,
    pub creation_timestamp: Option<Timestamp>,
    /// Set means that the object is being deleted.
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub generation: i64,
}

impl ObjectMeta {
    /// The owner that manages the object, if one does.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    #[serde(deserialize_with = "nullable")]
    pub api_version: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub kind: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub uid: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub controller: bool,
}

/// The annotations that decisions read. All others are dropped while reading: they are most of the bytes
/// of a typical object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Annotations(Labels);

/// Domains whose annotations are kept; the part of the key before the slash has to end in one of them.
const KEPT_DOMAINS: [&str; 12] = [
    "muster.dev",
    "cluster-autoscaler.kubernetes.io",
    "autoscaling.x-k8s.io",
    "scheduling.x-k8s.io",
    "kueue.x-k8s.io",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
    "karpenter.sh",
    "pv.kubernetes.io",
    "volume.kubernetes.io",
    "volume.beta.kubernetes.io",
    "storageclass.kubernetes.io",
];
/// Single annotations that are kept: they mark pods that come from a file on the node, and name a pod's group.
const KEPT_KEYS: [&str; 3] =
    ["kubernetes.io/config.mirror", "kubernetes.io/config.source", "scheduling.k8s.io/group-name"];

impl Annotations {
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.text(key)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.0.contains(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key, &**value))
    }

    /// Sets one, if it is of those that are kept.
    pub fn insert(&mut self, key: &str, value: Box<str>) {
        if Self::keeps(key) {
            self.0.insert(key, value);
        }
    }

    fn keeps(key: &str) -> bool {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        KEPT_KEYS.contains(&key) || KEPT_DOMAINS.iter().any(|kept| domain.ends_with(kept))
    }
}

impl<K: AsRef<str> + Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let kept = entries.into_iter().filter(|(key, _)| Self::keeps(key.as_ref()));
        Self(kept.map(|(key, value)| (key, value.into())).collect())
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Labels::deserialize(deserializer)?;
        Ok(all.iter().map(|(key, value)| (key, value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_that_no_decision_reads_are_dropped() {
        let meta: ObjectMeta = serde_json::from_str(
            r#"{"name":"a","creationTimestamp":null,"annotations":{
                "kubectl.kubernetes.io/last-applied-configuration":"{}",
                "cluster-autoscaler.kubernetes.io/safe-to-evict":"false",
                "kubernetes.io/config.mirror":"x"}}"#,
        )
        .unwrap();
        let kept: Vec<_> = meta.annotations.iter().map(|(key, _)| key).collect();
        assert_eq!(kept, ["cluster-autoscaler.kubernetes.io/safe-to-evict", "kubernetes.io/config.mirror"]);
    }
}
