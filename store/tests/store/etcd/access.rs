//! Roots, certificates, users.

use std::{path::Path, time::Duration};

use muster_model::store::{Committed, List, Store, StoreError, Txn};
use muster_store::etcd::{Etcd, Options, Password, Tls, User};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::support::{
    cluster::{self, Cluster, ServerTls, Setup, options, wait},
    scratch,
};

async fn put(store: &dyn Store, key: &str, value: &str) -> Result<(), StoreError> {
    let done = store.commit(Txn::new().put(key, value.to_owned())).await?;
    assert!(matches!(done, Committed::Done { .. }), "{done:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_is_a_world_of_its_own() {
    let cluster = cluster::shared().await;
    let _alone = cluster::alone().await;
    let open = |root: &str| {
        let with = Options { root: root.to_owned(), ..options() };
        let cluster = cluster.clone();
        async move { cluster.open(with).await }
    };
    let (a, ab, below) = (open("/iso/a").await, open("/iso/ab/").await, open("/iso/a/below").await);
    for (store, value) in [(&a, "a"), (&ab, "ab"), (&below, "below")] {
        put(store, "/key", value).await.expect("it commits");
        put(store, "/zzz", value).await.expect("it commits");
    }
    for (store, value) in [(&a, "a"), (&ab, "ab"), (&below, "below")] {
        let entry = store.get("/key").await.expect("it reads").expect("it is there");
        assert_eq!((entry.key.as_str(), &*entry.value), ("/key", value.as_bytes()));
    }
    let keys =
        |page: muster_model::store::Page| page.entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>();
    assert_eq!(keys(ab.list(List::default()).await.expect("it lists")), ["/key", "/zzz"]);
    assert_eq!(keys(below.list(List::default()).await.expect("it lists")), ["/key", "/zzz"]);
    // A root inside another is a part of it, and its bookkeeping is seen there as what it is: keys.
    let seen = keys(a.list(List::default()).await.expect("it lists"));
    assert!(
        seen.contains(&"/below/key".to_owned()) && !seen.iter().any(|key| key.starts_with("b/")),
        "{seen:?}"
    );
    assert_eq!(cluster.etcdctl(&["get", "--print-value-only", "/iso/ab/key"]).trim(), "ab");
    for store in [a, ab, below] {
        store.close().await.expect("it closes");
    }
    assert!(
        Etcd::open(&cluster.endpoints, Options { root: "no-slash".to_owned(), ..options() }).await.is_err()
    );
}

/// Certificates for a test: an authority, a server, a client, and a client of another authority.
struct Papers {
    ca: String,
    client: (String, String),
    stranger: (String, String),
    server: ServerTls,
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

fn signed(issuer: &CertifiedIssuer<'static, KeyPair>, name: &str) -> (String, String) {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut params = CertificateParams::new(names).expect("the names are fine");
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

fn papers(dir: &Path) -> Papers {
    let ours = authority("the test's authority");
    let theirs = authority("another authority");
    let (certificate, key) = signed(&ours, "server");
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    };
    Papers {
        ca: ours.pem(),
        client: signed(&ours, "client"),
        stranger: signed(&theirs, "stranger"),
        server: ServerTls {
            certificate: file("server.crt", &certificate),
            key: file("server.key", &key),
            ca: file("ca.crt", &ours.pem()),
        },
    }
}

fn tls(ca: &str, client: Option<&(String, String)>) -> Tls {
    Tls {
        ca: Some(ca.as_bytes().to_vec()),
        client: client.map(|(certificate, key)| (certificate.as_bytes().to_vec(), key.as_bytes().to_vec())),
        server_name: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_shown_and_asked_for() {
    let dir = scratch();
    let papers = papers(dir.path());
    let setup = Setup { members: 1, tls: Some(papers.server.clone()), ..Setup::default() };
    let cluster = Cluster::start(setup).await;
    let store = cluster.open(Options { tls: Some(tls(&papers.ca, Some(&papers.client))), ..options() }).await;
    put(&store, "/a", "1").await.expect("with certificates it works");
    assert!(store.get("/a").await.expect("it reads").is_some());
    let quickly = Options { call_timeout: Duration::from_secs(2), ..options() };
    let refused = [
        ("without TLS", None),
        ("without a certificate of ours", Some(tls(&papers.ca, None))),
        ("with a stranger's certificate", Some(tls(&papers.ca, Some(&papers.stranger)))),
        ("with another authority", Some(tls(&authority("x").pem(), Some(&papers.client)))),
    ];
    for (how, tls) in refused {
        let error = Etcd::open(&cluster.endpoints, Options { tls, ..quickly.clone() }).await;
        let error = error.err().unwrap_or_else(|| panic!("{how} it was opened"));
        assert!(matches!(error, StoreError::Unavailable { .. }), "{how}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_renewed_when_it_expires() {
    let arguments = vec!["--auth-token-ttl=1".to_owned()];
    let cluster = Cluster::start(Setup { members: 1, arguments, ..Setup::default() }).await;
    for command in [
        &["user", "add", "root:rootpw"][..],
        &["role", "add", "root"],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "muster"],
        &["role", "grant-permission", "--prefix=true", "muster", "readwrite", "/mine/"],
        &["user", "add", "muster:secret"],
        &["user", "grant-role", "muster", "muster"],
        &["auth", "enable"],
    ] {
        cluster.etcdctl(command);
    }
    let user = |password: &str| Some(User { name: "muster".to_owned(), password: Password::new(password) });
    let with = |user| Options { user, root: "/mine".to_owned(), ..options() };
    let store = cluster.open(with(user("secret"))).await;
    put(&store, "/a", "0").await.expect("it commits");
    let start = store.revision().await.expect("it answers");
    let mut watch = store.watch("/a", start).await.expect("it watches");
    for n in 1..4_u32 {
        // Longer than a login lasts.
        wait(Duration::from_millis(2500)).await;
        put(&store, "/a", &n.to_string()).await.expect("an expired login is renewed");
        assert!(store.get("/a").await.expect("it reads").is_some());
    }
    let mut heard = 0;
    while heard < 3 {
        use futures::StreamExt;
        let event = tokio::time::timeout(Duration::from_mins(1), watch.next()).await.expect("it goes on");
        match event.expect("it goes on").expect("it does not fail") {
            muster_model::store::WatchEvent::Changes(_) => heard += 1,
            muster_model::store::WatchEvent::Progress(_) => {}
        }
    }
    let denied = [
        ("a wrong password", with(user("wrong"))),
        ("no login", with(None)),
        ("a root that is not granted", Options { root: "/theirs".to_owned(), ..with(user("secret")) }),
    ];
    for (how, options) in denied {
        let error = Etcd::open(&cluster.endpoints, options).await.err();
        let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(matches!(error, Some(StoreError::Denied { .. })), "{how}: {error:?}");
        assert!(!text.contains("secret") && !text.contains("wrong"), "a password is in {text:?}");
    }
    store.close().await.expect("it closes");
}
