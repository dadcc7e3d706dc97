//! What people do to hosts, over a store in memory.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

#[path = "support/asked.rs"]
mod asked;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use muster_control::{
    inventory::{
        Act, Host, HostDeleted, HostFilter, HostWritten, Inventory, InventoryError, LineResult,
        ManualRequest, Owner, set_settings,
    },
    registry::{Change, Registry, RegistryOptions, WatchItem, WriteContext},
};
use muster_model::{
    Clock, Duration, Timestamp,
    host::csv::read_csv,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, DeletionMode, Hold, ManualPower, NamedHost, Phase,
        PublicPower, Switch,
        keys::{self, HostRecord},
    },
    rack::Rack,
    store::{Committed, Revision, Store, StoreError, Txn, Write},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use asked::{Asked, Before};

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

/// A store that refuses to write a key that ends like this, and counts how often.
#[derive(Debug, Default)]
struct Refusing {
    end: Mutex<Option<String>>,
    refused: AtomicUsize,
}

impl Refusing {
    fn refuse(&self, end: Option<String>) {
        *self.end.lock().unwrap() = end;
    }
}

#[async_trait]
impl Before for Refusing {
    async fn commit(&self, txn: &Txn) -> Result<(), StoreError> {
        let end = self.end.lock().unwrap().clone();
        let is_refused = |write: &Write| end.as_ref().is_some_and(|end| write.key().ends_with(end));
        if txn.writes.iter().any(is_refused) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Full { store: "here".into(), why: "no space left".into() });
        }
        Ok(())
    }
}

struct World {
    store: Arc<Asked<Refusing>>,
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
        let store = Arc::new(Asked::<Refusing>::default());
        let clock = Arc::new(SetClock::default());
        let kept = || Arc::clone(&store) as Arc<dyn Store>;
        let options = RegistryOptions { exclusive: true, default_lease: Duration::from_mins(5) };
        let registry = Registry::open(kept(), Arc::clone(&clock) as Arc<dyn Clock>, options);
        let registry = registry.await.unwrap();
        let inventory = Inventory::open(kept(), Arc::clone(&clock) as Arc<dyn Clock>);
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

    /// Waits until this is so; `id` is an operation that the upkeep settles.
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
    // What was there before comes back with the end of the operation, or not at all: whoever goes on would do it again, and
    // wipe what somebody wanted in between.
    world.store.refuse(Some(second.to_string()));
    world.seen_on("a").await;
    world.until(second, |_| world.store.refused.load(Ordering::SeqCst) > 0).await;
    assert_eq!(world.spec("a").hold, Some(hold("ann", "still stuck", None)));
    world.store.refuse(None);
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

#[tokio::test]
async fn trouble_with_a_rack_keeps_nobody_from_a_host_that_is_in_it() {
    let world = World::new().await;
    world.register("a", redfish("10.0.0.1")).await;
    let mut misplaced = redfish("10.0.0.1");
    (misplaced["rack"], misplaced["slot"]) = ("r1".into(), 60.into());
    let rack = |spec: Value| {
        json!({"project": "p", "created_at": "2026-01-01T00:00:00Z", "created_by": "ann",
            "updated_at": "2026-01-01T00:00:00Z", "spec": spec})
    };
    world
        .put(
            "/muster/inventory/racks/r1",
            &rack(json!(Rack::read(&json!({"name": "r1", "units": 42}), "spec").unwrap().value)),
        )
        .await;
    let put_there = |spec: &mut BareMetalNodeSpec| (spec.rack, spec.slot) = (Some("r1".into()), Some(60));
    let refused = world.change("a", put_there).await.unwrap_err();
    assert!(refused.to_string().contains("units 60 to 60 do not fit"), "{refused}");
    world.put(&keys::host("a", HostRecord::Spec), &misplaced).await;
    let held = |reason: &'static str| {
        move |spec: &mut BareMetalNodeSpec| spec.hold = Some(hold("ann", reason, None))
    };
    // Whatever was written before this is in the index after it.
    world.register("b", redfish("10.0.0.2")).await;
    let written = world.change("a", held("fan")).await.unwrap();
    assert!(written.warnings[0].contains("units 60 to 60 do not fit"), "{:?}", written.warnings);
    world.change("a", |spec| spec.slot = Some(59)).await.unwrap_err();
    world.put("/muster/inventory/racks/r1", &json!({"spec": 7})).await;
    let written = world.change("a", held("disk")).await.unwrap();
    assert!(written.warnings[0].contains("rack r1 cannot be read"), "{:?}", written.warnings);
}

