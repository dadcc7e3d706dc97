//! Figures, by hand: `cargo test --release -p muster-store --test store measure -- --ignored --nocapture`.

use std::{sync::Arc, time::Instant};

use muster_model::store::{Committed, Expect, List, Store, Txn};
use muster_store::embedded::Embedded;

use crate::support::{options, scratch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures, judges nothing"]
#[allow(clippy::disallowed_methods, clippy::cast_precision_loss, reason = "measures real time, roughly")]
async fn measure() {
    const WRITERS: usize = 64;
    const EACH: usize = 1600;
    let dir = scratch();
    let store = Arc::new(Embedded::open(dir.path(), options()).expect("it opens"));
    let began = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..EACH {
                    let key = format!("/muster/pools/{writer:03}-{n:06}");
                    let txn = Txn::new().expect(&key, Expect::Absent).put(&key, vec![b'x'; 2000]);
                    assert!(matches!(store.commit(txn).await, Ok(Committed::Done { .. })));
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("it finishes");
    }
    let rate = (WRITERS * EACH) as f64 / began.elapsed().as_secs_f64();
    println!("durable creates of 2 KB, {WRITERS} writers: {rate:.0}/s");

    let began = Instant::now();
    for n in 0..100_000_usize {
        let key = format!("/muster/pools/{:03}-{:06}", n * 7 % WRITERS, n * 13 % EACH);
        assert!(store.get(&key).await.expect("it reads").is_some());
    }
    println!("get: {:.1} us", began.elapsed().as_secs_f64() * 10.0);

    // As a page of a list asks: 100 objects and their statuses, which most do not have, 16 at a time.
    for (what, apart) in [("neighbours", 1), ("every tenth", 10)] {
        let began = Instant::now();
        for n in 0..500_usize {
            let keys: Vec<String> = (0..100)
                .map(|place| (n * 7 % WRITERS, (n * 100 + place * apart) % EACH))
                .flat_map(|(writer, place)| {
                    let name = format!("{writer:03}-{place:06}");
                    [format!("/muster/pools/{name}"), format!("/muster/status/{name}")]
                })
                .collect();
            for group in keys.chunks(32) {
                assert!(store.get_all(group).await.expect("it reads")[0].is_some());
            }
        }
        println!("100 objects and statuses, {what}: {:.0} us", began.elapsed().as_secs_f64() * 2000.0);
    }

    let began = Instant::now();
    for n in 0..500 {
        let after = Some(format!("/muster/pools/{:03}", n % WRITERS));
        let page = store.list(List { after, limit: 100, ..List::prefix("/muster/pools/") }).await;
        assert!(!page.expect("it lists").entries.is_empty());
    }
    println!("list of 100: {:.0} us", began.elapsed().as_secs_f64() * 2000.0);

    let began = Instant::now();
    store.close().await.expect("it closes");
    println!("clean stop with {} keys: {:?}", WRITERS * EACH, began.elapsed());
    let began = Instant::now();
    let store = Embedded::open(dir.path(), options()).expect("it opens");
    println!("start after a clean stop: {:?}", began.elapsed());
    drop(store);
    std::fs::remove_file(dir.path().join("store.clean")).expect("it is there");
    let began = Instant::now();
    let store = Embedded::open(dir.path(), options()).expect("it opens");
    println!("start after an unclean stop: {:?}", began.elapsed());
    println!("file: {} MiB", store.stats().await.expect("it has numbers").bytes >> 20);
}
