//! Wake-on-LAN, agent, webhook and dry-run.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use axum::{Json, Router, http::HeaderMap, http::StatusCode, routing::post};
use muster_emulate::{
    Machine, Power as Supply, Timing,
    redfish::{Fleet, Layout},
};
use muster_model::{
    Clock, Duration, Timestamp,
    power::{
        Accepted, Bmc, BootOverride, BootTarget, Credentials, Endpoint, Expected, Leave, Mac, Order, Power,
        PowerAction, PowerState, Secret, Trust,
    },
};
use muster_power::{
    Limits,
    agent::{AgentHub, Distrust, Guard},
    dry_run::DryRun,
    sign::Seen,
    webhook::{Call, Webhook},
    wol::WakeOnLan,
};
use tokio::net::UdpSocket;

use crate::support::{Vault, clock, loopback_rules, read_until, redfish, redfish_host, within};

const ON: Order = Order::first(PowerAction::On);

fn record(endpoint: Endpoint) -> Bmc {
    Bmc { host: "n1".into(), endpoint, credential: Some("lab".into()), expect: Expected::default() }
}

/// A clock that moves when it is told to.
#[derive(Debug, Default)]
struct Hand(Mutex<u64>);

impl Hand {
    fn forward(&self, length: Duration) {
        *self.0.lock().unwrap() += length.millis();
    }
}

#[async_trait::async_trait]
impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + i64::try_from(*self.0.lock().unwrap()).unwrap())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(*self.0.lock().unwrap())
    }

    async fn sleep(&self, length: Duration) {
        self.forward(length);
    }
}

