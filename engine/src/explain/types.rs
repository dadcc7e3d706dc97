//! Answers as plain data. Texts are made from them, never the other way round.

use std::sync::Arc;

use muster_model::{Timestamp, k8s::PodKey};
use serde::Serialize;
use serde_json::Value;

use super::Code;

/// One cause, with the object and field behind it and its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    pub code: Code,
    /// For example `nodepools/gpu` or `pods/default/train-0`.
    pub object: String,
    /// The field of the object that decides, for example `spec.autoscaling.maxNodes`.
    pub field: String,
    /// What was found, with its unit.
    pub observed: String,
    /// What would have been needed, with its unit.
    pub required: String,
    /// The difference, where it is a number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub margin: String,
    /// The same as a phrase.
    pub text: String,
    /// When it lapses by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Cause {
    pub(super) fn new(code: Code, object: impl Into<String>, field: impl Into<String>) -> Self {
        Self {
            code,
            object: object.into(),
            field: field.into(),
            observed: String::new(),
            required: String::new(),
            margin: String::new(),
            text: String::new(),
            until: None,
        }
    }

    pub(super) fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    pub(super) fn found(mut self, observed: impl Into<String>, required: impl Into<String>) -> Self {
        self.observed = observed.into();
        self.required = required.into();
        self
    }

    pub(super) fn margin(mut self, margin: impl Into<String>) -> Self {
        self.margin = margin.into();
        self
    }

    pub(super) fn until(mut self, until: Option<Timestamp>) -> Self {
        self.until = until;
        self
    }
}

/// Why a pod has the place it has, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct PodAnswer {
    pub pod: PodKey,
    /// One line, at most 120 characters.
    pub headline: String,
    pub cause: Cause,
    /// Where it runs or is planned to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// Pods without a place that are alike in everything that decides, this one included.
    pub alike: u32,
    /// One row per pool: the first thing that fails on the machine that comes closest.
    pub pools: Vec<PoolRow>,
    /// Hosts that were considered, and what became of each.
    pub hosts: Vec<HostRow>,
    /// How many of the present nodes refuse it, and why.
    pub nodes: Vec<NodeTally>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict: Option<Conflict>,
    /// Changes that would give it a place, the most helpful first.
    pub fixes: Vec<Fix>,
    pub next: Vec<Next>,
    /// The moment of the snapshot.
    pub evaluated: Timestamp,
}

/// Whether a pool has a machine for the pod at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Match {
    /// No machine of the pool would take the pod.
    NoMatch,
    /// A machine would take it, but none can be had now.
    Unavailable,
    /// A machine would take it and can be had.
    Available,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    pub pool: Arc<str>,
    /// The template that comes closest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<str>>,
    pub matches: Match,
    pub cause: Cause,
    pub nodes: u32,
    /// `null` without a maximum.
    pub max: Option<u32>,
    /// The node that it would make, if none of its nodes can be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_make: Option<TemplateView>,
}

/// The node that a template stands for, and where each of its fields comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateView {
    pub template: Arc<str>,
    pub fields: Vec<TemplateField>,
    /// What daemon pods will take of it, by resource.
    pub daemons: Vec<TemplateField>,
    /// Set if the template was learned from a node that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TemplateField {
    pub name: String,
    pub value: String,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostRow {
    pub host: Arc<str>,
    pub pool: Arc<str>,
    pub cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeTally {
    pub code: Code,
    pub text: String,
    pub nodes: u32,
    /// One of them.
    pub example: String,
}

/// Two requirements that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub left: Requirement,
    pub right: Requirement,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Requirement {
    pub field: String,
    pub text: String,
}

/// How a patch is to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PatchKind {
    /// RFC 7396.
    Merge,
    /// As `kubectl patch` does by default: containers are merged by name.
    Strategic,
}

/// A change that would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fix {
    pub object: String,
    pub field: String,
    pub text: String,
    pub patch: Value,
    pub kind: PatchKind,
    /// Pods without a place that it would help.
    pub helps: u32,
}

/// What happens without anybody doing anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    pub text: String,
}

/// Whether a node stays or goes, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct NodeAnswer {
    pub node: Arc<str>,
    pub headline: String,
    pub cause: Cause,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Arc<str>>,
    /// Everything that keeps it, not just the first.
    pub blockers: Vec<Cause>,
    /// Where each pod would go if this node went, as far as each has a place.
    pub moves: Vec<Move>,
    /// Pods that run there or are planned there.
    pub pods: Vec<PodKey>,
    /// Requests against what the node can hold, the dominant resource first.
    pub usage: Vec<Usage>,
    pub budgets: Vec<BudgetView>,
    pub next: Vec<Next>,
    pub evaluated: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Move {
    pub pod: PodKey,
    pub to: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub resource: String,
    pub requested: String,
    pub allocatable: String,
    pub percent: i64,
}

/// A disruption budget over pods of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetView {
    pub budget: String,
    pub allowed: i64,
    pub healthy: i32,
    pub desired_healthy: i32,
    /// Pods whose eviction was granted and that are not gone yet.
    pub in_use_by: Vec<String>,
    /// Pods of this node that it covers.
    pub covers: Vec<PodKey>,
}

/// What a host could do, and why it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct HostAnswer {
    pub host: Arc<str>,
    pub headline: String,
    pub cause: Cause,
    pub pool: Arc<str>,
    pub template: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<Arc<str>>,
    pub recent_failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<NodeAnswer>>,
    pub next: Vec<Next>,
    pub evaluated: Timestamp,
}

/// Why a pool has the size it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct PoolAnswer {
    pub pool: Arc<str>,
    pub headline: String,
    pub cause: Cause,
    pub nodes: u32,
    pub ready: u32,
    pub upcoming: u32,
    pub leaving: u32,
    pub min: u32,
    pub max: Option<u32>,
    pub new: u32,
    pub removed: u32,
    /// Pods that the plan puts on new nodes of the pool, by node.
    pub causes: Vec<NewNodeCause>,
    /// What stops it from growing further.
    pub why_not_more: Vec<Cause>,
    /// What stops it from shrinking, by cause.
    pub why_not_fewer: Vec<NodeTally>,
    pub templates: Vec<TemplateView>,
    pub hosts: Vec<HostRow>,
    /// Nodes on their way, with what is expected of them.
    pub in_flight: Vec<Cause>,
    pub next: Vec<Next>,
    pub evaluated: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewNodeCause {
    pub node: Arc<str>,
    pub template: Arc<str>,
    pub pods: Vec<PodKey>,
}

/// Any of the answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "about")]
pub enum Answer {
    Pod(Box<PodAnswer>),
    Node(Box<NodeAnswer>),
    Host(Box<HostAnswer>),
    Pool(Box<PoolAnswer>),
    /// The object is not in the snapshot.
    Unknown {
        name: String,
        headline: String,
        cause: Cause,
        near: Vec<String>,
    },
}

impl Answer {
    pub fn headline(&self) -> &str {
        match self {
            Self::Pod(answer) => &answer.headline,
            Self::Node(answer) => &answer.headline,
            Self::Host(answer) => &answer.headline,
            Self::Pool(answer) => &answer.headline,
            Self::Unknown { headline, .. } => headline,
        }
    }

    pub fn cause(&self) -> &Cause {
        match self {
            Self::Pod(answer) => &answer.cause,
            Self::Node(answer) => &answer.cause,
            Self::Host(answer) => &answer.cause,
            Self::Pool(answer) => &answer.cause,
            Self::Unknown { cause, .. } => cause,
        }
    }
}
