//! One turn of one host: gather, step, store, perform, and when to look again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_engine::lifecycle::{
    self, Effect, EffectKind, Evidence, Freeze, HostState, Performed, PodsView, Rule, Settings, Step,
};
use muster_model::{
    Clock, Duration, Known, Timestamp,
    host::{
        Admin, BareMetalNodeSpec, BareMetalNodeStatus, BmcProgress, ConditionStatus, ConditionType,
        HostCondition, HostIdentity, OnUnexpectedOff, OpKind, OtherReading, Permission, Phase, Power,
        PowerInterface, find_condition,
        keys::{self, HostRecord, host_prefix},
        set_condition,
    },
    observe::ClusterView,
    power::{Sensors, Warning},
    store::{Change, List, Store, StoreError},
};

use super::{
    around::Around,
    book::{Book, Record},
    energy, evidence,
    failpoint::{Failpoints, Side},
    figures::Counters,
    gate::Gate,
    log,
    look::{self, Glass, Looked, limited},
    nodes::Indexed,
    pace::{FRESH, Pace},
    perform::{self, Scene},
    recount,
    store::{self, Stored, Writes},
    ways::{self, Drivers, Way},
    witness::Witness,
};
use crate::lead::{Lead, Tenure};

/// Steps of one turn. The longest way without waiting, from idle to a power call, takes four.
const MAX_STEPS: u32 = 16;
/// After the store did not answer or refused.
const STORE_AGAIN: Duration = Duration::from_secs(1);
/// Between looks of a host that waits for its turn to start.
const WAIT: Duration = Duration::from_secs(1);
/// Least time between two turns of a host that asks to be looked at at once.
const AT_ONCE: Duration = Duration::from_millis(200);
/// How old an index of a cluster may be.
const REINDEX: Duration = Duration::from_millis(500);
/// How long asking a machine who it is may take.
const IDENTIFY_LIMIT: Duration = Duration::from_secs(30);

/// What was last seen of each cluster, and when on the monotonic clock.
type Views = HashMap<Arc<str>, (Duration, Arc<Indexed>)>;

/// What all turns share.
#[derive(Debug)]
pub(super) struct Shared {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub lead: Arc<Lead>,
    pub drivers: Drivers,
    pub around: Arc<dyn Around>,
    pub witness: Arc<dyn Witness>,
    pub pace: Pace,
    /// What a full lease leaves for one call and its margin.
    pub lease_room: Duration,
    pub failpoints: Failpoints,
    pub counters: Counters,
    pub book: Arc<Mutex<Book>>,
    pub gate: Mutex<Gate>,
    pub views: Mutex<Views>,
    pub metrics: Mutex<Vec<energy::Due>>,
}

/// What this process remembers of a host between turns; lost with it, and that is fine.
#[derive(Debug)]
pub(super) struct Memo {
    pub looked: Option<Looked>,
    /// What a driver that was asked beside the readings said, until a step has seen it.
    pub second: Option<OtherReading>,
    /// This leader has taken over what it found of the host.
    pub taken_over: bool,
    /// Looks in a row that failed.
    pub failed: u32,
    pub performed: Performed,
    /// What refused the last eviction.
    pub blocked_by: Option<String>,
    /// What the API server itself said about the node's pods, in the phases that take them away.
    pub recount: Option<Result<PodsView, String>>,
    /// Who the machine said it is, and with which access it was asked.
    pub identified: Option<(u64, HostIdentity)>,
    pub sensors: Option<(Timestamp, Option<Sensors>)>,
    /// What the machine's event log said after a failed boot, until it is in the history.
    pub log: Option<String>,
    /// What a driver did otherwise than it was asked to, until it is in the history.
    pub remark: Option<String>,
    /// When energy was last accounted for, whatever is stored.
    pub accounted: Option<Timestamp>,
    /// Its BMC was called in this turn; the scheduler takes it back.
    pub spoke: bool,
}

