//! What can be wrong with a plan.

use std::fmt;

use muster_model::k8s::PodKey;

use crate::fit::Plugin;

/// Something a plan breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub at: At,
    pub fault: Fault,
}

/// The part of the plan that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// The plan as a whole.
    Plan,
    NewNode(usize),
    Placement(usize),
    Removal(usize),
    /// A move of a removal: index of the removal, index of the move.
    Move(usize, usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    UnknownPool {
        pool: String,
    },
    UnknownTemplate {
        pool: String,
        template: String,
    },
    NotOffered {
        template: String,
        zone: String,
        capacity_type: String,
    },
    OfferingExhausted {
        template: String,
        zone: String,
        capacity_type: String,
        supply: u32,
    },
    UnknownHost {
        host: String,
    },
    WrongHost {
        host: String,
        why: String,
    },
    HostUsedTwice {
        host: String,
    },
    NodeNameTaken {
        node: String,
    },
    WrongPrice {
        node: String,
        found: i64,
        expected: i64,
    },
    AboveMax {
        pool: String,
        nodes: u32,
        max: u32,
    },
    BelowMin {
        pool: String,
        nodes: u32,
        min: u32,
    },
    LastThere {
        node: String,
        place: String,
        required: u32,
    },
    Frozen {
        pool: String,
    },
    Held {
        what: String,
        why: String,
    },
    Unobserved {
        node: String,
        why: String,
    },
    TooManyNew {
        planned: usize,
        max: u32,
    },
    TooManyRemovals {
        whose: String,
        going: usize,
        planned: usize,
        max: u32,
    },
    TooManyNodes {
        nodes: usize,
        max: u32,
    },
    TooMuch {
        whose: String,
        resource: String,
        total: String,
        limit: String,
    },
    TooExpensive {
        price: i64,
        limit: i64,
    },
    TooMuchPower {
        whose: String,
        milliwatts: i64,
        limit: i64,
    },
    TooMuchInrush {
        whose: String,
        milliwatts: i64,
        limit: i64,
    },
    TooManyWaking {
        whose: String,
        waking: u32,
        limit: u32,
    },
    /// More on their way up than times of trouble allow.
    TooFast {
        place: String,
        why: String,
        rising: u32,
        limit: u32,
    },
    UnknownPod {
        pod: PodKey,
    },
    NotPending {
        pod: PodKey,
    },
    PlacedTwice {
        pod: PodKey,
    },
    Unaccounted {
        pod: PodKey,
    },
    UnknownNode {
        node: String,
    },
    LeavingNode {
        node: String,
    },
    Refused {
        pod: PodKey,
        node: String,
        plugin: Plugin,
        reasons: Vec<String>,
    },
    GroupTorn {
        group: String,
        placed: u32,
        min: u32,
    },
    NotOurs {
        node: String,
    },
    RemovedTwice {
        node: String,
    },
    NotOnNode {
        pod: PodKey,
        node: String,
    },
    LeftBehind {
        pod: PodKey,
        node: String,
    },
    Unmovable {
        pod: PodKey,
        why: String,
    },
    BudgetExhausted {
        pod: PodKey,
        budget: String,
        allowed: i64,
    },
    SeveralBudgets {
        pod: PodKey,
        budgets: usize,
    },
}

