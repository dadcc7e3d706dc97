//! OPS-R18: who is let in, and as whom. Every mode, every way around it that we could think of.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use muster_model::{
    Clock, Duration, Project, Timestamp,
    identity::{Resource, Role, Verb, allowed},
};
use muster_server::{
    identity::{
        Authenticator, Binding, Bindings, Caller, Grantee, Mode, Reviewed, TokenDigest, TokenReview,
        TokenTable,
        oidc::{Issuer, REFRESH_PAUSE, Verifier},
    },
    peer::{Peer, PeerCertificate},
};
use serde_json::{Value, json};

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
struct StoppedClock(std::sync::atomic::AtomicU64);

const NOW: i64 = 1_800_000_000_000;

#[async_trait]
impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(NOW).saturating_add(self.monotonic())
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
    async fn sleep(&self, _: Duration) {}
}

fn clock() -> Arc<StoppedClock> {
    Arc::new(StoppedClock::default())
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn peer(certificate: Option<(&str, &[&str])>) -> Peer {
    let certificate = certificate.map(|(name, organizations)| {
        Arc::new(PeerCertificate {
            common_name: name.to_owned(),
            organizations: organizations.iter().map(|o| (*o).to_owned()).collect(),
            dns_names: vec![],
        })
    });
    Peer { address: "127.0.0.1:9".parse().unwrap(), certificate }
}

fn bound(grantee: Grantee, project: Option<&str>, role: Role) -> Binding {
    Binding { grantee, project: project.map(|name| name.parse().unwrap()), role, controller_name: None }
}

fn bindings() -> Bindings {
    let user = |name: &str| Grantee::User(name.to_owned());
    Bindings::new(vec![
        bound(user("alice@example.com"), Some("team"), Role::Admin),
        bound(user("victor@example.com"), Some("team"), Role::Viewer),
        bound(user("olga@example.com"), Some("team"), Role::Operator),
        bound(user("robot"), None, Role::Controller),
        bound(user("auditor@example.com"), None, Role::Auditor),
        bound(Grantee::Group("ops".into()), Some("team"), Role::Operator),
    ])
}

/// What is expected: a name and how it was proven, or a status code.
type Expected<'a> = Result<(&'a str, &'a str), u16>;

/// Headers, the names in the client's certificate, and what is expected.
type OverTls<'a> = (&'a [(&'a str, &'a str)], Option<(&'a str, &'a [&'a str])>, Expected<'a>);

#[track_caller]
fn check(what: &str, found: Result<Caller, muster_server::error::ApiError>, expected: Expected<'_>) {
    let found = found
        .map(|caller| (caller.name.to_string(), caller.proof))
        .map_err(|error| error.code.status().as_u16());
    let expected = expected.map(|(name, proof)| (name.to_owned(), proof));
    match (&found, &expected) {
        (Ok((a, b)), Ok((c, d))) => assert_eq!((a.as_str(), *b), (c.as_str(), *d), "{what}"),
        (Err(a), Err(b)) => assert_eq!(a, b, "{what}"),
        _ => panic!("{what}: expected {expected:?}, found {found:?}"),
    }
}

fn authenticator(mode: Mode, bindings: Bindings) -> Authenticator {
    Authenticator::new(mode, bindings, Some(TokenDigest::of("the-controller-token")), clock())
}

#[tokio::test]
async fn ops_r18_dev_mode() {
    let auth = authenticator(Mode::Dev, Bindings::default());
    let alice: Expected<'_> = Ok(("alice@example.com", "dev"));
    let robot: Expected<'_> = Ok(("controller", "controller-token"));
    let cases: &[(&[(&str, &str)], Expected<'_>)] = &[
        (&[], Err(401)),
        (&[("x-user-email", "alice@example.com")], alice),
        (&[("x-user-email", " Alice@Example.COM ")], alice),
        (&[("x-user-email", "")], Err(401)),
        (&[("x-user-email", "not-an-email")], Err(401)),
        (&[("x-user-email", "a@b")], Err(401)),
        (&[("x-user-email", "a@@b.c")], Err(401)),
        (&[("x-user-email", "alice@example.com,eve@example.com")], Err(401)),
        (&[("x-user-email", "alice@example.com eve@example.com")], Err(401)),
        (&[("x-user-email", "alice@example.com"), ("x-user-email", "eve@example.com")], Err(400)),
        (&[("x-user-email", "alice@example.com"), ("x-user-email", "alice@example.com")], Err(400)),
        (&[("x-user-email", "controller@system.local")], Err(401)),
        (&[("x-user-email", "CONTROLLER@SYSTEM.LOCAL")], Err(401)),
        (&[("authorization", "Bearer the-controller-token")], robot),
        (&[("authorization", "bearer the-controller-token")], robot),
        (&[("authorization", "Bearer the-controller-toke")], Err(401)),
        (&[("authorization", "Bearer the-controller-token2")], Err(401)),
        (&[("authorization", "Bearer ")], Err(401)),
        (&[("authorization", "the-controller-token")], Err(401)),
        (&[("authorization", "Basic dXNlcjpwdw==")], Err(401)),
        // A wrong token is not made good by a header that alone would be believed.
        (&[("authorization", "Bearer wrong"), ("x-user-email", "alice@example.com")], Err(401)),
        (&[("authorization", "Bearer the-controller-token"), ("authorization", "Bearer wrong")], Err(400)),
        (&[("authorization", "Bearer the-controller-token"), ("x-user-email", "alice@example.com")], robot),
    ];
    for (sent, expected) in cases {
        check(&format!("{sent:?}"), auth.authenticate(&headers(sent), &peer(None)).await, *expected);
    }
}

#[tokio::test]
async fn ops_r18_trusted_proxy() {
    let mode = || Mode::TrustedProxy {
        proxies: vec!["proxy.internal".into()],
        user_header: "X-User-Email".into(),
        group_header: "X-User-Groups".into(),
    };
    let auth = authenticator(mode(), bindings());
    let alice = ("x-user-email", "alice@example.com");
    let proxy: Option<(&str, &[&str])> = Some(("proxy.internal", &[]));
    let cases: &[OverTls<'_>] = &[
        (&[alice], proxy, Ok(("alice@example.com", "trusted-proxy"))),
        (&[alice], None, Err(401)), // straight to us, around the proxy
        (&[alice], Some(("other.internal", &[])), Err(401)), // a certificate, but not the proxy's
        (&[alice], Some(("", &[])), Err(401)),
        (&[], proxy, Err(401)),
        (&[alice, alice], proxy, Err(400)),
        (&[alice, ("x-user-groups", "a"), ("x-user-groups", "b")], proxy, Err(400)),
        (&[("x-user-email", "controller@system.local")], proxy, Err(401)),
        (&[("authorization", "Bearer the-controller-token")], None, Ok(("controller", "controller-token"))),
        (&[("authorization", "Bearer wrong"), alice], proxy, Err(401)),
    ];
    for (sent, certificate, expected) in cases {
        let found = auth.authenticate(&headers(sent), &peer(*certificate)).await;
        check(&format!("{sent:?} over {certificate:?}"), found, *expected);
    }
    let member = headers(&[("x-user-email", "new@example.com"), ("x-user-groups", "staff, ops")]);
    let caller = auth.authenticate(&member, &peer(proxy)).await.unwrap();
    assert!(caller.identity.has(Role::Operator, &"team".parse().unwrap()), "by its group");
    let stranger = headers(&[("x-user-email", "stranger@example.com")]);
    let caller = auth.authenticate(&stranger, &peer(proxy)).await.unwrap();
    assert!(caller.identity.projects.is_empty(), "with a table, nobody has a project by address alone");
}

#[tokio::test]
async fn ops_r18_client_certificates() {
    let auth = authenticator(Mode::Mtls, bindings());
    let cases: &[OverTls<'_>] = &[
        (&[], Some(("robot", &[])), Ok(("robot", "mtls"))),
        (&[], None, Err(401)),
        (&[], Some(("", &["ops"])), Err(401)),
        (&[("x-user-email", "alice@example.com")], None, Err(401)),
        // The header means nothing here: the certificate alone speaks.
        (
            &[("x-user-email", "alice@example.com")],
            Some(("victor@example.com", &[])),
            Ok(("victor@example.com", "mtls")),
        ),
        (&[("authorization", "Bearer wrong")], Some(("robot", &[])), Err(401)),
    ];
    for (sent, certificate, expected) in cases {
        let found = auth.authenticate(&headers(sent), &peer(*certificate)).await;
        check(&format!("{sent:?} over {certificate:?}"), found, *expected);
    }
}

#[tokio::test]
async fn ops_r18_tokens() {
    let table = TokenTable::new([(TokenDigest::of("alices-token"), "alice@example.com".to_owned())]);
    let auth = authenticator(Mode::Token(table), bindings());
    let cases: &[(&[(&str, &str)], Expected<'_>)] = &[
        (&[("authorization", "Bearer alices-token")], Ok(("alice@example.com", "token"))),
        (&[("authorization", "Bearer alices-tokem")], Err(401)),
        (&[("authorization", "Bearer alice@example.com")], Err(401)),
        (&[("authorization", &format!("Bearer {}", TokenDigest::of("alices-token")))], Err(401)),
        (&[], Err(401)),
        (&[("x-user-email", "alice@example.com")], Err(401)),
        (&[("authorization", "Bearer alices-token"), ("authorization", "Bearer alices-token")], Err(400)),
        (&[("authorization", "Bearer the-controller-token")], Ok(("controller", "controller-token"))),
    ];
    for (sent, expected) in cases {
        check(&format!("{sent:?}"), auth.authenticate(&headers(sent), &peer(None)).await, *expected);
    }
}

#[derive(Debug)]
struct Judge;

#[async_trait]
impl TokenReview for Judge {
    async fn review(&self, token: &str, project: Option<&Project>) -> Result<Option<Reviewed>, String> {
        match token {
            "good" => Ok(Some(Reviewed {
                user: "alice@example.com".into(),
                projects: project.map(|one| (one.clone(), [Role::Operator].into())).into_iter().collect(),
                ..Reviewed::default()
            })),
            "bad" => Ok(None),
            _ => Err("nobody could be asked".into()),
        }
    }
}

#[tokio::test]
async fn ops_r18_an_outside_judge() {
    let auth = authenticator(Mode::Review(Arc::new(Judge)), bindings());
    for (token, expected) in
        [("good", Ok(("alice@example.com", "k8s"))), ("bad", Err(401)), ("outage", Err(503))]
    {
        let sent = headers(&[("authorization", &format!("Bearer {token}"))]);
        check(token, auth.authenticate(&sent, &peer(None)).await, expected);
    }
    let sent = headers(&[("authorization", "Bearer good"), ("x-muster-project", "judged")]);
    let caller = auth.authenticate(&sent, &peer(None)).await.unwrap();
    assert!(caller.identity.has(Role::Operator, &"judged".parse().unwrap()), "the judge's roles count");
}

/// An issuer of our own: one key at a time, published on loopback.
struct TestIssuer {
    url: String,
    keys: Arc<std::sync::Mutex<Value>>,
    fetched: Arc<std::sync::atomic::AtomicUsize>,
}

struct SigningKey {
    id: String,
    pair: rcgen::KeyPair,
}

impl SigningKey {
    fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap(),
        }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key_raw();
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..])})
    }

    fn sign(&self, claims: &Value) -> String {
        let head = Header { kid: Some(self.id.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&head, claims, &EncodingKey::from_ec_der(&self.pair.serialize_der())).unwrap()
    }
}

