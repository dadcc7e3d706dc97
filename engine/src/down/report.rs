//! What is said about a node: every reason that keeps it, where its pods would go, and the arithmetic.

use std::{fmt, sync::Arc};

use muster_model::{Duration, Timestamp, k8s::PodKey};
use serde::Serialize;

use super::usage::Usage;
use crate::{
    plan::{NewNode, Removal},
    snapshot::{Snapshot, Trigger},
};

/// The removals of a plan and a verdict on every node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Report {
    /// Nodes that replace some of those that go; empty unless something is replaced.
    pub new_nodes: Vec<NewNode>,
    /// In an order in which each is legal.
    pub removals: Vec<Removal>,
    /// One for every node of the snapshot, by name.
    pub verdicts: Vec<Verdict>,
    /// Units of work spent, the same on every machine.
    pub effort: u64,
}

/// Whether a node may go, and why or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub node: Arc<str>,
    pub outcome: Outcome,
    /// Everything that keeps the node, not just the first; empty if it could go alone.
    pub blockers: Vec<Blocker>,
    /// Where each pod that has to move would go if this node alone went, as indexes; see
    /// [`Verdict::movements`]. Pods without a place are missing here and named in the blockers.
    #[serde(skip)]
    pub witness: Vec<Witness>,
    pub usage: Usage,
    /// Nothing but time keeps it: the clock of "unneeded since" may run.
    pub unneeded: bool,
    /// The first moment at which one of the blockers lapses by itself.
    pub next: Option<Timestamp>,
}

/// A pod and the node it would go to, as indexes into the snapshot: there are very many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    pub pod: u32,
    pub to: u32,
}

/// A pod and where it would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Movement {
    pub pod: PodKey,
    pub to: Arc<str>,
}

impl Verdict {
    /// The witness with names, from the snapshot that the verdict is about.
    pub fn movements<'s>(&'s self, snapshot: &'s Snapshot) -> impl Iterator<Item = Movement> + 's {
        self.witness.iter().map(|step| Movement {
            pod: snapshot.cluster.pods[step.pod as usize].key(),
            to: snapshot.cluster.nodes[step.to as usize].metadata.name.clone(),
        })
    }
}

impl Report {
    /// The verdict on a node.
    pub fn verdict(&self, node: &str) -> Option<&Verdict> {
        self.verdicts.iter().find(|verdict| *verdict.node == *node)
    }
}

/// What becomes of a node in this plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "outcome", content = "because")]
pub enum Outcome {
    /// Something keeps it; see the blockers.
    Blocked,
    /// It goes; nothing had to move.
    Empty,
    /// It goes, and its pods move.
    Drained,
    /// It goes, and a new machine takes some of its pods.
    Replaced,
    /// It could go alone, but stays in this plan.
    Kept(Kept),
}

/// Why a node that could go alone stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Kept {
    /// It holds what other nodes gave up, or its room is what they need.
    Receives { pods: u32 },
    /// A pod has no place any more once the others have moved.
    PlaceTaken { pod: PodKey },
    /// A budget is used up by the other removals of this plan.
    BudgetSpent { budget: String, allowed: i64 },
    /// Others of its pool go, and the minimum is reached.
    Minimum { nodes: u32, min: u32 },
    /// One more would take the pool above its high mark or below its headroom.
    Tight { resource: Box<str>, used: i64, allocatable: i64 },
    /// As many nodes go as may at one time, in all or in its rack.
    MaxRemovals { rack: Option<String>, going: u32, planned: u32, max: u32 },
    /// Others of its pool go, and it is the last one in its rack or zone.
    LastThere { place: String, required: u32 },
    /// Removing it would give nothing up that costs: better ones go.
    Better,
}