impl Fault {
    /// A stable name: metric label, report code and heading in the docs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownPool { .. } => "UnknownPool",
            Self::UnknownTemplate { .. } => "UnknownTemplate",
            Self::NotOffered { .. } => "NotOffered",
            Self::OfferingExhausted { .. } => "OfferingExhausted",
            Self::UnknownHost { .. } => "UnknownHost",
            Self::WrongHost { .. } => "WrongHost",
            Self::HostUsedTwice { .. } => "HostUsedTwice",
            Self::NodeNameTaken { .. } => "NodeNameTaken",
            Self::WrongPrice { .. } => "WrongPrice",
            Self::AboveMax { .. } => "AboveMax",
            Self::BelowMin { .. } => "BelowMin",
            Self::LastThere { .. } => "LastThere",
            Self::Frozen { .. } => "Frozen",
            Self::Held { .. } => "Held",
            Self::Unobserved { .. } => "Unobserved",
            Self::TooManyNew { .. } => "TooManyNew",
            Self::TooManyRemovals { .. } => "TooManyRemovals",
            Self::TooManyNodes { .. } => "TooManyNodes",
            Self::TooMuch { .. } => "TooMuch",
            Self::TooExpensive { .. } => "TooExpensive",
            Self::TooMuchPower { .. } => "TooMuchPower",
            Self::TooMuchInrush { .. } => "TooMuchInrush",
            Self::TooManyWaking { .. } => "TooManyWaking",
            Self::TooFast { .. } => "TooFast",
            Self::UnknownPod { .. } => "UnknownPod",
            Self::NotPending { .. } => "NotPending",
            Self::PlacedTwice { .. } => "PlacedTwice",
            Self::Unaccounted { .. } => "Unaccounted",
            Self::UnknownNode { .. } => "UnknownNode",
            Self::LeavingNode { .. } => "LeavingNode",
            Self::Refused { .. } => "Refused",
            Self::GroupTorn { .. } => "GroupTorn",
            Self::NotOurs { .. } => "NotOurs",
            Self::RemovedTwice { .. } => "RemovedTwice",
            Self::NotOnNode { .. } => "NotOnNode",
            Self::LeftBehind { .. } => "LeftBehind",
            Self::Unmovable { .. } => "Unmovable",
            Self::BudgetExhausted { .. } => "BudgetExhausted",
            Self::SeveralBudgets { .. } => "SeveralBudgets",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPool { pool } => write!(f, "pool {pool} does not exist"),
            Self::UnknownTemplate { pool, template } => write!(f, "pool {pool} has no template {template}"),
            Self::NotOffered { template, zone, capacity_type } => {
                write!(f, "template {template} is not to be had as {capacity_type} in zone {zone} now")
            }
            Self::OfferingExhausted { template, zone, capacity_type, supply } => {
                write!(f, "only {supply} of template {template} are left as {capacity_type} in zone {zone}")
            }
            Self::UnknownHost { host } => write!(f, "host {host} does not exist"),
            Self::WrongHost { host, why } => write!(f, "host {host} cannot be used: {why}"),
            Self::HostUsedTwice { host } => write!(f, "host {host} is used for two nodes"),
            Self::NodeNameTaken { node } => write!(f, "there is another node called {node}"),
            Self::WrongPrice { node, found, expected } => {
                write!(f, "node {node} is planned at {found} but costs {expected} (millionths per hour)")
            }
            Self::AboveMax { pool, nodes, max } => {
                write!(f, "pool {pool} would have {nodes} nodes, its maximum is {max}")
            }
            Self::BelowMin { pool, nodes, min } => {
                write!(f, "pool {pool} would keep {nodes} nodes, its minimum is {min}")
            }
            Self::Frozen { pool } => write!(f, "pool {pool} is frozen"),
            Self::Held { what, why } => write!(f, "{what} is held: {why}"),
            Self::Unobserved { node, why } => {
                write!(f, "node {node} is removed although not everything about it is known: {why}")
            }
            Self::TooManyNew { planned, max } => {
                write!(f, "{planned} new nodes, {max} at a time are allowed")
            }
            Self::TooManyRemovals { whose, going, planned, max } => {
                write!(
                    f,
                    "{planned} removals of {whose} beside {going} that are going, {max} at a time are allowed"
                )
            }
            Self::TooManyNodes { nodes, max } => {
                write!(f, "the cluster would have {nodes} nodes, {max} are allowed")
            }
            Self::LastThere { node, place, required } => {
                write!(f, "node {node} is the last of its pool in {place}, and {required} of them are kept")
            }
            Self::TooMuch { whose, resource, total, limit } => {
                write!(f, "{whose} would have {total} {resource}, {limit} is allowed")
            }
            Self::TooExpensive { price, limit } => {
                write!(f, "nodes would cost {price}, {limit} is allowed (millionths per hour)")
            }
            Self::TooMuchPower { whose, milliwatts, limit } => {
                write!(f, "{whose} could draw {milliwatts} mW, {limit} mW is allowed")
            }
            Self::TooMuchInrush { whose, milliwatts, limit } => {
                write!(f, "starting hosts of {whose} could draw {milliwatts} mW, {limit} mW is allowed")
            }
            Self::TooFast { place, why, rising, limit } => {
                write!(
                    f,
                    "{rising} machines of {place} would be on their way up, at most {limit} while {why}"
                )
            }
            Self::TooManyWaking { whose, waking, limit } => {
                write!(f, "{waking} hosts of {whose} would start at once, {limit} are allowed")
            }
            Self::UnknownPod { pod } => write!(f, "pod {pod} does not exist"),
            Self::NotPending { pod } => write!(f, "pod {pod} does not wait for a node"),
            Self::PlacedTwice { pod } => write!(f, "pod {pod} is placed more than once"),
            Self::Unaccounted { pod } => {
                write!(f, "pending pod {pod} is neither placed nor listed as unplaced")
            }
            Self::UnknownNode { node } => write!(f, "node {node} does not exist"),
            Self::LeavingNode { node } => write!(f, "node {node} is being removed and takes no pods"),
            Self::Refused { pod, node, plugin, reasons } => {
                write!(f, "{plugin} refuses pod {pod} on node {node}: {}", reasons.join(", "))
            }
            Self::GroupTorn { group, placed, min } => {
                write!(f, "group {group} would run {placed} pods, it needs {min} or none")
            }
            Self::NotOurs { node } => write!(f, "node {node} belongs to no pool and may not be removed"),
            Self::RemovedTwice { node } => write!(f, "node {node} is removed twice"),
            Self::NotOnNode { pod, node } => write!(f, "pod {pod} does not run on node {node}"),
            Self::LeftBehind { pod, node } => {
                write!(f, "pod {pod} would lose its node {node} and has no other")
            }
            Self::Unmovable { pod, why } => write!(f, "pod {pod} may not be moved: {why}"),
            Self::BudgetExhausted { pod, budget, allowed } => {
                write!(f, "budget {budget} allows {allowed} disruptions and pod {pod} would be one more")
            }
            Self::SeveralBudgets { pod, budgets } => {
                write!(f, "pod {pod} is covered by {budgets} budgets, so that it cannot be evicted at all")
            }
        }
    }
}

/// Everything that was found, in the order of the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a plan with findings must not be carried out"]
pub struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(&mut self, at: At, fault: Fault) {
        self.0.push(Finding { at, fault });
    }

    pub(super) fn sort(&mut self) {
        self.0.sort_by_key(|finding| finding.at);
    }

    /// The first finding; every one of them is a reason not to act.
    pub fn fatal(&self) -> Option<&Finding> {
        self.0.first()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            At::Plan => write!(f, "plan: {}", self.fault),
            At::NewNode(index) => write!(f, "newNodes[{index}]: {}", self.fault),
            At::Placement(index) => write!(f, "placements[{index}]: {}", self.fault),
            At::Removal(index) => write!(f, "removals[{index}]: {}", self.fault),
            At::Move(removal, index) => write!(f, "removals[{removal}].moves[{index}]: {}", self.fault),
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}
