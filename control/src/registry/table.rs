//! The rows of one kind in the order of creation, and how a filter finds its page among them.
//!
//! A list counts everything that matches, so it looks at every row. What filters ask for is therefore kept apart from the
//! summaries, as small numbers in one place in memory: a scan of 100,000 rows reads 2.4 MB in order instead of following
//! 100,000 pointers. The count is remembered until something changes: who goes on to the next page pays for that page.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use foldhash::fast::RandomState;
use muster_model::Timestamp;
use uuid::Uuid;

use super::{
    filter::{Field, Filter},
    index::{Start, Summary},
    postings::{Bits, Postings},
};

/// What filters look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    slot: u32,
    project: u32,
    cluster: u32,
    creator: u32,
    /// Digest of the name: another digest is another name.
    name: u32,
    phase: u8,
    health: u8,
    platform: u8,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    Deleting,
    /// The object is gone; such rows are swept out now and then.
    Gone,
}

/// Small numbers for things that repeat.
#[derive(Debug)]
struct Codes<T>(HashMap<T, u32, RandomState>);

impl<T> Default for Codes<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Hash + Eq> Codes<T> {
    fn code(&mut self, thing: T) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(thing).or_insert(next)
    }
}

/// The same for words of our own, of which there are a few dozen.
#[derive(Debug, Default)]
struct Words(Vec<&'static str>);

impl Words {
    fn known(&self, word: &str) -> Option<u8> {
        self.0.iter().position(|known| *known == word).and_then(|place| u8::try_from(place).ok())
    }

    fn code(&mut self, word: &'static str) -> u8 {
        self.known(word).unwrap_or_else(|| {
            self.0.push(word);
            u8::try_from(self.0.len() - 1).expect("phases, healths and platforms are a few dozen words")
        })
    }
}

/// How many rows match the filters of late, as long as no row changes.
#[derive(Debug, Default)]
struct Counted(Mutex<VecDeque<(Filter, usize)>>);

impl Counted {
    /// Filters that are remembered: people look at a few lists at a time.
    const MOST: usize = 32;

    fn get(&self, filter: &Filter) -> Option<usize> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().find(|(known, _)| known == filter).map(|(_, count)| *count)
    }

    fn put(&self, filter: &Filter, count: usize) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() == Self::MOST {
            counts.pop_front();
        }
        counts.push_back((filter.clone(), count));
    }

    fn forget(&mut self) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// See the module. The three vectors have the same length and order: ascending by (creation, id).
#[derive(Debug, Default)]
pub(super) struct Table {
    order: Vec<(Timestamp, Uuid)>,
    facts: Vec<Facts>,
    summaries: Vec<Option<Arc<Summary>>>,
    by_id: HashMap<Uuid, Timestamp, RandomState>,
    deleting: BTreeSet<Uuid>,
    gone: usize,
    postings: Postings,
    next_slot: u32,
    projects: Codes<Arc<str>>,
    creators: Codes<Arc<str>>,
    clusters: Codes<Uuid>,
    words: Words,
    counted: Counted,
}

impl Table {
    pub(super) fn get(&self, id: Uuid) -> Option<&Arc<Summary>> {
        let at = *self.by_id.get(&id)?;
        self.summaries[self.place(at, id).ok()?].as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Objects that are being deleted, by id.
    pub(super) fn deleting(&self) -> impl Iterator<Item = Uuid> {
        self.deleting.iter().copied()
    }

    /// All summaries, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Summary>> {
        self.summaries.iter().flatten()
    }

    #[cfg(test)]
    pub(super) fn rows(&self) -> usize {
        self.order.len()
    }

    fn place(&self, at: Timestamp, id: Uuid) -> Result<usize, usize> {
        self.order.binary_search(&(at, id))
    }

    /// Puts a summary in place of the one before it, which is returned. Cheap for the newest object; any other that is
    /// not there yet moves all that are newer.
    pub(super) fn set(&mut self, summary: Arc<Summary>) -> Option<Arc<Summary>> {
        self.counted.forget();
        let (at, id) = (summary.created_at, summary.id);
        let moved = self.by_id.get(&id).copied().filter(|known| *known != at);
        let before = moved.and_then(|_| self.remove(id));
        self.by_id.insert(id, at);
        if summary.deleting {
            self.deleting.insert(id);
        } else {
            self.deleting.remove(&id);
        }
        match self.place(at, id) {
            Ok(place) => {
                let slot = self.facts[place].slot;
                let old = self.summaries[place].take();
                if old.is_none() {
                    self.gone -= 1;
                }
                let same = old.as_ref().is_some_and(|old| old.labels == summary.labels);
                if !same {
                    if let Some(old) = &old {
                        self.postings.remove(slot, &old.labels);
                    }
                    self.postings.add(slot, &summary.labels);
                }
                self.facts[place] = self.facts(slot, &summary);
                self.summaries[place] = Some(summary);
                before.or(old)
            }
            Err(place) => {
                let slot = self.next_slot;
                self.next_slot += 1;
                self.postings.add(slot, &summary.labels);
                let facts = self.facts(slot, &summary);
                self.order.insert(place, (at, id));
                self.facts.insert(place, facts);
                self.summaries.insert(place, Some(summary));
                before
            }
        }
    }

