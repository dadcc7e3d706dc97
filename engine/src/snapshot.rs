//! Everything a decision may look at, as one value with its own time.
//!
//! Plain data: whoever observes the world fills it in, the planner and the audit only read it. Schedules,
//! cooldowns and delays are already worked out for `now` (as bounds and holds); nothing here reads a
//! clock. Money is in millionths of the currency per hour, power in milliwatts.

use std::{collections::BTreeMap, sync::Arc};

use muster_model::{
    Duration, Timestamp,
    host::Draw,
    k8s::{CsiNodeSpec, Node, Pod, PodKey, ResourceList},
};
use serde::{Deserialize, Serialize};

/// The Kubernetes objects.
pub use muster_model::k8s::Objects as Cluster;

/// One moment of one cluster, its pools and its hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    pub now: Timestamp,
    pub cluster: Cluster,
    pub pools: Vec<Pool>,
    /// Machines of our own; each can become one node.
    pub hosts: Vec<Host>,
    /// How nodes belong to pools, by the name of the node. A node without an entry is not ours to remove.
    pub members: BTreeMap<Arc<str>, Member>,
    /// Pods that are placed all or none.
    pub groups: Vec<Group>,
    pub holds: Vec<Hold>,
    /// Pods for which nothing more is called up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<Spent>,
    /// What could not be observed. Missing knowledge never lowers capacity.
    pub gaps: Vec<Gap>,
    pub limits: Limits,
    pub drain: DrainPolicy,
}

/// A set of nodes that can grow and shrink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pool {
    pub name: Arc<str>,
    /// Bounds on the number of nodes now; a schedule has already been applied.
    pub min: u32,
    pub max: u32,
    /// A pool that does not scale holds this number; `None` for one that does.
    pub fixed: Option<u32>,
    pub mode: Mode,
    /// Higher is preferred when pools compete by priority.
    pub priority: i32,
    pub preference: Preference,
    /// What a node of the pool may look like. Empty: the template is not known, the pool is not planned.
    pub templates: Vec<Template>,
    /// Bound on the sum of the capacity of the pool's nodes, by resource.
    pub limits: ResourceList,
    /// Most new nodes in one plan.
    pub max_new: Option<u32>,
    /// Free room to keep beyond what pods ask for, as a sum over the pool's nodes.
    pub headroom: ResourceList,
    /// Free room to keep as whole nodes or as pods of a shape.
    pub spare: Spare,
    /// Over how many racks and zones its nodes stay spread when some of them go. Zero asks for nothing, and
    /// a pool that may not have that many nodes keeps as many as it can.
    pub keep_racks: u32,
    pub keep_zones: u32,
    pub demand: Demand,
}

/// Room for what comes next: so many nodes without pods, and so many pods of a shape that find a place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spare {
    pub nodes: u32,
    pub pods: u32,
    /// What each of the pods requests.
    pub shape: ResourceList,
}

/// What a plan may do with a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Decisions are made and carried out.
    #[default]
    Act,
    /// Decisions are made and shown; others carry them out or nobody does.
    Advise,
    /// Nothing is decided.
    Frozen,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Preference {
    Priority,
    #[default]
    Cost,
    Energy,
    LeastWaste,
}

/// Reasons beside pending pods to change the size of a pool, in percent of what nodes can hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Demand {
    /// A metric asks for growth, for less, or for nothing; `None` if there is no trigger.
    pub trigger: Option<Trigger>,
    /// How long the metric of a trigger for more may take to show a node that has come.
    pub trigger_settles: Duration,
    /// Grow by one step above these marks.
    pub target_cpu_percent: Option<u32>,
    pub target_memory_percent: Option<u32>,
    /// Nodes below this mark may go.
    pub scale_down_percent: Option<u32>,
    /// How long a node has to be unneeded before it goes.
    pub scale_down_delay: Duration,
    /// How long a high mark has to hold. Pods that wait do not wait for it.
    pub scale_up_delay: Duration,
    /// Since when the pool has been above its high mark.
    pub high_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Trigger {
    Up,
    Down,
    Idle,
}