impl TestIssuer {
    async fn start(keys: Value) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(std::sync::Mutex::new(json!({ "keys": keys })));
        let fetched = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
        let (served, count) = (Arc::clone(&keys), Arc::clone(&fetched));
        let router = axum::Router::new()
            .route(
                "/.well-known/openid-configuration",
                axum::routing::get(move || async move { axum::Json(discovery) }),
            )
            .route(
                "/keys",
                axum::routing::get(move || async move {
                    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    axum::Json(served.lock().unwrap().clone())
                }),
            );
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, keys, fetched }
    }
}

fn claims(issuer: &str) -> Value {
    json!({"iss": issuer, "aud": "muster", "sub": "alice", "email": "alice@example.com", "email_verified": true,
        "exp": NOW / 1000 + 600, "nbf": NOW / 1000 - 10, "groups": ["ops"]})
}

fn changed(claims: &Value, name: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[name] = value;
    claims
}

fn oidc(issuer: &TestIssuer, clock: Arc<StoppedClock>) -> Authenticator {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let verifier = Verifier::new(Issuer {
        url: issuer.url.clone(),
        audience: "muster".into(),
        keys: None,
        user_claim: "email".into(),
        groups_claim: "groups".into(),
    });
    Authenticator::new(Mode::Oidc(Box::new(verifier.unwrap())), bindings(), None, clock)
}

