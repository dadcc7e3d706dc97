//! Gathers what a snapshot is built from. The only part of this module that talks to anything.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use futures::future::try_join_all;
use muster_model::{
    ClusterId, Timestamp,
    catalogue::Catalogue,
    host::{
        BareMetalNodeSpec, GlobalConfig, PoolHostConfig,
        keys::{self as host_keys, HostRecord, Key},
        unique::yielding,
    },
    names,
    observe::ClusterPort,
    rack::Rack,
    store::{Entry, List, Revision, Store},
};
use serde::de::DeserializeOwned;

use super::{HostInput, Inputs, Memory, Observed, PoolInput, memory};
use crate::{
    inventory::{InventoryError, NamedStored, index},
    registry::{Cluster, NodePool, Registry, RegistryError, Subject, keys},
};

/// Where racks are kept, by name.
pub const RACKS: &str = "/muster/inventory/racks/";
/// Values fetched at once when only some records changed.
const FETCH: usize = 32;
/// Keys of one page: as many as fit into an answer of etcd without straining it.
const PAGE: usize = 2_000;

/// What of a host's records matters to a plan; the others are not even fetched.
const READ: [HostRecord; 5] =
    [HostRecord::Spec, HostRecord::Intent, HostRecord::Op, HostRecord::Status, HostRecord::Metrics];

/// The inventory as of the last look. Only what changed is read again.
#[derive(Debug, Default)]
pub struct Inventory {
    /// What was read, and at which revision.
    records: BTreeMap<String, Revision>,
    hosts: BTreeMap<String, Arc<HostInput>>,
    /// When the spec of each host was first written: who came first keeps what two of them claim.
    registered: BTreeMap<String, Revision>,
    /// Hosts that are not used, and why: the host loop leaves them alone.
    aside: BTreeMap<String, String>,
    /// The last settings for all hosts that could be used, and where they were written.
    global: Option<(Revision, GlobalConfig)>,
}

/// What is gathered without the triggers.
#[derive(Debug)]
pub struct Gathered {
    pub cluster: Arc<Cluster>,
    pub cluster_version: Revision,
    pub pools: Vec<PoolInput>,
    pub unreadable_pools: Vec<(String, String)>,
}

/// The cluster and its pools; `None` when there is no such cluster any more.
pub async fn pools(registry: &Registry, id: ClusterId) -> Result<Option<Gathered>, RegistryError> {
    let Some(cluster) = registry.look::<Cluster>(id.uuid()).await? else { return Ok(None) };
    let store = registry.store();
    let names = every(&**store, &keys::pool_names(id.uuid()), false).await?;
    let requests: BTreeMap<uuid::Uuid, u32> = registry
        .open_operations()
        .await?
        .into_iter()
        .filter_map(|operation| match operation.subject {
            Subject::Pool { nodepool_id, cluster_id, target_nodes, .. } if cluster_id == id.uuid() => {
                Some((nodepool_id, target_nodes))
            }
            Subject::Pool { .. } | Subject::Host { .. } => None,
        })
        .collect();
    let (mut pools, mut unreadable_pools) = (Vec::new(), Vec::new());
    for entry in &names {
        let name = entry.key.rsplit('/').next().unwrap_or_default().to_owned();
        let Some(pool) = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok()) else {
            unreadable_pools.push((name, format!("{} holds no id", entry.key)));
            continue;
        };
        match registry.look::<NodePool>(pool).await {
            Ok(Some(seen)) => {
                let (desired, current) = {
                    let status = seen.status();
                    (status.desired_nodes, status.current_nodes)
                };
                let requested = requests.get(&pool).copied();
                let mut input = PoolInput {
                    object: seen.object,
                    desired,
                    current,
                    requested,
                    triggers: Vec::new(),
                    host_config: PoolHostConfig::default(),
                };
                // The pool says it. What stands in the inventory is a copy, or a request that has not been judged.
                if input.is_bare_metal() {
                    let block = input.object.spec.platform.block.as_ref();
                    input.host_config = block.map(PoolHostConfig::of_block).unwrap_or_default();
                }
                pools.push(input);
            }
            Ok(None) => {}
            Err(RegistryError::Damaged { key, source }) => {
                unreadable_pools.push((name, format!("{key}: {source}")));
            }
            Err(error) => return Err(error),
        }
    }
    pools.sort_by(|a, b| a.object.name.cmp(&b.object.name));
    Ok(Some(Gathered { cluster: cluster.object, cluster_version: cluster.version, pools, unreadable_pools }))
}

/// Everything else, put together. Triggers are already in the pools.
pub async fn inputs(
    registry: &Registry,
    gathered: Gathered,
    observed: Observed,
    inventory: &mut Inventory,
    memory: Memory,
    now: Timestamp,
) -> Result<Inputs, RegistryError> {
    let store = &**registry.store();
    inventory.refresh(store).await?;
    let mut set_aside = Vec::new();
    let racks = racks(registry, &mut set_aside).await?;
    let (global, global_fault) = inventory.global(registry).await?;
    let freeze = crate::freeze::state(store).await;
    Ok(Inputs {
        now,
        cluster: gathered.cluster,
        observed,
        pools: gathered.pools,
        unreadable_pools: gathered.unreadable_pools,
        hosts: inventory.hosts(),
        racks,
        global,
        time_factor: 1,
        freeze,
        global_fault,
        catalogue: Cow::Borrowed(Catalogue::shipped()),
        memory: memory.not_after(now),
        set_aside,
    })
}

