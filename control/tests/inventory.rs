//! What people do to hosts, over a store in memory.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;
use muster_control::{
    inventory::{Act, Host, HostWritten, Inventory, InventoryError, ManualRequest},
    registry::{Registry, RegistryOptions, WriteContext},
};
use muster_model::{
    Clock, Duration, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, Hold, ManualPower, NamedHost, Phase, PublicPower, Switch,
        keys::{self, HostRecord},
    },
    store::{Committed, Store, Txn},
};
use muster_store::memory::Memory;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A clock that is set; its pauses are short.
#[derive(Debug, Default)]
struct SetClock(AtomicI64);

impl SetClock {
    fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
    #[allow(clippy::disallowed_methods, reason = "the rim of this test")]
    async fn sleep(&self, _: Duration) {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

struct World {
    store: Arc<dyn Store>,
    clock: Arc<SetClock>,
    inventory: Arc<Inventory>,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// An inventory that follows its store, at the second 0.
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let clock = Arc::new(SetClock::default());
        let options = RegistryOptions { exclusive: true, default_lease: Duration::from_mins(5) };
        let registry = Registry::open(Arc::clone(&store), Arc::clone(&clock) as Arc<dyn Clock>, options);
        let registry = registry.await.unwrap();
        let inventory = Inventory::open(Arc::clone(&store), Arc::clone(&clock) as Arc<dyn Clock>);
        let inventory = inventory.await.unwrap();
        let stop = CancellationToken::new();
        let (following, feeding) = (Arc::clone(&inventory), Arc::clone(&registry));
        let tokens = (stop.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::join!(feeding.run(tokens.0), following.run(Arc::clone(&feeding), tokens.1))
        });
        Self { store, clock, inventory, stop }
    }

    fn context(&self, actor: &str) -> WriteContext {
        WriteContext { actor: actor.into(), now: self.clock.now(), dry_run: false, idempotency: None }
    }

    async fn register(&self, name: &str, spec: Value) {
        let spec = BareMetalNodeSpec::read(&spec, "spec").unwrap().value;
        let host = NamedHost { name: name.into(), spec };
        self.inventory.create(&self.context("ann"), &host, Vec::new()).await.unwrap();
    }

    async fn change(
        &self,
        name: &str,
        change: impl Fn(&mut BareMetalNodeSpec),
    ) -> Result<HostWritten, InventoryError> {
        let changed = |host: &Host| {
            let mut spec = BareMetalNodeSpec::clone(host.readable().unwrap());
            change(&mut spec);
            Ok((spec, Vec::new()))
        };
        let (context, act) = (self.context("ann"), Act::new("patch"));
        self.inventory.update(&context, act, name, &|_| true, changed, |txn, _| txn).await
    }

    /// The machine was seen off and idle, with its spec as it is now.
    async fn seen_off(&self, name: &str) {
        let mut status = BareMetalNodeStatus::enrolling(self.clock.now());
        (status.phase, status.state, status.power_state) =
            (Phase::Idle, Phase::Idle.state(), PublicPower::Off);
        status.off_proved_at = Some(self.clock.now());
        status.observed_generation = u64::MAX;
        self.put(&keys::host(name, HostRecord::Status), &json!(status)).await;
    }

    async fn seen_on(&self, name: &str) {
        let mut status = BareMetalNodeStatus::enrolling(self.clock.now());
        (status.phase, status.state, status.power_state) =
            (Phase::Serving, Phase::Serving.state(), PublicPower::On);
        status.observed_generation = u64::MAX;
        self.put(&keys::host(name, HostRecord::Status), &json!(status)).await;
    }

    async fn put(&self, key: &str, value: &Value) {
        let done = self.store.commit(Txn::new().put(key, value.to_string())).await.unwrap();
        assert!(matches!(done, Committed::Done { .. }));
    }

    async fn power(&self, name: &str, order: &ManualRequest) -> Uuid {
        let made = self.inventory.power(&self.context("ann"), name, &|_| true, order, "p").await;
        made.unwrap().1.id
    }

    async fn operation(&self, id: Uuid) -> Value {
        let entry = self.store.get(&format!("/muster/operations/{id}")).await.unwrap().unwrap();
        serde_json::from_slice(&entry.value).unwrap()
    }

    /// Waits until an operation shows this; the upkeep settles it.
    async fn until(&self, id: Uuid, is: impl Fn(&Value) -> bool) -> Value {
        #[allow(clippy::disallowed_methods, reason = "a test waits for another task here")]
        let pause = || tokio::time::sleep(std::time::Duration::from_millis(5));
        for _ in 0..24_000 {
            let shown = self.operation(id).await;
            if is(&shown) {
                return shown;
            }
            pause().await;
        }
        panic!("after minutes: {}", self.operation(id).await);
    }

    /// How an operation ends.
    async fn end(&self, id: Uuid) -> (String, String) {
        let shown = self.until(id, |shown| shown["done"] == true).await;
        (shown["state"].as_str().unwrap().into(), shown["message"].as_str().unwrap().into())
    }

    fn spec(&self, name: &str) -> BareMetalNodeSpec {
        BareMetalNodeSpec::clone(self.inventory.host(name).unwrap().readable().unwrap())
    }
}

fn redfish(address: &str) -> Value {
    json!({"powerInterface": "redfish", "pool": "p", "mgmtAddress": address})
}

fn hold(by: &str, reason: &str, until: Option<i64>) -> Hold {
    Hold { by: by.into(), reason: reason.into(), until: until.map(Timestamp::from_millis) }
}

