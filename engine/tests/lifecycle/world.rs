//! A machine, a node and a clock that do what a script says, and nothing by chance.

use muster_engine::lifecycle::{
    AgentView, BmcTrouble, BmcView, BootNeed, BootProgress, Cordon, Deletion, DriverView, EffectKind,
    Evidence, Freeze, Goodbye, Hello, HostState, Leadership, NodeSeen, NodeView, Outcome, Performed,
    PodsView, PoolView, PowerSeen, Rule, Settings, Step, TroubleClass, enrol, step,
};
use muster_model::{
    Duration, Known, Timestamp,
    host::{
        Admin, BareMetalNodeStatus, Cause, DriverKind, HostIdentity, HostOp, HostPolicy, Intent, Limits,
        OnReset, OpKind, Phase, Power, PowerCall, PowerReading, Presence, Switch,
    },
};

const START: i64 = 1_700_000_000_000;

pub(crate) fn at(secs: i64) -> Timestamp {
    Timestamp::from_millis(START + secs * 1000)
}

pub(crate) fn known<T, W>(value: T, now: Timestamp) -> Known<T, W> {
    Known::Value { value, at: now }
}

pub(crate) fn unknown<T>(now: Timestamp) -> Known<T> {
    Known::Unknown { why: "silence".into(), since: now }
}

pub(crate) fn settings() -> Settings {
    Settings {
        drivers: vec![DriverView::full(DriverKind::Redfish), DriverView::full(DriverKind::Ipmi)],
        limits: Limits::default(),
        policy: HostPolicy::default(),
        boot: BootNeed::AsItIs,
        admin: Admin::Normal,
        hold: None,
        manual: None,
        acknowledgement: None,
        max_watts: Some(400),
        generation: 1,
        credential_version: 1,
    }
}

pub(crate) fn seen_power(power: Power, now: Timestamp) -> Known<PowerSeen> {
    known(PowerSeen { power, driver: DriverKind::Redfish }, now)
}

/// A leader looks at a host that is off, has no node, and of which nothing is wanted.
pub(crate) fn evidence(now: Timestamp) -> Evidence {
    Evidence {
        settings: settings(),
        intent: None,
        leadership: Leadership::Leader { epoch: 7, lease_left: Duration::from_hours(1) },
        unattended: Duration::ZERO,
        freeze: Freeze::None,
        deletion: Deletion::None,
        power: seen_power(Power::Off, now),
        second: None,
        bmc: known(BmcView { identity: HostIdentity::default() }, now),
        presence: unknown(now),
        agent: AgentView::default(),
        boot_progress: None,
        node: known(NodeView::Absent, now),
        pods: known(PodsView::default(), now),
        pool: PoolView {
            below_max: true,
            last_there: None,
            would_pend: known(0, now),
            repairs_stopped: None,
            advice: None,
        },
        performed: Performed::Nothing,
    }
}

