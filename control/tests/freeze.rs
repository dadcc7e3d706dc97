//! What stops every action, over a real store; and what the timer sweeps out.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::sync::Arc;

use async_trait::async_trait;
use muster_control::{
    freeze,
    registry::{Filter, Registry, RegistryOptions, Start},
};
use muster_model::{
    Clock, Duration, Timestamp,
    host::FreezeMode,
    restored::RESTORED_KEY,
    store::{Committed, Entry, List, Page, Revision, Store, StoreError, StoreStats, Txn, WatchStream},
};
use muster_store::memory::Memory;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A clock whose day never ends and whose pauses are short.
#[derive(Debug)]
struct StoppedClock;

const NOW: i64 = 1_800_000_000_000;
const SETTINGS: &str = "/baremetal/global/config";

#[async_trait]
impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(NOW)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    #[allow(clippy::disallowed_methods, reason = "the rim of this test")]
    async fn sleep(&self, _: Duration) {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

async fn put(store: &dyn Store, key: &str, value: serde_json::Value) {
    let done = store.commit(Txn::new().put(key, value.to_string())).await.unwrap();
    assert!(matches!(done, Committed::Done { .. }));
}

fn now() -> Timestamp {
    Timestamp::from_millis(NOW)
}

#[tokio::test]
async fn people_freeze_and_unfreeze_without_touching_other_settings() {
    let store = Memory::default();
    assert!(freeze::state(&store).await.may_act());
    put(&store, "/baremetal/global/config", json!({"highMarkPercent": 65})).await;
    let (state, _) =
        freeze::set(&store, FreezeMode::Frozen, Some("storm".into()), "ada", now()).await.unwrap();
    assert_eq!(
        (state.mode, state.reason.as_str(), state.by.as_deref()),
        (FreezeMode::Frozen, "storm", Some("ada"))
    );
    let (state, _) = freeze::set(&store, FreezeMode::None, None, "ada", now()).await.unwrap();
    assert!(state.may_act());
    let kept = store.get("/baremetal/global/config").await.unwrap().unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&kept.value).unwrap();
    assert_eq!((&kept["highMarkPercent"], &kept["freezeBy"]), (&json!(65), &json!(null)));
    // Settings that cannot be read stop everything, and are not overwritten.
    put(&store, "/baremetal/global/config", json!({"hihgMark": 1})).await;
    assert!(!freeze::state(&store).await.may_act());
    freeze::set(&store, FreezeMode::None, None, "ada", now()).await.unwrap_err();
}

#[tokio::test]
async fn ops_r13_a_restored_store_waits_for_every_controller_and_host() {
    let store = Memory::default();
    put(&store, "/muster/reports/pools/1/gcp", json!({})).await;
    for record in ["spec", "status"] {
        put(&store, &format!("/baremetal/nodes/a-1/{record}"), json!({})).await;
        put(&store, &format!("/baremetal/nodes/b-2/{record}"), json!({})).await;
    }
    assert_eq!(freeze::waiting(&store).await.unwrap(), None);
    let seen = Revision(store.revision().await.unwrap().0 + 5);
    assert!(freeze::mark_when_behind(&store, seen, now()).await.unwrap());
    assert!(!freeze::state(&store).await.may_act());
    let waiting = freeze::waiting(&store).await.unwrap().unwrap();
    assert_eq!(
        waiting.first,
        ["/muster/reports/pools/1/gcp", "/baremetal/nodes/a-1/", "/baremetal/nodes/b-2/"]
    );
    put(&store, "/muster/reports/pools/1/gcp", json!({})).await;
    put(&store, "/baremetal/nodes/a-1/metrics", json!({})).await;
    // A person's change of a spec tells nothing about the world.
    put(&store, "/baremetal/nodes/b-2/spec", json!({})).await;
    assert!(!freeze::lift_when_observed(&store).await.unwrap());
    assert_eq!(freeze::waiting(&store).await.unwrap().unwrap().first, ["/baremetal/nodes/b-2/"]);
    put(&store, "/baremetal/nodes/b-2/status", json!({})).await;
    assert!(freeze::lift_when_observed(&store).await.unwrap());
    assert!(freeze::state(&store).await.may_act());
    assert!(store.get(RESTORED_KEY).await.unwrap().is_none());
    assert!(
        !freeze::mark_when_behind(&store, Revision(1), now()).await.unwrap(),
        "a store that went on is fine"
    );
}