#[tokio::test]
async fn what_a_bulk_has_stored_before_the_store_failed_is_reported() {
    let world = World::new().await;
    let table = (0..40).fold("name,powerInterface,mgmtAddress,pool\n".to_owned(), |table, number| {
        format!("{table}h-{number},redfish,10.0.1.{number},p\n")
    });
    let register = async || {
        let lines = read_csv(&table).unwrap();
        world.inventory.register(&world.context("ann"), Some("p"), lines).await
    };
    world.store.refuse(Some("/h-0/spec".into()));
    let error = register().await.unwrap_err();
    assert!(error.to_string().contains("no space left"), "nothing is stored, and nothing to report: {error}");
    world.store.refuse(Some("/h-39/spec".into()));
    let reports = register().await.unwrap();
    let made = reports.iter().filter(|report| report.result == LineResult::Created).count();
    assert!(made > 0 && world.inventory.host("h-0").is_some());
    let last = &reports[39];
    assert!(last.result == LineResult::Failed && last.message.contains("no space left"), "{last:?}");
    for report in &reports {
        assert_eq!(world.inventory.host(&report.name).is_some(), report.result == LineResult::Created);
    }
    for name in ["bulk", "export"] {
        let host = NamedHost {
            name: name.into(),
            spec: BareMetalNodeSpec::read(&redfish("10.0.2.1"), "spec").unwrap().value,
        };
        let refused = world.inventory.create(&world.context("ann"), &host, Vec::new()).await.unwrap_err();
        assert!(refused.to_string().contains("/api/v1/hosts/"), "{refused}");
    }
}

#[tokio::test]
async fn good_settings_over_unreadable_ones_keep_what_a_person_froze() {
    let world = World::new().await;
    let slip =
        json!({"maxPowerOperatoins": 1, "freeze": "frozen", "freezeReason": "storm", "freezeBy": "ada"});
    world.put(keys::GLOBAL_CONFIG, &slip).await;
    let (config, revision) =
        set_settings(&*world.store, &json!({"maxPowerOperations": 9}), &|_| true).await.unwrap();
    assert_eq!((config.freeze.as_str(), config.freeze_by.as_deref()), ("frozen", Some("ada")));
    assert_eq!((config.freeze_reason.as_deref(), config.max_power_operations), (Some("storm"), 9));
    let at = |wanted: Revision| move |version: Revision| version == wanted;
    set_settings(&*world.store, &json!({}), &at(Revision(1))).await.unwrap_err();
    set_settings(&*world.store, &json!({}), &at(revision)).await.unwrap();
}

/// Everything that the inventory shows of a host after whatever was written before.
impl World {
    async fn settled(&self) {
        // A write of ours returns when the index has seen everything before it.
        let number = self.clock.now().millis() + 1;
        self.clock.set(number);
        self.register(&format!("settled-{number}"), redfish(&format!("settled-{number}.example"))).await;
    }

    async fn delete(&self, name: &str, mode: DeletionMode) -> Result<HostDeleted, InventoryError> {
        self.inventory.delete(&self.context("ann"), name, &|_| true, mode).await
    }
}

