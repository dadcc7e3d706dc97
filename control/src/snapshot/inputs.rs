//! What a snapshot is built from, as plain data.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use muster_model::{
    Known, NodePool, Timestamp,
    catalogue::Catalogue,
    cluster::Cluster,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, GlobalConfig, HostMetrics, HostOp, Intent, PoolHostConfig,
    },
    observe::ClusterView,
    pool::Trigger,
    rack::Rack,
    store::Revision,
    trigger::Finding,
};

use super::Memory;
use crate::freeze::Freeze;

/// Everything that is known about one cluster at one moment.
#[derive(Debug, Clone)]
pub struct Inputs {
    pub now: Timestamp,
    pub cluster: Arc<Cluster>,
    pub observed: Observed,
    /// The pools of the cluster, by name.
    pub pools: Vec<PoolInput>,
    pub unreadable_pools: Vec<(String, String)>,
    /// All hosts of the inventory: those of other clusters share racks and limits with ours.
    pub hosts: Vec<Arc<HostInput>>,
    pub racks: Vec<Rack>,
    pub global: GlobalConfig,
    /// Divides the limits of hosts, as in the host loop; 1 in production.
    pub time_factor: u32,
    /// Whether anything may act, and why not.
    pub freeze: Freeze,
    /// Why the stored global settings cannot be used; `global` then holds the defaults.
    pub global_fault: Option<String>,
    pub catalogue: Cow<'static, Catalogue>,
    pub memory: Memory,
    pub set_aside: Vec<(String, String)>,
}

/// The Kubernetes side.
#[derive(Debug, Clone)]
pub enum Observed {
    /// Nobody gave us a connection. Pools with a fixed size and triggers are still planned.
    NotConnected,
    View(ClusterView),
}

impl Observed {
    /// Whether the cluster shows a node of this name.
    pub fn has_node(&self, name: &str) -> bool {
        match self {
            Self::NotConnected => false,
            Self::View(view) => view.objects.nodes.iter().any(|node| node.name() == name),
        }
    }
}

/// One pool.
#[derive(Debug, Clone)]
pub struct PoolInput {
    pub object: Arc<NodePool>,
    /// Size that is wanted now, as its status says.
    pub desired: u32,
    /// Nodes that its controllers say exist.
    pub current: Option<u32>,
    /// A person's scale request that is still under way.
    pub requested: Option<u32>,
    pub triggers: Vec<TriggerInput>,
    pub host_config: PoolHostConfig,
}

/// A trigger of a pool with what was found out about it.
#[derive(Debug, Clone)]
pub struct TriggerInput {
    pub trigger: Trigger,
    pub finding: Known<Finding>,
}

/// The records of one host. What could not be read is a sentence.
#[derive(Debug, Clone)]
pub struct HostInput {
    pub name: String,
    pub spec: Result<BareMetalNodeSpec, String>,
    pub status: Option<Result<BareMetalNodeStatus, String>>,
    pub op: Option<HostOp>,
    pub intent: Option<Intent>,
    pub metrics: Option<HostMetrics>,
    /// Revisions of the spec and of the intent, for whoever writes the next intent.
    pub spec_version: Revision,
    pub intent_version: Option<Revision>,
}

impl Inputs {
    /// The pool whose hosts carry this inventory name, if it is one of this cluster's.
    pub(super) fn pool_of_inventory(&self, inventory: &str) -> Option<&PoolInput> {
        self.pools.iter().find(|pool| pool.is_bare_metal() && pool.inventory_name() == inventory)
    }

    /// What a name in the engine's snapshot stands for.
    pub fn pool_named(&self, name: &str) -> Option<&PoolInput> {
        self.pools.iter().find(|pool| pool.object.name.as_str() == name)
    }

    /// Hosts by the pool of this cluster that they serve.
    pub fn hosts_of<'i>(&'i self, pool: &'i PoolInput) -> impl Iterator<Item = &'i HostInput> + 'i {
        self.hosts
            .iter()
            .map(|host| &**host)
            .filter(move |host| host.spec.as_ref().is_ok_and(|spec| pool.takes(spec)))
    }

    /// The host behind a node, by the node's name.
    pub fn hosts_by_node(&self) -> BTreeMap<&str, &HostInput> {
        self.hosts
            .iter()
            .filter_map(|host| {
                let status = host.status.as_ref()?.as_ref().ok()?;
                Some((status.kubernetes_node.as_deref()?, &**host))
            })
            .collect()
    }
}

impl PoolInput {
    pub fn name(&self) -> &str {
        self.object.name.as_str()
    }

    pub fn is_bare_metal(&self) -> bool {
        self.object.spec.platform.kind == muster_model::platform::PlatformKind::Baremetal
    }

    /// `platform.baremetal.pool`, by default the pool's own name.
    pub fn inventory_name(&self) -> String {
        self.object.spec.platform.facts().inventory.unwrap_or_else(|| self.object.name.to_string())
    }

    /// Whether a host serves this pool: it names it, and the pool's selector does not leave it out.
    pub fn takes(&self, host: &BareMetalNodeSpec) -> bool {
        self.is_bare_metal()
            && host.pool == self.inventory_name()
            && self
                .object
                .spec
                .platform
                .facts()
                .selector
                .is_none_or(|selector| selector.matches(&host.labels))
    }
}
