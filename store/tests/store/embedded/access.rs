//! Opening and closing: who holds it, what a clean stop means.

use std::sync::Arc;

use futures::StreamExt;
use muster_model::store::{Committed, List, Store, StoreError, Txn};
use muster_store::embedded::Embedded;

use crate::support::{options, scratch};

#[tokio::test]
async fn a_store_in_use_names_its_holder() {
    let dir = scratch();
    let first = Embedded::open(dir.path(), options()).expect("a fresh store opens");
    match Embedded::open(dir.path(), options()) {
        Err(error @ StoreError::Locked { .. }) => {
            let text = error.to_string();
            let pid = format!("process {}", std::process::id());
            for part in [&*pid, "`store test`", "2023-11-14T22:13:20Z", &dir.path().display().to_string()] {
                assert!(text.contains(part), "{text:?} does not say {part:?}");
            }
        }
        other => panic!("it was opened twice: {other:?}"),
    }
    first.close().await.expect("it closes");
    Embedded::open(dir.path(), options()).expect("a closed store is free");
}

#[tokio::test]
async fn a_closed_store_answers_with_an_error() {
    let dir = scratch();
    let store = Embedded::open(dir.path(), options()).expect("a fresh store opens");
    store.commit(Txn::new().put("/a", "1")).await.expect("it commits").done();
    let mut watch = store.watch("", store.revision().await.expect("it answers")).await.expect("it watches");
    store.close().await.expect("it closes");
    let closed = |error: Option<StoreError>| {
        assert!(matches!(error, Some(StoreError::Unavailable { .. })), "{error:?}");
    };
    closed(store.get("/a").await.err());
    closed(store.list(List::default()).await.err());
    closed(store.commit(Txn::new().put("/a", "2")).await.err());
    closed(store.revision().await.err());
    closed(store.close().await.err());
    let end = async {
        loop {
            match watch.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Some(error),
                None => return None,
            }
        }
    };
    closed(
        tokio::time::timeout(std::time::Duration::from_mins(1), end)
            .await
            .expect("a watch ends with its store"),
    );
}

#[tokio::test]
async fn what_was_written_is_there_after_a_clean_stop_and_a_drop() {
    let dir = scratch();
    let mut last = muster_model::store::Revision::ZERO;
    for round in 0..4_u32 {
        let store = Embedded::open(dir.path(), options()).expect("it opens");
        assert_eq!(store.revision().await.expect("it answers"), last);
        assert_eq!(store.list(List::default()).await.expect("it lists").entries.len(), round as usize);
        let Committed::Done { revision } =
            store.commit(Txn::new().put(format!("/{round}"), "x")).await.expect("it commits")
        else {
            panic!("it was refused");
        };
        assert!(revision > last);
        last = revision;
        if round % 2 == 0 {
            store.close().await.expect("it closes");
            assert!(dir.path().join("store.clean").exists(), "a clean stop leaves its marker");
        } else {
            drop(Arc::new(store));
            assert!(dir.path().join("store.clean").exists(), "a dropped store stops cleanly too");
        }
    }
    let _open = Embedded::open(dir.path(), options()).expect("it opens");
    assert!(!dir.path().join("store.clean").exists(), "an open store has no marker");
}

trait Done {
    fn done(self);
}

impl Done for Committed {
    fn done(self) {
        assert!(matches!(self, Committed::Done { .. }), "{self:?}");
    }
}