pub(crate) fn trouble(class: TroubleClass, attempts: u32, now: Timestamp) -> Known<BmcView, BmcTrouble> {
    Known::Unknown {
        why: BmcTrouble {
            class,
            message: "no answer".into(),
            attempts,
            credential_version: 1,
            driver: Some(0),
            key: None,
        },
        since: now,
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as the evidence holds it")]
pub(crate) fn intent(want: Switch, id: &str) -> Option<Intent> {
    Some(Intent {
        id: id.into(),
        want,
        pool: "gpu".into(),
        decision: "d-1".into(),
        reason: "2 pods wait".into(),
        epoch: 7,
        at: at(0),
        spread_weighed: false,
    })
}

/// A node of this boot, Ready, its lease just renewed.
pub(crate) fn node(now: Timestamp) -> NodeSeen {
    NodeSeen {
        name: "h1".into(),
        cluster: Some("c1".into()),
        boot_id: Some("boot-1".into()),
        ready: true,
        lease_renewed: Some(now),
        lease_watched: Timestamp::EPOCH,
        cordon: Cordon::None,
        startup_taint: false,
        off_taint: false,
        out_of_service: false,
        labels_complete: true,
        missing: None,
    }
}

/// A host that entered `phase` at time zero, with the operation that the phase needs, and whose last
/// reading (on or off, as the phase suggests) began a minute before.
pub(crate) fn host(phase: Phase) -> HostState {
    let mut status = BareMetalNodeStatus::enrolling(at(0));
    status.phase = phase;
    status.state = phase.state();
    let (power, kind) = match phase {
        Phase::Enrolling
        | Phase::Idle
        | Phase::Reserved
        | Phase::PreparingBoot
        | Phase::PowerRequested
        | Phase::Backoff
        | Phase::Quarantined
        | Phase::ConfirmingOff => (Power::Off, OpKind::On),
        Phase::Powered | Phase::Booting | Phase::Joining => (Power::On, OpKind::On),
        Phase::Serving
        | Phase::Degraded
        | Phase::Lost
        | Phase::Cordoned
        | Phase::Evicting
        | Phase::Drained
        | Phase::Stopping
        | Phase::ForcingOff => (Power::On, OpKind::Off),
    };
    let reading = PowerReading { power, driver: DriverKind::Redfish, since: at(-60) };
    status.power = Known::Value { value: reading, at: at(-60) };
    status.bmc_reachable = true;
    status.operations = 1;
    let cause = Cause::Intent { intent: "i-1".into(), decision: "d-1".into() };
    let mut op = HostOp::new("h1-1".into(), kind, cause, "2 pods wait".into(), 7, at(0));
    if matches!(phase, Phase::PowerRequested | Phase::Powered | Phase::Booting | Phase::Joining) {
        op.power_requested_at = Some(at(-1));
        op.attempts = 1;
        op.boot_set = true;
    }
    let needs_op = !matches!(
        phase,
        Phase::Enrolling
            | Phase::Idle
            | Phase::Serving
            | Phase::Degraded
            | Phase::Lost
            | Phase::Backoff
            | Phase::Quarantined
    );
    HostState { name: "h1".into(), status, op: needs_op.then_some(op) }
}

pub(crate) fn has(step: &Step, wanted: &EffectKind) -> bool {
    step.effects.iter().any(|effect| effect.kind == *wanted)
}

pub(crate) fn calls(step: &Step) -> Vec<PowerCall> {
    step.effects
        .iter()
        .filter_map(|effect| match effect.kind {
            EffectKind::Power(call) => Some(call),
            _ => None,
        })
        .collect()
}

/// Where the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    Unstored,
    Unperformed,
    Unreported,
}

/// How the machine behaves.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) power: Power,
    /// Power-on requests that it accepts and ignores.
    pub(crate) ignores_on: u32,
    pub(crate) ignores_acpi: bool,
    pub(crate) ignores_force: bool,
    /// From power to a renewed lease; `None` hangs.
    pub(crate) boot_secs: Option<i64>,
    pub(crate) turned_at: Timestamp,
    pub(crate) boots: u32,
    pub(crate) bmc_lies_off: bool,
    /// The ways to switch it on that its first BMC has, where it has not all of them.
    pub(crate) offers: Option<Vec<OnReset>>,
    pub(crate) unreachable: bool,
    pub(crate) shutdown_at: Option<Timestamp>,
}

impl Machine {
    fn offers_call(&self, call: PowerCall) -> bool {
        match (call, &self.offers) {
            (PowerCall::PowerOn { driver: 0, reset }, Some(offers)) => offers.contains(&reset),
            _ => true,
        }
    }
}

/// One host with everything around it.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) state: HostState,
    pub(crate) machine: Machine,
    pub(crate) node: Option<NodeSeen>,
    pub(crate) pods: PodsView,
    /// Pods vanish this long after their eviction.
    pub(crate) pod_grace_secs: i64,
    pub(crate) pdb_blocks: bool,
    evicted_at: Option<Timestamp>,
    pub(crate) seen: Evidence,
    pub(crate) failed_contacts: u32,
    /// Every power call that reached the machine.
    pub(crate) calls: Vec<(Timestamp, String, u32, PowerCall)>,
    pub(crate) evictions: u32,
    pub(crate) trail: Vec<Phase>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) reasons: Vec<String>,
    pub(crate) released: u32,
    pub(crate) reserved: u32,
    /// The number of steps taken, and at which of them to die.
    pub(crate) steps: u32,
    pub(crate) crash: Option<(u32, Crash)>,
    pub(crate) gone: bool,
    pub(crate) api_down: bool,
}

impl World {
    /// A host that is off and idle, with a machine that boots in a minute and a half.
    pub(crate) fn idle() -> Self {
        let mut state = host(Phase::Idle);
        state.status.off_proved_at = Some(at(-60));
        Self::of(state, Power::Off)
    }