    fn facts(&mut self, slot: u32, summary: &Summary) -> Facts {
        Facts {
            slot,
            project: self.projects.code(Arc::clone(&summary.project)),
            cluster: self.clusters.code(summary.cluster),
            creator: self.creators.code(Arc::clone(&summary.created_by)),
            name: digest(&summary.name),
            phase: self.words.code(summary.phase),
            health: self.words.code(summary.health),
            platform: self.words.code(summary.platform),
            state: if summary.deleting { State::Deleting } else { State::Live },
        }
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Option<Arc<Summary>> {
        let at = self.by_id.remove(&id)?;
        self.counted.forget();
        self.deleting.remove(&id);
        let place = self.place(at, id).ok()?;
        let gone = self.summaries[place].take()?;
        self.facts[place].state = State::Gone;
        self.postings.remove(self.facts[place].slot, &gone.labels);
        self.gone += 1;
        // Sweeping costs one pass; doing it when a quarter is gone makes deletes cheap on average.
        if self.gone > 64 && self.gone * 4 > self.order.len() {
            self.sweep();
        }
        Some(gone)
    }

    /// Makes the table anew of what is left: slots and codes that nothing uses any more go as well.
    fn sweep(&mut self) {
        let left = std::mem::take(self);
        left.summaries.into_iter().flatten().for_each(|summary| drop(self.set(summary)));
    }

    /// A page, newest first (equal times by id, so that the order is total), how many match in all, and whether there are
    /// more after the page.
    pub(super) fn find(
        &self,
        filter: &Filter,
        start: Start,
        limit: usize,
    ) -> (Vec<Arc<Summary>>, usize, bool) {
        let mut items = Vec::with_capacity(limit.min(256));
        let (mut seen, mut more) = (0, false);
        let Some(plan) = Plan::of(filter, self) else { return (items, 0, more) };
        let (skip, below) = match start {
            Start::Offset(offset) => (offset, self.order.len()),
            Start::After(cursor) => (0, self.order.partition_point(|row| *row < (cursor.at, cursor.id))),
        };
        let known = self.counted.get(filter);
        let from = if known.is_some() { below } else { self.facts.len() };
        for (place, facts) in self.facts[..from].iter().enumerate().rev() {
            if !plan.wants(facts, || self.summaries[place].as_deref()) {
                continue;
            }
            seen += 1;
            if seen <= skip || place >= below {
                continue;
            }
            match &self.summaries[place] {
                Some(summary) if items.len() < limit => items.push(Arc::clone(summary)),
                _ => more = true,
            }
            if more && known.is_some() {
                break;
            }
        }
        let total = known.unwrap_or_else(|| {
            self.counted.put(filter, seen);
            seen
        });
        (items, total, more)
    }
}

/// A test of one number.
#[derive(Debug)]
struct Test<'f> {
    field: Field,
    equal: bool,
    code: u32,
    /// The text itself, for names: different ones may have the same digest.
    text: &'f str,
}

/// A filter in the numbers of one table.
#[derive(Debug)]
struct Plan<'f> {
    include_deleted: bool,
    projects: Option<Vec<u32>>,
    tests: Vec<Test<'f>>,
    labels: Option<Bits>,
}