#[tokio::test]
async fn hosts_that_change_places_are_changed_at_one_moment_or_not_at_all() {
    let world = World::new().await;
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        world.register(name, redfish(address)).await;
    }
    let moved = |to: [&'static str; 2]| {
        move |host: &Host| {
            let mut spec = BareMetalNodeSpec::clone(host.readable().unwrap());
            spec.mgmt_address = Some(to[usize::from(&*host.name == "b")].parse().unwrap());
            Ok((spec, Vec::new()))
        }
    };
    let together = async |to| {
        let (context, act) = (world.context("ann"), Act::new("patch"));
        world.inventory.update_together(&context, act, &["a", "b"], moved(to)).await
    };
    let place = |name: &str| world.spec(name).mgmt_address.unwrap().to_string();
    for to in [
        ["10.0.0.2", "10.0.0.3"],
        ["10.0.0.9", "10.0.0.9"],
        ["10.0.0.2", "10.0.0.2"],
        ["10.0.0.1", "10.0.0.1"],
    ] {
        let refused = together(to).await.unwrap_err();
        assert!(matches!(refused, InventoryError::Clash { .. }), "{refused}");
        assert_eq!(
            (place("a"), place("b")),
            ("10.0.0.1".into(), "10.0.0.2".into()),
            "none of them is changed"
        );
    }
    let written = together(["10.0.0.2", "10.0.0.1"]).await.unwrap();
    assert!(written.iter().all(|one| one.changed && one.host.set_aside().is_none()));
    assert_eq!((place("a"), place("b")), ("10.0.0.2".into(), "10.0.0.1".into()));
    assert_eq!(world.inventory.changes("b").await.unwrap().changes.len(), 2);
    let again = together(["10.0.0.2", "10.0.0.1"]).await.unwrap();
    assert!(again.iter().all(|one| !one.changed));
}

#[tokio::test]
async fn a_record_that_is_set_aside_is_not_deleted_from_under_what_may_run_there() {
    let world = World::new().await;
    // At rest, serving, and with an operation that nobody can read.
    for name in ["rest", "serves", "unread", "wish"] {
        world
            .put(&keys::host(name, HostRecord::Spec), &json!({"powerInterface": "redfsh", "pool": "p"}))
            .await;
    }
    world.seen_off("rest").await;
    world.seen_on("serves").await;
    world.seen_off("unread").await;
    world.put(&keys::host("unread", HostRecord::Op), &json!("garbage")).await;
    world.put(&keys::host("wish", HostRecord::Intent), &json!(7)).await;
    world.settled().await;
    for name in ["serves", "unread", "wish"] {
        let refused = world.delete(name, DeletionMode::Keep).await.unwrap_err();
        assert!(matches!(refused, InventoryError::Serving { .. }), "{name}: {refused}");
        assert!(refused.to_string().contains("set aside"), "{refused}");
    }
    assert!(world.delete("rest", DeletionMode::Keep).await.unwrap().gone);
    assert!(world.delete("unread", DeletionMode::Force).await.unwrap().gone);
    // Once it is corrected it is drained like any other.
    world.put(&keys::host("serves", HostRecord::Spec), &redfish("10.0.0.5")).await;
    world.settled().await;
    assert!(!world.delete("serves", DeletionMode::Keep).await.unwrap().gone);
    assert!(world.spec("serves").deletion.is_some());
    // So is one whose operation or wish cannot be read: it may be anything.
    world.register("odd", redfish("10.0.0.6")).await;
    world.put(&keys::host("odd", HostRecord::Op), &json!({"id": 7})).await;
    world.settled().await;
    assert!(!world.delete("odd", DeletionMode::Keep).await.unwrap().gone);
}