impl Default for Memo {
    fn default() -> Self {
        Self {
            looked: None,
            second: None,
            taken_over: false,
            failed: 0,
            performed: Performed::Nothing,
            blocked_by: None,
            recount: None,
            identified: None,
            sensors: None,
            log: None,
            remark: None,
            accounted: None,
            spoke: false,
        }
    }
}

/// Why a turn is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trigger {
    Time,
    /// Somebody wrote about the host, or its node changed.
    News,
}

/// When the next turn is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    In(Duration),
    /// The host's records are gone.
    Never,
}

impl Shared {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of a view. A busy cluster shows a new one with every lease that is renewed; a fraction of a second
    /// of age is nothing to a decision, and an index of all pods for each turn is much.
    pub(super) fn indexed(&self, cluster: &Arc<str>, view: ClusterView) -> Arc<Indexed> {
        let now = self.clock.monotonic();
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let known = views.get(cluster);
        if let Some((made, index)) = known
            && (index.view.number == view.number || now.saturating_sub(*made) < self.pace.scaled(REINDEX))
            && view.fresh_at.since(index.view.fresh_at) < self.pace.scaled(FRESH)
            && view.slow.is_some() == index.view.slow.is_some()
        {
            return Arc::clone(index);
        }
        let index = Arc::new(Indexed::new(view, known.map(|(_, index)| &**index)));
        views.insert(Arc::clone(cluster), (now, Arc::clone(&index)));
        index
    }

    /// Reads a host's records afresh: somebody else wrote, or nobody knows what was written.
    async fn reload(&self, name: &str) -> Result<(), StoreError> {
        let page = self.store.list(List::prefix(host_prefix(name))).await?;
        let mut book = self.book();
        for record in HostRecord::ALL {
            let key = keys::host(name, record);
            let entry = page.entries.iter().find(|entry| entry.key == key).cloned();
            let revision = entry.as_ref().map_or(page.revision, |entry| entry.modified);
            let _ = book.apply(&Change { revision, key, entry });
        }
        Ok(())
    }

    fn glass<'g>(
        &'g self,
        ways: &'g [Way],
        status: &'g BareMetalNodeStatus,
        access: u64,
        memo: &Memo,
    ) -> Glass<'g> {
        let known = memo.identified.as_ref().filter(|(with, _)| *with == access);
        Glass {
            drivers: &self.drivers,
            clock: &self.clock,
            ways,
            fallback: status.driver_fallback.as_ref(),
            identity: known.map(|(_, identity)| identity.clone()).unwrap_or_default(),
            access,
            failed: memo.failed,
        }
    }

    /// One look at a machine, into the memo. The new fallback if the look was made.
    pub(super) async fn look_at(
        &self,
        name: &str,
        ways: &[Way],
        status: &BareMetalNodeStatus,
        access: u64,
        memo: &mut Memo,
    ) -> Option<look::Fallback> {
        let (looked, fallback) = look::look(&self.glass(ways, status, access, memo)).await?;
        memo.spoke = true;
        match &looked.bmc {
            Known::Value { .. } => memo.failed = 0,
            Known::Unknown { .. } => memo.failed = memo.failed.saturating_add(1),
        }
        self.counters.looked(matches!(looked.bmc, Known::Value { .. }));
        tracing::debug!(host = name, power = ?looked.power, "looked");
        memo.looked = Some(looked);
        Some(fallback)
    }
}

/// A turn under way.
#[derive(Debug)]
struct Turn<'a> {
    shared: &'a Shared,
    name: &'a Arc<str>,
    memo: &'a mut Memo,
    lead: Tenure,
}

/// How a step ended.
enum After {
    /// Look again now: something moved or was done.
    Again,
    /// Read the machine and look again.
    Probe(Option<usize>),
    Rest(Next),
}

