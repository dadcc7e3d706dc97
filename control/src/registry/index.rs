//! What lists and filters are answered from: a small row for every object, kept in order.
//!
//! The index holds no objects, only what is needed to find, order, filter and count them (some hundred
//! bytes each; how they are searched is in [`super::table`]). One task feeds it from the store's watch; `revision` says how far it has come.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use muster_model::{Timestamp, status::PoolRollup, store::Revision};
use uuid::Uuid;

use super::{
    filter::Filter,
    keys::Kind,
    labels::{Interner, Labels},
    rollup::Rollup,
    table::Table,
};

/// The phase of an operation that is under way.
pub(super) const OPEN: &str = "Running";

/// What the index knows of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub kind: Kind,
    pub id: Uuid,
    pub project: Arc<str>,
    /// The pool's cluster; the cluster itself for clusters; the pool for operations on one,
    /// nil for operations on hosts.
    pub cluster: Uuid,
    pub name: Box<str>,
    pub created_by: Arc<str>,
    pub created_at: Timestamp,
    pub generation: u64,
    pub platform: &'static str,
    pub labels: Labels,
    pub deleting: bool,
    /// Resource version of the object, and revision of its stored status (zero: none stored yet).
    pub version: Revision,
    pub status_version: Revision,
    pub phase: &'static str,
    pub health: &'static str,
    pub counts: Counts,
    /// When the status must be looked at again although nobody reports.
    pub recheck_at: Option<Timestamp>,
}

/// Numbers that metrics show. `None` is unknown, not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub desired: Option<u32>,
    pub current: Option<u32>,
    pub ready: Option<u32>,
    pub min: Option<u32>,
    pub max: Option<u32>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub items: Vec<Arc<Summary>>,
    /// Objects that match the filter, on all pages.
    pub total: usize,
    /// Place to continue from, when there is more.
    pub next: Option<Cursor>,
    /// The moment that the list shows.
    pub revision: Revision,
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Offset(usize),
    After(Cursor),
}

/// The last object of a page: the next page begins after it, whatever was created or deleted since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub at: Timestamp,
    pub id: Uuid,
}

/// The whole index.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) clusters: Table,
    pub(super) pools: Table,
    pub(super) operations: Table,
    /// The pools of each cluster, counted.
    rollups: HashMap<Uuid, Rollup>,
    pub(super) revision: Revision,
    /// Objects whose status is due for another look, by time.
    due: BTreeSet<(Timestamp, Kind, Uuid)>,
    /// Operations on pools that are under way.
    pub(super) open_operations: BTreeSet<Uuid>,
    texts: HashSet<Arc<str>, foldhash::fast::RandomState>,
    pub(super) labels: Interner,
}

impl Index {
    pub(super) fn table(&self, kind: Kind) -> &Table {
        match kind {
            Kind::Cluster => &self.clusters,
            Kind::Pool => &self.pools,
            Kind::Operation => &self.operations,
        }
    }

    fn table_mut(&mut self, kind: Kind) -> &mut Table {
        match kind {
            Kind::Cluster => &mut self.clusters,
            Kind::Pool => &mut self.pools,
            Kind::Operation => &mut self.operations,
        }
    }

    pub(super) fn get(&self, kind: Kind, id: Uuid) -> Option<&Arc<Summary>> {
        self.table(kind).get(id)
    }

    pub(super) fn find(&self, kind: Kind, filter: &Filter, start: Start, limit: usize) -> Found {
        let (items, total, more) = self.table(kind).find(filter, start, limit);
        let next = items.last().filter(|_| more).map(|last| Cursor { at: last.created_at, id: last.id });
        Found { items, total, next, revision: self.revision }
    }

