//! A caller whose leave ends while a slow BMC still answers its first questions: nothing that changes it is sent.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use muster_emulate::{
    Machine, Timing,
    ipmi::{Account, Level, RmcpBmc},
    redfish::{Faults, Fleet, Layout},
};
use muster_model::{
    Duration,
    power::{
        Bmc, BootOverride, BootTarget, CipherSuite, Credentials, Endpoint, Expected, Leave, Order, Power,
        PowerAction, PowerError, Privilege,
    },
};
use muster_power::{ipmi::Ipmi, wol::WakeOnLan};
use tokio::net::UdpSocket;

use crate::support::{Vault, clock, eventually, loopback_rules, redfish, redfish_host, within};

/// How long each answer takes: some ten of them come before anything is changed.
const SLOW: Duration = Duration::from_millis(50);

/// A leave that ends with the next question that the BMC sees.
fn until_asked(asked: impl Fn() -> u64 + Send + Sync + 'static) -> Leave {
    let before = asked();
    Leave::new(move || {
        let leads = asked() == before;
        leads.then_some(Duration::from_secs(10)).ok_or_else(|| "this process no longer leads".to_owned())
    })
}

/// Everything that changes a machine, one after the other, each with a leave that ends while it is under way.
async fn everything(power: &dyn Power, bmc: &Bmc, leave: impl Fn() -> Leave) -> Vec<PowerError> {
    let mut errors = Vec::new();
    for action in [PowerAction::On, PowerAction::Cycle] {
        errors.extend(power.request(bmc, Order::first(action), &leave()).await.err());
    }
    let boot = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    errors.extend(power.set_boot(bmc, boot, &leave()).await.err());
    errors.extend(power.restart_bmc(bmc, &leave()).await.err());
    errors
}

#[track_caller]
fn all_withheld(errors: &[PowerError]) {
    let codes: Vec<_> = errors.iter().map(PowerError::code).collect();
    assert_eq!(codes, ["POWER_WITHHELD"; 4], "{errors:?}");
    assert!(errors[0].to_string().contains("this process no longer leads"), "{}", errors[0]);
}

#[tokio::test]
async fn redfish_sends_nothing_once_leave_has_ended() {
    let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let bmc = Arc::clone(fleet.first());
    bmc.set_faults(Faults { delay: SLOW, ..Faults::default() });
    let (driver, host) = (redfish(&Vault::with("lab", "admin", "emulated")), redfish_host(&bmc.url()));
    let leave = || {
        let watched = Arc::clone(&bmc);
        until_asked(move || watched.counters().calls)
    };
    all_withheld(&everything(&driver, &host, leave).await);
    let counters = bmc.counters();
    assert!(counters.resets.is_empty(), "{counters:?}");
    assert_eq!((counters.boot_writes, counters.restarts), (0, 0), "{counters:?}");
    driver.close().await;
    assert_eq!(bmc.counters().sessions, 0, "a session ends all the same");
}

#[tokio::test]
async fn ipmi_sends_nothing_once_leave_has_ended() {
    let account = Account { user: "admin".into(), password: "secret".into(), level: Level::Administrator };
    let machine = Machine::new(clock(), Timing::default());
    let address = "127.0.0.1:0".parse().unwrap();
    let bmc = Arc::new(RmcpBmc::start(address, vec![account], [7; 16], machine, clock()).await.unwrap());
    bmc.set_faults(muster_emulate::ipmi::Faults { delay: SLOW, ..Default::default() });
    let vault = Vault::with("lab", "admin", "secret");
    let driver = Ipmi::new(loopback_rules(), vault as Arc<dyn Credentials>, clock());
    let host = Bmc {
        host: "n1".into(),
        endpoint: Endpoint::Ipmi {
            address: bmc.address.to_string(),
            suite: CipherSuite::Sha256,
            privilege: Privilege::Administrator,
        },
        credential: Some("lab".into()),
        expect: Expected::default(),
    };
    let leave = || {
        let watched = Arc::clone(&bmc);
        until_asked(move || watched.counters().packets)
    };
    all_withheld(&everything(&driver, &host, leave).await);
    let counters = bmc.counters();
    assert!(counters.controls.is_empty() && counters.restarts == 0, "{counters:?}");
    assert_eq!(counters.sessions, 0, "a session ends all the same");
}

