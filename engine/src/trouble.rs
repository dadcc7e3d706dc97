//! Times of trouble: when so much is not ready that nothing is taken away, and little is added at once.
//!
//! Then the view is not to be trusted, or there is trouble enough: what serves is left alone, and machines are called
//! up a few at a time, so that a fault that eats machines does not eat all of them.

use std::collections::BTreeMap;

use muster_model::{Duration, Timestamp, k8s::Node};

use crate::{
    plan::{NewNode, Plan, Source},
    snapshot::{Host, Member, MemberState, Snapshot},
};

/// How much may be unready: so many nodes, and this share of them. Trouble is more than both.
#[derive(Debug, Clone, Copy)]
struct Breaker {
    nodes: u32,
    percent: u32,
}

const IN_CLUSTER: Breaker = Breaker { nodes: 3, percent: 45 };
const IN_RACK: Breaker = Breaker { nodes: 1, percent: 45 };
/// A quarter of a pool is too much already: what is left of it has to do the work of the others.
const IN_POOL: Breaker = Breaker { nodes: 1, percent: 24 };

/// A node that was ready, was not, and is again counts as unready for this much longer: nodes that come and go keep
/// the breaker open, instead of letting it go open and shut.
const RECOVERY: Duration = Duration::from_mins(5);

/// One machine in so many nodes may be on its way up at one time where there is trouble, and always one.
const SHARE_ON_THE_WAY: u32 = 10;

/// Nodes that are not ready among those that should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unready {
    pub(crate) unready: u32,
    pub(crate) total: u32,
}

impl Unready {
    fn count(&mut self, unready: bool) {
        self.total += 1;
        self.unready += u32::from(unready);
    }

    fn is_too_much(self, breaker: Breaker) -> bool {
        !muster_model::planted::is("F16")
            && self.unready > breaker.nodes
            && u64::from(self.unready) * 100 > u64::from(self.total) * u64::from(breaker.percent)
    }
}

/// Whether so much of a pool is not ready that nothing of it may be removed or repaired.
pub fn is_pool_in_trouble(unready: u32, total: u32) -> bool {
    Unready { unready, total }.is_too_much(IN_POOL)
}

/// Where there may be trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place<'a> {
    Cluster,
    Pool(&'a str),
    Rack(&'a str),
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Pool(pool) => write!(f, "pool {pool}"),
            Self::Rack(rack) => write!(f, "rack {rack}"),
        }
    }
}

impl Place<'_> {
    /// Whether a machine of the pool, in the rack, is there.
    pub(crate) fn holds(self, pool: &str, rack: Option<&str>) -> bool {
        match self {
            Self::Cluster => true,
            Self::Pool(name) => name == pool,
            Self::Rack(name) => rack == Some(name),
        }
    }

    fn breaker(self) -> Breaker {
        match self {
            Self::Cluster => IN_CLUSTER,
            Self::Pool(_) => IN_POOL,
            Self::Rack(_) => IN_RACK,
        }
    }
}

/// How much is not ready, place by place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Troubles<'a> {
    seen: BTreeMap<Place<'a>, Unready>,
}

impl<'a> Troubles<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let hosts = Hosts::of(snapshot);
        let mut seen = BTreeMap::from([(Place::Cluster, Unready::default())]);
        for node in &snapshot.cluster.nodes {
            let member = snapshot.members.get(node.name());
            if member.is_some_and(is_on_the_way) {
                continue;
            }
            let host = member.and_then(|member| hosts.of_member(member));
            let unready = member.is_some_and(|member| member.state == MemberState::Unready)
                || !is_ready(node)
                || has_just_recovered(snapshot.now, node, host);
            let places = [
                Some(Place::Cluster),
                member.map(|member| Place::Pool(&member.pool)),
                host.and_then(|host| host.rack.as_deref()).map(Place::Rack),
            ];
            for place in places.into_iter().flatten() {
                seen.entry(place).or_default().count(unready);
            }
        }
        Self { seen }
    }

    /// The widest trouble that a node of the pool, in the rack, is in.
    pub(crate) fn around(
        &self,
        pool: Option<&'a str>,
        rack: Option<&'a str>,
    ) -> Option<(Place<'a>, Unready)> {
        let places = [Some(Place::Cluster), pool.map(Place::Pool), rack.map(Place::Rack)];
        places.into_iter().flatten().find_map(|place| {
            let seen = *self.seen.get(&place)?;
            seen.is_too_much(place.breaker()).then_some((place, seen))
        })
    }

    /// How many machines may be on their way up at one time wherever there is trouble.
    pub(crate) fn brakes(&self, snapshot: &'a Snapshot) -> Vec<Brake<'a>> {
        let slow = snapshot.limits.caution.as_deref();
        let all = self.seen.iter().filter_map(|(&place, &seen)| {
            let slow = slow.filter(|_| place == Place::Cluster);
            let Unready { unready, total } = seen;
            let why = if seen.is_too_much(place.breaker()) {
                format!("{unready} of its {total} nodes are not ready")
            } else {
                slow?.to_owned()
            };
            Some(Brake { place, why, rising: 0, most: (total / SHARE_ON_THE_WAY).max(1) })
        });
        let mut all: Vec<Brake<'a>> = all.collect();
        if all.is_empty() {
            return all;
        }
        let hosts = Hosts::of(snapshot);
        for member in snapshot.members.values().filter(|member| is_on_the_way(member)) {
            let rack = hosts.of_member(member).and_then(|host| host.rack.as_deref());
            for brake in all.iter_mut().filter(|brake| brake.place.holds(&member.pool, rack)) {
                brake.rising += 1;
            }
        }
        all
    }
}

