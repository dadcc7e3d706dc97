//! OPS-R19: addresses that a host record must not make us call, certificates, and where passwords show up.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr, TcpListener},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use muster_emulate::redfish::{Faults, Fleet, Layout};
use muster_model::power::{
    Bmc, CipherSuite, Credentials, Endpoint, Expected, Leave, Order, Power, PowerAction, PowerState,
    Privilege, Trust,
};
use muster_power::{
    address::{AddressRules, Path, Resolver},
    ipmi::Ipmi,
    redfish::{Redfish, Setup},
    wol::WakeOnLan,
};

use crate::support::{Vault, clock, redfish, redfish_host, redfish_host_trusting, setup};

/// Names that resolve as an attacker would like.
#[derive(Debug, Default)]
struct EvilDns(AtomicUsize);

#[async_trait]
impl Resolver for EvilDns {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let addresses: &[&str] = match name {
            "localhost" | "loop.example" => &["127.0.0.2"],
            "metadata.example" => &["169.254.169.254"],
            "mixed.example" => &["10.0.0.5", "127.0.0.1"],
            "mapped.example" => &["::ffff:10.0.0.5"],
            // Harmless when it is checked, hostile when it is used: only one question may be asked.
            "rebind.example" if self.0.fetch_add(1, Ordering::SeqCst) == 0 => &["10.0.0.5"],
            "rebind.example" => &["127.0.0.1"],
            _ => &[],
        };
        Ok(addresses.iter().map(|text| text.parse().unwrap()).collect())
    }
}

/// The most careless allow-list that can be written.
fn careless() -> AddressRules {
    AddressRules {
        allow: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
        own: ["10.9.9.9:8443".parse().unwrap()].into_iter().collect(),
        resolver: Arc::new(EvilDns::default()),
        ..AddressRules::default()
    }
}

const HOSTILE: [&str; 42] = [
    "https://127.0.0.1",
    "https://127.1",
    "https://127.0.1",
    "https://2130706433",
    "https://0x7f000001",
    "https://0x7f.0.0.1",
    "https://0177.0.0.1",
    "https://127.0.0.1.",
    "https://0",
    "https://localhost",
    "https://loop.example",
    "https://[::1]",
    "https://[::ffff:127.0.0.1]",
    "https://[::ffff:a9fe:a9fe]",
    "https://[::127.0.0.1]",
    "https://[64:ff9b::7f00:1]",
    "https://[2002:7f00:1::]",
    "https://169.254.169.254",
    "https://[fe80::1]",
    "https://[fe80::1%25eth0]",
    "https://[fd00:ec2::254]",
    "https://100.100.100.200",
    "https://metadata.example",
    "https://mixed.example",
    "https://mapped.example",
    "https://0.0.0.0",
    "https://[::]",
    "https://224.0.0.1",
    "https://[ff02::1]",
    "https://255.255.255.255",
    "https://240.0.0.1",
    "https://10.9.9.9",
    "http://10.0.0.1",
    "ftp://10.0.0.1",
    "file:///etc/passwd",
    "https://10.0.0.1:22",
    "https://10.0.0.1:99999",
    "https://admin:pw@10.0.0.1",
    "https://10.0.0.1@169.254.169.254",
    "https://10.0.0.1/latest/meta-data",
    "https://10.0.0.1\\@169.254.169.254",
    "https://１２７.0.0.1",
];