/// The node that a pool would make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Template {
    /// Unique in its pool; usually the instance type or the shape of a host.
    pub name: Arc<str>,
    /// Labels, taints, allocatable, capacity and declared features as the node will have them. The name
    /// and the labels for hostname, zone and capacity type are added for each new node.
    pub node: Arc<Node>,
    /// Which drivers the node will run, and how many volumes they attach.
    pub csi: Option<CsiNodeSpec>,
    /// Where and at what price it can be had. Empty if it stands for hosts only.
    pub offerings: Vec<Offering>,
}

/// The sum of prices. One that no sum can hold is the largest there is: nobody pays so much.
pub fn sum_of_prices(prices: impl IntoIterator<Item = i64>) -> i64 {
    prices.into_iter().fold(0, i64::saturating_add)
}

/// One place and way to buy a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Offering {
    pub zone: Option<Arc<str>>,
    /// For example `on-demand` or `spot`.
    pub capacity_type: Option<Arc<str>>,
    /// Millionths of the currency per hour.
    pub price: i64,
    /// How many more can be had; `None` is no bound.
    pub supply: Option<u32>,
    /// Not to be had before then, because it failed lately.
    pub unavailable_until: Option<Timestamp>,
}

/// A machine of our own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Host {
    pub name: Arc<str>,
    /// The pool it serves, and the template of that pool that describes it.
    pub pool: Arc<str>,
    pub template: Arc<str>,
    pub state: HostState,
    pub zone: Option<Arc<str>>,
    pub rack: Option<Arc<str>>,
    /// Its node, if it has one.
    pub node: Option<Arc<str>>,
    /// Energy cost of running it, in millionths of the currency per hour.
    pub price: i64,
    pub idle_milliwatts: i64,
    pub max_milliwatts: i64,
    /// Drawn for a moment while it starts.
    pub inrush_milliwatts: i64,
    /// What its records say that it draws; where they say nothing, whatever is not off does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draw: Option<Draw>,
    pub wake_time: Duration,
    pub off_since: Option<Timestamp>,
    /// Since when its node serves, and how long it does so at least: switching wears machines out.
    pub on_since: Option<Timestamp>,
    pub min_on_time: Duration,
    pub health: Health,
    /// Failures to wake within the last day.
    pub recent_failures: u32,
    /// Not to be tried before then.
    pub backoff_until: Option<Timestamp>,
}

impl Host {
    /// Whether its watts are taken already.
    pub const fn draws(&self) -> bool {
        match (self.state, self.draw) {
            (HostState::Off, _)
            | (HostState::Failed | HostState::Maintenance | HostState::Unknown, Some(Draw::Rests)) => false,
            (
                HostState::On
                | HostState::Waking
                | HostState::Ready
                | HostState::Leaving
                | HostState::Failed
                | HostState::Maintenance
                | HostState::Unknown,
                _,
            ) => true,
        }
    }

    /// Whether it counts only because nobody knows that it is off.
    pub fn is_not_known_off(&self) -> bool {
        self.draws() && self.draw == Some(Draw::NotKnownOff)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostState {
    #[default]
    Off,
    /// Powered without a node.
    On,
    /// Starting, with its node on the way.
    Waking,
    /// Runs its node.
    Ready,
    /// Being drained or switched off.
    Leaving,
    Failed,
    /// In nobody's hands but a person's.
    Maintenance,
    /// Nobody could tell.
    Unknown,
}

/// What the hardware says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    #[default]
    Good,
    /// Costs, but may be used; names the reading.
    Warning(Box<str>),
    /// Never woken and first to go; names the reading.
    Critical(Box<str>),
}

/// How a node belongs to its pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Member {
    pub pool: Arc<str>,
    pub template: Arc<str>,
    pub host: Option<Arc<str>>,
    pub state: MemberState,
    /// Millionths of the currency per hour.
    pub price: i64,
    pub unneeded_since: Option<Timestamp>,
    /// A person switched it on while the pool was full. It stands cordoned beside the others: none of them goes for it,
    /// and the pool grows by no other node while it is there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub surplus: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberState {
    #[default]
    Ready,
    /// Asked for and not registered yet, or registered and not ready for the first time.
    Upcoming { expected: Timestamp },
    /// Being removed. It still counts against the maximum, and no longer towards the minimum.
    Leaving,
    /// Registered, but not ready.
    Unready,
}

