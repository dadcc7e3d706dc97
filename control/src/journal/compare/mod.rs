//! Two decisions side by side: what they looked at, what they did, and one sentence about why they are not the same.
//!
//! Pure. Values are texts for people; names are listed up to a bound and counted beyond it. A decision whose snapshot
//! is no longer kept is compared by its record: what it did is known, what it looked at is not, and that is said.

mod blame;
mod inputs;
mod outcome;
mod rules;
mod sentence;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;

use muster_engine::{Plan, Snapshot};
use muster_model::Timestamp;
use serde::Serialize;

use super::{Decision, DecisionId, OutcomeState, REPLAYABLE};

pub use blame::Blame;

/// Names that one row lists: enough to recognise what it is about.
const MOST_NAMES: usize = 6;
/// Rows about single objects of one kind: where more differ, nobody reads them one by one.
const MOST_ALIKE: usize = 20;

/// A decision, with its snapshot and plan as long as they are kept.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    pub decision: &'a Decision,
    pub frame: Option<(&'a Snapshot, &'a Plan)>,
}

/// Two decisions side by side, from the first to the second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[must_use]
pub struct Comparison {
    pub from: Heading,
    pub to: Heading,
    /// Neither what they looked at nor what they did differs.
    pub same: bool,
    /// One sentence: what they did differently, and what made them.
    pub summary: String,
    /// Where the difference of what they did comes from; absent where they did the same, or nobody can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<Blame>,
    /// What differs in what they looked at.
    pub inputs: Vec<Change>,
    /// What differs in what they did.
    pub outcome: Vec<Change>,
    /// What could not be compared, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Everything above in words; its first line is the sentence.
    pub text: String,
}

/// One of the two, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Heading {
    pub id: DecisionId,
    pub number: u64,
    pub at: Timestamp,
    pub headline: String,
    pub outcome: OutcomeState,
}

/// What kind of thing differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    // Of what they looked at.
    Pods,
    Nodes,
    Hosts,
    Prices,
    Pools,
    Limits,
    Holds,
    Gaps,
    Other,
    // Of what they did.
    Growth,
    Removal,
    Refusal,
    Placement,
    Size,
    Audit,
    State,
}

impl Subject {
    pub const ALL: [Self; 16] = [
        Self::Pods,
        Self::Nodes,
        Self::Hosts,
        Self::Prices,
        Self::Pools,
        Self::Limits,
        Self::Holds,
        Self::Gaps,
        Self::Other,
        Self::Growth,
        Self::Removal,
        Self::Refusal,
        Self::Placement,
        Self::Size,
        Self::Audit,
        Self::State,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::Hosts => "hosts",
            Self::Prices => "prices",
            Self::Pools => "pools",
            Self::Limits => "limits",
            Self::Holds => "holds",
            Self::Gaps => "gaps",
            Self::Other => "other",
            Self::Growth => "growth",
            Self::Removal => "removal",
            Self::Refusal => "refusal",
            Self::Placement => "placement",
            Self::Size => "size",
            Self::Audit => "audit",
            Self::State => "state",
        }
    }
}

/// One thing that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub subject: Subject,
    /// The pool that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// `pods waiting`, `maximum`, `called up`.
    pub name: String,
    pub from: String,
    pub to: String,
    /// Which ones: `+ shop/cart-1` came, `- shop/cart-2` is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// What each decision gave as its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_because: Option<String>,
    /// Set by people: bounds, policies, holds. What is not set happened in the world.
    pub rule: bool,
}

impl Change {
    fn new(
        subject: Subject,
        name: impl Into<String>,
        from: impl Into<String>,
        to: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            pool: None,
            name: name.into(),
            from: from.into(),
            to: to.into(),
            details: Vec::new(),
            from_because: None,
            to_because: None,
            rule: false,
        }
    }

    fn of(mut self, pool: &str) -> Self {
        self.pool = Some(pool.to_owned());
        self
    }

    fn rule(mut self) -> Self {
        self.rule = true;
        self
    }

    /// `maximum of web`, `hosts off in web`, `pods waiting`.
    fn title(&self) -> String {
        match (&self.pool, self.subject) {
            // Their names say what they are about.
            (None, _) | (_, Subject::Holds | Subject::Gaps) => self.name.clone(),
            (Some(pool), Subject::Nodes | Subject::Hosts | Subject::Growth | Subject::Removal) => {
                format!("{} in {pool}", self.name)
            }
            (Some(pool), _) => format!("{} of {pool}", self.name),
        }
    }
}

/// Compares two decisions of one cluster.
pub fn compare(from: Side<'_>, to: Side<'_>) -> Comparison {
    let mut comparison = Comparison {
        from: heading(from.decision),
        to: heading(to.decision),
        same: false,
        summary: String::new(),
        because: None,
        inputs: Vec::new(),
        outcome: Vec::new(),
        notes: Vec::new(),
        text: String::new(),
    };
    if from.decision.id == to.decision.id {
        comparison.same = true;
    } else {
        comparison.outcome = outcome::differences(from, to);
        match (from.frame, to.frame) {
            (Some((before, _)), Some((after, _))) => comparison.inputs = inputs::differences(before, after),
            _ => comparison.notes.extend(forgotten(from, to)),
        }
        comparison.same =
            comparison.inputs.is_empty() && comparison.outcome.is_empty() && comparison.notes.is_empty();
        comparison.because = blame::of(&comparison, from, to);
    }
    comparison.summary = sentence::of(&comparison, from, to);
    comparison.text = text::of(&comparison);
    comparison
}

fn heading(decision: &Decision) -> Heading {
    Heading {
        id: decision.id.clone(),
        number: decision.number,
        at: decision.at,
        headline: decision.headline.clone(),
        outcome: decision.outcome.state,
    }
}

fn forgotten(from: Side<'_>, to: Side<'_>) -> Vec<String> {
    let old = [from, to].into_iter().filter(|side| side.frame.is_none());
    old.map(|side| {
        format!(
            "what decision {} looked at is no longer kept (the last {REPLAYABLE} decisions keep it); what it did is",
            side.decision.id
        )
    })
    .collect()
}

/// What two sets differ in, as details: first what is gone, then what came.
fn names(from: &BTreeSet<String>, to: &BTreeSet<String>) -> Vec<String> {
    let mut all: Vec<String> = from.difference(to).map(|name| format!("- {name}")).collect();
    let gone = all.len();
    all.extend(to.difference(from).map(|name| format!("+ {name}")));
    let more = all.len().saturating_sub(MOST_NAMES);
    if more > 0 {
        // Some of both, where there are both.
        let came = all.len() - gone;
        let of_gone = gone.min(MOST_NAMES.saturating_sub(came.min(MOST_NAMES / 2)));
        let of_came = came.min(MOST_NAMES - of_gone);
        let mut few: Vec<String> = all[..of_gone].to_vec();
        few.extend_from_slice(&all[gone..gone + of_came]);
        few.push(format!("and {} more", all.len() - few.len()));
        return few;
    }
    all
}

/// A row for two sets of names, with their sizes; none where they are the same.
fn sets(subject: Subject, name: &str, from: &BTreeSet<String>, to: &BTreeSet<String>) -> Option<Change> {
    if from == to {
        return None;
    }
    let mut change = Change::new(subject, name, from.len().to_string(), to.len().to_string());
    change.details = names(from, to);
    Some(change)
}

/// `1 machine`, `2 machines`.
fn counted(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}
