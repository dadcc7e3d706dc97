//! What is known of the cluster: lean records by kind, and how the views are made from them.

mod records;
mod tables;

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use muster_model::{
    Duration, Timestamp,
    k8s::{Objects, PodSpec},
    observe::SetAside,
};

pub(crate) use records::{
    CoschedulingPodGroup, KubernetesPodGroup, Lease, Need, NodeRecord, Record, VolcanoPodGroup,
};
pub(crate) use tables::Tables;

/// A kubelet renews every ten seconds. One that was silent for as long as Kubernetes' own lease lasts and then
/// renews is news; the renewals in between are not.
pub(crate) const LEASE_LASTS: Duration = Duration::from_secs(40);

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// How an object came to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// As an event of an open watch: it happened just now.
    Live,
    /// In a list: it happened at some time since the source was last current, if it ever was.
    Listed { current_at: Option<Timestamp> },
}

/// A node's lease as we saw it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseSeen {
    /// What the kubelet wrote, by its own clock.
    pub(crate) written: Option<Timestamp>,
    /// When we saw that, by ours.
    pub(crate) at: Timestamp,
}

/// Everything that the watches have put together.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Grows with every change.
    pub(crate) number: u64,
    pub(crate) tables: Tables,
    pub(crate) leases: BTreeMap<Arc<str>, LeaseSeen>,
    pub(crate) renewed: Arc<BTreeMap<Arc<str>, Timestamp>>,
    /// When a lease was last found of which nobody knows how old it is.
    pub(crate) leases_since: Timestamp,
    /// Addresses of nodes, by the name of the node; no decision reads them, but our own safety does.
    pub(crate) addresses: BTreeMap<Arc<str>, Box<[IpAddr]>>,
    /// Objects that could not be read, by the plural of their kind.
    pub(crate) set_aside: BTreeMap<(&'static str, Key), SetAside>,
    /// The records of [`ClusterView::set_aside`](muster_model::observe::ClusterView), kept until they change.
    set_aside_list: Option<Arc<[SetAside]>>,
    /// Equal specs are kept once: pods of one workload differ in little but their names.
    specs: HashSet<Arc<PodSpec>>,
    built: Arc<Objects>,
}

impl State {
    /// The objects as one value. Only kinds that changed since the last call are copied, unless somebody
    /// still holds the last value.
    pub(crate) fn objects(&mut self) -> Arc<Objects> {
        if self.tables.is_dirty() {
            self.tables.build(Arc::make_mut(&mut self.built));
        }
        Arc::clone(&self.built)
    }

    pub(crate) fn set_aside_list(&mut self) -> Arc<[SetAside]> {
        let list =
            self.set_aside_list.get_or_insert_with(|| self.set_aside.values().cloned().collect::<Arc<[_]>>());
        Arc::clone(list)
    }

    /// Notes an object that could not be read. Says whether that is news.
    pub(crate) fn put_aside(&mut self, plural: &'static str, key: Key, mut record: SetAside) -> bool {
        let slot = (plural, key);
        if let Some(known) = self.set_aside.get(&slot) {
            record.since = known.since;
            if *known == record {
                return false;
            }
        }
        self.set_aside.insert(slot, record);
        self.set_aside_list = None;
        true
    }

    /// An object can be read again, or is gone.
    pub(crate) fn take_back(&mut self, plural: &'static str, key: &Key) -> bool {
        let found = self.set_aside.remove(&(plural, key.clone())).is_some();
        if found {
            self.set_aside_list = None;
        }
        found
    }

    /// The one copy of a spec.
    fn intern(&mut self, spec: Arc<PodSpec>) -> Arc<PodSpec> {
        if let Some(known) = self.specs.get(&spec) {
            return Arc::clone(known);
        }
        // Specs that no pod uses any more go when they are about as many as the others.
        if self.specs.len() >= 2 * self.tables.pods.len() + 1024 {
            self.specs.retain(|spec| Arc::strong_count(spec) > 1);
        }
        self.specs.insert(Arc::clone(&spec));
        spec
    }

