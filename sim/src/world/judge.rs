//! What must never happen, judged by what is true and not by what anybody believes.
//!
//! The judge sees every call that reaches a machine, every change of its power, every change of a node, and every
//! record that a loop stores. It knows the world's truth and nothing of how the loops come to their decisions.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::{
    Duration,
    host::{
        BareMetalNodeStatus, Intent, Phase, State as HostStands,
        keys::{self, HostRecord, Key},
    },
    power::PowerAction,
};
use serde::Serialize;

use super::{bounds::Bounds, disturbance::Outage, hands::Hands, state::State, wellness::Wellness};

const SECOND: u64 = 1_000;
/// Long enough for the delay of ten minutes, the least time that a host serves, and one drain after the other.
const WASTED: u64 = 50 * 60_000;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub at: Duration,
    /// The failure mode that it is about: `F9`.
    pub row: &'static str,
    pub text: String,
}

/// What was asked of one machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub on: Vec<u64>,
    pub off: Vec<u64>,
    /// The last graceful request.
    pub graceful: Option<u64>,
    pub last: Option<(u64, PowerAction)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Judge {
    pub violations: Vec<Violation>,
    pub asked: BTreeMap<String, Asked>,
    /// Hosts that are in a person's hands: pools have others in their place.
    pub maintained: BTreeSet<String>,
    /// Machines that somebody else switched, and what people asked for.
    pub hands: Hands,
    /// Since when nothing has been wrong.
    pub wellness: Wellness,
    /// Until when processes last stood still; `u64::MAX` for those that still do.
    pub still_until: BTreeMap<String, u64>,
    /// Calls under way, by BMC and process.
    pub in_flight: BTreeMap<String, u32>,
    /// Refusals of an account, by BMC and access.
    pub refused: BTreeMap<String, u32>,
    /// Machines whose power cannot be read.
    pub blind: BTreeSet<String>,
    /// Watts that a rack may draw.
    pub caps: BTreeMap<String, u32>,
    /// When power-ons were sent, in that order.
    pub starts: Vec<u64>,
    /// How fast the clock of a process ran, and until when; it knows no other second.
    pub fast: Option<(u64, Option<u64>)>,
    pub starts_per_second: Option<u32>,
    /// Processes that may act now, by their number.
    pub told: BTreeSet<String>,
    /// Where each host stands, as stored.
    pub phases: BTreeMap<String, Phase>,
    pub intents: BTreeMap<String, String>,
    /// Pools of hosts, how large pools may be, and those with triggers.
    pub pools: BTreeMap<String, String>,
    pub bounds: BTreeMap<String, Bounds>,
    /// Since when hosts are in their phases.
    pub moved: BTreeMap<String, u64>,
    /// When there was last a good reason for not getting on.
    pub excused: u64,
    /// Since when hosts serve without power.
    pub dead: BTreeMap<String, u64>,
    /// When hosts were last given up.
    pub given_up: BTreeMap<String, u64>,
    pub triggered: BTreeSet<String>,
    /// Since when nodes have had nobody on them, looked at now and then.
    pub idle: BTreeMap<String, u64>,
    /// Machines that were called up while a workload waited, since one of its pods last found a place.
    pub called: BTreeMap<String, BTreeSet<String>>,
    /// Marks on nodes that nobody needs, and at how many looks they were there.
    pub leaks: BTreeMap<String, u32>,
    /// Who holds the lease, as stored.
    pub holder: Option<String>,
    /// Nobody is judged any more.
    pub dismissed: bool,
}

impl Judge {
    /// How long a second is by the clocks of processes, in true milliseconds.
    fn second(&self, at: u64) -> u64 {
        let ran = self.fast.filter(|(_, until)| until.is_none_or(|until| at < until.saturating_add(SECOND)));
        ran.map_or(SECOND, |(rate, _)| SECOND / rate.max(1))
    }
}

/// Whether a host counts as one of its pool's.
pub(super) const fn is_up(phase: Phase) -> bool {
    match phase {
        Phase::Reserved
        | Phase::PreparingBoot
        | Phase::PowerRequested
        | Phase::Powered
        | Phase::Booting
        | Phase::Joining
        | Phase::Serving
        | Phase::Degraded => true,
        Phase::Enrolling
        | Phase::Idle
        | Phase::Lost
        | Phase::Cordoned
        | Phase::Evicting
        | Phase::Drained
        | Phase::Stopping
        | Phase::ForcingOff
        | Phase::ConfirmingOff
        | Phase::Backoff
        | Phase::Quarantined => false,
    }
}

