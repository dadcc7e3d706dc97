//! Signing in over a real TLS listener: a trusted proxy, an issuer of our own, tokens, and the command line.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

#[path = "api/harness.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "shared with the acceptance rows")]
mod harness;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use harness::Server;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An authority and what it signed, as files in a folder.
struct Papers {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Papers {
    fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let papers = Self { folder: tempfile::tempdir().unwrap(), authority };
        std::fs::write(papers.path("ca.pem"), papers.authority.pem()).unwrap();
        papers.sign("server", &["127.0.0.1", "localhost"], ExtendedKeyUsagePurpose::ServerAuth);
        papers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes `NAME.pem` and `NAME.key`.
    fn sign(&self, name: &str, hosts: &[&str], usage: ExtendedKeyUsagePurpose) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// A server with TLS and these settings.
    fn serve(&self, settings: &str) -> Server {
        let config = format!(
            "tls:\n  certificate: {}\n  key: {}\n{settings}",
            self.text("server.pem"),
            self.text("server.key")
        );
        std::fs::write(self.path("muster.yaml"), config).unwrap();
        Server::start(&self.path("data"), &["--config", &self.text("muster.yaml")])
    }

    /// A client that trusts the authority, with a certificate if it has one.
    fn client(&self, name: Option<&str>) -> reqwest::Client {
        let read = |name: &str| std::fs::read(self.path(name)).unwrap();
        let authority = reqwest::Certificate::from_pem(&read("ca.pem")).unwrap();
        let mut builder = reqwest::Client::builder().tls_certs_only([authority]).no_proxy();
        if let Some(name) = name {
            let mut pem = read(&format!("{name}.pem"));
            pem.extend(read(&format!("{name}.key")));
            builder = builder.identity(reqwest::Identity::from_pem(&pem).unwrap());
        }
        builder.build().unwrap()
    }
}

async fn who(client: &reqwest::Client, base: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = client.get(format!("{base}/api/v1/whoami"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("the server answers");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

#[tokio::test]
async fn ops_r18_a_trusted_proxy_is_known_by_its_certificate() {
    let papers = Papers::new();
    papers.sign("proxy.internal", &["proxy.internal"], ExtendedKeyUsagePurpose::ClientAuth);
    papers.sign("somebody.internal", &["somebody.internal"], ExtendedKeyUsagePurpose::ClientAuth);
    let server = papers.serve(&format!(
        "  client-authority: {}\nauth:\n  mode: trusted-proxy\n  proxies: [proxy.internal]\n  bindings:\n    \
         - {{ group: ops, project: team, role: operator }}\n",
        papers.text("ca.pem")
    ));
    assert!(server.base.starts_with("https://"), "{}", server.base);
    let ada = [("x-user-email", "ada@example.com"), ("x-user-groups", "ops")];
    let (status, body) = who(&papers.client(Some("proxy.internal")), &server.base, &ada).await;
    assert_eq!(
        (status, &body["name"], &body["proof"]),
        (200, &json!("ada@example.com"), &json!("trusted-proxy"))
    );
    assert_eq!(body["projects"], json!({"team": ["operator"]}));
    // Straight to the backend, past the proxy: the headers count for nothing.
    for client in [papers.client(None), papers.client(Some("somebody.internal"))] {
        let (status, body) = who(&client, &server.base, &ada).await;
        assert_eq!((status, &body["error"]["code"]), (401, &json!("UNAUTHENTICATED")));
    }
    let twice = [ada[0], ("x-user-email", "eve@example.com")];
    assert_eq!(who(&papers.client(Some("proxy.internal")), &server.base, &twice).await.0, 400);
    // A certificate of somebody else's authority does not even get a connection.
    let stranger = Papers::new();
    stranger.sign("proxy.internal", &["proxy.internal"], ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::copy(papers.path("ca.pem"), stranger.path("ca.pem")).unwrap();
    let refused = stranger.client(Some("proxy.internal")).get(format!("{}/livez", server.base)).send().await;
    assert!(refused.is_err(), "{refused:?}");
}

/// An issuer of our own: two paths, over plain HTTP on loopback.
async fn issuer(keys: Value) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string();
    let keys = keys.to_string();
    let texts = Arc::new((discovery, keys));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let texts = Arc::clone(&texts);
            tokio::spawn(async move {
                let mut head = vec![0; 8192];
                let read = stream.read(&mut head).await.unwrap_or(0);
                let wanted = String::from_utf8_lossy(&head[..read]).into_owned();
                let body = if wanted.starts_with("GET /keys ") { &texts.1 } else { &texts.0 };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    url
}

#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "a token's lifetime is compared with the real clock of the server"
)]
async fn ops_r18_an_issuers_tokens_over_tls() {
    let papers = Papers::new();
    let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let point = pair.public_key_raw();
    let jwk = json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "one",
        "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..])});
    let issuer = issuer(json!({ "keys": [jwk] })).await;
    let server = papers.serve(&format!(
        "auth:\n  mode: oidc\n  oidc: {{ issuer: \"{issuer}\", audience: muster }}\n  bindings:\n    \
         - {{ user: ada@example.com, project: team, role: admin }}\n"
    ));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let token = |claims: Value| {
        let head = Header { kid: Some("one".into()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&head, &claims, &EncodingKey::from_ec_der(&pair.serialize_der())).unwrap()
    };
    let claims = |audience: &str, expires: u64| {
        json!({"iss": issuer, "aud": audience, "sub": "ada", "email": "ada@example.com",
            "email_verified": true, "exp": expires, "nbf": now - 10})
    };
    let client = papers.client(None);
    let good = format!("Bearer {}", token(claims("muster", now + 600)));
    let (status, body) = who(&client, &server.base, &[("authorization", &good)]).await;
    assert_eq!((status, &body["name"], &body["proof"]), (200, &json!("ada@example.com"), &json!("oidc")));
    for (what, bad) in [
        ("expired", token(claims("muster", now - 600))),
        ("of another audience", token(claims("other", now + 600))),
        ("cut short", good["Bearer ".len()..good.len() - 8].to_owned()),
    ] {
        let (status, _) = who(&client, &server.base, &[("authorization", &format!("Bearer {bad}"))]).await;
        assert_eq!(status, 401, "a token {what}");
    }
    assert_eq!(who(&client, &server.base, &[("x-user-email", "ada@example.com")]).await.0, 401);
}

/// The command line with nothing of this machine's environment.
fn muster(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .output()
        .expect("the binary runs")
}

#[test]
fn the_command_line_signs_in_with_a_token_over_tls() {
    let papers = Papers::new();
    let home = papers.folder.path();
    let token = papers.text("token");
    // The line that lets the holder in, made by the command itself.
    let made = muster(home, &["config", "token", "--user", "ada@example.com", "--file", &token]);
    assert!(made.status.success(), "{made:?}");
    let line = String::from_utf8(made.stdout).unwrap();
    let again = muster(home, &["config", "token", "--user", "ada@example.com", "--file", &token]);
    assert_eq!(again.status.code(), Some(1), "a token is not overwritten");
    let indented = line.lines().fold(String::new(), |text, line| text + "    " + line + "\n");
    let server = papers.serve(&format!(
        "auth:\n  mode: token\n  tokens:\n{indented}  bindings:\n    - {{ user: ada@example.com, project: team, role: admin }}\n"
    ));
    let ca = papers.text("ca.pem");
    let signed = ["--server", server.base.as_str(), "--ca-file", &ca, "--token-file", &token];
    let run = |words: &[&str], connection: &[&str]| muster(home, &[words, connection].concat());
    let made = run(&["create", "cluster", "lab", "--platform", "gcp"], &signed);
    assert!(made.status.success(), "{made:?}");
    let listed = run(&["get", "clusters", "-o", "name"], &signed);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "cluster/lab\n");
    // Without the authority there is no connection, without the token no entry.
    assert_eq!(run(&["get", "clusters"], &signed[..2]).status.code(), Some(7));
    assert_eq!(run(&["get", "clusters"], &signed[..4]).status.code(), Some(5));
    let doctor = run(&["doctor"], &signed);
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
}