/// One reason that keeps a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "code")]
pub enum Blocker {
    NotOurs,
    UnknownPool {
        pool: String,
    },
    Frozen {
        pool: String,
    },
    Held {
        what: String,
        why: String,
        until: Option<Timestamp>,
    },
    Unobserved {
        what: String,
        why: String,
    },
    /// No bound pod was seen in the whole cluster, which no running cluster shows.
    NoPodsSeen {
        nodes: u32,
    },
    Annotated {
        annotation: &'static str,
    },
    Leaving,
    Upcoming {
        expected: Timestamp,
    },
    NotReady,
    TooManyUnready {
        scope: String,
        unready: u32,
        total: u32,
    },
    Minimum {
        pool: String,
        nodes: u32,
        min: u32,
    },
    FixedSize {
        pool: String,
        nodes: u32,
        size: u32,
    },
    /// The plan adds nodes to its pool.
    Growing {
        pool: String,
        nodes: u32,
    },
    /// Pending pods are planned onto it.
    Needed {
        pods: u32,
    },
    Trigger {
        pool: String,
        state: Trigger,
    },
    Cooldown {
        pool: String,
        since: Timestamp,
        required: Duration,
        until: Timestamp,
    },
    Young {
        since: Timestamp,
        required: Duration,
        until: Timestamp,
    },
    Busy {
        resource: Box<str>,
        used: i64,
        allocatable: i64,
        percent: u32,
        mark: u32,
    },
    /// `since` is empty if it was not seen unneeded before.
    NotUnneededLongEnough {
        since: Option<Timestamp>,
        required: Duration,
        until: Timestamp,
    },
    /// The host was switched on not long ago.
    OnTime {
        host: String,
        since: Timestamp,
        required: Duration,
        until: Timestamp,
    },
    /// It is the only node of its pool in a rack or zone, and the pool keeps so many of them.
    LastThere {
        pool: String,
        place: String,
        places: u32,
        required: u32,
    },
    Headroom {
        pool: String,
        resource: Box<str>,
        left: i64,
        required: i64,
    },
    HighMark {
        pool: String,
        resource: Box<str>,
        used: i64,
        allocatable: i64,
        mark: u32,
    },
    Pod {
        pod: PodKey,
        why: PodBlock,
    },
    Budget {
        budget: String,
        allowed: i64,
        needed: u32,
        pods: Vec<PodKey>,
    },
    NoPlace {
        pod: PodKey,
        refused: Vec<Refused>,
    },
    /// The search was cut off before every place was tried.
    Unexamined {
        pod: PodKey,
    },
}

/// Why a pod may not be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "rule")]
pub enum PodBlock {
    NotSafeToEvict,
    WaitsForCompletion,
    DoNotDisrupt,
    Unreplicated,
    ControllerMissing { kind: Box<str>, name: Box<str> },
    FewReplicas { kind: Box<str>, name: Box<str>, replicas: i32, min: u32 },
    LocalStorage { volume: Box<str> },
    System,
    SeveralBudgets { budgets: Vec<String> },
}

/// Why how many nodes refuse a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    pub why: Refusal,
    pub nodes: u32,
}

/// The kind of refusal, in the order of the scheduler's filters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Refusal {
    /// Not ready, leaving, on its way, or going in this plan.
    NoReceiver,
    /// Taints, selectors, node affinity.
    Incompatible,
    Insufficient {
        resource: Box<str>,
    },
    /// Ports or anti-affinity.
    Conflict,
    Spread,
    Affinity,
    Volumes,
}

