//! Pods that run together, where that is an object: Kubernetes' own, and those of two schedulers in wide use.

use serde::{Deserialize, Serialize};

use super::{ObjectMeta, read::nullable};

/// The APIs that have a kind `PodGroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodGroupApi {
    /// `scheduling.k8s.io`; a pod names it in `spec.schedulingGroup`.
    Kubernetes,
    /// `scheduling.x-k8s.io`, of the scheduler plugin coscheduling; a pod names it by a label.
    Coscheduling,
    /// `scheduling.volcano.sh`; a pod names it by an annotation.
    Volcano,
}

impl PodGroupApi {
    pub const ALL: [Self; 3] = [Self::Kubernetes, Self::Coscheduling, Self::Volcano];

    /// The API group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Kubernetes => "scheduling.k8s.io",
            Self::Coscheduling => "scheduling.x-k8s.io",
            Self::Volcano => "scheduling.volcano.sh",
        }
    }
}

/// A group of pods. The three APIs say the same thing in two ways.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroup {
    /// For example `scheduling.k8s.io/v1alpha2`. Items of a list may not say it.
    #[serde(deserialize_with = "nullable")]
    pub api_version: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: PodGroupSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// Kubernetes' own way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_policy: Option<SchedulingPolicy>,
    /// That of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_member: Option<i64>,
}

/// Without `gang` the pods are scheduled one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangPolicy>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i64>,
}

impl PodGroup {
    /// Which API it is of.
    pub fn api(&self) -> Option<PodGroupApi> {
        let group = self.api_version.split('/').next().unwrap_or_default();
        PodGroupApi::ALL.into_iter().find(|api| api.group() == group)
    }

    /// How many of its pods run together: 1 where each runs for itself, `None` where it does not say.
    pub fn min(&self) -> Option<u32> {
        let number = match &self.spec.scheduling_policy {
            Some(SchedulingPolicy { gang: None }) => Some(1),
            Some(SchedulingPolicy { gang: Some(gang) }) => gang.min_count,
            None => self.spec.min_member,
        };
        number.map(|number| u32::try_from(number.max(0)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_says_how_many_run_together() {
        #[track_caller]
        fn check(text: &str, api: Option<PodGroupApi>, min: Option<u32>) {
            let group: PodGroup = serde_json::from_str(text).unwrap();
            assert_eq!((group.api(), group.min()), (api, min), "{text}");
        }
        let own = Some(PodGroupApi::Kubernetes);
        check(
            r#"{"apiVersion":"scheduling.k8s.io/v1alpha2","spec":{"schedulingPolicy":{"gang":{"minCount":4}}}}"#,
            own,
            Some(4),
        );
        check(
            r#"{"apiVersion":"scheduling.k8s.io/v1beta1","spec":{"schedulingPolicy":{"basic":{}}}}"#,
            own,
            Some(1),
        );
        check(
            r#"{"apiVersion":"scheduling.x-k8s.io/v1alpha1","spec":{"minMember":3,"scheduleTimeoutSeconds":10}}"#,
            Some(PodGroupApi::Coscheduling),
            Some(3),
        );
        check(
            r#"{"apiVersion":"scheduling.volcano.sh/v1beta1","spec":{"minMember":-2}}"#,
            Some(PodGroupApi::Volcano),
            Some(0),
        );
        check(r#"{"apiVersion":"example.com/v1","spec":null}"#, None, None);
        check("{}", None, None);
    }
}