#[tokio::test]
async fn an_unreadable_record_stays_its_projects() {
    let world = World::new().await;
    let owner = |name: &str| world.inventory.host(name).unwrap().owner().clone();
    let of = |project: &str| {
        let mut spec = redfish(&format!("{project}.example"));
        spec["project"] = project.into();
        spec
    };
    world.register("a", of("lab")).await;
    world.put(&keys::host("a", HostRecord::Spec), &json!("garbage")).await;
    let mut faulty = of("web");
    faulty["powerInterface"] = "redfsh".into();
    world.put(&keys::host("b", HostRecord::Spec), &faulty).await;
    world.put(&keys::host("c", HostRecord::Spec), &json!({"pool": "p"})).await;
    world.put(&keys::host("d", HostRecord::Spec), &redfish("10.0.0.9")).await;
    world.settled().await;
    assert_eq!(owner("a"), Owner::Project("lab".into()), "as it was known before");
    assert_eq!(owner("b"), Owner::Project("web".into()), "as far as it can be told");
    assert_eq!((owner("c"), owner("d")), (Owner::Unknown, Owner::Nobody));
    assert!(world.inventory.host("b").unwrap().registered().is_none());
    let aside = HostFilter { set_aside: Some(true), ..HostFilter::default() };
    let names: Vec<_> =
        world.inventory.hosts(&aside).unwrap().iter().map(|host| host.name.to_string()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test]
async fn the_next_host_of_a_name_begins_without_the_last_ones_story() {
    let world = World::new().await;
    let of = |project: &str| {
        let mut spec = redfish("10.0.0.1");
        (spec["project"], spec["registered"]) =
            (project.into(), json!({"by": "eve", "at": "2001-01-01T00:00:00Z"}));
        spec["deletion"] = json!({"mode": "force", "by": "eve", "at": "2001-01-01T00:00:00Z"});
        spec
    };
    world.clock.set(5);
    world.register("a", of("lab")).await;
    let spec = world.spec("a");
    let registered = spec.registered.unwrap();
    assert_eq!(
        (registered.by.as_str(), registered.at.millis()),
        ("ann", 5),
        "a body does not say who sent it"
    );
    assert_eq!(spec.deletion, None);
    world.inventory.set_boot_token("a", "secret").await.unwrap();
    world.change("a", |spec| spec.hold = Some(hold("ann", "salary files on it", None))).await.unwrap();
    world.delete("a", DeletionMode::Force).await.unwrap();
    world.register("a", of("web")).await;
    assert!(!world.inventory.is_boot_token("a", "secret").await.unwrap());
    let story = async |project: Option<&'static str>| {
        let visible = |of: Option<&str>| project.is_none_or(|project| of == Some(project));
        let story = world.inventory.history("a", visible).await.unwrap();
        story.into_iter().map(|entry| entry.what).collect::<Vec<_>>()
    };
    assert_eq!(story(Some("web")).await, ["create"]);
    assert_eq!(story(Some("lab")).await, ["create", "patch", "delete"]);
    assert_eq!(story(None).await.len(), 4);
}

#[tokio::test]
async fn a_watch_tells_who_comes_into_its_filter_and_who_leaves_it() {
    let world = World::new().await;
    world.register("a", redfish("10.0.0.1")).await;
    let from = world.inventory.revision();
    let filter = HostFilter { rack: Some("r1".into()), ..HostFilter::default() };
    let mut watch = world.inventory.watch(filter, Some(from)).await.unwrap();
    world.change("a", |spec| spec.zone = Some("z".into())).await.unwrap();
    world.change("a", |spec| spec.rack = Some("r1".into())).await.unwrap();
    world.change("a", |spec| spec.zone = None).await.unwrap();
    world.change("a", |spec| spec.rack = None).await.unwrap();
    world.change("a", |spec| spec.rack = Some("r1".into())).await.unwrap();
    world.delete("a", DeletionMode::Force).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 5 {
        if let WatchItem::Object { change, .. } = watch.next().await.unwrap() {
            told.push(change);
        }
    }
    assert_eq!(told, [Change::Added, Change::Modified, Change::Deleted, Change::Added, Change::Deleted]);
    // What is not in memory any more is not made up.
    let old = world.inventory.watch(HostFilter::default(), Some(Revision(0))).await;
    assert!(old.is_ok(), "this inventory was empty when it was opened");
    let later = Inventory::open(
        Arc::clone(&world.store) as Arc<dyn Store>,
        Arc::clone(&world.clock) as Arc<dyn Clock>,
    );
    let gone = later.await.unwrap().watch(HostFilter::default(), Some(from)).await.unwrap_err();
    assert!(matches!(gone, InventoryError::Gone { asked } if asked == from), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_is_answered_although_the_index_is_late() {
    let store = Arc::new(Asked::<Refusing>::default());
    let clock = Arc::new(SetClock::default());
    // Nobody follows the store.
    let inventory =
        Inventory::open(Arc::clone(&store) as Arc<dyn Store>, clock as Arc<dyn Clock>).await.unwrap();
    let context =
        WriteContext { actor: "ann".into(), now: Timestamp::EPOCH, dry_run: false, idempotency: None };
    let spec = BareMetalNodeSpec::read(&redfish("10.0.0.1"), "spec").unwrap().value;
    let host = NamedHost { name: "a".into(), spec };
    let made = inventory.create(&context, &host, Vec::new()).await.unwrap();
    assert!(made.changed && inventory.host("a").is_none());
    assert_eq!(made.host.readable().unwrap().pool, "p");
    assert_eq!(made.host.version(), store.revision().await.unwrap());
}
