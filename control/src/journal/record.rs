//! A decision as it is stored and shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use muster_model::{ClusterId, Timestamp, k8s::PodKey, store::Revision};
use serde::{Deserialize, Serialize};

/// Names a decision: the last eight digits of its cluster's id, and its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DecisionId(String);

impl DecisionId {
    pub fn new(cluster: ClusterId, number: u64) -> Self {
        Self(format!("{}-{number}", Self::stem(cluster)))
    }

    /// What the ids of a cluster's decisions begin with. The last digits of an id are random; the first ones are the time,
    /// and would be the same for clusters that were registered within a minute.
    pub fn stem(cluster: ClusterId) -> String {
        cluster.uuid().simple().to_string()[24..].to_owned()
    }

    /// Whether a cluster may have a decision whose id begins like this; ids of old began with the first digits.
    pub fn may_begin(stem: &str, cluster: ClusterId) -> bool {
        let digits = cluster.uuid().simple().to_string();
        digits[24..].eq_ignore_ascii_case(stem) || digits[..8].eq_ignore_ascii_case(stem)
    }

    /// The stem and the number of a text that may be an id.
    pub fn parse(text: &str) -> Option<(&str, u64)> {
        let (stem, number) = text.rsplit_once('-')?;
        let hex = stem.len() == 8 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (hex && digits).then(|| number.parse().ok()).flatten().map(|number| (stem, number))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One decision: what was to be done and why, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub id: DecisionId,
    pub cluster_id: ClusterId,
    pub cluster_name: String,
    pub project: String,
    /// Counts from 1 in its cluster, without gaps.
    pub number: u64,
    pub at: Timestamp,
    /// Of the leader that decided.
    pub epoch: Revision,
    /// One line, at most 120 characters, with a number in it.
    pub headline: String,
    pub cause: Cause,
    pub new_nodes: u32,
    pub removals: u32,
    pub placed: u32,
    pub unplaced: u32,
    /// Pools that it changes, or would change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// Actions that are not listed, because there are too many; the snapshot has them.
    #[serde(default)]
    pub more_actions: u32,
    /// What the lists above leave out, by name.
    #[serde(default, skip_serializing_if = "Also::is_empty")]
    pub also: Also,
    /// What was said about pods without a place, and about pools that cannot be planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<Told>,
    /// What the audit found. Such a plan is never carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    pub outcome: Outcome,
    /// The snapshot and the plan, as long as they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<Frame>,
}

/// A decision that has no number yet.
#[derive(Debug, Clone)]
pub struct Draft {
    pub cluster_id: ClusterId,
    pub cluster_name: String,
    pub project: String,
    pub at: Timestamp,
    pub headline: String,
    pub cause: Cause,
    pub new_nodes: u32,
    pub removals: u32,
    pub placed: u32,
    pub unplaced: u32,
    pub pools: Vec<String>,
    pub actions: Vec<Action>,
    pub more_actions: u32,
    pub also: Also,
    pub told: Vec<Told>,
    pub findings: Vec<String>,
    pub outcome: Outcome,
}

impl Draft {
    pub(super) fn into_decision(self, number: u64, epoch: Revision, frame: Frame) -> Decision {
        Decision {
            id: DecisionId::new(self.cluster_id, number),
            cluster_id: self.cluster_id,
            cluster_name: self.cluster_name,
            project: self.project,
            number,
            at: self.at,
            epoch,
            headline: self.headline,
            cause: self.cause,
            new_nodes: self.new_nodes,
            removals: self.removals,
            placed: self.placed,
            unplaced: self.unplaced,
            pools: self.pools,
            actions: self.actions,
            more_actions: self.more_actions,
            also: self.also,
            told: self.told,
            findings: self.findings,
            outcome: self.outcome,
            frame: Some(frame),
        }
    }
}

/// Why there was a decision at all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cause {
    /// What nudged the planner: `cluster`, `inventory`, `registry`, `timer`, `start`.
    pub nudges: Vec<String>,
    /// What had changed since the decision before, the most telling first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// The decision before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DecisionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// Wake a host of ours.
    Wake,
    /// Ask whoever provisions the pool for one more node.
    Ask,
    /// Empty a node and give it up.
    Remove,
}

impl ActionKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Ask => "ask",
            Self::Remove => "remove",
        }
    }
}