async fn bearer(auth: &Authenticator, token: &str) -> Result<Caller, muster_server::error::ApiError> {
    auth.authenticate(&headers(&[("authorization", &format!("Bearer {token}"))]), &peer(None)).await
}

#[tokio::test]
async fn ops_r18_openid_connect() {
    let (key, foreign) = (SigningKey::new("one"), SigningKey::new("one"));
    let issuer =
        TestIssuer::start(json!([key.jwk(), {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}])).await;
    let auth = oidc(&issuer, clock());
    let good = claims(&issuer.url);
    let unsigned = |head: Value, signature: &str| {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{signature}", part(&head), part(&good))
    };
    let hmac = |kid: &str, secret: &[u8]| {
        let head = Header { kid: Some(kid.into()), ..Header::new(Algorithm::HS256) };
        jsonwebtoken::encode(&head, &good, &EncodingKey::from_secret(secret)).unwrap()
    };
    let public_point = key.pair.public_key_raw().to_vec();
    let signed = key.sign(&good);
    let tampered = {
        let mut parts: Vec<String> = signed.split('.').map(str::to_owned).collect();
        parts[1] = URL_SAFE_NO_PAD.encode(changed(&good, "email", json!("eve@example.com")).to_string());
        parts.join(".")
    };
    let ok: Expected<'_> = Ok(("alice@example.com", "oidc"));
    let cases = [
        ("good", signed.clone(), ok),
        ("audience in a list", key.sign(&changed(&good, "aud", json!(["other", "muster"]))), ok),
        ("expired within the skew", key.sign(&changed(&good, "exp", json!(NOW / 1000 - 30))), ok),
        ("expired", key.sign(&changed(&good, "exp", json!(NOW / 1000 - 90))), Err(401)),
        ("no expiry", key.sign(&changed(&good, "exp", Value::Null)), Err(401)),
        ("expiry is text", key.sign(&changed(&good, "exp", json!("tomorrow"))), Err(401)),
        ("not valid yet", key.sign(&changed(&good, "nbf", json!(NOW / 1000 + 90))), Err(401)),
        ("another audience", key.sign(&changed(&good, "aud", json!("other"))), Err(401)),
        ("no audience", key.sign(&changed(&good, "aud", Value::Null)), Err(401)),
        ("another issuer", key.sign(&changed(&good, "iss", json!("https://evil.example"))), Err(401)),
        (
            "the issuer with a slash",
            key.sign(&changed(&good, "iss", json!(format!("{}/", issuer.url)))),
            Err(401),
        ),
        ("no address", key.sign(&changed(&good, "email", Value::Null)), Err(401)),
        ("an empty address", key.sign(&changed(&good, "email", json!(""))), Err(401)),
        ("an unverified address", key.sign(&changed(&good, "email_verified", json!(false))), Err(401)),
        ("signed by a stranger under our key id", foreign.sign(&good), Err(401)),
        ("claims changed after signing", tampered, Err(401)),
        ("no algorithm", unsigned(json!({"alg": "none", "kid": "one"}), ""), Err(401)),
        ("no algorithm, in capitals", unsigned(json!({"alg": "NONE", "kid": "one"}), ""), Err(401)),
        ("no signature", unsigned(json!({"alg": "ES256", "kid": "one"}), ""), Err(401)),
        ("no key id", unsigned(json!({"alg": "ES256"}), "AAAA"), Err(401)),
        ("shared secret made of the public key", hmac("one", &public_point), Err(401)),
        ("a published shared secret", hmac("shared", b"secret"), Err(401)),
        ("another algorithm for the key", unsigned(json!({"alg": "RS256", "kid": "one"}), "AAAA"), Err(401)),
        ("not a token", "abc".to_owned(), Err(401)),
        ("too long", "a".repeat(20_000), Err(401)),
    ];
    for (what, token, expected) in cases {
        check(what, bearer(&auth, &token).await, expected);
    }
    let caller = bearer(&auth, &signed).await.unwrap();
    assert!(caller.identity.has(Role::Operator, &"team".parse().unwrap()), "by its group");
}

