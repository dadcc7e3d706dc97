//! One look of one planner.

use std::{collections::BTreeMap, sync::Arc};

use muster_engine::Snapshot;
use muster_model::{
    ClusterId, Duration, Known, Timestamp,
    cluster::Cluster,
    observe::ClusterPort,
    pool::Trigger,
    store::{Committed, Expect, Fence, Revision, Txn},
};

use super::{
    Board, Counters, Decided, Live, Load, Parts, Thinking, View,
    answers::{Answers, Heard, Source},
    decide,
    load::Tracker,
    tell::{self, Before},
};
use crate::{
    actuator::{self, ActError, Link},
    journal::{Decision, DecisionId, Draft, JournalError, Outcome, OutcomeState},
    registry::RegistryError,
    snapshot::{self, Built, Inputs, Memory, Observed, PoolInput, TriggerInput, memory, read},
};

/// A planner looks at least this often, whatever happens: the pace of other autoscalers.
const REGULAR: Duration = Duration::from_secs(10);
/// After an error, or while the cluster is not in sync.
const SOON: Duration = Duration::from_secs(1);
/// Between two decisions that say something new but do nothing, or that repeat what had no effect.
const REPEAT: Duration = Duration::from_secs(10);

/// A plan is thought of anew this often even if nothing seems to have changed.
const RETHINK: Duration = Duration::from_mins(1);

/// How often users are told again of a plan that did not change; Kubernetes keeps events for an hour.
const REPEAT_NOTES: Duration = Duration::from_mins(5);
/// How often the state of a connection is said again although it did not change: well within a report's lease.
const REPEAT_LINK: Duration = Duration::from_mins(1);

/// What a turn did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Did {
    /// The cluster is not registered any more; the planner can be dropped.
    Gone,
    /// There was no plan, and why.
    Waited(String),
    /// A plan, and nothing to write down: it says what the last one said, or this process does not lead.
    Looked,
    /// A decision was journaled; its outcome says what became of it.
    Decided(Box<Decision>),
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Turn {
    pub did: Did,
    /// When to look again at the latest.
    pub next: Timestamp,
    /// When something changes by itself: before that, a look without news finds what this one found, unless a trigger
    /// has another answer or the cluster has gone silent.
    pub quiet_until: Option<Timestamp>,
    /// When the view of the cluster that this look had is too old to be trusted.
    pub stale_at: Option<Timestamp>,
}

/// What went wrong in a turn.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Act(#[from] ActError),
    #[error("this process no longer leads")]
    NotLeading,
    #[error("planning broke off; this is a bug, and its panic is in the log")]
    BrokeOff,
}

impl From<muster_model::store::StoreError> for TurnError {
    fn from(error: muster_model::store::StoreError) -> Self {
        Self::Registry(RegistryError::Store(error))
    }
}

/// The last decision of this planner.
#[derive(Debug)]
struct Last {
    essence: Vec<String>,
    at: Timestamp,
    decision: Decision,
    view: Option<Arc<View>>,
}

/// The planner of one cluster.
#[derive(Debug)]
pub struct Planner {
    cluster: ClusterId,
    parts: Parts,
    inventory: read::Inventory,
    remembered: Option<(Memory, Option<Revision>)>,
    /// What a look had to remember that broke off when something was done already.
    owed: Option<Memory>,
    /// Whether this leadership has written what it remembers, and with it the time in which nobody led.
    taken_over: bool,
    fence: Option<Fence>,
    last: Option<Last>,
    /// In a box: planners are held by value in futures.
    answers: Box<Answers>,
    nudges: Vec<String>,
    turns: u64,
    last_error: Option<(Timestamp, String)>,
    view: Option<Arc<View>>,
    told_link: Option<ToldLink>,
    thought: Option<Thought>,
    /// When the cluster's users were last told of the plan.
    noted_at: Option<Timestamp>,
    telling: Option<tokio::task::JoinHandle<()>>,
    /// In a box: planners are held by value in futures.
    tracker: Box<Tracker>,
    load: Option<Load>,
    /// When what is seen of the cluster was last current.
    fresh_at: Option<Timestamp>,
}

