//! Answers about what is and what was: the engine's explanations over the live snapshot of a planner, and the
//! journal for everything that is over.
//!
//! An answer is never empty. What is not in the cluster any more is looked for in the journal, so that a node that
//! was removed last week still says why; what the planner has not looked at yet is said to be unknown, with when
//! it last looked.

mod history;
mod pending;
mod text;

use std::sync::Arc;

use muster_engine::{
    Plan, Snapshot,
    explain::{Answer, Explainer, Scene, text as words},
};
use muster_model::{ClusterId, Timestamp, k8s::PodKey};
use serde::Serialize;
use serde_json::Value;

use crate::{
    journal::{Decision, DecisionId, Journal, JournalError, replay},
    planner::{Board, Live, View},
    snapshot::NOT_CONNECTED,
};
use history::Missing;

pub use pending::{Gap, PendingGroup, PendingPod, Remedy};
pub use text::describe;

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Pod(PodKey),
    Node(String),
    Host(String),
    /// By the name in its cluster.
    Pool(String),
}

impl Subject {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Pod(_) => "pod",
            Self::Node(_) => "node",
            Self::Host(_) => "host",
            Self::Pool(_) => "pool",
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Pod(key) => key.to_string(),
            Self::Node(name) | Self::Host(name) | Self::Pool(name) => name.clone(),
        }
    }
}

/// An answer with everything around it.
#[derive(Debug, Clone, Serialize)]
#[must_use]
pub struct Explained {
    pub kind: &'static str,
    pub name: String,
    pub cluster_id: ClusterId,
    pub cluster_name: String,
    /// One line, at most 120 characters, with a number in it.
    pub headline: String,
    /// The whole answer in words; its first line is the headline.
    pub text: String,
    /// The engine's answer; absent for what only the journal knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// The moment that the answer is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Timestamp>,
    /// The decision whose snapshot was asked, if not the present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_id: Option<DecisionId>,
    /// How the planner fares: the answer to "is it alive?".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planner: Option<Arc<Live>>,
    /// Decisions about the subject, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Brief>,
    /// How much is known of it.
    #[serde(skip)]
    pub trace: Trace,
}

/// How much a cluster knows of something: of several clusters the one that knows most is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trace {
    None,
    /// A host of the inventory whose pool the cluster does not have.
    Elsewhere,
    /// The journal tells of it.
    Gone,
    /// A host of the inventory that no plan counts on, for a reason that the cluster knows.
    LeftOut,
    There,
}

/// A decision in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Brief {
    pub id: DecisionId,
    pub at: Timestamp,
    pub headline: String,
    pub outcome: &'static str,
    /// What it did to the subject, and why.
    pub because: String,
}

/// A decision with its replay.
#[derive(Debug, Clone, Serialize)]
#[must_use]
pub struct ExplainedDecision {
    pub headline: String,
    pub text: String,
    pub decision: Decision,
    /// `same`, `different` or why it cannot be said.
    pub replay: String,
}

/// Whoever can be asked. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Explain {
    board: Arc<Board>,
    journal: Journal,
    pending: Arc<pending::Known>,
}

impl Explain {
    pub fn new(board: Arc<Board>, journal: Journal) -> Self {
        Self { board, journal, pending: Arc::default() }
    }

    /// The pods of a cluster that wait, by why they wait; the most helpful fix first. `None` where nobody can see
    /// pods. It takes as long as explaining each kind of pod does, once for every look of the planner.
    pub fn pending(&self, cluster: ClusterId) -> Option<Arc<Vec<PendingGroup>>> {
        let live = self.board.get(cluster).filter(|live| live.connected)?;
        let view = live.view.clone()?;
        Some(self.pending.of(cluster, &view))
    }

    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// About something as it is now, or as its last trace in the journal tells.
    pub async fn now(
        &self,
        cluster: ClusterId,
        subject: &Subject,
        now: Timestamp,
    ) -> Result<Explained, JournalError> {
        self.now_for(cluster, subject, now, &|_| true).await
    }

