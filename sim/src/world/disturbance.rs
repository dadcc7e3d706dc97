//! What goes wrong, as data: when, for how long, and what.

use muster_model::Duration;
use serde::{Deserialize, Serialize};

use super::{
    machine::Quirk,
    state::{Event, State},
};

/// How much older a stale replica is than the moment at which somebody asks it first.
const BEFORE: u64 = 30 * 60_000;

/// What was seen so long before has been noted by whoever sees it: every five minutes, at looks that may be ten minutes apart.
const NOTED: u64 = 15 * 60_000;

/// Something wrong with the cluster or what watches it, for as long as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outage {
    /// The API server answers nobody.
    ApiDown,
    /// Watches are open and say nothing; what is done still happens.
    ApiStalled,
    /// The API server takes ten seconds for every answer.
    ApiSlow,
    /// A cache that lost every pod.
    NoPods,
    /// A cache that lost every second pod.
    HalfThePods,
    /// A replica of the API server that stands still: whoever asks it sees the cluster as it was half an hour before,
    /// whoever starts now and knows of nothing later too.
    OldView,
    /// Pods that ended are held by finalizers.
    Finalizers,
    /// Budgets allow nothing.
    BudgetsClosed,
    /// An admission webhook refuses every change of nodes and every eviction.
    ActsRefused,
    /// Prometheus answers 503.
    MetricsRefused,
    MetricsSlow,
    MetricsEmpty,
    MetricsNan,
    MetricsStale,
    /// Half of the targets are gone.
    MetricsPartial,
    /// The label that the query selects was renamed.
    MetricsRenamed,
}

impl Outage {
    pub const METRICS: [Self; 7] = [
        Self::MetricsRefused,
        Self::MetricsSlow,
        Self::MetricsEmpty,
        Self::MetricsNan,
        Self::MetricsStale,
        Self::MetricsPartial,
        Self::MetricsRenamed,
    ];
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum What {
    Quirk {
        machine: String,
        quirk: Quirk,
    },
    Outage(Outage),
    /// A person presses the button.
    Button {
        machine: String,
        on: bool,
    },
    /// A rack loses its supply; its machines come back with it if they were on.
    RackDark {
        rack: String,
    },
    /// A rack's switch fails: neither BMCs nor kubelets are heard.
    RackCut {
        rack: String,
    },
    /// The BMC cables of two machines are swapped.
    Swap {
        one: String,
        other: String,
    },
    Replicas {
        workload: String,
        replicas: u32,
    },
    /// A metric has this value from now on, in thousandths.
    Signal {
        query: String,
        millis: i64,
    },
    /// The leading process is killed; another one starts when this ends.
    KillLeader,
    /// The leading process stands still, as after SIGSTOP.
    PauseLeader,
    /// The leading process does not reach the store.
    CutLeader,
    /// Nobody reaches the store.
    StoreDown,
    /// The leader's wall clock jumps, and jumps back when this ends.
    ClockJump {
        millis: i64,
    },
    /// The leader's clocks run this many times too fast.
    ClockRate {
        rate: u64,
    },
    /// A person cordons a node by hand.
    Cordon {
        machine: String,
    },
    /// Somebody binds a pod to a node past the scheduler, whatever the node says.
    BindTo {
        machine: String,
    },
    /// The bounds of a pool are edited, and edited back when this ends.
    Bounds {
        pool: String,
        min: u32,
        max: u32,
    },
    Freeze,
    Maintenance {
        host: String,
    },
    /// A person gives a host's BMC a new account.
    Rotate {
        host: String,
    },
    /// A person who stands before a host says that it was seen to.
    Acknowledge {
        host: String,
    },
    /// A person asks for a host's power by its record.
    Ask {
        host: String,
        on: bool,
    },
}

/// One disturbance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    pub at: Duration,
    pub lasts: Duration,
    pub what: What,
}

/// Something that only whoever runs the processes can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub begins: bool,
    pub what: What,
}

