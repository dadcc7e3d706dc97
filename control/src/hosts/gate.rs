//! What limits power-ons across hosts: operations at once, starts per second, watts per rack.
//!
//! Only power-ons are held back here, power cycles among them. A host that is to go off is never kept waiting, but counts while it goes
//! on: how many go at one time is bounded where they are chosen, by the planner. What a person asks for, failures and force have no limit.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use muster_model::{Duration, host::BareMetalNodeSpec, rack::Rack};

use super::book::Book;

/// Why a host has to wait before it may be switched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    Operations {
        now: u32,
        limit: u32,
    },
    RackOperations {
        rack: String,
        now: u32,
        limit: u32,
    },
    Rising {
        rack: String,
        now: u32,
        limit: u32,
    },
    StartsPerSecond {
        limit: u32,
    },
    Watts {
        rack: String,
        drawn: u64,
        more: u32,
        cap: u32,
    },
    WattsUnknown {
        rack: String,
        cap: u32,
    },
    /// Others draw there, and nobody knows how much.
    RackUnmetered {
        rack: String,
        hosts: u32,
        cap: u32,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Operations { now, limit } => {
                write!(f, "waits: {now} of {limit} power operations under way")
            }
            Self::RackOperations { rack, now, limit } => {
                write!(f, "waits: {now} of {limit} power operations under way in rack {rack}")
            }
            Self::Rising { rack, now, limit } => {
                write!(f, "waits: {now} of {limit} machines on their way up in rack {rack}")
            }
            Self::StartsPerSecond { limit } => write!(f, "waits: {limit} power-ons per second are allowed"),
            Self::Watts { rack, drawn, more, cap } => write!(
                f,
                "waits: rack {rack} may draw {cap} W, {drawn} W are taken and it may take {more} W more"
            ),
            Self::WattsUnknown { rack, cap } => write!(
                f,
                "waits: rack {rack} may draw {cap} W, and its maxWatts is not known; set it in its spec"
            ),
            Self::RackUnmetered { rack, hosts, cap } => write!(
                f,
                "waits: rack {rack} may draw {cap} W, and {hosts} of the hosts that draw there have no maxWatts; set it \
                 in their spec"
            ),
        }
    }
}

/// Grants that the book does not show yet, and how many there were in the last second.
#[derive(Debug, Default)]
pub(super) struct Gate {
    granted: BTreeSet<Arc<str>>,
    /// When hosts were claimed: what exceeds the rate need not wait in the middle of a turn.
    admitted: Rate,
    /// When power-ons left: between a claim and its call lie readings that take as long as a BMC likes.
    launched: Rate,
}

/// A second: what `maxStartsPerSecond` counts in.
const WINDOW: Duration = Duration::from_secs(1);

/// What happened in the last second, on the monotonic clock.
#[derive(Debug, Default)]
struct Rate {
    times: VecDeque<Duration>,
    not_before: Duration,
}

