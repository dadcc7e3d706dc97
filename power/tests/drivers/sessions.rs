//! OPS-R11: one session and one call per BMC, over many polls and restarts, and none left over.

use std::sync::Arc;

use muster_emulate::redfish::{Fleet, Layout};
use muster_model::power::{Bmc, Power as _};
use muster_power::redfish::{MemoryLedger, Redfish, Setup};

use crate::support::{Vault, clock, eventually, redfish_host, setup};

const BMCS: usize = 50;
const RESTARTS: usize = 100;
/// 100 lives of 100 polls each: 10,000.
const POLLS_PER_LIFE: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ops_r11_10000_polls_over_50_bmcs_with_100_restarts() {
    let fleet = Fleet::start(&Layout { bmcs: 50, ..Layout::default() }, clock()).await.unwrap();
    let hosts: Vec<Bmc> = fleet.bmcs().map(|bmc| redfish_host(&bmc.url())).collect();
    assert_eq!(hosts.len(), BMCS);
    let vault = Vault::with("lab", "admin", "emulated");
    let shared = Setup { ledger: Arc::new(MemoryLedger::default()), ..setup(&vault) };
    for life in 0..RESTARTS {
        let driver = Redfish::new(shared.clone());
        // Two callers ask every BMC at the same time; the lock has to keep them apart.
        let polls = (0..POLLS_PER_LIFE).map(|poll| {
            let (driver, host) = (driver.clone(), hosts[poll % BMCS].clone());
            tokio::spawn(async move { driver.read(&host).await })
        });
        for poll in polls.collect::<Vec<_>>() {
            poll.await.unwrap().unwrap_or_else(|error| panic!("life {life}: {error}"));
        }
        match life % 3 {
            0 => driver.close().await,
            // Killed: nothing runs any more, not even a destructor. The ledger is all that is left.
            1 => std::mem::forget(driver),
            // Dropped without a word; its sessions are ended in the background, and the next life must not
            // overtake that.
            _ => {
                drop(driver);
                eventually("sessions ended after a drop", &|| {
                    fleet.bmcs().all(|bmc| bmc.counters().sessions == 0)
                })
                .await;
            }
        }
    }
    let last = Redfish::new(shared);
    for host in &hosts {
        last.read(host).await.unwrap();
    }
    last.close().await;
    for bmc in fleet.bmcs() {
        let counters = bmc.counters();
        assert_eq!(counters.sessions, 0, "{}: none left over: {counters:?}", bmc.name);
        assert_eq!(counters.sessions_peak, 1, "{}: one at a time: {counters:?}", bmc.name);
        assert_eq!(counters.in_flight_peak, 1, "{}: one call in flight: {counters:?}", bmc.name);
        assert!(counters.calls > (RESTARTS * POLLS_PER_LIFE / BMCS) as u64, "{counters:?}");
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_no_session_behind() {
    let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let bmc = fleet.first();
    let host = redfish_host(&bmc.url());
    let vault = Vault::with("lab", "admin", "emulated");
    let driver = Redfish::new(setup(&vault));
    for _ in 0..20 {
        // Given up at an arbitrary point: whatever was begun is finished or undone by the driver itself.
        let reading = tokio::time::timeout(std::time::Duration::from_millis(2), driver.read(&host)).await;
        drop(reading);
    }
    driver.read(&host).await.unwrap();
    assert_eq!(bmc.counters().sessions_peak, 1);
    driver.close().await;
    assert_eq!(bmc.counters().sessions, 0);
}

#[tokio::test]
async fn a_rotated_credential_ends_the_old_session_first() {
    let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let bmc = fleet.first();
    let host = redfish_host(&bmc.url());
    let vault = Vault::with("lab", "admin", "emulated");
    let driver = Redfish::new(setup(&vault));
    driver.read(&host).await.unwrap();
    vault.set("lab", "admin", "emulated"); // the same account under a new version
    driver.read(&host).await.unwrap();
    let counters = bmc.counters();
    assert_eq!((counters.logins, counters.sessions, counters.sessions_peak), (2, 1, 1), "{counters:?}");
    bmc.drop_sessions(); // the BMC restarts
    driver.read(&host).await.unwrap();
    assert_eq!(bmc.counters().logins, 3, "one new login after the BMC forgot the session");
}
