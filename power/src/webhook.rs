//! A driver for what has no driver (switched sockets, someone's own tooling): signed requests to a URL.
//!
//! `POST url` with `{"host", "action", "nonce", "issued", "expires"}` and the header `X-Muster-Signature`
//! (see [`crate::sign`]). The receiver checks the signature, refuses what has expired and nonces that it has
//! seen, and answers 2xx when it accepted, `{"power": "on" | "off"}` to the action `read`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration, Timestamp,
    power::{
        Abilities, Accepted, Bmc, BootProgress, Credentials, DriverKind, Endpoint, Fault, Health, Leave,
        Order, Power, PowerAction, PowerError, PowerState, Reading, Secret, Trust, Warning, shown,
    },
};
use reqwest::{
    Method,
    header::{HeaderMap, HeaderValue},
};
use serde::{Deserialize, Serialize};

use crate::{
    address::{AddressRules, Path, Scheme},
    http::{Answer, Limits, Wire},
    sign::{self, CLOCK_SKEW, Seen},
    slots::Account,
};

/// How long a request is valid. It covers the time limit of one call and the clocks' difference.
const LIFE: Duration = Duration::from_secs(60);

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub host: String,
    /// `read`, or one of the power actions.
    pub action: String,
    pub nonce: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
}

impl Call {
    /// The signature that belongs into `X-Muster-Signature`.
    pub fn signature(&self, key: &Secret) -> String {
        let times = [self.issued.millis().to_string(), self.expires.millis().to_string()];
        sign::sign(key, &["webhook", &self.host, &self.action, &self.nonce, &times[0], &times[1]])
    }

    /// What a receiver checks before it does anything.
    pub fn check(
        &self,
        key: &Secret,
        signature: &str,
        seen: &mut Seen,
        now: Timestamp,
    ) -> Result<(), &'static str> {
        let times = [self.issued.millis().to_string(), self.expires.millis().to_string()];
        let parts = ["webhook", &self.host, &self.action, &self.nonce, &times[0], &times[1]];
        if !sign::is_signed(key, &parts, signature) {
            return Err("the signature is wrong");
        }
        if now > self.expires || self.issued > now.saturating_add(CLOCK_SKEW) {
            return Err("the call is not valid at this time");
        }
        if !seen.take(&self.nonce, self.expires, now) {
            return Err("the call was seen before");
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Webhook {
    rules: Arc<AddressRules>,
    credentials: Arc<dyn Credentials>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// Accounts that were refused, by where: they are not tried again.
    refused: Arc<Mutex<BTreeMap<String, Account>>>,
}

impl Webhook {
    pub fn new(
        rules: Arc<AddressRules>,
        credentials: Arc<dyn Credentials>,
        clock: Arc<dyn Clock>,
        limits: Limits,
    ) -> Self {
        Self { rules, credentials, clock, limits, refused: Arc::default() }
    }

    async fn call(
        &self,
        bmc: &Bmc,
        action: &str,
        leave: Option<&Leave>,
    ) -> Result<(Answer, Vec<Warning>), Fault> {
        let Endpoint::Webhook { url, trust } = &bmc.endpoint else {
            return Err(Fault::Invalid { why: "its endpoint is not a webhook".into() });
        };
        let approved =
            self.rules.approve_url(url, Path::Allowed).await.map_err(|why| Fault::AddressRefused { why })?;
        let name = bmc
            .credential
            .as_deref()
            .ok_or_else(|| Fault::NoCredential { why: "the host's record names no credential".into() })?;
        let credential = self.credentials.credential(name).await.map_err(Fault::from)?;
        let account = Account { credential: name.to_owned(), version: credential.version.clone() };
        if self.refused().get(url) == Some(&account) {
            return Err(Fault::Denied { credential: name.to_owned() });
        }
        let issued = self.clock.now();
        let call = Call {
            host: bmc.host.clone(),
            action: action.to_owned(),
            nonce: sign::nonce(),
            issued,
            expires: issued.saturating_add(LIFE),
        };
        let signature = call.signature(&credential.password);
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let signature = HeaderValue::from_str(&signature).expect("hexadecimal digits are a header value");
        headers.insert("x-muster-signature", signature);
        let body = serde_json::to_vec(&call).expect("a struct of texts is JSON");
        let path = if approved.path.is_empty() { "/" } else { &approved.path };
        let wire = Wire::new(&approved, trust, self.limits)?;
        let room = leave.map(Leave::ask).transpose()?;
        let answer = wire.send(Method::POST, path, headers, Some(body), room).await.map_err(|failed| {
            if failed.sent && action != "read" {
                Fault::OutcomeUnknown { action: action.to_owned(), why: failed.fault.to_string() }
            } else {
                failed.fault
            }
        })?;
        let warnings = match (approved.scheme, trust) {
            (Scheme::Https, Trust::Insecure) => vec![Warning::InsecureTls],
            (Scheme::Https, _) => Vec::new(),
            _ => vec![Warning::PlainHttp],
        };
        match answer.status {
            200..=299 => Ok((answer, warnings)),
            401 | 403 => {
                self.refused().insert(url.clone(), account);
                Err(Fault::Denied { credential: name.to_owned() })
            }
            404 | 405 | 501 => Err(Fault::unsupported(action, DriverKind::Webhook)),
            429 | 503 => Err(Fault::Busy { why: format!("HTTP {}", answer.status) }),
            500..=599 if action != "read" => {
                let why = format!("HTTP {}", answer.status);
                Err(Fault::OutcomeUnknown { action: action.to_owned(), why })
            }
            status => Err(Fault::Refused { asked: action.to_owned(), answer: format!("HTTP {status}") }),
        }
    }
}

impl Webhook {
    fn refused(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Power for Webhook {
    fn driver(&self) -> DriverKind {
        DriverKind::Webhook
    }

    fn abilities(&self) -> Abilities {
        use PowerAction::{Cycle, ForceOff, GracefulOff, On};
        Abilities { read: true, ..Abilities::actions([On, GracefulOff, ForceOff, Cycle]) }
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        let (answer, warnings) =
            self.call(bmc, "read", None).await.map_err(|fault| PowerError::new(bmc, fault))?;
        let body = answer.json("its power state").map_err(|fault| PowerError::new(bmc, fault))?;
        let state = match body.get("power").and_then(serde_json::Value::as_str) {
            Some("on") => PowerState::On,
            Some("off") => PowerState::Off,
            Some(other) => PowerState::unknown(format!("the webhook says {}", shown(other))),
            None => PowerState::unknown("the webhook leaves the power state out"),
        };
        Ok(Reading {
            state,
            at: self.clock.now(),
            driver: DriverKind::Webhook,
            progress: BootProgress::NotReported,
            health: Health::NotReported,
            warnings,
        })
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        if !self.abilities().can(order.action) {
            let fault = Fault::unsupported(order.action.to_string(), DriverKind::Webhook);
            return Err(PowerError::new(bmc, fault));
        }
        let state = self.read(bmc).await?.state;
        if order.action.is_met_by(&state) {
            return Ok(Accepted::AlreadyThere);
        }
        if let PowerState::Unknown { why } = state {
            let why = format!("{why}; nothing is switched on a guess");
            return Err(PowerError::new(bmc, Fault::malformed("its power state", why)));
        }
        let action = order.action.to_string();
        self.call(bmc, &action, Some(leave)).await.map_err(|fault| PowerError::new(bmc, fault))?;
        Ok(Accepted::Sent { how: format!("webhook {action}") })
    }
}