    /// A host that has served for an hour, with three pods.
    pub(crate) fn serving() -> Self {
        let mut state = host(Phase::Serving);
        state.status.serving_since = Some(at(-3600));
        let mut world = Self::of(state, Power::On);
        world.machine.boots = 1;
        world.machine.turned_at = at(-4000);
        world.node = Some(node(at(0)));
        world.pods.evictable = 3;
        world
    }

    pub(crate) fn of(state: HostState, power: Power) -> Self {
        let now = at(0);
        Self {
            now,
            trail: vec![state.phase()],
            state,
            machine: Machine {
                power,
                ignores_on: 0,
                ignores_acpi: false,
                ignores_force: false,
                boot_secs: Some(90),
                turned_at: at(-4000),
                boots: 0,
                bmc_lies_off: false,
                offers: None,
                unreachable: false,
                shutdown_at: None,
            },
            node: None,
            pods: PodsView::default(),
            pod_grace_secs: 10,
            pdb_blocks: false,
            evicted_at: None,
            seen: evidence(now),
            failed_contacts: 0,
            calls: Vec::new(),
            evictions: 0,
            rules: Vec::new(),
            reasons: Vec::new(),
            released: 0,
            reserved: 0,
            steps: 0,
            crash: None,
            gone: false,
            api_down: false,
        }
    }

    pub(crate) fn new_host() -> Self {
        let mut world = Self::of(host(Phase::Enrolling), Power::Off);
        let step = enrol("h1", &world.seen, world.now);
        world.state = step.state;
        world
    }

    pub(crate) fn want(&mut self, want: Switch, id: &str) -> &mut Self {
        self.seen.intent = intent(want, id).map(|intent| Intent { at: self.now, ..intent });
        self
    }

    fn os_up(&self) -> bool {
        self.machine.power == Power::On
            && self.machine.boot_secs.is_some_and(|secs| {
                self.now.since(self.machine.turned_at) >= Duration::from_secs(secs.unsigned_abs())
            })
    }

    fn turn(&mut self, power: Power) {
        self.machine.power = power;
        self.machine.turned_at = self.now;
        if power == Power::On {
            self.machine.boots += 1;
        }
    }

    /// A person presses the button.
    pub(crate) fn press(&mut self, power: Power) {
        self.turn(power);
    }

    fn live(&mut self) {
        if self.machine.power == Power::TurningOn
            && self.now.since(self.machine.turned_at) >= Duration::from_secs(4)
        {
            self.machine.power = Power::On;
        }
        if let Some(when) = self.machine.shutdown_at
            && self.now >= when
        {
            self.machine.shutdown_at = None;
            self.turn(Power::Off);
        }
        if self.os_up() {
            let boot_id = Some(format!("boot-{}", self.machine.boots));
            let fresh = node(self.now);
            let node =
                self.node.get_or_insert(NodeSeen { startup_taint: true, labels_complete: false, ..fresh });
            node.boot_id = boot_id;
            node.ready = true;
            node.lease_renewed = Some(self.now);
        } else if let Some(node) = self.node.as_mut()
            && node.lease_renewed.is_some_and(|renewed| self.now.since(renewed) > Duration::from_secs(40))
        {
            node.ready = false;
        }
        if let Some(when) = self.evicted_at
            && !self.pdb_blocks
            && self.now.since(when) >= Duration::from_secs(self.pod_grace_secs.unsigned_abs())
        {
            self.pods = PodsView::default();
            self.evicted_at = None;
        }
    }

    fn look(&mut self) -> Evidence {
        let (now, mut seen) = (self.now, self.seen.clone());
        if self.machine.unreachable {
            self.failed_contacts += 1;
            seen.power = unknown(now);
            seen.bmc = trouble(TroubleClass::Unreachable, self.failed_contacts, now);
        } else if !matches!(seen.bmc, Known::Unknown { .. }) {
            self.failed_contacts = 0;
            let power = if self.machine.bmc_lies_off { Power::Off } else { self.machine.power };
            seen.power = seen_power(power, now);
            seen.bmc = known(BmcView { identity: HostIdentity::default() }, now);
        }
        if self.api_down {
            seen.node = unknown(now);
            seen.pods = unknown(now);
            seen.pool.would_pend = unknown(now);
        } else {
            seen.node = known(self.node.clone().map_or(NodeView::Absent, NodeView::Present), now);
            seen.pods = known(self.pods.clone(), now);
            if let Known::Value { value, .. } = seen.pool.would_pend {
                seen.pool.would_pend = known(value, now);
            } else {
                seen.pool.would_pend = known(0, now);
            }
        }
        seen
    }

