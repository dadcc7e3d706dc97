//! OPS-R5 in the simulated world, with the production loops.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use muster_model::{Duration, host::Phase};
use muster_sim::world::{
    Build, Disturbance, Outage, START, What, Workload,
    fleet::on_one_thread,
    fuzz,
    simulation::Simulation,
    site::{self, HostSetting, PoolSetting, Site},
};

/// A pool of so many hosts, at rest.
async fn metal(hosts: u32, pool: PoolSetting) -> Simulation {
    let mut simulation = Simulation::new(START, fuzz::exact());
    simulation.plan_for(site::cluster_id());
    let first = simulation.start().await.unwrap();
    let mut made = Site::default();
    for number in 0..hosts {
        let build = Build::new(&format!("h{number}"), &format!("10.2.0.{}", number + 1));
        made.hosts.push(HostSetting::new(&pool.name, build));
    }
    made.pools.push(pool);
    simulation.furnish(first, &made).unwrap();
    simulation.run_for(Duration::from_mins(5)).await.unwrap();
    simulation
}

fn now(simulation: &Simulation, lasts: Duration, what: What) {
    let at = simulation.world().now();
    simulation.world().disturb(Disturbance { at, lasts, what });
}

#[track_caller]
fn unharmed(simulation: &Simulation) {
    let broken = simulation.world().violations();
    assert!(broken.is_empty(), "{broken:#?}\n{}", simulation.world().lines().join("\n"));
}

/// OPS-R5: views that cannot be trusted take nothing away, and all is normal again within two looks.
#[test]
fn ops_r5_a_wrong_view_takes_nothing_away() {
    for outage in [Outage::NoPods, Outage::ApiStalled, Outage::ApiDown] {
        on_one_thread(async {
            let mut simulation = metal(4, PoolSetting::metal("web", 0, 4)).await;
            simulation.world().add_workload(Workload::deployment("shop", 4, 5_000));
            simulation.run_for(Duration::from_mins(10)).await.unwrap();
            assert_eq!(simulation.world().running(), 4);
            now(&simulation, Duration::from_hours(1), What::Outage(outage));
            simulation.run_for(Duration::from_mins(30)).await.unwrap();
            // A process that starts meanwhile believes no more than the others.
            now(&simulation, Duration::from_secs(30), What::KillLeader);
            simulation.run_for(Duration::from_mins(29)).await.unwrap();
            let world = simulation.world();
            assert_eq!((world.power_offs(None), world.evictions(), world.running()), (0, 0, 4), "{outage:?}");
            simulation.run_for(Duration::from_mins(10)).await.unwrap();
            for number in 0..4 {
                let phase = simulation.phase(&format!("h{number}")).await.unwrap();
                assert_eq!(phase, Some(Phase::Serving), "{outage:?} h{number}");
            }
            unharmed(&simulation);
        });
    }
}