    /// The same for somebody who sees the hosts of some projects; a host may name none.
    pub async fn now_for(
        &self,
        cluster: ClusterId,
        subject: &Subject,
        now: Timestamp,
        sees: &(dyn Fn(Option<&str>) -> bool + Sync),
    ) -> Result<Explained, JournalError> {
        let live = self.board.get(cluster);
        let view = live.as_ref().and_then(|live| live.view.clone());
        let found = view.as_ref().and_then(|view| ask(&view.snapshot, &view.plan, subject));
        let history = history::of(&self.journal, cluster, subject, found.is_some()).await?;
        let name = live.as_ref().map(|live| live.cluster_name.clone()).unwrap_or_default();
        let mut explained = match (found, view) {
            (Some(answer), Some(view)) => answered(cluster, name, subject, &answer, view.snapshot.now, None),
            (None, view) => {
                let fresh = live.as_ref().and_then(|live| live.fresh_at);
                let near = view.as_ref().map(|view| near(&view.snapshot, &view.plan, subject));
                let missing = Missing {
                    history: Some(&history),
                    evaluated: view.as_ref().map(|view| seen(&view.snapshot, fresh, subject)),
                    blind: view.as_ref().is_some_and(|view| is_blind(&view.snapshot)),
                    aside: view.as_ref().and_then(|view| aside(view, &name, subject, sees)),
                    near: near.as_ref(),
                };
                history::gone(cluster, name, subject, missing)
            }
            (Some(_), None) => unreachable!("an answer comes from a view"),
        };
        explained.text.push_str(&text::planner(live.as_deref(), now));
        explained.text.push_str(&text::history(&history.briefs));
        explained.planner = live;
        explained.history = history.briefs;
        Ok(explained)
    }

    /// About something as it was when a decision was made.
    pub async fn then(&self, decision: &Decision, subject: &Subject) -> Result<Explained, JournalError> {
        let (snapshot, plan) = self.journal.frame(decision).await?;
        let (cluster, name) = (decision.cluster_id, decision.cluster_name.clone());
        let id = Some(decision.id.clone());
        if let Some(answer) = ask(&snapshot, &plan, subject) {
            return Ok(answered(cluster, name, subject, &answer, snapshot.now, id));
        }
        let near = near(&snapshot, &plan, subject);
        let missing = Missing {
            evaluated: Some(snapshot.now),
            blind: is_blind(&snapshot),
            near: Some(&near),
            ..Missing::default()
        };
        let mut gone = history::gone(cluster, name, subject, missing);
        gone.decision_id = id;
        Ok(gone)
    }

    /// About a decision: what it did and why, what became of it, and whether it would be made again.
    pub async fn decision(&self, decision: Decision) -> Result<ExplainedDecision, JournalError> {
        let verdict = match self.journal.frame(&decision).await {
            Ok((snapshot, plan)) => replay(&decision, &snapshot, plan).headline,
            Err(error @ (JournalError::TooOld { .. } | JournalError::Damaged { .. })) => error.to_string(),
            Err(error) => return Err(error),
        };
        let text = text::describe(&decision, Some(&verdict));
        Ok(ExplainedDecision { headline: decision.headline.clone(), text, decision, replay: verdict })
    }

    /// A decision by its id, among the given clusters.
    pub async fn find(&self, id: &str, clusters: &[ClusterId]) -> Result<Option<Decision>, JournalError> {
        let Some((stem, number)) = DecisionId::parse(id) else { return Ok(None) };
        for cluster in clusters.iter().filter(|cluster| DecisionId::may_begin(stem, **cluster)) {
            let found = self.journal.read(*cluster, number).await?;
            let named = |decision: &Decision| {
                let own = DecisionId::parse(decision.id.as_str());
                own.is_some_and(|(own, _)| own.eq_ignore_ascii_case(stem))
            };
            if let Some(decision) = found.filter(named) {
                return Ok(Some(decision));
            }
        }
        Ok(None)
    }
}

/// Whether nobody sees the pods and nodes of the cluster.
fn is_blind(snapshot: &Snapshot) -> bool {
    snapshot.gaps.iter().any(|gap| &*gap.why == NOT_CONNECTED)
}

