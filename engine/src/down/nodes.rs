//! What keeps a node, whatever runs on it: holds, gaps, bounds, times and marks.

use std::collections::BTreeMap;

use muster_model::Timestamp;

use super::{
    ground::{Ground, Seat},
    pods::DO_NOT_DISRUPT,
    pools::Pools,
    report::Blocker,
    usage::Usage,
};
use crate::{
    snapshot::{Gap, Health, Hold, Host, MemberState, Scope, Snapshot, Stops},
    trouble::is_ready,
};

const NO_SCALE_DOWN: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// What is looked up for every node.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    snapshot: &'a Snapshot,
    holds: Vec<&'a Hold>,
    hosts: BTreeMap<&'a str, &'a Host>,
    no_pods: Option<Blocker>,
}

/// Reasons against a node before its pods are looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Against {
    /// Reasons that always hold.
    pub(crate) hard: Vec<Blocker>,
    /// Reasons that do not hold for a node that must go.
    pub(crate) soft: Vec<Blocker>,
    /// The hardware is failing: it is the first to stand down.
    pub(crate) critical: bool,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(ground: &Ground<'a>) -> Self {
        let snapshot = ground.snapshot;
        let stops =
            |hold: &&Hold| hold.is_active(snapshot.now) && matches!(hold.stops, Stops::Removal | Stops::Both);
        let bound = || snapshot.cluster.pods.iter().any(|pod| pod.spec.node_name.is_some());
        let implausible = ground.real > 1 && !bound() && !muster_model::planted::is("F2");
        Self {
            snapshot,
            holds: snapshot.holds.iter().filter(stops).collect(),
            hosts: snapshot.hosts.iter().map(|host| (&*host.name, host)).collect(),
            no_pods: implausible.then_some(Blocker::NoPodsSeen { nodes: ground.real as u32 }),
        }
    }

    pub(crate) fn host(&self, seat: &Seat<'a>) -> Option<&'a Host> {
        self.hosts.get(seat.member?.host.as_deref()?).copied()
    }

    pub(crate) fn against(
        &self,
        ground: &Ground<'a>,
        pools: &Pools<'a>,
        node: u32,
        usage: &Usage,
    ) -> Against {
        let seat = &ground.seats[node as usize];
        let mut found = Against::default();
        let member = seat.member;
        let host = self.host(seat);
        let pool = pools.of[node as usize];
        let scopes = Scopes {
            node: seat.node.name(),
            pool: member.map_or("", |member| &member.pool),
            host: member.and_then(|member| member.host.as_deref()),
        };
        found.hard.extend(self.holds.iter().filter_map(|hold| scopes.held(hold)));
        found.hard.extend(self.snapshot.gaps.iter().filter_map(|gap| scopes.unobserved(gap)));
        found.hard.extend(self.no_pods.clone());
        found.hard.extend(annotated(seat));
        found.hard.extend(state(seat));
        found.hard.extend(pools.breaker(pool, host.and_then(|host| host.rack.as_deref())));
        if seat.arriving > 0 {
            found.hard.push(Blocker::Needed { pods: seat.arriving });
        }
        let Some(member) = member else {
            found.hard.push(Blocker::NotOurs);
            return found;
        };
        let Some(pool) = pool else {
            found.hard.push(Blocker::UnknownPool { pool: member.pool.to_string() });
            return found;
        };
        let tally = &pools.tallies[pool as usize];
        found.hard.extend(tally.frozen());
        found.hard.extend(tally.at_minimum());
        found.hard.extend(tally.growing());
        found.hard.extend(pools.last_there(node).filter(|_| !is_critical(host)));
        let demand = &tally.pool.demand;
        let created = seat.node.metadata.creation_timestamp;
        found.soft.extend(tally.trigger());
        found.soft.extend(tally.cooldown(created, self.snapshot.now));
        found.soft.extend(young(created, demand.scale_down_delay, self.snapshot.now));
        found.soft.extend(busy(usage, demand.scale_down_percent));
        found.soft.extend(unneeded(member.unneeded_since, demand.scale_down_delay, self.snapshot.now));
        found.soft.extend(host.and_then(|host| on_time(host, self.snapshot.now)));
        found.critical = is_critical(host);
        found
    }
}

fn is_critical(host: Option<&Host>) -> bool {
    host.is_some_and(|host| matches!(host.health, Health::Critical(_)))
}

