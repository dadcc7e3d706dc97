//! The production [`Around`]: racks, boot profiles, credentials, boot reports, pools and connections, read from
//! the store every few seconds and answered from memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use muster_engine::{
    lifecycle::{Advice, AgentView, BootProgress, Goodbye, Hello},
    snapshot::DrainPolicy,
};
use muster_model::{
    Clock, Duration, Known, Timestamp,
    host::{
        AgentGoodbye, BootProfile, BootReport, FreezeMode, PoolHostConfig, Presence,
        keys::{AGENT_GOODBYES, BOOT_PROGRESS, boot_progress},
    },
    observe::ClusterPort,
    pool::Mode,
    rack::Rack,
    store::{Entry, List, StoreError},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    around::{Around, Clusters, Dress, Home, PoolSays},
    ways::fnv,
};
use crate::{
    inventory::{Inventory, InventoryError, Vault, keys},
    planner::Connections,
    registry::{Cluster, Kind, NodePool, Registry, RegistryError, Seen, inventory_pool},
    snapshot::drain_policy,
};

/// Between two readings. A rotated credential is tried within a minute; a boot report may be this late.
const EVERY: Duration = Duration::from_secs(2);

/// What agents on hosts said.
pub trait Agents: Send + Sync + fmt::Debug {
    fn view(&self, host: &str) -> AgentView;

    /// Whether the host answers, as far as its agent tells.
    fn presence(&self, host: &str, now: Timestamp) -> Known<Presence>;
}

/// No agents are listened to.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAgents;

impl Agents for NoAgents {
    fn view(&self, _: &str) -> AgentView {
        AgentView::default()
    }

    fn presence(&self, _: &str, now: Timestamp) -> Known<Presence> {
        Known::Unknown { why: "no agents are listened to".into(), since: now }
    }
}

/// A pool as hosts see it.
#[derive(Debug, Clone)]
struct Pool {
    cluster: Uuid,
    /// The cluster's id as ports and indexes are kept by it.
    cluster_key: Arc<str>,
    cluster_name: Arc<str>,
    max: Option<u32>,
    dress: Arc<Dress>,
    config: Arc<PoolHostConfig>,
    drain: DrainPolicy,
    advice: Option<Advice>,
    port: Option<Arc<dyn ClusterPort>>,
}

/// The pools that have an inventory name.
#[derive(Debug, Clone, Default)]
struct Pools {
    known: BTreeMap<String, Pool>,
    /// Those whose record, or whose cluster's, is not there.
    unknown: BTreeSet<String>,
}

impl Pools {
    /// What only advises, and may not be known to do more: as for the actuator.
    fn advice(&self, name: &str) -> Option<Advice> {
        if self.unknown.contains(name) {
            let why = format!("its pool {name} or the cluster of that is not known");
            return Some(Advice { why, remedy: "a pool of a cluster that is there".to_owned() });
        }
        self.known.get(name)?.advice.clone()
    }

    /// Whether they say the same of their hosts, and the same of them may act.
    fn says_as(&self, other: &Self) -> bool {
        let says = |pools: &Self| {
            let says = |pool: &Pool| (Arc::clone(&pool.config), pool.advice.is_some());
            pools.known.iter().map(|(name, pool)| (name.clone(), says(pool))).collect::<BTreeMap<_, _>>()
        };
        says(self) == says(other) && self.unknown == other.unknown
    }
}

/// What a pool's mode means to its hosts.
fn advice(pool: &NodePool, cluster: &Cluster) -> Option<Advice> {
    let (name, of) = (&pool.name, &cluster.name);
    match pool.mode(&cluster.spec) {
        Mode::Active => None,
        Mode::Advise => Some(Advice {
            why: format!("its pool {of}/{name} is in advise mode"),
            remedy: match pool.spec.mode {
                Some(_) => format!("muster enable pool {of}/{name}"),
                None => format!("muster enable cluster {of}"),
            },
        }),
    }
}

