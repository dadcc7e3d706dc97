//! The world behind its lock: machines, the cluster, and what is going to happen to them by itself.

use std::{collections::BTreeMap, sync::Arc};

use muster_model::{Duration, k8s::Objects, observe::ClusterView};

use super::{
    cluster::{NodeTruth, PodTruth},
    disturbance::{Disturbance, Outage},
    judge::Judge,
    machine::{Build, Machine, Quirk, RENEW},
    trace::Trace,
    workload::Workload,
};

/// How long a node may be silent before the cluster calls it unreachable.
pub(super) const NODE_SILENCE: u64 = 40_000;
/// How long pods stay on an unreachable node before they are replaced.
const EVICT_UNREACHABLE: u64 = 300_000;
/// A late power-on comes after this long: later than the loop waits for it.
const LATE: u64 = 150_000;
/// The scheduler looks this long after something changed.
const SCHEDULE_AFTER: u64 = 100;
/// Lines of the trace that are kept when nobody asks for all of them.
const KEPT_LINES: usize = 400;

/// Something that will happen by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Power comes or goes, unless it changed meanwhile.
    Power {
        machine: String,
        change: u64,
        on: bool,
    },
    OsUp {
        machine: String,
        change: u64,
    },
    KubeletUp {
        machine: String,
        change: u64,
    },
    NodeReady {
        machine: String,
        change: u64,
    },
    NodeSilent {
        machine: String,
        renewal: Option<u64>,
    },
    Unreachable {
        machine: String,
        renewal: Option<u64>,
    },
    PodGone {
        uid: String,
    },
    PodEnds {
        uid: String,
    },
    Schedule,
    Reconcile {
        workload: String,
    },
    /// The cluster as it is now is what a stale replica will show.
    Keep,
    /// What is seen now will have been noted by then.
    Noted,
    Begin {
        place: usize,
    },
    End {
        place: usize,
    },
}

/// The cluster as it was, and who has seen more of it.
#[derive(Debug, Clone)]
pub(super) struct Old {
    pub since: u64,
    pub view: ClusterView,
    /// How far the cluster had come when the old copy was shown first.
    pub seen: u64,
}

/// What is there. Times are true milliseconds since the world began.
#[derive(Debug)]
pub(super) struct State {
    pub now: u64,
    pub start: muster_model::Timestamp,
    pub machines: BTreeMap<String, Machine>,
    /// Which machine answers at which BMC address.
    pub wiring: BTreeMap<String, String>,
    pub nodes: BTreeMap<String, NodeTruth>,
    pub pods: BTreeMap<String, PodTruth>,
    pub workloads: BTreeMap<String, Workload>,
    pub made: u64,
    pub evictions: u64,
    pub events: BTreeMap<(u64, u64), Event>,
    count: u64,
    pub disturbances: Vec<Disturbance>,
    /// What is under way, by kind.
    pub outages: BTreeMap<Outage, u32>,
    pub outage_since: BTreeMap<Outage, u64>,
    pub store_down_since: Option<u64>,
    /// Wishes that were granted and not taken back.
    pub wished: u32,
    /// Grows with every change that the cluster shows.
    pub number: u64,
    pub shown: tokio::sync::watch::Sender<u64>,
    pub objects: Option<Arc<Objects>>,
    /// What watchers see while the API server is silent.
    pub frozen: Option<(u64, ClusterView)>,
    /// What a stale replica will show, and what one shows now, with the moment since when it does.
    pub kept: Option<ClusterView>,
    pub old: Option<Old>,
    /// How far the cluster had come when everybody who watched it noted that.
    pub noted: u64,
    pub scheduling: bool,
    /// Whether BMCs measure watts.
    pub metered: bool,
    /// Values of metrics, and since when.
    pub signals: BTreeMap<String, (i64, u64)>,
    /// Nodes that may not be drained: Muster runs there.
    pub protected: std::collections::BTreeSet<String>,
    /// What nobody in the world can do by itself: the one who runs it has to.
    pub wishes: Vec<super::disturbance::Wish>,
    pub trace: Trace,
    pub judge: Judge,
}

