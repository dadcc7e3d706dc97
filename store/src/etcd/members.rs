//! The members of a cluster: connecting to them, and leaving those alone that do not answer.
//!
//! All calls go to one member as long as it answers. One that fails is set aside, for longer each time, and
//! is asked again only when its time is over *and* the one in use fails. When all are set aside, the one
//! whose time is over first is tried, so that a cluster that comes back is found.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use muster_model::store::StoreError;

use super::{
    Options,
    proto::{StatusRequest, maintenance_client::MaintenanceClient},
};

/// The first time that a failed member is left alone, doubled with each further failure.
const EJECT_FIRST: Duration = Duration::from_millis(500);
/// The longest, so that a member that was repaired is used again soon.
const EJECT_LONGEST: Duration = Duration::from_secs(30);
/// etcd refuses clients that ping more often than every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

pub(super) struct Members {
    list: Vec<Member>,
    /// The one in use.
    current: AtomicUsize,
    connect: Duration,
    /// The cluster that first answered; zero before that.
    cluster: AtomicU64,
}

pub(super) struct Member {
    pub(super) address: String,
    endpoint: Endpoint,
    /// Held while connecting, so that many callers make one connection.
    connection: tokio::sync::Mutex<Option<Connection>>,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    failures: u32,
    until: Option<Instant>,
}

/// A channel that was seen to work when it was made.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    number: u64,
    /// As the member tells it, where it does.
    pub(super) version: Option<String>,
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<&str> = self.list.iter().map(|member| member.address.as_str()).collect();
        f.debug_struct("Members").field("members", &addresses).finish_non_exhaustive()
    }
}

impl Members {
    pub(super) fn new(addresses: &[String], options: &Options) -> Result<Self, StoreError> {
        if addresses.is_empty() {
            return Err(StoreError::Invalid { why: "an etcd store needs at least one member".to_owned() });
        }
        let list = addresses.iter().map(|address| Member::new(address, options)).collect::<Result<_, _>>()?;
        Ok(Self {
            list,
            current: AtomicUsize::new(0),
            connect: options.connect_timeout,
            cluster: AtomicU64::new(0),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The member to ask now.
    pub(super) fn pick(&self) -> &Member {
        let now = Instant::now();
        let current = self.current.load(Ordering::Relaxed);
        let in_turn = (0..self.list.len()).map(|n| (current + n) % self.list.len());
        let best = in_turn.min_by_key(|&n| self.list[n].health().until.filter(|until| *until > now));
        let best = best.unwrap_or(current);
        self.current.store(best, Ordering::Relaxed);
        &self.list[best]
    }

    /// A connection to `member`, made now if there is none.
    pub(super) async fn connect(&self, member: &Member) -> Result<Connection, String> {
        let failures = member.health().failures;
        let mut slot = member.connection.lock().await;
        if let Some(connection) = &*slot {
            return Ok(connection.clone());
        }
        if member.health().failures != failures {
            return Err("it was just found not to answer".to_owned());
        }
        let made = match tokio::time::timeout(self.connect, self.try_connect(member)).await {
            Ok(made) => made,
            Err(_) => Err(format!("no connection within {:?}", self.connect)),
        };
        match made {
            Ok(connection) => {
                *slot = Some(connection.clone());
                Ok(connection)
            }
            Err(why) => {
                member.eject();
                Err(why)
            }
        }
    }

    async fn try_connect(&self, member: &Member) -> Result<Connection, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let channel = member.endpoint.connect().await.map_err(|error| whole(&error))?;
        // A stopped process still accepts connections: only an answer shows that someone is there.
        let status = MaintenanceClient::new(channel.clone()).status(StatusRequest {}).await;
        let version = match status {
            Ok(status) => {
                let status = status.into_inner();
                self.same_cluster(status.header.map_or(0, |header| header.cluster_id))?;
                Some(status.version)
            }
            // Newer versions tell it only to administrators. Being refused is an answer too.
            Err(status) if refused(&status) => None,
            Err(status) => return Err(status.message().to_owned()),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Connection { channel, number, version })
    }

    /// Whether an answer comes from the cluster that all others came from.
    pub(super) fn same_cluster(&self, id: u64) -> Result<(), String> {
        if id == 0 {
            return Ok(());
        }
        match self.cluster.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(known) if known == id => Ok(()),
            Err(known) => Err(format!("it belongs to cluster {id:x}, and the others to {known:x}")),
        }
    }
}

fn refused(status: &tonic::Status) -> bool {
    use tonic::Code;
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument)
        && status.message().starts_with("etcdserver:")
}

/// An error with its causes, which tonic keeps apart from its text.
pub(super) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

impl Member {
    fn new(address: &str, options: &Options) -> Result<Self, StoreError> {
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let invalid = |error: tonic::transport::Error| StoreError::Invalid {
            why: format!("etcd member {address:?} cannot be used: {}", whole(&error)),
        };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(invalid)?
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(options.attempt_timeout)
            .keep_alive_while_idle(true);
        if let Some(tls) = &options.tls {
            let mut config = ClientTlsConfig::new();
            if let Some(ca) = &tls.ca {
                config = config.ca_certificate(Certificate::from_pem(ca));
            }
            if let Some((certificate, key)) = &tls.client {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = &tls.server_name {
                config = config.domain_name(name);
            }
            endpoint = endpoint.tls_config(config).map_err(invalid)?;
        }
        Ok(Self {
            address: address.to_owned(),
            endpoint,
            connection: tokio::sync::Mutex::new(None),
            health: Mutex::new(Health::default()),
        })
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn eject(&self) {
        let mut health = self.health();
        let length = EJECT_FIRST.saturating_mul(1 << health.failures.min(10)).min(EJECT_LONGEST);
        health.failures = health.failures.saturating_add(1);
        health.until = Some(Instant::now() + length);
    }

    /// A call over `connection` failed: the next one makes a new connection, to another member if there is
    /// one. Late failures of a connection that was replaced already change nothing.
    pub(super) async fn failed(&self, connection: &Connection) {
        let mut slot = self.connection.lock().await;
        if slot.as_ref().is_some_and(|current| current.number == connection.number) {
            *slot = None;
            self.eject();
        }
    }

    pub(super) fn answered(&self) {
        let mut health = self.health();
        if health.failures > 0 {
            *health = Health::default();
        }
    }
}
