//! The machines that may be called up: offerings of templates, and hosts, with the limits they share.

use std::collections::BTreeMap;

use muster_model::{
    Quantity,
    k8s::{Node, ResourceList},
};

use super::types::{NewNode, Source};
use crate::{
    snapshot::{
        Health, Host, HostState, MemberState, Mode, Pool, PowerLimits, Preference, Scope, Snapshot, Stops,
        sum_of_prices,
    },
    solve::UNLIMITED,
    template,
    trouble::{Brake, Place, Troubles},
};

/// A warning of the hardware adds this share of the cost, in percent.
const WARNING_PERCENT: i64 = 25;
/// Each recent failure to wake adds this share of the cost, in percent.
const FAILURE_PERCENT: i64 = 20;

/// One way to get a node.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) pool: usize,
    pub(crate) template: usize,
    pub(crate) source: WaySource,
    /// Millionths of the currency per hour, as the plan will state it.
    pub(crate) price: i64,
    /// Price and penalties: what the search minimises.
    pub(crate) cost: i64,
    pub(crate) supply: u32,
    pub(crate) takes: Vec<(u32, i64)>,
    pub(crate) rank: i64,
    pub(crate) node: Node,
    /// Where its hosts stand.
    pub(crate) rack: Option<Box<str>>,
    /// What it draws on average, if that is known.
    milliwatts: i64,
    /// What speaks against it, in percent of its cost.
    worry: i64,
}

impl Way {
    /// Whether a planned node came this way.
    pub(crate) fn makes(&self, snapshot: &Snapshot, new: &NewNode) -> bool {
        let pool = &snapshot.pools[self.pool];
        let template = &pool.templates[self.template];
        pool.name == new.pool
            && template.name == new.template
            && match (&self.source, &new.source) {
                (WaySource::Offering(at), Source::Bought { zone, capacity_type }) => {
                    let offering = &template.offerings[*at];
                    offering.zone == *zone && offering.capacity_type == *capacity_type
                }
                (WaySource::Hosts(hosts), Source::Host { host }) => {
                    hosts.iter().any(|&at| snapshot.hosts[at].name == *host)
                }
                _ => false,
            }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum WaySource {
    /// Index of the template's offering.
    Offering(usize),
    /// Indexes of hosts, in the order in which they are called up.
    Hosts(Vec<usize>),
}

/// All ways and their shared limits.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    pub(crate) list: Vec<Way>,
    pub(crate) budgets: Vec<i64>,
    /// What each budget is, for explanations.
    pub(crate) limits: Vec<LimitName>,
}

/// Names a limit that several machines share.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitName {
    PoolMax { pool: String },
    PoolNew { pool: String },
    PoolResource { pool: String, resource: String },
    ClusterNodes,
    ClusterNew,
    ClusterResource { resource: String },
    ClusterPrice,
    Power { whose: String },
    Inrush { whose: String },
    Waking { whose: String },
    Trouble { place: String, why: String },
}

/// Pools with their index, by name: the order of the snapshot does not matter.
pub(crate) fn pools_by_name(snapshot: &Snapshot) -> Vec<(usize, &Pool)> {
    let mut pools: Vec<(usize, &Pool)> = snapshot.pools.iter().enumerate().collect();
    pools.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    pools
}