    /// One shared copy of texts that repeat in thousands of objects.
    pub(super) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        // Texts of deleted objects are dropped once nothing else holds them.
        if self.texts.len() > 4_096 && self.texts.len().is_power_of_two() {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
        let shared: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&shared));
        shared
    }

    /// Puts or replaces an object; returns what was known of it before.
    pub(super) fn set(&mut self, summary: Arc<Summary>) -> Option<Arc<Summary>> {
        let (kind, id, due) = (summary.kind, summary.id, summary.recheck_at);
        if kind == Kind::Operation {
            // Those on hosts are ended by the inventory, which knows them.
            if summary.phase == OPEN && !summary.cluster.is_nil() {
                self.open_operations.insert(id);
            } else {
                self.open_operations.remove(&id);
            }
        }
        if kind == Kind::Pool {
            self.rollups.entry(summary.cluster).or_default().add(&summary);
        }
        let before = self.table_mut(kind).set(summary);
        self.uncount(before.as_deref());
        if let Some(at) = before.as_ref().and_then(|before| before.recheck_at) {
            self.due.remove(&(at, kind, id));
        }
        if let Some(at) = due {
            self.due.insert((at, kind, id));
        }
        before
    }

    pub(super) fn remove(&mut self, kind: Kind, id: Uuid) -> Option<Arc<Summary>> {
        let before = self.table_mut(kind).remove(id)?;
        self.open_operations.remove(&id);
        self.uncount(Some(&before));
        if let Some(at) = before.recheck_at {
            self.due.remove(&(at, kind, id));
        }
        Some(before)
    }

    /// Takes what was known of a pool out of its cluster's counts.
    fn uncount(&mut self, before: Option<&Summary>) {
        let Some(before) = before.filter(|before| before.kind == Kind::Pool) else { return };
        if let Some(rollup) = self.rollups.get_mut(&before.cluster) {
            rollup.remove(before);
            if rollup.total == 0 {
                self.rollups.remove(&before.cluster);
            }
        }
    }

    /// The pools of a cluster, counted.
    pub(super) fn rollup(&self, cluster: Uuid) -> PoolRollup {
        self.rollups.get(&cluster).map_or_else(|| Rollup::default().render(), Rollup::render)
    }

    /// Objects whose status is due at `now`, at most `limit`.
    pub(super) fn due(&self, now: Timestamp, limit: usize) -> Vec<(Kind, Uuid)> {
        self.due
            .iter()
            .take_while(|(at, ..)| *at <= now)
            .take(limit)
            .map(|(_, kind, id)| (*kind, *id))
            .collect()
    }

    /// Objects that are being deleted, at most `limit`.
    pub(super) fn deleting(&self, kind: Kind, limit: usize) -> Vec<Uuid> {
        self.table(kind).deleting().take(limit).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::registry) fn summary(number: u128, at: i64) -> Summary {
        Summary {
            kind: Kind::Pool,
            id: Uuid::from_u128(number),
            project: if number.is_multiple_of(2) { "even".into() } else { "odd".into() },
            cluster: Uuid::from_u128(1_000 + number % 3),
            name: format!("pool-{number}").into(),
            created_by: "user@example.com".into(),
            created_at: Timestamp::from_millis(at),
            generation: 1,
            platform: "gcp",
            labels: Labels::default(),
            deleting: false,
            version: Revision(1),
            status_version: Revision::ZERO,
            phase: if number.is_multiple_of(5) { "Ready" } else { "Pending" },
            health: "Unknown",
            counts: Counts::default(),
            recheck_at: None,
        }
    }

    fn numbers(found: &Found) -> Vec<u128> {
        found.items.iter().map(|item| item.id.as_u128()).collect()
    }

    #[test]
    fn lists_are_newest_first_with_a_total_order() {
        let mut index = Index::default();
        for (number, at) in [(3, 10), (1, 10), (2, 10), (4, 5), (5, 20)] {
            index.set(Arc::new(summary(number, at)));
        }
        let all = Filter::everything();
        let found = index.find(Kind::Pool, &all, Start::Offset(0), 10);
        assert_eq!((numbers(&found), found.total, found.next), (vec![5, 3, 2, 1, 4], 5, None));
        let page = index.find(Kind::Pool, &all, Start::Offset(1), 2);
        assert_eq!((numbers(&page), page.total), (vec![3, 2], 5));
        let beyond = index.find(Kind::Pool, &all, Start::Offset(9), 2);
        assert_eq!((numbers(&beyond), beyond.total), (vec![], 5));
    }

    #[test]
    fn cursor_pages_miss_nothing_while_objects_come_and_go() {
        let mut index = Index::default();
        for number in 0..100 {
            index.set(Arc::new(summary(number, 1_000 + i64::try_from(number).unwrap())));
        }
        let (all, mut seen, mut start) = (Filter::everything(), vec![], Start::Offset(0));
        loop {
            let page = index.find(Kind::Pool, &all, start, 7);
            seen.extend(numbers(&page));
            // Between pages new ones are created and a seen one is deleted: nothing else may shift.
            let fresh = 1_000 + seen.len() as u128;
            index.set(Arc::new(summary(fresh, 5_000)));
            index.remove(Kind::Pool, Uuid::from_u128(seen[0]));
            let Some(next) = page.next else { break };
            start = Start::After(next);
        }
        assert_eq!(seen, (0..100).rev().collect::<Vec<_>>());
    }

    #[test]
    fn filters_count_what_they_match() {
        let mut index = Index::default();
        for number in 0..100 {
            index.set(Arc::new(summary(number, 1)));
        }
        let ready = Filter { phase: Some("Ready"), ..Filter::everything() };
        assert_eq!(index.find(Kind::Pool, &ready, Start::Offset(0), 3).total, 20);
        let even = Filter { projects: Some(vec!["even".into()]), ..ready };
        let found = index.find(Kind::Pool, &even, Start::Offset(0), 3);
        assert_eq!((found.total, found.items.len(), found.next.is_some()), (10, 3, true));
    }

    #[test]
    fn due_times_follow_their_objects() {
        let mut index = Index::default();
        let at = |at| Some(Timestamp::from_millis(at));
        index.set(Arc::new(Summary { recheck_at: at(50), ..summary(1, 1) }));
        index.set(Arc::new(Summary { recheck_at: at(30), ..summary(2, 1) }));
        let due = |index: &Index, at| index.due(Timestamp::from_millis(at), 9).len();
        assert_eq!((due(&index, 29), due(&index, 30), due(&index, 50)), (0, 1, 2));
        index.set(Arc::new(Summary { recheck_at: at(70), ..summary(2, 1) }));
        assert_eq!(index.due(Timestamp::from_millis(60), 9), [(Kind::Pool, Uuid::from_u128(1))]);
        index.remove(Kind::Pool, Uuid::from_u128(1));
        assert_eq!((due(&index, 69), due(&index, 70)), (0, 1));
    }
}