/// The last plan, for looks that find what it was made for.
#[derive(Debug, Clone)]
struct Thought {
    snapshot: Arc<Snapshot>,
    decided: Arc<Decided>,
    at: Timestamp,
    /// When something changes by itself.
    until: Option<Timestamp>,
    /// It says what the last decision said and does nothing.
    quiet: bool,
    /// What it was when pools were last reported on by it: the connection and the generations of the pools.
    reported: Option<(Link, Vec<u64>)>,
}

impl Thought {
    /// Whether thinking again would come to the same: the world is the same but for the time, and nothing was to happen meanwhile.
    fn holds(&self, built: &mut Built) -> bool {
        let now = built.snapshot.now;
        let early = self.until.is_none_or(|until| now < until) && now >= self.at;
        if !early || now.since(self.at) >= RETHINK {
            return false;
        }
        let Some(snapshot) = Arc::get_mut(&mut built.snapshot) else { return false };
        snapshot.now = self.snapshot.now;
        let same = *snapshot == *self.snapshot;
        snapshot.now = now;
        same
    }
}

/// What was last said about the connection.
#[derive(Debug)]
struct ToldLink {
    link: Link,
    generation: u64,
    at: Timestamp,
}

impl Planner {
    pub fn new(parts: Parts, cluster: ClusterId) -> Self {
        Self {
            cluster,
            parts,
            inventory: read::Inventory::default(),
            remembered: None,
            owed: None,
            taken_over: false,
            fence: None,
            last: None,
            answers: Box::default(),
            nudges: vec!["start".to_owned()],
            turns: 0,
            last_error: None,
            view: None,
            told_link: None,
            thought: None,
            noted_at: None,
            telling: None,
            tracker: Box::default(),
            load: None,
            fresh_at: None,
        }
    }

    /// Notes what the next turn is for.
    pub fn nudge(&mut self, by: &str) {
        if !self.nudges.iter().any(|known| known == by) {
            self.nudges.push(by.to_owned());
        }
    }

    /// One look. Writes only with a fence, and nothing that the store does not take from its holder.
    pub async fn turn(&mut self, now: Timestamp, fence: Option<&Fence>) -> Turn {
        self.turns += 1;
        Counters::add(&self.parts.board.counters.turns, 1);
        if self.fence.as_ref() != fence {
            self.fence = fence.cloned();
            (self.remembered, self.last, self.told_link, self.thought) = (None, None, None, None);
            (self.owed, self.taken_over) = (None, false);
        }
        match self.look(now).await {
            Ok(turn) => {
                if turn.did == Did::Gone {
                    self.parts.board.remove(self.cluster);
                }
                turn
            }
            Err(error) => {
                Counters::add(&self.parts.board.counters.errors, 1);
                tracing::warn!(cluster = %self.cluster, %error, "a planner's turn failed; it tries again");
                let text = error.to_string();
                self.last_error = Some((now, text.clone()));
                self.remembered = None; // whatever was written is read again
                let next = now.saturating_add(SOON);
                if let Some(live) = self.parts.board.get(self.cluster) {
                    let last_error = self.last_error.clone();
                    let live = Live {
                        last_error,
                        turn_at: now,
                        turns: self.turns,
                        next_at: next,
                        ..Live::clone(&live)
                    };
                    self.parts.board.set(live);
                }
                Turn { did: Did::Waited(text), next, quiet_until: Some(next), stale_at: None }
            }
        }
    }

