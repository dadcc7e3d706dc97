//! Hearing of changes.

use futures::StreamExt;
use futures::future::join_all;
use muster_model::store::{Change, Revision, StoreError, Txn};

use super::{Replica, World, brief};

pub(super) async fn a_watch_from_now_hears_what_comes(world: World) {
    let now = world.put("before", "1").await;
    let mut events = world.watch(&world.root, now).await;
    let put = world.put("a", "1").await;
    let changes = events.next().await;
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].revision, put);
    assert_eq!(changes[0].entry, world.get("a").await);
    let deleted = world.delete("a").await;
    let changes = events.next().await;
    assert_eq!(changes, [Change { revision: deleted, key: world.key("a"), entry: None }]);
}

pub(super) async fn a_watch_from_the_past_catches_up(world: World) {
    let start = world.put("a", "1").await;
    world.put("a", "2").await;
    world.put("b", "1").await;
    world.delete("a").await;
    world.put("a", "3").await;
    let mut events = world.watch(&world.root, start).await;
    for want in ["a=2", "b=1", "-a", "a=3"] {
        assert_eq!(brief(&world.root, &events.next().await), [want]);
    }
    world.put("c", "1").await;
    assert_eq!(brief(&world.root, &events.next().await), ["c=1"]);
}

pub(super) async fn a_watch_from_the_future_is_refused(world: World) {
    let now = world.put("a", "1").await;
    let asked = Revision(now.0 + 1000);
    match world.store.watch(&world.root, asked).await.err() {
        Some(StoreError::Future { asked: told, current }) => assert_eq!((told, current), (asked, now)),
        other => panic!("the future was watched: {other:?}"),
    }
}

pub(super) async fn a_commit_is_one_event(world: World) {
    let start = world.put("z", "1").await;
    let mut events = world.watch(&world.root, start).await;
    let key = |name| world.key(name);
    world.done(Txn::new().put(key("c"), "1").delete(key("z")).put(key("a"), "1").put(key("b"), "1")).await;
    world.done(Txn::new().put(key("a"), "2").delete(key("absent"))).await;
    assert_eq!(brief(&world.root, &events.next().await), ["a=1", "b=1", "c=1", "-z"]);
    assert_eq!(brief(&world.root, &events.next().await), ["a=2"]);
    // The same from the past, where it comes from history.
    let mut events = world.watch(&world.root, start).await;
    assert_eq!(brief(&world.root, &events.next().await), ["a=1", "b=1", "c=1", "-z"]);
    assert_eq!(brief(&world.root, &events.next().await), ["a=2"]);
}

pub(super) async fn a_watch_hears_only_its_prefix(world: World) {
    let start = world.put("a", "1").await;
    let mut narrow = world.watch(&world.key("a/"), start).await;
    let mut wide = world.watch("", start).await;
    let key = |name| world.key(name);
    world.put("a", "2").await;
    world.put("ab", "1").await;
    world.done(Txn::new().put(key("a/1"), "1").put(key("b"), "1")).await;
    world.done(Txn::new().put(key("a/2"), "1").delete(key("a/1"))).await;
    assert_eq!(brief(&world.root, &narrow.next().await), ["a/1=1"]);
    assert_eq!(brief(&world.root, &narrow.next().await), ["-a/1", "a/2=1"]);
    for want in [&["a=2"][..], &["ab=1"], &["a/1=1", "b=1"], &["-a/1", "a/2=1"]] {
        assert_eq!(brief(&world.root, &wide.next().await), want);
    }
}

pub(super) async fn every_change_once_and_in_order(world: World) {
    const WRITERS: usize = 6;
    const EACH: usize = 40;
    let start = world.put("start", "0").await;
    let watch = |world: World, after: Revision| async move {
        let mut events = world.watch(&world.key("w"), after).await;
        let mut heard: Vec<(Revision, Vec<String>)> = Vec::new();
        while heard.len() < WRITERS * EACH {
            let changes = events.next().await;
            heard.push((changes[0].revision, brief(&world.root, &changes)));
        }
        heard
    };
    let early = tokio::spawn(watch(world.clone(), start));
    let write = |world: World, writer: usize| async move {
        let mut done = Vec::new();
        for n in 0..EACH {
            let own = format!("w{writer}");
            let shared = format!("w-shared-{}", n % 3);
            let value = format!("{writer}.{n}");
            let txn = Txn::new().put(world.key(&shared), value.clone()).put(world.key(&own), value.clone());
            let revision = world.done(txn).await;
            let mut text = vec![format!("{shared}={value}"), format!("{own}={value}")];
            text.sort();
            done.push((revision, text));
        }
        done
    };
    let writers: Vec<_> = (0..WRITERS).map(|n| tokio::spawn(write(world.clone(), n))).collect();
    let middle = tokio::spawn(watch(world.clone(), start));
    let mut done: Vec<_> =
        join_all(writers).await.into_iter().flat_map(|writer| writer.expect("the writer finishes")).collect();
    done.sort();
    let late = watch(world.clone(), start).await;
    for heard in [early.await.expect("it hears all"), middle.await.expect("it hears all"), late] {
        for (heard, done) in heard.iter().zip(&done) {
            assert_eq!(heard, done);
        }
        assert_eq!(heard.len(), done.len());
    }
}

