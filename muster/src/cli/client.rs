//! One request, one answer. Turns what can go wrong on the way into a [`Failure`] with the right exit code.

use std::{
    error::Error as _,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use muster_model::{Clock, Duration, Timestamp};
use reqwest::{Method, StatusCode, Url, header};
use serde_json::Value;

use super::{
    context::{Settings, Sourced},
    failure::{Exit, Failure, Fault, Outcome},
    screen::Screen,
};

/// The header that chooses a project.
const PROJECT: &str = "x-muster-project";
/// Longest pause that a busy server may ask for before the command gives up instead.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often a busy server is asked again.
const TRIES: u32 = 4;
/// Longest wait for a connection to be made; a server that is there answers at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The projects that a request is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Projects {
    /// What the context or `--project` says.
    #[default]
    Session,
    /// Every project in which the identity holds a role.
    All,
    One(String),
}

/// A request before it is sent. `object` is what errors call it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Option<Value>,
    pub(crate) content_type: &'static str,
    pub(crate) if_match: Option<String>,
    pub(crate) scope: Projects,
    pub(crate) object: String,
}

impl Request {
    pub(crate) fn new(method: Method, path: impl Into<String>, object: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
            content_type: "application/json",
            if_match: None,
            scope: Projects::Session,
            object: object.into(),
        }
    }

    pub(crate) fn get(path: impl Into<String>, object: impl Into<String>) -> Self {
        Self::new(Method::GET, path, object)
    }

    #[must_use]
    pub(crate) fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    #[must_use]
    pub(crate) fn if_match(mut self, version: Option<&str>) -> Self {
        self.if_match = version.map(|version| format!("\"{version}\""));
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) headers: header::HeaderMap,
    pub(crate) body: Value,
}

/// A connection to one server as one identity.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    identity: header::HeaderMap,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    screen: Screen,
    /// By how many milliseconds the server's time is ahead, where it says so.
    ahead: Arc<AtomicI64>,
}

/// A server whose time is not ours says what time it is there: a demonstration that runs faster than life, for one.
const TIME: &str = "x-muster-time";