    /// Lets `secs` pass, with a look every five of them.
    pub(crate) fn run(&mut self, secs: i64) -> &mut Self {
        let end = self.now.saturating_add(Duration::from_secs(secs.unsigned_abs()));
        while self.now < end && !self.gone {
            self.now = self.now.saturating_add(Duration::from_secs(5));
            self.live();
            self.settle();
        }
        self
    }

    /// Runs until the host stands in `phase`, and fails when that takes longer than `secs`.
    #[track_caller]
    pub(crate) fn until(&mut self, phase: Phase, secs: i64) -> &mut Self {
        let end = self.now.saturating_add(Duration::from_secs(secs.unsigned_abs()));
        while self.state.phase() != phase {
            assert!(self.now < end, "not {phase} in {secs}s: {:?}\n{:#?}", self.trail, self.reasons.last());
            self.run(5);
        }
        self
    }

    /// Runs until the host has entered `phase`, be it only in passing: for phases that are left within one look.
    #[track_caller]
    pub(crate) fn through(&mut self, phase: Phase, secs: i64) -> &mut Self {
        let end = self.now.saturating_add(Duration::from_secs(secs.unsigned_abs()));
        let begin = self.trail.len();
        while !self.trail[begin..].contains(&phase) {
            assert!(self.now < end, "not {phase} in {secs}s: {:?}\n{:#?}", self.trail, self.reasons.last());
            self.run(5);
        }
        self
    }

    /// Looks and acts until nothing moves any more, as the host loop does.
    pub(crate) fn settle(&mut self) {
        for _ in 0..12 {
            if self.gone || !self.once() {
                return;
            }
        }
        panic!("the host does not come to rest: {:?}", self.trail);
    }

    /// One look; whether something moved.
    pub(crate) fn once(&mut self) -> bool {
        let seen = self.look();
        let done = step(&self.state, &seen, self.now);
        self.steps += 1;
        let crash = self.crash.filter(|(when, _)| *when == self.steps).map(|(_, point)| point);
        self.seen.performed = Performed::Nothing;
        if crash == Some(Crash::Unstored) {
            return true;
        }
        let moved = done.moved();
        if moved {
            self.trail.push(done.state.phase());
        }
        self.rules.push(done.rule);
        self.reasons.push(done.reason.clone());
        self.gone = done.gone;
        self.state = done.state.clone();
        for effect in &done.effects {
            match effect.kind {
                EffectKind::Reserve => self.reserved += 1,
                EffectKind::ReleaseReservation => self.released += 1,
                _ => {}
            }
        }
        if crash == Some(Crash::Unperformed) {
            return true;
        }
        for effect in &done.effects {
            self.perform(effect);
        }
        if crash == Some(Crash::Unreported) {
            self.seen.performed = Performed::Nothing;
            return true;
        }
        moved || matches!(self.seen.performed, Performed::Ended { .. })
    }

