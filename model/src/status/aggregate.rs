//! Many reports, one status.
//!
//! The rules, first match wins, over every controller that ever reported on the object:
//!
//! | case | phase, reason |
//! |---|---|
//! | being torn down | Deleting, Deleting |
//! | nobody ever reported | Pending, `NoControllers` |
//! | a Fatal or Configuration error at this generation | Failed, `FatalError` or `ConfigurationError` |
//! | all ready at this generation, none with an error | Ready, `AllControllersReady`; past a lease Degraded, `ControllerSilent` |
//! | nobody is at this generation yet | Progressing, `WaitingForControllers` |
//! | some ready, an error somewhere | Progressing, `ControllersWithErrors` |
//! | some ready | Progressing, `PartialProgress` |
//! | none ready, within the grace time | Progressing, `ControllersProvisioning` |
//! | none ready, past it, but with errors or recent reports | Progressing, `ControllersShowingProgress` |
//! | none ready, past it, silent | Failed, `ControllerTimeout` |
//!
//! What would be Progressing is Degraded once nobody says to be at work on it, the object was ready at this generation and has not been for
//! [`AggregateConfig::degraded_after`]. Time is an argument, and [`Aggregated::next_change_at`] says when the
//! answer may change without a new report.

use crate::{
    Duration, Timestamp,
    condition::{Condition, ConditionStatus, find},
    field::{Choice, choice},
    pool::NodePool,
    report::{ErrorType, Report},
    status::{ClusterStatus, Health, Phase, PoolStatus},
};

choice! {
    /// Why a phase or condition is what it is.
    pub enum Reason("a reason") {
        Deleting = "Deleting",
        NoControllers = "NoControllers",
        FatalError = "FatalError",
        ConfigurationError = "ConfigurationError",
        AllControllersReady = "AllControllersReady",
        ControllerSilent = "ControllerSilent",
        WaitingForControllers = "WaitingForControllers",
        ControllersWithErrors = "ControllersWithErrors",
        PartialProgress = "PartialProgress",
        ControllersProvisioning = "ControllersProvisioning",
        ControllersShowingProgress = "ControllersShowingProgress",
        ControllerTimeout = "ControllerTimeout",
        /// Of the condition Reconciled.
        GenerationObserved = "GenerationObserved",
        /// Of the condition Reconciled.
        GenerationLagging = "GenerationLagging",
        /// Of the condition Reporting.
        ReportsInTime = "ReportsInTime",
        /// Of the condition `SizeReached`.
        SizeReached = "SizeReached",
        /// Of the condition `SizeReached`.
        FewerReadyThanDesired = "FewerReadyThanDesired",
        /// Of the condition `SizeReached`.
        MoreThanDesired = "MoreThanDesired",
        /// Of the condition `SizeReached`.
        CountsNotReported = "CountsNotReported",
    }
}

choice! {
    /// The conditions that a status carries.
    pub enum ConditionKind("a condition") {
        Ready = "Ready",
        Available = "Available",
        /// Every known controller has observed this generation.
        Reconciled = "Reconciled",
        /// Every known controller has reported within its lease.
        Reporting = "Reporting",
        /// As many nodes are ready as are desired. Pools only.
        SizeReached = "SizeReached",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateConfig {
    /// How long a report speaks for its controller when it does not say so itself.
    pub lease: Duration,
    /// How long controllers may take until the first one is ready.
    pub grace: Duration,
    /// A report within this time counts as activity.
    pub activity: Duration,
    /// How long something that was ready may be otherwise before it is called degraded.
    pub degraded_after: Duration,
}

impl Default for AggregateConfig {
    fn default() -> Self {
        Self {
            // Controllers repeat themselves every few minutes; one missed turn is no silence.
            lease: Duration::from_mins(10),
            // What the seed's system meant by its grace; machines rarely take longer.
            grace: Duration::from_mins(20),
            activity: Duration::from_mins(5),
            // Longer than a rolling restart of one controller.
            degraded_after: Duration::from_mins(2),
        }
    }
}

/// What is being judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    pub generation: u64,
    pub deleting: bool,
}

/// The size that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub nodes: u32,
}

/// A status, and when time alone may change it.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Aggregated<S> {
    pub status: S,
    /// `None`: only a report or a change of the object can.
    pub next_change_at: Option<Timestamp>,
}