#[tokio::test]
async fn no_magic_packet_follows_one_after_which_leave_ended() {
    let listener = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let host = Bmc {
        host: "n1".into(),
        endpoint: Endpoint::Wol {
            mac: "02:00:00:00:00:0a".parse().unwrap(),
            broadcast: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
            secure_on: None,
            interface: None,
        },
        credential: None,
        expect: Expected::default(),
    };
    let asked = AtomicU32::new(0);
    let leave = Leave::new(move || match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Ok(Duration::from_secs(10)),
        _ => Err("this process no longer leads".to_owned()),
    });
    let driver = WakeOnLan::new(loopback_rules(), clock());
    let error = driver.request(&host, Order::first(PowerAction::On), &leave).await.unwrap_err();
    // What has left may have woken it, and what the audit log says of it must not deny that.
    assert_eq!(error.code(), "POWER_OUTCOME_UNKNOWN", "{error}");
    assert!(error.to_string().contains("1 of 3 magic packets"), "{error}");
    let mut packet = [0; 256];
    within("the first packet", listener.recv_from(&mut packet)).await.unwrap();
    assert!(listener.try_recv_from(&mut packet).is_err(), "a packet was sent after leave had ended");
}

/// Callers that went away while they waited for their turn, and one in the middle of its questions: the BMC is free for
/// the next.
#[tokio::test]
async fn what_nobody_waits_for_is_not_asked() {
    let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let bmc = Arc::clone(fleet.first());
    let (driver, host) = (redfish(&Vault::with("lab", "admin", "emulated")), redfish_host(&bmc.url()));
    driver.read(&host).await.unwrap();
    let before = bmc.counters().calls;
    for _ in 0..5 {
        let mut asked = driver.identify(&host);
        assert!(futures::poll!(&mut asked).is_pending());
    }
    driver.read(&host).await.unwrap();
    assert_eq!(bmc.counters().calls, before + 1, "the reading alone");

    bmc.set_faults(Faults { delay: SLOW, ..Faults::default() });
    let asked = tokio::spawn({
        let (driver, host) = (driver.clone(), host.clone());
        async move { driver.identify(&host).await }
    });
    eventually("two of its questions", &|| bmc.counters().calls >= before + 3).await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    let before = bmc.counters().calls;
    driver.read(&host).await.unwrap();
    let asked = bmc.counters().calls - before;
    assert!(asked <= 2, "the question that was on its way, and the reading: {asked}");
}

#[tokio::test]
async fn packets_that_nobody_waits_for_are_not_sent() {
    let account = Account { user: "admin".into(), password: "secret".into(), level: Level::Administrator };
    let machine = Machine::new(clock(), Timing::default());
    let address = "127.0.0.1:0".parse().unwrap();
    let bmc = RmcpBmc::start(address, vec![account], [7; 16], machine, clock()).await.unwrap();
    let driver =
        Ipmi::new(loopback_rules(), Vault::with("lab", "admin", "secret") as Arc<dyn Credentials>, clock());
    let host = Bmc {
        host: "n1".into(),
        endpoint: Endpoint::Ipmi {
            address: bmc.address.to_string(),
            suite: CipherSuite::Sha256,
            privilege: Privilege::Administrator,
        },
        credential: Some("lab".into()),
        expect: Expected::default(),
    };
    for _ in 0..5 {
        let mut asked = driver.identify(&host);
        assert!(futures::poll!(&mut asked).is_pending());
    }
    driver.read(&host).await.unwrap();
    assert_eq!(bmc.counters().opened, 1, "the session of the reading alone");
}