    fn perform(&mut self, effect: &muster_engine::lifecycle::Effect) {
        let now = self.now;
        match &effect.kind {
            EffectKind::Power(call) => {
                if effect.expects.is_some_and(|expected| expected != self.machine.power) {
                    return; // read before every call
                }
                let op = effect.op.clone().expect("a power call belongs to an operation");
                let seq = op.seq.expect("a power call has a number");
                if !self.machine.offers_call(*call) {
                    let outcome = Outcome::Refused { reason: "NotSupported", message: "no such way".into() };
                    self.seen.performed = Performed::Ended { op: op.id, seq, outcome };
                    return;
                }
                self.calls.push((now, op.id.clone(), seq, *call));
                self.obey(*call);
                self.seen.performed = Performed::Ended { op: op.id, seq, outcome: Outcome::Accepted };
            }
            EffectKind::Cordon => {
                if let Some(node) = self.node.as_mut() {
                    node.cordon = Cordon::Ours { op: "h1".into() };
                }
            }
            EffectKind::Uncordon => {
                if let Some(node) = self.node.as_mut() {
                    node.cordon = Cordon::None;
                }
            }
            EffectKind::Evict => {
                self.evictions += 1;
                if self.evicted_at.is_none() && self.pods.total() > 0 && !self.pdb_blocks {
                    self.pods.terminating += self.pods.evictable;
                    self.pods.evictable = 0;
                    self.evicted_at = Some(now);
                }
                if self.pdb_blocks {
                    self.pods.blocked_by = Some("web-pdb".into());
                }
            }
            EffectKind::ApplyLabels => self.on_node(|node| node.labels_complete = true),
            EffectKind::RemoveStartupTaint => self.on_node(|node| node.startup_taint = false),
            EffectKind::TaintOff => self.on_node(|node| node.off_taint = true),
            EffectKind::RemoveOffTaint => self.on_node(|node| node.off_taint = false),
            EffectKind::OutOfServiceTaint => {
                self.on_node(|node| node.out_of_service = true);
                self.pods = PodsView::default();
            }
            EffectKind::RemoveOutOfServiceTaint => self.on_node(|node| node.out_of_service = false),
            EffectKind::DeleteNode => self.node = None,
            EffectKind::Reserve
            | EffectKind::ReleaseReservation
            | EffectKind::Forget
            | EffectKind::Probe { .. }
            | EffectKind::CaptureEvidence => {}
        }
    }

    fn on_node(&mut self, change: impl FnOnce(&mut NodeSeen)) {
        if let Some(node) = self.node.as_mut() {
            change(node);
        }
    }

    fn obey(&mut self, call: PowerCall) {
        match call {
            // A button toggles: pressed twice, the machine is where it was.
            PowerCall::PowerOn { reset: OnReset::PushPowerButton, .. }
                if self.machine.power != Power::Off =>
            {
                self.turn(Power::Off);
            }
            PowerCall::PowerOn { .. } | PowerCall::WolBurst { .. } => {
                if self.machine.ignores_on > 0 {
                    self.machine.ignores_on -= 1;
                } else if self.machine.power == Power::Off {
                    self.turn(Power::On);
                    self.machine.power = Power::TurningOn;
                }
            }
            PowerCall::GracefulOff { .. } => {
                if self.os_up() && !self.machine.ignores_acpi {
                    self.machine.shutdown_at = Some(self.now.saturating_add(Duration::from_secs(20)));
                }
            }
            PowerCall::ForceOff { .. } => {
                if !self.machine.ignores_force {
                    self.turn(Power::Off);
                }
            }
            PowerCall::PowerCycle { .. } => self.turn(Power::On),
            PowerCall::SetBoot { .. } | PowerCall::ResetBmc { .. } => {}
        }
    }

    /// How often each kind of call reached the machine.
    pub(crate) fn count(&self, wanted: &str) -> usize {
        self.calls.iter().filter(|(_, _, _, call)| call.as_str() == wanted).count()
    }

    /// The process died and another leads.
    pub(crate) fn fail_over(&mut self, secs: i64) {
        self.seen.performed = Performed::Nothing;
        self.seen.leadership = Leadership::Leader { epoch: 8, lease_left: Duration::from_hours(1) };
        self.now = self.now.saturating_add(Duration::from_secs(secs.unsigned_abs()));
        self.live();
    }
}

/// Wake-on-LAN to wake, the agent to stop, and nothing that reads.
pub(crate) fn wol_settings() -> Settings {
    Settings {
        drivers: vec![DriverView::full(DriverKind::Wol), DriverView::full(DriverKind::Agent)],
        ..settings()
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as the evidence holds it")]
pub(crate) fn hello(boot: &str, now: Timestamp) -> Option<Hello> {
    Some(Hello { boot_id: boot.into(), at: now })
}

#[allow(clippy::unnecessary_wraps, reason = "as the evidence holds it")]
pub(crate) fn goodbye(op: &str, now: Timestamp) -> Option<Goodbye> {
    Some(Goodbye { op: op.into(), at: now })
}

#[allow(clippy::unnecessary_wraps, reason = "as the evidence holds it")]
pub(crate) fn progress(stage: &str, os: bool, now: Timestamp) -> Option<BootProgress> {
    Some(BootProgress { stage: stage.into(), os, at: now })
}

pub(crate) fn silent(now: Timestamp) -> Known<Presence> {
    known(Presence::Silent, now)
}