#[derive(Debug, Default)]
struct Read {
    complete: bool,
    racks: BTreeMap<String, Rack>,
    profiles: BTreeMap<String, BootProfile>,
    /// By the name that [`muster_model::power::Credentials`] takes.
    credentials: BTreeMap<String, u64>,
    /// How often they were found to be others than before.
    credentials_changed: u64,
    /// How often what pools say of their hosts was found to be something else than before.
    pools_changed: u64,
    reports: BTreeMap<String, BootProgress>,
    goodbyes: BTreeMap<String, AgentGoodbye>,
    pools: Pools,
    /// The clusters of these pools that are connected.
    clusters: Clusters,
}

/// See the module.
#[derive(Debug)]
pub struct Facts {
    registry: Arc<Registry>,
    inventory: Arc<Inventory>,
    vault: Arc<Vault>,
    connections: Arc<dyn Connections>,
    agents: Arc<dyn Agents>,
    clock: Arc<dyn Clock>,
    read: RwLock<Read>,
    news: tokio::sync::watch::Sender<u64>,
}

impl Facts {
    pub fn new(
        registry: Arc<Registry>,
        inventory: Arc<Inventory>,
        vault: Arc<Vault>,
        connections: Arc<dyn Connections>,
        agents: Arc<dyn Agents>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let (read, news) = (RwLock::default(), tokio::sync::watch::Sender::default());
        Arc::new(Self { registry, inventory, vault, connections, agents, clock, read, news })
    }

