//! What every store must do, as cases that run on any of them.
//!
//! A case works under a prefix of its own, but it looks at revisions, which are the whole store's: run one
//! case at a time on a store, and nothing else beside it. [`conformance_tests!`](crate::conformance_tests)
//! makes one test of each case:
//!
//! ```ignore
//! async fn fixture(case: &'static str) -> Fixture { … }
//! muster_store::conformance_tests!(fixture);
//! ```
//!
//! A case that finds a fault panics.

mod commits;
mod history;
mod leases;
mod lists;
mod watches;

use std::{any::Any, collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use muster_model::store::{
    Change, Committed, Entry, Expect, List, Revision, Store, StoreError, Txn, WatchEvent, WatchStream,
};

/// A store to run a case on, and whatever must live as long.
#[derive(Debug)]
pub struct Fixture {
    pub store: Arc<dyn Store>,
    /// Dropped after the case: a directory, a cluster, a lock.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    run: fn(World) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

impl Case {
    pub async fn run(&self, store: Arc<dyn Store>) {
        (self.run)(World { store, root: format!("/conformance/{}", self.name) }).await;
    }
}

/// Runs the case called `name`.
pub async fn run(name: &str, store: Arc<dyn Store>) {
    let case = CASES.iter().find(|case| case.name == name).expect("there is no case of that name");
    case.run(store).await;
}

macro_rules! cases {
    ($dollar:tt $($module:ident: $($name:ident)*;)*) => {
        /// All cases.
        pub const CASES: &[Case] = &[
            $($(Case { name: stringify!($name), run: |world| Box::pin($module::$name(world)) },)*)*
        ];

        /// Makes a test of every case, on what `$make` (an async function from the case's name to a
        /// [`Fixture`](crate::conformance::Fixture)) returns.
        #[macro_export]
        macro_rules! conformance_tests {
            ($dollar make:path) => {
                $($(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $name() {
                        let fixture = $dollar make(stringify!($name)).await;
                        $dollar crate::conformance::run(
                            stringify!($name),
                            std::sync::Arc::clone(&fixture.store),
                        )
                        .await;
                        fixture.store.close().await.expect("the store closes");
                        drop(fixture);
                    }
                )*)*
            };
        }
    };
}

cases! {
    $
    commits:
        an_entry_tells_when_it_was_made
        absent_is_not_empty
        values_are_any_bytes
        create_only_if_absent
        replace_only_the_expected_revision
        expecting_a_key_to_exist
        a_refusal_names_the_first_that_failed
        a_commit_is_all_or_nothing
        a_commit_without_comparisons_or_writes
        a_recreated_key_is_a_new_key
        deleting_what_is_absent_is_no_change
        an_idle_commit_takes_no_revision
        the_same_value_again_is_a_change
        revisions_only_grow
        a_key_is_written_once_per_commit
        what_is_too_large_is_refused
        what_is_just_small_enough_is_taken
        keys_that_are_no_paths_are_refused
        one_of_many_wins_each_round;
    lists:
        a_prefix_is_not_a_path
        the_order_is_that_of_bytes
        an_empty_prefix_means_everything
        pages_join_to_the_whole
        pages_show_one_moment_while_others_write
        the_past_is_as_it_was
        the_future_is_an_error
        keys_without_values
        a_page_after_a_foreign_key
        many_keys_come_in_several_pages;
    watches:
        a_watch_from_now_hears_what_comes
        a_watch_from_the_past_catches_up
        a_watch_from_the_future_is_refused
        a_commit_is_one_event
        a_watch_hears_only_its_prefix
        every_change_once_and_in_order
        a_watch_resumes_where_it_stopped
        a_slow_watcher_blocks_nobody
        watches_that_are_dropped_leave_nothing
        a_listed_state_and_a_watch_join_without_a_gap;
    history:
        compacted_history_is_a_distinct_error
        compaction_keeps_the_present
        compaction_can_be_repeated
        a_watch_overtaken_by_compaction_says_so
        numbers_about_the_store
        revisions_can_be_moved_on;
    leases:
        one_of_two_candidates_leads
        a_silent_leader_is_replaced
        a_leader_stops_before_it_is_replaced
        a_replaced_leader_cannot_write
        renewing_keeps_the_epoch
        a_released_lease_is_free_at_once
        a_sole_candidate_does_not_wait
        a_wall_clock_that_jumps_changes_nothing
        an_unanswered_renewal_is_found_again;
}

/// How long a case waits for what must come. Generous: slow machines are not faults.
const PATIENCE: Duration = Duration::from_mins(1);

/// A store, and the part of it that belongs to the case.
#[derive(Debug, Clone)]
struct World {
    store: Arc<dyn Store>,
    root: String,
}

impl World {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    async fn commit(&self, txn: Txn) -> Committed {
        self.store.commit(txn).await.expect("the store commits")
    }

    /// Commits what must not be refused.
    async fn done(&self, txn: Txn) -> Revision {
        match self.commit(txn).await {
            Committed::Done { revision } => revision,
            Committed::Refused { failed, found } => panic!("comparison {failed} was refused: {found:?}"),
        }
    }

    async fn put(&self, name: &str, value: impl Into<Bytes>) -> Revision {
        self.done(Txn::new().put(self.key(name), value)).await
    }

    async fn delete(&self, name: &str) -> Revision {
        self.done(Txn::new().delete(self.key(name))).await
    }

    async fn get(&self, name: &str) -> Option<Entry> {
        self.store.get(&self.key(name)).await.expect("the store reads")
    }

    async fn value(&self, name: &str) -> Option<Bytes> {
        self.get(name).await.map(|entry| entry.value)
    }

    async fn revision(&self) -> Revision {
        self.store.revision().await.expect("the store knows its revision")
    }

    /// All of the case's entries, page by page, at one moment.
    async fn all(&self, prefix: &str, at: Option<Revision>, limit: usize) -> (Vec<Entry>, Revision) {
        all(&*self.store, prefix, at, limit).await.expect("the store lists")
    }

    /// Short keys (without the case's root and slash) of all entries under `prefix`.
    async fn names(&self, prefix: &str, at: Option<Revision>) -> Vec<String> {
        let (entries, _) = self.all(prefix, at, 0).await;
        let start = format!("{}/", self.root);
        entries.iter().map(|entry| entry.key.strip_prefix(&start).unwrap_or(&entry.key).to_owned()).collect()
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Events {
        let stream = self.store.watch(prefix, after).await.expect("the store watches");
        Events { stream, last: after }
    }
}

async fn all(
    store: &dyn Store,
    prefix: &str,
    at: Option<Revision>,
    limit: usize,
) -> Result<(Vec<Entry>, Revision), StoreError> {
    let mut list = List { limit, at, ..List::prefix(prefix) };
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let page = store.list(list.clone()).await?;
        assert!(limit == 0 || page.entries.len() <= limit, "a page is larger than asked for");
        assert!(!page.more || !page.entries.is_empty(), "an empty page cannot be continued");
        if let Some(at) = list.at {
            assert_eq!(page.revision, at, "a page shows another moment than asked for");
        }
        entries.extend(page.entries);
        if !page.more {
            return Ok((entries, page.revision));
        }
        list.at = Some(page.revision);
        list.after = entries.last().map(|entry| entry.key.clone());
    }
}

/// A watch whose promises are checked with every event.
struct Events {
    stream: WatchStream,
    last: Revision,
}

impl Events {
    /// The next commit's changes. Panics when nothing comes.
    async fn next(&mut self) -> Vec<Change> {
        match self.try_next().await {
            Ok(changes) => changes,
            Err(error) => panic!("the watch failed: {error}"),
        }
    }

    async fn try_next(&mut self) -> Result<Vec<Change>, StoreError> {
        loop {
            let event = tokio::time::timeout(PATIENCE, self.stream.next())
                .await
                .expect("the watch says something in time")
                .expect("a watch does not end without an error")?;
            match event {
                WatchEvent::Progress(revision) => {
                    assert!(revision >= self.last, "progress {revision} goes back behind {}", self.last);
                    self.last = revision;
                }
                WatchEvent::Changes(changes) => {
                    self.check(&changes);
                    return Ok(changes);
                }
            }
        }
    }

    fn check(&mut self, changes: &[Change]) {
        let revision = changes.first().expect("an event without changes says nothing").revision;
        assert!(revision > self.last, "commit {revision} came after {}", self.last);
        assert!(changes.iter().all(|change| change.revision == revision), "one event, several commits");
        assert!(changes.is_sorted_by(|a, b| a.key < b.key), "changes are not in the order of their keys");
        for change in changes {
            if let Some(entry) = &change.entry {
                assert_eq!((&entry.key, entry.modified), (&change.key, revision));
                assert!(entry.created <= revision && entry.created > Revision::ZERO);
            }
        }
        self.last = revision;
    }
}

/// Changes as short text, to compare with: `name=value` or `-name`.
fn brief(root: &str, changes: &[Change]) -> Vec<String> {
    let short = |key: &str| key.strip_prefix(root).unwrap_or(key).trim_start_matches('/').to_owned();
    changes
        .iter()
        .map(|change| match &change.entry {
            Some(entry) => format!("{}={}", short(&change.key), String::from_utf8_lossy(&entry.value)),
            None => format!("-{}", short(&change.key)),
        })
        .collect()
}

/// What a watch has told, applied to what was listed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replica(BTreeMap<String, Entry>);

impl Replica {
    fn of(entries: Vec<Entry>) -> Self {
        Self(entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect())
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change.entry {
                Some(entry) => self.0.insert(change.key, entry),
                None => self.0.remove(&change.key),
            };
        }
    }
}

fn absent(key: impl Into<String>) -> Txn {
    Txn::new().expect(key, Expect::Absent)
}