/// The status of a cluster.
pub fn aggregate_cluster(
    subject: Subject,
    reports: &[Report],
    previous: Option<&ClusterStatus>,
    now: Timestamp,
    config: &AggregateConfig,
) -> Aggregated<ClusterStatus> {
    let view = View::new(subject, reports, now, config);
    let before = previous.map_or(Before::new(&[], None, subject), |previous| {
        Before::new(&previous.conditions, previous.ready_generation, subject)
    });
    let verdict = view.verdict(before);
    let mut status = ClusterStatus {
        pools: None,
        phase: verdict.phase,
        health: view.health(verdict.phase, false),
        reason: verdict.reason.to_string(),
        message: verdict.message.clone(),
        observed_generation: view.observed(),
        conditions: view.conditions(&verdict, before).into_iter().chain(before.foreign()).collect(),
        ready_generation: verdict.ready_generation(subject, before),
        updated_at: now,
    };
    if let Some(previous) = previous {
        let unchanged = ClusterStatus { updated_at: previous.updated_at, ..status.clone() };
        if unchanged == *previous {
            status = unchanged;
        }
    }
    Aggregated { status, next_change_at: view.next_change_at(&verdict, before) }
}

/// The status of a pool of which `target` nodes are wanted.
pub fn aggregate_pool(
    pool: &NodePool,
    target: Target,
    reports: &[Report],
    previous: Option<&PoolStatus>,
    now: Timestamp,
    config: &AggregateConfig,
) -> Aggregated<PoolStatus> {
    let subject = Subject { generation: pool.generation, deleting: pool.deleted_at.is_some() };
    pool_status(subject, target, reports, previous, now, config)
}

/// The status of a pool that nobody has reported on, as of `now`.
pub fn fresh_pool_status(subject: Subject, target: Target, now: Timestamp) -> PoolStatus {
    pool_status(subject, target, &[], None, now, &AggregateConfig::default()).status
}

fn pool_status(
    subject: Subject,
    target: Target,
    reports: &[Report],
    previous: Option<&PoolStatus>,
    now: Timestamp,
    config: &AggregateConfig,
) -> Aggregated<PoolStatus> {
    let view = View::new(subject, reports, now, config);
    let before = previous.map_or(Before::new(&[], None, subject), |previous| {
        Before::new(&previous.conditions, previous.ready_generation, subject)
    });
    let verdict = view.verdict(before);
    let (current, ready) = view.counts();
    let short = ready.is_some_and(|ready| ready < target.nodes);
    let mut conditions = view.conditions(&verdict, before);
    conditions.push(view.size_condition(target, ready, before));
    conditions.extend(before.foreign());
    let mut status = PoolStatus {
        phase: verdict.phase,
        health: view.health(verdict.phase, short),
        reason: verdict.reason.to_string(),
        message: verdict.message.clone(),
        observed_generation: view.observed(),
        desired_nodes: target.nodes,
        current_nodes: current,
        ready_nodes: ready,
        nodes_to_remove: previous.map(|previous| previous.nodes_to_remove.clone()).unwrap_or_default(),
        conditions,
        ready_generation: verdict.ready_generation(subject, before),
        updated_at: now,
        baremetal: previous.and_then(|previous| previous.baremetal.clone()),
    };
    if let Some(previous) = previous {
        let unchanged = PoolStatus { updated_at: previous.updated_at, ..status.clone() };
        if unchanged == *previous {
            status = unchanged;
        }
    }
    Aggregated { status, next_change_at: view.next_change_at(&verdict, before) }
}

struct Verdict {
    phase: Phase,
    reason: Reason,
    message: String,
}

impl Verdict {
    fn ready_generation(&self, subject: Subject, before: Before<'_>) -> Option<u64> {
        if self.phase == Phase::Ready { Some(subject.generation) } else { before.ready_generation }
    }
}

/// What the previous status contributes.
#[derive(Clone, Copy)]
struct Before<'a> {
    conditions: &'a [Condition],
    ready_generation: Option<u64>,
    /// It was Ready at the present generation.
    had_been_ready: bool,
    /// Since when it is no longer Ready, if it had been.
    lost_ready_at: Option<Timestamp>,
}