impl Ways {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let mut ways = Self::default();
        let shared = ways.cluster_budgets(snapshot);
        let brakes = ways.brakes(snapshot);
        for (index, pool) in pools_by_name(snapshot) {
            if pool.mode == Mode::Frozen
                || snapshot.hold(&[Scope::Pool(pool.name.clone())], Stops::Growth).is_some()
            {
                continue;
            }
            let first = ways.list.len();
            ways.offerings(snapshot, index, pool);
            ways.hosts(snapshot, index, pool);
            prefer(pool.preference, &mut ways.list[first..]);
            let own = ways.pool_budgets(snapshot, pool);
            for way in &mut ways.list[first..] {
                way.cost = preferred_cost(snapshot, pool, way.cost.saturating_mul(100 + way.worry) / 100);
                let list = &snapshot.pools[way.pool].templates[way.template].node;
                way.takes.extend(own.iter().chain(&shared).filter_map(|budget| {
                    let amount = budget.amount(list, way.price);
                    (amount > 0).then_some((budget.id, amount))
                }));
                let here = brakes.iter().filter(|(place, _)| place.holds(&pool.name, way.rack.as_deref()));
                way.takes.extend(here.map(|(_, id)| (*id, 1)));
            }
        }
        ways
    }

    fn budget(&mut self, left: i64, name: LimitName) -> u32 {
        self.budgets.push(left.max(0));
        self.limits.push(name);
        self.budgets.len() as u32 - 1
    }

    fn offerings(&mut self, snapshot: &Snapshot, index: usize, pool: &Pool) {
        for (number, kind) in pool.templates.iter().enumerate() {
            for (at, offering) in kind.offerings.iter().enumerate() {
                if offering.unavailable_until.is_some_and(|until| snapshot.now < until)
                    || offering.supply == Some(0)
                {
                    continue;
                }
                let node =
                    template::node(kind, "", offering.zone.as_deref(), offering.capacity_type.as_deref());
                self.list.push(Way {
                    pool: index,
                    template: number,
                    source: WaySource::Offering(at),
                    price: offering.price,
                    cost: offering.price.max(1),
                    supply: offering.supply.unwrap_or(UNLIMITED),
                    takes: Vec::new(),
                    rank: -i64::from(pool.priority),
                    node,
                    rack: None,
                    milliwatts: 0,
                    worry: 0,
                });
            }
        }
    }

    /// Hosts that are alike are one way; within it the best are called first.
    fn hosts(&mut self, snapshot: &Snapshot, index: usize, pool: &Pool) {
        let mut groups: BTreeMap<HostKind<'_>, Vec<usize>> = BTreeMap::new();
        for (at, host) in snapshot.hosts.iter().enumerate() {
            if host.pool != pool.name || refusal(snapshot, host).is_some() {
                continue;
            }
            let Some(number) = pool.templates.iter().position(|kind| kind.name == host.template) else {
                continue;
            };
            groups.entry(HostKind::of(host, number)).or_default().push(at);
        }
        for (kind, mut hosts) in groups {
            let host = |at: &usize| &snapshot.hosts[*at];
            // Longest off first; one that has no record of it comes after those that have.
            hosts.sort_by_key(|at| (host(at).off_since.is_none(), host(at).off_since, host(at).name.clone()));
            let first = host(&hosts[0]);
            let node = template::node(&pool.templates[kind.template], "", first.zone.as_deref(), None);
            let takes = self.power_budgets(snapshot, first);
            let milliwatts = i64::midpoint(first.idle_milliwatts, first.max_milliwatts);
            let base = if first.price > 0 { first.price } else { milliwatts / 1000 };
            let worry = FAILURE_PERCENT * i64::from(first.recent_failures)
                + if matches!(first.health, Health::Warning(_)) { WARNING_PERCENT } else { 0 };
            self.list.push(Way {
                pool: index,
                template: kind.template,
                price: first.price,
                cost: base.max(1),
                milliwatts,
                worry,
                supply: hosts.len() as u32,
                takes,
                // One that is powered already needs no time to wake.
                rank: if kind.off { kind.wake_millis } else { 0 },
                node,
                rack: first.rack.as_deref().map(Into::into),
                source: WaySource::Hosts(hosts),
            });
        }
    }

    fn pool_budgets(&mut self, snapshot: &Snapshot, pool: &Pool) -> Vec<Budget> {
        let members = || snapshot.members.values().filter(|member| member.pool == pool.name);
        let all = members().count() as i64;
        let staying = members().filter(|member| member.state != MemberState::Leaving).count() as i64;
        let mut room = i64::from(pool.max) - all;
        if let Some(fixed) = pool.fixed {
            room = room.min(i64::from(fixed) - staying);
        }
        let name = || pool.name.to_string();
        let mut own = Vec::new();
        if pool.max != u32::MAX || pool.fixed.is_some() {
            own.push(Budget { id: self.budget(room, LimitName::PoolMax { pool: name() }), of: Of::Machines });
        }
        if let Some(most) = pool.max_new {
            own.push(Budget {
                id: self.budget(i64::from(most), LimitName::PoolNew { pool: name() }),
                of: Of::Machines,
            });
        }
        let held: Vec<&Node> = snapshot
            .cluster
            .nodes
            .iter()
            .filter(|node| snapshot.members.get(node.name()).is_some_and(|member| member.pool == pool.name))
            .collect();
        for (resource, limit) in pool.limits.iter() {
            let left = units(resource, *limit) - held_amount(&held, resource);
            let limit = LimitName::PoolResource { pool: name(), resource: resource.into() };
            own.push(Budget { id: self.budget(left, limit), of: Of::Resource(resource.into()) });
        }
        own
    }

    fn cluster_budgets(&mut self, snapshot: &Snapshot) -> Vec<Budget> {
        let limits = &snapshot.limits;
        let mut shared = Vec::new();
        if let Some(most) = limits.max_nodes {
            let left = i64::from(most) - snapshot.cluster.nodes.len() as i64;
            shared.push(Budget { id: self.budget(left, LimitName::ClusterNodes), of: Of::Machines });
        }
        if let Some(most) = limits.max_new {
            shared.push(Budget { id: self.budget(i64::from(most), LimitName::ClusterNew), of: Of::Machines });
        }
        let nodes: Vec<&Node> = snapshot.cluster.nodes.iter().collect();
        for (resource, limit) in limits.resources.iter() {
            let left = units(resource, *limit) - held_amount(&nodes, resource);
            let name = LimitName::ClusterResource { resource: resource.into() };
            shared.push(Budget { id: self.budget(left, name), of: Of::Resource(resource.into()) });
        }
        if let Some(most) = limits.price {
            let spent = sum_of_prices(snapshot.members.values().map(|member| member.price));
            shared.push(Budget { id: self.budget(most - spent, LimitName::ClusterPrice), of: Of::Price });
        }
        shared
    }

    /// How many machines more may be on their way up at one time where there is trouble.
    fn brakes<'a>(&mut self, snapshot: &'a Snapshot) -> Vec<(Place<'a>, u32)> {
        let brakes = Troubles::of(snapshot).brakes(snapshot).into_iter();
        let budgets = brakes.map(|Brake { place, why, rising, most }| {
            let left = i64::from(most) - i64::from(rising);
            (place, self.budget(left, LimitName::Trouble { place: place.to_string(), why }))
        });
        budgets.collect()
    }

    /// What starting a host takes of the watts and starts of its rack and of all hosts.
    fn power_budgets(&mut self, snapshot: &Snapshot, host: &Host) -> Vec<(u32, i64)> {
        if host.state != HostState::Off {
            return Vec::new();
        }
        let mut takes = self.power_of(snapshot, &snapshot.limits.power, "all hosts", host, |_| true);
        if let Some(rack) = &host.rack
            && let Some(limits) = snapshot.limits.racks.get(rack)
        {
            let inside = |other: &Host| other.rack.as_ref() == Some(rack);
            takes.extend(self.power_of(snapshot, limits, &format!("rack {rack}"), host, inside));
        }
        takes
    }

    fn power_of(
        &mut self,
        snapshot: &Snapshot,
        limits: &PowerLimits,
        whose: &str,
        host: &Host,
        inside: impl Fn(&Host) -> bool,
    ) -> Vec<(u32, i64)> {
        let present = || snapshot.hosts.iter().filter(|other| inside(other));
        let drawn: i64 = present().filter(|o| o.draws()).map(|o| o.max_milliwatts).sum();
        let waking = || present().filter(|o| o.state == HostState::Waking);
        let surge: i64 = waking().map(|o| o.inrush_milliwatts).sum();
        let starting = waking().count() as i64;
        let whose = || whose.to_owned();
        let wanted = [
            (limits.milliwatts, drawn, host.max_milliwatts, LimitName::Power { whose: whose() }),
            (limits.inrush_milliwatts, surge, host.inrush_milliwatts, LimitName::Inrush { whose: whose() }),
            (limits.waking.map(i64::from), starting, 1, LimitName::Waking { whose: whose() }),
        ];
        let mut takes = Vec::new();
        for (limit, used, amount, name) in wanted {
            let Some(limit) = limit else { continue };
            let known = self.limits.iter().position(|other| *other == name);
            let id = known.map_or_else(|| self.budget(limit - used, name), |at| at as u32);
            if amount > 0 {
                takes.push((id, amount));
            }
        }
        takes
    }
}

