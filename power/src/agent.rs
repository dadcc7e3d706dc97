//! The agent on a host, which says that the host is up and shuts it down when it is told to.
//!
//! The agent asks, the control plane answers: it sends a signed [`Hello`] every few seconds and finds a
//! [`Token`] in the answer when it shall power off. A token is for one host, one boot, one time and a short
//! while. So a token that is replayed, arrives late, or meets the machine after its next boot does nothing.
//! The agent answers it twice ([`Taken`]): that it has taken it, before it does anything, and goodbye, once the machine is
//! really on its way down. The goodbye, and the silence after it, is how a machine without a BMC is known to be off. Silence
//! alone is not "off": it is unknown. A hello of the same boot takes a goodbye back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration, Timestamp,
    power::{
        Abilities, Accepted, Bmc, BootProgress, Credentials, DriverKind, Fault, Health, Leave, Mac, Order,
        Power, PowerAction, PowerError, PowerState, Reading, Secret,
    },
};
use serde::{Deserialize, Serialize};

use crate::sign::{self, CLOCK_SKEW, Seen};

/// How often an agent says hello.
pub const HELLO_EVERY: Duration = Duration::from_secs(10);
/// A host counts as on for three hellos; then it is unknown.
const ALIVE_FOR: Duration = Duration::from_secs(30);
/// How long a token is valid: three hellos and the clocks' difference.
const TOKEN_LIFE: Duration = Duration::from_secs(60);
/// How long after its token an agent may say goodbye: programs that end with a machine may hold it up.
const GOODBYE_WITHIN: Duration = Duration::from_mins(15);

/// An agent's sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub host: String,
    pub boot_id: String,
    pub macs: Vec<Mac>,
    pub nonce: String,
    pub sent: Timestamp,
    pub signature: String,
}

/// What the control plane answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelloAnswer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_off: Option<Token>,
}

/// The order to power off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    pub host: String,
    pub boot_id: String,
    pub nonce: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
    pub signature: String,
}

/// What became of a token: the agent has taken it, and later that the machine goes down with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    pub token: Token,
    /// The command that powers off has succeeded. Nothing else counts as a sign that the machine goes off.
    #[serde(default)]
    pub goodbye: bool,
    pub nonce: String,
    pub sent: Timestamp,
    pub signature: String,
}

/// Why a message was not believed. The text says nothing that helps to forge one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    Signature,
    WrongHost,
    WrongBoot,
    Stale,
    Replayed,
}

impl Hello {
    pub fn new(key: &Secret, host: &str, boot_id: &str, macs: Vec<Mac>, now: Timestamp) -> Self {
        let mut hello = Self {
            host: host.to_owned(),
            boot_id: boot_id.to_owned(),
            macs,
            nonce: sign::nonce(),
            sent: now,
            signature: String::new(),
        };
        hello.signature = sign::sign(key, &hello.parts().each_ref().map(String::as_str));
        hello
    }

    fn parts(&self) -> [String; 6] {
        let macs: Vec<String> = self.macs.iter().map(ToString::to_string).collect();
        [
            "hello".into(),
            self.host.clone(),
            self.boot_id.clone(),
            macs.join(","),
            self.nonce.clone(),
            self.sent.millis().to_string(),
        ]
    }
}

impl Distrust {
    /// What to do about it, for the log of the machine whose key it is.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Signature => "the keys of host and agent differ",
            Self::WrongHost => "it is for another host",
            Self::WrongBoot => "it is for another boot of this host",
            Self::Stale => "it is too old, or the clocks differ by more than 30 seconds",
            Self::Replayed => "it was seen before",
        }
    }
}

impl Taken {
    fn new(key: &Secret, token: Token, goodbye: bool, now: Timestamp) -> Self {
        let mut taken = Self { token, goodbye, nonce: sign::nonce(), sent: now, signature: String::new() };
        taken.signature = sign::sign(key, &taken.parts().each_ref().map(String::as_str));
        taken
    }

    fn parts(&self) -> [String; 4] {
        let token = self.token.parts().join("\n");
        let what = if self.goodbye { "goodbye" } else { "taken" };
        [what.into(), token, self.nonce.clone(), self.sent.millis().to_string()]
    }
}

impl Token {
    fn new(key: &Secret, host: &str, boot_id: &str, now: Timestamp) -> Self {
        let mut token = Self {
            host: host.to_owned(),
            boot_id: boot_id.to_owned(),
            nonce: sign::nonce(),
            issued: now,
            expires: now.saturating_add(TOKEN_LIFE),
            signature: String::new(),
        };
        token.signature = sign::sign(key, &token.parts().each_ref().map(String::as_str));
        token
    }

