//! How long phases take on like hosts: the median of those that were gone through, from the hosts' own histories.
//! What ended in a failure or was given up says how long we waited, not how long it takes, and does not count.

use std::collections::BTreeMap;

use muster_model::{
    Duration,
    host::{
        EventRing, Phase, State,
        keys::{self, HostRecord},
    },
};
use serde::Serialize;

use super::{Inventory, InventoryError};

/// One phase on some hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PhaseDuration {
    pub phase: Phase,
    /// How often it was gone through.
    pub count: usize,
    pub median_millis: u64,
}

impl Inventory {
    /// How long the phases of waking and of standing down took on these hosts, as far as their histories reach.
    pub async fn durations(&self, names: &[&str]) -> Result<Vec<PhaseDuration>, InventoryError> {
        let mut seen = BTreeMap::new();
        for name in names {
            let key = keys::host(name, HostRecord::Events);
            let Some(entry) = self.shared.store.get(&key).await? else { continue };
            let ring: EventRing = serde_json::from_slice(&entry.value)
                .map_err(|source| InventoryError::Damaged { key, source })?;
            gather(&ring, &mut seen);
        }
        Ok(medians(seen))
    }
}

/// Adds the phases of one host that were gone through.
fn gather(ring: &EventRing, seen: &mut BTreeMap<Phase, Vec<Duration>>) {
    let moves: Vec<_> = ring.events.iter().filter(|event| event.from != event.to).collect();
    for pair in moves.windows(2) {
        let [begun, ended] = pair else { continue };
        // A gap in the story (its oldest events are dropped) is no phase.
        if begun.to == ended.from && went_on(begun.to, ended.to) {
            seen.entry(begun.to).or_default().push(ended.at.since(begun.at));
        }
    }
}

/// Whether a host that was in `phase` and is in `next` got where it was going.
fn went_on(phase: Phase, next: Phase) -> bool {
    match (phase.state(), next.state()) {
        (State::PoweringOn, State::PoweringOn | State::Ready) | (State::Draining, State::Off) => true,
        (State::Draining, State::Draining) => next != Phase::ForcingOff,
        (State::PoweringOn | State::Draining | State::Off | State::Ready | State::Error, _) => false,
    }
}

fn medians(seen: BTreeMap<Phase, Vec<Duration>>) -> Vec<PhaseDuration> {
    let median = |(phase, mut all): (Phase, Vec<Duration>)| {
        all.sort_unstable();
        let middle = all.get(all.len() / 2)?;
        Some(PhaseDuration { phase, count: all.len(), median_millis: middle.millis() })
    };
    seen.into_iter().filter_map(median).collect()
}

#[cfg(test)]
mod tests {
    use muster_model::{Timestamp, host::HostEvent};

    use super::*;

    fn story(steps: &[(i64, Phase, Phase)]) -> EventRing {
        let mut ring = EventRing::default();
        for (at, from, to) in steps {
            ring.push(HostEvent {
                number: 0,
                at: Timestamp::from_millis(*at),
                last_at: None,
                count: 1,
                from: *from,
                to: *to,
                rule: "row".into(),
                message: at.to_string(),
                operation: None,
                deadline: None,
            });
        }
        ring
    }

    #[track_caller]
    fn check(stories: &[&[(i64, Phase, Phase)]], wanted: &[(Phase, usize, u64)]) {
        let mut seen = BTreeMap::new();
        for steps in stories {
            gather(&story(steps), &mut seen);
        }
        let found: Vec<_> =
            medians(seen).into_iter().map(|one| (one.phase, one.count, one.median_millis)).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_median_is_of_what_was_gone_through() {
        use Phase::{Booting, Cordoned, Drained, Evicting, Idle, Joining, Powered, Serving, Stopping};
        // One host that joins after 100.
        check(
            &[&[(0, Powered, Booting), (100, Booting, Joining), (130, Joining, Serving)]],
            &[(Booting, 1, 100), (Joining, 1, 30)],
        );
        // A boot that ran out of its time says how long we waited.
        check(
            &[&[(0, Powered, Booting), (900, Booting, Stopping), (950, Stopping, Idle)]],
            &[(Stopping, 1, 50)],
        );
        // So does a drain that was given up.
        check(
            &[&[(0, Serving, Cordoned), (5, Cordoned, Evicting), (500, Evicting, Serving)]],
            &[(Cordoned, 1, 5)],
        );
        // The middle of three hosts; events that say more about a phase do not end it.
        let boot = |long: i64| vec![(0, Powered, Booting), (7, Booting, Booting), (long, Booting, Serving)];
        let (a, b, c) = (boot(90), boot(110), boot(400));
        check(&[&a, &b, &c], &[(Booting, 3, 110)]);
        // What lies between two events that do not meet is no phase.
        check(
            &[&[(0, Powered, Booting), (60, Drained, Stopping), (80, Stopping, Idle)]],
            &[(Stopping, 1, 20)],
        );
    }
}
