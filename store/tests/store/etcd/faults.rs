//! Members that die, stop, and come back.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use muster_model::store::{Committed, List, Revision, Store, StoreError, Txn, WatchEvent};
use muster_store::etcd::Options;

use super::history::Workload;
use crate::support::cluster::{self, Cluster, options, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_r13_the_leader_is_killed_under_load() {
    let cluster = Cluster::three().await;
    let store = Arc::new(cluster.open(options()).await);
    let load = Workload::start(Arc::clone(&store)).await;
    for _ in 0..2 {
        load.more(60).await;
        let leader = cluster.leader().await;
        cluster.kill(leader);
        load.more(60).await;
        cluster.restart(leader);
        load.more(30).await;
    }
    assert!(load.judge().await > 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_r13_quorum_is_lost_and_regained() {
    let cluster = Cluster::three().await;
    let store = Arc::new(cluster.open(Options { call_timeout: Duration::from_secs(2), ..options() }).await);
    let load = Workload::start(Arc::clone(&store)).await;
    load.more(60).await;
    cluster.kill(0);
    cluster.kill(1);
    // Writers go on trying. What they are told is one of two things, which the workload checks.
    let told = async {
        loop {
            match store.get("/load/count").await {
                Err(StoreError::Unavailable { store, why }) => {
                    assert!(store.starts_with("etcd://127.0.0.1:") && !why.is_empty(), "{store}: {why}");
                    return;
                }
                Ok(_) => wait(Duration::from_millis(50)).await,
                Err(error) => panic!("a cluster without quorum gave {error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), told).await.expect("a lost quorum shows");
    let refused = store.commit(Txn::new().put("/x", "1")).await;
    assert!(
        matches!(refused, Err(StoreError::Unavailable { .. } | StoreError::Ambiguous { .. })),
        "{refused:?}"
    );
    cluster.restart(0);
    cluster.restart(1);
    load.more(60).await;
    load.judge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_stopped_in_its_tracks() {
    let cluster = Cluster::three().await;
    let store = Arc::new(cluster.open(options()).await);
    let load = Workload::start(Arc::clone(&store)).await;
    load.more(60).await;
    // First the one that everything goes to, then the leader, wherever that is.
    cluster.freeze(0);
    load.more(60).await;
    cluster.thaw(0);
    let leader = cluster.leader().await;
    cluster.freeze(leader);
    load.more(60).await;
    cluster.thaw(leader);
    load.more(60).await;
    load.judge().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_member_costs_nothing_after_the_first_failure() {
    let cluster = Cluster::three().await;
    cluster.kill(0);
    let store = cluster.open(options()).await;
    for n in 0..100 {
        let done = store.commit(Txn::new().put(format!("/{n}"), "x")).await.expect("two members are enough");
        assert!(matches!(done, Committed::Done { .. }));
    }
    // The same client, while another one dies and the first has come back.
    cluster.restart(0);
    let one = cluster.open(Options { call_timeout: Duration::from_mins(1), ..options() }).await;
    one.revision().await.expect("the cluster answers");
    cluster.kill(1);
    for n in 0..20 {
        let done =
            store.commit(Txn::new().put(format!("/{n}"), "y")).await.expect("the store finds the others");
        assert!(matches!(done, Committed::Done { .. }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_r13_history_is_compacted_under_a_watch() {
    let cluster = Cluster::three().await;
    let store = Arc::new(cluster.open(options()).await);
    let start = put(&*store, "0").await;
    let mut watch = store.watch("/n", start).await.expect("it watches");
    let mut last = start;
    for n in 1..=20 {
        last = put(&*store, &n.to_string()).await;
    }
    let mut heard = start;
    while heard < last {
        if let WatchEvent::Changes(changes) = next(&mut watch).await.expect("it goes on") {
            assert!(changes[0].revision > heard);
            heard = changes[0].revision;
        }
    }
    // A watch that is up to date does not mind, not even when its member dies.
    store.compact(last).await.expect("it compacts");
    cluster.kill(0);
    last = put(&*store, "after").await;
    while heard < last {
        if let WatchEvent::Changes(changes) = next(&mut watch).await.expect("it goes on") {
            heard = changes[0].revision;
        }
    }
    assert_eq!(heard, last);
    // One that asks for what is gone is told so, with the place where history begins.
    let mut late = store.watch("/n", start).await.expect("it watches");
    match next(&mut late).await {
        Err(StoreError::Compacted { asked, oldest }) => assert!(asked == start && oldest > start),
        other => panic!("forgotten history gave {other:?}"),
    }
    let page = store.list(List::prefix("/n")).await.expect("it lists");
    let mut again = store.watch("/n", page.revision).await.expect("it watches");
    let newest = put(&*store, "newest").await;
    loop {
        if let WatchEvent::Changes(changes) = next(&mut again).await.expect("it goes on") {
            assert_eq!(changes[0].revision, newest);
            break;
        }
    }
}

async fn next(watch: &mut muster_model::store::WatchStream) -> Result<WatchEvent, StoreError> {
    let next = tokio::time::timeout(Duration::from_mins(1), watch.next());
    next.await.expect("the watch says something").expect("a watch does not end silently")
}

async fn put(store: &dyn Store, value: &str) -> Revision {
    match store.commit(Txn::new().put("/n", value.to_owned())).await.expect("it commits") {
        Committed::Done { revision } => revision,
        refused @ Committed::Refused { .. } => panic!("{refused:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_crashed_process_leaves_is_removed_by_the_others() {
    let cluster = cluster::shared().await;
    let _alone = cluster::alone().await;
    let root = "/sweeping".to_owned();
    let crashed = cluster.open(Options { root: root.clone(), ..options() }).await;
    put(&crashed, "1").await;
    drop(crashed); // not closed: its slot stays
    let raw = cluster.open(options()).await;
    assert_eq!(slots(&cluster, &root), 1, "a slot was used");
    let every = Duration::from_millis(300);
    let other = cluster.open(Options { root: root.clone(), sweep_every: every, ..options() }).await;
    let swept = async {
        while slots(&cluster, &root) > 0 {
            wait(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), swept).await.expect("the slot is removed");
    put(&other, "2").await;
    assert_eq!(slots(&cluster, &root), 1);
    other.close().await.expect("it closes");
    assert_eq!(slots(&cluster, &root), 0, "a closed store leaves nothing");
    raw.close().await.expect("it closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_was_removed_costs_one_more_attempt() {
    let cluster = cluster::shared().await;
    let _alone = cluster::alone().await;
    let root = "/idle".to_owned();
    let idle = cluster.open(Options { root: root.clone(), ..options() }).await;
    put(&idle, "1").await;
    cluster.etcdctl(&["del", "--prefix", &format!("{root}/muster/~")]);
    put(&idle, "2").await;
    assert_eq!(idle.get("/n").await.expect("it reads").expect("it is there").value, "2");
    idle.close().await.expect("it closes");
}

/// Slots in etcd, seen from outside.
fn slots(cluster: &Cluster, root: &str) -> usize {
    let keys = cluster.etcdctl(&["get", "--prefix", "--keys-only", &format!("{root}/muster/~slots/")]);
    keys.lines().filter(|line| !line.is_empty()).count()
}