impl State {
    /// Notes a broken invariant, once for each sentence.
    pub(super) fn violate(&mut self, row: &'static str, text: String) {
        if self.judge.dismissed {
            return;
        }
        if self.judge.told.insert(format!("{row} {text}")) {
            self.say(&format!("VIOLATION {row}: {text}"));
            let at = Duration::from_millis(self.now);
            self.judge.violations.push(Violation { at, row, text });
        }
    }

    /// After a machine's power changed.
    pub(super) fn judge_power(&mut self, name: &str) {
        let Some(machine) = self.machines.get(name) else { return };
        if !machine.on {
            return;
        }
        let Some(rack) = machine.build.rack.clone() else { return };
        let Some(cap) = self.judge.caps.get(&rack).copied() else { return };
        let on: Vec<_> =
            self.machines.values().filter(|one| one.on && one.build.rack.as_ref() == Some(&rack)).collect();
        // What a person switched on is not counted against those who keep the cap.
        let ours = on.iter().filter(|one| !self.judge.hands.is_lit(&one.build.name));
        let watts: u32 = ours.map(|one| one.build.max_watts).sum();
        if watts > cap {
            self.violate("F20", format!("rack {rack} may draw {cap} W and draws up to {watts} W"));
        }
    }

    /// A loop stored a record of a host.
    pub(super) fn judge_record(&mut self, process: &str, key: &str, value: &[u8]) {
        if key.starts_with(muster_model::lease::LEASES) {
            if let Ok(lease) = serde_json::from_slice::<muster_model::lease::LeaseRecord>(value) {
                let holder = Some(lease.holder).filter(|holder| !holder.is_empty());
                if holder.is_some() && holder != self.judge.holder {
                    self.say(&format!("{process} leads"));
                }
                self.judge.holder = holder;
            }
            return;
        }
        let Some(Key::Host { host, record }) = keys::parse(key) else { return };
        let ours =
            matches!(record, HostRecord::Status | HostRecord::Op | HostRecord::Intent | HostRecord::Events);
        if let Some(holder) = self.judge.holder.clone()
            && ours
            && holder != process
        {
            self.violate("F5", format!("{process} writes about {host} while {holder} leads"));
        }
        match record {
            HostRecord::Status => {
                let Ok(status) = serde_json::from_slice::<BareMetalNodeStatus>(value) else { return };
                let before = self.judge.phases.insert(host.to_owned(), status.phase);
                self.take_over(host);
                if before != Some(status.phase) {
                    self.judge.moved.insert(host.to_owned(), self.now);
                    self.judge.wellness.moved(host, status.phase, self.now);
                    let text = format!("{process}: {host} is {}: {}", status.phase, status.reason);
                    self.say(&text);
                    self.judge_phase(host, &status);
                }
            }
            HostRecord::Intent => {
                let Ok(intent) = serde_json::from_slice::<Intent>(value) else { return };
                if self.judge.intents.insert(host.to_owned(), intent.id.clone()).as_ref() != Some(&intent.id)
                {
                    let text = format!("{process}: wants {host} {}: {}", intent.want, intent.reason);
                    self.say(&text);
                    self.judge_intent(host, &intent);
                }
            }
            HostRecord::Events => {
                let ring = serde_json::from_slice::<muster_model::host::EventRing>(value);
                let many = ring.map_or(0, |ring| ring.events.len());
                if many > 100 {
                    self.violate("F24", format!("{many} events of {host} are kept, 100 are enough"));
                }
            }
            HostRecord::Spec | HostRecord::Op | HostRecord::Metrics => {}
        }
    }

    /// What a stored phase claims must be true, as far as a watcher could see it.
    fn judge_phase(&mut self, host: &str, status: &BareMetalNodeStatus) {
        let Some(machine) = self.machines.get(host) else { return };
        let visible = self.shows_now();
        let renews = machine.kubelet.is_some();
        match status.phase {
            Phase::Idle | Phase::ConfirmingOff if renews && visible && self.nodes.contains_key(host) => {
                self.violate("F12", format!("{host} is said to be off while its kubelet renews"));
            }
            // A reading may be a minute old; a BMC that lies is not our fault.
            Phase::Powered
                if !machine.on
                    && !machine.misleads()
                    && self.now.saturating_sub(machine.turned_at) > 180_000 =>
            {
                self.violate("F13", format!("{host} is said to have power and has none"));
            }
            // A power cut of the last minute may not have been seen yet.
            Phase::Serving
                if !machine.on && visible && self.now.saturating_sub(machine.turned_at) > 60_000 =>
            {
                self.violate("F13", format!("{host} is said to serve and has no power"));
            }
            Phase::Reserved => self.judge_start(host),
            _ => {}
        }
    }