/// What the cluster shows now. `Err` while it is not in sync.
pub fn observe(port: Option<&Arc<dyn ClusterPort>>) -> Result<Observed, muster_model::observe::NotSynced> {
    match port {
        None => Ok(Observed::NotConnected),
        Some(port) => port.view().map(Observed::View),
    }
}

/// What the planner of this cluster remembered, with the revision of the record.
pub async fn remembered(
    store: &dyn Store,
    cluster: ClusterId,
) -> Result<(Memory, Option<Revision>), RegistryError> {
    let key = memory::key(cluster);
    let Some(entry) = store.get(&key).await? else { return Ok((Memory::default(), None)) };
    let memory = serde_json::from_slice(&entry.value).unwrap_or_else(|error| {
        // Clocks begin again: everything stays on for longer, nothing goes earlier.
        tracing::error!(key, %error, "what the planner remembered cannot be read; its clocks begin again");
        Memory::default()
    });
    Ok((memory, Some(entry.modified)))
}

async fn racks(
    registry: &Registry,
    set_aside: &mut Vec<(String, String)>,
) -> Result<Vec<Rack>, RegistryError> {
    let mut racks = Vec::new();
    for entry in every(&**registry.store(), RACKS, false).await? {
        match registry.known::<NamedStored<Rack>>(&entry) {
            Ok(stored) => racks.push(stored.spec.clone()),
            Err(source) => {
                let error = InventoryError::Damaged { key: entry.key.clone(), source };
                set_aside.push((entry.key, error.to_string()));
            }
        }
    }
    Ok(racks)
}

impl Inventory {
    /// The settings for all hosts that are in force, with what is wrong about those that are stored, if so: then the last good
    /// ones stay, and of those that are stored the switch that stops everything counts even beside nonsense.
    async fn global(&mut self, registry: &Registry) -> Result<(GlobalConfig, Option<String>), RegistryError> {
        let Some(entry) = registry.store().get(host_keys::GLOBAL_CONFIG).await? else {
            self.global = None;
            return Ok((GlobalConfig::default(), None));
        };
        if let Some((_, good)) = self.global.as_ref().filter(|(revision, _)| *revision == entry.modified) {
            return Ok((good.clone(), None));
        }
        Ok(match GlobalConfig::parse(&entry.value) {
            Ok(config) => {
                self.global = Some((entry.modified, config.clone()));
                (config, None)
            }
            Err(faults) => {
                let last = self.global.as_ref().map(|(_, good)| good.clone()).unwrap_or_default();
                let told = GlobalConfig::freeze_of(&entry.value);
                let in_force = GlobalConfig {
                    freeze: told.freeze,
                    freeze_reason: told.freeze_reason,
                    freeze_by: told.freeze_by,
                    freeze_since: told.freeze_since,
                    ..last
                };
                (in_force, Some(faults.to_string()))
            }
        })
    }
}

/// All entries under a prefix, at one revision.
async fn every(store: &dyn Store, prefix: &str, keys_only: bool) -> Result<Vec<Entry>, RegistryError> {
    let mut found = Vec::new();
    let list = List { limit: PAGE, keys_only, ..List::prefix(prefix) };
    list.each(store, |entry| found.push(entry)).await?;
    Ok(found)
}

impl Inventory {
    /// Brings the hosts up to date: lists keys with their revisions, fetches what changed, and reads that alone.
    async fn refresh(&mut self, store: &dyn Store) -> Result<(), RegistryError> {
        let first = self.records.is_empty();
        let listed = every(store, host_keys::NODES, !first).await?;
        let wanted = |key: &str| match host_keys::parse(key) {
            Some(Key::Host { record, .. }) => READ.contains(&record),
            _ => false,
        };
        // Both are in the order of their keys, so that what is gone is what was passed over.
        let (mut known, mut changed, mut gone) = (self.records.iter().peekable(), Vec::new(), Vec::new());
        for entry in listed.into_iter().filter(|entry| wanted(&entry.key)) {
            while let Some((key, _)) = known.next_if(|(key, _)| **key < entry.key) {
                gone.push(key.clone());
            }
            let here = known.next_if(|(key, _)| **key == entry.key);
            if here.is_none_or(|(_, revision)| *revision != entry.modified) {
                changed.push(entry);
            }
        }
        gone.extend(known.map(|(key, _)| key.clone()));
        if !first {
            let keys: Vec<String> = changed.drain(..).map(|entry| entry.key).collect();
            for group in keys.chunks(FETCH) {
                let fetched = try_join_all(group.iter().map(|key| store.get(key))).await?;
                for (key, entry) in group.iter().zip(fetched) {
                    match entry {
                        Some(entry) => changed.push(entry),
                        None => gone.push(key.clone()),
                    }
                }
            }
        }
        self.take(changed, &gone);
        Ok(())
    }

