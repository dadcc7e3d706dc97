//! The end of event logs, from our emulators and from `ipmi_sim`.

use std::{process::Command, sync::Arc};

use muster_emulate::{
    Machine, Timing,
    ipmi::{self, Account, Level, RmcpBmc},
    redfish::{Faults, Fleet, Layout},
};
use muster_model::{
    Duration,
    power::{
        Bmc, CipherSuite, Credentials, Endpoint, Expected, Health, Leave, LogEntry, Order, Power,
        PowerAction, PowerState, Privilege,
    },
};
use muster_power::ipmi::Ipmi;

use crate::support::{Vault, clock, loopback_rules, peers, read_until, redfish, redfish_host, within};

const ON: Order = Order::first(PowerAction::On);

fn messages(entries: &[LogEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.as_str()).collect()
}

async fn fleet() -> Fleet {
    Fleet::start(&Layout::default(), clock()).await.unwrap()
}

#[tokio::test]
async fn the_end_of_a_log_is_found_however_a_bmc_shows_it() {
    let fleet = fleet().await;
    let bmc = fleet.first();
    let driver = redfish(&Vault::with("lab", "admin", "emulated"));
    let host = redfish_host(&bmc.url());
    assert_eq!(driver.log_tail(&host, 5).await.unwrap(), [], "a log may be empty");
    for number in 1..=30 {
        bmc.log("Warning", &format!("event {number}"));
    }
    let faults = Faults::default;
    for faults in [
        faults(),
        Faults { log_unsorted: true, ..faults() },
        Faults { log_without_time: true, ..faults() },
        Faults { log_without_time: true, log_unsorted: true, ..faults() },
        Faults { log_links: true, ..faults() },
        Faults { log_on_manager: true, ..faults() },
        Faults { log_page: 7, ..faults() },
        Faults { log_page: 7, log_links: true, log_on_manager: true, ..faults() },
    ] {
        bmc.set_faults(faults.clone());
        let calls = bmc.counters().calls;
        let found = driver.log_tail(&host, 5).await.unwrap();
        let expected = ["event 30", "event 29", "event 28", "event 27", "event 26"];
        assert_eq!(messages(&found), expected, "{faults:?}");
        assert!(found.iter().all(|entry| entry.severity == Health::Warning), "{faults:?}: {found:?}");
        let timed = found.iter().filter(|entry| entry.at.is_some()).count();
        assert_eq!(timed, if faults.log_without_time { 0 } else { 5 }, "{faults:?}");
        let calls = bmc.counters().calls - calls;
        assert!(calls <= 20, "{calls} calls with {faults:?}");
    }
    assert_eq!(driver.log_tail(&host, 0).await.unwrap(), []);
    assert_eq!(driver.log_tail(&host, usize::MAX).await.unwrap().len(), 20, "there is a bound");
}

#[tokio::test]
async fn a_log_that_cannot_be_had_is_told_as_such() {
    let fleet = fleet().await;
    let bmc = fleet.first();
    let driver = redfish(&Vault::with("lab", "admin", "emulated"));
    let host = redfish_host(&bmc.url());
    driver.read(&host).await.unwrap();
    let elsewhere = Some("http://127.0.0.1:1".to_owned());
    for (faults, code) in [
        (Faults { no_log: true, ..Faults::default() }, "POWER_UNSUPPORTED"),
        (Faults { absolute_links: elsewhere, ..Faults::default() }, "POWER_MALFORMED_ANSWER"),
        (Faults { oversize: true, ..Faults::default() }, "POWER_MALFORMED_ANSWER"),
    ] {
        bmc.set_faults(faults.clone());
        let error = driver.log_tail(&host, 5).await.unwrap_err();
        assert_eq!(error.code(), code, "{faults:?}: {error}");
    }
    bmc.set_faults(Faults { delay: Duration::from_secs(6), ..Faults::default() });
    let error = driver.log_tail(&host, 5).await.unwrap_err();
    assert!(error.to_string().contains("did not answer within 5s"), "a power call may take 30 s: {error}");
    bmc.set_faults(Faults::default());
    bmc.log("Critical", &format!("\u{1b}[2J<b>{}", "x".repeat(5_000)));
    let found = driver.log_tail(&host, 5).await.unwrap();
    let [LogEntry { message, .. }] = &found[..] else { panic!("{found:?}") };
    assert!(message.chars().count() <= 201 && !message.contains(['\u{1b}', '<']), "{message}");
}

/// Each answer comes in time, and all of them together would keep the next power call waiting.
#[tokio::test]
async fn a_log_that_comes_in_drops_is_given_up() {
    let fleet = fleet().await;
    let bmc = fleet.first();
    let driver = redfish(&Vault::with("lab", "admin", "emulated"));
    let host = redfish_host(&bmc.url());
    driver.read(&host).await.unwrap();
    bmc.set_faults(Faults { delay: Duration::from_secs(4), ..Faults::default() });
    let calls = bmc.counters().calls;
    assert_eq!(driver.log_tail(&host, 5).await.unwrap_err().code(), "POWER_SILENT");
    assert!(bmc.counters().calls - calls <= 3, "nothing more is asked for after ten seconds");
}

#[tokio::test]
async fn a_redfish_bmc_writes_down_a_boot_that_hangs() {
    let fleet = fleet().await;
    let bmc = fleet.first();
    let driver = redfish(&Vault::with("lab", "admin", "emulated"));
    let host = redfish_host(&bmc.url());
    bmc.set_faults(Faults { hang_boot: true, ..Faults::default() });
    let _ = driver.request(&host, ON, &Leave::unlimited()).await.unwrap();
    read_until(&driver, &host, &PowerState::On).await;
    let found = driver.log_tail(&host, 5).await.unwrap();
    assert_eq!(
        messages(&found),
        ["The boot stopped in the firmware.", "Reset of type On was requested."],
        "{found:?}"
    );
    assert_eq!(found[0].severity, Health::Critical);
}