/// Takes a host's turn. Every way out says when the next one is due.
pub(super) async fn turn(shared: &Shared, name: &Arc<str>, memo: &mut Memo, trigger: Trigger) -> Next {
    let Some(lead) = shared.lead.now() else { return Next::In(STORE_AGAIN) };
    let mut turn = Turn { shared, name, memo, lead };
    let mut fresh = trigger == Trigger::News;
    let (mut probe, mut probed) = (None, false);
    for _ in 0..MAX_STEPS {
        match turn.step(fresh, probe.take()).await {
            Ok(After::Again) => fresh = true,
            Ok(After::Probe(driver)) if !probed => {
                (probe, probed) = (Some(driver), true);
            }
            Ok(After::Probe(_)) => return Next::In(shared.pace.scaled(FRESH)),
            Ok(After::Rest(next)) => return next,
            Err(error) => {
                tracing::warn!(host = %name, code = error.code(), %error, "a host's turn broke off; it is taken again");
                shared.gate().settle(name);
                if matches!(error, StoreError::Ambiguous { .. }) {
                    let _ = shared.reload(name).await;
                }
                return Next::In(STORE_AGAIN);
            }
        }
    }
    tracing::warn!(host = %name, steps = MAX_STEPS, "a host does not come to rest; it is left alone for a moment");
    Next::In(STORE_AGAIN)
}

/// Writes down how far a boot has come when its BMC says something new. What it said of an earlier boot is not that.
fn note_progress(state: &mut HostState, looked: Option<&Looked>) {
    let rises = matches!(
        state.status.phase,
        Phase::PowerRequested | Phase::Powered | Phase::Booting | Phase::Joining
    );
    let (true, Some(Looked { progress: Some(progress), power: Known::Value { value, .. }, .. })) =
        (rises, looked)
    else {
        return;
    };
    if matches!(value.power, Power::Off | Power::TurningOff) {
        return;
    }
    let begun = state.op.as_ref().map_or(Timestamp::EPOCH, |op| op.started);
    let known = state.status.boot_progress.as_ref();
    if known.is_none_or(|known| known.stage != progress.stage || known.at < begun) {
        let (stage, driver, at) = (progress.stage.clone(), value.driver, progress.at);
        state.status.boot_progress = Some(BmcProgress { stage, driver, at });
    }
}

