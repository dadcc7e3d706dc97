//! A world in memory: machines with BMCs, a cluster with a scheduler and kubelets, metrics, and time.
//!
//! It implements the ports that the production loops use, so that they run on it unchanged: as a server whose
//! time is real or faster ([`World::live`]), or thousands of times faster and with the same trace for the same
//! seed ([`simulation::Simulation`]). What is in it and what goes wrong are data ([`Build`], [`Workload`],
//! [`Disturbance`]).
//!
//! Nothing in here decides anything that Muster decides; the [`judge`] knows what must never happen.

mod bmc;
mod bounds;
mod cluster;
pub mod disturbance;
pub mod fleet;
pub mod fuzz;
mod grant;
mod hands;
mod judge;
mod kube;
mod machine;
pub mod process;
pub mod random;
mod rare;
pub mod script;
pub mod simulation;
pub mod site;
mod state;
mod store;
pub mod timeline;
pub mod trace;
pub mod trouble;
mod wellness;
mod workload;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_control::{hosts::Agents, planner::Connections};
use muster_engine::lifecycle::{AgentView, Goodbye, Hello};
use muster_model::{
    Clock as _, Duration, Known, Timestamp, cluster::Cluster, host::Presence, observe::ClusterPort,
    trigger::Triggers,
};
use tokio_util::sync::CancellationToken;

pub use disturbance::{Disturbance, Outage, What, Wish};
pub use judge::Violation;
pub use machine::{Build, Machine, Quirk};
pub use timeline::{ProcessClock, START, Timeline};
pub use workload::{Kind, Workload};

use state::State;

/// See the module.
#[derive(Debug)]
pub struct World {
    line: Arc<Timeline>,
    state: Mutex<State>,
    goodbyes: Mutex<BTreeMap<String, Timestamp>>,
}