impl Blocker {
    /// Stable name of the reason.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotOurs => "notOurs",
            Self::UnknownPool { .. } => "unknownPool",
            Self::Frozen { .. } => "frozen",
            Self::Held { .. } => "held",
            Self::Unobserved { .. } => "unobserved",
            Self::NoPodsSeen { .. } => "noPodsSeen",
            Self::Annotated { .. } => "annotated",
            Self::Leaving => "leaving",
            Self::Upcoming { .. } => "upcoming",
            Self::NotReady => "notReady",
            Self::TooManyUnready { .. } => "tooManyUnready",
            Self::Minimum { .. } => "minimum",
            Self::FixedSize { .. } => "fixedSize",
            Self::Growing { .. } => "growing",
            Self::Needed { .. } => "needed",
            Self::Trigger { .. } => "trigger",
            Self::Cooldown { .. } => "cooldown",
            Self::Young { .. } => "young",
            Self::Busy { .. } => "busy",
            Self::NotUnneededLongEnough { .. } => "notUnneededLongEnough",
            Self::OnTime { .. } => "onTime",
            Self::LastThere { .. } => "lastThere",
            Self::Headroom { .. } => "headroom",
            Self::HighMark { .. } => "highMark",
            Self::Pod { why, .. } => why.code(),
            Self::Budget { .. } => "budget",
            Self::NoPlace { .. } => "noPlace",
            Self::Unexamined { .. } => "unexamined",
        }
    }

    /// When the reason lapses by itself.
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Held { until, .. } => *until,
            Self::Upcoming { expected } => Some(*expected),
            Self::Cooldown { until, .. }
            | Self::Young { until, .. }
            | Self::OnTime { until, .. }
            | Self::NotUnneededLongEnough { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Whether nothing but the passing of time is missing.
    pub const fn is_time(&self) -> bool {
        matches!(
            self,
            Self::Cooldown { .. }
                | Self::Young { .. }
                | Self::OnTime { .. }
                | Self::NotUnneededLongEnough { .. }
        )
    }
}

impl PodBlock {
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotSafeToEvict => "notSafeToEvict",
            Self::WaitsForCompletion => "waitsForCompletion",
            Self::DoNotDisrupt => "doNotDisrupt",
            Self::Unreplicated => "unreplicated",
            Self::ControllerMissing { .. } => "controllerMissing",
            Self::FewReplicas { .. } => "fewReplicas",
            Self::LocalStorage { .. } => "localStorage",
            Self::System => "systemPod",
            Self::SeveralBudgets { .. } => "severalBudgets",
        }
    }
}