#[tokio::test]
async fn ops_r18_key_rotation_and_a_bounded_number_of_fetches() {
    let (old, new) = (SigningKey::new("old"), SigningKey::new("new"));
    let issuer = TestIssuer::start(json!([old.jwk()])).await;
    let clock = clock();
    let auth = oidc(&issuer, Arc::clone(&clock));
    let good = claims(&issuer.url);
    bearer(&auth, &old.sign(&good)).await.unwrap();
    for number in 0..20 {
        let made_up = SigningKey::new(&format!("made-up-{number}"));
        check("an unknown key", bearer(&auth, &made_up.sign(&good)).await, Err(401));
    }
    let fetches = || issuer.fetched.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(fetches(), 1, "made-up key ids do not make us hammer the issuer");
    *issuer.keys.lock().unwrap() = json!({ "keys": [new.jwk()] });
    clock.0.fetch_add(REFRESH_PAUSE.millis(), std::sync::atomic::Ordering::SeqCst);
    bearer(&auth, &new.sign(&good)).await.unwrap();
    check("a withdrawn key", bearer(&auth, &old.sign(&good)).await, Err(401));
    assert_eq!(fetches(), 2);
}

#[tokio::test]
async fn ops_r18_an_issuer_that_does_not_answer_lets_nobody_in() {
    let key = SigningKey::new("one");
    let issuer =
        TestIssuer { url: "http://127.0.0.1:9".into(), keys: Arc::default(), fetched: Arc::default() };
    check("unreachable", bearer(&oidc(&issuer, clock()), &key.sign(&claims(&issuer.url))).await, Err(503));
}