impl Turn<'_> {
    #[allow(clippy::option_option, reason = "a probe may name a driver")]
    async fn step(&mut self, fresh: bool, probe: Option<Option<usize>>) -> Result<After, StoreError> {
        let (record, spec) = match self.records() {
            Ok(found) => found,
            Err(next) => return Ok(After::Rest(next)),
        };
        let before = record.state(self.name);
        let settings = evidence::settings(self.shared, &record, &spec, &self.shared.book());
        let mut from = before.clone();
        let ways =
            ways::ways(self.name, &spec, before.as_ref().and_then(|state| state.status.identity.as_ref()));
        self.look(&settings, &ways, from.as_mut(), fresh, probe).await;
        let cluster = evidence::cluster_of(
            self.shared,
            self.name,
            &spec,
            record.status.as_deref(),
            settings.limits.lease_silence,
        );
        self.memo.recount = recount::recount(self.shared, self.name, &spec, before.as_ref(), &cluster).await;
        let now = self.shared.clock.now();
        let seen = evidence::gather(
            self.shared,
            self.name,
            &record,
            &spec,
            self.memo,
            &cluster,
            &self.lead,
            settings,
            now,
        );
        self.memo.second = None;
        let mut step = match &from {
            None => lifecycle::enrol(self.name, &seen, now),
            Some(state) => lifecycle::step(state, &seen, now),
        };
        let waits = self.gate(&spec, from.as_ref(), &mut step, &seen, now);
        let mut remarks = remarks(&step.effects, self.memo, &seen);
        remarks.extend(would_do(before.as_ref(), &step));
        remarks.extend(self.memo.log.clone());
        remarks.extend(self.memo.remark.clone());
        let lead = self.lead.clone();
        let writes = Writes {
            name: self.name,
            record: &record,
            before: before.as_ref(),
            step: &step,
            lead: &lead,
            now,
            remarks,
        };
        let stored = store::store(self.shared, &writes).await;
        self.shared.gate().settle(self.name);
        let stored = if muster_model::planted::is("F19") { stored.or(Ok(Stored::Done)) } else { stored };
        match stored? {
            Stored::Done => (self.memo.taken_over, self.memo.log, self.memo.remark) = (true, None, None),
            Stored::Lost => {
                self.shared.reload(self.name).await?;
                return Ok(After::Rest(Next::In(AT_ONCE)));
            }
        }
        self.report(&step);
        if step.gone {
            return Ok(After::Rest(Next::Never));
        }
        self.forget_settled(&step);
        let scene = Scene {
            shared: self.shared,
            name: self.name,
            spec: &spec,
            status: &step.state.status,
            op: step.state.op.as_ref(),
            ended_by_hand: before
                .as_ref()
                .and_then(|state| state.op.as_ref())
                .is_some_and(|op| op.cause.is_by_hand()),
            limits: &seen.settings.limits,
            ways: &ways,
            access: seen.settings.credential_version,
            cluster: &cluster,
            lead: &lead,
        };
        let deeds = self.carry_out(&scene, &record, &step).await;
        if from.is_none() {
            return Ok(After::Again); // what was just read is the first of two readings
        }
        Ok(self.after(&step, deeds, waits, now))
    }

    /// What is stored of the host, while this process leads; when to come back if nothing is to be done about it now.
    fn records(&mut self) -> Result<(Record, Arc<BareMetalNodeSpec>), Next> {
        match self.shared.lead.now() {
            // A step may have taken most of what was left of the lease.
            Some(lead) if lead.fence == self.lead.fence => self.lead = lead,
            Some(_) | None => return Err(Next::In(STORE_AGAIN)),
        }
        let record = self.shared.book().hosts.get(self.name).cloned().ok_or(Next::Never)?;
        let spec = match (&record.spec, &record.status) {
            (Some(spec), _) => Arc::clone(spec),
            // It cannot be read, and what it said before is not known here: nobody deleted it.
            (None, _) if record.fault.is_some() => {
                return Err(Next::In(self.shared.pace.scaled(Duration::from_mins(5))));
            }
            // Its spec was deleted under us: nothing can be called, only forgotten.
            (None, Some(_)) => Arc::new(BareMetalNodeSpec::new("", PowerInterface::Redfish)),
            (None, None) => return Err(Next::In(self.shared.pace.scaled(Duration::from_mins(5)))),
        };
        if record.spec.is_some()
            && let Some(why) = self.shared.around.set_aside(self.name)
        {
            tracing::debug!(host = %self.name, why, "a host that is set aside is left alone");
            return Err(Next::In(self.shared.pace.scaled(Duration::from_secs(5))));
        }
        Ok((record, spec))
    }

    /// Does what a stored step asks for, and the accounts when there is nothing to do.
    async fn carry_out(&mut self, scene: &Scene<'_>, record: &Record, step: &Step) -> perform::Deeds {
        perform::tell(scene, step);
        let deeds = perform::perform(scene, self.memo, &step.effects).await;
        self.memo.spoke |= deeds.called;
        if captures_evidence(&step.effects) {
            self.memo.log = log::tail(scene, self.memo).await;
        }
        if !step.moved() && !deeds.called {
            energy::account(self.shared, self.name, record, scene, self.memo).await;
        }
        deeds
    }

    /// Reads the machine if what is known of it is too old.
    #[allow(clippy::option_option, reason = "a probe may name a driver")]
    async fn look(
        &mut self,
        settings: &Settings,
        ways: &[Way],
        state: Option<&mut HostState>,
        fresh: bool,
        probe: Option<Option<usize>>,
    ) {
        let (shared, now, access) = (self.shared, self.shared.clock.now(), settings.credential_version);
        let status = state.as_ref().map(|state| &state.status);
        let blocked = status
            .and_then(|status| status.bmc_blocked.as_ref())
            .is_some_and(|blocked| blocked.credential_version == access);
        if blocked {
            self.memo.identified = None; // who is let in again says anew who it is
        }
        if settings.admin == Admin::Disabled || blocked {
            return;
        }
        let phase = status.map_or(Phase::Enrolling, |status| status.phase);
        let op = state.as_ref().and_then(|state| state.op.as_ref());
        let limit = if fresh { shared.pace.scaled(FRESH) } else { shared.pace.reread(phase, op) };
        // What another account, key or address was refused says nothing about this one.
        let of_now = |looked: &Looked| match &looked.bmc {
            Known::Value { .. } => true,
            Known::Unknown { why, .. } => why.credential_version == access,
        };
        let recent = |looked: &Looked| looked.at <= now && now.since(looked.at) < limit && of_now(looked);
        let ways_changed = self.memo.identified.as_ref().is_some_and(|(with, _)| *with != access);
        if probe.is_none() && !ways_changed && self.memo.looked.as_ref().is_some_and(recent) {
            return;
        }
        if probe.is_some() {
            shared.failpoints.reach("effect", "probe", Side::Before).await;
        }
        let fallen = BareMetalNodeStatus::enrolling(now);
        let status = status.unwrap_or(&fallen);
        if let Some(place) = probe.flatten() {
            self.ask_beside(ways, status, access, place).await;
            shared.failpoints.reach("effect", "probe", Side::After).await;
            return;
        }
        let fallback = shared.look_at(self.name, ways, status, access, self.memo).await;
        let unsaid = status.identity.as_ref().is_none_or(|known| known.serial.is_none());
        let unknown = unsaid && ways_changed | self.memo.identified.is_none();
        if unknown && matches!(self.memo.looked, Some(Looked { bmc: Known::Value { .. }, .. })) {
            let in_use = fallback.as_ref().and_then(|one| one.as_ref()).map(|one| one.index);
            self.identify(ways, in_use, access).await;
        }
        if probe.is_some() {
            shared.failpoints.reach("effect", "probe", Side::After).await;
        }
        if let (Some(state), Some(fallback)) = (state, fallback) {
            state.status.driver_fallback = fallback;
            note_progress(state, self.memo.looked.as_ref());
            if let Some(looked) =
                self.memo.looked.as_ref().filter(|one| matches!(one.bmc, Known::Value { .. }))
            {
                unverified(&mut state.status, looked, settings.generation, now);
            }
        }
    }

    /// Asks one more driver. A reading is a reading of the driver in use: this answer stays beside it, and only a refusal
    /// counts for the whole host.
    async fn ask_beside(&mut self, ways: &[Way], status: &BareMetalNodeStatus, access: u64, place: usize) {
        let asked = look::ask_beside(&self.shared.glass(ways, status, access, self.memo), place).await;
        let Some((said, blocks)) = asked else { return };
        self.shared.counters.looked(said.said.is_some());
        self.memo.second = Some(said);
        self.memo.spoke = true;
        if let (Some(why), Some(looked)) = (blocks, self.memo.looked.as_mut()) {
            looked.bmc = Known::Unknown { why, since: self.shared.clock.now() };
        }
    }

    /// Asks the machine who it is, once for every way to it: by the driver that just answered, where that can tell.
    async fn identify(&mut self, ways: &[Way], in_use: Option<usize>, access: u64) {
        let answers = in_use.and_then(|place| ways.get(place));
        let able = answers.into_iter().chain(ways).find_map(|way| {
            let driver = self.shared.drivers.get(way.kind)?;
            driver.abilities().identify.then_some(())?;
            Some((driver, way.bmc.as_ref().ok()?))
        });
        let Some((driver, bmc)) = able else { return };
        let asked = driver.identify(bmc);
        let identity = match limited(&self.shared.clock, IDENTIFY_LIMIT, bmc, asked).await {
            Ok(found) => HostIdentity {
                serial: found.serial,
                uuid: found.uuid,
                manufacturer: found.vendor,
                model: found.model,
            },
            Err(error) => {
                tracing::warn!(host = %self.name, %error, "a machine did not say who it is");
                return;
            }
        };
        self.memo.identified = Some((access, identity.clone()));
        if let Some(Looked { bmc: Known::Value { value, .. }, .. }) = &mut self.memo.looked {
            value.identity = identity;
        }
    }

    /// Holds a start back that the limits across hosts do not allow, and says so in the status.
    fn gate(
        &self,
        spec: &BareMetalNodeSpec,
        from: Option<&HostState>,
        step: &mut Step,
        seen: &Evidence,
        now: Timestamp,
    ) -> bool {
        let Some(from) = from else { return false };
        let old = from.op.as_ref().map(|op| &op.id);
        let begins = step.state.op.as_ref().filter(|op| Some(&op.id) != old);
        let starts = begins.is_some_and(|op| match op.kind {
            OpKind::On | OpKind::SelfTest | OpKind::Cycle => true,
            OpKind::Off => false,
        });
        if !starts {
            if from.status.reason.starts_with("waits: ") && !step.moved() {
                step.state.status.reason.clone_from(&step.reason);
            }
            return false;
        }
        let rack = spec.rack.as_deref().and_then(|rack| self.shared.around.rack(rack));
        let tick = self.shared.clock.monotonic();
        let admitted = self.shared.gate().admit(self.name, spec, rack.as_ref(), &self.shared.book(), tick);
        let Err(refusal) = admitted else { return false };
        // What was observed is kept; what is wanted has to wait.
        let mut without = seen.clone();
        *step = match from.status.phase {
            Phase::Idle => {
                without.intent = None;
                without.settings.manual = None;
                if without.freeze == Freeze::AllOn {
                    without.freeze = Freeze::None;
                }
                lifecycle::step(from, &without, now)
            }
            Phase::Quarantined => Step {
                state: from.clone(),
                from: from.status.phase,
                rule: Rule::Wait,
                effects: Vec::new(),
                reason: refusal.to_string(),
                wake: None,
                gone: false,
            },
            // What was to be cycled, or to be switched on again because it went off by itself. It rests until the limits
            // let its pool call it.
            _ => {
                let policy = &mut without.settings.policy;
                policy.cycle_lost = Permission::Refused;
                if policy.on_unexpected_off == OnUnexpectedOff::Restart {
                    policy.on_unexpected_off = OnUnexpectedOff::Adopt;
                }
                lifecycle::step(from, &without, now)
            }
        };
        self.shared.counters.waited();
        if step.moved() {
            step.reason = format!("{}; it is not switched on again now: {refusal}", step.reason);
            step.state.status.reason.clone_from(&step.reason);
            return false;
        }
        step.state.status.reason = refusal.to_string();
        // It waits for its turn with what was wanted of it in time.
        step.state.status.waiting_intent = seen.intent.as_ref().map(|intent| intent.id.clone());
        true
    }

    /// What was reported to the step and is stored now need not be reported again.
    fn forget_settled(&mut self, step: &Step) {
        let pending = step.state.op.as_ref().and_then(|op| Some((&op.id, op.pending.as_ref()?.seq)));
        let same = match &self.memo.performed {
            Performed::Nothing => return,
            Performed::Running { op, seq } | Performed::Ended { op, seq, .. } => pending == Some((op, *seq)),
        };
        if !same || step.moved() {
            self.memo.performed = Performed::Nothing;
        }
    }

    fn report(&self, step: &Step) {
        if step.moved() {
            let (from, to) = (step.from.as_str(), step.state.status.phase.as_str());
            tracing::info!(host = %self.name, from, to, rule = %step.rule, reason = step.reason, "phase");
            self.shared.counters.moved(step.state.status.phase);
        }
    }

    fn after(&self, step: &Step, deeds: perform::Deeds, waits: bool, now: Timestamp) -> After {
        if waits {
            return After::Rest(Next::In(self.shared.pace.scaled(WAIT)));
        }
        if deeds.called {
            return After::Again;
        }
        let age = self.memo.looked.as_ref().map(|looked| now.since(looked.at));
        let old = age.is_none_or(|age| age >= self.shared.pace.scaled(FRESH));
        let asked = step.effects.iter().find_map(|effect| match effect.kind {
            EffectKind::Probe { driver } if old || driver.is_some() => Some(driver),
            _ => None,
        });
        if let Some(driver) = asked {
            return After::Probe(driver);
        }
        if step.moved() {
            return After::Again;
        }
        let (status, op) = (&step.state.status, step.state.op.as_ref());
        let poll = self.shared.pace.poll(status.phase, op, self.memo.failed);
        let wake = step.wake.map_or(poll, |wake| wake.since(now));
        let soon = if deeds.acted { self.shared.pace.scaled(STORE_AGAIN) } else { poll };
        let least = AT_ONCE.min(poll);
        let next = match wake {
            Duration::ZERO => poll,
            wake => wake.min(poll).min(soon),
        };
        After::Rest(Next::In(next.max(least)))
    }
}

