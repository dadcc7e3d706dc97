//! Forgetting the past, and numbers.

use muster_model::store::{List, Revision, StoreError};

use super::{Replica, World, brief};

pub(super) async fn compacted_history_is_a_distinct_error(world: World) {
    let first = world.put("a", "1").await;
    let second = world.put("a", "2").await;
    let third = world.put("b", "1").await;
    world.store.compact(third).await.expect("it compacts");
    for gone in [first, second] {
        match world.store.list(List { at: Some(gone), ..List::prefix(&world.root) }).await {
            Err(StoreError::Compacted { asked, oldest }) => {
                assert_eq!(asked, gone);
                assert!(oldest > gone && oldest <= third, "{oldest}");
            }
            other => panic!("a forgotten moment was listed: {other:?}"),
        }
        let watched = match world.store.watch(&world.root, gone).await {
            Err(error) => error,
            Ok(stream) => super::Events { stream, last: gone }.try_next().await.expect_err("it is gone"),
        };
        assert!(matches!(watched, StoreError::Compacted { asked, .. } if asked == gone), "{watched}");
    }
    // The answer to it: list again, and go on from there.
    let (entries, revision) = world.all(&world.root, None, 0).await;
    let mut replica = Replica::of(entries);
    let mut events = world.watch(&world.root, revision).await;
    world.put("c", "1").await;
    replica.apply(events.next().await);
    assert_eq!(replica, Replica::of(world.all(&world.root, None, 0).await.0));
}

pub(super) async fn compaction_keeps_the_present(world: World) {
    world.put("a", "1").await;
    world.put("deleted", "1").await;
    let a = world.put("a", "2").await;
    let last = world.delete("deleted").await;
    world.store.compact(last).await.expect("it compacts");
    assert_eq!(world.names(&world.root, None).await, ["a"]);
    assert_eq!(world.names(&world.root, Some(last)).await, ["a"], "the moment itself can be read");
    assert_eq!(world.get("a").await.map(|entry| entry.modified), Some(a));
    let mut events = world.watch(&world.root, last).await;
    world.put("a", "3").await;
    assert_eq!(brief(&world.root, &events.next().await), ["a=3"]);
}

pub(super) async fn compaction_can_be_repeated(world: World) {
    let first = world.put("a", "1").await;
    let second = world.put("a", "2").await;
    for before in [first, second, second, first, Revision::ZERO] {
        world.store.compact(before).await.expect("asking again is harmless");
    }
    let ahead = Revision(world.revision().await.0 + 1000);
    let refused = world.store.compact(ahead).await;
    assert!(matches!(refused, Err(StoreError::Future { .. })), "{refused:?}");
    assert_eq!(world.value("a").await, Some("2".into()));
    assert_eq!(world.names(&world.root, Some(second)).await, ["a"]);
}

pub(super) async fn a_watch_overtaken_by_compaction_says_so(world: World) {
    const COMMITS: usize = 500;
    let start = world.put("n", "start").await;
    let mut events = world.watch(&world.root, start).await;
    let mut last = start;
    for n in 0..COMMITS {
        last = world.put("n", format!("{n}")).await;
    }
    world.store.compact(last).await.expect("it compacts");
    // What it still tells is complete; where it cannot go on it says so. Silence and gaps are faults.
    for n in 0..COMMITS {
        match events.try_next().await {
            Ok(changes) => assert_eq!(brief(&world.root, &changes), [format!("n={n}")]),
            Err(StoreError::Compacted { .. }) => break,
            Err(error) => panic!("an overtaken watcher got {error}"),
        }
    }
    let (_, revision) = world.all(&world.root, None, 0).await;
    let mut events = world.watch(&world.root, revision).await;
    world.put("n", "after").await;
    assert_eq!(brief(&world.root, &events.next().await), ["n=after"]);
}

pub(super) async fn numbers_about_the_store(world: World) {
    let before = world.store.stats().await.expect("it has numbers");
    for n in 0..10 {
        world.put(&format!("{n}"), "some value").await;
    }
    let revision = world.delete("3").await;
    let after = world.store.stats().await.expect("it has numbers");
    assert_eq!(after.keys, before.keys + 9);
    assert_eq!(after.revision, revision);
    assert!(after.oldest <= after.revision && !after.kind.is_empty() && after.bytes > 0, "{after:?}");
    world.store.compact(revision).await.expect("it compacts");
    let compacted = world.store.stats().await.expect("it has numbers");
    assert_eq!(compacted.oldest, revision);
    assert_eq!(compacted.keys, after.keys);
}

pub(super) async fn revisions_can_be_moved_on(world: World) {
    let before = world.put("a", "1").await;
    assert!(world.store.advance(before).await.expect("it is there already"));
    let past = Revision(before.0 + 5000);
    if !world.store.advance(past).await.expect("it answers") {
        // Not every store can; then nothing has happened.
        assert_eq!(world.revision().await, before);
        return;
    }
    assert_eq!(world.value("a").await, Some("1".into()));
    let next = world.put("a", "2").await;
    assert!(next > past, "{next} is not above {past}");
    let watched = match world.store.watch(&world.root, before).await {
        Err(error) => error,
        Ok(stream) => super::Events { stream, last: before }.try_next().await.expect_err("it is gone"),
    };
    assert!(matches!(watched, StoreError::Compacted { .. }), "{watched}");
}