impl World {
    /// An empty world that begins at `start`.
    pub fn new(start: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            line: Timeline::new(start),
            state: Mutex::new(State::new(start)),
            goodbyes: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub const fn timeline(&self) -> &Arc<Timeline> {
        &self.line
    }

    /// A clock that is right.
    pub fn clock(&self) -> Arc<ProcessClock> {
        ProcessClock::new(Arc::clone(&self.line))
    }

    /// The clock of a machine that is wrong by so many milliseconds.
    pub fn clock_off_by(&self, millis: i64) -> Arc<ProcessClock> {
        ProcessClock::off_by(Arc::clone(&self.line), millis)
    }

    pub fn now(&self) -> Duration {
        self.line.now()
    }

    pub fn add_machine(&self, build: Build) {
        self.state().add_machine(build);
    }

    /// Starts running something on the cluster.
    pub fn add_workload(&self, workload: Workload) {
        let mut state = self.state();
        let name = workload.name.clone();
        state.workloads.insert(name.clone(), workload);
        state.reconcile(&name);
    }

    pub fn set_replicas(&self, workload: &str, replicas: u32) {
        self.state().set_replicas(workload, replicas);
    }

    /// Plans something that goes wrong, or that somebody does.
    pub fn disturb(&self, disturbance: Disturbance) {
        self.state().disturb(disturbance);
    }

    /// Muster runs on this machine: its node may not be drained.
    pub fn protect(&self, machine: &str) {
        self.state().protected.insert(machine.to_owned());
    }

    /// A rack may draw so much.
    pub fn cap(&self, rack: &str, watts: u32) {
        self.state().judge.caps.insert(rack.to_owned(), watts);
    }

    /// Nobody can read this machine's power.
    pub fn hide_power(&self, host: &str) {
        self.state().judge.blind.insert(host.to_owned());
    }

    /// A host serves a pool.
    pub fn belongs(&self, host: &str, pool: &str) {
        self.state().judge.pools.insert(host.to_owned(), pool.to_owned());
    }

    /// A pool has so few and so many nodes, and has triggers or not.
    pub fn pool_may(&self, pool: &str, (min, max): (u32, u32), triggered: bool) {
        let mut state = self.state();
        let now = state.now;
        state.judge.bounds.entry(pool.to_owned()).or_default().set((min, max), now);
        if triggered {
            state.judge.triggered.insert(pool.to_owned());
        }
    }

    /// Looks at what must be true at any time.
    pub fn audit(&self) {
        self.state().audit();
    }

    /// Looks at what must be true once nothing has gone wrong for a while: nobody waits for what is free.
    pub fn judge_rest(&self, hosts: &[site::HostSetting]) {
        let mut state = self.state();
        if !state.outages.is_empty() || state.wished > 0 {
            return;
        }
        let waiting: Vec<(String, i64, BTreeMap<String, String>)> = state
            .pods
            .iter()
            .filter(|(_, pod)| pod.object.is_pending() && !state.is_beyond_help(&pod.workload))
            .filter_map(|(uid, pod)| {
                let workload = state.workloads.get(&pod.workload)?;
                Some((uid.clone(), workload.milli_cpu, workload.selector.clone()))
            })
            .collect();
        for (uid, milli_cpu, selector) in waiting {
            let fits = |host: &&site::HostSetting| {
                let pool_fits = selector.get("nodepool").is_none_or(|pool| *pool == host.pool);
                let up = state.judge.phases.iter().filter(|(name, phase)| {
                    state.judge.pools.get(*name) == Some(&host.pool)
                        && !matches!(phase.state(), muster_model::host::State::Off)
                });
                let most = state.judge.bounds.get(&host.pool).map_or(u32::MAX, bounds::Bounds::most);
                let room = up.count() < most as usize;
                let rack = host.machine.rack.as_ref();
                let capped = rack.is_some_and(|rack| state.judge.caps.contains_key(rack));
                let free = state.is_free(&host.machine.name);
                pool_fits && free && room && !capped && milli_cpu < host.machine.milli_cpu
            };
            let host = hosts.iter().find(fits).map(|host| host.machine.name.clone());
            if let Some(host) = host {
                state.violate("F4", format!("pod {uid} waits although host {host} is free"));
                return;
            }
        }
    }

    /// Connects every BMC with its own machine.
    pub fn put_cables_right(&self) {
        self.state().put_cables_right();
    }

    /// Hosts that a person has to see to now that trouble is over.
    pub fn wait_for_people(&self) -> std::collections::BTreeSet<String> {
        self.state().wait_for_people()
    }

    /// How many machines are in other hands than ours, of how many: there they are judged by less.
    pub fn in_other_hands(&self) -> (usize, usize) {
        self.state().in_other_hands()
    }

    /// Looks at the end of a day whether anybody is kept up for nobody.
    pub fn judge_idle(&self) {
        self.state().judge_idle();
    }

    /// So many machines may be switched on in one second.
    pub fn starts_per_second(&self, most: u32) {
        self.state().judge.starts_per_second = Some(most);
    }

    /// The next moment at which something happens or somebody wakes.
    pub fn next(&self) -> Option<Duration> {
        let event = self.state().events.first_key_value().map(|((at, _), _)| Duration::from_millis(*at));
        [event, self.line.next()].into_iter().flatten().min()
    }

    /// Lets time pass: what is due happens, in order, and whoever waited for it is woken. Never goes back.
    pub fn advance(&self, to: Duration) {
        while let Some(next) = self.next().filter(|next| *next <= to) {
            self.step(next);
        }
        self.step(to);
    }

    /// To one instant, without those between.
    pub(crate) fn step(&self, to: Duration) {
        self.state().advance(to.millis());
        self.line.advance(to);
    }

    /// Follows real time, `speed` times as fast, until `stop`.
    ///
    /// Time never jumps: on a machine that is too busy to keep up the world goes slower, so that nobody in it
    /// misses a deadline because of that.
    #[allow(clippy::disallowed_methods, reason = "this is the rim where real time comes in")]
    pub async fn live(&self, speed: f64, stop: CancellationToken) {
        /// Often enough that a person sees no steps.
        const FRAME: std::time::Duration = std::time::Duration::from_millis(10);
        /// What is made up for at once, of a frame that came late.
        const LATEST: std::time::Duration = std::time::Duration::from_millis(50);
        let mut last = std::time::Instant::now();
        let mut rest = std::time::Duration::ZERO;
        while !stop.is_cancelled() {
            let now = std::time::Instant::now();
            let passed = rest + now.duration_since(last).min(LATEST).mul_f64(speed);
            last = now;
            let whole = Duration::from(passed);
            // What is less than a millisecond counts with the next frame.
            rest = passed.saturating_sub(whole.as_std());
            self.advance(self.now().saturating_add(whole));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(FRAME) => {}
            }
        }
    }

