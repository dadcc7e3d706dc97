//! The Redfish driver against our emulator and against sushy-tools.

use std::sync::Arc;

use crate::support::{
    Vault, clock, conformance, peers, redfish, redfish_host, redfish_host_trusting, within,
};
use muster_emulate::redfish::{Fleet, Layout};
use muster_model::power::{Endpoint, Expected, Fault, Power as _, Trust};

async fn fleet(layout: Layout) -> Fleet {
    Fleet::start(&layout, clock()).await.unwrap()
}

fn lab() -> Arc<Vault> {
    Vault::with("lab", "admin", "emulated")
}

#[tokio::test]
async fn conformance_with_our_emulator() {
    let fleet = fleet(Layout::default()).await;
    let bmc = fleet.first();
    let driver = redfish(&lab());
    let cycled = || bmc.systems[0].machine.look().boots == 4;
    let listening = || bmc.systems[0].machine.look().running;
    let peer = conformance::Peer { keeps_once: true, cycled: Some(&cycled), listening: Some(&listening) };
    conformance::suite(&driver, &redfish_host(&bmc.url()), peer).await;
    driver.close().await;
    let counters = bmc.counters();
    assert_eq!(
        (counters.sessions, counters.sessions_peak, counters.in_flight_peak),
        (0, 1, 1),
        "{counters:?}"
    );
}

#[tokio::test]
async fn conformance_over_tls_with_an_approved_key() {
    let fleet = fleet(Layout { tls: true, ..Layout::default() }).await;
    let bmc = fleet.first();
    let driver = redfish(&lab());
    let fresh = redfish_host_trusting(&bmc.url(), Trust::default());
    let error = driver.read(&fresh).await.unwrap_err();
    let Fault::Unapproved { found } = error.fault else { panic!("{error}") };
    assert_eq!(bmc.counters().credentials_seen, 0, "nothing secret before the approval");
    let trusted = redfish_host_trusting(&bmc.url(), Trust::Pin { pin: Some(found) });
    let listening = || bmc.systems[0].machine.look().running;
    let peer = conformance::Peer { keeps_once: true, cycled: None, listening: Some(&listening) };
    conformance::suite(&driver, &trusted, peer).await;
}

#[tokio::test]
async fn conformance_with_sushy_tools() {
    let sushy = peers::sushy(4, 1);
    let driver = redfish(&lab());
    let mut host = redfish_host(&format!("http://127.0.0.1:{}", sushy.port));
    let Endpoint::Redfish { system, .. } = &mut host.endpoint else { unreachable!() };
    *system = Some(peers::sushy_uuid(2));
    host.expect = Expected { serial: None, uuid: Some(peers::sushy_uuid(2)) };
    within("sushy-tools", async {
        while driver.read(&host).await.is_err() {
            clock().sleep(muster_model::Duration::from_millis(100)).await;
        }
    })
    .await;
    // It reads back Continuous after Once, and has no cycle.
    conformance::suite(
        &driver,
        &host,
        conformance::Peer { keeps_once: false, cycled: None, listening: None },
    )
    .await;
    let identity = driver.identify(&host).await.unwrap();
    assert_eq!(identity.macs, ["02:00:00:00:00:02".parse().unwrap()]);
    assert_eq!(identity.uuid, Some(peers::sushy_uuid(2)));
    // Several systems behind one BMC and none named: it refuses to guess.
    let vague = redfish_host(&format!("http://127.0.0.1:{}", sushy.port));
    assert_eq!(driver.read(&vague).await.unwrap_err().code(), "POWER_AMBIGUOUS_SYSTEM");
}

#[tokio::test]
async fn ops_r10_sushy_tools_does_on_off_status_100_times() {
    let sushy = peers::sushy(1, 0);
    let driver = redfish(&lab());
    let host = redfish_host(&format!("http://127.0.0.1:{}", sushy.port));
    within("sushy-tools", async {
        while driver.read(&host).await.is_err() {
            clock().sleep(muster_model::Duration::from_millis(100)).await;
        }
    })
    .await;
    conformance::hundred(&driver, &host).await;
}
