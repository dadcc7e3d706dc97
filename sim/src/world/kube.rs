//! The port to the cluster, as one process sees it: what the API server shows, and what it does when asked.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use muster_model::{
    Clock as _, Duration, Known, Timestamp,
    k8s::{Objects, Pod},
    observe::{ActError, Acted, ClusterPort, ClusterView, NodeAction, NotSynced, Waiting, is_behind},
    pool::{Comparator, Trigger},
    slowness::{SLOW, Slowness},
    trigger::{Finding, Triggers},
};

use super::{
    Outage, ProcessClock, World,
    state::{Old, State},
};

/// The cluster as one process sees it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<str>,
    pub(super) clock: Arc<ProcessClock>,
    /// When this process began to watch, in true milliseconds.
    pub(super) since: u64,
    pub(super) slowness: Mutex<Slowness>,
}

/// What an answer of a slow API server takes.
const SLOW_ANSWER: Duration = Duration::from_secs(10);
/// What any other takes.
const ANSWER: Duration = Duration::from_millis(5);
/// A sign of life is asked for every five seconds and given up after as long: so long until two of them were missed.
const HEARTBEAT: Duration = Duration::from_secs(15);

impl State {
    /// Where Muster itself runs.
    fn guarded(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let why: Arc<str> = "Muster itself runs there".into();
        self.protected.iter().map(|node| (node.as_str().into(), Arc::clone(&why))).collect()
    }

    /// What a watcher sees whose watches are open, with times as it `noted` them.
    pub(super) fn fresh_view(&mut self, noted: impl Fn(Duration) -> Timestamp) -> ClusterView {
        let mut objects = self.objects();
        if self.has(Outage::NoPods) {
            objects = Arc::new(Objects { pods: Vec::new(), ..Objects::clone(&objects) });
        } else if self.has(Outage::HalfThePods) {
            let pods = objects.pods.iter().skip(1).step_by(2).cloned().collect();
            objects = Arc::new(Objects { pods, ..Objects::clone(&objects) });
        }
        let now = self.now;
        let renewed = objects.nodes.iter().filter_map(|node| {
            let at = self.machines.get(node.name())?.renewed(now)?;
            Some((Arc::clone(&node.metadata.name), noted(Duration::from_millis(at))))
        });
        ClusterView {
            number: self.number,
            fresh_at: noted(Duration::from_millis(now)),
            renewed: Arc::new(renewed.collect()),
            guarded: Arc::new(self.guarded()),
            objects,
            revisions: KINDS.map(|kind| (kind, self.number)).into(),
            ..ClusterView::default()
        }
    }

    /// What a stale replica will show.
    pub(super) fn keep_view(&mut self) {
        let start = self.start;
        self.kept = Some(self.fresh_view(|at| start.saturating_add(at)));
    }

    /// Watchers come to a stale replica, or away from it.
    pub(super) fn show_old(&mut self) {
        if !self.has(Outage::OldView) {
            self.old = None;
            self.touch();
        } else if self.old.is_none() {
            if self.kept.is_none() {
                self.keep_view();
            }
            // It is another view than the last one, with objects that are older.
            let (since, seen) = (self.now, self.number);
            self.number += 1;
            let number = self.number;
            let kept = self.kept.take();
            self.old = kept.map(|view| Old { since, view: ClusterView { number, ..view }, seen });
            self.shown.send_replace(number);
        }
    }

    /// Whether a stale replica shows less than was noted by everybody, so that whoever starts now can know.
    pub(super) fn is_old_for_sure(&self) -> bool {
        self.old.as_ref().is_some_and(|old| old.revision() < self.noted)
    }

    /// Whether a cache that lost every second pod lost one that runs for somebody.
    pub(super) fn hides_a_pod(&self) -> bool {
        self.pods.values().step_by(2).any(|pod| pod.node.is_some() && pod.is_live() && !pod.is_daemon())
    }
}

impl Old {
    /// How far the cluster had come.
    fn revision(&self) -> u64 {
        self.view.revisions.values().copied().max().unwrap_or(0)
    }
}

/// Kinds that say how far they have come.
const KINDS: [&str; 2] = ["nodes", "pods"];

impl Port {
    /// What a stale replica shows. Whose connections were open before it has seen more than that; whoever starts now has not.
    fn old_view(&self, old: Old, now: u64) -> ClusterView {
        let (noted, revision) = (self.clock.noted(), old.revision());
        let saw_more = self.since < old.since && revision < old.seen;
        let behind = saw_more.then(|| Arc::from(is_behind(KINDS[0], revision, old.seen)));
        ClusterView { fresh_at: noted(Duration::from_millis(now)), behind, ..self.by_own_clock(old.view) }
    }