    /// The cluster as a process with this clock sees it.
    pub fn port(self: &Arc<Self>, process: &str, clock: &Arc<ProcessClock>) -> Arc<dyn ClusterPort> {
        let since = self.now().millis();
        Arc::new(kube::Port {
            world: Arc::clone(self),
            process: process.into(),
            clock: Arc::clone(clock),
            since,
            slowness: std::sync::Mutex::default(),
        })
    }

    pub fn connections(self: &Arc<Self>, process: &str, clock: &Arc<ProcessClock>) -> Arc<dyn Connections> {
        Arc::new(Connected(self.port(process, clock)))
    }

    pub fn triggers(self: &Arc<Self>, clock: &Arc<ProcessClock>) -> Arc<dyn Triggers> {
        Arc::new(kube::Metrics { world: Arc::clone(self), clock: Arc::clone(clock) })
    }

    pub fn agents(self: &Arc<Self>, clock: &Arc<ProcessClock>) -> Arc<dyn Agents> {
        Arc::new(Heard { world: Arc::clone(self), clock: Arc::clone(clock) })
    }

    fn goodbye(&self, host: &str, at: Timestamp) {
        self.goodbyes.lock().unwrap_or_else(PoisonError::into_inner).insert(host.to_owned(), at);
    }

    /// Adds a line to the trace.
    pub fn say(&self, text: &str) {
        self.state().say(text);
    }

    /// Keeps every line of the trace from now on.
    pub fn keep_all_lines(&self) {
        self.state().trace = trace::Trace::new(usize::MAX);
    }

    pub fn lines(&self) -> Vec<String> {
        self.state().trace.lines().map(str::to_owned).collect()
    }

    /// The lines of the trace after the first `seen` ones, as far as they are kept, and how many there are by now.
    pub fn lines_after(&self, seen: u64) -> (u64, Vec<String>) {
        let state = self.state();
        let count = state.trace.count();
        let fresh = usize::try_from(count.saturating_sub(seen)).unwrap_or(usize::MAX);
        let kept = state.trace.lines().count();
        (count, state.trace.lines().skip(kept.saturating_sub(fresh)).map(str::to_owned).collect())
    }

    /// The nodes that pods of a workload run on, each once.
    pub fn nodes_of(&self, workload: &str) -> Vec<String> {
        let state = self.state();
        let pods = state.pods.values().filter(|pod| pod.workload == workload && pod.deleted.is_none());
        let nodes: std::collections::BTreeSet<String> = pods.filter_map(|pod| pod.node.clone()).collect();
        nodes.into_iter().collect()
    }

    /// Lets BMCs measure what their machines draw.
    pub fn measure_watts(&self) {
        self.state().metered = true;
    }

    /// What a machine draws, in milliwatts: a third of its most when idle, and more with what its pods ask for.
    pub fn drawn(&self, machine: &str) -> i64 {
        let state = self.state();
        let Some(one) = state.machines.get(machine).filter(|one| one.on) else { return 0 };
        let asked: i64 = state
            .pods_on(machine)
            .filter(|(_, pod)| pod.is_live())
            .filter_map(|(_, pod)| state.workloads.get(&pod.workload))
            .map(|workload| workload.milli_cpu)
            .sum();
        let most = i64::from(one.build.max_watts) * 1000;
        let busy = (most - most / 3) * asked.min(one.build.milli_cpu) / one.build.milli_cpu.max(1);
        // Fans and supplies: a percent up or down that changes from minute to minute.
        let wobble = i64::try_from((state.now / 60_000 + u64::from(one.boots)) % 5).unwrap_or(0) - 2;
        let drawn = most / 3 + busy;
        drawn + drawn * wobble / 200
    }

    /// How often a machine was given power.
    pub fn boots(&self, machine: &str) -> u32 {
        self.state().machines.get(machine).map_or(0, |one| one.boots)
    }

    /// Gives or takes a machine's power from outside, at once, as a hand on its button does.
    pub fn press(&self, machine: &str, on: bool) {
        let mut state = self.state();
        let now = self.line.now().millis();
        state.advance(now);
        state.press(machine, on);
    }