#[test]
fn ops_r18_roles_in_projects() {
    let (table, team, other) = (bindings(), "team".parse().unwrap(), "other".parse().unwrap());
    // who, verb, in the team's project, in another project
    let cases = [
        ("victor@example.com", Verb::Get, true, false),
        ("victor@example.com", Verb::Scale, false, false),
        ("victor@example.com", Verb::Create, false, false),
        ("olga@example.com", Verb::Scale, true, false),
        ("olga@example.com", Verb::Update, false, false),
        ("alice@example.com", Verb::Create, true, false),
        ("alice@example.com", Verb::Delete, true, false),
        ("alice@example.com", Verb::Report, false, false),
        ("robot", Verb::Report, true, true),
        ("robot", Verb::Get, true, true),
        ("robot", Verb::Create, false, false),
        ("robot", Verb::Scale, false, false),
        ("auditor@example.com", Verb::Get, true, true),
        ("auditor@example.com", Verb::Delete, false, false),
        ("stranger@example.com", Verb::Get, false, false),
        ("controller@system.local", Verb::Report, false, false),
    ];
    for (who, verb, here, there) in cases {
        let identity = table.identity(who, &[]);
        let may = |project| allowed(&identity, verb, Resource::NodePools, project).is_ok();
        assert_eq!((may(&team), may(&other)), (here, there), "{who} {verb}");
    }
}