/// A BMC that is talked to without checking who it is raises a condition for as long as that is so.
fn unverified(status: &mut BareMetalNodeStatus, looked: &Looked, generation: u64, now: Timestamp) {
    let kind = ConditionType::BmcUnverified;
    let (holds, reason, message) = match looked.warnings.first() {
        Some(Warning::InsecureTls) => {
            (true, "InsecureTls", "the BMC's certificate is not checked (tlsVerify)")
        }
        Some(Warning::PlainHttp) => (true, "PlainHttp", "the BMC is called without encryption"),
        None => (false, "Verified", ""),
    };
    if !holds && find_condition(&status.conditions, kind).is_none() {
        return;
    }
    let condition = HostCondition {
        kind,
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: now,
        observed_generation: generation,
    };
    set_condition(&mut status.conditions, condition);
}

/// What the driver dry-run would have done, once for every time that it is asked.
fn would_do(before: Option<&HostState>, step: &Step) -> Option<String> {
    let said = |status: &BareMetalNodeStatus| {
        let condition = find_condition(&status.conditions, ConditionType::DryRun);
        condition.filter(|one| one.reason.starts_with("Would")).map(|one| one.message.clone())
    };
    let now = said(&step.state.status)?;
    (before.and_then(|state| said(&state.status)).as_ref() != Some(&now)).then(|| format!("dry-run: {now}"))
}