    /// Takes note of a lease. Says whether it is news, see [`LEASE_LASTS`].
    fn note_lease(&mut self, node: &Arc<str>, written: Option<Timestamp>, how: Seen, now: Timestamp) -> bool {
        let before = self.leases.insert(Arc::clone(node), LeaseSeen { written, at: now });
        let renewed_at = match (how, &before) {
            (_, Some(before)) if before.written == written => return false, // somebody touched it, no kubelet
            (Seen::Live, _) => now,
            (Seen::Listed { current_at: Some(current_at) }, Some(before)) => {
                listed_renewal(before, written, current_at, now)
            }
            // In a first list a lease may be as old as the cluster, or of this moment.
            (Seen::Listed { .. }, _) => {
                self.leases_since = now;
                return false;
            }
        };
        let last = self.renewed.get(node).copied();
        Arc::make_mut(&mut self.renewed).insert(Arc::clone(node), renewed_at);
        last.is_none_or(|last| renewed_at.since(last) > LEASE_LASTS)
    }

    fn drop_lease(&mut self, node: &str) -> bool {
        self.leases.remove(node);
        Arc::make_mut(&mut self.renewed).remove(node).is_some()
    }
}

/// When a renewal happened that was found in a list: as long after the one before as the kubelet's own clock
/// says, but neither before we last knew nor later than now.
fn listed_renewal(
    before: &LeaseSeen,
    written: Option<Timestamp>,
    current_at: Timestamp,
    now: Timestamp,
) -> Timestamp {
    let passed = match (before.written, written) {
        (Some(before), Some(after)) => after.since(before),
        _ => Duration::ZERO,
    };
    before.at.saturating_add(passed).max(current_at).min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn a_lease_counts_as_renewed_only_when_we_saw_it_change() {
        let mut state = State::default();
        let node: Arc<str> = "n".into();
        let first = Seen::Listed { current_at: None };
        assert!(!state.note_lease(&node, Some(at(5)), first, at(1000)), "an old lease of a dead node");
        assert!(state.renewed.is_empty());
        assert_eq!(state.leases_since, at(1000), "who says nothing from now on is silent");
        assert!(state.note_lease(&node, Some(at(15)), Seen::Live, at(1010)), "it begins");
        assert!(!state.note_lease(&node, Some(at(15)), Seen::Live, at(1015)), "not by the kubelet");
        assert_eq!(state.renewed.get("n"), Some(&at(1010)));
        assert!(!state.note_lease(&node, Some(at(25)), Seen::Live, at(1020)), "it goes on");
        assert!(state.note_lease(&node, Some(at(90)), Seen::Live, at(1085)), "it begins again");
        assert!(state.drop_lease("n"));
        assert!(state.renewed.is_empty());
        // A node that came while nothing was watched may have renewed a moment ago.
        assert_eq!(state.leases_since, at(1000));
        let later = Seen::Listed { current_at: Some(at(1100)) };
        assert!(!state.note_lease(&"m".into(), Some(at(99)), later, at(1200)));
        assert_eq!(state.leases_since, at(1200));
    }

    #[test]
    fn a_renewal_that_a_list_shows_is_placed_by_the_nodes_own_clock() {
        #[track_caller]
        fn check(passed: i64, current_at: i64, now: i64, expected: i64) {
            let before = LeaseSeen { written: Some(at(7)), at: at(100) };
            assert_eq!(listed_renewal(&before, Some(at(7 + passed)), at(current_at), at(now)), at(expected));
        }
        check(10, 105, 200, 110); // shortly after we lost sight: not 90 seconds later
        check(90, 105, 200, 190);
        check(1, 105, 200, 105); // we would have seen it
        check(9999, 105, 200, 200); // the node's clock jumped
    }
}