    /// Names of the pods of a workload that have not been told to go.
    pub fn pods_of(&self, workload: &str) -> Vec<String> {
        let state = self.state();
        let mine = state.pods.iter().filter(|(_, pod)| pod.workload == workload && pod.deleted.is_none());
        mine.map(|(name, _)| name.clone()).collect()
    }

    /// How much there is of the cluster that nodes and pods make up.
    pub fn objects(&self) -> usize {
        let state = self.state();
        state.nodes.len() + state.pods.len() + state.workloads.len()
    }

    /// The trace's digest and number of lines.
    pub fn digest(&self) -> (u64, u64) {
        let state = self.state();
        (state.trace.digest(), state.trace.count())
    }

    /// Lets the judge go: it sees only what processes do whose way to the store it watches.
    pub fn dismiss_judge(&self) {
        self.state().judge.dismissed = true;
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.state().judge.violations.clone()
    }

    /// Whether a machine has power.
    pub fn is_on(&self, machine: &str) -> bool {
        self.state().machines.get(machine).is_some_and(|one| one.on)
    }

    /// Whether a node takes no pods.
    pub fn is_cordoned(&self, node: &str) -> bool {
        self.state().nodes.get(node).is_some_and(|one| one.unschedulable)
    }

    /// Requests to switch on that reached machines: one of them, or all.
    pub fn power_ons(&self, machine: Option<&str>) -> usize {
        self.asked(machine, |asked| asked.on.len())
    }

    /// Requests to switch off that reached machines, gentle and forced.
    pub fn power_offs(&self, machine: Option<&str>) -> usize {
        self.asked(machine, |asked| asked.off.len())
    }

    fn asked(&self, machine: Option<&str>, count: impl Fn(&judge::Asked) -> usize) -> usize {
        let state = self.state();
        let mine = |name: &str| machine.is_none_or(|machine| machine == name);
        state.judge.asked.iter().filter(|(name, _)| mine(name)).map(|(_, asked)| count(asked)).sum()
    }

    /// Evictions that were granted.
    pub fn evictions(&self) -> u64 {
        self.state().evictions
    }

    /// Pods that wait for a node.
    pub fn pending(&self) -> usize {
        self.state().pods.values().filter(|pod| pod.object.is_pending()).count()
    }

    /// Pods that run.
    pub fn running(&self) -> usize {
        self.state()
            .pods
            .values()
            .filter(|pod| pod.node.is_some() && pod.is_live() && !pod.is_daemon())
            .count()
    }

    /// A record of a host was stored: a change of phase goes into the trace, and before the judge.
    fn stored(&self, process: &str, key: &str, value: &[u8]) {
        self.state().judge_record(process, key, value);
    }

    pub(crate) fn take_wishes(&self) -> Vec<Wish> {
        std::mem::take(&mut self.state().wishes)
    }
}

/// One cluster, for every name.
#[derive(Debug)]
struct Connected(Arc<dyn ClusterPort>);

impl Connections for Connected {
    fn port(&self, _: &Cluster) -> Option<Arc<dyn ClusterPort>> {
        Some(Arc::clone(&self.0))
    }
}

/// Agents on machines whose operating system is up.
#[derive(Debug)]
struct Heard {
    world: Arc<World>,
    clock: Arc<ProcessClock>,
}

impl Agents for Heard {
    fn view(&self, host: &str) -> AgentView {
        let at = self.clock.now();
        let hello = {
            let state = self.world.state();
            let up = state.machines.get(host).filter(|one| one.os && !one.has(Quirk::KubeletHangs));
            up.map(|one| Hello { boot_id: format!("boot-{host}-{}", one.boots), at })
        };
        let goodbyes = self.world.goodbyes.lock().unwrap_or_else(PoisonError::into_inner);
        AgentView { hello, goodbye: goodbyes.get(host).map(|at| Goodbye { op: String::new(), at: *at }) }
    }

    fn presence(&self, host: &str, now: Timestamp) -> Known<Presence> {
        let state = self.world.state();
        let up = state.machines.get(host).is_some_and(|one| one.os && !one.has(Quirk::KubeletHangs));
        Known::Value { value: if up { Presence::Answers } else { Presence::Silent }, at: now }
    }
}