fn captures_evidence(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| effect.kind == EffectKind::CaptureEvidence)
}

/// What the history says beside the step: the circumstances of a failed boot.
fn remarks(effects: &[Effect], memo: &Memo, seen: &Evidence) -> Vec<String> {
    if !captures_evidence(effects) {
        return Vec::new();
    }
    let power = match &seen.power {
        Known::Value { value, at } => format!("{} at {at} by {}", value.power, value.driver),
        Known::Unknown { why, .. } => format!("unknown ({why})"),
    };
    let progress =
        seen.boot_progress.as_ref().map_or("none".to_owned(), |one| format!("{} at {}", one.stage, one.at));
    let health = memo.looked.as_ref().map_or("not reported".to_owned(), |one| format!("{:?}", one.health));
    let node = match &seen.node {
        Known::Value { value: lifecycle::NodeView::Absent, .. } => "absent".to_owned(),
        Known::Value { value: lifecycle::NodeView::Present(node), .. } => {
            format!(
                "{} (ready {}, lease renewed {:?})",
                node.name,
                node.ready,
                node.lease_renewed.map(|at| at.to_string())
            )
        }
        Known::Unknown { why, .. } => format!("unknown ({why})"),
    };
    vec![format!("evidence: power {power}; boot progress {progress}; health {health}; node {node}")]
}