fn on_time(host: &Host, now: Timestamp) -> Option<Blocker> {
    let (since, required) = (host.on_since?, host.min_on_time);
    let until = since.saturating_add(required);
    (now < until).then(|| Blocker::OnTime { host: host.name.to_string(), since, required, until })
}

/// Everything a hold or a gap can be about, for one node.
struct Scopes<'s> {
    node: &'s str,
    pool: &'s str,
    host: Option<&'s str>,
}

impl Scopes<'_> {
    fn name(&self, scope: &Scope) -> Option<String> {
        match scope {
            Scope::Everything => Some("everything".to_owned()),
            Scope::Pool(name) => (**name == *self.pool).then(|| format!("pool {name}")),
            Scope::Node(name) => (**name == *self.node).then(|| format!("node {name}")),
            Scope::Host(name) => (Some(&**name) == self.host).then(|| format!("host {name}")),
        }
    }

    fn held(&self, hold: &Hold) -> Option<Blocker> {
        let what = self.name(&hold.scope)?;
        Some(Blocker::Held { what, why: hold.why.to_string(), until: hold.until })
    }

    fn unobserved(&self, gap: &Gap) -> Option<Blocker> {
        let what = match gap.scope {
            Scope::Everything => "the cluster".to_owned(),
            _ => self.name(&gap.scope)?,
        };
        Some(Blocker::Unobserved { what, why: gap.why.to_string() })
    }
}

fn annotated(seat: &Seat<'_>) -> impl Iterator<Item = Blocker> {
    let annotations = &seat.node.metadata.annotations;
    let set = |annotation: &&'static str| annotations.text(annotation) == Some("true");
    [NO_SCALE_DOWN, DO_NOT_DISRUPT]
        .into_iter()
        .filter(set)
        .map(|annotation| Blocker::Annotated { annotation })
}

fn state(seat: &Seat<'_>) -> impl Iterator<Item = Blocker> {
    let state = seat.member.map(|member| member.state);
    let going = match state {
        Some(MemberState::Leaving) => Some(Blocker::Leaving),
        Some(MemberState::Upcoming { expected }) => Some(Blocker::Upcoming { expected }),
        _ => None,
    };
    let unready = state == Some(MemberState::Unready) || !is_ready(seat.node);
    going.into_iter().chain(unready.then_some(Blocker::NotReady))
}

fn young(created: Option<Timestamp>, required: muster_model::Duration, now: Timestamp) -> Option<Blocker> {
    let since = created?;
    let until = since.saturating_add(required);
    (now < until).then_some(Blocker::Young { since, required, until })
}

fn busy(usage: &Usage, mark: Option<u32>) -> Option<Blocker> {
    let (mark, top) = (mark?, usage.top()?);
    top.reaches(mark).then(|| Blocker::Busy {
        resource: (&*top.resource).into(),
        used: top.used,
        allocatable: top.allocatable,
        percent: top.percent(),
        mark,
    })
}

fn unneeded(since: Option<Timestamp>, required: muster_model::Duration, now: Timestamp) -> Option<Blocker> {
    let until = since.unwrap_or(now).saturating_add(required);
    (now < until).then_some(Blocker::NotUnneededLongEnough { since, required, until })
}

#[cfg(test)]
mod tests {
    use muster_model::Duration;

    use super::*;

    #[test]
    fn delays_are_arithmetic_over_times_in_the_snapshot() {
        let at = Timestamp::from_millis;
        let delay = Duration::from_millis(100);
        assert_eq!(unneeded(Some(at(0)), delay, at(100)), None);
        let until = at(100);
        let waits = Blocker::NotUnneededLongEnough { since: Some(at(0)), required: delay, until };
        assert_eq!(unneeded(Some(at(0)), delay, at(99)), Some(waits));
        let begins = Blocker::NotUnneededLongEnough { since: None, required: delay, until: at(199) };
        assert_eq!(unneeded(None, delay, at(99)), Some(begins));
        assert_eq!(unneeded(None, Duration::ZERO, at(99)), None); // no delay, nothing to wait for
        assert_eq!(young(None, delay, at(0)), None);
        assert!(young(Some(at(1)), delay, at(100)).is_some());
        assert!(young(Some(at(0)), delay, at(100)).is_none());
    }
}
