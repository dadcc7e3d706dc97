//! The store on etcd: the v3 API from 3.4 to 3.6, for several processes and for sharing with other tools.
//!
//! * A store may live under a *root*: the key `/muster/x` is then `{root}/muster/x` in etcd, and nothing
//!   outside the root is seen.
//! * Revisions are etcd's own, and so is history: it ends where the cluster's operator compacts it. Only with
//!   [`Options::keep_revisions`] do we compact, since others may use the same cluster.
//! * A member that does not answer is left alone ([`members`]). Reads are repeated within
//!   [`Options::call_timeout`]; writes too, each carried out once ([`slots`]).
//! * Answers older than what this process has seen are refused: the cluster was restored from a backup.
//! * A watch survives reconnects and members that come and go ([`watch`]).

mod call;
mod commit;
mod members;
mod slots;
mod upkeep;
mod watch;

/// Generated from `proto/etcd.proto`.
#[allow(clippy::all, clippy::pedantic, unreachable_pub, missing_debug_implementations, reason = "generated")]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use muster_model::store::{
    Committed, Entry, List, Page, RESERVED, Revision, Store, StoreError, StoreStats, Txn, WatchStream,
    check_key, prefix_end,
};

use call::{Login, number, revision};
use members::Members;
use proto::{
    CompactionRequest, KeyValue, RangeRequest, RangeResponse, StatusRequest,
    maintenance_client::MaintenanceClient,
};
use slots::Slots;

/// Entries that one page holds when the caller names no limit.
const PAGE: usize = 1000;
/// Entries in one answer of etcd. Bounds its size, since etcd knows no bound by bytes.
const CHUNK: usize = 250;

/// How to reach a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Put before every key. Empty, or a path without a slash at its end.
    pub root: String,
    pub tls: Option<Tls>,
    pub user: Option<User>,
    /// For making a connection.
    pub connect_timeout: Duration,
    /// For one answer of one member.
    pub attempt_timeout: Duration,
    /// For a call as a whole, over all attempts.
    pub call_timeout: Duration,
    /// Compact all but this many revisions, now and then. Nothing is compacted without it.
    pub keep_revisions: Option<u64>,
    /// How often leftovers of crashed processes are looked for, and history is compacted.
    pub sweep_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            root: String::new(),
            tls: None,
            user: None,
            connect_timeout: Duration::from_secs(2),
            // Above etcd's slowest normal answer, below its election timeout times three.
            attempt_timeout: Duration::from_secs(3),
            // Long enough to outlast an election after a leader's death.
            call_timeout: Duration::from_secs(15),
            keep_revisions: None,
            sweep_every: Duration::from_mins(10),
        }
    }
}

/// Encryption, and proof of who we are.
#[derive(Clone, Default)]
pub struct Tls {
    /// The certificate authority of the members, as PEM.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and its key, as PEM.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the members' certificates, where it is not the address.
    pub server_name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("client", &self.client.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// An account in etcd.
#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    pub password: Password,
}

/// A password, which is not printed.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    pub fn new(password: impl Into<String>) -> Self {
        Self(password.into())
    }

    fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// See the module.
#[derive(Debug)]
pub struct Etcd {
    shared: Arc<Shared>,
    upkeep: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// How errors call this store.
    name: String,
    options: Options,
    members: Members,
    login: tokio::sync::Mutex<Login>,
    slots: Slots,
    /// The highest revision that this process has seen.
    seen: AtomicU64,
    closed: AtomicBool,
}

impl Etcd {
    /// Connects to the cluster that `endpoints` (`host:port`) belong to. Fails when no member answers.
    pub async fn open(endpoints: &[String], mut options: Options) -> Result<Self, StoreError> {
        let root = options.root.trim_end_matches('/').to_owned();
        if !root.is_empty() {
            check_key(&root)?;
        }
        options.root = root;
        let shared = Arc::new(Shared {
            name: format!("etcd://{}{}", endpoints.join(","), options.root),
            members: Members::new(endpoints, &options)?,
            login: tokio::sync::Mutex::default(),
            slots: Slots::new(&options.root),
            seen: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            options,
        });
        shared.revision().await?;
        let upkeep = tokio::spawn(upkeep::run(Arc::downgrade(&shared)));
        Ok(Self { shared, upkeep })
    }

    fn shared(&self) -> Result<&Arc<Shared>, StoreError> {
        if self.shared.closed.load(Ordering::SeqCst) {
            return Err(self.shared.unavailable("it was closed".to_owned()));
        }
        Ok(&self.shared)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

impl Shared {
    /// A key as etcd knows it.
    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.options.root)
    }

    /// A key as callers know it; `None` for what is not theirs.
    fn short(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(self.options.root.as_str())?;
        (key.starts_with('/') && !key.starts_with(RESERVED)).then(|| key.to_owned())
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.read(|mut client| {
            let request = request.clone();
            async move { client.range(request).await }
        })
        .await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let key = Bytes::from(self.full("/muster/format"));
        let answer = self.range(RangeRequest { key, count_only: true, ..RangeRequest::default() }).await?;
        Ok(revision(answer.header.unwrap_or_default().revision))
    }