#[tokio::test]
#[ignore = "run by ops_r19_hostile_addresses_are_refused, in a network namespace"]
async fn inside_a_namespace_without_routes() {
    let vault = Vault::with("lab", "admin", "canary");
    let driver = Redfish::new(Setup { rules: Arc::new(careless()), ..setup(&vault) });
    for url in HOSTILE {
        let error = driver.read(&redfish_host(url)).await.expect_err(url);
        assert_eq!(error.code(), "POWER_ADDRESS_REFUSED", "{url}: {error}");
        assert!(!error.to_string().contains("pw@"), "{error}");
    }
    let ipmi = Ipmi::new(Arc::new(careless()), Arc::clone(&vault) as Arc<dyn Credentials>, clock());
    for address in
        ["127.0.0.1", "169.254.169.254", "[::1]:623", "10.0.0.1:22", "0x7f000001", "metadata.example"]
    {
        let endpoint = Endpoint::Ipmi {
            address: address.into(),
            suite: CipherSuite::Sha256,
            privilege: Privilege::Operator,
        };
        let error = ipmi.read(&record(endpoint)).await.expect_err(address);
        assert_eq!(error.code(), "POWER_ADDRESS_REFUSED", "{address}: {error}");
    }
    let wol = WakeOnLan::new(Arc::new(careless()), clock());
    for broadcast in ["255.255.255.255", "224.0.0.1", "127.255.255.255", "0.0.0.0", "loop.example", "10.1"] {
        let mac = "02:00:00:00:00:01".parse().unwrap();
        let endpoint =
            Endpoint::Wol { mac, broadcast: broadcast.into(), port: 9, secure_on: None, interface: None };
        let error = wol
            .request(&record(endpoint), Order::first(PowerAction::On), &Leave::unlimited())
            .await
            .expect_err(broadcast);
        assert_eq!(error.code(), "POWER_ADDRESS_REFUSED", "{broadcast}: {error}");
    }
    // The name is asked for once per call, and the answer that was judged is the one that is used.
    let rules = careless();
    let approved = rules.approve_url("https://rebind.example", Path::None).await.unwrap();
    assert_eq!(approved.socket, "10.0.0.5:443".parse().unwrap());
    assert!(rules.approve_url("https://rebind.example", Path::None).await.is_err());
}