    /// A host is claimed: its pool may not become larger than it may be.
    fn judge_start(&mut self, host: &str) {
        let Some(pool) = self.judge.pools.get(host).cloned() else { return };
        let Some(max) = self.judge.bounds.get(&pool).map(|bounds| bounds.most_since(self.settled())) else {
            return;
        };
        let count = self
            .judge
            .phases
            .iter()
            .filter(|(name, phase)| self.judge.pools.get(*name) == Some(&pool) && is_up(**phase))
            .filter(|(name, _)| !self.judge.hands.hold(name))
            .filter(|(name, _)| !self.judge.maintained.contains(*name))
            .count();
        if count > max as usize {
            self.violate("F1", format!("{count} hosts of pool {pool} are up or coming, {max} are allowed"));
        }
    }

    /// Nobody is given up on the ground of a view that cannot be trusted.
    fn judge_intent(&mut self, host: &str, intent: &Intent) {
        if intent.want == muster_model::host::Switch::On {
            self.judge.given_up.remove(host);
            return;
        }
        self.judge.given_up.insert(host.to_owned(), self.now);
        if let Some(pool) = self.judge.pools.get(host).cloned() {
            let least = self.judge.bounds.get(&pool).map_or(0, |bounds| bounds.least_since(self.settled()));
            let serving = |(name, phase): &(&String, &Phase)| {
                self.judge.pools.get(*name) == Some(&pool)
                    && phase.state() == muster_model::host::State::Ready
            };
            let left = self.judge.phases.iter().filter(serving).count().saturating_sub(1);
            let here = self
                .judge
                .phases
                .get(host)
                .is_some_and(|phase| phase.state() == muster_model::host::State::Ready);
            if here && left < least as usize {
                return self.violate(
                    "F7",
                    format!("{host} is given up, which leaves {left} nodes; {least} is the least"),
                );
            }
        }
        let age = |since: u64| self.now.saturating_sub(since);
        let lasted = |outage: Outage| self.outage_since.get(&outage).copied().map(age);
        if let Some((since, _)) = &self.frozen
            && age(*since) > 150_000
        {
            let seconds = age(*since) / 1000;
            return self.violate("F3", format!("{host} is given up on a view that is {seconds} s old"));
        }
        let live =
            |node: &&super::cluster::NodeTruth| !node.taints.contains_key(muster_model::observe::OFF_TAINT);
        let several = self.nodes.values().filter(live).count() > 1;
        if lasted(Outage::NoPods).is_some_and(|age| age > 1_000) && several {
            return self.violate("F2", format!("{host} is given up while 0 pods are seen anywhere"));
        }
        if lasted(Outage::OldView).is_some_and(|age| age > 1_000) && self.is_old_for_sure() {
            return self.violate("F3", format!("{host} is given up on an old copy of the cluster"));
        }
        if lasted(Outage::ApiSlow).is_some_and(|age| age > 60_000) {
            return self.violate("F16", format!("{host} is given up while the API server is slow"));
        }
        let metric = Outage::METRICS.iter().filter_map(|one| lasted(*one)).max();
        if metric.is_some_and(|age| age > 60_000) && self.judge.triggered.contains(&intent.pool) {
            return self
                .violate("F6", format!("{host} is given up while the metrics of its pool are unknown"));
        }
        let (mut silent, mut all) = (0_u32, 0_u32);
        for (name, node) in &self.nodes {
            if node.taints.contains_key(muster_model::observe::OFF_TAINT) {
                continue;
            }
            all += 1;
            let last = self.machines.get(name).and_then(|one| one.renewed(self.now));
            silent += u32::from(last.is_none_or(|last| age(last) > 120_000));
        }
        if silent > 3 && silent * 100 > all * 60 && self.shows_now() {
            self.violate("F16", format!("{host} is given up while {silent} of {all} nodes are silent"));
        }
    }

