//! What hosts are said to draw, use and save.

use muster_model::{
    host::{
        DriverKind as Kind, DriverSpec, HostMetrics, Phase, Switch, WattsBy,
        keys::{self, HostRecord},
    },
    power::DriverKind,
};

use crate::world::World;

async fn metrics(world: &World, host: &str) -> HostMetrics {
    world.read(&keys::host(host, HostRecord::Metrics)).await.expect("metrics")
}

/// While the first driver does not answer, the one in use is asked for sensors, and nobody waits for the other.
#[tokio::test(start_paused = true)]
async fn sensors_are_read_by_the_driver_in_use() {
    let world = World::new().await;
    world
        .register("h1", |spec| {
            spec.drivers = vec![DriverSpec::new(Kind::Redfish), DriverSpec::new(Kind::Ipmi)];
            spec.idle_watts = Some(180);
        })
        .await;
    world.until("h1", Phase::Idle, 120).await;
    world.pass(130).await;
    world.outside.state().machines.get_mut("h1").unwrap().watts = Some(251);
    world.want("h1", Switch::On, "i-1").await;
    world.until("h1", Phase::Serving, 300).await;
    world.pass(300).await;
    let asked = |kind: DriverKind| world.outside.state().sensed.iter().filter(|(_, by)| *by == kind).count();
    assert!(
        asked(DriverKind::Redfish) > 0 && asked(DriverKind::Ipmi) == 0,
        "the first driver as long as it answers"
    );
    world.outside.state().machines.get_mut("h1").unwrap().silent.insert("redfish");
    while world.status("h1").await.driver_fallback.is_none() {
        world.pass(10).await;
    }
    let before = asked(DriverKind::Redfish);
    world.pass(250).await;
    assert_eq!(asked(DriverKind::Redfish), before, "a driver that does not answer is left alone");
    assert!(asked(DriverKind::Ipmi) > 0);
    let found = metrics(&world, "h1").await;
    assert_eq!((found.milliwatts.value(), found.watts_by), (Some(&251_000), Some(WattsBy::Bmc)));
}

/// A BMC that does not answer says nothing: what it had said of an idle host is no saving.
#[tokio::test(start_paused = true)]
async fn a_silent_bmc_saves_nothing() {
    let world = World::new().await;
    world.register("h1", |spec| spec.idle_watts = Some(180)).await;
    world.until("h1", Phase::Idle, 120).await;
    world.pass(1_800).await;
    let saved = metrics(&world, "h1").await.saved_milliwatt_hours;
    assert!(saved > 0, "a machine that is off saves");
    world.outside.state().machines.get_mut("h1").unwrap().silent.insert("redfish");
    while world.status("h1").await.power.value().is_some() {
        world.pass(10).await;
    }
    world.pass(30).await; // what was accounted for is written
    let before = metrics(&world, "h1").await;
    world.pass(3_600).await;
    let after = metrics(&world, "h1").await;
    assert_eq!(world.phase("h1").await, Some(Phase::Idle));
    assert!(after.at > before.at, "it is still looked at");
    assert_eq!(after.saved_milliwatt_hours, before.saved_milliwatt_hours);
    assert_eq!(after.milliwatts.value(), None, "{:?}", after.milliwatts);
}

/// A host that leaves takes nothing away from what its pool is counted with: a counter that falls is taken for one that began
/// anew, and all of it counts once more.
#[tokio::test(start_paused = true)]
async fn the_energy_of_a_pool_never_falls() {
    let world = World::new().await;
    for name in ["h1", "h2"] {
        world.register(name, |spec| spec.idle_watts = Some(180)).await;
        world.until(name, Phase::Idle, 120).await;
    }
    world.pass(1_800).await;
    let saved = || world.host_loop.figures().pools["gpu"].saved_milliwatt_hours;
    let before = saved();
    let stored = metrics(&world, "h1").await.saved_milliwatt_hours;
    assert!(before >= 2 * stored - 10_000 && stored > 50_000, "{before} of {stored} each");
    world.respec("h1", |spec| spec.pool = "web".into()).await;
    world.pass(1_800).await;
    let pools = world.host_loop.figures().pools;
    assert!(pools["gpu"].saved_milliwatt_hours > before, "{pools:?}");
    assert!(pools["web"].saved_milliwatt_hours < 2 * stored, "only what it saved there: {pools:?}");
}
