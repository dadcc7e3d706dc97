//! History stays within its bounds, and many writers share the disk.

use std::sync::Arc;

use futures::StreamExt;
use muster_model::store::{List, Revision, Store, StoreError, Txn, WatchEvent};
use muster_store::embedded::{Embedded, HistoryLimits};

use crate::support::{cluster::wait, options, scratch};

async fn put(store: &dyn Store, key: &str, value: Vec<u8>) -> Revision {
    match store.commit(Txn::new().put(key, value)).await.expect("it commits") {
        muster_model::store::Committed::Done { revision } => revision,
        refused @ muster_model::store::Committed::Refused { .. } => panic!("{refused:?}"),
    }
}

/// Waits until the store has trimmed its history so that `oldest` is at least this.
async fn trimmed(store: &dyn Store, at_least: Revision) -> Revision {
    for _ in 0..2_400 {
        let oldest = store.stats().await.expect("it has numbers").oldest;
        if oldest >= at_least {
            return oldest;
        }
        wait(std::time::Duration::from_millis(50)).await;
    }
    panic!("history was not trimmed");
}

#[tokio::test]
async fn history_is_bounded_by_commits() {
    let dir = scratch();
    let limits = HistoryLimits { commits: 50, ..HistoryLimits::default() };
    let store = Embedded::open(dir.path(), embedded(limits)).expect("it opens");
    let mut last = Revision::ZERO;
    for n in 0..300_u32 {
        last = put(&store, &format!("/{}", n % 7), n.to_string().into_bytes()).await;
    }
    let oldest = trimmed(&store, Revision(last.0 - 50)).await;
    assert_eq!(oldest, Revision(last.0 - 50), "exactly the last 50 commits are kept");
    let gone = store.list(List { at: Some(Revision(oldest.0 - 1)), ..List::default() }).await;
    assert!(matches!(gone, Err(StoreError::Compacted { .. })), "{gone:?}");
    // Everything within the bounds is whole: the past, and a watch over it.
    let page = store.list(List { at: Some(oldest), ..List::default() }).await.expect("it lists");
    assert_eq!(page.entries.len(), 7);
    assert!(page.entries.iter().all(|entry| entry.modified <= oldest));
    let mut watch = store.watch("", oldest).await.expect("it watches");
    let mut heard = 0;
    while heard < 50 {
        if let WatchEvent::Changes(changes) =
            watch.next().await.expect("it goes on").expect("it does not fail")
        {
            heard += 1;
            assert_eq!(changes[0].revision, Revision(oldest.0 + heard));
        }
    }
    store.close().await.expect("it closes");
    Embedded::open(dir.path(), embedded(limits)).expect("and it opens again");
}

#[tokio::test]
async fn history_is_bounded_by_bytes() {
    let dir = scratch();
    let limits = HistoryLimits { bytes: 1 << 20, ..HistoryLimits::default() };
    let store = Embedded::open(dir.path(), embedded(limits)).expect("it opens");
    let mut last = Revision::ZERO;
    for n in 0..200_u8 {
        last = put(&store, "/large", vec![n; 64 << 10]).await;
    }
    // 16 values of 64 KiB are one MiB; some room for the records themselves.
    trimmed(&store, Revision(last.0 - 17)).await;
    let size = std::fs::metadata(dir.path().join("store.redb")).expect("it is there").len();
    assert!(size < 16 << 20, "the file has {size} bytes for 1 MiB of history");
}

#[tokio::test]
async fn compaction_frees_what_it_forgets() {
    let dir = scratch();
    let store = Embedded::open(dir.path(), options()).expect("it opens");
    let mut last = Revision::ZERO;
    for n in 0..3000_u32 {
        last = put(&store, &format!("/{}", n % 10), vec![0; 100]).await;
    }
    store.compact(last).await.expect("it compacts");
    trimmed(&store, last).await;
    store.close().await.expect("it closes");
    let store = Embedded::open(dir.path(), options()).expect("it opens");
    let stats = store.stats().await.expect("it has numbers");
    assert_eq!((stats.keys, stats.oldest, stats.revision), (10, last, last));
}

/// Not a benchmark: it fails only when every commit waits for a disk of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_share_the_disk() {
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    struct Count(AtomicU64);
    impl muster_store::embedded::Faults for Count {
        fn sync(&self) -> std::io::Result<()> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    let dir = scratch();
    let syncs = Arc::new(Count::default());
    let mut with = options();
    with.faults = Some(syncs.clone());
    let store = Arc::new(Embedded::open(dir.path(), with).expect("it opens"));
    let before = syncs.0.load(Ordering::SeqCst);
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..20 {
                    put(&*store, &format!("/{writer}/{n}"), vec![b'x'; 2000]).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("it finishes");
    }
    let used = syncs.0.load(Ordering::SeqCst) - before;
    assert!(used < 64 * 20 / 2, "{used} syncs for {} commits", 64 * 20);
    assert_eq!(store.stats().await.expect("it has numbers").keys, 64 * 20);
}

fn embedded(history: HistoryLimits) -> muster_store::embedded::Options {
    muster_store::embedded::Options { history, ..options() }
}