impl State {
    pub(super) fn disturb(&mut self, disturbance: Disturbance) {
        let place = self.disturbances.len();
        let (at, lasts) = (disturbance.at.millis(), disturbance.lasts.millis());
        let old = disturbance.what == What::Outage(Outage::OldView);
        self.disturbances.push(disturbance);
        let after = at.saturating_sub(self.now);
        if old {
            self.plan(after.saturating_sub(BEFORE), Event::Keep);
            self.plan(after.saturating_sub(NOTED), Event::Noted);
        }
        self.plan(after, Event::Begin { place });
        if lasts > 0 {
            self.plan(after + lasts, Event::End { place });
        }
    }

    pub(super) fn begin(&mut self, place: usize) {
        let (what, lasts) =
            (self.disturbances[place].what.clone(), self.disturbances[place].lasts > Duration::ZERO);
        self.say(&format!("trouble: {}", name(&what)));
        self.note_trouble(&what, lasts, true);
        match &what {
            What::Quirk { machine, quirk } => self.set_quirk(machine, *quirk, true),
            What::Outage(outage) => self.set_outage(*outage, true),
            What::Button { machine, on } => self.press(machine, *on),
            What::RackDark { rack } => {
                for machine in self.in_rack(rack) {
                    self.press(&machine, false);
                    self.set_quirk(&machine, Quirk::Unreachable, true);
                }
            }
            What::RackCut { rack } => {
                for machine in self.in_rack(rack) {
                    self.set_quirk(&machine, Quirk::BlackHole, true);
                    self.set_quirk(&machine, Quirk::KubeletHangs, true);
                }
            }
            What::Swap { one, other } => self.swap(one, other),
            What::Replicas { workload, replicas } => self.set_replicas(workload, *replicas),
            What::Signal { query, millis } => {
                self.signals.insert(query.clone(), (*millis, self.now));
            }
            What::Cordon { machine } => {
                if let Some(node) = self.nodes.get_mut(machine).filter(|node| !node.unschedulable) {
                    node.unschedulable = true;
                    self.touch();
                }
            }
            What::BindTo { machine } => self.bind_past_the_scheduler(machine),
            _ => {
                if what == What::StoreDown {
                    self.store_down_since.get_or_insert(self.now);
                }
                if let What::Ask { host, .. } = &what {
                    self.judge.hands.ask(host, true);
                }
                if lasts {
                    self.wished += 1;
                }
                self.wishes.push(Wish { begins: true, what });
            }
        }
    }

    pub(super) fn end(&mut self, place: usize) {
        let what = self.disturbances[place].what.clone();
        self.say(&format!("over: {}", name(&what)));
        self.note_trouble(&what, true, false);
        match &what {
            What::Quirk { machine, quirk } => self.set_quirk(machine, *quirk, false),
            What::Outage(outage) => self.set_outage(*outage, false),
            What::RackDark { rack } => {
                for machine in self.in_rack(rack) {
                    self.set_quirk(&machine, Quirk::Unreachable, false);
                }
            }
            What::RackCut { rack } => {
                for machine in self.in_rack(rack) {
                    self.set_quirk(&machine, Quirk::BlackHole, false);
                    self.set_quirk(&machine, Quirk::KubeletHangs, false);
                }
            }
            What::Swap { one, other } => self.swap(one, other),
            What::Cordon { machine } => {
                if let Some(node) = self.nodes.get_mut(machine).filter(|node| node.mark.is_none()) {
                    node.unschedulable = false;
                    self.touch();
                }
            }
            What::Button { .. } | What::Replicas { .. } | What::Signal { .. } | What::BindTo { .. } => {}
            _ => {
                if what == What::StoreDown {
                    self.store_down_since = None;
                }
                if let What::Ask { host, .. } = &what {
                    self.judge.hands.ask(host, false);
                }
                self.wished = self.wished.saturating_sub(1);
                self.wishes.push(Wish { begins: false, what });
            }
        }
    }