impl<'a> Before<'a> {
    fn new(conditions: &'a [Condition], ready_generation: Option<u64>, subject: Subject) -> Self {
        let had_been_ready = ready_generation == Some(subject.generation);
        let ready = find(conditions, ConditionKind::Ready.as_str());
        let lost = ready.filter(|ready| had_been_ready && ready.status != ConditionStatus::True);
        let lost_ready_at = lost.map(|ready| ready.last_transition_time);
        Self { conditions, ready_generation, had_been_ready, lost_ready_at }
    }

    /// Conditions of other parts of Muster, which this one leaves alone.
    fn foreign(&self) -> impl Iterator<Item = Condition> + 'a {
        self.conditions
            .iter()
            .filter(|condition| ConditionKind::from_word(&condition.kind).is_none())
            .cloned()
    }
}

struct View<'a> {
    subject: Subject,
    reports: &'a [Report],
    now: Timestamp,
    config: &'a AggregateConfig,
}

impl<'a> View<'a> {
    fn new(subject: Subject, reports: &'a [Report], now: Timestamp, config: &'a AggregateConfig) -> Self {
        Self { subject, reports, now, config }
    }

    fn at_generation(&self) -> impl Iterator<Item = &'a Report> + '_ {
        self.reports.iter().filter(|report| report.observed_generation == self.subject.generation)
    }

    fn lagging(&self) -> usize {
        self.reports.len() - self.at_generation().count()
    }

    fn ready(&self) -> usize {
        self.at_generation().filter(|report| report.is_ready()).count()
    }

    fn silent(&self) -> impl Iterator<Item = &'a Report> + '_ {
        self.reports.iter().filter(|report| report.expires_at(self.config.lease) <= self.now)
    }

    fn failed(&self) -> Option<(&'a Report, ErrorType)> {
        let mut errors =
            self.at_generation().filter_map(|report| Some((report, report.last_error.as_ref()?.error_type)));
        errors.find(|(_, kind)| kind.is_final())
    }

