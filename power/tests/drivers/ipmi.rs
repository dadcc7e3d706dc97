//! The IPMI driver against BMCs that others wrote.

use std::sync::Arc;

use muster_model::{
    Duration,
    power::{
        Bmc, BootOverride, BootTarget, CipherSuite, Credentials, Endpoint, Expected, Power as _, Privilege,
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
    conformance::suite(&driver, &host, conformance::Peer { keeps_once: true, cycled: Some(&cycled) }).await;

    // A BMC that accepts a boot device and does not keep it is found out.
    std::fs::write(peer.dir.path().join("ignore-boot"), "").unwrap();
    let disk = BootOverride { target: BootTarget::Disk, mode: None, once: true };
    let error = driver.set_boot(&host, disk).await.unwrap_err();
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
    conformance::suite(&driver, &right, conformance::Peer { keeps_once: false, cycled: None }).await;
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
