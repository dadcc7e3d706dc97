//! What only the journal knows: why something that is gone went, and what was decided about it before.

use muster_engine::explain::Answer;
use muster_model::{ClusterId, Timestamp};

use super::{Brief, Explained, Subject};
use crate::{
    journal::{Action, Decision, DecisionFilter, Journal, JournalError},
    planner::cut,
};

/// Decisions that an answer lists.
const MOST: usize = 5;

/// The last decisions about a subject, newest first.
pub(super) async fn of(
    journal: &Journal,
    cluster: ClusterId,
    subject: &Subject,
) -> Result<Vec<Brief>, JournalError> {
    let filter = match subject {
        Subject::Pod(_) => DecisionFilter { actions_only: true, ..DecisionFilter::default() },
        Subject::Node(node) => DecisionFilter { node: Some(node.clone()), ..DecisionFilter::default() },
        Subject::Host(host) => DecisionFilter { host: Some(host.clone()), ..DecisionFilter::default() },
        Subject::Pool(pool) => DecisionFilter { pool: Some(pool.clone()), ..DecisionFilter::default() },
    };
    // What pods were woken for is in the actions; a page is enough for the last of them.
    let most = if matches!(subject, Subject::Pod(_)) { 100 } else { MOST };
    let page = journal.list(cluster, &filter, None, most).await?;
    let briefs = page.decisions.iter().filter_map(|decision| brief(decision, subject));
    Ok(briefs.take(MOST).collect())
}

fn brief(decision: &Decision, subject: &Subject) -> Option<Brief> {
    let about = |action: &&Action| match subject {
        Subject::Pod(key) => action.pods.contains(key),
        Subject::Node(node) => action.node.as_ref() == Some(node),
        Subject::Host(host) => action.host.as_ref() == Some(host),
        Subject::Pool(pool) => action.pool == *pool,
    };
    let action = decision.actions.iter().find(about)?;
    let what = match (&action.host, &action.node) {
        (_, Some(node)) => format!("{} node {node}", action.kind.as_str()),
        (Some(host), None) => format!("{} host {host}", action.kind.as_str()),
        (None, None) => format!("{} for a node of pool {}", action.kind.as_str(), action.pool),
    };
    Some(Brief {
        id: decision.id.clone(),
        at: decision.at,
        headline: decision.headline.clone(),
        outcome: decision.outcome.state.as_str(),
        because: format!("{what}: {}", action.because),
    })
}

/// The answer about something that is not there: its last trace, or that there is none.
pub(super) fn gone(
    cluster: ClusterId,
    cluster_name: String,
    subject: &Subject,
    history: &[Brief],
    evaluated: Option<Timestamp>,
    near: Option<&Answer>,
) -> Explained {
    let name = format!("{} {}", subject.kind(), subject.name());
    let headline = match (history.first(), evaluated) {
        (Some(last), _) => {
            cut(&format!("{name} is gone; decision {} of {}: {}", last.id, last.at, last.because))
        }
        (None, Some(at)) => cut(&format!("{name} is not there as of {at}, and 0 decisions mention it")),
        (None, None) => cut(&format!("{name} is unknown: 0 looks at the cluster have ended yet")),
    };
    let mut text = format!("{headline}\n");
    if history.is_empty()
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
    }
}