    /// A view that was kept with true times, as this process would have noted them.
    fn by_own_clock(&self, view: ClusterView) -> ClusterView {
        let (start, noted) = (self.world.timeline().start(), self.clock.noted());
        let ours = |at: Timestamp| noted(at.since(start));
        let renewed = view.renewed.iter().map(|(node, at)| (Arc::clone(node), ours(*at)));
        let (fresh_at, renewed) = (ours(view.fresh_at), Arc::new(renewed.collect()));
        ClusterView { fresh_at, renewed, ..view }
    }

    /// A renewal from before this process began to watch is one that it has not seen.
    fn forget_older(&self, view: &mut ClusterView) {
        let since = self.clock.noted()(Duration::from_millis(self.since));
        view.leases_since = since;
        if view.renewed.values().any(|at| *at <= since) {
            Arc::make_mut(&mut view.renewed).retain(|_, at| *at > since);
        }
    }

    /// What the heartbeat of a real connection would have noticed by now.
    fn slow(&self, lasts: Option<Duration>) -> Option<Arc<str>> {
        let now = self.clock.now();
        let mut slowness = self.slowness.lock().unwrap_or_else(PoisonError::into_inner);
        let twice = lasts.is_some_and(|lasts| lasts >= HEARTBEAT);
        for _ in 0..2 {
            slowness.note(if twice { SLOW } else { ANSWER }, now);
        }
        slowness.doubt(now).map(Arc::from)
    }

    async fn answer(&self) {
        let slow = self.world.state().has(Outage::ApiSlow);
        self.clock.sleep(if slow { SLOW_ANSWER } else { ANSWER }).await;
    }
}

#[async_trait]
impl ClusterPort for Port {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let mut state = self.world.state();
        let frozen = state.frozen.clone();
        let mut view = match frozen {
            // Who starts while nobody answers has never seen anything.
            Some((since, _)) if self.since >= since => {
                let waiting = Waiting {
                    kind: "pods".into(),
                    why: "the API server does not answer".into(),
                    since: self.clock.now(),
                };
                return Err(NotSynced { total: 17, waiting: vec![waiting] });
            }
            Some((_, view)) => self.by_own_clock(view),
            None => match state.old.clone() {
                Some(old) => self.old_view(old, state.now),
                None => state.fresh_view(self.clock.noted()),
            },
        };
        self.forget_older(&mut view);
        let slow = state.outage_since.get(&Outage::ApiSlow).copied();
        let slow = slow.map(|since| Duration::from_millis(state.now.saturating_sub(since)));
        drop(state);
        view.slow = self.slow(slow);
        Ok(view)
    }

    fn number(&self) -> u64 {
        *self.world.state().shown.borrow()
    }

    async fn changed(&self, seen: u64) {
        let mut shown = self.world.state().shown.subscribe();
        let _ = shown.wait_for(|number| *number > seen).await;
    }

    async fn pods_on(&self, node: &str) -> Result<Option<Vec<Pod>>, ActError> {
        self.answer().await;
        let mut state = self.world.state();
        if state.has(Outage::ApiDown) {
            let (what, why) = (format!("list pods on {node}"), "the API server does not answer".into());
            return Err(ActError::Unreachable { what, why });
        }
        let here = |pod: &&Pod| pod.spec.node_name.as_deref() == Some(node);
        Ok(Some(state.objects().pods.iter().filter(here).cloned().collect()))
    }

    async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError> {
        self.answer().await;
        let mut state = self.world.state();
        let what = || format!("{} {node}", action.verb());
        if state.has(Outage::ApiDown) {
            return Err(ActError::Unreachable { what: what(), why: "the API server does not answer".into() });
        }
        if state.has(Outage::ActsRefused) {
            return Err(ActError::Refused {
                what: what(),
                why: "webhook \"policy.example.com\" failed".into(),
            });
        }
        let acted = state.act(node, action)?;
        if acted == Acted::Done {
            if let NodeAction::Evict { uid, .. } = action {
                state.judge_eviction(&self.process, uid, node);
            }
            let subject = match action {
                NodeAction::Evict { pod, .. } => format!("pod {} on {node}", pod.name),
                NodeAction::AddTaint(taint) => format!("{node} {}", taint.key),
                NodeAction::RemoveTaint { key } => format!("{node} {key}"),
                _ => node.to_owned(),
            };
            let text = format!("{}: {} {subject}", self.process, action.verb());
            state.say(&text);
        }
        Ok(acted)
    }
}