impl Client {
    pub(crate) fn new(settings: &Settings, clock: Arc<dyn Clock>, screen: Screen) -> Outcome<Self> {
        let server = &settings.server.value;
        let base = Url::parse(server)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                Failure::usage(
                    format!("server {server:?}"),
                    format!("this is not an address (from {})", settings.server.origin),
                )
                .next("write it like http://127.0.0.1:8080")
            })?;
        // A second command in one process finds the provider installed already, which is what we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT.as_std())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &settings.ca_file {
            let pem = read(path)?;
            let certificates =
                reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&path.value, &error))?;
            builder = builder.tls_certs_only(certificates);
        }
        if let (Some(certificate), Some(key)) = (&settings.client_cert, &settings.client_key) {
            let mut pem = read(certificate)?;
            pem.push(b'\n');
            pem.extend(read(key)?);
            let identity =
                reqwest::Identity::from_pem(&pem).map_err(|error| unusable(&certificate.value, &error))?;
            builder = builder.identity(identity);
        }
        let http = builder
            .build()
            .map_err(|error| Failure::new(Exit::Failure, format!("server {server}"), deepest(&error)))?;
        Ok(Self {
            http,
            base,
            identity: identity(settings)?,
            timeout: settings.timeout,
            clock,
            screen,
            ahead: Arc::default(),
        })
    }

    /// What time it is where the server lives.
    pub(crate) fn now(&self) -> Timestamp {
        let (here, ahead) = (self.clock.now(), self.ahead.load(Ordering::Relaxed));
        Timestamp::from_millis(here.millis().saturating_add(ahead))
    }

    fn note_time(&self, headers: &header::HeaderMap) {
        let there = headers.get(TIME).and_then(|value| value.to_str().ok()?.parse::<Timestamp>().ok());
        if let Some(there) = there {
            let ahead = there.millis().saturating_sub(self.clock.now().millis());
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }

    pub(crate) fn server(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Sends and waits for the whole answer; everything but a 2xx is a failure.
    pub(crate) async fn call(&self, request: Request) -> Outcome<Answer> {
        let mut tries = 0;
        loop {
            let response = self.send(&request, Some(self.timeout)).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            self.note_time(&headers);
            let bytes = response.bytes().await.map_err(|error| self.transport(&error))?;
            tries += 1;
            if let Some(pause) = pause(&request.method, status, &headers).filter(|_| tries < TRIES) {
                self.clock.sleep(pause).await;
                continue;
            }
            let body = if bytes.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&bytes)
                    .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).trim().to_owned()))
            };
            if !status.is_success() {
                return Err(self.refusal(&request, status, &body));
            }
            self.warn(&headers);
            return Ok(Answer { headers, body });
        }
    }

    /// Sends and hands over the answer as it comes, for a watch.
    pub(crate) async fn stream(&self, request: Request) -> Outcome<reqwest::Response> {
        let response = self.send(&request, None).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = response.bytes().await.map_err(|error| self.transport(&error))?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Err(self.refusal(&request, status, &body))
    }

    async fn send(&self, request: &Request, timeout: Option<Duration>) -> Outcome<reqwest::Response> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{}", self.base.path().trim_end_matches('/'), request.path));
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut identity = self.identity.clone();
        match &request.scope {
            Projects::Session => {}
            Projects::All => drop(identity.remove(PROJECT)),
            Projects::One(project) => put(&mut identity, PROJECT, project, "project", Secrecy::Open)?,
        }
        let mut builder = self.http.request(request.method.clone(), url).headers(identity);
        if let Some(timeout) = timeout {
            builder = builder.timeout(timeout.as_std());
        }
        if let Some(version) = &request.if_match {
            builder = builder.header(header::IF_MATCH, version);
        }
        if let Some(body) = &request.body {
            builder = builder.header(header::CONTENT_TYPE, request.content_type).body(body.to_string());
        }
        builder.send().await.map_err(|error| self.transport(&error))
    }

    /// The way to the server failed: nothing there, or no answer in time.
    pub(crate) fn transport(&self, error: &reqwest::Error) -> Failure {
        let object = format!("server {}", self.server());
        if error.is_timeout() && !error.is_connect() {
            return Failure::new(Exit::Timeout, object, format!("no answer within {}", self.timeout))
                .next("try again, with a longer --request-timeout if the server is busy; `muster doctor` looks closer");
        }
        Failure::new(Exit::Unreachable, object, deepest(error)).next(
            "is it running? start one with `muster serve`, or choose another with --server or --context; `muster doctor` looks closer",
        )
    }

    /// The server said no: what it said, and what one can do about it.
    fn refusal(&self, request: &Request, status: StatusCode, body: &Value) -> Failure {
        let error = &body["error"];
        let message = error["message"].as_str().or(body.as_str()).filter(|text| !text.is_empty());
        let mut cause = message.map_or_else(|| format!("the server answered {status}"), str::to_owned);
        let faults: Vec<Fault> = error["fields"].as_array().into_iter().flatten().filter_map(fault).collect();
        match error["details"].as_str() {
            Some(details) if !details.is_empty() && faults.is_empty() => {
                cause = format!("{cause}: {details}");
            }
            _ => {}
        }
        if let Some(id) = error["request_id"].as_str().filter(|_| status.is_server_error()) {
            cause = format!("{cause} (request {id})");
        }
        let (exit, next) = advice(status, request, self.server());
        let status = Some(status.as_u16());
        Failure { faults, status, ..Failure::new(exit, &request.object, cause).next(next) }
    }

    /// What the server wants known although it did as told.
    fn warn(&self, headers: &header::HeaderMap) {
        for value in headers.get_all(header::WARNING) {
            let text = String::from_utf8_lossy(value.as_bytes());
            let quoted =
                text.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map(|(inner, _)| inner);
            self.screen.note(&format!("warning: {}", quoted.unwrap_or(&text)));
        }
    }
}