    async fn look(&mut self, now: Timestamp) -> Result<Turn, TurnError> {
        let registry = Arc::clone(&self.parts.registry);
        let Some(mut gathered) = read::pools(&registry, self.cluster).await? else {
            return Ok(Turn { did: Did::Gone, next: now, quiet_until: None, stale_at: None });
        };
        let cluster = gathered.cluster.clone();
        let port = self.parts.connections.port(&cluster);
        let observed = read::observe(port.as_ref());
        let link = Link::of(port.as_ref(), observed.as_ref(), now);
        self.tell_link(&cluster, &link, now).await?;
        let observed = match observed {
            Ok(observed) => observed,
            Err(waiting) => {
                let (text, next) = (waiting.to_string(), now.saturating_add(SOON));
                if let Some(fence) = &self.fence {
                    actuator::report_waiting(&registry, fence, &gathered.pools, &link, now).await?;
                }
                self.load = None;
                self.publish(&cluster, now, next, true, Some(text.clone()), Vec::new());
                return Ok(Turn { did: Did::Waited(text), next, quiet_until: Some(next), stale_at: None });
            }
        };
        (self.load, self.fresh_at) = match &observed {
            Observed::View(view) if now.since(view.fresh_at) <= snapshot::STALE_AFTER => {
                (Some(self.tracker.look(&view.objects, now)), Some(view.fresh_at))
            }
            Observed::View(view) => {
                // What happens meanwhile has no time: it is watched anew.
                *self.tracker = Tracker::default();
                (None, Some(view.fresh_at))
            }
            Observed::NotConnected => (None, None),
        };
        self.evaluate(&mut gathered, now).await;
        let memory = self.memory().await?;
        let mut inputs =
            read::inputs(&registry, gathered, observed, &mut self.inventory, memory, now).await?;
        inputs.time_factor = self.parts.time_factor;
        let (inputs, built, decided, anew) = self.think(inputs).await?;
        if !decided.findings.is_empty() {
            Counters::add(&self.parts.board.counters.findings, decided.findings.len() as u64);
            tracing::error!(
                cluster = %cluster.name,
                findings = decided.findings.len(),
                first = decided.findings[0],
                "the audit refuses a plan of ours; nothing acts"
            );
        }
        self.view = Some(Arc::new(View {
            snapshot: Arc::clone(&built.snapshot),
            plan: decided.plan.clone(),
            inventory: inputs.hosts.clone(),
            pools: inputs.pools.clone(),
        }));
        let change = next_change(now, &built, &decided);
        if anew {
            let (snapshot, decided) = (Arc::clone(&built.snapshot), Arc::clone(&decided));
            self.thought =
                Some(Thought { snapshot, decided, at: now, until: change, quiet: false, reported: None });
        }
        let regular = next_look(now, [change, built.stale_at].into_iter().flatten().min());
        let (did, next) = match self.fence.clone() {
            None => (Did::Looked, regular),
            Some(fence) => {
                self.lead(&fence, &inputs, &built, &decided, port.as_ref(), &link, regular).await?
            }
        };
        let sooner = (next < regular).then_some(next);
        let quiet_until = [change, sooner].into_iter().flatten().min();
        self.nudges.clear();
        let connected = matches!(inputs.observed, Observed::View(_));
        self.publish(&cluster, now, next, connected, None, built.set_aside.clone());
        Ok(Turn { did, next, quiet_until, stale_at: built.stale_at })
    }

    /// Says on the cluster how the connection to it is, when that changed or was said a while ago.
    async fn tell_link(&mut self, cluster: &Cluster, link: &Link, now: Timestamp) -> Result<(), TurnError> {
        let Some(fence) = &self.fence else { return Ok(()) };
        let deleting = cluster.deleted_at.is_some();
        let told = self.told_link.as_ref().is_some_and(|told| {
            told.link == *link && told.generation == cluster.generation && now.since(told.at) < REPEAT_LINK
        });
        if told && !deleting {
            return Ok(());
        }
        actuator::report_link(&self.parts.registry, fence, cluster, link, now).await?;
        self.told_link = Some(ToldLink { link: link.clone(), generation: cluster.generation, at: now });
        Ok(())
    }