/// What makes hosts alike for the planner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HostKind<'a> {
    template: usize,
    zone: Option<&'a str>,
    rack: Option<&'a str>,
    price: i64,
    watts: (i64, i64, i64),
    off: bool,
    failures: u32,
    warned: bool,
    wake_millis: i64,
}

impl<'a> HostKind<'a> {
    fn of(host: &'a Host, template: usize) -> Self {
        Self {
            template,
            zone: host.zone.as_deref(),
            rack: host.rack.as_deref(),
            price: host.price,
            watts: (host.idle_milliwatts, host.max_milliwatts, host.inrush_milliwatts),
            off: host.state == HostState::Off,
            failures: host.recent_failures,
            warned: matches!(host.health, Health::Warning(_)),
            wake_millis: i64::try_from(host.wake_time.millis()).unwrap_or(i64::MAX),
        }
    }
}

/// Why a host is not to be called up now.
pub(crate) fn refusal(snapshot: &Snapshot, host: &Host) -> Option<HostRefusal> {
    if host.node.is_some() || matches!(host.state, HostState::Ready | HostState::Waking) {
        return Some(HostRefusal::InUse);
    }
    if !matches!(host.state, HostState::Off | HostState::On) {
        return Some(HostRefusal::State(host.state));
    }
    if let Health::Critical(reading) = &host.health {
        return Some(HostRefusal::Critical(reading.to_string()));
    }
    if host.backoff_until.is_some_and(|until| snapshot.now < until) {
        return Some(HostRefusal::Backoff);
    }
    let hold = snapshot.hold(&[Scope::Host(host.name.clone())], Stops::Growth)?;
    Some(HostRefusal::Held(hold.why.to_string()))
}

