//! Keeps one connection to every cluster that somebody has told us how to reach, for the planners and the host loop
//! alike. Clusters appear and vanish while the process runs.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use async_trait::async_trait;
use futures::StreamExt;
use muster_control::{
    connector::{ConnectionState, Connector, WaitingKind},
    inventory::{Access, Vault, keys},
    planner::Connections,
};
use muster_kube::{
    Client, Clusters, Credentials, EventLimits, Guard, KubeCluster, NodeIs, Options, ProtectedNode,
    SourceState, outline,
};
use muster_model::{
    Clock, ClusterId, Duration, Timestamp,
    cluster::Cluster,
    connection::ConnectionWord,
    k8s::PodKey,
    observe::{ActError, Acted, ClusterPort, ClusterView, NodeAction, NotSynced, Waiting},
    store::{Store, StoreError, WatchEvent},
};
use tokio_util::sync::CancellationToken;

use super::own::Own;
use crate::config::Settings;

/// How often connections are looked for although no change was seen, for example after a watch broke off.
const EVERY: Duration = Duration::from_secs(5);
/// A cluster whose slowest source is this old is called unreachable: it is asked every five seconds.
const SILENT_AFTER: Duration = Duration::from_secs(20);
/// Why a host of the store is left alone.
const STORE_HOST: &str = "a member of Muster's store runs there";

/// All connections of this process.
#[derive(Debug)]
pub(super) struct Connected {
    clusters: Clusters,
    vault: Arc<Vault>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Whoever must know where API servers are.
    own: Arc<Own>,
    known: Mutex<BTreeMap<ClusterId, Known>>,
    /// One look at a time.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
enum Known {
    Watched(Arc<KubeCluster>),
    /// Somebody said how, and it cannot be done.
    Unusable(Arc<Unusable>),
}

impl Connected {
    pub(super) fn new(
        settings: &Settings,
        vault: Arc<Vault>,
        store: Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
        own: Arc<Own>,
        instance: String,
    ) -> anyhow::Result<Arc<Self>> {
        let options = Options { guard: guard(settings)?, events: event_limits(settings)?, instance };
        Ok(Arc::new(Self {
            clusters: Clusters::new(Arc::clone(clock), options),
            vault,
            store,
            clock: Arc::clone(clock),
            own,
            known: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }))
    }

    /// Follows what is registered until `stop`.
    pub(super) async fn run(&self, stop: CancellationToken) {
        loop {
            let follow = async {
                if let Err(error) = self.follow().await {
                    tracing::warn!(code = error.code(), %error, "connections of clusters are not followed; trying again");
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = follow => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(EVERY) => {}
            }
        }
    }

    async fn follow(&self) -> Result<(), StoreError> {
        let from = self.store.revision().await?;
        let mut changes = self.store.watch(keys::CONNECTIONS, from).await?;
        self.look().await;
        loop {
            tokio::select! {
                event = changes.next() => match event {
                    None => return Ok(()),
                    Some(event) => {
                        if matches!(event?, WatchEvent::Changes(_)) {
                            self.look().await;
                        }
                    }
                },
                // Broken ones are tried again: a mounted service account may have come.
                () = self.clock.sleep(EVERY) => self.look().await,
            }
        }
    }

    /// Brings connections in line with what is registered.
    pub(super) async fn look(&self) {
        let _one = self.looking.lock().await;
        let wanted = match self.vault.accesses().await {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::warn!(%error, "how clusters are reached could not be read; connections stay as they are");
                return;
            }
        };
        let mut fresh = BTreeMap::new();
        for (id, access) in wanted {
            let connected = match access {
                Ok(access) => {
                    let credentials = credentials(&access);
                    self.clusters.connect(id, &credentials).await.map_err(|error| error.to_string())
                }
                Err(why) => Err(why),
            };
            let now = match connected {
                Ok(cluster) => Known::Watched(cluster),
                Err(why) => {
                    self.clusters.disconnect(id);
                    self.unusable(id, why)
                }
            };
            fresh.insert(id, now);
        }
        let gone: Vec<ClusterId> =
            self.lock().keys().filter(|id| !fresh.contains_key(*id)).copied().collect();
        for id in gone {
            self.clusters.disconnect(id);
            tracing::info!(cluster = %id, "no longer watching a cluster");
        }
        let servers: Vec<String> = fresh
            .values()
            .filter_map(|known| match known {
                Known::Watched(cluster) => Some(cluster.server().to_owned()),
                Known::Unusable(_) => None,
            })
            .collect();
        *self.lock() = fresh;
        self.own.connected(servers.iter().map(String::as_str));
    }

