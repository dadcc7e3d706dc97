//! Comparing and writing.

use bytes::Bytes;
use futures::future::join_all;
use muster_model::store::{
    Committed, Expect, MAX_KEY_BYTES, MAX_TXN_BYTES, MAX_TXN_OPS, MAX_VALUE_BYTES, StoreError, Txn,
};

use super::{World, absent};

pub(super) async fn an_entry_tells_when_it_was_made(world: World) {
    let first = world.put("a", "1").await;
    let second = world.put("a", "2").await;
    let entry = world.get("a").await.expect("it was put");
    assert_eq!(entry.key, world.key("a"));
    assert_eq!(entry.value, "2");
    assert_eq!((entry.created, entry.modified), (first, second));
}

pub(super) async fn absent_is_not_empty(world: World) {
    assert_eq!(world.get("a").await, None);
    world.put("a", "").await;
    assert_eq!(world.value("a").await, Some(Bytes::new()));
}

pub(super) async fn values_are_any_bytes(world: World) {
    let all: Vec<u8> = (0..=255).collect();
    world.put("all", all.clone()).await;
    assert_eq!(world.value("all").await, Some(all.into()));
    let name = "ünï/ço∂é 🦀 with spaces";
    world.put(name, "x").await;
    assert_eq!(world.value(name).await, Some("x".into()));
}

pub(super) async fn create_only_if_absent(world: World) {
    let key = world.key("a");
    let revision = world.done(absent(&key).put(&key, "mine")).await;
    let refused = world.commit(absent(&key).put(&key, "yours")).await;
    let found = world.get("a").await;
    assert_eq!(found.as_ref().map(|entry| entry.modified), Some(revision));
    assert_eq!(refused, Committed::Refused { failed: 0, found });
    assert_eq!(world.value("a").await, Some("mine".into()));
}

pub(super) async fn replace_only_the_expected_revision(world: World) {
    let key = world.key("a");
    let first = world.put("a", "1").await;
    let second = world.done(Txn::new().expect(&key, Expect::Modified(first)).put(&key, "2")).await;
    let stale = world.commit(Txn::new().expect(&key, Expect::Modified(first)).put(&key, "3")).await;
    assert_eq!(stale, Committed::Refused { failed: 0, found: world.get("a").await });
    assert_eq!(world.value("a").await, Some("2".into()));
    world.done(Txn::new().expect(&key, Expect::Modified(second)).delete(&key)).await;
    let gone = world.commit(Txn::new().expect(&key, Expect::Modified(second)).put(&key, "4")).await;
    assert_eq!(gone, Committed::Refused { failed: 0, found: None });
    assert_eq!(world.get("a").await, None);
}

pub(super) async fn expecting_a_key_to_exist(world: World) {
    let (a, b) = (world.key("a"), world.key("b"));
    let refused = world.commit(Txn::new().expect(&a, Expect::Present).put(&b, "1")).await;
    assert_eq!(refused, Committed::Refused { failed: 0, found: None });
    world.put("a", "x").await;
    world.done(Txn::new().expect(&a, Expect::Present).put(&b, "1")).await;
    assert_eq!(world.value("b").await, Some("1".into()));
}

pub(super) async fn a_refusal_names_the_first_that_failed(world: World) {
    let [a, b, c] = ["a", "b", "c"].map(|name| world.key(name));
    let revision = world.put("b", "here").await;
    let txn = Txn::new()
        .expect(&b, Expect::Modified(revision)) // holds
        .expect(&a, Expect::Absent) // holds
        .expect(&b, Expect::Absent) // the first that fails
        .expect(&c, Expect::Present) // fails too
        .put(&c, "no");
    let refused = world.commit(txn).await;
    assert_eq!(refused, Committed::Refused { failed: 2, found: world.get("b").await });
    assert_eq!(world.get("c").await, None);
}