    /// What must be true at any time.
    pub(super) fn audit(&mut self) {
        self.take_all_over();
        self.audit_progress();
        self.audit_return();
        self.audit_idle();
        let quiet = self.outages.is_empty() && self.wished == 0;
        if !quiet {
            self.judge.leaks.clear();
            self.judge.dead.clear();
            return;
        }
        let now = self.now;
        let serving =
            |name: &String| matches!(self.judge.phases.get(name), Some(Phase::Serving | Phase::Degraded));
        let dead: Vec<String> = self
            .machines
            .iter()
            .filter(|(name, one)| !one.on && serving(name))
            .map(|(name, _)| name.clone())
            .collect();
        self.judge.dead.retain(|name, _| dead.contains(name));
        for name in dead {
            let since = *self.judge.dead.entry(name.clone()).or_insert(now);
            if now - since > 30 * 60_000 {
                self.violate("F13", format!("{name} is said to serve and has had no power for half an hour"));
            }
        }
        let mut leaks = BTreeMap::new();
        for (name, node) in &self.nodes {
            let phase = self.judge.phases.get(name).copied();
            let serving = matches!(phase, Some(Phase::Serving));
            // In any other phase there may be a reason: it leaves or comes, cannot be switched off, or is one too many. A
            // node whose machine has no power stays marked until it is back and serves.
            let back = self.machines.get(name).is_some_and(|machine| machine.on);
            if serving && back && node.mark.is_some() {
                leaks.insert(name.clone(), "carries our cordon and nothing drains it");
            } else if serving && node.taints.contains_key(muster_model::observe::STARTUP_TAINT) {
                leaks.insert(name.clone(), "serves and carries the startup taint");
            }
        }
        let old = std::mem::take(&mut self.judge.leaks);
        for (name, what) in leaks {
            let count = old.get(&name).copied().unwrap_or(0) + 1;
            if count > 4 {
                self.violate("F11", format!("node {name} {what}"));
            }
            self.judge.leaks.insert(name, count);
        }
    }

    /// Takes note of nodes on which nobody is. Trouble of any kind begins the count anew.
    fn audit_idle(&mut self) {
        if !self.outages.is_empty() || self.wished > 0 {
            self.judge.idle.clear();
            return;
        }
        let now = self.now;
        let idle: BTreeSet<String> =
            self.nodes.keys().filter(|name| self.live_pods_on(name) == 0).cloned().collect();
        self.judge.idle.retain(|name, _| idle.contains(name));
        for name in idle {
            self.judge.idle.entry(name).or_insert(now);
        }
    }

    /// Whether what pods ask of a pool is at most half of what its other hosts have: then no mark asks for this one.
    fn is_half_empty_without(&self, pool: &str, host: &str) -> bool {
        let (mut asked, mut room) = ([0_i64; 3], [0_i64; 3]);
        let serving = self.judge.phases.iter().filter(|(name, phase)| {
            phase.state() == HostStands::Ready && self.judge.pools.get(*name).is_some_and(|one| one == pool)
        });
        for (name, _) in serving {
            if let Some(build) = self.machines.get(name).map(|one| &one.build).filter(|_| name != host) {
                for (sum, has) in room.iter_mut().zip([build.milli_cpu, build.memory, build.gpus]) {
                    *sum += has;
                }
            }
            for workload in self.pods_on(name).filter_map(|(_, pod)| self.workloads.get(&pod.workload)) {
                let wants = [workload.milli_cpu, workload.mebibytes << 20, workload.gpus];
                for (sum, wants) in asked.iter_mut().zip(wants) {
                    *sum += wants;
                }
            }
        }
        asked.iter().zip(room).all(|(asked, room)| asked * 2 <= room)
    }

    /// When nothing has gone wrong for an hour, what nobody needs has been given back: a host that serves, has had nobody on it for
    /// [`WASTED`], is more than its pool's minimum and is asked for by no mark should have been stood down.
    pub(super) fn judge_idle(&mut self) {
        let mut serving: BTreeMap<String, u32> = BTreeMap::new();
        for (name, phase) in &self.judge.phases {
            if let (Some(pool), true) = (self.judge.pools.get(name), phase.state() == HostStands::Ready) {
                *serving.entry(pool.clone()).or_default() += 1;
            }
        }
        let wasted = self.judge.idle.iter().find(|(name, since)| {
            let Some(pool) = self.judge.pools.get(*name) else { return false };
            let floor = self.judge.bounds.get(pool).map_or(0, |bounds| bounds.floor_since(self.now - WASTED));
            let spare = serving.get(pool).copied().unwrap_or(0) > floor;
            let well = self.machines.get(*name).is_some_and(|one| one.on && one.quirks.is_empty());
            let ours = !self.judge.hands.hold(name)
                && !self.judge.maintained.contains(*name)
                && !self.protected.contains(*name)
                && !self.judge.triggered.contains(pool);
            spare
                && self.is_half_empty_without(pool, name)
                && well
                && ours
                && self.judge.phases.get(*name) == Some(&Phase::Serving)
                && self.now.saturating_sub(**since) >= WASTED
        });
        if let Some((name, _)) = wasted {
            let text = format!("{name} serves nobody, and nothing has taken it back for 50 minutes");
            self.violate("F4", text);
        }
    }