/// An operation on a host, as it is stored.
fn operation(number: u128, days: i64, state: &str) -> (String, serde_json::Value) {
    // The order of the numbers is that of the times, within a day.
    let at = Timestamp::from_millis(NOW - days * 86_400_000 + i64::try_from(number).unwrap());
    let id = Uuid::from_u128(number);
    let value = json!({"id": id, "kind": "power-on", "project": "p", "host": "a", "reason": "r", "state": state,
        "done": state != "Running", "message": "", "created_at": at, "created_by": "x"});
    (format!("/muster/operations/{id}"), value)
}

/// Lets the timer sweep until `enough` says so of how many there are and of the page at this offset.
async fn swept(store: Memory, offset: usize, enough: impl Fn(usize, &[u128]) -> bool) {
    let options = RegistryOptions { exclusive: true, default_lease: Duration::from_mins(5) };
    let registry = Registry::open(Arc::new(store), Arc::new(StoppedClock), options).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (registry, stop) = (Arc::clone(&registry), stop.clone());
        async move { registry.run(stop).await }
    });
    let left = || async {
        let page = registry.operations(&Filter::everything(), Start::Offset(offset), 10).await;
        page.map(|(found, _)| {
            (found.total, found.items.iter().map(|item| item.id.as_u128()).collect::<Vec<_>>())
        })
    };
    #[allow(clippy::disallowed_methods, reason = "a test waits for another task here")]
    let pause = || tokio::time::sleep(std::time::Duration::from_millis(20));
    for turn in 0.. {
        // Before the feed runs a list is refused.
        if left().await.is_ok_and(|(total, page)| enough(total, &page)) {
            break;
        }
        assert!(turn < 9_000, "after minutes there are still {:?}", left().await);
        pause().await;
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn old_operations_are_swept_out_and_open_ones_never() {
    let store = Memory::default();
    for (number, days, state) in [
        (1, 40, "Succeeded"),
        (2, 35, "Failed"),
        (3, 40, "Running"),
        (4, 3, "Succeeded"),
        (5, 31, "Superseded"),
    ] {
        let (key, value) = operation(number, days, state);
        put(&store, &key, value).await;
    }
    swept(store, 0, |_, left| left == [4, 3]).await;
}

/// Ten thousand finished ones are kept, the newest; open ones are not counted and not touched.
#[tokio::test]
async fn too_many_operations_are_swept_out_oldest_first() {
    let store = Memory::default();
    for number in 1..=10_250 {
        let state = if number % 1_000 == 1 { "Running" } else { "Succeeded" };
        let (key, value) = operation(number, 1, state);
        put(&store, &key, value).await;
    }
    // 11 of them run. Of the other 10,239 the oldest 239 go: 2 to 240.
    swept(store, 10_005, |total, last| total == 10_011 && last == [245, 244, 243, 242, 241, 1]).await;
}

/// A store that holds back what it has read of the settings, and tells when lists are read.
#[derive(Debug)]
struct Slow {
    store: Memory,
    held: watch::Sender<bool>,
    reading: watch::Sender<bool>,
    listed: watch::Sender<usize>,
}

#[async_trait]
impl Store for Slow {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let found = self.store.get(key).await;
        if key == SETTINGS && *self.held.borrow() {
            self.reading.send_replace(true);
            let _ = self.held.subscribe().wait_for(|held| !held).await;
        }
        found
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.listed.send_modify(|count| *count += 1);
        self.store.list(list).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        self.store.commit(txn).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        self.store.watch(prefix, after).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.store.compact(before).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        self.store.stats().await
    }
}

/// A regular look that has read the settings before somebody froze everything does not take it back when it comes to its end.
#[tokio::test]
async fn a_look_that_began_before_a_freeze_does_not_undo_it() {
    let slow = Arc::new(Slow {
        store: Memory::default(),
        held: watch::Sender::new(false),
        reading: watch::Sender::new(false),
        listed: watch::Sender::new(0),
    });
    let options = RegistryOptions { exclusive: true, default_lease: Duration::from_mins(5) };
    let registry = Registry::open(slow.clone(), Arc::new(StoppedClock), options).await.unwrap();
    slow.held.send_replace(true);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (registry, stop) = (Arc::clone(&registry), stop.clone());
        async move { registry.run(stop).await }
    });
    slow.reading.subscribe().wait_for(|reading| *reading).await.unwrap();
    let (state, _) =
        freeze::set(&slow.store, FreezeMode::Frozen, Some("storm".into()), "ada", now()).await.unwrap();
    registry.set_freeze(state);
    // After its look the timer sweeps, which begins with a list.
    let before = *slow.listed.borrow();
    slow.held.send_replace(false);
    slow.listed.subscribe().wait_for(|count| *count > before).await.unwrap();
    assert_eq!(registry.freeze().mode, FreezeMode::Frozen);
    stop.cancel();
    running.await.unwrap();
}