pub(super) async fn a_commit_is_all_or_nothing(world: World) {
    let [a, b, c] = ["a", "b", "c"].map(|name| world.key(name));
    world.done(Txn::new().put(&a, "1").put(&b, "1")).await;
    let before = world.revision().await;
    let refused = world.commit(absent(&a).put(&b, "2").put(&c, "2").delete(&a)).await;
    assert!(matches!(refused, Committed::Refused { failed: 0, .. }));
    assert_eq!(world.revision().await, before, "a refusal takes no revision");
    assert_eq!(world.names(&world.root, None).await, ["a", "b"]);
    assert_eq!(world.value("b").await, Some("1".into()));

    let revision =
        world.done(Txn::new().expect(&a, Expect::Present).put(&c, "3").put(&b, "3").delete(&a)).await;
    let (entries, _) = world.all(&world.root, None, 0).await;
    assert_eq!(entries.len(), 2);
    for entry in entries {
        assert_eq!((entry.modified, entry.value), (revision, "3".into()));
    }
}

pub(super) async fn a_commit_without_comparisons_or_writes(world: World) {
    let revision = world.put("a", "1").await;
    assert_eq!(world.done(Txn::new()).await, revision);
    assert_eq!(world.done(Txn::new().expect(world.key("a"), Expect::Present)).await, revision);
    let refused = world.commit(absent(world.key("a"))).await;
    assert!(matches!(refused, Committed::Refused { failed: 0, found: Some(_) }));
}

pub(super) async fn a_recreated_key_is_a_new_key(world: World) {
    world.put("a", "1").await;
    world.delete("a").await;
    assert_eq!(world.get("a").await, None);
    let again = world.put("a", "2").await;
    let entry = world.get("a").await.expect("it was put again");
    assert_eq!((entry.created, entry.modified), (again, again));
}

pub(super) async fn deleting_what_is_absent_is_no_change(world: World) {
    let revision = world.put("a", "1").await;
    assert_eq!(world.delete("b").await, revision);
    let (b, c) = (world.key("b"), world.key("c"));
    assert_eq!(world.done(absent(&b).delete(&b).delete(&c)).await, revision);
    let refused = world.commit(Txn::new().expect(&b, Expect::Present).delete(&b)).await;
    assert_eq!(refused, Committed::Refused { failed: 0, found: None });
    assert_eq!(world.revision().await, revision);
    // Among others it is left out, and the rest happens.
    let revision = world.done(Txn::new().delete(&b).delete(world.key("a"))).await;
    assert_eq!(world.revision().await, revision);
    assert_eq!(world.names(&world.root, None).await, Vec::<String>::new());
}

pub(super) async fn an_idle_commit_takes_no_revision(world: World) {
    let first = world.put("a", "1").await;
    for _ in 0..3 {
        world.delete("never-there").await;
        world.done(Txn::new()).await;
        let _ = world.commit(absent(world.key("a")).put(world.key("b"), "1")).await;
    }
    assert_eq!(world.revision().await, first);
    let second = world.put("a", "2").await;
    assert!(second > first);
}

pub(super) async fn the_same_value_again_is_a_change(world: World) {
    let first = world.put("a", "1").await;
    let second = world.put("a", "1").await;
    assert!(second > first);
    let entry = world.get("a").await.expect("it was put");
    assert_eq!((entry.created, entry.modified), (first, second));
}

pub(super) async fn revisions_only_grow(world: World) {
    let mut last = world.revision().await;
    for n in 0..20_u32 {
        let revision = if n % 3 == 2 {
            world.delete(&format!("{}", n - 1)).await
        } else {
            world.put(&format!("{n}"), "x").await
        };
        assert!(revision > last, "{revision} after {last}");
        assert_eq!(world.revision().await, revision);
        last = revision;
    }
}

#[track_caller]
fn assert_invalid(outcome: Result<Committed, StoreError>, part: &str) {
    match outcome {
        Err(StoreError::Invalid { why }) if why.contains(part) => {}
        other => panic!("expected a refusal about {part:?}, got {other:?}"),
    }
}

pub(super) async fn a_key_is_written_once_per_commit(world: World) {
    let a = world.key("a");
    let store = &world.store;
    assert_invalid(store.commit(Txn::new().put(&a, "1").put(&a, "2")).await, "twice");
    assert_invalid(store.commit(Txn::new().put(&a, "1").delete(&a)).await, "twice");
    assert_invalid(store.commit(Txn::new().delete(&a).delete(&a)).await, "twice");
    assert_eq!(world.get("a").await, None);
}

