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
    host::{BareMetalNodeSpec, Hold, ManualPower, NamedHost, Switch},
    store::Store,
};
use muster_store::memory::Memory;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

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
    let power = async |order: &ManualRequest| {
        let written = world.inventory.power(&world.context("ann"), "a", &|_| true, order, "p").await.unwrap();
        assert_eq!(written.0.warnings, Vec::<String>::new());
    };
    power(&off).await;
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
    power(&order(ManualPower::Off, "once", Some(3_000))).await;
    world.clock.set(3_000);
    power(&order(ManualPower::Off, "again", Some(4_000))).await;
    assert_eq!(world.spec("a").manual(world.clock.now()), Some(Switch::Off));
}
