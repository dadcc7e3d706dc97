//! Disks that are full, read-only, or fail.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures::future::join_all;
use muster_model::store::{Committed, Store, StoreError, Txn};
use muster_store::embedded::{Embedded, Faults};

use crate::support::{options, scratch};

/// A disk with a quota, and other ways to fail.
#[derive(Debug)]
struct Disk {
    quota: AtomicU64,
    read_only: AtomicBool,
    /// Syncs that still succeed.
    syncs: AtomicU64,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            quota: AtomicU64::new(u64::MAX),
            read_only: AtomicBool::new(false),
            syncs: AtomicU64::new(u64::MAX),
        }
    }
}

impl Faults for Disk {
    fn write(&self, end: u64, _: usize) -> io::Result<()> {
        if self.read_only.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem));
        }
        if end > self.quota.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let left = self.syncs.load(Ordering::SeqCst);
        if left == 0 {
            return Err(io::Error::other("the disk is dying"));
        }
        if left != u64::MAX {
            self.syncs.store(left - 1, Ordering::SeqCst);
        }
        Ok(())
    }
}

fn on(disk: &Arc<Disk>) -> muster_store::embedded::Options {
    muster_store::embedded::Options { faults: Some(Arc::clone(disk) as Arc<dyn Faults>), ..options() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_r13_a_full_disk_refuses_writes_and_loses_nothing() {
    let dir = scratch();
    let disk = Arc::new(Disk::default());
    let store = Arc::new(Embedded::open(dir.path(), on(&disk)).expect("it opens"));
    for n in 0..20 {
        commit(&*store, &format!("/before/{n}")).await.expect("there is room");
    }
    let size = std::fs::metadata(dir.path().join("store.redb")).expect("it is there").len();
    disk.quota.store(size, Ordering::SeqCst);
    let mut kept = Vec::new();
    let mut refused = 0;
    for round in 0..100 {
        let outcomes = join_all((0..16).map(|n| {
            let store = Arc::clone(&store);
            async move {
                let key = format!("/during/{round}/{n}");
                (key.clone(), commit(&*store, &key).await)
            }
        }));
        for (key, outcome) in outcomes.await {
            match outcome {
                Ok(()) => kept.push(key),
                Err(StoreError::Full { why, .. }) => {
                    assert!(why.contains("make room"), "{why}");
                    refused += 1;
                }
                Err(error) => panic!("a full disk gave {error}"),
            }
        }
        // Reads go on.
        assert!(store.get("/before/3").await.expect("a full disk can be read").is_some());
    }
    assert!(refused > 0, "the disk never filled up");
    disk.quota.store(u64::MAX, Ordering::SeqCst);
    commit(&*store, "/after").await.expect("with room, writes go on by themselves");
    for key in &kept {
        assert!(store.get(key).await.expect("it reads").is_some(), "{key} was acknowledged and is lost");
    }
    let keys = store.stats().await.expect("it has numbers").keys;
    assert_eq!(keys, 21 + kept.len() as u64, "what was refused is not there");
    store.close().await.expect("it closes");
    let store = Embedded::open(dir.path(), options()).expect("it opens again");
    assert_eq!(store.stats().await.expect("it has numbers").keys, keys);
}

#[tokio::test]
async fn a_disk_that_becomes_read_only_says_so() {
    let dir = scratch();
    let disk = Arc::new(Disk::default());
    let store = Embedded::open(dir.path(), on(&disk)).expect("it opens");
    commit(&store, "/a").await.expect("it commits");
    disk.read_only.store(true, Ordering::SeqCst);
    match commit(&store, "/b").await {
        Err(StoreError::Full { why, .. }) => assert!(why.contains("for writing"), "{why}"),
        other => panic!("a read-only disk gave {other:?}"),
    }
    disk.read_only.store(false, Ordering::SeqCst);
    commit(&store, "/c").await.expect("it recovers");
    assert!(store.get("/a").await.expect("it reads").is_some());
    assert!(store.get("/b").await.expect("it reads").is_none());
}

#[tokio::test]
async fn ops_r13_a_failed_sync_is_never_an_acknowledgement_of_nothing() {
    // Wherever in a commit the disk fails: what is acknowledged is there, what is refused is not.
    for syncs in 0..4 {
        let dir = scratch();
        let disk = Arc::new(Disk::default());
        let store = Embedded::open(dir.path(), on(&disk)).expect("it opens");
        commit(&store, "/a").await.expect("it commits");
        disk.syncs.store(syncs, Ordering::SeqCst);
        let mut outcomes = Vec::new();
        for n in 0..4 {
            let key = format!("/b{n}");
            let outcome = commit(&store, &key).await;
            outcomes.push((key, outcome));
        }
        disk.syncs.store(u64::MAX, Ordering::SeqCst);
        commit(&store, "/c").await.expect("it recovers");
        drop(store);
        let store = Embedded::open(dir.path(), options()).expect("it opens again");
        assert!(store.get("/a").await.expect("it reads").is_some());
        assert!(store.get("/c").await.expect("it reads").is_some());
        assert!(outcomes.iter().any(|(_, outcome)| outcome.is_err()), "no sync failed");
        for (key, outcome) in outcomes {
            let there = store.get(&key).await.expect("it reads").is_some();
            match outcome {
                Ok(()) => assert!(there, "{key} was acknowledged and is lost"),
                Err(StoreError::Ambiguous { .. }) => {}
                Err(error) => assert!(!there, "{key} was refused ({error}) and is there"),
            }
        }
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_says_so() {
    let dir = scratch();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("a file can be written");
    let error = Embedded::open(file.join("below"), options()).expect_err("a file is no directory");
    assert!(error.to_string().contains("file/below"), "{error}");

    let disk = Arc::new(Disk::default());
    disk.read_only.store(true, Ordering::SeqCst);
    let error = Embedded::open(dir.path().join("new"), on(&disk)).expect_err("it cannot be created");
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    disk.read_only.store(false, Ordering::SeqCst);
    Embedded::open(dir.path().join("new"), on(&disk)).expect("the failed attempt is no obstacle");
}

async fn commit(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    match store.commit(Txn::new().put(key, vec![b'x'; 3000])).await? {
        Committed::Done { .. } => Ok(()),
        refused @ Committed::Refused { .. } => panic!("{refused:?}"),
    }
}
