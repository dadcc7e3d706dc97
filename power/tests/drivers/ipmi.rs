//! The IPMI driver against our emulator and against BMCs that others wrote.

use std::sync::Arc;

use muster_emulate::{
    Machine, Timing,
    ipmi::{Account, Faults, Level, RmcpBmc},
};
use muster_model::{
    Duration, Known,
    power::{
        Accepted, Advice, Bmc, BootMode, BootOverride, BootTarget, CipherSuite, Credentials, Endpoint,
        Expected, Leave, Order, Power as _, PowerAction, PowerState, Privilege,
    },
};
use muster_power::ipmi::Ipmi;

use crate::support::{Vault, clock, conformance, loopback_rules, peers, within};

fn driver(vault: &Arc<Vault>) -> Ipmi {
    Ipmi::new(loopback_rules(), Arc::clone(vault) as Arc<dyn Credentials>, clock())
}

fn host(port: u16, suite: CipherSuite) -> Bmc {
    Bmc {
        host: "n1".into(),
        endpoint: Endpoint::Ipmi {
            address: format!("127.0.0.1:{port}"),
            suite,
            privilege: Privilege::Administrator,
        },
        credential: Some("lab".into()),
        expect: Expected::default(),
    }
}

async fn answers(driver: &Ipmi, host: &Bmc, peer: &peers::Peer) {
    within(&format!("the BMC: {}", peer.log()), async {
        while driver.read(host).await.is_err() {
            clock().sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn conformance_with_ipmi_sim() {
    let peer = peers::ipmi_sim();
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, mut host) = (driver(&vault), host(peer.port, CipherSuite::Sha1));
    answers(&driver, &host, &peer).await;
    host.expect.uuid = Some("a1234567-89ab-cdef-a123-456789abcdef".into());
    let calls = peer.dir.path().join("calls");
    let cycled = || std::fs::read_to_string(&calls).is_ok_and(|calls| calls.ends_with("power=0\npower=1\n"));
    conformance::suite(
        &driver,
        &host,
        conformance::Peer { keeps_once: true, cycled: Some(&cycled), listening: None },
    )
    .await;

    // A BMC that accepts a boot device and does not keep it is found out.
    std::fs::write(peer.dir.path().join("ignore-boot"), "").unwrap();
    let disk = BootOverride { target: BootTarget::Disk, mode: None, once: true, url: None };
    let error = driver.set_boot(&host, disk, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_BOOT_OVERRIDE_IGNORED", "{error}");
}

#[tokio::test]
async fn a_wrong_password_and_a_wrong_suite_are_told_apart() {
    let peer = peers::ipmi_sim();
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(peer.port, CipherSuite::Sha1));
    answers(&driver, &host, &peer).await;
    vault.set("lab", "admin", "wrong");
    let error = driver.read(&host).await.unwrap_err();
    assert_eq!(error.code(), "POWER_DENIED", "{error}");
    // A suite that the BMC does not have is told apart from a wrong password.
    vault.set("lab", "admin", "secret");
    let error = driver.read(&self::host(peer.port, CipherSuite::Sha256)).await.unwrap_err();
    assert_eq!(error.code(), "POWER_REFUSED", "{error}");
    assert!(error.to_string().contains("suite 3"), "{error}");
}

#[tokio::test]
async fn conformance_with_pyghmi_suite_3() {
    pyghmi(CipherSuite::Sha1, CipherSuite::Sha256).await;
}

#[tokio::test]
async fn conformance_with_pyghmi_suite_17() {
    pyghmi(CipherSuite::Sha256, CipherSuite::Sha1).await;
}

async fn pyghmi(suite: CipherSuite, other: CipherSuite) {
    let peer = peers::pyghmi(suite.into());
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, right) = (driver(&vault), host(peer.port, suite));
    answers(&driver, &right, &peer).await;
    conformance::suite(
        &driver,
        &right,
        conformance::Peer { keeps_once: false, cycled: None, listening: None },
    )
    .await;
    let sent = driver.restart_bmc(&right, &Leave::unlimited()).await.unwrap();
    assert_eq!(sent, Accepted::Sent { how: "cold reset".into() });
    answers(&driver, &right, &peer).await;
    assert!(driver.read(&host(peer.port, other)).await.is_err());
    vault.set("lab", "admin", "wrong");
    let error = driver.read(&right).await.unwrap_err();
    assert_eq!(error.code(), "POWER_DENIED", "{error}");
}

#[tokio::test]
async fn a_bmc_that_is_not_there_is_told_as_such() {
    let vault = Vault::with("lab", "admin", "secret");
    let error = driver(&vault).read(&host(peers::free_udp_port(), CipherSuite::Sha256)).await.unwrap_err();
    assert!(matches!(error.code(), "POWER_UNREACHABLE" | "POWER_SILENT"), "{error}");
}

async fn emulated() -> RmcpBmc {
    let machine = Machine::new(clock(), Timing::default());
    let account = |user: &str, level| Account { user: user.into(), password: "secret".into(), level };
    let accounts = vec![account("admin", Level::Administrator), account("watcher", Level::User)];
    RmcpBmc::start("127.0.0.1:0".parse().unwrap(), accounts, [7; 16], machine, clock()).await.unwrap()
}

#[tokio::test]
async fn conformance_with_our_emulator() {
    for suite in [CipherSuite::Sha1, CipherSuite::Sha256] {
        let bmc = emulated().await;
        let vault = Vault::with("lab", "admin", "secret");
        let (driver, host) = (driver(&vault), host(bmc.address.port(), suite));
        let cycled = || bmc.machine.look().boots == 4;
        let listening = || bmc.machine.look().running;
        conformance::suite(
            &driver,
            &host,
            conformance::Peer { keeps_once: true, cycled: Some(&cycled), listening: Some(&listening) },
        )
        .await;
        let counters = bmc.counters();
        assert_eq!((counters.sessions, counters.sessions_peak), (0, 1), "{counters:?}");
    }
}

#[tokio::test]
async fn packets_that_are_lost_doubled_or_forged_do_no_harm() {
    let bmc = emulated().await;
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    bmc.set_faults(Faults { lose_every: 3, duplicate: true, forge: true, ..Faults::default() });
    let _ = driver.request(&host, Order::first(PowerAction::On), &Leave::unlimited()).await.unwrap();
    crate::support::read_until(&driver, &host, &PowerState::On).await;
    assert_eq!(bmc.counters().controls, [1], "one power up, whatever was lost on the way");
}

#[tokio::test]
async fn what_a_bmc_says_about_itself_is_kept_apart_from_what_it_leaves_out() {
    let bmc = emulated().await;
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    let sensors = driver.sensors(&host).await.unwrap();
    assert!(matches!(sensors.milliwatts, Known::Unknown { .. }), "off is not zero watts: {sensors:?}");
    let _ = driver.request(&host, Order::first(PowerAction::On), &Leave::unlimited()).await.unwrap();
    crate::support::read_until(&driver, &host, &PowerState::On).await;
    assert_eq!(driver.sensors(&host).await.unwrap().milliwatts.value(), Some(&187_000));
    let identity = driver.identify(&host).await.unwrap();
    assert_eq!(identity.uuid.as_deref(), Some("07070707-0707-0707-0707-070707070707"));
    assert_eq!(identity.serial, None);
}

#[tokio::test]
async fn refusals_have_their_own_codes() {
    let bmc = emulated().await;
    let vault = Vault::with("lab", "watcher", "secret");
    let (driver, host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    let denied = driver.request(&host, Order::first(PowerAction::On), &Leave::unlimited()).await.unwrap_err();
    assert_eq!(denied.code(), "POWER_DENIED", "{denied}");
    let opened = bmc.counters().opened;
    assert_eq!(driver.read(&host).await.unwrap_err().code(), "POWER_DENIED");
    assert_eq!(bmc.counters().opened, opened, "a refused account is not tried again");
    vault.set("lab", "admin", "secret");
    for (faults, code) in [
        (Faults { no_room: 1, ..Faults::default() }, "POWER_BUSY"),
        (Faults { completion: Some(0xc0), ..Faults::default() }, "POWER_BUSY"),
        (Faults { completion: Some(0xc1), ..Faults::default() }, "POWER_UNSUPPORTED"),
        (Faults { completion: Some(0xff), ..Faults::default() }, "POWER_REFUSED"),
        (Faults { refuse_suites: vec![17], ..Faults::default() }, "POWER_REFUSED"),
        (Faults { silent: true, ..Faults::default() }, "POWER_SILENT"),
        // It knows the password as we do, so this is no word about the account.
        (Faults { refuse_proof: true, ..Faults::default() }, "POWER_BUSY"),
    ] {
        bmc.set_faults(faults.clone());
        let error = driver.read(&host).await.unwrap_err();
        assert_eq!(error.code(), code, "{faults:?}: {error}");
    }
    bmc.set_faults(Faults::default());
    assert_eq!(driver.read(&host).await.unwrap().state, PowerState::Off);
    bmc.set_faults(Faults { refuse_account: true, ..Faults::default() });
    assert_eq!(driver.read(&host).await.unwrap_err().code(), "POWER_DENIED");
}

/// A BMC that is stuck is restarted by a cold reset: the machine goes on, nothing is repeated, no session is left.
#[tokio::test]
async fn a_bmc_is_restarted_by_a_cold_reset_and_its_machine_goes_on() {
    for suite in [CipherSuite::Sha1, CipherSuite::Sha256] {
        let bmc = emulated().await;
        bmc.machine.switch_on();
        let vault = Vault::with("lab", "admin", "secret");
        let (driver, mut host) = (driver(&vault), host(bmc.address.port(), suite));
        let sent = driver.restart_bmc(&host, &Leave::unlimited()).await.unwrap();
        assert_eq!(sent, Accepted::Sent { how: "cold reset".into() });
        let counters = bmc.counters();
        assert_eq!((counters.restarts, counters.sessions), (1, 0), "{counters:?}");
        assert!(counters.controls.is_empty(), "power is not touched");
        assert!(driver.read(&host).await.unwrap().state.is_known(), "a new session is made");
        // Another machine's BMC, and an account that may only look, restart nothing.
        host.expect.uuid = Some("00000000-0000-0000-0000-000000000001".into());
        assert_eq!(
            driver.restart_bmc(&host, &Leave::unlimited()).await.unwrap_err().code(),
            "POWER_WRONG_HOST"
        );
        host.expect.uuid = None;
        vault.set("lab", "watcher", "secret");
        assert_eq!(driver.restart_bmc(&host, &Leave::unlimited()).await.unwrap_err().code(), "POWER_DENIED");
        assert_eq!(bmc.counters().restarts, 1);
    }
}

#[tokio::test]
async fn ipmi_sim_knows_no_cold_reset_and_that_is_said() {
    let peer = peers::ipmi_sim();
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(peer.port, CipherSuite::Sha1));
    answers(&driver, &host, &peer).await;
    let error = driver.restart_bmc(&host, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_UNSUPPORTED", "{error}");
    answers(&driver, &host, &peer).await;
}

#[tokio::test]
async fn ops_r10_ipmi_sim_does_on_off_status_100_times() {
    let peer = peers::ipmi_sim();
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(peer.port, CipherSuite::Sha1));
    answers(&driver, &host, &peer).await;
    conformance::hundred(&driver, &host).await;
}

/// The UUID is all that IPMI tells a machine by. A BMC that never got one of its own tells nothing.
#[tokio::test]
async fn ops_f15_another_machine_is_not_switched_off() {
    let bmc = emulated().await;
    bmc.machine.switch_on();
    bmc.machine.until(|seen| seen.running).await;
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, mut host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    host.expect.uuid = Some("07070707-0707-0707-0707-070707070708".into());
    for action in [PowerAction::ForceOff, PowerAction::GracefulOff, PowerAction::Cycle] {
        let error = driver.request(&host, Order::first(action), &Leave::unlimited()).await.unwrap_err();
        assert_eq!(error.code(), "POWER_WRONG_HOST", "{error}");
    }
    assert!(bmc.counters().controls.is_empty());
    host.expect.uuid = driver.identify(&host).await.unwrap().uuid;
    let _ = driver.request(&host, Order::first(PowerAction::ForceOff), &Leave::unlimited()).await.unwrap();
    assert_eq!(bmc.counters().controls, [0]);

    let account = Account { user: "admin".into(), password: "secret".into(), level: Level::Administrator };
    let machine = Machine::new(clock(), Timing::default());
    let address = "127.0.0.1:0".parse().unwrap();
    let blank = RmcpBmc::start(address, vec![account], [0xff; 16], machine, clock()).await.unwrap();
    let host = self::host(blank.address.port(), CipherSuite::Sha256);
    assert_eq!(driver.identify(&host).await.unwrap().uuid, None);
}

/// A BMC that takes longer for an account than other packets are waited for is slow, and its account is right.
#[tokio::test]
async fn a_bmc_that_is_slow_with_the_account_does_not_refuse_it() {
    let bmc = emulated().await;
    bmc.set_faults(Faults { slow_account: Duration::from_secs(2), ..Faults::default() });
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    assert_eq!(driver.read(&host).await.unwrap().state, PowerState::Off);
    let counters = bmc.counters();
    assert_eq!((counters.opened, counters.refused), (1, 0), "{counters:?}");
}

/// The packet that asks about an account is not repeated; where one is lost, the login begins again.
#[tokio::test]
async fn a_login_begins_again_when_a_packet_of_it_is_lost() {
    let bmc = emulated().await;
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    bmc.set_faults(Faults { lose_account: 1, ..Faults::default() });
    assert_eq!(driver.read(&host).await.unwrap().state, PowerState::Off);
    assert_eq!(bmc.counters().opened, 2);
}

#[tokio::test]
async fn a_boot_mode_is_kept_unless_another_is_asked_for() {
    let bmc = emulated().await;
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    let set = async |target, mode| {
        let boot = BootOverride { target, mode, once: true, url: None };
        driver.set_boot(&host, boot, &Leave::unlimited()).await.map(|kept| kept.mode)
    };
    // Nothing was set before.
    assert_eq!(set(BootTarget::Disk, None).await.unwrap(), None);
    assert_eq!(set(BootTarget::Pxe, Some(BootMode::Uefi)).await.unwrap(), Some(BootMode::Uefi));
    assert_eq!(set(BootTarget::Disk, None).await.unwrap(), Some(BootMode::Uefi), "it is kept");
    assert_eq!(set(BootTarget::Pxe, Some(BootMode::Legacy)).await.unwrap(), None);
    assert_eq!(set(BootTarget::Disk, None).await.unwrap(), None, "it is kept");

    bmc.set_faults(Faults { always_uefi: true, ..Faults::default() });
    let error = set(BootTarget::Pxe, Some(BootMode::Legacy)).await.unwrap_err();
    assert_eq!(error.code(), "POWER_BOOT_OVERRIDE_IGNORED", "{error}");
    assert!(error.to_string().contains("device 0x1, UEFI"), "{error}");
}

/// A leftover that looks like what is wanted is no success, and a BMC that never calls its flags valid no failure.
#[tokio::test]
async fn a_boot_device_that_stood_there_before_is_not_taken_for_one_that_was_set() {
    let bmc = emulated().await;
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    let set = async || {
        let boot = BootOverride { target: BootTarget::Disk, mode: None, once: true, url: None };
        driver.set_boot(&host, boot, &Leave::unlimited()).await
    };
    bmc.set_faults(Faults { never_valid: true, ..Faults::default() });
    for _ in 0..2 {
        assert_eq!(set().await.unwrap().target, BootTarget::Disk);
    }
    bmc.set_faults(Faults { never_valid: true, ignore_boot: true, ..Faults::default() });
    let error = set().await.unwrap_err();
    assert_eq!(error.code(), "POWER_BOOT_OVERRIDE_IGNORED", "{error}");
}

/// Only another UUID is another machine.
#[tokio::test]
async fn a_bmc_that_does_not_say_its_uuid_is_not_another_machine() {
    let bmc = emulated().await;
    let vault = Vault::with("lab", "admin", "secret");
    let (driver, mut host) = (driver(&vault), host(bmc.address.port(), CipherSuite::Sha256));
    bmc.machine.switch_on();
    bmc.machine.until(|seen| seen.running).await;
    host.expect.uuid = driver.identify(&host).await.unwrap().uuid;
    assert!(host.expect.uuid.is_some());
    let cut = Order::first(PowerAction::ForceOff);
    for (code, expected) in [
        (0xc0, ("POWER_BUSY", Advice::Later)),
        (0xc3, ("POWER_BUSY", Advice::Later)),
        (0xd2, ("POWER_BUSY", Advice::Later)),
        (0xcb, ("POWER_UNIDENTIFIED", Advice::Later)),
        (0xc1, ("POWER_UNSUPPORTED", Advice::OtherDriver)),
    ] {
        bmc.set_faults(Faults { guid_completion: Some(code), ..Faults::default() });
        let error = driver.request(&host, cut, &Leave::unlimited()).await.unwrap_err();
        assert_eq!((error.code(), error.advice()), expected, "{code:#x}: {error}");
    }
    assert!(bmc.counters().controls.is_empty() && bmc.machine.look().running);
    bmc.set_faults(Faults::default());
    let uuid = host.expect.uuid.replace("a1234567-89ab-cdef-a123-456789abcdef".into());
    let error = driver.request(&host, cut, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_WRONG_HOST", "{error}");
    host.expect.uuid = uuid;
    assert!(driver.request(&host, cut, &Leave::unlimited()).await.is_ok());
}
