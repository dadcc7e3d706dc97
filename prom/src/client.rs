//! Three endpoints of Prometheus' HTTP API, with bounds on time and size.

use std::{error::Error as _, path::PathBuf};

use futures::StreamExt as _;
use muster_model::{Duration, Timestamp};
use reqwest::{Certificate, RequestBuilder, StatusCode, Url, header};
use thiserror::Error;

use crate::{
    answer::{self, Answer, shown},
    judge::Window,
};

/// 1,000 series of 241 points, with their labels.
const MAX_BODY: usize = 16 << 20;

/// How the server knows us. Values are read from their files at every query, so that a rotation needs no
/// restart and nothing secret is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    #[default]
    None,
    Bearer {
        token_file: PathBuf,
    },
    Basic {
        user: String,
        password_file: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// For example `https://prometheus.example:9090` or with a path in front of `/api/v1`.
    pub url: String,
    pub auth: Auth,
    /// Authorities that vouch for the server, in PEM; without it the operating system's.
    pub ca_pem: Option<String>,
    pub timeout: Duration,
}

impl Settings {
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), auth: Auth::None, ca_pem: None, timeout: Duration::from_secs(10) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("prometheus: {field}: {why}")]
pub struct SettingsError {
    pub field: &'static str,
    pub why: String,
}

#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    auth: Auth,
}

impl Client {
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let base = base(&settings)?;
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(3).as_std().min(settings.timeout.as_std()))
            .timeout(settings.timeout.as_std())
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = &settings.ca_pem {
            let error = |why: String| SettingsError { field: "ca", why };
            let authorities = Certificate::from_pem_bundle(pem.as_bytes())
                .map_err(|e| error(format!("the bundle cannot be read: {e}")))?;
            if authorities.is_empty() {
                return Err(error("the bundle contains 0 certificates".into()));
            }
            http = http.tls_certs_only(authorities);
        }
        let http = http
            .build()
            .map_err(|e| SettingsError { field: "url", why: format!("no client: {}", cause(&e)) })?;
        Ok(Self { http, base, auth: settings.auth })
    }

    /// The present, by the server's clock.
    pub(crate) async fn instant(&self, query: &str) -> Result<Answer, String> {
        self.ask("query", &[("query", query)]).await
    }

    /// The window that ends at `end`, which is a time by the server's clock.
    pub(crate) async fn range(&self, query: &str, window: &Window, end: Timestamp) -> Result<Answer, String> {
        let start = end.saturating_sub(window.span);
        let parameters = [
            ("query", query),
            ("start", &seconds(start.millis())),
            ("end", &seconds(end.millis())),
            ("step", &seconds(i64::try_from(window.step.millis()).unwrap_or(i64::MAX))),
        ];
        let mut answer = self.ask("query_range", &parameters).await?;
        answer.server_time = end;
        Ok(answer)
    }

    /// The values that `label` has in the series of `selectors`, as far as `back` from `end`.
    pub(crate) async fn values(
        &self,
        label: &str,
        selectors: &[String],
        back: Duration,
        end: Timestamp,
    ) -> Result<Vec<String>, String> {
        let (from, to) = (seconds(end.saturating_sub(back).millis()), seconds(end.millis()));
        let mut parameters = vec![("start", from.as_str()), ("end", &to)];
        parameters.extend(selectors.iter().map(|selector| ("match[]", selector.as_str())));
        let url = format!("{}?{}", self.url(&format!("label/{label}/values")), form(&parameters));
        let (status, _, body) = self.send(self.http.get(url)).await?;
        read(status, &body, answer::values)
    }

    async fn ask(&self, endpoint: &str, parameters: &[(&str, &str)]) -> Result<Answer, String> {
        let request = self.http.post(self.url(endpoint));
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let (status, server_time, body) = self.send(request.body(form(parameters))).await?;
        read(status, &body, |body| Answer::read(body, server_time))
    }

    fn url(&self, endpoint: &str) -> String {
        format!("{}/api/v1/{endpoint}", self.base.as_str().trim_end_matches('/'))
    }

    async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, Timestamp, Vec<u8>), String> {
        let request = self.identified(request).await?;
        let response = request.send().await.map_err(|e| {
            let what = if e.is_timeout() { "did not answer in time" } else { "is not reachable" };
            format!("Prometheus {what}: {}", cause(&e))
        })?;
        let status = response.status();
        let server_time = server_time(&response)?;
        Ok((status, server_time, bounded(response).await?))
    }

    async fn identified(&self, request: RequestBuilder) -> Result<RequestBuilder, String> {
        Ok(match &self.auth {
            Auth::None => request,
            Auth::Bearer { token_file } => request.bearer_auth(secret(token_file).await?),
            Auth::Basic { user, password_file } => {
                request.basic_auth(user, Some(secret(password_file).await?))
            }
        })
    }
}

