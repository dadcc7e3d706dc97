//! Hosts that were woken for pods and took none of them.
//!
//! One pod that fits in theory and never lands (somebody taints every new node, or nodes never join) would wake host
//! after host. Each power-on that a decision asks for because of pods is remembered with the demands that it is for: the controller of
//! a pod, or the pod itself. Once a pod of a demand lands on one of them that demand is served and its wakes are forgotten. After
//! [`MOST`] that brought nothing no more hosts are woken for *that demand*, whatever its pool; others go on. Sizes that people or
//! `minNodes` ask for are no wakes for pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_engine::{
    Snapshot,
    snapshot::{HostState, Spent},
};
use muster_model::{
    Duration, Timestamp,
    k8s::{Pod, PodKey},
};
use serde::{Deserialize, Serialize};

use super::{Draft, Inputs};

/// Hosts that may be woken in vain for one demand.
const MOST: usize = 3;
/// How long it rests then, from the last of them on; twice as long after each further one.
const REST: Duration = Duration::from_hours(1);
/// No rest is longer: whatever kept pods away may be mended meanwhile.
const LONGEST_REST: Duration = Duration::from_hours(24);
/// Wakes that are remembered for a pool: far more than one decision makes.
const MOST_KEPT: usize = 500;
/// Demands that are remembered for one wake: as many pods as a node commonly takes.
const MOST_DEMANDS: usize = 100;
/// How the reason for such a rest begins.
const FRUITLESS: &str = "woken for pods in vain: ";

/// A host that was woken for pods on which none of them has been seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    pub host: String,
    pub at: Timestamp,
    /// Whom it was for.
    #[serde(default)]
    pub demands: BTreeSet<String>,
}

/// Wakes by pool.
pub type Wakes = BTreeMap<String, Vec<Wake>>;

/// What a pod is one of: whoever makes pods like it, or itself.
fn demand_of(pod: &Pod) -> String {
    let namespace = &pod.metadata.namespace;
    match pod.metadata.controller() {
        Some(owner) => format!("{namespace}/{}/{}", owner.kind, owner.name),
        None => format!("{namespace}/Pod/{}", pod.metadata.name),
    }
}

/// The demands of these pods.
pub(crate) fn demands(snapshot: &Snapshot, pods: &BTreeSet<&PodKey>) -> BTreeSet<String> {
    let wanted = snapshot.cluster.pods.iter().filter(|pod| pod.is_pending() && pods.contains(&pod.key()));
    wanted.map(demand_of).take(MOST_DEMANDS).collect()
}

/// Remembers a wake that was just asked for.
pub(crate) fn note(wakes: &mut Wakes, pool: &str, host: &str, demands: BTreeSet<String>, at: Timestamp) {
    let of_pool = wakes.entry(pool.to_owned()).or_default();
    let mut demands = demands;
    // The same host again: what it was woken for before and did not take either still counts.
    of_pool.retain_mut(|wake| {
        let same = wake.host == host;
        if same {
            demands.append(&mut wake.demands);
        }
        !same
    });
    of_pool.push(Wake { host: host.to_owned(), at, demands });
    let over = of_pool.len().saturating_sub(MOST_KEPT);
    of_pool.drain(..over);
}

/// Forgets the wakes of demands that were served, that nobody makes any more, or that have rested for as long as can be.
pub(super) fn forget(wakes: &mut Wakes, inputs: &Inputs, snapshot: &Snapshot) {
    if wakes.is_empty() {
        return;
    }
    let (mut waits, mut runs) = (BTreeSet::new(), BTreeSet::new());
    for pod in snapshot.cluster.pods.iter().filter(|pod| !pod.is_finished()) {
        if pod.is_pending() {
            waits.insert(demand_of(pod))
        } else {
            runs.insert(demand_of(pod))
        };
    }
    let landed = landed(wakes, snapshot);
    wakes.retain(|pool, all| {
        all.retain_mut(|wake| {
            let age = inputs.now.since(wake.at);
            // Pods that are made anew may be between two lives for a moment.
            let stands = |demand: &String| waits.contains(demand) || (!runs.contains(demand) && age < REST);
            wake.demands.retain(|demand| !landed.contains(demand) && stands(demand));
            age < LONGEST_REST && !wake.demands.is_empty()
        });
        !all.is_empty() && inputs.pool_named(pool).is_some()
    });
}

