//! One HTTP exchange with a machine that is slow, strange or hostile.
//!
//! Bounds on time, size and nesting; no redirects, no proxy, no compression, no connection kept. What comes
//! back is bytes and a status; what they mean is for the caller.

use std::error::Error as _;

use futures::StreamExt as _;
use muster_model::{
    Duration,
    power::{Fault, Trust, shown},
};
use reqwest::{Method, header::HeaderMap};
use serde_json::Value;

use crate::{
    address::Approved,
    tls::{self, Verdict},
};

/// How long a machine may take. BMCs on a management network accept within milliseconds; 3 s is a lost
/// packet and its retransmission. Slow firmware has been seen to take 20 s for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connect: Duration,
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(3), total: Duration::from_secs(30) }
    }
}

/// A large system resource has some 50 KiB; a collection of thousands of members fits as well.
pub(crate) const MAX_BODY: usize = 1 << 20;
/// Redfish nests about 8 deep.
pub(crate) const MAX_DEPTH: usize = 32;
/// A full log of [`MAX_BODY`] has some 50,000 values. Each takes up to 600 bytes once it is read, however short it was.
const MAX_VALUES: usize = 100_000;

/// A way to one address, with its trust decided.
#[derive(Debug)]
pub(crate) struct Wire {
    origin: String,
    client: reqwest::Client,
    verdict: Verdict,
    limits: Limits,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Why nothing usable came back.
#[derive(Debug)]
pub(crate) struct Failed {
    pub fault: Fault,
    /// Whether the request may have reached the machine: then nobody knows what it did.
    pub sent: bool,
}

impl Wire {
    pub(crate) fn new(approved: &Approved, trust: &Trust, limits: Limits) -> Result<Self, Fault> {
        let verdict = Verdict::default();
        let config = tls::client_config(trust, &verdict).map_err(|why| Fault::Invalid { why })?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .resolve(&approved.host, approved.socket)
            .http1_only()
            .pool_max_idle_per_host(0)
            .connect_timeout(limits.connect.as_std())
            .timeout(limits.total.as_std())
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Fault::Invalid { why: format!("no client can be made: {}", cause(&error)) })?;
        Ok(Self { origin: approved.origin(), client, verdict, limits })
    }

    /// Sends one request, within `room` where that is shorter than the limits. `path` starts with a slash and was
    /// checked by the caller.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<Vec<u8>>,
        room: Option<Duration>,
    ) -> Result<Answer, Failed> {
        let limit = room.map_or(self.limits.total, |room| room.min(self.limits.total));
        let mut request = self.client.request(method, format!("{}{path}", self.origin)).headers(headers);
        request = request.timeout(limit.as_std());
        if let Some(body) = body {
            request = request.body(body);
        }
        let answer = request.send().await.map_err(|error| self.failed(&error, limit))?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let mut body = Vec::new();
        let mut stream = answer.bytes_stream();
        while let Some(chunk) = stream.next().await {
            body.extend_from_slice(&chunk.map_err(|error| self.failed(&error, limit))?);
            if body.len() > MAX_BODY {
                let why = format!("the answer is larger than {} KiB", MAX_BODY / 1024);
                return Err(Failed { fault: Fault::malformed(path, why), sent: true });
            }
        }
        Ok(Answer { status, headers, body })
    }

    fn failed(&self, error: &reqwest::Error, limit: Duration) -> Failed {
        let sent = !error.is_connect();
        if let Some(fault) = tls::take(&self.verdict) {
            return Failed { fault, sent: false };
        }
        let fault = match (error.is_timeout(), sent) {
            (true, true) => Fault::Silent { limit },
            (true, false) => Fault::Silent { limit: limit.min(self.limits.connect) },
            _ => Fault::Unreachable { why: shown(&cause(error)).to_string() },
        };
        Failed { fault, sent }
    }
}

/// The innermost reason, which is the one that helps ("connection refused").
fn cause(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    if error.source().is_none() { "the exchange failed".to_owned() } else { deepest.to_string() }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }

    /// The body as JSON, within the bounds.
    pub(crate) fn json(&self, asked: &str) -> Result<Value, Fault> {
        let shape = shape(&self.body);
        if shape.depth > MAX_DEPTH {
            return Err(Fault::malformed(asked, format!("it is nested deeper than {MAX_DEPTH} levels")));
        }
        if shape.values > MAX_VALUES {
            return Err(Fault::malformed(asked, format!("it has more than {MAX_VALUES} values")));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let start = String::from_utf8_lossy(&self.body[..self.body.len().min(60)]).into_owned();
            Fault::malformed(asked, format!("{error}, and it starts {:?}", shown(&start).to_string()))
        })
    }
}

/// What reading a text as JSON would cost, found without doing so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shape {
    /// How deep brackets nest outside of strings.
    depth: usize,
    /// At least as many as there are values.
    values: usize,
}

fn shape(json: &[u8]) -> Shape {
    let mut shape = Shape { depth: 0, values: 1 };
    let (mut now, mut text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'{' | b'[' if !text => {
                now += 1;
                shape.depth = shape.depth.max(now);
                shape.values += 1;
            }
            b'}' | b']' if !text => now = now.saturating_sub(1),
            b',' if !text => shape.values += 1,
            _ => {}
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_and_values_are_counted_outside_of_text() {
        #[track_caller]
        fn check(json: impl AsRef<[u8]>, depth: usize, values: usize) {
            assert_eq!(shape(json.as_ref()), Shape { depth, values });
        }
        check(br#"{"a":[{"b":"[[[[\"[[,,"}]}"#, 3, 4);
        check("[".repeat(1000), 1000, 1001);
        check(b"]]][", 1, 2);
        check(r#"[1,"2",{"three":4,"five":6}]"#, 2, 6);
    }

    #[test]
    fn an_answer_of_very_many_values_is_not_read() {
        let body = format!("[{}0]", "0,".repeat(200_000)).into_bytes();
        let answer = Answer { status: 200, headers: HeaderMap::new(), body };
        assert_eq!(answer.json("a log").unwrap_err().code(), "POWER_MALFORMED_ANSWER");
    }
}