/// Up to when a subject was looked for: what the cluster shows may be older than the look.
fn seen(snapshot: &Snapshot, fresh: Option<Timestamp>, subject: &Subject) -> Timestamp {
    match subject {
        Subject::Pod(_) | Subject::Node(_) => fresh.map_or(snapshot.now, |fresh| fresh.min(snapshot.now)),
        Subject::Host(_) | Subject::Pool(_) => snapshot.now,
    }
}

/// Why a host of the inventory is in no plan of the cluster.
fn aside(
    view: &View,
    cluster: &str,
    subject: &Subject,
    sees: &(dyn Fn(Option<&str>) -> bool + Sync),
) -> Option<(Trace, String)> {
    let Subject::Host(name) = subject else { return None };
    let host = view.inventory.iter().find(|host| host.name == *name)?;
    let project = host.spec.as_ref().ok().and_then(|spec| spec.project.as_deref());
    if !sees(project) {
        return None;
    }
    let spec = match &host.spec {
        Ok(spec) => spec,
        Err(why) => return Some((Trace::LeftOut, format!("is in 0 plans: its record is set aside: {why}"))),
    };
    let pool = view.pools.iter().find(|pool| pool.is_bare_metal() && pool.inventory_name() == spec.pool);
    let refusals = pool
        .and_then(|pool| pool.object.spec.platform.facts().selector)
        .map(|selector| selector.refusals(&spec.labels))
        .unwrap_or_default();
    Some(match (pool, refusals.first()) {
        (None, _) => {
            let why = format!(
                "belongs to pool {}, and cluster {cluster} has 0 pools of servers of that name",
                spec.pool
            );
            (Trace::Elsewhere, why)
        }
        (Some(pool), Some(first)) => {
            let (pool, many) = (pool.name(), refusals.len());
            let labels = if many == 1 { "label" } else { "labels" };
            let why =
                format!("belongs to pool {pool}, whose selector leaves it out by {many} {labels}: {first}");
            (Trace::LeftOut, why)
        }
        (Some(pool), None) => {
            let why = format!("belongs to pool {}, and 0 plans have counted on it yet", pool.name());
            (Trace::LeftOut, why)
        }
    })
}

/// What has a name like that of something that is not there.
fn near(snapshot: &Snapshot, plan: &Plan, subject: &Subject) -> Answer {
    Explainer::new(&Scene::new(snapshot, plan)).ask(&full_name(subject))
}

fn ask(snapshot: &Snapshot, plan: &Plan, subject: &Subject) -> Option<Answer> {
    let scene = Scene::new(snapshot, plan);
    let explainer = Explainer::new(&scene);
    match subject {
        Subject::Pod(key) => explainer.pod(key).map(|answer| Answer::Pod(Box::new(answer))),
        Subject::Node(name) => explainer.node(name).map(|answer| Answer::Node(Box::new(answer))),
        Subject::Host(name) => {
            snapshot.host(name).filter(|host| !host.pool.is_empty())?; // hosts of other clusters are only counted
            explainer.host(name).map(|answer| Answer::Host(Box::new(answer)))
        }
        Subject::Pool(name) => explainer.pool(name).map(|answer| Answer::Pool(Box::new(answer))),
    }
}

fn full_name(subject: &Subject) -> String {
    format!("{}/{}", subject.kind(), subject.name())
}

fn answered(
    cluster: ClusterId,
    cluster_name: String,
    subject: &Subject,
    answer: &Answer,
    evaluated: Timestamp,
    decision_id: Option<DecisionId>,
) -> Explained {
    let value = match answer {
        Answer::Pod(one) => serde_json::to_value(one),
        Answer::Node(one) => serde_json::to_value(one),
        Answer::Host(one) => serde_json::to_value(one),
        Answer::Pool(one) => serde_json::to_value(one),
        Answer::Unknown { .. } => serde_json::to_value(answer),
    };
    Explained {
        kind: subject.kind(),
        name: subject.name(),
        cluster_id: cluster,
        cluster_name,
        headline: answer.headline().to_owned(),
        text: words::render(answer),
        answer: value.ok(),
        evaluated: Some(evaluated),
        decision_id,
        planner: None,
        history: Vec::new(),
        trace: Trace::There,
    }
}