    /// Builds the snapshot and decides, where that holds nobody up. Says whether it was thought anew.
    async fn think(&self, inputs: Inputs) -> Result<(Inputs, Built, Arc<Decided>, bool), TurnError> {
        let last = self.thought.clone();
        let think = move || {
            let mut built = snapshot::build(&inputs);
            if let Some(last) = last.filter(|last| last.holds(&mut built)) {
                return (inputs, built, last.decided, false);
            }
            let decided = Arc::new(decide(&built.snapshot));
            (inputs, built, decided, true)
        };
        match self.parts.thinking {
            Thinking::Here => Ok(think()),
            Thinking::Aside => tokio::task::spawn_blocking(think).await.map_err(|_| TurnError::BrokeOff),
        }
    }

    /// The part of a turn that writes.
    #[allow(clippy::too_many_arguments, reason = "the parts of one turn, used once")]
    async fn lead(
        &mut self,
        fence: &Fence,
        inputs: &Inputs,
        built: &Built,
        decided: &Decided,
        port: Option<&Arc<dyn ClusterPort>>,
        link: &Link,
        next: Timestamp,
    ) -> Result<(Did, Timestamp), TurnError> {
        let now = inputs.now;
        self.recall(fence, now).await?;
        let mut memory = inputs.memory.after(inputs, &built.snapshot, &decided.down);
        let (did, next) = if self.thought.as_ref().is_some_and(|thought| thought.quiet) {
            (Did::Looked, next)
        } else {
            let draft = self.draft(inputs, built, decided);
            match self.is_due(&draft, now) {
                Err(later) => (Did::Looked, next.min(later)),
                Ok(false) => {
                    self.thought.iter_mut().for_each(|thought| thought.quiet = true);
                    (Did::Looked, next)
                }
                Ok(true) => {
                    let made = self.decide(fence, inputs, built, decided, draft, port, &mut memory).await;
                    let decision = match made {
                        Ok(decision) => decision,
                        Err(error) => {
                            self.owed = Some(memory);
                            return Err(error);
                        }
                    };
                    let voided = decision.outcome.state == OutcomeState::Void;
                    (Did::Decided(Box::new(decision)), if voided { now.saturating_add(SOON) } else { next })
                }
            }
        };
        memory.note_revisions(&inputs.memory, &inputs.observed, now);
        self.remember(fence, memory).await?;
        if let Some(port) = port
            && port.hears()
            && (matches!(did, Did::Decided(_))
                || self.noted_at.is_none_or(|at| now.since(at) >= REPEAT_NOTES))
        {
            // While the last ones are still being worded, the next look tells.
            self.noted_at = self.announce(inputs, port).then_some(now);
        }
        // A quiet thought that was reported has nothing to add; it lasts a minute at the most.
        let told = (link.clone(), inputs.pools.iter().map(|pool| pool.object.generation).collect());
        let reported = self.thought.as_ref().is_some_and(|thought| thought.reported.as_ref() == Some(&told));
        if !reported {
            actuator::report(&self.parts.registry, fence, inputs, built, &decided.plan, link).await?;
            if let Some(thought) = self.thought.as_mut().filter(|thought| thought.quiet) {
                thought.reported = Some(told);
            }
        }
        Ok((did, next))
    }

    /// Tells the cluster's users of the plan; false if the last plan is still being told. Explaining a hundred pods takes a
    /// while, so that nobody waits for it, and it is not done twice at once.
    fn announce(&mut self, inputs: &Inputs, port: &Arc<dyn ClusterPort>) -> bool {
        if self.telling.as_ref().is_some_and(|telling| !telling.is_finished()) {
            return false;
        }
        let Some(view) = self.view.clone() else { return true };
        let (cluster, port) = (inputs.cluster.clone(), Arc::clone(port));
        let ids =
            inputs.pools.iter().map(|pool| (pool.object.name.as_str().into(), pool.object.id)).collect();
        let tell = move || port.announce(super::notes::notes(&cluster, &ids, &view.snapshot, &view.plan));
        match self.parts.thinking {
            Thinking::Here => tell(),
            Thinking::Aside => self.telling = Some(tokio::task::spawn_blocking(tell)),
        }
        true
    }

