//! What a turn needs beside the records of its host: a port, so that the loop does not know who keeps it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use muster_engine::{
    lifecycle::{Advice, AgentView, BootProgress},
    snapshot::DrainPolicy,
};
use muster_model::{
    Known, Timestamp,
    host::{BootProfile, FreezeMode, PoolHostConfig, Presence},
    observe::ClusterPort,
    pool::Taint,
    rack::Rack,
};

/// Where the nodes of a pool's hosts are.
#[derive(Debug, Clone)]
pub enum Home {
    /// No cluster has this pool: its hosts have no nodes, and that is knowledge.
    Nowhere,
    /// A cluster has it that is not connected: nothing is known about nodes.
    Unconnected {
        why: String,
    },
    Cluster {
        name: Arc<str>,
        port: Arc<dyn ClusterPort>,
    },
}

/// What a pool puts on the nodes of its hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dress {
    /// The pool's present name, where a cluster has it.
    pub pool: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

/// What a pool says of how its hosts are handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolSays {
    /// Nobody has asked the pools: what stands for it in the inventory holds.
    Unasked,
    /// No pool has this name: the settings of all hosts hold, whatever stands in the inventory.
    Nothing,
    This(Arc<PoolHostConfig>),
}

/// Connected clusters by name. Shared: the loop asks for them whenever it wakes.
pub type Clusters = Arc<[(Arc<str>, Arc<dyn ClusterPort>)]>;

/// Facts beside the inventory. Answers come from memory: a turn never waits for them.
pub trait Around: Send + Sync + fmt::Debug {
    /// Where the nodes of `pool` are.
    fn home(&self, pool: &str) -> Home;

    /// What stops every action, or wakes everything, beside the settings that the loop reads itself: a store that was
    /// restored and has not seen the world since.
    fn freeze(&self) -> FreezeMode {
        FreezeMode::None
    }

    /// Another number whenever what stops every action, the version of some credential, what pools say of their hosts, or which
    /// clusters are connected may be another. Without it the loop asks for them once a second.
    fn news(&self) -> Option<tokio::sync::watch::Receiver<u64>> {
        None
    }

    /// Every connected cluster: a change in one of them wakes its hosts.
    fn clusters(&self) -> Clusters {
        Clusters::default()
    }

    /// Why the inventory sets a host aside: nothing is read from it or done to it. Two records that mean one
    /// machine, for example.
    fn set_aside(&self, _host: &str) -> Option<String> {
        None
    }

    /// How the hosts of a pool are handled.
    fn pool_says(&self, _pool: &str) -> PoolSays {
        PoolSays::Unasked
    }

    /// Another number whenever [`Around::pool_says`] or [`Around::advice`] may say something else of some pool: the loop then
    /// looks at its hosts. Zero as long as nothing is known of them.
    fn pools_changed(&self) -> u64 {
        0
    }

    /// What nodes of the pool carry beside what their hosts say.
    fn dress(&self, _pool: &str) -> Arc<Dress> {
        Arc::default()
    }

    /// Which pods keep a node of the pool when nobody but the planner wants it to go.
    fn drain_policy(&self, _pool: &str) -> DrainPolicy {
        DrainPolicy::default()
    }

    /// Set while nothing may be done to the pool's hosts that no person asked for: it only gives advice.
    fn advice(&self, _pool: &str) -> Option<Advice> {
        None
    }

    /// Most nodes that the pool may have; `None` if nothing limits it.
    fn pool_max(&self, _pool: &str) -> Option<u32> {
        None
    }

    fn rack(&self, _name: &str) -> Option<Rack> {
        None
    }

    fn boot_profile(&self, _name: &str) -> Option<BootProfile> {
        None
    }

    /// Another number for another value; zero for a credential that does not exist.
    fn credential_version(&self, _name: &str) -> u64 {
        0
    }

    /// Another number whenever the version of some credential is another: the loop then looks whose it is. Zero as long
    /// as nothing is known of them.
    fn credentials_changed(&self) -> u64 {
        0
    }

    /// What the agent on the host said last.
    fn agent(&self, _host: &str) -> AgentView {
        AgentView::default()
    }

    /// Whether the host answers on the network; asked for hosts whose power cannot be read.
    fn presence(&self, _host: &str, now: Timestamp) -> Known<Presence> {
        Known::Unknown { why: "nothing probes the network for it".into(), since: now }
    }

    /// Progress that a PXE server or an installer reported.
    fn boot_report(&self, _host: &str) -> Option<BootProgress> {
        None
    }
}

/// An inventory without clusters, racks and agents.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Around for Nothing {
    fn home(&self, _pool: &str) -> Home {
        Home::Nowhere
    }
}