    /// Whatever was begun ends, one way or the other: a phase has its time, and a drain that is not let through is
    /// given up. Only where nobody can act at all may it take longer.
    fn audit_progress(&mut self) {
        let mute = [Outage::ApiDown, Outage::ApiStalled, Outage::ActsRefused].into_iter();
        if self.wished > 0 || mute.into_iter().any(|outage| self.has(outage)) {
            self.judge.excused = self.now;
            return;
        }
        let mut late = Vec::new();
        for (name, phase) in &self.judge.phases {
            let (row, minutes) = match phase {
                Phase::Cordoned | Phase::Evicting => ("F8", 40),
                Phase::Drained | Phase::Stopping | Phase::ForcingOff | Phase::ConfirmingOff => ("F8", 60),
                Phase::Reserved
                | Phase::PreparingBoot
                | Phase::PowerRequested
                | Phase::Powered
                | Phase::Booting
                | Phase::Joining => ("F4", 60),
                Phase::Enrolling
                | Phase::Idle
                | Phase::Serving
                | Phase::Degraded
                | Phase::Lost
                | Phase::Backoff
                | Phase::Quarantined => continue,
            };
            let since = self.judge.moved.get(name).copied().unwrap_or(0).max(self.judge.excused);
            if self.now - since > minutes * 60_000 {
                late.push((row, format!("{name} has been {phase} for more than {minutes} minutes")));
            }
        }
        for (row, text) in late {
            self.violate(row, text);
        }
    }

    /// What a decision to give this node up was made on, if that was a view that lacks pods or shows the cluster as it was.
    fn wrong_ground(&self, node: &str) -> Option<(&'static str, &'static str)> {
        let decided = self.judge.given_up.get(node).copied()?;
        let during = |outage| self.outage_since.get(&outage).is_some_and(|since| decided > since + SECOND);
        if during(Outage::OldView) && self.is_old_for_sure() {
            return Some(("F3", "an old copy of the cluster"));
        }
        let lacks = during(Outage::NoPods) || during(Outage::HalfThePods);
        (lacks && self.hides_a_pod()).then_some(("F2", "a view that lacks pods"))
    }

    /// A pod is told to go.
    pub(super) fn judge_eviction(&mut self, process: &str, pod: &str, node: &str) {
        if let Some((row, what)) = self.wrong_ground(node) {
            self.violate(row, format!("{process} evicts pod {pod} of {node}, which was given up on {what}"));
        }
    }