    fn draft(&self, inputs: &Inputs, built: &Built, decided: &Decided) -> Draft {
        let before = Before {
            nudges: self.nudges.clone(),
            snapshot: self.last.as_ref().and_then(|last| last.view.as_ref()).map(|view| &*view.snapshot),
            decision: self.last.as_ref().map(|last| &last.decision.id),
        };
        tell::draft(inputs, built, decided, &before)
    }

    /// Whether the draft is worth a decision: `Err` is not before then.
    fn is_due(&self, draft: &Draft, now: Timestamp) -> Result<bool, Timestamp> {
        let Some(last) = &self.last else {
            // A journal does not begin with the news that there are none.
            return Ok(draft.outcome.state != OutcomeState::Quiet || !draft.told.is_empty());
        };
        let acts = draft.outcome.state == OutcomeState::Planned;
        let advises = draft.outcome.state == OutcomeState::Advised;
        let same = tell::essence(draft) == last.essence;
        let unfinished = last.decision.outcome.state == OutcomeState::Planned;
        let rested = now.since(last.at) >= REPEAT;
        let later = last.at.saturating_add(REPEAT);
        match (same, acts) {
            (true, false) => Ok(false),
            (true, true) if unfinished => Ok(true),
            (false, true) => Ok(true),
            // Advice is given as soon as the same decision would act: people judge by it how fast Muster is.
            (false, false) if advises => Ok(true),
            (true, true) | (false, false) if rested => Ok(true),
            (true, true) | (false, false) => Err(later),
        }
    }

    /// Journals the decision and has it carried out.
    #[allow(clippy::too_many_arguments, reason = "the parts of one turn, used once")]
    async fn decide(
        &mut self,
        fence: &Fence,
        inputs: &Inputs,
        built: &Built,
        decided: &Decided,
        draft: Draft,
        port: Option<&Arc<dyn ClusterPort>>,
        memory: &mut Memory,
    ) -> Result<Decision, TurnError> {
        let essence = tell::essence(&draft);
        let mut decision = self.parts.journal.append(fence, draft, &built.snapshot, &decided.plan).await?;
        Counters::add(&self.parts.board.counters.decisions, 1);
        tracing::info!(
            cluster = decision.cluster_name,
            decision = %decision.id,
            outcome = decision.outcome.state.as_str(),
            "{}",
            decision.headline
        );
        let view = self.view.clone();
        self.last = Some(Last { essence, at: inputs.now, decision: decision.clone(), view });
        if decision.outcome.state == OutcomeState::Planned {
            let outcome = self.carry_out(fence, inputs, decided, &decision, port, memory).await?;
            if outcome.state == OutcomeState::Void {
                Counters::add(&self.parts.board.counters.void, 1);
            }
            decision = self.parts.journal.settle(fence, &decision, outcome).await?;
            if let Some(last) = &mut self.last {
                last.decision = decision.clone();
            }
        }
        Ok(decision)
    }