    fn parts(&self) -> [String; 6] {
        [
            "power-off".into(),
            self.host.clone(),
            self.boot_id.clone(),
            self.nonce.clone(),
            self.issued.millis().to_string(),
            self.expires.millis().to_string(),
        ]
    }
}

/// The agent's side: decides whether a token is an order.
#[derive(Debug)]
pub struct Guard {
    key: Secret,
    host: String,
    boot_id: String,
    seen: Seen,
}

impl Guard {
    pub fn new(key: Secret, host: &str, boot_id: &str) -> Self {
        Self { key, host: host.to_owned(), boot_id: boot_id.to_owned(), seen: Seen::default() }
    }

    pub fn hello(&self, macs: Vec<Mac>, now: Timestamp) -> Hello {
        Hello::new(&self.key, &self.host, &self.boot_id, macs, now)
    }

    /// Says that a token was accepted. Nothing was done with it yet.
    pub fn taken(&self, token: &Token, now: Timestamp) -> Taken {
        Taken::new(&self.key, token.clone(), false, now)
    }

    /// The last word: the machine goes down with this token.
    pub fn goodbye(&self, token: &Token, now: Timestamp) -> Taken {
        Taken::new(&self.key, token.clone(), true, now)
    }

    /// `Ok` at most once per token: the machine may be powered off.
    pub fn accept(&mut self, token: &Token, now: Timestamp) -> Result<(), Distrust> {
        let parts = token.parts();
        if !sign::is_signed(&self.key, &parts.each_ref().map(String::as_str), &token.signature) {
            return Err(Distrust::Signature);
        }
        if token.host != self.host {
            return Err(Distrust::WrongHost);
        }
        if token.boot_id != self.boot_id {
            return Err(Distrust::WrongBoot);
        }
        if now > token.expires || token.issued > now.saturating_add(CLOCK_SKEW) {
            return Err(Distrust::Stale);
        }
        if self.seen.take(&token.nonce, token.expires, now) { Ok(()) } else { Err(Distrust::Replayed) }
    }
}

/// What is known about one agent.
#[derive(Debug, Clone)]
struct Known {
    boot_id: String,
    macs: Vec<Mac>,
    heard: Duration,
    at: Timestamp,
    /// The order that waits for the next hello of this boot.
    order: Option<Waits>,
}

/// An order that is handed out only with the leave of whoever gave it.
#[derive(Debug, Clone)]
struct Waits {
    token: Token,
    leave: Leave,
}

/// The control plane's side, which is also the driver.
#[derive(Debug)]
pub struct AgentHub {
    credentials: Arc<dyn Credentials>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    hosts: BTreeMap<String, Known>,
    /// By host: one that talks too much takes no room from the others.
    seen: BTreeMap<String, Seen>,
}

impl State {
    fn seen_of(&mut self, host: &str) -> &mut Seen {
        self.seen.entry(host.to_owned()).or_insert_with(Seen::of_one_host)
    }
}

/// What the last hello of a host said, as evidence of its boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub boot_id: String,
    pub macs: Vec<Mac>,
    pub at: Timestamp,
}

impl AgentHub {
    pub fn new(credentials: Arc<dyn Credentials>, clock: Arc<dyn Clock>) -> Self {
        Self { credentials, clock, state: Mutex::default() }
    }

    /// Takes a hello. `key` is the key of the host that it claims to come from.
    pub fn hello(&self, hello: &Hello, key: &Secret) -> Result<HelloAnswer, Distrust> {
        let now = self.clock.now();
        if !sign::is_signed(key, &hello.parts().each_ref().map(String::as_str), &hello.signature) {
            return Err(Distrust::Signature);
        }
        let fresh_until = hello.sent.saturating_add(CLOCK_SKEW);
        if now > fresh_until || hello.sent > now.saturating_add(CLOCK_SKEW) {
            return Err(Distrust::Stale);
        }
        let mut state = self.state();
        if !state.seen_of(&hello.host).take(&hello.nonce, fresh_until, now) {
            return Err(Distrust::Replayed);
        }
        // An order for an earlier boot has been carried out, one way or the other.
        let order = state
            .hosts
            .remove(&hello.host)
            .and_then(|known| known.order)
            .filter(|order| order.token.boot_id == hello.boot_id && now <= order.token.expires);
        let known = Known {
            boot_id: hello.boot_id.clone(),
            macs: hello.macs.clone(),
            heard: self.clock.monotonic(),
            at: now,
            order: order.clone(),
        };
        state.hosts.insert(hello.host.clone(), known);
        drop(state);
        let power_off = order.filter(|order| order.leave.ask().is_ok()).map(|order| order.token);
        Ok(HelloAnswer { power_off })
    }

