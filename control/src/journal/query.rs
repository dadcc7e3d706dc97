//! Finding decisions: by id, and newest first with filters and a place to go on from.

use muster_model::{
    ClusterId, Timestamp,
    k8s::PodKey,
    store::{List, Revision},
};

use super::{Decision, Journal, JournalError, OutcomeState, decision_key, decode, head_key};

/// Records looked at for one page: a filter that matches little does not read the whole journal at once.
const MOST_LOOKED_AT: u64 = 20_000;
/// Records fetched at once.
const FETCH: u64 = 100;

/// Which decisions are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionFilter {
    pub pool: Option<String>,
    pub host: Option<String>,
    pub node: Option<String>,
    /// Only decisions that did something for it.
    pub pod: Option<PodKey>,
    pub outcome: Option<OutcomeState>,
    /// Not before, and before.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only decisions that change something, or would.
    pub actions_only: bool,
}

impl DecisionFilter {
    pub fn wants(&self, decision: &Decision) -> bool {
        let acts = |test: &dyn Fn(&super::Action) -> bool| decision.actions.iter().any(test);
        self.pool.as_ref().is_none_or(|pool| decision.pools.contains(pool))
            && self.host.as_ref().is_none_or(|host| {
                acts(&|action| action.host.as_ref() == Some(host)) || decision.also.hosts.contains(host)
            })
            && self.node.as_ref().is_none_or(|node| {
                acts(&|action| action.node.as_ref() == Some(node)) || decision.also.nodes.contains(node)
            })
            && self
                .pod
                .as_ref()
                .is_none_or(|pod| acts(&|action| action.pods.contains(pod)) || decision.also.has_pod(pod))
            && self.outcome.is_none_or(|outcome| outcome == decision.outcome.state)
            && self.since.is_none_or(|since| decision.at >= since)
            && self.until.is_none_or(|until| decision.at < until)
            && (!self.actions_only || decision.new_nodes + decision.removals > 0)
    }
}

/// Decisions of one cluster, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionPage {
    pub decisions: Vec<Decision>,
    /// Go on below this number; `None` when there is nothing more.
    pub next: Option<u64>,
    /// The moment that the page shows: a watch goes on from there.
    pub revision: Revision,
    /// How many were looked at for it, and when the oldest of them was made.
    pub looked: u64,
    pub back_to: Option<Timestamp>,
}

impl Journal {
    pub async fn read(&self, cluster: ClusterId, number: u64) -> Result<Option<Decision>, JournalError> {
        let key = decision_key(cluster, number);
        self.store.get(&key).await?.map(|entry| decode(&key, &entry.value)).transpose()
    }

    /// The last decision of a cluster.
    pub async fn last(&self, cluster: ClusterId) -> Result<Option<Decision>, JournalError> {
        let (head, _) = self.head(cluster).await?;
        if head.number == 0 { Ok(None) } else { self.read(cluster, head.number).await }
    }

    /// At most `limit` decisions that match, below `below`.
    pub async fn list(
        &self,
        cluster: ClusterId,
        filter: &DecisionFilter,
        below: Option<u64>,
        limit: usize,
    ) -> Result<DecisionPage, JournalError> {
        let (head, _) = self.head(cluster).await?;
        let mut end = below.unwrap_or(u64::MAX).min(head.number + 1);
        let oldest = head.oldest.max(1);
        let stop = end.saturating_sub(MOST_LOOKED_AT).max(oldest);
        let (mut decisions, mut revision) = (Vec::new(), self.store.revision().await?);
        let (mut looked, mut back_to) = (0, None);
        while end > stop {
            let start = end.saturating_sub(FETCH).max(stop);
            let (found, at) = self.run(cluster, start, end).await?;
            revision = at;
            for decision in found.into_iter().rev() {
                end = decision.number;
                let older = filter.since.is_some_and(|since| decision.at < since);
                if older {
                    return Ok(DecisionPage { decisions, next: None, revision, looked, back_to });
                }
                (looked, back_to) = (looked + 1, Some(decision.at));
                if filter.wants(&decision) {
                    decisions.push(decision);
                }
                if decisions.len() >= limit {
                    let next = (end > oldest).then_some(end);
                    return Ok(DecisionPage { decisions, next, revision, looked, back_to });
                }
            }
            end = start.min(end);
        }
        Ok(DecisionPage { decisions, next: (end > oldest).then_some(end), revision, looked, back_to })
    }

    /// Records from `start` up to `end`, in order.
    async fn run(
        &self,
        cluster: ClusterId,
        start: u64,
        end: u64,
    ) -> Result<(Vec<Decision>, Revision), JournalError> {
        let list = List {
            after: Some(decision_key(cluster, start.saturating_sub(1))),
            limit: usize::try_from(end - start).unwrap_or(usize::MAX),
            ..List::prefix(super::decisions(cluster))
        };
        let page = self.store.list(list).await?;
        let last = decision_key(cluster, end);
        let mut found = Vec::with_capacity(page.entries.len());
        for entry in page.entries.iter().filter(|entry| entry.key < last) {
            match decode(&entry.key, &entry.value) {
                Ok(decision) => found.push(decision),
                Err(error) => {
                    tracing::error!(code = error.code(), %error, "a decision is left out of a list");
                }
            }
        }
        Ok((found, page.revision))
    }

    /// Whether a cluster ever had a decision: its journal outlives it.
    pub async fn exists(&self, cluster: ClusterId) -> Result<bool, JournalError> {
        Ok(self.store.get(&head_key(cluster)).await?.is_some())
    }

    pub fn store(&self) -> &std::sync::Arc<dyn muster_model::store::Store> {
        &self.store
    }
}