    /// Looks once more, has the plan judged against what is there now, and hands it to the platforms.
    async fn carry_out(
        &mut self,
        fence: &Fence,
        inputs: &Inputs,
        decided: &Decided,
        decision: &Decision,
        port: Option<&Arc<dyn ClusterPort>>,
        memory: &mut Memory,
    ) -> Result<Outcome, TurnError> {
        let now = inputs.now;
        let void = |text: String| Outcome { state: OutcomeState::Void, at: now, text, effects: Vec::new() };
        let registry = Arc::clone(&self.parts.registry);
        let Some(mut gathered) = read::pools(&registry, self.cluster).await? else {
            return Ok(void("the cluster was deleted, 0 things done".to_owned()));
        };
        let Ok(observed) = read::observe(port) else {
            return Ok(void("the cluster fell out of sync, 0 things done".to_owned()));
        };
        for pool in &mut gathered.pools {
            let known = inputs.pool_named(pool.name());
            pool.triggers = known.map(|known| known.triggers.clone()).unwrap_or_default();
        }
        let remembered = inputs.memory.clone();
        let mut fresh =
            read::inputs(&registry, gathered, observed, &mut self.inventory, remembered, now).await?;
        fresh.time_factor = self.parts.time_factor;
        let rebuilt = snapshot::build(&fresh);
        let faults = super::faults(&rebuilt.snapshot, &decided.plan);
        if let Some(first) = faults.first() {
            let many = faults.len();
            tracing::info!(decision = %decision.id, many, first, "the world moved on; the plan is not carried out");
            return Ok(void(format!("the world moved on, {many} things no longer hold: {first}")));
        }
        Ok(actuator::act(&self.parts, fence, &fresh, &rebuilt.snapshot, &decided.plan, decision, memory)
            .await?)
    }

    /// After a change of leaders: what was decided last, and whether it was carried out.
    async fn recall(&mut self, fence: &Fence, now: Timestamp) -> Result<(), TurnError> {
        if self.last.is_some() {
            return Ok(());
        }
        let Some(mut decision) = self.parts.journal.last(self.cluster).await? else { return Ok(()) };
        if decision.outcome.state == OutcomeState::Planned {
            let text = format!(
                "the leader of epoch {} was gone before all {} things were done; epoch {} decides anew",
                decision.epoch,
                decision.new_nodes + decision.removals,
                fence.epoch
            );
            let outcome = Outcome { state: OutcomeState::Void, at: now, text, effects: Vec::new() };
            decision = self.parts.journal.settle(fence, &decision, outcome).await?;
        }
        let view = match self.parts.journal.frame(&decision).await {
            Ok((snapshot, plan)) => {
                let snapshot = Arc::new(snapshot);
                Some(Arc::new(View { snapshot, plan, inventory: Vec::new(), pools: Vec::new() }))
            }
            Err(_) => None, // only the list of changes since then is missing
        };
        let essence = tell::essence_of(&decision);
        self.last = Some(Last { essence, at: decision.at, decision, view });
        Ok(())
    }

    async fn memory(&mut self) -> Result<Memory, TurnError> {
        // A process that only watches reads what the leader remembers every time.
        if self.fence.is_none() || self.remembered.is_none() {
            let store = self.parts.registry.store();
            self.remembered = Some(read::remembered(&**store, self.cluster).await?);
        }
        if let Some(owed) = &self.owed {
            return Ok(owed.clone());
        }
        let memory = self.remembered.as_ref().map(|(memory, _)| memory.clone()).unwrap_or_default();
        let lead = self.parts.lead.as_ref().filter(|_| self.fence.is_some() && !self.taken_over);
        Ok(match lead {
            Some(lead) => memory.without(lead.unattended()),
            None => memory,
        })
    }

    async fn remember(&mut self, fence: &Fence, memory: Memory) -> Result<(), TurnError> {
        let (known, revision) = self.remembered.take().unwrap_or_default();
        if known == memory {
            self.remembered = Some((known, revision));
            (self.owed, self.taken_over) = (None, true);
            return Ok(());
        }
        let key = memory::key(self.cluster);
        let expect = revision.map_or(Expect::Absent, Expect::Modified);
        let value = serde_json::to_vec(&memory).expect("times and names are plain data");
        let txn = Txn::new().fenced(fence).expect(&key, expect).put(&key, value);
        let committed = self.parts.registry.store().commit(txn).await;
        self.owed = committed.is_err().then(|| memory.clone());
        match committed? {
            Committed::Done { revision } => {
                self.remembered = Some((memory, Some(revision)));
                self.taken_over = true;
                Ok(())
            }
            Committed::Refused { failed: 0, .. } => Err(TurnError::NotLeading),
            Committed::Refused { .. } => Ok(()), // read again the next time
        }
    }