/// Exit code and next step for a status. One place, so that every command agrees.
fn advice(status: StatusCode, request: &Request, server: &str) -> (Exit, String) {
    let noun = request.object.split(' ').next().unwrap_or_default();
    match status {
        StatusCode::UNAUTHORIZED => (
            Exit::Denied,
            "sign in: --token-file or --client-cert; --as-email on a server in dev mode (`muster config connection` shows what is sent)".into(),
        ),
        StatusCode::FORBIDDEN => (Exit::Denied, "ask an administrator of the project for the role, or work in another with --project".into()),
        StatusCode::NOT_FOUND => (Exit::NotFound, format!("see what is there with `muster get {noun}s -A`")),
        StatusCode::CONFLICT => (Exit::Conflict, "look at it with `muster get` or `muster describe`, then repeat or choose another name".into()),
        StatusCode::PRECONDITION_FAILED => {
            (Exit::Conflict, "somebody changed it in the meantime: look at it again, then repeat".into())
        }
        StatusCode::GONE => (Exit::Failure, "the past that was asked for is gone: start again without a revision".into()),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => {
            let next = "correct what is named above and repeat";
            let trial = if request.method == Method::GET { "" } else { "; `--dry-run=server` checks without a change" };
            (Exit::Failure, format!("{next}{trial}"))
        }
        StatusCode::TOO_MANY_REQUESTS => (Exit::Failure, "wait a moment and repeat".into()),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY => {
            (Exit::Unreachable, "the server is there but not ready: `muster doctor` shows why".into())
        }
        StatusCode::GATEWAY_TIMEOUT => (Exit::Timeout, "try again".into()),
        StatusCode::METHOD_NOT_ALLOWED => (Exit::Failure, format!("is {server} a Muster of this version? see `muster version`")),
        _ => (Exit::Failure, "`muster doctor` looks closer; the server's log has more under the request's id".into()),
    }
}

/// `must not be above autoscaling.maxNodes, found 50, allowed: 1 to 10`.
fn fault(field: &Value) -> Option<Fault> {
    let mut message = field["problem"].as_str().or(field["message"].as_str()).unwrap_or_default().to_owned();
    for (name, label) in [("found", ", found"), ("allowed", ", allowed:"), ("hint", ";")] {
        if let Some(text) = field.get(name).filter(|value| !value.is_null()) {
            message = format!("{message}{label} {}", super::jsonpath::plain(text));
        }
    }
    Some(Fault { path: field["path"].as_str()?.to_owned(), message, place: None })
}

/// How long a busy server wants us to wait, when that is bearable. A read may also be repeated when the store did not
/// answer it.
fn pause(method: &Method, status: StatusCode, headers: &header::HeaderMap) -> Option<Duration> {
    let again = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => {
            *method == Method::GET && headers.contains_key(header::RETRY_AFTER)
        }
        _ => false,
    };
    if !again {
        return None;
    }
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Some(Duration::from_secs(seconds.unwrap_or(1)).max(Duration::from_millis(100)))
        .filter(|pause| *pause <= LONGEST_PAUSE)
}

/// Whether a header's value may show up in debug output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    Open,
    Secret,
}

fn put(
    headers: &mut header::HeaderMap,
    name: &'static str,
    value: &str,
    object: &str,
    secrecy: Secrecy,
) -> Outcome {
    let mut value = header::HeaderValue::from_str(value).map_err(|_| {
        Failure::usage(object.to_owned(), "it holds characters that cannot be sent")
            .next("use plain ASCII without line breaks")
    })?;
    value.set_sensitive(secrecy == Secrecy::Secret);
    headers.insert(name, value);
    Ok(())
}

fn identity(settings: &Settings) -> Outcome<header::HeaderMap> {
    let mut headers = header::HeaderMap::new();
    if let Some(path) = &settings.token_file {
        let token = String::from_utf8_lossy(&read(path)?).trim().to_owned();
        let object = format!("file {}", path.value.display());
        if token.is_empty() {
            return Err(Failure::new(Exit::Denied, object, "it holds no token")
                .next("put the token into it, one line"));
        }
        put(&mut headers, "authorization", &format!("Bearer {token}"), &object, Secrecy::Secret)?;
    }
    if let Some(email) = &settings.email {
        put(&mut headers, "x-user-email", &email.value, "--as-email", Secrecy::Open)?;
    }
    if let Some(project) = &settings.project {
        put(&mut headers, PROJECT, &project.value, "--project", Secrecy::Open)?;
    }
    Ok(headers)
}

fn read(path: &Sourced<std::path::PathBuf>) -> Outcome<Vec<u8>> {
    fs::read(&path.value).map_err(|error| {
        Failure::new(Exit::Denied, format!("file {}", path.value.display()), error.to_string())
            .next(format!("it was named by {}", path.origin))
    })
}

fn unusable(path: &Path, error: &reqwest::Error) -> Failure {
    Failure::new(Exit::Denied, format!("file {}", path.display()), deepest(error))
        .next("it must hold PEM blocks")
}

/// The innermost cause, which is what a person can act on.
fn deepest(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}
