//! What only the journal knows: why something that is gone went, and what was decided about it before.

use std::fmt::Write as _;

use muster_engine::explain::{Answer, one_line};
use muster_model::{ClusterId, Timestamp};

use super::{Brief, Explained, Subject, Trace};
use crate::journal::{Action, Decision, DecisionFilter, Journal, JournalError};

/// Decisions that an answer lists.
const MOST: usize = 5;
/// Pages of the journal that are looked through for something that is not there: 60,000 decisions, which takes a second or two.
const MOST_PAGES: usize = 3;

/// The last decisions about a subject, newest first, and how far was looked for them.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) briefs: Vec<Brief>,
    looked: u64,
    back_to: Option<Timestamp>,
    /// There are older ones that were not looked at.
    more: bool,
}

/// Looks for a subject. One that is there is not looked for any further than one page.
pub(super) async fn of(
    journal: &Journal,
    cluster: ClusterId,
    subject: &Subject,
    is_there: bool,
) -> Result<History, JournalError> {
    let all = DecisionFilter::default();
    let filter = match subject {
        Subject::Pod(pod) => DecisionFilter { pod: Some(pod.clone()), ..all },
        Subject::Node(node) => DecisionFilter { node: Some(node.clone()), ..all },
        Subject::Host(host) => DecisionFilter { host: Some(host.clone()), ..all },
        Subject::Pool(pool) => DecisionFilter { pool: Some(pool.clone()), ..all },
    };
    let (mut history, mut below) = (History::default(), None);
    for _ in 0..if is_there { 1 } else { MOST_PAGES } {
        let page = journal.list(cluster, &filter, below, MOST - history.briefs.len()).await?;
        history.briefs.extend(page.decisions.iter().map(|decision| brief(decision, subject)));
        history.looked += page.looked;
        history.back_to = page.back_to.or(history.back_to);
        below = page.next;
        if below.is_none() || !history.briefs.is_empty() {
            break;
        }
    }
    history.more = below.is_some();
    Ok(history)
}

fn brief(decision: &Decision, subject: &Subject) -> Brief {
    let about = |action: &&Action| match subject {
        Subject::Pod(key) => action.pods.contains(key),
        Subject::Node(node) => action.node.as_ref() == Some(node),
        Subject::Host(host) => action.host.as_ref() == Some(host),
        Subject::Pool(pool) => action.pool == *pool,
    };
    let because = match decision.actions.iter().find(about) {
        Some(action) => {
            let what = match (&action.host, &action.node) {
                (_, Some(node)) => format!("{} node {node}", action.kind.as_str()),
                (Some(host), None) => format!("{} host {host}", action.kind.as_str()),
                (None, None) => format!("{} for a node of pool {}", action.kind.as_str(), action.pool),
            };
            format!("{what}: {}", action.because)
        }
        // It is named beyond the list of what is done.
        None => decision.headline.clone(),
    };
    Brief {
        id: decision.id.clone(),
        at: decision.at,
        headline: decision.headline.clone(),
        outcome: decision.outcome.state.as_str(),
        because,
    }
}

/// What is known of something that has no answer.
#[derive(Debug, Default)]
pub(super) struct Missing<'m> {
    pub(super) history: Option<&'m History>,
    /// Up to when the cluster was seen.
    pub(super) evaluated: Option<Timestamp>,
    /// Nobody sees pods and nodes there.
    pub(super) blind: bool,
    /// A host that is in the inventory all the same.
    pub(super) aside: Option<(Trace, String)>,
    pub(super) near: Option<&'m Answer>,
}

/// The answer about something that is not there: why nobody knows, its last trace, or that there is none.
pub(super) fn gone(
    cluster: ClusterId,
    cluster_name: String,
    subject: &Subject,
    missing: Missing<'_>,
) -> Explained {
    let name = format!("{} {}", subject.kind(), subject.name());
    let Missing { history, evaluated, blind, aside, near } = missing;
    let last = history.and_then(|history| history.briefs.first());
    let blind = blind && matches!(subject, Subject::Pod(_) | Subject::Node(_));
    let said = match (&aside, evaluated, last) {
        (_, None, _) => format!("{name} is unknown: 0 looks at the cluster have ended yet"),
        (Some((_, why)), ..) => format!("{name} {why}"),
        _ if blind => {
            format!("{name} is unknown: cluster {cluster_name} is not connected, 0 pods and nodes are seen")
        }
        (None, Some(_), Some(last)) => {
            format!("{name} is gone; decision {} of {}: {}", last.id, last.at, last.because)
        }
        (None, Some(at), None) => match history {
            Some(history) => {
                let looked = history.looked;
                format!(
                    "{name} is not there as of {at}; 0 of the last {looked} decisions did anything for it"
                )
            }
            None => format!("{name} was not there at {at}"),
        },
    };
    let headline = one_line(&said);
    let mut text = format!("{headline}\n");
    if headline != said {
        let _ = writeln!(text, "\n{said}");
    }
    if let Some(history) = history.filter(|_| last.is_none()) {
        text.push_str(&history.reach());
    }
    if last.is_none()
        && let Some(Answer::Unknown { near, .. }) = near
        && !near.is_empty()
    {
        text.push_str("\nnear: ");
        text.push_str(&near.join(", "));
        text.push('\n');
    }
    Explained {
        kind: subject.kind(),
        name: subject.name(),
        cluster_id: cluster,
        cluster_name,
        headline,
        text,
        answer: None,
        evaluated,
        decision_id: None,
        planner: None,
        history: Vec::new(),
        trace: match (aside, last) {
            (Some((trace, _)), _) => trace,
            (None, Some(_)) => Trace::Gone,
            (None, None) => Trace::None,
        },
    }
}

impl History {
    /// How far was looked, where nothing was found.
    fn reach(&self) -> String {
        let Some(back) = self.back_to else { return String::new() };
        let looked = self.looked;
        if self.more {
            format!("\nlooked through the last {looked} decisions, back to {back}; there are older ones\n")
        } else {
            format!("\nlooked through all {looked} decisions that are kept, back to {back}\n")
        }
    }
}