/// The table runs where a defect could reach nothing: without any network.
#[test]
fn ops_r19_hostile_addresses_are_refused() {
    let program = std::env::current_exe().unwrap();
    let test = "hostile::inside_a_namespace_without_routes";
    let output = Command::new("unshare")
        .args(["--net", "--map-root-user"])
        .arg(program)
        .args(["--exact", test, "--ignored"])
        .output()
        .expect("unshare (util-linux) makes a network namespace");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

fn record(endpoint: Endpoint) -> Bmc {
    Bmc { host: "n1".into(), endpoint, credential: Some("lab".into()), expect: Expected::default() }
}

#[tokio::test]
async fn ops_r19_loopback_is_called_only_when_it_is_named() {
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let port = trap.local_addr().unwrap().port();
    let vault = Vault::with("lab", "admin", "canary");
    let rules = AddressRules { ports: vec![port], plain_http: true, ..careless() };
    let driver = Redfish::new(Setup { rules: Arc::new(rules), ..setup(&vault) });
    for host in
        ["127.0.0.1", "localhost", "127.1", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]", "mixed.example"]
    {
        let error = driver.read(&redfish_host(&format!("http://{host}:{port}"))).await.unwrap_err();
        assert_eq!(error.code(), "POWER_ADDRESS_REFUSED", "{host}: {error}");
    }
    assert!(trap.accept().is_err(), "someone connected to the trap");
    // Addresses outside of the allow-list are refused with the way out in the text.
    let narrow = AddressRules { allow: vec!["10.20.0.0/16".parse().unwrap()], ..AddressRules::default() };
    let why = narrow.approve_url("https://10.21.0.1", Path::None).await.unwrap_err();
    assert!(why.contains("bmc.allow"), "{why}");
    assert!(narrow.approve_url("https://10.20.3.4", Path::None).await.is_ok());
    assert!(narrow.approve_url("https://10.20.3.4:8443", Path::None).await.is_ok());
    let why = narrow.approve_url("https://10.20.3.4:5000", Path::None).await.unwrap_err();
    assert!(why.contains("bmc.ports"), "{why}");
    let none = AddressRules::default().approve_url("https://10.20.3.4", Path::None).await;
    assert!(none.is_err(), "without an allow-list nothing is called");
}

/// The control plane's machines are none that it switches; on loopback, which emulators share, the port tells them apart.
#[test]
fn ops_r19_the_control_plane_is_not_called() {
    let allow = ["127.0.0.0/8", "::1/128", "10.0.0.0/8"].map(|block| block.parse().unwrap());
    let rules = AddressRules { allow: allow.to_vec(), ..AddressRules::default() };
    let check = |own: &[&str], address: &str, expected: bool| {
        rules.own.set(own.iter().map(|one| one.parse().unwrap()).collect());
        let socket: SocketAddr = address.parse().unwrap();
        let judged = rules.judge(socket.ip(), socket.port());
        let refused = judged.as_ref().is_err_and(|why| why.contains("of this control plane"));
        assert_eq!(refused, expected, "{own:?} {address}: {judged:?}");
    };
    check(&[], "10.9.9.9:443", false);
    check(&["10.9.9.9:6443"], "10.9.9.9:443", true);
    check(&["10.9.9.9:6443"], "10.9.9.8:443", false);
    check(&["127.0.0.1:8443"], "127.0.0.1:8443", true);
    check(&["127.0.0.1:8443"], "127.0.0.1:8444", false);
    check(&["127.0.0.1:8443"], "127.0.0.2:8443", false);
    check(&["0.0.0.0:8443"], "127.9.9.9:8443", true);
    check(&["[::]:8443"], "[::1]:8443", true);
    check(&["0.0.0.0:8443"], "127.0.0.1:8000", false);
}

#[tokio::test]
async fn ops_r19_absolute_links_and_redirects_lead_nowhere() {
    let fleet = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let trap = Fleet::start(&Layout::default(), clock()).await.unwrap();
    let vault = Vault::with("lab", "admin", "emulated");
    let there = trap.first().url();
    for faults in [
        Faults { absolute_links: Some(there.clone()), ..Faults::default() },
        Faults { absolute_links: Some(format!("//{}", trap.first().address)), ..Faults::default() },
        Faults { redirect: Some(format!("{there}/redfish/v1/Systems/1")), ..Faults::default() },
    ] {
        fleet.first().set_faults(faults.clone());
        let error = redfish(&vault).read(&redfish_host(&fleet.first().url())).await.unwrap_err();
        assert_eq!(error.code(), "POWER_MALFORMED_ANSWER", "{faults:?}: {error}");
    }
    assert_eq!(trap.first().counters().connections, 0, "the trap was called");
}

#[tokio::test]
async fn ops_r19_a_wrong_certificate_gets_no_credential_bytes() {
    let fleet = Fleet::start(&Layout { tls: true, ..Layout::default() }, clock()).await.unwrap();
    let vault = Vault::with("lab", "admin", "emulated");
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let wrong_pin = muster_power::tls::pin_of(other.cert.der());
    for (trust, code) in [
        (Trust::default(), "POWER_UNAPPROVED_CERTIFICATE"),
        (Trust::Pin { pin: Some(wrong_pin) }, "POWER_UNTRUSTED_CERTIFICATE"),
        (Trust::Ca { pem: other.cert.pem(), server_name: None }, "POWER_UNTRUSTED_CERTIFICATE"),
        (Trust::Webpki, "POWER_UNTRUSTED_CERTIFICATE"),
        (Trust::Ca { pem: "nonsense".into(), server_name: None }, "POWER_INVALID"),
    ] {
        let host = redfish_host_trusting(&fleet.first().url(), trust.clone());
        let error = redfish(&vault).read(&host).await.unwrap_err();
        assert_eq!(error.code(), code, "{trust:?}: {error}");
    }
    let counters = fleet.first().counters();
    assert_eq!((counters.credentials_seen, counters.calls), (0, 0), "{counters:?}");
    // Insecure is a choice, and it shows.
    let host = redfish_host_trusting(&fleet.first().url(), Trust::Insecure);
    let reading = redfish(&vault).read(&host).await.unwrap();
    assert_eq!(reading.warnings, [muster_model::power::Warning::InsecureTls]);
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_accepted_under_its_name() {
    // A server of our own with a chain: the emulator's certificates are self-signed.
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["bmc.example".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key.serialize_der().try_into().unwrap())
            .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(mut stream) = acceptor.accept(stream).await {
                use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 418 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .await;
                let _ = stream.shutdown().await;
            }
        }
    });
    let vault = Vault::with("lab", "admin", "emulated");
    for (name, code) in [(None, "POWER_UNTRUSTED_CERTIFICATE"), (Some("bmc.example"), "POWER_REFUSED")] {
        let trust = Trust::Ca { pem: authority_pem.clone(), server_name: name.map(str::to_owned) };
        let error = redfish(&vault).read(&redfish_host_trusting(&url, trust)).await.unwrap_err();
        assert_eq!(error.code(), code, "{name:?}: {error}");
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn ops_r19_the_canary_password_is_in_no_log_error_or_debug_text() {
    const CANARY: &str = "canary-7f3a91";
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // For every thread: with one for this thread alone, a place that another test reached first may stay silent.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut texts = Vec::new();
    let layout = Layout { password: CANARY.into(), ..Layout::default() };
    let fleet = Fleet::start(&layout, clock()).await.unwrap();
    let bmc = fleet.first();
    let vault = Vault::with("lab", "admin", CANARY);
    let host = redfish_host(&bmc.url());
    for faults in [
        Faults::default(),
        Faults { session_limit: Some(0), ..Faults::default() },
        Faults { truncate: true, ..Faults::default() },
        Faults { status: Some(500), ..Faults::default() },
        Faults { refuse_account: true, ..Faults::default() },
        Faults { html_403: true, ..Faults::default() },
    ] {
        bmc.set_faults(faults);
        let driver = redfish(&vault);
        texts.push(format!("{:?}", driver.read(&host).await));
        if let Err(error) = driver.request(&host, Order::first(PowerAction::On), &Leave::unlimited()).await {
            texts.push(format!("{error} {error:?} {error:#?}"));
        }
        texts.push(format!("{driver:?} {host:?} {vault:?}"));
        driver.close().await;
    }
    let mut in_url = host.clone();
    in_url.endpoint = redfish_host(&format!("https://admin:{CANARY}@10.0.0.1")).endpoint;
    let error = redfish(&vault).read(&in_url).await.unwrap_err();
    texts.push(format!("{error} {error:?}"));
    let ipmi =
        Ipmi::new(crate::support::loopback_rules(), Arc::clone(&vault) as Arc<dyn Credentials>, clock());
    let closed = Endpoint::Ipmi {
        address: format!("127.0.0.1:{}", crate::support::peers::free_udp_port()),
        suite: CipherSuite::Sha1,
        privilege: Privilege::Operator,
    };
    texts.push(format!("{:?} {ipmi:?}", ipmi.read(&record(closed)).await));
    assert!(
        texts.iter().any(|text| text.contains(&format!("{:?}", PowerState::Off))),
        "nothing was read at all"
    );
    let logs = String::from_utf8_lossy(&sink.0.lock().unwrap()).into_owned();
    assert!(logs.contains("connect"), "the log was not captured: {logs}");
    texts.push(logs);
    let basic = BASE64_STANDARD.encode(format!("admin:{CANARY}"));
    for text in texts {
        assert!(!text.contains(CANARY) && !text.contains(&basic), "{text}");
    }
}

/// A list of systems without an end, 200 to the page.
#[tokio::test]
async fn an_endless_list_is_not_read_on_when_it_is_too_long() {
    use axum::{Json, Router, extract::Path, routing::get};
    use serde_json::json;
    let pages = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&pages);
    let root = || async { Json(json!({"Systems": {"@odata.id": "/page/0"}})) };
    let page = move |Path(number): Path<u32>| async move {
        asked.fetch_add(1, Ordering::SeqCst);
        let members: Vec<_> =
            (0..200).map(|one| json!({"@odata.id": format!("/system/{number}-{one}")})).collect();
        Json(json!({"Members": members, "Members@odata.nextLink": format!("/page/{}", number + 1)}))
    };
    let router = Router::new().route("/redfish/v1/", get(root)).route("/page/{number}", get(page));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = redfish_host(&format!("http://{}", listener.local_addr().unwrap()));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let error = redfish(&Vault::with("lab", "admin", "emulated")).read(&host).await.unwrap_err();
    assert_eq!(error.code(), "POWER_MALFORMED_ANSWER", "{error}");
    assert_eq!(pages.load(Ordering::SeqCst), 2, "256 members are too many, and 400 were seen");
}