fn order(action: ManualPower, reason: &str, until: Option<i64>) -> ManualRequest {
    ManualRequest { action, reason: reason.into(), until: until.map(Timestamp::from_millis) }
}

#[tokio::test]
async fn a_new_hold_does_not_bring_back_a_wish_that_has_lapsed() {
    let world = World::new().await;
    world.register("a", redfish("10.0.0.1")).await;
    let off = order(ManualPower::Off, "new disks", Some(1_000));
    world.power("a", &off).await;
    assert_eq!(world.spec("a").manual(world.clock.now()), Some(Switch::Off));
    // A wish that is in force goes on under another hold.
    world.change("a", |spec| spec.hold = Some(hold("ann", "longer", Some(2_000)))).await.unwrap();
    assert_eq!(world.spec("a").power_state, Some(Switch::Off));
    world.clock.set(2_000);
    let written = world.change("a", |spec| spec.hold = Some(hold("ben", "cables", None))).await.unwrap();
    assert!(written.warnings[0].contains("a hold that has lapsed"), "{:?}", written.warnings);
    assert_eq!(world.spec("a").power_state, None);
    world.change("a", |spec| spec.hold = None).await.unwrap();
    // Who asks for power asks anew.
    world.power("a", &order(ManualPower::Off, "once", Some(3_000))).await;
    world.clock.set(3_000);
    world.power("a", &order(ManualPower::Off, "again", Some(4_000))).await;
    assert_eq!(world.spec("a").manual(world.clock.now()), Some(Switch::Off));
}

#[tokio::test]
async fn a_cycle_switches_nothing_on_under_a_later_wish_or_another_hold() {
    let world = World::new().await;
    let cycle = order(ManualPower::Cycle, "stuck", None);
    for name in ["same", "held", "short"] {
        world.register(name, redfish(&format!("{name}.example"))).await;
    }
    // A later wish for off that reads the same as the first half of the cycle.
    let cycled = world.power("same", &cycle).await;
    let off = world.power("same", &order(ManualPower::Off, "stuck", None)).await;
    world.seen_off("same").await;
    assert_eq!(world.end(off).await.0, "Succeeded");
    let ended = ("Superseded".to_owned(), "power-off was asked for meanwhile".to_owned());
    assert_eq!(world.end(cycled).await, ended);
    let spec = world.spec("same");
    assert_eq!((spec.power_state, spec.hold), (Some(Switch::Off), Some(hold("ann", "stuck", None))));
    // Somebody opens the chassis under a hold of their own.
    let cycled = world.power("held", &cycle).await;
    let open = Some(hold("ann", "chassis open", None));
    world.change("held", |spec| spec.hold.clone_from(&open)).await.unwrap();
    world.seen_off("held").await;
    let (state, message) = world.end(cycled).await;
    assert_eq!(state, "Superseded");
    assert!(message.contains("chassis open"), "{message}");
    assert_eq!((world.spec("held").power_state, world.spec("held").hold), (Some(Switch::Off), open));
    // A wish whose hold lapses is over before it is reached.
    let cycled = world.power("short", &order(ManualPower::Cycle, "stuck", Some(1_000))).await;
    world.clock.set(1_000);
    assert_eq!(world.end(cycled).await.0, "Failed");
}

#[tokio::test]
async fn a_cycle_that_is_asked_for_twice_leaves_what_was_there_before_both() {
    let world = World::new().await;
    world.register("a", redfish("10.0.0.1")).await;
    let first = world.power("a", &order(ManualPower::Cycle, "stuck", None)).await;
    let second = world.power("a", &order(ManualPower::Cycle, "still stuck", None)).await;
    assert_eq!(world.end(first).await.0, "Superseded");
    world.seen_off("a").await;
    world.until(second, |shown| shown["power"]["stage"] == "on").await;
    world.seen_on("a").await;
    assert_eq!(world.end(second).await.0, "Succeeded");
    assert_eq!((world.spec("a").power_state, world.spec("a").hold), (None, None));
}

#[tokio::test]
async fn of_two_records_of_one_bmc_the_older_is_worked_with() {
    let world = World::new().await;
    world.register("a", redfish("10.0.0.1")).await;
    let driver = json!([{"kind": "ipmi", "address": "10.0.0.1:623"}]);
    let again = [redfish("10.0.0.1:443"), json!({"powerInterface": "ipmi", "pool": "p", "drivers": driver})];
    for spec in again {
        let host =
            NamedHost { name: "b".into(), spec: BareMetalNodeSpec::read(&spec, "spec").unwrap().value };
        let refused = world.inventory.create(&world.context("ann"), &host, Vec::new()).await.unwrap_err();
        assert!(matches!(&refused, InventoryError::Clash { owner, .. } if owner == "a"), "{refused}");
    }
    // What a tool wrote past the API is set aside, and does not stand in the older one's way.
    world.put(&keys::host("b", HostRecord::Spec), &redfish("10.0.0.1:443")).await;
    let held = |spec: &mut BareMetalNodeSpec| spec.hold = Some(hold("ann", "which is it?", None));
    world.change("a", held).await.unwrap();
    assert!(world.inventory.host("b").unwrap().set_aside().is_some(), "the index has it now");
    world.change("a", |spec| spec.hold = None).await.unwrap();
    assert!(world.inventory.host("b").unwrap().set_aside().is_some());
    assert!(world.inventory.host("a").unwrap().set_aside().is_none());
}
