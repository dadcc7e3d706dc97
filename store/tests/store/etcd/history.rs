//! A workload that keeps a record of itself, and the judge of that record.
//!
//! Writers count a shared number up by compare-and-set, and each puts keys of its own. A watcher hears all of
//! it. Afterwards: no acknowledged write is lost, no compare-and-set was accepted twice, and the watcher heard
//! every change once and in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use muster_model::store::{Committed, Expect, List, Revision, Store, StoreError, Txn, WatchEvent};
use muster_store::etcd::Etcd;
use tokio::task::JoinHandle;

use crate::support::cluster::wait;

const WRITERS: u64 = 6;
const PATIENCE: Duration = Duration::from_secs(90);

/// What one writer knows.
#[derive(Debug, Default)]
struct Record {
    /// Keys that were acknowledged, with their revisions.
    acknowledged: BTreeMap<String, Revision>,
    /// Keys of commits whose outcome the store could not tell.
    ambiguous: BTreeSet<String>,
    /// Numbers that this writer counted up to.
    counted: Vec<u64>,
    /// Counts whose outcome the store could not tell.
    perhaps_counted: Vec<u64>,
    failed: usize,
}

#[derive(Debug)]
pub(super) struct Workload {
    store: Arc<Etcd>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Record>>,
    watcher: JoinHandle<Vec<(Revision, Vec<String>)>>,
    start: Revision,
}

impl Workload {
    pub(super) async fn start(store: Arc<Etcd>) -> Self {
        let Committed::Done { revision: start } =
            store.commit(Txn::new().put("/load/count", "0")).await.expect("it commits")
        else {
            panic!("an unconditional commit was refused");
        };
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let watcher = tokio::spawn(watch(Arc::clone(&store), start));
        let writers = (0..WRITERS)
            .map(|writer| {
                tokio::spawn(write(Arc::clone(&store), Arc::clone(&stop), Arc::clone(&done), writer))
            })
            .collect();
        Self { store, stop, done, writers, watcher, start }
    }

