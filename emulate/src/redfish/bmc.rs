//! One BMC: its systems, account, sessions, certificate, faults and counters.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, atomic::AtomicU64},
};

use muster_model::{Clock, Duration, Timestamp};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Serialize;

use super::{Faults, Layout, log::Log};
use crate::Machine;

/// A system behind a BMC.
#[derive(Debug)]
pub struct System {
    pub id: String,
    pub uuid: String,
    pub serial: String,
    pub mac: String,
    pub machine: Arc<Machine>,
    pub(super) boot: Mutex<Boot>,
    /// What applies at the next reset.
    pending_boot: Mutex<Option<Boot>>,
    pub(super) log: Log,
}

#[derive(Debug, Clone)]
pub(super) struct Boot {
    pub target: String,
    pub enabled: String,
    pub mode: String,
    /// Where the image of an HTTP boot is; empty until somebody says.
    pub http_uri: String,
    /// Changes with every write.
    pub version: u64,
}

impl System {
    pub(super) fn new(bmc: u32, slot: u32, machine: Arc<Machine>) -> Self {
        let [_, a, b, c] = bmc.to_be_bytes();
        Self {
            id: format!("{}", slot + 1),
            uuid: format!("00000000-0000-4000-8{slot:03x}-{bmc:012x}"),
            serial: format!("EMU{bmc:06}{}", slot + 1),
            mac: format!("02:{a:02x}:{b:02x}:{c:02x}:{:02x}:01", slot + 1),
            machine,
            boot: Mutex::new(Boot {
                target: "None".into(),
                enabled: "Disabled".into(),
                mode: "UEFI".into(),
                http_uri: String::new(),
                version: 1,
            }),
            pending_boot: Mutex::new(None),
            log: Log::default(),
        }
    }

    /// Where it boots from, as its resource says.
    pub fn boot_target(&self) -> String {
        self.boot.lock().unwrap_or_else(PoisonError::into_inner).target.clone()
    }

    pub(super) fn pending_or_now(&self) -> Boot {
        let pending = self.pending_boot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        pending.unwrap_or_else(|| self.boot.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    pub(super) fn keep_boot(&self, boot: Boot, later: bool) {
        if later {
            *self.pending_boot.lock().unwrap_or_else(PoisonError::into_inner) = Some(boot);
        } else {
            *self.boot.lock().unwrap_or_else(PoisonError::into_inner) = boot;
        }
    }

    pub(super) fn take_pending_boot(&self) {
        let pending = self.pending_boot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pending) = pending {
            self.keep_boot(pending, false);
        }
    }
}

/// What happened so far. Peaks show whether a client keeps to one call and one session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    pub calls: u64,
    pub in_flight: u64,
    pub in_flight_peak: u64,
    pub connections: u64,
    pub sessions: u64,
    pub sessions_peak: u64,
    pub logins: u64,
    pub refused_logins: u64,
    /// Requests that carried an account or a token, right or wrong.
    pub credentials_seen: u64,
    /// Every reset that was accepted, in order.
    pub resets: Vec<String>,
    /// How often somebody asked how far a task is.
    pub task_polls: u64,
    /// Restarts of the BMC itself.
    pub restarts: u64,
    /// Every boot setting that was accepted.
    pub boot_writes: u64,
}

#[derive(Debug)]
pub(super) struct Session {
    pub token: String,
    pub until: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Task {
    pub polls_left: u32,
    pub failed: bool,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub faults: Faults,
    pub counters: Counters,
    pub sessions: BTreeMap<String, Session>,
    pub tasks: BTreeMap<String, Task>,
    pub account: (String, String),
    pub flip: bool,
    pub off_since: Option<Duration>,
    pub deeds: Vec<(Timestamp, String)>,
}

/// What it shows to whoever connects.
#[derive(Debug)]
struct Tls {
    config: Arc<ServerConfig>,
    certificate: String,
}

/// See the module.
#[derive(Debug)]
pub struct RedfishBmc {
    pub name: String,
    pub address: SocketAddr,
    pub systems: Vec<System>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) session_timeout: Duration,
    pub(super) serial: AtomicU64,
    tls: Option<RwLock<Tls>>,
    inner: Mutex<Inner>,
}

impl RedfishBmc {
    pub(super) fn new(
        name: String,
        address: SocketAddr,
        systems: Vec<System>,
        layout: &Layout,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        Ok(Self {
            name,
            address,
            systems,
            clock,
            session_timeout: layout.session_timeout,
            serial: AtomicU64::new(1),
            tls: if layout.tls { Some(RwLock::new(self_signed()?)) } else { None },
            inner: Mutex::new(Inner {
                faults: Faults::default(),
                counters: Counters::default(),
                sessions: BTreeMap::new(),
                tasks: BTreeMap::new(),
                account: (layout.user.clone(), layout.password.clone()),
                flip: false,
                off_since: None,
                deeds: Vec::new(),
            }),
        })
    }

    /// `https://127.…:port` or `http://…`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    pub fn faults(&self) -> Faults {
        self.inner().faults.clone()
    }

    /// The counters; sessions that have expired are not among the open ones.
    pub fn counters(&self) -> Counters {
        let now = self.clock.monotonic();
        let mut inner = self.inner();
        inner.expire(now);
        inner.counters.clone()
    }

    /// Everything that was accepted and changes something, with the time at which it came: the type of a reset,
    /// `Manager.Reset`, or `Boot`.
    pub fn deeds(&self) -> Vec<(Timestamp, String)> {
        self.inner().deeds.clone()
    }

    pub(super) fn note(&self, deed: &str) {
        let now = self.clock.now();
        self.inner().deeds.push((now, deed.to_owned()));
    }

    /// Changes the account's password and ends its sessions, as real BMCs do.
    pub fn set_password(&self, password: &str) {
        let mut inner = self.inner();
        password.clone_into(&mut inner.account.1);
        inner.sessions.clear();
        inner.counters.sessions = 0;
    }

    /// Forgets all sessions, as a BMC does that restarts.
    pub fn drop_sessions(&self) {
        let mut inner = self.inner();
        inner.sessions.clear();
        inner.counters.sessions = 0;
    }

    /// Writes into the event log of each of its systems.
    pub fn log(&self, severity: &str, message: &str) {
        let now = self.clock.now();
        for system in &self.systems {
            system.log.add(now, severity, message);
        }
    }

    /// Takes a new key and certificate. Without TLS there is none to change.
    pub fn change_certificate(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            *tls.write().unwrap_or_else(PoisonError::into_inner) = self_signed()?;
        }
        Ok(())
    }

    /// Its certificate as PEM, which is its own authority.
    pub fn certificate(&self) -> Option<String> {
        self.tls.as_ref().map(|tls| tls.read().unwrap_or_else(PoisonError::into_inner).certificate.clone())
    }

    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(|tls| Arc::clone(&tls.read().unwrap_or_else(PoisonError::into_inner).config))
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    pub(super) fn expire(&mut self, now: Duration) {
        self.sessions.retain(|_, session| session.until > now);
        self.counters.sessions = self.sessions.len() as u64;
    }
}

/// A fresh key with a certificate for 127.0.0.1 that nobody else has signed.
fn self_signed() -> io::Result<Tls> {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).map_err(io::Error::other)?;
    let chain = vec![CertificateDer::from(certified.cert.der().to_vec())];
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(io::Error::other)?;
    Ok(Tls { config: Arc::new(config), certificate: certified.cert.pem() })
}