/// Demands of which a pod runs on a host that was woken for them.
fn landed(wakes: &Wakes, snapshot: &Snapshot) -> BTreeSet<String> {
    let hosts: BTreeMap<&str, &Arc<str>> =
        snapshot.members.iter().filter_map(|(node, member)| Some((member.host.as_deref()?, node))).collect();
    let mut there: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for wake in wakes.values().flatten() {
        if let Some(node) = hosts.get(wake.host.as_str()) {
            there.entry(&***node).or_default().extend(wake.demands.iter().map(String::as_str));
        }
    }
    let mut served = BTreeSet::new();
    for pod in snapshot.cluster.pods.iter().filter(|pod| !pod.is_finished()) {
        let Some(wanted) = pod.spec.node_name.as_deref().and_then(|node| there.get(node)) else { continue };
        let demand = demand_of(pod);
        if wanted.contains(demand.as_str()) {
            served.insert(demand);
        }
    }
    served
}

/// The hosts that were woken in vain for one demand.
#[derive(Debug, Default)]
struct Vain<'a> {
    hosts: Vec<&'a str>,
    pools: BTreeSet<&'a str>,
    last: Option<Timestamp>,
}

impl Vain<'_> {
    /// Until when nothing more is woken, once it was enough.
    fn rests_until(&self) -> Option<Timestamp> {
        let over = self.hosts.len().checked_sub(MOST)?;
        let doubled = REST.millis().saturating_mul(1 << over.min(5));
        Some(self.last?.saturating_add(Duration::from_millis(doubled).min(LONGEST_REST)))
    }
}

/// Leaves pods alone for which too many hosts were woken in vain. One that is still on its way may yet bear fruit.
pub(super) fn add(inputs: &Inputs, draft: &mut Draft) {
    let wakes = &inputs.memory.wakes;
    if wakes.is_empty() {
        return;
    }
    let landed = landed(wakes, &draft.snapshot);
    let mut vain: BTreeMap<&str, Vain<'_>> = BTreeMap::new();
    for (pool, wake) in wakes.iter().flat_map(|(pool, all)| all.iter().map(move |wake| (pool, wake))) {
        let over = draft.snapshot.host(&wake.host).is_some_and(|host| host.state != HostState::Waking);
        for demand in wake.demands.iter().filter(|demand| over && !landed.contains(*demand)) {
            let of = vain.entry(demand).or_default();
            of.hosts.push(&wake.host);
            of.pools.insert(pool);
            of.last = of.last.max(Some(wake.at));
        }
    }
    let mut spent = Vec::new();
    for (demand, vain) in vain {
        let Some(until) = vain.rests_until().filter(|until| inputs.now < *until) else { continue };
        let waits = |pod: &&Pod| pod.is_pending() && demand_of(pod) == demand;
        let pods: Vec<PodKey> = draft.snapshot.cluster.pods.iter().filter(waits).map(Pod::key).collect();
        if pods.is_empty() {
            continue;
        }
        let shown = vain.hosts.iter().rev().take(MOST).rev().copied().collect::<Vec<_>>().join(", ");
        let why = format!(
            "{FRUITLESS}{} hosts ({shown}) took none of the pods of {demand} that they were woken for; look at their taints and \
             at `muster explain pod`",
            vain.hosts.len()
        );
        let pools = vain.pools.into_iter().map(Arc::from).collect();
        spent.push(Spent { pods, pools, why: why.into(), until: Some(until) });
    }
    for one in &spent {
        draft.wake_at(one.until);
    }
    draft.snapshot.spent = spent;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_counts_once_and_the_oldest_are_dropped() {
        let at = |millis: usize| Timestamp::from_millis(i64::try_from(millis).unwrap());
        let of = |demand: &str| BTreeSet::from([demand.to_owned()]);
        let mut wakes = Wakes::new();
        for number in 0..MOST_KEPT + 2 {
            note(&mut wakes, "web", &format!("h{number}"), of("a"), at(number));
        }
        note(&mut wakes, "web", "h2", of("b"), at(9_999));
        let all = &wakes["web"];
        assert_eq!((all.len(), all[0].host.as_str()), (MOST_KEPT, "h3"));
        // What it was woken for before and did not take either still counts.
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(all.last().unwrap(), &Wake { host: "h2".into(), at: at(9_999), demands: both });
    }

    #[test]
    fn a_rest_doubles_with_every_further_host_and_has_an_end() {
        let check = |hosts: usize, hours: Option<u64>| {
            let vain = Vain { hosts: vec!["h"; hosts], last: Some(Timestamp::EPOCH), ..Vain::default() };
            let until = hours.map(|hours| Timestamp::EPOCH.saturating_add(Duration::from_hours(hours)));
            assert_eq!(vain.rests_until(), until, "{hosts} hosts");
        };
        check(2, None);
        check(3, Some(1));
        check(4, Some(2));
        check(6, Some(8));
        check(9, Some(24));
        check(90, Some(24));
    }
}
