//! The planner of one cluster: looks, decides, journals, and has it carried out.
//!
//! [`Planner::turn`] is one look, with the time as an argument: production calls it from a task
//! ([`Planning::run`]), a simulation calls it with a clock of its own, and both run the same code. A turn never
//! fails as a whole; what went wrong is on the [`Board`], and the next turn tries again.
//!
//! A process that does not lead takes the same turns without writing anything, so that it can explain.

mod answers;
mod board;
mod decide;
mod load;
mod notes;
mod run;
mod tell;
mod turn;

use std::{collections::BTreeMap, fmt, sync::Arc};

use muster_model::{
    Clock, ClusterId, cluster::Cluster, observe::ClusterPort, platform::PlatformKind, trigger::Triggers,
};

use crate::{actuator::Provisioner, journal::Journal, lead::Lead, registry::Registry};

pub use answers::Heard;
pub use board::{Board, Counters, Live, View};
pub use decide::{Decided, decide, faults};
pub use load::Load;
pub use run::{Planning, matters};
pub use turn::{Did, Planner, Turn};

/// Where the connections to clusters come from.
pub trait Connections: Send + Sync + fmt::Debug {
    /// The port to a cluster, if somebody has told us how to reach it.
    fn port(&self, cluster: &Cluster) -> Option<Arc<dyn ClusterPort>>;
}

/// Nobody has told us how to reach any cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoConnections;

impl Connections for NoConnections {
    fn port(&self, _: &Cluster) -> Option<Arc<dyn ClusterPort>> {
        None
    }
}

/// Where the work of planning is done: a plan for a large cluster takes longer than others may wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Thinking {
    /// In the turn itself, so that a simulation on one thread has one order of things.
    #[default]
    Here,
    /// On a thread for long work; the runtime's own threads go on serving.
    Aside,
}

/// What every planner of a process works with. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Parts {
    pub registry: Arc<Registry>,
    pub journal: Journal,
    pub board: Arc<Board>,
    pub connections: Arc<dyn Connections>,
    pub triggers: Option<Arc<dyn Triggers>>,
    /// Measures how long triggers are waited for.
    pub clock: Arc<dyn Clock>,
    /// Divides the limits of hosts, as in the host loop; 1 in production.
    pub time_factor: u32,
    /// Where plans are made.
    pub thinking: Thinking,
    /// Who is told of the size of pools that Muster provisions through somebody else.
    pub provisioners: BTreeMap<PlatformKind, Arc<dyn Provisioner>>,
    /// Says how long nobody led, which counts toward no wait.
    pub lead: Option<Arc<Lead>>,
}

impl Parts {
    /// With a registry alone: no connections, no triggers.
    pub fn new(registry: Arc<Registry>) -> Self {
        let journal = Journal::new(Arc::clone(registry.store()));
        let clock = Arc::clone(registry.clock());
        Self {
            registry,
            journal,
            board: Arc::new(Board::default()),
            connections: Arc::new(NoConnections),
            triggers: None,
            clock,
            time_factor: 1,
            thinking: Thinking::Here,
            provisioners: BTreeMap::new(),
            lead: None,
        }
    }

    pub fn planner(&self, cluster: ClusterId) -> Planner {
        Planner::new(self.clone(), cluster)
    }
}