impl State {
    pub(super) fn new(start: muster_model::Timestamp) -> Self {
        Self {
            now: 0,
            start,
            machines: BTreeMap::new(),
            wiring: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            workloads: BTreeMap::new(),
            made: 0,
            evictions: 0,
            events: BTreeMap::new(),
            count: 0,
            disturbances: Vec::new(),
            outages: BTreeMap::new(),
            outage_since: BTreeMap::new(),
            store_down_since: None,
            wished: 0,
            number: 1,
            shown: tokio::sync::watch::Sender::new(1),
            objects: None,
            frozen: None,
            kept: None,
            old: None,
            noted: 0,
            scheduling: false,
            metered: false,
            signals: BTreeMap::new(),
            protected: std::collections::BTreeSet::new(),
            wishes: Vec::new(),
            trace: Trace::new(KEPT_LINES),
            judge: Judge::default(),
        }
    }

    pub(super) fn wall(&self) -> muster_model::Timestamp {
        self.start.saturating_add(Duration::from_millis(self.now))
    }

    pub(super) fn say(&mut self, text: &str) {
        let now = Duration::from_millis(self.now);
        self.trace.add(now, text);
    }

    pub(super) fn plan(&mut self, after: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now + after, self.count), event);
    }

    pub(super) fn has(&self, outage: Outage) -> bool {
        self.outages.contains_key(&outage)
    }

    /// Whether watchers see the cluster as it is.
    pub(super) const fn shows_now(&self) -> bool {
        self.frozen.is_none() && self.old.is_none()
    }

    /// Something that the cluster shows is different now.
    pub(super) fn touch(&mut self) {
        self.number += 1;
        self.objects = None;
        if self.shows_now() {
            self.shown.send_replace(self.number);
        }
        if !self.scheduling {
            self.scheduling = true;
            self.plan(SCHEDULE_AFTER, Event::Schedule);
        }
    }

    pub(super) fn add_machine(&mut self, build: Build) {
        let name = build.name.clone();
        self.wiring.insert(build.address.clone(), name.clone());
        let on = build.on;
        self.machines.insert(name.clone(), Machine::new(build, self.now));
        if on {
            self.boot(&name);
        }
    }

    /// Lets everything happen that is due by `to`, in order.
    pub(super) fn advance(&mut self, to: u64) {
        while let Some((&(at, count), _)) = self.events.first_key_value() {
            if at > to {
                break;
            }
            let event = self.events.remove(&(at, count)).expect("it was just seen");
            self.now = self.now.max(at);
            self.happen(event);
        }
        self.now = self.now.max(to);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Power { machine, change, on } => {
                if self.is_current(&machine, change) {
                    self.switch(&machine, on);
                }
            }
            Event::OsUp { machine, change } => {
                if self.is_current(&machine, change)
                    && let Some(one) =
                        self.machines.get_mut(&machine).filter(|one| !one.has(Quirk::BootHangs))
                {
                    one.os = true;
                    let join = one.build.join.millis();
                    if !one.has(Quirk::NeverJoins) {
                        self.plan(join.min(2_000), Event::KubeletUp { machine, change });
                    }
                }
            }
            Event::KubeletUp { machine, change } => {
                if self.is_current(&machine, change) {
                    self.kubelet_up(&machine);
                }
            }
            Event::NodeReady { machine, change } => {
                if self.is_current(&machine, change) {
                    self.node_ready(&machine);
                }
            }
            Event::NodeSilent { machine, renewal } => {
                if self.renewal(&machine) == renewal {
                    self.node_silent(&machine);
                    self.plan(EVICT_UNREACHABLE, Event::Unreachable { machine, renewal });
                }
            }
            Event::Unreachable { machine, renewal } => {
                if self.renewal(&machine) == renewal {
                    self.replace_pods_of(&machine);
                }
            }
            Event::PodGone { uid } => self.pod_gone(&uid),
            Event::PodEnds { uid } => self.pod_ends(&uid),
            Event::Schedule => self.schedule(),
            Event::Reconcile { workload } => self.reconcile(&workload),
            Event::Keep => self.keep_view(),
            Event::Noted => self.noted = self.number,
            Event::Begin { place } => self.begin(place),
            Event::End { place } => self.end(place),
        }
    }

    fn is_current(&self, machine: &str, change: u64) -> bool {
        self.machines.get(machine).is_some_and(|one| one.change == change)
    }

    fn renewal(&self, machine: &str) -> Option<u64> {
        self.machines.get(machine).and_then(|one| one.renewed(self.now))
    }

    /// Gives or takes power, at once.
    pub(super) fn switch(&mut self, name: &str, on: bool) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(name) else { return };
        if machine.on == on {
            return;
        }
        machine.change += 1;
        (machine.on, machine.turned_at, machine.os, machine.stopping) = (on, now, false, false);
        machine.boots += u32::from(on);
        self.say(&format!("machine {name} is {}", if on { "on" } else { "off" }));
        if !on {
            self.judge.hands.darken(name);
        }
        self.stop_kubelet(name);
        if on {
            self.boot(name);
        }
        self.judge_power(name);
    }

    fn boot(&mut self, name: &str) {
        let Some(machine) = self.machines.get(name) else { return };
        let (change, boot) = (machine.change, machine.build.boot.millis());
        self.plan(boot, Event::OsUp { machine: name.to_owned(), change });
    }

    /// The kubelet's last sign of life was its last renewal.
    pub(super) fn stop_kubelet(&mut self, name: &str) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(name) else { return };
        let last = machine.renewed(now);
        if machine.kubelet.take().is_none() {
            return;
        }
        machine.last_renewal = last;
        let silent = last.unwrap_or(now) + NODE_SILENCE;
        self.plan(silent.saturating_sub(now), Event::NodeSilent { machine: name.to_owned(), renewal: last });
    }

    /// A request to the machine's power, as its BMC or its agent takes it.
    pub(super) fn ask_on(&mut self, name: &str) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        machine.starts += 1;
        if machine.on || machine.has(Quirk::IgnoresOn) {
            return;
        }
        if machine.has(Quirk::LateOn) {
            let (machine, change) = (name.to_owned(), machine.change);
            self.plan(LATE, Event::Power { machine, change, on: true });
            return;
        }
        self.switch(name, true);
    }

    pub(super) fn ask_shutdown(&mut self, name: &str) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        if !machine.on || !machine.os || machine.has(Quirk::IgnoresAcpi) || machine.stopping {
            return;
        }
        machine.stopping = true;
        let (change, shutdown) = (machine.change, machine.build.shutdown.millis());
        self.plan(shutdown, Event::Power { machine: name.to_owned(), change, on: false });
    }

    pub(super) fn cut(&mut self, name: &str) {
        if self.machines.get(name).is_some_and(|one| one.has(Quirk::IgnoresForce)) {
            return;
        }
        self.switch(name, false);
    }

    pub(super) fn cycle(&mut self, name: &str) {
        self.switch(name, false);
        self.switch(name, true);
    }

    fn kubelet_up(&mut self, name: &str) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(name) else { return };
        if machine.has(Quirk::NeverJoins) || machine.has(Quirk::KubeletHangs) || !machine.os {
            return;
        }
        machine.kubelet = Some(now);
        let (change, join) = (machine.change, machine.build.join.millis());
        self.register_node(name);
        self.plan(join, Event::NodeReady { machine: name.to_owned(), change });
    }

    /// A quirk ended that kept the machine's kubelet silent.
    pub(super) fn revive(&mut self, name: &str) {
        let Some(machine) = self.machines.get(name) else { return };
        if !machine.on || machine.kubelet.is_some() {
            return;
        }
        let (machine_name, change) = (name.to_owned(), machine.change);
        if machine.os {
            self.plan(RENEW, Event::KubeletUp { machine: machine_name, change });
        } else {
            self.plan(machine.build.boot.millis(), Event::OsUp { machine: machine_name, change });
        }
    }
}