impl Rate {
    /// Lets one more happen, or says how long until it may.
    fn take(&mut self, now: Duration, limit: u32) -> Result<(), Duration> {
        while self.times.front().is_some_and(|at| now.saturating_sub(*at) >= WINDOW) {
            self.times.pop_front();
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let free = if self.times.len() < limit {
            self.not_before
        } else {
            // A limit that was lowered leaves more in the window than it allows.
            self.times[self.times.len() - limit.max(1)].saturating_add(WINDOW)
        };
        if now < free && !muster_model::planted::is("F20") {
            return Err(free.saturating_sub(now));
        }
        self.times.push_back(now);
        Ok(())
    }
}

impl Gate {
    /// Lets a host start, or says what it waits for. A grant counts until [`Gate::settle`].
    pub(super) fn admit(
        &mut self,
        host: &Arc<str>,
        spec: &BareMetalNodeSpec,
        rack: Option<&Rack>,
        book: &Book,
        now: Duration,
    ) -> Result<(), Refusal> {
        let global = &book.global;
        let in_rack = |other: &Arc<str>| {
            let record = book.hosts.get(other).and_then(|record| record.spec.as_ref());
            spec.rack.is_some() && record.is_some_and(|other| other.rack == spec.rack)
        };
        let granted = u32::try_from(self.granted.len()).unwrap_or(u32::MAX);
        let beside = u32::try_from(self.granted.iter().filter(|other| in_rack(other)).count()).unwrap_or(0);
        let switching = book.switching().saturating_add(granted);
        if switching >= global.max_power_operations {
            return Err(Refusal::Operations { now: switching, limit: global.max_power_operations });
        }
        if let Some(name) = &spec.rack {
            let load = book.rack_load(name);
            let (now, limit) = (load.switching.saturating_add(beside), global.max_power_operations_per_rack);
            if now >= limit {
                return Err(Refusal::RackOperations { rack: name.clone(), now, limit });
            }
            if let Some(rack) = rack {
                let rising = load.rising.saturating_add(beside);
                if rising >= rack.start_limit {
                    let limit = rack.start_limit;
                    return Err(Refusal::Rising { rack: name.clone(), now: rising, limit });
                }
                self.watts(host, spec, rack, book)?;
            }
        }
        let limit = global.max_starts_per_second;
        self.admitted.take(now, limit).map_err(|_| Refusal::StartsPerSecond { limit })?;
        self.granted.insert(Arc::clone(host));
        Ok(())
    }

    /// Asked right in front of a call that starts a machine: lets it go, or says how long to wait before asking again.
    pub(super) fn launch(&mut self, now: Duration, limit: u32) -> Result<(), Duration> {
        self.launched.take(now, limit)
    }

    fn watts(&self, host: &str, spec: &BareMetalNodeSpec, rack: &Rack, book: &Book) -> Result<(), Refusal> {
        let Some(cap) = rack.watt_cap else { return Ok(()) };
        let name = rack.name.as_str();
        let Some(more) = spec.max_watts else {
            return Err(Refusal::WattsUnknown { rack: name.to_owned(), cap });
        };
        let hosts = book.rack_load(name).unmetered;
        if hosts > 0 {
            return Err(Refusal::RackUnmetered { rack: name.to_owned(), hosts, cap });
        }
        // Whoever is not known to be off is counted already, before its grant as after it.
        let waiting: u64 = self
            .granted
            .iter()
            .filter_map(|other| Some((other, book.hosts.get(other)?.spec.as_ref()?)))
            .filter(|(_, other)| other.rack == spec.rack)
            .map(|(name, other)| u64::from(other.max_watts.unwrap_or(0)).saturating_sub(book.taken_by(name)))
            .sum();
        let drawn = book.rack_load(name).watts.saturating_sub(book.taken_by(host)).saturating_add(waiting);
        if drawn.saturating_add(u64::from(more)) > u64::from(cap) {
            return Err(Refusal::Watts { rack: name.to_owned(), drawn, more, cap });
        }
        Ok(())
    }

    /// The host's state is stored, or will not be: the book speaks for it again.
    pub(super) fn settle(&mut self, name: &str) {
        self.granted.remove(name);
    }

    /// Begins anew a second later: nobody knows which calls of the leader before left in the last one.
    pub(super) fn take_over(&mut self, now: Duration) {
        let anew = || Rate { not_before: now.saturating_add(WINDOW), ..Rate::default() };
        *self = Self { granted: BTreeSet::new(), admitted: anew(), launched: anew() };
    }
}

#[cfg(test)]
mod tests {
    use muster_model::{
        Timestamp,
        host::{
            BareMetalNodeStatus, Phase, PowerInterface,
            keys::{self, HostRecord},
        },
        store::{Change, Entry, Revision},
    };

    use super::*;