/// Where growth goes slowly, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Brake<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) why: String,
    /// Machines on their way up there.
    pub(crate) rising: u32,
    pub(crate) most: u32,
}

impl Brake<'_> {
    /// Machines that the plan adds there.
    pub(crate) fn added(&self, snapshot: &Snapshot, plan: &Plan) -> u32 {
        let here = |new: &&NewNode| {
            let rack = match &new.source {
                Source::Host { host } => snapshot.host(host).and_then(|host| host.rack.as_deref()),
                Source::Bought { .. } => None,
            };
            self.place.holds(&new.pool, rack)
        };
        u32::try_from(plan.new_nodes.iter().filter(here).count()).unwrap_or(u32::MAX)
    }
}

struct Hosts<'a>(BTreeMap<&'a str, &'a Host>);

impl<'a> Hosts<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        Self(snapshot.hosts.iter().map(|host| (&*host.name, host)).collect())
    }

    fn of_member(&self, member: &Member) -> Option<&'a Host> {
        self.0.get(member.host.as_deref()?).copied()
    }
}

fn is_on_the_way(member: &Member) -> bool {
    matches!(member.state, MemberState::Upcoming { .. })
}

/// A node that says nothing about itself counts as ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    node.status.condition("Ready").is_none_or(|condition| &*condition.status == "True")
}

/// Whether it has become ready again a moment ago. One that has just been started was not ready before.
fn has_just_recovered(now: Timestamp, node: &Node, host: Option<&Host>) -> bool {
    let changed = node.status.condition("Ready").and_then(|condition| condition.last_transition_time);
    let began = host.and_then(|host| host.on_since).or(node.metadata.creation_timestamp);
    let (Some(changed), Some(began)) = (changed, began) else { return false };
    changed <= now && now.since(changed) < RECOVERY && changed.since(began) > RECOVERY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_on_many_and_much() {
        #[track_caller]
        fn check(unready: u32, total: u32, breaker: Breaker, expected: bool) {
            assert_eq!(Unready { unready, total }.is_too_much(breaker), expected, "{unready} of {total}");
        }
        check(0, 0, IN_CLUSTER, false);
        check(3, 3, IN_CLUSTER, false); // few
        check(4, 9, IN_CLUSTER, false); // 44 %
        check(4, 8, IN_CLUSTER, true);
        check(45, 100, IN_CLUSTER, false); // exactly the share
        check(46, 100, IN_CLUSTER, true);
        check(2, 4, IN_RACK, true); // half a rack
        check(1, 4, IN_POOL, false); // one bad node is no trouble of the pool
        check(2, 8, IN_POOL, true); // a quarter
        check(2, 9, IN_POOL, false);
    }

    #[test]
    fn ops_r14_a_node_that_comes_and_goes_counts_as_unready() {
        #[track_caller]
        fn check(changed: &str, on_since: &str, expected: bool) {
            let at = |text: &str| format!("2026-01-05T{text}Z").parse::<Timestamp>().unwrap();
            let node: Node = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": format!("2026-01-05T{changed}Z")}]},
            }))
            .unwrap();
            let host = Host { on_since: Some(at(on_since)), ..Host::default() };
            assert_eq!(
                has_just_recovered(at("12:00:00"), &node, Some(&host)),
                expected,
                "{changed} {on_since}"
            );
        }
        // Ready since, serving since => counts as unready still.
        check("11:58:00", "08:00:00", true);
        check("11:55:00", "08:00:00", false); // long enough ago
        check("11:58:00", "11:58:00", false); // it has just been started
        check("12:01:00", "08:00:00", false); // a clock that is ahead
    }
}