    /// Waits until this many more commits were acknowledged.
    pub(super) async fn more(&self, commits: u64) {
        let target = self.done.load(Ordering::SeqCst) + commits;
        let arrived = async {
            while self.done.load(Ordering::SeqCst) < target {
                wait(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, arrived).await.expect("writes go on");
    }

    /// Stops, and judges. Returns how many commits were acknowledged.
    pub(super) async fn judge(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        let mut records = Vec::new();
        for writer in self.writers {
            let ended = tokio::time::timeout(PATIENCE, writer).await.expect("the writer stops");
            records.push(ended.expect("the writer did not panic"));
        }
        // The watcher ends when it hears this.
        let store = &*self.store;
        let last = tokio::time::timeout(PATIENCE, async {
            loop {
                match store.commit(Txn::new().put("/load/end", "x")).await {
                    Ok(Committed::Done { revision }) => return revision,
                    Ok(refused) => panic!("{refused:?}"),
                    Err(_) => wait(Duration::from_millis(100)).await,
                }
            }
        });
        let last = last.await.expect("the store comes back");
        let heard = tokio::time::timeout(PATIENCE, self.watcher).await.expect("the watcher hears the end");
        let heard = heard.expect("the watcher did not panic");
        judge_writes(store, &records).await;
        judge_counts(store, &records).await;
        judge_watch(&heard, &records, self.start, last);
        records.iter().map(|record| record.acknowledged.len()).sum()
    }
}

async fn write(store: Arc<Etcd>, stop: Arc<AtomicBool>, done: Arc<AtomicU64>, writer: u64) -> Record {
    let mut record = Record::default();
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        n += 1;
        let key = format!("/load/{writer}/{n}");
        match store.commit(Txn::new().expect(&key, Expect::Absent).put(&key, "x")).await {
            Ok(Committed::Done { revision }) => {
                done.fetch_add(1, Ordering::SeqCst);
                record.acknowledged.insert(key, revision);
            }
            Ok(refused) => panic!("a key of its own was refused to a writer: {refused:?}"),
            Err(StoreError::Ambiguous { .. }) => _ = record.ambiguous.insert(key),
            Err(StoreError::Unavailable { .. }) => record.failed += 1,
            Err(error) => panic!("the store failed with {error}"),
        }
        let Ok(Some(entry)) = store.get("/load/count").await else { continue };
        let next = 1 + String::from_utf8_lossy(&entry.value).parse::<u64>().expect("it is a number");
        let txn = Txn::new()
            .expect("/load/count", Expect::Modified(entry.modified))
            .put("/load/count", next.to_string());
        match store.commit(txn).await {
            Ok(Committed::Done { .. }) => record.counted.push(next),
            Ok(Committed::Refused { .. }) | Err(StoreError::Unavailable { .. }) => {}
            Err(StoreError::Ambiguous { .. }) => record.perhaps_counted.push(next),
            Err(error) => panic!("the store failed with {error}"),
        }
    }
    record
}

async fn watch(store: Arc<Etcd>, start: Revision) -> Vec<(Revision, Vec<String>)> {
    let mut heard = Vec::new();
    let mut stream = store.watch("/load/", start).await.expect("it watches");
    loop {
        match stream.next().await.expect("a watch goes on").expect("a watch survives") {
            WatchEvent::Progress(_) => {}
            WatchEvent::Changes(changes) => {
                let keys: Vec<String> = changes.iter().map(|change| change.key.clone()).collect();
                heard.push((changes[0].revision, keys));
                if changes.iter().any(|change| change.key == "/load/end") {
                    return heard;
                }
            }
        }
    }
}

async fn judge_writes(store: &dyn Store, records: &[Record]) {
    let mut found = BTreeMap::new();
    let mut list = List::prefix("/load/");
    loop {
        let page = store.list(list.clone()).await.expect("it lists");
        found.extend(page.entries.iter().map(|entry| (entry.key.clone(), entry.modified)));
        if !page.more {
            break;
        }
        list.at = Some(page.revision);
        list.after = page.entries.last().map(|entry| entry.key.clone());
    }
    let mut expected = BTreeSet::from(["/load/count", "/load/end"]);
    for record in records {
        for (key, revision) in &record.acknowledged {
            assert_eq!(found.get(key), Some(revision), "{key} was acknowledged at {revision}");
            expected.insert(key);
        }
        expected.extend(record.ambiguous.iter().map(String::as_str));
    }
    for key in found.keys() {
        assert!(expected.contains(key.as_str()), "{key} was reported as not written, and is there");
    }
}

async fn judge_counts(store: &dyn Store, records: &[Record]) {
    let mut counted: Vec<u64> = records.iter().flat_map(|record| record.counted.clone()).collect();
    counted.sort_unstable();
    let before = counted.len();
    counted.dedup();
    assert_eq!(counted.len(), before, "a compare-and-set was accepted twice");
    let entry = store.get("/load/count").await.expect("it reads").expect("it is there");
    let last: u64 = String::from_utf8_lossy(&entry.value).parse().expect("it is a number");
    let perhaps: BTreeSet<u64> = records.iter().flat_map(|record| record.perhaps_counted.clone()).collect();
    let known: BTreeSet<u64> = counted.iter().copied().collect();
    for number in 1..=last {
        assert!(
            known.contains(&number) || perhaps.contains(&number),
            "nobody knows of having counted {number}"
        );
    }
    assert!(known.iter().all(|number| *number <= last), "a count that was acknowledged is lost");
}

fn judge_watch(heard: &[(Revision, Vec<String>)], records: &[Record], start: Revision, last: Revision) {
    assert!(heard.is_sorted_by(|a, b| a.0 < b.0), "a watch heard something twice or out of order");
    assert!(heard.first().is_some_and(|(revision, _)| *revision > start));
    assert_eq!(heard.last().map(|(revision, _)| *revision), Some(last));
    let by_key: BTreeMap<&str, Revision> =
        heard.iter().flat_map(|(revision, keys)| keys.iter().map(|key| (key.as_str(), *revision))).collect();
    for record in records {
        for (key, revision) in &record.acknowledged {
            assert_eq!(by_key.get(key.as_str()), Some(revision), "the watch did not hear of {key}");
        }
    }
    let counts = heard.iter().filter(|(_, keys)| keys.iter().any(|key| key == "/load/count")).count();
    let counted: usize = records.iter().map(|record| record.counted.len()).sum();
    assert!(counts >= counted, "the watch heard of {counts} counts out of {counted}");
}