    pub(super) fn in_rack(&self, rack: &str) -> Vec<String> {
        let here = |machine: &&super::Machine| machine.build.rack.as_deref() == Some(rack);
        self.machines.values().filter(here).map(|machine| machine.build.name.clone()).collect()
    }

    pub(super) fn press(&mut self, machine: &str, on: bool) {
        let was_on = self.machines.get(machine).is_some_and(|one| one.on);
        self.judge.hands.touch(machine);
        if on && !was_on {
            self.judge.hands.light(machine);
        }
        if !on && was_on {
            self.judge.hands.darkened.insert(machine.to_owned(), self.now);
        }
        self.switch(machine, on);
    }

    fn swap(&mut self, one: &str, other: &str) {
        let address = |name: &str| self.machines.get(name).map(|machine| machine.build.address.clone());
        if let (Some(here), Some(there)) = (address(one), address(other)) {
            let (first, second) = (self.wiring.get(&here).cloned(), self.wiring.get(&there).cloned());
            if let (Some(first), Some(second)) = (first, second) {
                self.wiring.insert(here, second);
                self.wiring.insert(there, first);
            }
        }
    }

    pub(super) fn put_cables_right(&mut self) {
        let right = self.machines.values().map(|one| (one.build.address.clone(), one.build.name.clone()));
        self.wiring = right.collect();
    }

    pub(super) fn set_replicas(&mut self, workload: &str, replicas: u32) {
        if let Some(one) = self.workloads.get_mut(workload) {
            one.replicas = replicas;
            self.reconcile(workload);
        }
    }

    pub(super) fn set_quirk(&mut self, name: &str, quirk: Quirk, begins: bool) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        if begins {
            machine.add_quirk(quirk);
            if quirk == Quirk::KubeletHangs {
                self.stop_kubelet(name);
            }
            return;
        }
        machine.remove_quirk(quirk);
        if machine.has(quirk) {
            return;
        }
        match quirk {
            Quirk::KubeletHangs | Quirk::NeverJoins | Quirk::BootHangs => self.revive(name),
            Quirk::JoinsUnready => self.node_ready(name),
            _ => {}
        }
    }

    fn set_outage(&mut self, outage: Outage, begins: bool) {
        if begins {
            *self.outages.entry(outage).or_default() += 1;
            self.outage_since.entry(outage).or_insert(self.now);
        } else if let Some(count) = self.outages.get_mut(&outage) {
            *count -= 1;
            if *count == 0 {
                self.outages.remove(&outage);
                self.outage_since.remove(&outage);
            }
        }
        if outage == Outage::OldView {
            self.show_old();
        }
        let silent = self.has(Outage::ApiDown) || self.has(Outage::ApiStalled);
        if silent && self.frozen.is_none() {
            // With true times: whoever looks at it notes them by its own clock.
            let start = self.start;
            let view = self.fresh_view(|at| start.saturating_add(at));
            self.frozen = Some((self.now, view));
        }
        if !silent && self.frozen.take().is_some() {
            self.touch();
        }
        if matches!(outage, Outage::NoPods | Outage::HalfThePods | Outage::BudgetsClosed) {
            self.touch();
        }
    }

    fn bind_past_the_scheduler(&mut self, machine: &str) {
        let Some(name) = self
            .workloads
            .values()
            .find(|one| one.kind == super::Kind::Deployment)
            .map(|one| one.name.clone())
        else {
            return;
        };
        if self.nodes.contains_key(machine)
            && let Some(one) = self.workloads.get_mut(&name)
        {
            one.replicas += 1;
            self.reconcile(&name);
            let youngest = self
                .pods
                .iter()
                .filter(|(_, pod)| pod.workload == name && pod.node.is_none())
                .max_by_key(|(uid, pod)| (pod.created, (*uid).clone()))
                .map(|(uid, _)| uid.clone());
            if let Some(uid) = youngest {
                self.bind(&uid, machine);
            }
        }
    }
}

/// How a disturbance is written in a trace.
fn name(what: &What) -> String {
    serde_json::to_string(what).unwrap_or_default().replace('"', "")
}