/// One thing to do, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    pub kind: ActionKind,
    pub pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// Only shown: the pool or its cluster is in advise mode.
    #[serde(default)]
    pub advice: bool,
    /// One sentence.
    pub because: String,
    /// Pods that it is for, or that have to move: the first of them, and how many there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodKey>,
    #[serde(default)]
    pub pod_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// Names that a decision's lists leave out: whoever asks what was done for a pod has to find it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Also {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<String>,
    /// By `namespace/` and the name up to its last dash, which the pods of a workload share; then the rest of each name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<String, Vec<String>>,
    /// How many more there are; the snapshot has them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Also {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn add_pod(&mut self, pod: &PodKey) {
        let (stem, rest) = Self::split(pod);
        self.pods.entry(stem).or_default().push(rest);
    }

    pub fn has_pod(&self, pod: &PodKey) -> bool {
        let (stem, rest) = Self::split(pod);
        self.pods.get(&stem).is_some_and(|rests| rests.contains(&rest))
    }

    fn split(pod: &PodKey) -> (String, String) {
        let name = &*pod.name;
        let (stem, rest) = name.split_at(name.rfind('-').map_or(0, |dash| dash + 1));
        (format!("{}/{stem}", pod.namespace), rest.to_owned())
    }
}

/// The figures that a removal rests on, as they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The resource that counts: the one of which most is requested.
    pub resource: String,
    pub used: i64,
    pub allocatable: i64,
    pub percent: u32,
    /// The low mark, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unneeded_since: Option<Timestamp>,
    /// For how long it had to be.
    pub required: muster_model::Duration,
}

/// What was said about something that nothing was done for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// `pod/default/web-1`, `pool/gpu`.
    pub about: String,
    /// How many are alike.
    pub count: u32,
    pub code: String,
    pub headline: String,
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub state: OutcomeState,
    pub at: Timestamp,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeState {
    /// Journaled, and not carried out yet. After a crash the next leader decides anew.
    Planned,
    /// Handed to the platforms.
    Acted,
    /// Shown only: everything that it changes is in advise mode.
    Advised,
    /// There was nothing to do.
    Quiet,
    /// The audit found a fault in the plan: a bug of ours.
    Refused,
    /// The world had moved on before it was carried out.
    Void,
    /// A platform did not take it.
    Failed,
}

impl OutcomeState {
    pub const ALL: [Self; 7] =
        [Self::Planned, Self::Acted, Self::Advised, Self::Quiet, Self::Refused, Self::Void, Self::Failed];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Acted => "acted",
            Self::Advised => "advised",
            Self::Quiet => "quiet",
            Self::Refused => "refused",
            Self::Void => "void",
            Self::Failed => "failed",
        }
    }
}

/// Something that was written because of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// `intent` or `desired_nodes`.
    pub what: String,
    /// `hosts/gpu-07` or `nodepools/{id}`.
    pub object: String,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameKind {
    Key,
    Delta,
}

/// Where the snapshot and the plan are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub kind: FrameKind,
    /// The key frame that it needs; itself for a key frame.
    pub key: u64,
    pub pieces: usize,
    /// Of the text.
    pub bytes: u64,
    pub sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_read_back() {
        let cluster: ClusterId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        let id = DecisionId::new(cluster, 42);
        assert_eq!(id.as_str(), "55440000-42");
        assert_eq!(DecisionId::parse(id.as_str()), Some(("55440000", 42)));
        assert!(DecisionId::may_begin("55440000", cluster) && DecisionId::may_begin("550E8400", cluster));
        // Made in one moment, and still told apart.
        let [one, other] = ["01a1e56e-7a2b-7c3d-8e4f-0123456789ab", "01a1e56e-7a2b-7c3d-8e4f-ba9876543210"]
            .map(|text| DecisionId::stem(text.parse().unwrap()));
        assert_ne!(one, other);
        for wrong in
            ["", "42", "550e8400", "550e8400-", "550e8400-x", "550e840-1", "550e8400-+1", "zzzzzzzz-1"]
        {
            assert_eq!(DecisionId::parse(wrong), None, "{wrong}");
        }
        for state in OutcomeState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.as_str()));
        }
    }

    #[test]
    fn two_thousand_pods_of_some_workloads_are_named_in_a_few_bytes_each() {
        let mut also = Also::default();
        let pod = |number: u32| PodKey {
            namespace: "shop".into(),
            name: format!("web-{}-7d9f8b6c5-{number:05}", number % 7).into(),
        };
        (0..2_000).for_each(|number| also.add_pod(&pod(number)));
        assert!((0..2_000).all(|number| also.has_pod(&pod(number))));
        assert!(!also.has_pod(&pod(2_000)));
        let text = serde_json::to_string(&also).unwrap();
        assert!(text.len() < 2_000 * 9, "{}", text.len());
        assert_eq!(serde_json::from_str::<Also>(&text).unwrap(), also);
        let short = PodKey { namespace: "a".into(), name: "b".into() };
        assert!(!also.has_pod(&short));
        also.add_pod(&short);
        assert!(also.has_pod(&short));
    }
}