    fn erring(&self) -> Option<&'a Report> {
        self.at_generation().find(|report| report.last_error.is_some())
    }

    /// Whether every controller that is not ready works on it and has no error: nothing broke, something is being built.
    fn is_at_work(&self) -> bool {
        let mut missing = self.reports.iter().filter(|report| !report.is_ready());
        self.lagging() == 0
            && self.erring().is_none()
            && self.silent().next().is_none()
            && missing.all(Report::is_at_work)
    }

    fn observed(&self) -> u64 {
        self.reports.iter().map(|report| report.observed_generation).min().unwrap_or(0)
    }

    fn verdict(&self, before: Before<'_>) -> Verdict {
        let verdict = self.raw_verdict();
        match before.lost_ready_at {
            Some(lost)
                if verdict.phase == Phase::Progressing
                    && !self.is_at_work()
                    && self.now.since(lost) >= self.config.degraded_after =>
            {
                Verdict { phase: Phase::Degraded, ..verdict }
            }
            _ => verdict,
        }
    }

    fn raw_verdict(&self) -> Verdict {
        let (all, ready, lagging) = (self.reports.len(), self.ready(), self.lagging());
        let generation = self.subject.generation;
        if self.subject.deleting {
            return verdict(Phase::Deleting, Reason::Deleting, "it is being torn down".to_owned());
        }
        if all == 0 {
            return verdict(
                Phase::Pending,
                Reason::NoControllers,
                "no controller has reported yet".to_owned(),
            );
        }
        if let Some((report, kind)) = self.failed() {
            let reason =
                if kind == ErrorType::Fatal { Reason::FatalError } else { Reason::ConfigurationError };
            return verdict(Phase::Failed, reason, error_text(report));
        }
        if ready == all && self.erring().is_none() {
            return self.ready_verdict(all);
        }
        if lagging == all {
            let text = format!("{} observed generation {generation} yet", none_of(all, "has"));
            return verdict(Phase::Progressing, Reason::WaitingForControllers, text);
        }
        let lag = match lagging {
            0 => String::new(),
            1 => format!(", 1 has not observed generation {generation}"),
            many => format!(", {many} have not observed generation {generation}"),
        };
        if ready > 0 {
            let text = match ready {
                1 if all == 1 => "the controller is ready".to_owned(),
                1 => format!("1 of {all} controllers is ready{lag}"),
                _ => format!("{ready} of {all} controllers are ready{lag}"),
            };
            return match self.erring() {
                Some(report) => verdict(
                    Phase::Progressing,
                    Reason::ControllersWithErrors,
                    format!("{text}; {}", error_text(report)),
                ),
                None => verdict(Phase::Progressing, Reason::PartialProgress, text),
            };
        }
        let why = match self.reports {
            [only] => only.readiness().map(|words| format!(": {words}")).unwrap_or_default(),
            _ => String::new(),
        };
        self.none_ready(&format!("{} ready{lag}{why}", none_of(all, "is")))
    }

    fn ready_verdict(&self, all: usize) -> Verdict {
        if let Some(silent) = self.silent().next() {
            let text = format!(
                "{} has not reported since {}; nothing newer is known",
                silent.controller_name, silent.updated_at
            );
            return verdict(Phase::Degraded, Reason::ControllerSilent, text);
        }
        let text = if all == 1 {
            "the controller is ready".to_owned()
        } else {
            format!("all {all} controllers are ready")
        };
        verdict(Phase::Ready, Reason::AllControllersReady, text)
    }

    fn none_ready(&self, text: &str) -> Verdict {
        let with_error = self.erring().map(|report| format!("{text}; {}", error_text(report)));
        if self.now < self.grace_ends() {
            let text = with_error.unwrap_or_else(|| text.to_owned());
            return verdict(Phase::Progressing, Reason::ControllersProvisioning, text);
        }
        if let Some(text) = with_error {
            return verdict(Phase::Progressing, Reason::ControllersShowingProgress, text);
        }
        if self.now < self.activity_ends() {
            return verdict(Phase::Progressing, Reason::ControllersShowingProgress, text.to_owned());
        }
        let text = format!(
            "{text} after {}, and there has been no report for {}",
            self.config.grace, self.config.activity
        );
        verdict(Phase::Failed, Reason::ControllerTimeout, text)
    }

    fn grace_ends(&self) -> Timestamp {
        let first = self.at_generation().map(|report| report.generation_since).min().unwrap_or(self.now);
        first.saturating_add(self.config.grace)
    }

    fn activity_ends(&self) -> Timestamp {
        let last = self.reports.iter().map(|report| report.updated_at).max().unwrap_or(self.now);
        last.saturating_add(self.config.activity)
    }

    fn health(&self, phase: Phase, short: bool) -> Health {
        if self.reports.is_empty() {
            return Health::Unknown;
        }
        match phase {
            Phase::Failed => Health::Unhealthy,
            _ if self.silent().next().is_some() => Health::Unknown,
            Phase::Ready if !short => Health::Healthy,
            _ => Health::Degraded,
        }
    }

    /// Nodes that exist and nodes that are ready, from the report that knows most about now.
    fn counts(&self) -> (Option<u32>, Option<u32>) {
        let with_counts = self.reports.iter().filter_map(|report| {
            let counts = report.node_counts();
            let ready = counts.ready.or(counts.active)?;
            Some(((report.observed_generation, report.updated_at), counts.current.or(counts.active), ready))
        });
        match with_counts.max_by_key(|(age, _, _)| *age) {
            Some((_, current, ready)) => (current, Some(ready)),
            None => (None, None),
        }
    }

    fn conditions(&self, verdict: &Verdict, before: Before<'_>) -> Vec<Condition> {
        let ready = match (verdict.phase, verdict.reason) {
            (Phase::Ready, _) => ConditionStatus::True,
            (_, Reason::ControllerSilent) => ConditionStatus::Unknown,
            _ => ConditionStatus::False,
        };
        let lagging = self.lagging();
        let (reconciled, why) = match (self.reports.len(), lagging) {
            (0, _) => (ConditionStatus::Unknown, Reason::NoControllers),
            (_, 0) => (ConditionStatus::True, Reason::GenerationObserved),
            _ => (ConditionStatus::False, Reason::GenerationLagging),
        };
        let (count, generation) = (self.reports.len(), self.subject.generation);
        let lag = match (count, lagging) {
            (0, _) => format!("no controller has reported on generation {generation}"),
            (1, 0) => format!("the controller has observed generation {generation}"),
            (_, 0) => format!("all {count} controllers have observed generation {generation}"),
            (1, _) => format!("the controller has not observed generation {generation}"),
            _ => format!("{lagging} of {count} controllers have not observed generation {generation}"),
        };
        let (reporting, in_time, silence) = match self.silent().next() {
            _ if self.reports.is_empty() => {
                (ConditionStatus::Unknown, Reason::NoControllers, "no controller has reported yet".to_owned())
            }
            Some(report) => (
                ConditionStatus::False,
                Reason::ControllerSilent,
                format!("{} has not reported since {}", report.controller_name, report.updated_at),
            ),
            None => {
                (ConditionStatus::True, Reason::ReportsInTime, "every controller reports in time".to_owned())
            }
        };
        vec![
            self.condition(ConditionKind::Ready, ready, verdict.reason, verdict.message.clone(), before),
            self.condition(ConditionKind::Available, ready, verdict.reason, verdict.message.clone(), before),
            self.condition(ConditionKind::Reconciled, reconciled, why, lag, before),
            self.condition(ConditionKind::Reporting, reporting, in_time, silence, before),
        ]
    }

    fn size_condition(&self, target: Target, ready: Option<u32>, before: Before<'_>) -> Condition {
        let desired = target.nodes;
        let (status, reason, message) = match ready {
            None => (
                ConditionStatus::Unknown,
                Reason::CountsNotReported,
                format!("{} wanted, and no controller says how many are ready", nodes_are(desired)),
            ),
            Some(ready) if ready < desired => (
                ConditionStatus::False,
                Reason::FewerReadyThanDesired,
                format!("{ready} of {desired} {} ready", if desired == 1 { "node is" } else { "nodes are" }),
            ),
            Some(ready) if ready > desired => (
                ConditionStatus::False,
                Reason::MoreThanDesired,
                format!(
                    "{} ready and {desired} {} wanted",
                    nodes_are(ready),
                    if desired == 1 { "is" } else { "are" }
                ),
            ),
            Some(ready) => {
                let message = match ready {
                    0 => "no nodes are wanted and none are ready".to_owned(),
                    1 => "the one node is ready".to_owned(),
                    _ => format!("all {ready} nodes are ready"),
                };
                (ConditionStatus::True, Reason::SizeReached, message)
            }
        };
        self.condition(ConditionKind::SizeReached, status, reason, message, before)
    }

    fn condition(
        &self,
        kind: ConditionKind,
        status: ConditionStatus,
        reason: Reason,
        message: String,
        before: Before<'_>,
    ) -> Condition {
        let condition = Condition {
            kind: kind.to_string(),
            status,
            reason: reason.to_string(),
            message,
            last_transition_time: self.now,
            observed_generation: Some(self.subject.generation),
            severity: None,
        };
        condition.since(find(before.conditions, kind.as_str()))
    }

    /// The earliest deadline that still lies ahead.
    fn next_change_at(&self, verdict: &Verdict, before: Before<'_>) -> Option<Timestamp> {
        let mut deadlines: Vec<Timestamp> =
            self.reports.iter().map(|report| report.expires_at(self.config.lease)).collect();
        if verdict.phase == Phase::Progressing && self.ready() == 0 {
            deadlines.extend([self.grace_ends(), self.activity_ends()]);
        }
        if verdict.phase == Phase::Progressing && before.had_been_ready && !self.is_at_work() {
            let lost = before.lost_ready_at.unwrap_or(self.now);
            deadlines.push(lost.saturating_add(self.config.degraded_after));
        }
        deadlines.into_iter().filter(|at| *at > self.now).min()
    }
}

fn verdict(phase: Phase, reason: Reason, message: String) -> Verdict {
    Verdict { phase, reason, message }
}

/// A controller's error in one sentence.
fn error_text(report: &Report) -> String {
    let Some(error) = &report.last_error else { return String::new() };
    let what = error.message.as_deref().or(error.error_code.as_deref()).unwrap_or("no text was given");
    format!("{} reports a {} error: {what}", report.controller_name, error.error_type)
}

/// `1 node is`, `3 nodes are`.
pub fn nodes_are(count: u32) -> String {
    if count == 1 { "1 node is".to_owned() } else { format!("{count} nodes are") }
}
/// "none of 3 controllers is", and of a single one "the controller is not".
fn none_of(all: usize, verb: &str) -> String {
    if all == 1 { format!("the controller {verb} not") } else { format!("none of {all} controllers {verb}") }
}