pub(super) async fn a_watch_resumes_where_it_stopped(world: World) {
    let mut position = world.put("n", "0").await;
    let mut heard = Vec::new();
    let mut wanted = Vec::new();
    for n in 1..=12 {
        world.put("n", n.to_string()).await;
        wanted.push(format!("n={n}"));
        if n % 3 == 0 {
            let mut events = world.watch(&world.root, position).await;
            for _ in 0..2 {
                let changes = events.next().await;
                position = changes[0].revision;
                heard.extend(brief(&world.root, &changes));
            }
        }
    }
    let mut events = world.watch(&world.root, position).await;
    while heard.len() < wanted.len() {
        heard.extend(brief(&world.root, &events.next().await));
    }
    assert_eq!(heard, wanted);
}

pub(super) async fn a_slow_watcher_blocks_nobody(world: World) {
    const COMMITS: usize = 600;
    let start = world.put("n", "start").await;
    let mut slow = world.watch(&world.root, start).await;
    let mut quick = world.watch(&world.root, start).await;
    for n in 0..COMMITS {
        // If the slow watcher held anyone up, this would never end.
        world.put("n", n.to_string()).await;
    }
    for n in 0..COMMITS {
        assert_eq!(brief(&world.root, &quick.next().await), [format!("n={n}")]);
    }
    for n in 0..COMMITS {
        match slow.try_next().await {
            Ok(changes) => assert_eq!(brief(&world.root, &changes), [format!("n={n}")]),
            Err(StoreError::Compacted { .. }) => return,
            Err(error) => panic!("a slow watcher got {error}"),
        }
    }
}

pub(super) async fn watches_that_are_dropped_leave_nothing(world: World) {
    let mut start = world.put("n", "0").await;
    for n in 0..50 {
        let mut events = world.watch(&world.root, start).await;
        start = world.put("n", n.to_string()).await;
        if n % 2 == 0 {
            assert_eq!(brief(&world.root, &events.next().await), [format!("n={n}")]);
        }
    }
    let mut events = world.watch(&world.root, start).await;
    world.put("n", "last").await;
    assert_eq!(brief(&world.root, &events.next().await), ["n=last"]);
}

pub(super) async fn a_listed_state_and_a_watch_join_without_a_gap(world: World) {
    const KEYS: u32 = 20;
    const ROUNDS: u32 = 10;
    let writer = tokio::spawn({
        let world = world.clone();
        async move {
            for round in 0..ROUNDS {
                for n in 0..KEYS {
                    let key = world.key(&format!("{}", (n * 7 + round) % KEYS));
                    let txn = Txn::new().put(world.key("tick"), format!("{round}.{n}"));
                    let txn =
                        if (n + round) % 4 == 0 { txn.delete(key) } else { txn.put(key, format!("{round}")) };
                    world.done(txn).await;
                }
            }
            world.put("end", "x").await
        }
    });
    let mut replicas = Vec::new();
    while !writer.is_finished() {
        let (entries, revision) = world.all(&world.root, None, 6).await;
        let mut replica = Replica::of(entries);
        let mut events = world.watch(&world.root, revision).await;
        while !replica.0.contains_key(&world.key("end")) {
            replica.apply(events.next().await);
        }
        replicas.push(replica);
    }
    writer.await.expect("the writer finishes");
    let (entries, revision) = world.all(&world.root, None, 0).await;
    let present = Replica::of(entries);
    for replica in replicas {
        assert_eq!(replica, present);
    }
    // Nothing is left over to hear.
    let mut rest = world.store.watch(&world.root, revision).await.expect("it watches");
    let more = world.put("more", "x").await;
    loop {
        match rest.next().await.expect("it goes on").expect("it does not fail") {
            muster_model::store::WatchEvent::Progress(_) => {}
            muster_model::store::WatchEvent::Changes(changes) => {
                assert_eq!(changes[0].revision, more);
                break;
            }
        }
    }
}