impl<'f> Plan<'f> {
    /// `None` when nothing in the table can match.
    fn of(filter: &'f Filter, table: &Table) -> Option<Self> {
        let projects = filter.projects.as_ref().map(|projects| {
            projects.iter().filter_map(|project| table.projects.0.get(project).copied()).collect()
        });
        if projects.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let word = |word: &str| table.words.known(word).map(u32::from);
        let mut tests = Vec::new();
        let mut add = |field, equal, code: Option<u32>, text: &'f str| match code {
            Some(code) => {
                tests.push(Test { field, equal, code, text });
                true
            }
            // Nobody has it: never equal, always different.
            None => !equal,
        };
        let possible = filter
            .cluster
            .is_none_or(|cluster| add(Field::Cluster, true, table.clusters.0.get(&cluster).copied(), ""))
            && filter.phase.is_none_or(|phase| add(Field::Phase, true, word(phase), ""))
            && filter.health.is_none_or(|health| add(Field::Health, true, word(health), ""))
            && filter.name.as_ref().is_none_or(|name| add(Field::Name, true, Some(digest(name)), name))
            && filter.fields.iter().all(|test| {
                let value = test.value.as_str();
                let code = match test.field {
                    Field::Name => Some(digest(value)),
                    Field::Project => table.projects.0.get(value).copied(),
                    Field::CreatedBy => table.creators.0.get(value).copied(),
                    Field::Platform | Field::Phase | Field::Health => word(value),
                    // Only as ids are written: `found_text == value` is what the test means.
                    Field::Cluster => {
                        let id = Uuid::parse_str(value).ok().filter(|id| id.to_string() == value);
                        id.and_then(|id| table.clusters.0.get(&id).copied())
                    }
                };
                add(test.field, test.equal, code, value)
            });
        if !possible {
            return None;
        }
        let live = || table.facts.iter().filter(|facts| facts.state != State::Gone).map(|facts| facts.slot);
        let labels = table.postings.select(&filter.labels, || live().collect());
        Some(Self { include_deleted: filter.include_deleted, projects, tests, labels })
    }

    fn wants<'s>(&self, facts: &Facts, summary: impl Fn() -> Option<&'s Summary>) -> bool {
        let state = match facts.state {
            State::Live => true,
            State::Deleting => self.include_deleted,
            State::Gone => false,
        };
        state
            && self.projects.as_ref().is_none_or(|projects| projects.contains(&facts.project))
            && self.labels.as_ref().is_none_or(|labels| labels.has(facts.slot))
            && self.tests.iter().all(|test| {
                let equal = match test.field {
                    Field::Project => facts.project == test.code,
                    Field::Cluster => facts.cluster == test.code,
                    Field::CreatedBy => facts.creator == test.code,
                    Field::Platform => u32::from(facts.platform) == test.code,
                    Field::Phase => u32::from(facts.phase) == test.code,
                    Field::Health => u32::from(facts.health) == test.code,
                    Field::Name => {
                        facts.name == test.code
                            && summary().is_some_and(|summary| *summary.name == *test.text)
                    }
                };
                equal == test.equal
            })
    }
}