    /// Reads until `stop`. What cannot be read stays as it was.
    pub async fn run(&self, stop: CancellationToken) {
        let mut freezes = self.registry.freezes();
        loop {
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "what hosts need beside their records could not be read; it tries again");
            }
            let mut rest = std::pin::pin!(self.clock.sleep(EVERY));
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    Ok(()) = freezes.changed() => self.news.send_modify(|number| *number += 1),
                    () = &mut rest => break,
                }
            }
        }
    }

    /// Reads everything once.
    pub async fn refresh(&self) -> Result<(), InventoryError> {
        let (racks, _) = self.inventory.all_named::<Rack>().await?;
        let (profiles, _) = self.inventory.all_named::<BootProfile>().await?;
        let (shown, _) = self.vault.list().await?;
        let mut credentials = BTreeMap::new();
        for one in shown {
            // One that was deleted and made anew begins at version 1 again, and is another. It is stored as JSON, where
            // some readers keep 53 bits of a number.
            let version = fnv(format!("{} {}", one.meta.created_at.millis(), one.meta.version).bytes()) >> 11;
            if one.project == NO_PROJECT {
                credentials.insert(one.meta.name.clone(), version);
            }
            credentials.insert(format!("{}/{}", one.project, one.meta.name), version);
        }
        let credentials_changed = {
            let before = self.read();
            before.credentials_changed + u64::from(!before.complete || before.credentials != credentials)
        };
        let reports = self.reports().await?;
        let goodbyes = self.goodbyes().await?;
        let pools = self.pools().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "pools could not be read for their hosts; they stay as they were");
            self.read().pools.clone()
        });
        let pools_changed = {
            let before = self.read();
            before.pools_changed + u64::from(!before.complete || !before.pools.says_as(&pools))
        };
        let read = Read {
            complete: true,
            pools_changed,
            racks: racks.into_iter().map(|one| (one.spec.name.clone(), one.spec)).collect(),
            profiles: profiles.into_iter().map(|one| (one.spec.name.clone(), one.spec)).collect(),
            credentials,
            credentials_changed,
            reports,
            goodbyes,
            clusters: self.connected(&pools.known).await,
            pools,
        };
        let before = std::mem::replace(&mut *self.read.write().unwrap_or_else(PoisonError::into_inner), read);
        let told = (before.credentials_changed, before.pools_changed) != (credentials_changed, pools_changed);
        if told || !same(&before.clusters, &self.read().clusters) {
            self.news.send_modify(|number| *number += 1);
        }
        Ok(())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Read> {
        self.read.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every record below a prefix, page by page.
    async fn all(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let mut all = Vec::new();
        List::prefix(prefix).each(&**self.inventory.store(), |entry| all.push(entry)).await?;
        Ok(all)
    }

    async fn reports(&self) -> Result<BTreeMap<String, BootProgress>, InventoryError> {
        let entries = self.all(BOOT_PROGRESS).await?;
        let report = |entry: &Entry| {
            let host = entry.key.strip_prefix(&boot_progress("")).unwrap_or(&entry.key).to_owned();
            let report: BootReport = serde_json::from_slice(&entry.value).ok()?;
            Some((host, BootProgress { stage: report.stage, os: report.os, at: report.at }))
        };
        Ok(entries.iter().filter_map(report).collect())
    }

    /// What agents said when they powered their hosts off.
    async fn goodbyes(&self) -> Result<BTreeMap<String, AgentGoodbye>, InventoryError> {
        let entries = self.all(AGENT_GOODBYES).await?;
        let goodbye = |entry: &Entry| {
            let host = entry.key.strip_prefix(AGENT_GOODBYES)?.to_owned();
            Some((host, serde_json::from_slice(&entry.value).ok()?))
        };
        Ok(entries.iter().filter_map(goodbye).collect())
    }

    /// The pools that have an inventory name, with their clusters.
    async fn pools(&self) -> Result<Pools, RegistryError> {
        let prefix = keys::pool_owner("");
        let entries = self.all(&prefix).await?;
        let mut pools = Pools::default();
        for entry in &entries {
            let name = entry.key.strip_prefix(&prefix).unwrap_or(&entry.key).to_owned();
            let text = String::from_utf8_lossy(&entry.value);
            let id = text.trim_matches('"').parse::<Uuid>().ok();
            let Some((id, stored, owner)) = self.pool_and_cluster(id).await? else {
                pools.unknown.insert(name);
                continue;
            };
            let cluster = stored.object.cluster_id.uuid();
            let spec = &stored.object.spec;
            let dress = Arc::new(Dress {
                pool: Some(stored.object.name.to_string()),
                labels: spec.node_labels().into_iter().collect(),
                taints: spec.node_taints().into_iter().collect(),
            });
            let config = inventory_pool(&stored.object).map(|(_, config)| config).unwrap_or_default();
            let max = self.registry.summary(Kind::Pool, id).and_then(|summary| summary.counts.max);
            pools.known.insert(
                name,
                Pool {
                    cluster,
                    cluster_key: cluster.to_string().into(),
                    cluster_name: owner.object.name.to_string().into(),
                    max,
                    dress,
                    config: Arc::new(config),
                    drain: drain_policy(owner.object.spec.drain),
                    advice: advice(&stored.object, &owner.object),
                    port: self.connections.port(&owner.object),
                },
            );
        }
        Ok(pools)
    }

    async fn pool_and_cluster(
        &self,
        id: Option<Uuid>,
    ) -> Result<Option<(Uuid, Seen<NodePool>, Seen<Cluster>)>, RegistryError> {
        let Some(id) = id else { return Ok(None) };
        let Some(pool) = self.registry.look::<NodePool>(id).await? else { return Ok(None) };
        let cluster = self.registry.look::<Cluster>(pool.object.cluster_id.uuid()).await?;
        Ok(cluster.map(|cluster| (id, pool, cluster)))
    }

    /// The clusters that somebody is connected to, by their ids: those of pools, and those where a node of a host is left
    /// although its pool is elsewhere.
    async fn connected(&self, pools: &BTreeMap<String, Pool>) -> Clusters {
        let mut clusters = BTreeMap::new();
        for pool in pools.values() {
            if let Some(port) = &pool.port {
                clusters.insert(pool.cluster, (Arc::clone(&pool.cluster_key), Arc::clone(port)));
            }
        }
        let mut left = BTreeSet::new();
        self.inventory.each(|host| {
            let joined = host.status.as_ref().and_then(|status| status.kubernetes_cluster.as_ref());
            left.extend(
                joined.and_then(|id| id.parse::<Uuid>().ok()).filter(|id| !clusters.contains_key(id)),
            );
        });
        for id in left {
            let port = match self.registry.look::<Cluster>(id).await {
                Ok(cluster) => cluster.and_then(|stored| self.connections.port(&stored.object)),
                Err(error) => {
                    tracing::warn!(%error, cluster = %id, "a cluster that has nodes of hosts could not be read");
                    let before = self.clusters();
                    before
                        .iter()
                        .find(|(name, _)| **name == *id.to_string())
                        .map(|(_, port)| Arc::clone(port))
                }
            };
            if let Some(port) = port {
                clusters.insert(id, (id.to_string().into(), port));
            }
        }
        clusters.into_values().collect()
    }
}