    fn unusable(&self, id: ClusterId, why: String) -> Known {
        if let Some(Known::Unusable(known)) = self.lock().get(&id)
            && known.why == why
        {
            return Known::Unusable(Arc::clone(known));
        }
        tracing::warn!(cluster = %id, why, "a cluster cannot be connected");
        Known::Unusable(Arc::new(Unusable { why, since: self.clock.now() }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClusterId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn credentials(access: &Access) -> Credentials {
    match access {
        Access::InCluster => Credentials::InCluster,
        Access::Kubeconfig { text, context } => Credentials::Text {
            kubeconfig: text.expose_text().unwrap_or_default().to_owned(),
            context: context.clone(),
        },
    }
}

impl Connections for Connected {
    fn port(&self, cluster: &Cluster) -> Option<Arc<dyn ClusterPort>> {
        self.lock().get(&cluster.id).map(|known| match known {
            Known::Watched(cluster) => Arc::clone(cluster) as Arc<dyn ClusterPort>,
            Known::Unusable(broken) => Arc::clone(broken) as Arc<dyn ClusterPort>,
        })
    }
}

#[async_trait]
impl Connector for Connected {
    async fn judge(&self, access: &Access) -> Result<String, String> {
        match access {
            Access::InCluster => {
                let client = Client::connect(&Credentials::InCluster, Arc::clone(&self.clock)).await;
                client.map(|client| client.server().to_owned()).map_err(|error| error.to_string())
            }
            Access::Kubeconfig { text, context } => {
                let text = text.expose_text().ok_or("it is no text")?;
                let found = outline(text, context.as_deref()).map_err(|error| error.to_string())?;
                // Also what only building a client shows: certificates that cannot be read, for one.
                Client::connect(&credentials(access), Arc::clone(&self.clock))
                    .await
                    .map_err(|error| error.to_string())?;
                Ok(found.server)
            }
        }
    }

    async fn probe(&self, access: &Access) -> Result<(), String> {
        let client = Client::connect(&credentials(access), Arc::clone(&self.clock)).await;
        let client = client.map_err(|error| error.to_string())?;
        client.version().await.map(drop).map_err(|error| error.to_string())
    }

    fn state(&self, cluster: ClusterId) -> ConnectionState {
        match self.lock().get(&cluster).cloned() {
            None => ConnectionState::bare(ConnectionWord::NotConnected, "nobody has said how to reach it"),
            Some(Known::Unusable(broken)) => {
                ConnectionState::bare(ConnectionWord::Unusable, broken.why.clone())
            }
            Some(Known::Watched(cluster)) => state(&cluster, self.clock.now()),
        }
    }

    async fn refresh(&self) {
        self.look().await;
    }
}

fn state(cluster: &KubeCluster, now: Timestamp) -> ConnectionState {
    let health = cluster.health();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let kinds = health.sources.len();
    let synced = health.sources.iter().filter(|source| source.synced).count();
    let denied = health.sources.iter().filter(|source| source.state == SourceState::Denied).count();
    let waiting: Vec<WaitingKind> = cluster
        .troubles()
        .into_iter()
        .map(|one| WaitingKind { kind: one.kind, why: one.why, since: one.since })
        .collect();
    let first = waiting.first().map_or_else(String::new, |one| format!(": {}", one.why));
    let stale = now.since(health.fresh_at) > SILENT_AFTER;
    let broken = health.sources.iter().any(|source| source.state == SourceState::Broken);
    let (word, message) = if denied > 0 {
        (ConnectionWord::Denied, format!("{denied} of {kinds} kinds may not be watched{first}"))
    } else if broken && (stale || synced < kinds) {
        (ConnectionWord::Unreachable, format!("the API server does not answer{first}"))
    } else if synced < kinds || kinds == 0 {
        (ConnectionWord::Syncing, format!("{synced} of {kinds} kinds are complete"))
    } else if stale {
        (ConnectionWord::Unreachable, format!("nothing was heard since {}{first}", health.fresh_at))
    } else {
        (ConnectionWord::Connected, format!("{kinds} kinds are watched and current"))
    };
    ConnectionState {
        state: word,
        message,
        kubernetes_version: health.version.clone(),
        fresh_at: (synced == kinds && kinds > 0).then_some(health.fresh_at),
        kinds: count(kinds),
        synced: count(synced),
        objects: health.sources.iter().map(|source| source.objects as u64).sum(),
        waiting,
    }
}

/// A cluster that cannot be connected shows nothing: not that it is empty.
#[derive(Debug)]
struct Unusable {
    why: String,
    since: Timestamp,
}

#[async_trait]
impl ClusterPort for Unusable {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let waiting =
            vec![Waiting { kind: "credentials".to_owned(), why: self.why.clone(), since: self.since }];
        Err(NotSynced { total: 1, waiting })
    }

    fn number(&self) -> u64 {
        0
    }

    async fn changed(&self, _: u64) {
        std::future::pending::<()>().await;
    }

    async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError> {
        Err(ActError::Unreachable { what: format!("{} {node}", action.verb()), why: self.why.clone() })
    }
}

/// Trials with shorter times also say things again sooner.
pub(super) fn event_limits(settings: &Settings) -> anyhow::Result<EventLimits> {
    let factor: u64 = settings.parsed("hosts.time-factor").context("hosts.time-factor is no number")?;
    let usual = EventLimits::default();
    Ok(EventLimits { quiet: Duration::from_millis(usual.quiet.millis() / factor.max(1)), ..usual })
}

/// The nodes that are never drained because we or our store live there.
fn guard(settings: &Settings) -> anyhow::Result<Guard> {
    let mut guard = Guard::default();
    let mut protect =
        |which: NodeIs, why: &str| guard.nodes.push(ProtectedNode { which, why: why.to_owned() });
    if let Some(node) = settings.optional("own.node") {
        protect(NodeIs::Named(node), "Muster itself runs there");
    }
    if let (Some(namespace), Some(name)) = (settings.optional("own.namespace"), settings.optional("own.pod"))
    {
        let pod = PodKey { namespace: namespace.as_str().into(), name: name.as_str().into() };
        protect(NodeIs::Running(pod), "Muster itself runs there");
    }
    for address in store_addresses(&settings.text("store")) {
        protect(NodeIs::At(address), STORE_HOST);
    }
    for node in settings.list::<String>("own.store-nodes")? {
        protect(NodeIs::Named(node), STORE_HOST);
    }
    Ok(guard)
}

/// The addresses in the store's URL, where they are addresses. Loopback is nobody's node.
fn store_addresses(store: &str) -> Vec<IpAddr> {
    let list = store.split_once("://").map_or(store, |(_, rest)| rest);
    let list = list.split('/').next().unwrap_or_default();
    let list = list.rsplit_once('@').map_or(list, |(_, rest)| rest);
    list.split(',')
        .filter_map(|one| {
            one.parse::<SocketAddr>().map(|socket| socket.ip()).or_else(|_| one.parse::<IpAddr>()).ok()
        })
        .filter(|address| !address.is_loopback())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_of_the_store_are_known_by_their_addresses() {
        for (store, found) in [
            ("etcd://10.0.0.1:2379,10.0.0.2:2379/prefix", vec!["10.0.0.1", "10.0.0.2"]),
            ("etcd://user@[fd00::1]:2379", vec!["fd00::1"]),
            ("etcd://etcd-0.etcd:2379", vec![]),
            ("etcd://127.0.0.1:2379", vec![]),
            ("embedded", vec![]),
        ] {
            let found: Vec<IpAddr> = found.into_iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(store_addresses(store), found, "{store}");
        }
    }
}