fn form(parameters: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form/", parameters).ok();
    url.and_then(|url| url.query().map(str::to_owned)).unwrap_or_default()
}

fn read<A>(status: StatusCode, body: &[u8], read: impl Fn(&[u8]) -> Result<A, String>) -> Result<A, String> {
    if let StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN = status {
        return Err(format!("Prometheus answers {}: check the configured account", status.as_u16()));
    }
    // Refused queries are JSON with a reason of their own.
    match read(body) {
        Ok(_) if !status.is_success() => Err(format!("Prometheus answers {}", status.as_u16())),
        Err(_) if !status.is_success() && !body.starts_with(b"{") => {
            Err(format!("Prometheus answers {}: {}", status.as_u16(), shown(&String::from_utf8_lossy(body))))
        }
        Err(why) if status.is_server_error() => Err(format!("Prometheus answers {}: {why}", status.as_u16())),
        answer => answer,
    }
}

async fn secret(path: &PathBuf) -> Result<String, String> {
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|e| format!("the secret for Prometheus in {} cannot be read: {e}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn base(settings: &Settings) -> Result<Url, SettingsError> {
    let error = |why: String| SettingsError { field: "url", why };
    let url = Url::parse(&settings.url)
        .map_err(|e| error(format!("{:?} is not a URL: {e}; write http://HOST:PORT", settings.url)))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(error(format!("found scheme {:?}; allowed are http and https", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(error("must not contain an account; use a password file".into()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(error("must end with its path; found a query or a fragment".into()));
    }
    let nearby = url.host_str().is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    if url.scheme() == "http" && settings.auth != Auth::None && !nearby {
        return Err(error("a password or token would travel in the clear; use https".into()));
    }
    Ok(url)
}

/// From the answer's Date header, in whole seconds: the window must end in the server's past.
fn server_time(response: &reqwest::Response) -> Result<Timestamp, String> {
    let text = response.headers().get(header::DATE).and_then(|value| value.to_str().ok());
    let text = text.ok_or("the answer has no Date header: its clock is not known")?;
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .map(|time| Timestamp::from_millis(time.as_millisecond()))
        .map_err(|e| format!("the answer's Date header {text:?} cannot be read: {e}"))
}

async fn bounded(response: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|e| format!("the answer broke off: {}", cause(&e)))?;
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY {
            return Err(format!("the answer is over {MAX_BODY} bytes; aggregate in the query"));
        }
    }
    Ok(body)
}

/// Milliseconds as Prometheus reads seconds, exactly.
fn seconds(millis: i64) -> String {
    format!("{}.{:03}", millis.div_euclid(1000), millis.rem_euclid(1000))
}

/// The innermost reason, which names what went wrong; the URL is left out.
fn cause(error: &reqwest::Error) -> String {
    let mut inner = error.source();
    let mut text = inner.map_or_else(|| "no reason given".to_owned(), ToString::to_string);
    while let Some(next) = inner.and_then(std::error::Error::source) {
        text = next.to_string();
        inner = Some(next);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_named() {
        let auth = Auth::Bearer { token_file: "t".into() };
        for (url, auth, word) in [
            ("prometheus:9090", Auth::None, "scheme"),
            ("nonsense", Auth::None, "not a URL"),
            ("ftp://a", Auth::None, "ftp"),
            ("http://user:pw@a", Auth::None, "password file"),
            ("http://a/?x=1", Auth::None, "query"),
            ("http://prometheus.example", auth.clone(), "https"),
        ] {
            let error = base(&Settings { auth, ..Settings::new(url) }).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("pw@"), "{url}: {error}");
        }
        for url in ["http://127.0.0.1:9090", "http://[::1]:9090/prom", "https://prometheus.example"] {
            base(&Settings { auth: auth.clone(), ..Settings::new(url) }).unwrap();
        }
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(seconds(1_700_000_000_123), "1700000000.123");
        assert_eq!(seconds(15_000), "15.000");
    }
}
