//! Whose hands machines are in: what people switch and ask for is not held against Muster until it has taken a host over again.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::host::Phase;

use super::state::State;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hands {
    /// Machines that somebody else switched and that nobody has taken over since.
    touched: BTreeSet<String>,
    /// Machines that a hand gave the power that they have.
    lit: BTreeSet<String>,
    /// Requests of people by a host's record that stand.
    asked: BTreeMap<String, u32>,
    /// When a machine's power was last taken by somebody else.
    pub darkened: BTreeMap<String, u64>,
}

impl Hands {
    /// Somebody else switches this machine.
    pub(super) fn touch(&mut self, machine: &str) {
        self.touched.insert(machine.to_owned());
    }

    /// A person's request begins or ends.
    pub(super) fn ask(&mut self, machine: &str, begins: bool) {
        self.touch(machine);
        let count = self.asked.entry(machine.to_owned()).or_default();
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
    }

    pub(super) fn is_asked(&self, machine: &str) -> bool {
        self.asked.get(machine).is_some_and(|count| *count > 0)
    }

    /// Whether it is in other hands than ours.
    pub(super) fn hold(&self, machine: &str) -> bool {
        self.touched.contains(machine)
    }

    pub(super) fn light(&mut self, machine: &str) {
        self.lit.insert(machine.to_owned());
    }

    /// It has no power: whoever gives it power next has lit it.
    pub(super) fn darken(&mut self, machine: &str) {
        self.lit.remove(machine);
    }

    /// Whether the power that it has is not of our doing.
    pub(super) fn is_lit(&self, machine: &str) -> bool {
        self.lit.contains(machine)
    }
}

impl State {
    /// What is said of a machine that others switched is true again: it is at rest and off, or its node serves. From here on
    /// whatever happens to it is of our doing.
    pub(super) fn take_over(&mut self, host: &str) {
        if !self.judge.hands.hold(host) || self.judge.hands.is_asked(host) {
            return;
        }
        let Some(machine) = self.machines.get(host) else { return };
        let ready = self.nodes.get(host).is_some_and(|node| node.ready == "True");
        let taken = match self.judge.phases.get(host) {
            Some(Phase::Idle) => !machine.on,
            Some(Phase::Serving) => machine.on && ready,
            _ => false,
        };
        if taken {
            self.judge.hands.touched.remove(host);
        }
    }

    pub(super) fn take_all_over(&mut self) {
        for host in self.judge.hands.touched.clone() {
            self.take_over(&host);
        }
    }

    /// How many machines are in other hands than ours, and how many there are.
    pub(super) fn in_other_hands(&self) -> (usize, usize) {
        (self.judge.hands.touched.len(), self.machines.len())
    }
}