#[tokio::test]
async fn bm_7_24_magic_packets_reach_the_directed_broadcast() {
    let mac: Mac = "02:00:00:00:00:0a".parse().unwrap();
    let secret: Mac = "01:02:03:04:05:06".parse().unwrap();
    let driver = WakeOnLan::new(loopback_rules(), clock());
    for (broadcast, secure_on, length) in
        [("127.0.0.1", None, 102), ("127.255.255.255", None, 102), ("127.255.255.255", Some(secret), 108)]
    {
        let listener = UdpSocket::bind((broadcast, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let host =
            record(Endpoint::Wol { mac, broadcast: broadcast.into(), port, secure_on, interface: None });
        assert!(matches!(
            driver.request(&host, ON, &Leave::unlimited()).await.unwrap(),
            Accepted::Sent { .. }
        ));
        for _ in 0..3 {
            let mut packet = [0; 256];
            let (size, _) = within("a magic packet", listener.recv_from(&mut packet)).await.unwrap();
            let packet = &packet[..size];
            assert_eq!(size, length);
            assert_eq!(packet[..6], [0xff; 6]);
            assert!(packet[6..102].chunks(6).all(|chunk| chunk == mac.0));
            assert_eq!(packet[102..], secure_on.map(|mac| mac.0.to_vec()).unwrap_or_default());
        }
    }
}

#[tokio::test]
async fn packets_leave_by_the_interface_that_is_named() {
    let mac: Mac = "02:00:00:00:00:0a".parse().unwrap();
    let driver = WakeOnLan::new(loopback_rules(), clock());
    let listener = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let by = |interface: &str| {
        let interface = Some(interface.to_owned());
        record(Endpoint::Wol { mac, broadcast: "127.0.0.1".into(), port, secure_on: None, interface })
    };
    assert!(matches!(
        driver.request(&by("lo"), ON, &Leave::unlimited()).await.unwrap(),
        Accepted::Sent { .. }
    ));
    let (size, _) = within("a magic packet", listener.recv_from(&mut [0; 256])).await.unwrap();
    assert_eq!(size, 102);
    let error = driver.request(&by("no-such-card"), ON, &Leave::unlimited()).await.unwrap_err();
    assert!(error.to_string().contains("no-such-card"), "{error}");
}

#[tokio::test]
async fn bm_7_25_wake_on_lan_can_neither_read_nor_stop() {
    let driver = WakeOnLan::new(loopback_rules(), clock());
    let mac = "02:00:00:00:00:0a".parse().unwrap();
    let host = record(Endpoint::Wol {
        mac,
        broadcast: "127.0.0.1".into(),
        port: 9,
        secure_on: None,
        interface: None,
    });
    assert!(!driver.abilities().read && !driver.abilities().can(PowerAction::ForceOff));
    assert!(!driver.read(&host).await.unwrap().state.is_known(), "never a false off");
    for action in [PowerAction::GracefulOff, PowerAction::ForceOff, PowerAction::Cycle] {
        let error = driver.request(&host, Order::first(action), &Leave::unlimited()).await.unwrap_err();
        assert_eq!(error.code(), "POWER_UNSUPPORTED", "{error}");
    }
}

#[tokio::test]
async fn bm_7_24_the_agent_powers_off_on_a_token_that_works_once() {
    let hand = Arc::new(Hand::default());
    let vault = Vault::with("lab", "agent", "the key");
    let key = Secret::new("the key");
    let hub = AgentHub::new(Arc::clone(&vault) as Arc<dyn Credentials>, Arc::clone(&hand) as Arc<dyn Clock>);
    let host = record(Endpoint::Agent);
    let off = Order::first(PowerAction::GracefulOff);
    let mut guard = Guard::new(key.clone(), "n1", "boot-1");
    let macs = vec!["02:00:00:00:00:0a".parse().unwrap()];

    assert!(!hub.read(&host).await.unwrap().state.is_known(), "an agent that was never heard is not off");
    assert_eq!(hub.request(&host, off, &Leave::unlimited()).await.unwrap_err().code(), "POWER_SILENT");
    let hello = guard.hello(macs.clone(), hand.now());
    assert_eq!(hub.hello(&hello, &key).unwrap().power_off, None);
    assert_eq!(hub.hello(&hello, &key), Err(Distrust::Replayed));
    assert_eq!(hub.hello(&guard.hello(vec![], hand.now()), &Secret::new("other")), Err(Distrust::Signature));
    let mut forged = guard.hello(macs.clone(), hand.now());
    forged.boot_id = "boot-2".into();
    assert_eq!(hub.hello(&forged, &key), Err(Distrust::Signature));
    assert_eq!(hub.read(&host).await.unwrap().state, PowerState::On);
    assert_eq!(hub.heard("n1").unwrap().boot_id, "boot-1");

    let _ = hub.request(&host, off, &Leave::unlimited()).await.unwrap();
    let token = hub.hello(&guard.hello(macs.clone(), hand.now()), &key).unwrap().power_off.expect("an order");
    assert_eq!(Guard::new(key.clone(), "n2", "boot-1").accept(&token, hand.now()), Err(Distrust::WrongHost));
    assert_eq!(Guard::new(key.clone(), "n1", "boot-2").accept(&token, hand.now()), Err(Distrust::WrongBoot));
    let stranger = Guard::new(Secret::new("other"), "n1", "boot-1").accept(&token, hand.now());
    assert_eq!(stranger, Err(Distrust::Signature));
    assert_eq!(guard.accept(&token, hand.now()), Ok(()));
    assert_eq!(guard.accept(&token, hand.now()), Err(Distrust::Replayed));
    hand.forward(Duration::from_mins(10));
    let late = Guard::new(key.clone(), "n1", "boot-1").accept(&token, hand.now());
    assert_eq!(late, Err(Distrust::Stale));
    let old = guard.hello(macs, hand.now().saturating_sub(Duration::from_mins(5)));
    assert_eq!(hub.hello(&old, &key), Err(Distrust::Stale));
    assert!(!hub.read(&host).await.unwrap().state.is_known(), "silence is unknown, not off");
    let next = Guard::new(key.clone(), "n1", "boot-2");
    assert_eq!(
        hub.hello(&next.hello(vec![], hand.now()), &key).unwrap().power_off,
        None,
        "orders end with a boot"
    );
    assert_eq!(
        hub.request(&host, Order::first(PowerAction::ForceOff), &Leave::unlimited())
            .await
            .unwrap_err()
            .code(),
        "POWER_UNSUPPORTED"
    );
}

/// 4,000 agents with three hellos each within half a minute; and one that floods takes no room from the others.
#[tokio::test]
async fn agents_are_heard_however_many_there_are() {
    let hand = Arc::new(Hand::default());
    let vault = Vault::with("lab", "agent", "the key");
    let key = Secret::new("the key");
    let hub = AgentHub::new(vault as Arc<dyn Credentials>, Arc::clone(&hand) as Arc<dyn Clock>);
    let hello = |guard: &Guard| hub.hello(&guard.hello(vec![], hand.now()), &key);
    let flood = Guard::new(key.clone(), "flood", "boot-1");
    while hello(&flood).is_ok() {}
    let guards: Vec<Guard> =
        (0..4_000).map(|number| Guard::new(key.clone(), &format!("n{number}"), "boot-1")).collect();
    for _ in 0..3 {
        for guard in &guards {
            assert!(hello(guard).is_ok());
        }
    }
}

#[tokio::test]
async fn an_order_waits_for_its_hello_no_longer_than_the_leave_it_was_given_with() {
    let hand = Arc::new(Hand::default());
    let vault = Vault::with("lab", "agent", "the key");
    let key = Secret::new("the key");
    let hub = AgentHub::new(Arc::clone(&vault) as Arc<dyn Credentials>, Arc::clone(&hand) as Arc<dyn Clock>);
    let (host, off) = (record(Endpoint::Agent), Order::first(PowerAction::GracefulOff));
    let guard = Guard::new(key.clone(), "n1", "boot-1");
    let hello = || hub.hello(&guard.hello(vec![], hand.now()), &key).unwrap().power_off;
    assert_eq!(hello(), None);

    let leads = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&leads);
    let standing = Leave::new(move || {
        let leads = asked.load(Ordering::SeqCst);
        leads.then_some(Duration::from_secs(10)).ok_or_else(|| "this process no longer leads".to_owned())
    });
    let (leave, waiting) = standing.for_one_call();
    let _ = hub.request(&host, off, &leave).await.unwrap();
    drop(waiting);
    leads.store(false, Ordering::SeqCst);
    assert_eq!(hello(), None, "an order of a leadership that is over");
    leads.store(true, Ordering::SeqCst);
    assert!(hello().is_some(), "the call has returned, its order has not");
}

#[tokio::test]
async fn webhooks_are_signed_and_work_once() {
    let machine = Machine::new(clock(), Timing::default());
    let (behind, wall) = (Arc::clone(&machine), clock());
    let seen = Arc::new(Mutex::new((Seen::default(), Vec::<(Call, String)>::new())));
    let calls = Arc::clone(&seen);
    let (asked, odd) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, says_nothing) = (Arc::clone(&asked), Arc::clone(&odd));
    let handler = move |headers: HeaderMap, Json(call): Json<Call>| async move {
        let signature = headers["x-muster-signature"].to_str().unwrap().to_owned();
        counted.fetch_add(1, Ordering::SeqCst);
        if says_nothing.load(Ordering::SeqCst) {
            return Ok(Json(serde_json::json!({})));
        }
        let mut seen = seen.lock().unwrap();
        if call.check(&Secret::new("the key"), &signature, &mut seen.0, wall.now()).is_err() {
            return Err(StatusCode::UNAUTHORIZED);
        }
        seen.1.push((call.clone(), signature));
        match call.action.as_str() {
            "on" => behind.switch_on(),
            "force-off" => behind.cut(),
            _ => {}
        }
        let power = if behind.power() == Supply::On { "on" } else { "off" };
        Ok(Json(serde_json::json!({ "power": power })))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/switch", listener.local_addr().unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        axum::serve(listener, Router::new().route("/switch", post(handler))).await.unwrap();
    });

    let vault = Vault::with("lab", "hook", "the key");
    let credentials = Arc::clone(&vault) as Arc<dyn Credentials>;
    let driver = Webhook::new(loopback_rules(), credentials, clock(), Limits::default());
    let host = record(Endpoint::Webhook { url: url.clone(), trust: Trust::Insecure });
    assert_eq!(driver.read(&host).await.unwrap().state, PowerState::Off);
    let _ = driver.request(&host, ON, &Leave::unlimited()).await.unwrap();
    read_until(&driver, &host, &PowerState::On).await;
    assert_eq!(driver.request(&host, ON, &Leave::unlimited()).await.unwrap(), Accepted::AlreadyThere);
    let _ = driver.request(&host, Order::first(PowerAction::ForceOff), &Leave::unlimited()).await.unwrap();
    assert_eq!(machine.power(), Supply::Off);

    let gone = Leave::new(|| Err("this process no longer leads".to_owned()));
    let error = driver.request(&host, ON, &gone).await.unwrap_err();
    assert_eq!((error.code(), machine.power()), ("POWER_WITHHELD", Supply::Off), "{error}");

    let (call, signature) = calls.lock().unwrap().1.last().unwrap().clone();
    let key = Secret::new("the key");
    assert!(call.check(&key, &signature, &mut Seen::default(), call.issued).is_ok());
    let replayed = call.check(&key, &signature, &mut calls.lock().unwrap().0, call.issued);
    assert_eq!(replayed, Err("the call was seen before"));
    let late = call.expires.saturating_add(Duration::from_secs(1));
    assert!(call.check(&key, &signature, &mut Seen::default(), late).is_err());
    let other = Call { host: "n2".into(), ..call.clone() };
    assert!(other.check(&key, &signature, &mut Seen::default(), call.issued).is_err());
    vault.set("lab", "hook", "wrong key");
    let before = asked.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(driver.read(&host).await.unwrap_err().code(), "POWER_DENIED");
    }
    assert_eq!(asked.load(Ordering::SeqCst), before + 1, "an account that was refused is not tried again");
    vault.set("lab", "hook", "the key");
    odd.store(true, Ordering::SeqCst);
    let before = asked.load(Ordering::SeqCst);
    let error = driver.request(&host, ON, &Leave::unlimited()).await.unwrap_err();
    assert_eq!(error.code(), "POWER_MALFORMED_ANSWER", "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), before + 1, "nothing is switched on a guess");
}

#[tokio::test]
async fn bm_7_30_dry_run_reads_and_changes_nothing() {
    let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let host = redfish_host(&fleet.first().url());
    let driver = DryRun::new(Arc::new(redfish(&Vault::with("lab", "admin", "emulated"))), clock());
    assert_eq!(driver.read(&host).await.unwrap().state, PowerState::Off);
    let _ = driver.request(&host, ON, &Leave::unlimited()).await.unwrap();
    let boot = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    driver.set_boot(&host, boot, &Leave::unlimited()).await.unwrap();
    let done: Vec<_> = driver.records().into_iter().map(|record| record.what).collect();
    assert_eq!(done, ["power on", "boot from Pxe"]);
    let counters = fleet.first().counters();
    assert!(counters.resets.is_empty() && counters.boot_writes == 0, "{counters:?}");
}