    /// Takes in records that are new or gone. A host none of whose records changed stays the value that it is.
    fn take(&mut self, changed: Vec<Entry>, gone: &[String]) {
        let (hosts, records) = (&mut self.hosts, &mut self.records);
        let mut specs = false;
        for key in gone {
            records.remove(key);
            if let Some(Key::Host { host, record }) = host_keys::parse(key)
                && let Some(known) = hosts.get_mut(host)
            {
                Arc::make_mut(known).forget(record);
                if record == HostRecord::Spec {
                    specs = true;
                    self.registered.remove(host);
                }
            }
        }
        for entry in changed {
            let Some(Key::Host { host, record }) = host_keys::parse(&entry.key) else { continue };
            if record == HostRecord::Spec {
                specs = true;
                self.registered.insert(host.to_owned(), entry.created);
            }
            if !hosts.contains_key(host) {
                hosts.insert(host.to_owned(), Arc::new(HostInput::unknown(host)));
            }
            if let Some(known) = hosts.get_mut(host) {
                Arc::make_mut(known).take(record, &entry);
            }
            records.insert(entry.key, entry.modified);
        }
        if !gone.is_empty() {
            hosts.retain(|name, _| READ.iter().any(|one| records.contains_key(&host_keys::host(name, *one))));
        }
        if specs {
            self.set_aside();
        }
    }

    /// Finds the hosts that the inventory sets aside beside those that cannot be read. Only specs decide that, and they
    /// change when people change them.
    fn set_aside(&mut self) {
        let readable = || self.hosts.iter().filter_map(|(name, host)| Some((name, host.spec.as_ref().ok()?)));
        let (named, misnamed): (Vec<_>, Vec<_>) =
            readable().partition(|(name, _)| names::check_dns_label(name).is_ok());
        let placed = named.into_iter().map(|(name, spec)| {
            (self.registered.get(name).copied().unwrap_or_default(), name.as_str(), spec)
        });
        let lost = yielding(placed).into_iter();
        let mut aside: BTreeMap<String, String> =
            lost.map(|(name, (claim, first))| (name.to_owned(), index::taken(&claim, first))).collect();
        aside.extend(misnamed.into_iter().filter_map(|(name, _)| {
            let error = names::check_dns_label(name).err()?;
            let why = format!("the host's name {}; it must be {}", error.problem, names::DNS_LABEL);
            Some((name.clone(), why))
        }));
        self.aside = aside;
    }

    /// The hosts by name. Records that outlived their spec are a deleted host's: nothing of it is planned. One that is set
    /// aside counts as one whose spec says nothing.
    fn hosts(&self) -> Vec<Arc<HostInput>> {
        let used = |(name, host): (&String, &Arc<HostInput>)| match self.aside.get(name) {
            None => Arc::clone(host),
            Some(why) => Arc::new(HostInput { spec: Err(why.clone()), ..HostInput::clone(host) }),
        };
        self.hosts.iter().filter(|(_, host)| host.spec_version > Revision::ZERO).map(used).collect()
    }
}

impl HostInput {
    /// A host of which no record was read.
    fn unknown(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            spec: Err("there is no spec".to_owned()),
            status: None,
            op: None,
            intent: None,
            metrics: None,
            spec_version: Revision::ZERO,
            intent_version: None,
        }
    }

    /// Takes in one record.
    fn take(&mut self, record: HostRecord, entry: &Entry) {
        match record {
            HostRecord::Spec => {
                self.spec_version = entry.modified;
                self.spec = decode::<serde_json::Value>(entry).and_then(|value| {
                    BareMetalNodeSpec::read(&value, "spec")
                        .map(|parsed| parsed.value)
                        .map_err(|faults| faults.to_string())
                });
            }
            HostRecord::Intent => {
                self.intent_version = Some(entry.modified);
                self.intent = decode(entry).ok();
            }
            HostRecord::Op => self.op = decode(entry).ok(),
            HostRecord::Status => self.status = Some(decode(entry)),
            HostRecord::Metrics => self.metrics = decode(entry).ok(),
            HostRecord::Events => {}
        }
    }

    /// One record is gone.
    fn forget(&mut self, record: HostRecord) {
        let nothing = Self::unknown(&self.name);
        match record {
            HostRecord::Spec => (self.spec, self.spec_version) = (nothing.spec, nothing.spec_version),
            HostRecord::Intent => (self.intent, self.intent_version) = (None, None),
            HostRecord::Op => self.op = None,
            HostRecord::Status => self.status = None,
            HostRecord::Metrics => self.metrics = None,
            HostRecord::Events => {}
        }
    }
}

fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T, String> {
    serde_json::from_slice(&entry.value).map_err(|error| format!("{}: {error}", entry.key))
}
