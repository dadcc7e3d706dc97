//! Reading runs of keys, now and in the past.

use std::collections::BTreeMap;

use bytes::Bytes;
use muster_model::store::{List, Revision, StoreError, Txn};

use super::World;

async fn fill(world: &World, names: &[&str]) {
    for name in names {
        world.put(name, (*name).to_owned()).await;
    }
}

pub(super) async fn a_prefix_is_not_a_path(world: World) {
    fill(&world, &["a", "a/1", "a/2", "ab", "ab/1", "b", "a\u{ff}", "a\u{10ffff}", "á"]).await;
    let check = |prefix: &'static str, want: &'static [&'static str]| {
        let world = world.clone();
        async move { assert_eq!(world.names(&world.key(prefix), None).await, want, "{prefix:?}") }
    };
    check("a", &["a", "a/1", "a/2", "ab", "ab/1", "a\u{ff}", "a\u{10ffff}"]).await;
    check("a/", &["a/1", "a/2"]).await;
    check("ab", &["ab", "ab/1"]).await;
    check("a\u{ff}", &["a\u{ff}"]).await;
    check("a\u{10ffff}", &["a\u{10ffff}"]).await;
    check("á", &["á"]).await;
    check("c", &[]).await;
    check("a/1/", &[]).await;
}

pub(super) async fn the_order_is_that_of_bytes(world: World) {
    let mut names = ["b", "B", "a", "a/", "a-", "a0", "~", "é", "z", "\u{7f}", "日", "🦀", "\u{ffff}", "A/z"];
    fill(&world, &names).await;
    names.sort_by_key(|name| name.as_bytes());
    assert_eq!(world.names(&format!("{}/", world.root), None).await, names);
}

pub(super) async fn an_empty_prefix_means_everything(world: World) {
    fill(&world, &["a", "b"]).await;
    for prefix in ["", "/", "/conformance"] {
        let (entries, _) = world.all(prefix, None, 0).await;
        let ours = entries.iter().filter(|entry| entry.key.starts_with(&world.root)).count();
        assert_eq!(ours, 2, "{prefix:?}");
        assert!(entries.iter().all(|entry| entry.key.starts_with(prefix)));
        assert!(entries.iter().all(|entry| !entry.key.starts_with(muster_model::store::RESERVED)));
        assert!(entries.is_sorted_by(|a, b| a.key < b.key));
    }
}

pub(super) async fn pages_join_to_the_whole(world: World) {
    let names: Vec<String> = (0..10).map(|n| format!("{n:02}")).collect();
    for name in &names {
        world.put(name, name.clone()).await;
    }
    for limit in [1, 2, 3, 5, 9, 10, 11, 0] {
        let (entries, _) = world.all(&format!("{}/", world.root), None, limit).await;
        let values: Vec<_> =
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.value).into_owned()).collect();
        assert_eq!(values, names, "limit {limit}");
    }
    let page = world.store.list(List { limit: 10, ..List::prefix(&world.root) }).await.expect("it lists");
    assert!(!page.more, "a full page that is the last says so");
}

pub(super) async fn pages_show_one_moment_while_others_write(world: World) {
    // Two keys that are always written together, in every commit with the same value.
    const PAIRS: usize = 30;
    let write = |world: World, round: u32| async move {
        for n in 0..PAIRS {
            let value = Bytes::from(format!("{round}"));
            let (left, right) = (world.key(&format!("l/{n:03}")), world.key(&format!("r/{n:03}")));
            world.done(Txn::new().put(left, value.clone()).put(right, value)).await;
        }
        world.delete(&format!("extra/{}", round - 1)).await;
        world.put(&format!("extra/{round}"), "x").await;
    };
    write(world.clone(), 1).await;
    let writer = tokio::spawn({
        let world = world.clone();
        async move {
            for round in 2..8 {
                write(world.clone(), round).await;
            }
        }
    });
    let mut looked = 0;
    while looked < 3 || !writer.is_finished() {
        let (entries, revision) = world.all(&world.root, None, 7).await;
        looked += 1;
        let values: BTreeMap<&str, &Bytes> =
            entries.iter().map(|entry| (&entry.key[world.root.len()..], &entry.value)).collect();
        for n in 0..PAIRS {
            let (left, right) = (values[&*format!("/l/{n:03}")], values[&*format!("/r/{n:03}")]);
            assert_eq!(left, right, "pair {n} at {revision} shows two moments");
        }
        assert!(entries.iter().all(|entry| entry.modified <= revision));
        let (again, _) = world.all(&world.root, Some(revision), 11).await;
        assert_eq!(again, entries, "the same moment looks different the second time");
    }
    writer.await.expect("the writer finishes");
}

