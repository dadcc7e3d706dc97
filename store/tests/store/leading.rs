//! A candidate that runs by itself, on time that the test moves.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration, Timestamp,
    lease::{Candidate, LeaseConfig},
    store::{Committed, Entry, Fence, List, Page, Revision, Store, StoreError, StoreStats, Txn, WatchStream},
};
use muster_store::memory::Memory;

/// tokio's clock, which stands still until everyone waits for it.
#[derive(Debug)]
struct Paused(tokio::time::Instant);

#[async_trait]
impl Clock for Paused {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed().into()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    async fn sleep(&self, length: Duration) {
        tokio::time::sleep(length.as_std()).await;
    }
}

/// A store that can stop answering.
#[derive(Debug, Default)]
struct Silent {
    store: Memory,
    silent: AtomicBool,
}

impl Silent {
    async fn answer(&self) {
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for Silent {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.answer().await;
        self.store.get(key).await
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.store.list(list).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        self.answer().await;
        self.store.commit(txn).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        self.store.watch(prefix, after).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.store.compact(before).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        self.store.stats().await
    }
}

type Told = Arc<Mutex<Vec<(u64, Option<Fence>)>>>;

/// Runs a candidate, and notes when it was told what, in seconds.
fn spawn(store: &Arc<Silent>, clock: &Arc<Paused>, holder: &str) -> (Told, tokio::task::JoinHandle<()>) {
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    let mut candidate =
        Candidate::new(store, clock.clone(), LeaseConfig::new("leader", holder)).expect("it fits");
    let told = Told::default();
    let notes = Arc::clone(&told);
    let task = tokio::spawn(async move {
        let note = |fence| notes.lock().expect("it is free").push((clock.monotonic().millis() / 1000, fence));
        candidate.run(note).await;
    });
    (told, task)
}

#[allow(clippy::disallowed_methods, reason = "moves the paused clock")]
async fn pass(seconds: u64) {
    tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_running_leader_stops_in_time_and_another_follows() {
    let clock = Arc::new(Paused(tokio::time::Instant::now()));
    let store = Arc::new(Silent::default());
    let (a, running) = spawn(&store, &clock, "a");
    pass(1).await;
    let (b, _other) = spawn(&store, &clock, "b");
    pass(60).await;
    let first = a.lock().expect("it is free").clone();
    assert_eq!(first.len(), 1, "a leader that renews is told once: {first:?}");
    assert!(first[0].1.is_some() && b.lock().expect("it is free").is_empty());

    // The store falls silent: the leader stops by itself, within its deadline, and nobody follows.
    store.silent.store(true, Ordering::SeqCst);
    pass(60).await;
    let then = a.lock().expect("it is free").clone();
    assert_eq!(then.len(), 2, "{then:?}");
    assert!(then[1].1.is_none() && then[1].0 <= 61 + 10, "told at {} s", then[1].0);
    assert!(b.lock().expect("it is free").is_empty(), "nobody leads without a store");

    // It answers again, without the old leader: the other one takes over, in a new epoch.
    running.abort();
    store.silent.store(false, Ordering::SeqCst);
    pass(60).await;
    let other = b.lock().expect("it is free").clone();
    let (old, new) = (first[0].1.clone().expect("it led"), other[0].1.clone().expect("it leads"));
    assert!(other.len() == 1 && new.epoch > old.epoch, "{other:?}");
    let late = store.commit(Txn::new().fenced(&old).put("/x", "1")).await.expect("it answers");
    assert!(matches!(late, Committed::Refused { .. }));
}
