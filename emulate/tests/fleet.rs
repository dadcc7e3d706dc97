//! Emulated BMCs: how many there may be, their control interface, and where they may listen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use muster_emulate::{
    Machine, Power, RealClock, Timing,
    ipmi::{self, RmcpBmc},
    redfish::{Faults, Fleet, Layout, Place},
};
use serde_json::Value;

/// A client without TLS; a configuration is handed in so that no provider has to be installed.
fn client() -> reqwest::Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder().tls_backend_preconfigured(config).no_proxy().build().unwrap()
}

async fn get(client: &reqwest::Client, url: &str) -> Value {
    let answer = client.get(url).send().await.unwrap();
    assert!(answer.status().is_success(), "{url}: {}", answer.status());
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

#[tokio::test]
async fn two_thousand_bmcs_have_an_address_each() {
    let place = Place::Addresses { first: Ipv4Addr::new(127, 77, 0, 1), port: 18443 };
    let layout = Layout { bmcs: 2000, place, ..Layout::default() };
    let fleet = Fleet::start(&layout, Arc::new(RealClock::default())).await.unwrap();
    assert_eq!(fleet.serving(), 2000);
    let client = client();
    let mut serials = std::collections::BTreeSet::new();
    for bmc in fleet.bmcs().step_by(97) {
        let url = format!("{}/redfish/v1/Systems/1", bmc.url());
        let answer = client.get(url).basic_auth("admin", Some("emulated")).send().await.unwrap();
        let system: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(system["PowerState"], "Off");
        serials.insert(system["SerialNumber"].as_str().unwrap().to_owned());
    }
    assert_eq!(serials.len(), 2000_usize.div_ceil(97), "every machine has its own serial number");
}

#[tokio::test]
async fn faults_are_switched_while_it_runs() {
    let fleet = Fleet::start(&Layout::default(), Arc::new(RealClock::default())).await.unwrap();
    let control = fleet.control("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (client, base) = (client(), format!("http://{}", control.address));
    let name = fleet.first().name.clone();
    let put = |path: String, body: &'static str| {
        let request =
            client.put(format!("{base}{path}")).header("content-type", "application/json").body(body);
        async move { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(put(format!("/bmcs/{name}/faults"), r#"{"sayPower":"Off","delay":"10ms"}"#).await, 204);
    assert_eq!(fleet.first().faults().say_power.as_deref(), Some("Off"));
    assert_eq!(put(format!("/bmcs/{name}/faults"), r#"{"noSuchSwitch":true}"#).await, 422);
    assert_eq!(put("/bmcs/nobody/faults".into(), "{}").await, 404);
    assert_eq!(put("/faults".into(), "{}").await, 204);
    assert_eq!(fleet.first().faults(), Faults::default());
    client.post(format!("{base}/bmcs/{name}/button")).send().await.unwrap();
    fleet.first().systems[0].machine.until(|seen| seen.power == Power::On).await;
    let shown = get(&client, &format!("{base}/bmcs/{name}")).await;
    assert_eq!(shown["systems"][0]["seen"]["power"], "On");
    assert_eq!(get(&client, &format!("{base}/bmcs")).await[0]["name"], name.as_str());
}

#[tokio::test]
async fn faults_of_ipmi_are_switched_while_it_runs() {
    let clock: Arc<dyn muster_model::Clock> = Arc::new(RealClock::default());
    let machine = Machine::new(Arc::clone(&clock), Timing::default());
    let place = "127.0.0.1:0".parse().unwrap();
    let bmc = RmcpBmc::start(place, Vec::new(), [7; 16], machine, clock).await.unwrap();
    let bmc = Arc::new(bmc);
    let bmcs = BTreeMap::from([("bmc-00000".to_owned(), Arc::clone(&bmc))]);
    let control = ipmi::control("127.0.0.1:0".parse().unwrap(), bmcs).await.unwrap();
    let (client, base) = (client(), format!("http://{}", control.address));
    let put = |path: &str, body: &'static str| {
        let request =
            client.put(format!("{base}{path}")).header("content-type", "application/json").body(body);
        async move { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(put("/bmcs/bmc-00000/faults", r#"{"silent":true,"refuseSuites":[17]}"#).await, 204);
    assert_eq!((bmc.faults().silent, bmc.faults().refuse_suites), (true, vec![17]));
    assert_eq!(put("/bmcs/bmc-00000/faults", r#"{"noSuchSwitch":true}"#).await, 422);
    assert_eq!(put("/bmcs/nobody/faults", "{}").await, 404);
    assert_eq!(put("/faults", "{}").await, 204);
    assert_eq!(bmc.faults(), ipmi::Faults::default());
    client.post(format!("{base}/bmcs/bmc-00000/button")).send().await.unwrap();
    bmc.machine.until(|seen| seen.power == Power::On).await;
    let shown = get(&client, &format!("{base}/bmcs/bmc-00000")).await;
    assert_eq!(
        (&shown["systems"][0]["seen"]["power"], &shown["faults"]["silent"]),
        (&"On".into(), &false.into())
    );
    let listed = get(&client, &format!("{base}/bmcs")).await;
    assert_eq!(listed[0]["url"], format!("ipmi://{}", bmc.address));
}

#[tokio::test]
async fn nothing_listens_outside_of_loopback() {
    let clock = Arc::new(RealClock::default());
    let place = Place::Addresses { first: Ipv4Addr::UNSPECIFIED, port: 0 };
    assert!(Fleet::start(&Layout { place, ..Layout::default() }, clock.clone()).await.is_err());
    let fleet = Fleet::start(&Layout::default(), clock).await.unwrap();
    assert!(fleet.control("0.0.0.0:0".parse().unwrap()).await.is_err());
}