    /// Takes an agent's word about a token. It is believed of a token that was ours, also of one that an earlier leader made.
    pub fn taken(&self, taken: &Taken, key: &Secret) -> Result<(), Distrust> {
        let now = self.clock.now();
        let is_signed = |parts: &[String], signature: &str| {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            sign::is_signed(key, &parts, signature)
        };
        if !is_signed(&taken.parts(), &taken.signature)
            || !is_signed(&taken.token.parts(), &taken.token.signature)
        {
            return Err(Distrust::Signature);
        }
        let fresh_until = taken.sent.saturating_add(CLOCK_SKEW);
        let late = if taken.goodbye { GOODBYE_WITHIN } else { CLOCK_SKEW };
        let token_until = taken.token.expires.saturating_add(late);
        if now > fresh_until || now > token_until || taken.sent > now.saturating_add(CLOCK_SKEW) {
            return Err(Distrust::Stale);
        }
        let mut state = self.state();
        if !state.seen_of(&taken.token.host).take(&taken.nonce, fresh_until, now) {
            return Err(Distrust::Replayed);
        }
        if let Some(known) = state.hosts.get_mut(&taken.token.host) {
            if known.boot_id != taken.token.boot_id {
                return Err(Distrust::WrongBoot); // it has booted since
            }
            known.order = None;
        }
        Ok(())
    }

    pub fn heard(&self, host: &str) -> Option<Heard> {
        let state = self.state();
        let known = state.hosts.get(host)?;
        Some(Heard { boot_id: known.boot_id.clone(), macs: known.macs.clone(), at: known.at })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The boot that is alive just now.
    fn alive(&self, host: &str) -> Option<String> {
        let now = self.clock.monotonic();
        let state = self.state();
        let known = state.hosts.get(host)?;
        (now.saturating_sub(known.heard) <= ALIVE_FOR).then(|| known.boot_id.clone())
    }
}

#[async_trait]
impl Power for AgentHub {
    fn driver(&self) -> DriverKind {
        DriverKind::Agent
    }

    /// A hung kernel hears no agent: there is no force here.
    fn abilities(&self) -> Abilities {
        Abilities { read: true, ..Abilities::actions([PowerAction::GracefulOff]) }
    }

    async fn read(&self, bmc: &Bmc) -> Result<Reading, PowerError> {
        let alive = self.alive(&bmc.host).is_some();
        Ok(Reading {
            state: if alive { PowerState::On } else { PowerState::unknown("the agent is not heard") },
            at: self.clock.now(),
            driver: DriverKind::Agent,
            progress: if alive { BootProgress::OsRunning } else { BootProgress::NotReported },
            health: Health::NotReported,
            warnings: Vec::new(),
        })
    }

    async fn request(&self, bmc: &Bmc, order: Order, leave: &Leave) -> Result<Accepted, PowerError> {
        let fail = |fault| PowerError::new(bmc, fault);
        if order.action != PowerAction::GracefulOff {
            return Err(fail(Fault::unsupported(order.action.to_string(), DriverKind::Agent)));
        }
        let Some(boot_id) = self.alive(&bmc.host) else {
            return Err(fail(Fault::Silent { limit: ALIVE_FOR }));
        };
        let name = bmc.credential.as_deref().ok_or_else(|| {
            fail(Fault::NoCredential { why: "the host's record names no credential".into() })
        })?;
        let key = self.credentials.credential(name).await.map_err(|error| fail(error.into()))?;
        leave.ask().map_err(fail)?;
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(known) = state.hosts.get_mut(&bmc.host).filter(|known| known.boot_id == boot_id) {
            // One valid order is enough: asking again does not make a second one.
            if known.order.as_ref().is_none_or(|order| now > order.token.expires) {
                let token = Token::new(&key.password, &bmc.host, &boot_id, now);
                known.order = Some(Waits { token, leave: leave.beyond_the_call() });
            } else if let Some(order) = &mut known.order {
                order.leave = leave.beyond_the_call();
            }
        }
        Ok(Accepted::Sent { how: "power-off token for the next hello".into() })
    }
}