/// FNV-1a: good enough to tell names apart, and the same everywhere.
fn digest(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{
        filter::{FieldTest, LabelSelector},
        index::{Counts, Cursor},
        keys::Kind,
        labels::Labels,
    };
    use muster_model::store::Revision;

    fn summary(number: u128, turn: u128) -> Arc<Summary> {
        let (team, serial) = (format!("t{}", (number + turn) % 4), number.to_string());
        let (team, serial) = (("team", team.as_str()), ("serial", serial.as_str()));
        let labels = if number.is_multiple_of(3) {
            Labels::from([team, ("gpu", "yes"), serial])
        } else {
            Labels::from([team, serial])
        };
        Arc::new(Summary {
            kind: Kind::Pool,
            id: Uuid::from_u128(number),
            project: format!("project-{}", number % 3).into(),
            cluster: Uuid::from_u128(1_000 + number % 5),
            name: format!("pool-{}", number % 50).into(),
            created_by: format!("user-{}", number % 2).into(),
            created_at: Timestamp::from_millis(i64::try_from(number * 7 % 100).unwrap()),
            generation: 1,
            platform: ["gcp", "aws"][usize::try_from(number % 2).unwrap()],
            labels,
            deleting: number.is_multiple_of(11),
            version: Revision(1),
            status_version: Revision::ZERO,
            phase: ["Pending", "Ready"][usize::try_from((number / 2 + turn) % 2).unwrap()],
            health: "Unknown",
            counts: Counts::default(),
            recheck_at: None,
        })
    }

    /// A table after creates, updates and deletes in a wild order.
    fn table() -> Table {
        let mut table = Table::default();
        for step in 0..3_000_u128 {
            let number = step * 7_919 % 400;
            if step.is_multiple_of(5) {
                table.remove(Uuid::from_u128(number));
            } else {
                table.set(summary(number, step / 400));
            }
        }
        table
    }

    #[test]
    fn a_count_is_forgotten_when_a_row_changes() {
        let mut table = table();
        let ready = Filter { phase: Some("Ready"), ..Filter::everything() };
        let count = |table: &Table| table.find(&ready, Start::Offset(0), 1).1;
        let by_hand = |table: &Table| table.iter().filter(|summary| ready.wants(summary)).count();
        assert_eq!((count(&table), count(&table)), (by_hand(&table), by_hand(&table)));
        let first = table.iter().find(|summary| ready.wants(summary)).unwrap().clone();
        table.set(Arc::new(Summary { phase: "Pending", ..(*first).clone() }));
        assert_eq!(count(&table), by_hand(&table));
        table.set(Arc::clone(&first));
        assert_eq!(count(&table), by_hand(&table));
        table.remove(first.id);
        assert_eq!(count(&table), by_hand(&table));
    }

    #[test]
    fn a_page_is_what_the_filter_itself_says_of_every_object() {
        #[track_caller]
        fn check(table: &Table, what: &str, filter: Filter) {
            let mut expected: Vec<Arc<Summary>> =
                table.iter().filter(|summary| filter.wants(summary)).cloned().collect();
            expected.sort_by_key(|summary| std::cmp::Reverse((summary.created_at, summary.id)));
            // Each twice: the second time the count is known.
            let starts = [(0, 10), (0, 10), (0, 1_000), (7, 20), (7, 20), (9_999, 5)];
            for (skip, limit) in starts {
                let (items, total, more) = table.find(&filter, Start::Offset(skip), limit);
                let page: Vec<_> = expected.iter().skip(skip).take(limit).cloned().collect();
                assert_eq!((total, &items), (expected.len(), &page), "{what}");
                assert_eq!(more, skip + limit < expected.len(), "{what}");
                if let Some(last) = items.last() {
                    let cursor = Cursor { at: last.created_at, id: last.id };
                    let (next, total, _) = table.find(&filter, Start::After(cursor), limit);
                    let page: Vec<_> = expected.iter().skip(skip + limit).take(limit).cloned().collect();
                    assert_eq!((total, next), (expected.len(), page), "{what}");
                }
            }
        }
        let table = table();
        assert!(table.len() > 100 && table.rows() < table.len() * 2);
        let all = Filter::everything;
        check(&table, "everything", all());
        check(&table, "deleted", Filter { include_deleted: true, ..all() });
        for project in ["project-1", "none"] {
            check(&table, project, Filter { projects: Some(vec![project.into()]), ..all() });
        }
        check(&table, "cluster", Filter { cluster: Some(Uuid::from_u128(1_002)), ..all() });
        check(&table, "no cluster", Filter { cluster: Some(Uuid::from_u128(9)), ..all() });
        check(&table, "phase", Filter { phase: Some("Ready"), ..all() });
        check(&table, "phase of nobody", Filter { phase: Some("Failed"), ..all() });
        check(&table, "health", Filter { health: Some("Unknown"), ..all() });
        check(&table, "name", Filter { name: Some("pool-7".into()), ..all() });
        for text in [
            "team=t1",
            "team!=t1",
            "team in (t1,t3)",
            "team notin (t1,t3)",
            "gpu",
            "!gpu",
            "gpu,team=t2",
            "!none",
            "none",
            "none!=x",
            "serial=12",
            "serial",
            "!gpu,team notin (t0),serial!=7",
            "gpu=no",
            "team=t9",
        ] {
            check(&table, text, Filter { labels: LabelSelector::parse(text).unwrap(), ..all() });
        }
        let cluster = Uuid::from_u128(1_003);
        let clusters =
            [format!("cluster_id={cluster}"), format!("cluster_id!={cluster}"), "cluster_id!=x".into()];
        let fields = [
            "name=pool-3",
            "name!=pool-3",
            "project=project-2",
            "project!=nobody",
            "created_by=user-1",
            "spec.platform.type=aws",
            "spec.platform.type!=vsphere",
            "status.phase!=Ready,name!=pool-1",
            "status.health=Healthy",
        ];
        for text in clusters.iter().map(String::as_str).chain(fields) {
            check(&table, text, Filter { fields: FieldTest::parse(text).unwrap(), ..all() });
        }
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let mut table = Table::default();
        for number in 0..1_000 {
            table.set(summary(number, 0));
        }
        for number in 0..990 {
            assert!(table.remove(Uuid::from_u128(number)).is_some());
        }
        assert!(table.remove(Uuid::from_u128(3)).is_none());
        assert!(table.rows() < 100, "{} rows are kept", table.rows());
        assert!(table.next_slot < 200, "{} slots are kept", table.next_slot);
        assert_eq!(table.len(), 10);
    }
}
