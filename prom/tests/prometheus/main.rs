//! Against a real Prometheus whose past is written beforehand, so that no test waits for time to pass.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod outages;

use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration as Wait, Instant, SystemTime, UNIX_EPOCH},
};

use muster_model::{
    Duration, Known, Timestamp,
    pool::Trigger,
    trigger::{Finding, Triggers as _},
};
use muster_prom::{Auth, Prometheus, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};

/// Samples lie this far apart.
const STEP: i64 = 15;

struct Server {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "the samples have to end at the real present")]
fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One series: its text, and a value for the second relative to now; `None` leaves a sample out.
type Shape = (&'static str, fn(i64) -> Option<f64>);

fn flat(second: i64, value: f64, from: i64, to: i64) -> Option<f64> {
    (second >= from && second <= to).then_some(value)
}

/// Every test's past in one server: from an hour ago to half an hour from now, so that a slow machine still
/// finds fresh samples.
const SHAPES: &[Shape] = &[
    ("steady_high", |_| Some(0.9)),
    ("steady_low", |_| Some(0.1)),
    ("lately_high", |second| Some(if second >= -1_440 { 0.9 } else { 0.1 })),
    ("just_high", |second| Some(if second >= -150 { 0.9 } else { 0.1 })),
    ("dipped", |second| Some(if (-120..-60).contains(&second) { 0.5 } else { 0.9 })),
    ("vanished", |second| flat(second, 0.1, -3_600, -130)),
    ("long_gone", |second| flat(second, 0.1, -3_600, -400)),
    ("young", |second| flat(second, 0.1, -60, 1_800)),
    ("not_a_number", |_| Some(f64::NAN)),
    (r#"two{pool="a"}"#, |_| Some(0.9)),
    (r#"two{pool="b"}"#, |_| Some(0.1)),
    // Nothing was measured for half an hour, until two minutes ago.
    ("outage", |second| (!(-1_920..-120).contains(&second)).then_some(0.9)),
    ("rising", |second| Some(if second >= 15 { 0.9 } else { 0.1 })),
    ("settling", |second| Some(if second < -200 { 0.9 } else { 0.6 })),
    // Half of the machines stopped telling a while ago, the busy ones.
    (r#"load{job="node",instance="1"}"#, |_| Some(0.1)),
    (r#"load{job="node",instance="2"}"#, |second| flat(second, 0.9, -3_600, -700)),
    (r#"up{job="node",instance="1"}"#, |_| Some(1.0)),
    (r#"up{job="node",instance="2"}"#, |second| Some(if second > -700 { 0.0 } else { 1.0 })),
    // They are back, and nobody knows what was meanwhile.
    (r#"flapping{job="flap",instance="1"}"#, |_| Some(0.1)),
    (r#"flapping{job="flap",instance="2"}"#, |second| (!(-280..-30).contains(&second)).then_some(0.1)),
    (r#"up{job="flap",instance="1"}"#, |_| Some(1.0)),
    (r#"up{job="flap",instance="2"}"#, |second| Some(f64::from(!(-280..-30).contains(&second)))),
    (r#"whole{job="whole",instance="1"}"#, |_| Some(0.1)),
    (r#"up{job="whole",instance="1"}"#, |_| Some(1.0)),
    (r#"pushed{job="batch"}"#, |_| Some(0.1)),
    (r#"renamed{pool="a"}"#, |second| flat(second, 0.1, -3_600, -400)),
    (r#"renamed{nodepool="a"}"#, |second| flat(second, 0.1, -400, 1_800)),
];

/// How a server is started, beside its past.
struct Setup<'s> {
    /// Whom it scrapes. Such a one has no written past: it takes no samples that are older than what it has.
    scrape: &'s str,
    arguments: &'s [&'s str],
    /// Writes what its web configuration needs into the folder and returns its text.
    web: &'s dyn Fn(&Path) -> String,
    scheme: &'s str,
    curl: &'s [&'s str],
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { scrape: "", arguments: &[], web: &|_| String::new(), scheme: "http", curl: &[] }
    }
}

impl Server {
    async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    async fn start_with(setup: Setup<'_>) -> Self {
        // Its port may be taken between looking and binding; then all is tried again.
        for _ in 0..3 {
            let mut server = Self::launch(&setup);
            if server.ready(setup.scheme, setup.curl).await {
                return server;
            }
        }
        panic!("prometheus did not come up three times in a row");
    }

    fn launch(setup: &Setup<'_>) -> Self {
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        if setup.scrape.is_empty() {
            write_past(dir.path(), &data);
        }
        let config = format!("global: {{scrape_interval: 1s}}\n{}", setup.scrape);
        fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        fs::write(dir.path().join("web.yml"), (setup.web)(dir.path())).unwrap();
        let port = free_port();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--web.config.file={}", dir.path().join("web.yml").display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(setup.arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus starts; scripts/test.sh installs it");
        Self { child, port, dir }
    }

    #[allow(clippy::disallowed_methods, reason = "a test's patience is measured on the real clock")]
    async fn ready(&mut self, scheme: &str, curl: &[&str]) -> bool {
        let url = format!("{scheme}://127.0.0.1:{}/-/ready", self.port);
        let start = Instant::now();
        while start.elapsed() < Wait::from_mins(2) {
            let asked = Command::new("curl").args(["-sfk", "-o", "/dev/null"]).args(curl).arg(&url).status();
            if asked.is_ok_and(|status| status.success()) {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            tokio::time::sleep(Wait::from_millis(50)).await;
        }
        panic!("not ready: {}", fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn client(&self) -> Prometheus {
        prometheus(Settings::new(self.url()))
    }
}

fn prometheus(settings: Settings) -> Prometheus {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The machine may be slow.
    Prometheus::new(Settings { timeout: Duration::from_mins(1), ..settings }).unwrap()
}

fn write_past(dir: &Path, data: &Path) {
    let now = now();
    let mut text = String::new();
    // The samples of one metric have to stand together.
    let metric = |name: &'static str| name.split('{').next().unwrap();
    let mut shapes = SHAPES.to_vec();
    shapes.sort_by_key(|(name, _)| metric(name));
    for (name, value) in shapes {
        let metric = metric(name);
        if !text.contains(&format!("# TYPE {metric} ")) {
            writeln!(text, "# TYPE {metric} gauge").unwrap();
        }
        for second in (-3_600..1_800).step_by(usize::try_from(STEP).unwrap()) {
            if let Some(value) = value(second) {
                writeln!(text, "{name} {value} {}", now + second).unwrap();
            }
        }
    }
    text.push_str("# EOF\n");
    let file = dir.join("past.txt");
    fs::write(&file, text).unwrap();
    let made = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&file, data])
        .output()
        .expect("promtool starts; scripts/test.sh installs it");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn trigger(query: &str, extra: Value) -> Trigger {
    let mut body =
        json!({ "metricQuery": query, "threshold": 0.7, "duration": "5m", "scaleDirection": "up" });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    serde_json::from_value(body).unwrap()
}

fn down() -> Value {
    json!({ "scaleDirection": "down", "threshold": 0.2 })
}

async fn ask(client: &Prometheus, query: &str, extra: Value) -> Known<Finding> {
    client.evaluate(&trigger(query, extra), Timestamp::from_millis(now() * 1000)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn bm_7_23_triggers_fire_hold_or_are_unknown_for_the_right_reason() {
    let server = Server::start().await;
    let client = server.client();
    let cases: &[Case<'_>] = &[
        ("steady_high", json!({}), Ok(true)),
        ("steady_low", json!({}), Ok(false)),
        ("steady_low", down(), Ok(true)),
        ("steady_high", down(), Ok(false)),
        // BM-7.23: a part of its minutes is not all of them, whoever asks and however often it was restarted.
        ("just_high", json!({}), Ok(false)),
        ("just_high", json!({ "duration": "2m" }), Ok(true)),
        ("lately_high", json!({ "duration": "30m" }), Ok(false)),
        ("lately_high", json!({ "duration": "15m" }), Ok(true)),
        // After an outage the minutes are counted from its end.
        ("outage", json!({}), Err("of 21 samples")),
        ("outage", json!({ "duration": "1m" }), Ok(true)),
        ("dipped", json!({}), Ok(false)),
        ("dipped", json!({ "duration": "0s" }), Ok(true)),
        ("settling", json!({ "clearThreshold": 0.5 }), Ok(true)),
        ("settling", json!({}), Ok(false)),
        ("absent_series", down(), Err("0 series")),
        ("sum(absent_series)", down(), Err("0 series")),
        ("scalar(absent_series)", down(), Err("NaN")),
        ("vector(0) / vector(0)", down(), Err("NaN")),
        ("not_a_number", down(), Err("NaN")),
        ("vanished", down(), Err("old")),
        // An expression hides the age of its samples; after the server's five minutes they are gone for it too.
        ("long_gone * 1", down(), Err("0 series")),
        ("young", down(), Err("of 21 samples")),
        ("steady_high > 0.5", json!({}), Err("bool")),
        ("steady_high > bool 0.5", json!({}), Ok(true)),
        ("1", json!({}), Ok(true)),
        // One of them is high and one is low: without a word on it, both mean nothing.
        ("two", json!({}), Err("2 series")),
        ("two", down(), Err("`aggregate`")),
        ("two", json!({ "aggregate": "any" }), Ok(true)),
        ("two", json!({ "aggregate": "all" }), Ok(false)),
        ("two", json!({ "aggregate": "single" }), Err("2 series")),
        ("two", json!({ "aggregate": "avg", "threshold": 0.49 }), Ok(true)),
        ("steady_high[5m]", json!({}), Err("")),
        ("\"text\"", json!({ "duration": "0s" }), Err("string")),
        ("sum(", json!({}), Err("bad_data")),
        ("名前", json!({}), Err("bad_data")),
    ];
    check(&client, cases).await;
}

/// A query, settings, and what it is: true or false, or words of the reason for unknown.
type Case<'c> = (&'c str, Value, Result<bool, &'c str>);

async fn check(client: &Prometheus, cases: &[Case<'_>]) {
    for (query, extra, expected) in cases {
        let found = ask(client, query, extra.clone()).await;
        match (&found, expected) {
            (Known::Value { value, .. }, Ok(fires)) => {
                assert_eq!(value.fires, *fires, "{query} {extra}: {value:?}");
                assert!(value.why.contains(|c: char| c.is_ascii_digit()), "{query}: {}", value.why);
            }
            (Known::Unknown { why, .. }, Err(word)) => assert!(why.contains(word), "{query} {extra}: {why}"),
            _ => panic!("{query} {extra}: expected {expected:?}, found {found:?}"),
        }
    }
}

/// BM-7.23: whoever asks is new each time, as after a restart, and the trigger fires when its time is over all the same: not
/// before, and without waiting for that time once more.
#[tokio::test(flavor = "multi_thread")]
async fn bm_7_23_restarts_do_not_begin_the_time_anew() {
    const LASTS: i64 = 30;
    let server = Server::start().await;
    let fires = async |lasts: &str| {
        let found = ask(&server.client(), "rising", json!({ "duration": lasts })).await;
        found.value().is_some_and(|finding| finding.fires)
    };
    // When it was last seen low, and when it fired.
    let (mut low, mut fired, mut fresh) = (now(), None, 0);
    for _ in 0..600 {
        let asked = now();
        if !fires("0s").await {
            low = asked;
        }
        fresh += 1;
        if fires("30s").await {
            fired = Some(now());
            break;
        }
        #[allow(clippy::disallowed_methods, reason = "Prometheus has a clock of its own")]
        tokio::time::sleep(Wait::from_millis(500)).await;
    }
    let fired = fired.expect("it fires although nobody lives for half a minute");
    assert!(fired - low >= LASTS - STEP, "{} s after it was low, {fresh} asked", fired - low);
    assert!(fresh > 1, "it was asked while its time had not come");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_unknown_since_its_beginning_and_clears() {
    let mut server = Server::start().await;
    let client = server.client();
    let low = trigger("steady_low", down());
    let at = |second: i64| Timestamp::from_millis((now() + second) * 1000);
    assert!(client.evaluate(&low, at(0)).await.value().is_some_and(|finding| finding.fires));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let first = at(600);
    let Known::Unknown { why, since } = client.evaluate(&low, first).await else { panic!("it is away") };
    assert!(why.contains("not reachable"), "{why}");
    assert_eq!(since, first);
    let Known::Unknown { since, .. } = client.evaluate(&low, at(660)).await else { panic!("it is away") };
    assert_eq!(since, first, "the outage has one beginning");
}

/// Lets requests with the right token through to the real server.
async fn token_gate(server: u16) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                let length = near.read(&mut head).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&head[..length]).to_lowercase();
                if !text.contains("authorization: bearer canary-token\r\n") {
                    let no = b"HTTP/1.1 401 no\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-length: 0\r\n\r\n";
                    let _ = near.write_all(no).await;
                    return;
                }
                let mut far = tokio::net::TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                far.write_all(&head[..length]).await.unwrap();
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::disallowed_methods, reason = "a test's patience is measured on the real clock")]
async fn a_bearer_token_is_read_from_its_file_at_every_query() {
    let server = Server::start().await;
    let port = token_gate(server.port).await;
    let token_file: PathBuf = server.dir.path().join("token");
    let settings = Settings {
        auth: Auth::Bearer { token_file: token_file.clone() },
        ..Settings::new(format!("http://127.0.0.1:{port}"))
    };
    let client = prometheus(settings);
    let why = |known: Known<Finding>| match known {
        Known::Unknown { why, .. } => why,
        Known::Value { value, .. } => panic!("{value:?}"),
    };
    let high = trigger("steady_high", json!({}));
    let present = Timestamp::from_millis(now() * 1000);
    assert!(why(client.ask(&high, present).await).contains("cannot be read"));
    fs::write(&token_file, "wrong\n").unwrap();
    let refused = why(client.ask(&high, present).await);
    assert!(refused.contains("401") && !refused.contains("wrong"), "{refused}");
    fs::write(&token_file, "canary-token\n").unwrap();
    // The gate lets it through; Prometheus itself may be a moment behind.
    let mut answer = client.ask(&high, present).await;
    for _ in 0..600 {
        if answer.value().is_some_and(|finding| finding.fires) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        answer = client.ask(&high, Timestamp::from_millis(now() * 1000)).await;
    }
    panic!("it never fires: {answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_custom_authority_and_basic_auth() {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, private) = (key.cert.pem(), key.signing_key.serialize_pem());
    let web = |dir: &Path| {
        fs::write(dir.join("cert.pem"), &certificate).unwrap();
        fs::write(dir.join("key.pem"), &private).unwrap();
        // A published test vector of bcrypt: the password is U*U.
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n\
         basic_auth_users: {muster: '$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW'}\n"
            .to_owned()
    };
    let server = Server::start_with(Setup {
        web: &web,
        scheme: "https",
        curl: &["-u", "muster:U*U"],
        ..Setup::default()
    })
    .await;
    let password_file = server.dir.path().join("password");
    fs::write(&password_file, "U*U\n").unwrap();
    let trusted = Settings {
        auth: Auth::Basic { user: "muster".into(), password_file: password_file.clone() },
        ca_pem: Some(certificate.clone()),
        ..Settings::new(format!("https://127.0.0.1:{}", server.port))
    };
    let present = Timestamp::from_millis(now() * 1000);
    let high = trigger("steady_high", json!({}));
    assert!(prometheus(trusted.clone()).ask(&high, present).await.value().is_some_and(|found| found.fires));
    let stranger = prometheus(Settings { ca_pem: None, ..trusted.clone() });
    let Known::Unknown { why, .. } = stranger.ask(&high, present).await else { panic!("not trusted") };
    assert!(why.contains("certificate") || why.contains("issuer"), "{why}");
    fs::write(&password_file, "wrong\n").unwrap();
    let Known::Unknown { why, .. } = prometheus(trusted).ask(&high, present).await else { panic!("refused") };
    assert!(why.contains("401") && !why.contains("wrong"), "{why}");
}