    fn put(book: &mut Book, revision: u64, key: String, value: Vec<u8>) {
        let revision = Revision(revision);
        let entry = Entry { key: key.clone(), value: value.into(), created: revision, modified: revision };
        let _ = book.apply(&Change { revision, key, entry: Some(entry) });
    }

    fn spec(watts: Option<u32>) -> BareMetalNodeSpec {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.mgmt_address = Some("10.0.0.5".parse().unwrap());
        spec.bmc_credentials = Some("a".into());
        spec.rack = Some("r1".into());
        spec.max_watts = watts;
        spec
    }

    /// Hosts in rack r1 in these phases.
    fn book(phases: &[Phase]) -> Book {
        let mut book = Book::default();
        book.global.max_starts_per_second = 100;
        for (number, phase) in phases.iter().enumerate() {
            let (name, revision) = (format!("h{number}"), 10 + 2 * number as u64);
            let mut status = BareMetalNodeStatus::enrolling(Timestamp::EPOCH);
            (status.phase, status.state) = (*phase, phase.state());
            status.off_proved_at = (*phase == Phase::Idle).then_some(Timestamp::EPOCH);
            put(
                &mut book,
                revision,
                keys::host(&name, HostRecord::Spec),
                serde_json::to_vec(&spec(Some(300))).unwrap(),
            );
            put(
                &mut book,
                revision + 1,
                keys::host(&name, HostRecord::Status),
                serde_json::to_vec(&status).unwrap(),
            );
        }
        book
    }

    #[track_caller]
    fn check(phases: &[Phase], watts: Option<u32>, cap: Option<u32>, expected: &str) {
        let rack = Rack { watt_cap: cap, ..Rack::new("r1") };
        let answer =
            Gate::default().admit(&"new".into(), &spec(watts), Some(&rack), &book(phases), Duration::ZERO);
        assert_eq!(answer.map_or_else(|refusal| refusal.to_string(), |()| "starts".into()), expected);
    }

    #[test]
    fn ops_r15_a_rack_lets_so_many_start_and_draws_so_much() {
        use Phase::{Booting, Idle, PowerRequested, Reserved, Serving, Stopping};
        check(&[], Some(300), None, "starts");
        check(&[Idle; 9], Some(300), Some(300), "starts");
        check(
            &[Reserved, PowerRequested, Stopping, Stopping],
            Some(300),
            None,
            "waits: 4 of 4 power operations under way in rack r1",
        );
        check(&[Booting; 4], Some(300), None, "waits: 4 of 4 machines on their way up in rack r1");
        check(&[Serving; 3], Some(300), Some(1200), "starts");
        check(
            &[Serving; 3],
            Some(301),
            Some(1200),
            "waits: rack r1 may draw 1200 W, 900 W are taken and it may take 301 W more",
        );
        // Set aside, and nobody knows that they are off.
        check(
            &[Serving, Phase::Backoff, Phase::Quarantined],
            Some(301),
            Some(1200),
            "waits: rack r1 may draw 1200 W, 900 W are taken and it may take 301 W more",
        );
        check(
            &[],
            None,
            Some(1200),
            "waits: rack r1 may draw 1200 W, and its maxWatts is not known; set it in its spec",
        );
    }

    /// What runs there and does not say how much it draws may draw all that is left.
    #[test]
    fn ops_r15_nobody_starts_beside_a_host_of_unknown_watts() {
        let mut book = book(&[Phase::Serving, Phase::Idle]);
        let mut admit = |name: &str| {
            put(&mut book, 99, keys::host(name, HostRecord::Spec), serde_json::to_vec(&spec(None)).unwrap());
            let rack = Rack { watt_cap: Some(9_000), ..Rack::new("r1") };
            let answer =
                Gate::default().admit(&"new".into(), &spec(Some(300)), Some(&rack), &book, Duration::ZERO);
            answer.map_err(|refusal| refusal.to_string())
        };
        assert_eq!(admit("h1"), Ok(())); // it is off
        let text = "waits: rack r1 may draw 9000 W, and 1 of the hosts that draw there have no maxWatts; set it in their spec";
        assert_eq!(admit("h0"), Err(text.into()));
    }