    /// Asks the triggers, at most once per interval, and waits for them for a moment.
    async fn evaluate(&mut self, gathered: &mut read::Gathered, now: Timestamp) {
        let place = |pool: &PoolInput, number: usize, trigger: &Trigger| {
            (pool.object.id.to_string() + &trigger.metric_query, number)
        };
        let mut wanted = BTreeMap::new();
        for pool in &gathered.pools {
            for (number, trigger) in (0..).zip(triggers(pool)) {
                wanted.insert(place(pool, number, trigger), trigger.clone());
            }
        }
        if let Some(source) = self.source() {
            self.answers.look(&source, &wanted, now).await;
        }
        for pool in &mut gathered.pools {
            let found = (0..).zip(triggers(pool)).map(|(number, trigger)| {
                let finding =
                    self.answers.finding(&place(pool, number, trigger), trigger).unwrap_or_else(|| {
                        Known::Unknown { why: "no Prometheus is configured".to_owned(), since: now }
                    });
                TriggerInput { trigger: trigger.clone(), finding }
            });
            pool.triggers = found.collect();
        }
    }

    fn source(&self) -> Option<Source> {
        let triggers = Arc::clone(self.parts.triggers.as_ref()?);
        Some(Source { triggers, clock: Arc::clone(&self.parts.clock) })
    }

    /// Asks the triggers that are due, without a look. For whoever looks only when there is a reason to.
    pub fn ask_triggers(&mut self, now: Timestamp) {
        if let Some(source) = self.source() {
            self.answers.ask_again(&source, now);
        }
    }

    /// Waits for triggers that were asked: until one has another answer than at the last look, or until all have answered.
    /// Never returns when nobody is asked. Nothing is lost if it is not waited for.
    pub async fn heard(&mut self) -> Heard {
        match self.source() {
            Some(source) => self.answers.heard(&source).await,
            None => std::future::pending().await,
        }
    }

    /// In how long triggers are to be asked again.
    pub fn ask_in(&self) -> Option<Duration> {
        self.answers.due_in(&*self.parts.clock)
    }

    fn publish(
        &self,
        cluster: &Cluster,
        now: Timestamp,
        next: Timestamp,
        connected: bool,
        waiting: Option<String>,
        set_aside: Vec<(String, String)>,
    ) {
        let board: &Board = &self.parts.board;
        board.set(Live {
            cluster_id: self.cluster,
            cluster_name: cluster.name.to_string(),
            project: cluster.project.to_string(),
            turn_at: now,
            turns: self.turns,
            leading: self.fence.is_some(),
            connected,
            waiting,
            last_error: self.last_error.clone(),
            decision: self.last.as_ref().map(|last| last.decision.id.clone()),
            next_at: next,
            set_aside,
            load: self.load,
            fresh_at: self.fresh_at,
            view: self.view.clone(),
        });
    }

    /// The id of the last decision that this planner knows.
    pub fn last_decision(&self) -> Option<&DecisionId> {
        self.last.as_ref().map(|last| &last.decision.id)
    }

    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }
}

/// The triggers of a pool that scales by itself.
fn triggers(pool: &PoolInput) -> &[Trigger] {
    let spec = &pool.object.spec;
    spec.autoscaling.as_ref().filter(|_| spec.is_autoscaled()).map_or(&[], |auto| auto.triggers())
}

/// The first moment at which something may be different by itself: a delay that ends, a schedule.
fn next_change(now: Timestamp, built: &Built, decided: &Decided) -> Option<Timestamp> {
    let verdicts = decided.down.verdicts.iter().filter_map(|verdict| verdict.next);
    verdicts.chain(built.next).filter(|at| *at > now).min()
}

/// That moment, or the regular look.
fn next_look(now: Timestamp, change: Option<Timestamp>) -> Timestamp {
    let regular = now.saturating_add(REGULAR);
    change.map_or(regular, |at| at.min(regular)).max(now.saturating_add(Duration::from_millis(10)))
}