/// Why a host was not considered.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HostRefusal {
    InUse,
    State(HostState),
    /// Names the reading.
    Critical(String),
    Backoff,
    Held(String),
}

#[derive(Debug, Clone)]
struct Budget {
    id: u32,
    of: Of,
}

#[derive(Debug, Clone)]
enum Of {
    Machines,
    Resource(Box<str>),
    Price,
}

impl Budget {
    fn amount(&self, node: &Node, price: i64) -> i64 {
        match &self.of {
            Of::Machines => 1,
            Of::Price => price,
            Of::Resource(name) => capacity(node).get(name).map_or(0, |amount| units(name, *amount)),
        }
    }
}

fn capacity(node: &Node) -> &ResourceList {
    if node.status.capacity.is_empty() { &node.status.allocatable } else { &node.status.capacity }
}

fn held_amount(nodes: &[&Node], resource: &str) -> i64 {
    nodes.iter().filter_map(|node| capacity(node).get(resource)).map(|amount| units(resource, *amount)).sum()
}

/// Thousandths of cpu, whole units of everything else.
fn units(resource: &str, amount: Quantity) -> i64 {
    if resource == "cpu" { amount.milli() } else { amount.value() }
}

/// Rewrites the costs of a pool's machines by what it prefers. Their sum stays, so that the pool as a whole
/// compares with others by what it costs.
fn prefer(preference: Preference, ways: &mut [Way]) {
    let sizes: Vec<i128> = match preference {
        Preference::Cost | Preference::Priority => return,
        Preference::Energy => ways.iter().map(|way| i128::from(way.milliwatts.max(0))).collect(),
        Preference::LeastWaste => sizes(ways),
    };
    let known = || ways.iter().zip(&sizes).filter(|(_, size)| **size > 0);
    let (cost, size): (i128, i128) =
        known().fold((0, 0), |sum, (way, size)| (sum.0 + i128::from(way.cost), sum.1 + size));
    if size == 0 {
        return;
    }
    let costs: Vec<i64> = ways
        .iter()
        .zip(&sizes)
        .map(|(way, own)| match own {
            0 => way.cost,
            own => i64::try_from(cost * own / size).unwrap_or(i64::MAX).max(1),
        })
        .collect();
    for (way, cost) in ways.iter_mut().zip(costs) {
        way.cost = cost;
    }
}

/// How large machines are: the shares of the largest in every resource, added up.
fn sizes(ways: &[Way]) -> Vec<i128> {
    let mut most: BTreeMap<&str, i64> = BTreeMap::new();
    for (name, amount) in ways.iter().flat_map(|way| way.node.status.allocatable.iter()) {
        let entry = most.entry(name).or_default();
        *entry = (*entry).max(units(name, *amount));
    }
    most.remove("pods");
    let share = |way: &Way, name: &str, most: i64| {
        let amount = way.node.status.allocatable.get(name).map_or(0, |amount| units(name, *amount));
        (i128::from(amount.max(0)) << 20) / i128::from(most.max(1))
    };
    ways.iter().map(|way| most.iter().map(|(name, most)| share(way, name, *most)).sum()).collect()
}

/// A pool that goes by priority makes every pool of lower priority look sixteen times dearer per step.
fn preferred_cost(snapshot: &Snapshot, pool: &Pool, price: i64) -> i64 {
    let price = price.max(1);
    let strict = |other: &&Pool| other.preference == Preference::Priority && other.priority > pool.priority;
    let mut above: Vec<i32> = snapshot.pools.iter().filter(strict).map(|other| other.priority).collect();
    above.sort_unstable();
    above.dedup();
    price.saturating_mul(1 << (4 * above.len().min(5)))
}