/// Pods that are placed together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    pub name: Arc<str>,
    pub pods: Vec<PodKey>,
    /// How many of them have to run, bound ones included; the others may follow.
    pub min: u32,
}

/// A person's or a policy's word that something is not to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    pub scope: Scope,
    pub stops: Stops,
    pub why: Box<str>,
    /// `None` is until further notice.
    pub until: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    Everything,
    Pool(Arc<str>),
    Node(Arc<str>),
    Host(Arc<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stops {
    Growth,
    Removal,
    Both,
}

impl Hold {
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Pods of one demand for which machines were called up in vain. They are left to whatever room comes up by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spent {
    pub pods: Vec<PodKey>,
    /// The pools whose machines were called up for them.
    pub pools: Vec<Arc<str>>,
    pub why: Box<str>,
    pub until: Option<Timestamp>,
}

/// Something that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    pub scope: Scope,
    pub why: Box<str>,
}

/// Bounds on everything together. `None` is no bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    pub max_nodes: Option<u32>,
    /// Sum of the capacity of all nodes, by resource; what is not listed is not bounded.
    pub resources: ResourceList,
    /// Price of all members, per hour.
    pub price: Option<i64>,
    /// Most new nodes in one plan.
    pub max_new: Option<u32>,
    /// Most nodes on their way out at one time, those that are going already included.
    pub max_removals: Option<u32>,
    /// All hosts together.
    pub power: PowerLimits,
    pub racks: BTreeMap<Arc<str>, PowerLimits>,
    /// Why the whole cluster grows slowly, if that is so for another reason than nodes that are not ready.
    pub caution: Option<Box<str>>,
}

/// Every host that [draws](Host::draws) counts with its `max_milliwatts`; one that starts counts with its inrush.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerLimits {
    pub milliwatts: Option<i64>,
    /// Sum of the inrush of hosts that start at one time.
    pub inrush_milliwatts: Option<i64>,
    /// Hosts that start at one time.
    pub waking: Option<u32>,
    /// Of a rack: its hosts that are on their way down at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaving: Option<u32>,
}

/// Which pods may not be moved, beside those that say so themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainPolicy {
    /// Pods without a controller would not come back.
    pub keep_unreplicated: bool,
    /// Pods with scratch space on the node would lose it.
    pub keep_local_storage: bool,
    /// Pods of `kube-system` without a budget.
    pub keep_system: bool,
    /// Controllers with fewer replicas than this keep theirs where they are.
    pub min_replicas: u32,
}

impl Default for DrainPolicy {
    fn default() -> Self {
        Self { keep_unreplicated: true, keep_local_storage: true, keep_system: true, min_replicas: 0 }
    }
}

impl Snapshot {
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| *pool.name == *name)
    }

    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| *host.name == *name)
    }

    /// Why nothing more is called up for a pod, if that is so.
    pub fn spent(&self, pod: &Pod) -> Option<&Spent> {
        let is = |key: &PodKey| *key.namespace == *pod.metadata.namespace && *key.name == *pod.metadata.name;
        self.spent
            .iter()
            .find(|spent| spent.until.is_none_or(|until| self.now < until) && spent.pods.iter().any(is))
    }

    /// The first hold in force on any of `scopes` that stops `what`.
    pub fn hold(&self, scopes: &[Scope], what: Stops) -> Option<&Hold> {
        self.holds.iter().find(|hold| {
            hold.is_active(self.now)
                && (hold.stops == Stops::Both || hold.stops == what)
                && (hold.scope == Scope::Everything || scopes.contains(&hold.scope))
        })
    }
}

impl Pool {
    pub fn template(&self, name: &str) -> Option<&Template> {
        self.templates.iter().find(|template| *template.name == *name)
    }
}
