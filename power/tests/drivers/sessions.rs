//! OPS-R11: one session and one call per BMC, over many polls and restarts, and none left over.

use std::sync::Arc;

use muster_emulate::redfish::{Counters, Faults, Fleet, Layout};
use muster_model::{
    Duration,
    power::{Bmc, Power as _},
};
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

/// The lab's BMC, and a driver for each process that shares one ledger with the others.
struct Lab {
    fleet: Fleet,
    shared: Setup,
    host: Bmc,
}

impl Lab {
    async fn new() -> Self {
        let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
        let shared = setup(&Vault::with("lab", "admin", "emulated"));
        Self { host: redfish_host(&fleet.first().url()), shared, fleet }
    }

    fn process(&self) -> Redfish {
        Redfish::new(self.shared.clone())
    }

    fn faults(&self, faults: Faults) {
        self.fleet.first().set_faults(faults);
    }

    fn counters(&self) -> Counters {
        self.fleet.first().counters()
    }
}

/// A BMC that takes an account for sessions alone refuses it where a leftover is to be ended. The account is right.
#[tokio::test]
async fn a_leftover_is_ended_where_basic_authentication_is_switched_off() {
    let lab = Lab::new().await;
    lab.faults(Faults { no_basic: true, ..Faults::default() });
    let killed = lab.process();
    killed.read(&lab.host).await.unwrap();
    std::mem::forget(killed);
    let next = lab.process();
    next.read(&lab.host).await.unwrap();
    let counters = lab.counters();
    assert_eq!((counters.logins, counters.sessions), (2, 1), "{counters:?}");
    next.close().await;
    assert_eq!(lab.counters().sessions, 0);

    // A wrong password is told by the login, and then nothing is tried any more.
    let killed = lab.process();
    killed.read(&lab.host).await.unwrap();
    std::mem::forget(killed);
    lab.fleet.first().set_password("another");
    let (next, before) = (lab.process(), lab.counters().refused_logins);
    for _ in 0..3 {
        assert_eq!(next.read(&lab.host).await.unwrap_err().code(), "POWER_DENIED");
    }
    assert_eq!(lab.counters().refused_logins, before + 2);
}

#[tokio::test]
async fn a_full_table_of_a_bmc_without_basic_authentication_is_no_refusal() {
    let lab = Lab::new().await;
    lab.faults(Faults { no_basic: true, session_limit: Some(1), ..Faults::default() });
    let other = Redfish::new(setup(&Vault::with("lab", "admin", "emulated")));
    other.read(&lab.host).await.unwrap();
    let ours = lab.process();
    for _ in 0..2 {
        assert_eq!(ours.read(&lab.host).await.unwrap_err().code(), "POWER_BUSY");
    }
    other.close().await;
    ours.read(&lab.host).await.unwrap();
}

/// Two processes lead in turn: the one finds its session ended, and what the other has written down stays.
#[tokio::test]
async fn a_session_of_another_process_is_ended_and_not_forgotten() {
    let lab = Lab::new().await;
    let (one, other) = (lab.process(), lab.process());
    for process in [&one, &other, &one, &other] {
        process.read(&lab.host).await.unwrap();
        assert_eq!(lab.counters().sessions, 1);
    }
    other.close().await;
    assert_eq!(lab.counters().sessions, 0);
}

#[tokio::test]
async fn a_session_that_could_not_be_ended_is_ended_by_the_next_process() {
    let lab = Lab::new().await;
    let first = lab.process();
    first.read(&lab.host).await.unwrap();
    lab.faults(Faults { status: Some(503), ..Faults::default() });
    first.close().await;
    lab.faults(Faults::default());
    let next = lab.process();
    next.read(&lab.host).await.unwrap();
    assert_eq!(lab.counters().sessions, 1);
}

/// Nobody can end a session whose login was never answered. There is one of them, not one with every poll.
#[tokio::test]
async fn a_login_that_is_not_answered_is_not_tried_with_every_poll() {
    let mut lab = Lab::new().await;
    lab.shared.limits.total = Duration::from_secs(3);
    lab.faults(Faults { swallow_login: true, ..Faults::default() });
    let driver = lab.process();
    assert_eq!(driver.read(&lab.host).await.unwrap_err().code(), "POWER_SILENT");
    for _ in 0..3 {
        driver.read(&lab.host).await.unwrap();
    }
    assert_eq!(lab.counters().logins, 1);
}

#[tokio::test]
async fn the_end_of_one_conversation_is_not_the_end_of_the_others() {
    let fleet = Fleet::start(&Layout { bmcs: 2, ..Layout::default() }, clock()).await.unwrap();
    let driver = Redfish::new(setup(&Vault::with("lab", "admin", "emulated")));
    let hosts: Vec<Bmc> = fleet.bmcs().map(|bmc| redfish_host(&bmc.url())).collect();
    for host in &hosts {
        driver.read(host).await.unwrap();
    }
    driver.close_one(&hosts[0]).await;
    let sessions: Vec<u64> = fleet.bmcs().map(|bmc| bmc.counters().sessions).collect();
    assert_eq!(sessions, [0, 1]);
}

#[tokio::test]
async fn another_credential_of_the_same_version_is_another_account() {
    let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let vault = Vault::with("lab", "admin", "emulated");
    vault.set("other", "admin", "emulated");
    let (driver, mut host) = (Redfish::new(setup(&vault)), redfish_host(&fleet.first().url()));
    driver.read(&host).await.unwrap();
    host.credential = Some("other".into());
    driver.read(&host).await.unwrap();
    let counters = fleet.first().counters();
    assert_eq!((counters.logins, counters.sessions, counters.sessions_peak), (2, 1, 1), "{counters:?}");
}
