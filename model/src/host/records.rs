//! `/baremetal/nodes/{host}/metrics` and `/events`: one overwritten record, and a ring with an end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Known, Timestamp};

use super::Phase;

/// Events that a host keeps. A host that changes phase every minute still shows the last hour and a half,
/// in about 30 KB.
pub const MAX_EVENTS: usize = 100;

/// The last readings of sensors and of use. One record, overwritten at most once in 60 s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostMetrics {
    pub at: Timestamp,
    pub milliwatts: Known<i64>,
    /// The hottest sensor, in thousandths of a degree Celsius.
    pub millicelsius: Known<i64>,
    /// Requested share of the allocatable CPU, in thousandths.
    pub cpu_permille: Known<i64>,
    pub memory_permille: Known<i64>,
    /// Exactly what its pods request, by the names that Kubernetes knows: `cpu` in thousandths, `memory` and
    /// `ephemeral-storage` in bytes, devices in numbers. As old as `cpuPermille`; beside `cpu` and `memory`, what nobody
    /// requests is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: BTreeMap<String, i64>,
    /// What the BMC says about the machine's health: `OK`, `Warning`, `Critical`.
    pub health: Known<String>,
    /// Where `milliwatts` comes from; absent when nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts_by: Option<WattsBy>,
    /// Time spent on and off since registration, in milliseconds.
    #[serde(default)]
    pub on_millis: u64,
    #[serde(default)]
    pub off_millis: u64,
    /// Energy used and saved since registration, in milliwatt-hours.
    #[serde(default)]
    pub used_milliwatt_hours: u64,
    #[serde(default)]
    pub saved_milliwatt_hours: u64,
    /// What is left of both below one milliwatt-hour, in milliwatt-milliseconds, so that small steps add up.
    #[serde(default)]
    pub used_rest: u32,
    #[serde(default)]
    pub saved_rest: u32,
}

/// How the power that a host draws is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WattsBy {
    /// Measured by the BMC.
    Bmc,
    /// `idleWatts` of the spec.
    Declared,
}

/// Something that happened to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostEvent {
    /// Counts from 1 and never starts again, so that a reader sees what it missed.
    pub number: u64,
    pub at: Timestamp,
    /// When the same was last said again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    #[serde(default = "once")]
    pub count: u32,
    pub from: Phase,
    pub to: Phase,
    /// The row of the transition table, or the rule that applied.
    pub rule: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Until when the phase that begins here may take, as it was said at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

const fn once() -> u32 {
    1
}

/// The last [`MAX_EVENTS`] events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRing {
    /// How many there ever were.
    pub total: u64,
    pub events: Vec<HostEvent>,
}

impl EventRing {
    /// Adds an event. One that says the same as the last is counted, not listed again.
    pub fn push(&mut self, mut event: HostEvent) {
        if let Some(last) = self.events.last_mut()
            && (last.from, last.to) == (event.from, event.to)
            && (&last.rule, &last.message) == (&event.rule, &event.message)
        {
            last.count = last.count.saturating_add(1);
            last.last_at = Some(event.at);
            return;
        }
        self.total += 1;
        event.number = self.total;
        self.events.push(event);
        if self.events.len() > MAX_EVENTS && !crate::planted::is("F24") {
            self.events.drain(..self.events.len() - MAX_EVENTS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: i64, message: &str) -> HostEvent {
        HostEvent {
            number: 0,
            at: Timestamp::from_millis(at),
            last_at: None,
            count: 1,
            from: Phase::Idle,
            to: Phase::Reserved,
            rule: "row 4".into(),
            message: message.into(),
            operation: None,
            deadline: None,
        }
    }

    #[test]
    fn the_ring_keeps_the_last_and_counts_all() {
        let mut ring = EventRing::default();
        for n in 0..250 {
            ring.push(event(n, &n.to_string()));
        }
        assert_eq!((ring.total, ring.events.len()), (250, MAX_EVENTS));
        assert_eq!((ring.events[0].number, ring.events[99].number), (151, 250));
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut ring = EventRing::default();
        for n in 0..5 {
            ring.push(event(n, "same"));
        }
        assert_eq!((ring.total, ring.events[0].count), (1, 5));
        assert_eq!(ring.events[0].last_at, Some(Timestamp::from_millis(4)));
    }
}
