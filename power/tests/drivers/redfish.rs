//! The Redfish driver against our emulator and against sushy-tools.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use muster_emulate::redfish::{Fleet, Layout};
use muster_model::power::{
    Endpoint, Expected, Fault, Leave, Order, Power as _, PowerAction, PowerState, Trust,
};
use muster_power::{
    address::{AddressRules, Resolver},
    redfish::{Redfish, Setup},
};

use crate::support::{
    Vault, clock, conformance, peers, read_until, redfish, redfish_host, redfish_host_trusting, setup, within,
};

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

/// Several systems and none named: the UUID says which one, and only that one is switched.
#[tokio::test]
async fn one_of_several_systems_is_known_by_its_uuid() {
    let fleet = fleet(Layout { systems: 3, ..Layout::default() }).await;
    let bmc = fleet.first();
    let (driver, mut host) = (redfish(&lab()), redfish_host(&bmc.url()));
    assert_eq!(driver.read(&host).await.unwrap_err().code(), "POWER_AMBIGUOUS_SYSTEM");
    host.expect.uuid = Some(bmc.systems[1].uuid.to_uppercase());
    let _ = driver.request(&host, Order::first(PowerAction::On), &Leave::unlimited()).await.unwrap();
    read_until(&driver, &host, &PowerState::On).await;
    let on: Vec<_> = bmc.systems.iter().map(|system| system.machine.look().boots).collect();
    assert_eq!(on, [0, 1, 0]);
    host.expect.uuid = Some("00000000-0000-4000-8000-00000000ffff".into());
    assert_eq!(driver.read(&host).await.unwrap_err().code(), "POWER_AMBIGUOUS_SYSTEM");
}

/// Answers with an address that is allowed once, and with another from then on.
#[derive(Debug, Default)]
struct Rebinds(AtomicUsize);

#[async_trait]
impl Resolver for Rebinds {
    async fn resolve(&self, _: &str) -> Result<Vec<IpAddr>, String> {
        let asked = self.0.fetch_add(1, Ordering::SeqCst);
        Ok(vec![IpAddr::from([127, 0, 0, if asked == 0 { 1 } else { 9 }])])
    }
}

/// The address that was judged is the one that is connected to, for all requests of a call; the next call judges anew.
#[tokio::test]
async fn ops_r19_a_name_that_is_bound_anew_is_not_followed() {
    let fleet = fleet(Layout::default()).await;
    let (bmc, resolver) = (fleet.first(), Arc::new(Rebinds::default()));
    let rules = AddressRules {
        allow: vec!["127.0.0.1/32".parse().unwrap()],
        plain_http: true,
        resolver: Arc::clone(&resolver) as _,
        ..AddressRules::default()
    };
    let driver = Redfish::new(Setup { rules: Arc::new(rules), ..setup(&lab()) });
    let host = redfish_host(&format!("http://rebind.example:{}", bmc.address.port()));
    assert_eq!(driver.read(&host).await.unwrap().state, PowerState::Off);
    assert_eq!(resolver.0.load(Ordering::SeqCst), 1, "one question for the whole call");
    let before = bmc.counters().connections;
    assert_eq!(driver.read(&host).await.unwrap_err().code(), "POWER_ADDRESS_REFUSED");
    assert_eq!(bmc.counters().connections, before);
}
