//! Files that were cut, emptied, overwritten or lost: an error that says what to do, never a panic, never a
//! wrong answer.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use futures::StreamExt;
use muster_model::store::{Committed, List, Revision, Store, StoreError, Txn, WatchEvent};
use muster_store::embedded::Embedded;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::support::{options, scratch};

type Contents = BTreeMap<String, Vec<u8>>;

/// A store with some hundred keys and a history, stopped cleanly or not.
async fn filled(dir: &Path, cleanly: bool) -> Contents {
    let store = Embedded::open(dir, options()).expect("it opens");
    let mut contents = Contents::new();
    for n in 0..600_u32 {
        let key = format!("/k/{:03}", n * 7 % 250);
        let value = format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat((n as usize * 13) % 700)).into_bytes();
        let done = store.commit(Txn::new().put(key.clone(), value.clone())).await.expect("it commits");
        assert!(matches!(done, Committed::Done { .. }));
        contents.insert(key, value);
    }
    store.close().await.expect("it closes");
    if !cleanly {
        fs::remove_file(dir.join("store.clean")).expect("the marker is there");
    }
    contents
}

/// Reads everything in every way. `Ok` only if all of it is exactly right.
async fn read(dir: &Path, contents: &Contents) -> Result<(), StoreError> {
    let store = Embedded::open(dir, options())?;
    let mut found = Contents::new();
    let mut list = List { limit: 100, ..List::default() };
    loop {
        let page = store.list(list.clone()).await?;
        let more = page.more;
        list.at = Some(page.revision);
        list.after = page.entries.last().map(|entry| entry.key.clone());
        found.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        if !more {
            break;
        }
    }
    assert_eq!(&found, contents, "a damaged file gave a wrong answer");
    for (key, value) in contents.iter().step_by(17) {
        let entry = store.get(key).await?.expect("a damaged file lost a key without saying so");
        assert_eq!(entry.value, *value);
    }
    let past = store.list(List { at: Some(Revision(300)), ..List::default() }).await?;
    assert_eq!(past.entries.len(), 250);
    let mut watch = store.watch("", Revision(0)).await?;
    let mut heard = 0;
    while heard < 600 {
        if let WatchEvent::Changes(changes) = watch.next().await.expect("it goes on")? {
            heard += 1;
            assert_eq!(changes[0].revision, Revision(heard));
        }
    }
    let done = store.commit(Txn::new().put("/new", "1")).await?;
    assert!(matches!(done, Committed::Done { .. }));
    Ok(())
}

#[track_caller]
fn assert_helps(error: &StoreError, dir: &Path) {
    let text = error.to_string();
    assert!(matches!(error, StoreError::Damaged { .. }), "{text}");
    for part in ["damaged", "muster store import", &*dir.display().to_string()] {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

/// A copy of a directory to damage.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = scratch();
    for file in fs::read_dir(from).expect("it can be read") {
        let file = file.expect("it can be read");
        fs::copy(file.path(), to.path().join(file.file_name())).expect("it can be copied");
    }
    to
}

#[tokio::test]
async fn a_truncated_file_is_noticed() {
    for cleanly in [true, false] {
        let original = scratch();
        let contents = filled(original.path(), cleanly).await;
        let size = fs::metadata(original.path().join("store.redb")).expect("it is there").len();
        let mut random = StdRng::seed_from_u64(7);
        for round in 0..20 {
            let dir = copy(original.path());
            let length = if round == 0 { 0 } else { random.random_range(0..size) };
            let file = OpenOptions::new().write(true).open(dir.path().join("store.redb")).expect("it opens");
            file.set_len(length).expect("it can be cut");
            match read(dir.path(), &contents).await {
                // redb keeps room at the end; without it nothing is missing.
                Ok(()) => assert!(length > size / 2, "cut to {length} of {size} bytes, and nobody noticed"),
                Err(error) => assert_helps(&error, dir.path()),
            }
        }
    }
}

#[tokio::test]
async fn a_corrupted_file_is_noticed_or_harmless() {
    for cleanly in [true, false] {
        let original = scratch();
        let contents = filled(original.path(), cleanly).await;
        let size = fs::metadata(original.path().join("store.redb")).expect("it is there").len();
        let mut random = StdRng::seed_from_u64(11);
        let mut noticed = 0;
        for _ in 0..60 {
            let dir = copy(original.path());
            let file = OpenOptions::new().write(true).open(dir.path().join("store.redb")).expect("it opens");
            let mut bytes = vec![0; random.random_range(1..64)];
            random.fill(&mut bytes[..]);
            file.write_all_at(&bytes, random.random_range(0..size - 64)).expect("it can be damaged");
            drop(file);
            match read(dir.path(), &contents).await {
                Ok(()) => {}
                Err(error) => {
                    noticed += 1;
                    assert_helps(&error, dir.path());
                }
            }
        }
        assert!(noticed > 3, "only {noticed} of 60 were noticed: is anything checked?");
    }
}

/// Damage under a running store, which no check at start can find.
#[tokio::test]
async fn damage_while_it_runs_gives_errors_and_no_wrong_values() {
    let original = scratch();
    let contents = filled(original.path(), true).await;
    let mut random = StdRng::seed_from_u64(13);
    let mut noticed = 0;
    for _ in 0..25 {
        let dir = copy(original.path());
        let small = muster_store::embedded::Options { cache_bytes: 0, ..options() };
        let store = Embedded::open(dir.path(), small).expect("it is whole yet");
        let path = dir.path().join("store.redb");
        let size = fs::metadata(&path).expect("it is there").len();
        let file = OpenOptions::new().write(true).open(&path).expect("it opens");
        for _ in 0..20 {
            let mut bytes = [0; 16];
            random.fill(&mut bytes[..]);
            file.write_all_at(&bytes, random.random_range(4096..size - 64)).expect("it can be damaged");
        }
        for (key, value) in &contents {
            match store.get(key).await {
                Ok(Some(entry)) => assert_eq!(entry.value, *value, "a wrong value"),
                Ok(None) => {} // a page of keys was hit: see `a_corrupted_file_is_noticed_or_harmless`
                Err(StoreError::Damaged { .. }) => noticed += 1,
                Err(error) => panic!("damage gave {error}"),
            }
        }
        let _ = store.list(List::default()).await;
        let _ = store.commit(Txn::new().put("/k/001", "1")).await;
    }
    assert!(noticed > 0, "nothing was noticed: are checksums compared?");
}

#[tokio::test]
async fn a_lost_file_is_not_an_empty_store() {
    let dir = scratch();
    filled(dir.path(), true).await;
    fs::remove_file(dir.path().join("store.redb")).expect("it is there");
    let error = Embedded::open(dir.path(), options()).expect_err("its file is gone");
    assert_helps(&error, dir.path());
    assert!(error.to_string().contains("store.id"), "{error}");
    fs::remove_file(dir.path().join("store.id")).expect("it is there");
    Embedded::open(dir.path(), options()).expect("the error said how to begin anew");
}

#[tokio::test]
async fn a_file_that_is_something_else_is_refused() {
    let dir = scratch();
    fs::write(dir.path().join("store.redb"), "this is no store ".repeat(1000)).expect("it can be written");
    let error = Embedded::open(dir.path(), options()).expect_err("it is text");
    assert_helps(&error, dir.path());
}