pub(super) async fn what_is_too_large_is_refused(world: World) {
    let store = &world.store;
    let a = world.key("a");
    let many = (0..=MAX_TXN_OPS).fold(Txn::new(), |txn, n| txn.put(world.key(&n.to_string()), "x"));
    assert_invalid(store.commit(many).await, "comparisons and writes");
    assert_invalid(store.commit(Txn::new().put(&a, vec![0; MAX_VALUE_BYTES + 1])).await, "bytes");
    let large = Txn::new().put(&a, vec![0; MAX_VALUE_BYTES]).put(world.key("b"), vec![0; 1 << 18]);
    assert_invalid(store.commit(large).await, "split");
    let long = format!("{a}{}", "x".repeat(MAX_KEY_BYTES));
    assert_invalid(store.commit(Txn::new().put(&long, "1")).await, "bytes");
    assert_eq!(world.names(&world.root, None).await, Vec::<String>::new());
}

pub(super) async fn what_is_just_small_enough_is_taken(world: World) {
    let half = MAX_TXN_OPS / 2;
    let full = (0..half).fold(Txn::new(), |txn, n| {
        let key = world.key(&format!("{n:03}"));
        txn.expect(&key, Expect::Absent).put(&key, "x")
    });
    world.done(full).await;
    assert_eq!(world.names(&world.root, None).await.len(), half);
    let full = (0..MAX_TXN_OPS).fold(Txn::new(), |txn, n| txn.delete(world.key(&format!("{n:03}"))));
    world.done(full).await;
    let mixed = (0..MAX_TXN_OPS - 20)
        .fold(Txn::new(), |txn, n| txn.expect(world.key(&n.to_string()), Expect::Absent));
    let mixed = (0..20).fold(mixed, |txn, n| txn.delete(world.key(&n.to_string())));
    world.done(mixed).await;

    let value = Bytes::from(vec![7; MAX_VALUE_BYTES]);
    world.put("large", value.clone()).await;
    assert_eq!(world.value("large").await, Some(value.clone()));
    let (a, b) = (world.key("large"), world.key("rest"));
    let rest = vec![8; MAX_TXN_BYTES - MAX_VALUE_BYTES - a.len() - b.len()];
    world.done(Txn::new().put(&a, value).put(&b, rest.clone())).await;
    assert_eq!(world.value("rest").await, Some(rest.into()));

    let long = "k".repeat(MAX_KEY_BYTES - world.root.len() - 1);
    world.put(&long, "1").await;
    assert_eq!(world.value(&long).await, Some("1".into()));
}

pub(super) async fn keys_that_are_no_paths_are_refused(world: World) {
    for key in ["", "a", "muster/a", "/muster/~own/1", "/a\0b"] {
        assert_invalid(world.store.commit(Txn::new().put(key, "1")).await, "key");
        assert_invalid(world.store.commit(absent(key)).await, "key");
        let read = world.store.get(key).await;
        assert!(matches!(read, Err(StoreError::Invalid { .. })), "{key:?}: {read:?}");
    }
}

pub(super) async fn one_of_many_wins_each_round(world: World) {
    const WRITERS: u32 = 8;
    const WINS: u32 = 10;
    world.put("counter", "0").await;
    let count = |world: World| async move {
        let key = world.key("counter");
        let mut wins = 0;
        while wins < WINS {
            let entry = world.get("counter").await.expect("the counter is there");
            let number: u32 = String::from_utf8_lossy(&entry.value).parse().expect("it is a number");
            let next = (number + 1).to_string();
            let txn = Txn::new().expect(&key, Expect::Modified(entry.modified)).put(&key, next);
            if matches!(world.commit(txn).await, Committed::Done { .. }) {
                wins += 1;
            }
        }
    };
    let writers = (0..WRITERS).map(|_| tokio::spawn(count(world.clone())));
    for writer in join_all(writers).await {
        writer.expect("the writer finishes");
    }
    assert_eq!(world.value("counter").await, Some((WRITERS * WINS).to_string().into()));
}
