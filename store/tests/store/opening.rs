//! From what the user wrote to a store that is ready.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use muster_model::store::{Committed, Store, StoreError, Txn};
use muster_store::{FORMAT_KEY, Migration, OpenOptions, Target, memory::Memory, open, portable, upgrade};

use crate::support::{Still, cluster, scratch};

fn with() -> OpenOptions {
    OpenOptions { etcd: cluster::options(), ..OpenOptions::new("store test", Arc::new(Still)) }
}

async fn put(store: &dyn Store, key: &str, value: &str) {
    let done = store.commit(Txn::new().put(key, value.to_owned())).await.expect("it commits");
    assert!(matches!(done, Committed::Done { .. }));
}

async fn opens_and_closes(target: Target, options: OpenOptions) {
    let store = open(&target, options.clone()).await.expect("it opens");
    put(&*store, "/a", "1").await;
    assert_eq!(store.get(FORMAT_KEY).await.expect("it reads").expect("it is there").value, r#"{"format":1}"#);
    store.close().await.expect("it closes");
    let store = open(&target, options.clone()).await.expect("it opens again");
    assert!(store.get("/a").await.expect("it reads").is_some());

    put(&*store, FORMAT_KEY, r#"{"format":2}"#).await;
    store.close().await.expect("it closes");
    match open(&target, options.clone()).await {
        Err(StoreError::Format { found: 2, newest: 1, .. }) => {}
        other => panic!("something newer was opened: {other:?}"),
    }
    let store =
        open(&target, OpenOptions { check_format: false, ..options.clone() }).await.expect("unlooked-at");
    put(&*store, FORMAT_KEY, r#"{"format":1}"#).await;
    let mark =
        r#"{"revision":1,"exported":"2025-10-17T10:00:00Z","imported":"2025-10-17T10:00:00Z","sha256":"x"}"#;
    put(&*store, portable::RESTORING_KEY, mark).await;
    store.close().await.expect("it closes");
    match open(&target, options).await {
        Err(error @ StoreError::Damaged { .. }) => {
            assert!(error.to_string().contains("not finished"), "{error}");
        }
        other => panic!("something half restored was opened: {other:?}"),
    }
}

#[tokio::test]
async fn a_directory_is_opened_checked_and_closed() {
    let dir = scratch();
    opens_and_closes(Target::Directory(dir.path().join("deep/below")), with()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_opened_checked_and_closed() {
    let cluster = cluster::shared().await;
    let _alone = cluster::alone().await;
    let target = Target::parse(&format!("etcd://{}", cluster.endpoints.join(","))).expect("it is a target");
    let mut options = with();
    options.etcd.root = "/opening".to_owned();
    opens_and_closes(target, options).await;
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_unavailable() {
    let target = Target::parse("etcd://127.0.0.1:1,127.0.0.1:2").expect("it is a target");
    let mut options = with();
    options.etcd.call_timeout = std::time::Duration::from_secs(1);
    match open(&target, options).await {
        Err(StoreError::Unavailable { store, why }) => {
            assert_eq!(store, "etcd://127.0.0.1:1,127.0.0.1:2");
            assert!(why.contains("127.0.0.1:"), "{why}");
        }
        other => panic!("nobody was opened: {other:?}"),
    }
}

/// Counts how often it ran, and fails the first time.
struct Step {
    from: u32,
    runs: AtomicU32,
}

#[async_trait]
impl Migration for Step {
    fn from(&self) -> u32 {
        self.from
    }

    async fn run(&self, store: &dyn Store) -> Result<(), StoreError> {
        if self.runs.fetch_add(1, Ordering::SeqCst) == 0 && self.from == 2 {
            return Err(StoreError::Unavailable { store: "test".to_owned(), why: "cut off".to_owned() });
        }
        put(store, &format!("/migrated/{}", self.from), "yes").await;
        Ok(())
    }
}

#[tokio::test]
async fn something_older_is_saved_then_migrated_step_by_step() {
    let dir = scratch();
    let store = Memory::default();
    put(&store, "/muster/old", "1").await;
    put(&store, FORMAT_KEY, r#"{"format":1}"#).await;
    let (one, two) = (Step { from: 1, runs: AtomicU32::new(0) }, Step { from: 2, runs: AtomicU32::new(0) });
    let steps: [&dyn Migration; 2] = [&one, &two];
    let refused = upgrade(&store, 3, &steps, None, &Still).await.expect_err("without a place for a backup");
    assert!(refused.to_string().contains("backup"), "{refused}");
    upgrade(&store, 3, &steps, Some(dir.path()), &Still).await.expect_err("the second step fails at first");
    let saved = std::fs::read(dir.path().join("backup-format-1.jsonl")).expect("it was saved first");
    assert_eq!(portable::verify(&saved[..]).expect("it is sound").count, 2);
    upgrade(&store, 3, &steps, Some(dir.path()), &Still).await.expect("it goes on where it was");
    assert_eq!((one.runs.load(Ordering::SeqCst), two.runs.load(Ordering::SeqCst)), (1, 2));
    assert_eq!(store.get(FORMAT_KEY).await.expect("it reads").expect("it is there").value, r#"{"format":3}"#);
    assert!(store.get("/migrated/2").await.expect("it reads").is_some());
    upgrade(&store, 3, &[], None, &Still).await.expect("nothing is left to do");
    let unknown = upgrade(&store, 5, &[], Some(dir.path()), &Still).await.expect_err("nobody knows how");
    assert!(matches!(unknown, StoreError::Damaged { .. }), "{unknown}");
}