impl State {
    fn act(&mut self, name: &str, action: &NodeAction) -> Result<Acted, ActError> {
        if let NodeAction::Evict { uid, .. } = action {
            return self.evict(uid);
        }
        let Some(node) = self.nodes.get_mut(name) else { return Ok(Acted::Gone) };
        let changed = match action {
            NodeAction::Cordon { op } => {
                if node.unschedulable {
                    return Ok(Acted::AlreadySo);
                }
                (node.unschedulable, node.mark) = (true, Some(op.clone()));
                true
            }
            NodeAction::Uncordon => {
                let ours = node.mark.take().is_some();
                if ours {
                    node.unschedulable = false;
                }
                ours
            }
            NodeAction::Label { labels, taints } => {
                let mut changed = false;
                for (key, value) in labels.iter() {
                    changed |=
                        node.labels.insert(key.to_owned(), value.to_string()).as_deref() != Some(value);
                }
                for taint in taints {
                    let value = (taint.value.to_string(), taint.effect);
                    changed |= node.taints.insert(taint.key.to_string(), value.clone()) != Some(value);
                }
                changed
            }
            NodeAction::AddTaint(taint) => {
                let taint = taint.clone();
                return Ok(if self.taint(name, &taint) { Acted::Done } else { Acted::AlreadySo });
            }
            NodeAction::RemoveTaint { key } => node.taints.remove(key).is_some(),
            NodeAction::DeleteNode { uid } => {
                if node.uid != *uid {
                    let why = "its uid is another one".to_owned();
                    return Err(ActError::Conflict { what: name.to_owned(), why });
                }
                self.delete_node(name);
                return Ok(Acted::Done);
            }
            NodeAction::Evict { .. } => false,
        };
        if !changed {
            return Ok(Acted::AlreadySo);
        }
        self.touch();
        Ok(Acted::Done)
    }

    fn evict(&mut self, uid: &str) -> Result<Acted, ActError> {
        let Some(pod) = self.pods.get(uid) else { return Ok(Acted::Gone) };
        if pod.deleted.is_some() {
            return Ok(Acted::AlreadySo);
        }
        let workload = self.workloads.get(&pod.workload).cloned();
        if let Some(workload) = workload
            && self.disruptions_allowed(&workload) == Some(0)
        {
            return Err(ActError::Budget {
                pod: uid.to_owned(),
                budget: format!("PodDisruptionBudget default/{}", workload.name),
                retry_after_seconds: Some(10),
            });
        }
        self.delete_pod(uid);
        self.evictions += 1;
        Ok(Acted::Done)
    }
}

/// Prometheus, as far as triggers ask it.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) world: Arc<World>,
    pub(super) clock: Arc<ProcessClock>,
}

#[async_trait]
impl Triggers for Metrics {
    async fn evaluate(&self, trigger: &Trigger, now: Timestamp) -> Known<Finding> {
        let unknown = |why: &str| Known::Unknown { why: why.to_owned(), since: now };
        if self.world.state().has(Outage::MetricsSlow) {
            self.clock.sleep(Duration::from_secs(10)).await;
            return unknown("Prometheus did not answer within 10s");
        }
        let state = self.world.state();
        let troubles = [
            (Outage::MetricsRefused, "Prometheus answered 503"),
            (Outage::MetricsEmpty, "the query returns no series"),
            (Outage::MetricsNan, "the value is NaN"),
            (Outage::MetricsStale, "the last sample is 10m old"),
            (Outage::MetricsPartial, "only 50 % of the samples are there"),
            (Outage::MetricsRenamed, "the query returns no series with its label"),
        ];
        if let Some((_, why)) = troubles.iter().find(|(outage, _)| state.has(*outage)) {
            return unknown(why);
        }
        let Some((millis, since)) = state.signals.get(&trigger.metric_query).copied() else {
            return unknown("the query returns no series");
        };
        #[allow(clippy::cast_precision_loss, reason = "values of a simulated metric are small")]
        let value = millis as f64 / 1000.0;
        let passes = match trigger.comparator() {
            Comparator::Above => value > trigger.threshold,
            Comparator::Below => value < trigger.threshold,
        };
        let held = state.since(since);
        let fires = passes && held >= trigger.duration.get();
        let why = format!("{value} against {} for {held}", trigger.threshold);
        Known::Value { value: Finding { fires, value: value.to_string(), why }, at: now }
    }
}