    /// Where in etcd the keys of a list are: its prefix without what is reserved.
    fn spans(&self, prefix: &str, after: Option<&str>) -> Vec<(Bytes, Bytes)> {
        // Every key starts with a slash, so that an empty prefix does not reach out of the root.
        let prefix = if prefix.is_empty() { "/" } else { prefix };
        let full = self.full(prefix);
        let Some(end) = prefix_end(&full) else { return Vec::new() };
        let start = match after {
            Some(after) if after >= prefix => [self.full(after).as_bytes(), b"\0"].concat(),
            _ => full.into_bytes(),
        };
        let reserved = self.full(RESERVED).into_bytes();
        let Some(reserved_end) = prefix_end(&self.full(RESERVED)) else { return Vec::new() };
        let before = (start.clone(), end.clone().min(reserved.clone()));
        let behind = (start.max(reserved_end), end);
        [before, behind]
            .into_iter()
            .filter(|(start, end)| start < end)
            .map(|(start, end)| (start.into(), end.into()))
            .collect()
    }

    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        let limit = if list.limit == 0 { PAGE } else { list.limit.min(PAGE) };
        let mut at = list.at;
        if at == Some(Revision::ZERO) {
            // Zero means the present to etcd; before its first revision there is nothing.
            at = Some(Revision(1));
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (mut start, end) in self.spans(&list.prefix, list.after.as_deref()) {
            loop {
                // One more than asked for tells whether there are more.
                let wanted = (limit + 1 - entries.len()).min(CHUNK);
                let request = RangeRequest {
                    key: start,
                    range_end: end.clone(),
                    limit: i64::try_from(wanted).unwrap_or(i64::MAX),
                    revision: at.map_or(0, number),
                    keys_only: list.keys_only,
                    ..RangeRequest::default()
                };
                let answer = match self.range(request).await {
                    Ok(answer) => answer,
                    Err(error) => return Err(self.about_past(error, at.unwrap_or_default()).await),
                };
                at = at.or(Some(revision(answer.header.unwrap_or_default().revision)));
                entries.extend(answer.kvs.iter().filter_map(|found| self.entry(found)));
                let last = answer.kvs.last().map(|found: &KeyValue| [&found.key[..], b"\0"].concat());
                match last {
                    Some(last) if answer.more && entries.len() <= limit => start = last.into(),
                    _ => break,
                }
            }
            if entries.len() > limit {
                break;
            }
        }
        let revision = match list.at.or(at) {
            Some(at) => at,
            None => self.revision().await?,
        };
        let more = entries.len() > limit;
        entries.truncate(limit);
        Ok(Page { entries, revision, more })
    }

    /// What etcd means when it refuses to read at `asked`.
    async fn about_past(&self, error: StoreError, asked: Revision) -> StoreError {
        let StoreError::Invalid { why } = &error else { return error };
        if why.contains("has been compacted") {
            return match self.oldest().await {
                Ok(oldest) => StoreError::Compacted { asked, oldest },
                Err(error) => error,
            };
        }
        if why.contains("future revision") {
            return match self.revision().await {
                Ok(current) => StoreError::Future { asked, current },
                Err(error) => error,
            };
        }
        error
    }

    /// The oldest revision that can be read. etcd does not tell, so it is searched for.
    async fn oldest(&self) -> Result<Revision, StoreError> {
        let mut high = self.revision().await?.0.max(1);
        let mut low = 0; // compacted, or before the first
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let key = Bytes::from(self.full("/muster/format"));
            let request = RangeRequest {
                key,
                revision: number(Revision(middle)),
                count_only: true,
                ..RangeRequest::default()
            };
            match self.range(request).await {
                Ok(_) => high = middle,
                Err(StoreError::Invalid { why }) if why.contains("has been compacted") => low = middle,
                Err(error) => return Err(error),
            }
        }
        Ok(Revision(high))
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        if before == Revision::ZERO {
            return Ok(());
        }
        let current = self.revision().await?;
        if before > current {
            return Err(StoreError::Future { asked: before, current });
        }
        let request = CompactionRequest { revision: number(before), physical: false };
        let outcome: Result<proto::CompactionResponse, _> =
            self.read(|mut client| async move { client.compact(request).await }).await;
        match outcome {
            Err(StoreError::Invalid { why }) if why.contains("has been compacted") => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Bytes of the database of one member, where it tells.
    async fn bytes(&self) -> u64 {
        let member = self.members.pick();
        let Ok(connection) = self.members.connect(member).await else { return 0 };
        let Ok(ticket) = self.ticket(&connection.channel).await else { return 0 };
        let mut client = MaintenanceClient::with_interceptor(connection.channel, ticket);
        let status =
            tokio::time::timeout(self.options.attempt_timeout, client.status(StatusRequest {})).await;
        match status {
            Ok(Ok(status)) => u64::try_from(status.into_inner().db_size).unwrap_or(0),
            _ => 0,
        }
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        check_key(key)?;
        let shared = self.shared()?;
        let key = Bytes::from(shared.full(key));
        let answer = shared.range(RangeRequest { key, ..RangeRequest::default() }).await?;
        Ok(answer.kvs.first().and_then(|found| shared.entry(found)))
    }

    async fn list(&self, list: List) -> Result<Page, StoreError> {
        self.shared()?.list(&list).await
    }

    async fn commit(&self, txn: Txn) -> Result<Committed, StoreError> {
        txn.check()?;
        self.shared()?.commit(&txn).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<WatchStream, StoreError> {
        let shared = self.shared()?;
        let current = shared.revision().await?;
        if after > current {
            return Err(StoreError::Future { asked: after, current });
        }
        Ok(watch::follow(Arc::clone(shared), prefix, after))
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.shared()?.revision().await
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.shared()?.compact(before).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        let shared = self.shared()?;
        let mut keys = 0;
        for (key, range_end) in shared.spans("", None) {
            let request = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
            keys += u64::try_from(shared.range(request).await?.count).unwrap_or(0);
        }
        Ok(StoreStats {
            kind: "etcd".to_owned(),
            revision: shared.revision().await?,
            oldest: shared.oldest().await?,
            keys,
            bytes: shared.bytes().await,
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.shared.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.upkeep.abort();
        self.shared.remove_own_slots().await
    }
}