pub(super) async fn the_past_is_as_it_was(world: World) {
    let mut moments: Vec<(Revision, Vec<(String, String)>)> = Vec::new();
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    let steps: [(&str, Option<&str>); 10] = [
        ("a", Some("1")),
        ("b", Some("1")),
        ("a", Some("2")),
        ("c/x", Some("1")),
        ("a", None),
        ("b", Some("2")),
        ("a", Some("3")),
        ("c/x", None),
        ("c/y", Some("1")),
        ("a", None),
    ];
    for (name, value) in steps {
        let revision = if let Some(value) = value {
            model.insert(world.key(name), value.to_owned());
            world.put(name, value).await
        } else {
            model.remove(&world.key(name));
            world.delete(name).await
        };
        moments.push((revision, model.clone().into_iter().collect()));
    }
    for (revision, want) in &moments {
        for limit in [0, 1] {
            let (entries, _) = world.all(&world.root, Some(*revision), limit).await;
            let found: Vec<_> = entries
                .into_iter()
                .map(|entry| (entry.key, String::from_utf8_lossy(&entry.value).into_owned()))
                .collect();
            assert_eq!(&found, want, "at {revision}");
        }
    }
    // What was created anew has a new beginning, also in the past.
    let (third, _) = &moments[6];
    let (entries, _) = world.all(&world.key("a"), Some(*third), 0).await;
    assert_eq!((entries[0].created, entries[0].modified), (*third, *third));
    assert_eq!(world.names(&world.key("c/"), Some(moments[3].0)).await, ["c/x"]);
}

pub(super) async fn the_future_is_an_error(world: World) {
    let now = world.put("a", "1").await;
    let asked = Revision(now.0 + 1000);
    match world.store.list(List { at: Some(asked), ..List::prefix(&world.root) }).await {
        Err(StoreError::Future { asked: told, current }) => assert_eq!((told, current), (asked, now)),
        other => panic!("the future was listed: {other:?}"),
    }
}

pub(super) async fn keys_without_values(world: World) {
    fill(&world, &["a", "b"]).await;
    let list = List { keys_only: true, ..List::prefix(&world.root) };
    let page = world.store.list(list).await.expect("it lists");
    assert_eq!(page.entries.len(), 2);
    for entry in page.entries {
        assert!(entry.value.is_empty());
        assert!(entry.modified > Revision::ZERO && entry.created == entry.modified);
    }
}

pub(super) async fn a_page_after_a_foreign_key(world: World) {
    fill(&world, &["b/1", "b/2", "c"]).await;
    let check = |after: String, want: &'static [&'static str]| {
        let world = world.clone();
        async move {
            let list = List { after: Some(after.clone()), ..List::prefix(world.key("b/")) };
            let page = world.store.list(list).await.expect("it lists");
            let names: Vec<_> =
                page.entries.iter().map(|entry| entry.key[world.root.len() + 1..].to_owned()).collect();
            assert_eq!(names, want, "after {after:?}");
            assert!(!page.more);
        }
    };
    check(world.key("a"), &["b/1", "b/2"]).await;
    check("/".to_owned(), &["b/1", "b/2"]).await;
    check(world.key("b/1"), &["b/2"]).await;
    check(world.key("b/1/never"), &["b/2"]).await;
    check(world.key("b/2"), &[]).await;
    check(world.key("c"), &[]).await;
    check(world.key("zzz"), &[]).await;
}

pub(super) async fn many_keys_come_in_several_pages(world: World) {
    const KEYS: usize = 2300;
    let names: Vec<String> = (0..KEYS).map(|n| format!("{n:05}")).collect();
    for chunk in names.chunks(100) {
        let txn = chunk.iter().fold(Txn::new(), |txn, name| txn.put(world.key(name), vec![b'x'; 500]));
        world.done(txn).await;
    }
    for limit in [0, 700, 10_000] {
        let (entries, _) = world.all(&world.root, None, limit).await;
        assert_eq!(entries.len(), KEYS);
        assert!(entries.is_sorted_by(|a, b| a.key < b.key));
    }
}