/// Whether these are the same connections.
fn same(before: &Clusters, after: &Clusters) -> bool {
    let alike = |((name, port), (other, there)): (&(Arc<str>, Arc<dyn ClusterPort>), &(_, _))| {
        name == other && Arc::ptr_eq(port, there)
    };
    before.len() == after.len() && before.iter().zip(&**after).all(alike)
}

/// Where credentials of hosts without a project are kept.
const NO_PROJECT: &str = "default";

impl Around for Facts {
    fn home(&self, pool: &str) -> Home {
        let read = self.read();
        match read.pools.known.get(pool) {
            _ if !read.complete => Home::Unconnected { why: "pools have not been read yet".into() },
            None => Home::Nowhere,
            Some(Pool { port: Some(port), cluster_key, .. }) => {
                Home::Cluster { name: Arc::clone(cluster_key), port: Arc::clone(port) }
            }
            Some(Pool { port: None, cluster_name, .. }) => {
                Home::Unconnected { why: format!("cluster {cluster_name} of pool {pool} is not connected") }
            }
        }
    }

    fn freeze(&self) -> FreezeMode {
        self.registry.freeze().mode
    }

    fn news(&self) -> Option<tokio::sync::watch::Receiver<u64>> {
        Some(self.news.subscribe())
    }

    fn clusters(&self) -> Clusters {
        Arc::clone(&self.read().clusters)
    }

    fn set_aside(&self, host: &str) -> Option<String> {
        if !self.read().complete {
            // Whether anything may be done to it is not known: a moment later it is.
            return Some("pools have not been read yet".into());
        }
        // A host that the index has not seen yet is looked at a moment later.
        match self.inventory.host(host) {
            Some(host) => host.set_aside().map(|aside| aside.reason),
            None => Some("the inventory has not seen it yet".into()),
        }
    }

    fn pool_says(&self, pool: &str) -> PoolSays {
        let read = self.read();
        match read.pools.known.get(pool) {
            _ if !read.complete || read.pools.unknown.contains(pool) => PoolSays::Unasked,
            None => PoolSays::Nothing,
            Some(pool) => PoolSays::This(Arc::clone(&pool.config)),
        }
    }

    fn pools_changed(&self) -> u64 {
        self.read().pools_changed
    }

    fn dress(&self, pool: &str) -> Arc<Dress> {
        self.read().pools.known.get(pool).map(|pool| Arc::clone(&pool.dress)).unwrap_or_default()
    }

    fn drain_policy(&self, pool: &str) -> DrainPolicy {
        self.read().pools.known.get(pool).map(|pool| pool.drain).unwrap_or_default()
    }

    fn advice(&self, pool: &str) -> Option<Advice> {
        self.read().pools.advice(pool)
    }

    fn pool_max(&self, pool: &str) -> Option<u32> {
        self.read().pools.known.get(pool).and_then(|pool| pool.max)
    }

    fn rack(&self, name: &str) -> Option<Rack> {
        self.read().racks.get(name).cloned()
    }

    fn boot_profile(&self, name: &str) -> Option<BootProfile> {
        self.read().profiles.get(name).cloned()
    }

    fn credential_version(&self, name: &str) -> u64 {
        self.read().credentials.get(name).copied().unwrap_or(0)
    }

    fn credentials_changed(&self) -> u64 {
        self.read().credentials_changed
    }

    /// Which operation a goodbye belongs to is for the turn to say: it knows when it asked.
    fn agent(&self, host: &str) -> AgentView {
        let mut view = self.agents.view(host);
        let read = self.read();
        let stored = read.goodbyes.get(host).filter(|one| {
            // An order that was taken is no goodbye, and who is heard again in the same boot is still there.
            let again = |hello: &Hello| hello.boot_id == one.boot_id && hello.at > one.at;
            one.left && !view.hello.as_ref().is_some_and(again)
        });
        view.goodbye = view.goodbye.or_else(|| stored.map(|one| Goodbye { op: String::new(), at: one.at }));
        view
    }

    fn presence(&self, host: &str, now: Timestamp) -> Known<Presence> {
        self.agents.presence(host, now)
    }

    fn boot_report(&self, host: &str) -> Option<BootProgress> {
        self.read().reports.get(host).cloned()
    }
}