    /// A call that was made at `sent` reaches a machine.
    pub(super) fn judge_call(
        &mut self,
        process: &str,
        host: &str,
        machine: &str,
        action: PowerAction,
        sent: u64,
    ) {
        let now = self.now;
        if host != machine && action.interrupts() {
            self.violate("F15", format!("{action} for host {host} reached machine {machine}"));
        }
        if let Some(holder) = self.judge.holder.clone()
            && holder != process
        {
            self.violate("F5", format!("{action} of {machine} by {process} while {holder} leads"));
        }
        if self.store_down_since.is_some_and(|since| now.saturating_sub(since) > 40_000) {
            self.violate("F19", format!("{action} of {machine} although nobody reaches the store"));
        }
        let open = self.nodes.get(machine).is_some_and(|node| {
            node.ready == "True"
                && !node.unschedulable
                && !node.taints.values().any(|(_, effect)| *effect == muster_model::k8s::Effect::NoSchedule)
        });
        if action.interrupts() && open && self.shows_now() {
            self.violate("F10", format!("{action} of {machine} while its node takes pods"));
        }
        let stopping = self.machines.get(machine).is_some_and(|one| one.stopping);
        let asked_at = self.judge.asked.get(machine).and_then(|asked| asked.graceful);
        if action == PowerAction::ForceOff
            && stopping
            && let Some(waited) = asked_at.map(|at| now - at)
            && waited < 90_000
        {
            self.violate(
                "F18",
                format!("power of {machine} is cut {waited} ms after it was asked to shut down"),
            );
        }
        // A pod that came while the call was on its way could be known to nobody.
        let here = |pod: &super::cluster::PodTruth| pod.is_live() && !pod.is_daemon();
        let known = |pod: &super::cluster::PodTruth| pod.bound.is_none_or(|at| at <= sent);
        let live = self.pods_on(machine).filter(|(_, pod)| here(pod) && known(pod)).count();
        let was_on = self.machines.get(machine).is_some_and(|one| one.on);
        if action.interrupts() && was_on && live > 0 {
            self.violate("F9", format!("{action} of {machine} by {process} with {live} pods on it"));
        }
        // It runs there as long as the system does, whatever becomes of the kubelet: a machine that boots has nothing on it yet.
        let runs = self.machines.get(machine).is_some_and(|one| one.on && one.os);
        if action.interrupts() && runs && self.protected.contains(machine) {
            self.violate("F22", format!("{action} of {machine}, where Muster itself runs"));
        }
        if let Some((row, what)) = self.wrong_ground(machine).filter(|_| action.interrupts()) {
            self.violate(row, format!("{action} of {machine}, which was given up on {what}"));
        }
        let minute = self.judge.second(now) * 59;
        let asked = self.judge.asked.entry(machine.to_owned()).or_default();
        let last = asked.last.replace((now, action));
        let opposite = |(at, before): (u64, PowerAction)| {
            (before.interrupts() != action.interrupts()).then_some(now - at).filter(|apart| *apart < minute)
        };
        let too_near = last.and_then(opposite);
        // Magic packets are sent again until the machine answers: that is one start, not many.
        let again = matches!(last, Some((at, PowerAction::On)) if now - at < 60_000);
        let apart = |at: &&u64| now - **at < 3_600_000;
        let recent: Vec<u64> = asked.on.iter().rev().take_while(apart).copied().collect();
        let hour = recent.windows(2).filter(|pair| pair[0] - pair[1] >= 60_000).count()
            + usize::from(!recent.is_empty());
        match action {
            PowerAction::On => asked.on.push(now),
            PowerAction::GracefulOff => {
                asked.graceful = Some(now);
                asked.off.push(now);
            }
            PowerAction::ForceOff | PowerAction::Cycle | PowerAction::Reset => asked.off.push(now),
        }
        if let Some(apart) = too_near {
            self.violate("F21", format!("{action} of {machine} only {apart} ms after the opposite"));
        }
        if action == PowerAction::On && !again && hour >= 12 {
            self.violate("F21", format!("{machine} was asked to go on {hour} times within an hour"));
        }
        if action == PowerAction::On && !again {
            self.judge_rate(sent);
            self.note_called(machine);
        }
    }

    fn note_called(&mut self, machine: &str) {
        let waits: BTreeSet<&String> =
            self.pods.values().filter(|pod| pod.object.is_pending()).map(|pod| &pod.workload).collect();
        self.judge.called.retain(|workload, _| waits.contains(workload));
        for workload in waits {
            self.judge.called.entry(workload.clone()).or_default().insert(machine.to_owned());
        }
    }

    /// Three machines were called up while it waited, and none of its pods found a place: no more need be.
    pub(super) fn is_beyond_help(&self, workload: &str) -> bool {
        self.judge.called.get(workload).is_some_and(|machines| machines.len() >= 3)
    }

    /// Power-ons are let go at a rate, when they are sent; the ways to machines take times of their own.
    fn judge_rate(&mut self, sent: u64) {
        let second = self.judge.second(sent);
        let starts = &mut self.judge.starts;
        let place = starts.partition_point(|at| *at <= sent);
        starts.insert(place, sent);
        let before = starts[..place].iter().rev().take_while(|at| sent - **at < second).count();
        let after = starts[place + 1..].iter().take_while(|at| **at - sent < second).count();
        let near = &starts[place - before..=place + after];
        let within = |from: usize| near[from..].iter().take_while(|at| **at - near[from] < second).count();
        let many = (0..near.len()).map(within).max().unwrap_or(0);
        if let Some(most) = self.judge.starts_per_second
            && many > most as usize
        {
            self.violate("F20", format!("{many} power-ons within a second, {most} are allowed"));
        }
    }
}