fn ipmi_host(port: u16, suite: CipherSuite) -> Bmc {
    let (address, privilege) = (format!("127.0.0.1:{port}"), Privilege::Administrator);
    Bmc {
        host: "n1".into(),
        endpoint: Endpoint::Ipmi { address, suite, privilege },
        credential: Some("lab".into()),
        expect: Expected::default(),
    }
}

fn ipmi() -> Ipmi {
    let vault = Vault::with("lab", "admin", "secret");
    Ipmi::new(loopback_rules(), vault as Arc<dyn Credentials>, clock())
}

async fn emulated() -> RmcpBmc {
    let machine = Machine::new(clock(), Timing::default());
    let account = Account { user: "admin".into(), password: "secret".into(), level: Level::Administrator };
    RmcpBmc::start("127.0.0.1:0".parse().unwrap(), vec![account], [7; 16], machine, clock()).await.unwrap()
}

#[tokio::test]
async fn the_end_of_an_ipmi_log_is_read_backwards() {
    let bmc = emulated().await;
    let (driver, host) = (ipmi(), ipmi_host(bmc.address.port(), CipherSuite::Sha256));
    assert_eq!(driver.log_tail(&host, 5).await.unwrap(), [], "a log may be empty");
    let before = clock().now();
    bmc.set_faults(ipmi::Faults { hang_boot: true, ..ipmi::Faults::default() });
    let _ = driver.request(&host, ON, &Leave::unlimited()).await.unwrap();
    bmc.record(0xe0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    let found = driver.log_tail(&host, 5).await.unwrap();
    assert_eq!(
        messages(&found),
        [
            "OEM record 0xe0: 0102030405060708090a0b0c0d",
            "system firmware progress, sensor 0x03: asserted, event type 0x6f offset 1 (data 01 ff ff)",
            "system boot, sensor 0x02: asserted, event type 0x6f offset 0 (data 00 ff ff)",
        ]
    );
    assert_eq!(found[0].at, None);
    let since = found[1].at.unwrap().since(before.saturating_sub(Duration::from_secs(1)));
    assert!(since < Duration::from_secs(60), "{found:?}");
    // Far more than is asked for: the oldest are gone, and the last ones are read.
    for number in 0..=255 {
        bmc.event([0x04, number, 0x81, 0x50, 0x00, 0x00]);
    }
    let found = driver.log_tail(&host, 3).await.unwrap();
    let sensors: Vec<_> = found.iter().map(|one| one.message.split(':').next().unwrap()).collect();
    assert_eq!(sensors, ["fan, sensor 0xff", "fan, sensor 0xfe", "fan, sensor 0xfd"]);
    assert!(found[0].message.contains("deasserted, event type 0x01 offset 0"), "{found:?}");
    assert_eq!(driver.log_tail(&host, usize::MAX).await.unwrap().len(), 20, "there is a bound");
    bmc.set_faults(ipmi::Faults { completion: Some(0xc1), ..ipmi::Faults::default() });
    assert_eq!(driver.log_tail(&host, 5).await.unwrap_err().code(), "POWER_UNSUPPORTED");
}

#[tokio::test]
async fn the_log_of_ipmi_sim_is_read_as_ipmitool_wrote_it() {
    let peer = peers::ipmi_sim();
    let (driver, host) = (ipmi(), ipmi_host(peer.port, CipherSuite::Sha1));
    within(&format!("the BMC: {}", peer.log()), async {
        while driver.read(&host).await.is_err() {
            clock().sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(driver.log_tail(&host, 5).await.unwrap(), []);
    let port = peer.port.to_string();
    let raw = |bytes: &str| {
        let way = ["-I", "lanplus", "-H", "127.0.0.1", "-p", &port, "-U", "admin", "-P", "secret", "-C", "3"];
        let output = Command::new("ipmitool").args(way).arg("raw").args(bytes.split(' ')).output().unwrap();
        assert!(output.status.success(), "{bytes}: {}", String::from_utf8_lossy(&output.stderr));
    };
    raw("0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 0x0f 6 0x6f 0xc1 3 0xff"); // its clock is not set
    raw("0x0a 0x44 0 0 0xe0 1 2 3 4 5 6 7 8 9 10 11 12 13");
    raw("0x0a 0x49 0x00 0xf1 0x53 0x65"); // 2023-11-14T22:13:20Z
    raw("0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 0x07 0x12 0xef 0x01 0xff 0xff");
    let found = driver.log_tail(&host, 5).await.unwrap();
    assert_eq!(
        messages(&found),
        [
            "processor, sensor 0x12: deasserted, event type 0x6f offset 1 (data 01 ff ff)",
            "OEM record 0xe0: 0102030405060708090a0b0c0d",
            "system firmware progress, sensor 0x06: asserted, event type 0x6f offset 1 (data c1 03 ff)",
        ]
    );
    assert!(found[0].at.unwrap().to_string().starts_with("2023-11-14T22:1"), "{found:?}");
    assert_eq!((found[1].at, found[2].at), (None, None));
    assert_eq!(driver.log_tail(&host, 1).await.unwrap(), found[..1]);
    // A hole in the numbers ends it.
    raw("0x0a 0x46 0 0 2 0");
    assert_eq!(driver.log_tail(&host, 5).await.unwrap(), found[..1]);
}
