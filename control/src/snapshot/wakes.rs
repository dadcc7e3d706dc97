//! Hosts that were woken for pods and took none of them.
//!
//! One pod that fits in theory and never lands (somebody taints every new node, or nodes never join) would wake host
//! after host. Each power-on that a decision asks for because of pods is remembered until a pod lands on it; after
//! [`MOST`] that brought nothing the pool rests. Sizes that people or `minNodes` ask for are no wakes for pods.

use std::collections::BTreeMap;

use muster_engine::{
    Snapshot,
    snapshot::{HostState, MemberState, Scope, Stops},
};
use muster_model::{Duration, Timestamp, k8s::Pod};
use serde::{Deserialize, Serialize};

use super::{Draft, Inputs};

/// Power-ons that may bring nothing before a pool rests.
const MOST: usize = 3;
/// How long it rests, from the last of them on.
const REST: Duration = Duration::from_hours(1);
/// Wakes that are remembered for a pool: far more than one decision makes.
const MOST_KEPT: usize = 500;
/// How the hold on such a pool begins.
pub(crate) const FRUITLESS: &str = "woken for pods in vain: ";

/// A host that was woken for pods on which none of them has been seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    pub host: String,
    pub at: Timestamp,
}

/// Wakes by pool.
pub type Wakes = BTreeMap<String, Vec<Wake>>;

/// Remembers a wake that was just asked for.
pub(crate) fn note(wakes: &mut Wakes, pool: &str, host: &str, at: Timestamp) {
    let of_pool = wakes.entry(pool.to_owned()).or_default();
    of_pool.retain(|wake| wake.host != host);
    of_pool.push(Wake { host: host.to_owned(), at });
    let over = of_pool.len().saturating_sub(MOST_KEPT);
    of_pool.drain(..over);
}

/// Forgets wakes that bore fruit, those of pools that have rested, and all of them once no pod waits any more.
pub(super) fn forget(wakes: &mut Wakes, inputs: &Inputs, snapshot: &Snapshot) {
    let waits = snapshot.cluster.pods.iter().any(Pod::is_pending);
    wakes.retain(|pool, all| {
        all.retain(|wake| !has_landed(snapshot, &wake.host));
        let rested = rests_until(all).is_some_and(|until| until <= inputs.now);
        waits && !rested && !all.is_empty() && inputs.pool_named(pool).is_some()
    });
}

/// Whether a pod runs on the host's node that would not run on every node.
fn has_landed(snapshot: &Snapshot, host: &str) -> bool {
    let node = snapshot.members.iter().find(|(_, member)| member.host.as_deref() == Some(host));
    let Some((node, _)) = node else { return false };
    let daemon = |pod: &Pod| pod.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet");
    let here = |pod: &Pod| pod.spec.node_name.as_deref() == Some(&**node);
    snapshot.cluster.pods.iter().any(|pod| here(pod) && !daemon(pod) && !pod.is_finished())
}

fn rests_until(wakes: &[Wake]) -> Option<Timestamp> {
    wakes.iter().map(|wake| wake.at).max().map(|last| last.saturating_add(REST))
}

/// Holds pools that woke too many hosts in vain. One that is still on its way may yet bear fruit.
pub(super) fn add(inputs: &Inputs, draft: &mut Draft) {
    for (pool, wakes) in &inputs.memory.wakes {
        let Some(input) = inputs.pool_named(pool) else { continue };
        let (snapshot, min) =
            (&draft.snapshot, draft.snapshot.pool(pool).map_or(0, |pool| pool.fixed.unwrap_or(pool.min)));
        let serving = snapshot
            .members
            .values()
            .filter(|member| *member.pool == **pool && !matches!(member.state, MemberState::Leaving));
        if input.requested.is_some() || serving.count() < usize::try_from(min).unwrap_or(usize::MAX) {
            continue;
        }
        let in_vain: Vec<&str> = wakes
            .iter()
            .filter(|wake| {
                snapshot.host(&wake.host).is_some_and(|host| host.state != HostState::Waking)
                    && !has_landed(snapshot, &wake.host)
            })
            .map(|wake| wake.host.as_str())
            .collect();
        if in_vain.len() < MOST {
            continue;
        }
        let shown = in_vain.iter().rev().take(MOST).rev().copied().collect::<Vec<_>>().join(", ");
        let why = format!(
            "{FRUITLESS}{} hosts ({shown}) took none of the pods that they were woken for; look at their taints and \
             at `muster explain pod`",
            in_vain.len()
        );
        draft.hold(Scope::Pool(pool.as_str().into()), Stops::Growth, why, rests_until(wakes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_counts_once_and_the_oldest_are_dropped() {
        let at = |millis: usize| Timestamp::from_millis(i64::try_from(millis).unwrap());
        let mut wakes = Wakes::new();
        for number in 0..MOST_KEPT + 2 {
            note(&mut wakes, "web", &format!("h{number}"), at(number));
        }
        note(&mut wakes, "web", "h2", at(9_999));
        let all = &wakes["web"];
        assert_eq!((all.len(), all[0].host.as_str()), (MOST_KEPT, "h3"));
        assert_eq!(all.last().unwrap(), &Wake { host: "h2".into(), at: at(9_999) });
        assert_eq!(rests_until(all), Some(at(9_999).saturating_add(REST)));
    }
}