    #[test]
    fn grants_count_before_they_are_stored() {
        let (book, mut gate) = (book(&[]), Gate::default());
        let rack = Rack { watt_cap: Some(700), ..Rack::new("r1") };
        let mut admit = |name: &str, now: u64| {
            gate.admit(&name.into(), &spec(Some(300)), Some(&rack), &book, Duration::from_millis(now))
        };
        // The granted hosts have to be in the book for their watts to be known.
        assert_eq!(admit("h0", 0), Ok(()));
        assert_eq!(admit("h1", 0), Ok(()));
        gate.settle("h0");
        assert_eq!(gate.granted.len(), 1);
    }

    /// Whoever is not known to be off has its watts already, and takes no more when it is woken again.
    #[test]
    fn ops_r15_a_host_does_not_stand_in_its_own_way() {
        let mut book = book(&[Phase::Serving, Phase::Idle]);
        let key = keys::host("h1", HostRecord::Status);
        let mut status = BareMetalNodeStatus::enrolling(Timestamp::EPOCH);
        (status.phase, status.state) = (Phase::Idle, Phase::Idle.state());
        put(&mut book, 99, key, serde_json::to_vec(&status).unwrap());
        let rack = Rack { watt_cap: Some(600), ..Rack::new("r1") };
        let mut gate = Gate::default();
        let mut admit = |name: &str| {
            let answer = gate.admit(&name.into(), &spec(Some(300)), Some(&rack), &book, Duration::ZERO);
            answer.map_err(|refusal| refusal.to_string())
        };
        let full = "waits: rack r1 may draw 600 W, 600 W are taken and it may take 300 W more";
        assert_eq!(admit("new"), Err(full.into()));
        assert_eq!(admit("h1"), Ok(()));
        assert_eq!(admit("new"), Err(full.into()));
    }

    #[test]
    fn starts_per_second_are_counted_over_a_second() {
        let mut book = book(&[]);
        book.global.max_starts_per_second = 2;
        let mut gate = Gate::default();
        let mut plain = spec(None);
        plain.rack = None;
        let mut admit = |name: &str, now: u64| {
            gate.admit(&name.into(), &plain, None, &book, Duration::from_millis(now)).is_ok()
        };
        let answers: Vec<bool> = [0, 100, 200, 999, 1000, 1001, 1100]
            .iter()
            .enumerate()
            .map(|(n, now)| admit(&n.to_string(), *now))
            .collect();
        assert_eq!(answers, [true, true, false, false, true, false, true]);
    }

    /// Hosts that were claimed seconds apart may come to their calls together; the calls leave apart all the same.
    #[test]
    fn ops_r15_calls_leave_at_the_rate_whenever_they_were_granted() {
        #[track_caller]
        fn check(gate: &mut Gate, now: u64, limit: u32, wait: Option<u64>) {
            let answer = gate.launch(Duration::from_millis(now), limit);
            assert_eq!(answer.err().map(Duration::millis), wait, "at {now}");
        }
        let mut gate = Gate::default();
        check(&mut gate, 5_000, 2, None);
        check(&mut gate, 5_400, 2, None);
        check(&mut gate, 5_400, 2, Some(600));
        check(&mut gate, 5_999, 2, Some(1));
        check(&mut gate, 6_000, 2, None);
        check(&mut gate, 6_000, 2, Some(400));
        // The limit was lowered: both of the last second have to be over.
        check(&mut gate, 6_100, 1, Some(900));
        check(&mut gate, 7_000, 1, None);
        // Whoever takes over lets a second go by.
        gate.take_over(Duration::from_millis(9_000));
        check(&mut gate, 9_400, 2, Some(600));
        check(&mut gate, 10_000, 2, None);
    }
}