impl fmt::Display for Blocker {
    #[allow(clippy::too_many_lines, reason = "one line per reason")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => write!(f, "it belongs to no pool, so it is not ours to remove"),
            Self::UnknownPool { pool } => write!(f, "its pool {pool} is not known"),
            Self::Frozen { pool } => write!(f, "pool {pool} is frozen"),
            Self::Held { what, why, until: Some(until) } => write!(f, "{what} is held until {until}: {why}"),
            Self::Held { what, why, until: None } => write!(f, "{what} is held until further notice: {why}"),
            Self::Unobserved { what, why } => write!(f, "{what} was not fully observed: {why}"),
            Self::NoPodsSeen { nodes } => {
                write!(f, "no pod was seen on any of {nodes} nodes, which is not plausible")
            }
            Self::Annotated { annotation } => write!(f, "annotation {annotation} is true"),
            Self::Leaving => write!(f, "it is already leaving"),
            Self::Upcoming { expected } => write!(f, "it is still on its way, expected {expected}"),
            Self::NotReady => write!(f, "it is not ready, so nobody can say what runs there"),
            Self::TooManyUnready { scope, unready, total } => {
                write!(f, "{unready} of {total} nodes of {scope} are not ready: no removals until they are")
            }
            Self::Minimum { pool, nodes, min } => {
                write!(f, "pool {pool} has {nodes} ready nodes, its minimum is {min}")
            }
            Self::FixedSize { pool, nodes, size } => {
                write!(f, "pool {pool} does not scale and holds {size} nodes; {nodes} are ready")
            }
            Self::Growing { pool, nodes } => write!(f, "pool {pool} grows by {nodes} in the same plan"),
            Self::Needed { pods } => write!(f, "{pods} pending pods are planned onto it"),
            Self::Trigger { pool, state: Trigger::Up } => {
                write!(f, "the trigger of pool {pool} asks for growth")
            }
            Self::Trigger { pool, .. } => write!(f, "the trigger of pool {pool} does not ask for less"),
            Self::Cooldown { pool, since, required, until } => {
                write!(f, "pool {pool} last grew {since} and rests for {required}, until {until}")
            }
            Self::Young { since, required, until } => {
                write!(f, "it is there since {since} and stays at least {required}, until {until}")
            }
            Self::Busy { resource, used, allocatable, percent, mark } => {
                write!(
                    f,
                    "{resource} is {percent} % requested ({used} of {allocatable}), the mark is {mark} %"
                )
            }
            Self::NotUnneededLongEnough { since: Some(since), required, until } => {
                write!(f, "it is unneeded since {since} and has to be for {required}, until {until}")
            }
            Self::NotUnneededLongEnough { since: None, required, .. } => {
                write!(f, "it has to be unneeded for {required}, which begins now")
            }
            Self::OnTime { host, since, required, until } => {
                write!(f, "host {host} is on since {since} and stays on for {required}, until {until}")
            }
            Self::LastThere { pool, place, places, required } => {
                write!(f, "it is the only node of pool {pool} in {place}; {required} of {places} are kept")
            }
            Self::Headroom { pool, resource, left, required } => {
                write!(f, "pool {pool} keeps {required} {resource} free; {left} would be left")
            }
            Self::HighMark { pool, resource, used, allocatable, mark } => {
                write!(
                    f,
                    "without it {used} of {allocatable} {resource} of pool {pool} are requested, above {mark} %"
                )
            }
            Self::Pod { pod, why } => write!(f, "pod {pod} {why}"),
            Self::Budget { budget, allowed, needed, pods } => {
                let first = pods.first().map(ToString::to_string).unwrap_or_default();
                write!(f, "budget {budget} allows {allowed} disruptions, ")?;
                match needed {
                    1 => write!(f, "pod {first} needs one"),
                    many => write!(f, "{many} pods need one each ({first} first)"),
                }
            }
            Self::NoPlace { pod, refused } => {
                write!(f, "pod {pod} fits no other node")?;
                for (at, Refused { why, nodes }) in refused.iter().enumerate() {
                    write!(f, "{}{nodes} {why}", if at == 0 { ": " } else { ", " })?;
                }
                Ok(())
            }
            Self::Unexamined { pod } => write!(f, "pod {pod} has no place among the nodes that were tried"),
        }
    }
}

impl fmt::Display for PodBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSafeToEvict => write!(f, "may not be moved: safe-to-evict is false"),
            Self::WaitsForCompletion => {
                write!(f, "may go only when it has completed: safe-to-evict is on-completion")
            }
            Self::DoNotDisrupt => write!(f, "may not be moved: do-not-disrupt is true"),
            Self::Unreplicated => write!(f, "has no controller that would make it again"),
            Self::ControllerMissing { kind, name } => {
                write!(f, "belongs to {kind} {name}, which does not exist")
            }
            Self::FewReplicas { kind, name, replicas, min } => {
                write!(f, "belongs to {kind} {name} with {replicas} replicas, fewer than {min}")
            }
            Self::LocalStorage { volume } => write!(f, "keeps volume {volume} on the node"),
            Self::System => write!(f, "is a system pod without a budget"),
            Self::SeveralBudgets { budgets } => {
                write!(
                    f,
                    "is covered by {} budgets ({}), so it cannot be evicted",
                    budgets.len(),
                    budgets.join(", ")
                )
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReceiver => write!(f, "take no pods"),
            Self::Incompatible => write!(f, "do not match its selectors or have taints"),
            Self::Insufficient { resource } => write!(f, "lack {resource}"),
            Self::Conflict => write!(f, "have a conflicting pod or port"),
            Self::Spread => write!(f, "would break its spread"),
            Self::Affinity => write!(f, "lack the pods it has to be with"),
            Self::Volumes => write!(f, "cannot use its volumes"),
        }
    }
}
